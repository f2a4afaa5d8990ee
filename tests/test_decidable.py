"""The gate's rules: what each says of planted pilots, and that seeds keep the power that they promise."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy.stats import t as student

from isocost.stats import decidable
from isocost.stats.decidable import Ruling, Spread, spread

DRAWS = 2000


def pilots(sd, seed, draws=DRAWS):
    """Spreads as pilots of 4 pairs at two learning rates measure them, where the truth is `sd`."""
    found = np.random.default_rng(seed).normal(0.1, sd, (draws, 2, 4))
    return [spread(list(one)) for one in found]


def shown(effect, sd, seeds, alpha, seed):
    """Whether a comparison of so many pairs, one for each draw, has an interval above 0."""
    rng = np.random.default_rng(seed)
    seeds = np.asarray(seeds)
    means = rng.normal(effect, sd / np.sqrt(seeds))
    sds = sd * np.sqrt(rng.chisquare(seeds - 1) / (seeds - 1))
    return means - student.ppf(1 - alpha / 2, seeds - 1) * sds / np.sqrt(seeds) > 0


@pytest.mark.parametrize(("effect", "sd", "alpha"), [(0.05, 0.05, 0.05), (0.03, 0.045, 0.04), (0.02, 0.033, 0.1)])
def test_the_seeds_that_a_pilot_asks_for_keep_the_promised_power(effect, sd, alpha):
    wanted = [known.needed(effect, alpha) for known in pilots(sd, 1)]
    assert shown(effect, sd, wanted, alpha, 2).mean() == pytest.approx(0.8, abs=0.03)


def test_seeds_from_the_spread_as_if_it_were_known_would_not():
    plain = [decidable._fewest(0.05, s.sd, 0.05, lambda n, sd=s.sd: decidable.smallest(sd / sqrt(n), n - 1, 0.05))
             for s in pilots(0.05, 1)]
    assert shown(0.05, 0.05, plain, 0.05, 2).mean() < 0.77


def test_the_power_of_planned_seeds_is_what_is_said():
    """Over what a pilot could have shown, the least difference said to be detected is detected as often as said."""
    found = pilots(0.045, 3)
    effects = np.array([s.detectable(12, 0.05) for s in found])
    assert shown(effects, 0.045, np.full(DRAWS, 12), 0.05, 4).mean() == pytest.approx(0.8, abs=0.03)
    assert Spread(0.045, 6).power(Spread(0.045, 6).detectable(12, 0.05), 12, 0.05) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("halves", [5.0, 8.0, 14.0])
def test_true_effects_of_two_half_widths_are_hardly_ever_refused(halves):
    """12 seeds, a baseline that gains 0.3 and ends so many half-widths below 1, runs of both arms."""
    sd, seeds, alpha = 0.045, 12, 0.05
    half = Spread(sd, 6).half_width(seeds, alpha)
    end, effect = 1 - halves * half, 2 * half
    noise = np.random.default_rng(5).normal(0, sd / sqrt(2), (DRAWS, 2, 4))
    refused = 0
    for known, (a, b) in zip(pilots(sd, 6), noise + np.array([[end], [end + effect]]), strict=True):
        lines = [decidable.learns("a", end - 0.3, a), decidable.headroom("a", 1 - a.mean(), known, seeds, alpha),
                 decidable.steady({"a": (end - 0.3, a), "b": (end - 0.3, b)})]
        refused += any(x.passed is False for x in lines)
    assert refused <= DRAWS / 10


def test_planted_nulls_pass_as_holds_in_one_of_twenty_at_most():
    """Claims "more than" are read one-sided at 95 %. The gate refuses some nulls; it lets no more through."""
    draws, sd, seeds = 40_000, 0.045, 12
    passed = np.repeat([decidable.headroom("a", 0.12, known, seeds, 0.1).passed for known in pilots(sd, 7)], 20)
    holds = shown(0.0, sd, np.full(draws, seeds), 0.1, 8)
    assert 0.5 < passed.mean() < 1 and (holds & passed).mean() <= 1 / 20
    assert holds[passed].mean() == pytest.approx(0.05, abs=0.005)


def test_four_seeds_know_a_spread_within_a_factor_of_0_6_to_3_7():
    low, high = Spread(1.0, 3).interval
    assert (low, high) == pytest.approx((0.566, 3.729), abs=1e-3)
    assert spread([np.array([0.1, 0.3]), np.array([0.5, 0.9])]) == Spread(pytest.approx(sqrt(0.1 / 2)), 2)
    assert spread([np.array([0.1])]) is None


def test_half_widths_are_students_and_seeds_have_an_interval():
    known = Spread(0.033, 6)
    assert known.half_width(12, 0.05) == pytest.approx(student.ppf(0.975, 11) * 0.033 / sqrt(12))
    assert known.to_show(0.01, 0.05) == 45
    assert str(known.seeds(0.05, 0.05)) == "7 seeds (5 to 19)"
    assert str(Spread(5.0, 3).seeds(1e-4, 0.05)) == "more than 10,000 seeds"
    assert known.half_width(1, 0.05) == known.detectable(1, 0.05) == np.inf


ENDS = np.array([0.62, 0.64, 0.66, 0.60])


def test_learns_and_headroom():
    assert decidable.learns("grpo", 0.03, ENDS) == Ruling("learns", True, "grpo gains 0.60 over 0.03 (at least 0.15)")
    assert "0.45 above grpo, 109 half-widths" in decidable.headroom("grpo", 0.45, Spread(0.0065, 6), 12, 0.05).text
    low = decidable.learns("grpo", 0.5, ENDS)
    assert low.passed is False and low.text.endswith("train longer, or on problems that it learns")
    assert decidable.learns("grpo", None, ENDS).passed is None
    known = Spread(0.033, 6)
    assert decidable.headroom("grpo", 0.36, known, 12, 0.05) == Ruling(
        "headroom", True, "0.36 above grpo, 17 half-widths of 0.021 (at least 3)")
    assert decidable.headroom("grpo", 0.05, known, 12, 0.05).text.endswith("use 18 seeds, or harder problems")
    assert decidable.headroom("grpo", 0.01, known, 12, 0.05).text.endswith("use harder problems or shorter runs")


def test_margin_needs_a_half_width_below_it():
    known = Spread(0.033, 6)
    assert decidable.margin(0.05, known, 12, 0.05).passed
    assert decidable.margin(0.01, known, 12, 0.05) == Ruling(
        "margin", False, "half-width 0.021, margin 0.01: use 45 seeds, or ask for a margin of 0.021")


def test_a_fallen_run_is_named():
    assert decidable.steady({"a": (0.03, ENDS), "b": (0.03, ENDS)}).passed
    for last in (0.41, 0.15):       # 0.2 below the median; within a quarter of the gain from the base
        fell = decidable.steady({"a": (0.03, ENDS), "b": (0.03, np.append(ENDS[:3], last))}, "--lr 5e-05")
        assert fell == Ruling("steady", False, f"1 of 4 runs of b fell to {last:.2f} (median 0.63): use --lr 5e-05")
    near = np.array([0.40, 0.42, 0.44, 0.33])       # 0.08 below the median, and nearly at the base of 0.3
    assert decidable.fell(0.3, near).tolist() == [False] * 4        # the arm has not learned: nothing to fall from
    assert decidable.fell(0.2, near - [0, 0, 0, 0.1]).tolist() == [False] * 3 + [True]


@pytest.mark.parametrize(("probed", "full", "passed", "says"), [
    ({1e-4: 0.3, 4e-4: 0.5, 16e-4: 0.4}, {2e-4: [0.61, 0.63], 4e-4: [0.62, 0.64]}, True, "an edge; used: 0.0002"),
    ({1e-4: 0.5, 4e-4: 0.4, 16e-4: 0.3}, {1e-4: [0.6, 0.6], 2e-4: [0.6, 0.6]}, False, "probed, the lowest"),
    ({1e-4: 0.3, 4e-4: 0.4, 16e-4: 0.5}, {2e-4: [0.6, 0.6], 4e-4: [0.6, 0.6]}, False, "probed, the highest"),
    ({1e-4: 0.3, 4e-4: 0.5, 16e-4: 0.4}, {2e-4: [0.71, 0.73], 4e-4: [0.6, 0.62]}, False, "the lowest tried at full"),
    ({}, {1e-4: [0.5], 2e-4: [0.6], 4e-4: [0.7]}, False, "the highest tried at full length"),
    ({}, {1e-4: [0.7], 2e-4: [0.6], 4e-4: [0.5]}, False, "the lowest tried at full length"),
    ({}, {2e-4: [0.5], 4e-4: [0.7], 8e-4: [0.6]}, True, "best 0.0004 of 0.0002 to 0.0008"),
    ({}, {1e-4: [0.5], 1.5e-4: [0.7], 2e-4: [0.6]}, False, "below the 0.0002 that would be used"),
    ({}, {2e-4: [0.6, 0.7]}, None, "only 0.0002 was tried"),
])
def test_a_rate_at_an_edge_is_refused(probed, full, passed, says):
    found = decidable.rate("grpo", probed, {k: np.array(v) for k, v in full.items()}, 2e-4)
    assert found.passed is passed and says in found.text


def test_equal_runs_are_refused_and_others_are_not_known_to_act():
    assert decidable.acts("grpo", "arpo", 4, 4).passed is False
    assert decidable.acts("grpo", "arpo", 1, 4).passed is None and decidable.acts("grpo", "arpo", 0, 0).passed is None


def test_visits_are_asked_of_methods_that_use_history():
    assert decidable.visits("vade", 2.7, True) == Ruling(
        "visits", False, "2.7 of each problem (vade uses their history; at least 3): use fewer problems or longer runs")
    assert decidable.visits("vade", 3.1, True).passed
    assert decidable.visits("grpo", 2.7, False).passed is None and decidable.visits("grpo", None, True).passed is None


def test_the_end_alone_is_not_read():
    assert decidable.points([1.0]) == Ruling("points", False, "the end alone: read 0.25, 0.5 and 1, or the mean")
    assert decidable.points([0.25, 0.5, 1.0]).passed and decidable.points(["mean", 1.0]).passed


def test_seeds_that_are_not_paired_are_refused():
    few = decidable.planned(Spread(0.033, 6), 4, 0.05)
    assert few.passed is False and few.text.endswith("fewer than 5 are not paired, use --seeds 5 or more")
    assert decidable.planned(Spread(0.033, 6), 12, 0.05).text == (
        "12 seeds decide 0.034 with 80% power; 0.05 needs 7 seeds (5 to 19)")


def test_one_line_for_several_arms_names_every_failure():
    lines = [Ruling("learns", True, "a"), Ruling("learns", False, "b"), Ruling("learns", False, "c")]
    assert decidable.worst(lines) == Ruling("learns", False, "b; c")
    assert decidable.worst([Ruling("x", None, "n"), Ruling("x", True, "y")]).text == "y"
