"""Models that run through transformers are shrunk, saved and opened again like any other."""

import pytest
import torch
from tests.parity.bridged import BRIDGED, write_bridged

import penjing
from penjing.engine.params import SamplingParams
from penjing.errors import InputError, UnsupportedError
from penjing.formats.json_file import read_json
from penjing.model.opening import open_model
from penjing.shrink.effort import EFFORTS, Effort

TEXTS = {
    "garden": [
        " ".join(f"tree {i} of garden {i * j % 17} has {j} leaves by the water" for j in range(30))
        for i in range(60)
    ]
}


@pytest.fixture(scope="module", params=BRIDGED)
def shrunk(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bridged")
    write_bridged(request.param, folder / "original")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EFFORTS, "fast", Effort("fast", 3, 2, 0, 800, 800, 12, 2, passage_tokens=48))
        result = penjing.shrink(folder / "original", to=0.45, effort="fast", texts=TEXTS)
    result.save(folder / "small")
    return result, folder / "small"


@torch.inference_mode()
def logits(model):
    ids = torch.arange(3, 27).unsqueeze(0)
    return model.module(ids, torch.arange(24).unsqueeze(0))


def test_the_size_is_kept_to_and_most_of_the_quality(shrunk):
    result, _ = shrunk
    assert result.nbytes <= 0.45 * result.base_bytes
    assert result.report.overall.perplexity_kept.value > 0.9


def test_opened_again_it_has_the_same_bytes_and_equal_logits(shrunk):
    result, folder = shrunk
    again = penjing.load(folder)
    assert again.ledger.nbytes == again.stored.nbytes == result.nbytes
    assert torch.equal(logits(again), logits(result.model))
    again.keep_float()
    assert torch.equal(logits(again), logits(result.model))


def test_it_writes_text_and_is_saved_again_as_it_is(shrunk, tmp_path):
    result, folder = shrunk
    again = penjing.load(folder)
    params = SamplingParams(temperature=0, max_tokens=6)
    assert again.generate("tree", params).text == result.model.generate("tree", params).text
    assert again.save(tmp_path / "copy") == result.nbytes
    assert torch.equal(logits(penjing.load(tmp_path / "copy")), logits(again))


def test_what_is_packed_already_is_not_shrunk_again(shrunk):
    _, folder = shrunk
    with pytest.raises(InputError):
        penjing.shrink(folder, to=0.4, effort="fast", texts=TEXTS)


class TestDamage:
    @pytest.fixture
    def folder(self, tmp_path):
        write_bridged("mpt: ALiBi, tied", tmp_path / "original")
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(EFFORTS, "fast", Effort("fast", 3, 2, 0, 800, 800, 12, 2, passage_tokens=48))
            penjing.shrink(tmp_path / "original", to=0.45, effort="fast", texts=TEXTS).save(
                tmp_path / "small"
            )
        return tmp_path / "small"

    def change(self, folder, how):
        import json

        config = read_json(folder / "config.json")
        how(config["quantization_config"])
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    @pytest.mark.parametrize(
        ("how", "error", "words"),
        [
            (lambda entry: entry.update(format_version=9), UnsupportedError, "format version 9"),
            (lambda entry: entry.pop("parameters"), InputError, "no parameters"),
            (lambda entry: entry["parameters"].popitem(), InputError, "codes"),
            (
                lambda entry: next(iter(entry["parameters"].values())).update(shape=[1, 32]),
                InputError,
                "must be",
            ),
        ],
    )
    def test_a_config_that_does_not_fit_is_refused_before_a_weight_is_read(self, folder, how, error, words):
        self.change(folder, how)
        with pytest.raises(error, match=words):
            open_model(folder)
