"""llm-compressor: GPTQ and AWQ with zero points. See `exchange` for the command line.

Methods: "gptq" and "awq" ("-sym": without zero points), else at their defaults. The model is in float32, so
the scales are too; they are counted at 16 bits.
"""

import torch
from compressed_tensors.quantization import (  # pyright: ignore[reportMissingImports]
    QuantizationArgs,
    QuantizationScheme,
    QuantizationStrategy,
)
from compressed_tensors.quantization.lifecycle.forward import (  # pyright: ignore[reportMissingImports]
    fake_quantize,
)
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from llmcompressor import oneshot  # pyright: ignore[reportMissingImports]
from llmcompressor.modifiers.gptq import GPTQModifier  # pyright: ignore[reportMissingImports]
from llmcompressor.modifiers.quantization import (  # pyright: ignore[reportMissingImports]
    QuantizationModifier,
)
from llmcompressor.modifiers.transform.awq import AWQModifier  # pyright: ignore[reportMissingImports]
from transformers import AutoModelForCausalLM

from benchmarks.peers.exchange import Quantised, Task, run

HEADS = ["lm_head", "embed_out"]


def quantise(task: Task) -> Quantised:
    model = AutoModelForCausalLM.from_pretrained(task.model, dtype=torch.float32)
    ids = task.ids_NL.tolist()
    passages, length = task.ids_NL.shape
    oneshot(
        model=model,
        dataset=Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * length] * passages}),
        recipe=_recipe(task),
        max_seq_length=length,
        num_calibration_samples=passages,
    )
    return _read(model, symmetric=task.method.endswith("-sym"), bits=task.bits)


def _recipe(task: Task) -> list:
    args = QuantizationArgs(
        num_bits=task.bits,
        symmetric=task.method.endswith("-sym"),
        strategy=QuantizationStrategy.GROUP,
        group_size=task.group,
    )
    groups = {"all": QuantizationScheme(targets=["Linear"], weights=args)}
    if task.method.startswith("gptq"):
        return [GPTQModifier(config_groups=groups, ignore=HEADS)]
    return [AWQModifier(), QuantizationModifier(config_groups=groups, ignore=HEADS)]


def _read(model: torch.nn.Module, symmetric: bool, bits: int) -> Quantised:
    """Every parameter as it is after the run, packed ones through their own grid."""
    weights = {name: tensor for name, tensor in model.state_dict().items() if _is_original(name)}
    packed = []
    for name, module in model.named_modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None or scheme.weights is None or not hasattr(module, "weight_scale"):
            continue
        packed.append(f"{name}.weight")
        weights[packed[-1]] = fake_quantize(
            x=module.weight,
            scale=module.weight_scale,
            zero_point=module.weight_zero_point,
            args=scheme.weights,
            g_idx=getattr(module, "weight_g_idx", None),
        )
    if getattr(model.config, "tie_word_embeddings", False):
        weights.pop("lm_head.weight", None)
    return Quantised(weights, packed, 0 if symmetric else bits)


def _is_original(name: str) -> bool:
    return not name.endswith(("_scale", "_zero_point", "_g_idx", "_global_scale", "_shape"))


if __name__ == "__main__":
    run(quantise, "llmcompressor", "compressed-tensors", "transformers")
