"""Models and tokenizers whose output a test writes down beforehand."""

from dataclasses import dataclass

import torch

from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.decoder import Decoder


def tiny_config(**changes) -> ModelConfig:
    fields = {
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "rope": RopeConfig(),
    } | changes
    return ModelConfig(**{"windows": (None,) * fields["num_hidden_layers"]} | fields)


def random_model(seed: int = 0, scale: float = 0.3, **changes) -> Decoder:
    """A tiny decoder with random weights: varied greedy output, attention that matters."""
    module = Decoder(tiny_config(**changes))
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        if parameter.dim() == 1:
            torch.nn.init.ones_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=scale, generator=generator)
    return module


def successor_model(successors: dict[int, int], vocab_size: int, context: int = 128) -> Decoder:
    """A real decoder that always follows token `a` by `successors[a]`: the last token is its whole state."""
    width = vocab_size + vocab_size % 2
    config = tiny_config(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=width,
        max_position_embeddings=context,
    )
    module = Decoder(config)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.model.norm.weight.fill_(1)
        module.model.embed_tokens.weight.copy_(torch.eye(vocab_size, width))
        for token, successor in successors.items():
            module.lm_head.weight[successor, token] = 1
    return module


@dataclass(frozen=True)
class PieceTokenizer:
    """Token i is `pieces[i]`; equal pieces may stand at several ids."""

    pieces: tuple[bytes, ...]
    special_ids: frozenset[int] = frozenset()
    end_ids: frozenset[int] = frozenset()

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        kept = (i for i in ids if not (skip_special_tokens and i in self.special_ids))
        return b"".join(self.pieces[i] for i in kept).decode("utf-8", errors="replace")


def script(*pieces: str | bytes, context: int = 128) -> tuple[Decoder, PieceTokenizer, list[int]]:
    """A model that says exactly `pieces`, one token each, then its end token; tokenizer and prompt too."""
    spoken = [piece.encode("utf-8") if isinstance(piece, str) else piece for piece in pieces]
    end = len(spoken) + 1
    special = frozenset({0, end})
    tokenizer = PieceTokenizer((b"<prompt>", *spoken, b"<end>"), special, frozenset({end}))
    return successor_model({i: i + 1 for i in range(end)}, end + 1, context), tokenizer, [0]
