"""A model saved as GGUF and opened again is the same model: weights, tokenizer, template, end ids, rope."""

import pytest
import torch
from tests.unit.models import CONFIG, hf_model, prompt, random_tensors
from tests.unit.text_samples import CHAT_TEMPLATE, byte_level_backend, write_folder

import penjing
from penjing.errors import UnsupportedError

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64, "rope_theta": 5e5}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 1e4}
DIALECTS = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "llama 3": {"rope_parameters": LLAMA3},
    "yarn": {"rope_parameters": YARN | {"attention_factor": 1.0}},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 16},
}


@pytest.fixture(params=DIALECTS)
def model(request, tmp_path):
    config = CONFIG | DIALECTS[request.param]
    return penjing.load(hf_model(tmp_path / "m", config))


@torch.inference_mode()
def test_a_model_comes_back_from_gguf_with_equal_logits(model, tmp_path):
    model.save_gguf(tmp_path / "m.gguf")
    again = penjing.load(tmp_path / "m.gguf")
    assert (again.module(*prompt()) - model.module(*prompt())).abs().max() <= 1e-5
    assert again.config.max_position_embeddings == model.config.max_position_embeddings
    again.save(tmp_path / "back")
    back = penjing.load(tmp_path / "back")
    assert torch.equal(back.module(*prompt()), again.module(*prompt()))


def test_a_gguf_file_saved_again_is_the_same_file(model, tmp_path):
    model.save_gguf(tmp_path / "a.gguf")
    penjing.load(tmp_path / "a.gguf").save_gguf(tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_tokenizer_template_and_end_ids_come_along(tmp_path):
    folder = hf_model(tmp_path / "m")
    write_folder(folder, byte_level_backend(), {"chat_template": CHAT_TEMPLATE})
    model = penjing.load(folder)
    model.save_gguf(tmp_path / "m.gguf")
    again = penjing.load(tmp_path / "m.gguf").tokenizer
    messages = [{"role": "user", "content": "a small tree, naïve 123"}]
    assert again.chat_ids(messages) == model.tokenizer.chat_ids(messages)
    assert again.end_ids == model.tokenizer.end_ids and again.add_bos == model.tokenizer.add_bos


def test_a_shrunk_model_is_saved_with_the_weights_it_computes_with(tmp_path):
    from tests.equivalence.test_shrunk_models import documents

    original = penjing.load(hf_model(tmp_path / "m"))
    small = penjing.shrink(original, to=0.5, effort="fast", texts={"words": documents()}).model
    small.cast(torch.float32).save_gguf(tmp_path / "m.gguf")
    again = penjing.load(tmp_path / "m.gguf")
    with torch.inference_mode():
        assert (again.module(*prompt()) - small.module(*prompt())).abs().max() <= 1e-5


def test_what_gguf_cannot_say_is_refused_and_nothing_is_written(tmp_path):
    config = CONFIG | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}
    model = penjing.load(hf_model(tmp_path / "m", config, random_tensors()))
    with pytest.raises(UnsupportedError, match="dynamic"):
        model.save_gguf(tmp_path / "x" / "m.gguf")
    assert not (tmp_path / "x").exists()


def test_a_value_too_large_for_the_type_is_named_and_leaves_no_file(tmp_path):
    tensors = random_tensors(dtype=torch.float32)
    tensors["model.layers.0.mlp.up_proj.weight"][0, 0] = 1e6
    model = penjing.load(hf_model(tmp_path / "m", CONFIG, tensors)).cast(torch.float16)
    with pytest.raises(penjing.InputError, match=r"ffn_up.* F16 can't"):
        model.save_gguf(tmp_path / "x" / "m.gguf")
    assert not list((tmp_path / "x").iterdir())
