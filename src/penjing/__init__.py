"""penjing: take a real language model, make it a fraction of its size, prove what it kept, and talk to it.

import penjing
model = penjing.load("path/to/model")
small = penjing.shrink(model, to="1/4")
"""

from importlib import import_module
from typing import Any

from penjing.errors import InputError, PenjingError, ResourceError, UnsupportedError

__version__ = "0.1.0"

# torch is imported only when one of these is first used.
_LAZY = {
    "Model": "penjing.api",
    "load": "penjing.api",
    "compare": "penjing.api",
    "shrink": "penjing.shrink.shrink",
    "SamplingParams": "penjing.engine.params",
}

__all__ = ["InputError", "PenjingError", "ResourceError", "UnsupportedError", "__version__", *sorted(_LAZY)]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'penjing' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
