"""Learning from another model: the divergence of the student from its teacher on the same tokens.

Shapes: T tokens, t of them at a time, D hidden size of either model, V vocabulary.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from penjing.train.loss import LossSum

Head = Callable[[torch.Tensor], torch.Tensor]
_SLICE = 256  # tokens whose logits exist at once


def distillation_loss(
    teacher_head: Head, teacher_TD: torch.Tensor, student_head: Head, student_TD: torch.Tensor
) -> LossSum:
    """KL(teacher || student) over the whole vocabulary, summed over tokens (Hinton et al., arXiv 1503.02531,
    at temperature 1).

    Takes final hidden states and heads, not logits: those are made a few tokens at a time, and once more in
    the backward pass, so that memory doesn't grow with the text. Gradients reach the student's hidden states
    and head, never the teacher.
    """

    def slice_loss(student_tD: torch.Tensor, teacher_tD: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            teacher_tV = teacher_head(teacher_tD).float().log_softmax(dim=-1)
        student_tV = student_head(student_tD).float().log_softmax(dim=-1)
        return F.kl_div(student_tV, teacher_tV, log_target=True, reduction="sum")

    total = torch.zeros((), device=student_TD.device)
    for student_tD, teacher_tD in zip(student_TD.split(_SLICE), teacher_TD.split(_SLICE), strict=True):
        total = total + checkpoint(slice_loss, student_tD, teacher_tD, use_reentrant=False)
    return LossSum(total, len(student_TD))
