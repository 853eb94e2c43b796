"""Bytes go where they save the most, and never past the budget."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penjing.errors import InputError
from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.allocation import allocate, convex_hull, uniform
from penjing.shrink.candidates import Candidate

SPECS = [AffineSpec(bits, 64) for bits in (2, 3, 4, 5, 6, 8)]


def options(size, weight):
    return [Candidate(spec, size * spec.bits, weight * 4.0**-spec.bits) for spec in SPECS]


SEVERAL = st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 100)), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(SEVERAL, st.floats(2.0, 9.0))
def test_the_budget_is_kept_and_hardly_any_other_choice_is_better(matrices, bits):
    candidates = {str(i): options(size, weight) for i, (size, weight) in enumerate(matrices)}
    budget = int(bits * sum(size for size, _ in matrices))
    found = allocate(candidates, budget)
    assert found.nbytes <= budget
    best = min(
        sum(c.divergence for c in choice)
        for choice in itertools.product(*candidates.values())
        if sum(c.nbytes for c in choice) <= budget
    )
    largest_step = max(size for size, _ in matrices) * 2
    relaxed = allocate(candidates, budget + largest_step)
    assert found.divergence >= best - 1e-9
    assert relaxed.divergence <= best + 1e-9


@settings(max_examples=50, deadline=None)
@given(SEVERAL)
def test_never_worse_than_every_matrix_on_the_same_grid(matrices):
    candidates = {str(i): options(size, weight) for i, (size, weight) in enumerate(matrices)}
    for spec in SPECS:
        same = uniform(candidates, spec)
        assert allocate(candidates, same.nbytes).divergence <= same.divergence + 1e-12


def test_a_budget_below_the_smallest_is_refused_with_both_numbers():
    with pytest.raises(InputError, match=r"smaller than 200 bytes; 199"):
        allocate({"a": options(100, 1.0)}, 199)


def test_the_hull_keeps_only_steps_that_save_ever_less_per_byte():
    hull = convex_hull([*options(10, 1.0), Candidate(AffineSpec(4, 32), 45, 0.5)])
    slopes = [(a.divergence - b.divergence) / (b.nbytes - a.nbytes) for a, b in itertools.pairwise(hull)]
    assert slopes == sorted(slopes, reverse=True)
    assert all(c.divergence < 0.5 for c in hull)
