"""torchao: rounding to nearest and HQQ, which need no calibration. See `exchange` for the command line.

Methods: "rtn" and "rtn-sym" are `IntxWeightOnlyConfig` with and without zero points; "hqq" is torchao's
half-quadratic solver with zero points, as its 4-bit GPU layout uses it; "hqq-scale" is the variant that
`IntxWeightOnlyConfig` offers on any device.
"""

import torch
from torchao.quantization import (  # pyright: ignore[reportMissingImports]
    IntxWeightOnlyConfig,
    MappingType,
    PerGroup,
    quantize_,
)
from torchao.quantization.quant_primitives import (  # pyright: ignore[reportMissingImports]
    _choose_qparams_and_quantize_affine_hqq,
)
from torchao.quantization.quantize_.workflows import (  # pyright: ignore[reportMissingImports]
    IntxChooseQParamsAlgorithm,
)
from transformers import AutoModelForCausalLM

from benchmarks.peers.exchange import Quantised, Task, run

INT8_ZERO, FLOAT_ZERO = 8, 16  # bits of a zero point


def quantise(task: Task) -> Quantised:
    model = AutoModelForCausalLM.from_pretrained(task.model, dtype=torch.float32)
    linears = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name not in ("lm_head", "embed_out")
    }
    if task.method == "hqq":
        weights = {f"{name}.weight": _hqq(linear.weight.detach(), task) for name, linear in linears.items()}
        return Quantised(weights, list(weights), FLOAT_ZERO)
    quantize_(model, _config(task), lambda _, name: name in linears)
    weights = {f"{name}.weight": linear.weight.dequantize() for name, linear in linears.items()}
    return Quantised(weights, list(weights), INT8_ZERO if task.method == "rtn" else 0)


def _config(task: Task) -> IntxWeightOnlyConfig:
    algorithms = IntxChooseQParamsAlgorithm
    scale_only = task.method == "hqq-scale"
    return IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{task.bits}"),
        granularity=PerGroup(task.group),
        mapping_type=MappingType.ASYMMETRIC if task.method == "rtn" else MappingType.SYMMETRIC,
        intx_choose_qparams_algorithm=algorithms.HQQ_SCALE_ONLY if scale_only else algorithms.AFFINE,
    )


def _hqq(weight_RC: torch.Tensor, task: Task) -> torch.Tensor:
    """Codes, scales and zero points in the layout of the HQQ library, multiplied out."""
    codes, scale, zero, shape = _choose_qparams_and_quantize_affine_hqq(
        weight_RC, task.bits, task.group, compute_dtype=torch.float32, device="cpu", raw_output=True
    )
    grouped = codes.reshape(-1, task.group).float()
    return ((grouped - zero.reshape(-1, 1)) * scale.reshape(-1, 1)).reshape(shape)


if __name__ == "__main__":
    run(quantise, "torchao", "transformers")
