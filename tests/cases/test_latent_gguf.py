"""GGUF files of models with latent attention, as llama.cpp's conversion writes them today and wrote them
before it kept keys and values apart."""

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from tests.parity.twins import EXPERTS, LATENT, YARN
from transformers import AutoModelForCausalLM, DeepseekV2Config, DeepseekV3Config

from penjing.errors import InputError
from penjing.formats.open import open_checkpoint
from penjing.model.ledger import plan_ledger
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

WIDE = LATENT | {"num_key_value_heads": 4, "kv_lora_rank": 32, "qk_nope_head_dim": 32}
ROUTED = EXPERTS | {"n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1}
V3 = DeepseekV3Config(
    **WIDE,
    **ROUTED,
    n_group=4,
    topk_group=2,
    rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
)
V2 = DeepseekV2Config(
    **WIDE | {"q_lora_rank": None},
    **ROUTED,
    routed_scaling_factor=2.0,
    rope_parameters=YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
)
NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.DEEPSEEK2, 8)
KEYS, VALUES, WHOLE = (f"blk.0.attn_{leaf}.weight" for leaf in ("k_b", "v_b", "kv_b"))
KV_B = "model.layers.0.self_attn.kv_b_proj"


@pytest.fixture(scope="module", params=[V2, V3], ids=["V2", "V3"])
def reference(request) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(request.param).eval()
        for name, tensor in model.state_dict().items():
            if "norm" in name or "bias" in name:
                torch.nn.init.normal_(tensor, mean=float("norm" in name), std=0.2)
    return model


def tensors_of(model: Any, folder: Path, in_parts: bool = True) -> dict[str, torch.Tensor]:
    """What the conversion makes of the tensors of a folder."""
    model.save_pretrained(folder)
    checkpoint, config = open_checkpoint(folder), model.config
    found: dict[str, torch.Tensor] = {}
    experts: dict[str, list[torch.Tensor]] = {}
    for name in checkpoint.tensors:
        tensor = checkpoint.read(name).float().clone()
        if ".experts." in name:
            layer, _, leaf = name.partition(".experts.")
            experts.setdefault(f"{layer}.experts.{leaf.partition('.')[2]}", []).append(tensor)
        elif name.endswith("kv_b_proj.weight") and in_parts:
            heads = tensor.view(config.num_attention_heads, -1, config.kv_lora_rank)
            k_b, v_b = heads.split([config.qk_nope_head_dim, config.v_head_dim], dim=1)
            found[stored_name(name.replace("kv_b", "k_b"))] = k_b.transpose(1, 2)
            found[stored_name(name.replace("kv_b", "v_b"))] = v_b
        else:
            found[stored_name(name)] = tensor
    return found | {stored_name(name): torch.stack(stack) for name, stack in experts.items()}


def stored_name(name: str) -> str:
    name = name.replace("e_score_correction_bias", "e_score_correction.bias")  # as the conversion calls it
    stored = NAMES.get_name(name, (".weight", ".bias"))
    assert stored is not None, name
    return stored


def write(
    path: Path,
    config: Any,
    tensors: dict[str, torch.Tensor],
    in_parts: bool = True,
    further: int = 0,
    quantised: tuple[str, ...] = (),
    says_scoring: bool = True,
) -> Path:
    is_v3, width = config.model_type == "deepseek_v3", config.qk_nope_head_dim + config.qk_rope_head_dim
    writer = gguf.GGUFWriter(path, "deepseek2")
    writer.add_block_count(config.num_hidden_layers + further)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(config.rope_parameters["factor"])
    writer.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if is_v3:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        if says_scoring:
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_vocab_size(config.vocab_size)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if in_parts:
        writer.add_head_count_kv(1)
        writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
        writer.add_value_length(config.kv_lora_rank)
        writer.add_key_length_mla(width)
        writer.add_value_length_mla(config.v_head_dim)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(width)
        writer.add_value_length(config.v_head_dim)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    if further:
        writer.add_nextn_predict_layers(further)
    for name, tensor in tensors.items():
        data, kind = tensor.contiguous().numpy(), None
        if name.endswith(quantised or ("none",)):
            kind = gguf.GGMLQuantizationType.Q8_0
            data = gguf.quants.quantize(data, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def ids() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(1))
    return drawn, torch.arange(40).expand(2, -1)


def plan(path: Path):
    return plan_load(open_checkpoint(path))


@torch.inference_mode()
@pytest.mark.parametrize("in_parts", [True, False], ids=["in parts", "whole"])
def test_the_matrix_of_keys_and_values_is_read_whole_and_in_parts(reference, tmp_path, in_parts):
    tensors = tensors_of(reference, tmp_path / "hf", in_parts)
    found = plan(write(tmp_path / "m.gguf", reference.config, tensors, in_parts))
    assert found.family.model_types[0] == reference.config.model_type
    logits = load_decoder(found)(*ids())
    assert (logits - reference(ids()[0]).logits).abs().max() <= 1e-4


@torch.inference_mode()
def test_corrections_tell_of_sigmoids_where_the_file_does_not(tmp_path):
    with torch.random.fork_rng():
        reference: Any = AutoModelForCausalLM.from_config(V3).eval()
    tensors = tensors_of(reference, tmp_path / "hf")
    found = plan(write(tmp_path / "m.gguf", V3, tensors, says_scoring=False))
    assert found.config.experts and found.config.experts.scoring == "sigmoid"
    assert (load_decoder(found)(*ids()) - reference(ids()[0]).logits).abs().max() <= 1e-4


@torch.inference_mode()
def test_parts_of_blocks_are_put_together_and_counted_as_they_are_stored(reference, tmp_path):
    tensors = tensors_of(reference, tmp_path / "hf")
    quantised = ("attn_k_b.weight",)
    file = write(tmp_path / "m.gguf", reference.config, tensors, quantised=quantised)
    found = plan(file)
    on_disk = sum(info.nbytes for info in open_checkpoint(file).tensors.values())
    assert plan_ledger(found).nbytes == on_disk
    module = load_decoder(found)
    read = module.get_parameter(f"{KV_B}.weight").unflatten(0, (4, -1))
    original = reference.get_parameter(f"{KV_B}.weight").unflatten(0, (4, -1))
    assert 0 < (read - original)[:, :32].abs().max() <= original.abs().max() / 127
    assert torch.equal(read[:, 32:], original[:, 32:])
    assert torch.equal(load_decoder(found, hold_stored=True)(*ids()), module(*ids()))


def test_layers_that_draft_further_tokens_are_left_out_and_said(reference, tmp_path):
    tensors = tensors_of(reference, tmp_path / "hf")
    extra = {f"blk.3.{leaf}": torch.zeros(64) for leaf in ("nextn.enorm.weight", "attn_norm.weight")}
    found = plan(write(tmp_path / "m.gguf", reference.config, tensors | extra, further=1))
    assert found.config.num_hidden_layers == 3
    assert any("2 tensors of further layers" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {KEYS: torch.zeros(4, 32, 31)},
            r"attn_k_b\.weight in m\.gguf has shape \[4, 32, 31\].*\[4, 32, 32\]",
        ),
        ({KEYS: torch.zeros(4, 16, 32)}, r"attn_k_b\.weight in m\.gguf has shape"),
        ({VALUES: torch.zeros(48, 32)}, r"attn_v_b\.weight in m\.gguf has shape \[48, 32\]"),
        ({VALUES: None}, r"missing: blk\.0\.attn_kv_b\.weight.*unexpected: blk\.0\.attn_k_b\.weight"),
        ({WHOLE: torch.zeros(176, 32)}, r"blk\.0\.attn_kv_b\.weight whole and in parts"),
    ],
    ids=["keys too short", "another rank", "values not by head", "no values", "twice"],
)
def test_parts_that_do_not_fit_are_refused_by_name(reference, tmp_path, change, message):
    tensors = tensors_of(reference, tmp_path / "hf") | change
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(InputError, match=message):
        plan(write(tmp_path / "m.gguf", reference.config, tensors))
