"""Reading a config that somebody else wrote: every value is checked, and nothing that could change numbers is
passed over.

A family reads the keys that it knows through a `ForeignConfig`. What is left afterwards is either harmless
bookkeeping, or a key whose name suggests that it changes the computation: that is refused, since running
without it would be silently wrong.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from penjing.errors import InputError, UnsupportedError

_MISSING = object()

# Keys of training, generation and bookkeeping: they don't change what a forward pass computes.
# fmt: off
HARMLESS = frozenset((
    "architectures", "attention_dropout", "attn_implementation", "attn_pdrop", "classifier_dropout",
    "embed_dropout", "resid_dropout", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "masked_softmax_fusion", "unk_token", "auto_map", "bos_token_id",
    "cache_implementation", "chunk_size_feed_forward", "dtype", "embd_pdrop", "eos_token_id",
    "finetuning_task", "gradient_checkpointing", "hidden_dropout", "id2label", "initializer_range",
    "is_decoder", "is_encoder_decoder", "label2id", "max_length", "min_length", "model_type",
    "name_or_path", "num_labels", "output_attentions", "output_hidden_states", "output_past",
    "pad_token_id", "problem_type", "resid_pdrop", "return_dict", "sep_token_id", "task_specific_params",
    "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "use_bfloat16", "use_cache",
    "unsloth_version", "unsloth_fixed", "quantization_config", "unk_token_id", "vocab_file",
    "tokenizer_file", "tie_encoder_decoder", "add_cross_attention", "cross_attention_hidden_size",
))
# fmt: on
_CHANGES_NUMBERS = re.compile(
    "act|alibi|attention|attn|bias|cap|clip|embed|expert|factor|head|inter|kernel|layer|latent|lora|mlp|moe|mult|norm"
    "|parallel|position|pretraining_tp|qk|rank|residual|rope|rotary|router|scal|sink|size|softcap|tie|top_k|window"
)


class ForeignConfig:
    """Typed look-ups in a config; `source` names the file in errors. Remembers which keys were read."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values = values
        self.source = source
        self._read: set[str] = set()
        self._assumed: dict[str, Any] = {}

    def assume(self, **values: Any) -> None:
        """What absent keys mean in this family, where that isn't what `default` says; null stays null."""
        self._assumed |= values

    def get(self, key: str, default: Any = None) -> Any:
        """The raw value, or `default` where the key is absent or null."""
        self._read.add(key)
        value = self.values.get(key, self._assumed.get(key))
        return default if value is None else value

    def integer(self, key: str, default: Any = _MISSING, minimum: int = 1, maximum: int = 1 << 31) -> int:
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise InputError(
                f"{self.source}: {key} must be a whole number from {minimum} to {maximum}, not {value!r}"
            )
        return value

    def number(self, key: str, default: Any = _MISSING) -> float:
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise InputError(f"{self.source}: {key} must be a positive number, not {value!r}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{self.source}: {key} must be true or false, not {value!r}")
        return value

    def ignore(self, *keys: str) -> None:
        """Note keys as known that change nothing here: they repeat others, or matter in training alone."""
        self._read.update(keys)

    def expect(self, key: str, *allowed: Any) -> None:
        """Refuse the config unless `key` is absent, null or one of `allowed`: other values aren't computed
        here."""
        value = self.get(key)
        if value is not None and value not in allowed:
            raise UnsupportedError(
                f"{self.source}: {key} = {value!r} is not supported (supported: {allowed[0]!r})"
            )

    def finish(self) -> tuple[str, ...]:
        """Refuse unread keys that could change numbers; return the other unread ones that aren't
        bookkeeping."""
        unread = [k for k, v in self.values.items() if v is not None and not self._is_known(k)]
        loud = [k for k in unread if _CHANGES_NUMBERS.search(k) and self.values[k] is not False]
        if loud:
            hints = (
                f"{k} (near {near[0]})" if (near := get_close_matches(k, self._read, 1)) else k for k in loud
            )
            raise UnsupportedError(
                f"{self.source} holds keys that this family doesn't know and that could change the result: "
                f"{', '.join(hints)}; remove them if they have no effect"
            )
        return tuple(unread)

    def _is_known(self, key: str) -> bool:
        """Read, bookkeeping, or private to the writer (`_name_or_path`)."""
        return key in self._read or key in HARMLESS or key.startswith("_")

    def _required(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is _MISSING:
            raise InputError(f"{self.source} has no {key}; the config is incomplete")
        return value
