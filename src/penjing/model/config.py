"""What a decoder is, in the field's own words: every concept that the families vary is one field here."""

from dataclasses import dataclass

from penjing.errors import InputError, UnsupportedError

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")
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


@dataclass(frozen=True)
class ModelConfig:
    """Shape and switches of a decoder. `windows` holds one entry a layer: None for full attention, else its
    reach in tokens (a query sees itself and the `window - 1` tokens before it)."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rope: RopeConfig
    windows: tuple[int | None, ...]
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise InputError(
                f"{self.num_attention_heads} attention heads can't share {self.num_key_value_heads} key-value"
                " heads evenly; check num_attention_heads and num_key_value_heads in the config"
            )
        if self.head_dim % 2:
            raise InputError(f"head_dim {self.head_dim} is odd; rotary positions need an even one")
        for name in ("short_factor", "long_factor"):
            factors = getattr(self.rope, name)
            if factors is not None and len(factors) != self.head_dim // 2:
                raise InputError(
                    f"rope type {self.rope.rope_type!r} needs {self.head_dim // 2} values of {name},"
                    f" not {len(factors)}"
                )
        if len(self.windows) != self.num_hidden_layers:
            raise InputError(
                f"the config names {len(self.windows)} layer types for {self.num_hidden_layers} layers"
            )
        if self.hidden_act not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise UnsupportedError(f"activation {self.hidden_act!r} is not supported (supported: {known})")
