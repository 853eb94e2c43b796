"""What the file that a shrunk model will be saved in asks of it: layouts, and which weights can have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from penjing.errors import InputError, UnsupportedError
from penjing.packed.affine_spec import AffineSpec
from penjing.packed.ggml.blocks import block_size
from penjing.packed.ggml.spec import BlockSpec
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.parts import PackedSpec

if TYPE_CHECKING:  # what can be built is known before torch is there
    from penjing.api import Model

Layouts = Callable[[int], Sequence[PackedSpec]]
_GROUPS = (32, 64, 128)
_OWN = tuple(AffineSpec(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in _GROUPS)
_BLOCKS = ("Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")


def own_layouts(columns: int) -> Sequence[PackedSpec]:
    """penjing's own, for a matrix of any width."""
    return _OWN


def block_layouts(columns: int) -> Sequence[PackedSpec]:
    """GGML's blocks that a row of so many weights divides into."""
    return [BlockSpec(name) for name in _BLOCKS if columns % block_size(name)[0] == 0]


def gptq_layouts(columns: int) -> Sequence[PackedSpec]:
    """Those of GPTQ, for groups that divide a row, as other programs ask for. Zeros are stored as they are
    ("gptq_v2"): in the older format those of asymmetric weights were long written wrongly, so that GPTQModel
    refuses them."""
    return [
        GptqSpec(bits, group, zero_minus_one=False)
        for bits in (2, 3, 4, 8)
        for group in _GROUPS
        if columns % group == 0
    ]


def pack_quantized_layouts(columns: int) -> Sequence[PackedSpec]:
    """Those of compressed-tensors that other programs run, for groups that divide a row."""
    return [
        PackQuantizedSpec(bits, group, symmetric=False)
        for bits in (4, 8)
        for group in _GROUPS
        if columns % group == 0
    ]


LAYOUTS: Mapping[str, Layouts] = {
    "hf": own_layouts,
    "gguf": block_layouts,
    "gptq": gptq_layouts,
    "compressed-tensors": pack_quantized_layouts,
}


@dataclass(frozen=True)
class Form:
    """`units` are matrices that must share a layout, by name (None: each has its own); a matrix that is in
    none stays as floats, and so do those that no layout fits. `wide` are saved as float32."""

    layouts: Layouts = own_layouts
    units: tuple[tuple[str, ...], ...] | None = None
    wide: frozenset[str] = field(default=frozenset())

    def may_pack(self, name: str, columns: int) -> bool:
        """Whether the matrix can have one of the layouts."""
        inside = self.units is None or any(name in unit for unit in self.units)
        return inside and bool(self.layouts(columns))


def find_form(name: str, model: Model) -> Form:
    """The form called `name`, for this model. Another name is an `InputError`, a model that can't have the
    form an `UnsupportedError`."""
    if name not in LAYOUTS:
        raise InputError(f"a shrunk model can't be saved as {name!r}; choose {', '.join(LAYOUTS)}")
    return Form() if name == "hf" else _FOREIGN[name](model)


def _gguf_form(model: Model) -> Form:
    """llama.cpp keeps vectors, and some matrices, in float32."""
    from penjing.model.gguf_saving import packable_in_gguf
    from penjing.model.saving import native_shapes

    units = tuple(packable_in_gguf(model.decoder, model.hf_config["model_type"]).values())
    inside = {f"{name}.weight" for unit in units for name in unit}
    wide = frozenset(name for name in native_shapes(model.module) if name not in inside)
    return Form(block_layouts, units, wide)


def _gptq_form(model: Model) -> Form:
    """One layout for all matrices of the blocks: its config knows only one."""
    return Form(gptq_layouts, (tuple(chain.from_iterable(_block_matrices(model))),))


def _compressed_tensors_form(model: Model) -> Form:
    """What vLLM runs as one product has one layout."""
    return Form(pack_quantized_layouts, tuple(_block_matrices(model)))


_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def _block_matrices(model: Model) -> list[tuple[str, ...]]:
    """The matrices of the blocks that lie in a tensor of their own under their own name, in fused units."""
    from penjing.model.families.registry import family_of_model_type
    from penjing.model.layouts import AS_IS
    from penjing.model.names import apply_rules
    from penjing.model.shapes import tensor_shapes

    config = model.decoder.config
    rules = family_of_model_type(model.hf_config["model_type"], model.name).rules(config)
    units: dict[str, list[str]] = {}
    for stored in apply_rules(rules, tensor_shapes(config)):
        name = stored.name.removesuffix(".weight")
        alone = stored.native == (stored.name,) and stored.layout == AS_IS and len(stored.shape) == 2
        owner, _, leaf = name.rpartition(".")
        if alone and ".layers." in name and leaf != "gate":  # a router, which others keep as floats
            fused = next((group[0] for group in _FUSED if leaf in group), leaf)
            units.setdefault(f"{owner}.{fused}", []).append(name)
    if not units:
        raise UnsupportedError(
            f"{model.name} keeps its matrices fused or transposed, which other programs' layouts aren't"
            " written for; use --as hf or --as gguf"
        )
    return [tuple(names) for names in units.values()]


_FOREIGN = {"gguf": _gguf_form, "gptq": _gptq_form, "compressed-tensors": _compressed_tensors_form}
