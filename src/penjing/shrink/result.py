"""What shrinking returns: the model, what it kept, and everything that was tried on the way."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penjing.api import Model
from penjing.evaluate.result import EvalResult, Interval, Verdict
from penjing.formats.atomic import atomic_file
from penjing.model.ledger import Ledger


@dataclass(frozen=True)
class Trial:
    """One size that was built, and what it kept on the named split ("search" or "report")."""

    nbytes: int
    kl: float
    perplexity_kept: Interval
    choice_kept: Interval | None
    holds: bool | None
    split: str
    chosen: bool

    def to_json(self) -> dict[str, Any]:
        choice = None if self.choice_kept is None else self.choice_kept.to_json()
        kept = {"perplexity": self.perplexity_kept.to_json(), "choice": choice}
        return {
            "bytes": self.nbytes,
            "kl": self.kl,
            "kept": kept,
            "holds": self.holds,
            "split": self.split,
            "chosen": self.chosen,
        }


@dataclass(frozen=True)
class Answer:
    """One question, answered by both models with the same settings."""

    question: str
    original: str
    shrunk: str


@dataclass(frozen=True)
class Asked:
    """What the user asked for: bytes (None: as small as `keep` allows), the share to keep, the effort, and
    what the model is to be saved as."""

    nbytes: int | None
    keep: float | None
    effort: str
    seed: int
    form: str = "hf"


@dataclass(frozen=True)
class ShrinkResult:
    """`model` is the shrunk model; `report` was measured on text that nothing was tuned or chosen on.

    `predicted` is the size-quality curve by the predicted divergence (bytes, nats a token); `divergence` says
    how much of it each matrix causes; `verdict` is None when no share to keep was asked for.
    """

    model: Model
    original: Ledger
    original_name: str
    base_bytes: int
    asked: Asked
    report: EvalResult
    verdict: Verdict | None
    trials: tuple[Trial, ...]
    predicted: tuple[tuple[int, float], ...]
    divergence: Mapping[str, float]
    answers: tuple[Answer, ...]
    seconds: float
    notices: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return self.model.ledger.nbytes

    @property
    def ratio(self) -> float:
        return self.nbytes / self.base_bytes

    def to_json(self, out: str | Path | None = None) -> dict[str, Any]:
        """The stable keys of `penjing shrink --json`, and what was tried."""
        overall = self.report.overall.to_json()
        return {
            "out": None if out is None else str(out),
            "bytes": self.nbytes,
            "base_bytes": self.base_bytes,
            "ratio": self.ratio,
            "original_bytes": self.original.nbytes,
            "bits_per_weight": self.model.ledger.bits_per_weight,
            "kept": overall["kept"],
            "kl": overall["kl"],
            "agreement": overall["agreement"],
            "holds": None if self.verdict is None else self.verdict.holds,
            "reason": None if self.verdict is None else self.verdict.reason,
            "seconds": self.seconds,
            "texts": self.report.to_json()["texts"],
            "tried": [trial.to_json() for trial in self.trials],
            "notices": list(self.notices),
        }

    def save(self, out: str | Path) -> int:
        """Write the shrunk model with its report (see `report_path`) and a JSON file of all that was tried;
        returns the bytes of its tensors."""
        from penjing.shrink.report.page import render_report

        page = render_report(self, str(out))
        tried = json.dumps(self._lasting(), indent=2) + "\n"
        if self.asked.form == "gguf":
            written = self.model.save_gguf(out)
            for path, text in ((self.report_path(out), page), (Path(out).with_suffix(".json"), tried)):
                with atomic_file(path) as draft:
                    draft.write_text(text, encoding="utf-8")
            return written

        def extras(folder: Path) -> None:
            (folder / "report.html").write_text(page, encoding="utf-8")
            (folder / "shrink.json").write_text(tried, encoding="utf-8")

        return self.model.save(out, extras)

    def _lasting(self) -> dict[str, Any]:
        """What was tried and found, without what differs between two runs that do the same."""
        values = {key: value for key, value in self.to_json().items() if key not in ("out", "seconds")}
        layouts = {entry.name: entry.stored_as for entry in self.model.ledger.entries}
        return {**values, "predicted": self.predicted, "stored_as": layouts}

    def report_path(self, out: str | Path) -> Path:
        """Where the report is: in the folder, or beside the file."""
        return Path(out).with_suffix(".html") if self.asked.form == "gguf" else Path(out) / "report.html"
