"""The cells of the comparison with other quantisers: one model made small in one way, then judged.

Each cell has a folder. `made.json` beside the small model says how it was made, `judged.json` what it kept; a
cell with both, made and judged with the same settings, is not run again. What a peer makes depends on its
runner and the calibration text; what penjing makes, on its code too. The code that reads and runs models
isn't part of that: tests hold it to be right.
"""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

import penjing
from benchmarks import quality, small_models
from benchmarks.importance import importance
from penjing.api import Model
from penjing.evaluate.compare import compare
from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.builder import make_builder
from penjing.shrink.effort import find_effort
from penjing.shrink.shrink import builtin_texts
from penjing.text.splits import make_splits

OURS, LLAMA_CPP = "penjing", "llama_cpp"
TWIN = "twin"
ROOT = Path(__file__).parent.parent

Json = dict[str, Any]


class PeerError(Exception):
    """A peer's run ended with an error; the message says where its output is."""


@dataclass(frozen=True)
class Cell:
    """`model` made small by `peer` with its `method`; llama.cpp's presets have no `bits` and `group`."""

    model: str
    peer: str
    method: str
    bits: int = 0
    group: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        grid = f"/{self.bits}-bit-g{self.group}" if self.bits else ""
        options = "".join(f"/{key}={value}" for key, value in self.options)
        return f"{self.model}/{self.peer}/{self.method}{grid}{options}"

    def settings(self) -> Json:
        """As a runner takes them."""
        return {"method": self.method, "bits": self.bits, "group": self.group} | dict(self.options)


@dataclass(frozen=True)
class Bench:
    """Where things are and how much is judged. `models` are folders by name; a model that isn't the twin was
    trained on the texts and is judged on what was held out."""

    work: Path
    envs: Path
    texts: Path
    models: Mapping[str, Path]
    tokens: int = 32_768
    seed: int = 0
    effort: str = "default"

    def measure(self, cell: Cell) -> Json:
        """The cell's figures, from its folder or measured now. Raises `PeerError`."""
        folder = self.work / cell.name.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        made = remembered(folder / "made.json", self._making(cell), lambda: self._make(cell, folder))
        stamp = {"made": made, "tokens": self.tokens, "seed": self.seed, "judge": digest(_judge_code())}
        return remembered(folder / "judged.json", stamp, lambda: self._judge(cell, folder))

    def _making(self, cell: Cell) -> Json:
        code = _our_code() if cell.peer == OURS else [ROOT / "benchmarks/peers" / f"with_{cell.peer}.py"]
        calibration = digest([self._subject(cell.model).ids_file])
        return {"cell": asdict(cell) | {"options": dict(cell.options)}, "code": digest(code)} | {
            "calibration": calibration
        }

    def _make(self, cell: Cell, folder: Path) -> Json:
        subject = self._subject(cell.model)
        if cell.peer == OURS:
            return make_ours(subject, cell, folder / "small")
        if cell.peer == LLAMA_CPP:
            return self._run_llama_cpp(subject, cell, folder)
        return self._run(cell, folder, subject.folder, subject.ids_file)

    def _run_llama_cpp(self, subject: "Subject", cell: Cell, folder: Path) -> Json:
        made = self._run(cell, folder, subject.gguf_file, subject.importance_file)
        return {"bytes": penjing.load(folder / "small/model.gguf").stored.nbytes} | made

    def _run(self, cell: Cell, folder: Path, model: Path, data: Path) -> Json:
        """Run the peer in its own environment; its output goes to a log."""
        python, log, out = self.envs / cell.peer / "bin/python", folder / "log.txt", folder / "small"
        settings = json.dumps(cell.settings())
        command = [python, "-m", f"benchmarks.peers.with_{cell.peer}", model, data, out, settings]
        with log.open("w", encoding="utf-8") as output:
            status = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, env=_environment())
        if status.returncode:
            raise PeerError(f"{cell.name} failed; its output is in {log}")
        return json.loads((out / "peer.json").read_text(encoding="utf-8"))

    def _judge(self, cell: Cell, folder: Path) -> Json:
        subject, small = self._subject(cell.model), folder / "small"
        shrunk = penjing.load(small / "model.gguf" if cell.peer == LLAMA_CPP else small)
        shrunk.keep_float()
        result = compare(
            subject.original_running,
            shrunk.module,
            subject.original.tokenizer,
            subject.documents,
            tokens=self.tokens,
            choice_items=0,
            seed=self.seed,
        )
        return {"figures": quality.figures(result), "base_bytes": subject.original.base_bytes}

    def _subject(self, model: str) -> "Subject":
        return subject_of(model, self.models[model], self.texts, self.work, self.effort, self.seed)


@cache
def subject_of(name: str, folder: Path, texts: Path, work: Path, effort: str, seed: int) -> "Subject":
    return Subject(name, folder, texts, work, effort, seed)


@dataclass(frozen=True)
class Subject:
    """A model to make small, the text to calibrate on and the text to judge on."""

    name: str
    folder: Path
    texts: Path
    work: Path
    effort: str
    seed: int

    @cached_property
    def original(self) -> Model:
        return penjing.load(self.folder)

    @cached_property
    def original_running(self) -> Any:
        return Remembering(self.original.module)

    @cached_property
    def documents(self) -> dict[str, list[str]]:
        documents = quality.documents(self.texts)
        if self.name == TWIN:
            return documents
        return {name: small_models.held_out_documents(text) for name, text in documents.items()}

    @cached_property
    def builder(self):
        splits = make_splits(builtin_texts(), seed=self.seed)
        return make_builder(self.original, splits.tune, find_effort(self.effort), self.seed)

    @cached_property
    def ids_file(self) -> Path:
        """The calibration passages (N, L), int64, that all peers and penjing get."""
        file = self.work / f"{self.name}-ids.npy"
        np.save(file, self.builder.ids_NL.numpy())
        return file

    @cached_property
    def gguf_file(self) -> Path:
        """The original as llama.cpp takes it."""
        file = self.work / f"{self.name}.gguf"
        self.original.save_gguf(file)
        return file

    @cached_property
    def importance_file(self) -> Path:
        file = self.work / f"{self.name}-importance.npz"
        np.savez(file, **importance(self.original, self.builder.ids_NL))  # pyright: ignore[reportArgumentType]
        return file


class Remembering:
    """A model that keeps the hidden states of passages it ran, so that judging a second one costs half."""

    def __init__(self, module) -> None:
        self._module = module
        self._known: dict[tuple[int, ...], torch.Tensor] = {}
        self.config = module.config
        self.parameters, self.buffers, self.head = module.parameters, module.buffers, module.head
        self.new_cache = module.new_cache

    def hidden(self, input_ids: torch.Tensor, positions: torch.Tensor, layout=None, cache=None):
        if cache is not None:
            return self._module.hidden(input_ids, positions, layout, cache)
        key = tuple(input_ids.flatten().tolist())
        if key not in self._known:
            self._known[key] = self._module.hidden(input_ids, positions, layout)
        return self._known[key]


def make_ours(subject: Subject, cell: Cell, out: Path) -> Json:
    """The same grid for every linear layer of the blocks, embedding and head untouched, nothing healed."""
    started = time.process_time()
    spec = AffineSpec(cell.bits, cell.group)
    original, rounder = subject.original, subject.builder.rounder
    names = [matrix.name for matrix in rounder.matrices if matrix.role == "linear"]
    nbytes = replace(original, module=rounder.round(dict.fromkeys(names, spec))).save(out)
    return {"bytes": nbytes, "seconds": time.process_time() - started, "versions": {}}


def remembered(file: Path, stamp: Json, make: Callable[[], Json]) -> Json:
    """What `make` gives, kept in `file`; made again when `stamp` has changed."""
    if file.exists():
        known = json.loads(file.read_text(encoding="utf-8"))
        if known["stamp"] == json.loads(json.dumps(stamp)):
            return known
    found = {"stamp": stamp} | make()
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    partial.replace(file)
    return found


def digest(files: Sequence[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _our_code() -> list[Path]:
    root = Path(penjing.__file__).parent
    folders = (root / name for name in ("packed", "shrink"))
    return [f for folder in folders for f in sorted(folder.rglob("*.py")) if "report" not in f.parts]


def _judge_code() -> list[Path]:
    return sorted((Path(penjing.__file__).parent / "evaluate").glob("*.py"))


def _environment() -> dict[str, str]:
    """A peer's: without our packages, and quiet."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return kept | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
