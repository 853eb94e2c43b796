"""A shrunk model in memory, the one on disk and the bytes that were promised are the same thing."""

import hashlib

import pytest
import torch
from tests.unit.models import CONFIG, hf_model, prompt, random_tensors

import penjing
from penjing.errors import InputError
from penjing.formats.open import open_checkpoint
from penjing.model.cache import StaticCache
from penjing.model.ledger import plan_ledger
from penjing.model.linear import PackedMatrix, unpack_module
from penjing.model.plan import plan_load
from penjing.shrink.reach import least_bytes

WORDS = ("the", "of", "a", "root", "branch", "leaf", "water", "stone", "moss", "slow", "pot", "tree", "rain")


def documents(count=40, words=260):
    generator = torch.Generator().manual_seed(4)
    picks = torch.randint(0, len(WORDS), (count, words), generator=generator).tolist()
    return [" ".join(WORDS[i] for i in row) for row in picks]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return penjing.load(hf_model(tmp_path_factory.mktemp("original") / "m"))


@pytest.fixture(scope="module")
def shrunk(original):
    return penjing.shrink(original, to=0.4, effort="fast", texts={"words": documents()}).model


def tensor_bytes(folder):
    return sum(info.nbytes for info in open_checkpoint(folder).tensors.values())


@torch.inference_mode()
def test_a_reopened_model_gives_bit_equal_logits(shrunk, tmp_path):
    shrunk.save(tmp_path / "small")
    reopened = penjing.load(tmp_path / "small")
    assert torch.equal(reopened.module(*prompt()), shrunk.module(*prompt()))
    assert reopened.tokenizer.encode("a small tree") == shrunk.tokenizer.encode("a small tree")


def test_the_bytes_on_disk_are_the_bytes_promised(original, shrunk, tmp_path):
    shrunk.save(tmp_path / "small")
    on_disk = tensor_bytes(tmp_path / "small")
    assert on_disk == shrunk.ledger.nbytes <= 0.4 * original.base_bytes
    assert plan_ledger(plan_load(open_checkpoint(tmp_path / "small"))).nbytes == on_disk


def test_the_parameter_count_does_not_change_with_the_precision(original, shrunk):
    assert shrunk.ledger.parameters == original.ledger.parameters == original.stored.parameters


def test_two_runs_write_identical_bytes(original, tmp_path):
    digests = []
    for name in ("a", "b"):
        result = penjing.shrink(original, to=0.35, effort="fast", texts={"words": documents()}, seed=7)
        result.model.save(tmp_path / name)
        weights = (tmp_path / name / "model.safetensors").read_bytes()
        digests.append(hashlib.sha256(weights).hexdigest())
    assert digests[0] == digests[1]


def test_more_texts_than_the_effort_can_measure_are_refused_before_any_work(original, monkeypatch):
    monkeypatch.setattr("penjing.shrink.shrink.make_builder", None)
    many = {f"text {i}": documents(12) for i in range(300)}
    with pytest.raises(InputError, match="too few for 300 texts"):
        penjing.shrink(original, to=0.5, effort="fast", texts=many)


def test_shrinking_leaves_the_global_random_state_alone(original):
    before = torch.get_rng_state()
    penjing.shrink(original, to=0.5, effort="fast", texts={"words": documents()})
    assert torch.equal(torch.get_rng_state(), before)


@torch.inference_mode()
def test_the_cache_holding_floats_and_single_steps_change_nothing(shrunk):
    ids, positions = prompt()
    whole = shrunk.module(ids, positions)
    cache = StaticCache(shrunk.config, 2, 32)
    steps = [shrunk.module(ids[:, i : i + 1], positions[:, i : i + 1], cache=cache) for i in range(24)]
    assert (torch.cat(steps, dim=1) - whole).abs().max() <= 1e-5
    shrunk.keep_float()
    kept = shrunk.module(ids, positions)
    shrunk.keep_float(False)
    assert torch.equal(kept, whole)


def test_the_tied_matrix_is_packed_once_and_used_twice(shrunk):
    packed = [name for name, module in shrunk.module.named_modules() if isinstance(module, PackedMatrix)]
    assert "model.embed_tokens" in packed
    assert not hasattr(shrunk.module, "lm_head")


def test_every_matrix_of_a_width_that_no_group_divides_is_packed_all_the_same(shrunk):
    """Widths 96 and 160 with groups of 32, 64 and 128: nothing is skipped, the last group is short."""
    floats = {name for name, _ in shrunk.module.named_parameters()}
    assert all("norm" in name for name in floats)


def test_a_size_that_cannot_be_reached_is_refused_with_the_least_one(original):
    with pytest.raises(InputError, match="the smallest model that can be built has"):
        penjing.shrink(original, to="1.0bpw", texts={"words": documents()})


def test_a_goal_is_needed(original):
    with pytest.raises(InputError, match="say how small"):
        penjing.shrink(original)


def test_keeping_a_share_searches_sizes_and_says_whether_it_holds(original):
    result = penjing.shrink(original, keep="90%", effort="fast", texts={"words": documents()})
    assert result.verdict is not None
    assert result.trials[-1].chosen and result.trials[-1].nbytes == result.nbytes
    assert any(trial.split == "search" for trial in result.trials)
    kept = result.report.overall.perplexity_kept
    assert kept is not None and result.verdict.holds == (kept.low is not None and kept.low >= 0.9)


@torch.inference_mode()
@pytest.mark.parametrize("shard_bytes", [10**9, 40_000])
def test_a_saved_float_model_opens_in_transformers_with_equal_logits(
    original, tmp_path, shard_bytes, monkeypatch
):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setattr("penjing.model.saving.SHARD_BYTES", shard_bytes)
    original.save(tmp_path / "copy")
    assert bool(list(tmp_path.glob("copy/*index.json"))) == (shard_bytes < 10**9)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path / "copy", dtype=torch.float32)
    ids, positions = prompt()
    assert (reference(ids).logits - original.module(ids, positions)).abs().max() <= 1e-4
    text = "a small tree, 盆景"
    assert AutoTokenizer.from_pretrained(tmp_path / "copy")(text)["input_ids"] == original.tokenizer.encode(
        text
    )


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_measured_is_what_is_saved_also_for_matrices_that_stay_floats(tmp_path, tied):
    config = CONFIG | {"tie_word_embeddings": tied}
    tensors = random_tensors(config, torch.float32)
    wide = penjing.load(hf_model(tmp_path / "wide", config, tensors))
    result = penjing.shrink(wide, to=0.45, effort="fast", texts={"words": documents()})
    assert any("norm" not in name for name, _ in result.model.module.named_parameters())
    result.save(tmp_path / "small")
    reopened = penjing.load(tmp_path / "small")
    with torch.inference_mode():
        assert torch.equal(reopened.module(*prompt()), result.model.module(*prompt()))


def test_a_shrunk_model_is_not_shrunk_again(shrunk):
    with pytest.raises(InputError, match="has no float matrix to shrink"):
        penjing.shrink(shrunk, to=0.3, texts={"words": documents()})


@torch.inference_mode()
def test_an_unpacked_model_computes_the_same(shrunk, tmp_path):
    shrunk.save(tmp_path / "small")
    unpacked = penjing.load(tmp_path / "small")
    unpack_module(unpacked.module)
    assert not any(isinstance(module, PackedMatrix) for module in unpacked.module.modules())
    assert torch.equal(unpacked.module(*prompt()), shrunk.module(*prompt()))


def test_the_least_size_is_known_from_the_headers(original, tmp_path):
    original.save(tmp_path / "copy")
    least = least_bytes(plan_load(open_checkpoint(tmp_path / "copy")))
    with pytest.raises(InputError, match=f"{least / 1e6:.2f} MB"):
        penjing.shrink(original, to=f"{(least - 1) / 1e6}MB", texts={"words": documents()})
