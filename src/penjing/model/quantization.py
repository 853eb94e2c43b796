"""The `quantization_config` of a saved model: which module is packed how. penjing's own has a format
version; those of other tools are read by `quantizers`."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.model.foreign import ForeignConfig
from penjing.model.quantizers.awq import read_awq
from penjing.model.quantizers.compressed_tensors import read_compressed_tensors, write_compressed_tensors
from penjing.model.quantizers.fp8 import read_fp8
from penjing.model.quantizers.gptq import read_gptq, write_gptq
from penjing.model.quantizers.mxfp4 import read_mxfp4
from penjing.model.quantizers.reading import Matrices, Quantization, Stored
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.parts import PackedSpec
from penjing.packed.specs import OwnSpec, spec_from_json

FORMAT_KEY = "quantization_config"
FORMAT_VERSION = 1

_READERS: Mapping[str, Callable[[ForeignConfig, Matrices, Stored], Quantization]] = {
    "awq": read_awq,
    "compressed-tensors": read_compressed_tensors,
    "fp8": read_fp8,
    "gptq": read_gptq,
    "mxfp4": read_mxfp4,
}


def write_quantization(
    packed: Mapping[str, PackedSpec],
    original: Mapping[str, Any] | None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    floats: Collection[str] = (),
) -> dict[str, Any]:
    """The object for `config.json`. Matrices in another tool's layout are saved as they came, so `original`,
    the object that came with them, still describes them; those that were rounded to such a layout here get
    one, which names the linear layers that stayed `floats`. `parameters` describes packed parameters of a
    model that runs through transformers, by their names there."""
    if parameters:
        return {"quant_method": "penjing", "format_version": FORMAT_VERSION, "parameters": dict(parameters)}
    own = {name: spec for name, spec in sorted(packed.items()) if isinstance(spec, OwnSpec)}
    if not own and original is not None:
        return dict(original)
    if all(isinstance(spec, GptqSpec) for spec in packed.values()):
        return write_gptq({name: spec for name, spec in packed.items() if isinstance(spec, GptqSpec)})
    if all(isinstance(spec, PackQuantizedSpec) for spec in packed.values()):
        rounded = {name: spec for name, spec in packed.items() if isinstance(spec, PackQuantizedSpec)}
        return write_compressed_tensors(rounded, floats)
    if len(own) < len(packed):
        raise UnsupportedError(
            "matrices in another tool's layout can't be saved beside penjing's; save all as floats (--dtype)"
        )
    modules = {name: spec.to_json() for name, spec in own.items()}
    return {"quant_method": "penjing", "format_version": FORMAT_VERSION, "modules": modules}


def is_own_format(hf_config: Mapping[str, Any]) -> bool:
    """Whether penjing quantised the model."""
    entry = hf_config.get(FORMAT_KEY)
    return isinstance(entry, Mapping) and entry.get("quant_method") == "penjing"


def read_quantization(
    hf_config: Mapping[str, Any], source: str, matrices: Matrices, stored: Stored
) -> Quantization:
    """How the model is quantised; nothing is packed in a float model.

    `matrices` are the model's modules that have a matrix, with its (rows, columns); `stored` are the tensors
    of the checkpoint under the module's names. Formats and settings that aren't known are refused by name, as
    are fp8 weights that no config explains.
    """
    entry = hf_config.get(FORMAT_KEY)
    if entry is not None and not isinstance(entry, Mapping):
        raise InputError(f"{source}: {FORMAT_KEY} must be an object")
    if entry is None:
        found = Quantization({})
    elif is_own_format(hf_config):
        found = Quantization(_read_own(entry, source))
    else:
        found = _read_foreign(entry, source, matrices, stored)
    _refuse_unscaled(source, stored, found)
    return found


def read_own_parameters(entry: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """The descriptions of packed parameters that `write_quantization` was given."""
    return _own_entries(entry, source, "parameters")


def _read_own(entry: Mapping[str, Any], source: str) -> dict[str, PackedSpec]:
    return {name: spec_from_json(spec) for name, spec in _own_entries(entry, source, "modules").items()}


def _own_entries(entry: Mapping[str, Any], source: str, key: str) -> Mapping[str, Any]:
    version = entry.get("format_version")
    if version != FORMAT_VERSION:
        raise UnsupportedError(
            f"{source}: format version {version!r} of the quantised weights is not known here"
            f" (known: {FORMAT_VERSION}); a newer penjing may have written them"
        )
    unknown = sorted(set(entry) - {"quant_method", "format_version", key})
    if unknown or not isinstance(entry.get(key), Mapping):
        raise InputError(f"{source}: {FORMAT_KEY} is malformed ({', '.join(unknown) or f'no {key}'})")
    return entry[key]


def _read_foreign(entry: Mapping[str, Any], source: str, matrices: Matrices, stored: Stored) -> Quantization:
    method = entry.get("quant_method")
    if not isinstance(method, str) or method not in _READERS:
        raise UnsupportedError(
            f"{source}: weights quantised by {method!r} cannot be opened; use the 16-bit original, or one in"
            f" a format that is known here ({', '.join(_READERS)})"
        )
    found = _READERS[method](ForeignConfig(entry, f"{source}: {FORMAT_KEY}"), matrices, stored)
    if not found.packed:
        raise InputError(
            f"{source}: the config says that the weights are quantised by {method!r}, but no matrix is stored"
            f" so; remove {FORMAT_KEY} if all are floats"
        )
    forms = ", ".join(sorted({str(spec) for spec in found.packed.values()}))
    notice = (
        f"{len(found.packed)} matrices are held as they are stored ({forms});"
        " products are computed in float32 from weights that are unpacked on the way"
    )
    return Quantization(found.packed, found.left_out, (notice, *found.notices))


def _refuse_unscaled(source: str, stored: Stored, found: Quantization) -> None:
    """fp8 numbers mean nothing without their scales."""
    for name, info in stored.items():
        module = name.rpartition(".")[0]
        if info.dtype.startswith("float8") and module not in found.packed and name not in found.left_out:
            raise UnsupportedError(
                f"{source}: {name} is {info.dtype}, and nothing tells its scale; use the 16-bit original"
            )
