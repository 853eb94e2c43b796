"""penjing: take a real language model, make it a fraction of its size, prove what it kept, and talk to it.

import penjing

model = penjing.load("path/to/model")
small = penjing.shrink(model, to="1/4")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penjing.errors import InputError, PenjingError, ResourceError, UnsupportedError

if TYPE_CHECKING:
    from penjing.api import Model, compare, load
    from penjing.engine.params import SamplingParams
    from penjing.model.module_file import load_module
    from penjing.shrink.verb import shrink

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "Model",
    "PenjingError",
    "ResourceError",
    "SamplingParams",
    "UnsupportedError",
    "__version__",
    "compare",
    "load",
    "load_module",
    "shrink",
]

# torch is imported only when one of these is first used.
_LAZY = {
    "Model": "penjing.api",
    "load": "penjing.api",
    "compare": "penjing.api",
    "shrink": "penjing.shrink.verb",
    "load_module": "penjing.model.module_file",
    "SamplingParams": "penjing.engine.params",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'penjing' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
