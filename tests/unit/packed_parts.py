"""Random matrices in other tools' layouts, and tiny models made of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.unit.models import CONFIG, hf_model, random_tensors

from penjing.packed.parts import PackedSpec
from penjing.packed.schemes import packed_tensor

WORDS = np.iinfo(np.int32)


def random_parts(spec: PackedSpec, rows: int, columns: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Any bits for codes, scales near 0.01, and columns dealt to groups in a shuffled order."""
    rng = np.random.default_rng(seed)
    parts = {}
    for name, (shape, dtype) in spec.part_shapes(rows, columns).items():
        if name == "weight_shape":
            parts[name] = torch.tensor([rows, columns], dtype=getattr(torch, dtype))
        elif name.endswith("g_idx"):
            groups = np.arange(columns) // (spec.group_size or columns)
            parts[name] = torch.from_numpy(rng.permutation(groups).astype(np.int32))
        elif dtype == "int32":
            parts[name] = torch.from_numpy(rng.integers(WORDS.min, WORDS.max, shape, dtype=np.int32))
        elif name == "weight":
            parts[name] = torch.from_numpy(rng.normal(0, 20, shape)).to(getattr(torch, dtype))
        elif dtype == "uint8":
            parts[name] = torch.from_numpy(rng.integers(100, 140, shape, dtype=np.uint8))
        else:
            scales = torch.from_numpy(rng.uniform(0.005, 0.02, shape)).float()
            parts[name] = scales.to(getattr(torch, dtype))
    return parts


def is_linear(name: str) -> bool:
    """Whether a tensor of a model is the matrix of a linear in a block."""
    return name.endswith("_proj.weight")


def packed_tensors(spec: PackedSpec, config: Mapping[str, Any] = CONFIG) -> dict[str, torch.Tensor]:
    """The tensors of a random model whose linears are in this layout."""
    tensors = {}
    for seed, (name, tensor) in enumerate(random_tensors(config).items()):
        if is_linear(name):
            parts = random_parts(spec, *tensor.shape, seed)
            tensors |= {f"{name.removesuffix('.weight')}.{part}": value for part, value in parts.items()}
        else:
            tensors[name] = tensor
    return tensors


def unpacked_tensors(
    spec: PackedSpec, stored: Mapping[str, torch.Tensor], config: Mapping[str, Any] = CONFIG
) -> dict[str, torch.Tensor]:
    """The float tensors that `packed_tensors` stand for."""
    tensors = {}
    for name, tensor in random_tensors(config).items():
        if is_linear(name):
            rows, columns = tensor.shape
            module = name.removesuffix(".weight")
            parts = {part: stored[f"{module}.{part}"] for part in spec.part_shapes(rows, columns)}
            tensors[name] = packed_tensor(spec, (rows, columns), parts).dequantize()
        else:
            tensors[name] = tensor
    return tensors


def packed_model(
    folder: Path,
    quantization: Mapping[str, Any] | None,
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] = CONFIG,
    shard_bytes: int = 10**9,
) -> Path:
    """A folder with these tensors and this `quantization_config`."""
    entry = {} if quantization is None else {"quantization_config": dict(quantization)}
    return hf_model(folder, {**config, **entry}, tensors, shard_bytes)
