"""Tiny random twins: a config for each family and each of its quirks, as transformers has them."""

import copy

from transformers import (
    BloomConfig,
    Cohere2Config,
    CohereConfig,
    DeepseekV2Config,
    DeepseekV3Config,
    Dots1Config,
    Ernie4_5_MoeConfig,
    Ernie4_5Config,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    Glm4MoeConfig,
    Glm4MoeLiteConfig,
    GlmConfig,
    GPT2Config,
    GPTJConfig,
    GPTNeoConfig,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    HeliumConfig,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Olmo3Config,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    StableLmConfig,
    Starcoder2Config,
    YoutuConfig,
)

TINY = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PLAIN = {k: v for k, v in TINY.items() if k != "num_key_value_heads"}
FIVE, EIGHT = (TINY | {"num_hidden_layers": layers} for layers in (5, 8))
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32}
LONG |= {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 64}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
PARTED = {"full_attention": YARN | {"rope_theta": 5e5}, "sliding_attention": DEFAULT}
MIXED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
SCALED = {"embedding_multiplier": 12.0, "attention_multiplier": 0.125, "residual_multiplier": 0.22}
SCALED |= {"logits_scaling": 8.0}
LATENT = TINY | {"num_key_value_heads": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8}
LATENT |= {"v_head_dim": 12, "q_lora_rank": 24}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
MOE = EXPERTS | {"num_experts": 8}
ROUTED = EXPERTS | {"n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1}
GROUPED = {"n_group": 4, "topk_group": 2}
GPT2 = {
    "vocab_size": 96,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "initializer_range": 0.1,
}
NEO = {"vocab_size": 96, "hidden_size": 64, "num_layers": 4, "num_heads": 4, "max_position_embeddings": 128}
NEO |= {"attention_types": [[["global", "local"], 2]], "window_size": 8, "initializer_range": 0.1}
FALCON = {k: v for k, v in TINY.items() if k not in ("intermediate_size", "num_key_value_heads")}
FALCON_40B = FALCON | {"new_decoder_architecture": True}
FALCON_RW = FALCON | {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False}
GPTJ = GPT2 | {"rotary_dim": 8}
OPT = {k: v for k, v in PLAIN.items() if k not in ("intermediate_size", "initializer_range")}
OPT |= {"ffn_dim": 96, "init_std": 0.1}
BLOOM = {"vocab_size": 96, "hidden_size": 64, "n_layer": 3, "initializer_range": 0.1}


def rope(**settings: object) -> dict[str, object]:
    return {"rope_parameters": settings}


TWINS: dict[str, PretrainedConfig] = {
    "llama untied": LlamaConfig(**TINY),
    "llama tied": LlamaConfig(**TINY, **TIED),
    "llama multi-head": LlamaConfig(**TINY | {"num_key_value_heads": 4}),
    "llama multi-query": LlamaConfig(**TINY | {"num_key_value_heads": 1}),
    "llama biases": LlamaConfig(**TINY, attention_bias=True, mlp_bias=True),
    "llama wide heads": LlamaConfig(**TINY, head_dim=32),
    "llama gelu": LlamaConfig(**TINY, hidden_act="gelu_pytorch_tanh"),
    "llama rope linear": LlamaConfig(**TINY, **rope(rope_type="linear", factor=4.0, rope_theta=1e4)),
    "llama rope dynamic": LlamaConfig(
        **TINY | {"max_position_embeddings": 24}, **rope(rope_type="dynamic", factor=4.0, rope_theta=1e4)
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
    "ministral": MinistralConfig(**TINY, **MIXED, head_dim=16),
    "mixtral": MixtralConfig(**TINY, num_local_experts=8),
    "mixtral window tied": MixtralConfig(**TINY, **TIED, num_local_experts=4, sliding_window=8),
    "qwen2 tied": Qwen2Config(**TINY, **TIED),
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
    "qwen2 moe": Qwen2MoeConfig(**TINY, **MOE, shared_expert_intermediate_size=48),
    "qwen2 moe normalised, some layers dense": Qwen2MoeConfig(
        **TINY, **MOE, shared_expert_intermediate_size=48, norm_topk_prob=True, mlp_only_layers=[1]
    ),
    "qwen2 moe every second layer": Qwen2MoeConfig(
        **TINY, **MOE, **TIED, shared_expert_intermediate_size=48, decoder_sparse_step=2
    ),
    "qwen3 tied": Qwen3Config(**TINY, **TIED, head_dim=16),
    "qwen3 biases": Qwen3Config(**TINY, head_dim=32, attention_bias=True),
    "qwen3 moe": Qwen3MoeConfig(**TINY, **MOE, head_dim=16),
    "qwen3 moe normalised": Qwen3MoeConfig(**TINY, **MOE, head_dim=32, norm_topk_prob=True),
    "gemma": GemmaConfig(**TINY, head_dim=16),
    "gemma untied, legacy gelu": GemmaConfig(
        **TINY, head_dim=32, hidden_act="gelu", tie_word_embeddings=False
    ),
    "gemma biases": GemmaConfig(**TINY, head_dim=16, attention_bias=True),
    "gemma2": Gemma2Config(
        **TINY,
        head_dim=32,
        query_pre_attn_scalar=20,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0,
        sliding_window=8,
    ),
    "gemma2 no caps": Gemma2Config(
        **TINY,
        head_dim=16,
        query_pre_attn_scalar=16,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        sliding_window=8,
    ),
    "gemma2 as published": Gemma2Config(**TINY, head_dim=32, query_pre_attn_scalar=32, sliding_window=8),
    "gemma3 as published": Gemma3TextConfig(
        **TINY | {"num_hidden_layers": 6}, head_dim=32, query_pre_attn_scalar=32, sliding_window=8
    ),
    "gemma3": Gemma3TextConfig(
        **TINY | {"num_hidden_layers": 7},
        head_dim=16,
        query_pre_attn_scalar=20,
        sliding_window=8,
    ),
    "gemma3 capped logits, untied": Gemma3TextConfig(
        **TINY, **UNTIED, **MIXED, head_dim=16, final_logit_softcapping=3.0
    ),
    "gemma3 layer types, long": Gemma3TextConfig(
        **TINY,
        head_dim=16,
        sliding_window=8,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    ),
    "phi3": Phi3Config(**TINY),
    "phi3 window, tied": Phi3Config(**TINY, **TIED, sliding_window=8),
    "phi3 longrope": Phi3Config(
        **TINY,
        original_max_position_embeddings=32,
        rope_parameters={k: v for k, v in LONG.items() if k != "original_max_position_embeddings"},
    ),
    "phi4-mini partial rotary": Phi3Config(
        **TINY, **TIED, rope_parameters=DEFAULT | {"partial_rotary_factor": 0.75}
    ),
    "glm": GlmConfig(**TINY, head_dim=16),
    "glm no biases": GlmConfig(**TINY, head_dim=32, attention_bias=False),
    "glm4": Glm4Config(**TINY, head_dim=16),
    "glm4 moe": Glm4MoeConfig(**TINY, **ROUTED, **GROUPED, head_dim=16),
    "glm4 moe qk norm, biases": Glm4MoeConfig(
        **TINY, **ROUTED, head_dim=16, use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5
    ),
    "glm4 moe tied, many groups": Glm4MoeConfig(
        **TINY | {"num_key_value_heads": 4},
        **TIED,
        **ROUTED | {"first_k_dense_replace": 2, "num_experts_per_tok": 3},
        **GROUPED,
        head_dim=32,
        norm_topk_prob=False,
        routed_scaling_factor=2.5,
        rope_parameters=DEFAULT | {"partial_rotary_factor": 0.25},
    ),
    "glm4 moe lite": Glm4MoeLiteConfig(
        **LATENT | {"hidden_size": 60}, **EXPERTS, n_routed_experts=8, n_shared_experts=2
    ),
    "glm4 moe lite listed layers": Glm4MoeLiteConfig(
        **LATENT, **EXPERTS, n_routed_experts=8, mlp_layer_types=["sparse", "dense", "sparse"]
    ),
    "olmo2": Olmo2Config(**TINY),
    "olmo2 multi-head": Olmo2Config(**TINY | {"num_key_value_heads": 4}, **TIED),
    "olmo2 biases": Olmo2Config(**TINY, attention_bias=True),
    "olmo3": Olmo3Config(**EIGHT, sliding_window=8, rope_parameters=PARTED),
    "olmo3 as published": Olmo3Config(
        **EIGHT, sliding_window=8, rope_parameters=PARTED | {"full_attention": YARN}
    ),
    "olmo3 layer types": Olmo3Config(**TINY, **MIXED),
    "smollm3": SmolLM3Config(**FIVE),
    "smollm3 listed layers": SmolLM3Config(
        **TINY, no_rope_layers=[0, 1, 0], tie_word_embeddings=False, attention_bias=True
    ),
    "smollm3 windows, all biases": SmolLM3Config(
        **FIVE,
        no_rope_layer_interval=2,
        use_sliding_window=True,
        sliding_window=8,
        attention_bias=True,
        mlp_bias=True,
    ),
    "granite": GraniteConfig(**TINY, **TIED, **SCALED),
    "granite biases": GraniteConfig(
        **TINY, attention_bias=True, mlp_bias=True, residual_multiplier=0.5, rope_parameters=LLAMA3
    ),
    "cohere": CohereConfig(**TINY, logit_scale=0.25),
    "cohere normed heads": CohereConfig(**TINY, use_qk_norm=True),
    "cohere untied, biases": CohereConfig(**TINY, **UNTIED, attention_bias=True),
    "cohere2": Cohere2Config(**EIGHT, sliding_window=8, logit_scale=0.25),
    "cohere2 layer types": Cohere2Config(**TINY, **MIXED, **UNTIED, attention_bias=True),
    "helium": HeliumConfig(**TINY, head_dim=16),
    "helium biases": HeliumConfig(**TINY, head_dim=16, attention_bias=True, mlp_bias=True),
    "deepseek v2": DeepseekV2Config(**LATENT, **ROUTED),
    "deepseek v2 no query rank, groups, yarn": DeepseekV2Config(
        **LATENT | {"q_lora_rank": None},
        **ROUTED,
        **GROUPED,
        topk_method="group_limited_greedy",
        routed_scaling_factor=2.0,
        rope_parameters=YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
    ),
    "deepseek v3": DeepseekV3Config(**LATENT, **ROUTED, **GROUPED),
    "deepseek v3 yarn, biases": DeepseekV3Config(
        **LATENT,
        **ROUTED | {"first_k_dense_replace": 0},
        n_group=1,
        topk_group=1,
        attention_bias=True,
        rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    "deepseek v3 halves, unnormalised": DeepseekV3Config(
        **LATENT, **ROUTED, **GROUPED, rope_interleave=False, norm_topk_prob=False
    ),
    "deepseek v2 tied, biases, one layer dense": DeepseekV2Config(
        **LATENT, **TIED, **ROUTED | {"first_k_dense_replace": 2}, attention_bias=True
    ),
    "deepseek v2 lite": DeepseekV2Config(
        **LATENT | {"q_lora_rank": None},
        **ROUTED,
        n_group=1,
        topk_group=1,
        rope_parameters=YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
    ),
    "deepseek v3 no query rank, tied": DeepseekV3Config(
        **LATENT | {"q_lora_rank": None}, **TIED, **ROUTED, n_group=2, topk_group=1
    ),
    "deepseek v3 yarn without its magnitude on the scores": DeepseekV3Config(
        **LATENT, **ROUTED, **GROUPED, rope_parameters=YARN
    ),
    "kimi k2": DeepseekV3Config(
        **LATENT,
        **ROUTED,
        n_group=1,
        topk_group=1,
        routed_scaling_factor=2.827,
        rope_parameters=YARN | {"beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    "youtu": YoutuConfig(**LATENT),
    "youtu untied, no query rank": YoutuConfig(**LATENT | {"q_lora_rank": None}, **UNTIED),
    "dots1": Dots1Config(
        **TINY | {"num_key_value_heads": 4},
        **ROUTED,
        head_dim=16,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
    ),
    "dots1 groups, biases, upper windows": Dots1Config(
        **TINY, **ROUTED, **GROUPED, head_dim=32, attention_bias=True, sliding_window=8, max_window_layers=1
    ),
    "ernie": Ernie4_5Config(**TINY, head_dim=16),
    "ernie untied, biases": Ernie4_5Config(**TINY, **UNTIED, head_dim=32, use_bias=True),
    "ernie moe": Ernie4_5_MoeConfig(**TINY, moe_intermediate_size=32, moe_num_experts=8, moe_k=2),
    "ernie moe every second layer, none shared, untied": Ernie4_5_MoeConfig(
        **TINY | {"num_hidden_layers": 6},
        **UNTIED,
        moe_intermediate_size=32,
        moe_num_experts=8,
        moe_k=3,
        moe_num_shared_experts=0,
        moe_layer_interval=2,
        moe_layer_end_index=4,
    ),
    "gpt-oss": GptOssConfig(
        **TINY,
        head_dim=16,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=8,
        rope_parameters=YARN | {"truncate": False},
    ),
    "gpt2": GPT2Config(**GPT2),
    "gpt2 untied, narrow": GPT2Config(
        **GPT2, n_inner=96, tie_word_embeddings=False, activation_function="relu"
    ),
    "gpt-neo": GPTNeoConfig(**NEO),
    "neox": GPTNeoXConfig(**PLAIN),
    "neox sequential": GPTNeoXConfig(**PLAIN, use_parallel_residual=False),
    "neox all turned, no biases": GPTNeoXConfig(
        **PLAIN, attention_bias=False, rope_parameters=DEFAULT | {"partial_rotary_factor": 1.0}
    ),
    "bloom": BloomConfig(**BLOOM, n_head=4),
    "bloom odd heads": BloomConfig(**BLOOM | {"hidden_size": 96}, n_head=6),
    "falcon": FalconConfig(**FALCON),
    "falcon untied, narrow": FalconConfig(**FALCON, **UNTIED, ffn_hidden_size=96, activation="gelu_new"),
    "falcon every head its own keys, biases": FalconConfig(**FALCON, multi_query=False, bias=True),
    "falcon 40b": FalconConfig(**FALCON_40B, num_kv_heads=2),
    "falcon 40b, one key": FalconConfig(**FALCON_40B, **UNTIED, num_kv_heads=1),
    "falcon 11b": FalconConfig(
        **FALCON_40B,
        **UNTIED,
        **rope(rope_type="default", rope_theta=5e5),
        num_kv_heads=2,
        num_ln_in_parallel_attn=1,
    ),
    "falcon rw": FalconConfig(**FALCON_RW),
    "falcon rw rounded slopes": FalconConfig(**FALCON_RW | {"hidden_size": 96, "num_attention_heads": 12}),
    "falcon alibi, few keys": FalconConfig(**FALCON_40B, alibi=True, num_kv_heads=2),
    "gptj": GPTJConfig(**GPTJ),
    "gptj narrow": GPTJConfig(**GPTJ | {"rotary_dim": 16}, n_inner=96, activation_function="relu"),
    "opt": OPTConfig(**OPT),
    "opt untied, no biases": OPTConfig(**OPT, **UNTIED, enable_bias=False, activation_function="gelu"),
    "stablelm": StableLmConfig(**PLAIN, num_key_value_heads=4),
    "stablelm biases": StableLmConfig(**TINY, use_qkv_bias=True),
    "stablelm 12b": StableLmConfig(**TINY, use_parallel_residual=True, qk_layernorm=True),
    "stablelm tied, all turned": StableLmConfig(
        **TINY, **TIED, qk_layernorm=True, rope_parameters=DEFAULT | {"partial_rotary_factor": 1.0}
    ),
    "phi": PhiConfig(**PLAIN),
    "phi normed heads, few keys": PhiConfig(
        **TINY, qk_layernorm=True, rope_parameters=DEFAULT | {"partial_rotary_factor": 0.25}
    ),
    "starcoder2": Starcoder2Config(**TINY),
    "starcoder2 window, untied": Starcoder2Config(**TINY, **UNTIED, sliding_window=8),
    "starcoder2 no biases": Starcoder2Config(**TINY, use_bias=False, hidden_act="gelu"),
}


def config_of(name: str) -> PretrainedConfig:
    """A twin's config, to be changed at will: transformers itself writes into those that it is given."""
    return copy.deepcopy(TWINS[name])
