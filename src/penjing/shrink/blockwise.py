"""Rounding a decoder block by block, each fed by the already rounded ones before it.

Two streams of hidden states run side by side: the original's and the shrunk model's. Within a block, matrices
that read the same input are rounded together, in the order in which they are used. Memory beyond the two
models is the two streams and one group's inputs. Shapes: N passages, L tokens, D hidden size, C columns.
"""

import copy
from collections.abc import Callable, Mapping

import torch

from penjing.memory import give_back_memory
from penjing.model.decoder import Block, Decoder
from penjing.model.linear import keep_float, pack_module, weight_of
from penjing.model.self_attention import Step
from penjing.packed.affine import AffineTensor
from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.inputs import block_output, gather_moments, stages
from penjing.shrink.rounding import Moments, RoundingConfig, round_calibrated, round_nearest
from penjing.shrink.sensitivity import Sensitivity
from penjing.shrink.targets import EMBEDDING, HEAD

Progress = Callable[[int, int], None]


def round_decoder(
    module: Decoder,
    specs: Mapping[str, AffineSpec],
    ids_NL: torch.Tensor,
    sensitivity: Sensitivity,
    config: RoundingConfig | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """A copy of `module` with the matrices in `specs` packed; what isn't packed shares the original's
    storage.

    `ids_NL` (int64) are the calibration passages; `final_hidden_DD` is E[h hᵀ] before the head, by which the
    embedding and head are rounded.
    """
    config = config or RoundingConfig()
    shrunk = share_copy(module)
    with torch.inference_mode():
        _round_ends(module, shrunk, specs, sensitivity, config)
        positions_1L = torch.arange(ids_NL.shape[1]).unsqueeze(0)
        step = module.step(positions_1L)
        original_NLD, shrunk_NLD = (m.model.embed(ids_NL, positions_1L) for m in (module, shrunk))
        blocks = list(zip(module.blocks, shrunk.blocks, strict=True))
        for i, (original, block) in enumerate(blocks):
            prefix = f"model.layers.{i}."
            inside = {n.removeprefix(prefix): spec for n, spec in specs.items() if n.startswith(prefix)}
            shrunk_NLD = _round_block(original, block, inside, original_NLD, shrunk_NLD, step, config)
            original_NLD = torch.stack([block_output(original, x_LD, step) for x_LD in original_NLD])
            give_back_memory()
            if progress:
                progress(i + 1, len(blocks))
    return shrunk


def _round_ends(
    module: Decoder,
    shrunk: Decoder,
    specs: Mapping[str, AffineSpec],
    sensitivity: Sensitivity,
    config: RoundingConfig,
) -> None:
    """The matrix that makes the logits is rounded by what it is fed; a mere look-up table has no inputs that
    could make up for errors, so its rows are rounded to nearest, by how much each column matters."""
    head = EMBEDDING if module.config.tie_word_embeddings else HEAD
    if head in specs:
        moments = Moments(sensitivity.final_hidden)
        pack_module(shrunk, head, round_calibrated(weight_of(module, head), moments, specs[head], config))
    if head != EMBEDDING and EMBEDDING in specs:
        importance_D = sensitivity.uses[EMBEDDING][0].input
        packed = round_nearest(weight_of(module, EMBEDDING), specs[EMBEDDING], importance_D)
        pack_module(shrunk, EMBEDDING, packed)


def share_copy(module: Decoder) -> Decoder:
    """A second module tree over the same parameters: replacing a submodule of one leaves the other alone."""
    return copy.deepcopy(module, {id(p): p for p in module.parameters()})


def _round_block(
    original: Block,
    block: Block,
    specs: Mapping[str, AffineSpec],
    original_NLD: torch.Tensor,
    shrunk_NLD: torch.Tensor,
    step: Step,
    config: RoundingConfig,
) -> torch.Tensor:
    for stage in stages(original, list(specs), original_NLD[0], step):
        streams = [(block, shrunk_NLD)]
        if not stage.of_experts:  # which tokens an expert sees differs between the two models
            streams.insert(0, (original, original_NLD))
        moments = gather_moments(stage, streams, step)
        for group in stage.groups:
            for name in group:
                weight_RC = weight_of(original, name)
                pack_module(block, name, _round(weight_RC, moments.get(group[0]), specs[name], config))
        keep_float(block)  # the rest of the block runs on these weights many times
    out_NLD = torch.stack([block_output(block, x_LD, step) for x_LD in shrunk_NLD])
    keep_float(block, False)
    return out_NLD


def _round(
    weight_RC: torch.Tensor, moments: Moments | None, spec: AffineSpec, config: RoundingConfig
) -> AffineTensor:
    """Calibrated, or to nearest for an expert that no calibration token went to."""
    if moments is None:
        return round_nearest(weight_RC, spec)
    return round_calibrated(weight_RC, moments, spec, config)
