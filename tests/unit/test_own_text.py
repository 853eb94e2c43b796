"""Text that a model writes to be shrunk by: whole passages, of its own tokens, the same for the same seed."""

import pytest
import torch
from tests.unit.models import hf_model

import penjing
from penjing.errors import PenjingError
from penjing.shrink.own_text import own_passages


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return penjing.load(hf_model(tmp_path_factory.mktemp("model") / "m"))


def write(model, passages=3, seed=0):
    return own_passages(model, passages, 16, torch.Generator().manual_seed(seed))


def test_passages_have_the_asked_shape_and_only_tokens_that_the_tokenizer_knows(model):
    ids_NL = write(model, passages=20)  # more than are written side by side
    assert ids_NL.shape == (20, 16) and ids_NL.dtype == torch.int64
    assert ids_NL.min() >= 0 and ids_NL.max() < model.tokenizer.vocab_size


def test_the_seed_decides_and_the_global_random_state_is_left_alone(model):
    state = torch.get_rng_state()
    assert torch.equal(write(model), write(model))
    assert not torch.equal(write(model), write(model, seed=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_tokens_are_drawn_as_often_as_the_model_says(model):
    ids_NL = own_passages(model, 1000, 4, torch.Generator().manual_seed(0)).view(-1, 2)  # texts of two
    first = ids_NL[:, 0].mode().values
    second = ids_NL[ids_NL[:, 0] == first, 1]
    with torch.inference_mode():
        logits_V = model.module(torch.tensor([[int(first)]]), torch.tensor([[0]]))[0, 0]
    expected = logits_V[: model.tokenizer.vocab_size].softmax(-1)
    likely = expected.topk(3).indices
    found = torch.stack([(second == token).float().mean() for token in likely])
    assert (found - expected[likely]).abs().max() < 6 * (0.25 / len(second)) ** 0.5


def test_logits_that_are_not_finite_are_refused(model, monkeypatch):
    broken = lambda hidden: torch.full((*hidden.shape[:-1], model.config.vocab_size), torch.nan)  # noqa: E731
    monkeypatch.setattr(model.module, "head", broken)
    with pytest.raises(PenjingError, match="aren't finite"):
        write(model)
