"""Making a rounded matrix better: codes and scales in turn, each the best for the other.

LNQ (GuidedQuant, arXiv 2505.07004, algorithm 2) for affine grids: coordinate descent over the codes, then
least squares for the scales and zero points of a row, both by the loss tr(E H Eᵀ) of an error E on inputs
with the moments H. Neither step can raise the loss. Shapes: R rows, G groups of w columns, C columns.
"""

import torch

from penjing.shrink.grids.scales import Scales, inverse

_BLOCK = 64  # columns whose corrections are applied at once
_EQUATIONS = 1 << 21  # numbers in the systems of rows that are solved at once: 16 MB
_RIDGE = 1e-6  # keeps the normal equations solvable where all codes of a group are equal


def refine(
    target_RC: torch.Tensor,
    codes_RC: torch.Tensor,
    scales: Scales,
    moments_CC: torch.Tensor,
    rounds: int,
) -> tuple[torch.Tensor, Scales]:
    """Better uint8 codes (R, C) and scales for the weights `target_RC`, after so many rounds of both steps.

    `moments_CC` (float32) is positive definite. The loss of no row rises.
    """
    for _ in range(rounds):
        scales = _better_rows(
            target_RC, codes_RC, scales, refit_scales(target_RC, codes_RC, scales, moments_CC), moments_CC
        )
        codes_RC = descend(target_RC, codes_RC, scales, moments_CC)
    return codes_RC, scales


def row_losses(
    target_RC: torch.Tensor, codes_RC: torch.Tensor, scales: Scales, moments_CC: torch.Tensor
) -> torch.Tensor:
    """What each row loses, (R): e H eᵀ of its error e."""
    step_RC, zero_RC = scales.expand(target_RC.shape[1])
    error_RC = target_RC - (codes_RC - zero_RC) * step_RC
    return ((error_RC @ moments_CC) * error_RC).sum(dim=1)


def descend(
    target_RC: torch.Tensor, codes_RC: torch.Tensor, scales: Scales, moments_CC: torch.Tensor
) -> torch.Tensor:
    """One sweep over the columns, those of the largest moments first: each code becomes the best one, given
    all others."""
    columns = target_RC.shape[1]
    order_C = torch.argsort(torch.diagonal(moments_CC), descending=True, stable=True)
    moments_CC = moments_CC[order_C][:, order_C]
    step_CR, zero_CR = (part[:, order_C].T.contiguous() for part in scales.expand(columns))
    inverse_CR, max_code = inverse(step_CR), scales.max_code
    codes_CR = codes_RC[:, order_C].T.float().contiguous()
    weight_CR = (codes_CR - zero_CR) * step_CR
    pull_CR = moments_CC @ (target_RC[:, order_C].T - weight_CR)  # minus half the loss's gradient
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        inside_CR = pull_CR[start:stop].clone()
        before_CR = weight_CR[start:stop].clone()
        for c in range(start, stop):
            wanted_R = inside_CR[c - start] / moments_CC[c, c] + weight_CR[c]
            code_R = torch.addcmul(zero_CR[c], wanted_R, inverse_CR[c]).round_().clamp_(0, max_code)
            change_R = ((code_R - zero_CR[c]) * step_CR[c]).sub_(weight_CR[c])
            codes_CR[c] = code_R
            weight_CR[c] += change_R
            inside_CR.addr_(moments_CC[start:stop, c], change_R, alpha=-1)
        change_CR = weight_CR[start:stop] - before_CR
        pull_CR.addmm_(moments_CC[:, start:stop], change_CR, alpha=-1)
    found_RC = torch.empty_like(codes_RC)
    found_RC[:, order_C] = codes_CR.T.to(torch.uint8)
    return found_RC


def refit_scales(
    target_RC: torch.Tensor, codes_RC: torch.Tensor, scales: Scales, moments_CC: torch.Tensor
) -> Scales:
    """The scales and zero points that lose least with these codes, all groups of a row solved for together.

    A group whose solution can't be stored (a scale or zero point out of range) keeps what it has.
    """
    columns = target_RC.shape[1]
    old_step_RG, old_zero_RG = scales.resolve()
    width, groups = scales.width(columns), old_step_RG.shape[1]
    padding = groups * width - columns
    target_RC = torch.nn.functional.pad(target_RC, (0, padding))
    moments_CC = torch.nn.functional.pad(moments_CC, (0, padding, 0, padding))
    codes_RGw = torch.nn.functional.pad(codes_RC, (0, padding)).view(-1, groups, width).float()
    at_once = max(1, _EQUATIONS // (2 * groups) ** 2)
    rows = zip(target_RC.split(at_once), codes_RGw.split(at_once), old_zero_RG.split(at_once), strict=True)
    solved = [_solve(*part, moments_CC, scales) for part in rows]
    step_RG, zero_RG = (torch.cat(parts) for parts in zip(*solved, strict=True))
    storable = scales.storable(step_RG, zero_RG)
    return scales.store(
        torch.where(storable, step_RG, old_step_RG), torch.where(storable, zero_RG, old_zero_RG), scales.spec
    )


def _solve(
    target_RC: torch.Tensor,
    codes_RGw: torch.Tensor,
    zero_RG: torch.Tensor,
    moments_CC: torch.Tensor,
    scales: Scales,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The best steps and zeros (R, G), as far as the layout leaves them free."""
    if scales.fixed_zero:
        return _best_steps(target_RC, codes_RGw, zero_RG, moments_CC), zero_RG
    system, wanted = _normal_equations(target_RC, codes_RGw - zero_RG.unsqueeze(2), moments_CC)
    solved = torch.linalg.solve(system, wanted).float().view(len(target_RC), 2, -1)
    step_RG = solved[:, 0]
    zero_RG = zero_RG - solved[:, 1] * inverse(step_RG)
    if scales.whole_zero:
        zero_RG = zero_RG.round().clamp(0, scales.max_code)
        step_RG = _best_steps(target_RC, codes_RGw, zero_RG, moments_CC)
    return step_RG, zero_RG


def _best_steps(
    target_RC: torch.Tensor, codes_RGw: torch.Tensor, zero_RG: torch.Tensor, moments_CC: torch.Tensor
) -> torch.Tensor:
    """The steps (R, G) that lose least with these codes and zeros."""
    groups = zero_RG.shape[1]
    system, wanted = _normal_equations(target_RC, codes_RGw - zero_RG.unsqueeze(2), moments_CC)
    return torch.linalg.solve(system[:, :groups, :groups], wanted[:, :groups]).float()


def _normal_equations(
    target_RC: torch.Tensor, centred_RGw: torch.Tensor, moments_CC: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """For weights step·centred + offset: the float64 system (R, 2G, 2G) and right side (R, 2G); steps come
    first.

    Built a group at a time from products with its columns of the moments, which costs one matrix product in
    all."""
    rows, groups, width = centred_RGw.shape
    centred_RC = centred_RGw.reshape(rows, -1)
    system = torch.empty(rows, 2, groups, 2, groups)
    system[:, 1, :, 1, :] = moments_CC.view(groups, width, groups, width).sum(dim=(1, 3))
    for g in range(groups):
        inside = slice(g * width, (g + 1) * width)
        product_RGw = (centred_RC[:, inside] @ moments_CC[inside]).view(rows, groups, width)
        system[:, 0, g, 0] = (product_RGw * centred_RGw).sum(dim=2)
        system[:, 0, g, 1] = system[:, 1, :, 0, g] = product_RGw.sum(dim=2)
    pull_RGw = (target_RC @ moments_CC).view(rows, groups, width)
    wanted = torch.stack([(pull_RGw * centred_RGw).sum(dim=2), pull_RGw.sum(dim=2)], dim=1)
    system = system.view(rows, 2 * groups, 2 * groups).double()
    diagonal = torch.diagonal(system, dim1=1, dim2=2)
    diagonal += _RIDGE * diagonal + 1e-20
    return system, wanted.view(rows, -1).double()


def _better_rows(
    target_RC: torch.Tensor,
    codes_RC: torch.Tensor,
    old: Scales,
    new: Scales,
    moments_CC: torch.Tensor,
) -> Scales:
    """Of each row the scales that lose less: rounding the new ones to what can be stored costs something."""
    better_R = row_losses(target_RC, codes_RC, new, moments_CC) < row_losses(
        target_RC, codes_RC, old, moments_CC
    )
    return new.choose(better_R, old)
