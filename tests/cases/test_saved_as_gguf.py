"""Real-world failures when a model is written as GGUF: what is lost on the way, and what is shifted."""

import json

import pytest
import torch
from tests.parity.twins import config_of
from tests.unit.models import CONFIG, hf_model
from tests.unit.text_samples import byte_level_backend, write_folder
from tokenizers import Regex, pre_tokenizers
from transformers import AutoModelForCausalLM

import penjing
from penjing.errors import UnsupportedError
from penjing.formats.open import open_checkpoint
from penjing.model.gguf_saving import save_gguf
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load
from penjing.text.gguf_metadata import tokenizer_metadata


def saved(folder, tmp_path):
    """The metadata of the model in `folder`, saved as GGUF."""
    penjing.load(folder).save_gguf(tmp_path / "m.gguf")
    return open_checkpoint(tmp_path / "m.gguf").config


def test_merges_kept_as_pairs_and_as_texts_give_the_same_file(tmp_path):
    folder = hf_model(tmp_path / "m")
    found = saved(folder, tmp_path)["tokenizer.ggml.merges"]
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    pairs = [m.split(" ") if isinstance(m, str) else m for m in values["model"]["merges"]]
    for merges in (pairs, [" ".join(pair) for pair in pairs]):
        values["model"]["merges"] = merges
        file.write_text(json.dumps(values), encoding="utf-8")
        assert saved(folder, tmp_path)["tokenizer.ggml.merges"] == found
    assert found


def test_a_tokenizer_without_merges_is_not_saved(tmp_path):
    folder = hf_model(tmp_path / "m")
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values["model"]["merges"] = []
    file.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UnsupportedError, match="without merges"):
        saved(folder, tmp_path)


@pytest.mark.parametrize("pattern", [r"\p{N}{1,2}", r"[^\s\p{N}]+\p{N}"])
def test_a_rule_of_ones_own_for_cutting_text_is_refused_and_nothing_written(tmp_path, pattern):
    backend = byte_level_backend()
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(use_regex=False)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    folder = hf_model(tmp_path / "m")
    write_folder(folder, backend, {})
    with pytest.raises(UnsupportedError, match="no rule that cuts text as it does"):
        saved(folder, tmp_path)
    assert not (tmp_path / "m.gguf").exists()


def test_all_end_ids_come_along_wherever_they_were_kept(tmp_path):
    folder = hf_model(tmp_path / "m")
    write_folder(folder, byte_level_backend(), {"eos_token": "</s>"})
    ends = [1, 2]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}), encoding="utf-8")
    saved(folder, tmp_path)
    from_file = penjing.load(tmp_path / "m.gguf")
    from_file.save(tmp_path / "back")
    for model in (penjing.load(folder), from_file, penjing.load(tmp_path / "back")):
        assert model.tokenizer.end_ids == set(ends)


def test_more_end_ids_than_a_file_has_room_for_are_refused(tmp_path):
    folder = hf_model(tmp_path / "m")
    ends = [3, 4, 5, 6]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}), encoding="utf-8")
    with pytest.raises(UnsupportedError, match="end of an answer"):
        tokenizer_metadata(penjing.load(folder).tokenizer, CONFIG["vocab_size"])


@torch.inference_mode()
def test_gains_of_norms_are_shifted_in_the_file_and_shifted_back(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(config_of("gemma2 as published")).save_pretrained(tmp_path / "m")
    module = load_decoder(plan_load(open_checkpoint(tmp_path / "m")))
    dtypes = {name: torch.float32 for name, _ in module.named_parameters()}
    save_gguf(tmp_path / "m.gguf", module, dtypes, "gemma2", {"tokenizer.ggml.model": "no_vocab"})
    stored = open_checkpoint(tmp_path / "m.gguf").read("blk.0.post_ffw_norm.weight")
    gain = module.get_parameter("model.layers.0.post_mlp_layernorm.weight")
    assert torch.equal(stored, gain + 1)
    again = load_decoder(plan_load(open_checkpoint(tmp_path / "m.gguf")))
    for name, tensor in module.state_dict().items():
        assert torch.allclose(again.state_dict()[name], tensor, atol=1e-7), name
