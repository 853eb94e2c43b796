"""A model into a GGUF file, as llama.cpp's own conversion writes it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from penjing.errors import UnsupportedError
from penjing.formats.atomic import require_disk
from penjing.formats.gguf_writer import GGUFTensor, write_gguf
from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.decoder import Decoder
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.registry import family_of_model_type
from penjing.model.gguf_metadata import architecture_metadata, is_division
from penjing.model.gguf_names import ROPE_FACTORS, gguf_rules
from penjing.model.linear import weight_of
from penjing.model.names import Stored, apply_rules
from penjing.model.rope import Rotation, inverse_frequencies
from penjing.model.shapes import tensor_shapes

GGML_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
# llama.cpp's `general.file_type`, by the type of most matrices.
_FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32}
# Matrices that its kernels want in full precision, like every vector.
_ALWAYS_F32 = ("position_embd.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")
_SLACK = 64_000_000  # header and vocabulary


def save_gguf(
    path: Path,
    module: Decoder,
    dtypes: Mapping[str, torch.dtype],
    model_type: str,
    metadata: Mapping[str, Any],
) -> int:
    """Write the file whole or not at all, and return the bytes of its tensors.

    `dtypes` says how each float tensor is stored; vectors are always float32. `metadata` holds what isn't in
    the module: general keys and the tokenizer's. Packed weights are unpacked. Raises `UnsupportedError` for
    what GGUF can't hold, `ResourceError` for a full disk.
    """
    family = family_of_model_type(model_type, "the model")
    form = _form(family)
    architecture = form.architectures[0]
    own = {
        f"{architecture}.{key}": value
        for key, value in (architecture_metadata(module.config) | form.metadata(module.config)).items()
    }
    tensors = _tensors(module, dtypes, form)
    types = [tensor.type_name for tensor in tensors if len(tensor.shape) > 1]
    general = {
        "general.architecture": architecture,
        "general.file_type": _FILE_TYPES[max(dict.fromkeys(types), key=types.count)],
    }
    require_disk(path, sum(tensor.nbytes for tensor in tensors) + _SLACK)
    return write_gguf(path, architecture, {**metadata, **own, **general}, tensors)


def _form(family: Family) -> GGUFForm:
    if family.gguf is None:
        raise UnsupportedError(f"{family.model_types[0]} models have no form in GGUF files; use --as hf")
    return family.gguf


def _tensors(module: Decoder, dtypes: Mapping[str, torch.dtype], form: GGUFForm) -> list[GGUFTensor]:
    config = module.config
    rules = (*form.rules(config), *gguf_rules(config))
    found = [_tensor(stored, module, dtypes) for stored in apply_rules(rules, tensor_shapes(config))]
    return [*found, *_rope_factors(config)]


def _tensor(stored: Stored, module: Decoder, dtypes: Mapping[str, torch.dtype]) -> GGUFTensor:
    def read() -> torch.Tensor:
        return stored.layout.join([_weight(module, name) for name in stored.native])

    is_matrix = len(stored.shape) > 1 and not stored.name.endswith(_ALWAYS_F32)
    type_name = GGML_NAMES[dtypes[stored.native[0]]] if is_matrix else "F32"
    return GGUFTensor(stored.name, stored.shape, type_name, read)


def _weight(module: Decoder, name: str) -> torch.Tensor:
    """A tensor of the module, unpacked if need be."""
    owner, _, leaf = name.rpartition(".")
    if leaf == "weight":
        return weight_of(module, owner)
    return module.get_parameter(name).detach()


def _rope_factors(config: ModelConfig) -> list[GGUFTensor]:
    """Llama 3's scaling, and what was read from such a tensor: one divisor a frequency."""
    if config.positions != "rotary" or not is_division(config.rope):
        return []
    plain, scaled = (
        inverse_frequencies(Rotation(rope, config.rotated, config.max_position_embeddings), 1)[0]
        for rope in (RopeConfig(rope_theta=config.rope.rope_theta), config.rope)
    )
    return [GGUFTensor(ROPE_FACTORS, tuple(plain.shape), "F32", lambda: plain / scaled)]
