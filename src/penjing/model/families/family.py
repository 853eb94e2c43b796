"""What one family file says: how its configs and names map onto the one decoder, and its quirks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.foreign import ForeignConfig
from penjing.model.gguf_parts import KeysAndValues
from penjing.model.names import Rule


def always(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """The architecture's name leaves no doubt."""
    return True


def no_metadata(config: ModelConfig) -> dict[str, Any]:
    """The usual keys say everything."""
    return {}


def no_parts(config: ModelConfig) -> Sequence[KeysAndValues]:
    """Every matrix is whole."""
    return ()


def no_rules(config: ModelConfig) -> Sequence[Rule]:
    """The file's tensors are the module's."""
    return ()


@dataclass(frozen=True)
class GGUFForm:
    """A family in GGUF files: the architectures' names; `config`, which maps their metadata (keys without the
    prefix) to a Hugging Face config; `rules` for tensors that aren't stored as `gguf_names` has them;
    `metadata`, keys that `gguf_metadata` doesn't write or writes in another way; `applies`, which tells
    families apart that share an architecture, by metadata and tensor names; `flags`, config keys that are
    true where the file has the tensor beside them; and `parts`, matrices that may be stored in parts, and are
    so written."""

    architectures: tuple[str, ...]
    config: Callable[[ForeignConfig], dict[str, Any]]
    rules: Callable[[ModelConfig], Sequence[Rule]] = no_rules
    metadata: Callable[[ModelConfig], dict[str, Any]] = no_metadata
    applies: Callable[[Mapping[str, Any], Collection[str]], bool] = always
    flags: tuple[tuple[str, str], ...] = ()
    parts: Callable[[ModelConfig], Sequence[KeysAndValues]] = no_parts


@dataclass(frozen=True)
class Family:
    """`model_types` are its names in Hugging Face configs, the first the usual one; `read` maps such a
    config; `rules` say which
    tensors its folders hold under other names or in another form; `derived` are patterns of tensors that
    follow from the config and are passed over."""

    model_types: tuple[str, ...]
    architecture: str
    read: Callable[[ForeignConfig], ModelConfig]
    rules: Callable[[ModelConfig], Sequence[Rule]] = no_rules
    derived: tuple[str, ...] = ()
    gguf: GGUFForm | None = None
