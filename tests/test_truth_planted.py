"""Studies whose truth is planted: the simulators are what they say, and the law says of them what it should."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws import Growth, Law, fit_law
from isocost.laws.law import AUDIT, DEAREST
from isocost.planner.training.next_runs import next_runs
from isocost.stats.forms import gain_share, reached, steepness
from isocost.stats.posterior import ALL, LEFT, LINKED, TRANSIENT, Grid, dearer, form_weights, transient
from truth import INSIDE, OUTSIDE, Design, Planted, oracle, plant

END = 8000.0


# planted laws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", INSIDE + OUTSIDE)
def test_a_planted_truth_is_a_reward_and_its_pilot_one_that_can_be_fitted(kind):
    truth = plant(kind, np.random.default_rng(1))
    C = np.geomspace(100, 1e6, 50)
    for n in truth.curves:
        values = truth.reward(n, C)
        assert np.all((values >= 0) & (values <= 1))
        assert kind in ("decline", "collapse") or np.all(np.diff(values) >= -1e-12)
    at = truth.reach(4, float(truth.reward(4, 5000.0)))
    assert at == pytest.approx(5000.0, rel=1e-3) and truth.reach(4, 1.01) == np.inf
    assert truth.extra(truth.best(END), END) == 0.0
    curves = truth.pilot(Design(seeds=2), np.random.default_rng(2))
    assert len(curves) == 10 and all(c.select[0] == c.audit[0] == truth.R0 for c in curves)


def test_parameters_are_those_of_the_curve():
    for kind in INSIDE:
        truth = plant(kind, np.random.default_rng(3))
        assert truth.parameters is not None
        own = truth.parameters[4]
        half = truth.R0 + (own["A"] - truth.R0) / 2
        assert truth.reward(4, own["Cmid"]) == pytest.approx(half)
        up, down = truth.reward(4, own["Cmid"] * np.exp([1e-5, -1e-5]))
        assert 4 * (up - down) / 2e-5 / (own["A"] - truth.R0) == pytest.approx(own["b"], rel=1e-4)
    assert plant("power", np.random.default_rng(3)).parameters is None


def test_runs_scatter_as_the_covariance_says():
    truth = plant("sigmoid", np.random.default_rng(4))
    C, rng = np.array([500.0, 1000.0, 8000.0]), np.random.default_rng(5)
    found = np.cov(np.array([truth.run(4, C, rng) for _ in range(4000)]).T)
    assert np.allclose(found, truth.covariance(4, C), atol=0.12 * truth.covariance(4, C).max())


def test_runs_stop_early_and_crash_as_often_as_asked():
    truth, rng = plant("sigmoid", np.random.default_rng(6)), np.random.default_rng(7)
    curves = truth.pilot(Design(seeds=60, early=0.3, crashed=0.2, held_out=64), rng)
    assert 0.22 < np.mean([len(c.C) < 9 for c in curves]) < 0.38
    assert 0.13 < np.mean([c.diverged for c in curves]) < 0.27
    whole = next(c for c in curves if not c.diverged)
    assert np.allclose(whole.audit * 64, np.round(whole.audit * 64))


def test_share_and_its_inverse():
    for tail in (0.3, 1.0, np.inf):
        share = gain_share(np.array([300.0, 3000.0]), 1000.0, 1.3, tail)
        assert reached(share, 1000.0, 1.3, tail) == pytest.approx([300.0, 3000.0])
        assert reached(np.array([1.0]), 1000.0, 1.3, tail)[0] == np.inf
    assert steepness(1.3) == 1.3 and steepness(1.0, np.inf) == pytest.approx(steepness(1.0, 1e6), rel=1e-4)


# the law on them ---------------------------------------------------------------------------------------------------


@pytest.fixture
def coarse(monkeypatch):
    """A grid of parameters of a quarter of the size, for tests of many studies."""
    monkeypatch.setattr("isocost.stats.posterior.ASYMPTOTES", 21)
    monkeypatch.setattr("isocost.stats.posterior.MIDPOINTS", 20)


def test_a_small_coverage_check_inside_the_forms(coarse):
    """9 fixed studies, 45 arms: 90 % intervals at four times the pilot, and of parameters, are near what they say.

    The law's width is compared with that of an oracle that knows the curve form and the noise.
    """
    held, known, ratio, parameters = [], [], [], []
    for number in range(9):
        rng = np.random.default_rng([number, 20])
        truth = plant(INSIDE[number % 3], rng)
        curves = truth.pilot(Design(), rng)
        law, best = fit_law(curves, draws=120, seed=number), oracle(truth, curves, 4 * END, rng)
        assert law.refused is None
        for n in law.ns:
            own, true = law.predict(n, 4 * END)[0], float(truth.reward(n, 4 * END))
            held.append(own.holds(true))
            known.append(best[n][0].holds(true))
            if best[n][0].width > 0:        # it is 0 where the curve has reached a reward of 1
                ratio.append(own.width / best[n][0].width)
            if law.arm(n).moved and truth.parameters is not None:
                parameters.append([law.parameter(n, k).holds(truth.parameters[n][k]) for k in ("A", "Cmid", "b")])
    assert np.mean(held) >= 0.85 and 0.75 <= np.mean(known) <= 0.99
    assert 1.0 <= np.median(ratio) <= 2.2
    assert np.mean(parameters, 0).min() >= 0.7
    with pytest.raises(UserError, match="not of power"):
        oracle(plant("power", np.random.default_rng(0)), curves, END, np.random.default_rng(0))


@pytest.mark.parametrize("what", ["knee", "one seed", "flat", "crash", "short"])
def test_what_cannot_be_known_is_refused(what):
    middle = {"knee": (4.0, 16.0), "flat": (1e4, 1e5)}.get(what, (0.08, 0.35))
    design = {"one seed": Design(seeds=1), "crash": Design(crashed=1.0), "short": Design(points=3)}.get(what, Design())
    rng = np.random.default_rng(8)
    law = fit_law(plant("sigmoid", rng, middle=middle).pilot(design, rng), draws=60)
    assert law.refused is not None and law.refused.settle and law.refused.rollouts > 0


def test_joint_draws_tell_which_n_is_dearer():
    """By hand: at C both have the same form; the second needs Cmid twice as large, so twice the compute."""
    drawn = np.array([[[0, 0.9, 1000.0, 1.2]], [[0, 0.9, 2000.0, 1.2]], [[0, 0.5, 1000.0, 1.2]]])
    more = np.exp(dearer(drawn, np.zeros((*drawn.shape[:2], 3)), (1.0,), 0.3, 4000.0, DEAREST))[:, 0]
    assert more == pytest.approx([1.0, 2.0, DEAREST])
    flat = np.array([[[0, 0.9, 1.0, 8.0]], [[0, 0.9, 1.0, 8.0]]])      # both at their asymptote to the last digit
    assert np.all(dearer(flat, np.zeros((*flat.shape[:2], 3)), (np.inf,), 0.3, 4000.0, DEAREST) == 0.0)


def test_arms_lean_on_each_other_and_on_what_is_known_of_n(monkeypatch):
    """The asymptote of an arm that has just begun to rise is estimated from its neighbours.

    Planted: steps between n so wide that no arm hears of another.
    """
    rng = np.random.default_rng(9)
    curves = plant("sigmoid", rng, middle=(0.1, 0.1), interference=0.05).pilot(Design(), rng)
    together = fit_law(curves, draws=200)
    for name in ("STEP_A", "STEP_CMID", "STEP_B"):
        monkeypatch.setattr(f"isocost.stats.posterior.{name}", 100.0)
    apart = fit_law(curves, draws=200)
    assert together.predict(32, 4 * END)[0].width < 0.7 * apart.predict(32, 4 * END)[0].width
    assert together.parameter(32, "A").width < 0.7 * apart.parameter(32, "A").width


def test_parameters_have_intervals_and_names():
    rng = np.random.default_rng(11)
    law = fit_law(plant("sigmoid", rng).pilot(Design(), rng), draws=100)
    for name in ("A", "Cmid", "b"):
        own = law.parameter(2, name)
        assert own.low < own.value < own.high and own.kind == "confidence"
        assert replace(law, level=0.5).parameter(2, name).width < own.width
    assert law.parameter(2, "Cmid").value == pytest.approx(law.arm(2).fits[AUDIT].parameters["Cmid"], rel=1.0)
    with pytest.raises(UserError, match="A, Cmid, b, not 'R0'"):
        law.parameter(2, "R0")


def test_growth_holds_where_it_is_given():
    """A truth whose best n rises from 2 and settles within the pilot."""
    for number in range(6):
        rng = np.random.default_rng([number, 3])
        truth = plant("sigmoid", rng, middle=(0.01, 0.03), interference=0.4, rough=0.0)
        star = fit_law(truth.pilot(Design(seeds=5, points=12, span=256.0), rng), draws=120).n_star
        if isinstance(star, Growth):
            assert star.at(END / 4).holds(float(truth.n_star(END / 4))), number
            return
    pytest.fail("no n*(C) was given")


def test_the_truth_of_n_star_is_read_between_the_grid():
    shape = {2: 0.5, 4: 0.7, 8: 0.7}
    truth = Planted("hand", 0.1, {n: (lambda C, v=v: np.full_like(C, v)) for n, v in shape.items()})
    assert float(truth.n_star(np.array([1.0]))[0]) == pytest.approx(2**2.5)
    assert truth.best(1.0) == 4


# what to run next --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pilot_law() -> Law:
    rng = np.random.default_rng([0, 31])
    return fit_law(plant("sigmoid", rng).pilot(Design(), rng), draws=120)


def test_proposals_are_ordered_by_what_they_tell_for_their_cost(pilot_law):
    found = next_runs(pilot_law, 4 * END, top=99)
    assert [r.per_rollout for r in found] == sorted((r.per_rollout for r in found), reverse=True)
    assert len(found) == 20 and all(0 <= r.after <= r.now for r in found)
    assert {r.rollouts for r in found} == {END, 3 * END, 9 * END}      # 1 seed; 3 seeds or 2 x; 4 x, of three runs
    assert next_runs(pilot_law, 4 * END) == found[:3]
    assert {r.rollouts for r in next_runs(pilot_law, 4 * END, top=99, most=END)} == {END}
    at = {(r.n, r.new, r.C): r for r in found}
    for n in pilot_law.ns:      # more of the same tells more in all, and less of it per rollout or about as much
        assert at[n, 3, END].after <= at[n, 1, END].after + 0.02 * at[n, 1, END].now
        assert at[n, 0, 4 * END].after <= at[n, 0, 2 * END].after + 0.02 * at[n, 1, END].now
    assert f"n={found[0].n}" in found[0].text and "expected extra compute" in found[0].text
    with pytest.raises(UserError, match="above 0"):
        next_runs(pilot_law, 0.0)


def test_an_arm_that_cannot_win_is_not_worth_a_run():
    """n = 32 ends far below: nothing about it changes the choice between the others."""
    rng = np.random.default_rng(12)
    truth = plant("sigmoid", rng, ns=(2, 4, 32), middle=(0.05, 0.06), rough=0.0)
    low = {**truth.curves, 32: lambda C: truth.R0 + 0.3 * (truth.reward(2, C) - truth.R0)}
    law = fit_law(replace(truth, curves=low).pilot(Design(ns=(2, 4, 32)), rng), draws=120)
    found = next_runs(law, 4 * END, top=99)
    assert not found or found[0].n != 32


def test_nothing_is_proposed_where_nothing_is_open(pilot_law):
    sure = replace(pilot_law, arms=tuple(
        replace(arm, fits=tuple(replace(f, draws=np.repeat(f.draws[:1], 120, axis=0)) for f in arm.fits))
        for arm in pilot_law.arms))
    assert next_runs(sure, 4 * END) == ()
    assert next_runs(replace(pilot_law, arms=()), 4 * END) == ()


# what is taken for granted -----------------------------------------------------------------------------------------


def test_the_asymptote_has_the_prior_of_a_share():
    """Jeffreys': half of it above 1/2, a third above 3/4, and the same on whatever part of the grid is looked at."""
    grid = Grid(np.linspace(0.0, 1.0, 401), np.geomspace(1, 100, 3))
    ends = grid.ends()
    assert ends.sum() == pytest.approx(1.0)
    ends = (ends - ALL * (grid.A == 1)) / (1 - ALL)
    assert ends[201:].sum() + ends[200] / 2 == pytest.approx(1 / 2)
    assert ends[301:].sum() + ends[300] / 2 == pytest.approx(1 / 3, abs=1e-3)
    low, high = (Grid(np.linspace(*at, 101), grid.Cmid) for at in ((0.0, 0.5), (0.5, 1.0)))
    assert low.ends().sum() == pytest.approx((1 - ALL) / 2) == high.ends().sum() - ALL
    assert (low.extent() + high.extent()) / grid.extent() == pytest.approx(1)
    quarter = Grid(np.linspace(0, 0.25, 101), grid.Cmid)
    assert quarter.extent() / grid.extent() == pytest.approx((1 - ALL) / 3)


def test_a_set_of_which_all_can_be_learned_is_foreseen(coarse, monkeypatch):
    """Half of the gain is made, all of it is to come: without its own weight the forecast is further below."""
    def seen(weight: float) -> tuple[float, float]:
        monkeypatch.setattr("isocost.stats.posterior.ALL", weight)
        rng, held, gaps = np.random.default_rng(5), [], []
        for _ in range(6):
            curves = {n: partial(_to_the_top, middle=END * 0.6 * later) for n, later in ((2, 1.0), (4, 1.2), (8, 1.5))}
            planted = Planted("sigmoid", 0.6, curves, sd=0.01)
            law = fit_law(planted.pilot(Design(ns=(2, 4, 8)), rng), seed=0)
            told = [(law.predict(n, 8 * END)[0], float(planted.reward(n, 8 * END))) for n in law.ns]
            held += [i.holds(truth) for i, truth in told]
            gaps += [truth - i.value for i, truth in told]
        return float(np.mean(held)), float(np.mean(gaps))

    held, gap = seen(ALL)
    assert held >= 0.7 and abs(gap) < seen(0.0)[1]


def _to_the_top(C: np.ndarray, middle: float) -> np.ndarray:
    return np.asarray(0.6 + 0.4 * gain_share(C, middle, 1.2))


def test_a_form_that_is_ruled_out_keeps_a_little_and_no_more():
    alike = np.array([1.0])
    weights = form_weights(np.array([[0.0, -1e3, -1e3]]), alike)[0]
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1:].tolist() == pytest.approx([LEFT / (1 + 3 * LEFT)] * 2)
    assert weights[1] > 0.01
    assert form_weights(np.full((1, 3), 3.0), alike) == pytest.approx(np.full((1, 3), 1 / 3))


def test_the_evidence_and_the_prior_share_a_form_between_n_that_are_alike_and_not():
    """By hand: e^(ln 3) x 0.5 against 1 x 0.5 is 3 to 1 under the first form; under the second, unlike is excluded."""
    weights = form_weights(np.array([[np.log(3), 0.0], [0.0, -1e3]]), np.array([0.5, 0.5]))
    assert weights[:, 0] / weights[:, 0].sum() == pytest.approx([0.75, 0.25])
    assert weights[:, 1] / weights[:, 1].sum() == pytest.approx([1.0, 0.0])
    likely = np.array([2.0, 0.5]) / 2.5 + LEFT
    assert weights.sum(0) == pytest.approx(likely / likely.sum())


def test_what_all_runs_have_in_common_before_they_gain_ends_with_the_gain():
    """By hand: no gain yet is `TRANSIENT`, half of it a quarter, all of it 0; a doubling apart by `LINKED`."""
    C, mean = np.array([100.0, 200.0, 400.0]), np.array([0.3, 0.45, 0.6])
    found = transient(C, mean, 0.3)
    sd = TRANSIENT * np.array([1.0, 0.25, 0.0])
    assert np.sqrt(np.diag(found)) == pytest.approx(sd)
    assert found[0, 1] == pytest.approx(sd[0] * sd[1] * LINKED)
    flat = transient(C, np.full(3, 0.3), 0.3)
    assert np.diag(flat) == pytest.approx(np.full(3, TRANSIENT**2))
    assert flat[0, 2] == pytest.approx((TRANSIENT * LINKED) ** 2)


def test_a_dip_before_the_rise_does_not_lower_the_asymptote(coarse, monkeypatch):
    """Arms that first lose 0.015 in all runs alike, as real ones do: without the common part the forecast is too low
    and too sure of it."""
    def missed(size: float) -> tuple[float, float]:
        monkeypatch.setattr("isocost.stats.posterior.TRANSIENT", size)
        rng, held, gaps = np.random.default_rng(3), [], []
        for _ in range(4):
            curves = {n: partial(_after_a_dip, middle=END * 0.6 * later, late=END * 0.02 * n)
                      for n, later in ((2, 1.0), (4, 1.2), (8, 1.5))}
            planted = Planted("sigmoid", 0.6, curves, sd=0.01)
            law = fit_law(planted.pilot(Design(ns=(2, 4, 8)), rng), seed=0)
            for n in law.ns:
                one, truth = law.predict(n, 4 * END)[0], float(planted.reward(n, 4 * END))
                held, gaps = [*held, one.holds(truth)], [*gaps, truth - one.value]
        return float(np.mean(held)), float(np.mean(gaps))

    held, gap = missed(TRANSIENT)
    before, further = missed(0.0)
    assert held >= 0.8 and held >= before and abs(gap) < 0.8 * further


def _after_a_dip(C: np.ndarray, middle: float, late: float) -> np.ndarray:
    C = np.asarray(C, dtype=float)
    return np.asarray(0.6 + 0.4 * gain_share(C, middle, 1.2) * -np.expm1(-(C / late) ** 2)
                      - 0.015 * np.exp(-0.5 * np.log(C / late) ** 2))
