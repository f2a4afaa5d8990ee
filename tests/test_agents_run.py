"""Runs and studies with an environment: budgets in steps, records, resuming after kills, the contract, the commands."""

import asyncio
import dataclasses
import itertools
import json
import os
import re
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from isocost import methods
from isocost.cli.commands import main
from isocost.contract import environments as contract
from isocost.envs.opening import EnvironmentSet, open_environment
from isocost.envs.tiny import rooms
from isocost.errors import UserError
from isocost.methods import roc
from isocost.planner.budget import Budget, Prices
from isocost.planner.training.builtin import WORLDS
from isocost.planner.training.prescription import Plan
from isocost.recipe import tune
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.settings import of_world, setting_with
from isocost.steps.training import dialogues
from isocost.types import Cost, Fault, Message, Problem, Shown
from isocost.worlds import toy
from isocost.worlds.setting import Setting, open_problems
from test_agents import Noisy, untyped
from toy import run as run_toy

HERE = Path(__file__).parent
EXAMPLE = f"{HERE.parent / 'examples' / 'own_environment.py'}:Doors"


def cli(*words):
    done = CliRunner().invoke(main, [str(w) for w in words])
    return done.exit_code, done.output


# runs --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run in noisy rooms."""
    out = tmp_path_factory.mktemp("trained")
    setting = setting_with(env="rooms:slip=0.1", held_out=0.2, samples=1)
    job = Job("rooms", setting, "grpo", 1, {"env-steps": 900.0}, Arm(n=4, B=4, lr=1e-3), save_every=2)
    return out, asyncio.run(run(job, out))


def test_a_budget_in_environment_steps_ends_a_run_before_a_wave_that_it_would_not_pay(trained):
    out, end = trained
    steps = [x for x in read_lines(out / "metrics.jsonl") if "reward" in x]
    assert end["reason"] == "spent" and 600 < end["bill"]["train"]["env_steps"] <= 900
    assert steps[-1]["env_steps"] == end["bill"]["train"]["env_steps"]
    assert sum(end["fates"].values()) == sum(b["rollouts"] for b in end["bill"].values())


def test_beside_rollouts_environment_steps_count_at_the_mean_and_the_end_names_what_bound(tmp_path):
    """A wave of full length is 16 x 12 steps: to keep that back would end a run whose dialogues are as planned."""
    setting = setting_with(env="rooms:slip=0.1", held_out=0.2, samples=1)

    def ended(name, most):
        job = Job("rooms", setting, "grpo", 1, {"rollouts": 112.0, "env-steps": most}, Arm(n=4, B=4, lr=1e-3))
        end = asyncio.run(run(job, tmp_path / name))
        lines = read_lines(tmp_path / name / "metrics.jsonl")
        assert end["reason"] == "spent" and "eval/audit" in lines[-1], "it is evaluated where it ends"
        return end, [x["env_steps"] for x in lines if "reward" in x]

    end, free = ended("free", 1e5)
    assert (end["bound"], end["bill"]["train"]["rollouts"]) == ("rollouts", 112)
    assert end["detail"] == "no further step fits into 112 rollouts, 100,000 env-steps"
    most = free[3] + (free[3] / 4 + 16 * 12) / 2        # after four waves: more than the mean, less than full length
    end, steps = ended("capped", most)
    assert steps == free[:len(steps)] and 5 <= len(steps) < 7 and steps[-1] * (1 + 1 / len(steps)) > most
    assert (end["bound"], end["bill"]["train"]["env_steps"]) == ("env-steps", steps[-1])
    spent = f"{steps[-1]:,} env-steps and {16 * len(steps)} of 112 rollouts are spent"
    assert end["detail"] == f"no further step fits into {most:g} env-steps, the run's share of the budget: {spent}"


def test_the_record_of_a_run_has_turns_faults_and_what_was_read_again(trained):
    out, end = trained
    steps, journal = ([x for x in read_lines(out / f) if "lengths" in x or "reward" in x]
                      for f in ("metrics.jsonl", "journal.jsonl"))
    assert sum(sum(g["turns"]) for g in journal) == end["bill"]["train"]["env_steps"]
    assert all(1 <= s["turns"] <= 12 and s["faults/environment"] == 0.0 and "faults/model" in s for s in steps)
    assert steps[-1]["reread"] > 0.7 * steps[-1]["prefill"]
    assert end["physical"]["train"]["prefill"] < 0.25 * end["bill"]["train"]["prefill"]
    said = [a["turns"] for x in read_lines(out / "samples.jsonl") for a in x["attempts"]]
    assert all(t.keys() == {"said", "shown", "reward", "fault", "key", "tokens"} for turns in said for t in turns)
    assert any(turns[-1]["reward"] == 1.0 for turns in said) and any(len(turns) > 3 for turns in said)
    problems = read_json(out / "run.json")["problems"]
    assert problems["environment"] == "rooms:slip=0.1" and problems["verifier"] == "environment"
    assert read_json(out / "run.json")["recipe"]["pace"]["max_turns"] == 12


def test_every_token_of_a_dialogue_is_what_was_sampled_or_shown_and_nothing_is_tokenised_again(trained):
    """The text of the last segment is the prompt, then each turn and each answer, in the ids that were first used."""
    from isocost.pack import pack
    from isocost.types import Group, Place, Role, Score
    from isocost.worlds.setting import open_setting
    opened = open_setting(setting_with(env="rooms"))
    world, said = opened.world, []
    generate = world.engine.generate

    async def spy(start, attempts, **how):
        made = await generate(start, attempts, **how)
        said.extend((a, how["turn"], s.tokens) for a, s in zip(attempts, made, strict=True))
        return made

    world.engine.generate = spy
    from isocost.parts.play import sample
    problem = opened.sides.train[0]
    found = asyncio.run(sample(problem, range(6), world, opened.setting.measured, Place(1, 0, 0)))
    for r in found:
        (text,) = r.segments
        for turn in range(len(r.turns)):
            (own,) = [t for a, n, t in said if (a, n) == (r.attempt, turn)]
            assert np.array_equal(text.tokens[text.turn == turn], own)
        walk = rooms.Walk(problem)
        read = [asyncio.run(walk.open()).messages[0].content]
        for turn in range(len(r.turns) - 1):
            words = world.text.decode(text.tokens[text.turn == turn].tolist())
            read.append(asyncio.run(walk.step(words, None)).messages[0].content)
        seen = text.tokens[text.role != int(Role.OWN)]
        assert seen.tolist() == [t for x in read for t in world.text.encode(x)]
    batch = pack([Group(problem, tuple(r.but(score=Score(0.0)) for r in found))], 0)
    assert [row[:n].tolist() for row, n in zip(batch.tokens, batch.length, strict=True)] == [
        r.segments[0].tokens.tolist() for r in found]


def test_killed_at_random_instants_a_run_with_noisy_environments_ends_the_same(tmp_path, programs_at_once):
    done = subprocess.run(
        [programs_at_once / "python", HERE / "kill9.py", "--dialogues", "--instants", "4", "--seed", "5", "--out",
         tmp_path / "said.json"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = read_json(tmp_path / "said.json")
    assert (said["killed"], said["equal"], said["configurations"]) == (4, 4, 4)


def test_dialogues_deferred_to_a_later_wave_go_on_with_the_luck_that_they_had():
    """APRIL stops the slow dialogues of a wave and resumes them: no replay may differ, so no rollout is lost."""
    class Slow(Noisy):
        async def step(self, said, luck):
            await asyncio.sleep(0)
            shown = await super().step(said, luck)
            return dataclasses.replace(shown, over=shown.over and luck().random() < 0.7)

    world = toy.world()
    world.env = Slow
    recipe = tune(methods.recipe("april", groups=4, rollouts=4), "pace.max_turns", 6)
    ledger, steps = run_toy(recipe, world, 96)
    assert steps and ledger.fates["lost"] == 0 and ledger.fates["cancelled"] >= 0
    resumed = [g for g in ledger.fresh if g["cancelled"] < 0]
    assert resumed, "some were continued in a later wave"


def test_roc_reads_faults_of_tools_and_tti_grows_dialogues_with_environments():
    world = toy.world()
    world.env = Noisy
    recipe = tune(methods.recipe("roc", groups=4, rollouts=8).but(reward=partial(roc.reward, failed="!")),
                  "pace.max_turns", 4)
    ledger, steps = run_toy(recipe, world, 64)
    assert steps and {s for g in ledger.fresh for s in g["fates"]} <= {"trained", "dead", "filtered"}
    grown = tune(tune(methods.recipe("tti", groups=4, rollouts=4), "pace.first", 1), "pace.max_turns", 3)
    world = toy.world()
    world.env = Noisy
    _, steps = run_toy(grown, world, 64)
    assert [s.line["turns"] <= k for s, k in zip(steps, (1, 2, 3), strict=False)] == [True] * min(len(steps), 3)
    assert steps[0].line["turns"] == 1.0 < steps[2].line["turns"]


# planning ----------------------------------------------------------------------------------------------------------


def test_prices_and_bills_count_environment_steps_and_only_fresh_tokens():
    assert Budget.parse("60k-env-steps") == Budget(60_000, "environment steps")
    bill = {"rollouts": 10, "prefill": 900, "reread": 700, "decode": 100, "env_steps": 60, "train": 250}
    prices = Prices.of_profile({"cost": bill, "parameters": 5, "recipe": {}})
    assert (prices.prefill, prices.decode, prices.env_steps) == (20.0, 10.0, 6.0)
    assert Prices(1, 1, 5).measured([bill]).env_steps == 6.0 == Prices(1, 1, 5).measured([bill, bill]).env_steps
    sampled = prices.sampling(4, 1.0)
    assert sampled.of_unit("environment steps") == 24.0 and sampled.data()["env_steps"] == 24.0
    single = Prices(1, 1, 5).sampling(4, 1.0)
    assert "env_steps" not in single.data() and "env_steps" not in Prices(1, 1, 5).data()
    with pytest.raises(UserError, match="needs an environment"):
        single.of_unit("environment steps")


def test_what_a_profile_says_of_dialogues_is_worked_from_its_lines():
    lines = [{"rewards": [1.0, 0.0, None, 1.0], "stops": ["done", "turns", "error", "length"], "turns": [2, 3, 1, 1],
              "faults": [{}, {"model: no call": 2}, {"environment: gone": 1}, {"tool: down": 1}]}]
    said = dialogues.summary(lines, Cost(4, prefill=100, decode=30, env_steps=7, reread=80), limit=3)
    assert said["turns"] == {"mean": 1.75, "p90": 2.7, "limit": 3}
    assert [x["success"] for x in said["by_turn"]] == [0.25, 0.5, 0.5]
    assert [x["took"] for x in said["by_turn"]] == [1.0, 0.5, 0.25]
    assert said["ends"] == {"success": 0.5, "out of turns": 0.25, "environment failed": 0.25}
    assert said["faults"] == {k: round(n / 7, 5) for k, n in (("environment", 1), ("tool", 1), ("model", 2))}
    assert said["listed"][0]["fault"] == "model: no call" and said["reread"] == 0.8
    assert said["success_costs"] == {"rollouts": 2.0, "env_steps": 3.5, "written": 15.0, "read": 10.0, "reread": 40.0}
    assert said["ended"] == [
        {"end": end, "turn": turn, "rollouts": 1}
        for end, turn in (("success", 1), ("success", 2), ("environment failed", 1), ("out of turns", 3))]
    assert said["failures"] == [{"end": "environment failed", "share": 0.25, "p10": 1, "p50": 1, "p90": 1},
                                {"end": "out of turns", "share": 0.25, "p10": 3, "p50": 3, "p90": 3}]
    assert [x["env_steps"] for x in said["by_end"]] == [round(k / 7, 4) for k in (3, 1, 3)]
    assert said["failed_steps"] == round(4 / 7, 4) and said["faultless"] == {"rollouts": 0.25, "success": 1.0}
    assert said["listed"][0] == {"fault": "model: no call", "per_turn": round(2 / 7, 5), "rollouts": 0.25,
                                 "success": 0.0}
    assert said["dead"] == [], "its only problem has a rollout without a score"
    assert dialogues.summary([{"rewards": [1.0], "stops": ["done"]}], Cost(), 0) is None
    whole = dialogues.summary([lines[0] | {"rewards": [1.0, 0.0, 0.0, 0.0]}], Cost(4), 3)
    assert whole["dead"] == [{"n": 2, "failed": 0.5, "succeeded": 0.0}, {"n": 4, "failed": 0.0, "succeeded": 0.0}]
    none = dialogues.summary([lines[0] | {"rewards": [0.0, 0.0, None, 0.0]}], Cost(4), 3)
    assert none["success_costs"] is None


def test_a_profile_in_rooms_reports_success_by_turns_faults_and_the_cost_of_a_success(tmp_path):
    code, said = cli("profile", "--env", "rooms", "--problems", 12, "--out", tmp_path / "s")
    assert code == 0, said
    for words in ("success within turns", "out of turns", "faults per turn: environment 0.00%, model", "dead groups",
                  "cost of a success:", "env steps", "where they fail: out of turns at turn 12", "read again",
                  "dead groups, all failed and all succeeded  n=2:"):
        assert words in said
    found = read_json(tmp_path / "s" / "profile.json")["dialogues"]
    assert found["by_turn"][-1]["success"] == pytest.approx(found["ends"]["success"])


# options -----------------------------------------------------------------------------------------------------------


def test_an_environment_brings_its_model_limits_problems_and_verifier():
    setting = setting_with(env="rooms:level=2")
    assert (setting.model, setting.lengths.max_turns, setting.lengths.max_tokens, setting.problems.data) == (
        "tiny-agents", 12, 2, "rooms:level=2")
    assert setting.marks == "environment" and setting.measured.max_turns == 12
    loaded, sides = open_problems(setting)
    assert loaded.verifier == "environment" and {p.meta["level"] for p in loaded.problems} == {2}
    assert len(sides.train) + len(sides.held_out) == len(loaded)
    assert setting_with(env="rooms", max_turns=5).lengths.max_turns == 5
    assert Setting.of({"model": "tiny"}).problems.env == "" and Setting.of({}).measured.max_turns == 1


@pytest.mark.parametrize(("words", "said"), [
    (("--env", "rooms", "--data", "sums:level=1"), "has its own problems: leave out --data"),
    (("--max-turns", "3"), "--max-turns 3 needs an environment"),
    (("--env", "maze"), "there is no environment 'maze'; there are boxes, "),
    (("--env", "rooms:size=3"), "size is 4 to 26, not 3"),
    (("--budget", "5k-env-steps"), "a budget in env-steps needs an environment"),
])
def test_mistakes_in_options_are_one_line(words, said, tmp_path):
    code, text = cli("train", "grpo", *(() if "--budget" in words else ("--budget", "64-rollouts")), *words, "--out",
                     tmp_path / "r", "--dry-run")
    assert code == 2 and said in " ".join(text.split())


def test_a_budget_in_environment_steps_without_an_environment_is_refused_before_a_run_that_would_never_end(tmp_path):
    code, text = cli("train", "grpo", "--budget", "5k-env-steps", "--out", tmp_path / "r")
    assert code == 2 and "a budget in env-steps needs an environment" in text and not (tmp_path / "r").exists()


@pytest.mark.parametrize(("budget", "code"), [("500-env-steps", 2), ("767-env-steps", 2), ("0.0001s", 5)])
def test_a_budget_below_one_update_is_no_success(tmp_path, budget, code):
    """Steps that an update may cost are known before anything is opened; time is known only afterwards."""
    ended, text = cli("train", "grpo", "--env", "rooms", "--max-turns", "6", "-n", "8", "-B", "16", "--budget", budget,
                      "--limit", "40", "--out", tmp_path / "r")
    said = " ".join(text.split())
    assert ended == code and (tmp_path / "r").exists() == (code == 5)
    if code == 2:
        assert "does not pay for one update, which costs up to 768 env-steps: n 8 x B 16 x 6 turns; give more" in said
    else:
        assert "were over before the first update: nothing was trained" in said


def test_a_study_whose_dialogues_cost_more_than_planned_ends_at_its_budget_and_the_audit_says_so(tmp_path):
    """The profile is made to say half of what dialogues cost, as if they grew to twice their length."""
    study = tmp_path / "s"
    assert cli("profile", "--env", "rooms", "--problems", "12", "--samples", "1", "--out", study)[0] == 0
    profile = read_json(study / "profile.json")
    profile["cost"]["env_steps"] //= 2
    (study / "profile.json").write_text(json.dumps(profile))
    code, text = cli("plan", study, "--budget", "1200-env-steps")
    assert code == 0 and "a run ends at its share of the budget" in " ".join(text.split())
    runs = Plan.of(read_json(study / "plan.json")).runs
    assert {r.cap["env-steps"] * len(runs) for r in runs} == {1200.0}
    assert cli("train", "--plan", study)[0] == 0
    for r in runs:
        run, end = (read_json(study / "runs" / r.name / f) for f in ("run.json", "end.json"))
        assert run["budget"] == {"rollouts": r.C, **r.cap} and (end["reason"], end["bound"]) == ("spent", "env-steps")
        paid = end["bill"]["train"]
        assert paid["rollouts"] < r.C and paid["env_steps"] < 1.5 * 1200 / len(runs)
    code, text = cli("audit", study)
    assert code == 4
    said = f"{r.name} ended at {paid['rollouts']:,} of {r.C:,} rollouts: they cost"
    assert said in " ".join(text.split()) and r.name in read_json(study / "audit.json")["capped"]
    assert read_json(study / "audit.json")["missing"] == []


def test_a_world_by_name_stands_for_its_options_and_the_size_of_its_study():
    assert of_world("agents", {"size": None}) == {"size": "agents", "env": "rooms", "held_out": 0.4, "samples": 8}
    assert of_world("agents", {"size": "tiny"})["size"] == "tiny" and of_world(None, {"size": None}) == {"size": None}
    assert setting_with(**{k: v for k, v in of_world("puzzles", {}).items() if k != "size"}).model == "tiny-puzzles"
    helps = {p.name: p.help for p in main.commands["quickstart"].params if hasattr(p, "help")}
    assert all(name in helps["world"] and (not row.preset or name in helps["size"]) for name, row in WORLDS.items())
    with pytest.raises(UserError, match="there is no world 'mars'; there are sums, puzzles, think, control, agents"):
        of_world("mars", {})
    with pytest.raises(UserError, match="leave out --env"):
        of_world("agents", {"env": "rooms:size=9"})


def test_doctor_names_what_checks_an_environment():
    code, text = cli("doctor", "--env", "rooms")
    assert code == 2 and "isocost envs check rooms" in text


# the contract ------------------------------------------------------------------------------------------------------


class Good:
    """Counts to three; luck decides what is shown."""

    number = itertools.count()

    def __init__(self, problem):
        self.problem, self.turns = problem, 0

    async def open(self):
        return Shown((Message("user", "begin"),), key="0")

    async def step(self, said, luck):
        self.turns += 1
        over = self.turns == 3
        return Shown((Message("tool", f"{luck().integers(9)}"),), over, float(over and said == "go"), str(self.turns))

    def final(self):
        return "end"

    async def close(self):
        pass


TOLD = [Problem(f"p{i}", (Message("user", "begin go"),), f"a{i}") for i in range(3)]
_shared, _tasks = [], []


class OpensUnlike(Good):
    async def open(self):
        return Shown((Message("user", f"begin {next(Good.number)}"),))


class GlobalChance(Good):
    async def step(self, said, luck):
        return Shown((Message("tool", f"{np.random.random()}"),))


class SharesState(Good):
    async def step(self, said, luck):
        _shared.append(said)
        return Shown((Message("tool", f"{len(_shared)}"),))


class Raises(Good):
    async def step(self, said, luck):
        return Shown((Message("tool", f"{int(said)}"),))


class PlainFault(Good):
    async def step(self, said, luck):
        return dataclasses.replace(await super().step(said, luck), fault=None) if said else _plain()


def _plain():
    shown = Shown((Message("tool", "?"),))
    object.__setattr__(shown, "fault", "no action")
    return shown


class PaysTwice(Good):
    async def step(self, said, luck):
        return Shown((Message("tool", "?"),), reward=0.5)


class FinalNumber(Good):
    def final(self):
        return 3


class LeavesTasks(Good):
    async def open(self):
        _tasks.append(asyncio.create_task(asyncio.sleep(30)))
        return await super().open()


class Waits(Good):
    async def step(self, said, luck):
        end = asyncio.get_running_loop().time() + 0.05
        while asyncio.get_running_loop().time() < end:
            pass
        return await super().step(said, luck)


class Leaks(Good):
    async def open(self):
        return Shown((Message("user", f"begin: the answer is {self.problem.answer}."),))

    async def step(self, said, luck):
        right = said == self.problem.answer
        return Shown((Message("tool", "?"),), right, float(right))


def checked(made):
    return [f for f in contract.check(EnvironmentSet("x", made), TOLD) if f.state == "BROKEN"]


def test_a_sound_environment_keeps_every_promise_and_so_do_those_that_ship():
    assert checked(Good) == []
    for spec in ("rooms:slip=0.3", "rooms:alias=4,keys=0", EXAMPLE):
        made = open_environment(spec)
        assert [f for f in contract.check(made, list(itertools.islice(made.problems(), 3))) if not f.kept] == []


@pytest.mark.parametrize(("made", "promise", "why"), [
    (OpensUnlike, "opens with messages", "opened twice"), (GlobalChance, "same luck", "messages differs in turn 1"),
    (SharesState, "share no state", "messages differs"), (Raises, "typed fault", "ValueError"),
    (PlainFault, "typed fault", "use Fault.model"), (PaysTwice, "sum to a score", "rescale the rewards"),
    (FinalNumber, "returns a text", "final returned 3"), (LeavesTasks, "leaves no task", "more tasks"),
    (Waits, "blocks the event loop", "asyncio.to_thread"), (Leaks, "contain an answer", "copying it is right"),
], ids=lambda x: getattr(x, "__name__", ""))
def test_each_broken_promise_is_named_with_its_reason(made, promise, why, monkeypatch):
    monkeypatch.setattr(contract, "TURNS", 3 if made is not PaysTwice else 8)
    monkeypatch.setattr(contract, "BLOCKS", 0.03 if made is Waits else 5.0)
    broken = checked(made)
    assert any(promise in f.promise and why in f.why for f in broken), broken


class ByProblem(Good):
    """Its state is that of a problem and begins anew with an episode: only two attempts at one problem show it."""

    turns_of: ClassVar[dict[str, int]] = {}

    async def open(self):
        self.turns_of[self.problem.id] = 0
        return await super().open()

    async def step(self, said, luck):
        self.turns_of[self.problem.id] += 1
        shown = await super().step(said, luck)
        return dataclasses.replace(shown, key=f"{self.turns_of[self.problem.id]}")


class Grows(Good):
    """Only its final text shows what other episodes said."""

    heard: ClassVar[list[str]] = []

    async def step(self, said, luck):
        self.heard.append(said)
        return await super().step(said, luck)

    def final(self):
        return " ".join(self.heard)


class OneRandom(Good):
    rng = np.random.default_rng(0)

    async def step(self, said, luck):
        return Shown((Message("tool", f"{self.rng.random()}"),))


class Clock(Good):
    """Random beyond its luck, and with a table that is read once."""

    table = None

    async def open(self):
        type(self).table = self.table or {"a": 1}
        return await super().open()

    async def step(self, said, luck):
        return Shown((Message("tool", f"{time.perf_counter_ns()}"),))


class Outside(Good):
    """What its episodes share is nothing that Python shows, such as a server's."""

    async def open(self):
        os.environ["ISOCOST_TEST_STATE"] = "0"
        return await super().open()

    async def step(self, said, luck):
        os.environ["ISOCOST_TEST_STATE"] = f"{int(os.environ['ISOCOST_TEST_STATE']) + 1}"
        return Shown((Message("tool", os.environ["ISOCOST_TEST_STATE"]),))


@pytest.mark.parametrize(("made", "problems", "cause"), [
    (ByProblem, 1, "They change `ByProblem.turns_of`, which all episodes share"),
    (ByProblem, 3, "They change `ByProblem.turns_of`, which all episodes share"),
    (Grows, 1, "They change `Grows.heard`"), (SharesState, 3, "They change `_shared`"),
    (OneRandom, 1, "They change `OneRandom.rng`"), (Outside, 1, "They share state"),
])
def test_state_that_episodes_share_is_found_and_named(made, problems, cause, monkeypatch):
    monkeypatch.delenv("ISOCOST_TEST_STATE", raising=False)
    found = contract.check(EnvironmentSet("x", made), TOLD[:problems])
    (only,) = [f for f in found if f.state == "BROKEN"]
    assert only.promise.startswith("Episodes share no state") and cause in only.why and "\n" not in only.why
    assert only.why.endswith("keep what an episode changes on `self`, made in `__init__` or `open`")


@pytest.mark.parametrize("made", [GlobalChance, Clock])
def test_an_environment_that_is_random_beyond_its_luck_is_told_apart_from_shared_state(made):
    found = contract.check(EnvironmentSet("x", made), TOLD)
    (only,) = [f for f in found if f.state == "BROKEN"]
    assert only.promise.startswith("The same turns with the same luck") and "those of luck()" in only.why
    assert {f.state for f in found if f.promise.startswith("Episodes share no state")} == {"not tried"}


def test_turns_are_played_that_are_not_in_the_prompt():
    shown = {c for problem in TOLD for m in problem.prompt for c in m.content}
    said = set(itertools.islice(contract._script(EnvironmentSet("x", Good), TOLD[0], 1), 400))
    assert {c for c in said if len(c) == 1 and c.isalnum()} - shown - set(str(TOLD[0].answer))


def test_an_exception_that_only_a_later_check_meets_breaks_the_promise_to_answer_any_text():
    class Letters(Good):
        async def step(self, said, luck):
            if len(said) == 1 and said.isalnum():
                raise RuntimeError("a letter")
            return await super().step(said, luck)

    (only,) = checked(Letters)
    assert only.promise.startswith("Any text is answered") and "RuntimeError: a letter (test_agents_run.py" in only.why


def test_what_episodes_share_and_none_is_changed_by_is_no_fault():
    class Counted(Good):
        opened: ClassVar[list[int]] = []

        async def open(self):
            self.opened.append(1)
            return await super().open()

    assert checked(Counted) == []


def test_two_problems_with_one_id_are_found_wherever_they_are_in_the_list(tmp_path):
    listed = [Problem(f"p{i % 40}", (Message("user", f"begin go {i}"),), f"a{i}") for i in range(42)]
    (only,) = [f for f in contract.check(EnvironmentSet("x", Good), listed) if not f.kept]
    assert only.why == "problem 41 of the list has the id 'p0' of problem 1: give each another id"
    (tmp_path / "twice.py").write_text(
        f"from runpy import run_path\n"
        f"class Twice(run_path({EXAMPLE.partition(':')[0]!r})['Doors']):\n"
        "    @staticmethod\n"
        "    def problems():\n"
        "        listed = list(super(Twice, Twice).problems())\n"
        "        return listed + listed[2:3]\n")
    code, text = cli("envs", "check", f"{tmp_path}/twice.py:Twice")
    assert code == 2 and "BROKEN    Every problem has an id of its own." in text and "breaks 1 of" in text
    assert "(6 problems played)" in text


def test_an_environment_that_does_not_open_is_tried_no_further():
    class Shut(Good):
        async def open(self):
            raise OSError("no server")

    found = contract.check(EnvironmentSet("x", Shut), TOLD)
    assert re.fullmatch(r"OSError: no server \(test_agents_run.py, line \d+\)", found[0].why)
    assert {f.state for f in found[1:-1]} == {"not tried"} and found[-1].kept, "the ids are compared"


def test_one_mistake_is_reported_once_and_a_call_that_hangs_is_not_waited_for_again(monkeypatch):
    class Nothing(Good):
        async def step(self, said, luck):
            return None

    class Hangs(Good):
        async def step(self, said, luck):
            await asyncio.sleep(60)

    class Robot(Good):
        async def open(self):
            return Shown((Message("robot", "begin go"),))

    class Fined(Good):
        async def step(self, said, luck):
            return dataclasses.replace(await super().step(said, luck), reward=-0.1)

    class Numpy(Good):
        async def step(self, said, luck):
            shown = await super().step(said, luck)
            return untyped(shown, reward=np.float32(shown.reward))

    (only,) = checked(Nothing)
    assert "returned None; return isocost.types.Shown(messages)" in only.why
    (only,) = checked(Robot)
    assert "the role 'robot'; roles are system, user, assistant, tool" in only.why
    (only,) = checked(Fined)
    assert "paid -0.3; studies need 0 to 1" in only.why
    assert checked(Numpy) == []
    monkeypatch.setattr(contract, "SECONDS", 0.05)
    found = contract.check(EnvironmentSet("x", Hangs), TOLD)
    assert [f.state for f in found] == ["kept", "BROKEN"] + ["not tried"] * 7 + ["kept"]
    assert "step of problem 'p0' did not return within 0.05 s" in found[1].why


def test_the_commands_list_and_check_environments(tmp_path):
    code, text = cli("envs", "list", "--json")
    rows = {row["name"]: row for row in json.loads(text)}
    assert code == 0 and rows["rooms"]["limits"]["problems"] == 176
    assert rows["gym"]["form"].startswith("gym:ID@") and rows["gym"]["limits"] is None
    code, text = cli("envs", "check", EXAMPLE)
    assert code == 0 and "keeps the contract" in text
    (tmp_path / "bad.py").write_text(
        "from isocost.types import Message, Problem, Shown\n"
        "class Bad:\n"
        "    problems = staticmethod(lambda: [Problem('a', (Message('user', 'a'),))])\n"
        "    def __init__(self, problem): pass\n"
        "    async def open(self): return 'hello'\n"
        "    async def step(self, said, luck): return Shown()\n"
        "    def final(self): return ''\n"
        "    async def close(self): pass\n")
    code, text = cli("envs", "check", f"{tmp_path}/bad.py:Bad")
    assert code == 2 and "return isocost.types.Shown(messages)" in text and "not tried" in text
    code, text = cli("envs", "check", EXAMPLE, "--model", "tiny")
    assert code == 2 and "the model cannot read the prompt of" in text and "not in this model's alphabet" in text
    (tmp_path / "long.py").write_text(
        f"from runpy import run_path\nfrom isocost.types import Shown, Message\n"
        f"class Long(run_path({EXAMPLE.partition(':')[0]!r})['Doors']):\n"
        "    async def open(self): return Shown((*(await super().open()).messages, Message('user', 'A' * 5000)))\n")
    code, text = cli("envs", "check", f"{tmp_path}/long.py:Long", "--model", "tiny-agents")
    assert code == 2 and "breaks 1 of" in text and "tokens; the model's context is" in text
    code, text = cli("envs", "check", f"{tmp_path}/bad.py:Worse")
    assert code == 2 and "has no class 'Worse'" in text


def test_a_class_of_a_users_file_must_have_the_methods_of_an_environment(tmp_path):
    (tmp_path / "mine.py").write_text("class A:\n    async def open(self): pass\n"
                                      "class B(A):\n    def step(self): pass\n    def final(self): pass\n"
                                      "    async def close(self): pass\n")
    with pytest.raises(UserError, match="has no method 'step'"):
        open_environment(f"{tmp_path}/mine.py:A")
    with pytest.raises(UserError, match="step must be a coroutine"):
        open_environment(f"{tmp_path}/mine.py:B")


@pytest.mark.parametrize(("line", "says"), [
    ("max_turns = 'five'", "max_turns is an integer of at least 1, got 'five'"),
    ("max_tokens = 0", "max_tokens is an integer of at least 1, got 0"), ("verifier = len", "the name of a verifier"),
    ("async def step(self, said): pass", "step takes (self, said): write `async def step(self, said, luck)`"),
    ("def __init__(self): pass", "cannot be made for a problem: write `def __init__(self, problem)`"),
    ("def problems(self): return []", "problems takes (self): write `@staticmethod` and `def problems()`"),
    ("async def final(self): pass", "write `def final`"), ("problems = [1]", "static method that lists the problems"),
    ("problems = staticmethod(lambda: ['a'])", "problem 1 is of type str; write isocost.types.Problem"),
    ("problems = staticmethod(lambda: [untyped(Problem('a', ()), prompt='go')])", "problem 1 must be messages"),
])
def test_what_a_class_states_has_the_right_types(line, says, tmp_path):
    whole = "".join(f"    async def {name}(self, *given): pass\n" for name in ("open", "step", "close"))
    (tmp_path / "mine.py").write_text("from isocost.types import Problem\nfrom test_agents import untyped\n"
                                      "class A:\n    def final(self): pass\n    def __init__(self, *given): pass\n"
                                      f"{whole}    {line}\n")
    with pytest.raises(UserError, match=re.escape(says)):
        list(open_environment(f"{tmp_path}/mine.py:A").problems())


SHUT = """
from isocost.types import Message, Problem, Shown
class Shut:
    max_turns, max_tokens = 2, 2
    problems = staticmethod(lambda: [Problem(f"p{i}", (Message("user", f">{i} :"),)) for i in range(60)])
    def __init__(self, problem): self.problem = problem
    async def open(self): raise OSError("no server")
    async def step(self, said, luck): return Shown(over=True, reward=1.0)
    def final(self): return ""
    async def close(self): pass
"""


def test_a_run_whose_environments_all_fail_ends_and_goes_on_once_they_are_corrected(tmp_path, caplog):
    """Without a step its budget in environment steps is never spent."""
    file = tmp_path / "shut.py"
    file.write_text(SHUT)
    words = ("train", "grpo", "--env", f"{file}:Shut", "--model", "tiny-agents", "--budget", "600-env-steps", "--out",
             f"{tmp_path}/run")
    code, text = cli(*words)
    assert code == 5 and "no rollout of the last 2 waves has a score" in " ".join(text.split())
    assert "OSError('no server')" in caplog.text
    end = read_json(tmp_path / "run" / "end.json")
    assert end["reason"] == "reward failed" and end["fates"]["lost"] == 256
    before = read_json(tmp_path / "run" / "run.json")["problems"]["environment_source"]
    file.write_text(SHUT.replace('raise OSError("no server")', "return Shown(self.problem.prompt)"))
    assert cli(*words)[0] in (0, 5)         # every rollout succeeds: nothing is left to learn
    after = read_json(tmp_path / "run" / "run.json")
    assert after["environments_before"] == [before] and after["problems"]["environment_source"] != before
    assert read_json(tmp_path / "run" / "end.json")["fates"]["dead"] > 0
    assert Fault.of("tool: down") == Fault.tool("down")
