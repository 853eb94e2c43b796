"""Reading what the user asks for: a size (`--to`) and a share to keep (`--keep`)."""

import re

from penjing.errors import InputError

_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9}


def parse_size(text: str, base_bytes: int, parameters: int) -> int:
    """Bytes meant by "1/4" or "0.4" (of `base_bytes`), "60MB" (10^6 bytes) or "4.0bpw" (bits a weight)."""
    cleaned = text.strip().lower().replace(" ", "")
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)", cleaned):
        return _share(text, _number(match[1]) / (_number(match[2]) or float("nan")), base_bytes)
    if match := re.fullmatch(r"(\d*\.?\d+)(kb|mb|gb)", cleaned):
        size = _number(match[1]) * _UNITS[match[2]]
    elif match := re.fullmatch(r"(\d*\.?\d+)bpw", cleaned):
        size = _number(match[1]) * parameters / 8
    elif match := re.fullmatch(r"(\d*\.?\d+)(%?)", cleaned):
        return _share(text, _number(match[1]) / (100 if match[2] else 1), base_bytes)
    else:
        raise InputError(f"the size {text!r} can't be read; write 1/4, 0.4, 60MB or 4.0bpw")
    if size < 1:
        raise InputError(f"the size {text!r} is nothing at all; write 1/4, 0.4, 60MB or 4.0bpw")
    return int(size)


def parse_share(text: str) -> float:
    """The share meant by "95%" or "0.95", above 0 and below 1."""
    match = re.fullmatch(r"(\d*\.?\d+)(%?)", text.strip())
    share = _number(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise InputError(f"the share to keep {text!r} can't be read; write 95% or 0.95 (above 0, below 100%)")
    return share


def _share(text: str, share: float, base_bytes: int) -> int:
    if not 0 < share <= 1:
        raise InputError(
            f"the size {text!r} is not a part of the original; write a share above 0 and at most 1"
        )
    return int(share * base_bytes)


def _number(digits: str) -> float:
    return float(digits)
