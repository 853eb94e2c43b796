"""A tokenizer from a Hugging Face folder, read as transformers reads it.

`tokenizer.json` is the tokenizer; `tokenizer_config.json` names its special tokens, may add or re-flag
tokens; end ids also stand in `config.json` and `generation_config.json`; the chat
template has a file of its own or stands in `tokenizer_config.json`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from penjing.errors import InputError, UnsupportedError
from penjing.formats.json_file import read_json
from penjing.formats.mapped import refuse_lfs_pointer
from penjing.formats.quote import quote
from penjing.text.tokenizer import Tokenizer

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
MORE_TEMPLATES = "additional_chat_templates"
_OTHER_KINDS = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
)
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MORE_SPECIAL = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def tokenizer_from_folder(path: Path) -> Tokenizer:
    """Open the tokenizer of a folder.

    Raises InputError for a missing, damaged or contradictory file, and UnsupportedError for a folder with a
    tokenizer of another kind only.
    """
    backend = _read_backend(path)
    config = _read_config(path)
    special_tokens = {name: text for name in _NAMED if (text := _token_text(config, name)) is not None}
    _add_tokens(backend, config)
    _mark_special(backend, config, special_tokens)
    templates, notices = _templates(path, config)
    end_ids, stray = _end_ids(path, backend, special_tokens)
    if stray:
        ids = ", ".join(map(str, sorted(stray)))
        notices.append(f"The end ids {ids} are ignored: the tokenizer has no such tokens.")
    tokenizer = Tokenizer(backend, special_tokens, end_ids, templates, _kept_config(config), tuple(notices))
    return replace(tokenizer, notices=(*notices, *_bos_notice(tokenizer, config.get("add_bos_token"))))


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    file = path / TOKENIZER
    if not file.is_file():
        raise _no_tokenizer(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror}.") from error
    refuse_lfs_pointer(file, data)
    try:
        backend = tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{file} isn't a tokenizer that can be opened: {error}.") from error
    # Published files may carry the training's settings, which would silently cut or pad every text.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _no_tokenizer(path: Path) -> InputError:
    found = [name for name in _OTHER_KINDS if (path / name).is_file()]
    if not path.is_dir():
        return InputError(f"{path} isn't a folder.")
    if found:
        return UnsupportedError(
            f"{path} has no {TOKENIZER}, only {', '.join(found)}, which penjing doesn't read yet; write one "
            "with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)."
        )
    return InputError(f"{path} has no {TOKENIZER}; copy the model's tokenizer files into it.")


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


def _add_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
    """Add the tokens of `added_tokens_decoder` that the backend lacks, or has with other flags."""
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, Mapping) or not all(isinstance(entry, Mapping) for entry in listed.values()):
        raise InputError(f"added_tokens_decoder in {TOKENIZER_CONFIG} should map ids to tokens.")
    present = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    for id, entry in sorted(listed.items(), key=lambda item: _as_id(item[0])):
        token = _added_token(entry)
        if repr(token) in present:
            continue
        backend.add_tokens([token])
        if backend.token_to_id(token.content) != _as_id(id):
            raise InputError(
                f"{TOKENIZER_CONFIG} gives token {quote(token.content)} the id {id}, but by {TOKENIZER} it "
                f"is {backend.token_to_id(token.content)}; the two files don't belong together."
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
    named = [_special_token(config[name]) for name in special_tokens]
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


def _templates(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Named chat templates and what to tell about them; files of their own outrank the config."""
    inline = _inline_templates(config.get("chat_template"))
    files = {"default": path / TEMPLATE} if (path / TEMPLATE).is_file() else {}
    files |= {file.stem: file for file in sorted((path / MORE_TEMPLATES).glob("*.jinja"))}
    templates = inline | {name: _read_template(file) for name, file in files.items()}
    notices = [
        f"The chat template is taken from {files[name].name}; {TOKENIZER_CONFIG} has another one."
        for name in files
        if name in inline and inline[name] != templates[name]
    ]
    others = sorted(templates.keys() - {"default"})
    if others:
        notices.append(f"Chat templates besides the default one: {', '.join(others)}.")
    return templates, notices


def _inline_templates(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    entries = value if isinstance(value, list) else [{"name": "default", "template": value}]
    templates = {}
    for entry in entries:
        name, template = (
            (entry.get("name"), entry.get("template")) if isinstance(entry, Mapping) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(template, str):
            raise InputError(
                f"chat_template in {TOKENIZER_CONFIG} should be text, or a list of objects with a name and a "
                f"template; it holds {quote(entry)}."
            )
        templates[name] = template
    return templates


def _read_template(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror}.") from error
    refuse_lfs_pointer(file, data)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} isn't UTF-8 text: {error.reason} at byte {error.start}.") from error


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


def _kept_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a saved copy repeats: templates are saved as files, remote code isn't copied."""
    return {key: value for key, value in config.items() if key not in ("chat_template", "auto_map")}
