"""GPT-J: attention and feed-forward net side by side behind one norm, neighbouring values turned together in
a part of each head, and a bias on the logits."""

from collections.abc import Sequence

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_activation, read_layers
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename

_PARTS = {
    "ln_1": "input_layernorm",
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.out_proj": "self_attn.o_proj",
    "mlp.fc_in": "mlp.up_proj",
    "mlp.fc_out": "mlp.down_proj",
}
_ENDS = {
    "transformer.wte.weight": "model.embed_tokens.weight",
    "transformer.ln_f.weight": "model.norm.weight",
    "transformer.ln_f.bias": "model.norm.bias",
}


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("rotary", True)
    config.expect("scale_attn_weights", True)
    hidden, heads, layers = config.integer("n_embd"), config.integer("n_head"), read_layers(config, "n_layer")
    return ModelConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("n_inner", 4 * hidden),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=config.integer("n_positions", 2048),
        windows=(None,) * layers,
        rotary_dim=config.integer("rotary_dim"),
        rope_interleaved=True,
        norm="layer",
        norm_bias=True,
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        parallel="one norm",
        gated=False,
        hidden_act=read_activation(config, "activation_function", "gelu_new"),
        mlp_bias=True,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        head_bias=True,
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    found = [rename(theirs, ours) for theirs, ours in _ENDS.items()]
    return found + [
        rename(f"transformer.h.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
        for theirs, ours in _PARTS.items()
        for kind in ("weight", "bias")
    ]


FAMILY = Family(
    ("gptj",),
    "GPTJForCausalLM",
    read,
    rules,
    derived=(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",),
    defaults={"rotary_dim": 64},
)
