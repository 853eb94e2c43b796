"""What a decoder is, in the field's own words: every concept that the families vary is one field here."""

import math
from dataclasses import dataclass
from typing import Literal

from penjing.errors import InputError, UnsupportedError

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "relu")
# Every rope type that is known, and the settings that it can't do without.
ROPE_NEEDS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "yarn": ("original_max_position_embeddings",),
    "longrope": ("original_max_position_embeddings", "short_factor", "long_factor"),
}


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding and its scaling; names and meaning as in Hugging Face's `rope_parameters`."""

    rope_type: str = "default"
    rope_theta: float = 10_000.0
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.rope_type not in ROPE_NEEDS:
            known = ", ".join(sorted(ROPE_NEEDS))
            raise UnsupportedError(f"rope type {self.rope_type!r} is not supported (supported: {known})")
        for field in ROPE_NEEDS[self.rope_type]:
            if getattr(self, field) is None:
                raise InputError(
                    f"rope type {self.rope_type!r} needs {field} in the config's rope parameters"
                )


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """By how much YaRN (arXiv 2309.00071) raises scores when the context grows by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def longrope_magnitude(rope: RopeConfig, context: int) -> float:
    """By how much LongRoPE (arXiv 2402.13753) scales cosine and sine."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    trained = rope.original_max_position_embeddings
    assert trained is not None  # this type needs it
    factor = context / trained if rope.factor is None else rope.factor
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))


@dataclass(frozen=True)
class LatentConfig:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are made from
    one short vector a token, of `kv_rank` values; a head's key is `nope_dim` of them, which carry no
    position, and `rope_dim` rotated ones, which all heads share. `q_rank` None: queries are made in one
    step."""

    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    q_rank: int | None = None


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts: in the layers that `layers` names, each token goes to `per_token` of `count`
    experts, weighted by the router.

    `scoring` turns router logits into scores, `normalize` lets a token's weights add up to one, `scale`
    multiplies them. `groups` experts stand together: only the best `groups_per_token` groups are chosen from,
    judged by the sum of their best `group_top` scores. `correction_bias` is added to the scores where experts
    are chosen, not where they are weighted. `shared_size` is the width of the expert that sees every token
    (0: none), `shared_gate` weighs it by a sigmoid of its own.
    """

    count: int
    per_token: int
    intermediate_size: int
    layers: tuple[bool, ...]
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    groups_per_token: int = 1
    group_top: int = 1
    correction_bias: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_size: int = 0
    shared_gate: bool = False

    def __post_init__(self) -> None:
        if self.per_token > self.count:
            raise InputError(f"a token can't go to {self.per_token} of {self.count} experts")
        if self.count % self.groups or self.groups_per_token > self.groups:
            raise InputError(
                f"{self.count} experts can't stand in {self.groups} groups of which {self.groups_per_token}"
                " are chosen"
            )
        available = self.groups_per_token * (self.count // self.groups)
        if self.per_token > available or self.group_top > self.count // self.groups:
            raise InputError(
                f"{self.groups_per_token} of {self.groups} groups hold {available} experts, too few for"
                f" {self.per_token} a token"
            )


@dataclass(frozen=True)
class ModelConfig:
    """Shape and switches of a decoder.

    `windows` holds one entry a layer: None for full attention, else its reach in tokens (a query sees itself
    and the `window - 1` tokens before it). `rope` turns the first `rotary_dim` values of a head (None: all)
    in the layers that `rotary_layers` names (None: all); `local_rope` is that of windowed layers where they
    have their own; `rope_interleaved` pairs neighbours (2i, 2i+1) instead of halves (i, i + d/2). Learned
    positions start at row `position_offset`. `alibi_scaled` scales what distance costs as scores are, and
    rounds it to bfloat16 (Falcon-RW). `norm_offset` is added to a norm's stored weight. `pre_norm`
    normalises what a sublayer reads and `post_norm` what it gives; `parallel` feeds both sublayers the same
    input, through "two norms" or "one norm". `qk_norm` normalises queries and keys by "head", with a gain
    that all heads share, by "each head" with a gain of its own and no bias, or over their whole "width".
    `swiglu_limit` clamps a gated net as gpt-oss does. Scales are factors, None means 1, except
    `attention_scale`, where None means head_dim**-0.5.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    windows: tuple[int | None, ...]

    positions: Literal["rotary", "learned", "alibi"] = "rotary"
    rope: RopeConfig = RopeConfig()
    local_rope: RopeConfig | None = None
    rotary_dim: int | None = None
    rotary_layers: tuple[bool, ...] | None = None
    rope_interleaved: bool = False
    position_offset: int = 0
    alibi_scaled: bool = False

    norm: Literal["rms", "layer"] = "rms"
    norm_eps: float = 1e-6
    norm_bias: bool = False
    norm_offset: float = 0.0
    pre_norm: bool = True
    post_norm: bool = False
    parallel: Literal["two norms", "one norm"] | None = None

    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["head", "each head", "width"] | None = None
    attention_scale: float | None = None
    attention_softcap: float | None = None
    attention_sinks: bool = False
    latent: LatentConfig | None = None

    gated: bool = True
    hidden_act: str = "silu"
    mlp_bias: bool = False
    swiglu_limit: float | None = None
    experts: ExpertsConfig | None = None

    tie_word_embeddings: bool = False
    head_bias: bool = False
    embedding_scale: float | None = None
    embedding_norm: bool = False
    residual_scale: float | None = None
    logit_scale: float | None = None
    logit_softcap: float | None = None

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise InputError(
                f"{self.num_attention_heads} attention heads can't share {self.num_key_value_heads} key-value"
                " heads evenly; check num_attention_heads and num_key_value_heads in the config"
            )
        if self.positions == "rotary":
            self._check_rotation()
        self._check_layers()
        if self.head_bias and self.tie_word_embeddings:
            raise UnsupportedError("a head that has a bias and is tied to the embedding is not supported")
        if self.hidden_act not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise UnsupportedError(f"activation {self.hidden_act!r} is not supported (supported: {known})")

    def _check_rotation(self) -> None:
        if self.rotated % 2 or not 0 < self.rotated <= self.head_dim:
            raise InputError(
                f"rotary positions can't turn {self.rotated} of the {self.head_dim} values of a head: it must"
                " be an even number of them"
            )
        for rope in filter(None, (self.rope, self.local_rope)):
            for name in ("short_factor", "long_factor"):
                factors = getattr(rope, name)
                if factors is not None and len(factors) != self.rotated // 2:
                    raise InputError(
                        f"rope type {rope.rope_type!r} needs {self.rotated // 2} values of {name}, not"
                        f" {len(factors)}"
                    )

    def _check_layers(self) -> None:
        experts = self.experts.layers if self.experts else None
        for what, given in (
            ("layer types", self.windows),
            ("rotary layers", self.rotary_layers),
            ("kinds of feed-forward nets", experts),
        ):
            if given is not None and len(given) != self.num_hidden_layers:
                raise InputError(f"the config names {len(given)} {what} for {self.num_hidden_layers} layers")

    @property
    def rotated(self) -> int:
        """Values of a head that rotary positions turn."""
        if self.latent:
            return self.latent.rope_dim
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def value_head_dim(self) -> int:
        """Width of a head's values; keys have `head_dim`."""
        return self.latent.value_dim if self.latent else self.head_dim

    def rope_of(self, layer: int) -> RopeConfig | None:
        """The rotation in a layer, if there is one."""
        turned = self.rotary_layers is None or self.rotary_layers[layer]
        if self.positions != "rotary" or not turned:
            return None
        is_local = self.local_rope is not None and self.windows[layer] is not None
        return self.local_rope if is_local else self.rope

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's feed-forward net is a mixture of experts."""
        return self.experts is not None and self.experts.layers[layer]
