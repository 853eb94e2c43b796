"""What the verbs print: numbers that never look better than they are, and each notice once."""

from penjing.cli.session import Session
from penjing.cli.wording import percent_between
from penjing.evaluate.result import Interval


def test_the_ends_of_an_interval_are_rounded_outwards():
    assert percent_between(Interval(0.96, 0.9496, 0.9704)) == "96.0% (94.9% to 97.1%)"
    assert percent_between(Interval(1.0, 1.0, 1.0)) == "100.0% (100.0% to 100.0%)"


def test_what_has_no_interval_is_a_number_and_what_was_not_measured_is_a_dash():
    assert percent_between(Interval(0.96, None, None)) == "96.0%"
    assert percent_between(None) == "-"


def test_a_notice_is_given_once_in_a_call(capsys):
    this = Session(as_json=True)
    for notice in ("odd", "odder", "odd"):
        this.notice(notice)
    assert capsys.readouterr().err == "note: odd\nnote: odder\n"
