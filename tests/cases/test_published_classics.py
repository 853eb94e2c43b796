"""The keys of configs as they were published, of families with layer norms, and what is refused of them."""

from typing import Any

import pytest

from penjing.errors import InputError, UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig

WRITTEN = {"torch_dtype": "bfloat16", "transformers_version": "4.27.4", "use_cache": True}
WRITTEN |= {"bos_token_id": 11, "eos_token_id": 11, "initializer_range": 0.02, "attention_dropout": 0.0}

FALCON = WRITTEN | {"model_type": "falcon", "apply_residual_connection_post_layernorm": False}
FALCON |= {"hidden_dropout": 0.0, "layer_norm_epsilon": 1e-5}
FALCON_7B = FALCON | {"hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32}
FALCON_7B |= {"alibi": False, "bias": False, "multi_query": True, "new_decoder_architecture": False}
FALCON_7B |= {"num_kv_heads": 71, "parallel_attn": True, "vocab_size": 65024}
FALCON_40B = FALCON | {"hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60}
FALCON_40B |= {"alibi": False, "bias": False, "multi_query": True, "new_decoder_architecture": True}
FALCON_40B |= {"num_kv_heads": 8, "parallel_attn": True, "vocab_size": 65024}
FALCON_11B = FALCON_40B | {"hidden_size": 4096, "num_attention_heads": 32, "activation": "gelu"}
FALCON_11B |= {"ff_factor": 4, "ffn_hidden_size": 16384, "max_position_embeddings": 8192}
FALCON_11B |= {"num_ln_in_parallel_attn": 1, "rope_scaling": None, "rope_theta": 500042.0}
FALCON_11B |= {"tie_word_embeddings": False}
FALCON_RW = FALCON | {"hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 24}
FALCON_RW |= {"alibi": True, "bias": True, "multi_query": False, "new_decoder_architecture": False}
FALCON_RW |= {"parallel_attn": False, "vocab_size": 50304}
GPTJ = WRITTEN | {"model_type": "gptj", "activation_function": "gelu_new", "attn_pdrop": 0.0}
GPTJ |= {"embd_pdrop": 0.0, "gradient_checkpointing": False, "layer_norm_epsilon": 1e-5, "n_embd": 4096}
GPTJ |= {"n_head": 16, "n_inner": None, "n_layer": 28, "n_positions": 2048, "resid_pdrop": 0.0}
GPTJ |= {"rotary": True, "rotary_dim": 64, "scale_attn_weights": True, "summary_type": "cls_index"}
GPTJ |= {"tie_word_embeddings": False, "tokenizer_class": "GPT2Tokenizer", "vocab_size": 50400}
OPT = WRITTEN | {"model_type": "opt", "activation_dropout": 0.0, "activation_function": "relu"}
OPT |= {"do_layer_norm_before": True, "dropout": 0.1, "ffn_dim": 8192, "hidden_size": 2048, "init_std": 0.02}
OPT |= {"layerdrop": 0.0, "max_position_embeddings": 2048, "num_attention_heads": 32, "pad_token_id": 1}
OPT |= {"num_hidden_layers": 24, "prefix": "</s>", "vocab_size": 50272, "word_embed_proj_dim": 2048}
STABLELM_12B = WRITTEN | {"model_type": "stablelm", "hidden_act": "silu", "hidden_dropout": 0.0}
STABLELM_12B |= {"hidden_size": 5120, "intermediate_size": 13824, "layer_norm_eps": 1e-5}
STABLELM_12B |= {"max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 40}
STABLELM_12B |= {"num_key_value_heads": 8, "partial_rotary_factor": 0.25, "qk_layernorm": True}
STABLELM_12B |= {"rope_theta": 10000, "rotary_scaling_factor": 1.0, "tie_word_embeddings": False}
STABLELM_12B |= {"use_parallel_residual": True, "use_qkv_bias": False, "vocab_size": 100352}
PHI_2 = WRITTEN | {"model_type": "phi", "embd_pdrop": 0.0, "hidden_act": "gelu_new", "hidden_size": 2560}
PHI_2 |= {"intermediate_size": 10240, "layer_norm_eps": 1e-5, "max_position_embeddings": 2048}
PHI_2 |= {"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "resid_pdrop": 0.1}
PHI_2 |= {"partial_rotary_factor": 0.4, "qk_layernorm": False, "rope_scaling": None, "rope_theta": 10000.0}
PHI_2 |= {"tie_word_embeddings": False, "vocab_size": 51200}
STARCODER2 = WRITTEN | {"model_type": "starcoder2", "attention_softmax_in_fp32": True, "hidden_size": 3072}
STARCODER2 |= {"embedding_dropout": 0.1, "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 12288}
STARCODER2 |= {"layer_norm_epsilon": 1e-5, "max_position_embeddings": 16384, "mlp_type": "default"}
STARCODER2 |= {"norm_epsilon": 1e-5, "norm_type": "layer_norm", "num_attention_heads": 24}
STARCODER2 |= {"num_hidden_layers": 30, "num_key_value_heads": 2, "residual_dropout": 0.1}
STARCODER2 |= {"rope_theta": 999999.4420358813, "scale_attention_softmax_in_fp32": True, "use_bias": True}
STARCODER2 |= {"scale_attn_weights": True, "sliding_window": 4096, "vocab_size": 49152}
PUBLISHED = {
    "Falcon-7B": FALCON_7B,
    "Falcon-40B": FALCON_40B,
    "Falcon2-11B": FALCON_11B,
    "Falcon-RW-1B": FALCON_RW,
    "GPT-J-6B": GPTJ,
    "OPT-1.3B": OPT,
    "StableLM-2-12B": STABLELM_12B,
    "Phi-2": PHI_2,
    "StarCoder2-3B": STARCODER2,
}


def read(values: dict[str, Any]) -> ModelConfig:
    family = family_of_model_type(values["model_type"], "config.json")
    foreign = ForeignConfig({**family.defaults, **values}, "config.json")
    config = family.read(foreign)
    assert foreign.finish() == ()
    return config


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_key_of_a_published_config_is_known(name: str) -> None:
    assert read(PUBLISHED[name]).vocab_size == PUBLISHED[name]["vocab_size"]


def test_falcons_differ_in_key_value_heads_and_norms() -> None:
    seven, forty, eleven, rw = (read(c) for c in (FALCON_7B, FALCON_40B, FALCON_11B, FALCON_RW))
    assert [c.num_key_value_heads for c in (seven, forty, eleven, rw)] == [1, 8, 8, 32]
    assert [c.parallel for c in (seven, forty, eleven, rw)] == ["one norm", "two norms", "one norm", None]
    assert (rw.positions, rw.alibi_scaled, rw.qkv_bias, rw.mlp_bias) == ("alibi", True, True, True)
    assert eleven.rope.rope_theta == 500042.0 and not eleven.tie_word_embeddings


def test_a_part_of_each_head_is_turned() -> None:
    assert [read(config).rotated for config in (GPTJ, STABLELM_12B, PHI_2)] == [64, 40, 32]


def test_a_starcoder2_that_says_nothing_of_a_tie_is_tied() -> None:
    assert read(STARCODER2).tie_word_embeddings and read(STARCODER2).windows == (4096,) * 30


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (OPT | {"do_layer_norm_before": False}, "do_layer_norm_before"),
        (OPT | {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        (OPT | {"_remove_final_layer_norm": True}, "_remove_final_layer_norm"),
        (GPTJ | {"rotary": False}, "rotary"),
        (GPTJ | {"tie_word_embeddings": True}, "bias and is tied"),
        (PHI_2 | {"tie_word_embeddings": True}, "bias and is tied"),
        (FALCON_7B | {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn"),
        (FALCON_40B | {"parallel_attn": False}, "parallel_attn"),
        (FALCON_RW | {"num_kv_heads": 8}, "num_kv_heads"),
        (STARCODER2 | {"mlp_type": "gated"}, "mlp_type"),
        (STARCODER2 | {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon"),
        (STABLELM_12B | {"rotary_scaling_factor": 2.0}, "rotary_scaling_factor"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused_by_name(config: dict[str, Any], key: str) -> None:
    with pytest.raises(UnsupportedError, match=key):
        read(config)


def test_a_gptj_without_the_size_of_its_rotation_is_incomplete() -> None:
    with pytest.raises(InputError, match="rotary_dim"):
        read(GPTJ | {"rotary_dim": None})
