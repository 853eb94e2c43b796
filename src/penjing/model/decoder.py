"""The one decoder definition: blocks of attention and a feed-forward net between embedding and head.

Shapes: B rows, L tokens, D hidden_size, V vocabulary. Names are those of Hugging Face's Llama; a family with
other names maps them (see `families/`).
"""

import torch
import torch.nn.functional as F
from torch import nn

from penjing.model.attention import Layout, visibility
from penjing.model.cache import KeyValueCache, LayerKeyValues, StaticCache
from penjing.model.config import ModelConfig
from penjing.model.feed_forward import make_feed_forward
from penjing.model.norm import make_norm
from penjing.model.rope import depends_on_length, rotary_tables
from penjing.model.self_attention import Step, make_attention


class Block(nn.Module):
    """One layer. Where a norm stands is the config's choice: before a sublayer, after it, or both."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.parallel = config.parallel
        self.residual_scale = config.residual_scale
        self.input_layernorm = make_norm(config) if config.pre_norm else nn.Identity()
        self.self_attn = make_attention(config, layer)
        self.post_self_attn_layernorm = make_norm(config) if config.post_norm else nn.Identity()
        has_second = config.pre_norm and config.parallel != "one norm"
        self.post_attention_layernorm = make_norm(config) if has_second else nn.Identity()
        self.mlp = make_feed_forward(config, layer)
        self.post_mlp_layernorm = make_norm(config) if config.post_norm else nn.Identity()

    def forward(self, x_BLD: torch.Tensor, step: Step, cache: LayerKeyValues | None) -> torch.Tensor:
        read_BLD = self.input_layernorm(x_BLD)
        attended_BLD = self.post_self_attn_layernorm(self.self_attn(read_BLD, step, cache))
        if self.parallel:
            second_BLD = read_BLD if self.parallel == "one norm" else self.post_attention_layernorm(x_BLD)
            return x_BLD + attended_BLD + self.post_mlp_layernorm(self.mlp(second_BLD))
        x_BLD = x_BLD + self._scaled(attended_BLD)
        fed_BLD = self.post_mlp_layernorm(self.mlp(self.post_attention_layernorm(x_BLD)))
        return x_BLD + self._scaled(fed_BLD)

    def _scaled(self, x_BLD: torch.Tensor) -> torch.Tensor:
        return x_BLD if self.residual_scale is None else x_BLD * self.residual_scale


class LearnedPositions(nn.Module):
    """A learned vector a position; the first stands at row `offset`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.offset = config.position_offset
        rows = config.max_position_embeddings + config.position_offset
        self.weight = nn.Parameter(torch.empty(rows, config.hidden_size))

    def forward(self, positions_BL: torch.Tensor) -> torch.Tensor:
        return F.embedding(positions_BL + self.offset, self.weight)


class Body(nn.Module):
    """Everything between token ids and the output head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # Given a weight, the embedding skips its own initialisation, which imports torch's compiler (2 s).
        weight_VD = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, _weight=weight_VD)
        self.embedding_scale = config.embedding_scale
        self.embed_positions = LearnedPositions(config) if config.positions == "learned" else None
        self.embed_norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.layers = nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers))
        self.norm = make_norm(config)

    def embed(self, input_ids: torch.Tensor, positions_BL: torch.Tensor) -> torch.Tensor:
        """What the first block reads (B, L, D)."""
        x_BLD = self.embed_tokens(input_ids)
        if self.embedding_scale is not None:
            x_BLD = x_BLD * self.embedding_scale
        if self.embed_positions is not None:
            x_BLD = x_BLD + self.embed_positions(positions_BL)
        return self.embed_norm(x_BLD)


class Decoder(nn.Module):
    """A causal language model. `model.*` and `lm_head` are named as Hugging Face names them; a tied head has
    no parameter of its own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.head_bias)

    @property
    def reads_prompts_whole(self) -> bool:
        """Where rotary frequencies depend on the length: keys that a shorter call put into the cache would be
        turned by others."""
        return depends_on_length(self.config)

    @property
    def blocks(self) -> list[Block]:
        """The blocks in their order."""
        return [block for block in self.model.layers if isinstance(block, Block)]

    def step(
        self, positions: torch.Tensor, layout: Layout | None = None, cache: KeyValueCache | None = None
    ) -> Step:
        """What the blocks need to know of a call with these positions (B, L)."""
        rotations = {block.self_attn.rotation for block in self.blocks} - {None}
        tables = {rotation: rotary_tables(rotation, positions) for rotation in rotations if rotation}
        return Step(visibility(positions, layout, cache), tables)

    def hidden(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        layout: Layout | None = None,
        cache: KeyValueCache | None = None,
    ) -> torch.Tensor:
        """Final hidden states (B, L, D) after the last norm, for int64 ids and positions (B, L).

        Without a cache a token sees those before it in its row (within its document, if `layout` names
        documents); with one, every slot up to its position.
        """
        step = self.step(positions, layout, cache)
        x_BLD = self.model.embed(input_ids, positions)
        for i, block in enumerate(self.blocks):
            x_BLD = block(x_BLD, step, None if cache is None else cache.layers[i])
        return self.model.norm(x_BLD)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., V) of hidden states (..., D)."""
        if self.config.tie_word_embeddings:
            logits = F.linear(hidden, self.model.embed_tokens.weight)
        else:
            logits = self.lm_head(hidden)
        if self.config.logit_scale is not None:
            logits = logits * self.config.logit_scale
        if self.config.logit_softcap is not None:
            logits = (logits / self.config.logit_softcap).tanh() * self.config.logit_softcap
        return logits

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        layout: Layout | None = None,
        cache: KeyValueCache | None = None,
    ) -> torch.Tensor:
        """Logits (B, L, V): `head` of `hidden`."""
        return self.head(self.hidden(input_ids, positions, layout, cache))

    def new_cache(self, rows: int, slots: int) -> StaticCache:
        """An empty cache for `rows` texts of at most `slots` tokens, in the model's dtype."""
        dtype = next(p.dtype for p in self.parameters() if p.is_floating_point())
        return StaticCache(self.config, rows, slots, dtype)

    def cache_nbytes(self, rows: int, slots: int) -> int:
        """Bytes that such a cache takes."""
        with torch.device("meta"):
            return self.new_cache(rows, slots).nbytes


def build_skeleton(config: ModelConfig) -> Decoder:
    """The module with shapes and no storage."""
    with torch.device("meta"):
        return Decoder(config)
