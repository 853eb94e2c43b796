"""gpt-oss: attention with sinks and alternating windows, experts with biases and clamped activations, kept in
stacks."""

from collections.abc import Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_alternating, read_experts, read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_experts, gguf_shape, second_norm_rule
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import RowsByGroup, Stacked, Transposed
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("swiglu_alpha", 1.702)
    config.expect("hidden_act", "silu")
    config.ignore("experts_per_token", "initial_context_length")  # they repeat other keys
    shape = read_shape(config)
    if shape["rope"].rope_type == "default":
        raise UnsupportedError(f"{config.source}: gpt-oss without its rope settings (yarn) is not supported")
    shape["hidden_act"] = "quick_gelu"  # x · sigmoid(1.702 x)
    bias = config.flag("attention_bias", True)
    experts = read_experts(
        config,
        "num_local_experts",
        (True,) * shape["num_hidden_layers"],
        intermediate_size=shape["intermediate_size"],
        router_bias=True,
        expert_bias=True,
    )
    return ModelConfig(
        **shape,
        windows=_windows(config),
        qkv_bias=bias,
        o_bias=bias,
        attention_sinks=True,
        swiglu_limit=config.number("swiglu_limit", 7.0),
        experts=experts,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def _windows(config: ForeignConfig) -> tuple[int | None, ...]:
    config.assume(sliding_window=128)
    return read_alternating(config, every=2)


def rules(config: ModelConfig) -> Sequence[Rule]:
    assert config.experts
    mlp, stack = "model.layers.{i}.mlp", config.experts.count
    gate_and_up = RowsByGroup(config.experts.intermediate_size)

    def of_experts(*leaves: str) -> tuple[str, ...]:
        return tuple(f"{mlp}.experts.{{e}}.{leaf}" for leaf in leaves)

    in_mxfp4 = [
        rule
        for part in ("blocks", "scales")
        for rule in (
            Rule(
                f"{mlp}.experts.gate_up_proj_{part}",
                of_experts(f"gate_proj.{part}", f"up_proj.{part}"),
                Stacked(stack, gate_and_up),
            ),
            Rule(f"{mlp}.experts.down_proj_{part}", of_experts(f"down_proj.{part}"), Stacked(stack)),
        )
    ]
    return [
        *in_mxfp4,
        rename(f"{mlp}.router.weight", f"{mlp}.gate.weight"),
        rename(f"{mlp}.router.bias", f"{mlp}.gate.bias"),
        Rule(
            f"{mlp}.experts.gate_up_proj",
            of_experts("gate_proj.weight", "up_proj.weight"),
            Stacked(stack, Transposed(gate_and_up)),
        ),
        Rule(
            f"{mlp}.experts.gate_up_proj_bias",
            of_experts("gate_proj.bias", "up_proj.bias"),
            Stacked(stack, gate_and_up),
        ),
        Rule(f"{mlp}.experts.down_proj", of_experts("down_proj.weight"), Stacked(stack, Transposed())),
        Rule(f"{mlp}.experts.down_proj_bias", of_experts("down_proj.bias"), Stacked(stack)),
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_shape(metadata, experts=True)
    shape["rope_parameters"]["truncate"] = False
    experts = gguf_experts(metadata, "num_local_experts")
    shape["intermediate_size"] = experts.pop("moe_intermediate_size")
    return shape | experts | {"sliding_window": metadata.integer("attention.sliding_window")}


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return [second_norm_rule()]


GGUF = GGUFForm(("gpt-oss",), gguf_config, gguf_rules)
FAMILY = Family(("gpt_oss",), "GptOssForCausalLM", read, rules, gguf=GGUF)
