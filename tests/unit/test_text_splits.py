"""Splits are disjoint, stable, near their shares, and follow documents, not positions."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penjing.errors import InputError
from penjing.text.splits import SPLIT_NAMES, Splits, make_splits


def text(seed: int, count: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [f"Document {seed}-{n} " + "word " * rng.randint(50, 400) for n in range(count)]


def parts(splits: Splits) -> dict[str, dict[str, tuple[str, ...]]]:
    return {name: dict(getattr(splits, name)) for name in SPLIT_NAMES}


def test_every_document_is_in_exactly_one_split_of_its_text() -> None:
    texts = {"a": text(1), "b": text(2)}
    splits = parts(make_splits(texts))
    for name, documents in texts.items():
        assert sorted(d for split in splits.values() for d in split[name]) == sorted(documents)


@pytest.mark.parametrize("shares", [(0.5, 0.2, 0.3), (0.8, 0.1, 0.1)])
def test_shares_are_kept_by_characters(shares: tuple[float, float, float]) -> None:
    splits = parts(make_splits({"a": text(1)}, shares=shares))
    sizes = [sum(map(len, split["a"])) for split in splits.values()]
    for size, share in zip(sizes, shares, strict=True):
        assert size / sum(sizes) == pytest.approx(share, abs=0.04)


@given(st.randoms(use_true_random=False))
def test_order_of_documents_and_texts_changes_nothing(rng: random.Random) -> None:
    texts = {"a": text(1), "b": text(2)}
    shuffled = {name: rng.sample(texts[name], len(texts[name])) for name in ("b", "a")}
    expected, found = parts(make_splits(texts)), parts(make_splits(shuffled))
    for split in SPLIT_NAMES:
        assert {k: sorted(v) for k, v in found[split].items()} == {
            k: sorted(v) for k, v in expected[split].items()
        }


def test_the_seed_decides() -> None:
    texts = {"a": text(1)}
    assert parts(make_splits(texts, seed=3)) == parts(make_splits(texts, seed=3))
    assert parts(make_splits(texts, seed=3)) != parts(make_splits(texts, seed=4))


def test_near_duplicates_never_part_also_across_texts() -> None:
    texts = {"a": text(1), "b": [*text(2), *(d.upper().replace(" ", "  ") for d in text(1))]}
    for seed in range(5):
        splits = parts(make_splits(texts, seed=seed))
        homes: dict[str, set[str]] = {}
        for split, named in splits.items():
            for documents in named.values():
                for document in documents:
                    homes.setdefault(" ".join(document.split()).casefold(), set()).add(split)
        assert all(len(places) == 1 for places in homes.values())


@given(st.lists(st.text("ab \n", min_size=1, max_size=3000), min_size=1, max_size=8), st.integers(0, 100))
def test_either_all_splits_are_filled_and_disjoint_or_the_text_is_refused(
    documents: list[str], seed: int
) -> None:
    try:
        splits = parts(make_splits({"t": documents}, seed=seed, least_characters=10))
    except InputError:
        return
    keys = [{" ".join(d.split()) for d in split["t"]} for split in splits.values()]
    assert all(keys)
    assert keys[0].isdisjoint(keys[1] | keys[2]) and keys[1].isdisjoint(keys[2])


def test_one_long_document_is_cut_between_paragraphs_and_it_is_told() -> None:
    paragraphs = [f"Paragraph {n}. " + "word " * 60 for n in range(200)]
    splits = make_splits({"novel": ["\n\n".join(paragraphs)]})
    found = [p for split in parts(splits).values() for piece in split["novel"] for p in piece.split("\n\n")]
    assert sorted(map(str.strip, found)) == sorted(map(str.strip, paragraphs))
    assert any("novel has only 1 document" in notice for notice in splits.notices)


def test_a_document_without_paragraphs_is_cut_between_lines() -> None:
    splits = make_splits({"log": ["\n".join(f"line {n}" for n in range(2_000))]})
    assert all(split["log"] for split in parts(splits).values())


def test_too_little_text_says_how_much_is_needed() -> None:
    with pytest.raises(InputError, match=r"notes has 5 characters; at least 3,000"):
        make_splits({"notes": ["short"]})
    with pytest.raises(InputError, match="can't be cut"):
        make_splits({"one line": ["x" * 10_000]})
    with pytest.raises(InputError, match="no text"):
        make_splits({})
