"""DeepSeek-V3 as it was published: fp8 blocks beside floats, and a layer that drafts a further token."""

from typing import Any

import pytest
import torch
from tests.cases.test_published_configs import DEEPSEEK_V3
from tests.cases.test_quantized_models import FP8, fp8_blocks
from tests.unit.models import hf_model, random_tensors

from penjing.errors import InputError
from penjing.formats.open import open_checkpoint
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

SMALL = {
    "hidden_size": 192,
    "intermediate_size": 160,
    "kv_lora_rank": 32,
    "max_position_embeddings": 256,
    "moe_intermediate_size": 64,
    "n_routed_experts": 16,
    "num_attention_heads": 4,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "vocab_size": 640,
}
PLAIN: dict[str, Any] = DEEPSEEK_V3 | SMALL
CONFIG = PLAIN | {"quantization_config": FP8}
LAST = "model.layers.4"


def published() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The floats, and what the folder holds: every linear but head and router in fp8, and a fifth layer."""
    floats = random_tensors(PLAIN)
    drafts = {
        name.replace("model.layers.3", LAST): tensor
        for name, tensor in floats.items()
        if name.startswith("model.layers.3.")
    }
    drafts |= {f"{LAST}.eh_proj.weight": torch.zeros(192, 384), f"{LAST}.enorm.weight": torch.ones(192)}
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in (floats | drafts).items():
        if "_proj" in name and "eh_proj" not in name:
            stored[name], stored[f"{name}_scale_inv"] = fp8_blocks(tensor)
        else:
            stored[name] = tensor
    return floats, stored


@torch.inference_mode()
def test_the_folder_opens_without_its_drafting_layer_and_says_so(tmp_path):
    floats, stored = published()
    found = plan_load(open_checkpoint(hf_model(tmp_path / "fp8", CONFIG, stored)))
    count = sum(name.startswith(f"{LAST}.") for name in stored)
    assert [n for n in found.notices if "further layers" in n] == [
        f"{count} tensors of further layers, which predict more than the next token, are left out"
    ]
    original = load_decoder(plan_load(open_checkpoint(hf_model(tmp_path / "floats", PLAIN, floats))))
    packed = load_decoder(found)
    assert found.packed.keys() == {n.removesuffix(".weight") for n in floats if "_proj" in n}
    ids = torch.arange(24).unsqueeze(0)
    difference = packed(ids, ids) - original(ids, ids)
    assert 0 < difference.square().mean() < 0.2 * original(ids, ids).square().mean()


def test_a_missing_scale_of_an_expert_is_named(tmp_path):
    _, stored = published()
    del stored["model.layers.3.mlp.experts.7.up_proj.weight_scale_inv"]
    with pytest.raises(InputError, match=r"missing: model\.layers\.3\.mlp\.experts\.7\.up_proj"):
        plan_load(open_checkpoint(hf_model(tmp_path / "m", CONFIG, stored)))


def test_a_layer_beyond_the_announced_ones_is_unexpected(tmp_path):
    floats, _ = published()
    floats[f"{LAST}.enorm.weight"] = torch.ones(192)
    with pytest.raises(InputError, match=rf"unexpected: {LAST}\.enorm\.weight"):
        plan_load(open_checkpoint(hf_model(tmp_path / "m", PLAIN | {"num_nextn_predict_layers": 0}, floats)))
