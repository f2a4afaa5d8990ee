"""The learning-rate rule: numbers by hand, what is refused, and when the winner moves."""

import json
from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import pytest

from isocost.laws.curves import Curve
from isocost.planner.training.learning_rate import (
    ProbeResult,
    RateRule,
    by_n,
    fit_rate,
    given,
    probe_results,
    reward_at,
    shift,
    starting_rule,
)
from isocost.runs.arm import Arm


def probe(nB, centre, ends, start=0.4):
    return [ProbeResult(nB, centre * x, start, end) for x, end in zip((0.25, 1.0, 4.0), ends, strict=True)]


def curve(n, end, *, purpose="pilot", seed=0, multiplier=1.0, lr=1e-3, start=0.4, diverged=False):
    C = np.array([0.0, 512, 1024])
    y = np.array([start, (start + end) / 2, end])
    return Curve(f"{purpose}-n{n}-x{multiplier}-s{seed}", Arm(n=n, B=8, lr=lr, multiplier=multiplier), seed, C, y, y,
                 C / 100, C / 500, diverged, purpose)


def test_the_rule_is_a_power_of_rollouts_per_update():
    rule = RateRule(1e-6, 1024, 0.5)
    assert rule.at(1024) == 1e-6
    assert rule.at(8192) == pytest.approx(2.8284e-6, rel=1e-4)     # arXiv 2603.12151: 2.83e-6 at 8192
    assert rule.at(256, multiplier=2) == pytest.approx(1e-6)


def test_an_arm_with_a_rate_of_its_own_keeps_it():
    rule = RateRule(1e-6, 128, arms=((4, 64, 2e-6), (16, 16, 3e-6)))
    assert rule.of_arm(4, 64) == 2e-6 and rule.of_arm(16, 16) == 3e-6     # one nB, two rates
    assert rule.of_arm(8, 32) == rule.at(256) == pytest.approx(1e-6 * sqrt(2))
    assert RateRule.of(json.loads(json.dumps(rule.data()))) == rule
    assert "arms" not in RateRule(1e-6, 128).data()


def test_rewards_at_one_C_are_linear_in_its_logarithm_and_in_C_before_the_first():
    C, y = np.array([0.0, 100, 400, 1600]), np.array([0.1, 0.3, 0.5, 0.9])
    known = {0: 0.1, 50: 0.2, 100: 0.3, 200: 0.4, 400: 0.5, 800: 0.7, 1600: 0.9, 9999: 0.9}
    assert {at: reward_at(C, y, at) for at in known} == pytest.approx(known)
    assert [reward_at(C, y, at) for at in C] == list(y)     # to the last bit where it was evaluated
    assert reward_at(C[1:], y[1:], 50) == 0.3               # no base: as it first was


def test_the_winner_is_sought_at_one_C():
    """n = 2 ends at 1,024; n = 4 goes on to 2,048 and stands at 0.6 at 1,024, at 0.5 one evaluation before."""
    longer = replace(curve(4, 0.7), C=np.array([0.0, 512, 2048]), select=np.array([0.4, 0.5, 0.7]))
    assert by_n([longer, curve(2, 0.55)], 1024) == {2: [0.55], 4: [pytest.approx(0.6)]}
    assert shift([longer, curve(2, 0.55), curve(2, 0.55, purpose="edge", multiplier=2.0)]).winners == {"1": 4, "2": 4}


def test_a_clear_winner_at_both_batches_gives_its_slope_shrunk_to_the_prior():
    # the middle wins at 16, the highest at 256: rates 1e-3 and 16e-3, so the bare slope is log 16 / log 16 = 1
    results = probe(16, 1e-3, (0.2 + 0.4, 0.9, 0.6)) + probe(256, 4e-3, (0.5, 0.6, 0.9))
    rule = fit_rate(results, reference=256)
    v = log(4) ** 2 / 12                                            # what the grid's coarseness leaves of each
    precision = log(16) ** 2 / (2 * v)
    expected = (1.0 * precision + 0.5 * 16) / (precision + 16)
    assert rule.exponent == pytest.approx(expected, rel=1e-6)
    middle = (log(1e-3) + log(16e-3)) / 2
    assert log(rule.at(64)) == pytest.approx(middle, abs=1e-6)      # 64 is midway, in log, between 16 and 256
    assert rule.measured and not rule.refused and any("highest rate tried won" in f for f in rule.flags)


def test_rates_that_tie_give_the_middle_and_the_prior_exponent():
    results = probe(16, 1e-3, (0.7, 0.7, 0.7)) + probe(256, 4e-3, (0.7, 0.7, 0.7))
    rule = fit_rate(results, reference=256)
    assert rule.exponent == pytest.approx(0.5) and rule.lr0 == pytest.approx(4e-3)


def test_the_luckiest_of_near_ties_is_not_taken():
    rule = fit_rate(probe(64, 1e-3, (0.700, 0.702, 0.704)), reference=64)
    assert 1e-3 < rule.lr0 < 1.5e-3


def test_settings_below_the_base_are_refused_and_bound_the_rate():
    results = probe(16, 1e-3, (0.6, 0.7, 0.7)) + probe(256, 4e-3, (0.6, 0.7, 0.1))
    rule = fit_rate(results, reference=256)
    assert [(t.nB, t.lr) for t in rule.refused] == [(256, 16e-3)]
    assert rule.ceiling(256) == pytest.approx(sqrt(4e-3 * 16e-3))   # halfway, in log, to the rate that fell
    assert rule.ceiling(16) == pytest.approx(4e-3 * 2)              # half a step beyond what held
    assert rule.at(256, multiplier=100) == pytest.approx(8e-3)
    assert "1 of 6 settings fell below the base" in rule.why


def test_a_setting_is_refused_for_a_collapse_not_for_noise():
    assert not fit_rate(probe(64, 1e-3, (0.385, 0.39, 0.6)), reference=64).refused
    assert len(fit_rate(probe(64, 1e-3, (0.37, 0.5, 0.6)), reference=64).refused) == 1
    diverged = [*probe(64, 1e-3, (0.5, 0.6, 0.6))[:2], ProbeResult(64, 4e-3, 0.4, 0.7, diverged=True)]
    assert [t.lr for t in fit_rate(diverged, reference=64).refused] == [4e-3]


def test_when_everything_falls_the_rule_goes_below_and_says_so():
    rule = fit_rate(probe(64, 1e-3, (0.1, 0.1, 0.1)), reference=64)
    assert rule.lr0 < 0.25e-3 and rule.ceiling(64) == pytest.approx(0.125e-3)
    assert rule.at(64) <= 0.125e-3 and any("every rate tried" in f for f in rule.flags)


def test_seeds_of_one_setting_are_one_setting():
    twice = probe(64, 1e-3, (0.5, 0.6, 0.55)) + probe(64, 1e-3, (0.5, 0.6, 0.65))
    once = probe(64, 1e-3, (0.5, 0.6, 0.6))
    assert fit_rate(twice, reference=64).lr0 == pytest.approx(fit_rate(once, reference=64).lr0)


def test_order_of_results_does_not_matter():
    results = probe(16, 1e-3, (0.6, 0.7, 0.65)) + probe(256, 4e-3, (0.6, 0.7, 0.1))
    a, b = fit_rate(results), fit_rate(results[::-1])
    assert a.lr0 == pytest.approx(b.lr0, rel=1e-12) and a.exponent == pytest.approx(b.exponent, rel=1e-12)


def test_one_batch_keeps_the_prior_exponent_and_no_results_is_an_error():
    assert fit_rate(probe(64, 1e-3, (0.5, 0.6, 0.5)), prior=0.25).exponent == 0.25
    with pytest.raises(ValueError, match="at least one"):
        fit_rate([])


def test_starting_rates_fall_with_size_and_pass_through_the_known_ones():
    assert starting_rule(1e5).lr0 == pytest.approx(3e-4) and starting_rule(1e3).lr0 == pytest.approx(3e-4)
    rates = [starting_rule(p).lr0 for p in (1e5, 1e6, 1.35e8, 1e9, 7e9)]
    assert rates == sorted(rates, reverse=True)
    assert starting_rule(7e9, reference=1024).lr0 == pytest.approx(1e-6, rel=0.01)
    assert not starting_rule(1e5).measured and not given(1e-5, 64).measured


def test_a_rule_survives_json():
    rule = fit_rate(probe(16, 1e-3, (0.6, 0.7, 0.7)) + probe(256, 4e-3, (0.6, 0.7, 0.1)))
    assert RateRule.of(json.loads(json.dumps(rule.data()))) == rule


def test_trials_are_read_from_probe_runs_on_the_split_that_chooses():
    a = curve(2, 0.6, purpose="probe", lr=5e-4)
    assert probe_results([a, curve(2, 0.9)]) == [ProbeResult(16, 5e-4, 0.4, 0.6, False, a.run)]


def test_the_winner_moves_only_beyond_noise():
    grid = [curve(n, v, seed=s) for n, v in ((2, 0.7), (8, 0.75), (32, 0.6)) for s in range(3)]
    still = [curve(n, v, purpose="edge", multiplier=x) for n, x, v in
             ((2, 0.5, 0.65), (2, 2.0, 0.76), (32, 0.5, 0.5), (32, 2.0, 0.6))]
    found = shift([*grid, *still])
    assert not found.moved and found.winners == {"1": 8, "0.5": 8, "2": 8}
    assert found.text.endswith(
        "n = 8 is best at the planned rates; with n = 2, 32 at x0.5 and x2 their rate, still n = 8")
    jump = [c for c in still if c.arm["n"] == 2] + [curve(32, 0.9, purpose="edge", multiplier=2.0)]
    found = shift([*grid, *jump])
    assert found.moved and found.winners["2"] == 32 and "depends on the learning rate" in found.text
    assert "; with n = 2 at x0.5 their rate, still n = 8; with n = 2, 32 at x2 their rate, n = 32 is best" in found.text


def test_without_edge_arms_it_is_not_known_whether_the_winner_moves():
    found = shift([curve(2, 0.7), curve(4, 0.8)])
    assert not found.moved and "not known" in found.text


def test_a_collapsed_edge_arm_cannot_win():
    grid = [curve(n, v, seed=s) for n, v in ((2, 0.7), (8, 0.75)) for s in range(2)]
    edge = [curve(2, 0.05, purpose="edge", multiplier=2.0, diverged=True)]
    assert shift([*grid, *edge]).winners == {"1": 8, "2": 8}


def test_softmax_weights_by_hand():
    rule = fit_rate([ProbeResult(64, 1e-3, 0.4, 0.60), ProbeResult(64, 4e-3, 0.4, 0.62)], reference=64, noise=0.02)
    w = 1 / (1 + exp(-1))
    assert log(rule.lr0) == pytest.approx((1 - w) * log(1e-3) + w * log(4e-3))
