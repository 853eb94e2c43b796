"""Which token sees which, and the one place where attention is computed.

Shapes: B rows, L new tokens, S keys, H query heads, K key-value heads, h head_dim, v width of a head's
values.
"""

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from penjing.errors import InputError
from penjing.model.cache import KeyValueCache, LayerKeyValues


@dataclass(frozen=True)
class Layout:
    """How rows are made up: `document_lengths` are the documents packed into each row, which must not see one
    another. Positions alone never imply such a boundary."""

    document_lengths: tuple[int, ...]


@dataclass(frozen=True)
class AttentionSpec:
    """What a layer's attention does beside the plain case: `window` is its reach in tokens (None: no limit),
    `softcap` bounds scores by a tanh, `alibi` lowers them with the distance, by a cost that `alibi_scaled`
    rounds to bfloat16 and scales as scores are."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    alibi_scaled: bool = False


@dataclass(frozen=True)
class Visibility:
    """Who sees whom in one call of the model; masks are made once and shared by its layers."""

    positions_BL: torch.Tensor
    key_length: int
    cached: bool
    layout: Layout | None
    _masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor | None:
        """True where a query sees a key, (B or 1, 1, L, S); None for plain causal attention from the
        start."""
        if window not in self._masks:
            self._masks[window] = self._build(window)
        return self._masks[window]

    def key_positions(self) -> torch.Tensor:
        """The position of every key, (B or 1, S): with a cache a key's slot is its position."""
        if self.cached:
            return torch.arange(self.key_length, device=self.positions_BL.device).unsqueeze(0)
        return self.positions_BL

    def _build(self, window: int | None) -> torch.Tensor | None:
        if self.layout is None and not self.cached and (window is None or self.key_length <= window):
            return None
        return self.visible(window)

    def visible(self, window: int | None) -> torch.Tensor:
        """The mask, written out even where it is plainly causal."""
        query_BL1 = self._query_order().unsqueeze(-1)
        key_S = torch.arange(self.key_length, device=query_BL1.device)
        visible = key_S <= query_BL1
        if window is not None:
            visible &= key_S > query_BL1 - window
        if self.layout is not None:
            document_S = self._documents(self.layout.document_lengths)
            visible &= document_S == document_S.unsqueeze(1)
        return visible.unsqueeze(1)

    def _query_order(self) -> torch.Tensor:
        """With a cache a key's slot is its position; without one, keys are numbered as they stand in the
        row."""
        if self.cached:
            return self.positions_BL
        return torch.arange(self.key_length, device=self.positions_BL.device).unsqueeze(0)

    def _documents(self, lengths: tuple[int, ...]) -> torch.Tensor:
        if sum(lengths) != self.key_length:
            raise InputError(f"the documents add up to {sum(lengths)} tokens, the row has {self.key_length}")
        return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def visibility(positions_BL: torch.Tensor, layout: Layout | None, cache: KeyValueCache | None) -> Visibility:
    """Resolve a call's arguments; positions past the cache's end and packed rows with a cache are refused."""
    if cache is None:
        return Visibility(positions_BL, positions_BL.shape[1], False, layout)
    if layout is not None:
        raise InputError("packed documents cannot be combined with a cache: give each document its own row")
    length = int(positions_BL.max()) + 1
    if length > cache.max_length:
        raise InputError(
            f"position {length - 1} is past the cache's {cache.max_length} slots; make a longer cache"
        )
    return Visibility(positions_BL, length, True, None)


def attend(
    q_BHLh: torch.Tensor,
    k_BKLh: torch.Tensor,
    v_BKLv: torch.Tensor,
    cache: LayerKeyValues | None,
    layout: Visibility,
    spec: AttentionSpec,
    sinks_H: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax attention (B, H, L, v); each group of H/K query heads shares one key-value head. `sinks_H` are
    scores of a key without a value, one a head: what falls to it is lost (gpt-oss)."""
    if cache is not None:
        k_BKLh, v_BKLv = cache.write(k_BKLh, v_BKLv, layout.positions_BL, layout.key_length)
    if spec.softcap is not None or spec.alibi or sinks_H is not None:
        return _attend_step_by_step(q_BHLh, k_BKLh, v_BKLv, layout, spec, sinks_H)
    mask = layout.mask(spec.window)
    return F.scaled_dot_product_attention(
        q_BHLh, k_BKLh, v_BKLv, attn_mask=mask, is_causal=mask is None, scale=spec.scale, enable_gqa=True
    )


def _attend_step_by_step(
    q_BHLh: torch.Tensor,
    k_BKSh: torch.Tensor,
    v_BKSv: torch.Tensor,
    layout: Visibility,
    spec: AttentionSpec,
    sinks_H: torch.Tensor | None,
) -> torch.Tensor:
    """What torch's own attention has no name for; scores in float32."""
    heads, group = q_BHLh.shape[1], q_BHLh.shape[1] // k_BKSh.shape[1]
    k_BHSh, v_BHSv = (t.repeat_interleave(group, dim=1) if group > 1 else t for t in (k_BKSh, v_BKSv))
    scores_BHLS = (q_BHLh @ k_BHSh.transpose(-1, -2)).float() * spec.scale
    if spec.softcap is not None:
        scores_BHLS = (scores_BHLS / spec.softcap).tanh() * spec.softcap
    if spec.alibi:
        scores_BHLS = scores_BHLS + _alibi(heads, layout.key_positions(), spec)
    scores_BHLS = scores_BHLS.masked_fill(~layout.visible(spec.window), float("-inf"))
    if sinks_H is not None:
        sinks_BHL1 = sinks_H.float().view(1, -1, 1, 1).expand(*scores_BHLS.shape[:3], 1)
        weights_BHLS = torch.cat((scores_BHLS, sinks_BHL1), dim=-1).softmax(-1)[..., :-1]
    else:
        weights_BHLS = scores_BHLS.softmax(-1)
    return weights_BHLS.to(v_BHSv.dtype) @ v_BHSv


def _alibi(heads: int, positions_BS: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """What is added to scores, float32 (B or 1, H, 1, S). A key's own position stands for its distance: both
    differ by what is equal for all keys, which a softmax takes no notice of."""
    slopes_H11 = alibi_slopes(heads).to(positions_BS.device).view(-1, 1, 1)
    positions_B11S = positions_BS[:, None, None, :]
    if spec.alibi_scaled:  # Falcon-RW was trained with these roundings
        return (slopes_H11.bfloat16() * positions_B11S).float() * spec.scale
    return slopes_H11 * positions_B11S


def alibi_slopes(heads: int) -> torch.Tensor:
    """How much a step of distance costs each head, float32 (H); arXiv 2108.12409, where the count of heads is
    a power of two, and the authors' rule for other counts: every other slope of twice as many."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes)
