"""A second rise: its equation and inverse by hand, its weight by Bayes' rule, and draws given a first rise."""

from __future__ import annotations

import numpy as np
import pytest

from isocost.stats.forms import gain_share, steepness
from isocost.stats.posterior import ArmMean, Grid, dearer, second_weight
from isocost.stats.second import Seconds, gained, reached_by, steepness_at

TAILS = (1.0, 0.3, float("inf"))


def drawn(form: float, A: float = 0.9, Cmid: float = 100.0, b: float = 1.0) -> np.ndarray:
    return np.array([[form, A, Cmid, b]])


def test_the_share_that_is_made_is_that_of_both_rises():
    """By hand, 0.7 of a sigmoid of midpoint 100 and 0.3 of one of midpoint 300 and exponent 2, at C = 100:
    0.7 / 2 + 0.3 / (1 + 9) = 0.38."""
    second = np.array([[0.3, 300.0, 2.0]])
    assert gained(np.array(100.0), drawn(0), second, TAILS) == pytest.approx(0.38)
    none = np.zeros((1, 3))
    for form, tail in enumerate(TAILS):
        C = np.array([10.0, 100.0, 5000.0])
        assert gained(C, drawn(form)[:, None], none[:, None], TAILS)[0] == pytest.approx(
            gain_share(C, 100.0, 1.0, tail))


@pytest.mark.parametrize("form", [0, 1, 2])
@pytest.mark.parametrize("second", [[0.0, 0.0, 0.0], [0.3, 300.0, 2.0], [0.5, 40.0, 3.0]])
def test_the_compute_for_a_share_is_its_inverse(form, second):
    second = np.array([second])
    for share in (0.05, 0.38, 0.9):
        C = reached_by(share, drawn(form), second, TAILS)
        assert gained(C, drawn(form), second, TAILS) == pytest.approx(share, rel=1e-9)
    assert reached_by(0.0, drawn(form), second, TAILS) == 0 and np.isinf(reached_by(1.0, drawn(form), second, TAILS))


def test_the_steepness_is_that_of_the_form_and_of_both_rises_the_slope():
    """Two equal rises are one: by differences as by the form's own definition."""
    for form, tail in enumerate(TAILS):
        own = steepness_at(np.array([100.0]), drawn(form, b=1.3), np.zeros((1, 3)), TAILS)
        assert own == pytest.approx(steepness(1.3, tail))
    both = steepness_at(np.array([100.0]), drawn(0, b=2.0), np.array([[0.4, 100.0, 2.0]]), TAILS)
    assert both == pytest.approx(2.0, rel=1e-6)


def test_an_arm_that_rises_again_needs_less_compute_than_one_that_has_levelled_off():
    """By hand at C = 100: the first arm has 0.5 of 0.8; the second, of A = 0.8, 0.38; it needs gained(C) = 0.5."""
    both = np.concatenate([drawn(0, 0.8), drawn(0, 0.8)])[:, None]
    second = np.array([[[0.0, 0.0, 0.0]], [[0.3, 300.0, 2.0]]])
    more = np.exp(dearer(both, second, TAILS, 0.0, 100.0, 4.0))
    assert more[0, 0] == 1.0
    assert gained(100.0 * more[1], both[1], second[1], TAILS) == pytest.approx(0.5)


def test_the_weight_of_a_second_rise_is_bayes_rule_up_to_its_greatest():
    """Prior 1/4, both kinships 1/2: equal evidence leaves 1/4, 3 times as much gives 1/2; and at most 0.7."""
    kin, one = np.array([0.5, 0.5]), np.zeros((2, 3))
    assert second_weight(one, np.zeros(2), kin) == pytest.approx([0.125, 0.125])
    assert second_weight(one, np.log([3.0, 3.0]), kin).sum() == pytest.approx(0.5)
    assert second_weight(one, np.array([900.0, 0.0]), kin) == pytest.approx([0.7, 0.0])
    assert second_weight(one, np.full(2, -np.inf), kin).sum() == 0.0


def test_a_second_rise_comes_after_the_first():
    seconds = Seconds.of(1000.0)
    assert len(seconds.share) == 16 and seconds.Cmid.min() == 700 and seconds.Cmid.max() == 3000
    assert seconds.allowed(np.array([100.0])).all() and not seconds.allowed(np.array([2000.0])).any()
    assert seconds.Cmid[seconds.allowed(np.array([500.0]))[0]].min() == 1100


def test_the_likelihood_sums_over_second_rises_and_draws_follow_it():
    """On a grid of one point, by hand; data with one of them are drawn from it."""
    C, seconds = np.geomspace(30, 1000, 9), Seconds.of(1000.0)
    which = int(np.flatnonzero((seconds.share == 0.3) & (seconds.Cmid == 1100.0))[0])
    mean = 0.2 + 0.6 * (0.7 * gain_share(C, 100.0, 1.5) + 0.3 * gain_share(C, 1100.0, 2.0))
    seen = ArmMean(4, C, mean, 1e-5 * np.eye(9), np.inf)
    grid = Grid(np.array([0.8]), np.array([100.0]), np.array([1.5]))
    each = [0.2 + 0.6 * ((1 - w) * gain_share(C, 100.0, 1.5) + w * gain_share(C, m, 2.0))
            for w, m in zip(seconds.share, seconds.Cmid, strict=True)]
    logs = np.array([-((mean - f) ** 2).sum() / 2e-5 for f in each])
    found = grid.likelihood(seen, 0.2, 1.0, seconds)[0, 0, 0]
    assert logs[which] == pytest.approx(0.0) and found == pytest.approx(np.log(np.exp(logs).mean()))
    assert grid.likelihood(seen, 0.2, 1.0)[0, 0, 0] < found - 50
    rows = seen.second_rises(0.2, np.tile([0.8, 100.0, 1.5], (40, 1)), seconds, (np.arange(40) + 0.5) / 40)
    assert (rows == [0.3, 1100.0, 2.0]).all(1).mean() == pytest.approx(np.exp(logs[which] - np.logaddexp.reduce(logs)),
                                                                      abs=0.03)
