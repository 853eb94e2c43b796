"""The teacher's kept tokens against the full divergence."""

import pytest
from tests.unit.evaluate_fakes import nearby_model, random_ids, random_model

from penjing.errors import InputError
from penjing.evaluate.likelihood import score_pair
from penjing.evaluate.teacher import kl_from_top, teacher_top

VOCAB = 97
PASSAGES = [random_ids(VOCAB, 120, 2), random_ids(VOCAB, 40, 3)]


def full_kl(original, shrunk) -> float:
    scores = [score_pair(original, shrunk, ids) for ids in PASSAGES]
    return sum(score.kl for score in scores) / sum(score.tokens for score in scores)


@pytest.mark.parametrize("distance", [1.0, 0.1, 0.01])
def test_with_every_token_kept_it_is_the_full_kl(distance):
    original = random_model(VOCAB, 1)
    shrunk = nearby_model(original, 4, distance)
    found = kl_from_top(teacher_top(original, PASSAGES), shrunk)
    assert found == pytest.approx(full_kl(original, shrunk), rel=0.02, abs=1e-6)


def test_with_few_tokens_kept_it_is_a_lower_bound_that_ranks_candidates():
    original = random_model(VOCAB, 1, spread=3.0)
    teacher = teacher_top(original, PASSAGES, k=8)
    candidates = [nearby_model(original, 4, distance) for distance in (0.05, 0.1, 0.2, 0.4)]
    kept = [kl_from_top(teacher, candidate) for candidate in candidates]
    full = [full_kl(original, candidate) for candidate in candidates]
    assert kept == sorted(kept)
    assert all(0.5 * f < k <= f for k, f in zip(kept, full, strict=True))


def test_the_teacher_is_at_almost_no_distance_from_itself():
    original = random_model(VOCAB, 1)
    assert 0 <= kl_from_top(teacher_top(original, PASSAGES, k=8), original) < 1e-6


def test_it_takes_six_bytes_a_kept_token():
    teacher = teacher_top(random_model(VOCAB, 1), PASSAGES, k=8)
    assert teacher.nbytes == (119 + 39) * (8 * 6 + 2)


def test_no_passage_is_refused():
    with pytest.raises(InputError, match="no passage"):
        teacher_top(random_model(VOCAB, 1), [])
