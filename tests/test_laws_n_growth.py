"""Whether the best n grows with compute: the planner's line, its place in plan.json, and the study's statistic."""

from __future__ import annotations

import numpy as np
import pytest

from isocost.planner.training.n_growth import FEW, FLAT, GROWS, MANY, UNKNOWN, NGrowth, n_growth
from truth import growth as statistic
from truth import knobs

NS, C = np.array([2, 4, 8, 16, 32, 64]), 512 * 10 ** (np.arange(11) / 4)


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


# the statistic ------------------------------------------------------------------------------------------------


def rewards(best: np.ndarray, fall: float = 0.03, seeds: int = 5) -> np.ndarray:
    """Reward (seeds, n, C) that falls by `fall` per doubling away from log2 n = best (C,), with a little noise."""
    noise = np.random.default_rng(0).normal(scale=1e-3, size=(seeds, len(NS), len(C)))
    return 0.5 - fall * abs(np.log2(NS)[None, :, None] - best) + noise


@pytest.mark.parametrize(("first", "last", "verdict"), [
    (1.0, 6.0, statistic.GROWS), (6.0, 1.0, statistic.FALLS), (3.0, 3.0, statistic.FLAT)])
def test_a_planted_path_is_found(first, last, verdict):
    found = statistic.growth(rewards(np.linspace(first, last, len(C))), NS, C)
    assert found["verdict"] == verdict
    if verdict == statistic.GROWS:
        assert found["slope"][0] == pytest.approx(2.0, abs=0.3)       # five doublings in two and a half decades
        assert (found["early"], found["late"]) == (4, 64) and found["worth"][1] > 0


def test_where_n_does_not_matter_nothing_is_identified():
    found = statistic.growth(rewards(np.linspace(1, 6, len(C)), fall=1e-4), NS, C)
    assert found["verdict"] == statistic.UNKNOWN and not any(found["counts"])


# the worlds ---------------------------------------------------------------------------------------------------


def test_base_pass_rates_are_those_of_the_two_bands():
    world = knobs.World.make(np.random.default_rng(0), knobs.Dials(hard=0.5, problems=64))
    zero = np.zeros
    rates = knobs.passed([world], zero(1, int), np.array([0.5], np.float32), zero((1, knobs.D), np.float32),
                         zero((1, 64, knobs.K), np.float32))[0]
    hard = (rates <= knobs.HARD[1] + 1e-6) & (rates >= knobs.HARD[0] - 1e-6)
    easy = (rates >= knobs.EASY[0] - 1e-6) & (rates <= knobs.EASY[1] + 1e-6)
    assert (hard | easy).all() and hard[:64].sum() == 32 and hard[64:].sum() == knobs.HELD_OUT // 2


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_training_raises_the_pass_rate_and_nothing_shared_leaves_held_out_problems(optimiser):
    dials = knobs.Dials(rho=0.0, hard=0.0, problems=16, optimiser=optimiser)
    world = knobs.World.make(np.random.default_rng(0), dials)
    lr = np.array([0.3 if optimiser == "adam" else 64.0])
    none = np.zeros(1, int)
    found = knobs.train([world], [dials], none, none, lr, 8, [64, 2048], np.random.default_rng(1))
    trained, other = found[..., :16].mean((1, 2)), found[..., 16:].mean((1, 2))
    assert trained[2] > trained[1] > trained[0] and trained[2] > 0.9
    assert other == pytest.approx(other[0])
    with pytest.raises(ValueError, match="does not divide"):
        knobs.train([world], [knobs.Dials(problems=16, B=6)], none, none, lr, 8, [64], np.random.default_rng(1))


def test_credit_is_that_of_the_groups_mean_by_hand():
    counts, right = np.array([[3, 1, 0]]), np.array([[0, 1, 0]])
    assert knobs.credit(counts, right, "mean")[0] == pytest.approx([3 * -0.25 / 4, 0.75 / 4, 0])
    assert knobs.credit(counts, right, "std")[0] == pytest.approx(np.array([-0.1875, 0.1875, 0]) / np.sqrt(0.1875))


@pytest.mark.parametrize("n", [4, 16])
def test_draws_have_the_size_and_the_mean_of_their_distribution(n):
    p = np.tile(np.linspace(1, 2, knobs.K) / np.linspace(1, 2, knobs.K).sum(), (4000, 1))
    counts = knobs.drawn(p, n, np.random.default_rng(0))
    assert (counts.sum(-1) == n).all()
    assert counts.mean(0) == pytest.approx(n * p[0], abs=0.12)
