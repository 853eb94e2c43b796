"""Protocol Buffers' wire format: the numbered fields of one message, with every length checked.

https://protobuf.dev/programming-guides/encoding
"""

from collections.abc import Iterator

from penjing.errors import InputError

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED_64: 8, _FIXED_32: 4}
_MAX_VARINT_BYTES = 10

Value = int | memoryview


def read_fields(message: memoryview, what: str) -> Iterator[tuple[int, Value]]:
    """Each field's number and value: an integer, or the bytes of a text, message or fixed-size number.

    `what` names the message in the InputError that a damaged one raises.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at, what)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise InputError(f"{what} is damaged: a field at byte {at} has the number 0.")
        if kind == _VARINT:
            value, at = _varint(message, at, what)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at, what)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise InputError(f"{what} is damaged: field {number} is of the unknown wire type {kind}.")
        if size > len(message) - at:
            raise InputError(f"{what} is damaged: field {number} ends beyond byte {len(message)}.")
        yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int, what: str) -> tuple[int, int]:
    """An integer of seven bits a byte, lowest first, and where the next thing begins."""
    value = 0
    for count, byte in enumerate(message[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise InputError(f"{what} is damaged: the number at byte {at} doesn't end.")
