"""Sampling and learning at the same time: the bytes are those of taking turns, whichever of the two is faster."""

import asyncio
import os
import signal
import threading
from dataclasses import replace
from functools import partial

import pytest
import torch

import kill9
from isocost import methods
from isocost.ledger import JournalLine, Ledger
from isocost.loop import train
from isocost.parts.choose import uniform
from isocost.runs.run import run
from isocost.types import Score
from isocost.worlds import toy
from isocost.worlds.setting import Setting, open_setting

SETTING = Setting.of(data="sums:base=easy,count=60", held_out=0.2)
LONG = Setting.of(data="sums:work=1,count=60", held_out=0.2, max_tokens=14)      # rollouts of several bursts


def trained(recipe, setting, *, rollouts=160, change=lambda world: None):
    """(steps, journal, weights, the bill without seconds) of a run, and its world."""
    world, ledger = open_setting(setting).world, Ledger(seed=4)
    change(world)

    async def go():
        return [step.line async for step in train(recipe, world, ledger, {"rollouts": rollouts})]

    steps = asyncio.run(go())
    weights = {k: v.clone() for k, v in world.learner.weights().items()}
    bill = {k: v.counts() for k, v in world.meter.logical.items()}
    return (steps, [x.text() for x in ledger.fresh], weights, bill), world


def same(one, other):
    assert str(one[0]) == str(other[0]) and one[1] == other[1] and one[3] == other[3]
    assert all(torch.equal(one[2][k], other[2][k]) for k in one[2])


def recipe_of(name="grpo", **changes):
    return methods.load(name).recipe(groups=4, rollouts=4).but(**changes)


CASES = {
    "one step old": ({"max_age": 1}, SETTING),
    "three steps old": ({"max_age": 3}, SETTING),
    "several bursts": ({"max_age": 1}, LONG),
    "in torch": ({"max_age": 1}, LONG.but(kernels="torch")),
    "two threads": ({"max_age": 1}, LONG.but(threads=2)),
    "in bf16": ({"max_age": 1}, SETTING.but(dtype="bf16")),
    "an adapter": ({"max_age": 1}, SETTING.but(lora=4)),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_are_those_of_taking_turns(case):
    changes, setting = CASES[case]
    runs = [trained(recipe_of(**changes), setting.but(in_turns=not on))[0] for on in (True, False)]
    same(*runs)
    assert len(runs[0][0]) >= 8


@pytest.mark.parametrize("name", ["dapo", "areal", "ppo", "dart", "webgym", "ettrl"])
def test_bytes_are_those_of_taking_turns_for_methods_that_use_more_than_an_update(name):
    """Refilled batches, a second forward pass, a critic, groups kept by learning, a learner read by sampling."""
    kept = {"select": methods.load("grpo").recipe().select} if name == "webgym" else {}
    recipe = methods.load(name).recipe(groups=4, rollouts=4).but(max_age=1, **kept)
    same(*(trained(recipe, SETTING.but(in_turns=not on))[0] for on in (True, False)))


def every_other(pool, ledger, count, rng):
    ledger.drawn += count
    return uniform(pool, ledger, count, rng)


def test_what_a_seam_of_sampling_counts_in_the_ledger_is_counted_in_both():
    recipe = recipe_of(max_age=1, choose=every_other)
    same(*(trained(recipe, SETTING.but(in_turns=not on))[0] for on in (True, False)))


JOB = kill9._job("grpo", setting={"held_out": 0.4, "data": "sums:base=easy,count=60"}, budget={"rollouts": 160},
                 points=(), save_every=3, export=True)


@pytest.mark.parametrize("changes", [
    {"sets": {"max_age": "1"}},
    {"sets": {"max_age": "3"}, "setting": JOB.setting.but(in_turns=True)},
    {"method": "dapo", "sets": {"max_age": "2"}},
], ids=["one step old", "three steps old, in turns", "refilled batches"])
def test_a_killed_run_goes_on_with_the_rollouts_that_were_ahead(changes, tmp_path):
    job = replace(JOB, **changes)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    asyncio.run(run(job, whole))
    kill9.dies_at_step(job, killed, 5)
    end = asyncio.run(run(job, killed))
    assert kill9.left_by(killed) == kill9.left_by(whole)
    assert sum(end["fates"].values()) == sum(cost["rollouts"] for cost in end["bill"].values())
    assert end["fates"]["lost"] == end["bill"]["lost"]["rollouts"] > 0


@pytest.mark.parametrize("max_age", [0, 1, 2])
def test_a_journal_says_in_which_step_a_group_was_counted_that_was_trained_on_later(max_age):
    """What a curriculum reads after a resume is what it would have read without."""
    ledger, journal, held = Ledger(seed=4), [], 0

    async def go():
        nonlocal held
        recipe = recipe_of("dapo", max_age=max_age)     # refilled: groups that an update has no room for are held
        async for _ in train(recipe, toy.world(), ledger, {"rollouts": 320}):
            journal.extend(map(dict, ledger.fresh))
            ledger.fresh.clear()
            held += len(ledger.ahead.held)
            again = Ledger(seed=4)
            again.replay([*journal, *(JournalLine(ledger.step - 1, x.group, [], 0) for x in ledger.ahead.held)])
            assert (again.history, again.tallies) == (ledger.history, ledger.tallies)

    asyncio.run(go())
    assert (held > 0) is (max_age > 0)


def slow(world):
    """Updates that end after the next wave is complete, however long that takes."""
    update, sampled = world.learner.update, threading.Event()
    world.extra["sampled"] = sampled

    def waits(batch, loss, *, lr):
        if threading.current_thread() is not threading.main_thread():    # the last one has no wave beside it
            assert sampled.wait(60)
            sampled.clear()
            world.extra["waited"] = world.extra.get("waited", 0) + 1
        return update(batch, loss, lr=lr)

    world.learner.update = waits


async def marked(group, world, *, inner):
    """The reward; the last group of a wave lets the update go on that runs beside it."""
    group = await inner(group, world)
    if group.place.wave > 0 and group.place.slot == 3:
        world.extra["sampled"].set()
    return group


def test_a_wave_is_completed_while_the_update_before_it_is_under_way():
    """Each update waits until the next wave is marked: taking turns it would wait for ever."""
    plain = recipe_of(max_age=1)
    beside = plain.but(reward=partial(marked, inner=plain.reward))
    found, world = trained(beside, SETTING, change=slow, rollouts=64)
    same(found, trained(plain, SETTING, rollouts=64)[0])
    assert world.extra["waited"] == 3


async def scored(group, world, *, seen):
    """A reward that notes how many updates the learner that it reads has made."""
    seen.append((group.place.wave, float(world.learner._steps)))
    return group.of([r.but(score=Score(float(r.attempt % 2))) for r in group.rollouts])


def test_what_sampling_reads_of_the_learner_waits_for_the_update_that_is_under_way():
    """As where they take turns, learning first: the wave launched before step k is marked by the weights after it."""
    seen = {True: [], False: []}
    for on, noted in seen.items():
        recipe = recipe_of(max_age=1, reward=partial(scored, seen=noted))
        trained(recipe, SETTING.but(in_turns=not on), rollouts=80)
    assert seen[True] == seen[False]
    assert {w: steps for w, steps in seen[True] if w > 1} == {2: 2.0, 3: 3.0, 4: 4.0}


def broken(world, *, at):
    """An engine that fails when it starts to sample the wave of this number."""
    generate, wave = world.engine.generate, world.engine.wave

    async def fails(start, attempts, *, place, **rest):
        if place.wave == at:
            raise OSError("the engine failed")
        return await generate(start, attempts, place=place, **rest)

    world.engine.generate = fails
    world.engine.wave = lambda *a, places, **k: None if places[0].wave == at else wave(*a, places=places, **k)


@pytest.mark.parametrize("on", [True, False])
def test_an_engine_that_raises_ends_the_loop_after_the_step_beside_it_and_every_rollout_has_a_fate(on):
    world, ledger, steps = open_setting(SETTING.but(in_turns=not on)).world, Ledger(seed=4), []
    broken(world, at=3)

    async def go():
        async for step in train(recipe_of(max_age=1), world, ledger, {"rollouts": 160}):
            steps.append(step.line["step"])

    with pytest.raises(OSError, match="the engine failed"):
        asyncio.run(go())
    assert steps == [0, 1, 2] and float(world.learner._steps) == 3
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == 48


def test_a_learner_that_raises_ends_the_loop_and_the_wave_beside_it_is_cancelled():
    world, ledger = open_setting(LONG).world, Ledger(seed=4)
    update = world.learner.update

    def fails(batch, loss, *, lr):
        if float(world.learner._steps) == 2:
            raise OSError("the learner failed")
        return update(batch, loss, lr=lr)

    world.learner.update = fails

    async def go():
        return [step async for step in train(recipe_of(max_age=1), world, ledger, {"rollouts": 160})]

    with pytest.raises(OSError, match="the learner failed"):
        asyncio.run(go())
    assert not any("isocost-learner" in t.name for t in threading.enumerate())
    assert ledger.step == 2 and ledger.fates["trained"] + ledger.fates["dead"] == 32
    assert ledger.fates["cancelled"] == 16 == world.meter.of().rollouts - 48     # 16 were in the update that failed


def test_a_run_that_is_interrupted_goes_on_with_nothing_lost_or_cancelled(tmp_path):
    """Ctrl-C in the middle: the rollouts that are ahead are in the checkpoint."""
    job = replace(JOB, sets={"max_age": "1"}, save_every=0)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    asyncio.run(run(job, whole))

    def stop(line):
        if line.get("step") == 4 and "reward" in line:
            os.kill(os.getpid(), signal.SIGINT)

    end = asyncio.run(run(job, stopped, on_step=stop))
    assert end["reason"] == "interrupted" and end["steps"] == 5
    assert sum(end["fates"].values()) == sum(cost["rollouts"] for cost in end["bill"].values())
    end = asyncio.run(run(job, stopped))
    assert end["fates"]["cancelled"] == end["fates"]["lost"] == 0
    assert kill9.left_by(stopped) == kill9.left_by(whole)


def test_nothing_is_charged_twice_and_both_sides_say_how_long_they_were_busy():
    (steps, *_), world = trained(recipe_of(max_age=1), LONG)
    assert world.meter.of().rollouts == 160 and world.meter.of().updates == len(steps)
    busy = [world.meter.seconds(work) for work in ("sample", "learn")]
    assert min(busy) > 0 and sum(busy) <= world.meter.of().seconds + 1e-9
