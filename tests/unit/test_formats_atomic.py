"""A folder appears whole or not at all, and nobody else's files are touched."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from penjing.errors import InputError, ResourceError
from penjing.formats import atomic
from penjing.formats.atomic import atomic_folder, check_target, require_disk, require_writable


def penjing_folder(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (path / "penjing.json").write_text('{"version": 1}', encoding="utf-8")
    (path / "stale.safetensors").write_text("old", encoding="utf-8")
    return path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_folder_appears_with_all_its_files_at_the_end(tmp_path: Path):
    target = tmp_path / "new" / "out"
    with atomic_folder(target) as draft:
        (draft / "sub").mkdir()
        (draft / "sub" / "a").write_text("x", encoding="utf-8")
        assert draft.parent == target.parent and not target.exists()
    assert names(tmp_path / "new") == ["out"]
    assert (target / "sub" / "a").read_text(encoding="utf-8") == "x"


def test_an_empty_folder_is_filled(tmp_path: Path):
    target = tmp_path / "out"
    target.mkdir()
    with atomic_folder(target) as draft:
        (draft / "a").touch()
    assert (names(target), names(tmp_path)) == (["a"], ["out"])


def test_a_folder_that_penjing_wrote_is_replaced_as_a_whole(tmp_path: Path):
    target = penjing_folder(tmp_path / "out")
    with atomic_folder(target) as draft:
        (draft / "a").touch()
        assert "stale.safetensors" in names(target)
    assert (names(target), names(tmp_path)) == (["a"], ["out"])


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_after_a_fault_nothing_is_left_and_the_old_folder_stays(tmp_path: Path, fault: type[BaseException]):
    target = penjing_folder(tmp_path / "out")
    before = names(target)
    with pytest.raises(fault), atomic_folder(target) as draft:
        (draft / "a").touch()
        raise fault
    assert (names(target), names(tmp_path)) == (before, ["out"])


def test_an_interrupt_between_the_two_renames_puts_the_old_folder_back(tmp_path: Path, monkeypatch):
    target = penjing_folder(tmp_path / "out")
    before = names(target)
    rename = Path.rename

    def interrupted(self: Path, to: Path) -> Path:
        if self.name.endswith(".partial"):
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as draft:
        (draft / "a").touch()
    assert (names(target), names(tmp_path)) == (before, ["out"])


@pytest.mark.parametrize("marker", [None, "config.json", "penjing.json"])
def test_anyone_elses_folder_is_refused_before_compute(tmp_path: Path, marker: str | None):
    (tmp_path / "thesis.txt").touch()
    if marker:
        (tmp_path / marker).write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(InputError, match="wasn't written by penjing"):
        check_target(tmp_path)
    with pytest.raises(InputError), atomic_folder(tmp_path):
        pytest.fail("the block must not start")


def test_a_marker_that_cannot_be_read_is_no_marker(tmp_path: Path):
    target = penjing_folder(tmp_path / "out")
    (target / "penjing.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError):
        check_target(target)


def test_a_file_in_the_way_is_refused(tmp_path: Path):
    (tmp_path / "out").touch()
    for target in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(InputError, match="is a file"):
            check_target(target)


def test_a_full_disk_is_a_resource_error_and_leaves_nothing(tmp_path: Path):
    with pytest.raises(ResourceError, match="disk filled up"), atomic_folder(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "full")
    assert names(tmp_path) == []


def test_a_link_to_a_folder_keeps_leading_to_it(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "link") as draft:
        (draft / "a").touch()
    assert (tmp_path / "link").is_symlink() and names(tmp_path / "real") == ["a"]


@pytest.mark.parametrize("above", [Path("/proc"), Path("/proc/below")])
def test_a_folder_that_takes_no_entries_is_named_before_compute(above: Path):
    with pytest.raises(InputError, match=r"out .* nothing can be made in /proc .*give another"):
        require_writable(above / "out")
    refused = pytest.raises(InputError, match=rf"out .* nothing can be made in {above} .*give another")
    with refused, atomic_folder(above / "out"):
        pytest.fail("the block must not start")


def test_trying_whether_a_folder_may_be_made_leaves_nothing(tmp_path: Path):
    require_writable(tmp_path / "new" / "out")
    assert names(tmp_path) == []


def test_too_little_disk_is_refused_with_need_and_free(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_500_000))
    require_disk(tmp_path / "new" / "out", 1_500_000)
    with pytest.raises(ResourceError, match=r"needs 3\.0 MB of disk, but only 1\.5 MB are free"):
        require_disk(tmp_path / "new" / "out", 3_000_000)
