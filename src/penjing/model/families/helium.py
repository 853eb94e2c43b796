"""Helium: Llama with neighbouring values turned together, and no bias on attention's output."""

from dataclasses import replace

from penjing.model.config import ModelConfig
from penjing.model.families import llama
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    config.assume(head_dim=128, rms_norm_eps=1e-8, rope_theta=1e5)
    return replace(llama.read(config), rope_interleaved=True, o_bias=False)


FAMILY = Family(("helium",), "HeliumForCausalLM", read)
