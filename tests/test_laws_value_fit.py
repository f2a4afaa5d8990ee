"""From curves to the law of updates per sample: censoring, intervals, refusals, and the paper's released fits."""

from math import erfc

import numpy as np
import pytest

import control_law
from isocost.errors import UserError
from isocost.laws.papers.value import Lines, cheapest
from isocost.laws.value_fit import Arrivals, ControlPrice, ReturnCurve, arrivals, data_laws, fit_control, resampled
from isocost.planner.control.pilot import star
from isocost.planner.control.prescribe import unidentified
from isocost.runs.arm import Arm
from test_laws_value import DMC_DATA, GYM_BATCH, GYM_DATA, GYM_RATE
from truth.control import PlantedControl

ARM = Arm(sigma=1, batch=64, rate=1e-3)


def curve(returns, arm=ARM, **more):
    return ReturnCurve("run", arm, 0, np.arange(1, len(returns) + 1) * 100.0, np.array(returns, dtype=float), **more)


def test_seeds_that_never_arrive_are_censored_and_dropping_them_biases_the_mean():
    found = control_law.censored(samples=300)
    assert abs(found["censored"]) < 0.02
    assert found["dropped"] < -0.1       # 0.3 E[z | z < 0.524] = -0.149


def test_a_censored_mean_is_that_of_the_likelihood():
    """Two arrive at 0 and 1, one is late at 2, sd known in effect: by hand the score is zero at the mean."""
    seen = Arrivals(np.array([0.0, 1.0, 2.0]), np.array([True, True, False]))
    fit = control_law.censored_fit(np.ones((3, 1)), seen, np.zeros(3, int), np.ones((1, 3)))
    mean, sd = float(fit.beta[0, 0]), float(fit.sd[0, 0])
    z = (2.0 - mean) / sd
    density, beyond = np.exp(-z * z / 2) / np.sqrt(2 * np.pi), 0.5 * erfc(z / 2**0.5)
    assert (0.0 - mean) / sd + (1.0 - mean) / sd + density / beyond == pytest.approx(0.0, abs=1e-3)


def test_a_run_arrives_between_two_evaluations_and_a_lucky_one_is_none():
    seen = arrivals([curve([0, 10, 20, 30]), curve([0, 30, 0, 30]), curve([0, 1, 2, 3])], 15)
    # the second: 30 and 0 are pooled to 15, which is reached at the second evaluation
    np.testing.assert_allclose(np.exp(seen.time), [250, 200, 400])
    assert seen.reached.tolist() == [True, True, False] and seen.missed == pytest.approx(1 / 3)


def test_the_bootstrap_of_seeds_has_the_variance_of_their_mean():
    settings = np.repeat([0, 1], [5, 1])
    weights = resampled(settings, 20_000, 0)
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    means = weights[1:, :5] @ x / 5
    assert means.var() == pytest.approx(x.var(ddof=1) / 5, rel=0.03)      # an ordinary bootstrap has 4/5 of it
    assert (weights[0] == 1).all() and (weights[:, 5] == 1).all()


def test_the_power_law_passes_through_exact_samples():
    sigma = np.array([0.25, 0.5, 1, 2, 4, 8, 16])
    floor, scale, exponent = (v[0] for v in data_laws(np.log(GYM_DATA(sigma))[None], sigma, np.full(7, 1e-3),
                                                      np.zeros(1)))
    assert exponent == pytest.approx(0.7004, rel=0.02) and floor == pytest.approx(GYM_DATA.least, rel=0.03)
    np.testing.assert_allclose(floor + scale * sigma**-exponent, GYM_DATA(sigma), rtol=2e-3)


def sweep(truth, sigmas, seeds, length, rng, batch=256.0, rate=1e-3):
    arms = [Arm(sigma=s, batch=b, rate=r) for s in sigmas for b in (batch / 4, batch, batch * 4)
            for r in (rate / 3, rate, rate * 3)]
    return truth.sweep(arms, seeds, length, rng)


def test_the_released_lines_are_recovered_from_simulated_sweeps():
    """Four tasks of Gym, with the released batches and rates: one slope for all, and each task's own height."""
    rng, curves, sigmas = np.random.default_rng(0), [], (1.0, 2.0, 4.0, 8.0)
    for task, height in GYM_BATCH.intercepts.items():
        truth = PlantedControl(GYM_DATA, (10**height, GYM_BATCH.slope), (10 ** GYM_RATE.intercepts[task],
                               GYM_RATE.slope), spread=0.05, noise=0.005, task=task, points=150)
        curves += sweep(truth, sigmas, 3, 2e6, rng, 256.0, 10 ** GYM_RATE.intercepts[task] * 0.7)
    law = fit_control(curves, 0.7, task="Ant", draws=60)
    assert law.slope("batch").value == pytest.approx(GYM_BATCH.slope, abs=0.04)
    assert law.slope("rate").value == pytest.approx(GYM_RATE.slope, abs=0.04)
    lines = law.lines("batch", "Ant")
    assert isinstance(lines, Lines) and lines.at("Ant", 1) == pytest.approx(415.8, rel=0.1)
    for sigma in sigmas:
        assert float(law.samples(sigma)[0]) == pytest.approx(float(GYM_DATA(sigma)), rel=0.06)


def test_the_released_cheapest_sigma_is_recovered_from_a_simulated_sweep():
    """DMC at J = 800: sigma* 1.0317 and F = 3.8075e15 with N = 4.92e6 and 1e10 FLOP a sample."""
    batch = Lines(-0.4879, {"mean": np.log10(444.94)})
    truth = PlantedControl(DMC_DATA, (444.94, -0.4879), (1e-3, -0.32), spread=0.1, noise=0.005, points=300)
    curves = sweep(truth, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 4, 8e5, np.random.default_rng(2), 400.0)
    law, price = fit_control(curves, 0.7, draws=60), ControlPrice(1e10, 0.0, 10 * 4.92e6, "FLOP")
    best = law.cheapest(price)
    assert best.value == pytest.approx(1.0317, rel=0.1) and best.high / best.low < 2
    paper = cheapest(DMC_DATA, batch.mean, 4.92e6, 1e10)
    assert float(law.cost(price, paper.sigma)[0]) == pytest.approx(3.8075e15, rel=0.06)


@pytest.mark.parametrize("sigmas", [(1.0, 2.0, 4.0)])
def test_intervals_of_planted_studies_hold(sigmas):
    """A small part of experiments/control_law.py."""
    rows = [control_law.study(seed, sigmas) for seed in range(6)]
    held = [v for r in rows for k, v in r.get("held", {}).items() if "best lines" not in k]
    assert len(held) > 30 and 0.78 <= np.mean(held) <= 0.99
    asked = [r for r in rows if r["oracle"] <= control_law.FACTOR]
    assert sum(bool(r["refused"]) for r in asked) <= 1


def test_a_sigma_of_which_no_run_arrives_is_left_out_where_three_remain():
    curves = of((1.0, 2.0, 4.0))
    late = [ReturnCurve(c.run, c.arm, c.seed, c.samples, c.returns * 0.1) for c in of((0.5,))]
    a, b = fit_control(curves, 0.7), fit_control([*late, *curves], 0.7)
    assert b.sigmas.tolist() == [1, 2, 4] and (a.least == b.least).all()


def planted(**more):
    return PlantedControl(GYM_DATA, (64, -0.3), (1e-3, -0.3), spread=0.2, noise=0.005).lasting(**more)


def of(sigmas, seeds=3, truth=None, length=2e6):
    arms = [a for s in sigmas for a in star(s, 64, 1e-3, None)]
    return (truth or planted()).sweep(arms, seeds, length, np.random.default_rng(0))


def test_what_is_too_little_for_a_law_is_refused():
    with pytest.raises(UserError, match="at least 3 values of sigma; there are 2: 1, 2"):
        fit_control(of((1, 2)), 0.7)
    with pytest.raises(UserError, match="at least 3 seeds of each setting; there are 30 runs of 15 settings"):
        fit_control(of((1, 2, 4), seeds=2), 0.7)
    with pytest.raises(UserError, match=r"of the runs never reach a return of 0\.99"):
        fit_control(of((1, 2, 4)), 0.99)
    with pytest.raises(UserError, match="no run at sigma 1 reaches"):
        fit_control([c for c in of((1, 2, 4)) if c.arm["sigma"] > 1] + of((1,), length=1e5), 0.7)
    flat = planted(spread=0.05)
    law = fit_control([ReturnCurve(c.run, c.arm.but(sigma=5 - c.arm["sigma"]), c.seed, c.samples, c.returns)
                       for c in of((1, 2, 4), truth=flat)], 0.7)
    assert "of the draws, and 95% are needed" in unidentified(law, None)


@pytest.mark.parametrize("sigma", [0, -1, 257])
def test_a_sigma_that_cannot_be_run_is_refused(sigma):
    with pytest.raises(UserError, match=f"sigma is {sigma} updates per sample, expected a number above 0"):
        curve([1, 2], ARM.but(sigma=sigma))


def test_an_edge_and_a_wide_interval_are_refused_with_what_to_run():
    law = fit_control(of((1.0, 2.0, 4.0), seeds=4), 0.7)
    assert "beyond the largest that was run, 4: run sigma 16 too" in unidentified(law, ControlPrice(1e6, 0, 1, "x"))
    assert "beyond the smallest that was run, 1: run sigma 0.25 too" in unidentified(law, ControlPrice(1, 0, 1, "x"))
    far = fit_control(of((1.0, 2.0, 4.0), truth=planted(batch=(640, -0.3), spread=0.05), seeds=4, length=4e6), 0.7)
    assert far.outside("batch", 2.0) == "above"


def test_tasks_and_seeds_in_another_order_change_nothing():
    curves = of((1.0, 2.0, 4.0))
    a, b = fit_control(curves, 0.7), fit_control(curves[::-1], 0.7, task="")
    np.testing.assert_allclose(a.samples(2.0)[0], b.samples(2.0)[0], rtol=1e-3)
