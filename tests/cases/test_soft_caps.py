"""Gemma 2 bounds its scores and its logits, and scales queries by a number of its own. Runtimes have lost one
of the three on one of their paths, and greedy answers often looked right all the same."""

from dataclasses import replace

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from penjing.evaluate.likelihood import score_pair, score_passage
from penjing.formats.open import open_checkpoint
from penjing.model.attention import Layout
from penjing.model.cache import StaticCache
from penjing.model.decoder import Decoder
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

TOKENS, CAP = 24, 3.0
CONFIG = Gemma2Config(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    query_pre_attn_scalar=20,
    attn_logit_softcapping=5.0,
    final_logit_softcapping=CAP,
    sliding_window=8,
    initializer_range=8 * 0.02,
    attn_implementation="eager",
)
IDS = torch.randint(0, 96, (1, TOKENS), generator=torch.Generator().manual_seed(1))
POSITIONS = torch.arange(TOKENS).unsqueeze(0)


@pytest.fixture(scope="module")
def reference():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return Gemma2ForCausalLM(CONFIG).eval()


@pytest.fixture(scope="module")
def module(reference, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gemma2")
    reference.save_pretrained(folder)
    return load_decoder(plan_load(open_checkpoint(folder)))


@pytest.fixture(scope="module")
def expected(reference):
    with torch.inference_mode():
        return reference(IDS).logits


def changed(module, **fields):
    """The same weights in a model that differs in some fields."""
    other = Decoder(replace(module.config, **fields)).eval()
    other.load_state_dict(module.state_dict())
    return other


@torch.inference_mode()
def test_logits_equal_transformers_and_stay_within_the_cap(module, expected):
    logits = module(IDS, POSITIONS)
    assert (logits - expected).abs().max() <= 1e-4
    assert 0.9 * CAP < logits.abs().max() <= CAP


@torch.inference_mode()
@pytest.mark.parametrize("split", [1, 5, TOKENS])
def test_the_cache_changes_nothing(module, expected, split):
    cache = StaticCache(module.config, 1, 32)
    pieces = [
        module(IDS[:, i : i + split], POSITIONS[:, i : i + split], cache=cache)
        for i in range(0, TOKENS, split)
    ]
    assert (torch.cat(pieces, dim=1) - expected).abs().max() <= 1e-4


@torch.inference_mode()
def test_packed_documents_give_what_each_gives_alone(module, reference):
    lengths = (10, TOKENS - 10)
    positions = torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0)
    alone = [reference(part).logits for part in IDS.split(lengths, dim=1)]
    packed = module(IDS, positions, layout=Layout(lengths))
    assert (packed - torch.cat(alone, dim=1)).abs().max() <= 1e-4


@torch.inference_mode()
@pytest.mark.parametrize(
    "lost", [{"attention_softcap": None}, {"logit_softcap": None}, {"attention_scale": None}], ids=str
)
def test_losing_any_of_the_three_would_be_seen(module, expected, lost):
    assert (changed(module, **lost)(IDS, POSITIONS) - expected).abs().max() > 0.1


def test_likelihoods_and_divergences_are_those_of_capped_logits(module, expected):
    log_p = expected[0, :-1].double().log_softmax(-1)
    nll = -float(log_p.gather(1, IDS[0, 1:, None]).sum())
    assert score_passage(module, IDS[0].tolist()).nll == pytest.approx(nll, rel=1e-5)
    uncapped = changed(module, logit_softcap=None)
    with torch.inference_mode():
        log_q = uncapped(IDS, POSITIONS)[0, :-1].double().log_softmax(-1)
    score = score_pair(module, uncapped, IDS[0].tolist())
    assert score.kl == pytest.approx(float((log_p.exp() * (log_p - log_q)).sum()), rel=1e-4)
    assert score_pair(module, module, IDS[0].tolist()).kl == pytest.approx(0, abs=1e-6)
