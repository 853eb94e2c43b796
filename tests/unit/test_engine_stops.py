import pytest
from hypothesis import given
from hypothesis import strategies as st

from penjing.engine.stops import StopMatcher
from penjing.errors import InputError


def run(stops, pieces) -> tuple[list[str], bool]:
    """What each piece releases, then the flush; and whether a stop matched."""
    matcher = StopMatcher(stops)
    released = [matcher.feed(piece) for piece in pieces]
    return [*released, matcher.flush()], matcher.matched


def test_without_stops_text_passes_straight_through():
    assert run((), ["a", "b"]) == (["a", "b", ""], False)


def test_no_part_of_a_stop_that_spans_pieces_gets_out():
    assert run(["own fox"], ["The quick br", "own", " fox", " jumps"]) == (
        ["The quick br", "", "", "", ""],
        True,
    )


def test_only_what_may_still_become_a_stop_is_held_back():
    assert run(["abcd"], ["xab", "y", "abc"]) == (["x", "aby", "", "abc"], False)


def test_a_false_start_does_not_hide_the_real_one():
    assert run(["aab"], ["a", "a", "a", "b"]) == (["", "", "a", "", ""], True)


def test_the_unmatched_tail_is_delivered_in_full():
    assert run(["own fax"], ["br", "own f"]) == (["br", "", "own f"], False)


def test_the_stop_that_is_complete_first_wins_however_the_text_is_cut():
    for pieces in (["abcdef"], list("abcdef"), ["abc", "def"]):
        released, matched = run(["abcdef", "cd"], pieces)
        assert ("".join(released), matched) == ("ab", True)


def test_of_stops_that_end_together_the_longest_is_removed():
    assert run(["d", "bcd"], ["abcd"]) == (["a", ""], True)


def test_a_stop_at_the_very_start_leaves_an_empty_text():
    assert run(["\n"], ["\nHello"]) == (["", ""], True)


def test_text_after_a_match_never_appears():
    assert run(["!"], ["a!b", "c"]) == (["a", "", ""], True)


def test_an_empty_stop_is_refused():
    with pytest.raises(InputError, match="empty"):
        StopMatcher(["x", ""])


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("ab", max_size=5), max_size=6),
)
def test_the_result_does_not_depend_on_how_the_text_is_cut(stops, pieces):
    text = "".join(pieces)
    ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(stops))]
    expected = text
    if ends:
        expected = text[: ends[0] - max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))]
    released, matched = run(stops, pieces)
    assert ("".join(released), matched) == (expected, bool(ends))
