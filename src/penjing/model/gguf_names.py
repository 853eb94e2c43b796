"""GGUF's tensor names in the module's terms.

The names are the same for all architectures (ggml's `gguf-py/gguf/constants.py` lists them); what an
architecture stores in another way, its family says first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penjing.model.layouts import Stacked
from penjing.model.names import Rule, rename

if TYPE_CHECKING:  # headers are read without it
    from penjing.model.config import ModelConfig

_ENDS = {
    "model.embed_tokens": "token_embd",
    "model.embed_positions": "position_embd",
    "model.embed_norm": "token_embd_norm",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_BLOCK = {
    "input_layernorm": "attn_norm",
    "post_self_attn_layernorm": "post_attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    """Where llama.cpp keeps each tensor, unless an architecture has a way of its own."""
    rules = [
        rename("blk.{i}.attn_sinks.weight", "model.layers.{i}.self_attn.sinks"),
        rename("blk.{i}.exp_probs_b.bias", "model.layers.{i}.mlp.gate.e_score_correction_bias"),
    ]
    for kind in ("weight", "bias"):
        rules += [rename(f"{there}.{kind}", f"{here}.{kind}") for here, there in _ENDS.items()]
        rules += [
            rename(f"blk.{{i}}.{there}.{kind}", f"model.layers.{{i}}.{here}.{kind}")
            for here, there in _BLOCK.items()
        ]
        if config.experts:
            stack = Stacked(config.experts.count)
            rules += [
                rename(
                    f"blk.{{i}}.{there}.{kind}", f"model.layers.{{i}}.mlp.experts.{{e}}.{here}.{kind}", stack
                )
                for here, there in _EXPERTS.items()
            ]
    return rules
