"""The layouts that penjing itself stores, by the name that a saved model's `quantization_config` uses: a new
one is one more entry here, and one in `schemes`."""

from collections.abc import Mapping
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.packed.affine_spec import AffineSpec

OwnSpec = AffineSpec

_SCHEMES = {AffineSpec.scheme: AffineSpec}


def spec_from_json(entry: Mapping[str, Any]) -> OwnSpec:
    """Read what `OwnSpec.to_json` wrote; an unknown scheme or field is refused by name."""
    if not isinstance(entry, Mapping):
        raise InputError(f"the layout of packed weights must be an object, not {entry!r}")
    fields = dict(entry)
    scheme = fields.pop("scheme", None)
    if scheme not in _SCHEMES:
        known = ", ".join(_SCHEMES)
        raise UnsupportedError(
            f"weights of scheme {scheme!r} are not known here (known: {known});"
            " a newer penjing may have written them"
        )
    try:
        return _SCHEMES[scheme](**fields)
    except TypeError as error:
        raise UnsupportedError(
            f"the {scheme} weights carry fields that are not known here: {error}"
        ) from None
