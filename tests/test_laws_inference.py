"""Test-time laws: best-of-N, temperature and k, attempts by difficulty, strategies by difficulty, heterogeneity."""

import itertools
import math

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws.papers.inference import (
    CoScaling,
    Saturation,
    allot,
    best_of,
    best_temperatures,
    fit_coscaling,
    fit_saturation,
)
from isocost.laws.papers.strategy import by_difficulty, quantile_bins, wilson
from isocost.laws.papers.verification import bilevel, spreads
from isocost.stats.passk import pass_at

TEMPERATURES, KS = np.array([0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0]), [1, 2, 4, 8, 16, 32, 64]


# best of N ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [[3, 1, 2, 5, 4], [1, 1, 2, 2, 0], [7, 7, 7, 7, 7]])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_best_of_n_equals_the_mean_over_all_subsets(scores, n):
    right = [1, 0, 1, 0, 0]
    won = []
    for some in itertools.combinations(range(5), n):
        top = max(scores[i] for i in some)
        tied = [right[i] for i in some if scores[i] == top]
        won.append(sum(tied) / len(tied))
    assert best_of(np.array(scores), np.array(right), n) == pytest.approx(np.mean(won), abs=1e-12)


def test_best_of_n_under_a_perfect_verifier_is_pass_at_n_and_under_a_blind_one_pass_at_1():
    for m, k in ((8, 3), (64, 1), (20, 20), (6, 0)):
        marks = np.arange(m) < k
        for n in {1, 2, m // 2, m}:
            assert best_of(marks, marks, n) == pytest.approx(pass_at([k], m, n), abs=1e-12)
            assert best_of(np.zeros(m), marks, n) == pytest.approx(k / m, abs=1e-12)
    with pytest.raises(UserError, match="n from 1 to 6, got 7"):
        best_of(marks, marks, 7)


def test_best_of_n_of_independent_samples_is_one_minus_q_to_the_n():
    rng, p, n = np.random.default_rng(0), 0.3, 4
    marks = rng.random((4000, 12)) < p
    assert np.mean([best_of(row, row, n) for row in marks]) == pytest.approx(1 - 0.7**4, abs=0.01)


# saturation -----------------------------------------------------------------------------------------------------------


def test_a_plateau_fitted_to_few_attempts_says_when_to_stop():
    truth, n = Saturation(0.8, 0.12), np.array([1, 2, 3, 4, 6, 8, 12, 16])
    rng = np.random.default_rng(2)
    stops = []
    for _ in range(30):
        reached = rng.binomial(4000, truth(n)) / 4000
        stops.append(fit_saturation(n, reached).enough(0.002))
    assert truth.enough(0.002) == 31                                 # ln(.002 / .096) / ln(.88) = 30.3
    assert np.median(stops) == pytest.approx(31, abs=2)


def test_attempts_go_where_the_next_one_adds_most():
    easy, hard = Saturation(1.0, 0.5), Saturation(1.0, 0.1)
    assert allot([easy, hard], [0.5, 0.5], 1.0) == [2, 0]            # gains .5, .25 before .1
    given = allot([easy, hard], [0.5, 0.5], 8.0)
    best = max(((a, 16 - a) for a in range(17)), key=lambda ab: float(easy(ab[0]) + hard(ab[1])))
    assert tuple(given) == best and best[0] < 8
    assert allot([easy, Saturation(0.0, 0.3)], [0.5, 0.5], 1000.0)[1] == 0    # what cannot be solved gets nothing
    with pytest.raises(UserError, match="with sum 1"):
        allot([easy, hard], [0.5, 0.4], 2.0)


def test_allotment_by_difficulty_beats_the_same_number_for_all():
    rates = np.array([0.9, 0.5, 0.2, 0.05, 0.01])
    curves, shares = [Saturation(1.0, float(p)) for p in rates], [0.2] * 5
    for mean in (2, 8, 32):
        given = allot(curves, shares, mean)
        assert np.mean(given) <= mean
        ours, same = (np.mean([float(c(n)) for c, n in zip(curves, ns, strict=True)]) for ns in (given, [mean] * 5))
        assert ours > same + 0.01


# temperature ----------------------------------------------------------------------------------------------------------


def policies(seed, P=300, V=40):
    """Logits of P problems with V answers; the first is right, and stands above or below the likeliest wrong one."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((P, V)) * 1.5
    z[:, 0] = z.max(1) + rng.normal(0.0, 2.0, P)
    return z


def rate(z, temperature):
    e = np.exp((z - z.max(1, keepdims=True)) / temperature)
    return e[:, 0] / e.sum(1)


def test_the_best_temperature_by_hand():
    law = CoScaling((0.5, 0.2, 0.4), (-0.4, -0.3), (0.1, 5.0))
    assert law.exponent == pytest.approx(0.375)                      # .3 / (2 * .4)
    assert law.best(1) == pytest.approx(math.exp(-0.25))             # -.2 / (2 * .4)
    assert law.best(16) == pytest.approx(math.exp(-0.25) * 16**0.375)
    fine = np.geomspace(0.1, 5.0, 4000)
    assert fine[law(fine, 8).argmax()] == pytest.approx(law.best(8), rel=2e-3)
    assert float(law(1.0, 1)) == pytest.approx(math.exp(-math.exp(0.5)))
    assert CoScaling((0.5, 0.2, 0.4), (-0.4, -0.3), (0.5, 1.0)).best(16) == 1.0       # beyond what was measured
    bowl = CoScaling((0.0, 0.1, -0.2), (-0.4, 0.0), (0.5, 2.0))                       # no valley: an end is best
    assert bowl.best(4) == 0.5 and math.isnan(bowl.exponent)


def test_co_scaling_is_recovered():
    truth = CoScaling((0.6, 0.1, 0.5), (-0.35, -0.25), (0.2, 2.0))
    t, k = (x.ravel() for x in np.meshgrid(TEMPERATURES, KS, indexing="ij"))
    found = fit_coscaling(t, k, truth(t, k))
    assert (*found.a, *found.b) == pytest.approx((*truth.a, *truth.b), rel=1e-6)
    with pytest.raises(UserError, match="at least 3 temperatures"):
        fit_coscaling(t[t < 0.4], k[t < 0.4], truth(t, k)[t < 0.4])


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_on_softmax_policies_the_temperature_that_it_names_costs_next_to_nothing(seed):
    z = policies(seed)
    table = np.array([[np.mean(1 - (1 - rate(z, t)) ** k) for k in KS] for t in TEMPERATURES])
    t, k = (x.ravel() for x in np.meshgrid(TEMPERATURES, KS, indexing="ij"))
    law = fit_coscaling(t, k, table.ravel())
    fine, best = np.geomspace(0.2, 2.0, 200), [law.best(k) for k in KS]
    assert (np.diff(best) > 0).all() and 0.3 < law.exponent < 0.7
    for k, named in zip(KS, best, strict=True):
        most = max(np.mean(1 - (1 - rate(z, x)) ** k) for x in fine)
        assert most - np.mean(1 - (1 - rate(z, named)) ** k) < 0.006


def test_best_temperatures_come_with_intervals_that_narrow_with_problems():
    rng, m = np.random.default_rng(5), 64
    wide, narrow = (
        best_temperatures(
            TEMPERATURES, np.array([rng.binomial(m, rate(z, t)) for t in TEMPERATURES]), m, [1, 8, 64], draws=60
        )
        for z in (policies(7, P=60), policies(7, P=960))
    )
    for a, b in zip(wide, narrow, strict=True):
        assert a.low <= a.temperature <= a.high
        assert b.high - b.low < 0.6 * (a.high - a.low) or a.edge
    assert [x.k for x in narrow] == [1, 8, 64] and narrow[0].temperature < narrow[1].temperature
    with pytest.raises(UserError, match="from 1 to 64"):
        best_temperatures(TEMPERATURES, np.ones((7, 4), dtype=int), m, [128])


# strategies -----------------------------------------------------------------------------------------------------------


def measured(seed, P=300, m=4, equal=False):
    """Difficulty from 16 samples, and accuracies of three strategies from m others each."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.7, 0.7, P)
    true = {"parallel": p**0.6, "revise": np.where(p > 0.5, p**0.3, p), "search": np.where(p < 0.5, p**0.4, p**0.9)}
    true = dict.fromkeys(true, p) if equal else true
    return rng.binomial(16, p) / 16, {k: rng.binomial(m, v) / m for k, v in true.items()}


def test_each_bin_gets_what_is_best_there_and_all_together_beat_the_single_best():
    worth, first = 0, []
    for seed in range(20):
        found = by_difficulty(*measured(seed), seed=seed)
        worth += found.gain[1] > 0
        first.append((found.choices[0].best, found.choices[-1].best))
        assert found.gain[0] == pytest.approx(found.accuracy - found.single_accuracy)
    assert worth >= 14
    assert sum(x == ("search", "revise") for x in first) >= 15


def test_where_strategies_are_equal_they_tie_and_nothing_is_claimed():
    untied = claimed = 0
    for seed in range(40):
        found = by_difficulty(*measured(seed, P=150, equal=True), seed=seed)
        untied += sum(len(c.ties) < 2 for c in found.choices)
        claimed += found.gain[1] > 0
        assert abs(found.gain[0]) < 0.05
    assert untied <= 0.12 * 200 and claimed <= 6


def test_choosing_and_measuring_on_the_same_problems_would_flatter():
    """The reason for two halves: equal strategies chosen by their own noise look better than they are."""
    flattered, honest = [], []
    for seed in range(40):
        difficulty, accuracy = measured(seed, P=50, m=1, equal=True)
        of = quantile_bins(difficulty)
        table = np.array(list(accuracy.values()))
        flattered.append(np.mean([table[:, of == b].mean(1).max() for b in range(5)]) - table.mean())
        honest.append(by_difficulty(difficulty, accuracy, seed=seed).accuracy - table.mean())
    assert np.mean(flattered) > 0.07 and abs(np.mean(honest)) < 0.03


def test_bins_by_quantile_and_by_band():
    assert quantile_bins(np.array([0.9, 0.1, 0.5, 0.5, 0.2, 0.8, 0.3, 0.4, 0.6, 0.7])).tolist() == [
        4, 0, 2, 2, 0, 4, 1, 1, 3, 3
    ]
    found = by_difficulty(*measured(0), bins=np.digitize(measured(0)[0], (0.1, 0.5)))
    assert [c.difficulty[0] >= e for c, e in zip(found.choices, (0, 0.1, 0.5), strict=True)] == [True] * 3


def test_a_bin_that_nobody_solves_has_an_interval_all_the_same():
    difficulty = np.repeat([0.0, 0.5], 10)
    accuracy = {k: np.where(difficulty > 0, v, 0.0) for k, v in (("a", 0.6), ("b", 0.4))}
    hardest = by_difficulty(difficulty, accuracy, bins=(difficulty > 0).astype(int)).choices[0]
    assert hardest.accuracy == 0 and hardest.ties == ("b",)
    assert hardest.interval == pytest.approx(wilson(0.0, 10, 0.9)) and hardest.interval[1] > 0.2
    assert wilson(0.5, 100, 0.95) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_what_a_choice_of_strategies_refuses():
    difficulty, accuracy = measured(0)
    with pytest.raises(UserError, match="at least 2 strategies, got parallel"):
        by_difficulty(difficulty, {"parallel": accuracy["parallel"]})
    with pytest.raises(UserError, match="each of the 300 problems"):
        by_difficulty(difficulty, {**accuracy, "short": accuracy["search"][:9]})
    with pytest.raises(UserError, match="use fewer bins"):
        by_difficulty(difficulty[:6], {k: v[:6] for k, v in accuracy.items()})
    with pytest.raises(UserError, match=r"\[0, 1\]"):
        by_difficulty(difficulty, {**accuracy, "wrong": 2 + accuracy["search"]})


# heterogeneity --------------------------------------------------------------------------------------------------------


def tree(styles, horizon):
    """All of a policy's answers with their chances: one of some styles, then tokens that hit at its own length."""
    answers = []
    for chance, length, p in styles:       # each token from `length` on hits with chance p, if none has before
        miss = chance
        for at in range(length, horizon):
            answers.append((miss * p, at))
            miss *= 1 - p
        answers.append((miss, None))
    return answers


def by_steps(styles, horizon):
    """sigma^2 as the paper has it: the variance of Q over the style's choice, and over each hit or miss after it."""
    def value(length, p, at):              # of a style that has not hit before token `at`
        v = 0.0
        for h in range(horizon - 1, max(at, length) - 1, -1):
            v = p * (horizon - h) + (1 - p) * v
        return v

    values = [value(length, p, 0) for _, length, p in styles]
    mean = sum(c * v for (c, _, _), v in zip(styles, values, strict=True))
    total = sum(c * (v - mean) ** 2 for (c, _, _), v in zip(styles, values, strict=True))
    for c, length, p in styles:
        alive = c
        for at in range(length, horizon):
            hit, miss = horizon - at, value(length, p, at + 1)
            total += alive * p * (1 - p) * (hit - miss) ** 2
            alive *= 1 - p
    return total


@pytest.mark.parametrize("styles", [
    [(1.0, 3, 1.0)], [(0.5, 2, 1.0), (0.5, 7, 1.0)], [(0.2, 1, 0.3), (0.5, 4, 0.6), (0.3, 8, 0.1)],
])
def test_the_spread_of_returns_is_the_sum_over_steps_of_the_spread_of_q(styles):
    answers, horizon = tree(styles, 12), 12
    chance = np.array([p for p, _ in answers])
    returns = bilevel([at for _, at in answers], horizon)
    variance = float(chance @ returns**2 - (chance @ returns) ** 2)
    assert chance.sum() == pytest.approx(1.0)
    assert variance == pytest.approx(by_steps(styles, horizon), abs=1e-9)
    drawn = np.random.default_rng(0).choice(returns, (3000, 16), p=chance / chance.sum())
    assert np.mean([s.sigma**2 for s in spreads(drawn)]) == pytest.approx(variance, rel=0.05, abs=1e-9)


def test_one_style_has_no_spread_and_all_of_it_at_its_mean():
    (one,) = spreads(np.array([bilevel([3] * 8, 10)]))
    assert (one.sigma, one.mean, one.above) == (0.0, 7.0, 1.0)
    (mixed,) = spreads(np.array([bilevel([0, None, None, None], 10)]), reach=1.0)
    assert (mixed.mean, mixed.above) == (2.5, 0.25) and mixed.sigma == pytest.approx(5.0)
    with pytest.raises(UserError, match="hits from 0 to 9"):
        bilevel([10], 10)
    with pytest.raises(UserError, match="at least 2 answers per problem"):
        spreads(np.ones((3, 1)))
