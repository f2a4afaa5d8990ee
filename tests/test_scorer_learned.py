"""A learned scorer: its labels, its fit by cross-entropy, and its values after a text."""

import asyncio
import json

import numpy as np
import pytest
import torch

import local_world
from isocost import meter, scorers, strategies
from isocost.errors import UserError
from isocost.pack import pack
from isocost.scorers import learned
from isocost.steps import scorer as steps
from isocost.steps.scorer import Fitting, Labelled, learn_scorer, step_ends
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Score, Segment
from isocost.worlds.setting import Setting, open_setting

PROBLEM = Problem("p", (Message("user", "1"),), "1")
PUZZLES = Setting.of(model="tiny-puzzles", data="puzzles:kind=chain", limit=16, max_tokens=64, held_out=0.5)


def text(tokens):
    return Segment.given([1, 10], Role.PROMPT).read(tokens, Role.OWN)


def test_values_are_those_before_the_next_token_and_a_half_before_the_fit():
    """Of a text alone, and of the row of a longer text that begins so: the head is zero at first."""
    world = local_world.world()
    critic, longer = world.new_critic(), text([2, 3, 4, 5])
    assert learned.values(critic, [longer], PROBLEM, world) == [0.5]
    with torch.no_grad():
        critic.head.normal_(generator=torch.Generator().manual_seed(0))
    one = Rollout(PROBLEM, (longer.read([0], Role.OWN),), "", score=Score(0.0))
    row = pack([Group(PROBLEM, (one,), Place(0, 0, 0))], 0)
    whole = critic.values(row)[0]
    before = world.meter.total.score
    each = learned.values(critic, [longer.cut(k) for k in (3, 4, 5, 6)], PROBLEM, world)
    assert each == pytest.approx([float(whole[k]) for k in (3, 4, 5, 6)], abs=1e-6)
    assert len({round(x, 4) for x in each}) == 4 and all(0 < x < 1 for x in each)
    assert world.meter.total.score - before == 4 + 5 + 6 + 7        # tokens, each with the one after it


def test_the_fit_is_by_cross_entropy_on_the_labelled_positions_alone():
    """The loss before the first update is -[y log ½ + (1 - y) log ½] = log 2; then texts that end in 2 score high."""
    world = local_world.world()
    critic, losses = world.new_critic(), []
    labelled = []
    for i in range(16):
        own = [3, 4, 2 if i % 2 else 5]
        rollout = Rollout(PROBLEM, (text(own),), "", attempt=i)
        labelled.append(Labelled(rollout, {5: float(i % 2), 4: 0.5}))
    fit = critic.fit
    critic.fit = lambda *a, **k: losses.append(fit(*a, **k)["critic/loss"])
    count = steps._fit(critic, labelled, Fitting(epochs=40, lr=3e-3), world, lambda *a: None)
    assert losses[0] == pytest.approx(np.log(2), abs=1e-6) and losses[-1] < 0.45 and count == 32
    right, wrong, middle = learned.values(critic, [text([3, 4, 2]), text([3, 4, 5]), text([3, 4])], PROBLEM, world)
    assert right > 0.9 and wrong < 0.1 and middle == pytest.approx(0.5, abs=0.1)


def test_labels_are_the_mean_marks_of_continuations():
    """Every continuation is a rollout that begins with the text up to a step; the text's own mark is its last label."""
    opened = open_setting(PUZZLES)
    world, seen = opened.world, []
    grade = world.grade

    async def marks(rollouts):
        found = await grade(rollouts)
        seen.extend(zip(rollouts, found, strict=True))
        return found

    world.grade = marks
    with meter.tab() as tab, meter.begins(True):
        made = asyncio.run(steps._labelled(world, opened.sides.train[:2], PUZZLES.measured, Fitting(2, 2),
                                           lambda *a: None))
    opened.close()
    assert len(made) == 4 and tab.cost.rollouts == 4 + 2 * sum(len(x.labels) - 1 for x in made) == len(seen)
    for one in made:
        own, whole = one.rollout.segments[-1], len(one.rollout.segments[-1])
        assert sorted(one.labels) == [*step_ends(one.rollout, world), whole]
        assert one.labels[whole] == one.rollout.mark.value
        for at in step_ends(one.rollout, world):
            assert world.text.decode(own.tokens[at - 1 : at].tolist()) == ";"
            there = [m.value for r, m in seen if r.problem == one.rollout.problem
                     and r.parent == (one.rollout.attempt, at)]
            assert one.labels[at] == np.mean(there)


@pytest.mark.slow
def test_a_scorer_is_learned_measured_stored_and_used(tmp_path):
    found = learn_scorer(PUZZLES.but(limit=40), tmp_path / "s", Fitting(3, 2, 2, 1e-3))
    stored = json.loads((tmp_path / "s" / learned.ABOUT).read_text())
    assert stored["within"]["value"] == found.within.value and stored["labels"] == found.labels > 100
    right = found.wrong == pytest.approx(found.accepts) or found.wrong == pytest.approx(found.rejects)
    assert 0 <= found.wrong <= 1 and (right or min(found.accepts, found.rejects) < found.wrong
                                      < max(found.accepts, found.rejects))
    strategy = strategies.parse(f"best-of:n=3,scorer=learned:file={tmp_path / 's'}")
    opened = open_setting(PUZZLES)
    with meter.tab(), meter.begins(True):
        problem, pace = opened.sides.train[0], PUZZLES.measured
        answers = asyncio.run(strategy.play(problem, [0, 1], opened.world, pace, Place(0, 0, 0)))
    opened.close()
    assert all(0 < r.notes["score"] < 1 and r.notes["scoring"] > 0 for r in answers)


def test_a_scorer_that_is_not_there_is_named(tmp_path):
    world = local_world.world()
    rollouts = [Rollout(PROBLEM, (text([2]),), "")]
    with pytest.raises(UserError, match="there is no scorer in none; make one: isocost scorer MODEL"):
        asyncio.run(scorers.scores(scorers.parse("learned:file=none"), PROBLEM, rollouts, [True], world))
    world.new_critic = None
    with pytest.raises(UserError, match="this model is not on this machine"):
        asyncio.run(scorers.scores(scorers.parse("learned:file=none"), PROBLEM, rollouts, [True], world))
