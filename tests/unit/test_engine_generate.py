import pytest
import torch
from tests.unit.engine_fakes import PieceTokenizer, random_model, script, successor_model

from penjing import memory
from penjing.engine.generate import complete, generate
from penjing.engine.params import SamplingParams
from penjing.errors import InputError, ResourceError
from penjing.model import decoder
from penjing.model.cache import StaticCache
from penjing.model.config import RopeConfig

GREEDY = SamplingParams(temperature=0)
LETTERS = PieceTokenizer(tuple(bytes([32 + i]) for i in range(96)))
PROMPT = [5, 17, 3, 80, 42, 9, 9, 61, 30, 2, 77]


def greedy(max_tokens: int, **changes) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **changes)


def ends(result) -> tuple[str, str, int]:
    return result.text, result.finish_reason, len(result.token_ids)


def test_greedy_walks_the_argmax_chain_of_the_uncached_model():
    module = random_model()
    expected = list(PROMPT)
    for _ in range(20):
        positions = torch.arange(len(expected))[None]
        with torch.inference_mode():
            expected.append(int(module(torch.tensor([expected]), positions)[0, -1].argmax()))
    result = complete(module, LETTERS, PROMPT, greedy(20))
    assert list(result.token_ids) == expected[len(PROMPT) :]
    assert len(set(result.token_ids)) > 5


@pytest.mark.parametrize("params", [greedy(15), SamplingParams(max_tokens=15, seed=4)])
@pytest.mark.parametrize("windows", [(None, None), (4, None)])
def test_chunking_the_prefill_changes_no_token(params, windows):
    module = random_model(windows=windows)
    whole = complete(module, LETTERS, PROMPT, params)
    for chunk in (1, 2, 3, 10, 11, 12):
        assert complete(module, LETTERS, PROMPT, params, prefill_chunk=chunk).token_ids == whole.token_ids


@pytest.mark.parametrize("chunk", [1, 2, 4, 512])
def test_where_frequencies_depend_on_the_length_the_prompt_is_never_split(chunk):
    short, long = (1.0,) * 8, tuple(float(2 + 3 * i) for i in range(8))
    rope = RopeConfig(
        "longrope", original_max_position_embeddings=4, short_factor=short, long_factor=long, factor=8.0
    )
    module = random_model(rope=rope)
    with torch.inference_mode():
        logits = module(torch.tensor([PROMPT]), torch.arange(len(PROMPT))[None])
    first = complete(module, LETTERS, PROMPT, greedy(1), prefill_chunk=chunk)
    assert first.token_ids == (int(logits[0, -1].argmax()),)


def test_joined_pieces_are_the_completion():
    pieces = list(generate(*script("a", "b", "c"), GREEDY))
    assert [piece.text for piece in pieces] == ["a", "b", "c", ""]
    assert [piece.token_ids for piece in pieces] == [(1,), (2,), (3,), (4,)]
    assert [piece.finish_reason for piece in pieces] == [None, None, None, "stop"]
    result = complete(*script("a", "b", "c"), GREEDY)
    assert ends(result) == ("abc", "stop", 4)
    assert (result.token_ids, result.prompt_tokens) == ((1, 2, 3, 4), 1)
    assert 0 < result.first_token_seconds <= result.seconds


def test_the_token_limit_ends_with_length():
    assert ends(complete(*script("a", "b", "c"), greedy(2))) == ("ab", "length", 2)


def test_an_end_token_at_the_limit_is_a_stop():
    assert ends(complete(*script("a", "b"), greedy(3))) == ("ab", "stop", 3)


def test_an_end_token_first_gives_an_empty_text():
    assert ends(complete(*script(), GREEDY)) == ("", "stop", 1)


def test_a_stop_text_at_the_limit_is_a_stop():
    assert ends(complete(*script("a", "b"), greedy(2, stop=("b",)))) == ("a", "stop", 2)


def test_text_held_for_a_stop_is_delivered_when_an_end_token_or_the_limit_comes():
    assert ends(complete(*script("a", "b"), greedy(9, stop=("abc",)))) == ("ab", "stop", 3)
    assert ends(complete(*script("a", "b"), greedy(2, stop=("abc",)))) == ("ab", "length", 2)


def test_extra_end_ids_end_the_text_and_are_not_in_it():
    assert ends(complete(*script("a", "b", "c"), greedy(9, end_ids=frozenset({2})))) == ("a", "stop", 2)


def test_ignored_end_tokens_do_not_end_the_text():
    cycle = successor_model({0: 1, 1: 2, 2: 1}, 3)
    tokenizer = PieceTokenizer((b"<prompt>", b"a", b"<end>"), frozenset({0, 2}), frozenset({2}))
    result = complete(cycle, tokenizer, [0], greedy(6, ignore_end=True))
    assert ends(result) == ("aaa", "length", 6)


def test_the_context_is_filled_to_its_end_and_not_past_it():
    cycle = successor_model({0: 0}, 2, context=64)
    tokenizer = PieceTokenizer((b"a", b"b"))
    for prompt, room in ((63, 1), (60, 4), (1, 63)):
        assert ends(complete(cycle, tokenizer, [0] * prompt, greedy(1000))) == ("a" * room, "length", room)


@pytest.mark.parametrize("length", [64, 65, 80])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(length):
    with pytest.raises(InputError, match=rf"{length} tokens.*context of 64"):
        generate(successor_model({}, 2, context=64), LETTERS, [0] * length, GREEDY)


def test_an_empty_prompt_is_refused():
    with pytest.raises(InputError, match="no tokens"):
        generate(*script("a")[:2], [], GREEDY)


@pytest.mark.parametrize("token", [-1, 3])
def test_a_prompt_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(InputError, match=f"token {token}, .*0 to 2"):
        generate(*script("a")[:2], [0, token], GREEDY)


def test_a_chunk_of_nothing_is_refused():
    with pytest.raises(InputError, match="prefill_chunk"):
        generate(*script("a"), GREEDY, prefill_chunk=0)


def test_the_cache_has_no_more_slots_than_the_text_can_need(monkeypatch):
    slots = []

    def recording(config, batch_size, max_length, dtype):
        cache = StaticCache(config, batch_size, max_length, dtype)
        if not cache.layers[0].keys_BSKh.is_meta:
            slots.append(max_length)
        return cache

    monkeypatch.setattr(decoder, "StaticCache", recording)
    complete(*script("a", "b", context=64), greedy(7))
    complete(*script("a", "b", context=64), greedy(1000))
    assert slots == [8, 64]


def test_a_cache_that_does_not_fit_is_refused_at_the_call_with_its_size(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000)
    # 2 layers of keys and values, 31 slots, 2 heads of 16, 4 bytes each
    assert 2 * 2 * 31 * 2 * 16 * 4 > 10_000
    with pytest.raises(ResourceError, match="cache of 31 tokens"):
        generate(random_model(), LETTERS, PROMPT, greedy(20))


def test_the_cache_has_the_dtype_of_the_model():
    module = random_model().bfloat16()
    assert len(complete(module, LETTERS, PROMPT, greedy(3)).token_ids) == 3


def test_only_the_last_prompt_position_goes_through_the_head(monkeypatch):
    module, shapes = random_model(), []
    head = module.head
    monkeypatch.setattr(module, "head", lambda x: shapes.append(tuple(x.shape)) or head(x))
    complete(module, LETTERS, PROMPT, greedy(3), prefill_chunk=4)
    assert shapes == [(1, 1, 64)] * 3


def test_the_caller_stays_outside_inference_mode_between_pieces():
    for _ in generate(*script("a", "b"), GREEDY):
        assert not torch.is_inference_mode_enabled()


def test_closing_early_computes_nothing_more(monkeypatch):
    module, tokenizer, prompt = script("a", "b", "c")
    steps = []
    hidden = module.hidden
    monkeypatch.setattr(module, "hidden", lambda *args, **kw: steps.append(1) or hidden(*args, **kw))
    pieces = generate(module, tokenizer, prompt, GREEDY)
    next(pieces)
    pieces.close()
    assert len(steps) == 1
    assert list(pieces) == []


def test_two_generations_do_not_disturb_each_other():
    module = random_model()
    alone = complete(module, LETTERS, PROMPT, SamplingParams(max_tokens=12, seed=3))
    one = generate(module, LETTERS, PROMPT, SamplingParams(max_tokens=12, seed=3))
    other = generate(module, LETTERS, PROMPT[:4], SamplingParams(max_tokens=12, seed=8))
    interleaved = [piece.token_ids[0] for piece, _ in zip(one, other, strict=True)]
    assert tuple(interleaved) == alone.token_ids
