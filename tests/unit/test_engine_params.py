import math

import pytest

from penjing.engine.params import SamplingParams
from penjing.errors import InputError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", "5"),
        ("temperature", -0.1),
        ("temperature", 1e-9),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("top_k", -1),
        ("top_k", 2.0),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", math.inf),
        ("presence_penalty", 2.1),
        ("presence_penalty", math.nan),
        ("frequency_penalty", -2.1),
        ("seed", 2**63),
        ("seed", 1.0),
        ("stop", ("a", "")),
        ("stop", "abc"),
        ("stop", (1,)),
        ("end_ids", frozenset({-1})),
        ("end_ids", {1}),
        ("ignore_end", 1),
    ],
)
def test_a_value_out_of_range_is_refused_with_field_value_and_range(field, value):
    with pytest.raises(InputError) as error:
        SamplingParams(**{field: value})
    assert str(error.value).startswith(f"{field} is {value!r}, but must be ")


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0},
        {"temperature": 2},
        {"top_k": 1},
        {"top_p": 1},
        {"min_p": 1},
        {"repetition_penalty": 1.3},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"seed": -(2**63)},
        {"stop": ("\n", "User:")},
        {"end_ids": frozenset({0, 7})},
    ],
)
def test_values_at_the_edge_of_their_range_are_accepted(changes):
    params = SamplingParams(**changes)
    assert {name: getattr(params, name) for name in changes} == changes


def test_no_seed_is_the_default():
    assert SamplingParams().seed is None
