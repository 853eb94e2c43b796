"""Real-world failures with quantised weights of models that store fused matrices: a scale can belong to the
rows of one matrix, or of two."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.cases.test_quantized_models import FP8, compressed_tensors, fp8_blocks, raw
from tests.unit.models import CONFIG, hf_model, prompt, random_tensors

import penjing
from penjing.errors import UnsupportedError
from penjing.formats.open import open_checkpoint
from penjing.model.ledger import plan_ledger
from penjing.model.plan import plan_load

PHI3: dict[str, Any] = CONFIG | {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
PER_ROW = compressed_tensors("float-quantized", type="float", num_bits=8, strategy="channel")
ONE_SCALE = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
FUSED = {"self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("gate_proj", "up_proj")}


def rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """fp8 codes and the scale of each row."""
    scales = weight.float().abs().amax(1, keepdim=True) / 448
    return (weight.float() / scales).to(torch.float8_e4m3fn), scales


def whole(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """fp8 codes and one scale."""
    scale = weight.float().abs().max() / 448
    return (weight.float() / scale).to(torch.float8_e4m3fn), scale


FORMS = {
    "blocks": (FP8, fp8_blocks, "weight_scale_inv"),
    "rows": (PER_ROW, rows, "weight_scale"),
    "one scale": (ONE_SCALE, whole, "weight_scale"),
}


def fused(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A Phi-3's tensors as its folders hold them."""
    tensors = random_tensors(config)
    for layer in (f"model.layers.{i}" for i in range(config["num_hidden_layers"])):
        for stored, parts in FUSED.items():
            parent = stored.partition(".")[0]
            found = [tensors.pop(f"{layer}.{parent}.{part}.weight") for part in parts]
            tensors[f"{layer}.{stored}.weight"] = torch.cat(found)
    return tensors


def quantized(folder, form: str, config: dict[str, Any]):
    """The folder, its tensors, and the same as floats."""
    settings, quantize, scale = FORMS[form]
    stored, floats = {}, fused(config)
    for name, tensor in list(floats.items()):
        if "_proj" not in name:
            stored[name] = tensor
            continue
        codes, scales = quantize(tensor)
        stored[name], stored[name.replace("weight", scale)] = codes, scales
        if form == "blocks":
            scales = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
            scales = scales[: tensor.shape[0], : tensor.shape[1]]
        floats[name] = codes.float() * scales
    return hf_model(folder, config | {"quantization_config": settings}, stored), stored, floats


@torch.inference_mode()
@pytest.mark.parametrize("form", ["blocks", "rows"])
def test_scales_are_cut_with_the_rows_that_they_are_for_and_saved_as_they_came(tmp_path, form):
    folder, stored, floats = quantized(tmp_path / "m", form, PHI3)
    expected = penjing.load(hf_model(tmp_path / "floats", PHI3, floats)).module(*prompt())
    model = penjing.load(folder)
    assert (model.module(*prompt()) - expected).abs().max() <= 1e-5
    assert plan_ledger(plan_load(open_checkpoint(folder))).nbytes == sum(t.nbytes for t in stored.values())

    model.save(tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == stored.keys()
    assert all(torch.equal(raw(again[name]), raw(tensor)) for name, tensor in stored.items())
    assert (penjing.load(tmp_path / "again").module(*prompt()) - expected).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("form", "changed", "name"),
    [
        (
            "blocks",
            {"intermediate_size": 200},
            "gate_up_proj",
        ),  # 2 + 2 blocks, and 4 for both: alike by chance
        ("blocks", {"intermediate_size": 160}, "gate_up_proj"),
        ("blocks", {"num_key_value_heads": 1}, "qkv_proj"),
        ("one scale", {}, "qkv_proj"),
    ],
)
def test_a_scale_for_rows_of_two_matrices_is_refused_by_name(tmp_path, form, changed, name):
    folder, _, _ = quantized(tmp_path / "m", form, PHI3 | changed)
    with pytest.raises(UnsupportedError, match=rf"{name}\.weight.* holds several matrices"):
        plan_load(open_checkpoint(folder))


def test_packed_integers_of_fused_matrices_are_refused(tmp_path):
    settings = compressed_tensors("pack-quantized", type="int", num_bits=4, strategy="group", group_size=32)
    tensors = fused(PHI3)
    name = "model.layers.0.self_attn.qkv_proj"
    count = tensors.pop(f"{name}.weight").shape[0]
    tensors[f"{name}.weight_packed"] = torch.zeros(count, 32, dtype=torch.int32)
    tensors[f"{name}.weight_scale"] = torch.ones(count, 8)
    tensors[f"{name}.weight_shape"] = torch.tensor([count, 256])
    folder = hf_model(tmp_path / "m", PHI3 | {"quantization_config": settings}, tensors)
    with pytest.raises(UnsupportedError, match=r"qkv_proj\.weight_scale holds several matrices"):
        plan_load(open_checkpoint(folder))
