"""A model into a GGUF file, as llama.cpp's own conversion writes it."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import gguf
import torch

from penjing.errors import PenjingError, UnsupportedError
from penjing.formats.atomic import require_disk
from penjing.formats.checkpoint import TensorInfo
from penjing.formats.gguf_writer import GGUFTensor, write_gguf
from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.decoder import Decoder
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig
from penjing.model.gguf_metadata import architecture_metadata, is_division
from penjing.model.gguf_names import gguf_rules
from penjing.model.gguf_parts import KeysAndValues
from penjing.model.gguf_rope import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS
from penjing.model.linear import PackedMatrix, weight_of
from penjing.model.names import Stored, apply_rules
from penjing.model.plan import identify
from penjing.model.rope import Rotation, inverse_frequencies
from penjing.model.shapes import tensor_shapes
from penjing.packed.ggml.spec import BlockSpec

GGML_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
# llama.cpp's `general.file_type`, by the type of most matrices; of its mixes of K-types, the medium ones.
_FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9} | {
    "Q2_K": 10,
    "Q3_K": 12,
    "Q4_K": 15,
    "Q5_K": 17,
    "Q6_K": 18,
}
_BLOCKS_VERSION = 2  # `general.quantization_version`: how its blocks are laid out
# Matrices that its kernels want in full precision, like every vector.
_ALWAYS_F32 = ("position_embd.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "_norm.weight")
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
    the module: general keys and the tokenizer's. Matrices that were rounded to GGML's blocks go over as they
    are, other packed ones are unpacked. Raises `UnsupportedError` for what GGUF can't hold, `ResourceError`
    for a full disk.
    """
    family = family_of_model_type(model_type, "the model")
    form = _form(family)
    architecture = form.architectures[0]
    own = {
        f"{architecture}.{key}": value
        for key, value in (architecture_metadata(module.config) | form.metadata(module.config)).items()
    }
    tensors = _tensors(module, dtypes, form)
    _require_known_tensors(architecture, tensors)
    _require_sayable(path, {"general.architecture": architecture, **own}, tensors, module.config)
    types = [tensor.type_name for tensor in tensors if len(tensor.shape) > 1]
    general: dict[str, Any] = {
        "general.architecture": architecture,
        "general.file_type": _FILE_TYPES[max(dict.fromkeys(types), key=types.count)],
    }
    if not set(types) <= set(GGML_NAMES.values()):
        general["general.quantization_version"] = _BLOCKS_VERSION
    require_disk(path, sum(tensor.nbytes for tensor in tensors) + _SLACK)
    return write_gguf(path, architecture, {**metadata, **own, **general}, tensors)


def packable_in_gguf(module: Decoder, model_type: str) -> dict[str, tuple[str, ...]]:
    """The tensors of a GGUF file that can be in blocks, and the matrices, by their modules' names, that lie
    in each and so must have one type. Raises `UnsupportedError` for a family without a form in such
    files."""
    form = _form(family_of_model_type(model_type, "the model"))
    config = module.config
    rules = (*form.rules(config), *gguf_rules(config))
    cut = {d.whole.format(i=i) for d in form.parts(config) for i in range(config.num_hidden_layers)}
    return {
        stored.name: tuple(name.removesuffix(".weight") for name in stored.native)
        for stored in apply_rules(rules, tensor_shapes(config))
        if _is_matrix(stored) and stored.layout.keeps_rows and stored.name not in cut
    }


@dataclass(frozen=True)
class _Draft:
    """What would be read from the file."""

    path: Path
    config: Mapping[str, Any]
    written: Mapping[str, GGUFTensor]
    kind: Literal["gguf"] = "gguf"
    notices: tuple[str, ...] = ()

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {
            name: TensorInfo(name, tensor.shape, tensor.type_name, tensor.nbytes, self.path, 0)
            for name, tensor in self.written.items()
        }

    def read(self, name: str) -> torch.Tensor:
        return self.written[name].read()

    def read_blocks(self, name: str) -> torch.Tensor:
        """A file's readers look at vectors alone to tell what it holds."""
        raise NotImplementedError

    def release(self, name: str) -> None:
        """Nothing is held."""


def _require_known_tensors(architecture: str, tensors: list[GGUFTensor]) -> None:
    """`UnsupportedError` for a tensor that llama.cpp doesn't know in this architecture."""
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    known = {gguf.TENSOR_NAMES[kind].replace("blk.{bid}.", "") for kind in gguf.MODEL_TENSORS[arch]}
    for tensor in tensors:
        leaf = re.sub(r"^blk\.\d+\.", "", tensor.name).rpartition(".")[0]
        if leaf not in known:
            raise UnsupportedError(f"llama.cpp knows no {leaf} in a {architecture} model; use --as hf")


def _require_sayable(
    path: Path, metadata: Mapping[str, Any], tensors: list[GGUFTensor], config: ModelConfig
) -> None:
    """`UnsupportedError` where a reader of the file would see another model: activations, windows, routing
    and more are implied by the architecture and can't be written."""
    as_floats = {key: _float32(value) for key, value in metadata.items()}
    draft = _Draft(path, as_floats, {tensor.name: tensor for tensor in tensors})
    try:
        family, hf_config = identify(draft)
        read = family.read(ForeignConfig(hf_config, str(path)))
    except PenjingError as error:
        raise UnsupportedError(f"a GGUF file can't hold this model ({error}); use --as hf") from error
    told = replace(read, tie_word_embeddings=config.tie_word_embeddings)
    lost = [f.name for f in fields(config) if not _alike(getattr(told, f.name), getattr(config, f.name))]
    if lost and not _same_rotation(told, config, lost):
        raise UnsupportedError(
            f"a GGUF file can't hold what this model has as {', '.join(lost)}; use --as hf"
        )


def _float32(value: Any) -> Any:
    return torch.tensor(value, dtype=torch.float32).item() if isinstance(value, float) else value


def _alike(first: Any, second: Any) -> bool:
    """Equal but for what a float32 loses."""
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) <= 1e-6 * abs(second)
    return first == second


def _same_rotation(told: ModelConfig, config: ModelConfig, lost: list[str]) -> bool:
    """Rotations may be told in other words, such as Llama 3's by its factors."""
    if set(lost) - {"rope", "rotary_dim"} or told.rotated != config.rotated:
        return False
    for length in (1, config.max_position_embeddings):
        rotations = (Rotation(c.rope, c.rotated, c.max_position_embeddings) for c in (told, config))
        (first, scale), (second, other) = (inverse_frequencies(r, length) for r in rotations)
        if not torch.allclose(first, second, rtol=1e-5) or not math.isclose(scale, other, rel_tol=1e-5):
            return False
    return True


def _form(family: Family) -> GGUFForm:
    if family.gguf is None:
        raise UnsupportedError(f"{family.model_types[0]} models have no form in GGUF files; use --as hf")
    return family.gguf


def _tensors(module: Decoder, dtypes: Mapping[str, torch.dtype], form: GGUFForm) -> list[GGUFTensor]:
    config = module.config
    rules = (*form.rules(config), *gguf_rules(config))
    found = [_tensor(stored, module, dtypes) for stored in apply_rules(rules, tensor_shapes(config))]
    divisions = {
        d.whole.format(i=i): (i, d) for d in form.parts(config) for i in range(config.num_hidden_layers)
    }
    whole = [tensor for tensor in found if tensor.name not in divisions]
    parts = [
        part for tensor in found if tensor.name in divisions for part in _cut(tensor, *divisions[tensor.name])
    ]
    return [*whole, *parts, *_rope_factors(config)]


def _cut(tensor: GGUFTensor, layer: int, division: KeysAndValues) -> list[GGUFTensor]:
    """The parts of a matrix that is stored in parts."""

    def reader(part: int) -> Callable[[], torch.Tensor]:
        return lambda: division.split(tensor.read())[part]

    return [
        GGUFTensor(name.format(i=layer), shape, tensor.type_name, reader(part))
        for part, (name, shape) in enumerate(zip(division.parts, division.part_shapes, strict=True))
    ]


def _tensor(stored: Stored, module: Decoder, dtypes: Mapping[str, torch.dtype]) -> GGUFTensor:
    def read() -> torch.Tensor:
        return stored.layout.join([_weight(module, name) for name in stored.native])

    def read_blocks() -> torch.Tensor:
        return stored.layout.join([_blocks(module, name) for name in stored.native])

    types = {_block_type(module, name) for name in stored.native}
    if stored.layout.keeps_rows and len(types) == 1 and (block_type := types.pop()) is not None:
        return GGUFTensor(stored.name, stored.shape, block_type, read_blocks)
    type_name = GGML_NAMES[dtypes[stored.native[0]]] if _is_matrix(stored) else "F32"
    return GGUFTensor(stored.name, stored.shape, type_name, read)


def _is_matrix(stored: Stored) -> bool:
    return len(stored.shape) > 1 and not stored.name.endswith(_ALWAYS_F32)


def _block_type(module: Decoder, name: str) -> str | None:
    """The type of blocks that a weight was rounded to."""
    owner, _, leaf = name.rpartition(".")
    spec = getattr(module.get_submodule(owner), "spec", None) if leaf == "weight" else None
    return spec.type_name if isinstance(spec, BlockSpec) else None


def _blocks(module: Decoder, name: str) -> torch.Tensor:
    matrix = module.get_submodule(name.removesuffix(".weight"))
    assert isinstance(matrix, PackedMatrix)
    return matrix.packed.parts["blocks"]


def _weight(module: Decoder, name: str) -> torch.Tensor:
    """A tensor of the module, unpacked if need be."""
    owner, _, leaf = name.rpartition(".")
    if leaf == "weight":
        return weight_of(module, owner)
    return module.get_parameter(name).detach()


def _rope_factors(config: ModelConfig) -> list[GGUFTensor]:
    """Llama 3's scaling and LongRoPE's: one divisor a frequency."""
    if config.positions != "rotary":
        return []
    rope = config.rope
    if is_division(rope):
        plain, scaled = (
            inverse_frequencies(Rotation(each, config.rotated, config.max_position_embeddings), 1)[0]
            for each in (RopeConfig(rope_theta=rope.rope_theta), rope)
        )
        return [_vector(ROPE_FACTORS, plain / scaled)]
    if rope.rope_type == "longrope":
        factors = {SHORT_FACTORS: rope.short_factor, LONG_FACTORS: rope.long_factor}
        return [_vector(name, torch.tensor(values)) for name, values in factors.items()]
    return []


def _vector(name: str, values: torch.Tensor) -> GGUFTensor:
    return GGUFTensor(name, tuple(values.shape), "F32", lambda: values)
