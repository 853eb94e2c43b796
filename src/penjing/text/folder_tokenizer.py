"""A tokenizer from a Hugging Face folder, read as transformers reads it.

`tokenizer.json` or an older file is the vocabulary; `tokenizer_config.json` names its special tokens, may add
or re-flag tokens; end ids also stand in `config.json` and `generation_config.json`; the chat template has a
file of its own or stands in `tokenizer_config.json`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from penjing.errors import InputError
from penjing.formats.json_file import read_json
from penjing.formats.quote import quote
from penjing.text.boundaries import add_boundaries
from penjing.text.folder_files import TOKENIZER_CONFIG, flag
from penjing.text.folder_sources import TEKKEN, TOKENIZER, Source, open_source
from penjing.text.folder_templates import folder_templates
from penjing.text.tokenizer import Tokenizer
from penjing.text.turn_end import with_turn_end

_ADDED_TOKENS = "added_tokens.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MORE_SPECIAL = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def tokenizer_from_folder(path: Path) -> Tokenizer:
    """Open the tokenizer of a folder.

    Raises InputError for a missing, damaged or contradictory file, and UnsupportedError for a folder with a
    tokenizer of a kind or class that penjing doesn't know.
    """
    config = _read_config(path)
    named = {name: text for name in _NAMED if (text := _token_text(config, name)) is not None}
    listed = _listed_tokens(path, config, named)
    source = open_source(path, config, listed)
    backend, special_tokens = source.backend, {**source.special_tokens, **named}
    _add_tokens(backend, listed, source.file)
    _mark_special(backend, config, special_tokens)
    _put_around(source, config, special_tokens)
    templates, notices = folder_templates(path, config)
    notices += source.notices
    if source.file == TEKKEN and not templates:
        notices.append(
            f"{TEKKEN} has no chat template, so the model only completes text; to talk to it, put its "
            "makers' chat_template.jinja beside it."
        )
    end_ids, stray = _end_ids(path, backend, special_tokens)
    if stray:
        ids = ", ".join(map(str, sorted(stray)))
        notices.append(f"The end ids {ids} are ignored: the tokenizer has no such tokens.")
    kept = _kept_config(config, source)
    tokenizer = Tokenizer(backend, special_tokens, end_ids, templates, kept, tuple(notices))
    notices += _bos_notice(tokenizer, config.get("add_bos_token"))
    return with_turn_end(replace(tokenizer, notices=tuple(notices)))


def _read_config(path: Path) -> dict[str, Any]:
    """`tokenizer_config.json`, with what only the older `special_tokens_map.json` has."""
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", TOKENIZER_CONFIG):
        if (path / name).is_file():
            config |= read_json(path / name)
    return config


def _token_text(config: Mapping[str, Any], name: str) -> str | None:
    value = config.get(name)
    if isinstance(value, Mapping):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} in {TOKENIZER_CONFIG} should be text; it is {quote(value)}.")
    return value or None


def _listed_tokens(path: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> dict[int, AddedToken]:
    """Added tokens by id, from `tokenizer_config.json`, else from the older `added_tokens.json`."""
    listed = config.get("added_tokens_decoder")
    if listed is None and (path / _ADDED_TOKENS).is_file():
        return _older_added_tokens(path / _ADDED_TOKENS, config, named)
    listed = listed or {}
    if not isinstance(listed, Mapping) or not all(isinstance(entry, Mapping) for entry in listed.values()):
        raise InputError(f"added_tokens_decoder in {TOKENIZER_CONFIG} should map ids to tokens.")
    tokens = {_as_id(id): _added_token(entry) for id, entry in listed.items()}
    return dict(sorted(tokens.items()))


def _older_added_tokens(
    file: Path, config: Mapping[str, Any], named: Mapping[str, str]
) -> dict[int, AddedToken]:
    more = (str(_special_token(value).content) for key in _MORE_SPECIAL for value in _listed(config.get(key)))
    special = {*named.values(), *more}
    tokens = {}
    for text, id in read_json(file).items():
        if not text or not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 2**32:
            raise InputError(f"{file} should map tokens to ids; it maps {quote(text)} to {quote(id)}.")
        tokens[id] = AddedToken(text, normalized=text not in special, special=text in special)
    return dict(sorted(tokens.items()))


def _add_tokens(backend: tokenizers.Tokenizer, listed: Mapping[int, AddedToken], file: str) -> None:
    """Add the listed tokens that the backend lacks, or has with other flags."""
    present = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    for id, token in listed.items():
        if repr(token) in present:
            continue
        backend.add_tokens([token])
        if backend.token_to_id(token.content) != id:
            raise InputError(
                f"The token {quote(token.content)} has the id {id} among the added tokens, but by {file} it "
                f"is {backend.token_to_id(token.content)}; the folder's files don't belong together."
            )


def _as_id(key: str) -> int:
    if not key.isdecimal():
        raise InputError(
            f"added_tokens_decoder in {TOKENIZER_CONFIG} has the key {quote(key)}, which is no id."
        )
    return int(key)


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    content = entry.get("content")
    if not isinstance(content, str) or not content:
        raise InputError(f"{TOKENIZER_CONFIG} lists an added token without a text: {quote(dict(entry))}.")
    return AddedToken(content, **{flag: bool(entry[flag]) for flag in _FLAGS if flag in entry})


def _mark_special(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], special_tokens: Mapping[str, str]
) -> None:
    """Tokens that the config names (as BOS, as padding, ...) are special, whatever the backend says."""
    more = [_special_token(value) for key in _MORE_SPECIAL for value in _listed(config.get(key))]
    named = [_special_token(config.get(name) or text) for name, text in special_tokens.items()]
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    wanted = {token.content: token for token in (*more, *named)}
    for text, token in wanted.items():
        if text not in known or not known[text].special:
            backend.add_special_tokens([known.get(text, token)])


def _listed(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _special_token(value: Any) -> AddedToken:
    token = _added_token(value) if isinstance(value, Mapping) else AddedToken(str(value), normalized=False)
    token.special = True
    return token


def _put_around(source: Source, config: Mapping[str, Any], special_tokens: Mapping[str, str]) -> None:
    """BOS and EOS around a text, unless the vocabulary's file has settled that."""
    if source.adds_bos is None:
        return
    bos = special_tokens.get("bos_token") if flag(config, "add_bos_token", source.adds_bos) else None
    eos = special_tokens.get("eos_token") if flag(config, "add_eos_token", False) else None
    add_boundaries(source.backend, bos, eos)


def _end_ids(
    path: Path, backend: tokenizers.Tokenizer, special_tokens: Mapping[str, str]
) -> tuple[frozenset[int], frozenset[int]]:
    """Ids that end an answer by any of the files, and those among them that the tokenizer doesn't have."""
    eos = special_tokens.get("eos_token")
    eos_id = None if eos is None else backend.token_to_id(eos)
    ids = set() if eos_id is None else {eos_id}
    for name in ("config.json", "generation_config.json"):
        if (path / name).is_file():
            value = read_json(path / name).get("eos_token_id")
            ids.update(_ids(value, path / name))
    known = frozenset(id for id in ids if backend.id_to_token(id) is not None)
    return known, frozenset(ids) - known


def _bos_notice(tokenizer: Tokenizer, wanted: Any) -> list[str]:
    """`tokenizer.json` decides whether BOS is added, as in transformers; a config that differs is told of."""
    if not isinstance(wanted, bool) or tokenizer.bos_id is None or wanted == tokenizer.add_bos:
        return []
    does = "adds" if tokenizer.add_bos else "doesn't add"
    return [f"{TOKENIZER_CONFIG} says add_bos_token is {str(wanted).lower()}, but {TOKENIZER} {does} it."]


def _ids(value: Any, file: Path) -> list[int]:
    ids = [] if value is None else value if isinstance(value, list) else [value]
    for id in ids:
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 2**32:
            raise InputError(f"eos_token_id in {file} should be an id or a list of ids, not {quote(value)}.")
    return ids


def _kept_config(config: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """What a saved copy repeats: templates are saved as files, remote code isn't copied.

    A converted tokenizer's class would be rebuilt from the older file, which the copy doesn't have.
    """
    dropped = {"chat_template", "auto_map"}
    if source.file != TOKENIZER:
        dropped |= {"tokenizer_class", "legacy", "add_prefix_space"}
    return {key: value for key, value in config.items() if key not in dropped}
