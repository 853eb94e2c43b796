"""Failures that real users met in generated text. Every text is checked streamed and whole."""

import pytest
import tokenizers
from tests.unit.engine_fakes import PieceTokenizer, random_model, script, successor_model
from tokenizers import decoders, models

from penjing.engine.generate import Completion, complete, generate
from penjing.engine.params import SamplingParams
from penjing.text.tokenizer import Tokenizer

EMOJI = "😊".encode()
LETTERS = PieceTokenizer(tuple(bytes([32 + i]) for i in range(96)))


def said(module, tokenizer, prompt_ids, **changes) -> Completion:
    """The completion, once it is known to equal the joined stream and no piece holds half a character."""
    params = SamplingParams(**{"temperature": 0} | changes)
    pieces = list(generate(module, tokenizer, prompt_ids, params))
    whole = complete(module, tokenizer, prompt_ids, params)
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + [whole.finish_reason]
    assert "\ufffd" not in whole.text
    return whole


def test_characters_split_over_tokens_stream_whole():
    text = "ok 😊 é 日"
    assert said(*script(*(bytes([b]) for b in text.encode()))).text == text


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_limit_inside_a_character_invents_no_character(cut):
    result = said(*script("ok ", *(bytes([b]) for b in EMOJI)), max_tokens=1 + cut)
    assert (result.text, result.finish_reason) == ("ok ", "length")
    assert len(result.token_ids) == 1 + cut


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_an_end_token_inside_a_character_invents_no_character(cut):
    result = said(*script("ok ", *(bytes([b]) for b in EMOJI[:cut])))
    assert (result.text, result.finish_reason) == ("ok ", "stop")


def test_a_stop_text_over_several_tokens_does_not_leak():
    result = said(*script("The quick br", "own", " fox", " jumps"), stop=("own fox",))
    assert (result.text, result.finish_reason) == ("The quick br", "stop")


def test_a_stop_text_that_never_completes_is_delivered_in_full():
    result = said(*script("The quick br", "own", " f"), stop=("own fax",))
    assert (result.text, result.finish_reason) == ("The quick brown f", "stop")


def test_the_earliest_of_overlapping_stop_texts_wins():
    result = said(*script("one ", "two th", "ree four"), stop=("three four", "two three"))
    assert (result.text, result.finish_reason) == ("one ", "stop")


def test_a_stop_text_at_the_first_token_gives_an_empty_answer():
    result = said(*script("\n", "more"), stop=("\n",))
    assert (result.text, result.finish_reason) == ("", "stop")


def test_a_stop_text_may_end_inside_a_token_and_the_rest_never_appears():
    result = said(*script("a", "b!c", "d"), stop=("b!",))
    assert (result.text, result.finish_reason) == ("a", "stop")


def test_a_stop_text_of_a_split_character_is_found():
    result = said(*script("ok ", *(bytes([b]) for b in EMOJI), " more"), stop=("😊",))
    assert (result.text, result.finish_reason) == ("ok ", "stop")


@pytest.mark.parametrize("end", [2, 3, 4])
def test_each_of_several_end_tokens_ends_the_turn_and_is_not_in_the_text(end):
    module = successor_model({0: 1, 1: end, end: 1}, 5)
    pieces = (b"<assistant>", b"hi", b"<turn-end>", b"<end>", b"stop here")
    tokenizer = PieceTokenizer(pieces, special_ids=frozenset({0, 2, 3}), end_ids=frozenset({2, 3}))
    result = said(module, tokenizer, [0], end_ids=frozenset({4}), max_tokens=20)
    assert (result.text, result.finish_reason, result.token_ids) == ("hi", "stop", (1, end))


def test_without_a_seed_answers_differ_and_with_one_they_are_equal():
    module = random_model()

    def texts(seed: int | None) -> set[str]:
        params = SamplingParams(temperature=1, max_tokens=20, seed=seed)
        return {complete(module, LETTERS, [5, 6, 7], params).text for _ in range(5)}

    assert len(texts(None)) >= 2
    assert len(texts(0)) == 1
    assert texts(0) != texts(1)


WORDS = ("<s>", "▁", "▁Hello", "▁world", "!", "\n", "▁▁", *(f"<0x{b:02X}>" for b in EMOJI), "</s>")
END = len(WORDS) - 1


def sentencepiece_like() -> Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE({w: i for i, w in enumerate(WORDS)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(backend, {}, end_ids=frozenset({END}))


def test_blanks_of_sentencepiece_like_tokens_survive_the_stream():
    tokenizer = sentencepiece_like()
    result = said(successor_model({i: i + 1 for i in range(END)}, len(WORDS)), tokenizer, [0])
    assert result.text == tokenizer.decode(result.token_ids) == " Hello world!\n  😊"


@pytest.mark.parametrize(
    ("prompt", "continues", "text"),
    [([0, 2], True, " world"), ([0, 2], False, "world"), ([0], True, "world"), ([0, 2, 0], True, "world")],
    ids=["text goes on", "an answer begins", "nothing but a begin token", "a special token in between"],
)
def test_a_continued_text_keeps_the_blank_between_it_and_its_first_word(prompt, continues, text):
    module = successor_model({prompt[-1]: 3, 3: END}, len(WORDS))
    result = complete(
        module, sentencepiece_like(), prompt, SamplingParams(temperature=0), continues=continues
    )
    assert result.text == text
