"""A hub model is shown, and judged before it is fetched, by headers that are read on the hub.

All of it against a stand-in hub on this machine.
"""

import json
import struct
from pathlib import Path

import pytest
import torch
from tests.unit.formats_files import gguf_entry, gguf_tensor, raw_gguf
from tests.unit.hub_server import Hub, Repo, files_of, point_at, serving
from tests.unit.models import CONFIG, EMBEDDING, HEAD, hf_model, random_tensors

import penjing
import penjing.formats.hub_file as hub_file
from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint, TensorInfo
from penjing.formats.locate import bring, find
from penjing.formats.open import open_checkpoint
from penjing.model.opening import OpenedModel, open_located, open_model


@pytest.fixture(scope="module")
def hub():
    with serving() as stand_in:
        yield stand_in


@pytest.fixture(autouse=True)
def cache(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, a hub without repositories, and headers that take several requests."""
    hub.repos.clear()
    hub.asked.clear()
    point_at(hub.url, tmp_path / "cache", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between tries
    monkeypatch.setattr(hub_file, "_AHEAD_BYTES", 300)
    monkeypatch.setattr(hub_file, "_STREAM_BYTES", 900)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return hf_model(tmp_path_factory.mktemp("hub") / "m", shard_bytes=100_000)


@pytest.fixture(scope="module")
def gguf(folder: Path, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "m.gguf"
    penjing.load(folder).save_gguf(path)
    return path


def weights_fetched(hub: Hub) -> list[str]:
    return [name for name in hub.fetched if name.endswith((".safetensors", ".gguf"))]


def part_of_two(path: Path, number: int) -> bytes:
    """A part of a split GGUF file, with one tensor."""
    places = (("split.no", number), ("split.count", 2))
    metadata = [gguf_entry(key.encode(), 2, struct.pack("<H", value)) for key, value in places]
    tensor = gguf_tensor(f"tensor {number}".encode(), [8])
    return raw_gguf(path, metadata, [tensor], bytes(32)).read_bytes()


def facts(opened: OpenedModel) -> tuple[object, ...]:
    """All that a model is, but where it lies."""
    plan = opened.plan
    return plan.config, plan.hf_config, plan.stored, plan.packed, plan.notices, placed(plan.checkpoint)


def placed(checkpoint: Checkpoint) -> dict[str, tuple[object, ...]]:
    def about(info: TensorInfo) -> tuple[object, ...]:
        return info.shape, info.dtype, info.nbytes, info.file.name, info.offset

    return {name: about(info) for name, info in checkpoint.tensors.items()}


class TestShown:
    def test_a_folder_is_what_it_is_here_and_no_weights_are_fetched(self, hub, folder):
        hub.repos["org/tiny"] = Repo({"main": files_of(folder)})
        shown = open_located(find("org/tiny"))
        assert facts(shown) == facts(open_model(folder))
        assert shown.name == "org/tiny" and "commit" in shown.fetched[0]
        assert not weights_fetched(hub) and not list(Path().rglob("*.safetensors"))
        shards = [path for path in folder.iterdir() if path.suffix == ".safetensors"]
        assert len(shards) > 2
        for shard in shards:
            header = 8 + int.from_bytes(shard.read_bytes()[:8], "little")
            asked = hub.parts(shard.name)
            assert asked[0] == (0, 299) and asked[-1][1] < header + 300

    def test_a_header_is_asked_for_once_if_it_is_short(self, hub, folder, monkeypatch):
        monkeypatch.setattr(hub_file, "_AHEAD_BYTES", 1 << 17)
        hub.repos["org/tiny"] = Repo({"main": files_of(folder)})
        open_located(find("org/tiny"))
        for shard in folder.glob("*.safetensors"):
            assert len(hub.parts(shard.name)) == 1

    def test_a_gguf_file_is_what_it_is_here(self, hub, gguf):
        hub.repos["org/tiny"] = Repo({"main": {"m.gguf": gguf.read_bytes()}})
        shown = open_located(find("org/tiny"))
        assert facts(shown) == facts(open_model(gguf)) and not weights_fetched(hub)
        first = min(info.offset for info in open_checkpoint(gguf).tensors.values())
        assert max(last for _, last in hub.parts("m.gguf")) < first + 900

    def test_parts_of_a_split_file_in_a_folder_are_found_by_each_others_names(self, hub, tmp_path):
        names = [f"Q4_K_M/big-0000{n}-of-00002.gguf" for n in (1, 2)]
        parts = {name: part_of_two(tmp_path / "part.gguf", n) for n, name in enumerate(names)}
        hub.repos["org/tiny"] = Repo({"main": parts | {"Q8_0/big.gguf": b""}})
        with pytest.raises(InputError, match=r"2 GGUF models.*org/tiny/Q4_K_M/big-00001-of-00002\.gguf, "):
            find("org/tiny")
        located = find(f"org/tiny/{names[1]}")
        shown = open_checkpoint(located.path, located.elsewhere)
        assert list(shown.tensors) == ["tensor 0", "tensor 1"] and not weights_fetched(hub)
        here = bring(located)
        assert here.path.parent.name == "Q4_K_M" and sorted(weights_fetched(hub)) == names
        assert placed(open_checkpoint(here.path)) == placed(shown)

    @pytest.mark.parametrize("equal", [True, False])
    def test_where_values_decide_they_are_read_on_the_hub(self, hub, tmp_path, equal):
        tensors = random_tensors()
        tensors[HEAD] = tensors[EMBEDDING].clone() if equal else -tensors[EMBEDDING]
        here = hf_model(tmp_path / "m", tensors=tensors)
        hub.repos["org/tiny"] = Repo({"main": files_of(here)})
        shown = open_located(find("org/tiny"))
        assert shown.plan.config.tie_word_embeddings is equal and not weights_fetched(hub)
        assert facts(shown) == facts(open_model(here))

    def test_tensors_read_on_the_hub_equal_those_of_the_file(self, hub, folder, gguf):
        hub.repos["org/tiny"] = Repo({"main": files_of(folder) | {"m.gguf": gguf.read_bytes()}})
        for ref, path in (("org/tiny", folder), ("org/tiny/m.gguf", gguf)):
            located = find(ref)
            there, here = open_checkpoint(located.path, located.elsewhere), open_checkpoint(path)
            assert all(torch.equal(there.read(name), here.read(name)) for name in here.tensors)

    def test_what_the_cache_has_is_read_there(self, hub, folder):
        hub.repos["org/tiny"] = Repo({"main": files_of(folder)})
        bring(find("org/tiny"))
        hub.asked.clear()
        located = find("org/tiny")
        open_located(located)
        assert not located.elsewhere and not [path for _, path, _ in hub.asked if "/resolve/" in path]

    def test_a_file_that_another_revision_brought_is_not_asked_for_again(self, hub, folder):
        files = files_of(folder)
        hub.repos["org/tiny"] = Repo({"main": files, "next": files | {"generation_config.json": b"{}"}})
        bring(find("org/tiny"))
        hub.asked.clear()
        located = find("org/tiny@next")
        assert not located.elsewhere and open_located(located).plan.checkpoint.tensors
        assert hub.fetched == ["generation_config.json"]


class TestJudged:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"model_type": "something-new"}, "something-new"),
            ({"hidden_act": "quick_gelu_of_tomorrow"}, "quick_gelu_of_tomorrow"),
            ({"rope_scaling": {"rope_type": "foo"}}, "foo"),
            ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
            ({"num_hidden_layers": 3}, "missing"),
            ({"intermediate_size": 161}, "mis-shaped"),
        ],
    )
    def test_a_model_that_cant_be_opened_is_refused_before_it_is_fetched(self, hub, folder, changes, words):
        config = json.dumps(CONFIG | changes).encode()
        hub.repos["org/tiny"] = Repo({"main": files_of(folder) | {"config.json": config}})
        with pytest.raises(InputError, match=words):
            open_model("org/tiny")
        assert not weights_fetched(hub)

    def test_so_is_one_without_a_tokenizer(self, hub, folder):
        files = {name: data for name, data in files_of(folder).items() if "tokenizer" not in name}
        hub.repos["org/tiny"] = Repo({"main": files})
        with pytest.raises(InputError, match="tokenizer"):
            open_model("org/tiny")
        assert not weights_fetched(hub)

    @pytest.mark.parametrize(
        "data", [b"GGUF" + struct.pack("<I", 9) + bytes(99), b"<html>no</html>", b"GGUF", bytes(5000)]
    )
    def test_so_is_a_gguf_file_that_isnt_one(self, hub, data):
        hub.repos["org/tiny"] = Repo({"main": {"m.gguf": data}})
        with pytest.raises(InputError, match=r"m\.gguf"):
            open_model("org/tiny")
        assert not weights_fetched(hub)

    def test_so_are_weights_that_are_a_page_or_a_placeholder(self, hub, folder):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
        for data in (b"<html>" + bytes(500), pointer, b"{}"):
            files = {
                name: data if name.endswith(".safetensors") else d for name, d in files_of(folder).items()
            }
            hub.repos["org/tiny"] = Repo({"main": files})
            with pytest.raises(InputError, match="safetensors"):
                open_model("org/tiny")
        assert not weights_fetched(hub)

    def test_what_passes_is_fetched_whole_and_opened_from_the_disk(self, hub, folder, cache):
        hub.repos["org/tiny"] = Repo({"main": files_of(folder)})
        opened = open_model("org/tiny")
        assert all(
            info.file.resolve().is_relative_to(cache) for info in opened.plan.checkpoint.tensors.values()
        )
        assert sorted(weights_fetched(hub)) == sorted(path.name for path in folder.glob("*.safetensors"))


class TestAHubThatAnswersOddly:
    def test_files_that_it_keeps_elsewhere_are_read_and_fetched_there(self, hub, folder):
        hub.repos["org/tiny"] = Repo({"main": files_of(folder)}, elsewhere=True)
        assert facts(open_located(find("org/tiny"))) == facts(open_model(folder))
        there = bring(find("org/tiny")).path
        shards = [path.name for path in folder.glob("*.safetensors")]
        assert all((there / name).read_bytes() == (folder / name).read_bytes() for name in shards)

    def test_without_ranges_the_bytes_are_taken_from_the_whole_file(self, hub, folder, gguf):
        files = files_of(folder) | {"m.gguf": gguf.read_bytes()}
        hub.repos["org/tiny"] = Repo({"main": files}, ranges=False)
        assert facts(open_located(find("org/tiny"))) == facts(open_model(folder))
        assert facts(open_located(find("org/tiny/m.gguf"))) == facts(open_model(gguf))

    def test_a_connection_that_breaks_is_taken_up_where_it_broke(self, hub, gguf):
        repo = hub.repos["org/tiny"] = Repo({"main": {"m.gguf": gguf.read_bytes()}})
        repo.cut["m.gguf"] = [100, 0, 50]
        assert facts(open_located(find("org/tiny"))) == facts(open_model(gguf))
        assert hub.parts("m.gguf")[:4] == [(0, 899), (100, 899), (100, 899), (150, 899)]

    def test_one_that_stays_broken_is_one_sentence(self, hub, gguf):
        repo = hub.repos["org/tiny"] = Repo({"main": {"m.gguf": gguf.read_bytes()}})
        repo.cut["m.gguf"] = [0] * 20
        with pytest.raises(InputError, match=r"0 of 900 bytes of m\.gguf in org/tiny; try again"):
            open_located(find("org/tiny"))

    def test_other_bytes_than_those_asked_for_are_refused(self, hub, gguf):
        hub.repos["org/tiny"] = Repo({"main": {"m.gguf": gguf.read_bytes()}}, shift=7)
        with pytest.raises(InputError, match=r"bytes of m\.gguf from 0 and sent 'bytes 7-906/"):
            open_located(find("org/tiny"))

    def test_a_locked_repository_says_how_to_give_a_token(self, hub, folder, monkeypatch):
        repo = hub.repos["org/tiny"] = Repo({"main": files_of(folder)})
        located = find("org/tiny")
        repo.gated = True
        with pytest.raises(InputError, match=r"gated.*HF_TOKEN"):
            open_located(located)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        open_located(located)

    def test_a_header_of_no_end_is_not_fetched_to_its_end(self, hub, monkeypatch):
        monkeypatch.setattr(hub_file, "_MAX_STREAM_BYTES", 10_000)
        key = struct.pack("<Q", 1) + b"k" + struct.pack("<IQ", 8, 100_000)
        data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + bytes(100_000)
        hub.repos["org/tiny"] = Repo({"main": {"m.gguf": data}})
        with pytest.raises(InputError, match="limit of 10,000 bytes"):
            open_located(find("org/tiny"))


class TestHostileNames:
    @pytest.mark.parametrize("name", ["%2e%2e/m.gguf", "..%2f..%2fm.gguf", "%2Fetc/m.gguf", "a%00/m.gguf"])
    def test_an_encoded_way_out_stays_the_name_that_it_is(self, hub, cache, gguf, tmp_path, name):
        hub.repos["org/tiny"] = Repo({"main": {name: gguf.read_bytes()}})
        located = find(f"org/tiny/{name}")
        assert facts(open_located(located))
        path = bring(located).path
        assert path.is_relative_to(cache) and path.as_posix().endswith(f"/{name}")
        assert all(file.is_relative_to(cache) for file in tmp_path.rglob("*") if file.is_file())

    @pytest.mark.parametrize("name", ["../m.gguf", "a/../../m.gguf", "/m.gguf", "a//m.gguf", "a\\..\\m.gguf"])
    def test_a_way_out_in_the_list_of_files_is_passed_over(self, hub, cache, gguf, tmp_path, name):
        hub.repos["org/tiny"] = Repo({"main": {"b/m.gguf": gguf.read_bytes(), name: b"hostile"}})
        assert bring(find("org/tiny")).path.as_posix().endswith("/b/m.gguf")
        assert all(file.is_relative_to(cache) for file in tmp_path.rglob("*") if file.is_file())
        assert weights_fetched(hub) == ["b/m.gguf"]
