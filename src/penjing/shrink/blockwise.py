"""Rounding a decoder block by block, each fed by the already rounded ones before it.

Two streams of hidden states run side by side: the original's and the shrunk model's. Within a block, matrices
that read the same input are rounded together, in the order in which they are used. Memory beyond the two
models is the two streams and one group's inputs. Shapes: N passages, L tokens, D hidden size, C columns.
"""

import copy
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from penjing.memory import give_back_memory
from penjing.model.decoder import Block, Decoder
from penjing.model.linear import keep_float, pack_module, weight_of
from penjing.model.self_attention import Step
from penjing.packed.affine_spec import AffineSpec
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
            original_NLD = _outputs(original, original_NLD, step)
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
    for group in _groups_by_input(original, list(specs), original_NLD, step):
        moments = _moments(original, block, group[0], original_NLD, shrunk_NLD, step)
        for name in group:
            weight_RC = weight_of(original, name)
            pack_module(block, name, round_calibrated(weight_RC, moments, specs[name], config))
        keep_float(block)  # the rest of the block runs on these weights many times
    out_NLD = _outputs(block, shrunk_NLD, step)
    keep_float(block, False)
    return out_NLD


def _output(block: Block, x_LD: torch.Tensor, step: Step) -> torch.Tensor:
    return block(x_LD.unsqueeze(0), step, None)[0]


def _outputs(block: Block, x_NLD: torch.Tensor, step: Step) -> torch.Tensor:
    return torch.stack([_output(block, x_LD, step) for x_LD in x_NLD])


def _groups_by_input(block: Block, names: list[str], x_NLD: torch.Tensor, step: Step) -> list[list[str]]:
    """Names in the order of use, those that read the very same tensor together."""
    seen: list[tuple[torch.Tensor, list[str]]] = []

    def note(name: str):
        def before(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if seen and seen[-1][0] is inputs[0]:
                seen[-1][1].append(name)
            else:
                seen.append((inputs[0], [name]))

        return before

    handles = [block.get_submodule(name).register_forward_pre_hook(note(name)) for name in names]
    try:
        _output(block, x_NLD[0], step)
    finally:
        for handle in handles:
            handle.remove()
    return [group for _, group in seen]


class _InputReachedError(Exception):
    """The input that was wanted has been seen; the rest of the block needn't run."""


def _inputs_of(block: Block, name: str, x_NLD: torch.Tensor, step: Step) -> Iterator[torch.Tensor]:
    """What the submodule `name` is fed, (L, C), passage by passage."""
    caught: list[torch.Tensor] = []

    def catch(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        caught.append(inputs[0])
        raise _InputReachedError

    handle = block.get_submodule(name).register_forward_pre_hook(catch)
    try:
        for x_LD in x_NLD:
            try:
                _output(block, x_LD, step)
            except _InputReachedError:
                yield caught.pop()[0]
    finally:
        handle.remove()


def _moments(
    original: Block,
    block: Block,
    name: str,
    original_NLD: torch.Tensor,
    shrunk_NLD: torch.Tensor,
    step: Step,
) -> Moments:
    columns = weight_of(original, name).shape[1]
    inputs_CC, drift_CC, tokens = torch.zeros(columns, columns), torch.zeros(columns, columns), 0
    pairs = zip(
        _inputs_of(original, name, original_NLD, step),
        _inputs_of(block, name, shrunk_NLD, step),
        strict=True,
    )
    for x_LC, quantised_LC in pairs:
        inputs_CC.addmm_(quantised_LC.T, quantised_LC)
        drift_CC.addmm_((x_LC - quantised_LC).T, quantised_LC)
        tokens += len(x_LC)
    return Moments(inputs_CC / tokens, drift_CC / tokens)
