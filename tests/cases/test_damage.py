"""A saved model that computes something else than the one it was saved from is seen by comparing the two."""

from pathlib import Path

import pytest
from tests.equivalence.test_shrunk_models import documents
from tests.unit.models import hf_model

import penjing
from penjing.api import Model
from penjing.formats.open import open_checkpoint


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Model:
    return penjing.load(hf_model(tmp_path_factory.mktemp("original") / "m"))


@pytest.fixture(scope="module")
def shrunk(original) -> Model:
    return penjing.shrink(original, to=0.5, effort="fast", texts={"words": documents()}).model


@pytest.fixture(params=["folder", "GGUF file", "shrunk folder"])
def saved(request, original, shrunk, tmp_path) -> tuple[Model, Path]:
    """A model and where it was saved."""
    model, path = shrunk if request.param == "shrunk folder" else original, tmp_path / "saved"
    if request.param == "GGUF file":
        model.save_gguf(path)
    else:
        model.save(path)
    return model, path


def divergence(model: Model, path: Path) -> float:
    result = penjing.compare(model, path, {"words": documents(8)}, tokens=512, choice_items=0)
    assert result.overall.kl is not None
    return result.overall.kl.value


def in_both_layers(path: Path) -> list[tuple[Path, int, int]]:
    """File, offset and size of the same matrix in each layer, or of the scales of its rows."""
    leaves = ("ffn_up.weight", "up_proj.weight", "up_proj.row_scale")
    found = [info for name, info in open_checkpoint(path).tensors.items() if name.endswith(leaves)]
    assert len(found) == 2 and found[0].nbytes == found[1].nbytes
    return [(info.file, info.offset, info.nbytes) for info in found]


def test_an_undamaged_one_differs_in_nothing(saved):
    assert divergence(*saved) == 0


def test_one_changed_byte_is_seen(saved):
    model, path = saved
    file, offset, nbytes = in_both_layers(path)[0]
    data = bytearray(file.read_bytes())
    data[offset + nbytes // 2 + 1] ^= 1  # the upper byte of a 16-bit float
    file.write_bytes(data)
    assert divergence(model, path) > 0


def test_two_layers_in_each_others_place_are_seen(saved):
    model, path = saved
    (file, first, nbytes), (other, second, _) = in_both_layers(path)
    assert file == other
    data = bytearray(file.read_bytes())
    data[first : first + nbytes], data[second : second + nbytes] = (
        data[second : second + nbytes],
        data[first : first + nbytes],
    )
    file.write_bytes(data)
    assert divergence(model, path) > 1e-6
