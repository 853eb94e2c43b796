"""Small models that follow the model's contract, for tests of evaluation."""

import torch
from torch import nn

from penjing.model.config import ModelConfig, RopeConfig


def tiny_config(vocab_size: int) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=4096,
        rope=RopeConfig(),
        windows=(None,),
    )


class TableModel(nn.Module):
    """The next token's logits are the row of a table that the last token names."""

    def __init__(self, logits_VV: torch.Tensor) -> None:
        super().__init__()
        self.config = tiny_config(logits_VV.shape[1])
        self.table = nn.Parameter(logits_VV)

    def hidden(self, input_ids, positions, layout=None, cache=None):
        assert input_ids.shape == positions.shape
        return nn.functional.embedding(input_ids, self.table)

    def head(self, hidden):
        return hidden

    def new_cache(self, rows, slots):
        return None


def random_model(vocab_size: int, seed: int, spread: float = 2.0) -> TableModel:
    generator = torch.Generator().manual_seed(seed)
    return TableModel(spread * torch.randn(vocab_size, vocab_size, generator=generator))


def nearby_model(model: TableModel, seed: int, distance: float) -> TableModel:
    generator = torch.Generator().manual_seed(seed)
    table = model.table.detach()
    return TableModel(table + distance * torch.randn(table.shape, generator=generator))


def successor_model(vocab_size: int) -> TableModel:
    """Token n is followed by n + 1."""
    return TableModel(10 * torch.eye(vocab_size).roll(1, dims=1))


def uniform_model(vocab_size: int) -> TableModel:
    return TableModel(torch.zeros(vocab_size, vocab_size))


def random_ids(vocab_size: int, length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (length,), generator=generator).tolist()


class NumberTokenizer:
    """A text is numbers with spaces between; each number is its own id."""

    def __init__(self, bos_id: int | None = None, vocab_size: int = 5000) -> None:
        self.bos_id = bos_id
        self.add_bos = bos_id is not None
        self.vocab_size = vocab_size

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        begin = [self.bos_id] if add_special_tokens and self.bos_id is not None else []
        return [*begin, *map(int, text.split())]

    def encode_batch(self, texts, add_special_tokens: bool = True) -> list[list[int]]:
        return [self.encode(text, add_special_tokens) for text in texts]

    def prompt_ids(self, text: str) -> list[int]:
        return self.encode(text)
