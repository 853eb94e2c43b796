import itertools

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine_fakes import PieceTokenizer
from tokenizers import decoders, models

from penjing.engine.detokenize import Detokenizer
from penjing.text.tokenizer import Tokenizer

BYTES = PieceTokenizer(tuple(bytes([b]) for b in range(256)))


def pieces_of(tokenizer, ids, **options) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)
    return [detokenizer.feed(token) for token in ids]


WORDS = ("▁", "▁Hello", "▁world", "!", "\n", "▁▁")
EMOJI = tuple(f"<0x{b:02X}>" for b in "😊".encode())


def sentencepiece_like(decoder) -> Tokenizer:
    """▁-marked words with byte fallback, and "</s>" as a special token."""
    vocabulary = {word: i for i, word in enumerate(WORDS + EMOJI)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    backend.decoder = decoder
    backend.add_special_tokens(["</s>"])
    return Tokenizer(backend, {"eos_token": "</s>"}, end_ids=frozenset({len(vocabulary)}))


def ids_of(tokenizer: Tokenizer, *words: str) -> list[int]:
    return [tokenizer.backend.token_to_id(word) for word in words]


def llama_decoder():
    return decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )


def test_a_character_leaves_with_its_last_byte_and_never_in_part():
    assert pieces_of(BYTES, "a😊b".encode()) == ["a", "", "", "", "😊", "b"]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_an_incomplete_last_character_is_not_text(cut):
    assert "".join(pieces_of(BYTES, b"ok " + "😊".encode()[:cut])) == "ok "


@given(st.text(), st.data())
def test_any_text_cut_anywhere_comes_back_whole(text, data):
    encoded = text.encode("utf-8")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=8)))
    edges = [0, *cuts, len(encoded)]
    tokenizer = PieceTokenizer(tuple(encoded[a:b] for a, b in itertools.pairwise(edges)))
    assert "".join(pieces_of(tokenizer, range(len(tokenizer.pieces)))) == text


@given(st.binary())
def test_invalid_bytes_become_what_a_full_decode_makes_of_them(data):
    closed = data + b"."  # completes or breaks whatever stood before it
    assert "".join(pieces_of(BYTES, closed)) == closed.decode("utf-8", errors="replace")


def test_special_tokens_are_left_out_unless_asked_for():
    tokenizer = PieceTokenizer((b"<s>", b"a", b"</s>"), special_ids=frozenset({0, 2}))
    assert pieces_of(tokenizer, [0, 1, 2]) == ["", "a", ""]
    assert pieces_of(tokenizer, [0, 1, 2], skip_special_tokens=False) == ["<s>", "a", "</s>"]


def test_a_special_token_inside_a_text_does_not_restart_it():
    tokenizer = sentencepiece_like(llama_decoder())
    ids = ids_of(tokenizer, "</s>", "▁Hello", "</s>", "▁world")
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids) == "Hello world"


@pytest.mark.parametrize("decoder", [llama_decoder(), decoders.Metaspace()])
@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_blanks_of_sentencepiece_like_tokens_are_those_of_a_full_decode(decoder, words):
    tokenizer = sentencepiece_like(decoder)
    ids = ids_of(tokenizer, *words)
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_byte_fallback_character_keeps_its_place_between_words():
    tokenizer = sentencepiece_like(llama_decoder())
    ids = ids_of(tokenizer, "▁", "▁Hello", *EMOJI, "▁world")
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids) == " Hello😊 world"


@pytest.mark.parametrize("decoder", [llama_decoder(), decoders.Metaspace()])
def test_the_first_blank_of_a_continued_text_is_text(decoder):
    tokenizer = sentencepiece_like(decoder)
    ids = ids_of(tokenizer, "▁Hello", "▁world")
    assert pieces_of(tokenizer, ids) == ["Hello", " world"]
    assert pieces_of(tokenizer, ids, at_start=False) == [" Hello", " world"]
