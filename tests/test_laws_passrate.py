"""Pass-rate tables: every estimator against enumeration, the regimes without gaps, the fit against its own truth."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from isocost.stats.passk import (
    band,
    bands,
    beta_binomial,
    dead_at,
    dead_groups,
    dead_tallies,
    halves,
    histogram,
    low_and_alike,
    majority_at,
    pass_at,
    recipe_for,
    regime,
    regime_of,
    regime_of_rewards,
    summary,
    tallies,
    worst_at,
)


def subsets(k: int, m: int, n: int) -> list[int]:
    """How many of each n-subset of m samples, k of them right, are right."""
    marks = [1] * k + [0] * (m - k)
    return [sum(s) for s in combinations(marks, n)]


@pytest.mark.parametrize("m,n", [(4, 1), (5, 2), (6, 4), (6, 6)])
def test_pass_worst_and_dead_equal_the_mean_over_all_subsets(m, n):
    for k in range(m + 1):
        right = subsets(k, m, n)
        assert pass_at([k], m, n) == pytest.approx(np.mean([r > 0 for r in right]))
        assert worst_at([k], m, n) == pytest.approx(np.mean([r == n for r in right]))
        assert dead_at([k], m, n) == pytest.approx(np.mean([r in (0, n) for r in right]))


def test_pass_at_is_unbiased_where_the_plug_in_is_not():
    p, m, n = 0.3, 8, 4
    chance = [comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(m + 1)]
    truth = 1 - (1 - p) ** n
    assert sum(c * pass_at([k], m, n) for k, c in enumerate(chance)) == pytest.approx(truth, abs=1e-12)
    plug_in = sum(c * (1 - (1 - k / m) ** n) for k, c in enumerate(chance))
    assert abs(plug_in - truth) > 0.02


@pytest.mark.parametrize("p,n,share", [(0.45, 8, 0.01005), (0.03, 8, 0.7837)])
def test_expected_dead_share_is_p_to_the_n_plus_q_to_the_n(p, n, share):
    m = 16
    chance = [comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(m + 1)]
    assert sum(c * dead_at([k], m, n) for k, c in enumerate(chance)) == pytest.approx(share, abs=5e-5)


@pytest.mark.parametrize("votes,right", [([3, 2, 1], 0), ([3, 2, 1], 1), ([2, 2, 2], 2), ([4, 1, 1, 1], 3), ([5], 0)])
def test_majority_equals_the_vote_over_all_subsets(votes, right):
    answers = [i for i, v in enumerate(votes) for _ in range(v)]
    for n in range(1, len(answers) + 1):
        won = []
        for s in combinations(answers, n):
            counts = np.bincount(s, minlength=len(votes))
            won.append((counts[right] == counts.max()) / (counts == counts.max()).sum())
        assert majority_at(votes, right, n) == pytest.approx(np.mean(won))
    assert majority_at(votes, None, 1) == 0.0


def test_estimators_refuse_what_they_cannot_know():
    with pytest.raises(ValueError, match="unbiased only for 1 <= n <= 16"):
        dead_at([3], 16, 17)
    with pytest.raises(ValueError, match=r"0\.\.16"):
        histogram([17], 16)
    with pytest.raises(ValueError, match="at least one problem"):
        pass_at([], 16, 1)


@pytest.mark.parametrize("h,m,name", [
    (0.5, 0.1, "hard"), (0.9, 0.05, "hard"), (0.0, 0.9, "solved"), (0.05, 0.95, "solved"),
    (0.09, 0.2, "easy"), (0.0, 0.89, "easy"), (0.1, 0.5, "mixed"), (0.05, 0.19, "mixed"), (0.49, 0.4, "mixed"),
])
def test_regimes_have_the_bounds_they_say(h, m, name):
    assert regime(h, m).name == name


def test_regimes_leave_no_gap_and_every_one_has_a_recipe():
    names = {regime(h, m).name for h in np.linspace(0, 1, 41) for m in np.linspace(0, 1, 41)}
    assert names == {"hard", "solved", "easy", "mixed"}
    assert {n: recipe_for(n)[0] for n in names} == {
        "easy": "isoeasy", "solved": "isoeasy", "hard": "isohard", "mixed": "isohard"}


def test_the_regime_counts_problems_with_at_most_one_right():
    found = regime_of([0, 1, 2, 16], 16)
    assert (found.name, found.h, found.mean) == ("hard", 0.5, 19 / 64)


def test_beta_binomial_recovers_the_truth():
    rng = np.random.default_rng(0)
    for a, b in ((0.5, 0.5), (2.0, 3.0), (0.3, 2.0)):
        k = rng.binomial(16, rng.beta(a, b, 4000))
        found = beta_binomial(np.array(histogram(k, 16)))
        assert found[0][0] == pytest.approx(a, rel=0.1) and found[1][0] == pytest.approx(b, rel=0.1)


def test_dead_groups_beyond_the_samples_hold_the_truth():
    """90 % intervals over 40 problem sets: at least 80 % hold the set's own expectation."""
    rng, held = np.random.default_rng(1), 0
    for trial in range(40):
        p = rng.beta(0.6, 1.2, 300)
        found = dead_groups(rng.binomial(16, p), 16, [64], seed=trial, draws=100)[0]
        held += found.low <= float((p**64 + (1 - p) ** 64).mean()) <= found.high
        assert found.kind == "beta-binomial"
    assert held >= 32


def test_never_solved_is_not_unsolvable():
    found = {d.n: d for d in dead_groups([0] * 50, 16, [16, 64, 512])}
    assert found[16].share == 1.0 and found[16].kind == "unbiased"
    assert found[512].share < found[64].share < 0.99 and found[512].low < found[512].share


def test_dead_groups_do_not_depend_on_the_order_of_problems_and_repeat():
    k = np.random.default_rng(2).integers(0, 17, 100)
    assert dead_groups(k, 16, [4, 64]) == dead_groups(k[::-1], 16, [4, 64])


def test_difficulty_assigned_on_one_half_regresses_on_the_other():
    """All problems alike (p = 1/2): the half that chose calls some hard, the other half knows better."""
    marks = np.random.default_rng(3).random((4000, 16)) < 0.5
    assign, report = halves(marks)
    rows = {r["band"]: r for r in bands(assign, report, 8)}
    assert rows["hard"]["assigned"] <= 1 / 16 and rows["hard"]["reported"] > 0.35
    assert sum(r["problems"] for r in rows.values()) == 4000
    assert (assign == marks[:, :8].sum(1)).all() and (report == marks[:, 8:].sum(1)).all()


def test_bands_meet_without_gaps():
    assert [band(x) for x in (0.0, 1 / 16, 0.07, 0.3, 0.6, 0.61, 0.9, 1.0)] == [
        "hard", "hard", "between", "easy", "easy", "very easy", "solved", "solved"]


def test_summary_is_plain_and_adds_up():
    marks = np.random.default_rng(4).random((60, 16)) < 0.4
    s = summary(marks, (2, 32))
    assert sum(s["histogram"]) == 60 and s["right"] == (np.add(s["assign"], s["report"])).tolist()
    assert s["mean"] == pytest.approx(marks.mean()) and [d["kind"] for d in s["dead"]] == ["unbiased", "beta-binomial"]


# graded rewards -----------------------------------------------------------------------------------------------


def test_a_group_is_dead_where_all_rewards_are_equal_whatever_they_are():
    """Against every n-subset of five samples; a float's last digit makes no difference."""
    table = np.array([[0, 0.1, 0.1, 0, 1], [0.3] * 5, [0.1, 0.2, 0.3, 0.4, 0.5], [0.1 + 0.2, 0.3, 0, 0, 0]])
    assert tallies(table)[0] == [(0.0, 2), (0.1, 2), (1.0, 1)] and tallies(table)[3] == [(0.0, 3), (0.3, 2)]
    for n in (2, 3, 5):
        subsets = [[len(set(np.round(s, 9))) == 1 for s in combinations(row, n)] for row in table]
        assert dead_tallies(tallies(table), 5, [n])[0].share == pytest.approx(np.mean([np.mean(x) for x in subsets]))


def test_graded_rewards_of_one_kind_leave_no_group_dead():
    """16 samples of 0 and 0.1, half each: the finding's case, which counted as 95 % dead where only 1 was "right"."""
    table = np.tile([0.0] * 8 + [0.1] * 8, (40, 1))
    s = summary(table)
    dead = {d["n"]: d["share"] for d in s["dead"]}
    assert dead[2] == pytest.approx(2 * comb(8, 2) / comb(16, 2)) and dead[16] == 0 and dead[64] < 0.01
    assert s["regime"] == "mixed" and s["h"] == 0 and s["mean"] == pytest.approx(0.05) and s["unsolved"] == 0
    assert s["graded"] and s["rewards"] == [0.05] * 40 and s["right"] == [0] * 40
    assert s["tallies"] == [[[0.0, 8], [0.1, 8]]] * 40
    assert "mean reward is 0.05" in s["why"] and s["histogram"] == [0, 40, *[0] * 15]


def test_graded_regimes():
    always = np.full((10, 16), 0.1)                     # the same low reward for all: nothing to learn from
    assert regime_of_rewards(always).name == "hard" and dead_tallies(tallies(always), 16, [64])[0].share > 0.85
    assert summary(always)["unsolved"] == 1
    high = np.full((10, 16), 0.95)
    assert regime_of_rewards(high).name == "solved" and summary(high)["unsolved"] == 0
    spread = np.random.default_rng(5).random((50, 16))  # every reward another
    found = summary(spread)
    assert found["regime"] == "easy" and all(d["share"] < 1e-3 for d in found["dead"])
    one_differs = np.full((10, 16), 0.0)
    one_differs[:, 3] = 0.4
    assert low_and_alike(one_differs, 1).all() and not low_and_alike(one_differs, 0).any()


def test_rewards_of_0_and_1_are_described_as_counts_of_right_answers_are():
    """Regime, histogram, dead groups: the same by either definition, so the words for graded rewards mean the same."""
    rng = np.random.default_rng(6)
    for a, b in ((0.4, 0.6), (0.2, 3.0), (5.0, 0.5)):
        table = (rng.random((80, 16)) < rng.beta(a, b, (80, 1))).astype(float)
        found, graded = regime_of(table.sum(1), 16), regime_of_rewards(table)
        assert (found.name, found.h, found.mean) == (graded.name, graded.h, graded.mean)
        counted, told = dead_groups(table.sum(1), 16, [2, 4, 64]), dead_tallies(tallies(table), 16, [2, 4, 64])
        assert [d.share for d in counted] == pytest.approx([d.share for d in told], abs=1e-6)
        s = summary(table)
        assert s == summary(table.astype(bool)) and "graded" not in s and s["right"] == table.sum(1).tolist()


def test_dead_groups_of_graded_rewards_beyond_the_samples_hold_the_truth():
    """Rewards 0, 0.1 and 1 at unlike rates per problem: 90 % intervals over 30 sets, at least 24 hold."""
    rng, held = np.random.default_rng(7), 0
    for trial in range(30):
        p = rng.dirichlet([3.0, 0.4, 0.3], 300)
        table = np.array([rng.choice([0, 0.1, 1], 16, p=q) for q in p])
        found = dead_tallies(tallies(table), 16, [32], seed=trial, draws=100)[0]
        held += found.low <= float((p**32).sum(1).mean()) <= found.high
    assert held >= 24


def test_tallies_that_are_none_are_refused():
    with pytest.raises(ValueError, match="rewards of 16 samples"):
        dead_tallies([[(0.0, 9), (1.0, 6)]], 16, [2])
