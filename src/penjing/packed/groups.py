"""Weights from codes with a zero point and a scale for each group of columns.

Shapes: R rows, C columns, G groups a row.
"""

import torch

from penjing.errors import InputError


def dequantize_groups(
    out_RC: torch.Tensor,
    codes_RC: torch.Tensor,
    zero_RG: torch.Tensor,
    scale_RG: torch.Tensor,
    width: int,
    group_C: torch.Tensor | None = None,
) -> None:
    """Write scale * (codes - zero) to `out_RC`, in float32.

    A group is `width` consecutive columns, the last one of a row maybe fewer; `group_C` (integers) names each
    column's group where they lie in another order.
    """
    rows, columns = out_RC.shape
    group_C = None if group_C is None else group_C.long()
    ordered_C = torch.arange(columns) // width
    if (group_C is None or torch.equal(group_C, ordered_C)) and columns == width * scale_RG.shape[1]:
        grouped = (rows, scale_RG.shape[1], width)
        out_RC, codes_RC = out_RC.view(grouped), codes_RC.reshape(grouped)
        zero_RG, scale_RG = zero_RG.unsqueeze(2), scale_RG.unsqueeze(2)
    else:
        group_C = ordered_C if group_C is None else group_C
        zero_RG, scale_RG = zero_RG[:, group_C], scale_RG[:, group_C]
    torch.sub(codes_RC, zero_RG, out=out_RC)
    out_RC.mul_(scale_RG)


def check_groups(name: str, group_C: torch.Tensor, groups: int) -> None:
    """Raise `InputError` about `name` unless each column's group is one of `groups`."""
    if group_C.numel() and not 0 <= int(group_C.min()) <= int(group_C.max()) < groups:
        raise InputError(
            f"{name} names groups from {int(group_C.min())} to {int(group_C.max())}, but there are {groups}"
        )
