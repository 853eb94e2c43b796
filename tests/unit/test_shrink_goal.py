"""Sizes and shares are read as people write them."""

import pytest

from penjing.errors import InputError
from penjing.shrink.goal import parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1/4", 250_000),
        ("0.4", 400_000),
        (".4", 400_000),
        ("25%", 250_000),
        ("1", 1_000_000),
        ("60MB", 60_000_000),
        ("0.5 mb", 500_000),
        ("300kB", 300_000),
        ("4.0bpw", 250_000),
    ],
)
def test_a_size_may_be_a_share_bytes_or_bits_a_weight(text, nbytes):
    assert parse_size(text, base_bytes=1_000_000, parameters=500_000) == nbytes


@pytest.mark.parametrize("text", ["", "small", "0", "-1", "2", "5/4", "1/0", "0MB", "nan", "1e9", "4 bits"])
def test_a_size_that_cannot_be_meant_is_refused(text):
    with pytest.raises(InputError):
        parse_size(text, base_bytes=1_000_000, parameters=500_000)


@pytest.mark.parametrize(("text", "share"), [("95%", 0.95), ("0.95", 0.95), (" .9 ", 0.9), ("99.5%", 0.995)])
def test_a_share_may_be_written_in_percent(text, share):
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "95", "1", "0", "100%", "-5%", "most", "nan"])
def test_a_share_outside_its_range_is_refused(text):
    with pytest.raises(InputError, match="write 95%"):
        parse_share(text)
