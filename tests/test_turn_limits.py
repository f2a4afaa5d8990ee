"""Turn limits: what a profile says of each, the pilot that compares them, the choice, and a whole study."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import t as student_t

from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.laws.curves import Curve, curves
from isocost.planner import audit as audits
from isocost.planner import forecast as forecasts
from isocost.planner.budget import Budget, Prices, Timing, Usage
from isocost.planner.training.afford import plan_pilot
from isocost.planner.training.builtin import PRESETS
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescribe import prescribe
from isocost.planner.training.prescription import Plan
from isocost.planner.training.study_runs import PlannedRun, Preset
from isocost.planner.training.turn_limits import (
    LimitChoice,
    TurnLimit,
    bill_of,
    candidates,
    choose,
    extrapolated,
    limit_of,
    reward_at,
)
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.settings import of_world, setting_with
from isocost.steps.training import by_limit
from isocost.steps.training.limits import of_chosen
from isocost.steps.training.pass_rates import pass_rates
from isocost.units import ENV_STEPS, ROLLOUTS

TIMING = Timing(0.003, 0.0, 0.01, 0.05, "for the test")


def cli(*words):
    done = CliRunner().invoke(main, [str(w) for w in words])
    return done.exit_code, done.output


# the profile ---------------------------------------------------------------------------------------------------------

# Two problems, two rollouts each, at most 3 turns. Per turn: [read first, read again, written].
LINES = [
    {"rewards": [1.0, 0.0], "turns": [2, 3],
     "turn_costs": [[[5, 0, 2], [3, 7, 2]], [[5, 0, 2], [3, 7, 2], [3, 12, 1]]]},
    {"rewards": [1.0, 1.0], "turns": [3, 1], "turn_costs": [[[4, 0, 2], [3, 6, 2], [3, 11, 2]], [[4, 0, 2]]]},
]


def test_success_and_cost_within_each_limit_are_worked_from_a_table_of_rollouts():
    one, two, three = by_limit.table(LINES, 3)
    assert [r["turns"] for r in (one, two, three)] == [1, 2, 3]
    assert (one["success"], two["success"], three["success"]) == (0.25, 0.5, 0.75)      # 1, 2 and 3 of 4 ended well
    assert (one["env_steps"], two["env_steps"], three["env_steps"]) == (1.0, 1.75, 2.25)
    assert two["written"] == (4 + 4 + 4 + 2) / 4 and two["read"] == (8 + 8 + 7 + 4) / 4 and two["reread"] == 20 / 4
    assert three["cost"] == {"env_steps": 3.0, "read": round(33 / 4 / 0.75, 3), "reread": round(43 / 4 / 0.75, 3),
                             "written": round(17 / 4 / 0.75, 3)}
    passed = [{x["k"]: x["value"] for x in r["pass_at"]} for r in (one, two, three)]
    assert passed == [{1: 0.25, 2: 0.5}, {1: 0.5, 2: 1.0}, {1: 0.75, 2: 1.0}]
    assert [r["dead"] for r in (one, two, three)] == [[{"n": 2, "share": x}] for x in (0.5, 0.0, 0.5)]


def test_paid_turns_count_up_to_the_limit_and_nothing_is_known_of_problems_without_a_score():
    paid = [{**LINES[0], "rewards": [0.75, 0.5], "paid": [[0.25, 0.5], [0.25, 0.0, 0.25]]},
            {**LINES[1], "rewards": [None, 1.0]}]
    rows = by_limit.table(paid, 3)
    assert [r["success"] for r in rows] == [0.25, 0.5, 0.625]
    none = by_limit.table([{**LINES[0], "rewards": [0.0, 0.0]}], 3)
    assert none[0]["cost"] is None and by_limit.table([{"rewards": [1.0], "turns": [2]}], 3) == []


def test_where_reading_is_not_counted_it_is_shared_out_by_environment_steps():
    rows = [{**r, "read": 0.0, "reread": 0.0} for r in by_limit.table(LINES, 3)]
    at = limit_of(rows, 2)
    assert at.read == at.steps == 1.75 / 2.25 and at.written == rows[1]["written"] / rows[2]["written"]


def test_the_share_of_dead_groups_counts_equal_scores():
    scores = np.array([[0.0, 0.5, 0.5, 1.0], [1.0, 1.0, 1.0, 0.0]])
    assert by_limit.dead_share(scores, 2) == pytest.approx((1 / 6 + 3 / 6) / 2)
    assert by_limit.dead_share(scores, 3) == pytest.approx((0 + 1 / 4) / 2)


@pytest.fixture(scope="module")
def profiles():
    """Profiles of 6 problems of rooms with the environment's limit of 12 turns, and with a limit of 5."""
    return [asyncio.run(pass_rates(setting_with(env="rooms", max_turns=h), seed=3, problems=6)) for h in (12, 5)]


def test_a_rollout_at_a_lower_limit_is_the_rollout_cut_there(profiles):
    """Random numbers have addresses: a profile at 5 turns equals, number for number, the row of 5 of that at 12."""
    whole, short = profiles
    assert len(whole["by_limit"]) == 12 and whole["by_limit"][4] == short["by_limit"][-1]
    assert whole["by_limit"][:4] == short["by_limit"][:4]


def test_the_last_limit_costs_what_the_engine_charged(profiles):
    for profile in profiles:
        last, cost = profile["by_limit"][-1], profile["cost"]
        assert last["written"] * 96 == pytest.approx(cost["decode"], abs=0.01)
        assert last["read"] * 96 == pytest.approx(cost["prefill"] - cost["reread"], abs=0.01)
        assert last["reread"] * 96 == pytest.approx(cost["reread"], abs=0.01)
        assert last["env_steps"] * 96 == pytest.approx(cost["env_steps"], abs=0.01)
        assert last["success"] == pytest.approx(profile["mean"], abs=1e-3)


# the pilot -----------------------------------------------------------------------------------------------------------


def row(turns, steps, dead, success=0.5):
    return {"turns": turns, "success": success, "env_steps": steps, "read": 10.0 * steps, "reread": 0.0,
            "written": 2.0 * steps, "cost": None, "pass_at": [],
            "dead": [{"n": 4, "share": 0.9}, {"n": 8, "share": dead}]}


ROWS = [row(2, 1.8, 0.5), row(4, 3.0, 0.31), row(6, 4.0, 0.29), row(8, 5.0, 0.3)]
PROFILE = {
    "samples": 16, "right": [3] * 100 + [8] * 100 + [0] * 20, "parameters": 1e5, "select": 128, "audit": 128,
    "exact": True, "rate": {"rollouts_per_second": 800.0}, "by_limit": ROWS,
    "cost": {"rollouts": 100, "prefill": 5000, "decode": 1000, "env_steps": 500},
}


def test_the_lowest_limit_that_keeps_the_live_groups_is_compared_with_the_environments():
    limits, why = candidates(ROWS)      # at 4 turns 0.69 of groups are live, at 8 0.70: more than 98 % of them
    assert [x.turns for x in limits] == [4, 8] and limits[0].steps == 0.6 and limits[1].steps == 1.0
    assert "4 turns a rollout takes 60% of the environment steps" in why and "69% of groups" in why
    limits, why = candidates([*ROWS[:3], row(8, 5.0, 0.2)])     # only 8 turns reach 0.8
    assert limits == () and "turn limit: 8, the environment's" in why
    assert candidates([*ROWS[:2], row(8, 3.2, 0.3)])[0] == ()       # 94 % of the steps: nothing to gain
    assert candidates([])[0] == ()


def test_costs_at_a_limit_are_the_profiles_shares():
    limit = limit_of(ROWS, 4)
    assert limit == TurnLimit(4, 3.0, 0.6, 0.6, 0.6) and limit.share(ROLLOUTS) == 1.0 and limit.share(ENV_STEPS) == 0.6
    prices = limit.prices(Prices(40.0, 10.0, 1e5, 50.0, None, None, 5.0))
    assert (prices.prefill, prices.decode, prices.env_steps, prices.score) == (24.0, 6.0, 3.0, 30.0)
    assert limit.timing(TIMING) == replace(TIMING, rollout=0.006)
    runs = [(PlannedRun("pilot", Arm(n=4, B=8, multiplier=1.0, turns=h), 640, 0, 1), 3) for h in (4, 8)]
    bill = bill_of(runs, Prices(40.0, 10.0, 1e5, env_steps=5.0), TIMING, (limit, limit_of(ROWS, 8)))
    assert bill.env_steps == 640 * 3 + 640 * 5 and bill.rollouts == 1280 and bill.evaluations == 6
    assert bill.seconds == pytest.approx(2 * 20 * 0.003 + 640 * (0.006 + 0.01) + 6 * 0.05)


@pytest.fixture(scope="module")
def pilot():
    return plan_pilot(PROFILE, preset="quick", timing=TIMING)


def test_the_grid_crosses_n_with_the_limits_at_equal_environment_steps(pilot):
    grid = pilot.of_purpose("pilot")
    assert len(grid) == 5 * 2 * 3 and {r.turns for r in pilot.runs if r.purpose != "pilot"} == {8}
    assert {(r.n, r.turns): r.C for r in grid} == {(n, h): C for n in pilot.grid for h, C in ((4, 17152), (8, 10240))}
    assert abs(17152 * 3.0 - 10240 * 5.0) < 256 * 3.0      # equal within an update of every n
    seeds = {(r.n, r.index): set() for r in grid}
    for r in grid:
        seeds[r.n, r.index].add(r.seed)
    assert all(len(s) == 1 for s in seeds.values())         # paired
    assert grid[0].name == "pilot-n2-h4-s0" and [r.index for r in grid] == sorted(r.index for r in grid)
    assert all(pilot.points_of(r)[-1] == r.C for r in grid)
    assert "5 n x 2 turn limits x 3 seeds x 10,240 rollouts (17,152 at 4 turns)" in pilot.why


def test_the_bill_counts_each_run_at_its_own_limit(pilot):
    steps = sum(r.C * (3.0 if r.turns == 4 else 5.0) for r in pilot.runs)
    assert pilot.pilot_bill.env_steps == pytest.approx(steps)
    assert pilot.repriced(pilot.prices, pilot.timing).pilot_bill == pilot.pilot_bill


def test_a_plan_of_one_limit_has_its_runs_length_and_prices(pilot):
    low = pilot.at(4)
    assert {r.turns for r in low.of_purpose("pilot")} == {4} and low.C == 17152 and low.turns == (4,)
    assert low.prices.env_steps == pytest.approx(3.0) and low.at(4) == low
    assert low.train_C * 3.0 == pytest.approx(pilot.train_C * 5.0, rel=0.01)
    assert pilot.at(None).prices == pilot.prices and pilot.at(8).C == pilot.C
    own = plan_pilot({k: v for k, v in PROFILE.items() if k != "by_limit"}, preset="quick", timing=TIMING)
    assert own.at(None) is own and own.turns == (None,) and own.rebased() is own


def test_a_pilot_plan_with_limits_survives_json_and_one_without_has_no_such_keys(pilot):
    assert PilotPlan.of(json.loads(json.dumps(pilot.data()))) == pilot
    own = plan_pilot({k: v for k, v in PROFILE.items() if k != "by_limit"}, preset="quick", timing=TIMING).data()
    assert "limits" not in own and all("turns" not in r for r in own["runs"])


def test_runs_added_to_a_pilot_are_added_at_every_limit(pilot):
    more = pilot.extended({4: 20480}, {8: 1, 64: 2})
    lengths = {(r.n, r.turns): r.C for r in more.of_purpose("pilot")}
    assert lengths[4, 8] == 20480 and lengths[4, 4] == 34304       # twice both
    counts = [(r.n, r.turns) for r in more.of_purpose("pilot")]
    assert counts.count((8, 4)) == counts.count((8, 8)) == 4 and counts.count((64, 4)) == counts.count((64, 8)) == 2
    assert len({r.name for r in more.runs}) == len(more.runs)


def test_runs_can_be_added_at_one_limit(pilot):
    more = pilot.extended({4: 20480}, {8: 1}, 4)
    lengths = {(r.n, r.turns): r.C for r in more.of_purpose("pilot")}
    assert lengths[4, 4] == 20480 and lengths[4, 8] == 10240
    counts = [(r.n, r.turns) for r in more.of_purpose("pilot")]
    assert counts.count((8, 4)) == 4 and counts.count((8, 8)) == 3 and "1 more run of n = 8, at 4 turns" in more.why
    with pytest.raises(UserError, match="no runs at a turn limit of 5; its turn limits: 4, 8"):
        pilot.extended({}, {8: 1}, 5)
    with pytest.raises(UserError, match="n = 4 has runs of 17,152 rollouts; expected more than that, got 12,800"):
        pilot.extended({4: 12800}, {}, 4)


def test_one_long_attempt_is_shown_against_several_short_ones():
    rows = by_limit.table(LINES, 3)     # 2.25 steps: one attempt of 3 turns, or two of 1 turn
    found = by_limit._attempts(rows)
    assert found == "problems solved at least once with 2.2 environment steps: 1 attempt of 3 turns 0.75, 2 attempts " \
                    "of 1 turn 0.50"


def test_the_runs_that_would_identify_a_law_are_those_of_its_limit():
    choice = choose(both([0.03, 0.05, 0.04]), LIMITS, ENV_STEPS)
    assert of_chosen("--longer 4=4x", choice) == "--longer 4=4x --turns 4"
    assert of_chosen("", choice) == "" and of_chosen("--longer 4=4x", None) == "--longer 4=4x"


def test_limits_are_requested_by_number_and_must_be_in_the_profile():
    asked = plan_pilot(PROFILE, preset="quick", timing=TIMING, turns=[6, 2])
    assert asked.turns == (2, 6) and asked.limits[1].steps == 0.8
    based = asked.rebased()
    assert based.prices.env_steps == pytest.approx(4.0) and based.limits[0].steps == pytest.approx(0.45)
    assert based.bill_at(based.prices, based.timing).env_steps == pytest.approx(asked.pilot_bill.env_steps)
    with pytest.raises(UserError, match="turn limits 2, 9: this profile has limits of 1 to 8 turns"):
        plan_pilot(PROFILE, timing=TIMING, turns=[2, 9])
    with pytest.raises(UserError, match="has no profile of dialogues"):
        plan_pilot({**PROFILE, "by_limit": []}, timing=TIMING, turns=[2])


def test_a_budget_in_environment_steps_pays_for_both_limits_or_drops_the_lower():
    large = plan_pilot(PROFILE, budget=Budget(6e6, ENV_STEPS), timing=TIMING)
    assert large.turns == (4, 8) and large.bill.env_steps <= 6e6
    assert large.pilot_bill.env_steps <= large.train_bill.env_steps / 2
    rollouts = plan_pilot(PROFILE, budget=Budget(6e6, ROLLOUTS), timing=TIMING)
    assert len({r.C for r in rollouts.of_purpose("pilot")}) == 1        # in this unit a short rollout costs as much
    small = next(p for x in range(20, 600) if not (p := plan_pilot(PROFILE, budget=Budget(x * 5e3, ENV_STEPS),
                                                                     timing=TIMING, rounds=False)).direct)
    assert small.turns == (None,) and "does not pay for a pilot of several" in small.limits_why


# the choice ----------------------------------------------------------------------------------------------------------

LIMITS = (limit_of(ROWS, 4), limit_of(ROWS, 8))


def arm(n, turns, seed, end, steps=1000.0):
    """A run whose reward goes from 0.2 by equal parts of ln(steps) to `end`."""
    spent = np.array([0.0, steps / 4, steps / 2, steps])
    y = np.array([0.2, end - 0.2, end - 0.1, end])
    C = spent / (3 if turns == 4 else 5)
    return Curve(f"pilot-n{n}-h{turns}-s{seed}", Arm(n=n, B=8, lr=1e-3, turns=turns), seed, C, y, y, C, C,
                 env_steps=spent, tokens=2 * spent)


def both(differences, steps=(1000.0, 1000.0)):
    return [arm(n, h, s, 0.6 + (d if h == 4 else 0.0), steps[h == 8]) for n in (2, 4) for s, d in enumerate(differences)
            for h in (4, 8)]


def test_the_interval_of_the_paired_difference_is_students():
    found = choose(both([0.03, 0.05, 0.04]), LIMITS, ENV_STEPS)
    (difference,) = found.differences
    half = student_t.ppf(0.95, 5) * np.std([0.03, 0.05, 0.04] * 2, ddof=1) / 6**0.5
    assert difference["mean"] == pytest.approx(0.04) and difference["low"] == pytest.approx(0.04 - half)
    assert difference["pairs"] == 6 and [x["n"] for x in difference["by_n"]] == [2, 4]
    assert found.identified and found.chosen == 4 and "another attempt is worth more than another turn" in found.text
    assert LimitChoice.of(json.loads(json.dumps(found.data()))) == LimitChoice.of(found.data())


def test_the_environments_limit_is_kept_where_it_is_better_and_where_nothing_separates():
    worse = choose(both([-0.03, -0.05, -0.04]), LIMITS, ENV_STEPS)
    assert worse.identified and worse.chosen == 8 and "another turn is worth more than another attempt" in worse.text
    open_ = choose(both([-0.03, 0.05, 0.0]), LIMITS, ENV_STEPS)
    assert not open_.identified and open_.chosen == 8 and open_.option.startswith("--seeds all=")
    assert "not identified, so the environment's own is used, 8" in open_.text


def test_runs_are_compared_where_they_have_cost_the_same():
    """Runs at 4 turns that went on to twice the steps are read at the steps of the others."""
    found = choose(both([0.03, 0.05, 0.04], (2000.0, 1000.0)), LIMITS, ENV_STEPS)
    (difference,) = found.differences
    assert found.at == 1000.0 and difference["mean"] == pytest.approx(0.04 - 0.1)     # a doubling earlier: 0.1 less
    assert reward_at(arm(2, 4, 0, 0.6, 2000.0), ENV_STEPS, 1000.0) == pytest.approx(0.5)
    assert reward_at(arm(2, 8, 0, 0.6), ROLLOUTS, 200.0) == pytest.approx(0.6)


def test_nothing_is_chosen_without_two_limits_and_diverged_runs_are_left_out():
    seen = both([0.03, 0.05, 0.04])
    assert choose(seen, LIMITS[1:], ENV_STEPS) is None and choose(seen, (), ENV_STEPS) is None
    fallen = [replace(c, diverged=True) if c.seed == 0 and c.arm["turns"] == 4 else c for c in seen]
    assert choose(fallen, LIMITS, ENV_STEPS).differences[0]["pairs"] == 4


def law(end):
    """What `extrapolated` asks of a law: its best n, and two draws 0.02 apart around `end`."""
    return SimpleNamespace(refused=None, best=lambda C: 4, paths=lambda n, C, split: end + np.array([[-0.01], [0.01]]))


def test_a_limit_that_is_predicted_to_fall_behind_is_not_identified():
    choice = choose(both([0.03, 0.05, 0.04]), LIMITS, ENV_STEPS)
    sizes = {4: 1600, 8: 960}
    ahead = extrapolated(choice, {4: law(0.9), 8: law(0.85)}, sizes)
    assert ahead.identified and ahead.chosen == 4 and ahead.differences[0]["later"]["mean"] == pytest.approx(0.05)
    assert "predicted at 960 rollouts at 8 turns, and the same cost: 4 turns instead of 8: +0.050" in ahead.text
    behind = extrapolated(choice, {4: law(0.8), 8: law(0.85)}, sizes)
    assert not behind.identified and behind.chosen == 8 and behind.option == "--longer all=2x"
    assert "in opposite order" in behind.text
    kept = choose(both([-0.03, -0.05, -0.04]), LIMITS, ENV_STEPS)
    assert not extrapolated(kept, {4: law(0.9), 8: law(0.85)}, sizes).identified
    unknown = law(0.8)
    unknown.refused = "too short"
    assert extrapolated(choice, {4: unknown, 8: law(0.85)}, sizes) is choice


# the prescription and its seal ---------------------------------------------------------------------------------------


def test_the_prescription_and_the_seal_cover_the_limit(pilot):
    made = prescribe(None, pilot.rate, None, TIMING, pilot=pilot.at(4))
    assert made.turns == 4 and {r.turns for r in made.runs} == {4} and all("-h4" in r.name for r in made.runs)
    assert Plan.of(json.loads(json.dumps(made.data()))) == made
    sealed = forecasts.seal(made, None)
    assert sealed.turns == 4 and forecasts.Forecast.of(sealed.data()) == sealed
    for more in ({"turns": 8}, {"arm": {**sealed.arm, "turns": 8}}):
        with pytest.raises(UserError, match="changed after it was sealed"):
            forecasts.Forecast.of({**sealed.data(), **more})
    seen = [replace(arm(4, h, s, 0.6 if h == 4 else 0.9), audit=np.full(4, x), purpose="pilot")
            for h, x in ((4, 0.3), (8, 0.5)) for s in range(2)]
    seen = [replace(c, arm=c.arm.but(n=made.arm.n)) for c in seen]
    assert forecasts.seal(made, None, seen).base == pytest.approx(0.3)      # of the runs at its own limit alone
    other = prescribe(None, pilot.rate, None, TIMING, pilot=pilot.at(8))
    assert forecasts.seal(other, None).hashes["plan"] != sealed.hashes["plan"]


def test_a_plan_without_a_limit_has_the_keys_that_it_had():
    own = plan_pilot({k: v for k, v in PROFILE.items() if k != "by_limit"}, preset="quick", timing=TIMING)
    made = prescribe(None, own.rate, None, TIMING, pilot=own)
    assert "turns" not in made.data() and all("turns" not in r["arm"] for r in made.data()["runs"])
    assert "turns" not in forecasts.seal(made, None).data()["arm"]


def test_a_run_at_another_limit_cannot_be_audited(pilot):
    made = prescribe(None, pilot.rate, None, TIMING, pilot=pilot.at(4))
    sealed = forecasts.seal(made, None)
    C = np.array([0.0, made.arm.C])
    runs = [Curve(r.name, Arm(n=r.n, B=r.B, lr=1e-3, turns=h), r.seed, C, C * 0, C * 0, C, C, purpose="train")
            for r, h in zip(made.runs, [4] * (len(made.runs) - 1) + [8], strict=True)]
    seals = {r.name: sealed.seal for r in made.runs}
    with pytest.raises(UserError, match="run at a turn limit of 8; the forecast is of a turn limit of 4"):
        audits.audit(sealed, runs, seals)


# runs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A run that trains at 3 turns and is evaluated at the environment's 12, and the same one resumed on the way."""
    setting = setting_with(env="rooms:slip=0.1", held_out=20, samples=1)
    job = Job("short", setting, "grpo", 1, {"rollouts": 96.0}, Arm(n=4, B=4, lr=1e-3, turns=3), points=(48.0,))
    whole, again = (tmp_path_factory.mktemp(x) / "run" for x in ("whole", "again"))
    asyncio.run(run(job, whole))

    class Stopped(Exception):
        pass

    def stop(line):
        if line["step"] == 3:
            raise Stopped

    with pytest.raises(Stopped):
        asyncio.run(run(replace(job, save_every=2), again, on_step=stop))
    asyncio.run(run(replace(job, save_every=2), again))
    return whole, again


def test_training_has_the_limit_and_evaluations_have_the_environments(short):
    whole, _ = short
    lines = read_lines(whole / "metrics.jsonl")
    assert max(max(g["turns"]) for g in read_lines(whole / "journal.jsonl") if "turns" in g) == 3
    assert [x["eval/length"] > 6 for x in lines if "eval/select" in x] == [True] * 3    # 3 turns are 6 tokens at most
    assert read_json(whole / "run.json")["arm"]["turns"] == 3
    (seen,) = curves([whole])
    last = [x for x in lines if "reward" in x][-1]
    assert seen.arm["turns"] == 3 and seen.env_steps[0] == 0 and seen.env_steps[-1] == last["env_steps"]


def test_a_run_at_a_limit_resumes_to_the_same_bytes(short):
    whole, again = short
    assert (whole / "metrics.jsonl").read_bytes() == (again / "metrics.jsonl").read_bytes()
    assert (whole / "journal.jsonl").read_bytes() == (again / "journal.jsonl").read_bytes()


def test_a_study_of_agents_plans_seals_and_audits_a_limit(tmp_path, monkeypatch, ran):
    """All steps at a small size, by the commands; a changed limit in the plan is found after the seal."""
    monkeypatch.setitem(PRESETS, "tiny", Preset((2, 4), 1, 32, 2, 8, 1, 0, 64, 2))
    out = tmp_path / "s"
    assert cli("profile", "--env", "rooms", "--held-out", 32, "--problems", 16, "--samples", 1, "--out", out)[0] == 0
    code, text = cli("plan", out, "--size", "tiny", "--turns", "3,12")
    assert code == 0 and "turn limits as requested: 3, 12" in text and "2 n x 2 turn limits x 2 seeds" in text
    ran("pilot", out, "--workers", 1)
    assert (out / "runs" / "pilot-n2-h3-s1").is_dir()
    code, text = cli("fit", out)
    assert code == 0 and "3 turns instead of 12" in text
    code, text = cli("pilot", out, "--seeds", "2=1", "--turns", 3, "--dry-run")
    assert code == 0 and "then 1 more run of n = 2, at 3 turns" in " ".join(text.split())
    code, text = cli("pilot", out, "--turns", 3)
    assert code == 2 and "--turns 3 says where --longer and --seeds add runs" in text
    law = read_json(out / "law.json")
    assert law["turn_limit"]["turns"] == [3, 12]
    chosen = law["turn_limit"]["chosen"]
    assert all(f"-h{chosen}-" in name for a in law["arms"] for name in a["runs"])
    code, text = cli("plan", out)
    assert code == 0 and f"turn limit {chosen}" in text
    plan = read_json(out / "plan.json")
    assert plan["turns"] == chosen and {r["arm"]["turns"] for r in plan["runs"]} == {chosen}
    assert "the runs of n=4 have not risen measurably" in ran("train", "--plan", out, "--workers", 1)
    sealed = read_json(out / "forecast.json")
    assert sealed["arm"]["turns"] == chosen and sealed["interval"] is None
    code, text = cli("audit", out)
    assert code in (0, 3, 4) and "audit:" in text
    code, text = cli("report", out)
    assert code == 0
    page = (out / "report.html").read_text()
    assert "turn limit" in page
    changed = tmp_path / "changed"
    shutil.copytree(out, changed)
    (changed / "plan.json").write_text(json.dumps({**plan, "turns": 5}))
    code, text = cli("audit", changed)
    assert code == 4 and "changed since it was sealed: plan.json" in text


def test_mistakes_in_turn_limits_are_one_line(tmp_path):
    code, text = cli("plan", tmp_path, "--turns", "3,x")
    assert code == 2 and "--turns '3,x': expected integers of at least 1, such as --turns 6,12" in text


def test_the_world_of_agents_is_evaluated_precisely_unless_the_user_says_how():
    given = {"size": None, "held_out": 0.2, "samples": 4}
    assert of_world("agents", given)["held_out"] == 0.4 and of_world("agents", given)["samples"] == 8
    assert of_world("agents", given, ["samples"])["samples"] == 4


def test_a_bill_is_empty_without_runs():
    assert bill_of([], Prices(1.0, 1.0, None), TIMING, LIMITS) == Prices(1.0, 1.0, None).bill([], TIMING)
    assert isinstance(bill_of([], Prices(1.0, 1.0, 1.0), TIMING, ()), Usage) and Path
