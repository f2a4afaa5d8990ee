"""Forms: parameters come back from noise, the search needs no starting values, units do not matter."""

from __future__ import annotations

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.stats.forms import (
    FORMS,
    LOG_SIGMOID,
    POWER,
    POWER_CONSTANT,
    SIGMOID,
    fit_form,
    fit_many,
    gain_share,
    peak,
    rise,
)

X = np.geomspace(300, 1e5, 24)
TRUTHS = {
    SIGMOID.name: (X, {"R0": 0.3, "A": 0.9, "Cmid": 5000.0, "b": 1.2}),
    LOG_SIGMOID.name: (np.geomspace(300, 1e6, 24), {"L": 1.0, "U": 6.0, "k": 1.5, "C0": 2e4}),
    POWER.name: (X, {"D": 8.0, "b": 0.337}),
    POWER_CONSTANT.name: (X, {"A": 0.9, "D": 30.0, "b": 0.6}),
}


def test_the_sigmoid_is_scalerls():
    A, R0, Cmid, b = 0.61, 0.2, 2542.0, 1.92
    C = np.array([Cmid, Cmid * 9 ** (1 / b), 12345.0])
    reward = SIGMOID.f(C, R0, A, Cmid, b)
    assert reward[0] == pytest.approx((A + R0) / 2)
    assert reward[1] == pytest.approx(R0 + 0.9 * (A - R0))
    assert reward[2] == pytest.approx(R0 + (A - R0) / (1 + (Cmid / 12345.0) ** b))


def test_the_log_sigmoid_is_isocomputes_with_the_natural_logarithm():
    L, U, k, C0, C = 1.0, 7.0, 0.8, 3e4, 1e5
    assert LOG_SIGMOID.f(np.array(C), L, U, k, C0) == pytest.approx(L + (U - L) / (1 + np.exp(-k * np.log(C / C0))))


@pytest.mark.parametrize("tail", [0.3, 1.0, np.inf])
def test_half_of_the_gain_is_at_Cmid_and_the_tail_is_a_power_of_b_times_tail(tail):
    assert gain_share(np.array(700.0), 700.0, 1.3, tail) == pytest.approx(0.5)
    if np.isfinite(tail):
        far = 1 - gain_share(np.array([1e12, 2e12]), 700.0, 1.3, tail)
        assert np.log2(far[0] / far[1]) == pytest.approx(1.3 * tail, rel=1e-3)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_recovers_its_parameters_from_noise(name):
    """Noise 0.02, 10 times 20 draws: 90 % of the estimates of each parameter within two standard errors of it."""
    form, (x, truth) = FORMS[name], TRUTHS[name]
    rng = np.random.default_rng(1)
    inside = dict.fromkeys(truth, 0)
    for _ in range(200):
        fit = fit_form(form, x, form.f(x, *truth.values()) + 0.02 * rng.normal(size=len(x)))
        for p, value in truth.items():
            assert 0 < fit.errors[p] < np.inf
            inside[p] += abs(fit.parameters[p] - value) <= 2 * fit.errors[p]
    assert min(inside.values()) >= 180, inside


@pytest.mark.parametrize("name", FORMS)
def test_no_starting_value_is_the_truth(name):
    form, (x, truth) = FORMS[name], TRUTHS[name]
    at = np.array([truth[p] for p in form.searched])
    assert np.min(np.abs(form.starts(x) / at - 1).max(1)) > 1e-3


def test_without_noise_the_parameters_are_exact():
    for name, (x, truth) in TRUTHS.items():
        fit = fit_form(FORMS[name], x, FORMS[name].f(x, *truth.values()))
        assert fit.parameters == pytest.approx(truth, rel=1e-3), name


def test_no_fit_is_worse_than_the_best_of_many_local_searches():
    from scipy.optimize import least_squares

    rng = np.random.default_rng(2)
    x = np.geomspace(250, 8000, 8)
    y = SIGMOID.f(x, 0.3, 0.9, 6000.0, 1.2) + 0.015 * rng.normal(size=(6, 8))
    _, squares = fit_many(SIGMOID, x, y, None, {"R0": 0.3})
    starts = [(A, np.log(m), np.log(b)) for A in (0.6, 0.95) for m in (2000, 20000) for b in (0.6, 2)]
    for row, ours in zip(y, squares, strict=True):
        def residual(p, row=row):
            return SIGMOID.f(x, 0.3, p[0], np.exp(p[1]), np.exp(p[2])) - row
        theirs = min(2 * least_squares(residual, s, bounds=([0, -5, np.log(0.1)], [1, 16, np.log(8)])).cost
                     for s in starts)
        assert ours <= theirs * (1 + 1e-3)


def test_units_of_compute_do_not_matter():
    rng = np.random.default_rng(3)
    y = SIGMOID.f(X, 0.3, 0.9, 5000.0, 1.2) + 0.02 * rng.normal(size=len(X))
    a, b = fit_form(SIGMOID, X, y), fit_form(SIGMOID, X * 1e6, y)
    assert b.parameters["Cmid"] == pytest.approx(1e6 * a.parameters["Cmid"], rel=1e-3)
    assert a(X) == pytest.approx(b(X * 1e6), abs=1e-5)


def test_rows_are_fitted_apart():
    rng = np.random.default_rng(4)
    y = SIGMOID.f(X, 0.3, 0.9, 5000.0, 1.2) + 0.02 * rng.normal(size=(5, len(X)))
    together, _ = fit_many(SIGMOID, X, y)
    for row, values in zip(y, together, strict=True):
        assert fit_many(SIGMOID, X, row[None])[0][0] == pytest.approx(values, rel=1e-6)


def test_bounds_hold_and_a_bound_does_not_stop_the_others():
    x = np.geomspace(250, 8000, 8)
    y = np.clip(SIGMOID.f(x, 0.3, 1.3, 20000.0, 1.0), 0, 1)         # wants an asymptote above 1
    values, squares = fit_many(SIGMOID, x, y[None], None, {"R0": 0.3})
    assert values[0, 1] == 1.0
    grid = [np.sum((SIGMOID.f(x, 0.3, 1.0, m, b) - y) ** 2) for m in np.geomspace(3e3, 1e5, 80)
            for b in np.linspace(0.5, 2, 60)]
    assert squares[0] <= min(grid)


def test_what_cannot_be_fitted_is_refused_by_name():
    with pytest.raises(UserError, match="4 free parameters and needs as many points; got 3"):
        fit_form(SIGMOID, X[:3], np.ones(3))
    with pytest.raises(UserError, match=f"only {len(X)} of {len(X) + 1} points have x > 0; x = 0 is the base,"):
        fit_form(SIGMOID, np.concatenate([[0.0], X]), np.ones(len(X) + 1))


def test_a_parameter_that_the_data_leave_open_has_a_wide_error():
    x = np.geomspace(100, 4000, 16)          # far below the knee
    fit = fit_form(SIGMOID, x, SIGMOID.f(x, 0.3, 0.9, 2e4, 1.0) + 0.01 * np.random.default_rng(5).normal(size=16))
    assert fit.errors["A"] > 0.3
    assert rise(0.3).name == "rise with tail 0.3"


@pytest.mark.parametrize(("vertex", "expected"), [(2.2, 2.2), (2.7, 2.7), (0.4, 1.0), (5.9, 5.0)])
def test_the_peak_of_a_parabola_is_its_vertex_between_the_ends(vertex, expected):
    """Points at uneven distances, where a wrong side of the best point shows."""
    x = np.array([1.0, 2.0, 3.5, 5.0])
    values = 0.9 - 0.02 * (x[:, None] - vertex) ** 2
    assert peak(x, values) == pytest.approx([expected])
