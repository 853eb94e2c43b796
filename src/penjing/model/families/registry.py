"""Finding the family that a checkpoint belongs to."""

from difflib import get_close_matches
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.families import (
    cohere,
    cohere2,
    gemma,
    gemma2,
    gemma3,
    granite,
    helium,
    llama,
    mistral,
    olmo2,
    qwen2,
    qwen3,
    smollm3,
)
from penjing.model.families.family import Family

FAMILIES = (
    llama.FAMILY,
    mistral.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    gemma.FAMILY,
    gemma2.FAMILY,
    gemma3.FAMILY,
    olmo2.FAMILY,
    smollm3.FAMILY,
    granite.FAMILY,
    cohere.FAMILY,
    cohere2.FAMILY,
    helium.FAMILY,
)
_BY_MODEL_TYPE = {name: family for family in FAMILIES for name in family.model_types}
_BY_GGUF = {arch: family for family in FAMILIES if family.gguf for arch in family.gguf.architectures}


def family_of_model_type(name: Any, source: str) -> Family:
    """The family of a Hugging Face config's `model_type`; an unknown one is refused by name."""
    return _find(_BY_MODEL_TYPE, name, f"{source}: model type")


def family_of_gguf(name: Any, source: str) -> Family:
    """The family of a GGUF file's `general.architecture`."""
    return _find(_BY_GGUF, name, f"{source}: architecture")


def _find(table: dict[str, Family], name: Any, what: str) -> Family:
    if not isinstance(name, str) or name not in table:
        near = get_close_matches(str(name), table, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnsupportedError(f"{what} {name!r} is not supported (supported: {', '.join(table)}){hint}")
    return table[name]
