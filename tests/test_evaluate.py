"""An evaluation is in the bill and never in C; sampled ones share their random numbers."""

import asyncio
from itertools import combinations
from math import comb

import numpy as np
import pytest

from isocost import meter, methods
from isocost.runs.evaluate import Evaluation, best_of, evaluate, scores_of, worst_of
from isocost.seams import Pace
from isocost.steps.look import evaluate as again
from isocost.worlds.setting import Setting, open_setting

RECIPE = methods.load("grpo").recipe()
PACE = Pace(lr=0.0, max_tokens=4)


def measured(opened, **how):
    problems = opened.sides.train[:6]
    return asyncio.run(evaluate(RECIPE, opened.world, problems, PACE, samples=5, **how))


@pytest.fixture
def opened():
    return open_setting(Setting.of(data="sums:base=easy,count=60"))


@pytest.mark.parametrize(("exact", "spent"), [(True, "score"), (False, "decode")])
def test_an_evaluation_is_charged_to_its_own_account_and_never_to_training(opened, exact, spent):
    found = measured(opened, exact=exact)
    assert found.exact is exact and not any(opened.world.meter.of().counts().values())
    own = opened.world.meter.of(meter.EVALUATION)
    assert getattr(own, spent) > 0 and own.rollouts == (0 if exact else 30)
    assert opened.world.meter.total == own


def test_one_seed_draws_the_same_and_another_does_not(opened):
    said = [[r.final for g in measured(opened, exact=False, seed=s).groups for r in g.rollouts] for s in (1, 1, 2)]
    assert said[0] == said[1] != said[2]


def test_best_and_worst_of_samples_equal_the_mean_over_all_subsets():
    """Of right-or-wrong scores 1 - C(s-c, k) / C(s, k) and C(c, k) / C(s, k); of graded ones the mean extreme."""
    for scores in ([1, 0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0.25, 1.0, 0.5, 0.0, 0.5, 0.75]):
        for k in range(1, len(scores) + 1):
            lots = list(combinations(scores, k))
            assert best_of(scores, k) == pytest.approx(np.mean([max(x) for x in lots]), abs=1e-12)
            assert worst_of(scores, k) == pytest.approx(np.mean([min(x) for x in lots]), abs=1e-12)
    assert best_of([1, 0, 0, 0, 0, 0], 4) == pytest.approx(1 - comb(5, 4) / comb(6, 4))
    assert worst_of([1, 1, 1, 1, 0, 0], 4) == pytest.approx(1 / comb(6, 4))
    assert np.isnan(best_of([1, 0, 1], 4)) and np.isnan(worst_of([1, 0, 1], 4))


def test_samples_estimate_without_bias_what_exact_rates_give():
    """Every outcome of six samples at pass rate 0.3, weighted by its chance."""
    p, s, k = 0.3, 6, 4
    rows = [([1] * c + [0] * (s - c), comb(s, c) * p**c * (1 - p) ** (s - c)) for c in range(s + 1)]
    exact = Evaluation(np.array([p]), exact=True)
    assert exact.best(k)[0] == pytest.approx(1 - 0.7**4) and exact.worst(k)[0] == pytest.approx(0.3**4)
    assert sum(w * best_of(x, k) for x, w in rows) == pytest.approx(exact.best(k)[0], abs=1e-12)
    assert sum(w * worst_of(x, k) for x, w in rows) == pytest.approx(exact.worst(k)[0], abs=1e-12)


def test_a_sampled_evaluation_reads_its_own_attempts_and_says_nothing_of_more_than_there_were(opened):
    found = measured(opened, exact=False)          # five samples each
    right = [sum(scores_of(g)) for g in found.groups]
    assert found.best(4).tolist() == pytest.approx([1 - comb(5 - int(c), 4) / comb(5, 4) for c in right])
    assert found.worst(4).tolist() == pytest.approx([comb(int(c), 4) / comb(5, 4) for c in right])
    assert np.all(found.worst(4) <= found.right) and np.all(found.right <= found.best(4))
    assert np.isnan(found.best(6)).all()


def test_measuring_a_policy_again_closes_what_it_opened(monkeypatch):
    closed = []

    def opens(*args, **options):
        found = open_setting(*args, **options)
        found.world.close = lambda: closed.append(True)
        return found

    monkeypatch.setattr("isocost.worlds.setting.open_setting", opens)
    seen, cost, bill = again._measured(Setting.of(data="sums:base=easy,count=60"), "tiny", None, 2, None)
    assert len(seen.right) and cost.score and closed and bill is None
