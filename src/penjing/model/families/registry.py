"""Finding the family that a checkpoint belongs to."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.families import (
    bloom,
    cohere,
    cohere2,
    deepseek_v2,
    deepseek_v3,
    dots1,
    ernie4_5,
    ernie4_5_moe,
    falcon,
    gemma,
    gemma2,
    gemma3,
    glm,
    glm4,
    glm4_moe,
    glm4_moe_lite,
    gpt2,
    gpt_neo,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    helium,
    llama,
    mistral,
    mixtral,
    olmo2,
    opt,
    phi,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    smollm3,
    stablelm,
    starcoder2,
    youtu,
)
from penjing.model.families.family import Family

FAMILIES = tuple(
    module.FAMILY
    for module in (
        bloom,
        cohere,
        cohere2,
        deepseek_v2,
        deepseek_v3,
        dots1,
        ernie4_5,
        ernie4_5_moe,
        falcon,
        gemma,
        gemma2,
        gemma3,
        glm,
        glm4,
        glm4_moe,
        glm4_moe_lite,
        gpt2,
        gpt_neo,
        gpt_neox,
        gpt_oss,
        gptj,
        granite,
        helium,
        llama,
        mistral,
        mixtral,
        olmo2,
        opt,
        phi,
        phi3,
        qwen2,
        qwen2_moe,
        qwen3,
        qwen3_moe,
        smollm3,
        stablelm,
        starcoder2,
        youtu,
    )
)
_BY_MODEL_TYPE = {name: family for family in FAMILIES for name in family.model_types}
MODEL_TYPES = tuple(sorted(_BY_MODEL_TYPE))
_GGUF_ARCHITECTURES = {arch for family in FAMILIES if family.gguf for arch in family.gguf.architectures}


def family_of_model_type(name: Any, source: str) -> Family:
    """The family of a Hugging Face config's `model_type`; an unknown one is refused by name."""
    _require_known(name, _BY_MODEL_TYPE, f"{source}: model type")
    return _BY_MODEL_TYPE[name]


def family_of_gguf(metadata: Mapping[str, Any], tensors: Collection[str], source: str) -> Family:
    """The family of a GGUF file, by its `general.architecture` and, where families share one, by what is in
    it."""
    arch = metadata.get("general.architecture")
    _require_known(arch, _GGUF_ARCHITECTURES, f"{source}: architecture")
    return next(
        family
        for family in FAMILIES
        if family.gguf and arch in family.gguf.architectures and family.gguf.applies(metadata, tensors)
    )


def _require_known(name: Any, known: Collection[str], what: str) -> None:
    if not isinstance(name, str) or name not in known:
        near = get_close_matches(str(name), known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        names = ", ".join(sorted(known))
        raise UnsupportedError(f"{what} {name!r} is not supported (supported: {names}){hint}")
