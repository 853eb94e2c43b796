"""A model whose weights stay in the file computes and saves what the loaded one does."""

import pytest
import torch
from tests.equivalence.test_shrunk_models import documents
from tests.parity.twins import config_of
from tests.unit.models import CONFIG, hf_model, prompt, random_tensors
from transformers import AutoModelForCausalLM

import penjing
from penjing.formats.open import open_checkpoint
from penjing.model.linear import held_matrices, unpack_module
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

FORMS = ["hf", "gguf"]


@pytest.fixture(params=FORMS)
def path(request, tmp_path):
    if request.param == "hf":
        return hf_model(tmp_path / "m")
    penjing.load(hf_model(tmp_path / "source", CONFIG, random_tensors())).save_gguf(tmp_path / "m.gguf")
    return tmp_path / "m.gguf"


@torch.inference_mode()
def test_held_and_loaded_models_give_equal_logits_and_answers(path):
    held, loaded = penjing.load(path, hold_stored=True), penjing.load(path)
    assert held_matrices(held.module) and not held_matrices(loaded.module)
    assert torch.equal(held.module(*prompt()), loaded.module(*prompt()))
    assert held.ledger == loaded.ledger
    unpack_module(held.module)
    assert torch.equal(held.module(*prompt()), loaded.module(*prompt()))


def test_a_held_model_is_saved_as_the_loaded_one_is(path, tmp_path):
    for name, hold in (("held", True), ("loaded", False)):
        penjing.load(path, hold_stored=hold).save(tmp_path / name)
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("held", "loaded"))
    assert first == second


@torch.inference_mode()
@pytest.mark.parametrize("name", ["phi3", "neox", "gpt2", "gpt-oss", "bloom", "mixtral", "gemma2"])
def test_fused_transposed_and_stacked_matrices_are_held_too(name, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        AutoModelForCausalLM.from_config(config_of(name)).to(torch.bfloat16).save_pretrained(tmp_path)
    plan = plan_load(open_checkpoint(tmp_path))
    held, loaded = load_decoder(plan, hold_stored=True), load_decoder(plan)
    ids = torch.randint(0, 96, (2, 20), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(20).expand(2, -1)
    assert (held(ids, positions) - loaded(ids, positions)).abs().max() <= 1e-5
    assert not any(isinstance(child, torch.nn.Linear) for child in held.modules())


def test_a_model_too_large_for_float32_is_held_and_says_so(tmp_path, monkeypatch):
    folder = hf_model(tmp_path / "m", CONFIG)
    monkeypatch.setattr("penjing.memory.available_memory", lambda: 1_000_000)
    model = penjing.load(folder)
    assert held_matrices(model.module)
    assert any("stay in the file" in notice for notice in model.notices)


def test_a_held_model_is_not_shrunk_and_says_how_it_would_be(tmp_path):
    model = penjing.load(hf_model(tmp_path / "m"), hold_stored=True)
    with pytest.raises(penjing.InputError, match="hold_stored=False"):
        penjing.shrink(model, to=0.5, effort="fast", texts={"words": documents()})
