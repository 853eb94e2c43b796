"""What the file that a shrunk model will be saved in asks of it: layouts, and which weights can have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penjing.errors import InputError, UnsupportedError
from penjing.packed.affine_spec import AffineSpec
from penjing.packed.ggml.blocks import block_size
from penjing.packed.ggml.spec import BlockSpec
from penjing.packed.parts import PackedSpec

if TYPE_CHECKING:  # what can be built is known before torch is there
    from penjing.api import Model

FORMS = ("hf", "gguf")
Layouts = Callable[[int], Sequence[PackedSpec]]
_OWN = tuple(AffineSpec(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128))
_BLOCKS = ("Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")


def own_layouts(columns: int) -> Sequence[PackedSpec]:
    """penjing's own, for a matrix of any width."""
    return _OWN


def block_layouts(columns: int) -> Sequence[PackedSpec]:
    """GGML's blocks that a row of so many weights divides into."""
    return [BlockSpec(name) for name in _BLOCKS if columns % block_size(name)[0] == 0]


LAYOUTS: Mapping[str, Layouts] = {"hf": own_layouts, "gguf": block_layouts}


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
    if name not in FORMS:
        raise InputError(f"a shrunk model can't be saved as {name!r}; choose {' or '.join(FORMS)}")
    return _gguf_form(model) if name == "gguf" else Form()


def _gguf_form(model: Model) -> Form:
    """llama.cpp keeps vectors, and some matrices, in float32."""
    from penjing.model.bridge.module import BridgedModel
    from penjing.model.gguf_saving import packable_in_gguf
    from penjing.model.saving import native_shapes

    if isinstance(model.module, BridgedModel):
        raise UnsupportedError(
            f"{model.name} has no family here, so it isn't known what a GGUF file would call its parts;"
            " shrink it to a Hugging Face folder (--as hf)"
        )
    units = tuple(packable_in_gguf(model.module, model.hf_config["model_type"]).values())
    inside = {f"{name}.weight" for unit in units for name in unit}
    wide = frozenset(name for name in native_shapes(model.module) if name not in inside)
    return Form(block_layouts, units, wide)
