"""Normalisation of hidden states, over their last dimension."""

import torch
import torch.nn.functional as F
from torch import nn

from penjing.model.config import ModelConfig


class RMSNorm(nn.Module):
    """Root mean square normalisation, arXiv 1910.07467; its gain is the stored weight plus `offset`."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gain = self.weight + self.offset if self.offset else self.weight
        return F.rms_norm(x, gain.shape, gain, self.eps)


class LayerNorm(nn.Module):
    """Layer normalisation, arXiv 1607.06450."""

    def __init__(self, size: int, eps: float, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size)) if bias else None
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class HeadNorm(nn.ModuleList):
    """A norm without bias for each head, over its values (..., H, h); all are applied at once."""

    def __init__(self, config: ModelConfig, heads: int) -> None:
        super().__init__(make_norm(config, config.head_dim, bias=False) for _ in range(heads))
        self.normalize = F.rms_norm if config.norm == "rms" else F.layer_norm
        self.eps = config.norm_eps
        self.offset = config.norm_offset

    def forward(self, x_BLHh: torch.Tensor) -> torch.Tensor:
        gains_Hh = torch.stack(list(self.parameters())) + self.offset
        return self.normalize(x_BLHh, x_BLHh.shape[-1:], eps=self.eps) * gains_Hh


def make_norm(config: ModelConfig, size: int | None = None, bias: bool | None = None) -> RMSNorm | LayerNorm:
    """The config's kind of norm over `size` values (the hidden size unless given); `bias` False: without one,
    whatever the others have."""
    size = config.hidden_size if size is None else size
    if config.norm == "rms":
        return RMSNorm(size, config.norm_eps, config.norm_offset)
    return LayerNorm(size, config.norm_eps, config.norm_bias if bias is None else bias)
