"""Weights that other tools quantised, against transformers' own way of unpacking them."""

import pytest
import torch
from tests.cases.test_quantized_models import FP8, QWEN3
from tests.unit.models import prompt
from tests.unit.packed_parts import packed_model, packed_tensors, random_parts
from transformers import AutoModelForCausalLM, FineGrainedFP8Config
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import penjing
from penjing.packed.mxfp4_spec import Mxfp4Spec
from penjing.packed.scaled_spec import ScaledSpec
from penjing.packed.schemes import packed_tensor


def test_mxfp4_experts_equal_those_of_transformers_bit_for_bit():
    experts, rows, columns = 3, 40, 96
    parts = random_parts(Mxfp4Spec(), experts * rows, columns)
    found = packed_tensor(Mxfp4Spec(), (experts * rows, columns), parts).dequantize()
    stack = {name: part.unflatten(0, (experts, rows)) for name, part in parts.items()}
    reference = convert_moe_packed_tensors(stack["blocks"], stack["scales"])  # experts, columns, rows
    assert torch.equal(found.to(torch.bfloat16).view(experts, rows, columns), reference.transpose(1, 2))
    assert torch.equal(found, found.to(torch.bfloat16).float())


# transformers 5 cuts no edge blocks, so these widths are multiples of the block.
ALIGNED = QWEN3 | {
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


@pytest.mark.parametrize("block", [(128, 128), (64, 32)])
def test_transformers_opens_a_saved_fp8_model_and_computes_the_same(tmp_path, block):
    config = ALIGNED | {"dtype": "float32"}
    tensors = packed_tensors(ScaledSpec("float8_e4m3fn", block, "weight_scale_inv"), config)
    quantization = FP8 | {"weight_block_size": list(block)}
    folder = packed_model(tmp_path / "m", quantization, tensors, config)
    model = penjing.load(folder)
    model.save(tmp_path / "saved")
    reference = AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved",
        quantization_config=FineGrainedFP8Config(dequantize=True, weight_block_size=block),
        dtype=torch.float32,
    )
    ids, positions = prompt()
    with torch.no_grad():
        expected = reference(ids).logits
    assert (model.module(ids, positions) - expected).abs().max() < 1e-4
