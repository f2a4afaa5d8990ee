"""Runs that have not risen, runs that fall, and logs of few evaluations: what a law says of them and what not."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, betabinom

from isocost.laws.curves import Curve, diverged, ends_of
from isocost.laws.fit import MANY, SPARSE, fit_law
from isocost.laws.law import Law
from isocost.runs.arm import Arm
from law_truths import curve

END, C = 8000.0, np.concatenate([[0.0], np.geomspace(250, 8000, 8)])


def rising(base=0.3, top=0.9, middle=800.0):
    return base + (top - base) * C / (C + middle)


def pilot(reward, n=8, seeds=3, apart=0.01):
    level = apart * (np.arange(seeds) - (seeds - 1) / 2)
    return [curve(n, s, C, reward + level[s] * (C > 0), reward + level[s] * (C > 0)) for s in range(seeds)]


def fallen(run, to):
    """The run with a last reward to which it fell, as its record says."""
    values = [np.append(getattr(run, split)[:-1], to) for split in ("select", "audit")]
    run = replace(run, select=values[0], audit=values[1])
    return replace(run, diverged=diverged(run))


def logged(reward, noise, training=False, seed=0, n=8):
    """A log with a noisy reward for each update."""
    K, nan = len(reward), np.full(len(reward), math.nan)
    values = np.clip(reward + noise * np.random.default_rng(seed).standard_normal(K), 0, 1)
    run = Curve(f"n{n}-s{seed}", Arm(n=n, B=1, lr=1e-6), seed, n * np.arange(K), values, values, nan, nan, noisy=True,
                training=training)
    return replace(run, diverged=diverged(run))


@pytest.mark.parametrize(("base", "to", "fell"), [
    (0.02, 0.0, True),          # 0.86 to 0: not 3 standard errors below 0.02, which is 0.026
    (0.02, 0.04, True),         # or a little above where it began
    (0.30, 0.37, True),         # within 3 standard errors, 0.086, of its start
    (0.30, 0.45, False),        # it keeps a part of its gain
    (0.30, 0.10, True),         # below its start: diverged without this rule, and named by it
])
def test_a_run_that_falls_from_its_peak_to_its_start_has_lost_what_it_learned(base, to, fell):
    run = curve(8, 0, C, rising(base, 0.92), rising(base, 0.92))
    assert not ends_of(run).fell_back and not diverged(run)
    after = fallen(run, to)
    assert ends_of(after).fell_back is after.diverged is fell
    never = curve(8, 0, C, base - 0.3 * base * (C > 0), base - 0.3 * base * (C > 0))
    assert not ends_of(never).fell_back         # it never rose


def test_a_slow_run_that_wavers_is_no_collapse():
    waver = 0.3 + np.array([0, 0.02, 0.05, 0.03, 0.09, 0.06, 0.1, 0.08, 0.02])     # 0.08 below its peak
    run = curve(8, 0, C, waver, waver)
    assert not ends_of(run).fell_back and not diverged(run)


@pytest.mark.parametrize(("training", "noise"), [(True, 0.1), (False, 0.03)])
def test_a_noisy_log_collapses_by_its_tenths(training, noise):
    K = 200
    steps = np.arange(K)
    for middle in (20, 80):         # risen within its first tenth, and later
        peak = np.where(steps < 150, 0.05 + 0.8 / (1 + (np.maximum(steps, 1) / middle) ** -3.0), 0.05)
        assert ends_of(logged(peak, noise, training)).fell_back and not ends_of(logged(peak[:150], noise)).fell_back
    flat = logged(np.full(K, 0.4), noise, training)
    assert not ends_of(flat).fell_back and not ends_of(flat).risen and not flat.diverged


def test_a_collapse_is_named_and_the_mean_of_all_runs_is_beside_that_of_the_others():
    """Two of three seeds fall to 0.03: 0.29 is the mean of all, 0.85 that of the survivor."""
    runs = pilot(rising(0.02, 0.92, 600.0))
    runs = [runs[0], fallen(runs[1], 0.03), fallen(runs[2], 0.01)]
    law = fit_law([*runs, *pilot(rising(0.02, 0.9), n=4)], draws=60)
    flags = {f.name: f.text for f in law.flags}
    assert flags["collapsed"].startswith("n8-s") and "fell back to 0.0" in flags["collapsed"]
    assert [f.text.split()[0] for f in law.flags if f.name == "collapsed"] == ["n8-s1", "n8-s2"]
    assert law.arm(8).runs == ("n8-s0",) and law.arm(8).fallen == (0.03, 0.01) and law.arm(4).fallen == ()
    low, high = beta.ppf([0.05, 0.95], 2.5, 4.5)                    # Jeffreys: 2 of 6
    assert (law.falls.value, law.falls.low, law.falls.high) == pytest.approx((2.5 / 7, low, high))
    alone = runs[0].audit[-1]
    assert f"2 of 6 runs diverged: 36% of new runs are expected to ({low:.0%} to {high:.0%})" in flags["falls"]
    assert f"n=8 {(alone + 0.04) / 3:.3f}, without them {alone:.3f}" in flags["falls"]
    assert Law.of(law.data()).falls == law.falls


def test_a_prediction_counts_that_new_runs_fall_and_the_curve_does_not():
    runs = [fallen(run, 0.03) if run.seed == 0 else run for n in (4, 8) for run in pilot(rising(0.02, 0.92), n, 4)]
    law = fit_law(runs, draws=300)
    none = law.surviving
    assert none.falls is None and law.refused is None
    for n in (4, 8):
        confidence, prediction = law.predict(n, END, 3)
        plain, bare = none.predict(n, END, 3)
        assert confidence == plain and prediction.high <= bare.high
        # 2.5 of 9 fall, each to 0.03: the mean over all runs, and its 5 % quantile, with two of three fallen
        assert prediction.value == pytest.approx(plain.value * (1 - 2.5 / 9) + 0.03 * 2.5 / 9, abs=0.01)
        assert betabinom.cdf(0, 3, 2.5, 6.5) < 0.95 < betabinom.cdf(2, 3, 2.5, 6.5)
        assert prediction.low == pytest.approx((plain.value + 2 * 0.03) / 3, abs=0.05) and bare.low > 0.8
        far, near = (law.predict(n, k * END, 3)[1].value for k in (8, 1))
        grown = 1 - (1 - beta.rvs(2.5, 6.5, size=20000, random_state=0)) ** (9 / 6)     # 9 doublings to 6: one more
        assert far < near and far == pytest.approx(
            (1 - grown.mean()) * none.predict(n, 8 * END, 3)[1].value + 0.03 * grown.mean(), abs=0.012)


def test_runs_that_fell_do_not_make_a_law_unidentified():
    runs = [fallen(run, 0.03) if run.seed == 0 else run for n in (4, 8) for run in pilot(rising(0.02, 0.92), n, 4)]
    law = fit_law(runs, draws=100)
    assert law.refused is None and law.predict(8, 8 * END)[1].width > 0.4      # the limit of a useful interval


def test_a_law_from_before_falls_were_counted_predicts_as_it_did():
    runs = [fallen(run, 0.03) if run.seed == 0 else run for run in pilot(rising(0.02, 0.92), 8, 4)]
    data = fit_law(runs, draws=60).data()
    for arm in data["arms"]:
        assert arm.pop("fallen") == [0.03] and arm.pop("still") is False
    old = Law.of(data)
    assert old.falls is None and old.predict(8, END)[1].low > 0.8 and old.still(8) == ""


# runs that have not risen ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "training", "told"), [
    (0.02, False, True), (0.4, False, True), (0.02, True, True),
    (0.4, True, False),         # training rewards well above 0 that stay there are forecast as well as others
])
def test_a_log_that_has_not_risen_says_nothing_about_when_it_will(level, training, told):
    law = fit_law([logged(np.full(200, level), 0.01 if level < SPARSE else 0.05, training)], draws=60)
    assert bool(law.still(8)) is told
    if told:
        assert law.forecast_refused.reason.startswith("the runs of n=8 have not risen measurably: base 0.")
        assert "do not tell when their reward will rise" in law.forecast_refused.reason
        assert Law.of(law.data()).still(8) == law.still(8)
    else:
        assert law.forecast_refused is None


def test_a_log_that_has_begun_to_rise_is_forecast():
    steps = np.arange(200)
    law = fit_law([logged(0.02 + 0.6 * steps / (steps + 100), 0.02)], draws=60)
    assert not law.still(8) and law.forecast_refused is None


def test_a_pilot_in_which_no_n_has_risen_is_not_forecast():
    still = np.full(len(C), 0.3)
    law = fit_law([*pilot(still, 4, apart=0.02), *pilot(still, 8, apart=0.02)], draws=60)
    assert law.flat and law.still(4) and law.still(8)
    assert not fit_law([*pilot(rising(), 4), *pilot(still, 8)], draws=60).still(4)


# logs of few evaluations ----------------------------------------------------------------------------------------------


def test_a_log_of_few_evaluations_says_what_more_would_buy():
    steps = np.array([0, 20, 40, 60, 80, 100, 120])
    short = [replace(logged(np.full(7, 0.0), 0.0, seed=s), C=8.0 * steps, select=y, audit=y) for s in range(3)
             for y in [np.clip(0.3 + 0.4 * steps / (steps + 20)
                               + 0.05 * np.random.default_rng(s).standard_normal(7), 0, 1)]]
    law = fit_law(short, draws=100)
    (flag,) = [f.text for f in law.flags if f.name == "few_evaluations"]
    width = law.curve(8, 2 * law.arm(8).C[-1], "prediction", 1)
    assert flag.startswith("n=8: 6 evaluations after the base: the 90% prediction interval at twice their length is "
                           f"{(width.high - width.low)[0]:.2f} wide; with {MANY} it would be about 0.")
    assert float(flag.rsplit(" ", 1)[1]) < 0.9 * (width.high - width.low)[0]
    many = fit_law([logged(0.3 + 0.4 * np.arange(MANY) / (np.arange(MANY) + 5), 0.05)], draws=60)
    assert not any(f.name == "few_evaluations" for f in many.flags)
    assert not any(f.name == "few_evaluations" for f in fit_law(pilot(rising()), draws=60).flags)   # its own noise
