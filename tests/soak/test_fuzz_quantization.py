"""Whatever another tool's `quantization_config` says, reading it works or ends in a PenjingError."""

import copy
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.cases.test_quantized_models import FORMS
from tests.soak.fuzzing import anything, extreme, nothing_but_clear_refusals, soak

from penjing.formats.checkpoint import TensorInfo
from penjing.model.quantization import read_quantization

MATRICES = {"model.layers.0.mlp.up_proj": (160, 96), "lm_head": (640, 96)}
DTYPES = ("float8_e4m3fn", "float32", "bfloat16", "int32", "uint8", "int8", "float8_e8m0fnu")
# fmt: off
LEAVES = (
    "weight", "weight_scale", "weight_scale_inv", "qweight", "qzeros", "scales", "g_idx", "weight_packed",
    "weight_shape", "weight_zero_point", "weight_g_idx", "input_scale",
)
# fmt: on
KEYS = sorted(
    {key for config, _ in FORMS.values() for key in config}
    | {
        "num_bits",
        "type",
        "strategy",
        "symmetric",
        "block_structure",
        "actorder",
        "targets",
        "weights",
        "pack_dtype",
    }
)
values = st.one_of(
    *(anything, extreme, st.integers(-2, 9), st.lists(st.integers(-1, 200), max_size=3)),
    st.sampled_from(
        ["group", "channel", "tensor", "block", "float", "int", "gptq", "gemm", "fp8", "re:(", "re:.*"]
    ),
    st.lists(st.sampled_from(["Linear", "re:(", "lm_head", ""]), max_size=2),
)


def put(config: dict[str, Any], key: str, value: Any) -> None:
    """Change `key` in the config and in every object inside."""
    for inner in [inner for inner in config.values() if isinstance(inner, dict)]:
        put(inner, key, value)
    if key in config or "quant_method" in config:
        config[key] = value


stored = st.dictionaries(
    st.tuples(st.sampled_from(sorted(MATRICES)), st.sampled_from(LEAVES)),
    st.tuples(st.lists(st.sampled_from([0, 1, 2, 5, 96, 160]), max_size=3), st.sampled_from(DTYPES)),
    max_size=6,
)


@soak
@given(st.sampled_from(sorted(FORMS)), st.dictionaries(st.sampled_from(KEYS), values, max_size=2), stored)
def test_a_quantization_config_with_any_values_changed(form, changed, tensors):
    config = copy.deepcopy(FORMS[form][0])
    for key, value in changed.items():
        put(config, key, value)
    infos = {
        f"{module}.{leaf}": TensorInfo(f"{module}.{leaf}", tuple(shape), dtype, 0, Path(), 0)
        for (module, leaf), (shape, dtype) in tensors.items()
    }
    with nothing_but_clear_refusals():
        found = read_quantization({"quantization_config": config}, "m", MATRICES, infos)
        for name, spec in found.packed.items():
            assert spec.nbytes(*MATRICES[name]) >= 0
            assert str(spec)
