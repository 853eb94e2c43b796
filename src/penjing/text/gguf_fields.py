"""The tokenizer's part of a GGUF file's metadata, checked key by key."""

from collections.abc import Iterable, Mapping
from typing import Any

from penjing.errors import InputError
from penjing.formats.quote import quote
from penjing.text.byte_level_backend import merge_pairs
from penjing.text.piece_kinds import NORMAL

PREFIX = "tokenizer.ggml."


class GGUFFields:
    """The tokenizer's keys, each checked for its type and against the vocabulary when it is read."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens = self._texts("tokens")
        self.vocabulary = {text: id for id, text in enumerate(self.tokens)}
        if len(self.vocabulary) < len(self.tokens):
            twice = next(text for id, text in enumerate(self.tokens) if self.vocabulary[text] != id)
            raise InputError(f"The GGUF file's vocabulary has the token {quote(twice)} twice.")
        kinds = self.get("token_type")
        self.kinds = [NORMAL] * len(self.tokens) if kinds is None else self._numbers("token_type")

    def get(self, key: str) -> Any:
        return self._metadata.get(PREFIX + key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, str):
            raise InputError(f"The GGUF file's {PREFIX}{key} should be text; it is {quote(value)}.")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise InputError(f"The GGUF file's {PREFIX}{key} should be true or false; it is {quote(value)}.")
        return value

    def token_id(self, key: str, default: int | None = None) -> int | None:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(self.tokens):
            raise InputError(
                f"The GGUF file's {PREFIX}{key} is {quote(value)}, outside its vocabulary of "
                f"{len(self.tokens)} tokens."
            )
        return value

    def scores(self) -> list[float]:
        return self._numbers("scores")

    def merges(self) -> list[tuple[str, str]]:
        return merge_pairs(self._texts("merges"), self.vocabulary, "The GGUF file")

    def _texts(self, key: str) -> list[str]:
        values = self._array(key)
        if not all(isinstance(value, str) for value in values):
            raise InputError(f"The GGUF file's {PREFIX}{key} should be an array of texts.")
        return values

    def _numbers(self, key: str) -> list[Any]:
        values = self._array(key)
        if not all(isinstance(value, (int, float)) and value == value for value in values):
            raise InputError(f"The GGUF file's {PREFIX}{key} should be an array of numbers.")
        if len(values) != len(self.tokens):
            raise InputError(
                f"The GGUF file's {PREFIX}{key} has {len(values)} entries for {len(self.tokens)} tokens."
            )
        return values

    def _array(self, key: str) -> list[Any]:
        value = self.get(key)
        if value is None:
            raise InputError(f"The GGUF file has no {PREFIX}{key}, so its tokenizer can't be built.")
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise InputError(f"The GGUF file's {PREFIX}{key} should be an array.")
        values = list(value)
        if not values:
            raise InputError(f"The GGUF file's {PREFIX}{key} is empty, so its tokenizer can't be built.")
        return values
