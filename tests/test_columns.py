"""Waves written in one call, and rollouts that stay arrays: the same tokens, costs, batches and files as one by one."""

import asyncio
import hashlib
from collections import Counter
from copy import copy
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch

from isocost import meter
from isocost.batch import Batch
from isocost.fast import pack as fast
from isocost.fast.columns import WaveColumns, WaveGroup
from isocost.fast.forms import Forms
from isocost.fast.wave import ColumnWave, sampled
from isocost.gather import finished
from isocost.local import world as local
from isocost.pack import pack
from isocost.parts.play import sample
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.seams import Pace
from isocost.types import Group, Message, Place, Problem, Sampling, Score
from isocost.worlds.setting import Setting
from local_world import model, sums, world


def posed(prompts):
    problems = [Problem(p, (Message("user", p),)) for p in prompts]
    return problems, [Place(7, 3, slot) for slot in range(len(problems))]


def wave_of(w, prompts, counts, pace) -> WaveColumns | None:
    problems, places = posed(prompts)
    return sampled(problems, counts, w, pace, places)


def one_by_one(w, prompts, counts, pace) -> list[Group]:
    problems, places = posed(prompts)

    async def every():
        each = zip(problems, counts, places, strict=True)
        return await asyncio.gather(*(sample(p, range(k), w, pace, at) for p, k, at in each))

    groups = zip(problems, asyncio.run(every()), places, strict=True)
    return [Group(p, tuple(rollouts), at) for p, rollouts, at in groups]


def scored(group: Group) -> Group:
    return group.of(r.marked(Score(float(r.attempt % 2))) for r in group.rollouts)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_wave_is_what_its_groups_are_one_by_one(dtype, threads):
    """Lengths differ, prompts differ in length, counts differ, and one limit is cut by the model's context."""
    source = model(sharp=1.5, max_len=33)
    prompts, counts = [*sums(5, 2), "1" * 30], [3, 1, 6, 2, 4, 5]
    pace = Pace(1e-3, 9, Sampling(0.8))
    here, there = (world(source, kernels="native", dtype=dtype, threads=threads) for _ in range(2))
    wave, groups = wave_of(here, prompts, counts, pace), one_by_one(there, prompts, counts, pace)
    assert wave is not None and len(set(wave.lengths)) > 3 and set(map(str, wave.stops)) == {"done", "length"}
    wave.scores = [Score(float(i % 2)) for k in counts for i in range(k)]
    for mine, theirs in zip(wave.groups(), map(scored, groups), strict=True):
        assert (mine.place, mine.problem) == (theirs.place, theirs.problem) and isinstance(mine, WaveGroup)
        assert (mine.size, mine.attempts, mine.scores, mine.stops, mine.lengths, mine.version) == (
            theirs.size, theirs.attempts, theirs.scores, theirs.stops, theirs.lengths, theirs.version)
        assert mine.rewards.tolist() == theirs.rewards.tolist() and mine.ages and theirs.ages
        for a, b in zip(mine.rollouts, theirs.rollouts, strict=True):
            assert (a.final, a.attempt, a.stop, a.score, a.mark) == (b.final, b.attempt, b.stop, b.score, b.mark)
            for name in ("tokens", "role", "logp", "turn", "version"):
                x, y = (getattr(r.segments[0], name) for r in (a, b))
                assert np.array_equal(x, y) and x.dtype == y.dtype, name
    for side in ("logical", "physical"):
        a, b = (getattr(w.meter, side)[meter.TRAIN].counts() for w in (here, there))
        assert a == b
    assert here.engine.tapes.keys() == there.engine.tapes.keys()
    for place, tape in here.engine.tapes.items():
        assert np.array_equal(tape.tokens, there.engine.tapes[place].tokens)


def test_groups_of_columns_are_packed_as_their_rollouts_are():
    w = world(model(sharp=1.5), kernels="native")
    w.engine.version = 1
    wave = wave_of(w, sums(4, 2), [3, 2, 4, 1], Pace(1e-3, 9, Sampling(0.7)))
    wave.scores = [Score(i / 10) for i in range(10)]
    groups = wave.groups()
    for some in (groups, groups[:2], [groups[3], groups[0]], groups[1::2]):
        columns, objects = fast.pack(some, version=2), pack([g.of(g.rollouts) for g in some], version=2)
        for f in fields(Batch):
            a, b = getattr(columns, f.name), getattr(objects, f.name)
            if isinstance(a, torch.Tensor):
                assert torch.equal(a, b) and a.dtype == b.dtype, f.name
            elif f.name != "groups":
                assert a == b, f.name
    assert fast.pack([*groups[:1], objects.groups[0]], version=2) is None and fast.pack([], version=2) is None
    wave.scores = [None, *wave.scores[1:]]
    assert fast.pack(wave.groups(), version=2) is fast.pack(wave.groups()[1:], version=2) is None
    with pytest.raises(ValueError, match=r"attempt 0 at .* has no score"):
        pack(wave.groups(), version=2)


def test_rollouts_are_made_when_they_are_read_and_once(monkeypatch):
    w, made = world(model(), kernels="native"), []
    wave = wave_of(w, sums(2, 2), [2, 2], Pace(1e-3, 4, Sampling()))
    real = WaveColumns.rollouts
    monkeypatch.setattr(WaveColumns, "rollouts", lambda self, *which: made.append(which[0]) or real(self, *which))
    first, second = wave.groups()
    assert (first.size, second.lengths, made) == (2, wave.lengths[2:], [])
    assert first.rollouts is first.rollouts and made == [0]
    for other in (first.of(first.rollouts[:1]), replace(first, rollouts=first.rollouts[:1])):
        assert type(other) is Group and (other.size, other.place) == (1, first.place)
    assert copy(second).lengths == second.lengths and made == [0]


def test_an_attribute_error_names_the_attribute_that_is_missing():
    """Not the property in which it was raised, whether the rollouts are arrays or objects."""
    def longest(self):
        return max(r.lenght for r in self.rollouts)

    wave = wave_of(world(model(), kernels="native"), sums(1, 2), [2], Pace(1e-3, 4, Sampling()))
    (group,) = wave.groups()
    kinds = [type("Own", (kind,), {"longest": property(longest)}) for kind in (WaveGroup, Group)]
    for own in (kinds[0].of_rows(wave, 0, 0, 2), kinds[1](group.problem, group.rollouts)):
        with pytest.raises(AttributeError, match="'Rollout' object has no attribute 'lenght'"):
            _ = own.longest
        with pytest.raises(AttributeError, match="'Own' object has no attribute 'rolouts'") as missing:
            _ = own.rolouts
        assert missing.value.name == "rolouts" and missing.value.obj is own, "so Python suggests `rollouts`"


@pytest.mark.parametrize("why, change", [
    ("torch", {}), ("answers longer than a burst", {"max_tokens": 40}), ("truncated", {"sampling": Sampling(1.0, 0.9)}),
    ("a stop string", {"stop": ("1",)}), ("no memory for tapes", {}), ("an evaluation", {}), ("a halted wave", {}),
])
def test_waves_that_only_single_requests_can_do_are_left_to_them(why, change):
    w = world(model(max_len=256), kernels="torch" if why == "torch" else "native")
    if why == "no memory for tapes":
        w.engine.cache.tape_bytes = 0
    if why == "a halted wave":
        w.engine.halt(Place(7, 3, 0))
    pace = Pace(**{"lr": 1e-3, "max_tokens": 4, **change})
    with meter.on(meter.EVALUATION if why == "an evaluation" else meter.TRAIN):
        assert wave_of(w, sums(2, 2), [2, 2], pace) is None
    assert not w.meter.logical


def test_logits_that_are_not_finite_are_an_error():
    w = world(model(), kernels="native")
    broken = {k: v.clone() for k, v in w.learner.weights().items()}
    broken["norm"][:] = float("nan")
    w.engine.restore(broken, 3)
    with pytest.raises(FloatingPointError, match="not finite at version 3"):
        wave_of(w, sums(2, 2), [2, 2], Pace(1e-3, 4, Sampling()))


def test_a_recipe_has_whole_waves_only_where_its_schedule_and_play_have_such_a_form():
    from isocost import methods

    grpo = methods.recipe("grpo")
    assert ColumnWave.of(grpo) == ColumnWave(verified=True)
    assert ColumnWave.of(grpo.but(max_age=1, play=partial(sample))) is not None     # a wave after the other
    assert ColumnWave.of(methods.recipe("april")) is None     # its schedule stops attempts
    assert ColumnWave.of(methods.recipe("dapo")) == ColumnWave(verified=False)     # each group by its own reward


@pytest.mark.parametrize("method, n", [("grpo", 2), ("dapo", 4), ("vcpo", 4), ("rloo", 4)])
def test_a_run_writes_the_same_bytes_without_whole_waves(tmp_path, monkeypatch, method, n):
    job = Job("a", Setting(), method, 3, {"rollouts": 8 * n * 4}, Arm(n=n, B=8, lr=3e-4))
    used = Counter()

    def counted(name, real):
        def call(self, *given):
            out = real(self, *given)
            used[name] += out is not None
            return out

        return call

    for name in ("wave", "pack", "line"):
        monkeypatch.setattr(Forms, name, counted(name, getattr(Forms, name)))
    monkeypatch.setattr(ColumnWave, "__call__", counted("called", ColumnWave.__call__))
    finished(run(job, tmp_path / "whole"))
    assert used["wave"] == 1 and min(used["called"], used["line"]) >= 4
    assert (used["pack"] >= 4) == (method != "dapo"), "each group's own reward makes rollouts of it"
    before = Counter(used)
    monkeypatch.setattr(local, "Forms", lambda: None)
    finished(run(job, tmp_path / "apart"))
    assert used == before

    def digests(folder):
        last = max((folder / "checkpoints").glob("step-*"))
        files = [folder / f"{x}.jsonl" for x in ("metrics", "journal", "samples")] + [last / "learner.safetensors"]
        return [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]

    assert digests(tmp_path / "whole") == digests(tmp_path / "apart")


def test_rollouts_of_a_wave_whose_reward_fails_are_charged_and_cancelled(monkeypatch):
    from isocost import methods
    from isocost.errors import RewardFailed
    from isocost.ledger import Ledger
    from isocost.loop import train
    from isocost.recipe import paced
    from isocost.worlds.setting import open_setting

    opened, recipe = open_setting(Setting()), paced(methods.recipe("grpo", groups=4, rollouts=2), lr=1e-4, max_tokens=4)
    ledger, texts = Ledger(seed=1), opened.grader.texts

    def failing(finals, problems):
        if ledger.step == 2:
            raise RewardFailed("it raised")
        return texts(finals, problems)

    monkeypatch.setattr(opened.grader, "texts", failing)

    async def steps():
        async for _ in train(recipe, opened.world, ledger, {"rollouts": 80}):
            pass

    with pytest.raises(RewardFailed):
        finished(steps())
    assert ledger.fates["cancelled"] == 8 and sum(ledger.fates.values()) == opened.world.meter.of().rollouts == 24
