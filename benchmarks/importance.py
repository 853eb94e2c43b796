"""The importance matrix of llama.cpp: the mean square of every input of every linear layer in the blocks."""

from functools import partial

import gguf
import numpy as np
import torch
from torch import nn

from penjing.api import Model


@torch.inference_mode()
def importance(model: Model, ids_NL: torch.Tensor) -> dict[str, np.ndarray]:
    """Means (C,) over the passages' tokens, float32, by the tensor's name in GGUF.

    As llama-imatrix does by default, the embedding and the head have none. For architectures whose linear
    layers GGUF keeps as they are.
    """
    linears = {
        name: module
        for name, module in model.module.named_modules()
        if isinstance(module, nn.Linear) and name != "lm_head"
    }
    sums = {name: torch.zeros(linear.in_features, dtype=torch.float64) for name, linear in linears.items()}
    handles = [
        linear.register_forward_pre_hook(partial(_add, sums[name])) for name, linear in linears.items()
    ]
    positions_1L = torch.arange(ids_NL.shape[1]).unsqueeze(0)
    for ids_L in ids_NL:
        model.module.hidden(ids_L.unsqueeze(0), positions_1L)
    for handle in handles:
        handle.remove()
    names = _gguf_names(model)
    return {f"{names(name)}.weight": (sums[name] / ids_NL.numel()).float().numpy() for name in linears}


def _add(sum_C: torch.Tensor, _: nn.Module, inputs: tuple[torch.Tensor]) -> None:
    sum_C += inputs[0].flatten(0, -2).double().square().sum(0)


def _gguf_names(model: Model):
    """The function from our names to GGUF's, as llama.cpp's converter has it."""
    architecture = {text: arch for arch, text in gguf.MODEL_ARCH_NAMES.items()}[model.hf_config["model_type"]]
    return gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers).get_name
