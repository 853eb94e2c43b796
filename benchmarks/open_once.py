"""Open a model once in a fresh process and print what it took, as JSON. Linux only.

Usage: python -m benchmarks.open_once {penjing|transformers} MODEL
"""

import json
import sys
import time
from pathlib import Path

import torch


def open_with_penjing(path: Path) -> int:
    """Float bytes of the opened model."""
    import penjing

    return _float_bytes(penjing.load(path).module)


def open_with_transformers(path: Path) -> int:
    """Float bytes of the opened model; it is opened in float32 like penjing's, tokenizer included."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, options = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
    AutoTokenizer.from_pretrained(place, **options)
    return _float_bytes(AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, **options))


def warm(library: str) -> None:
    """Import what the library would otherwise import on first use, for only opening is to be timed."""
    if library == "penjing":
        import penjing.api  # noqa: F401
    else:
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401


def _float_bytes(module: torch.nn.Module) -> int:
    return 4 * sum(parameter.numel() for parameter in module.parameters())


def _status(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    library, path = sys.argv[1], Path(sys.argv[2])
    began = time.monotonic()
    warm(library)
    ready, before = time.monotonic(), _status("VmRSS")
    float_bytes = {"penjing": open_with_penjing, "transformers": open_with_transformers}[library](path)
    figures = {
        "import_seconds": ready - began,
        "open_seconds": time.monotonic() - ready,
        "peak_bytes": _status("VmHWM") - before,
        "float_bytes": float_bytes,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
