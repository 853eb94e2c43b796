"""What shrinking a module returns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from penjing.evaluate.result import Interval
from penjing.model.module_file import module_bytes, save_module
from penjing.model.packed_parameter import packed_parameters


@dataclass(frozen=True)
class ModuleTrial:
    """One size that was built, and what it kept on the named split ("search" or "report")."""

    nbytes: int
    kept: Interval
    holds: bool | None
    split: str

    def to_json(self) -> dict[str, Any]:
        kept = self.kept.to_json()
        return {"bytes": self.nbytes, "kept": kept, "holds": self.holds, "split": self.split}


@dataclass(frozen=True)
class ModuleResult:
    """`module` is the shrunk copy, which shares with the original what isn't packed. `kept` is the share
    kept by `metric`, on calibration data that nothing was tuned or chosen on; `holds` is None when no share
    was asked for. `left_out` names the matrices that can't be packed."""

    module: nn.Module
    base_bytes: int
    metric: str
    kept: Interval
    holds: bool | None
    trials: tuple[ModuleTrial, ...]
    left_out: tuple[str, ...]
    seconds: float
    notices: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return module_bytes(self.module)

    @property
    def ratio(self) -> float:
        return self.nbytes / self.base_bytes

    @property
    def layouts(self) -> dict[str, str]:
        """How each packed parameter is stored."""
        return {name: str(packed.spec) for name, packed in packed_parameters(self.module).items()}

    def save(self, out: str | Path) -> int:
        """Write a folder that `penjing.load_module` reads; returns the bytes of its tensors."""
        return save_module(self.module, out)

    def keep_float(self, keep: bool = True) -> None:
        """Hold packed weights unpacked as well: faster, for the memory of the original."""
        for packed in packed_parameters(self.module).values():
            packed.keep_float(keep)

    def to_json(self) -> dict[str, Any]:
        """Everything but the weights."""
        return {
            "bytes": self.nbytes,
            "base_bytes": self.base_bytes,
            "ratio": self.ratio,
            "metric": self.metric,
            "kept": self.kept.to_json(),
            "holds": self.holds,
            "layouts": self.layouts,
            "left_out": list(self.left_out),
            "tried": [trial.to_json() for trial in self.trials],
            "seconds": self.seconds,
            "notices": list(self.notices),
        }
