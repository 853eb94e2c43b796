"""Logits of tiny random twins equal transformers', cached and uncached."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from penjing.model.cache import StaticCache
from penjing.model.saving import save_folder
from penjing.model.shapes import tensor_shapes


def prompt(length=40, rows=2):
    ids = torch.randint(0, 96, (rows, length), generator=torch.Generator().manual_seed(1))
    return ids, torch.arange(length).expand(rows, -1)


def is_length_dependent(module):
    return module.config.rope.rope_type in ("dynamic", "longrope")


def test_the_shapes_that_are_known_without_torch_are_the_modules(twin):
    _, module = twin
    built = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert list(tensor_shapes(module.config).items()) == list(built.items())


@torch.inference_mode()
def test_logits_equal_transformers(twin):
    reference, module = twin
    ids, positions = prompt()
    assert (module(ids, positions) - reference(ids).logits).abs().max() <= 1e-4


@torch.inference_mode()
@pytest.mark.parametrize("split", [1, 2, 7, 39])
def test_any_split_of_the_prompt_through_the_cache_gives_the_uncached_logits(twin, split):
    _, module = twin
    if is_length_dependent(module):
        pytest.skip("this scaling depends on the length that is known so far")
    ids, positions = prompt()
    cache = StaticCache(module.config, 2, 64)
    pieces = [
        module(ids[:, i : i + split], positions[:, i : i + split], cache=cache) for i in range(0, 40, split)
    ]
    whole = module(ids, positions)
    assert (torch.cat(pieces, dim=1) - whole).abs().max() <= 1e-5 * max(1.0, float(whole.abs().max()))


@torch.inference_mode()
def test_a_batch_of_ragged_prompts_is_each_alone(twin):
    _, module = twin
    if is_length_dependent(module):
        pytest.skip("this scaling depends on the longest prompt")
    ids, positions = prompt()
    lengths = (3, 40)
    cache = StaticCache(module.config, 2, 64)
    together = module(ids, positions, cache=cache)
    last = torch.tensor([[length] for length in lengths])
    stepped = module(torch.tensor([[7], [9]]), last, cache=cache)
    for row, (length, new) in enumerate(zip(lengths, (7, 9), strict=True)):
        text = torch.cat((ids[row, :length], torch.tensor([new]))).unsqueeze(0)
        alone = module(text, torch.arange(length + 1).unsqueeze(0))[0]
        scale = max(1.0, float(alone.abs().max()))
        assert (together[row, length - 1] - alone[-2]).abs().max() <= 1e-5 * scale
        assert (stepped[row, 0] - alone[-1]).abs().max() <= 1e-5 * scale


@torch.inference_mode()
def test_transformers_opens_what_is_saved_with_equal_logits(twin, tmp_path):
    reference, module = twin
    hf_config = json.loads(reference.config.to_json_string(use_diff=False))
    dtypes = {name: tensor.dtype for name, tensor in module.named_parameters()}
    save_folder(tmp_path / "saved", module, dtypes, hf_config, {}, lambda folder: None)
    saved, info = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids, _ = prompt()
    assert (saved.eval()(ids).logits - reference(ids).logits).abs().max() <= 1e-5


@torch.inference_mode()
def test_cached_decoding_equals_transformers_cached_decoding(twin):
    reference, module = twin
    if module.config.rope.rope_type == "dynamic":
        pytest.skip("transformers' own frequencies depend on the calls before")
    ids, positions = prompt()
    cache, past = StaticCache(module.config, 2, 64), None
    for piece in (slice(0, 30), slice(30, 31), slice(31, 40)):
        ours = module(ids[:, piece], positions[:, piece], cache=cache)
        theirs = reference(ids[:, piece], cache=past, use_cache=True)
        past = theirs.past_key_values
        assert (ours - theirs.logits).abs().max() <= 1e-4
