"""From a folder's headers to a plan of what transformers will make of it; all refusals happen here, before
any weight is read.

The plan is drawn up by loading tensors without storage: transformers itself says what is missing and what
it wouldn't use, by its own rules for names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import Checkpoint, TensorInfo
from penjing.formats.hf_folder import some
from penjing.model.families.registry import MODEL_TYPES
from penjing.model.language_model import NO_LIMIT
from penjing.model.layouts import AS_IS, Shape
from penjing.model.names import Stored
from penjing.model.packed_entries import PackedEntries, all_parts, read_packed_entries
from penjing.model.plan import mismatch_report, same_values
from penjing.model.quantization import FORMAT_KEY, is_own_format, read_own_parameters
from penjing.packed.parts import PackedSpec

if TYPE_CHECKING:  # they need torch
    from penjing.model.bridge.library import Architecture, Gaps

# Under these names configs say how long a text may be.
_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "context_length",
    "n_ctx",
)
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class BridgedConfig:
    """What is known of any model. `max_position_embeddings` is `NO_LIMIT` where the config names none;
    `rope_types` are the kinds of scaling of its rotary positions, if it has any."""

    vocab_size: int
    max_position_embeddings: int
    num_hidden_layers: int
    hidden_size: int
    tie_word_embeddings: bool
    rope_types: frozenset[str] = frozenset()


@dataclass(frozen=True)
class BridgedPlan:
    """What a folder will become. `infos` are the float tensors that are saved again, by transformers' names,
    with where each lies in the folder; `groups` names the parts of the model that they belong to;
    `own_packed` are the parameters that penjing packed."""

    checkpoint: Checkpoint
    found: Architecture
    config: BridgedConfig
    hf_config: Mapping[str, Any]
    infos: Mapping[str, TensorInfo]
    groups: Mapping[str, str]
    notices: tuple[str, ...]
    own_packed: PackedEntries = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """The name of transformers' class."""
        return self.found.name

    @property
    def shapes(self) -> Mapping[str, Shape]:
        packed = {name: entry.matrix_shape for name, entry in self.own_packed.items()}
        return {name: info.shape for name, info in self.infos.items()} | packed

    @property
    def stored(self) -> tuple[Stored, ...]:
        return tuple(Stored(name, (name,), (shape,), AS_IS) for name, shape in self.shapes.items())

    @property
    def packed(self) -> Mapping[str, PackedSpec]:
        """What penjing packed itself, by the names that the ledger uses."""
        return {name.removesuffix(".weight"): entry.spec for name, entry in self.own_packed.items()}

    @property
    def can_hold_stored(self) -> bool:
        """Modules of transformers need their weights as floats."""
        return False

    def info(self, name: str) -> TensorInfo:
        return self.infos[name]

    def is_packed_part(self, name: str) -> bool:
        return False


def needs_bridge(checkpoint: Checkpoint) -> bool:
    """Whether it is a folder of a model type without a family."""
    model_type = checkpoint.config.get("model_type")
    return checkpoint.kind == "hf" and isinstance(model_type, str) and model_type not in MODEL_TYPES


def plan_bridged(checkpoint: Checkpoint) -> BridgedPlan:
    """Ask transformers for the class, and hold the folder's headers against it.

    Raises `UnsupportedError` for what transformers doesn't have or can't be opened through it, `InputError`
    for missing, unexpected or mis-shaped tensors, each listed.
    """
    from penjing.model.bridge import library
    from penjing.model.packed_parameter import float_tensors

    source, hf_config = str(checkpoint.path), checkpoint.config
    found = library.find_architecture(hf_config, source)
    own_packed = _own_packed(checkpoint)
    config = _config(found.config, source)
    if config.num_hidden_layers > len(checkpoint.tensors):
        raise InputError(
            f"{source}: the config asks for {config.num_hidden_layers} layers, but there are"
            f" {len(checkpoint.tensors)} tensors"
        )
    skeleton, gaps = library.load(found, _without_storage(checkpoint, own_packed), source, skeleton=True)
    _require_complete(checkpoint, gaps)
    tensors = float_tensors(skeleton) if own_packed else library.saved_tensors(skeleton)
    saved = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name not in own_packed}
    twice, tie_notices = _settle_ties(checkpoint, skeleton, saved)
    tied = {name for name, equal in twice.items() if equal}
    infos = {name: _locate(checkpoint, name, shape) for name, shape in saved.items() if name not in tied}
    _require_floats(infos, source)
    parts = all_parts(own_packed.values())
    left_out = checkpoint.tensors.keys() - {info.name for info in infos.values()} - tied - parts
    notices = [
        f"{hf_config['model_type']} has no family here: the model runs as transformers' {found.name}, which"
        " is slower",
        *found.notices,
        *tie_notices,
    ]
    if left_out:
        notices.append(f"transformers takes these tensors under other names or not at all: {some(left_out)}")
    untied = {} if tied == twice.keys() else {"tie_word_embeddings": False}
    return BridgedPlan(
        checkpoint=checkpoint,
        found=found,
        config=replace(config, **untied),
        hf_config={"architectures": [found.name], **hf_config, **untied},
        infos=infos,
        groups=_groups(saved, skeleton),
        notices=(*checkpoint.notices, *notices),
        own_packed=own_packed,
    )


def _own_packed(checkpoint: Checkpoint) -> PackedEntries:
    """The parameters that penjing packed; weights that another tool quantised are refused."""
    if not is_own_format(checkpoint.config):
        _refuse_quantized(checkpoint)
        return {}
    source = str(checkpoint.path)
    described = read_own_parameters(checkpoint.config[FORMAT_KEY], source)
    return read_packed_entries(described, checkpoint.tensors, source)


def _refuse_quantized(checkpoint: Checkpoint) -> None:
    source, entry = checkpoint.path, checkpoint.config.get(FORMAT_KEY)
    model_type = checkpoint.config["model_type"]
    if entry is not None:
        method = entry.get("quant_method") if isinstance(entry, Mapping) else entry
        raise UnsupportedError(
            f"{source}: weights quantised by {method!r} can't be opened for a {model_type}, which has no"
            " family here; use the 16-bit original"
        )
    fp8 = [name for name, info in checkpoint.tensors.items() if info.dtype.startswith("float8")]
    if fp8:
        raise UnsupportedError(
            f"{source}: {fp8[0]} is {checkpoint.tensors[fp8[0]].dtype}, and such weights can't be opened for"
            f" a {model_type}, which has no family here; use the 16-bit original"
        )


def _without_storage(checkpoint: Checkpoint, own_packed: PackedEntries) -> dict[str, Any]:
    import torch

    parts = all_parts(own_packed.values())
    floats = {
        name: torch.empty(info.shape, dtype=getattr(torch, info.dtype), device="meta")
        for name, info in checkpoint.tensors.items()
        if name not in parts
    }
    return floats | {name: torch.empty(e.form.shape, device="meta") for name, e in own_packed.items()}


def _require_complete(checkpoint: Checkpoint, gaps: Gaps) -> None:
    wrong = [
        f"{name} has shape {list(stored)}, the config asks for {list(asked)}"
        for name, stored, asked in gaps.mismatched
    ]
    if gaps.missing or gaps.unexpected or wrong:
        raise InputError(mismatch_report(checkpoint, list(gaps.missing), list(gaps.unexpected), wrong))


def _settle_ties(
    checkpoint: Checkpoint, skeleton: Any, saved: Mapping[str, Shape]
) -> tuple[dict[str, bool], list[str]]:
    """Tensors that the file holds a second time although the config ties them, and whether they are equal:
    such are one, and others are used as they are, which transformers does too."""
    twice, notices = {}, []
    for name, original in getattr(skeleton, "all_tied_weights_keys", {}).items():
        if name not in saved or not {name, original} <= checkpoint.tensors.keys():
            continue
        twice[name] = same_values(checkpoint, name, original)
        notices.append(
            f"the file holds {original} a second time, as {name}; one copy is used"
            if twice[name]
            else f"the config says that {name} and {original} are tied, but the file holds different values,"
            " which are used"
        )
    return twice, notices


def _locate(checkpoint: Checkpoint, name: str, shape: Shape) -> TensorInfo:
    """Where a tensor lies; one that the file holds under another name has the widest of the file's types."""
    bare = name.partition(".")[2]  # what was saved without the head around it lacks the first part
    for candidate in (name, bare):
        if candidate in checkpoint.tensors and checkpoint.tensors[candidate].shape == shape:
            return checkpoint.tensors[candidate]
    dtypes = {info.dtype for info in checkpoint.tensors.values()} & _ITEM_BYTES.keys()
    dtype = dtypes.pop() if len(dtypes) == 1 else "float32"
    return TensorInfo(name, shape, dtype, prod(shape) * _ITEM_BYTES[dtype], checkpoint.path, 0)


def _require_floats(infos: Mapping[str, TensorInfo], source: str) -> None:
    for name, info in infos.items():
        if "float" not in info.dtype:
            raise UnsupportedError(
                f"{source}: {name} holds {info.dtype}, and only weights in floats can be opened"
            )


def _config(config: Any, source: str) -> BridgedConfig:
    text = config.get_text_config(decoder=True)

    def size(key: str) -> int:
        value = getattr(text, key, None)
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{source}: {key} must be a whole number from 1, not {value!r}")
        return value

    contexts = (getattr(text, key, None) for key in _CONTEXT_KEYS)
    context = next((n for n in contexts if isinstance(n, int) and n > 0), NO_LIMIT)
    return BridgedConfig(
        vocab_size=size("vocab_size"),
        max_position_embeddings=context,
        num_hidden_layers=size("num_hidden_layers"),
        hidden_size=size("hidden_size"),
        tie_word_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
        rope_types=frozenset(_rope_types(text.to_dict())),
    )


def _rope_types(values: Any) -> set[str]:
    """Every rope type that a config names, wherever it does."""
    if not isinstance(values, Mapping):
        return set()
    own = {values[key] for key in ("rope_type", "type") if isinstance(values.get(key), str)}
    return own.union(*map(_rope_types, values.values()))


def _groups(saved: Mapping[str, Shape], skeleton: Any) -> dict[str, str]:
    """The part of the model that each tensor belongs to, as far as any model tells."""
    groups = {name: "matrices" if len(shape) > 1 else "vectors" for name, shape in saved.items()}
    ends = {"head": skeleton.get_output_embeddings(), "embedding": skeleton.get_input_embeddings()}
    for group, module in ends.items():
        own = {id(parameter) for parameter in module.parameters()} if module is not None else set()
        groups |= {name: group for name, parameter in skeleton.named_parameters() if id(parameter) in own}
    return groups
