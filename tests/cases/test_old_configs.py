"""Configs with the keys that published models have, old spellings and leftovers among them."""

from typing import Any

import pytest

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 128}
SIZES |= {"num_hidden_layers": 6, "max_position_embeddings": 8192, "attention_dropout": 0.0}
SIZES |= {"initializer_range": 0.02, "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0"}
SIZES |= {"use_cache": True, "bos_token_id": 2, "eos_token_id": [1, 106], "pad_token_id": 0}

GEMMA = SIZES | {"attention_bias": False, "head_dim": 16, "num_key_value_heads": 4, "rms_norm_eps": 1e-6}
CODEGEMMA = GEMMA | {"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": None}
CODEGEMMA |= {"rope_scaling": None, "rope_theta": 10000.0}
GEMMA2 = GEMMA | {"model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid"}
GEMMA2 |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 224, "sliding_window": 4096}
GEMMA2 |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "rope_theta": 10000.0}
GEMMA3 = GEMMA | {"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh"}
GEMMA3 |= {"attn_logit_softcapping": None, "final_logit_softcapping": None, "cache_implementation": "hybrid"}
GEMMA3 |= {"query_pre_attn_scalar": 256, "rope_local_base_freq": 10000, "rope_theta": 1000000}
GEMMA3 |= {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
GEMMA3 |= {"sliding_window": 512, "sliding_window_pattern": 3}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024, "beta_fast": 32.0}
OLMO3 = SIZES | {"model_type": "olmo3", "num_key_value_heads": 4, "rope_theta": 500000, "rope_scaling": YARN}
OLMO3 |= {"attention_bias": False, "hidden_act": "silu", "rms_norm_eps": 1e-6, "sliding_window": 4096}
SMOLLM3 = SIZES | {"model_type": "smollm3", "num_key_value_heads": 4, "rope_theta": 5e6, "hidden_act": "silu"}
SMOLLM3 |= {"max_window_layers": 28, "pretraining_tp": 2, "use_sliding_window": False, "mlp_bias": False}
SMOLLM3 |= {"no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1], "sliding_window": None}
GRANITE = SIZES | {"model_type": "granite", "attention_multiplier": 0.015625, "embedding_multiplier": 12.0}
GRANITE |= {"logits_scaling": 8.0, "residual_multiplier": 0.22, "rope_theta": 1e7, "rope_scaling": None}
GRANITE |= {"tie_word_embeddings": True, "mlp_bias": False, "hidden_act": "silu", "num_key_value_heads": 2}
COMMAND_R = SIZES | {"model_type": "cohere", "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "rope_theta": 8e6}
COMMAND_R |= {"model_max_length": 131072, "num_key_value_heads": 4, "hidden_act": "silu"}
COMMAND_R7B = SIZES | {"model_type": "cohere2", "layer_norm_eps": 1e-5, "logit_scale": 0.25, "head_dim": 16}
COMMAND_R7B |= {"layer_switch": 4, "order_of_interleaved_layers": "local_attn_first", "rotary_pct": 1.0}
COMMAND_R7B |= {"position_embedding_type": "rope_gptj", "use_embedding_sharing": True, "rope_theta": 50000}
COMMAND_R7B |= {"use_gated_activation": True, "use_parallel_block": True, "use_parallel_embedding": False}
COMMAND_R7B |= {"sliding_window": 4096, "sliding_window_pattern": 4, "cache_implementation": "hybrid"}


def read(config: dict[str, Any]) -> ModelConfig:
    """As a folder's config is read; refused if a key is left over that could change the result."""
    family = family_of_model_type(config["model_type"], "test")
    foreign = ForeignConfig({**family.defaults, **config}, "test")
    result = family.read(foreign)
    foreign.finish()
    return result


def test_gemma_means_the_approximation_where_its_first_configs_say_gelu() -> None:
    config = read(CODEGEMMA)
    assert config.hidden_act == "gelu_pytorch_tanh"
    assert config.tie_word_embeddings and config.norm_offset == 1.0 and config.embedding_scale == 8.0


def test_gemma2_caps_and_scales_and_windows_every_other_layer() -> None:
    config = read(GEMMA2)
    assert (config.attention_softcap, config.logit_softcap) == (50.0, 30.0)
    assert config.attention_scale == 224**-0.5
    assert config.windows == (4096, None) * 3


@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_null_switches_a_cap_off_and_a_missing_key_does_not(key: str) -> None:
    field = {"attn_logit_softcapping": "attention_softcap", "final_logit_softcapping": "logit_softcap"}[key]
    assert getattr(read(GEMMA2 | {key: None}), field) is None
    assert getattr(read({k: v for k, v in GEMMA2.items() if k != key}), field) is not None


def test_gemma3_scales_only_the_rotation_of_layers_that_see_everything() -> None:
    config = read(GEMMA3)
    assert config.windows == (512, 512, None) * 2
    assert config.rope_of(0) == RopeConfig(rope_theta=1e4)
    assert config.rope_of(2) == RopeConfig("linear", rope_theta=1e6, factor=8.0)


def test_a_gemma_that_sees_in_both_directions_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="use_bidirectional_attention"):
        read(GEMMA3 | {"use_bidirectional_attention": True})


def test_olmo3_scales_only_every_fourth_layer_whichever_transformers_wrote_its_config() -> None:
    full = {**YARN, "rope_theta": 500000}
    parted = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 500000}}
    old, new = read(OLMO3), read(OLMO3 | {"rope_scaling": None, "rope_parameters": parted})
    assert old == new
    assert old.windows == (4096, 4096, 4096, None, 4096, 4096)
    assert old.rope_of(0) == RopeConfig(rope_theta=5e5)
    rope = old.rope_of(3)
    assert rope is not None and rope.rope_type == "yarn"


def test_smollm3_has_no_positions_in_every_fourth_layer() -> None:
    config = read(SMOLLM3)
    assert [config.rope_of(i) is None for i in range(6)] == [False, False, False, True, False, False]
    assert config.windows == (None,) * 6 and config.tie_word_embeddings
    assert read({k: v for k, v in SMOLLM3.items() if k != "no_rope_layers"}) == config


def test_a_windowed_smollm3_has_windows_where_it_has_no_positions() -> None:
    config = read(SMOLLM3 | {"use_sliding_window": True, "sliding_window": 128})
    assert config.windows == (None, None, None, 128, None, None)


def test_granite_multiplies_four_times() -> None:
    config = read(GRANITE)
    scales = (config.embedding_scale, config.attention_scale, config.residual_scale, config.logit_scale)
    assert scales == (12.0, 0.015625, 0.22, 0.125)


def test_command_r_has_the_context_that_its_tokenizer_names() -> None:
    config = read(COMMAND_R)
    assert config.max_position_embeddings == 131072
    assert config.parallel == "one norm" and config.rope_interleaved and config.norm == "layer"
    assert config.tie_word_embeddings and config.qk_norm is None


def test_command_r7b_turns_only_windowed_layers() -> None:
    config = read(COMMAND_R7B)
    assert config.windows == (4096, 4096, 4096, None, 4096, 4096)
    assert config.rotary_layers == (True, True, True, False, True, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("use_parallel_block", False), ("rotary_pct", 0.5), ("layer_switch", 2), ("use_qk_norm", True)],
)
def test_a_cohere2_that_differs_from_the_published_ones_is_refused(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=key):
        read(COMMAND_R7B | {key: value})


def test_a_missing_window_is_the_familys_own() -> None:
    mistral = SIZES | {"model_type": "mistral", "num_key_value_heads": 2}
    assert read(mistral).windows == (4096,) * 6
    assert read(mistral | {"sliding_window": None}).windows == (None,) * 6
