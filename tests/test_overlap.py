"""Sampling and learning at the same time: the bytes are those of taking turns, whichever of the two is faster."""

import asyncio
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch

import kill9
from isocost import methods
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.runs.run import run
from isocost.worlds.setting import Setting, open_setting

SETTING = Setting(data="sums:base=easy,count=60", held_out=0.2)
LONG = Setting(data="sums:work=1,count=60", held_out=0.2, max_tokens=14)      # rollouts of several bursts


def trained(recipe, setting, *, rollouts=160, change=lambda world: None):
    """(steps, journal, weights, the bill without seconds) of a run, and its world."""
    world, ledger = open_setting(setting).world, Ledger(seed=4)
    change(world)

    async def go():
        return [step.line async for step in train(recipe, world, ledger, {"rollouts": rollouts})]

    steps = asyncio.run(go())
    weights = {k: v.clone() for k, v in world.learner.weights().items()}
    bill = {k: v.counts() for k, v in world.meter.logical.items()}
    return (steps, [x.json() or dict(x) for x in ledger.fresh], weights, bill), world


def same(one, other):
    assert str(one[0]) == str(other[0]) and one[1] == other[1] and one[3] == other[3]
    assert all(torch.equal(one[2][k], other[2][k]) for k in one[2])


def recipe_of(name="grpo", **changes):
    return methods.load(name).recipe(groups=4, rollouts=4).but(**changes)


CASES = {
    "one step old": ({"max_age": 1}, SETTING),
    "three steps old": ({"max_age": 3}, SETTING),
    "several bursts": ({"max_age": 1}, LONG),
    "in torch": ({"max_age": 1}, replace(LONG, kernels="torch")),
    "two threads": ({"max_age": 1}, replace(LONG, threads=2)),
    "in bf16": ({"max_age": 1}, replace(SETTING, dtype="bf16")),
    "an adapter": ({"max_age": 1}, replace(SETTING, lora=4)),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_are_those_of_taking_turns(case):
    changes, setting = CASES[case]
    runs = [trained(recipe_of(**changes), replace(setting, overlap=on))[0] for on in (True, False)]
    same(*runs)
    assert len(runs[0][0]) >= 8


@pytest.mark.parametrize("name", ["dapo", "areal", "ppo", "dart", "webgym", "ettrl"])
def test_bytes_are_those_of_taking_turns_for_methods_that_use_more_than_an_update(name):
    """Refilled batches, a second forward pass, a critic, groups kept by learning, a learner read by sampling."""
    kept = {"select": methods.load("grpo").recipe().select} if name == "webgym" else {}
    recipe = methods.load(name).recipe(groups=4, rollouts=4).but(max_age=1, **kept)
    same(*(trained(recipe, replace(SETTING, overlap=on))[0] for on in (True, False)))


JOB = kill9._job("grpo", setting={"held_out": 0.4, "data": "sums:base=easy,count=60"}, budget={"rollouts": 160},
                 points=(), save_every=3, export=True)


@pytest.mark.parametrize("changes", [
    {"sets": {"max_age": "1"}},
    {"sets": {"max_age": "3"}, "setting": replace(JOB.setting, overlap=False)},
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
