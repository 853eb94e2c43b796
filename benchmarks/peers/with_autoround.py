"""AutoRound: signed gradient descent on rounding and ranges, with zero points. See `exchange` for the command
line.

Methods: "autoround" at its defaults, "autoround-N" with N steps a block instead of 200.
"""

import torch
from auto_round import AutoRound  # pyright: ignore[reportMissingImports]
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.peers.exchange import Quantised, Task, run

DEFAULT_STEPS = 200


def quantise(task: Task) -> Quantised:
    _, _, steps = task.method.partition("-")
    passages, length = task.ids_NL.shape
    model = AutoModelForCausalLM.from_pretrained(task.model, dtype=torch.float32)
    rounding = AutoRound(
        model,
        tokenizer=AutoTokenizer.from_pretrained(task.model),
        scheme="W4A16",
        bits=task.bits,
        group_size=task.group,
        sym=False,
        iters=int(steps or DEFAULT_STEPS),
        dataset=torch.utils.data.DataLoader(task.ids_NL, batch_size=1),  # pyright: ignore[reportArgumentType]
        nsamples=passages,
        seqlen=length,
        device_map="cpu",
    )
    rounded, _ = rounding.quantize()
    weights = {
        f"{name}.weight": module.weight
        for name, module in rounded.named_modules()
        if isinstance(module, torch.nn.Linear) and hasattr(module, "scale")
    }
    return Quantised(weights, list(weights), task.bits)


if __name__ == "__main__":
    run(quantise, "auto-round", "transformers")
