"""From a checkpoint's headers to a complete plan of what will be loaded; all refusals happen here, before any
weight is read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import torch

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint, TensorInfo
from penjing.model.config import ModelConfig
from penjing.model.decoder import Decoder
from penjing.model.families.family import Family
from penjing.model.families.registry import family_of_gguf, family_of_model_type
from penjing.model.foreign import ForeignConfig
from penjing.model.gguf_names import ROPE_FACTORS, gguf_names, rope_with_factors
from penjing.model.quantization import FORMAT_KEY, read_quantization
from penjing.packed.parts import PackedSpec

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True)
class LoadPlan:
    """What a checkpoint will become. `hf_config` is its config as Hugging Face writes it; `sources` maps each
    tensor of the module to the checkpoint's name for it; `packed` maps module names to their layout."""

    checkpoint: Checkpoint
    family: Family
    config: ModelConfig
    hf_config: Mapping[str, Any]
    sources: Mapping[str, str]
    packed: Mapping[str, PackedSpec]
    notices: tuple[str, ...]

    def info(self, name: str) -> TensorInfo:
        return self.checkpoint.tensors[self.sources[name]]


def plan_load(checkpoint: Checkpoint) -> LoadPlan:
    """Read config and names, settle the tie, and check every tensor's presence and shape.

    Raises `UnsupportedError` for an unknown architecture or setting, `InputError` for missing, unexpected or
    mis-shaped tensors, each listed.
    """
    family, hf_config = _identify(checkpoint)
    source = str(checkpoint.path)
    foreign = ForeignConfig(hf_config, source)
    config = family.read(foreign)
    _check_config(config, checkpoint)
    notices = [f"config key {key} has no effect here" for key in foreign.finish()]
    names = _module_names(checkpoint, config)
    config, tie_notices = _settle_tie(checkpoint, config, names)
    quantization = read_quantization(
        hf_config, source, _matrices(config), {name: checkpoint.tensors[names[name]] for name in names}
    )
    left_out = quantization.left_out | _zero_biases(checkpoint, names, config, quantization.packed)
    names = {name: stored for name, stored in names.items() if name not in left_out}
    expected = _expected_tensors(config, quantization.packed, source)
    sources, dropped = _match(checkpoint, names, expected)
    hf_config = dict(hf_config) | {"tie_word_embeddings": config.tie_word_embeddings}
    notices = (*checkpoint.notices, *notices, *tie_notices, *quantization.notices, *dropped)
    return LoadPlan(checkpoint, family, config, hf_config, sources, quantization.packed, notices)


def build_skeleton(config: ModelConfig) -> Decoder:
    """The module with shapes and no storage."""
    with torch.device("meta"):
        return Decoder(config)


@lru_cache(maxsize=4)
def tensor_shapes(config: ModelConfig) -> Mapping[str, tuple[int, ...]]:
    """Name and shape of every tensor of the float model, in its own order."""
    return {name: tuple(tensor.shape) for name, tensor in build_skeleton(config).state_dict().items()}


def _matrices(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Every module with a matrix, and its rows and columns."""
    shapes = tensor_shapes(config).items()
    return {name.removesuffix(".weight"): (shape[0], shape[1]) for name, shape in shapes if len(shape) == 2}


def _identify(checkpoint: Checkpoint) -> tuple[Family, dict[str, Any]]:
    source = str(checkpoint.path)
    if checkpoint.kind == "hf":
        return family_of_model_type(checkpoint.config.get("model_type"), source), dict(checkpoint.config)
    metadata = checkpoint.config
    arch = metadata.get("general.architecture")
    family = family_of_gguf(arch, source)
    own = {k.removeprefix(f"{arch}."): v for k, v in metadata.items() if k.startswith(f"{arch}.")}
    tokens = metadata.get("tokenizer.ggml.tokens")
    own.setdefault("vocab_size", len(tokens) if isinstance(tokens, (list, tuple)) else None)
    foreign = ForeignConfig(own, source)
    hf_config = {"architectures": [family.architecture], "model_type": family.model_type}
    hf_config |= family.from_gguf(foreign)
    ignored = foreign.finish()
    hf_config |= {f"gguf.{arch}.{key}": own[key] for key in ignored}  # listed among the keys without effect
    if ROPE_FACTORS in checkpoint.tensors:
        factors, context = checkpoint.read(ROPE_FACTORS), hf_config["max_position_embeddings"]
        hf_config["rope_parameters"] = rope_with_factors(hf_config["rope_parameters"], factors, context)
    for key in ("bos", "eos"):
        if f"tokenizer.ggml.{key}_token_id" in metadata:
            hf_config[f"{key}_token_id"] = metadata[f"tokenizer.ggml.{key}_token_id"]
    return family, hf_config


def _check_config(config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Refuse what would only fail later: more layers than tensors."""
    layers, tensors = config.num_hidden_layers, len(checkpoint.tensors)
    if layers > tensors:
        raise InputError(
            f"{checkpoint.path}: the config asks for {layers} layers, but there are {tensors} tensors"
        )


def _module_names(checkpoint: Checkpoint, config: ModelConfig) -> dict[str, str]:
    """The checkpoint's tensor names, under the names that the module has for them."""
    if checkpoint.kind == "hf":
        return {name: name for name in checkpoint.tensors}
    untied = replace(config, tie_word_embeddings=False)
    return gguf_names(checkpoint, config.num_hidden_layers, tensor_shapes(untied))


def _settle_tie(
    checkpoint: Checkpoint, config: ModelConfig, names: dict[str, str]
) -> tuple[ModelConfig, list[str]]:
    """What is stored decides: a head of its own makes the model untied, whatever the config says; an equal
    copy of the embedding is the tied head stored twice."""
    if checkpoint.kind == "gguf":
        return replace(config, tie_word_embeddings=HEAD not in names), []
    if not config.tie_word_embeddings or HEAD not in names or EMBEDDING not in names:
        return config, []
    if torch.equal(checkpoint.read(names[HEAD]), checkpoint.read(names[EMBEDDING])):
        del names[HEAD]
        return config, ["the file holds the tied head a second time; one copy is used"]
    notice = (
        "the config says that head and embedding are tied, but the file holds another head, which is used"
    )
    return replace(config, tie_word_embeddings=False), [notice]


def _expected_tensors(
    config: ModelConfig, packed: Mapping[str, PackedSpec], source: str
) -> dict[str, tuple[tuple[int, ...], str | None]]:
    """Name, shape and (for packed parts) dtype of every tensor that must be in the file."""
    expected: dict[str, tuple[tuple[int, ...], str | None]] = {
        name: (shape, None) for name, shape in tensor_shapes(config).items()
    }
    for module, spec in packed.items():
        if len(expected.get(f"{module}.weight", ((), None))[0]) != 2:
            raise InputError(f"{source}: {FORMAT_KEY} names {module}, which is no matrix of this model")
        rows, columns = expected.pop(f"{module}.weight")[0]
        expected |= {f"{module}.{part}": want for part, want in spec.part_shapes(rows, columns).items()}
    return expected


def _match(
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    expected: Mapping[str, tuple[tuple[int, ...], str | None]],
) -> tuple[dict[str, str], list[str]]:
    missing = [name for name in expected if name not in names]
    extra = [name for name in names if name not in expected and not _derived(name)]
    empty = [name for name in extra if 0 in checkpoint.tensors[names[name]].shape]
    unexpected = [name for name in extra if name not in empty]
    wrong = [
        text
        for name, (shape, dtype) in expected.items()
        if name in names and (text := _mismatch(checkpoint.tensors[names[name]], shape, dtype))
    ]
    if missing or unexpected or wrong:
        raise InputError(_mismatch_report(checkpoint, names, missing, unexpected, wrong))
    return {name: names[name] for name in expected}, [f"{name} is empty and is left out" for name in empty]


def _derived(name: str) -> bool:
    """Old Llama files also hold the rotary frequencies, which follow from the config."""
    return name.endswith("rotary_emb.inv_freq")


def _zero_biases(
    checkpoint: Checkpoint, names: Mapping[str, str], config: ModelConfig, packed: Mapping[str, PackedSpec]
) -> set[str]:
    """Old GPTQ files give every matrix a bias; where the model has none, one of zeros has no effect."""
    extra = {f"{module}.bias" for module in packed} & (names.keys() - tensor_shapes(config).keys())
    return {name for name in extra if not checkpoint.read(names[name]).any()}


def _mismatch(info: TensorInfo, shape: tuple[int, ...], dtype: str | None) -> str | None:
    if info.shape != shape:
        return (
            f"{info.name} in {info.file.name} has shape {list(info.shape)}, the config asks for {list(shape)}"
        )
    if dtype is not None and info.dtype != dtype:
        return f"{info.name} in {info.file.name} is {info.dtype}, it must be {dtype}"
    return None


def _mismatch_report(
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    missing: list[str],
    unexpected: list[str],
    wrong: list[str],
) -> str:
    def near(name: str) -> str:
        found = get_close_matches(name, unexpected, 1, 0.8)
        return f"{name} (near: {found[0]})" if found else name

    def located(name: str) -> str:
        return f"{name} in {checkpoint.tensors[names[name]].file.name}"

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
