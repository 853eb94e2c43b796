"""The distillation loss is the divergence over the vocabulary, summed, and its gradient is the plain one."""

import torch
import torch.nn.functional as F

from penjing.train.distillation import distillation_loss

TOKENS, WIDTH, VOCABULARY = 300, 8, 50  # more tokens than are taken at a time


def parts():
    generator = torch.Generator().manual_seed(0)
    heads = [torch.randn(VOCABULARY, WIDTH, generator=generator) for _ in range(2)]
    hidden = [torch.randn(TOKENS, WIDTH, generator=generator) for _ in range(2)]
    return heads, hidden


def test_the_loss_is_the_sum_of_divergences_and_counts_tokens():
    (teacher, student), (teacher_TD, student_TD) = parts()
    found = distillation_loss(lambda x: x @ teacher.T, teacher_TD, lambda x: x @ student.T, student_TD)
    p, q = (teacher_TD @ teacher.T).log_softmax(-1), (student_TD @ student.T).log_softmax(-1)
    torch.testing.assert_close(found.total, (p.exp() * (p - q)).sum())
    assert found.count == TOKENS


def test_gradients_reach_the_students_states_and_head_and_nothing_of_the_teacher():
    (teacher, student), (teacher_TD, student_TD) = parts()
    leaves = [x.requires_grad_(True) for x in (teacher, student, teacher_TD, student_TD)]
    distillation_loss(
        lambda x: x @ teacher.T, teacher_TD, lambda x: x @ student.T, student_TD
    ).total.backward()
    sliced = [leaf.grad for leaf in leaves]
    assert sliced[0] is None and sliced[2] is None
    student.grad = student_TD.grad = None
    p = (teacher_TD @ teacher.T).log_softmax(-1).detach()
    F.kl_div((student_TD @ student.T).log_softmax(-1), p, log_target=True, reduction="sum").backward()
    torch.testing.assert_close(sliced[1], student.grad)
    torch.testing.assert_close(sliced[3], student_TD.grad)


def test_equal_models_diverge_by_nothing():
    (teacher, _), (teacher_TD, _) = parts()
    assert (
        distillation_loss(lambda x: x @ teacher.T, teacher_TD, lambda x: x @ teacher.T, teacher_TD).total == 0
    )
