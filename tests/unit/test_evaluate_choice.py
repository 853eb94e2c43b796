"""Continuation choice: how items are built, and what clear-cut models make of them."""

import pytest
from tests.unit.evaluate_fakes import NumberTokenizer, random_model, successor_model, uniform_model

from penjing.errors import InputError, PenjingError
from penjing.evaluate.choice import CHOICES, above_chance, build_items, score_items

VOCAB = 2500


def counting(start: int, length: int) -> str:
    return " ".join(str(n) for n in range(start, start + length))


def documents(count: int, length: int = 150) -> list[str]:
    return [counting(1 + number * length, length) for number in range(count)]


TEXTS = {"low": documents(6), "high": [counting(1000 + 150 * n, 150) for n in range(8)]}


def items_of(texts=TEXTS, count=30, seed=0, **kwargs):
    return build_items(NumberTokenizer(), texts, count, seed, context=12, continuation=6, **kwargs)


def test_the_answer_follows_the_context_and_no_other_choice_does():
    for item in items_of():
        assert len(item.context) == 12
        assert len(set(item.choices)) == CHOICES
        assert all(len(choice) == 6 for choice in item.choices)
        follows = [choice[0] == item.context[-1] + 1 for choice in item.choices]
        assert follows.index(True) == item.answer
        assert sum(follows) == 1


def test_wrong_choices_come_from_other_documents_of_the_same_text():
    for item in items_of():
        first = 1000 if item.text == "high" else 1
        documents_of = [(choice[0] - first) // 150 for choice in item.choices]
        right = documents_of[item.answer]
        assert all(0 <= number < len(TEXTS[item.text]) for number in documents_of)
        assert documents_of.count(right) == 1


def test_a_text_of_one_document_takes_wrong_choices_from_far_away():
    items = items_of({"one": [counting(1, 2000)]}, count=20)
    assert len(items) == 20
    for item in items:
        right = item.choices[item.answer][0]
        assert all(abs(choice[0] - right) >= 4 * 18 for choice in item.choices if choice[0] != right)


def test_items_are_spread_over_texts_and_documents_and_never_repeat():
    items = items_of()
    assert [item.text for item in items] == ["low"] * 15 + ["high"] * 15
    contexts = [item.context for item in items]
    assert len(set(contexts)) == 30
    assert len({(context[0] - 1) // 150 for context in contexts[:15]}) == 6


def test_the_answer_stands_anywhere():
    answers = [item.answer for item in items_of({"low": documents(10)}, count=100)]
    assert all(10 < answers.count(place) < 45 for place in range(CHOICES))


def test_the_seed_decides():
    assert items_of(seed=1) == items_of(seed=1)
    assert items_of(seed=1) != items_of(seed=2)


def test_what_a_short_text_lacks_longer_ones_give():
    items = items_of({"long": documents(6), "short": documents(3, length=40)}, count=30)
    assert len(items) == 30
    assert 0 < sum(item.text == "short" for item in items) < 15


def test_one_long_document_among_many_short_ones_is_used():
    short = [str(n) for n in range(3000, 3500)]
    assert len(items_of({"mixed": [*short, counting(1, 2500)]}, count=60)) == 60


def test_text_that_stands_in_several_places_is_used_once():
    same = counting(1, 18)
    items = items_of({"low": [f"{same} {counting(100 * n, 90)}" for n in range(1, 6)]}, count=200)
    right = [item.choices[item.answer] for item in items]
    assert right.count(tuple(range(13, 19))) <= 1
    assert all(len(set(item.choices)) == CHOICES for item in items)


def test_a_text_without_enough_places_gives_no_items():
    assert items_of({"tiny": [counting(1, 20)], "none": []}) == []


def test_a_context_begins_as_a_text_does():
    tokenizer = NumberTokenizer(bos_id=0)
    items = build_items(tokenizer, TEXTS, 10, 0, context=12, continuation=6)
    assert all(item.context[0] == 0 and 0 not in item.context[1:] for item in items)
    assert all(len(item.context) == 13 for item in items)


def test_a_model_that_knows_the_rule_is_always_right():
    items = items_of()
    assert score_items(successor_model(VOCAB), items) == [True] * len(items)


def test_a_tie_counts_against_the_model():
    items = items_of()
    assert not any(score_items(uniform_model(VOCAB), items))


def test_a_model_that_guesses_is_not_above_chance():
    items = items_of({"low": documents(10)}, count=150)
    right = score_items(random_model(VOCAB, 1), items)
    assert 15 < sum(right) < 65
    assert not above_chance(sum(right), len(right))


def test_items_may_run_in_any_batch():
    items, model = items_of(), random_model(VOCAB, 1)
    alone = score_items(model, items, batch=1)
    assert score_items(model, items, batch=7) == alone
    assert score_items(model, items, batch=64) == alone


def test_items_of_different_lengths_may_be_mixed():
    tokenizer, model = NumberTokenizer(), random_model(VOCAB, 1)
    longer = build_items(tokenizer, TEXTS, 5, 0, context=20, continuation=9)
    items = [*items_of()[:5], *longer]
    assert score_items(model, items) == score_items(model, items[:5]) + score_items(model, items[5:])


def test_progress_is_told_the_tokens_run():
    counted, items = [], items_of()
    score_items(uniform_model(VOCAB), items, batch=8, advance=counted.append)
    assert sum(counted) == 30 * (12 + 4 * 5) == sum(item.tokens for item in items)


def test_a_broken_model_is_named():
    broken = uniform_model(VOCAB)
    broken.table.data[:] = float("nan")
    with pytest.raises(PenjingError, match=r"the shrunk model .* a choice item of 'low'"):
        score_items(broken, items_of(), who="the shrunk model")


def test_a_foreign_tokenizer_is_refused():
    with pytest.raises(InputError, match="outside the model's vocabulary of 100"):
        score_items(uniform_model(100), items_of())


def test_above_chance_means_three_standard_errors():
    # 200 items: chance is 50, its standard error 6.12
    assert not above_chance(68, 200)
    assert above_chance(69, 200)
    assert not above_chance(0, 0)


def test_an_impossible_number_of_items_is_refused():
    with pytest.raises(InputError, match="negative"):
        items_of(count=-1)
