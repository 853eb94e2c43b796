"""Models shrunk to GGUF's own blocks: the file has the bytes that were asked for and computes the same."""

import gguf
import pytest
import torch
from tests.equivalence.test_shrunk_models import documents
from tests.parity.twins import config_of
from tests.unit.models import CONFIG, hf_model
from tests.unit.text_samples import byte_level_backend, write_folder
from transformers import AutoModelForCausalLM

import penjing
from penjing.errors import InputError, UnsupportedError
from penjing.model.gguf_saving import packable_in_gguf
from penjing.packed.ggml.spec import BlockSpec
from penjing.shrink.effort import EFFORTS, Effort
from penjing.shrink.forms import block_layouts

QUICK = Effort("fast", 3, 2, 0, 800, 800, 12, 2, passage_tokens=48)


def twin(name, folder, **changes):
    config = config_of(name)
    for key, value in {"vocab_size": CONFIG["vocab_size"], **changes}.items():
        setattr(config, key, value)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
    write_folder(folder, byte_level_backend(), {})
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(EFFORTS, "fast", QUICK)


@torch.inference_mode()
def logits(model):
    ids = torch.arange(3, 33).unsqueeze(0)
    return model.module(ids, torch.arange(30).unsqueeze(0))


@pytest.mark.parametrize(
    ("name", "share"), [("neox", 0.6), ("gpt2", 0.75), ("falcon 40b", 0.6), ("gemma2 as published", 0.6)]
)
def test_the_file_has_the_promised_bytes_and_gives_equal_logits(name, share, tmp_path):
    original = penjing.load(twin(name, tmp_path / "m"))
    result = penjing.shrink(original, to=share, effort="fast", texts={"words": documents()}, form="gguf")
    assert result.save(tmp_path / "small.gguf") <= share * original.base_bytes
    again = penjing.load(tmp_path / "small.gguf")
    assert again.stored.nbytes == result.nbytes
    assert torch.allclose(logits(again), logits(result.model), atol=1e-5)
    assert result.report_path(tmp_path / "small.gguf").exists()


def test_only_types_that_llama_cpp_knows_are_written(tmp_path):
    original = penjing.load(hf_model(tmp_path / "m"))
    result = penjing.shrink(original, to=0.45, effort="fast", texts={"words": documents()}, form="gguf")
    result.save(tmp_path / "small.gguf")
    reader = gguf.GGUFReader(tmp_path / "small.gguf")
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert types["output_norm.weight"] == "F32"
    assert {types[f"blk.0.{n}.weight"][0] for n in ("attn_q", "ffn_up")} == {"Q"}
    assert reader.get_field("general.quantization_version").contents() == 2


def test_matrices_that_share_a_tensor_share_a_type(tmp_path):
    original = penjing.load(twin("neox", tmp_path / "m"))
    result = penjing.shrink(original, to=0.6, effort="fast", texts={"words": documents()}, form="gguf")
    for names in packable_in_gguf(original.module, original.hf_config["model_type"]).values():
        modules = [result.model.module.get_submodule(name) for name in names]
        assert len({getattr(module, "spec", None) for module in modules}) == 1


def test_widths_decide_which_types_there_are():
    assert BlockSpec("Q4_K") in block_layouts(512) and BlockSpec("Q4_K") not in block_layouts(576)
    assert block_layouts(576) and not block_layouts(80)


def test_a_rerun_writes_the_same_file(tmp_path):
    folder = hf_model(tmp_path / "m")
    for name in ("a", "b"):
        result = penjing.shrink(folder, to=0.45, effort="fast", texts={"words": documents()}, form="gguf")
        result.save(tmp_path / f"{name}.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_what_has_no_form_in_gguf_files_is_refused_before_any_work(tmp_path):
    original = penjing.load(twin("opt", tmp_path / "m"))
    with pytest.raises(UnsupportedError, match="no form in GGUF"):
        penjing.shrink(original, to=0.5, effort="fast", texts={"words": documents()}, form="gguf")


def test_another_form_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="onnx"):
        penjing.shrink(hf_model(tmp_path / "m"), to=0.5, texts={"words": documents()}, form="onnx")


def test_blocks_are_not_saved_in_a_folder(tmp_path):
    original = penjing.load(hf_model(tmp_path / "m"))
    result = penjing.shrink(original, to=0.45, effort="fast", texts={"words": documents()}, form="gguf")
    with pytest.raises(UnsupportedError, match="layout"):
        result.model.save(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
