"""llama.cpp's quantiser with an importance matrix; runs in an environment with llama-cpp-python.

    python -m benchmarks.peers.with_llama_cpp MODEL.gguf IMPORTANCE.npz OUT SETTINGS

IMPORTANCE.npz holds, by GGUF tensor, the mean square of each input over the calibration passages (C,)
float32, which is what the tool llama-imatrix gathers. SETTINGS is JSON: "method" is a preset such as Q4_K_M,
"importance" says whether the matrix is used. OUT gets model.gguf and peer.json.
"""

import argparse
import ctypes
import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llama_cpp as lib  # pyright: ignore[reportMissingImports]
import numpy as np


def quantise(source: Path, out: Path, preset: str, importance: dict[str, np.ndarray] | None) -> None:
    params = lib.llama_model_quantize_default_params()
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{preset}")
    params.nthread = int(os.environ.get("OMP_NUM_THREADS", "1"))
    if importance is not None:
        params.imatrix = _as_array(importance)
    if lib.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(params)):
        raise SystemExit(f"llama.cpp can't quantise {source} to {preset}")


def _as_array(importance: dict[str, np.ndarray]) -> Any:
    """The C array that ends with an entry without a name; it keeps the rows alive."""
    kind = lib.llama_model_imatrix_data
    entries = (kind * (len(importance) + 1))()
    entries.rows = [np.ascontiguousarray(row, dtype=np.float32) for row in importance.values()]
    for entry, name, row in zip(entries, importance, entries.rows, strict=False):
        entry.name = name.encode()
        entry.data = row.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = row.size
    return entries


def main() -> None:
    parser = argparse.ArgumentParser(description="Quantise a GGUF file with llama.cpp.")
    parser.add_argument("model", type=Path)
    parser.add_argument("importance", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("settings", type=json.loads)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    importance = dict(np.load(args.importance)) if args.settings["importance"] else None
    lib.llama_backend_init()
    started = time.process_time()
    quantise(args.model, args.out / "model.gguf", args.settings["method"], importance)
    made = {
        "seconds": time.process_time() - started,
        "versions": {"llama-cpp-python": version("llama-cpp-python")},
    }
    (args.out / "peer.json").write_text(json.dumps(made) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
