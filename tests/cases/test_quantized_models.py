"""Real-world failures with weights that other tools quantised: scales that are lost, read in another order,
or applied to the wrong rows."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.models import CONFIG, hf_model, prompt, random_tensors
from tests.unit.packed_parts import is_linear, packed_model, packed_tensors, unpacked_tensors

import penjing
from penjing.errors import InputError, UnsupportedError
from penjing.formats.open import open_checkpoint
from penjing.model.ledger import plan_ledger
from penjing.model.linear import unpack_module, weight_of
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load
from penjing.packed.awq_spec import AwqSpec
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.parts import PackedSpec
from penjing.packed.scaled_spec import ScaledSpec
from penjing.shrink.reach import least_bytes

QWEN3 = {
    **{k: v for k, v in CONFIG.items() if k not in ("hidden_size", "intermediate_size")},
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 192,
    "intermediate_size": 320,
    "head_dim": 32,
}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
BLOCK = 128


def plan(path):
    return plan_load(open_checkpoint(path))


def logits(path):
    return load_decoder(plan(path))(*prompt())


def fp8_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """fp8 codes and the scale of each block of 128 x 128, edge blocks cropped, as DeepSeek-V3 makes them."""
    rows, columns = weight.shape
    codes = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
    scales = torch.empty(-(-rows // BLOCK), -(-columns // BLOCK))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            where = slice(BLOCK * i, BLOCK * (i + 1)), slice(BLOCK * j, BLOCK * (j + 1))
            scales[i, j] = weight[where].float().abs().max() / 448
            codes[where] = (weight[where].float() / scales[i, j]).to(torch.float8_e4m3fn)
    return codes, scales


def fp8_tensors() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The floats of a tiny Qwen3, and the same with every linear in fp8."""
    floats, tensors = random_tensors(QWEN3), {}
    for name, tensor in floats.items():
        if is_linear(name):
            tensors[name], tensors[f"{name}_scale_inv"] = fp8_blocks(tensor)
        else:
            tensors[name] = tensor
    return floats, tensors


def test_fp8_weights_are_within_fp8_rounding_of_the_original_though_scales_lie_in_other_shards(tmp_path):
    floats, tensors = fp8_tensors()
    # Scales come last, after all weights.
    ordered = {name: tensors[name] for name in sorted(tensors, key=lambda name: name.endswith("_scale_inv"))}
    folder = hf_model(tmp_path / "m", QWEN3 | {"quantization_config": FP8}, iter(ordered.items()), 200_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"]
    assert (
        index["model.layers.0.mlp.down_proj.weight"] != index["model.layers.0.mlp.down_proj.weight_scale_inv"]
    )
    module = load_decoder(plan(folder))
    for name, tensor in floats.items():
        if is_linear(name):
            found = weight_of(module, name.removesuffix(".weight"))
            largest = tensor.float().abs().max()
            assert (
                found - tensor.float()
            ).abs().max() <= largest * 2**-4  # half a step of three mantissa bits
            assert (found - tensor.float()).abs().max() > 0
    assert torch.isfinite(module(*prompt())).all()


def test_a_missing_fp8_scale_is_named(tmp_path):
    _, tensors = fp8_tensors()
    del tensors["model.layers.1.mlp.up_proj.weight_scale_inv"]
    with pytest.raises(InputError, match=r"missing: model\.layers\.1\.mlp\.up_proj\.weight_scale_inv"):
        plan(packed_model(tmp_path / "m", FP8, tensors, QWEN3))


def test_fp8_weights_without_a_config_are_never_used_raw(tmp_path):
    _, tensors = fp8_tensors()
    bare = {name: tensor for name, tensor in tensors.items() if not name.endswith("_scale_inv")}
    with pytest.raises(
        UnsupportedError, match=r"_proj\.weight is float8_e4m3fn, and nothing tells its scale"
    ):
        plan(packed_model(tmp_path / "m", None, bare, QWEN3))


def compressed_tensors(form: str, **weights) -> dict:
    group = {"targets": ["Linear"], "weights": {"symmetric": True, "dynamic": False} | weights}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*norm"],
        "kv_cache_scheme": None,
    }


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False}
FORMS: dict[str, tuple[dict, PackedSpec]] = {
    "gptq": (GPTQ, GptqSpec(4, 32)),
    "gptq_v2": (GPTQ | {"checkpoint_format": "gptq_v2"}, GptqSpec(4, 32, zero_minus_one=False)),
    "gptq 8-bit rows": (GPTQ | {"bits": 8, "group_size": -1, "desc_act": False}, GptqSpec(8, 0)),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "GEMM"},
        AwqSpec(32),
    ),
    "fp8 one scale": (
        {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
        ScaledSpec("float8_e4m3fn", (0, 0), "weight_scale_inv", "bfloat16", 0),
    ),
    "fp8 of vllm": (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]},
        ScaledSpec("float8_e4m3fn", (1, 0), "weight_scale", "float32", 1),
    ),
    "float-quantized": (
        compressed_tensors("float-quantized", type="float", num_bits=8, strategy="channel"),
        ScaledSpec("float8_e4m3fn", (1, 0), "weight_scale", "bfloat16", 2),
    ),
    "int-quantized": (
        compressed_tensors("int-quantized", type="int", num_bits=8, strategy="tensor"),
        ScaledSpec("int8", (0, 0), "weight_scale", "float32", 1),
    ),
    "block-quantized": (
        compressed_tensors(
            "float-quantized", type="float", num_bits=8, strategy="block", block_structure=[128, 128]
        ),
        ScaledSpec("float8_e4m3fn", (128, 128), "weight_scale", "float32", 2),
    ),
    "pack-quantized": (
        compressed_tensors("pack-quantized", type="int", num_bits=4, strategy="group", group_size=32),
        PackQuantizedSpec(4, 32),
    ),
    "pack-quantized asymmetric": (
        compressed_tensors(
            "pack-quantized",
            type="int",
            num_bits=4,
            strategy="group",
            group_size=32,
            symmetric=False,
            actorder="group",
        ),
        PackQuantizedSpec(4, 32, symmetric=False, has_g_idx=True),
    ),
    "pack-quantized rows": (
        compressed_tensors("pack-quantized", type="int", num_bits=8, strategy="channel"),
        PackQuantizedSpec(8, 0),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_model_computes_what_its_floats_do_and_is_saved_as_it_came(tmp_path, form):
    quantization, spec = FORMS[form]
    tensors = packed_tensors(spec)
    folder = packed_model(tmp_path / "m", quantization, tensors)
    floats = hf_model(tmp_path / "floats", CONFIG, unpacked_tensors(spec, tensors))
    expected = logits(floats)
    model = penjing.load(folder)
    assert torch.equal(model.module(*prompt()), expected)
    assert any("products are computed in float32" in notice for notice in model.notices)
    assert plan_ledger(plan(folder)).nbytes == sum(tensor.nbytes for tensor in tensors.values())

    model.save(tmp_path / "again")
    saved = json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))
    assert saved["quantization_config"] == quantization
    assert saved["dtype"] == "bfloat16"
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert set(again) == set(tensors)
    assert all(again[name].dtype == t.dtype for name, t in tensors.items())
    assert all(torch.equal(raw(again[name]), raw(tensor)) for name, tensor in tensors.items())
    assert torch.equal(logits(tmp_path / "again"), expected)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


@pytest.mark.parametrize("form", FORMS)
def test_every_missing_part_is_named(tmp_path, form):
    quantization, spec = FORMS[form]
    tensors = packed_tensors(spec)
    lost = [f"model.layers.1.self_attn.o_proj.{part}" for part in spec.part_shapes(96, 96)]
    for i, name in enumerate(lost):
        kept = {other: tensor for other, tensor in tensors.items() if other != name}
        with pytest.raises(InputError, match=f"missing: {name}"):
            plan(packed_model(tmp_path / f"{i}", quantization, kept))


def test_scales_of_activations_are_left_out_with_a_notice(tmp_path):
    quantization, spec = FORMS["fp8 one scale"]
    tensors = packed_tensors(spec)
    scale = {"model.layers.0.mlp.up_proj.activation_scale": torch.tensor(0.1)}
    found = plan(packed_model(tmp_path / "m", quantization, tensors | scale))
    assert any("activations stay in float32" in notice for notice in found.notices)


def test_a_layer_that_was_left_in_16_bits_stays_so(tmp_path):
    quantization, spec = FORMS["gptq"]
    tensors = packed_tensors(spec)
    name = "model.layers.0.mlp.down_proj"
    kept = {other: tensor for other, tensor in tensors.items() if not other.startswith(name)}
    weight = random_tensors()[f"{name}.weight"]
    module = load_decoder(plan(packed_model(tmp_path / "m", quantization, kept | {f"{name}.weight": weight})))
    assert torch.equal(weight_of(module, name), weight.float())


def test_a_quantised_config_over_float_weights_is_refused(tmp_path):
    with pytest.raises(InputError, match="'gptq', but no matrix is stored so"):
        plan(packed_model(tmp_path / "m", GPTQ, random_tensors()))


def test_a_scale_that_is_not_finite_is_named_when_the_weights_are_read(tmp_path):
    quantization, spec = FORMS["awq"]
    tensors = packed_tensors(spec)
    tensors["model.layers.0.self_attn.k_proj.scales"][0, 0] = float("nan")
    with pytest.raises(InputError, match=r"k_proj\.scales holds values that are not finite"):
        load_decoder(plan(packed_model(tmp_path / "m", quantization, tensors)))


def test_biases_of_zeros_that_old_gptq_files_hold_are_passed_over_and_others_are_not(tmp_path):
    quantization, spec = FORMS["gptq"]
    tensors = packed_tensors(spec)
    bias = {"model.layers.0.self_attn.o_proj.bias": torch.zeros(96, dtype=torch.float16)}
    without = logits(packed_model(tmp_path / "without", quantization, tensors))
    assert torch.equal(logits(packed_model(tmp_path / "with", quantization, tensors | bias)), without)
    bias["model.layers.0.self_attn.o_proj.bias"][3] = 0.5
    with pytest.raises(InputError, match=r"unexpected: model\.layers\.0\.self_attn\.o_proj\.bias"):
        plan(packed_model(tmp_path / "biased", quantization, tensors | bias))


@pytest.mark.parametrize("form", ["fp8 of vllm", "gptq", "awq", "pack-quantized"])
def test_a_quantised_model_can_be_saved_as_floats(tmp_path, form):
    quantization, spec = FORMS[form]
    tensors = packed_tensors(spec)
    model = penjing.load(packed_model(tmp_path / "m", quantization, tensors))
    unpack_module(model.module)
    model.save(tmp_path / "floats")
    saved = json.loads((tmp_path / "floats" / "config.json").read_text(encoding="utf-8"))
    found = load_file(tmp_path / "floats" / "model.safetensors")
    assert "quantization_config" not in saved
    for name, tensor in unpacked_tensors(spec, tensors).items():
        assert torch.equal(found[name], tensor)


def test_a_quantised_model_is_not_shrunk_again(tmp_path):
    quantization, spec = FORMS["gptq"]
    with pytest.raises(InputError, match="quantised already; shrink its 16-bit original instead"):
        least_bytes(plan(packed_model(tmp_path / "m", quantization, packed_tensors(spec))))
