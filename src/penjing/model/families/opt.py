"""OPT: learned positions that start at the third row, layer norms, and a feed-forward net with ReLU. The 350M
model, which normalises after its sublayers and projects its embedding, is another and is refused."""

from collections.abc import Sequence

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_activation, read_layers
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename

_FIRST_POSITION = 2  # of the table's rows; those before stood for padding
_EPSILON = 1e-5  # the config has no key for it
_PARTS = {
    "self_attn_layer_norm": "input_layernorm",
    "self_attn.q_proj": "self_attn.q_proj",
    "self_attn.k_proj": "self_attn.k_proj",
    "self_attn.v_proj": "self_attn.v_proj",
    "self_attn.out_proj": "self_attn.o_proj",
    "final_layer_norm": "post_attention_layernorm",
    "fc1": "mlp.up_proj",
    "fc2": "mlp.down_proj",
}
_ENDS = {
    "model.decoder.embed_tokens.weight": "model.embed_tokens.weight",
    "model.decoder.embed_positions.weight": "model.embed_positions.weight",
    "model.decoder.final_layer_norm.weight": "model.norm.weight",
    "model.decoder.final_layer_norm.bias": "model.norm.bias",
}


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("do_layer_norm_before", True)
    config.expect("_remove_final_layer_norm", False)
    config.expect("layer_norm_elementwise_affine", True)
    # Of training, and what stands before a prompt.
    config.ignore("activation_dropout", "dropout", "init_std", "layerdrop", "prefix")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    config.expect("word_embed_proj_dim", hidden)
    layers, bias = read_layers(config), config.flag("enable_bias", True)
    return ModelConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("ffn_dim"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=config.integer("max_position_embeddings", 2048),
        windows=(None,) * layers,
        positions="learned",
        position_offset=_FIRST_POSITION,
        norm="layer",
        norm_bias=True,
        norm_eps=_EPSILON,
        qkv_bias=bias,
        o_bias=bias,
        gated=False,
        hidden_act=read_activation(config, "activation_function", "relu"),
        mlp_bias=bias,
        tie_word_embeddings=config.flag("tie_word_embeddings", True),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    found = [rename(theirs, ours) for theirs, ours in _ENDS.items()]
    return found + [
        rename(f"model.decoder.layers.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
        for theirs, ours in _PARTS.items()
        for kind in ("weight", "bias")
    ]


FAMILY = Family(("opt",), "OPTForCausalLM", read, rules)
