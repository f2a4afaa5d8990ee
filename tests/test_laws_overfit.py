"""Over-fitting is distinguished from learning, collapse and noise, with the pass it began at; and on a real run."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from isocost.laws.curves import Curve, curves
from isocost.laws.overfit import beyond, describe, overfitting
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.worlds.setting import Setting

C = np.array([0, 128, 256, 512, 1024, 2048, 4096, 8192.0])
TRAIN = np.array([np.nan, 0.4, 0.5, 0.6, 0.7, 0.8, 0.88, 0.95])
UP = np.array([0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75])
TURNS = np.array([0.4, 0.5, 0.6, 0.65, 0.63, 0.58, 0.5, 0.4])      # best at 512 rollouts


def arm(held, train=TRAIN, *, n=8, seed=0, noise=0.0, **changes):
    rng = np.random.default_rng(seed)
    held = np.clip(held + noise * rng.normal(size=len(held)), 0, 1)
    kept = {"train": np.array(train), "problems": 256, **changes}
    return Curve(f"n{n}-s{seed}", Arm(n=n, B=16, lr=1e-3), seed, C, held, held, C / 100, C / n / 16, **kept)


def test_held_out_falls_while_training_rises():
    found = overfitting([arm(TURNS), arm(UP, n=32)])
    assert [(x.n, x.C, x.epoch, x.runs) for x in found] == [(8, 512, 512 / 8 / 16, 1)]
    assert found[0].fall == pytest.approx(0.25) and found[0].rise == pytest.approx(0.95 - 0.6)
    said = describe([*found, replace(found[0], n=2, epoch=None)])
    assert "n=8 from pass 4.0 on (-0.250 held out, +0.350 in training), n=2 from 512 rollouts on (" in said


@pytest.mark.parametrize(("held", "train", "why"), [
    (UP, TRAIN, "nothing fell"),
    (TURNS, TURNS - 0.05, "a collapse takes training with it"),
    (TURNS, np.full(8, 0.5), "training stood still in the middle"),
    (UP + np.array([0, 0, 0, 0, 0, 0.1, 0.05, -0.01]), TRAIN, "fell by less than three errors"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_what_is_no_over_fitting(held, train, why):
    assert overfitting([arm(held, train)]) == [], why


def test_training_at_its_ceiling_cannot_rise():
    solved = np.array([np.nan, 0.5, 0.8, 0.97, 0.98, 0.98, 0.98, 0.98])
    assert len(overfitting([arm(TURNS, solved)])) == 1


def test_from_the_base_on():
    found = overfitting([arm(np.linspace(0.48, 0.2, 8))])
    assert (found[0].C, found[0].epoch) == (0, 0) and found[0].fall == pytest.approx(0.28)


def test_sampled_evaluations_need_a_larger_fall():
    small = UP + np.array([0, 0, 0, 0, 0.1, 0.05, 0.0, -0.1])       # from .7 to .65
    assert len(overfitting([arm(small)])) == 1
    assert overfitting([arm(small, samples=4)]) == []
    assert len(overfitting([arm(small, samples=4, problems=25_600)])) == 1


def test_noise_is_seldom_taken_for_it():
    """Three noisy seeds that rise: at most 2 of 200 studies are flagged; of as many that turn, all."""
    flagged = [
        sum(bool(overfitting([arm(held, seed=3 * s + k, noise=0.02) for k in range(3)])) for s in range(200))
        for held in (UP, TURNS)]
    assert flagged[0] <= 2 and flagged[1] == 200, flagged


def test_records_without_training_reward_or_with_too_little_are_not_read():
    assert overfitting([replace(arm(TURNS), train=None)]) == []
    short = arm(TURNS)
    assert overfitting([replace(short, **{k: getattr(short, k)[:2]
                                          for k in ("C", "select", "audit", "seconds", "epochs", "train")})]) == []


def test_a_plan_is_warned_beyond_the_pass_it_began_at():
    found = overfitting([arm(TURNS), arm(TURNS, n=2)])
    assert [(x.n, x.epoch) for x in found] == [(2, 16.0), (8, 4.0)]
    assert beyond(found, 2, 15.0) is None and "15.0 passes" in beyond(found, 8, 15.0)
    assert "n=8 over-fitted from 4.0 on" in beyond(found, 64, 5.0), "where its own n did not, the earliest counts"
    assert beyond([], 8, 1e9) is None and beyond(found, 8, None) is None


def test_a_real_run_on_sixteen_problems_over_fits(tmp_path):
    """And one of the same size on many problems does not."""
    held = "sums:base=easy,count=128,seed=1"
    few = Setting.of(data="sums:base=easy,count=200,seed=3", limit=16, held_out_data=held)
    many = few.but(data="sums:base=easy", limit=None)
    for name, setting in (("few", few), ("many", many)):
        job = Job(arm=Arm(n=8, B=16, lr=3e-4), name=name, setting=setting, method="isohard", seed=0,
                  budget={"rollouts": 1280}, points=(128, 384, 768))
        asyncio.run(run(job, tmp_path / name))
    found = overfitting(curves([tmp_path / "few"]))
    assert len(found) == 1 and found[0].fall > 0.1 and found[0].rise > 0.2 and found[0].epoch < 10
    assert overfitting(curves([tmp_path / "many"])) == []
