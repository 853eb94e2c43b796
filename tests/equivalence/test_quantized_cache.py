"""A quantised cache: what is new is exact, what is old is near, and going back loses no more."""

import pytest
import torch
from tests.parity.bridged import write_bridged
from tests.parity.twins import config_of
from tests.unit.models import hf_model
from tests.unit.text_samples import byte_level_backend, write_folder
from transformers import AutoModelForCausalLM

import penjing
from penjing.engine.params import SamplingParams
from penjing.errors import InputError, UnsupportedError
from penjing.model.quantized_cache import CacheSpec, QuantizedCache
from penjing.model.through_cache import ThroughCache

NAMES = ["llama tied", "gemma2 as published", "deepseek v3", "gpt-oss", "falcon 40b", "qwen3 tied"]
LENGTH = 60


@pytest.fixture(scope="module", params=NAMES)
def module(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache") / "m"
    config = config_of(request.param)
    config.vocab_size = 640
    with torch.random.fork_rng():
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_folder(folder, byte_level_backend(), {})
    return penjing.load(folder).module


def text(rows=2, length=LENGTH, seed=0):
    ids = torch.randint(0, 96, (rows, length), generator=torch.Generator().manual_seed(seed))
    return ids, torch.arange(length).expand(rows, -1)


def new_cache(module, spec, rows=2, slots=LENGTH):
    return QuantizedCache(module.config, rows, slots, spec, torch.float32)


def read(module, cache, ids, start, step):
    """Hidden states of the tokens from `start` on, so many in a call."""
    positions = torch.arange(start, ids.shape[1]).expand(len(ids), -1)
    parts = zip(ids[:, start:].split(step, 1), positions.split(step, 1), strict=True)
    return torch.cat([module.hidden(i, p, cache=cache) for i, p in parts], dim=1)


def largest(x):
    return float(x.abs().max())


@torch.inference_mode()
def test_within_the_window_nothing_is_rounded(module):
    ids, positions = text()
    exact = module.hidden(ids, positions)
    found = read(module, new_cache(module, CacheSpec(4, block=8, window=LENGTH)), ids, 0, 7)
    assert largest(found - exact) <= 1e-4 * largest(exact)


@torch.inference_mode()
def test_eight_bits_are_near_and_four_less_so(module):
    ids, positions = text()
    exact = module.hidden(ids, positions)
    errors = {}
    for bits in (8, 4):
        found = read(module, new_cache(module, CacheSpec(bits, block=8, window=8)), ids, 0, 4)
        errors[bits] = largest(found - exact) / largest(exact)
    assert 0 < errors[8] < 0.02 and errors[8] < errors[4]


@torch.inference_mode()
def test_rows_of_different_lengths_give_what_each_gives_alone(module):
    ids, _ = text()
    spec = CacheSpec(8, block=8, window=8)
    cache = new_cache(module, spec)
    read(module, cache, ids[:, :20], 0, 20)
    alone = new_cache(module, spec, rows=1)
    read(module, alone, ids[1:, :20], 0, 20)
    read(module, alone, ids[1:, :40], 20, 20)
    # The second row goes on while the first stands still: it writes its last token again.
    for position in range(20, 40):
        both = torch.stack((ids[0, 19:20], ids[1, position : position + 1]))
        module.hidden(both, torch.tensor([[19], [position]]), cache=cache)
    last = torch.tensor([[19], [40]])
    together = module.hidden(torch.stack((ids[0, 19:20], ids[1, 40:41])), last, cache=cache)
    single = module.hidden(ids[1:, 40:41], last[1:], cache=alone)
    assert largest(together[1] - single[0]) <= 0.02 * largest(single)


@torch.inference_mode()
def test_going_back_within_the_window_forgets_what_stood_there(module):
    ids, _ = text()
    found = []
    for forgotten in (ids, text(seed=1)[0]):
        cache = new_cache(module, CacheSpec(4, block=8, window=24))
        read(module, cache, torch.cat((ids[:, :40], forgotten[:, 40:50]), 1), 0, 10)
        found.append(read(module, cache, torch.cat((ids[:, :40], ids.flip(1)[:, 40:50]), 1), 40, 10))
    assert largest(found[0] - found[1]) <= 1e-4 * largest(found[0])


@torch.inference_mode()
def test_going_back_into_what_was_rounded_forgets_what_stood_there_and_stays_near(module):
    ids, _ = text()
    other = torch.cat((ids[:, :5], ids.flip(1)[:, 5:]), 1)
    cache = new_cache(module, CacheSpec(8, block=8, window=8))
    read(module, cache, ids, 0, 10)
    again = read(module, cache, other[:, :30], 5, 5)
    exact = module.hidden(other[:, :30], torch.arange(30).expand(2, -1))[:, 5:]
    assert largest(again - exact) < 0.03 * largest(exact)


@torch.inference_mode()
def test_bytes_are_known_before_and_fewer_than_of_floats(module):
    through = ThroughCache(module, CacheSpec(8))
    assert through.cache_nbytes(2, 4096) == through.new_cache(2, 4096).nbytes
    four = ThroughCache(module, CacheSpec(4)).cache_nbytes(2, 4096)
    assert four < through.cache_nbytes(2, 4096) < module.cache_nbytes(2, 4096)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return penjing.load(hf_model(tmp_path_factory.mktemp("m") / "m"))


class TestRefusals:
    def test_a_gap(self, model):
        ids, _ = text(1, 4)
        with pytest.raises(InputError, match="position 3 can't be written before those from 0 on"):
            model.module.hidden(ids, torch.arange(3, 7)[None], cache=new_cache(model.module, CacheSpec(8), 1))

    def test_tokens_out_of_order(self, model):
        ids, _ = text(1, 3)
        with pytest.raises(InputError, match="in order"):
            cache = new_cache(model.module, CacheSpec(8), 1)
            model.module.hidden(ids, torch.tensor([[0, 2, 1]]), cache=cache)

    def test_bits_and_names_that_are_not_there(self, model):
        with pytest.raises(InputError, match="4 or 8 bits"):
            CacheSpec(3)
        with pytest.raises(InputError, match="fp8"):
            model.with_kv_cache("fp8")

    def test_a_model_that_runs_through_transformers(self, tmp_path):
        bridged = penjing.load(write_bridged("mpt: ALiBi, tied", tmp_path / "m"))
        with pytest.raises(UnsupportedError, match="runs through transformers"):
            bridged.with_kv_cache("int8")

    def test_a_model_writes_through_it(self, model):
        params = SamplingParams(temperature=0, max_tokens=200)
        exact, near = model.generate("tree", params), model.with_kv_cache("int8").generate("tree", params)
        shared = sum(a == b for a, b in zip(exact.token_ids, near.token_ids, strict=False))
        assert len(near.token_ids) > 0 and shared >= min(40, len(exact.token_ids))
