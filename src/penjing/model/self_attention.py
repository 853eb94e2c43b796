"""The attention half of a block: projections around `attend`.

Shapes: B rows, L tokens, D hidden_size, H query heads, K key-value heads, h head_dim, v width of a head's
values.
"""

from dataclasses import dataclass

import torch
from torch import nn

from penjing.model.attention import AttentionSpec, Visibility, attend
from penjing.model.cache import LayerKeyValues
from penjing.model.config import LatentConfig, ModelConfig
from penjing.model.norm import HeadNorm, RMSNorm, make_norm
from penjing.model.rope import Rotation, Tables, rotate, rotation_of

_LATENT_EPS = 1e-6  # of the norms within latent attention, whatever the config says of the others


@dataclass(frozen=True)
class Step:
    """What all layers share in one call of the model: who sees whom, and the tables of each rotation."""

    visible: Visibility
    tables: dict[Rotation, Tables]


class _Attention(nn.Module):
    """What every kind of attention has."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        heads = config.num_attention_heads
        scale = config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale
        self.head_dim = config.head_dim
        self.rotation = rotation_of(config, layer)
        self.interleaved = config.rope_interleaved
        self.spec = AttentionSpec(
            scale,
            config.windows[layer],
            config.attention_softcap,
            config.positions == "alibi",
            config.alibi_scaled,
        )
        self.sinks = nn.Parameter(torch.empty(heads)) if config.attention_sinks else None

    def rotate(self, x_BHLh: torch.Tensor, step: Step) -> torch.Tensor:
        if self.rotation is None:
            return x_BHLh
        return rotate(x_BHLh, step.tables[self.rotation], self.interleaved)


class Attention(_Attention):
    """Grouped-query attention, arXiv 2305.13245."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__(config, layer)
        hidden, head = config.hidden_size, config.head_dim
        queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
        self.q_proj = nn.Linear(hidden, queries, bias=config.qkv_bias)
        self.k_proj = nn.Linear(hidden, keys, bias=config.qkv_bias)
        self.v_proj = nn.Linear(hidden, keys, bias=config.qkv_bias)
        self.norm_whole = config.qk_norm == "width"
        self.q_norm = _make_qk_norm(config, config.num_attention_heads)
        self.k_norm = _make_qk_norm(config, config.num_key_value_heads)
        self.o_proj = nn.Linear(queries, hidden, bias=config.o_bias)

    def forward(self, x_BLD: torch.Tensor, step: Step, cache: LayerKeyValues | None) -> torch.Tensor:
        q_BHLh = self.rotate(self._heads(self.q_proj(x_BLD), self.q_norm), step)
        k_BKLh = self.rotate(self._heads(self.k_proj(x_BLD), self.k_norm), step)
        v_BKLh = self._heads(self.v_proj(x_BLD), None)
        mixed_BHLh = attend(q_BHLh, k_BKLh, v_BKLh, cache, step.visible, self.spec, self.sinks)
        return self.o_proj(mixed_BHLh.transpose(1, 2).flatten(2))

    def _heads(self, x_BLX: torch.Tensor, norm: nn.Module | None) -> torch.Tensor:
        if norm is not None and self.norm_whole:
            x_BLX = norm(x_BLX)
        x_BLHh = x_BLX.unflatten(-1, (-1, self.head_dim))
        if norm is not None and not self.norm_whole:
            x_BLHh = norm(x_BLHh)
        return x_BLHh.transpose(1, 2)


def _make_qk_norm(config: ModelConfig, heads: int) -> nn.Module | None:
    if config.qk_norm is None:
        return None
    if config.qk_norm == "each head":
        return HeadNorm(config, heads)
    return make_norm(config, heads * config.head_dim if config.qk_norm == "width" else config.head_dim)


class LatentAttention(_Attention):
    """Multi-head latent attention, arXiv 2405.04434, with keys and values written out for every head."""

    def __init__(self, config: ModelConfig, layer: int, latent: LatentConfig) -> None:
        super().__init__(config, layer)
        hidden, heads, bias = config.hidden_size, config.num_attention_heads, config.qkv_bias
        self.latent = latent
        queries = heads * (latent.nope_dim + latent.rope_dim)
        if latent.q_rank is None:
            self.q_proj = nn.Linear(hidden, queries, bias=False)
        else:
            self.q_a_proj = nn.Linear(hidden, latent.q_rank, bias=bias)
            self.q_a_layernorm = RMSNorm(latent.q_rank, _LATENT_EPS)
            self.q_b_proj = nn.Linear(latent.q_rank, queries, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(hidden, latent.kv_rank + latent.rope_dim, bias=bias)
        self.kv_a_layernorm = RMSNorm(latent.kv_rank, _LATENT_EPS)
        self.kv_b_proj = nn.Linear(latent.kv_rank, heads * (latent.nope_dim + latent.value_dim), bias=False)
        self.o_proj = nn.Linear(heads * latent.value_dim, hidden, bias=config.o_bias)

    def forward(self, x_BLD: torch.Tensor, step: Step, cache: LayerKeyValues | None) -> torch.Tensor:
        q_BHLh = self._queries(x_BLD, step)
        k_BHLh, v_BHLv = self._keys_and_values(x_BLD, step)
        mixed_BHLv = attend(q_BHLh, k_BHLh, v_BHLv, cache, step.visible, self.spec, self.sinks)
        return self.o_proj(mixed_BHLv.transpose(1, 2).flatten(2))

    def _queries(self, x_BLD: torch.Tensor, step: Step) -> torch.Tensor:
        if self.latent.q_rank is None:
            q_BLX = self.q_proj(x_BLD)
        else:
            q_BLX = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x_BLD)))
        q_BHLh = q_BLX.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        plain, turned = q_BHLh.tensor_split((self.latent.nope_dim,), dim=-1)
        return torch.cat((plain, self.rotate(turned, step)), dim=-1)

    def _keys_and_values(self, x_BLD: torch.Tensor, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
        compressed_BLX = self.kv_a_proj_with_mqa(x_BLD)
        short_BLr, turned_BLd = compressed_BLX.tensor_split((self.latent.kv_rank,), dim=-1)
        made_BLX = self.kv_b_proj(self.kv_a_layernorm(short_BLr))
        width = self.latent.nope_dim + self.latent.value_dim
        plain, v_BHLv = (
            made_BLX.unflatten(-1, (-1, width)).transpose(1, 2).tensor_split((self.latent.nope_dim,), dim=-1)
        )
        turned = self.rotate(turned_BLd.unsqueeze(1), step).expand(-1, plain.shape[1], -1, -1)
        return torch.cat((plain, turned), dim=-1), v_BHLv


def make_attention(config: ModelConfig, layer: int) -> Attention | LatentAttention:
    """A layer's attention."""
    if config.latent is not None:
        return LatentAttention(config, layer, config.latent)
    return Attention(config, layer)
