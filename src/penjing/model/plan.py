"""From a checkpoint's headers to a complete plan of what will be loaded; all refusals happen here, before any
weight is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Protocol

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint, TensorInfo
from penjing.model.config import ModelConfig
from penjing.model.families.family import Family
from penjing.model.families.registry import family_of_gguf, family_of_model_type
from penjing.model.foreign import ForeignConfig
from penjing.model.fused import check_cuts, shares
from penjing.model.gguf_names import gguf_rules
from penjing.model.gguf_parts import assembled
from penjing.model.gguf_rope import ROPE_TENSORS, rope_from_tensors
from penjing.model.language_model import LanguageConfig
from penjing.model.layouts import Rows
from penjing.model.names import Rule, Stored, apply_rules, used_rules
from penjing.model.quantization import FORMAT_KEY, is_own_format, read_quantization
from penjing.model.shapes import Shape, tensor_shapes
from penjing.model.text_part import text_part
from penjing.packed.parts import PackedSpec

HEAD, EMBEDDING = "lm_head", "model.embed_tokens"


class Plan(Protocol):
    """What is known of a model before its weights are read, whether it has a family or runs through
    transformers: what it is, and every tensor with its shape and where it lies. `groups` names the parts of
    the model that tensors belong to, where their names don't tell; `can_hold_stored` says whether matrices
    may stay in the file."""

    @property
    def checkpoint(self) -> Checkpoint: ...
    @property
    def architecture(self) -> str: ...
    @property
    def config(self) -> LanguageConfig: ...
    @property
    def hf_config(self) -> Mapping[str, Any]: ...
    @property
    def shapes(self) -> Mapping[str, Shape]: ...
    @property
    def stored(self) -> tuple[Stored, ...]: ...
    @property
    def packed(self) -> Mapping[str, PackedSpec]: ...
    @property
    def groups(self) -> Mapping[str, str]: ...
    @property
    def can_hold_stored(self) -> bool: ...
    @property
    def notices(self) -> tuple[str, ...]: ...
    def info(self, name: str) -> TensorInfo: ...
    def is_packed_part(self, name: str) -> bool: ...


@dataclass(frozen=True)
class LoadPlan:
    """What a checkpoint will become. `hf_config` is its config as Hugging Face writes it; `stored` are the
    checkpoint's tensors and which of the module's lie in each; `packed` maps module names to their layout."""

    checkpoint: Checkpoint
    family: Family
    config: ModelConfig
    hf_config: Mapping[str, Any]
    stored: tuple[Stored, ...]
    packed: Mapping[str, PackedSpec]
    notices: tuple[str, ...]

    @property
    def architecture(self) -> str:
        """The name of transformers' class."""
        return self.family.architecture

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Every tensor of the float model."""
        return tensor_shapes(self.config)

    @property
    def groups(self) -> Mapping[str, str]:
        """The decoder's names tell."""
        return {}

    @property
    def can_hold_stored(self) -> bool:
        return True

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """For each of the module's tensors the one that it lies in."""
        return {native: stored.name for stored in self.stored for native in stored.native}

    def info(self, name: str) -> TensorInfo:
        """Where the module's tensor `name` lies."""
        return self.checkpoint.tensors[self.sources[name]]

    def is_packed_part(self, name: str) -> bool:
        """Whether a tensor is a part of a packed matrix; such a matrix's bias is not."""
        return name.rpartition(".")[0] in self.packed and not name.endswith(".bias")


def plan_load(checkpoint: Checkpoint) -> LoadPlan:
    """Read config and names, settle the tie, and check every tensor's presence and shape.

    Raises `UnsupportedError` for an unknown architecture or setting, `InputError` for missing, unexpected or
    mis-shaped tensors, each listed.
    """
    checkpoint = text_part(checkpoint)
    family, hf_config = identify(checkpoint)
    source = str(checkpoint.path)
    foreign = ForeignConfig(hf_config, source)
    config = family.read(foreign)
    _check_config(config, checkpoint)
    if family.gguf and checkpoint.kind == "gguf":
        checkpoint = assembled(checkpoint, family.gguf.parts(config), config.num_hidden_layers)
    notices = [f"config key {key} has no effect here" for key in foreign.finish()]
    rules = _rules(checkpoint, family, config, hf_config)
    head, embedding = _ends(config, rules)
    config, tie_notices = _settle_tie(checkpoint, config, head, embedding)
    matrices = _matrices(config)
    known_as = _names_in_module(checkpoint, rules, matrices)
    further = _further_layers(checkpoint, config, hf_config)
    tensors = shares({n: s for n, s in known_as.items() if s not in further}, checkpoint.tensors, matrices)
    quantization = read_quantization(hf_config, source, matrices, tensors)
    shapes, dtypes = _expected_tensors(config, quantization.packed, source)
    stored = _without_prefix(checkpoint, apply_rules(rules, shapes))
    check_cuts(stored, quantization.packed, matrices, source)
    unused = quantization.left_out | _zero_biases(checkpoint, known_as, config, quantization.packed)
    passed_over = {known_as[name] for name in unused} | ({head} if config.tie_word_embeddings else set())
    dropped = _match(checkpoint, family, stored, dtypes, passed_over | further)
    if further:
        dropped.append(
            f"{len(further)} tensors of further layers, which predict more than the next token, are left out"
        )
    hf_config = dict(hf_config) | {"tie_word_embeddings": config.tie_word_embeddings}
    notices = (*checkpoint.notices, *notices, *tie_notices, *quantization.notices, *dropped)
    return LoadPlan(checkpoint, family, config, hf_config, tuple(stored), quantization.packed, notices)


def _matrices(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Every module with a matrix, and its rows and columns."""
    shapes = tensor_shapes(config).items()
    return {name.removesuffix(".weight"): (shape[0], shape[1]) for name, shape in shapes if len(shape) == 2}


def identify(checkpoint: Checkpoint) -> tuple[Family, dict[str, Any]]:
    """The family, and the config as Hugging Face writes it."""
    source = str(checkpoint.path)
    if checkpoint.kind == "hf":
        family = family_of_model_type(checkpoint.config.get("model_type"), source)
        return family, {"architectures": [family.architecture], **family.defaults, **checkpoint.config}
    metadata = checkpoint.config
    family = family_of_gguf(metadata, checkpoint.tensors.keys(), source)
    assert family.gguf
    arch = metadata["general.architecture"]
    own = {k.removeprefix(f"{arch}."): v for k, v in metadata.items() if k.startswith(f"{arch}.")}
    tokens = metadata.get("tokenizer.ggml.tokens")
    own.setdefault("vocab_size", len(tokens) if isinstance(tokens, (list, tuple)) else None)
    foreign = ForeignConfig(own, source)
    hf_config = {"architectures": [family.architecture], "model_type": family.model_types[0]}
    hf_config |= family.gguf.config(foreign)
    hf_config |= family.gguf.shown(foreign, checkpoint.tensors.keys())
    rope = rope_from_tensors(checkpoint, hf_config, foreign)
    hf_config |= {} if rope is None else {"rope_parameters": rope}
    ignored = foreign.finish()
    hf_config |= {f"gguf.{arch}.{key}": own[key] for key in ignored}  # listed among the keys without effect
    for key in ("bos", "eos"):
        if f"tokenizer.ggml.{key}_token_id" in metadata:
            hf_config[f"{key}_token_id"] = metadata[f"tokenizer.ggml.{key}_token_id"]
    # Null where there is none: transformers would take that of the family's own vocabulary.
    hf_config["pad_token_id"] = metadata.get("tokenizer.ggml.padding_token_id")
    return family, hf_config


def _rules(
    checkpoint: Checkpoint, family: Family, config: ModelConfig, hf_config: Mapping[str, Any]
) -> tuple[Rule, ...]:
    """How the checkpoint names and stores the module's tensors; what penjing packed has the module's
    names."""
    if checkpoint.kind == "gguf":
        assert family.gguf
        own = used_rules(family.gguf.rules(config), checkpoint.tensors)
        return (*own, *gguf_rules(config))
    return () if is_own_format(hf_config) else tuple(family.rules(config))


def _names_in_module(
    checkpoint: Checkpoint, rules: tuple[Rule, ...], matrices: Mapping[str, tuple[int, int]]
) -> dict[str, str]:
    """What the module would call the tensors of the file, whatever parts of a matrix they are."""
    if checkpoint.kind == "gguf":
        return {}
    leaves = sorted({name.rpartition(".")[2] for name in checkpoint.tensors})
    possible = {f"{module}.{leaf}": () for module in matrices for leaf in leaves}
    found = {
        native: stored.name
        for stored in apply_rules(rules, possible)
        if stored.name in checkpoint.tensors and (len(stored.native) == 1 or stored.layout == Rows())
        for native in stored.native
    }
    return found | {name: name for name in checkpoint.tensors.keys() - set(found.values())}


def _check_config(config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Refuse what would only fail later: more layers than tensors."""
    layers, tensors = config.num_hidden_layers, len(checkpoint.tensors)
    if layers > tensors:
        raise InputError(
            f"{checkpoint.path}: the config asks for {layers} layers, but there are {tensors} tensors"
        )


def _ends(config: ModelConfig, rules: tuple[Rule, ...]) -> tuple[str, str]:
    """What the file calls head and embedding."""
    shapes = tensor_shapes(replace(config, tie_word_embeddings=False))
    head, embedding = apply_rules(
        rules, {f"{name}.weight": shapes[f"{name}.weight"] for name in (HEAD, EMBEDDING)}
    )
    return head.name, embedding.name


def _settle_tie(
    checkpoint: Checkpoint, config: ModelConfig, head: str, embedding: str
) -> tuple[ModelConfig, list[str]]:
    """What is stored decides: a head of its own makes the model untied, whatever the config says; an equal
    copy of the embedding is the tied head stored twice."""
    if checkpoint.kind == "gguf":
        return replace(config, tie_word_embeddings=head not in checkpoint.tensors), []
    if (
        not config.tie_word_embeddings
        or head not in checkpoint.tensors
        or embedding not in checkpoint.tensors
    ):
        return config, []
    if same_values(checkpoint, head, embedding):
        return config, ["the file holds the tied head a second time; one copy is used"]
    notice = (
        "the config says that head and embedding are tied, but the file holds another head, which is used"
    )
    return replace(config, tie_word_embeddings=False), [notice]


def same_values(checkpoint: Checkpoint, first: str, second: str) -> bool:
    """Whether two tensors of a file are equal."""
    import torch

    return torch.equal(checkpoint.read(first), checkpoint.read(second))


def _expected_tensors(
    config: ModelConfig, packed: Mapping[str, PackedSpec], source: str
) -> tuple[dict[str, Shape], dict[str, str]]:
    """Name and shape of everything that must be in the file, and the dtypes of packed parts."""
    shapes, dtypes = dict(tensor_shapes(config)), {}
    for module, spec in packed.items():
        if len(shapes.get(f"{module}.weight", ())) != 2:
            raise InputError(f"{source}: {FORMAT_KEY} names {module}, which is no matrix of this model")
        rows, columns = shapes.pop(f"{module}.weight")
        for part, (shape, dtype) in spec.part_shapes(rows, columns).items():
            shapes[f"{module}.{part}"], dtypes[f"{module}.{part}"] = shape, dtype
    return shapes, dtypes


def _without_prefix(checkpoint: Checkpoint, stored: list[Stored]) -> list[Stored]:
    """The same under the names of a folder that was saved without the head around it: they lack the first
    part ("transformer.")."""
    names = checkpoint.tensors
    prefix = stored[0].name.partition(".")[0] + "."
    if checkpoint.kind != "hf" or any(name.startswith(prefix) for name in names):
        return stored
    return [replace(s, name=bare) if (bare := s.name.removeprefix(prefix)) in names else s for s in stored]


def _match(
    checkpoint: Checkpoint,
    family: Family,
    stored: list[Stored],
    dtypes: Mapping[str, str],
    passed_over: set[str],
) -> list[str]:
    """Hold the file against what is expected of it; returns what is passed over."""
    names = checkpoint.tensors
    expected = {s.name for s in stored} | passed_over | set(ROPE_TENSORS)
    missing = [s.name for s in stored if s.name not in names]
    extra = [name for name in names if name not in expected and not _is_derived(name, family)]
    empty = [name for name in extra if 0 in names[name].shape]
    unexpected = [name for name in extra if name not in empty]
    wrong = [
        text
        for s in stored
        if s.name in names
        and (text := _mismatch(names[s.name], s.shape, dtypes.get(s.native[0]), checkpoint.kind))
    ]
    if missing or unexpected or wrong:
        raise InputError(mismatch_report(checkpoint, missing, unexpected, wrong))
    return [f"{name} is empty and is left out" for name in empty]


def _further_layers(checkpoint: Checkpoint, config: ModelConfig, hf_config: Mapping[str, Any]) -> set[str]:
    """Tensors of layers after the model's last, which some files keep to draft further tokens with."""
    count, last = hf_config.get("num_nextn_predict_layers"), config.num_hidden_layers
    if not isinstance(count, int):
        return set()
    prefixes = ["model.mtp_"]  # ERNIE
    prefixes += [
        f"{kind}{i}." for i in range(last, last + min(count, last)) for kind in ("model.layers.", "blk.")
    ]
    return {name for name in checkpoint.tensors if name.startswith(tuple(prefixes))}


def _is_derived(name: str, family: Family) -> bool:
    """What is stored but follows from the config."""
    return any(re.fullmatch(pattern, name) for pattern in family.derived)


def _zero_biases(
    checkpoint: Checkpoint, names: Mapping[str, str], config: ModelConfig, packed: Mapping[str, PackedSpec]
) -> set[str]:
    """Old GPTQ files give every matrix a bias; where the model has none, one of zeros has no effect."""
    extra = {f"{module}.bias" for module in packed} & (names.keys() - tensor_shapes(config).keys())
    return {name for name in extra if not checkpoint.read(names[name]).any()}


def _mismatch(info: TensorInfo, shape: tuple[int, ...], dtype: str | None, kind: str) -> str | None:
    # Every GGML tensor has four dimensions, and how many of those that are one a file names is its writer's
    # choice.
    alike = _without_ones(info.shape) == _without_ones(shape) if kind == "gguf" else info.shape == shape
    if not alike:
        return (
            f"{info.name} in {info.file.name} has shape {list(info.shape)}, the config asks for {list(shape)}"
        )
    if dtype is not None and info.dtype != dtype:
        return f"{info.name} in {info.file.name} is {info.dtype}, it must be {dtype}"
    return None


def _without_ones(shape: Shape) -> Shape:
    """The shape without ones at its front."""
    return next((shape[i:] for i, size in enumerate(shape) if size != 1), ())


def mismatch_report(
    checkpoint: Checkpoint,
    missing: list[str],
    unexpected: list[str],
    wrong: list[str],
) -> str:
    """The sentence that lists what doesn't fit between a file and its config."""

    def near(name: str) -> str:
        found = get_close_matches(name, unexpected, 1, 0.8)
        return f"{name} (near: {found[0]})" if found else name

    def located(name: str) -> str:
        return f"{name} in {checkpoint.tensors[name].file.name}" if name in checkpoint.tensors else name

    parts = [
        f"{title}: {', '.join(items[:8])}{f' and {len(items) - 8} more' if len(items) > 8 else ''}"
        for title, items in (
            ("missing", [near(n) for n in missing]),
            ("unexpected", [located(n) for n in unexpected]),
            ("mis-shaped", wrong),
        )
        if items
    ]
    return (
        f"{checkpoint.path}: the tensors don't fit the config. {'; '.join(parts)}. Is the download complete?"
    )
