"""Curves of unknown noise: means over bins, the noise of single values, and what a law of them says."""

import math
from dataclasses import replace

import numpy as np
import pytest

from isocost.laws.bins import EARLY, LOGGED_SD, binned, evened, logged_noise
from isocost.laws.curves import Curve, diverged, point_noise
from isocost.laws.fit import fit_law
from isocost.laws.law import UPPER, Law
from isocost.runs.arm import Arm
from isocost.stats.intervals import PRIOR_SD


def logged(reward, noisy=True, training=True, seed=0, n=8):
    """A run with one reward per update, from C = 0 on."""
    K, nan = len(reward), np.full(len(reward), math.nan)
    return Curve(f"n{n}-s{seed}", Arm(n=n, B=1, lr=1e-6), seed, n * np.arange(K), reward, reward, nan, nan, samples=1,
                 noisy=noisy, training=training)


def rising(K=200, noise=0.1, seed=0, top=0.5):
    C = np.arange(K)
    draws = np.random.default_rng(seed).standard_normal(K)
    return np.clip(0.2 + top * C / (C + 40) + noise * draws, 0, 1)


def test_the_noise_of_single_values_is_found_about_a_curve_and_is_zero_on_a_line():
    assert point_noise(np.linspace(0.1, 0.9, 50)) == pytest.approx(0.0, abs=1e-12)
    values = 0.5 + 0.1 * np.random.default_rng(0).standard_normal(4000)
    assert point_noise(values) == pytest.approx(0.1, rel=0.05)
    assert point_noise(np.array([0.0, 1.0, 0.0])) == pytest.approx(math.sqrt(1 / 1.5))
    assert math.isnan(point_noise(np.array([0.2, 0.3])))


def test_a_noisy_run_becomes_means_over_at_most_nine_bins_that_hold_every_value():
    run = logged(rising())
    few = binned(run)
    assert len(few.C) <= 10 and few.C[0] == 0 and (np.diff(few.C) > 0).all()
    counts = np.round((point_noise(run.audit) / few.error[1]) ** 2).astype(int)
    assert counts[1:].sum() == 199                      # every value after the base is in one bin
    first = slice(1, 1 + counts[1])
    assert few.audit[1] == pytest.approx(run.audit[first].mean())
    assert few.C[-1] == pytest.approx(np.exp(np.log(run.C[-counts[-1]:]).mean()))


def test_the_base_of_training_rewards_is_averaged_and_an_evaluated_base_is_not():
    reward = rising()
    early = reward[: math.floor(EARLY * 199) + 1]
    assert binned(logged(reward)).audit[0] == pytest.approx(early.mean())
    assert binned(logged(reward, training=False)).audit[0] == reward[0]


def test_a_run_with_known_noise_is_left_as_it_is_and_its_law_does_not_depend_on_bins():
    own = logged(rising(), noisy=False, training=False)
    assert binned(own) is own
    law = fit_law([own], draws=20)
    assert len(law.arms[0].C) == 199 and law.forecast_refused == law.refused and not law.training


def test_a_long_noisy_run_is_forecast_without_a_second_seed_and_a_short_one_is_not():
    law = fit_law([logged(rising())], draws=60)
    assert law.refused.reason.startswith("one run per n")
    assert law.forecast_refused is None and law.training
    short = fit_law([logged(rising(K=20))], draws=60)
    assert short.forecast_refused == short.refused
    again = Law.of(law.data())
    assert again.training and again.forecast_refused is None
    assert again.curve(8, 3000.0).value == pytest.approx(law.curve(8, 3000.0).value)


def test_a_law_written_before_forecasts_could_be_refused_apart_loads_with_the_law_s_own_refusal():
    data = fit_law([logged(rising())], draws=20).data()
    for key in ("forecast_refused", "training"):
        data.pop(key)
    old = Law.of(data)
    assert old.forecast_refused == old.refused and not old.training


def test_the_curve_of_noisy_rewards_goes_through_the_mean_of_what_was_seen():
    for seed in range(3):
        reward = rising(noise=0.2, seed=seed)
        law = fit_law([logged(reward)], draws=60)
        assert law.paths(8, np.array([8.0 * 150]), 1).mean() == pytest.approx(reward[110:].mean(), abs=0.06)


def test_forecasts_of_training_rewards_go_half_way_to_the_last_mean_from_a_doubling_on():
    law = fit_law([logged(rising())], draws=60)
    end, last = law.arms[0].C[-1], law.arms[0].audit[:, -1].mean()
    C = np.array([end / 2, 2 * end, 8 * end])
    held_out = replace(law, training=False, below=1.0).curve(8, C).value     # training rewards are not trimmed below
    expected = [held_out[0], (held_out[1] + last) / 2, (held_out[2] + last) / 2]
    assert law.curve(8, C).value == pytest.approx(expected)


def test_predictions_of_logs_reach_further_up_by_a_factor_that_is_whole_from_a_doubling_on():
    law = fit_law([logged(rising())], draws=60)
    end = law.arms[0].C[-1]
    C = end * np.array([0.5, 1.0, math.sqrt(2), 2.0, 8.0])
    plain, wide = replace(law, upper=1.0).curve(8, C, "prediction"), law.curve(8, C, "prediction")
    factor = 1 + (UPPER - 1) * np.array([0, 0, 0.5, 1, 1])
    assert wide.high == pytest.approx(np.minimum(plain.value + factor * (plain.high - plain.value), 1.0))
    assert wide.low == pytest.approx(plain.low) and wide.value == pytest.approx(plain.value)
    for of in (law, replace(law, upper=1.0)):       # where the mean curve lies is not what the logs were judged on
        assert of.curve(8, C).high == pytest.approx(law.curve(8, C).high)
    assert (law.upper, Law.of(law.data()).upper) == (UPPER, UPPER)
    data = law.data()
    data.pop("upper")                               # a law that was written before
    assert Law.of(data).upper == 1.0
    own = logged(rising(), noisy=False, training=False)
    assert fit_law([own], draws=20).upper == fit_law([own, logged(rising(), seed=1)], draws=20).upper == 1.0


def test_noisy_runs_have_one_run_to_run_sd_at_every_C_which_seeds_that_coincide_do_not_make_zero():
    rng = np.random.default_rng(3)
    residuals = rng.standard_normal((2, 3, 6))
    residuals -= residuals.mean(1, keepdims=True)
    residuals[:, :, 4] = 0.0                            # the seeds coincide at one C
    even = evened(residuals, np.zeros_like(residuals), 2.0)
    sd = np.sqrt((even**2).sum(1) / 2.0)
    assert sd == pytest.approx(np.repeat(np.sqrt((residuals**2).sum(1).mean(1) / 2.0)[:, None], 6, 1))
    floor = evened(0.001 * residuals, np.zeros_like(residuals), 2.0)
    assert np.sqrt((floor**2).sum(1) / 2.0) == pytest.approx(np.full((2, 6), PRIOR_SD / 0.25))


def test_the_noise_of_points_is_not_counted_as_a_difference_between_runs():
    residuals = 0.8 * np.array([[[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]]] * 2)
    error = np.full_like(residuals, 0.6)
    sd = np.sqrt((evened(residuals, error, 1.0) ** 2).sum(1))
    assert sd == pytest.approx(np.full((2, 3), math.sqrt(2 * 0.64 - 0.36)))


def test_the_noise_assumed_for_one_run_of_training_reward():
    assert logged_noise(np.array([1.0, 8.0])).sd(np.array([4.0]), np.array([0.5])) == pytest.approx([LOGGED_SD])


@pytest.mark.parametrize(("fall", "fell"), [(0.0, False), (0.02, False), (0.3, True)])
def test_a_noisy_run_diverged_if_its_last_tenth_is_below_its_first_by_more_than_noise(fall, fell):
    reward = 0.5 + 0.1 * np.random.default_rng(1).standard_normal(1000) - fall * (np.arange(1000) > 500)
    reward[0], reward[-1] = 0.95, 0.05                  # single values decide nothing
    assert diverged(logged(np.clip(reward, 0, 1))) is fell
    assert diverged(logged(np.clip(reward, 0, 1), noisy=False))
