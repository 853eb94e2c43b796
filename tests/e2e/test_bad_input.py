"""Bad input: exit code 2 and one sentence that names the thing, and nothing is left behind."""

import json
import shutil

import pytest
from tests.e2e.models import change_config, write_model
from tests.unit.formats_files import gguf_file

from penjing.cli import shrink as shrink_verb

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n"


def missing(folder):
    return folder / "nowhere"


def without_weights(folder):
    model = write_model(folder / "m")
    (model / "model.safetensors").unlink()
    return model


def without_config(folder):
    model = write_model(folder / "m")
    (model / "config.json").unlink()
    return model


def truncated_shard(folder):
    model = write_model(folder / "m", shard_bytes=60_000)
    shard = sorted(model.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    return model


def missing_shard(folder):
    model = write_model(folder / "m", shard_bytes=60_000)
    sorted(model.glob("*.safetensors"))[1].unlink()
    return model


def short_gguf(folder):
    file = gguf_file(folder / "m.gguf")
    file.write_bytes(file.read_bytes()[:-64])
    return file


def lfs_pointer(folder):
    model = write_model(folder / "m")
    (model / "model.safetensors").write_bytes(LFS_POINTER)
    return model


def unknown_architecture(folder):
    return change_config(write_model(folder / "m"), model_type="foo")


def unknown_rope(folder):
    return change_config(write_model(folder / "m"), rope_scaling={"rope_type": "foo", "factor": 2.0})


def broken_config(folder):
    model = write_model(folder / "m")
    (model / "config.json").write_text("{", encoding="utf-8")
    return model


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (missing, "nowhere"),
        (without_weights, "safetensors"),
        (without_config, "config.json"),
        (truncated_shard, "model-00002-of-"),
        (missing_shard, "model-00002-of-"),
        (short_gguf, "m.gguf"),
        (lfs_pointer, "git"),
        (unknown_architecture, "'foo'"),
        (unknown_rope, "'foo'"),
        (broken_config, "config.json"),
    ],
)
@pytest.mark.parametrize("verb", ["show", "chat", "shrink"])
def test_a_bad_model_is_refused_in_one_sentence(call, tmp_path, make, named, verb):
    out = tmp_path / "out"
    more = {"show": [], "chat": ["--prompt", "hi"], "shrink": ["-o", out, "--to", "1/2"]}[verb]
    ended = call(verb, make(tmp_path), *more)
    assert ended.code == 2 and ended.out == ""
    assert ended.err.startswith("error: ") and ended.err.count("\n") == 1
    assert named in ended.err
    assert not out.exists()


def empty_text(folder):
    (folder / "t.txt").write_bytes(b" \n")
    return folder / "t.txt"


def latin_text(folder):
    (folder / "t.txt").write_bytes("Zürich".encode("latin-1"))
    return folder / "t.txt"


def no_text(folder):
    return folder / "t.txt"


@pytest.mark.parametrize("make", [empty_text, latin_text, no_text])
@pytest.mark.parametrize("verb", ["eval", "shrink"])
def test_a_bad_text_is_named_before_the_model_is_loaded(call, monkeypatch, tiny, tmp_path, make, verb):
    monkeypatch.setattr("penjing.api.load", None)
    more = ["-o", tmp_path / "out", "--to", "1/2"] if verb == "shrink" else []
    ended = call(verb, tiny, "--text", make(tmp_path), *more)
    assert ended.code == 2 and "t.txt" in ended.err and ended.err.count("\n") == 1


def test_two_texts_of_one_name_are_refused(call, tiny, text):
    ended = call("eval", tiny, "--text", text, "--text", text)
    assert ended.code == 2 and "garden.txt" in ended.err


@pytest.mark.parametrize("goal", [("--to", "2"), ("--to", "tiny"), ("--to", "0MB"), ("--keep", "101%")])
def test_a_goal_that_cannot_be_read_is_refused_before_the_model_is_loaded(
    call, monkeypatch, tiny, tmp_path, goal
):
    monkeypatch.setattr(shrink_verb, "_shrink", None)
    ended = call("shrink", tiny, "-o", tmp_path / "out", *goal)
    assert ended.code == 2 and repr(goal[1]) in ended.err


def test_a_budget_that_cannot_be_met_names_the_smallest_size_before_the_model_is_loaded(
    call, monkeypatch, tiny, text, tmp_path
):
    monkeypatch.setattr(shrink_verb, "_shrink", None)
    out = tmp_path / "out"
    ended = call("shrink", tiny, "-o", out, "--to", "1/1000", "--effort", "fast", "--text", text)
    assert ended.code == 2 and "smallest" in ended.err and "MB" in ended.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("goal", [("--to", "0.45"), ("--keep", "50%")])
def test_what_is_packed_already_is_not_shrunk_again(call, monkeypatch, small, tmp_path, goal):
    monkeypatch.setattr(shrink_verb, "_shrink", None)
    ended = call("shrink", small, "-o", tmp_path / "out", *goal)
    assert ended.code == 2 and str(small) in ended.err and ended.err.count("\n") == 1


def test_models_whose_tokenizers_differ_are_not_compared(call, tiny, text, tmp_path):
    other = shutil.copytree(tiny, tmp_path / "other")
    file = other / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    vocab = values["model"]["vocab"]
    first, second = list(vocab)[-2:]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    file.write_text(json.dumps(values), encoding="utf-8")
    ended = call("eval", other, "--against", tiny, "--text", text)
    assert ended.code == 2 and ended.out == "" and "different ids" in ended.err
    assert str(other) in ended.err and str(tiny) in ended.err


@pytest.mark.parametrize("verb", [("shrink", "--to", "1/2"), ("save",)], ids=["shrink", "save"])
class TestTheTarget:
    def test_a_folder_with_other_things_in_it_is_left_alone(self, call, tiny, tmp_path, verb):
        (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
        ended = call(verb[0], tiny, "-o", tmp_path, *verb[1:])
        assert ended.code == 2 and str(tmp_path) in ended.err
        assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]

    def test_a_file_is_left_alone(self, call, tiny, tmp_path, verb):
        (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
        ended = call(verb[0], tiny, "-o", tmp_path / "thesis.txt", *verb[1:])
        assert ended.code == 2 and "thesis.txt" in ended.err

    def test_where_nothing_can_be_made_is_said_before_the_model_is_loaded(
        self, call, monkeypatch, tiny, verb
    ):
        monkeypatch.setattr("penjing.api.load", None)
        ended = call(verb[0], tiny, "-o", "/proc/out", *verb[1:])
        assert ended.code == 2 and "made in /proc (" in ended.err and "partial" not in ended.err

    def test_the_model_itself_is_not_replaced(self, call, small, verb):
        for out in (small, small.parent):
            ended = call(verb[0], small, "-o", out, *verb[1:])
            assert ended.code == 2 and "itself" in ended.err
        assert (small / "model.safetensors").exists()
