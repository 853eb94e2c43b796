"""The language model inside a multimodal folder, as a checkpoint of its own: its config without what is
around it, and its tensors under the names that they have in a folder without images."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint, TensorInfo

if TYPE_CHECKING:  # headers are read without it
    import torch

# The model types whose language model, given text alone, computes what it computes by itself.
MULTIMODAL = ("gemma3", "mistral3")
_OUTER_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype")
# As published, and as transformers writes them since 4.52.
_BODY = re.compile(r"^(?:language_model\.model|model\.language_model)\.")
_HEAD = re.compile(r"^(?:language_model\.)?lm_head\.")
_OTHER_PARTS = re.compile(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\.")


@dataclass(frozen=True)
class TextPart:
    """See `Checkpoint`; `names` maps each tensor's name to that in the folder."""

    whole: Checkpoint
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    notices: tuple[str, ...]
    names: Mapping[str, str]
    kind: Literal["hf"] = "hf"

    @property
    def path(self) -> Path:
        return self.whole.path

    def read(self, name: str) -> torch.Tensor:
        """The tensor in its stored dtype, mapped and not to be written to."""
        return self.whole.read(self.names[name])

    def read_blocks(self, name: str) -> torch.Tensor:
        """See the folder's own: it holds none."""
        return self.whole.read_blocks(self.names[name])

    def release(self, name: str) -> None:
        """Let the tensor's mapped memory go; reading it again is allowed."""
        self.whole.release(self.names[name])


def text_part(checkpoint: Checkpoint) -> Checkpoint:
    """The language model of a multimodal folder; any other checkpoint as it is."""
    if checkpoint.kind != "hf" or checkpoint.config.get("model_type") not in MULTIMODAL:
        return checkpoint
    read = [name for name in checkpoint.tensors if not _OTHER_PARTS.match(name)]
    names = {_own_name(name): name for name in read}
    if len(names) < len(read):
        raise InputError(
            f"{checkpoint.path} holds tensors of the language model twice, under old and new names"
        )
    passed_over = len(checkpoint.tensors) - len(read)
    notice = f"only the language model is read; {passed_over} tensors for images are passed over"
    return TextPart(
        whole=checkpoint,
        config=_text_config(checkpoint),
        tensors={own: checkpoint.tensors[name] for own, name in names.items()},
        notices=(*checkpoint.notices, notice),
        names=names,
    )


def _text_config(checkpoint: Checkpoint) -> dict[str, Any]:
    outer = checkpoint.config
    inner = outer.get("text_config")
    if not isinstance(inner, Mapping):
        raise InputError(
            f"{checkpoint.path}: the config of a {outer['model_type']} model must hold text_config"
        )
    fallback = {key: outer[key] for key in _OUTER_KEYS if key in outer}
    tie = {key: outer[key] for key in ("tie_word_embeddings",) if key in outer}  # the head is the whole's
    return fallback | dict(inner) | tie


def _own_name(name: str) -> str:
    return _HEAD.sub("lm_head.", _BODY.sub("model.", name))
