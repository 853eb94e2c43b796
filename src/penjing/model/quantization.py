"""The `quantization_config` of a saved model: which module is packed how, under a format version."""

from collections.abc import Mapping
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.packed.specs import PackedSpec, spec_from_json

FORMAT_KEY = "quantization_config"
FORMAT_VERSION = 1


def write_quantization(packed: Mapping[str, PackedSpec]) -> dict[str, Any]:
    """The object for `config.json`."""
    modules = {name: spec.to_json() for name, spec in sorted(packed.items())}
    return {"quant_method": "penjing", "format_version": FORMAT_VERSION, "modules": modules}


def read_quantization(hf_config: Mapping[str, Any], source: str) -> dict[str, PackedSpec]:
    """Module names and their layouts; empty for a float model. Other tools' formats are refused by name."""
    entry = hf_config.get(FORMAT_KEY)
    if entry is None:
        return {}
    if not isinstance(entry, Mapping):
        raise InputError(f"{source}: {FORMAT_KEY} must be an object")
    method = entry.get("quant_method")
    if method != "penjing":
        raise UnsupportedError(
            f"{source}: weights quantised by {method!r} cannot be opened yet; use the 16-bit original"
        )
    version = entry.get("format_version")
    if version != FORMAT_VERSION:
        raise UnsupportedError(
            f"{source}: format version {version!r} of the quantised weights is not known here"
            f" (known: {FORMAT_VERSION}); a newer penjing may have written them"
        )
    unknown = sorted(set(entry) - {"quant_method", "format_version", "modules"})
    if unknown or not isinstance(entry.get("modules"), Mapping):
        raise InputError(f"{source}: {FORMAT_KEY} is malformed ({', '.join(unknown) or 'no modules'})")
    return {name: spec_from_json(spec) for name, spec in entry["modules"].items()}
