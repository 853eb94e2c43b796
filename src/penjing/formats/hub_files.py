"""Which files of a repository on the hub make up the model: none but those that are read.

Names come from strangers. Only names of files at the top of the repository are ever taken, templates from
their one folder, and GGUF files from any that is plainly named, so that no name leads out of the folder that
the files are put in.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from penjing.errors import InputError
from penjing.formats.gguf_file import PART_NAME
from penjing.formats.hf_folder import (
    ADAPTER_CONFIG,
    CONFIG,
    INDEX,
    check_shards,
    read_index,
    refusal,
    safetensors_names,
    single_file,
)
from penjing.formats.reference import HubReference, is_plain

_SMALL = {
    CONFIG,
    INDEX,
    ADAPTER_CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tekken.json",
    "tiktoken.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.json",
}
_SMALL_PATTERN = re.compile(
    r"[\w.-]+\.tiktoken|chat_template[\w.-]*\.jinja|additional_chat_templates/\w[\w.-]*\.jinja", re.A
)


def small_files(names: Iterable[str]) -> set[str]:
    """The files of a folder that say what the weights are: config, tokenizer, templates, index."""
    return {name for name in names if name in _SMALL or _SMALL_PATTERN.fullmatch(name)}


def weight_files(hub: HubReference, names: Iterable[str], folder: Path) -> list[str]:
    """The files of weights, in order: those that the index in `folder` lists, or else the only one."""
    top = _top(names)
    if CONFIG not in top:
        raise refusal(hub.repo, top)
    if INDEX not in top:
        return [single_file(hub.repo, top)[0]]
    shards = read_index(folder / INDEX).keys()
    check_shards(hub.repo, top, shards)
    return sorted(shards)


def gguf_files(hub: HubReference, names: Iterable[str]) -> list[str]:
    """The GGUF file to open, with the other parts if it is split; empty if the repository has a folder's form
    and no file was asked for. `InputError` where there are several to choose from."""
    ggufs = {name for name in names if name.endswith(".gguf") and is_plain(name)}
    if hub.file is not None:
        if hub.file not in ggufs:
            raise InputError(f"{hub.repo} on the hub has no file {hub.file!r}. {_choices(hub, ggufs)}")
        return _with_parts(hub.file, ggufs)
    if not ggufs or safetensors_names(_top(names)):
        return []
    models = {_with_parts(name, ggufs)[0] for name in ggufs}
    if len(models) > 1:
        raise InputError(f"{hub.repo} on the hub holds {len(models)} GGUF models. {_choices(hub, models)}")
    return _with_parts(models.pop(), ggufs)


def _with_parts(name: str, ggufs: set[str]) -> list[str]:
    """The file alone, or all that are parts of the same model, the first part first."""
    match = PART_NAME.fullmatch(name)
    if match is None:
        return [name]
    others = ((other, PART_NAME.fullmatch(other)) for other in ggufs)
    return sorted(other for other, part in others if part and part.group(1, 3) == match.group(1, 3))


def _choices(hub: HubReference, ggufs: Iterable[str]) -> str:
    ids = [str(HubReference(hub.repo, name, hub.revision)) for name in sorted(ggufs)]
    return f"Give one of {', '.join(ids)}." if ids else "It has no GGUF file."


def _top(names: Iterable[str]) -> set[str]:
    """Those that are plain names of files, in no folder."""
    return {name for name in names if "/" not in name and is_plain(name)}
