"""Budgets and plans: what is affordable, what is chosen and against what, and every constraint that a plan promises."""

import json
from dataclasses import replace
from math import ceil, inf, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import nct
from scipy.stats import t as student_t

from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.laws.law import Flag, NotIdentified
from isocost.planner.budget import Budget, Prices, Timing, Usage, measure_timing
from isocost.planner.evaluation import EvaluationPlan, points
from isocost.planner.training.afford import RESERVE, plan_pilot
from isocost.planner.training.builtin import PRESETS
from isocost.planner.training.focus import focused
from isocost.planner.training.learning_rate import given
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescribe import prescribe
from isocost.planner.training.prescription import Plan
from isocost.planner.training.seeds import comparison
from isocost.planner.training.study_runs import arms_of, make_runs, run_seed, warmup, whole
from isocost.runs.arm import Arm
from isocost.stats.intervals import Interval
from isocost.stats.power import detectable, detectable_paired

TIMING = Timing(0.003, 0.0, 0.0002, 0.05, "for the test")
PROFILE = {
    "samples": 16, "right": [3] * 100 + [8] * 100 + [0] * 20, "parameters": 1e5, "select": 128, "audit": 128,
    "exact": True, "rate": {"rollouts_per_second": 8000.0}, "cost": {"rollouts": 100, "prefill": 600, "decode": 300},
}
RULE = given(1e-3, 256)


def planned(**asked) -> PilotPlan:
    return plan_pilot(PROFILE, timing=TIMING, **asked)


class FakeLaw(SimpleNamespace):
    """Fixed rewards per n: what `prescribe` asks of a law, and nothing else.

    A draw moves every n by the same amount, and n by its own `spread`: standard deviations of draws that go up and down
    evenly, in an order of its own for each n.
    """

    def __init__(self, values, refused=None, flags=(), spread=None, unknown=(), flat=()):
        super().__init__(values=values, refused=refused, flags=flags, ns=tuple(values), flat=False, range=(512, 10240),
                         spread=spread or {}, no_curve=unknown, not_risen=flat)

    def still(self, n):
        return "its runs have not risen" if n in self.not_risen else ""

    def paths(self, n, C, split=1):
        common = np.random.default_rng(0).uniform(-0.3, 0.3, 200)
        own = np.random.default_rng(n).permutation(np.linspace(-1.7, 1.7, 200)) * self.spread.get(n, 0.0)
        return (self.values[n] + common + own)[:, None] + 0.02 * (np.asarray(C) > 50000)

    def unknown(self, C):
        return list(self.no_curve)

    def dearer(self, C):
        return {n: 1.0 + (max(self.values.values()) - v) for n, v in self.values.items()}

    def predict(self, n, C, runs=3):
        v = self.values[n] + 0.02 * (C > 50000)
        return (Interval(v, v - 0.01, v + 0.01, 0.9, "confidence", 10),
                Interval(v, v - 0.03, v + 0.03, 0.9, "prediction", 10))


def law_of(n, **more):
    """A law by which n is the best by far."""
    return FakeLaw({**VALUES, n: 0.95}, **more)


def curve(run, end, seconds=TIMING):
    C = np.array([0.0, *points(run.C, 512)])
    y = np.linspace(0.4, end, len(C))
    s = np.array([seconds.seconds(run.n, run.B, c, i) for i, c in enumerate(C)])
    return Curve(run.name, Arm(n=run.n, B=run.B, lr=1e-3, multiplier=run.multiplier), run.seed, C, y, y, s,
                 C / (run.n * 700), False, run.purpose)


# budgets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text,amount,unit", [
    ("50k-rollouts", 50_000, "rollouts"), ("2h", 7200, "seconds"), ("30min", 1800, "seconds"), ("90s", 90, "seconds"),
    ("1e18flop", 1e18, "flops"), ("2M-tokens", 2e6, "tokens"), ("1.5h", 5400, "seconds"),
    ("500 rollouts", 500, "rollouts"), ("1d", 86400, "seconds"), ("30m", 1800, "seconds"), ("45 m", 2700, "seconds"),
    ("1 day", 86400, "seconds"), ("2 hrs", 7200, "seconds"), ("1 minute", 60, "seconds"), ("2H", 7200, "seconds"),
    ("50K-rollouts", 50_000, "rollouts"), ("50,000-rollouts", 50_000, "rollouts"),
    ("1,234,567 tokens", 1_234_567, "tokens"), ("16 device-hours", 16 * 3600, "device-seconds"),
    ("8gpu-hours", 8 * 3600, "device-seconds"), ("0.5 device-hour", 1800, "device-seconds"), ("20usd", 20, "usd"),
    ("50 EUR", 50, "eur"), ("2kusd", 2000, "usd"),
])
def test_budgets_carry_a_unit(text, amount, unit):
    assert Budget.parse(text) == Budget(amount, unit)
    assert Budget.of(json.loads(json.dumps(Budget.parse(text).data()))) == Budget(amount, unit)


@pytest.mark.parametrize("text", ["50000", "50k", "2 parsecs", "", "-3h", "0rollouts", "1.2.3h", "h", "30M", "30-M",
                                  "2,5h", "5,00 rollouts", "1234,567 rollouts", "8gpu", "-3usd", "3-hours-device"])
def test_a_bad_budget_lists_what_would_be_right(text):
    with pytest.raises(UserError, match=r"50k-rollouts, 2h.*device-hours or 20usd|budget above 0"):
        Budget.parse(text)


def test_a_budget_is_written_as_it_is_read():
    for amount, unit, text in [(1e7, "rollouts", "10,000,000 rollouts"), (6e4, "rollouts", "60,000 rollouts"),
                               (512, "rollouts", "512 rollouts"),
                               (1e18, "flops", "1e+18 flops"), (0.5, "usd", "0.5 usd")]:
        assert str(Budget(amount, unit)) == text and Budget.parse(text) == Budget(amount, unit)


def test_bills_add_up_by_hand():
    prices = Prices(prefill=6.0, decode=3.0, parameters=1e5)
    bill = prices.bill([(4, 8, 64, 2), (8, 8, 64, 2)], TIMING)
    assert (bill.rollouts, bill.tokens, bill.evaluations) == (128, 384.0, 4)
    assert bill.flops == 128 * (2 + 6) * 1e5 * 9
    assert bill.seconds == pytest.approx(2 * (0.003 + 0.0064) + 1 * (0.003 + 0.0128) + 4 * 0.05)
    assert (bill + bill).rollouts == 256 and Usage.of(bill.data()) == bill
    with pytest.raises(UserError, match="number of parameters"):
        Prices(6.0, 3.0, None).bill([(4, 8, 64, 2)], TIMING).of_unit("flops")


def test_flops_follow_the_recipe_before_and_the_bills_after():
    """A reference reads the 9 tokens of a rollout once more, at 2P each; what was trained is what the bills say."""
    profile = {"cost": {"rollouts": 10, "prefill": 60, "decode": 30}, "recipe": {"compares": True}}
    prices = Prices.of_profile(profile, 1e5)
    assert prices.bill([(4, 8, 64, 2)], TIMING).flops == 64 * 1e5 * (2 * 9 + 2 * 9 + 6 * 9)
    half = prices.measured([{"rollouts": 10, "prefill": 60, "decode": 30, "score": 20, "train": 45}])
    assert half.bill([(4, 8, 64, 2)], TIMING).flops == pytest.approx(64 * 1e5 * (2 * 9 + 2 * 2 + 6 * 4.5))


def test_small_batches_are_dearer_per_rollout():
    assert TIMING.per_rollout(2, 8) == pytest.approx(0.0002 + 0.003 / 16)
    assert TIMING.per_rollout(2, 8) > TIMING.per_rollout(32, 8)


def test_timing_is_measured_from_runs():
    truth = Timing(0.004, 0.0005, 0.0002, 0.07, "")
    runs = [r for B in (4, 16) for r in make_runs(0, "pilot", arms_of((2, 8, 32), B), 4096, 1)]
    found = measure_timing([curve(r, 0.8, truth) for r in runs], TIMING)
    assert (found.update, found.problem, found.rollout, found.evaluation) == pytest.approx(
        (0.004, 0.0005, 0.0002, 0.07), rel=0.02)
    untimed = [replace(curve(r, 0.8), seconds=np.full(7, np.nan)) for r in runs]
    assert measure_timing(untimed, TIMING) is TIMING


def test_slow_stretches_count_as_much_as_fast_ones():
    """A machine that is shared: every stretch takes 1 or 3 times as long, so twice on average, and free rollouts
    are no reason to forget what was timed."""
    runs, rng = make_runs(0, "pilot", arms_of((2, 8, 32), 8), 4096, 6), np.random.default_rng(2)
    loaded = []
    for r in runs:
        c = curve(r, 0.8, TIMING)
        steps = np.diff(c.seconds) * rng.choice([1.0, 3.0], len(c.seconds) - 1)
        loaded.append(replace(c, seconds=np.concatenate([[c.seconds[0]], c.seconds[0] + np.cumsum(steps)])))
    found = measure_timing(loaded, TIMING)
    real = sum(float(c.seconds[-1] - c.seconds[0]) for c in loaded)
    told = sum(found.seconds(c.arm["n"], c.arm["B"], 4096, len(c.C) - 1) for c in loaded)
    assert told == pytest.approx(real, rel=0.05)
    free = Timing(0.01, 0.0, 0.0, 0.05, "")
    assert measure_timing([curve(r, 0.8, free) for r in runs], TIMING).update == pytest.approx(0.01, rel=0.02)


def test_runs_of_one_batch_size_tell_seconds_per_rollout_and_per_evaluation():
    """At n B = 64 an update of B = 8 takes 0.004 + 8 x 0.0005 + 64 x 0.0002 = 0.0208 s, one of B = 32 0.0328 s."""
    truth = Timing(0.004, 0.0005, 0.0002, 0.07, "")
    one = measure_timing([curve(r, 0.8, truth) for r in make_runs(0, "pilot", arms_of((8,), 8), 4096, 2)], TIMING)
    assert (one.update, one.problem, one.evaluation) == (0, 0, pytest.approx(0.07, rel=0.02))
    assert one.rollout * 64 == pytest.approx(0.0208, rel=0.02)
    pair = make_runs(0, "pilot", arms_of((2, 8), 8, 64), 4096, 1)
    both = measure_timing([curve(r, 0.8, truth) for r in pair], TIMING)
    assert 64 * both.per_rollout(8, 8) == pytest.approx(0.0208, rel=0.02)
    assert 64 * both.per_rollout(2, 32) == pytest.approx(0.0328, rel=0.02)


# the pilot ----------------------------------------------------------------------------------------------------


def test_detectable_effect_by_hand():
    t = student_t(10)
    assert nct.sf(t.ppf(0.95), 10, detectable(3, 5, 0.02) / (0.02 * sqrt(2 / 3))) == pytest.approx(0.8)
    assert detectable(1, 5, 0.02) == inf
    assert detectable(5, 5, 0.02) < detectable(3, 5, 0.02)


def test_points_are_whole_updates_of_every_arm_and_reach_the_end():
    for C, unit, per in ((4096, 256, 2), (5568, 64, 2), (32768, 256, 1), (256, 256, 2), (8448, 256, 2)):
        found = points(C, unit, per)
        assert found[-1] == C and all(x % unit == 0 for x in found) and list(found) == sorted(set(found))
    assert points(4096, 256) == (256, 512, 768, 1024, 1536, 2048, 2816, 4096)
    assert points(4992, 128, 0) == (2432, 4992)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_keep_their_promises_without_a_budget(preset):
    p = planned(preset=preset)
    units = {"tiny": 4, "standard": 37}     # a curve needs four points; 38 units are above half of training
    whole_units = units.get(preset) or round(0.6 * PRESETS[preset].C / p.unit)
    assert not p.direct and whole_units * p.unit == p.C
    assert p.train_C == PRESETS[preset].train_C and p.reserve == RESERVE
    promises(p)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_pilot_without_rounds_is_planned_whole_with_its_edges(preset):
    p = planned(preset=preset, rounds=False)
    assert p.C == PRESETS[preset].C and not p.reserve and "reserve" not in p.data()
    assert {(r.n, r.multiplier) for r in p.of_purpose("edge")} == {
        (n, x) for n in (min(p.grid), max(p.grid)) for x in (0.5, 2.0)}


@pytest.mark.parametrize(("preset", "text"), [
    *(("quick", text) for text in ("30k-rollouts", "50k-rollouts", "1M-rollouts", "300s", "3M-tokens", "1e14flop")),
    ("standard", "287k-rollouts"), ("standard", "2h")])
def test_a_budget_is_everything_a_study_may_spend(text, preset):
    budget = Budget.parse(text)
    p = planned(preset=preset, budget=budget)
    assert p.bill.of_unit(budget.unit) <= budget.amount * (1 + 1e-9)
    if not p.direct:
        assert p.pilot_bill.of_unit(budget.unit) <= budget.amount / 3
        assert p.bill.of_unit(budget.unit) >= 0.75 * budget.amount
        assert PRESETS[preset].train_seeds >= p.train_seeds / 2
        promises(p, budget.unit)


def spent(p: PilotPlan) -> PilotPlan:
    """The pilot after its reserve: n = 4 leads, best at twice the rate, and the others are level."""
    while p.reserve:
        p = focused(p, [curve(r, 0.6 + (0.2 + 0.001 * r.multiplier) * (r.n == 4)) for r in p.runs])
    return p


def promises(p: PilotPlan, unit: str = "rollouts") -> None:
    """The pilot costs at most half of training, its largest run is an eighth, sizes are whole, warm-up is short."""
    assert p.pilot_bill.of_unit(unit) <= p.train_bill.of_unit(unit) / 2
    after = spent(p)
    assert after.pilot_bill.of_unit(unit) <= p.pilot_bill.of_unit(unit) * (1 + 1e-9) and not after.reserve
    assert p.train_C <= 8 * after.C and p.train_seeds >= 3
    assert p.C % p.unit == 0 and p.train_C % p.unit == 0 and p.unit % (8 * p.B) == 0
    for r in p.runs:
        assert r.M * r.n * r.B == r.C and r.warmup <= min(10, 0.05 * r.M) and p.points_of(r)[-1] == r.C
    assert len({r.name for r in p.runs}) == len(p.runs) and len(p.points) >= 4, "a curve needs four points"
    assert {r.purpose for r in p.runs} == {"probe", "pilot"}
    edges = {(r.n, r.multiplier) for r in after.of_purpose("edge")}
    assert (4, 2.0) in edges and edges - {(4, 0.5)} == set(after.rates), "a check is paid for"
    assert {(r.n, r.multiplier) for r in p.of_purpose("probe")} == {
        (n, x) for n in (min(p.grid), max(p.grid)) for x in (0.25, 1.0, 4.0)}
    assert all(p.points_of(r) == p.points for r in p.of_purpose("pilot"))


def test_quick_is_the_size_it_says():
    p = planned(preset="quick")
    assert (p.pilot_bill.rollouts, p.train_bill.rollouts) == (2.35 * 15 * 6144 + 6 * 4096, 12 * 40960)
    assert len(p.runs) == 15 + 6


def test_a_budget_too_small_for_a_pilot_is_direct_and_says_why():
    p = planned(budget=Budget.parse("5k-rollouts"))
    assert p.direct and not p.runs and p.grid == () and p.pilot_bill.rollouts == 0
    assert "does not pay for a pilot" in p.why and "n = 4" in p.fallback_why and p.fallback_n == 4
    assert p.train_bill.rollouts <= 5000 and any("assumed" in f for f in p.flags)
    with pytest.raises(UserError, match="does not pay for one update"):
        planned(budget=Budget.parse("20rollouts"))


def test_several_attempts_have_wider_errors_than_one():
    """On 128 problems by 4 samples one attempt is known to 0.5 / sqrt(512), best@4, of one lot of 4, to twice that."""
    noisy = EvaluationPlan(256, 4)
    for attempts, sampled in ((1, 0.5 / sqrt(512)), (4, 0.5 / sqrt(128))):
        p = planned(preset="quick", evaluation=noisy, attempts=attempts, evaluation_share=100, most_samples=4)
        assert p.sd == pytest.approx(sqrt(0.02**2 + sampled**2))


def test_a_noisy_evaluation_makes_the_pilot_blind_and_the_plan_direct():
    few = EvaluationPlan(16, 1)
    p = planned(budget=Budget.parse("40k-rollouts"), evaluation=few, most_samples=1)
    assert p.sd == pytest.approx(sqrt(0.02**2 + 0.5**2 / 8)) and p.direct and "differences above" in p.why
    assert not planned(budget=Budget.parse("40k-rollouts")).direct


def test_direct_takes_the_n_whose_groups_are_alive():
    hard = {**PROFILE, "right": [0] * 150 + [1] * 70}
    assert plan_pilot(hard, budget=Budget.parse("5k-rollouts"), timing=TIMING).fallback_n == 32
    bare = {k: v for k, v in PROFILE.items() if k != "right"}
    p = plan_pilot(bare, budget=Budget.parse("5k-rollouts"), timing=TIMING)
    assert p.fallback_n == 8 and "no dead-group shares" in p.fallback_why


def test_the_users_own_rate_grid_and_batch():
    p = planned(preset="quick", grid=(2, 8), B=4, rate=given(1e-5, 64))
    assert p.grid == (2, 8) and p.B == 4 and p.rate.lr0 == 1e-5
    with pytest.raises(UserError, match="each at least 2"):
        planned(grid=(1, 2))
    with pytest.raises(UserError, match="unknown preset 'huge'"):
        planned(preset="huge")
    with pytest.raises(UserError, match="at least 1"):
        planned(B=0)


def test_a_measured_rate_spares_the_probe():
    assert not planned(preset="quick", rate=replace(RULE, measured=True)).of_purpose("probe")


def test_trained_runs_never_share_a_seed_with_the_pilot():
    """A trained run at a pilot run's seed and sizes would begin as its replay: no test of the forecast."""
    pilot = {run_seed(s, "pilot", i) for s in range(20) for i in range(5)}
    trained = {run_seed(s, "train", i) for s in range(20) for i in range(5)}
    assert len(pilot) == len(trained) == 100 and not pilot & trained
    a, b = make_runs(3, "train", arms_of((4, 8), 8), 1024, 1)
    assert a.seed == b.seed and a.index == b.index


def test_warmup_is_five_percent_and_ten_at_most():
    assert [warmup(M) for M in (1, 19, 20, 100, 200, 5000)] == [0, 0, 1, 5, 10, 10]


@pytest.mark.parametrize("asked", [{"preset": "quick"}, {"budget": Budget.parse("5k-rollouts")}])
def test_a_pilot_plan_survives_json(asked):
    p = planned(**asked)
    assert PilotPlan.of(json.loads(json.dumps(p.data(), allow_nan=False))) == p


# evaluations by sampling --------------------------------------------------------------------------------------


OWN = {**PROFILE, "select": 30, "audit": 30, "exact": False, "pool": 240}


def own(most_samples=16, **asked) -> PilotPlan:
    """A plan for 60 held-out problems, 4 samples each."""
    return plan_pilot(OWN, preset="quick", evaluation=EvaluationPlan(60, 4), most_samples=most_samples, **asked)


@pytest.mark.parametrize(("held_out", "text"), [
    *((60, text) for text in ("", "400-rollouts", "2M-rollouts", "60s", "40h", "20k-tokens", "1e15flop")),
    *((3000, text) for text in ("5k-rollouts", "100k-rollouts", "2h", "9M-tokens", "1e12flop"))])
def test_evaluations_cost_at_most_a_quarter_of_training_in_the_budgets_unit(text, held_out):
    budget = Budget.parse(text) if text else None
    p = plan_pilot({**OWN, "select": held_out // 2, "audit": held_out // 2}, preset="quick", budget=budget)
    e, unit = p.evaluation, budget.unit if budget else "rollouts"
    for bill in (p.pilot_bill, p.train_bill):
        share = p.evaluating(bill)
        assert share <= 0.25 + 1e-9 or (e.rollouts <= 32 and any("needs at least 32 rollouts" in f for f in p.flags))
    if unit == "rollouts":
        assert p.evaluating(p.train_bill) == pytest.approx(
            p.train_bill.evaluations * e.problems * e.samples / p.train_bill.rollouts)
    if unit == "seconds":
        seconds = p.train_bill.evaluations * e.problems * e.samples / 8000
        assert p.evaluating(p.train_bill) == pytest.approx(seconds / (p.train_bill.seconds - seconds))
    for r in p.of_purpose("pilot"):
        assert len(p.points_of(r)) >= min(4, len(points(r.C, p.unit, 1))), "a curve needs four points"
    assert e.held_out == (held_out if e.problems < held_out else None)
    assert PilotPlan.of(json.loads(json.dumps(p.data(), allow_nan=False))) == p


def test_exact_evaluations_are_never_cut():
    p = planned(preset="quick")
    assert p.evaluation == EvaluationPlan(256) and p.evaluating(p.bill) == 0 and not p.flags
    assert p.points == points(6144, 256) and p.probe_points == points(4096, 256)


def test_early_points_go_before_samples_and_samples_before_problems():
    """A pilot of 96 updates a run: 6 evaluations a run at 1 sample each of P problems, or 5 without the early ones."""
    at = {share: plan_pilot(OWN, preset="quick", evaluation=EvaluationPlan(60, 4), evaluation_share=share, worth=1.0)
          for share in (0.5, 0.27, 0.23, 0.06, 0.01)}
    kept = {share: (len(p.points), p.evaluation.samples, p.evaluation.problems) for share, p in at.items()}
    assert kept == {0.5: (6, 4, 60), 0.27: (5, 4, 60), 0.23: (4, 4, 60), 0.06: (4, 1, 60), 0.01: (4, 1, 32)}
    assert at[0.23].points == at[0.5].points[-4:] and at[0.23].train_points(36864)[0] == at[0.23].points[0]
    best = plan_pilot(OWN, preset="quick", evaluation=EvaluationPlan(60, 4), evaluation_share=0.05, attempts=4)
    assert best.evaluation.samples == 4 and best.evaluation.problems < 60, "best@4 keeps its four samples"


def test_samples_are_added_until_differences_worth_detecting_are_detected():
    p = own(budget=Budget.parse("40h"))
    assert not p.direct and p.evaluation.samples == 7 and p.detectable <= 0.09
    assert any("7 instead of 4 samples" in f for f in p.flags)


@pytest.mark.parametrize("share", [0.06, 0.02])
def test_evaluations_that_are_cut_to_their_share_name_the_share_that_would_do(share):
    asked = {"preset": "quick", "evaluation": EvaluationPlan(60, 4)}
    p = plan_pilot(OWN, evaluation_share=share, **asked)
    said = next(f for f in p.flags if "imprecise" in f)
    assert p.detectable > 0.09 and "--samples" not in said
    named = float(said.partition("--evaluation-share ")[2].split("`")[0])
    better, less = (plan_pilot(OWN, evaluation_share=s, **asked) for s in (named, 0.9 * named))
    assert better.detectable <= 0.09 < less.detectable and not [f for f in better.flags if "imprecise" in f]


def test_a_plan_without_a_pilot_names_the_held_out_set_as_the_limit_and_what_would_do():
    p = own(budget=Budget.parse("40h"), most_samples=4)
    assert p.direct and "no budget pays for a pilot" in p.why and "60 held-out problems" in p.why
    assert "isocost plan --samples 7" in p.why and own(budget=Budget.parse("40h"), most_samples=7).direct is False
    assert own(budget=Budget.parse("40h"), most_samples=6).direct
    held_out = int(p.why.partition("--held-out ")[2].split("`")[0])
    asked = {"preset": "quick", "budget": p.budget, "most_samples": 4}
    assert not plan_pilot(OWN, evaluation=EvaluationPlan(held_out, 4), **asked).direct
    assert plan_pilot(OWN, evaluation=EvaluationPlan(held_out - 2, 4), **asked).direct
    tiny = plan_pilot({**OWN, "pool": 40}, evaluation=EvaluationPlan(10, 1), **asked | {"most_samples": 1})
    assert "a set of at least" in tiny.why and "this one has 50" in tiny.why


@pytest.mark.parametrize(("text", "exact"), [("5k-rollouts", True), ("3s", False), ("9k-tokens", True)])
def test_a_plan_without_a_pilot_names_the_least_budget(text, exact):
    evaluation = EvaluationPlan(256) if exact else EvaluationPlan(256, 4)
    asked = {"preset": "quick", "evaluation": evaluation}
    p = plan_pilot(OWN, budget=Budget.parse(text), **asked)
    assert p.direct and "no budget" not in p.why
    least = Budget.parse(p.why.partition("a budget of at least ")[2].split(", ")[0].rstrip("."))
    assert not plan_pilot(OWN, budget=least, **asked).direct
    assert plan_pilot(OWN, budget=replace(least, amount=0.97 * least.amount), **asked).direct


def test_runs_that_differ_too_much_are_named_as_the_limit():
    p = planned(budget=Budget.parse("40h"), sd=0.06)
    assert p.direct and "runs of one n differ by 0.060 (measured)" in p.why
    seeds = int(p.why.partition("it needs ")[2].split()[0])
    assert detectable(seeds, 5, 0.06) <= 0.09 < detectable(seeds - 1, 5, 0.06)


def test_a_budget_that_pays_for_no_update_says_what_would():
    with pytest.raises(UserError, match="give at least") as told:
        own(budget=Budget.parse("0.001s"))
    least = str(told.value).partition("give at least ")[2]
    assert own(budget=Budget.parse(least)).train_C > 0


def test_a_plan_of_before_is_evaluated_as_it_was():
    p = own(budget=Budget.parse("2M-rollouts"))
    old = p.data()
    old["evaluation"] = {"problems": 60, "samples": 4}
    read = PilotPlan.of(json.loads(json.dumps(old)))
    assert read.evaluation == EvaluationPlan(60, 4, None, None)
    assert read.train_points(36864) == points(36864, p.unit, 1)


# the prescription ---------------------------------------------------------------------------------------------


VALUES = {2: 0.80, 4: 0.90, 8: 0.85, 16: 0.895, 32: 0.7}


def prescription(law, pilot=None, budget=None, **more) -> Plan:
    return prescribe(law, RULE, budget, TIMING, pilot=pilot or planned(preset="quick"), problems=700, **more)


def test_the_best_is_taken_and_compared_with_the_default():
    plan = prescription(FakeLaw(VALUES))
    assert plan.equal == (4, 16) and plan.arm.n == 4 and plan.comparator.n == 8 and plan.claim
    assert [a.C for a in plan.arms] == [40960, 40960] and plan.arm.M == 40960 // 32 and plan.leader is None
    assert plan.arm.lr == pytest.approx(1e-3 * sqrt(32 / 256)) and plan.arm.epochs == pytest.approx(40960 / 4 / 700)
    assert plan.arm.prediction.kind == "prediction" and plan.arm.confidence.kind == "confidence"
    assert all(c.holds for c in plan.checks) and plan.extrapolation == pytest.approx(40960 / 6144)
    assert [r.name for r in plan.runs][:2] == ["train-n4-s0", "train-n8-s0"] and len(plan.runs) == 12
    assert plan.points[-1] == 40960 and not plan.fallback and plan.undecided == ()
    assert plan.chosen == ("n = 4: it has the highest expected reward at 40,960 rollouts a run; n = 16 is equal, "
                           "within 0.01")


def test_a_comparison_states_the_prescribed_arm_minus_the_comparator_and_what_its_seeds_detect():
    plan = prescription(law_of(16))
    noise = SimpleNamespace(sd=lambda C, reward: 0.01 + 0 * C)
    found = comparison(plan, SimpleNamespace(noise=noise, dof=8))
    assert found.difference == pytest.approx(0.95 - VALUES[8]) and (found.sd, found.dof) == (0.01, 8)
    assert found.seeds == plan.seeds and found.detectable == detectable_paired(plan.seeds, 0.01)
    assert detectable_paired(found.needed, 0.01) <= found.difference < detectable_paired(found.needed - 1, 0.01)


def test_a_budget_in_rollouts_takes_an_equal_n_that_is_cheaper_in_time_and_no_budget_in_time_does():
    """0.0005 less is less than a tenth of the margin; n = 16 takes fewer updates, so less time."""
    tied = FakeLaw({**VALUES, 16: 0.8995})
    plan = prescription(tied)
    assert plan.arm.n == 16 and plan.chosen.startswith("n = 16: as good as n = 4 and cheaper in time at ")
    assert prescription(tied, budget=Budget.parse("2h")).arm.n == 4, "where both have cost the same time"
    even = Timing(0.0, 0.0, 0.0002, 0.0, "no overhead")
    assert prescribe(tied, RULE, None, even, pilot=planned(preset="quick")).arm.n == 4


def test_an_n_whose_curve_is_not_known_is_left_out_and_named():
    plan = prescription(FakeLaw({**VALUES, 2: 0.99}, unknown=(2,)))
    assert plan.arm.n == 4 and plan.undecided == (2,)
    assert prescription(FakeLaw(VALUES, unknown=tuple(VALUES))).arm.n == 4, "if none is known, all are compared"


def test_the_comparator_is_the_default_or_the_runner_up_where_the_default_is_prescribed():
    plan = prescription(law_of(32))
    assert (plan.arm.n, plan.comparator.n, plan.comparison, plan.claim) == (32, 8, "n = 8, the common default", True)
    plan = prescription(law_of(8))
    assert (plan.arm.n, plan.comparator.n, plan.claim) == (8, 4, False)
    assert plan.comparison == "n = 4, the runner-up: the default n = 8 is prescribed"
    alone = prescribe(FakeLaw({8: 0.8}), RULE, None, TIMING, pilot=planned(preset="quick"))
    assert (alone.arm.n, alone.comparator.n) == (8, 16)


def test_no_win_is_claimed_over_a_default_that_is_equal_or_undecided():
    equal = prescription(FakeLaw({**VALUES, 8: 0.895}))
    assert (equal.arm.n, equal.comparator.n, equal.claim) == (4, 8, False) and 8 in equal.equal
    open_ = prescription(FakeLaw({**VALUES, 8: 0.88}, spread={8: 0.05}))
    assert (open_.arm.n, open_.comparator.n, open_.claim) == (4, 8, False) and open_.undecided == (8,)
    assert "cannot tell from n = 8" in open_.chosen


def test_the_best_at_the_pilots_end_is_a_third_arm_where_it_is_neither_of_the_two():
    pilot = planned(preset="quick")
    seen = [curve(r, {2: 0.62, 16: 0.61}.get(r.n, 0.6)) for r in pilot.of_purpose("pilot")]
    plan = prescription(FakeLaw(VALUES), pilot, curves=seen)
    assert [(a.role, a.n) for a in plan.arms] == [("prescribed", 4), ("comparator", 8), ("leader", 2)]
    assert plan.leader.n == 2 and plan.comparison == (
        "n = 8, the common default; and n = 2, the best at the pilot's end")
    assert [r.name for r in plan.runs[:3]] == ["train-n4-s0", "train-n8-s0", "train-n2-s0"] and len(plan.runs) == 18
    for best in (4, 8):
        ends = [curve(r, 0.6 + 0.02 * (r.n == best)) for r in pilot.of_purpose("pilot")]
        assert prescription(FakeLaw(VALUES), pilot, curves=ends).leader is None
    flat = FakeLaw(VALUES)
    flat.flat = True
    assert prescription(flat, pilot, curves=seen).leader is None, "where nothing improved, the end ranks nothing"


def test_three_arms_share_what_two_would_have_had():
    budget = Budget.parse("300k-rollouts")
    pilot = planned(preset="quick", budget=budget)
    spent = replace(pilot.pilot_bill, rollouts=150_000)
    two = prescription(FakeLaw(VALUES), pilot, budget, spent=spent)
    seen = [curve(r, 0.6 + 0.02 * (r.n == 2)) for r in pilot.of_purpose("pilot")]
    three = prescription(FakeLaw(VALUES), pilot, budget, spent=spent, curves=seen)
    assert len(two.arms) == 2 and len(three.arms) == 3
    assert abs(3 * three.arm.C - 2 * two.arm.C) <= 3 * pilot.unit
    assert 150_000 - 18 * pilot.unit < three.bill.rollouts <= 150_000


@pytest.mark.parametrize("text", ["10min", "4M-tokens", "2e13flop"])
def test_arms_cost_the_same_in_the_unit_of_the_budget(text):
    """n = 16 and 8, of which n = 16 takes the fewer updates: in time its runs are longer, in other units as long."""
    budget = Budget.parse(text)
    pilot = planned(preset="quick", budget=budget)
    priced = {n: replace(pilot.prices, decode=pilot.prices.decode * (2 if n == 16 else 1)) for n in pilot.grid}
    for prices in ({}, priced):
        plan = prescription(law_of(16), pilot, budget, prices=prices)
        assert (plan.arm.n, plan.comparator.n) == (16, 8)
        costs, sizes = [], []
        for a in plan.arms:
            size = [(a.n, a.B, a.C, 1 + len(pilot.train_points(a.C)))] * plan.seeds
            own = prices.get(a.n, pilot.prices)
            costs.append(own.bill(size, TIMING).of_unit(budget.unit))
            sizes.append(own.bill([(a.n, a.B, pilot.unit, 0)], TIMING).of_unit(budget.unit) * plan.seeds)
        assert 0 <= costs[0] - costs[1] < 1.5 * sizes[1], "the most whole updates that cost no more"
        assert sum(costs) == pytest.approx(plan.bill.of_unit(budget.unit))
        assert sum(costs) <= budget.amount - pilot.pilot_bill.of_unit(budget.unit)
        longer = plan.arm.C > plan.comparator.C, plan.arm.C < plan.comparator.C
        assert longer == ((True, False) if budget.unit == "seconds" else (False, bool(prices)))
        assert {r.n: r.C for r in plan.runs} == {a.n: a.C for a in plan.arms}
        assert Plan.of(json.loads(json.dumps(plan.data(), allow_nan=False))) == plan


def test_the_choice_is_made_at_the_length_that_each_n_can_pay_for():
    """By reward at equal rollouts n = 2 is the best, a little; in time it can pay for half the length."""
    class Rising(FakeLaw):
        def paths(self, n, C, split=1):
            return super().paths(n, C) + 0.1 * np.log2(np.asarray(C) / 10240)

    law, prices = Rising({2: 0.61, 8: 0.6, 32: 0.5}), {}
    pilot = planned(preset="quick", budget=Budget.parse("10min"))
    slow = Timing(0.02, 0.0, 0.0002, 0.05, "")
    by_time = prescribe(law, RULE, pilot.budget, slow, pilot=pilot, prices=prices, spent=pilot.pilot_bill)
    assert (by_time.arm.n, by_time.comparator.n) == (8, 2) and by_time.arm.C > 1.5 * by_time.comparator.C
    assert " at equal seconds, " in by_time.chosen
    rollouts = Budget.parse("600k-rollouts")
    assert prescribe(law, RULE, rollouts, slow, pilot=planned(preset="quick", budget=rollouts)).arm.n == 2


def test_an_n_that_is_behind_at_the_pilots_end_is_prescribed_only_where_its_curve_passes():
    pilot = planned(preset="quick")
    seen = [curve(r, 0.6 - 0.2 * (r.n == 16)) for r in pilot.of_purpose("pilot")]
    unsure = prescription(FakeLaw({**VALUES, 16: 0.93}, spread={16: 0.05}), pilot, curves=seen)
    assert unsure.arm.n == 4
    sure = prescription(FakeLaw({**VALUES, 16: 0.95}, spread={16: 0.01}), pilot, curves=seen)
    assert sure.arm.n == 16
    assert "it is behind n = 4 at the pilot's end and passes it at about 512 rollouts" in sure.chosen


def test_what_the_choice_risks_is_said_in_reward_and_in_the_unit_of_the_budget():
    plan = prescription(FakeLaw({**VALUES, 8: 0.88}, spread={8: 0.05}))
    lost = np.maximum(0.88 + 0.05 * np.linspace(-1.7, 1.7, 200) - 0.9, 0).mean()
    assert plan.risk.reward == pytest.approx(lost, abs=1e-3) and plan.risk.share == pytest.approx(0.0)
    assert plan.risks == f"expected shortfall from the best n: {plan.risk.reward:.3f} of reward"
    dear = replace(plan, risk=replace(plan.risk, share=0.5))
    assert dear.risks.endswith(f", which {0.5 * plan.bill.rollouts / 2:,.0f} rollouts more would make up for")
    assert prescription(None).risks == ""


def test_no_value_is_planned_for_an_n_whose_runs_have_not_risen():
    plan = prescription(FakeLaw({**VALUES, 16: 0.95}, flat=(8,)))
    assert plan.arm.n == 16 and plan.arm.prediction is not None
    assert plan.comparator.n == 8 and (plan.comparator.confidence, plan.comparator.prediction) == (None, None)


def test_a_refusal_falls_back_to_the_best_at_the_pilots_end_and_is_named():
    pilot = planned(preset="quick")
    seen = [curve(r, {2: 0.6, 4: 0.7, 8: 0.65, 16: 0.5, 32: 0.45}[r.n]) for r in pilot.of_purpose("pilot")]
    refused = FakeLaw(VALUES, NotIdentified("the knee was not reached", "four times the rollouts", 4e5),
                      (Flag("short", "stopped before the knee"),))
    plan = prescription(refused, pilot, curves=seen)
    assert plan.arm.n == 4 and plan.equal == (4,) and plan.comparator.n == 8
    assert "law is not identified: the knee was not reached" in plan.fallback
    assert plan.settle == "four times the rollouts"
    assert plan.marginal is None and plan.risk is None and "stopped before the knee" in plan.flags
    assert plan.arm.prediction is not None         # the arm's own curve


def test_a_fallback_is_the_best_where_all_have_cost_the_same():
    """At n B = 16 and 256 a rollout takes 0.3875 and 0.2117 ms: n = 32 is at its end when n = 2 is at 0.546 of it."""
    pilot = planned(preset="quick")
    seen = [curve(r, {2: 0.6, 4: 0.3, 8: 0.3, 16: 0.3, 32: 0.58}[r.n]) for r in pilot.of_purpose("pilot")]
    refused = FakeLaw(VALUES, NotIdentified("the knee was not reached", "four times the rollouts", 4e5))
    by_rollouts = prescription(refused, pilot, Budget(1e9, "rollouts"), curves=seen)
    by_time = prescription(refused, pilot, Budget(1e6, "seconds"), curves=seen)
    assert (by_rollouts.arm.n, by_time.arm.n) == (2, 32)
    assert "(0.600 on the validation split)" in by_rollouts.fallback
    assert "(0.580 on the validation split)" in by_time.fallback
    logs = prescription(refused, replace(pilot, preset="imported"), Budget(1e9, "rollouts"), curves=seen)
    assert "(0.600)" in logs.fallback, "a log has one split"


def test_a_fallback_ignores_diverged_runs_and_other_purposes():
    pilot = planned(preset="quick")
    runs = pilot.of_purpose("pilot")
    seen = [replace(curve(r, 0.9), diverged=True) if r.n == 32 else curve(r, 0.6 + 0.01 * (r.n == 16)) for r in runs]
    seen += [replace(curve(r, 0.95), purpose="edge") for r in runs if r.n == 2]
    assert prescription(None, pilot, curves=seen).arm.n == 16


def test_direct_trains_the_fallback_and_forecasts_nothing():
    pilot = planned(budget=Budget.parse("5k-rollouts"))
    plan = prescription(None, pilot, pilot.budget)
    assert plan.direct and plan.arm.n == 4 and plan.comparator is None and plan.arm.prediction is None
    assert "there was no pilot" in plan.fallback and len(plan.runs) == plan.seeds == 1 and plan.bill.rollouts <= 5000
    assert plan.extrapolation is None and Plan.of(json.loads(json.dumps(plan.data(), allow_nan=False))) == plan


@pytest.mark.parametrize(("n", "text"), [(4, "400-rollouts"), (4, "5k-rollouts"), (4, "2s"), (8, "20k-rollouts"),
                                         (8, "9k-tokens"), (32, "400-rollouts"), (32, "1e11flop")])
def test_direct_takes_any_fallback_against_another_n_that_nothing_ranked(text, n):
    right = {4: PROFILE["right"], 8: [0] * 55 + [2] * 165, 32: [0] * 150 + [1] * 70}[n]
    pilot = plan_pilot({**PROFILE, "right": right}, budget=Budget.parse(text), timing=TIMING)
    assert pilot.direct and pilot.fallback_n == n
    plan = prescription(None, pilot, pilot.budget)
    assert plan.arm.n == n and len(plan.runs) == plan.seeds * len(plan.arms)
    assert plan.bill.of_unit(pilot.budget.unit) <= pilot.budget.amount
    if plan.comparator:
        assert plan.comparator.n == (16 if n == 8 else 8)
        assert ("the runner-up" in plan.comparison) == (n == 8) == (not plan.claim)
    assert any("nothing is forecast" in f for f in plan.flags)
    assert Plan.of(json.loads(json.dumps(plan.data(), allow_nan=False))) == plan


def test_where_every_run_diverged_the_profile_decides():
    pilot = planned(preset="quick")
    seen = [replace(curve(r, 0.1), diverged=True) for r in pilot.of_purpose("pilot")]
    refused = FakeLaw({}, NotIdentified("every run diverged", "a lower rate", 4e5))
    plan = prescription(refused, pilot, curves=seen)
    assert (plan.arm.n, plan.comparator.n) == (pilot.fallback_n, 8) == (4, 8)


def test_where_nothing_improved_measurably_the_best_at_the_end_is_not_taken():
    pilot = planned(preset="quick")
    seen = [curve(r, 0.4 + 0.001 * (r.n == 16)) for r in pilot.of_purpose("pilot")]
    flat = FakeLaw(VALUES, NotIdentified("no n improved measurably", "a longer pilot", 4e5))
    flat.flat = True
    plan = prescription(flat, pilot, curves=seen)
    assert plan.arm.n == pilot.fallback_n == 4
    assert plan.fallback.startswith("no n improved measurably in the pilot, so its end does not rank n. By the "
                                    "profile: n = 4")


@pytest.mark.parametrize("text", ["60k-rollouts", "120s"])
def test_what_is_left_of_the_budget_is_what_training_may_spend(text):
    budget = Budget.parse(text)
    pilot = planned(preset="quick", budget=budget)
    plan = prescription(FakeLaw(VALUES), pilot, budget)
    spent, train = pilot.pilot_bill.of_unit(budget.unit), plan.bill.of_unit(budget.unit)
    assert spent + train <= budget.amount
    bigger = plan.arm.C + whole(pilot.grid, pilot.B)
    evaluations = 1 + len(pilot.train_points(bigger))
    more = pilot.prices.bill([(plan.arm.n, plan.arm.B, bigger, evaluations)] * plan.seeds, TIMING)
    assert plan.arm.C == 8 * pilot.C or spent + 2 * more.of_unit(budget.unit) > budget.amount


def test_a_pilot_dearer_than_planned_leaves_less_and_is_reported():
    budget = Budget.parse("60k-rollouts")
    pilot = planned(preset="quick", budget=budget)
    dear = replace(pilot.pilot_bill, rollouts=40_000)
    plan = prescription(FakeLaw(VALUES), pilot, budget, spent=dear)
    assert plan.bill.rollouts <= 20_000
    assert [c.name for c in plan.checks if not c.holds] == ["pilot_share"]


def test_what_does_not_train_runs_as_long_as_the_pilots_is_refused_with_what_would():
    """All but 1000 rollouts are spent: k runs of C rollouts take k C, so the budget has to be that much larger."""
    budget = Budget.parse("60k-rollouts")
    pilot = planned(preset="quick", budget=budget)
    dear = replace(pilot.pilot_bill, rollouts=59_000)
    many = 2 * pilot.train_seeds
    enough = ceil((59_000 + many * pilot.C) / 100) * 100
    with pytest.raises(UserError, match=f"spent 59,000 rollouts of 60,000 rollouts.*{many} runs as long as its own of "
                                        f"n = 4, {pilot.C:,} rollouts.*--budget of {enough:,} rollouts would"):
        prescription(FakeLaw(VALUES), pilot, budget, spent=dear)
    later = Budget(enough, "rollouts")
    assert prescription(FakeLaw(VALUES), replace(pilot, budget=later), later, spent=dear).arm.C == pilot.C


def test_a_pilot_is_extended_by_longer_runs_and_more_of_them():
    p = planned(preset="quick", rounds=False)
    longer = p.extended({4: 4 * p.C - 100}, {8: 2})
    by = {n: [r for r in longer.of_purpose("pilot") if r.n == n] for n in p.grid}
    assert {r.C for r in by[4]} == {4 * p.C} and {r.C for n in (2, 8, 16, 32) for r in by[n]} == {p.C}
    assert [r.index for r in by[8]] == [0, 1, 2, 3, 4] and len({r.seed for r in by[8]}) == 5
    assert {r.warmup for r in by[4]} == {warmup(p.C // (4 * p.B))}, "a run that goes on has warmed up"
    assert longer.points_of(by[2][0]) == p.points and longer.points_of(by[4][0])[:len(p.points)] == p.points
    assert longer.pilot_bill.rollouts == p.pilot_bill.rollouts + 3 * 3 * p.C + 2 * p.C
    assert {r.name for r in p.runs} < {r.name for r in longer.runs} and longer.C == 4 * p.C
    assert PilotPlan.of(json.loads(json.dumps(longer.data()))) == longer
    again = longer.extended({4: 8 * p.C}, {4: 1})
    assert {(r.C, r.warmup) for r in again.of_purpose("pilot") if r.n == 4} == {(8 * p.C, by[4][0].warmup)}


@pytest.mark.parametrize("budget", ["250k-rollouts", "3M-rollouts", "2h"])
def test_a_new_budget_plans_training_as_it_would_have_been_planned(budget):
    """The same budget changes nothing, at the same prices; a larger one buys seeds where a forecast ends."""
    p = planned(preset="quick", budget=Budget.parse(budget))
    assert not p.direct
    again = p.funded(Budget.parse(budget))
    assert again == p
    rich = p.funded(Budget.parse("1G-rollouts"))
    assert rich.train_C == 8 * p.C and rich.train_seeds == 6 and rich.runs == p.runs
    assert rich.train_bill.rollouts == 2 * 6 * 8 * p.C and rich.funded(Budget.parse(budget)) == p
    poor = p.funded(Budget.parse("1-rollouts"))
    assert poor.train_seeds == 3 and poor.train_C == p.unit
    assert p.repriced(p.prices, p.timing) == p


def test_an_n_that_joins_the_grid_is_as_long_as_the_others_and_moves_no_evaluation():
    p = planned(preset="quick")
    wider = p.extended({}, {64: 3})
    assert wider.grid == (2, 4, 8, 16, 32, 64) and wider.unit == 512
    assert [r.C for r in wider.of_purpose("pilot") if r.n == 64] == [6144] * 3
    assert all(wider.points_of(r) == p.points for r in wider.of_purpose("pilot"))
    sees = wider.extended({}, dict.fromkeys(wider.grid, 9))
    assert sees.detectable < 0.6 * p.detectable and f"two n: {sees.detectable:.3f} (80% power" in sees.why


def test_a_plan_reaches_as_far_as_its_own_arms_allow():
    """n = 16 at four times the others' length says nothing of n = 4 beyond 8 times what n = 4 ran."""
    budget = Budget.parse("5M-rollouts")
    pilot = replace(planned(preset="quick").extended({16: 4 * 6144}, {}), budget=budget)
    plan = prescription(law_of(4), pilot, budget)
    assert {a.n for a in plan.arms} == {4, 8} and plan.arm.C == 8 * 6144 and plan.extrapolation == 8
    assert any("are left" in flag for flag in plan.flags)
    longer = prescription(law_of(16), pilot, budget)
    assert longer.arm.n == 16 and longer.arm.C == 8 * 4 * 6144 and longer.extrapolation == 8
    short = replace(pilot.pilot_bill, rollouts=5_000_000 - 8 * 20_000)
    with pytest.raises(UserError, match="n = 16, 24,576 rollouts"):
        prescription(law_of(16), pilot, budget, spent=short)


@pytest.mark.parametrize(("longer", "seeds", "named"), [
    ({5: 10**5}, {}, "n = 5 has no pilot runs"), ({4: 6144}, {}, "more than that, got 6,144"),
    ({}, {8: 0}, "cannot add 0 runs"), ({}, {1: 3}, "at least 2")])
def test_what_cannot_be_added_to_a_pilot_is_named(longer, seeds, named):
    with pytest.raises(UserError, match=named):
        planned(preset="quick").extended(longer, seeds)


def test_extrapolation_in_epochs_is_flagged():
    pilot = planned(preset="quick")
    seen = [curve(r, 0.7) for r in pilot.of_purpose("pilot")]
    told = prescription(law_of(2), pilot, curves=seen)
    assert told.arm.epochs == pytest.approx(40960 / 2 / 700) and told.pilot_epochs == pytest.approx(6144 / 2 / 700)
    assert any("extrapolates in epochs" in f for f in told.flags)
    quiet = prescription(law_of(16), pilot, curves=seen)
    assert not any("extrapolates in epochs" in f for f in quiet.flags)


def test_what_twice_the_budget_buys():
    found = prescription(FakeLaw(VALUES)).marginal
    assert (found.C, found.n, found.doubled_n) == (40960, 4, 4) and found.gain == pytest.approx(0.02)


def test_a_plan_survives_json():
    plan = prescription(FakeLaw(VALUES, flags=(Flag("ties", "two are tied"),)))
    again = Plan.of(json.loads(json.dumps(plan.data(), allow_nan=False)))
    assert again == plan and again.data() == plan.data()


# caps of runs in the budget's unit ---------------------------------------------------------------------------------

DIALOGUES = {**PROFILE, "cost": {"rollouts": 100, "prefill": 600, "decode": 300, "env_steps": 500}}     # 5 a rollout


def caps_of(runs):
    return [r.cap and r.cap["env-steps"] for r in runs]


@pytest.fixture(scope="module")
def stepped() -> PilotPlan:
    return plan_pilot(DIALOGUES, timing=TIMING, preset="quick", budget=Budget.parse("2M-env-steps")).capped()


def test_a_pilot_planned_in_environment_steps_caps_its_runs_at_a_third_of_them(stepped):
    assert not stepped.direct and sum(caps_of(stepped.runs)) == pytest.approx(2e6 / 3, rel=1e-4)
    assert stepped.pilot_bill.env_steps <= 2e6 / 3
    by_length = {round(cap / r.C, 3) for r, cap in zip(stepped.runs, caps_of(stepped.runs), strict=True)}
    assert len(by_length) == 1 and min(by_length) >= 5.0        # in proportion to what is expected, and at least that
    assert PilotPlan.of(json.loads(json.dumps(stepped.data()))) == stepped
    times = f"if it costs more than {min(by_length) / 5:.3g} times what is expected"
    assert stepped.shares.startswith("a run ends at its share of the budget in environment steps")
    assert stepped.shares.endswith(times) and not planned(preset="quick").shares


@pytest.mark.parametrize("text", ["", "400k-rollouts", "2h", "1e15flop"])
def test_runs_of_other_budgets_have_no_cap_and_the_records_that_they_had(text):
    p = plan_pilot(DIALOGUES, timing=TIMING, preset="quick", budget=Budget.parse(text) if text else None)
    assert p.capped() == p and all("cap" not in r for r in p.data()["runs"])
    made = prescribe(FakeLaw(VALUES), RULE, p.budget, TIMING, pilot=p, caps=True)
    assert made == prescribe(FakeLaw(VALUES), RULE, p.budget, TIMING, pilot=p)
    assert all("cap" not in r for r in made.data()["runs"])


def test_runs_in_tokens_are_capped_in_tokens():
    p = plan_pilot(DIALOGUES, timing=TIMING, preset="quick", budget=Budget.parse("2M-tokens")).capped()
    assert {tuple(r.cap) for r in p.runs} == {("tokens",)}


def test_added_runs_have_a_cap_in_proportion_and_at_least_their_expected_cost(stepped):
    n = stepped.grid[0]
    before = {r.name: r for r in stepped.runs}
    more = stepped.extended({n: 4 * stepped.C}, {n: 1})
    for r in more.runs:
        old = before.get(r.name)
        if old is not None and old.C == r.C:
            assert r.cap == old.cap
        else:
            like = old or before[f"pilot-n{n}-s0"]
            assert r.cap["env-steps"] == pytest.approx(like.cap["env-steps"] * r.C / like.C, rel=1e-4)
    dear = stepped.repriced(replace(stepped.prices, env_steps=50.0), stepped.timing).extended({n: 4 * stepped.C}, {})
    grown = next(r for r in dear.runs if r.name == f"pilot-n{n}-s0")
    assert grown.cap["env-steps"] == pytest.approx(50.0 * grown.C, rel=1e-4)


def test_training_shares_what_is_left_equally_and_is_planned_for_a_tenth_less(stepped):
    law = FakeLaw(VALUES)
    spent = replace(stepped.pilot_bill, env_steps=6.5e5)
    free = prescribe(law, RULE, stepped.budget, TIMING, pilot=stepped, spent=spent)
    made = prescribe(law, RULE, stepped.budget, TIMING, pilot=stepped, spent=spent, caps=True)
    assert caps_of(made.runs) == pytest.approx([1.35e6 / len(made.runs)] * len(made.runs), rel=1e-4)
    left_over = caps_of(made.runs)[0] / (5 * made.arm.C)        # what a rollout may cost, over what it is expected to
    assert 1.1 <= left_over < 1.1 * (1 + stepped.unit / made.arm.C) and made.arm.C < free.arm.C
    assert all(c.holds for c in made.checks) and caps_of(free.runs) == [None] * len(free.runs)
    each = f"{caps_of(made.runs)[0] / made.arm.C:.3g} environment steps on average: it is then short of the forecast"
    assert any(each in f for f in made.flags)
    assert Plan.of(json.loads(json.dumps(made.data()))) == made
    assert replace(made, runs=free.runs) != made and "cap" in made.data()["runs"][0]


def test_a_plan_without_a_pilot_divides_its_whole_budget():
    p = plan_pilot(DIALOGUES, timing=TIMING, preset="quick", budget=Budget.parse("20k-env-steps"))
    made = prescribe(None, RULE, p.budget, TIMING, pilot=p, caps=True)
    assert p.direct and sum(caps_of(made.runs)) == pytest.approx(2e4, rel=1e-4)
    assert p.train_C == made.arm.C and any("a run ends at its share of the budget" in f for f in made.flags)


@pytest.mark.parametrize(("reached", "length"), [(1.0, 1.0), (0.999, 1.0), (0.5, 0.5)])
def test_a_pilot_that_ended_at_its_share_is_extrapolated_from_what_it_reached(stepped, reached, length):
    seen = [replace(c, C=c.C * reached) for c in (curve(r, 0.8) for r in stepped.of_purpose("pilot"))]
    made = prescribe(FakeLaw(VALUES), RULE, stepped.budget, TIMING, pilot=stepped, curves=seen, caps=True)
    assert made.pilot_C == pytest.approx(length * stepped.C, abs=1)
    assert made.extrapolation == pytest.approx(made.arm.C / made.pilot_C)
