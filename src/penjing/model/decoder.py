"""The one decoder definition: pre-norm blocks of grouped-query attention and a gated feed-forward net.

Shapes: B rows, L tokens, D hidden_size, H query heads, K key-value heads, h head_dim, V vocabulary.
Parameter names are Hugging Face's.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from penjing.model.attention import AttentionSpec, Layout, Visibility, attend, visibility
from penjing.model.cache import LayerCache, StaticCache
from penjing.model.config import ModelConfig
from penjing.model.rope import rotary_tables, rotate

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


class RMSNorm(nn.Module):
    """Root mean square normalisation with a gain, arXiv 1910.07467."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        hidden, head = config.hidden_size, config.head_dim
        self.head_dim = head
        self.spec = AttentionSpec(scale=head**-0.5, window=config.windows[layer])
        self.q_proj = nn.Linear(hidden, config.num_attention_heads * head, bias=config.qkv_bias)
        self.k_proj = nn.Linear(hidden, config.num_key_value_heads * head, bias=config.qkv_bias)
        self.v_proj = nn.Linear(hidden, config.num_key_value_heads * head, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.num_attention_heads * head, hidden, bias=config.o_bias)
        self.q_norm = RMSNorm(head, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(head, config.rms_norm_eps) if config.qk_norm else None

    def forward(
        self,
        x_BLD: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        layout: Visibility,
        cache: LayerCache | None,
    ) -> torch.Tensor:
        q, k, v = (self._heads(project(x_BLD)) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q_BHLh, k_BKLh, v_BKLh = (t.transpose(1, 2) for t in (q, k, v))
        q_BHLh, k_BKLh = rotate(q_BHLh, *rotary), rotate(k_BKLh, *rotary)
        mixed_BHLh = attend(q_BHLh, k_BKLh, v_BKLh, cache, layout, self.spec)
        return self.o_proj(mixed_BHLh.transpose(1, 2).flatten(2))

    def _heads(self, x_BLX: torch.Tensor) -> torch.Tensor:
        return x_BLX.unflatten(-1, (-1, self.head_dim))


class MLP(nn.Module):
    """Gated feed-forward net, arXiv 2002.05202."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=config.mlp_bias)
        self.up_proj = nn.Linear(hidden, inner, bias=config.mlp_bias)
        self.down_proj = nn.Linear(inner, hidden, bias=config.mlp_bias)
        self.activation = _ACTIVATIONS[config.hidden_act]

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.activation(self.gate_proj(x_BLD)) * self.up_proj(x_BLD))


class Block(nn.Module):
    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self,
        x_BLD: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        layout: Visibility,
        cache: LayerCache | None,
    ) -> torch.Tensor:
        x_BLD = x_BLD + self.self_attn(self.input_layernorm(x_BLD), rotary, layout, cache)
        return x_BLD + self.mlp(self.post_attention_layernorm(x_BLD))


class Body(nn.Module):
    """Everything between token ids and the output head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # Given a weight, the embedding skips its own initialisation, which imports torch's compiler (2 s).
        weight_VD = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, _weight=weight_VD)
        self.layers = nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Decoder(nn.Module):
    """A causal language model. `model.*` and `lm_head` are named as Hugging Face names them; a tied head has
    no parameter of its own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @property
    def blocks(self) -> list[Block]:
        """The blocks in their order."""
        return [block for block in self.model.layers if isinstance(block, Block)]

    def hidden(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        layout: Layout | None = None,
        cache: StaticCache | None = None,
    ) -> torch.Tensor:
        """Final hidden states (B, L, D) after the last norm, for int64 ids and positions (B, L).

        Without a cache a token sees those before it in its row (within its document, if `layout` names
        documents); with one, every slot up to its position.
        """
        seen = visibility(positions, layout, cache)
        x_BLD = self.model.embed_tokens(input_ids)
        rotary = rotary_tables(self.config, positions)
        rotary = (rotary[0].to(x_BLD.dtype), rotary[1].to(x_BLD.dtype))
        for i, block in enumerate(self.blocks):
            x_BLD = block(x_BLD, rotary, seen, None if cache is None else cache.layers[i])
        return self.model.norm(x_BLD)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., V) of hidden states (..., D)."""
        if self.config.tie_word_embeddings:
            return F.linear(hidden, self.model.embed_tokens.weight)
        return self.lm_head(hidden)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        layout: Layout | None = None,
        cache: StaticCache | None = None,
    ) -> torch.Tensor:
        """Logits (B, L, V): `head` of `hidden`."""
        return self.head(self.hidden(input_ids, positions, layout, cache))
