"""GGUF's tensor names, and its rope factors, in Hugging Face's terms."""

from collections.abc import Iterable, Mapping
from typing import Any

import gguf
import torch

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint

ROPE_FACTORS = "rope_freqs.weight"
_ARCHITECTURES = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}


def gguf_names(checkpoint: Checkpoint, layers: int, module_names: Iterable[str]) -> dict[str, str]:
    """Each tensor's Hugging Face name -> its name in the file; a tensor without one stays under its own
    name."""
    table = gguf.get_tensor_name_map(_ARCHITECTURES[checkpoint.config["general.architecture"]], layers)
    to_module = {table.get_name(name, try_suffixes=(".weight", ".bias")): name for name in module_names}
    return {to_module.get(name, name): name for name in checkpoint.tensors if name != ROPE_FACTORS}


def rope_with_factors(
    rope: Mapping[str, Any], factors: torch.Tensor, max_position_embeddings: int
) -> dict[str, Any]:
    """Llama 3's scaling as GGUF stores it, one divisor a frequency, in Hugging Face's terms.

    LongRoPE with equal short and long factors and a magnitude of one is the same function.
    """
    if rope["rope_type"] != "default" or factors.dim() != 1 or not bool((factors > 0).all()):
        raise InputError(f"the GGUF file's {ROPE_FACTORS} contradict its rope settings ({rope['rope_type']})")
    values = factors.tolist()
    return {
        "rope_type": "longrope",
        "rope_theta": rope["rope_theta"],
        "short_factor": values,
        "long_factor": values,
        "attention_factor": 1.0,
        "original_max_position_embeddings": max_position_embeddings,
    }
