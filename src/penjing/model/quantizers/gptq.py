"""The `quantization_config` of AutoGPTQ, GPTQModel, optimum and transformers for GPTQ weights."""

from collections.abc import Mapping
from typing import Any

from penjing.model.foreign import ForeignConfig
from penjing.model.quantizers.reading import (
    FLOATS,
    Matrices,
    Quantization,
    Stored,
    choice,
    dtype_of,
    group_size,
    has_part,
    packed_matrices,
    refuse_unknown,
)
from penjing.packed.gptq_spec import BITS, GptqSpec

# What is known: the layout, then how the codes were found, which changes nothing once they are stored.
# fmt: off
KNOWN = frozenset((
    "quant_method", "method", "bits", "group_size", "desc_act", "sym", "checkpoint_format", "format",
    "pack_dtype", "lm_head", "modules_in_block_to_quantize", "block_name_to_quantize",
    "act_group_aware", "backend", "batch_size", "cache_block_outputs", "damp_auto_increment", "damp_percent",
    "dataset", "disable_exllama", "exllama_config", "max_input_length", "meta", "model_file_base_name",
    "model_name_or_path", "model_seqlen", "module_name_preceding_first_block", "mse", "pad_token_id",
    "static_groups", "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama",
))
# fmt: on


def write_gptq(packed: Mapping[str, GptqSpec]) -> dict[str, Any]:
    """The config of matrices that were rounded to one layout, with zeros as they are."""
    (spec,) = set(packed.values())
    return {
        "quant_method": "gptq",
        "bits": spec.bits,
        "group_size": spec.group_size,
        "desc_act": False,
        "sym": False,
        "lm_head": False,
        "checkpoint_format": "gptq" if spec.zero_minus_one else "gptq_v2",
        "pack_dtype": "int32",
    }


def read_gptq(config: ForeignConfig, matrices: Matrices, stored: Stored) -> Quantization:
    """Layouts of the GPTQ matrices. Refuses rules for single layers (`dynamic`), Marlin's repacked weights,
    adapters and rotations, which would change the weights, by name."""
    refuse_unknown(config, KNOWN)
    choice(config, "pack_dtype", ("int32",), "int32")
    key = "checkpoint_format" if config.get("checkpoint_format") else "format"
    form = choice(config, key, ("gptq", "gptq_v2"), "gptq")
    has_g_idx = config.flag("desc_act") or has_part(stored, "g_idx")
    bits, size = choice(config, "bits", BITS), group_size(config)

    def spec(name: str) -> GptqSpec:
        scale_dtype = dtype_of(stored, f"{name}.scales", FLOATS, "float16")
        return GptqSpec(bits, size, form == "gptq", has_g_idx, scale_dtype)

    names = packed_matrices(matrices, stored, ("qweight", "qzeros", "scales", "g_idx"))
    return Quantization({name: spec(name) for name in names})
