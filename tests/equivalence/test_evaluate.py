"""Evaluation of a real decoder equals the plain computation: whole logits, no cache, float64 sums."""

import pytest
import torch

from penjing.evaluate import forward
from penjing.evaluate.choice import CHOICES, ChoiceItem, score_items
from penjing.evaluate.likelihood import score_pair, score_passage
from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.decoder import Decoder

VOCAB = 131


def decoder(seed: int, window: int | None = None, dtype: torch.dtype = torch.float32) -> Decoder:
    """A random decoder of two layers whose predictions depend on the whole context."""
    config = ModelConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        rope=RopeConfig(),
        windows=(window, None),
    )
    module = Decoder(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.2, generator=generator)
    return module.to(dtype)


def random_ids(length: int, seed: int) -> list[int]:
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def plain_log_probabilities(module: Decoder, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits = module(torch.tensor([ids]), torch.arange(len(ids)).unsqueeze(0))
    return logits[0, :-1].double().log_softmax(-1)


@pytest.mark.parametrize("window", [None, 16])
def test_a_pair_of_decoders_equals_whole_logits(window, monkeypatch):
    monkeypatch.setattr(forward, "SLICE_BYTES", 4 * VOCAB * 24)
    original, shrunk, ids = decoder(1, window), decoder(1, window), random_ids(100, 2)
    shrunk.model.layers[1].mlp.up_proj.weight.data *= 1.1
    logp, logq = plain_log_probabilities(original, ids), plain_log_probabilities(shrunk, ids)
    targets = torch.tensor(ids[1:]).unsqueeze(1)
    score = score_pair(original, shrunk, ids)
    assert score.tokens == 99
    assert score.nll_original == pytest.approx(-logp.gather(1, targets).sum().item(), rel=1e-6)
    assert score.nll_shrunk == pytest.approx(-logq.gather(1, targets).sum().item(), rel=1e-6)
    assert score.kl == pytest.approx((logp.exp() * (logp - logq)).sum().item(), rel=1e-3)
    assert score.agree == (logp.argmax(-1) == logq.argmax(-1)).sum().item()
    assert score_passage(shrunk, ids).nll == pytest.approx(score.nll_shrunk, rel=1e-9)


def choice_items(count: int) -> list[ChoiceItem]:
    return [
        ChoiceItem(
            "random",
            tuple(random_ids(24, 100 + number)),
            tuple(tuple(random_ids(12, 1000 + 10 * number + choice)) for choice in range(CHOICES)),
            number % CHOICES,
        )
        for number in range(count)
    ]


def plain_choice(module: Decoder, item: ChoiceItem) -> bool:
    scores = []
    for choice in item.choices:
        ids = [*item.context, *choice]
        logp = plain_log_probabilities(module, ids)[-len(choice) :]
        scores.append(logp.gather(1, torch.tensor(choice).unsqueeze(1)).sum().item())
    return scores.index(max(scores)) == item.answer


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("batch", [1, 5, 16])
def test_choices_with_a_shared_cached_context_equal_whole_sequences(window, batch):
    module, items = decoder(1, window), choice_items(16)
    expected = [plain_choice(module, item) for item in items]
    assert 0 < sum(expected) < 16
    assert score_items(module, items, batch=batch) == expected


def test_a_model_in_bfloat16_is_scored_in_its_own_type():
    module, ids = decoder(1, dtype=torch.bfloat16), random_ids(60, 2)
    logp = plain_log_probabilities(module, ids)
    expected = -logp.gather(1, torch.tensor(ids[1:]).unsqueeze(1)).sum().item()
    assert score_passage(module, ids).nll == pytest.approx(expected, rel=1e-3)
    assert len(score_items(module, choice_items(8))) == 8
