"""Whether the best n grows with compute: the planner's line, and its place in plan.json."""

from __future__ import annotations

import pytest

from isocost.planner.training.n_growth import FEW, FLAT, GROWS, MANY, UNKNOWN, NGrowth, n_growth

# the planner's line -------------------------------------------------------------------------------------------


EASY, MIXED = [0] * 8 + [10] + [0] * 8, [3, 2, *[0] * 14, 5]


@pytest.mark.parametrize(("per_problem", "right", "answer"), [
    (1.0, MIXED, FLAT), (FEW, MIXED, FLAT), (FEW, None, FLAT), (FEW + 1, MIXED, UNKNOWN), (MANY - 1, MIXED, UNKNOWN),
    (MANY, MIXED, GROWS), (5000.0, MIXED, GROWS), (MANY, EASY, UNKNOWN), (MANY, None, UNKNOWN)])
def test_the_answer_follows_from_rollouts_per_training_problem_and_hard_problems(per_problem, right, answer):
    found = n_growth(round(100 * per_problem), 100, right)
    assert found.answer == answer and found.per_problem == per_problem
    assert f"{per_problem:,.3g} rollouts per training problem" in found.text
    assert "docs/when_n_grows.md" in found.text


def test_hard_problems_are_those_with_at_most_one_right_sample_of_16():
    assert n_growth(1000, 100, [3, 2, *[1] * 15]).hard == 5 / 20
    assert n_growth(1000, 100).hard is None
    assert n_growth(1000, None) is None and n_growth(1000, 0) is None


def test_what_is_written_reads_back():
    found = n_growth(6400, 64, [1] * 17)
    assert NGrowth.of(found.data()) == found
