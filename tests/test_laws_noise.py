"""Noise: pooled, Student, the run as the unit; two intervals by name."""

from __future__ import annotations

import numpy as np
import pytest

from isocost.stats.intervals import FLOOR, Interval, Noise, mixture_quantiles, prior_noise, spread, student

C = np.geomspace(250, 8000, 6)


def noise(residuals: np.ndarray, dof: float) -> Noise:
    return Noise(C, np.stack([residuals, residuals]), dof)


def test_student_quantiles():
    assert student(0.9, 2) == pytest.approx(2.91999, abs=1e-5)
    assert student(0.95, 10) == pytest.approx(2.22814, abs=1e-5)


def test_percentiles_of_three_cannot_cover_and_pooled_student_does():
    """Mean of 3 runs, 5 arms, 2000 studies: resampling covers 75 % at the very most, the pooled interval 90 %."""
    rng = np.random.default_rng(0)
    runs = rng.normal(size=(2000, 5, 3))
    means = runs.mean(-1)
    inside_range = (runs.min(-1) <= 0) & (runs.max(-1) >= 0)        # no percentile of a resampled mean leaves it
    assert inside_range.mean() == pytest.approx(0.75, abs=0.02)
    pooled = np.sqrt(((runs - means[..., None]) ** 2).sum((1, 2)) / 10)
    half = student(0.9, 10) * pooled / np.sqrt(3)
    assert (np.abs(means) <= half[:, None]).mean() == pytest.approx(0.9, abs=0.01)


def test_spread_is_the_logits_and_has_a_floor():
    assert spread(np.array([0.5, 0.9])) == pytest.approx([0.25, 0.09])
    assert spread(np.array([0.0, 1.0])) == pytest.approx([FLOOR * (1 - FLOOR)] * 2)
    some = noise(np.ones((4, len(C))), 4.0)
    assert some.sd(np.array([1e9]), np.array([0.5])) == pytest.approx([0.25])       # the last known, beyond the pilot


def test_mixture_quantiles_are_those_of_the_mixture():
    rng = np.random.default_rng(3)
    centre, sd = rng.normal(size=(300, 2)), np.abs(rng.normal(size=(300, 2)))
    sample = (centre[None] + sd[None] * rng.standard_normal((4000, 300, 2))).reshape(-1, 2)
    ours = mixture_quantiles(centre, sd, (0.05, 0.5, 0.95))
    assert ours == pytest.approx(np.quantile(sample, (0.05, 0.5, 0.95), axis=0), abs=0.01)
    assert mixture_quantiles(centre, 0 * sd, (0.5,)) == pytest.approx(np.median(centre, axis=0)[None])


def test_what_was_not_measured_is_taken_wide():
    assert prior_noise(C).dof == 2
    assert prior_noise(C).sd(C, np.full(len(C), 0.5)) == pytest.approx(np.full(len(C), 0.04))


def test_interval_is_plain_data():
    interval = Interval(0.5, 0.4, 0.7, 0.9, "prediction", 10.0)
    assert interval.width == pytest.approx(0.3)
    assert interval.holds(0.4) and interval.holds(0.7) and not interval.holds(0.71)
    assert Interval.of(interval.data()) == interval
