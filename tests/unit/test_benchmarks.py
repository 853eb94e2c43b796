"""The benchmarks' own parts: what they compare with must be right, or every figure is wrong."""

from pathlib import Path

import pytest
import torch
from benchmarks import nearest, quality, random_qwen3, tables
from benchmarks.twin import rescale, write_twin
from tests.e2e.models import write_model, write_text
from torch import nn

import penjing
from penjing.api import Model

SETTINGS = {"effort": "fast", "tokens": 512, "choice_items": 8, "seed": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def model(folder: Path) -> Model:
    return penjing.load(folder)


def linears(model: Model) -> dict[str, torch.Tensor]:
    return {n: m.weight.clone() for n, m in model.module.named_modules() if isinstance(m, nn.Linear)}


def logits(model: Model) -> torch.Tensor:
    ids = torch.arange(32).unsqueeze(0)
    return model.module(ids, ids)


def test_a_twin_has_other_weights_in_every_matrix_and_the_same_outputs(model: Model) -> None:
    weights, outputs = linears(model), logits(model)
    rescale(model.module, sigma=0.1, seed=1)
    assert (logits(model) - outputs).abs().max() < 1e-4
    for name, weight in linears(model).items():
        assert (weight != weights[name]).float().mean() > 0.99


def test_a_twin_is_written_in_bfloat16_and_reports_the_difference(folder: Path, tmp_path: Path) -> None:
    assert write_twin(folder, tmp_path / "twin") < 1e-4
    assert set(penjing.load(tmp_path / "twin").dtypes.values()) == {torch.bfloat16}


def test_a_model_whose_factors_would_not_cancel_has_no_twin(tmp_path: Path) -> None:
    model = penjing.load(write_model(tmp_path / "biased"))
    object.__setattr__(model.module.config, "qkv_bias", True)
    with pytest.raises(ValueError, match="biases"):
        rescale(model.module, sigma=0.1, seed=1)


def test_rounding_to_nearest_leaves_16_values_a_group_and_the_embedding_alone(model: Model) -> None:
    embedding = model.module.model.embed_tokens.weight.clone()
    rounded, _ = nearest.round_to_nearest(model)
    for weight in linears(rounded).values():
        for group in weight.unflatten(1, (-1, nearest.GROUP)).flatten(0, 1):
            assert len(group.unique()) <= 16
    assert torch.equal(rounded.module.model.embed_tokens.weight, embedding)


def test_rounding_to_nearest_counts_four_and_a_half_bits_a_rounded_weight(model: Model) -> None:
    rounded_weights = sum(weight.numel() for weight in linears(model).values())
    kept = model.ledger.parameters - rounded_weights
    assert nearest.round_to_nearest(model)[1] == rounded_weights * 4.5 / 8 + 2 * kept


def test_a_random_qwen3_is_the_same_model_in_both_forms(folder: Path, tmp_path: Path, monkeypatch) -> None:
    small = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    monkeypatch.setattr(random_qwen3, "CONFIG", random_qwen3.CONFIG | small | {"head_dim": 16})
    monkeypatch.setattr(random_qwen3, "SHARD_BYTES", 50_000)
    random_qwen3.write_random_qwen3(tmp_path / "m", tmp_path / "m.gguf", folder, layers=3)
    first, second = penjing.load(tmp_path / "m"), penjing.load(tmp_path / "m.gguf")
    assert len(list((tmp_path / "m").glob("*.safetensors"))) > 1 and first.config.num_hidden_layers == 3
    assert torch.equal(logits(first), logits(second)) and logits(first).isfinite().all()


def test_a_measured_row_is_not_measured_again_until_settings_change(folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number, name in enumerate(quality.FILES):
        write_text(texts / name, documents=8, words=600, seed=number)
    made = []

    def make(original: Path) -> tuple[Model, int]:
        made.append(original)
        return quality.rounded(original)

    settings = quality.Settings(str(folder), str(texts), **SETTINGS)
    first = quality.measure("row", make, settings, tmp_path)
    assert quality.measure("row", make, settings, tmp_path) == first
    assert len(made) == 1
    other = quality.Settings(str(folder), str(texts), **SETTINGS | {"seed": 1})
    quality.measure("row", make, other, tmp_path)
    assert len(made) == 2
    page = quality.report([first], settings)
    assert f"{first['ratio']:.3f}" in page and "perplexity kept on" in page


def test_a_table_replaces_only_what_stands_in_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- t -->\nold\n<!-- end of t -->\nafter\n", encoding="utf-8")
    for text in ("first", tables.markdown(["model", "MB"], [["a", "1"]])):
        tables.put(page, "t", text)
    assert page.read_text(encoding="utf-8") == (
        "before\n<!-- t -->\n\n| model | MB |\n| --- | ---: |\n| a | 1 |\n\n<!-- end of t -->\nafter\n"
    )


def test_a_page_without_the_place_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no place"):
        tables.put(page, "t", "text")
