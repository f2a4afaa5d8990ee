"""C is what was trained on: rollouts are billed where they begin, and a method that settles more is refused, or ends
after its step."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner

import local_world
from isocost import meter, methods
from isocost.cli.commands import main
from isocost.contract.check import check, plays, runs, surrogate, toy_for, tried
from isocost.errors import UserError
from isocost.feed import Feed
from isocost.gather import finished
from isocost.ledger import Ahead, Ledger, Played
from isocost.loop import train
from isocost.methods import april, dapo, grpo
from isocost.parts.play import fork, given, sample
from isocost.parts.reward import verified
from isocost.parts.select import everything
from isocost.recipe import paced, tune
from isocost.runs.arm import Arm
from isocost.runs.evaluate import group_of
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.seams import Pace
from isocost.steps.execution import Execution
from isocost.steps.training.jobs import run_jobs
from isocost.types import Cost, End, Group, Message, Place, Problem, Role, Rollout, Score, Segment
from isocost.worlds import toy
from isocost.worlds.setting import Setting

FIXTURES = Path(__file__).parent / "fixtures"
FILES = sorted((FIXTURES / "unbilled").glob("*.py"))
BILLED = sorted((FIXTURES / "billed").glob("*.py"))
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


async def aside(problem, attempts, world, pace, place, start=None):
    text = Segment.given(world.text.prompt(problem.prompt), Role.PROMPT, pace.sampling)
    with meter.begins(False):
        said = await world.engine.generate(text, attempts, place=place, turn=1, max_tokens=pace.max_tokens)
    return [Rollout(problem, (text.wrote(s),), world.text.decode(s.tokens.tolist()), s.stop, k)
            for s, k in zip(said, attempts, strict=True)]


async def uneven(problem, attempts, world, pace, place, start=None):
    """Every other group keeps half of what it begins; the others hold copies, as if earlier waves had begun them."""
    if place.slot % 2:
        return await copies(problem, attempts, world, pace, place, start, "resumed")
    return (await sample(problem, attempts, world, pace, place, start))[: len(attempts) // 2]


async def halved(problem, attempts, play, ledger):
    return (await play(problem, attempts))[: len(attempts) // 2]


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
    await aside(problem, attempts, world, pace, place)
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
    april.recipe(play=copies), grpo.recipe(play=aside), grpo.recipe(play=aside, max_age=3), dapo.recipe(play=aside),
    grpo.recipe(play=on_another_account), grpo.recipe(reward=growing), grpo.recipe(select=widened),
    grpo.recipe(schedule=halved, reward=growing), grpo.recipe(schedule=halved, select=widened),
    grpo.recipe(play=uneven, rollouts=7), grpo.recipe(play=uneven),
])
def test_a_run_ends_after_the_step_in_which_more_is_settled_than_billed(recipe):
    steps, end, ledger, _ = trained(recipe)
    assert (steps, end.reason) == (1, "unbilled") and SAID in end.why
    assert len(ledger.steps) == 1 and sum(ledger.fates.values()) - ledger.fates["cancelled"] > 0


@pytest.mark.parametrize("file", BILLED, ids=lambda f: f.stem)
@pytest.mark.filterwarnings("ignore::FutureWarning")        # of `by_hand`
def test_a_fork_is_billed_once_however_it_is_asked_for(file):
    found = check(str(file), promises=(plays, surrogate, runs))
    assert all(f.kept for f in found), [f.why for f in found]
    _, end, ledger, paid = trained(methods.recipe(str(file)))
    settled = sum(ledger.fates.values())
    assert (end.reason, ledger.fates["cancelled"]) == ("spent", 0) and settled == paid.of().rollouts == 6 * 4 * 8


def test_a_charge_by_hand_is_not_counted_and_says_so():
    paid = meter.Meter()
    with meter.begins(True), pytest.warns(FutureWarning, match="charged where they begin"):
        paid.charge(Cost(rollouts=3, decode=2))
    assert paid.of() == Cost(decode=2)


@pytest.mark.parametrize("name", ["aepo", "arpo", "ettrl", "fission", "rmcts", "int_"])
def test_each_rollout_that_a_forking_method_begins_has_one_fate(name):
    """As many are billed as have a fate, the cancelled ones among them, and forks are in it."""
    made = tune(methods.recipe(name, groups=2, rollouts=8, max_age=1, select=everything), "pace.max_turns", 3)
    for path, value in {"arpo": {"play.trunks": 4}, "int_": {"play.propose": "itself"}}.get(name, {}).items():
        made = tune(made, path, value)
    world, ledger, forks = toy_for(toy.holds_dialogues(made)), Ledger(), 0
    world.problems = [replace(p, meta={**p.meta, "solution": "ab" + p.answer}) for p in world.problems]

    async def go():
        nonlocal forks
        async for step in train(made, world, ledger, {"rollouts": 64}):
            forks += sum(r.parent is not None for g in step.groups for r in g.rollouts)

    finished(go())
    assert all(x["cancelled"] >= 0 for x in ledger.fresh)
    met = sum(len(x["fates"]) + x["cancelled"] for x in ledger.fresh)
    assert world.meter.of().rollouts == met == sum(ledger.fates.values()) > 0
    assert forks or name == "int_"


@pytest.mark.parametrize("make", [toy.world, toy.dialogues])
def test_an_attempt_that_goes_on_is_not_billed_again_and_every_other_start_is(make):
    world, pace, place = make(), Pace(0.0, 6, max_turns=2), Place(0, 0, 0)
    problem = world.problems[0]

    def billed(attempts, start=None, how=sample):
        before = world.meter.of().rollouts
        made = asyncio.run(how(problem, attempts, world, pace, place, start))
        return world.meter.of().rollouts - before, made

    count, (one,) = billed([4])
    text, own = one.segments[-1], np.flatnonzero(one.segments[-1].own)
    half, over = one.cut(int(own[0]) + 1), one.cut(int(own[text.turn[own] == 0][-1]) + 1)
    assert count == 1
    assert [billed(x, half)[0] for x in ([4], [5], [4, 5], [5, 6])] == [0, 1, 2, 2]
    assert [billed(x, over)[0] for x in ([4], [5])] == [0, 1]       # no token is written of the turn that is over
    assert billed([4], half.segments[-1])[0] == 1                   # of which attempt it is, nobody knows
    assert billed([4], given(text, int(own[0]) + 1))[0] == billed([4], one.cut(int(own[0])))[0] == 1
    before = world.meter.of().rollouts
    made = asyncio.run(fork(one, int(own[0]) + 1, [7, 8], world, pace, place))
    assert world.meter.of().rollouts - before == 2 and [r.parent for r in made] == [(4, int(own[0]) + 1)] * 2


def test_an_evaluation_of_copies_is_refused_and_one_of_forks_is_billed():
    world, pace = toy.world(), Pace(0.0, 8)
    with pytest.raises(UserError, match="an evaluation: 4 rollouts settled and not billed"):
        asyncio.run(group_of(grpo.recipe(play=copies), world, world.problems[0], Place(0, 0, 0, 1), 8, pace))
    before, forks = world.meter.of().rollouts, methods.load(str(FIXTURES / "billed" / "forks.py")).recipe()
    group = asyncio.run(group_of(forks, world, world.problems[0], Place(0, 0, 0, 1), 8, pace))
    assert group.size == world.meter.of().rollouts - before == 8


def test_copies_in_a_wave_that_a_checkpoint_holds_end_the_run_that_goes_on_with_it():
    recipe, world, ledger = grpo.recipe(groups=1, rollouts=4), toy.world(), Ledger()
    pace, place = Pace(0.0, 8), Place(0, 0, 0)
    made = asyncio.run(copies(world.problems[0], range(4), world, pace, place))
    world.meter.charge(Cost(), to=meter.Payer(begins=True), started=8)        # what the run has cancelled
    ledger.waves, ledger.ahead = 1, Ahead([[Played(Group(world.problems[0], tuple(made), place).of(
        r.scored(Score(float(r.attempt % 2))) for r in made), -2)]])

    async def go():
        async with Feed(recipe, world, ledger, {"rollouts": 64}) as feed:
            return len(await feed.take()), len(await feed.take()), feed.ended, feed.why

    first, then, ended, why = asyncio.run(go())
    assert (first, then, ended) == (1, 0, "unbilled") and why.startswith("2 rollouts")


class Unbilled:
    """An engine whose whole waves begin no rollouts."""

    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def wave(self, *args, **named):
        with meter.begins(False):
            return self.engine.wave(*args, **named)


@pytest.mark.parametrize("billed", [True, False])
def test_a_whole_wave_is_billed_or_the_run_ends(billed):
    async def by_turns(rollouts):
        return [Score(float(r.attempt % 2)) for r in rollouts]

    world, end = local_world.world(kernels="native"), End()
    world.problems, world.grade = [Problem(p, (Message("user", p),), answer="1") for p in local_world.sums(4)], by_turns
    if not billed:
        world.engine = Unbilled(world.engine)

    async def go():
        recipe = paced(grpo.recipe(groups=2, rollouts=4), max_tokens=6)
        async for _ in train(recipe, world, Ledger(), {"rollouts": 24}, end):
            pass

    finished(go())
    assert world.engine.version == (3 if billed else 1) and world.meter.of().prefill
    assert (end.reason, world.meter.of().rollouts) == (("spent", 24) if billed else ("unbilled", 0))


def test_filtered_rollouts_that_are_not_billed_end_a_run_that_would_go_on_for_ever():
    steps, end, _, paid = trained(dapo.recipe(play=aside, select=nothing))
    assert (steps, end.reason, paid.of().rollouts) == (0, "unbilled", 0)


@pytest.mark.parametrize("recipe", [
    grpo.recipe(schedule=none_at_all), grpo.recipe(schedule=none_at_all, max_age=2), grpo.recipe(play=thrown_away),
])
def test_waves_that_return_nothing_and_cost_nothing_are_an_error(recipe):
    with pytest.raises(UserError, match="returned no rollout and were billed for none"):
        trained(recipe)


def test_a_run_under_way_ends_its_step_says_so_and_stays_readable(tmp_path, monkeypatch):
    """A file that copies from its fourth wave on, which the trial of two steps does not see."""
    monkeypatch.chdir(tmp_path)
    text = (FIXTURES / "unbilled" / "copies.py").read_text()
    Path("mine.py").write_text(text.replace("half =", "half = len(attempts) if place.wave < 3 or place.purpose else"))
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
        run_jobs(jobs, tmp_path, "pilot", Execution(site=site))


def test_an_unbilled_record_of_an_earlier_version_ends_where_it_is(tmp_path, monkeypatch):
    """Half-run under a version that did not look: fates above the bill."""
    job = Job("r", Setting.of(data="sums:level=1,count=120"), "grpo", 0, {"rollouts": 64}, Arm(n=8, B=2, lr=1e-3),
              save_every=1)
    real = finished(run(job, tmp_path / "r"))
    state = tmp_path / "r" / "checkpoints" / "step-000004" / "state.json"
    there = json.loads(state.read_text())
    there["meter"]["logical"]["train"]["rollouts"] = 32      # as if half of them were forks
    state.write_text(json.dumps(there))
    (tmp_path / "r" / "end.json").unlink()
    end = asyncio.run(run(job, tmp_path / "r"))
    assert real["reason"] == "spent" and (end["reason"], end["steps"]) == ("unbilled", 4)
