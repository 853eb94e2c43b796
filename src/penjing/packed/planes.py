"""How codes of 2 to 8 bits lie in a row of bytes; plain integers.

A width that doesn't divide 8 is split into planes that do (3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2; low bits first),
so that packing and unpacking are a few shifts on whole tensors. A row's planes follow one another; each is
padded to whole bytes.
"""

from penjing.errors import InputError

PLANES: dict[int, tuple[int, ...]] = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}


def planes_of(bits: int) -> tuple[int, ...]:
    """The widths that codes of `bits` bits are split into, low bits first."""
    if bits not in PLANES:
        raise InputError(
            f"codes of {bits} bits are not supported; choose one of {', '.join(map(str, PLANES))}"
        )
    return PLANES[bits]


def plane_bytes(columns: int, width: int) -> int:
    """Bytes of one plane of a row."""
    return -(-columns * width // 8)


def row_bytes(columns: int, bits: int) -> int:
    """Bytes that a row of `columns` codes of `bits` bits takes."""
    return sum(plane_bytes(columns, width) for width in planes_of(bits))


def word_count(codes: int, bits: int) -> int:
    """32-bit words that codes take as one dense stream of bits, as other tools pack them (see `words`)."""
    return -(-codes * bits // 32)
