import math

import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from penjing.engine import sampling
from penjing.engine.params import SamplingParams
from penjing.engine.sampling import Sampler, uniform_at
from penjing.errors import PenjingError

GREEDY = SamplingParams(temperature=0)


def random_logits(seed: int, size: int = 500) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3


def one_token(logits: list[float], params: SamplingParams, prompt: tuple[int, ...] = ()) -> int:
    return Sampler(params, prompt, len(logits)).sample(torch.tensor(logits))


# Filters, against transformers


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("top_k", [1, 7, 499, 500, 9999])
def test_top_k_equals_transformers(seed, top_k):
    logits_V = random_logits(seed)
    expected_V = TopKLogitsWarper(top_k)(None, logits_V[None])[0]
    assert torch.equal(sampling.apply_top_k(logits_V, top_k), expected_V)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("top_p", [1e-6, 0.1, 0.5, 0.9, 0.99])
def test_top_p_equals_transformers(seed, top_p):
    logits_V = random_logits(seed)
    expected_V = TopPLogitsWarper(top_p)(None, logits_V[None])[0]
    assert torch.equal(sampling.apply_top_p(logits_V, top_p), expected_V)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("min_p", [0.001, 0.05, 0.5, 1.0])
def test_min_p_equals_transformers(seed, min_p):
    logits_V = random_logits(seed)
    expected_V = MinPLogitsWarper(min_p)(None, logits_V[None])[0]
    assert torch.equal(sampling.apply_min_p(logits_V, min_p), expected_V)


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3])
def test_repetition_penalty_equals_transformers(penalty):
    logits_V, ids = random_logits(1), torch.tensor([[3, 9, 9, 400]])
    seen_V = torch.zeros(500, dtype=torch.bool)
    seen_V[ids[0]] = True
    expected_V = RepetitionPenaltyLogitsProcessor(penalty)(ids, logits_V[None])[0]
    assert torch.equal(sampling.apply_repetition_penalty(logits_V, seen_V, penalty), expected_V)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0])
def test_temperature_gives_the_same_probabilities_as_transformers(temperature):
    logits_V = random_logits(2)
    expected_V = TemperatureLogitsWarper(temperature)(None, logits_V[None])[0].softmax(-1)
    torch.testing.assert_close(sampling.apply_temperature(logits_V, temperature).softmax(-1), expected_V)


def test_the_smallest_temperature_does_not_overflow():
    assert one_token([1e30, -1e30, 3.0], SamplingParams(temperature=1e-4, seed=1)) == 0


# Penalties, by hand


def test_repetition_penalty_covers_prompt_and_output():
    sampler = Sampler(SamplingParams(temperature=0, repetition_penalty=2.0), prompt_ids=[0], vocab_size=3)
    logits_V = torch.tensor([3.0, 2.0, 1.2])
    # 3/2, 2, 1.2 -> token 1; then 3/2, 2/2, 1.2 -> token 0, twice.
    assert [sampler.sample(logits_V) for _ in range(3)] == [1, 0, 0]


def test_repetition_penalty_lowers_negative_logits():
    assert one_token([-1.0, -1.5], SamplingParams(temperature=0, repetition_penalty=2.0), prompt=(0,)) == 1


def test_presence_and_frequency_penalties_leave_the_prompt_alone():
    params = SamplingParams(temperature=0, presence_penalty=2, frequency_penalty=2)
    assert one_token([1.0, 0.9], params, prompt=(0, 0, 0)) == 0


def test_presence_penalty_counts_once_and_frequency_penalty_each_time():
    logits_V, counts_V = torch.tensor([5.0, 5.0, 5.0]), torch.tensor([0.0, 1.0, 3.0])
    assert sampling.apply_output_penalties(logits_V, counts_V, 0.5, 0.25).tolist() == [5.0, 4.25, 3.75]


def pick(
    logits: list[float], params: SamplingParams, uniform: float, counts: list[float] | None = None
) -> int:
    counts_V = torch.tensor(counts or [0.0] * len(logits))
    return sampling.sample(torch.tensor(logits), params, counts_V > 0, counts_V, uniform)


# Order of the chain


def test_penalties_apply_before_the_temperature():
    # Penalty first: (3 - 1 - 2) / 0.5 = 0, even odds; temperature first: (3 - 2) / 0.5 - 1 = 1, odds of 0.73.
    params = SamplingParams(temperature=0.5, presence_penalty=1.0)
    assert [pick([3.0, 2.0], params, u, counts=[1.0, 0.0]) for u in (0.49, 0.51)] == [0, 1]


def test_temperature_applies_before_min_p():
    # At temperature 4 the second token is 0.78 times as likely as the first; at 1 it would be 0.37 times.
    assert pick([1.0, 0.0], SamplingParams(temperature=4, min_p=0.5), 0.99) == 1


def test_top_k_applies_before_top_p():
    # Among the two that top-k leaves, 0.4 is 0.57 of the probability and reaches top-p alone.
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert pick(logits, SamplingParams(top_k=2, top_p=0.55), 0.99) == 0
    assert pick(logits, SamplingParams(top_p=0.55), 0.99) == 1


# Drawing


def test_greedy_is_the_argmax():
    logits_V = random_logits(3)
    assert Sampler(GREEDY, [], 500).sample(logits_V) == int(logits_V.argmax())


def test_draws_follow_the_probabilities():
    probabilities = [0.5, 0.3, 0.0, 0.2]
    logits_V = torch.tensor(probabilities).log()
    draws = [sampling.draw(logits_V, uniform_at(7, index)) for index in range(4000)]
    for token, probability in enumerate(probabilities):
        sigma = math.sqrt(4000 * probability * (1 - probability))
        assert abs(draws.count(token) - 4000 * probability) <= 4 * sigma


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_token_without_probability_is_never_drawn(uniform):
    logits_V = torch.full((1000,), -math.inf)
    logits_V[[400, 600]] = 0.0
    assert sampling.draw(logits_V, uniform) in (400, 600)


@pytest.mark.parametrize("fill", [-math.inf, math.nan])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=1)])
def test_logits_without_a_right_token_are_an_error(fill, params):
    with pytest.raises(PenjingError, match="name no token"):
        one_token([fill, fill], params)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_broken_logit_is_an_error(bad):
    with pytest.raises(PenjingError, match="name no token"):
        one_token([0.0, bad, 1.0], SamplingParams(seed=1, top_k=1))


def test_draws_depend_on_seed_and_index_only():
    assert uniform_at(5, 3) == uniform_at(5, 3)
    assert len({uniform_at(seed, index) for seed in (-1, 0, 1) for index in range(100)}) == 300


def test_sampling_neither_reads_nor_moves_the_global_random_state():
    logits_V = random_logits(4)

    def tokens() -> list[int]:
        sampler = Sampler(SamplingParams(seed=9), [], 500)
        return [sampler.sample(logits_V) for _ in range(20)]

    before = torch.get_rng_state()
    first = tokens()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert tokens() == first


def test_without_a_seed_every_sampler_draws_differently():
    logits_V = torch.zeros(500)
    texts = set()
    for _ in range(3):
        sampler = Sampler(SamplingParams(), [], 500)
        texts.add(tuple(sampler.sample(logits_V) for _ in range(20)))
    assert len(texts) == 3


def test_half_precision_logits_are_sampled_in_float32():
    logits_V = random_logits(5).bfloat16()
    token = Sampler(SamplingParams(seed=2), [], 500).sample(logits_V)
    assert token == Sampler(SamplingParams(seed=2), [], 500).sample(logits_V.float())
