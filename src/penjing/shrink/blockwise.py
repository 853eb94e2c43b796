"""Rounding a decoder block by block, each fed by the already rounded ones before it.

Within a block, matrices that read the same input are rounded together, in the order in which they are used.
Memory beyond the two models is one stream of hidden states and one group's inputs.
Shapes: N passages, L tokens, D hidden size, C columns.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from penjing.memory import give_back_memory
from penjing.model.decoder import Block, Decoder
from penjing.model.linear import keep_float, pack_module, weight_of
from penjing.model.self_attention import Step
from penjing.packed.parts import PackedSpec
from penjing.packed.tensor import PackedTensor
from penjing.shrink.inputs import block_output, gather_moments, stages
from penjing.shrink.rounding import RoundingConfig, round_calibrated, round_nearest
from penjing.shrink.sensitivity import Sensitivity
from penjing.shrink.sharing import share_copy
from penjing.shrink.targets import EMBEDDING, HEAD

Progress = Callable[[int, int], None]
Value = TypeVar("Value")


def round_decoder(
    module: Decoder,
    specs: Mapping[str, PackedSpec],
    ids_NL: torch.Tensor,
    sensitivity: Sensitivity,
    config: RoundingConfig | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """A copy of `module` with the matrices in `specs` packed; what isn't packed shares the original's
    storage.

    `ids_NL` (int64) are the calibration passages, those that `sensitivity` was measured on.
    """
    config = config or RoundingConfig()
    shrunk = share_copy(module)
    with torch.inference_mode():
        _round_ends(module, shrunk, specs, sensitivity, config)
        positions_1L = torch.arange(ids_NL.shape[1]).unsqueeze(0)
        step = module.step(positions_1L)
        x_NLD = shrunk.model.embed(ids_NL, positions_1L)
        token_weights = {name: squared_T.sqrt() for name, squared_T in sensitivity.tokens.items()}
        blocks = list(zip(module.blocks, shrunk.blocks, strict=True))
        for i, (original, block) in enumerate(blocks):
            inside = _below(f"model.layers.{i}.", specs)
            weights = _below(f"model.layers.{i}.", token_weights)
            x_NLD = _round_block(original, block, inside, x_NLD, step, weights, config)
            give_back_memory()
            if progress:
                progress(i + 1, len(blocks))
    return shrunk


def _below(prefix: str, by_name: Mapping[str, Value]) -> dict[str, Value]:
    """Those whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in by_name.items() if name.startswith(prefix)}


def _round_ends(
    module: Decoder,
    shrunk: Decoder,
    specs: Mapping[str, PackedSpec],
    sensitivity: Sensitivity,
    config: RoundingConfig,
) -> None:
    """The matrix that makes the logits is rounded by what it is fed; a mere look-up table has no inputs that
    could make up for errors, so its rows are rounded to nearest, by how much each column matters."""
    head = EMBEDDING if module.config.tie_word_embeddings else HEAD
    if head in specs:
        packed = round_calibrated(weight_of(module, head), sensitivity.final_hidden, specs[head], config)
        pack_module(shrunk, head, packed)
    if head != EMBEDDING and EMBEDDING in specs:
        importance_D = sensitivity.uses[EMBEDDING][0].input
        packed = round_nearest(weight_of(module, EMBEDDING), specs[EMBEDDING], importance_D)
        pack_module(shrunk, EMBEDDING, packed)


def _round_block(
    original: Block,
    block: Block,
    specs: Mapping[str, PackedSpec],
    x_NLD: torch.Tensor,
    step: Step,
    token_weights: Mapping[str, torch.Tensor],
    config: RoundingConfig,
) -> torch.Tensor:
    for stage in stages(original, list(specs), x_NLD[0], step):
        moments = gather_moments(stage, block, x_NLD, step, token_weights)
        for group in stage.groups:
            for name in group:
                weight_RC = weight_of(original, name)
                pack_module(block, name, _round(weight_RC, moments.get(group[0]), specs[name], config))
        keep_float(block)  # the rest of the block runs on these weights many times
    out_NLD = torch.stack([block_output(block, x_LD, step) for x_LD in x_NLD])
    keep_float(block, False)
    return out_NLD


def _round(
    weight_RC: torch.Tensor, moments_CC: torch.Tensor | None, spec: PackedSpec, config: RoundingConfig
) -> PackedTensor:
    """Calibrated, or to nearest for an expert that no calibration token went to."""
    if moments_CC is None:
        return round_nearest(weight_RC, spec)
    return round_calibrated(weight_RC, moments_CC, spec, config)
