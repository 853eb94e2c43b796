"""What the readers of other tools' `quantization_config` share.

The config says in which layout packed matrices lie; which matrices are packed is decided by the tensors that
are stored, since a part's name or dtype leaves no doubt. So the config's lists of modules to convert or to
leave alone, which tell other tools what to build before they see a tensor, aren't needed here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import TensorInfo
from penjing.model.foreign import ForeignConfig
from penjing.packed.parts import PackedSpec

Matrices = Mapping[str, tuple[int, int]]
Stored = Mapping[str, TensorInfo]

FLOATS = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint is quantised: the layout of each packed module, stored tensors that are left out
    because they have no effect here, and what the user should know, a sentence each."""

    packed: Mapping[str, PackedSpec]
    left_out: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()


def packed_matrices(matrices: Matrices, stored: Stored, parts: Collection[str]) -> list[str]:
    """The matrices of which at least one of these parts is stored."""
    return [name for name in matrices if any(f"{name}.{part}" in stored for part in parts)]


def has_part(stored: Stored, part: str) -> bool:
    """Whether any module has this part; then each packed one must."""
    return any(name.endswith(f".{part}") for name in stored)


def dtype_of(stored: Stored, name: str, allowed: Collection[str], default: str) -> str:
    """The stored dtype where it is one of `allowed`; else `default`, so that the check of the parts tells
    what is wrong."""
    return stored[name].dtype if name in stored and stored[name].dtype in allowed else default


def tensors_called(stored: Stored, leaves: Collection[str]) -> frozenset[str]:
    """Stored tensors by the last part of their name."""
    return frozenset(name for name in stored if name.rpartition(".")[2] in leaves)


def choice(config: ForeignConfig, key: str, allowed: Collection[Any], default: Any = None) -> Any:
    """The value of `key` in lower case, which must be one of `allowed`; refused by name otherwise."""
    value = config.get(key, default)
    value = value.lower() if isinstance(value, str) else value
    if isinstance(value, bool) != any(isinstance(one, bool) for one in allowed) or value not in allowed:
        known = ", ".join(map(str, allowed))
        raise UnsupportedError(f"{config.source}: {key} = {value!r} is not supported (supported: {known})")
    return value


def group_size(config: ForeignConfig) -> int:
    """Columns a group; 0 for a whole row, which configs write as -1."""
    size = config.integer("group_size", minimum=-1)
    if size == 0:
        raise InputError(f"{config.source}: group_size must be -1 or at least 1, not 0")
    return max(size, 0)


def refuse_unknown(config: ForeignConfig, known: Collection[str]) -> None:
    """Refuse keys that aren't known and hold anything: they may change what the stored numbers mean."""
    unknown = sorted(
        k for k, value in config.values.items() if k not in known and value not in (None, False, {}, [])
    )
    if unknown:
        raise UnsupportedError(
            f"{config.source} holds {', '.join(unknown)}, which isn't known here and could change what the"
            " weights mean; use the 16-bit original"
        )
