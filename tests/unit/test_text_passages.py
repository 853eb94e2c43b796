"""Passages keep documents apart, begin with BOS where it belongs, and are picked evenly."""

import pytest
from tests.unit.text_samples import byte_level_backend, gguf_metadata

from penjing.errors import InputError
from penjing.text.gguf_tokenizer import tokenizer_from_gguf
from penjing.text.passages import passages
from penjing.text.tokenizer import Tokenizer

BACKEND = byte_level_backend(400)
ALL = 10**9
DOCUMENTS = [f"document {n} " * (20 + 13 * n) for n in range(12)]


def tokenizer(add_bos: bool = False) -> Tokenizer:
    return tokenizer_from_gguf(gguf_metadata(BACKEND, add_bos_token=add_bos))


def test_passages_are_each_documents_ids_cut_in_order_without_tiny_tails() -> None:
    plain = tokenizer()
    expected = []
    for document in DOCUMENTS:
        ids = plain.encode(document)
        cut = [ids[at : at + 64] for at in range(0, len(ids), 64)]
        expected += [passage for passage in cut if len(passage) >= 32]
    assert passages(plain, DOCUMENTS, 64, ALL) == expected


def test_each_passage_begins_with_bos_if_the_tokenizer_adds_it() -> None:
    with_bos, bare = (passages(t, DOCUMENTS, n, ALL) for t, n in ((tokenizer(True), 64), (tokenizer(), 63)))
    assert all(passage[0] == tokenizer().bos_id and len(passage) <= 64 for passage in with_bos)
    assert [passage[1:] for passage in with_bos if len(passage) > 33] == [p for p in bare if len(p) > 32]


@pytest.mark.parametrize("limit", [32, 100, 640, 2000])
def test_a_limit_is_met_exactly_and_repeatably_by_passages_of_the_whole(limit: int) -> None:
    everything = passages(tokenizer(), DOCUMENTS, 64, ALL)
    picked = passages(tokenizer(), DOCUMENTS, 64, limit_tokens=limit)
    assert picked == passages(tokenizer(), DOCUMENTS, 64, limit_tokens=limit)
    assert limit - 32 < sum(map(len, picked)) <= limit
    assert all(any(whole[: len(part)] == part for whole in everything) for part in picked)


def test_a_limit_takes_from_documents_far_apart_before_taking_twice_from_one() -> None:
    picked = passages(tokenizer(), DOCUMENTS, 64, limit_tokens=64 * 6)
    sources = [
        next(n for n, d in enumerate(DOCUMENTS) if f"document {n} " in tokenizer().decode(p)) for p in picked
    ]
    assert len(set(sources)) == 6
    assert min(sources) < 4 and max(sources) > 7


@pytest.mark.parametrize("documents", [[], ["short"], ["", "  "]])
def test_text_too_short_for_one_passage_is_refused(documents: list[str]) -> None:
    with pytest.raises(InputError, match="too short"):
        passages(tokenizer(), documents, 64, ALL)


def test_a_length_that_can_hold_no_passage_is_refused() -> None:
    with pytest.raises(InputError, match="at least 32"):
        passages(tokenizer(), DOCUMENTS, 8, ALL)
