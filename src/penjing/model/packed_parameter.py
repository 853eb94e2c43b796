"""Any parameter of any module in packed form; the module's own code goes on reading it as an attribute.

The object's class is exchanged for a subclass in which the attribute is a property, as torch's own
parametrisations do it, so nothing has to be known of what the module computes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from penjing.errors import InputError
from penjing.model.linear import PackedMatrix
from penjing.model.matrix_form import MatrixForm
from penjing.model.packed_entries import PackedEntries
from penjing.packed.schemes import packed_tensor
from penjing.packed.specs import OwnSpec
from penjing.packed.tensor import PackedTensor


class PackedParameter(PackedMatrix):
    """The packed matrices of one parameter, one below the other, which is read as `dtype`."""

    def __init__(self, packed: PackedTensor, form: MatrixForm, dtype: torch.dtype) -> None:
        if packed.shape != (form.matrices * form.rows, form.columns):
            raise InputError(f"packed weights {packed.shape} don't fit a parameter {list(form.shape)}")
        super().__init__(packed)
        self.form, self.dtype = form, dtype

    @property
    def value(self) -> torch.Tensor:
        """The parameter as the module reads it."""
        return self.form.write(self.weight).to(self.dtype)

    def to_json(self) -> dict[str, Any]:
        """What a `PackedEntry` is read from."""
        assert isinstance(self.spec, OwnSpec)
        dtype = str(self.dtype).removeprefix("torch.")
        form = {"shape": list(self.form.shape), "stacked": self.form.stacked}
        return {**form, "transposed": self.form.transposed, "dtype": dtype, "layout": self.spec.to_json()}


def pack_parameter(root: nn.Module, names: Sequence[str], packed: PackedParameter) -> None:
    """Put `packed` in the place of the parameter of `root` that has these names; a tied one has several."""
    for name in names:
        owner_name, _, leaf = name.rpartition(".")
        owner = root.get_submodule(owner_name)
        del owner._parameters[leaf]
        owner._modules[leaf] = packed
        owner.__class__ = _reading(type(owner), leaf)
        owner.__dict__.pop("_flat_weights", None)  # a recurrent layer's list of its parameters


def read_packed(entries: PackedEntries, read: Callable[[str], torch.Tensor]) -> dict[str, PackedParameter]:
    """The packed parameters of a file; `read` gives its tensors by name. Values that can't be meant are an
    `InputError`."""
    found = {}
    for name, entry in entries.items():
        parts = {part: read(tensor).clone() for tensor, part in entry.parts.items()}
        packed = packed_tensor(entry.spec, entry.matrix_shape, parts)
        packed.check_values(name)
        found[name] = PackedParameter(packed, entry.form, getattr(torch, entry.dtype))
    return found


def put_in_place(root: nn.Module, packed: Mapping[str, PackedParameter]) -> None:
    """Pack the parameters of `root` that have these names; a name that it hasn't, or has with another shape,
    is an `InputError`."""
    names_of = {name: names for names in names_by_parameter(root).values() for name in names}
    for name, parameter in packed.items():
        if name not in names_of:
            raise InputError(f"the module has no parameter {name}, which the file holds packed")
        shape = tuple(root.get_parameter(name).shape)
        if shape != parameter.form.shape:
            raise InputError(
                f"{name} has shape {list(shape)} in the module, and {list(parameter.form.shape)} in the file"
            )
    for name, parameter in packed.items():
        pack_parameter(root, names_of[name], parameter)


def names_by_parameter(module: nn.Module) -> Mapping[torch.Tensor, tuple[str, ...]]:
    """Every parameter once, with all the names that it goes by."""
    names: dict[torch.Tensor, tuple[str, ...]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[parameter] = (*names.get(parameter, ()), name)
    return names


def packed_parameters(root: nn.Module) -> dict[str, PackedParameter]:
    """The packed parameters below `root`, by their first names."""
    return {name: child for name, child in root.named_modules() if isinstance(child, PackedParameter)}


def float_tensors(root: nn.Module) -> dict[str, torch.Tensor]:
    """Everything that `root` saves beside packed parameters, by its first name: other parameters, and buffers
    that are part of its state."""
    parts = {id(part) for packed in packed_parameters(root).values() for part in packed.buffers()}
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in root.state_dict(keep_vars=True).items():
        if id(tensor) not in parts:
            found.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in found.values()}


def _reading(kind: type[nn.Module], leaf: str) -> Any:
    """`kind` with the attribute `leaf` read from the packed parameter of that name."""
    members: dict[str, Any] = {leaf: property(lambda self: self._modules[leaf].value)}
    if issubclass(kind, nn.RNNBase):
        members["_flat_weights"] = property(_flat_weights, lambda self, _: None)
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__, **members})


def _flat_weights(layer: Any) -> list[torch.Tensor]:
    return [getattr(layer, name) for name in layer._flat_weights_names]
