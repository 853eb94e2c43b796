"""The same GGUF files in penjing and in llama.cpp: how far apart their next-token distributions are.

llama.cpp rounds activations to 8 bits where weights are quantised, so its answers to such a file differ from
exact arithmetic; the rows "unpacked" give it the same weights as floats and show how much of the difference
that is.

Usage: python -m benchmarks.same_file --python ENV/bin/python [FILE.gguf ...] [--into docs/benchmarks.md]
where ENV has llama-cpp-python.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

import penjing
from benchmarks import tables
from benchmarks.smollm2 import gguf_path
from benchmarks.twin import write_twin
from penjing.api import Model
from penjing.text.documents import builtin_documents

TOKENS = 512
PEER = Path(__file__).with_name("same_file_peer.py")

Row = tuple[str, str, str, str]


def ours(model: Model, ids: list[int]) -> np.ndarray:
    """Log-probabilities (T, V), float32."""
    with torch.inference_mode():
        logits = model.module(torch.tensor([ids]), torch.arange(len(ids)).unsqueeze(0))[0]
        return logits.log_softmax(-1).numpy()


def theirs(python: str, file: Path, ids: list[int], work: Path) -> np.ndarray:
    np.save(work / "ids.npy", np.array(ids))
    command = [python, str(PEER), str(file), str(work / "ids.npy"), str(work / "out.npy")]
    subprocess.run(command, check=True)
    return np.load(work / "out.npy")


def row(label: str, first: np.ndarray, second: np.ndarray) -> Row:
    """KL in nats a token, and how often both rank the same token first."""
    exact, other = first.astype(np.float64), second.astype(np.float64)
    divergence = (np.exp(exact) * (exact - other)).sum(axis=1)
    agreement = (exact.argmax(axis=1) == other.argmax(axis=1)).mean()
    return label, f"{divergence.mean():.2g}", f"{divergence.max():.2g}", f"{agreement:.1%}"


def compare(python: str, file: Path, work: Path) -> list[Row]:
    """One file as it is, and its weights as floats."""
    model = penjing.load(file)
    text = "\n".join(builtin_documents())
    ids = model.tokenizer.prompt_ids(text)[:TOKENS]
    exact = ours(model, ids)
    rows = [row(file.name, exact, theirs(python, file, ids, work))]
    if any(kind not in ("float32", "float16", "bfloat16") for kind in model.stored.bytes_by_kind()):
        unpacked = work / "unpacked.gguf"
        model.cast(torch.float32).save_gguf(unpacked)
        rows.append(row(f"{file.name}, unpacked", exact, theirs(python, unpacked, ids, work)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold penjing's logits against llama.cpp's.")
    parser.add_argument("files", nargs="*", type=Path, help="default: the demo's model, and its twin in f32")
    parser.add_argument("--python", required=True, help="a Python with llama-cpp-python")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        work, files = Path(folder), list(args.files)
        if not files:
            write_twin(gguf_path(), work / "twin")
            penjing.load(work / "twin").cast(torch.float32).save_gguf(work / "twin-f32.gguf")
            files = [gguf_path(), work / "twin-f32.gguf"]
        rows = [found for file in files for found in compare(args.python, file, work)]
    table = tables.markdown(("file", "mean KL", "largest KL", "same first token"), rows)
    text = f"{table}\n\n{TOKENS} tokens of Python's documentation. {tables.machine('penjing', 'torch')}"
    print(text)
    if args.into:
        tables.put(args.into, "llama_cpp", text)


if __name__ == "__main__":
    main()
