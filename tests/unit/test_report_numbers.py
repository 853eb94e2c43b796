"""Numbers as the report prints them."""

import pytest

from penjing.evaluate.result import Interval
from penjing.shrink.report import numbers


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0.0 kB"),
        (2_304, "2.3 kB"),
        (110_000, "0.1 MB"),
        (98_300_000, "98.3 MB"),
        (1_500_000_000, "1.50 GB"),
    ],
)
def test_sizes_use_powers_of_ten(nbytes: int, text: str) -> None:
    assert numbers.size(nbytes) == text


def test_the_ends_of_an_interval_are_rounded_outwards() -> None:
    figure = numbers.percent_figure(Interval(0.95, 0.94999, 0.95001))
    assert figure.text == "95.0%"
    assert figure.interval is not None
    assert figure.interval.startswith("94.9") and figure.interval.endswith("95.1%")


def test_exact_ends_stay_as_they_are() -> None:
    figure = numbers.percent_figure(Interval(0.57, 0.57, 0.57))
    assert figure.interval is not None and "56.9" not in figure.interval and "57.1" not in figure.interval


def test_an_interval_that_could_not_be_found_says_why() -> None:
    for figure in (
        numbers.percent_figure(Interval(0.9, None, None)),
        numbers.nats_figure(Interval(0.1, None, None)),
    ):
        assert figure.interval == "no interval: too few passages"


def test_what_is_absent_is_not_measured() -> None:
    assert numbers.percent_figure(None).text == numbers.nats_figure(None).text == "not measured"


def test_a_notice_becomes_a_sentence_once() -> None:
    assert numbers.sentence("an odd file") == "An odd file."
    assert numbers.sentence("Is it odd?") == "Is it odd?"
    assert numbers.sentence("") == ""
