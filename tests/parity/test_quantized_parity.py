"""Weights that other tools quantised, against transformers' own way of unpacking them."""

import pytest
import torch
from tests.cases.test_quantized_models import FP8, QWEN3
from tests.parity.twins import config_of
from tests.unit.models import prompt
from tests.unit.packed_parts import packed_model, packed_tensors, random_parts
from transformers import AutoModelForCausalLM, FineGrainedFP8Config
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import penjing
from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.formats.open import open_checkpoint
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load
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


def test_a_gpt_oss_folder_with_mxfp4_experts_computes_what_its_unpacked_weights_do(tmp_path):
    config = config_of("gpt-oss")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        reference = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    tensors, generator = reference.state_dict(), torch.Generator().manual_seed(4)
    for layer in range(config.num_hidden_layers):
        for leaf in ("gate_up_proj", "down_proj"):
            name = f"model.layers.{layer}.mlp.experts.{leaf}"
            experts, columns, rows = tensors[name].shape
            groups = (experts, rows, columns // 32)
            blocks = torch.randint(0, 256, (*groups, 16), generator=generator, dtype=torch.uint8)
            scales = torch.randint(120, 124, groups, generator=generator, dtype=torch.uint8)
            tensors[name].copy_(convert_moe_packed_tensors(blocks, scales))
            del tensors[name]
            tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    write_safetensors_shards(tmp_path, tensors)
    entry = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    write_json(tmp_path / "config.json", {**config.to_dict(), "quantization_config": entry})
    plan = plan_load(open_checkpoint(tmp_path))
    assert len(plan.packed) == 3 * config.num_local_experts * config.num_hidden_layers
    module = load_decoder(plan)
    ids = torch.randint(0, 96, (2, 24), generator=generator)
    with torch.inference_mode():
        difference = module(ids, torch.arange(24).expand(2, -1)) - reference(ids).logits
    assert difference.abs().max() <= 1e-4
