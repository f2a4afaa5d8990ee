"""What a pilot spends after its grid: how the n stand at its end, the check of the rate, and continued runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from isocost.laws.curves import Curve, multiplier
from isocost.planner.budget import Budget, Timing
from isocost.planner.evaluation import points
from isocost.planner.training.afford import plan_pilot
from isocost.planner.training.focus import better_rate, focused
from isocost.planner.training.learning_rate import NOISE, given
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescribe import prescribe
from isocost.planner.training.standing import ahead, difference, ends, means
from isocost.report.records import ReportRecords, Run
from isocost.runs.arm import Arm
from isocost.steps.training.limits import of_limit

TIMING = Timing(0.003, 0.0, 0.0002, 0.05, "for the test")
PROFILE = {
    "samples": 16, "right": [3] * 100 + [8] * 100 + [0] * 20, "parameters": 1e5, "select": 128, "audit": 128,
    "exact": True, "rate": {"rollouts_per_second": 8000.0}, "cost": {"rollouts": 100, "prefill": 600, "decode": 300},
}
C = 6144        # rollouts of a run of the grid of a quick pilot
CHECK = 10240   # and of those that check a rate
BEST = {2: 0.6, 4: 0.7, 8: 0.697, 16: 0.694, 32: 0.4}       # n = 2 and 32 are behind by more than 0.008


def planned(**asked) -> PilotPlan:
    return plan_pilot(PROFILE, timing=TIMING, preset="quick", **asked)


def curve(run, end, **changes) -> Curve:
    """A run that rises evenly from 0.4 to `end` at the grid's end and is level from there on; its seed moves it by up
    to 0.005 either way."""
    at = np.array([0.0, *points(min(run.C, C), 512), *(x for x in points(run.C, 512) if x > C)])
    y = 0.4 + (end + 0.005 * (run.index % 3 - 1) - 0.4) * np.minimum(at / C, 1.0)
    made = Curve(run.name, Arm(n=run.n, B=run.B, lr=1e-3, multiplier=run.multiplier), run.seed, at, y, y, at, at, False,
                 run.purpose)
    return replace(made, **changes)


def seen(pilot, ends=BEST, rates=None):
    """The pilot's runs, with the end of each n, and what each multiplier adds to it."""
    return [curve(r, ends[r.n] + (rates or {}).get(r.multiplier, 0.0) * (r.purpose != "probe")) for r in pilot.runs]


def flat(n, rewards, end=1024.0):
    at = np.array([0.0, end / 2, end])
    rows = [np.array([0.4, y / 2, y]) for y in rewards]
    return [Curve(f"pilot-n{n}-s{i}", Arm(n=n, B=8, lr=1e-3), i, at, y, y, at, at, False, "pilot") for i,
            y in enumerate(rows)]


# how the n stand ----------------------------------------------------------------------------------------------


def test_n_are_compared_where_their_runs_have_cost_the_same():
    """n = 2 costs twice as much a rollout: at its half it has cost what n = 8 has at its end."""
    curves = flat(2, [0.6]) + flat(8, [0.5])
    assert ends(curves, {2: 2.0, 8: 1.0}) == {2: 512.0, 8: 1024.0} and means(curves, {2: 2.0, 8: 1.0})[2] == 0.3
    assert ends(curves, {2: 1.0, 8: 1.0}) == {2: 1024.0, 8: 1024.0} == ends(curves, {2: 0.0, 8: 0.0})
    assert ends(flat(2, [0.6], 512.0) + flat(8, [0.5]), {2: 1.0, 8: 1.0}) == {2: 512.0, 8: 512.0}


def test_an_n_is_ahead_by_two_standard_errors_of_the_difference():
    """Two runs each, 0.02 apart: a standard deviation of 0.0141, so the difference has a standard error of 0.0141."""
    assert difference([0.6, 0.62], [0.5, 0.52]) == pytest.approx((0.1, 0.02 / np.sqrt(2)))
    assert difference([0.6], [0.5]) == pytest.approx((0.1, NOISE * np.sqrt(2)))
    one = {2: 1.0, 8: 1.0}
    assert ahead(flat(2, [0.5, 0.52]) + flat(8, [0.529, 0.549]), one) == {2: [8], 8: []}
    assert ahead(flat(2, [0.529, 0.549]) + flat(8, [0.5, 0.52]), one) == {2: [], 8: [2]}
    assert ahead(flat(2, [0.5, 0.52]) + flat(8, [0.527, 0.547]), one) == {2: [], 8: []}
    dear = {2: 2.0, 8: 1.0}
    assert ahead(flat(2, [0.6, 0.62]) + flat(8, [0.5, 0.52]), dear) == {2: [8], 8: []}, "by cost it is the other way"


def test_each_pair_is_compared_at_its_own_end():
    """n = 2 stopped early, where n = 8 and 16 are level; at their own end n = 16 is ahead of n = 8."""
    short = flat(2, [0.3, 0.32], 128.0)
    found = ahead(short + flat(8, [0.5, 0.52]) + flat(16, [0.7, 0.72]), {2: 1.0, 8: 1.0, 16: 1.0})
    assert found[8] == [16]


# the check of the rate ----------------------------------------------------------------------------------------


def test_the_rate_of_the_leading_n_is_checked_below_and_above_with_the_seeds_of_the_grid_and_longer_runs():
    """Three runs go on from 6,144 to 10,240 rollouts and six are new: 0.8 of a grid of 15 runs of 6,144."""
    pilot = planned()
    once = focused(pilot, seen(pilot))
    added = once.runs[len(pilot.runs):]
    own = [r for r in pilot.of_purpose("pilot") if r.n == 4]
    assert once.runs[:len(pilot.runs)] == tuple(replace(r, C=CHECK, first_C=C) if r in own else r for r in pilot.runs)
    assert sorted(r.name for r in added) == sorted(f"edge-n4-x{x}-s{i}" for x in ("0.5", "2") for i in range(3))
    assert {(r.C, r.first_C) for r in added} == {(CHECK, C)} and once.C == CHECK
    assert {once.points_of(r) for r in once.runs if r.C == CHECK} == {once.points_of(added[0])}, "evaluated alike"
    assert {(r.index, r.seed) for r in added} == {(r.index, r.seed) for r in own}
    assert once.reserve == pytest.approx(1.35 - 0.8) and once.rates == ()
    assert once.pilot_bill.rollouts == pytest.approx(pilot.pilot_bill.rollouts, abs=1)
    assert once.why.endswith("; then the rate of n = 4 at x0.5 and x2")


@pytest.mark.parametrize(("train_C", "longer"), [(16384, 8192), (10240, C), (40960, CHECK)])
def test_a_rate_is_checked_with_runs_of_at_most_half_of_training_and_no_shorter_than_the_grids(train_C, longer):
    pilot = replace(planned(), train_C=train_C)
    pilot = pilot.repriced(pilot.prices, pilot.timing)
    once = focused(pilot, seen(pilot))
    assert {r.C for r in once.runs if r.n == 4 and r.purpose != "probe"} == {longer} == {once.C}
    assert {r.first_C for r in once.of_purpose("edge")} == {None if longer == C else C}


def test_a_rate_that_no_probe_chose_is_the_users_and_is_not_checked():
    pilot = planned(rate=replace(given(1e-3, 256), measured=True))
    once = focused(pilot, seen(pilot))
    assert not once.of_purpose("edge") and not once.reserve and once.C > C


def test_where_the_reserve_does_not_pay_for_the_check_runs_are_continued():
    pilot = replace(planned(), reserve=0.79)
    once = focused(pilot, seen(pilot))
    assert not once.of_purpose("edge") and not once.reserve and once.C > C


def checked(rates, fallen=0):
    """(the pilot after its check, its curves), with `fallen` of the runs at twice the rate fallen to 0.1. 0.55 of the
    grid, 50,688 rollouts, are left."""
    pilot = planned()
    pilot = focused(pilot, seen(pilot))
    curves = seen(pilot, rates=rates)
    fell = [r.name for r in pilot.of_purpose("edge") if r.multiplier == 2.0][:fallen]
    return pilot, [replace(c, diverged=True, select=np.linspace(0.4, 0.1, len(c.C))) if c.run in fell else c
                   for c in curves]


@pytest.mark.parametrize(("rates", "fallen", "better"), [
    ({2.0: 0.02, 0.5: -0.02}, 0, 2.0), ({2.0: -0.02, 0.5: 0.02}, 0, 0.5), ({2.0: -0.02, 0.5: -0.02}, 0, 1.0),
    ({}, 0, 1.0),                               # level: the rule's
    ({2.0: 0.05, 0.5: -0.02}, 1, 1.0),          # one of three fell: the mean of 0.75, 0.75 and 0.1 is the least
])
def test_the_better_rate_has_the_highest_mean_and_a_fallen_run_counts(rates, fallen, better):
    pilot, curves = checked(rates, fallen)
    assert better_rate(curves, 4) == better
    done = focused(pilot, curves)
    assert done.rates == (((4, better), (8, better)) if better != 1.0 else ()) and done.rate_of(4) == better
    assert done.rate_of(16) == 1.0, "it has no runs at another"


@pytest.mark.parametrize("evaluated", [1, -1])
def test_a_run_that_ended_early_because_it_fell_counts_as_fallen_where_the_others_end(evaluated):
    """Its last reward, before it fell, is that of a good run; it says nothing of where it went."""
    pilot, curves = checked({2.0: 0.02, 0.5: -0.02})
    first = next(c for c in curves if c.purpose == "edge" and multiplier(c) == 2.0)
    short = replace(first, diverged=True, **{k: getattr(first, k)[:evaluated] for k in (
        "C", "select", "audit", "seconds", "epochs")})
    fell = [short if c is first else c for c in curves]
    assert better_rate(fell, 4) == 1.0 and focused(pilot, fell).rates == ()


# runs that are continued --------------------------------------------------------------------------------------


def continued(done):
    """(purpose, n, multiplier) -> rollouts, of the runs that are longer than the grid's."""
    return {(r.purpose, r.n, r.multiplier): r.C for r in done.runs if r.first_C}


def test_the_best_half_that_is_not_behind_is_continued_to_one_length_as_far_as_the_reserve_pays():
    """n = 4, 8 and 16 of five. Of 50,688 rollouts, in units of 256: 6,912 more for each of n = 8 and 16, and 2,816 for
    n = 4, which is ahead of them by its check."""
    pilot, curves = checked({2.0: -0.02, 0.5: -0.02})
    done = focused(pilot, curves)
    assert continued(done) == {("pilot", n, 1.0): 13056 for n in (4, 8, 16)} | {("edge", 4, x): CHECK for x in (0.5, 2)}
    assert {r.first_C for r in done.runs if r.first_C} == {C} and not done.reserve and done.C == 13056
    assert {r.C for r in done.runs if not r.first_C and r.purpose != "probe"} == {C}
    assert {r.n: r.C for r in done.arm_runs} == {2: C, 4: 13056, 8: 13056, 16: 13056, 32: C}
    assert done.pilot_bill.rollouts <= planned().pilot_bill.rollouts
    assert done.pilot_bill.rollouts + 9 * pilot.unit > planned().pilot_bill.rollouts
    assert done.why.endswith("; then n = 4, 8, 16 to 13,056 rollouts") and done.rates == ()


@pytest.mark.parametrize(("reserve", "ns", "longest"), [
    (0.7, (4, 8, 16), 10496),       # one unit beyond the check, for three n
    (0.69, (4, 8), 15616), (0.37, (4, 8), 10752), (0.351, (4, 8), 10496), (0.34, (4,), CHECK), (0.0, (4,), CHECK),
])
def test_where_another_rate_is_better_the_kept_n_go_on_at_it_from_scratch_fewer_if_not_beyond_the_check(
        reserve, ns, longest):
    pilot, curves = checked({2.0: 0.02, 0.5: -0.02})
    done = focused(replace(pilot, reserve=reserve), curves)
    assert done.rates == tuple((n, 2.0) for n in ns) and (done.reserve, done.C) == (0.0, longest)
    at = {("edge", n, 2.0): longest for n in ns}
    assert continued(done) == at | {("edge", 4, 0.5): CHECK, ("pilot", 4, 1.0): CHECK}
    assert {r.n: r.C for r in done.arm_runs} == {2: C, 8: C, 16: C, 32: C} | dict.fromkeys(ns, longest)
    new = [r for r in done.runs if r not in pilot.runs and r.n != 4]
    grid = {(r.n, r.index): r.seed for r in pilot.of_purpose("pilot")}
    assert {(r.n, r.index): r.seed for r in new} == {k: v for k, v in grid.items() if k[0] in ns[1:]}
    said = f"; then n = {', '.join(map(str, ns))} to {longest:,} rollouts at x2 the rate"
    assert done.why.endswith(said if len(ns) > 1 else "; then the rate of n = 4 at x0.5 and x2")
    assert PilotPlan.of(json.loads(json.dumps(done.data(), allow_nan=False))) == done


@pytest.mark.parametrize(("ends", "kept"), [
    ({2: 0.7, 4: 0.701, 8: 0.702, 16: 0.703, 32: 0.704}, {8, 16, 32}),      # none is behind: the best half
    ({2: 0.3, 4: 0.7, 8: 0.5, 16: 0.4, 32: 0.2}, {4, 8}),                   # all are behind one: still two
    ({2: 0.3, 4: 0.7, 8: 0.69, 16: 0.4, 32: 0.2}, {4, 8}),
])
def test_successive_halving_keeps_the_best_half_and_at_least_two(ends, kept):
    pilot = planned(rate=replace(given(1e-3, 256), measured=True))
    assert {r.n for r in focused(pilot, seen(pilot, ends)).runs if r.first_C} == kept


@pytest.mark.parametrize("text", ["400k-rollouts", "10min", "5M-tokens", "1e13flop"])
def test_what_is_added_costs_at_most_the_reserve_in_the_unit_of_the_budget(text):
    budget = Budget.parse(text)
    pilot = planned(budget=budget)
    assert not pilot.direct and pilot.reserve == 1.35
    grid, rest = pilot.grid_bill.of_unit(budget.unit), 0.0
    for _ in range(2):
        then = focused(pilot, seen(pilot))
        spent = replace(then, reserve=0.0).repriced(then.prices, then.timing).pilot_bill.of_unit(budget.unit)
        before = replace(pilot, reserve=0.0).repriced(pilot.prices, pilot.timing).pilot_bill.of_unit(budget.unit)
        rest += (spent - before) / grid
        pilot = then
    assert 1.1 < rest <= 1.35 * (1 + 1e-9) and pilot.grid_bill.of_unit(budget.unit) == pytest.approx(grid)
    assert pilot.C > pilot.of_purpose("edge")[0].C > min(pilot.lengths.values())


def test_runs_are_continued_no_further_than_half_of_training_and_a_reserve_that_pays_for_nothing_is_given_up():
    pilot = replace(planned(rate=replace(given(1e-3, 256), measured=True)), reserve=100.0)
    assert pilot.train_C // 2 == focused(pilot, seen(pilot)).C
    poor = replace(pilot, reserve=0.01)
    done = focused(poor, seen(poor))
    assert done.runs == poor.runs and not done.reserve
    assert done.pilot_bill.rollouts == poor.grid_bill.rollouts, "what is not spent is not in the bill"


def test_a_grid_of_which_one_n_is_left_adds_nothing():
    pilot = planned()
    curves = [replace(c, diverged=c.arm["n"] != 8) for c in seen(pilot)]
    done = focused(pilot, curves)
    assert done.runs == pilot.runs and not done.reserve


def test_the_same_records_give_the_same_decision():
    pilot = planned(budget=Budget.parse("10min"))
    read = PilotPlan.of(json.loads(json.dumps(pilot.data())))
    curves = seen(pilot)
    assert focused(read, list(reversed(curves))) == focused(pilot, curves) == focused(pilot, curves)
    once = focused(pilot, curves)
    again = PilotPlan.of(json.loads(json.dumps(once.data())))
    assert again == once and again.reserve == once.reserve
    assert focused(again, seen(once)) == focused(once, seen(once))


# what follows from another rate -------------------------------------------------------------------------------


def test_runs_at_the_better_rate_take_the_place_of_the_grids():
    pilot, curves = checked({2.0: 0.02, 0.5: -0.02})
    done = focused(pilot, curves)
    placed = {c.run: (c.purpose, multiplier(c)) for c in of_limit(seen(done), done.at(None))}
    assert placed["edge-n4-x2-s0"] == ("pilot", 1.0) and placed["pilot-n4-s0"] == ("edge", 0.5)
    assert placed["edge-n8-x2-s0"] == ("pilot", 1.0) and placed["pilot-n8-s0"] == ("edge", 0.5)
    assert placed["edge-n4-x0.5-s0"] == ("edge", 0.25) and placed["pilot-n16-s0"] == ("edge", 0.5)
    assert placed["probe-n2-x4-s0"] == ("probe", 4.0)
    arms = {run for run, (purpose, _) in placed.items() if purpose == "pilot"}
    assert {r.name for r in done.arm_runs if r.n in dict(done.rates)} == arms, "arms of one law have one rule"
    before = of_limit(curves, pilot.at(None))
    assert [(c.run, c.purpose, multiplier(c)) for c in before] == [(c.run, c.purpose, multiplier(c)) for c in curves]


def test_an_arm_is_trained_at_its_better_rate_up_to_the_ceiling():
    done = focused(*checked({2.0: 0.02, 0.5: -0.02}))
    rule = given(1e-3, 256)
    plan = prescribe(None, rule, None, TIMING, pilot=done, curves=of_limit(seen(done), done.at(None)))
    assert plan.arm.n == 4 and plan.arm.lr == pytest.approx(2 * rule.at(32))
    assert plan.comparator.lr == pytest.approx(2 * rule.at(64))
    assert [r.name for r in plan.runs[:2]] == ["train-n4-x2-s0", "train-n8-x2-s0"]
    assert plan.runs[0].lr(rule) == plan.arm.lr
    low = replace(rule, ceilings=((32, 1.5 * rule.at(32)), (64, 1.0)))
    assert prescribe(None, low, None, TIMING, pilot=done, curves=of_limit(seen(done), done.at(None))).arm.lr == (
        pytest.approx(1.5 * rule.at(32)))


def test_a_report_shows_the_runs_at_the_better_rate_as_those_of_the_grid(tmp_path):
    def record(name, purpose, n, multiplier) -> Run:
        return Run(tmp_path / name, {"name": name, "purpose": purpose, "arm": {"n": n, "multiplier": multiplier}})

    runs = (record("a", "pilot", 4, 1.0), record("b", "edge", 4, 2.0), record("c", "edge", 4, 0.5),
            record("d", "pilot", 8, 1.0), record("e", "probe", 4, 2.0), record("f", "train", 4, 2.0))
    study = ReportRecords(tmp_path, {"pilot": {"rates": [[4, 2.0]]}}, runs)
    assert [r.name for r in study.of("pilot")] == ["b"] and [r.name for r in study.of("edge")] == ["a", "c", "d"]
    assert [r.name for r in study.of("probe", "train")] == ["e", "f"]
    before = ReportRecords(tmp_path, {"pilot": {}}, runs)
    assert [r.name for r in before.of("pilot")] == ["a", "d"] and [r.name for r in before.of("edge")] == ["b", "c"]


def test_a_pilot_is_extended_at_the_better_rate():
    done = focused(*checked({2.0: 0.02, 0.5: -0.02}))
    more = done.extended({4: 20480}, {4: 1})
    assert {r.name: r.C for r in more.arm_runs if r.n == 4} == {f"edge-n4-x2-s{i}": 20480 for i in range(4)}
    assert {r.C for r in more.of_purpose("pilot") if r.n == 4} == {CHECK}


# records from before ------------------------------------------------------------------------------------------


def test_a_pilot_that_was_planned_whole_reads_as_it_was_and_has_nothing_to_add():
    whole = planned(rounds=False)
    old = json.loads(json.dumps(whole.data()))
    assert not {"reserve", "rates"} & set(old)
    read = PilotPlan.of(old)
    assert (read.reserve, read.rates) == (0.0, ()) and read == whole and json.loads(json.dumps(read.data())) == old
    assert read.arm_runs == read.of_purpose("pilot"), "a law is fitted to the grid, its edges apart"
    assert [c.purpose for c in of_limit(seen(read), read.at(None))] == [r.purpose for r in read.runs]
    assert {r.C for r in read.of_purpose("edge")} == {read.C} and read.C == 10240
