"""The keys of configs as they were published, some of which say nothing about the computation."""

from typing import Any

import pytest

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig
from penjing.model.rope import inverse_frequencies, rotation_of

TRAINED_4096 = {"beta_fast": 32, "beta_slow": 1, "factor": 40, "original_max_position_embeddings": 4096}
YARN_OF_V3 = {"mscale": 1.0, "mscale_all_dim": 1.0, "type": "yarn"}
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
PLAIN: dict[str, Any] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.46.3",
    "use_cache": True,
}
TRAINED = {"aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1, "pretraining_tp": 1, "moe_layer_freq": 1}
DEEPSEEK_V2_LITE = (
    PLAIN
    | LATENT
    | TRAINED
    | {
        "model_type": "deepseek_v2",
        "first_k_dense_replace": 1,
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": 1408,
        "n_group": 1,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "norm_topk_prob": False,
        "num_attention_heads": 16,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 27,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "rms_norm_eps": 1e-6,
        "rope_scaling": TRAINED_4096 | {"mscale": 0.707, "mscale_all_dim": 0.707, "type": "yarn"},
        "rope_theta": 10000,
        "routed_scaling_factor": 1.0,
        "scoring_func": "softmax",
        "topk_group": 1,
        "topk_method": "greedy",
        "vocab_size": 102400,
    }
)
DEEPSEEK_V3 = (
    PLAIN
    | LATENT
    | TRAINED
    | {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": 2048,
        "n_group": 8,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "rms_norm_eps": 1e-6,
        "rope_scaling": TRAINED_4096 | YARN_OF_V3,
        "rope_theta": 10000,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_group": 4,
        "topk_method": "noaux_tc",
        "vocab_size": 129280,
    }
)
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2",
    "first_k_dense_replace": 1,
    "max_position_embeddings": 131072,
    "n_group": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0,
    "rope_scaling": TRAINED_4096 | YARN_OF_V3 | {"beta_fast": 1.0, "factor": 32.0},
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
    "topk_group": 1,
    "vocab_size": 163840,
}
GLM_4_0414 = PLAIN | {
    "model_type": "glm4",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 13696,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "vocab_size": 151552,
}
GLM_4_5_AIR = PLAIN | {
    "model_type": "glm4_moe",
    "attention_bias": True,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "max_position_embeddings": 131072,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 96,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 46,
    "num_key_value_heads": 8,
    "num_nextn_predict_layers": 1,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "routed_scaling_factor": 1.0,
    "topk_group": 1,
    "use_qk_norm": False,
    "vocab_size": 151552,
}
GLM_4_7_FLASH = PLAIN | {
    "model_type": "glm4_moe_lite",
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 10240,
    "kv_lora_rank": 512,
    "max_position_embeddings": 202752,
    "moe_intermediate_size": 1536,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 20,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 47,
    "num_key_value_heads": 20,
    "num_nextn_predict_layers": 1,
    "partial_rotary_factor": 1.0,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "routed_scaling_factor": 1.8,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "v_head_dim": 256,
    "vocab_size": 154880,
}
DOTS_LLM1 = PLAIN | {
    "model_type": "dots1",
    "first_k_dense_replace": 1,
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "max_position_embeddings": 32768,
    "max_window_layers": 62,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": None,
    "n_routed_experts": 128,
    "n_shared_experts": 2,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 62,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "noaux_tc",
    "sliding_window": None,
    "topk_group": None,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
ERNIE_21B = {
    "model_type": "ernie4_5_moe",
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 12288,
    "max_position_embeddings": 131072,
    "moe_capacity": [64, 64, 64],
    "moe_gate": "topk",
    "moe_intermediate_size": 1536,
    "moe_k": 6,
    "moe_layer_end_index": 27,
    "moe_layer_interval": 1,
    "moe_layer_start_index": 1,
    "moe_num_experts": 64,
    "moe_num_shared_experts": 2,
    "moe_use_aux_free": True,
    "num_attention_heads": 20,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "num_nextn_predict_layers": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "use_bias": False,
    "vocab_size": 103424,
}
PUBLISHED = {
    "DeepSeek-V2-Lite": DEEPSEEK_V2_LITE,
    "DeepSeek-V3": DEEPSEEK_V3,
    "Kimi-K2": KIMI_K2,
    "GLM-4-9B-0414": GLM_4_0414,
    "GLM-4.5-Air": GLM_4_5_AIR,
    "GLM-4.7-Flash": GLM_4_7_FLASH,
    "dots.llm1": DOTS_LLM1,
    "ERNIE-4.5-21B-A3B": ERNIE_21B,
}


def read(values: dict[str, Any]) -> ModelConfig:
    foreign = ForeignConfig(values, "config.json")
    config = family_of_model_type(values["model_type"], "config.json").read(foreign)
    assert foreign.finish() == ()
    return config


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_key_of_a_published_config_is_known(name):
    assert read(PUBLISHED[name]).vocab_size == PUBLISHED[name]["vocab_size"]


def test_yarn_raises_the_scores_of_latent_attention_and_not_the_rotated_part():
    """The published factor of 40 with a weight of 0.707: 0.1 · 0.707 · ln 40 + 1 = 1.2608 on each side."""
    config = read(DEEPSEEK_V2_LITE)
    assert config.attention_scale == pytest.approx(192**-0.5 * 1.2608**2, rel=1e-4)
    rotation = rotation_of(config, 0)
    assert rotation and inverse_frequencies(rotation, 1)[1] == 1.0


def test_kimis_ramp_has_equal_ends_and_still_slows_only_slow_pairs():
    rotation = rotation_of(read(KIMI_K2), 0)
    assert rotation
    frequencies, _ = inverse_frequencies(rotation, 1)
    plain = 50000.0 ** -(2 * 31 / 64)
    assert frequencies[0] == 1.0 and frequencies[31] == pytest.approx(plain / 32, rel=1e-5)


def test_latent_heads_need_not_divide_the_hidden_size():
    config = read(GLM_4_7_FLASH)
    assert config.hidden_size % config.num_attention_heads and config.head_dim == 256


@pytest.mark.parametrize(
    "changed",
    [
        DEEPSEEK_V2_LITE | {"norm_topk_prob": True},
        DEEPSEEK_V2_LITE | {"topk_method": "noaux_tc"},
        DEEPSEEK_V3 | {"scoring_func": "softmax"},
        DEEPSEEK_V3 | {"topk_method": "greedy"},
        GLM_4_7_FLASH | {"partial_rotary_factor": 0.5},
        ERNIE_21B | {"use_bias": True},
        ERNIE_21B | {"moe_gate": "top2_fused"},
        GLM_4_0414 | {"index_n_heads": 32},
    ],
)
def test_a_setting_that_would_be_computed_otherwise_is_refused_by_name(changed):
    with pytest.raises(UnsupportedError):
        read(changed)
