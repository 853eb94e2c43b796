"""What every peer is given and hands back; runs in the peer's environment, with torch and safetensors alone.

    python -m benchmarks.peers.with_NAME MODEL IDS.npy OUT SETTINGS

MODEL is a folder in the Hugging Face layout with one model.safetensors, IDS.npy holds calibration passages
(N, L) int64, SETTINGS is JSON. OUT becomes a folder with the dequantised weights in float32 and peer.json:
the bytes that the peer's own format takes, and the seconds of processor time.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

WEIGHTS = "model.safetensors"
KEPT_BYTES = 2  # of a weight that isn't quantised
SCALE_BITS = 16


@dataclass(frozen=True)
class Task:
    """One run: `bits` a code and weights a `group`, and what else a peer's method needs."""

    model: Path
    ids_NL: torch.Tensor
    method: str
    bits: int
    group: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Quantised:
    """Tensors that differ from the original's, by their names in its file, dequantised. `packed` are the
    names of those that are stored as codes, with `zero_bits` a group for a zero point."""

    weights: Mapping[str, torch.Tensor]
    packed: Sequence[str]
    zero_bits: int


def run(quantise: Callable[[Task], Quantised], *packages: str) -> None:
    """Run a peer as the command line says, and note the versions of `packages`."""
    parser = argparse.ArgumentParser(description="Quantise a model with a peer.")
    parser.add_argument("model", type=Path)
    parser.add_argument("ids", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("settings", type=json.loads)
    args = parser.parse_args()
    settings = dict(args.settings)
    ids_NL = torch.from_numpy(np.load(args.ids))
    started = time.process_time()
    task = Task(
        args.model, ids_NL, settings.pop("method"), settings.pop("bits"), settings.pop("group"), settings
    )
    found = quantise(task)
    seconds = time.process_time() - started
    nbytes = write_folder(task, found, args.out)
    made = {
        "bytes": nbytes,
        "seconds": seconds,
        "versions": {package: version(package) for package in ("torch", *packages)},
    }
    write_json(args.out / "peer.json", made)


def write_folder(task: Task, found: Quantised, out: Path) -> int:
    """Write the original's folder to `out` with other weights; returns the bytes that the peer's format
    would take."""
    out.mkdir(parents=True, exist_ok=True)
    for file in task.model.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy(file, out / file.name)
    unused = dict(found.weights)
    tensors = {}
    with safe_open(task.model / WEIGHTS, "pt") as original:
        for name in original.keys():  # noqa: SIM118 (it isn't a dictionary)
            before = original.get_tensor(name)
            after = unused.pop(name, before)
            if after.shape != before.shape:
                raise ValueError(f"{name} has shape {tuple(after.shape)}, the original {tuple(before.shape)}")
            tensors[name] = after.detach().to(torch.float32).contiguous().clone()
    if unused:
        raise ValueError(f"the original has no tensors {sorted(unused)[:3]}")
    save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
    return stored_bytes({name: tensor.numel() for name, tensor in tensors.items()}, found, task)


def stored_bytes(sizes: Mapping[str, int], found: Quantised, task: Task) -> int:
    """Codes without gaps, a 16-bit scale and a zero point a group; 16 bits for each weight that isn't packed.

    What formats hold beside that (column orders, shapes) isn't counted, to a peer's good.
    """
    bits = 0
    for name, size in sizes.items():
        if name in found.packed:
            bits += size * task.bits + size // task.group * (SCALE_BITS + found.zero_bits)
        else:
            bits += size * 8 * KEPT_BYTES
    return bits // 8


def write_json(file: Path, value: Any) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    partial.replace(file)
