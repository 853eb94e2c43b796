"""A hub id opens what the repository holds: only what is needed, into the shared cache, whole or not at all.

All of it against a stand-in hub on this machine.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from tests.unit.formats_files import gguf_file, hf_folder
from tests.unit.hub_server import Hub, Repo, files_of, point_at, serving
from tests.unit.models import hf_model

from penjing.errors import InputError, ResourceError, UnsupportedError
from penjing.formats.locate import Located, Progress, bring, find
from penjing.formats.open import open_checkpoint
from penjing.formats.reference import HubReference, read_reference
from penjing.model.opening import open_model

LITTER = [
    "README.md",
    ".gitattributes",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "modeling_tiny.py",
    "onnx/model.onnx",
    "original/consolidated.00.pth",
    "original/tokenizer.model",
    "picture.png",
    "tf_model.h5",
]


def locate(ref: str | Path, progress: Progress | None = None) -> Located:
    """All of a model on this machine, without a look at what it is."""
    return bring(find(ref), progress)


NO_IDS = [
    "name",
    "name/",
    "a/b/c",
    "name.gguf",
    "a/b//d.gguf",
    "a/b/../d.gguf",
    "a/b/./d.gguf",
    "a/b/c\\d.gguf",
    "a/b/c:/d.gguf",
    "a/b/c\n/d.gguf",
    "./org/name",
    "../name",
    "/org/name",
    "~/name",
]
NO_IDS += ["org/na--me", "org/..", "org/name.git", "org/a b", "org/n\u00e4me", "org/" + "x" * 100]
NO_IDS += ["org/name@", "org/name@/x", "org/name@../x"]


@pytest.fixture(scope="module")
def hub():
    with serving() as stand_in:
        yield stand_in


@pytest.fixture(autouse=True)
def cache(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a hub without repositories."""
    hub.repos.clear()
    hub.asked.clear()
    point_at(hub.url, tmp_path / "cache", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between tries
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory) -> dict[str, bytes]:
    """The files of a tiny model in several shards, with much beside them that no reader needs."""
    folder = hf_model(tmp_path_factory.mktemp("hub") / "m", shard_bytes=100_000)
    return files_of(folder) | dict.fromkeys(LITTER, b"litter")


def disconnect(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    point_at("http://127.0.0.1:9", cache, monkeypatch)


def set_offline(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def commit_of(hub: Hub, name: str = "org/tiny", revision: str = "main") -> str:
    commit = hub.repos[name].commit(revision)
    assert commit is not None
    return commit


class TestWhatIsNamed:
    @pytest.mark.parametrize(
        ("ref", "named"),
        [
            ("org/name", HubReference("org/name")),
            ("org/name@v1.0", HubReference("org/name", revision="v1.0")),
            ("Org-1/na_me.2@refs/pr/3", HubReference("Org-1/na_me.2", revision="refs/pr/3")),
            ("org/name/a-Q4_K_M.gguf", HubReference("org/name", "a-Q4_K_M.gguf")),
            ("org/name/a.gguf@main", HubReference("org/name", "a.gguf", "main")),
            ("org/name/Q4_K_M/a.gguf@main", HubReference("org/name", "Q4_K_M/a.gguf", "main")),
        ],
    )
    def test_a_hub_id_is_read(self, ref, named):
        assert read_reference(ref) == named and str(named) == ref

    @pytest.mark.parametrize("ref", [*NO_IDS, Path("org/name")])
    def test_what_is_no_id_is_a_path_and_never_asked_for(self, hub, ref):
        with pytest.raises(InputError, match="There is no file or folder"):
            locate(ref)
        assert not hub.asked

    def test_what_lies_there_wins(self, hub, tmp_path):
        folder = hf_folder(tmp_path / "org" / "tiny")
        hub.repos["org/tiny"] = Repo({"main": {}})
        assert locate("org/tiny").path.resolve() == folder and not hub.asked


class TestWhatIsFetched:
    def test_only_what_is_read_and_only_once(self, hub, cache, sharded):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        opened = open_model("org/tiny")
        wanted = set(sharded) - set(LITTER)
        assert len([name for name in wanted if name.endswith(".safetensors")]) > 2
        assert sorted(hub.fetched) == sorted(wanted)
        folder = opened.plan.checkpoint.path
        assert folder.is_relative_to(cache) and files_of(folder) == {name: sharded[name] for name in wanted}
        assert opened.name == "org/tiny" and opened.fetched == (
            f"org/tiny is opened at its commit {commit_of(hub)}.",
        )
        hub.asked.clear()
        assert open_model("org/tiny").plan.checkpoint.path == folder and not hub.fetched

    def test_tokenizers_and_templates_of_every_kind(self, hub):
        extra = ["tokenizer.model", "qwen.tiktoken", "vocab.json", "merges.txt", "added_tokens.json"]
        extra += ["special_tokens_map.json", "generation_config.json", "chat_template.jinja"]
        extra += ["additional_chat_templates/tool_use.jinja", "adapter_config.json"]
        files = dict.fromkeys([*extra, "config.json", "model.safetensors", *LITTER], b"{}")
        hub.repos["org/tiny"] = Repo({"main": files})
        folder = locate("org/tiny").path
        assert set(files_of(folder)) == {*extra, "config.json", "model.safetensors"}

    def test_shards_that_the_index_leaves_out_stay_there(self, hub, sharded):
        hub.repos["org/tiny"] = Repo({"main": sharded | {"consolidated.safetensors": b"rival"}})
        locate("org/tiny")
        assert "consolidated.safetensors" not in hub.fetched

    def test_a_revision_is_a_branch_or_a_commit(self, hub, sharded):
        old = sharded | {"generation_config.json": b"{}"}
        hub.repos["org/tiny"] = Repo({"main": sharded, "v1/old": old})
        assert "generation_config.json" not in files_of(locate("org/tiny").path)
        branch = locate("org/tiny@v1/old")
        assert "generation_config.json" in files_of(branch.path)
        assert commit_of(hub, revision="v1/old") in branch.notices[0]
        assert locate(f"org/tiny@{commit_of(hub, revision='v1/old')}").path == branch.path
        assert hub.fetched.count("model.safetensors.index.json") == 1

    def test_what_another_tool_fetched_is_not_fetched_again(self, hub, sharded):
        from huggingface_hub import hf_hub_download

        hub.repos["org/tiny"] = Repo({"main": sharded})
        shard = next(name for name in sharded if name.endswith(".safetensors"))
        hf_hub_download("org/tiny", shard)
        locate("org/tiny")
        assert hub.fetched.count(shard) == 1

    def test_bytes_are_reported_up_to_all_of_them(self, hub, sharded, capfd):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        told: list[tuple[int, int]] = []
        locate("org/tiny", lambda done, total: told.append((done, total)))
        whole = sum(len(data) for name, data in sharded.items() if name.endswith(".safetensors"))
        assert {total for _, total in told} == {whole} and told[-1][0] == whole
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert capfd.readouterr() == ("", "")


class TestGGUF:
    @pytest.fixture
    def gguf(self, tmp_path) -> bytes:
        return gguf_file(tmp_path / "made.gguf").read_bytes()

    def test_the_only_one_is_opened(self, hub, gguf):
        hub.repos["org/tiny"] = Repo({"main": {"a.gguf": gguf, "README.md": b"", "config.json": b"{}"}})
        checkpoint = open_checkpoint(locate("org/tiny").path)
        assert checkpoint.kind == "gguf" and checkpoint.path.name == "a.gguf" and hub.fetched == ["a.gguf"]

    def test_of_several_one_must_be_chosen(self, hub, gguf):
        hub.repos["org/tiny"] = Repo({"main": {"a.gguf": gguf, "b.gguf": gguf}})
        with pytest.raises(InputError, match=r"2 GGUF models.*org/tiny/a\.gguf@main, org/tiny/b\.gguf@main"):
            locate("org/tiny@main")
        with pytest.raises(InputError, match=r"no file 'c\.gguf'.*org/tiny/a\.gguf, org/tiny/b\.gguf"):
            locate("org/tiny/c.gguf")
        assert not hub.fetched
        assert locate("org/tiny/b.gguf").path.name == "b.gguf" and hub.fetched == ["b.gguf"]

    def test_one_beside_a_folders_files_is_opened_only_if_named(self, hub, gguf, sharded):
        hub.repos["org/tiny"] = Repo({"main": sharded | {"a.gguf": gguf}})
        assert locate("org/tiny").path.is_dir()
        assert locate("org/tiny/a.gguf").path.name == "a.gguf"

    def test_all_parts_of_a_split_model_are_fetched(self, hub, gguf):
        parts = [f"big-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
        hub.repos["org/tiny"] = Repo({"main": dict.fromkeys([*parts, "small.gguf"], gguf)})
        with pytest.raises(InputError, match="holds 2 GGUF models"):
            locate("org/tiny")
        assert locate(f"org/tiny/{parts[1]}").path.name == parts[0]
        assert hub.fetched[0] == parts[0] and set(files_of(locate(f"org/tiny/{parts[0]}").path.parent)) == {
            *parts
        }


class TestWithoutAConnection:
    @pytest.mark.parametrize("go", [disconnect, set_offline])
    @pytest.mark.parametrize("by_commit", [False, True])
    def test_the_cache_is_used_and_that_is_said(self, hub, cache, sharded, monkeypatch, go, by_commit):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        folder = locate("org/tiny").path
        go(monkeypatch, cache)
        found = locate(f"org/tiny@{commit_of(hub)}" if by_commit else "org/tiny")
        assert found.path == folder and commit_of(hub) in found.notices[0] and "cache" in found.notices[0]
        assert ("HF_HUB_OFFLINE" if go is set_offline else "isn't available") in found.notices[0]

    def test_a_hub_that_is_down_is_as_good_as_none(self, hub, sharded):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        folder = locate("org/tiny").path
        hub.repos["org/tiny"].status = 503
        found = locate("org/tiny")
        assert found.path == folder and "isn't available" in found.notices[0]

    @pytest.mark.parametrize("go", [disconnect, set_offline])
    def test_what_was_never_fetched_may_be_a_path_or_an_id(self, cache, monkeypatch, go):
        go(monkeypatch, cache)
        with pytest.raises(InputError, match="no file or folder 'models/foo'; it may be a hub id, but"):
            locate("models/foo")

    @pytest.mark.parametrize(
        "lost", ["model.safetensors.index.json", "tokenizer.json", "model-00002-of-00003"]
    )
    def test_a_file_that_the_cache_lacks_is_named(self, hub, cache, sharded, monkeypatch, lost):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        folder = locate("org/tiny").path
        file = next(path for path in sorted(folder.iterdir()) if path.name.startswith(lost[:17]))
        file = folder / lost if (folder / lost).exists() else file
        file.unlink()
        set_offline(monkeypatch, cache)
        with pytest.raises(InputError, match=f"cache lacks '{file.name}' of org/tiny; open it once"):
            locate("org/tiny")

    def test_what_another_tool_fetched_is_opened_with_a_warning(self, hub, cache, sharded, monkeypatch):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        folder = locate("org/tiny").path
        monkeypatch.setattr("huggingface_hub._tree_cache._IN_MEMORY_TREE_CACHE", {})
        shutil.rmtree(folder.parents[1] / "trees")
        set_offline(monkeypatch, cache)
        found = locate("org/tiny")
        assert found.path == folder and "another program fetched it" in found.notices[0]

    def test_one_of_several_gguf_files_is_still_ambiguous(self, hub, cache, tmp_path, monkeypatch):
        data = gguf_file(tmp_path / "made.gguf").read_bytes()
        hub.repos["org/tiny"] = Repo({"main": {"a.gguf": data, "b.gguf": data}})
        locate("org/tiny/a.gguf")
        set_offline(monkeypatch, cache)
        assert locate("org/tiny/a.gguf").path.name == "a.gguf"
        with pytest.raises(InputError, match="2 GGUF models"):
            locate("org/tiny")
        with pytest.raises(InputError, match=r"cache lacks 'b\.gguf'"):
            locate("org/tiny/b.gguf")


class TestRefusals:
    def test_no_such_repository_names_both_readings(self):
        with pytest.raises(InputError, match="no file or folder 'models/foo', and on the hub no repository"):
            locate("models/foo")

    def test_no_such_revision(self, hub, sharded):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        with pytest.raises(InputError, match="org/tiny on the hub has no revision 'v9'"):
            locate("org/tiny@v9")

    @pytest.mark.parametrize("lock", ["private", "gated"])
    def test_a_locked_one_says_how_to_give_a_token_and_opens_with_it(self, hub, sharded, monkeypatch, lock):
        hub.repos["org/tiny"] = Repo({"main": sharded}, **{lock: True})
        with pytest.raises(InputError, match=rf"{lock}.*HF_TOKEN.*`hf auth login`"):
            locate("org/tiny")
        monkeypatch.setenv("HF_TOKEN", hub.token)
        open_model("org/tiny")
        sent = [headers.get("authorization") for _, path, headers in hub.asked[-5:] if "org/tiny" in path]
        assert sent and set(sent) == {f"Bearer {hub.token}"}

    @pytest.mark.parametrize(
        ("status", "words"), [(401, "token that may read it"), (403, "token that may"), (429, "answers 429")]
    )
    def test_whatever_else_the_hub_answers_is_one_sentence(self, hub, sharded, status, words):
        hub.repos["org/tiny"] = Repo({"main": sharded}, status=status)
        with pytest.raises(InputError, match=words) as refused:
            locate("org/tiny")
        assert "\n" not in str(refused.value)

    def test_pickled_weights_alone_are_refused_without_fetching_them(self, hub):
        hub.repos["org/tiny"] = Repo({"main": {"config.json": b"{}", "pytorch_model.bin": b"x"}})
        with pytest.raises(UnsupportedError, match=r"org/tiny has only pickled weights.*pytorch_model\.bin"):
            locate("org/tiny")
        assert hub.fetched == ["config.json"]

    def test_an_adapter_alone_is_refused(self, hub):
        files = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}
        hub.repos["org/tiny"] = Repo({"main": files})
        with pytest.raises(UnsupportedError, match="only an adapter"):
            locate("org/tiny")

    def test_a_full_disk_is_said_before_weights_are_fetched(self, hub, cache, sharded, monkeypatch):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        usage = shutil.disk_usage("/")._replace(free=1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(
            ResourceError, match=r"needs 0 MB on the disk of .*cache, 0 MB are free.*HF_HUB_CACHE"
        ):
            locate("org/tiny")
        assert not [name for name in hub.fetched if name.endswith(".safetensors")]


class TestABrokenConnection:
    def blobs(self, cache: Path) -> list[str]:
        return [path.name for path in cache.rglob("blobs/*")]

    def test_goes_on_where_it_broke(self, hub, sharded, monkeypatch):
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100)
        repo = hub.repos["org/tiny"] = Repo({"main": sharded})
        shard = max(name for name in sharded if name.endswith(".safetensors"))
        repo.cut[shard] = [1000, 500]
        told: list[tuple[int, int]] = []
        folder = locate("org/tiny", lambda *now: told.append(now)).path
        assert (folder / shard).read_bytes() == sharded[shard]
        ranges = [headers.get("range") for method, path, headers in hub.asked if path.endswith(shard)]
        assert ranges[-2:] == ["bytes=1000-", "bytes=1500-"] and told[-1][0] == told[-1][1]

    def test_that_stays_broken_leaves_nothing_half_written_and_keeps_what_is_whole(self, hub, cache, sharded):
        repo = hub.repos["org/tiny"] = Repo({"main": sharded})
        *_, last = sorted(name for name in sharded if name.endswith(".safetensors"))
        repo.cut[last] = [1000, *[0] * 6]
        with pytest.raises(InputError, match="Fetching org/tiny broke off"):
            locate("org/tiny")
        assert not [name for name in self.blobs(cache) if "incomplete" in name]
        repo.cut.clear()
        hub.asked.clear()
        open_model("org/tiny")
        assert hub.fetched == [last]


HOSTILE = ["../x.safetensors", "../../x.gguf", "/tmp/x.safetensors", "..", "a\\..\\x.safetensors", "x\0.gguf"]
HOSTILE += [
    "additional_chat_templates/../../../../x.jinja",
    "../config.json",
    "..\\x.tiktoken",
    "c:x.safetensors",
]


class TestHostileNames:
    def outside(self, tmp_path: Path, cache: Path) -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(cache)}

    def test_in_the_list_of_files_are_passed_over(self, hub, cache, sharded, tmp_path):
        hub.repos["org/tiny"] = Repo({"main": sharded | dict.fromkeys(HOSTILE, b"hostile")})
        open_model("org/tiny")
        assert not set(HOSTILE) & set(hub.fetched) and not self.outside(tmp_path, cache)
        assert b"hostile" not in files_of(cache).values()

    @pytest.mark.parametrize("name", ["../x.safetensors", "/tmp/x.safetensors", "a/../../x.safetensors"])
    def test_in_the_index_are_refused(self, hub, cache, sharded, tmp_path, name):
        index = json.dumps({"weight_map": {"a": name}}).encode()
        files = sharded | {"model.safetensors.index.json": index, name: b"hostile"}
        hub.repos["org/tiny"] = Repo({"main": files})
        with pytest.raises(InputError, match=r"only a .* file in the same folder"):
            locate("org/tiny")
        assert name not in hub.fetched and not self.outside(tmp_path, cache)

    def test_as_the_only_weights_are_no_weights(self, hub, cache, tmp_path):
        hub.repos["org/tiny"] = Repo({"main": {"config.json": b"{}", "../x.safetensors": b"hostile"}})
        with pytest.raises(InputError, match="no weights"):
            locate("org/tiny")
        assert not self.outside(tmp_path, cache)

    @pytest.mark.parametrize("commit", ["../../../../x", "main", ""])
    def test_as_the_commit_are_refused(self, hub, cache, sharded, tmp_path, monkeypatch, commit):
        hub.repos["org/tiny"] = Repo({"main": sharded})
        monkeypatch.setattr(Repo, "commit", lambda self, _: commit)
        monkeypatch.setattr(Repo, "files", lambda self, _: sharded)
        with pytest.raises(InputError, match="which is no commit"):
            locate("org/tiny")
        assert not self.outside(tmp_path, cache)


def test_a_model_from_the_hub_computes_as_the_folder_does(hub, sharded, tmp_path):
    import penjing

    hub.repos["org/tiny"] = Repo({"main": sharded})
    folder = hf_model(tmp_path / "here", shard_bytes=100_000)
    ids, positions = torch.arange(10)[None], torch.arange(10)[None]
    here, there = (penjing.load(ref).module(ids, positions) for ref in (folder, "org/tiny"))
    assert torch.equal(here, there)
