"""What one family file says: how its configs and names map onto the one decoder, and its quirks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule


def no_rules(config: ModelConfig) -> Sequence[Rule]:
    """The file's tensors are the module's."""
    return ()


@dataclass(frozen=True)
class GGUFForm:
    """A family in GGUF files: the architectures' names, `config` that maps their metadata (keys without the
    prefix) to a Hugging Face config, and `rules` for tensors that aren't stored as `gguf_names` has them."""

    architectures: tuple[str, ...]
    config: Callable[[ForeignConfig], dict[str, Any]]
    rules: Callable[[ModelConfig], Sequence[Rule]] = no_rules


@dataclass(frozen=True)
class Family:
    """`model_types` are its names in Hugging Face configs, the first the usual one; `read` maps such a
    config; `defaults` are what transformers takes for keys that a config lacks, where Llama's differ; `rules`
    say which tensors its folders hold under other names or in another form; `derived` are patterns of tensors
    that follow from the config and are passed over."""

    model_types: tuple[str, ...]
    architecture: str
    read: Callable[[ForeignConfig], ModelConfig]
    rules: Callable[[ModelConfig], Sequence[Rule]] = no_rules
    derived: tuple[str, ...] = ()
    gguf: GGUFForm | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
