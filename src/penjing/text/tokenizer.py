"""Text to token ids and back: one frozen tokenizer, whatever file it came from."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from penjing.errors import InputError, UnsupportedError
from penjing.formats.quote import quote
from penjing.text.byte_level import bytes_of
from penjing.text.template import choose_template, render

# The library's threads don't survive a fork, and it warns about that unless the choice was made beforehand.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# They become names of files.
_TEMPLATE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, eq=False, repr=False)
class Tokenizer:
    """Encodes and decodes text, renders chats, and knows where a text begins and an answer ends.

    `special_tokens` maps transformers' names ("bos_token", "eos_token", ...) to texts, `end_ids` are all ids
    that end an answer, `chat_templates` maps names to jinja sources ("default" is the one for chats),
    `config` holds what `tokenizer_config.json` says, and `notices` are full sentences about oddities.
    The backend is owned by this object and never changed once it is built.
    """

    backend: tokenizers.Tokenizer
    special_tokens: Mapping[str, str]
    end_ids: frozenset[int]
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.chat_templates:
            if not _TEMPLATE_NAME.fullmatch(name):
                raise InputError(
                    f"A chat template is called {quote(name)}, but such names are made of up to 100 letters, "
                    "digits, _ and -; rename it in the model's files."
                )
        if self._decoder_kinds.isdisjoint({"ByteLevel", "ByteFallback", "Metaspace"}):
            kinds = ", ".join(sorted(self._decoder_kinds)) or "none"
            raise UnsupportedError(
                f"This tokenizer's decoder ({kinds}) is neither byte-level nor SentencePiece-like; "
                "only those two kinds are supported."
            )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of `text`; special tokens spelled in it count as such.

        `add_special_tokens` adds what the tokenizer puts around a text (mostly BOS). Raises InputError for
        text that isn't valid Unicode.
        """
        return self.encode_batch([text], add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """`encode` of each text."""
        for text in texts:
            _require_unicode(text)
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that form no character become U+FFFD, unassigned ids are no text."""
        kept = [self._checked(id) for id in ids]
        if not self._is_byte_level:
            return self.backend.decode(kept, skip_special_tokens=skip_special_tokens)
        # Not the backend's: its byte-level decoder mangles added tokens with letters like "é".
        skipped = self.special_ids if skip_special_tokens else frozenset()
        return b"".join(self.token_bytes(id) for id in kept if id not in skipped).decode(errors="replace")

    def token_bytes(self, token_id: int, /) -> bytes:
        """The exact bytes that a token stands for: of a special token its text, of an unassigned id none."""
        added = self._added_tokens.get(self._checked(token_id))
        if added is not None:
            return added.content.encode()
        piece = self.backend.id_to_token(token_id)
        if piece is None:
            return b""
        if self._is_byte_level:
            return bytes_of(piece)
        if byte := _BYTE_PIECE.fullmatch(piece):
            return bytes.fromhex(byte[1])
        return piece.replace(_METASPACE, " ").encode()

    def prompt_ids(self, text: str) -> list[int]:
        """Ids of text for a model to continue: BOS, if this tokenizer adds it, exactly once, and no EOS."""
        ids = self.encode(text, add_special_tokens=False)
        if self.bos_id is None or not self.add_bos or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids]

    def chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The chat in the model's own format; `variables` reach the template.

        Raises InputError if the model has no template, the template fails, or a message is malformed.
        """
        template = choose_template(self.chat_templates, with_tools=tools is not None)
        variables = {**self.special_tokens, **variables}
        return render(template, messages, tools, add_generation_prompt, variables)

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """Ids of `chat_text`, with BOS once whether the template prints it or the tokenizer adds it."""
        return self.prompt_ids(self.chat_text(messages, tools, add_generation_prompt, **variables))

    def same_ids(self, other: "Tokenizer") -> bool:
        """Whether a token has the same id in both, and an id the same token, so that both models read alike.

        Either may have tokens (padding, more special ones) at ids that the other doesn't use.
        """
        own, others = (each.backend.get_vocab(with_added_tokens=True) for each in (self, other))
        agreed = len(own.items() & others.items())
        return agreed == len(own.keys() & others.keys()) == len({*own.values()} & {*others.values()})

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; a model may have more rows than that."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def chat_template(self) -> str | None:
        """The jinja source used for chats, or None: a base model, or templates without a default."""
        return self.chat_templates.get("default")

    @cached_property
    def bos_id(self) -> int | None:
        """The id of the token that begins a text, whether or not `encode` adds it."""
        text = self.special_tokens.get("bos_token")
        return None if text is None else self.backend.token_to_id(text)

    @cached_property
    def add_bos(self) -> bool:
        """Whether `encode` puts BOS before a text."""
        around_nothing = self.backend.encode("", add_special_tokens=True).ids
        return self.bos_id is not None and around_nothing[:1] == [self.bos_id]

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the tokens that `decode` leaves out."""
        return frozenset(id for id, token in self._added_tokens.items() if token.special)

    def save(self, folder: Path) -> None:
        """Write the files that transformers' AutoTokenizer opens to the same ids and template.

        These are `tokenizer.json`, `tokenizer_config.json` and the chat templates as `.jinja` files.
        """
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **self.special_tokens, **self.config}
        _write(folder / "tokenizer.json", self.backend.to_str(pretty=True))
        _write(folder / "tokenizer_config.json", json.dumps(config, ensure_ascii=False, indent=2) + "\n")
        for name, template in self.chat_templates.items():
            if name == "default":
                _write(folder / "chat_template.jinja", template)
            else:
                _write(folder / "additional_chat_templates" / f"{name}.jinja", template)

    @cached_property
    def _added_tokens(self) -> dict[int, tokenizers.AddedToken]:
        return self.backend.get_added_tokens_decoder()

    @cached_property
    def _decoder_kinds(self) -> frozenset[str]:
        decoder = self.backend.decoder
        return frozenset() if decoder is None else _types(json.loads(decoder.__getstate__()))

    @cached_property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in self._decoder_kinds

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < 2**32:
            raise InputError(f"{token_id} is no token id; ids run from 0 to {self.vocab_size - 1}.")
        return token_id


def _types(value: Any) -> frozenset[str]:
    """Every "type" in a decoder's description, sequences of decoders opened up."""
    if not isinstance(value, dict):
        return frozenset()
    inner = (_types(part) for part in value.get("decoders", ()))
    return frozenset({value.get("type", "")} - {"Sequence"}).union(*inner)


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The text isn't valid Unicode: half of a surrogate pair ({text[error.start]!r}) stands at "
            f"character {error.start}; remove it or decode the text properly."
        ) from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
