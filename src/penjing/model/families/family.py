"""What one family file says: how its configs and names map onto the one decoder, and its quirks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.foreign import ForeignConfig
from penjing.model.gguf_parts import KeysAndValues
from penjing.model.names import Rule


def always(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """The architecture's name leaves no doubt."""
    return True


def never(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """No file is read as this family: another has the architecture's name, and computes the same."""
    return False


def nothing_shown(metadata: ForeignConfig, tensors: Collection[str]) -> dict[str, Any]:
    """The metadata say everything."""
    return {}


def shown_by(*pairs: tuple[str, str]) -> Callable[[ForeignConfig, Collection[str]], dict[str, Any]]:
    """Config keys that are true where the file has a tensor beside them."""
    return lambda _, tensors: {
        key: any(key == each and tensor in tensors for each, tensor in pairs) for key, _ in pairs
    }


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
    families apart that share an architecture, by metadata and tensor names; `shown`, config keys that follow
    from the tensors that the file has; and `parts`, matrices that may be stored in parts, and are
    so written."""

    architectures: tuple[str, ...]
    config: Callable[[ForeignConfig], dict[str, Any]]
    rules: Callable[[ModelConfig], Sequence[Rule]] = no_rules
    metadata: Callable[[ModelConfig], dict[str, Any]] = no_metadata
    applies: Callable[[Mapping[str, Any], Collection[str]], bool] = always
    shown: Callable[[ForeignConfig, Collection[str]], dict[str, Any]] = nothing_shown
    parts: Callable[[ModelConfig], Sequence[KeysAndValues]] = no_parts


@dataclass(frozen=True)
class Family:
    """`model_types` are its names in Hugging Face configs, the first the usual one; `read` maps such a
    config; `defaults` are what transformers takes for keys that a folder's config lacks; `rules` say which
    tensors its folders hold under other names or in another form; `derived` are patterns of tensors that
    follow from the config and are passed over."""

    model_types: tuple[str, ...]
    architecture: str
    read: Callable[[ForeignConfig], ModelConfig]
    rules: Callable[[ModelConfig], Sequence[Rule]] = no_rules
    derived: tuple[str, ...] = ()
    gguf: GGUFForm | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
