"""Models without a family run through transformers, and say what transformers says, whatever the cache."""

import pytest
import torch
from tests.parity.bridged import BRIDGED, open_reference, write_bridged

import penjing
from penjing.engine.params import SamplingParams
from penjing.engine.steps import extend, make_cache, prefill
from penjing.evaluate.choice import ChoiceItem, score_items
from penjing.model.attention import Layout
from penjing.model.ledger import plan_ledger
from penjing.model.opening import open_model


@pytest.fixture(scope="module", params=BRIDGED, ids=lambda name: name.partition(":")[0])
def bridged(request, tmp_path_factory):
    folder = write_bridged(request.param, tmp_path_factory.mktemp("bridged"))
    return open_reference(folder), penjing.load(folder)


def text(length=40, rows=2):
    ids = torch.randint(640, (rows, length), generator=torch.Generator().manual_seed(1))
    return ids, torch.arange(length).expand(rows, -1)


def assert_close(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))


@torch.inference_mode()
def test_logits_equal_transformers(bridged):
    reference, model = bridged
    ids, positions = text()
    assert_close(model.module(ids, positions), reference(ids).logits)


@torch.inference_mode()
def test_the_head_gives_the_same_logits_a_few_positions_at_a_time(bridged):
    _, model = bridged
    ids, positions = text()
    x_BLD = model.module.hidden(ids, positions)
    assert x_BLD.shape[-1] == 32
    whole = model.module.head(x_BLD)
    assert_close(model.module.head(x_BLD[0, 7:9]), whole[0, 7:9])


@torch.inference_mode()
@pytest.mark.parametrize("split", [1, 7, 39])
def test_any_split_of_the_prompt_through_the_cache_gives_the_uncached_logits(bridged, split):
    _, model = bridged
    ids, positions = text()
    cache = model.module.new_cache(2, 64)
    pieces = [
        model.module(ids[:, i : i + split], positions[:, i : i + split], cache=cache)
        for i in range(0, 40, split)
    ]
    assert_close(torch.cat(pieces, dim=1), model.module(ids, positions))


@torch.inference_mode()
def test_a_batch_of_ragged_prompts_is_each_alone(bridged):
    _, model = bridged
    ids, positions = text()
    lengths = [(3, 7), (40, 9)]
    cache = model.module.new_cache(2, 64)
    together = model.module(ids, positions, cache=cache)
    stepped = model.module(torch.tensor([[7], [9]]), torch.tensor([[3], [40]]), cache=cache)
    after = model.module(torch.tensor([[5], [6]]), torch.tensor([[4], [41]]), cache=cache)
    for row, (length, new) in enumerate(lengths):
        alone = torch.cat((ids[row, :length], torch.tensor([new, 5 + row]))).unsqueeze(0)
        expected = model.module(alone, torch.arange(length + 2).unsqueeze(0))[0]
        assert_close(together[row, length - 1], expected[-3])
        assert_close(stepped[row, 0], expected[-2])
        assert_close(after[row, 0], expected[-1])


@torch.inference_mode()
def test_a_cache_that_goes_back_forgets_what_stood_there(bridged):
    _, model = bridged
    ids, positions = text()
    other = ids.flip(1)
    cache = model.module.new_cache(2, 64)
    model.module(ids, positions, cache=cache)
    again = model.module(other[:, 10:20], positions[:, 10:20], cache=cache)
    expected = model.module(torch.cat((ids[:, :10], other[:, 10:20]), dim=1), positions[:, :20])
    assert_close(again, expected[:, 10:])


@torch.inference_mode()
def test_packed_documents_do_not_see_one_another(bridged):
    _, model = bridged
    ids, positions = text(20)
    numbered = torch.cat((positions[:, :8], positions[:, :12]), dim=1)
    packed = model.module(ids, numbered, layout=Layout((8, 12)))
    assert_close(packed[:, :8], model.module(ids[:, :8], positions[:, :8]))
    assert_close(packed[:, 8:], model.module(ids[:, 8:], positions[:, :12]))


@torch.inference_mode()
def test_the_engines_steps_give_the_next_logits_of_transformers(bridged):
    reference, model = bridged
    ids, _ = text()
    cache = make_cache(model.module, 2, 41, "")
    expected = reference(ids).logits
    assert_close(prefill(model.module, cache, ids[:, :39], chunk=16), expected[:, 38])
    assert_close(extend(model.module, cache, ids[:, 39:], 39), expected[:, 39])


def test_greedy_text_equals_transformers(bridged):
    reference, model = bridged
    prompt = text(9, 1)[0]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_end=True)
    ours = [token for piece in model.stream(prompt[0].tolist(), params) for token in piece.token_ids]
    reference.generation_config.eos_token_id = None
    # Without its cache, with which some of its classes give other logits.
    theirs = reference.generate(prompt, max_new_tokens=12, do_sample=False, use_cache=False, pad_token_id=1)
    assert ours == theirs[0, 9:].tolist()


def test_choice_items_are_judged_as_by_the_uncached_logits(bridged):
    reference, model = bridged
    ids = text(24, 8)[0].tolist()
    items = [
        ChoiceItem("t", tuple(row[:8]), tuple(tuple(other[8:12]) for other in ids[:4]), 0) for row in ids
    ]
    right = []
    for item in items:
        rows = torch.tensor([[*item.context, *choice] for choice in item.choices])
        with torch.inference_mode():
            logp = reference(rows).logits.log_softmax(-1)[:, 7:-1]
        sums = logp.gather(-1, rows[:, 8:].unsqueeze(-1)).sum((1, 2))
        right.append(int(sums.argmax()) == 0)
    assert score_items(model.module, items) == right


def test_parameters_and_bytes_are_known_from_the_headers(bridged):
    reference, model = bridged
    assert model.stored.parameters == sum(p.numel() for p in reference.parameters())
    assert model.stored.nbytes == 2 * model.stored.parameters == model.ledger.nbytes
    assert plan_ledger(open_model(model.name).plan) == model.stored


@torch.inference_mode()
def test_a_saved_folder_opens_in_both_with_equal_logits_and_dtypes(bridged, tmp_path):
    reference, model = bridged
    ids, positions = text()
    model.module(ids, positions)  # running it changes nothing that is saved
    assert model.save(tmp_path / "saved") == model.stored.nbytes
    again = penjing.load(tmp_path / "saved")
    assert torch.equal(again.module(ids, positions), model.module(ids, positions))
    assert set(again.stored.bytes_by_kind()) == {"bfloat16"}
    assert_close(open_reference(tmp_path / "saved")(ids).logits, reference(ids).logits)
