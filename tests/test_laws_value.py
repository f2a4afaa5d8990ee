"""Value-based laws: the published numbers, and fits that give back what was planted."""

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws.value import (
    DataLaw,
    Lines,
    SizedBatchLaw,
    SizedDataLaw,
    cheapest,
    compute,
    crossings,
    fit_data,
    fit_lines,
    fit_power,
    normalised,
)

# Fits published with arXiv 2502.04327 (qscaled): batch and rate on OpenAI Gym, batch on DMC; data laws at J = 800.
GYM_BATCH = Lines(-0.3096, {"Ant": 2.6189, "HalfCheetah": 2.6149, "Humanoid": 2.4958, "Walker2d": 2.5089})
GYM_RATE = Lines(-0.2849, {"Ant": -3.8229, "HalfCheetah": -2.7279, "Humanoid": -3.7200, "Walker2d": -3.0841})
DMC_BATCH = Lines(-0.4879, {
    "cartpole-swingup": 2.7225, "cheetah-run": 2.7667, "dog-stand": 2.1003, "finger-spin": 2.7801,
    "humanoid-stand": 2.6458, "quadruped-walk": 2.7295, "walker-walk": 2.4696,
})
GYM_DATA, DMC_DATA = DataLaw(0.7004, 2.2895, 1.0308, 2.105e5), DataLaw(1.0896, 0.5739, 1.1001, 7.254e4)


def test_published_batches_and_rates():
    assert GYM_BATCH.at("Ant", 1) == pytest.approx(415.8, abs=0.1)
    assert GYM_BATCH.at("Ant", 16) == pytest.approx(176, abs=0.5)
    assert GYM_RATE.at("Ant", 1) == pytest.approx(1.50e-4, rel=5e-3)
    assert GYM_RATE.at("Ant", 16) == pytest.approx(6.8e-5, rel=5e-3)
    assert float(DMC_BATCH.mean(1.0)) == pytest.approx(444.94, abs=0.05)
    with pytest.raises(UserError, match="no line was fitted for 'Hopper'; there are Ant"):
        GYM_BATCH.at("Hopper", 1)


def test_published_samples_compute_and_the_cheapest_sigma_on_gym():
    assert float(GYM_DATA(1)) == pytest.approx(5.93e5, rel=2e-3)
    assert float(GYM_DATA(4)) == pytest.approx(3.59e5, rel=2e-3)
    assert GYM_DATA.least == pytest.approx(2.17e5, rel=2e-3)
    assert float(compute(1.5e5, GYM_BATCH.mean(1.0), 1, GYM_DATA(1))) == pytest.approx(3.26e14, rel=3e-3)
    best = cheapest(GYM_DATA, GYM_BATCH.mean, 1.5e5, 4e9)
    assert best.sigma == pytest.approx(6.3, abs=0.05)
    assert best.samples == pytest.approx(3.21e5, rel=3e-3)
    assert best.budget == pytest.approx(1.91e15, rel=3e-3)
    assert 2.62e-9 * best.budget**0.62 == pytest.approx(best.sigma, rel=0.25)   # the stored law, to its two digits


def test_published_samples_and_the_cheapest_sigma_on_dmc():
    assert float(DMC_DATA(1)) == pytest.approx(1.194e5, rel=2e-3)
    best = cheapest(DMC_DATA, DMC_BATCH.mean, 4.92e6, 1e10)
    assert best.sigma == pytest.approx(1.0317, abs=2e-3)
    assert best.budget == pytest.approx(3.8075e15, rel=1e-3)


def test_an_optimum_at_the_edge_is_not_reported_as_one():
    with pytest.raises(UserError, match="at the edge"):
        cheapest(GYM_DATA, GYM_BATCH.mean, 1.5e5, 4e9, between=(0.25, 4.0))


def test_the_shared_slope_is_that_of_a_regression_on_dummies():
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    points = [(n, s, 10 ** (2 + k / 3 - 0.3 * np.log10(s) + 0.05 * rng.standard_normal()))
              for k, n in enumerate(names) for s in (0.25, 1, 4, 16)[: 4 - (k == 2)]]
    x = np.array([[np.log10(s), *(n == m for m in names)] for n, s, _ in points])
    slope, *heights = np.linalg.lstsq(x, np.log10([v for _, _, v in points]), rcond=None)[0]
    lines = fit_lines(points)
    assert lines.slope == pytest.approx(slope, abs=1e-12)
    assert [lines.intercepts[n] for n in names] == pytest.approx(heights, abs=1e-12)
    with pytest.raises(UserError, match="two values of sigma"):
        fit_lines([("a", 1, 100.0), ("b", 2, 90.0)])


def test_a_lucky_evaluation_is_no_arrival():
    steps, returns = np.arange(1, 8) * 1000, np.array([10, 300, 900, 320, 500, 700, 850])
    # 900 and what falls after it are pooled: (900 + 320 + 500) / 3 = 573.3
    found = crossings(steps, returns, np.array([5, 300, 570, 600, 850, 851]))
    np.testing.assert_array_equal(found, [1000, 2000, 3000, 6000, 7000, np.nan])


def test_environments_weigh_alike():
    a = np.array([[4.0, 8.0], [2.0, 6.0]])                # median 5
    b = 1000 * a                                          # median 5000
    np.testing.assert_allclose(normalised({"a": a, "b": b}), a / 5 * 2502.5)
    with pytest.raises(UserError, match="b does not reach every threshold"):
        normalised({"a": a, "b": np.array([[1.0, np.nan], [1.0, 1.0]])})


def test_data_laws_are_recovered_from_noisy_crossing_times():
    rng, sigma = np.random.default_rng(1), np.array([0.25, 0.5, 1, 2, 4, 8, 16])
    exact = fit_data(sigma, GYM_DATA(sigma))
    assert (exact.a, exact.least) == pytest.approx((0.7004, GYM_DATA.least), rel=1e-3)
    found = [fit_data(sigma, GYM_DATA(sigma) * (1 + 0.02 * rng.standard_normal(len(sigma)))) for _ in range(40)]
    assert np.median([f.a for f in found]) == pytest.approx(0.7004, abs=0.05)
    assert np.median([f.least for f in found]) == pytest.approx(GYM_DATA.least, rel=0.1)
    assert np.max(np.abs([float(f(2.83)) for f in found] / GYM_DATA(2.83) - 1)) < 0.05
    with pytest.raises(UserError, match="nothing to trade"):
        fit_data(sigma, 1e5 * (1 + sigma))
    with pytest.raises(UserError, match="three values of sigma"):
        fit_data(sigma[:2], GYM_DATA(sigma[:2]))


def test_the_best_sigma_rises_with_the_price_of_a_sample_and_follows_a_power_law():
    prices = np.geomspace(1e9, 1e11, 9)
    spends = [cheapest(GYM_DATA, GYM_BATCH.mean, 1.5e5, p) for p in prices]
    assert (np.diff([s.sigma for s in spends]) > 0).all()
    law = fit_power(np.array([s.budget for s in spends]), np.array([s.sigma for s in spends]))
    assert 0.3 < law.exponent < 1.0
    planted = fit_power(np.array([1e14, 1e15, 1e16]), 2.62e-9 * np.array([1e14, 1e15, 1e16]) ** 0.62)
    assert (planted.factor, planted.exponent) == pytest.approx((2.62e-9, 0.62), rel=1e-6)


def test_laws_with_model_size_have_their_limits():
    data = SizedDataLaw(1e5, 0.5, 0.8, 2e5, 0.6)
    assert float(data(1e12, 1e15)) == pytest.approx(1e5, rel=1e-3)
    assert float(data(0.5, 2e5)) == pytest.approx(3e5)            # both terms are 1
    batch = SizedBatchLaw(500.0, 0.4, 1e6, 0.5)
    assert float(batch(1.0, 1e6)) == pytest.approx(250.0)         # half at N = b
    assert (np.diff(batch(1.0, np.geomspace(1e4, 1e8, 9))) > 0).all()
    assert (np.diff(batch(np.geomspace(0.25, 16, 7), 1e6)) < 0).all()
