"""Which settings of a `quantization_config` are understood, and that all others are refused by name."""

from pathlib import Path

import pytest

from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import TensorInfo
from penjing.model.quantization import read_quantization, write_quantization
from penjing.packed.affine_spec import AffineSpec
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.parts import PackedSpec
from penjing.packed.scaled_spec import ScaledSpec

SHAPE = (256, 384)
MATRICES = {"a.q_proj": SHAPE, "a.down_proj": SHAPE, "lm_head": SHAPE}


def stored(*specs: tuple[str, PackedSpec]) -> dict[str, TensorInfo]:
    return {
        f"{name}.{part}": TensorInfo(f"{name}.{part}", shape, dtype, 0, Path("f"), 0)
        for name, spec in specs
        for part, (shape, dtype) in spec.part_shapes(*SHAPE).items()
    }


def read(config, *specs):
    return read_quantization({"quantization_config": config}, "m", MATRICES, stored(*specs))


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
FP8 = {"quant_method": "fp8"}


def compressed(*, group=None, weights=None, **config):
    args = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128} | (weights or {})
    groups = {"g": {"targets": ["Linear"], "weights": args} | (group or {})}
    head = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}
    return head | config


@pytest.mark.parametrize("method", ["bitsandbytes", "hqq", "quanto", "eetq", "aqlm", "fbgemm_fp8", None, 4])
def test_other_tools_are_refused_by_name_with_a_remedy(method):
    with pytest.raises(UnsupportedError, match=f"by {method!r} cannot be opened; use the 16-bit original"):
        read({"quant_method": method})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GPTQ | {"bits": 5}, "bits = 5"),
        (GPTQ | {"bits": True}, "bits = True"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format = 'marlin'"),
        (GPTQ | {"format": "gptq_p"}, "format = 'gptq_p'"),
        (GPTQ | {"dynamic": {"-:lm_head": {}}}, "holds dynamic"),
        (GPTQ | {"is_marlin_format": True}, "holds is_marlin_format"),
        (GPTQ | {"pack_dtype": "int64"}, "pack_dtype = 'int64'"),
        (GPTQ | {"rotation": "hadamard"}, "holds rotation"),
        (AWQ | {"version": "gemv"}, "version = 'gemv'"),
        (AWQ | {"bits": 8}, "bits = 8"),
        (AWQ | {"zero_point": False}, "zero_point = False"),
        (FP8 | {"fmt": "e5m2"}, "fmt = 'e5m2'"),
        (FP8 | {"expert_dtype": "fp4"}, "expert_dtype = 'fp4'"),
        (FP8 | {"activation_scheme": "block"}, "activation_scheme = 'block'"),
        (FP8 | {"something": 1}, "holds something"),
        (compressed(format="nvfp4-pack-quantized"), "format = 'nvfp4-pack-quantized'"),
        (compressed(format="marlin-24"), "format = 'marlin-24'"),
        (compressed(quantization_status="frozen"), "quantization_status = 'frozen'"),
        (compressed(sparsity_config={"format": "sparse-24-bitmask"}), "stored sparsely"),
        (compressed(transform_config={"config_groups": {"u": 1}}), "holds transform_config"),
        (compressed(weights={"strategy": "tensor_group"}), "strategy = 'tensor_group'"),
        (compressed(weights={"num_bits": 1}), "num_bits = 1"),
        (compressed(weights={"type": "float"}), "type = 'float'"),
        (compressed(weights={"dynamic": True}), "holds dynamic"),
        (compressed(group={"weights": None}), "has no weights"),
        (compressed(format="int-quantized", weights={"num_bits": 4, "strategy": "channel"}), "num_bits = 4"),
    ],
)
def test_settings_that_are_not_known_are_refused_by_name(config, message):
    with pytest.raises(UnsupportedError, match=message):
        read(config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("gptq", "quantization_config must be an object"),
        (GPTQ | {"group_size": 0}, "group_size must be -1 or at least 1"),
        (GPTQ | {"group_size": "128"}, "group_size must be a whole number"),
        (GPTQ | {"desc_act": "yes"}, "desc_act must be true or false"),
        (FP8 | {"weight_block_size": [128]}, "weight_block_size must be two numbers"),
        (FP8 | {"weight_block_size": [128, 0]}, "weight_block_size must be two numbers"),
        (compressed(config_groups={}), "has no config_groups"),
        (compressed(group={"targets": "Linear"}), "targets must be a list"),
        (GPTQ, "no matrix is stored so"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config, message):
    with pytest.raises(InputError, match=message):
        read(config)


def test_a_single_g_idx_makes_each_matrix_need_one():
    """Without activation order files may leave it out altogether, but not for some matrices."""
    plain, ordered = GptqSpec(4, 128, has_g_idx=False), GptqSpec(4, 128)
    assert read(GPTQ, ("a.q_proj", plain)).packed == {"a.q_proj": plain}
    both = read(GPTQ, ("a.q_proj", plain), ("a.down_proj", ordered)).packed
    assert both == {"a.q_proj": ordered, "a.down_proj": ordered}


def test_scales_keep_their_stored_dtype():
    for dtype in ("float16", "bfloat16", "float32"):
        spec = GptqSpec(4, 128, scale_dtype=dtype)
        assert read(GPTQ, ("lm_head", spec)).packed == {"lm_head": spec}


@pytest.mark.parametrize(
    "spec",
    [
        ScaledSpec("float8_e4m3fn", (128, 128), "weight_scale_inv", "bfloat16"),
        ScaledSpec("float8_e4m3fn", (1, 0), "weight_scale", "float32", 2),
        ScaledSpec("float8_e4m3fn", (1, 0), "weight_scale", "float32", 1),
        ScaledSpec("float8_e4m3fn", (0, 0), "weight_scale", "float32", 0),
        ScaledSpec("float8_e4m3fn", (0, 0), "weight_scale_inv", "float32", 1),
    ],
)
def test_what_an_fp8_scale_is_for_follows_from_its_shape_where_the_config_is_silent(spec):
    assert read(FP8, ("a.q_proj", spec)).packed == {"a.q_proj": spec}


def test_each_matrix_takes_the_group_that_targets_it_most_closely():
    def group(bits, *targets):
        return {
            "targets": list(targets),
            "weights": {"num_bits": bits, "type": "int", "strategy": "channel", "symmetric": True},
        }

    groups = {"all": group(4, "Linear"), "down": group(8, "re:.*down_proj$"), "head": group(2, "lm_head")}
    specs = {name: PackQuantizedSpec(bits, 0) for name, bits in zip(MATRICES, (4, 8, 2), strict=True)}
    assert read(compressed(config_groups=groups), *specs.items()).packed == specs


def test_a_matrix_that_no_group_targets_is_named():
    config = compressed(group={"targets": ["re:.*down_proj$"]})
    with pytest.raises(InputError, match=r"a\.q_proj is stored quantised, but no group"):
        read(config, ("a.q_proj", PackQuantizedSpec(4, 128)))


def test_another_tools_matrices_are_not_saved_beside_penjings():
    packed = {"a": AffineSpec(4, 64), "b": GptqSpec(4, 128)}
    with pytest.raises(UnsupportedError, match="save all as floats"):
        write_quantization(packed, GPTQ)
