"""What the families share when their GGUF metadata are turned into Hugging Face configs."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig, yarn_magnitude
from penjing.model.families.common import FULL, MAX_HEAD_DIM, MAX_LAYERS, SLIDING, alternating
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import Rows, Shifted
from penjing.model.names import Rule, rename

# llama.cpp's numbers for how a router scores.
GATING = {"softmax": 1, "sigmoid": 2}
RMS_EPSILON, LAYER_EPSILON = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


def gguf_shape(
    metadata: ForeignConfig, partial: bool = False, experts: bool = False, epsilon: str = RMS_EPSILON
) -> dict[str, Any]:
    """A Hugging Face config's shared keys from the architecture's own GGUF keys (without their prefix).
    `partial`: rotation may turn a part of each head only; `experts`: the model may have some; `epsilon` is
    the key that holds the norms'."""
    heads, hidden = metadata.integer("attention.head_count"), metadata.integer("embedding_length")
    turned = metadata.get("rope.dimension_count")
    default = hidden // heads if partial or not turned else turned
    head_dim = metadata.integer("attention.key_length", default, maximum=MAX_HEAD_DIM)
    metadata.expect("attention.value_length", head_dim)
    rope = gguf_rope(metadata)
    if partial:
        rope["partial_rotary_factor"] = metadata.integer("rope.dimension_count", head_dim) / head_dim
    else:
        metadata.expect("rope.dimension_count", head_dim)
    return gguf_sizes(metadata, experts) | {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": shortest(metadata.number(epsilon)),
        "hidden_act": "silu",
        "rope_parameters": rope,
    }


def gguf_sizes(metadata: ForeignConfig, experts: bool) -> dict[str, Any]:
    """Sizes that every architecture has under the same keys."""
    if not experts:
        metadata.expect("expert_count", 0)
        metadata.expect("expert_used_count", 0)
    return {
        "vocab_size": metadata.integer("vocab_size"),
        "intermediate_size": metadata.integer("feed_forward_length", minimum=0),
        "num_hidden_layers": metadata.integer("block_count", maximum=MAX_LAYERS),
        "max_position_embeddings": metadata.integer("context_length"),
    }


def gguf_windows(metadata: ForeignConfig, every: int, default: int = 0) -> dict[str, Any]:
    """`sliding_window` and `layer_types`: all layers but each `every`-th are windowed, unless the file says
    otherwise; one that names no window means `default` (0: none)."""
    layers = metadata.integer("block_count", maximum=MAX_LAYERS)
    window = metadata.integer("attention.sliding_window", default, minimum=0)
    pattern = metadata.get("attention.sliding_window_pattern", every)
    if not window:
        return {"sliding_window": None, "layer_types": [FULL] * layers}
    if isinstance(pattern, list):
        kinds = [SLIDING if is_windowed else FULL for is_windowed in pattern]
    else:
        kinds = alternating(layers, metadata.integer("attention.sliding_window_pattern", every))
    return {"sliding_window": window, "layer_types": kinds}


def gguf_parted_rope(metadata: ForeignConfig, rope: dict[str, Any], local_theta: float) -> dict[str, Any]:
    """`rope_parameters` by kind of layer: windowed ones have a base of their own, and no scaling."""
    theta = shortest(metadata.number("rope.freq_base_swa", local_theta))
    return {"rope_parameters": {FULL: rope, SLIDING: {"rope_type": "default", "rope_theta": theta}}}


def gguf_classic_shape(metadata: ForeignConfig) -> dict[str, Any]:
    """The sizes of models with layer norms, under this package's own names; heads are all alike."""
    heads, hidden = metadata.integer("attention.head_count"), metadata.integer("embedding_length")
    metadata.expect("attention.head_count_kv", heads)
    for part in ("key_length", "value_length"):
        metadata.expect(f"attention.{part}", hidden // heads)
    return gguf_sizes(metadata, experts=False) | {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "norm_eps": shortest(metadata.number(LAYER_EPSILON)),
    }


def gguf_experts(metadata: ForeignConfig, count_key: str) -> dict[str, Any]:
    """Sizes of a mixture of experts."""
    return {
        count_key: metadata.integer("expert_count"),
        "num_experts_per_tok": metadata.integer("expert_used_count"),
        "moe_intermediate_size": metadata.integer(
            "expert_feed_forward_length", metadata.get("feed_forward_length")
        ),
    }


def gguf_routed_experts(metadata: ForeignConfig, scoring: str) -> dict[str, Any]:
    """Experts beside shared ones, above some dense layers, as DeepSeek's configs describe them. What isn't
    written doesn't happen, as in llama.cpp: files from before it knew groups are routed without them."""
    metadata.expect("expert_gating_func", GATING[scoring])
    metadata.ignore("expert_shared_feed_forward_length")  # follows from the count
    return gguf_experts(metadata, "n_routed_experts") | {
        "n_shared_experts": metadata.integer("expert_shared_count", 0, minimum=0),
        "first_k_dense_replace": metadata.integer("leading_dense_block_count", 0, minimum=0),
        "n_group": metadata.integer("expert_group_count", 1),
        "topk_group": metadata.integer("expert_group_used_count", 1),
        "routed_scaling_factor": shortest(metadata.number("expert_weights_scale", 1.0)),
        "norm_topk_prob": metadata.flag("expert_weights_norm"),
    }


def routed_metadata(config: ModelConfig) -> dict[str, Any]:
    """The keys that `gguf_routed_experts` reads beside the usual ones."""
    assert config.experts
    experts = config.experts
    return {
        "expert_shared_count": experts.shared_size // experts.intermediate_size,
        "leading_dense_block_count": experts.layers.index(True)
        if any(experts.layers)
        else len(experts.layers),
        "expert_group_count": experts.groups,
        "expert_group_used_count": experts.groups_per_token,
        "expert_weights_scale": experts.scale,
        "expert_weights_norm": experts.normalize,
        "expert_gating_func": GATING[experts.scoring],
    }


def gguf_layers(metadata: ForeignConfig) -> dict[str, int]:
    """The model's own layers, and those counted after them that draft further tokens."""
    further = metadata.integer("nextn_predict_layers", 0, minimum=0)
    layers = metadata.integer("block_count", maximum=MAX_LAYERS) - further
    return {"num_hidden_layers": layers, "num_nextn_predict_layers": further}


def fused_qkv_rules(biases: bool = False) -> Sequence[Rule]:
    """Queries, keys and values in one tensor, one below another."""
    return [
        Rule(
            f"blk.{{i}}.attn_qkv.{kind}",
            tuple(f"model.layers.{{i}}.self_attn.{leaf}_proj.{kind}" for leaf in "qkv"),
            Rows(),
        )
        for kind in (("weight", "bias") if biases else ("weight",))
    ]


def fused_gate_rules() -> Sequence[Rule]:
    """Gate and up projection in one tensor, under the name of the latter."""
    native = tuple(f"model.layers.{{i}}.mlp.{leaf}.weight" for leaf in ("gate_proj", "up_proj"))
    return [Rule("blk.{i}.ffn_up.weight", native, Rows())]


def shifted_norm_rules(config: ModelConfig) -> Sequence[Rule]:
    """Norms that hold their gain, where Hugging Face stores its distance from one."""
    names = {
        "output_norm": "model.norm",
        "blk.{i}.attn_norm": "model.layers.{i}.input_layernorm",
        "blk.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm",
        "blk.{i}.post_attention_norm": "model.layers.{i}.post_self_attn_layernorm",
        "blk.{i}.post_ffw_norm": "model.layers.{i}.post_mlp_layernorm",
        "blk.{i}.attn_q_norm": "model.layers.{i}.self_attn.q_norm",
        "blk.{i}.attn_k_norm": "model.layers.{i}.self_attn.k_norm",
    }
    shift = Shifted(config.norm_offset)
    return [rename(f"{there}.weight", f"{here}.weight", shift) for there, here in names.items()]


def second_norm_rule() -> Rule:
    """The norm before the feed-forward net, where it is called after what comes before it."""
    return rename("blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight")


def gguf_rope(metadata: ForeignConfig) -> dict[str, Any]:
    theta = {"rope_theta": shortest(metadata.number("rope.freq_base", 10_000.0))}
    scaling = {
        "rope_type": metadata.get("rope.scaling.type"),
        "factor": metadata.get("rope.scaling.factor"),
        "original_max_position_embeddings": metadata.get("rope.scaling.original_context_length"),
        "attention_factor": _yarn_factor(metadata),
        "beta_fast": metadata.get("rope.scaling.yarn_beta_fast"),
        "beta_slow": metadata.get("rope.scaling.yarn_beta_slow"),
    }
    if scaling["rope_type"] in (None, "none"):
        return theta | {"rope_type": "default"}
    return theta | {k: v for k, v in scaling.items() if v is not None}


def _yarn_factor(metadata: ForeignConfig) -> float | None:
    """The whole magnitude: as llama.cpp's conversion writes down what a config says, or as the factor on the
    usual one that llama.cpp makes use of."""
    if metadata.get("rope.scaling.yarn_attn_factor") is not None:
        return shortest(metadata.number("rope.scaling.yarn_attn_factor"))
    if metadata.get("rope.scaling.type") != "yarn" or metadata.get("rope.scaling.attn_factor") is None:
        return None
    usual = yarn_magnitude(metadata.number("rope.scaling.factor"))
    return shortest(metadata.number("rope.scaling.attn_factor") * usual)


def shortest(value: float) -> float:
    """GGUF keeps float32; the number that was meant is the shortest decimal that rounds to it (1e-05, not
    9.999999747378752e-06)."""
    return float(f"{value:.7g}")
