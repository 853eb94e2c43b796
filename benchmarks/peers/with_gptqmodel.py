"""GPTQModel: GPTQ and GPTAQ with zero points. See `exchange` for the command line.

Methods: "gptq" and "gptaq" ("-sym": without zero points), else at their defaults. The weights are read back
from the packed layers.
"""

import tempfile

import torch
from gptqmodel import BACKEND, GPTQModel, QuantizeConfig  # pyright: ignore[reportMissingImports]
from gptqmodel.quantization.config import GPTAQConfig  # pyright: ignore[reportMissingImports]

from benchmarks.peers.exchange import Quantised, Task, run


def quantise(task: Task) -> Quantised:
    symmetric = task.method.endswith("-sym")
    config = QuantizeConfig(
        bits=task.bits,
        group_size=task.group,
        sym=symmetric,
        gptaq=GPTAQConfig() if task.method.startswith("gptaq") else None,
        device="cpu",
    )
    model = GPTQModel.load(str(task.model), config, dtype=torch.float32)
    passages = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in task.ids_NL.tolist()]
    model.quantize(passages, batch_size=1)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        packed = GPTQModel.load(folder, backend=BACKEND.GPTQ_TORCH, device="cpu", dtype=torch.float32)
    weights = {
        f"{name}.weight": module.dequantize_weight().T.float()
        for name, module in packed.model.named_modules()
        if hasattr(module, "qweight")
    }
    return Quantised(weights, list(weights), 0 if symmetric else task.bits)


if __name__ == "__main__":
    run(quantise, "gptqmodel", "transformers")
