"""Logits of tiny random twins equal transformers', cached and uncached."""

import pytest
import torch
from tests.parity import twins_gemma_and_others
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from penjing.formats.open import open_checkpoint
from penjing.model.cache import StaticCache
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load
from penjing.model.shapes import tensor_shapes

TINY = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32}
LONG |= {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 64}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}

TWINS = {
    "llama untied": LlamaConfig(**TINY),
    "llama tied": LlamaConfig(**TINY, tie_word_embeddings=True),
    "llama multi-head": LlamaConfig(**TINY | {"num_key_value_heads": 4}),
    "llama multi-query": LlamaConfig(**TINY | {"num_key_value_heads": 1}),
    "llama biases": LlamaConfig(**TINY, attention_bias=True, mlp_bias=True),
    "llama wide heads": LlamaConfig(**TINY, head_dim=32),
    "llama gelu": LlamaConfig(**TINY, hidden_act="gelu_pytorch_tanh"),
    "llama rope linear": LlamaConfig(
        **TINY, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
    ),
    "llama rope dynamic": LlamaConfig(
        **TINY | {"max_position_embeddings": 24},
        rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
    ),
    "llama rope llama3": LlamaConfig(**TINY, rope_parameters=LLAMA3),
    "llama rope yarn": LlamaConfig(**TINY, rope_parameters=YARN),
    "llama rope yarn factor": LlamaConfig(**TINY, rope_parameters=YARN | {"attention_factor": 1.0}),
    "llama rope yarn mscale": LlamaConfig(
        **TINY, rope_parameters=YARN | {"mscale": 0.707, "mscale_all_dim": 1.0, "truncate": False}
    ),
    "llama rope longrope": LlamaConfig(**TINY, rope_parameters=LONG),
    "mistral window": MistralConfig(**TINY, sliding_window=8),
    "mistral no window": MistralConfig(**TINY, sliding_window=None),
    "qwen2 tied": Qwen2Config(**TINY, tie_word_embeddings=True),
    "qwen2 upper windows": Qwen2Config(
        **TINY, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
    "qwen2 layer types": Qwen2Config(
        **TINY,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=2,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "qwen3 tied": Qwen3Config(**TINY, head_dim=16, tie_word_embeddings=True),
    "qwen3 biases": Qwen3Config(**TINY, head_dim=32, attention_bias=True),
    **twins_gemma_and_others.TWINS,
}


@pytest.fixture(scope="module", params=TWINS, ids=lambda name: name.replace(" ", "-"))
def twin(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        reference = AutoModelForCausalLM.from_config(TWINS[request.param]).eval()
        adds_one = reference.config.model_type.startswith("gemma")
        for name, parameter in reference.named_parameters():
            if "norm" in name or "bias" in name:
                mean = float("norm" in name and not adds_one)
                torch.nn.init.normal_(parameter, mean=mean, std=0.2)
    reference.save_pretrained(folder)
    return reference, load_decoder(plan_load(open_checkpoint(folder)))


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
    assert (torch.cat(pieces, dim=1) - module(ids, positions)).abs().max() <= 1e-5


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
