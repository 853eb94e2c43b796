"""`penjing.shrink`: a language model by its texts, any other module by its calibration data."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from torch import nn

from penjing.api import Model
from penjing.errors import InputError
from penjing.model.opening import OpenedModel
from penjing.shrink.modules.result import ModuleResult
from penjing.shrink.modules.shrink import shrink_module
from penjing.shrink.result import ShrinkResult
from penjing.shrink.shrink import shrink as shrink_model


@overload
def shrink(model: Model | OpenedModel | str | Path, **options: Any) -> ShrinkResult: ...
@overload
def shrink(model: nn.Module, calibration: Iterable[Any], **options: Any) -> ModuleResult: ...
def shrink(model: Any, calibration: Iterable[Any] | None = None, **options: Any) -> Any:
    """Make a model smaller and measure what it kept.

    A `Model`, or what `penjing.load` opens, is shrunk by `shrink.shrink.shrink`, on `texts`; any
    `torch.nn.Module` by `shrink.modules.shrink.shrink_module`, on `calibration` data. Both take `to` and
    `keep`; see there for the other options and the errors.
    """
    if isinstance(model, nn.Module):
        if calibration is None:
            raise InputError("to shrink a module, give calibration data: inputs to call it with")
        return shrink_module(model, calibration, **options)
    if calibration is not None:
        raise InputError("a language model is calibrated on documents; give them as texts={name: documents}")
    return shrink_model(model, **options)
