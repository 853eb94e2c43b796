"""Twins of Gemma, OLMo 2 and 3, SmolLM3, Granite, Cohere, Ministral and Helium."""

from transformers import (
    Cohere2Config,
    CohereConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GraniteConfig,
    HeliumConfig,
    MinistralConfig,
    Olmo2Config,
    Olmo3Config,
    SmolLM3Config,
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
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MIXED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
EIGHT = TINY | {"num_hidden_layers": 8}
EAGER = {"attn_implementation": "eager"}  # the only one that knows caps
CAPPED = TINY | EAGER | {"head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 8}
LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
YARN = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 64}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LOCAL = {"rope_type": "default", "rope_theta": 1e3}
BY_KIND = {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": LOCAL}}

TWINS = {
    "gemma": GemmaConfig(**TINY, head_dim=32),
    "gemma untied, biases": GemmaConfig(**TINY, head_dim=16, tie_word_embeddings=False, attention_bias=True),
    "gemma gelu": GemmaConfig(**TINY, head_dim=16, hidden_act="gelu"),
    "gemma2": Gemma2Config(**CAPPED, attn_logit_softcapping=5.0, final_logit_softcapping=3.0),
    "gemma2 no caps": Gemma2Config(**CAPPED, attn_logit_softcapping=None, final_logit_softcapping=None),
    "gemma2 layer types": Gemma2Config(
        **CAPPED | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        attention_bias=True,
    ),
    "gemma3": Gemma3TextConfig(**EIGHT, **BY_KIND, head_dim=32, query_pre_attn_scalar=20, sliding_window=8),
    "gemma3 capped logits": Gemma3TextConfig(
        **TINY, **MIXED, head_dim=16, tie_word_embeddings=False, final_logit_softcapping=3.0
    ),
    "olmo2": Olmo2Config(**TINY),
    "olmo2 tied, biases": Olmo2Config(**TINY, tie_word_embeddings=True, attention_bias=True),
    "olmo3": Olmo3Config(
        **EIGHT, sliding_window=8, rope_parameters={"full_attention": YARN, "sliding_attention": LOCAL}
    ),
    "smollm3": SmolLM3Config(**EIGHT),
    "smollm3 untied, biases": SmolLM3Config(
        **TINY, no_rope_layers=[0, 1, 0], tie_word_embeddings=False, attention_bias=True, mlp_bias=True
    ),
    "smollm3 windows": SmolLM3Config(
        **TINY, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=8, rope_parameters=YARN
    ),
    "granite": GraniteConfig(
        **TINY,
        embedding_multiplier=12.0,
        attention_multiplier=0.125,
        residual_multiplier=0.22,
        logits_scaling=8.0,
        tie_word_embeddings=True,
    ),
    "granite biases": GraniteConfig(
        **TINY, attention_bias=True, mlp_bias=True, residual_multiplier=0.5, rope_parameters=LLAMA3
    ),
    "cohere": CohereConfig(**TINY, logit_scale=0.25),
    "cohere normed heads": CohereConfig(**TINY, use_qk_norm=True, tie_word_embeddings=False),
    "cohere biases": CohereConfig(**TINY, attention_bias=True),
    "cohere2": Cohere2Config(**EIGHT, sliding_window=8, logit_scale=0.25),
    "cohere2 layer types": Cohere2Config(**TINY, **MIXED, attention_bias=True, tie_word_embeddings=False),
    "ministral": MinistralConfig(**TINY, **MIXED, head_dim=16),
    "helium": HeliumConfig(**TINY, head_dim=16),
    "helium biases": HeliumConfig(**TINY, head_dim=16, attention_bias=True, mlp_bias=True),
}
