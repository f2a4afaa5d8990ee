"""Laws of data: power law of the gap, and how many times less one curve needs than another."""

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws.papers.data import fit_gap, needed, times_less
from isocost.stats.forms import POWER, SIGMOID, fit_form

X = np.array([1, 2, 4, 8, 16, 32])


def test_a_power_law_of_the_gap_by_hand():
    law = fit_gap(X, 1 - 0.6 * X**-0.5)
    assert (law.beta, law.alpha, law.correlation) == pytest.approx((0.6, -0.5, -1.0))
    assert law.interval == pytest.approx((-0.5, -0.5))
    assert float(law(9)) == pytest.approx(0.8) and law.needed(0.9) == pytest.approx(36)
    assert law.needed(float(law(17.0))) == pytest.approx(17.0)


def test_the_interval_of_the_exponent_covers():
    rng, hit = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = fit_gap(X, 1 - 0.6 * X**-0.5 * np.exp(0.1 * rng.standard_normal(6))).interval
        hit += low <= -0.5 <= high
    assert 0.86 <= hit / 400 <= 0.94


def test_what_a_power_law_of_the_gap_refuses():
    with pytest.raises(UserError, match="at least 3 values of X; got 2"):
        fit_gap(np.array([1, 1, 2]), np.array([0.1, 0.2, 0.3]))
    with pytest.raises(UserError, match="scores below 1"):
        fit_gap(X, np.linspace(0.5, 1.0, 6))
    with pytest.raises(UserError, match=r"no X reaches a score of 1 "):
        fit_gap(X, 1 - 0.6 * X**-0.5).needed(1.0)
    with pytest.raises(UserError, match=r"no X reaches a score of 0\.9 "):
        fit_gap(X, 1 - 0.2 * X**0.3).needed(0.9)


def sigmoid(low, high, middle, b):
    x = np.geomspace(1, 1e6, 40)
    return fit_form(SIGMOID, x, SIGMOID.f(x, low, high, middle, b))


@pytest.mark.parametrize("unit", [1.0, 1e-3, 512.0])
def test_the_sigmoid_is_the_same_in_examples_rollouts_and_steps(unit):
    x = np.geomspace(10, 1e5, 14)
    found = fit_form(SIGMOID, unit * x, SIGMOID.f(x, 0.3, 0.85, 900.0, 1.2)).parameters
    assert (found["R0"], found["A"], found["b"]) == pytest.approx((0.3, 0.85, 1.2), rel=1e-3)
    assert found["Cmid"] == pytest.approx(900 * unit, rel=1e-3)


def test_how_many_times_less_data_one_method_needs():
    ours, theirs = sigmoid(0.3, 0.9, 100, 1.0), sigmoid(0.3, 0.9, 10_000, 1.0)
    assert needed(ours, 0.6) == pytest.approx(100, rel=1e-3) and needed(ours, 0.8) == pytest.approx(500, rel=1e-3)
    assert times_less(ours, theirs, 0.6) == pytest.approx(100, rel=1e-3)
    with pytest.raises(UserError, match=r"goes from 0\.3 to 0\.9 and never reaches 0\.95"):
        times_less(ours, theirs, 0.95)
    with pytest.raises(UserError, match="got a power law"):
        needed(fit_form(POWER, X, 1.0 / X), 0.5)
