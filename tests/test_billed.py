"""C is what was trained on: whoever settles more rollouts than are billed is refused, or ends after its step."""

import asyncio
import json
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from isocost import meter, methods
from isocost.cli.commands import main
from isocost.contract.check import check, plays, runs, surrogate, tried
from isocost.errors import UserError
from isocost.gather import finished
from isocost.ledger import Ledger
from isocost.loop import End, train
from isocost.methods import april, dapo, grpo
from isocost.parts.play import sample
from isocost.parts.reward import verified
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.events import SILENT
from isocost.steps.jobs import run_jobs
from isocost.types import Role, Rollout, Segment
from isocost.worlds import toy
from isocost.worlds.setting import Setting

FILES = sorted((Path(__file__).parent / "fixtures" / "unbilled").glob("*.py"))
SAID = "settled and not billed"
OWN = ("--data", "sums:level=1,count=120", "-n", "8", "-B", "2")


def printed(*args, code):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (done.output, done.stderr)
    return " ".join((done.output + done.stderr).split())


async def copies(problem, attempts, world, pace, place, start=None, origin="policy"):
    half = (len(attempts) + 1) // 2
    first = await sample(problem, attempts[:half], world, pace, place, start)
    return first + [r.but(attempt=k, origin=origin) for r, k in zip(first, attempts[half:], strict=False)]


async def later(problem, attempts, world, pace, place, start=None):
    text = Segment.given(world.text.prompt(problem.prompt), Role.PROMPT, pace.sampling)
    said = await world.engine.generate(text, attempts, place=place, turn=1, max_tokens=pace.max_tokens)
    return [Rollout(problem, (text.wrote(s),), world.text.decode(s.tokens.tolist()), s.stop, k)
            for s, k in zip(said, attempts, strict=True)]


async def on_another_account(problem, attempts, world, pace, place, start=None):
    with meter.on(meter.PROBE):
        return await sample(problem, attempts, world, pace, place, start)


def doubled(group):
    return group.of([*group.rollouts, *(r.but(attempt=100 + r.attempt) for r in group.rollouts)])


async def growing(group, world):
    return doubled(await verified(group, world))


def widened(group, ledger):
    return doubled(group)


def nothing(group, ledger):
    return None


async def none_at_all(problem, attempts, play, ledger):
    return []


async def thrown_away(problem, attempts, world, pace, place, start=None):
    await later(problem, attempts, world, pace, place)
    return []


def trained(recipe, waves=6, most=40):
    """Steps made, why it ended, the ledger and the meter of a small run; fails where it would not end."""
    recipe = recipe.but(groups=4)
    world, ledger, end = toy.world(), Ledger(), End()

    async def go():
        steps = 0
        async for _ in train(recipe, world, ledger, {"rollouts": waves * 4 * recipe.rollouts}, end):
            steps += 1
            assert steps < most
        return steps

    return finished(go()), end, ledger, world.meter


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_file_that_is_not_billed_is_refused_by_the_check_and_by_the_start_of_a_run(file, tmp_path):
    why = [f.why for f in check(str(file), promises=(plays, surrogate, runs)) if not f.kept]
    assert len(why) == 1 and SAID in why[0]
    out = tmp_path / "run"
    said = printed("train", file, "--budget", "640-rollouts", *OWN, "--out", out, code=2)
    assert SAID in said and not out.exists()
    with pytest.raises(UserError, match=SAID):
        tried(str(file), methods.recipe(str(file)))


def test_a_study_of_such_a_file_is_refused_before_it_is_begun(tmp_path):
    said = printed("profile", "--method", FILES[0], *OWN[:2], "--problems", "8", "--out", tmp_path / "s", code=2)
    assert SAID in said and not (tmp_path / "s").exists()


@pytest.mark.parametrize("recipe", [
    grpo.recipe(play=copies), grpo.recipe(play=copies, max_age=2), dapo.recipe(play=copies),
    *(grpo.recipe(play=partial(copies, origin=x)) for x in ("resumed", "replay", "peer", "expert")),
    april.recipe(play=copies), grpo.recipe(play=later), grpo.recipe(play=later, max_age=3), dapo.recipe(play=later),
    grpo.recipe(play=on_another_account), grpo.recipe(reward=growing), grpo.recipe(select=widened),
])
def test_a_run_ends_after_the_step_in_which_more_is_settled_than_billed(recipe):
    steps, end, ledger, _ = trained(recipe)
    assert (steps, end.reason) == (1, "unbilled") and SAID in end.why
    assert len(ledger.steps) == 1 and sum(ledger.fates.values()) - ledger.fates["cancelled"] > 0


def test_filtered_rollouts_that_are_not_billed_end_a_run_that_would_go_on_for_ever():
    steps, end, _, paid = trained(dapo.recipe(play=later, select=nothing))
    assert (steps, end.reason, paid.of().rollouts) == (0, "unbilled", 0)


@pytest.mark.parametrize("recipe", [
    grpo.recipe(schedule=none_at_all), grpo.recipe(schedule=none_at_all, max_age=2), grpo.recipe(play=thrown_away),
])
def test_waves_that_return_nothing_and_cost_nothing_are_an_error(recipe):
    with pytest.raises(UserError, match="returned no rollout and were billed for none"):
        trained(recipe)


def test_a_run_under_way_ends_its_step_says_so_and_stays_readable(tmp_path, monkeypatch):
    """A file that forks from its fourth wave on, which the trial of two steps does not see."""
    monkeypatch.chdir(tmp_path)
    text = next(f for f in FILES if f.stem == "forks").read_text()
    Path("mine.py").write_text(text.replace("len(attempts) < 2:", "len(attempts) < 2 or place.wave < 3:"))
    said = printed("train", "mine.py", "--budget", "320-rollouts", *OWN, "--evaluations", 1, "--out", "r", code=5)
    assert "unbilled: after update 4: 8 rollouts settled and not billed" in said and "can be read" in said
    end, steps = read_json(Path("r/end.json")), read_lines(Path("r/metrics.jsonl"))
    assert (end["reason"], end["steps"], end["bill"]["train"]["rollouts"]) == ("unbilled", 4, 56)
    assert sum(end["fates"].values()) == 56 and max(x["step"] for x in steps) == 3
    for command in ("verdict", "report", "ls", "rollouts"):
        printed(command, "r", code=0)
    before = Path("r/end.json").read_bytes()
    printed("train", "mine.py", "--budget", "320-rollouts", *OWN, "--evaluations", 1, "--out", "r", code=5)
    assert Path("r/end.json").read_bytes() == before


def test_a_phase_of_a_study_stops_at_such_a_run(tmp_path):
    site = Mock(fills=True, run_all=lambda jobs, *_, **__: [{"reason": r, "detail": "8 rollouts"} for r in
                                                              ("spent", "unbilled")])
    jobs = [Job(name, Setting(), "grpo", 0, {"rollouts": 64}, Arm(n=8, B=2, lr=1e-3)) for name in ("a", "b")]
    with pytest.raises(UserError, match="run b: 8 rollouts"):
        run_jobs(jobs, tmp_path, "pilot", SILENT, None, site)


def test_an_unbilled_record_of_an_earlier_version_ends_where_it_is(tmp_path, monkeypatch):
    """Half-run under a version that did not look: fates above the bill."""
    job = Job("r", Setting(data="sums:level=1,count=120"), "grpo", 0, {"rollouts": 64}, Arm(n=8, B=2, lr=1e-3),
              save_every=1)
    real = finished(run(job, tmp_path / "r"))
    state = tmp_path / "r" / "checkpoints" / "step-000004" / "state.json"
    there = json.loads(state.read_text())
    there["meter"]["logical"]["train"]["rollouts"] = 32      # as if half of them were forks
    state.write_text(json.dumps(there))
    (tmp_path / "r" / "end.json").unlink()
    end = asyncio.run(run(job, tmp_path / "r"))
    assert real["reason"] == "spent" and (end["reason"], end["steps"]) == ("unbilled", 4)
