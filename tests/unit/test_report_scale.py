"""Axes: everything lies inside, ticks are round, one value is enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penjing.shrink.report.scale import linear, logarithmic

values = st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=20)


@given(values)
def test_a_linear_axis_shows_every_value_between_its_ends(found: list[float]) -> None:
    axis = linear(found, 50, 400)
    assert all(50 <= axis(value) <= 400 for value in found)


@given(values)
def test_a_logarithmic_axis_shows_every_value_between_its_ends(found: list[float]) -> None:
    axis = logarithmic(found, 300, 20)
    assert all(20 <= axis(value) <= 300 for value in found)


@given(values)
def test_ticks_lie_on_the_axis_and_are_few(found: list[float]) -> None:
    for axis in (linear(found, 0, 100), logarithmic(found, 0, 100)):
        ticks = axis.ticks()
        assert 1 <= len(ticks) <= 8
        assert all(-0.01 <= axis(tick) <= 100.01 for tick in ticks)


def test_linear_ticks_are_round() -> None:
    assert linear([0.71, 1.0], 0, 1).ticks() == ([0.7, 0.8, 0.9, 1.0])


def test_decades_are_ticked_and_thinned_where_there_are_many() -> None:
    assert logarithmic([0.02, 3], 0, 1).ticks() == pytest.approx([0.01, 0.1, 1, 10])
    assert logarithmic([1e-9, 1e3], 0, 1).ticks() == pytest.approx([1e-9, 1e-7, 1e-5, 1e-3, 0.1, 10, 1e3])


def test_growing_values_go_from_start_to_end_whichever_is_larger() -> None:
    axis = linear([0, 10], 300, 20)
    assert axis(0) > axis(5) > axis(10)


def test_values_that_no_axis_can_show_do_not_stretch_it() -> None:
    assert linear([1, 2, float("inf"), float("nan")], 0, 1) == linear([1, 2], 0, 1)
    assert logarithmic([0.0, -1, 0.5, float("inf")], 0, 1) == logarithmic([0.5], 0, 1)
