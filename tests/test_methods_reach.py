"""VLA-RL and the environment reach: numbers worked by hand from the paper's equations."""

import asyncio
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dialogues import batch_of, by_turn, dialogue
from isocost import methods
from isocost.batch import Forward
from isocost.envs.opening import open_environment
from isocost.envs.tiny import reach
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import vlarl
from isocost.pack import pack
from isocost.recipe import paced
from isocost.types import Group, Place, Problem, Rollout, Score, Turn
from isocost.worlds import toy
from toy import run

ROUTE = Problem("route", (), "62", meta={"milestones": ("1:", "2:"), "level": 3})


# the curriculum -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("success", "tau", "shares"), [
    ((0.5, 0.5), 0.5, (1, 1)),
    ((0.0, 0.5, 1.0), 0.5, (math.e, 1, 1 / math.e)),
    ((0.2, 0.7), 0.25, (math.exp(0.3 / 0.25), math.exp(-0.2 / 0.25))),
    ((0.0, 1.0), 1e-4, (1, 0)),
])
def test_tasks_have_the_chances_of_the_paper(success, tau, shares):
    assert vlarl.odds(success, tau).tolist() == pytest.approx([x / sum(shares) for x in shares])


def history(*steps):
    """A ledger whose steps saw these problems, with these successes and rewards."""
    ledger = Ledger(step=len(steps))
    for step, seen in enumerate(steps):
        for p, successes, rewards in seen:
            notes = {vlarl.SUCCESS: tuple(map(float, successes))}
            ledger._history.setdefault(step, []).append(SimpleNamespace(id=p.id, notes=notes, rewards=rewards))
    return ledger


def test_problems_are_drawn_by_the_success_of_their_task_of_late():
    pool = [Problem(f"{level}-{i}", (), "", meta={"level": level}) for level in (1, 2, 3) for i in range(4)]
    ledger = history([(pool[0], (0, 0), (9, 9))], [(pool[1], (1, 1), (0, 0)), (pool[4], (0, 0), (1, 1))])
    drawn = vlarl.choose(pool, ledger, 6000, np.random.default_rng(0), tau=0.5, window=1)
    # of the last step alone: task 1 has success 1, task 2 has 0, task 3 was not seen and counts as 1/2
    shares = np.array([1 / math.e, math.e, 1]) / (1 / math.e + math.e + 1)
    counts = [sum(p.meta["level"] == k for p in drawn) for k in (1, 2, 3)]
    assert np.abs(counts - 6000 * shares).max() < 4 * math.sqrt(6000 / 4)
    both = vlarl.choose(pool, ledger, 6000, np.random.default_rng(0), tau=0.5, window=2)       # task 1 has 1/2 in both
    shares = np.array([1, math.e, 1]) / (2 + math.e)
    counts = [sum(p.meta["level"] == k for p in both) for k in (1, 2, 3)]
    assert np.abs(counts - 6000 * shares).max() < 4 * math.sqrt(6000 / 4)
    few = vlarl.choose(pool, Ledger(), 3, np.random.default_rng(1))
    assert len(few) == 3 and {p.id for p in few} <= {p.id for p in pool}


# the reward ---------------------------------------------------------------------------------------------------------

def walked(*states, right=0.0, problem=ROUTE):
    """A dialogue that opens in the first of these states and is in the next one after each turn."""
    turns = [Turn(key=k) for k in states[:-1]]
    turns[-1] = Turn(key=states[-2], reward=right)
    return Rollout(problem, (), states[-1], turns=tuple(turns)).marked(Score(right))


def paid(*rollouts, share=0.5):
    group = Group(rollouts[0].problem, tuple(r.but(attempt=i) for i, r in enumerate(rollouts)), Place(0, 0, 0))

    async def nothing(unseen):
        return []

    return asyncio.run(vlarl.reward(group, SimpleNamespace(grade=nothing), share=share)).rollouts


def test_a_milestone_pays_its_share_to_the_turn_that_reaches_it_once():
    some = paid(
        walked("0:37", "0:63", "1:62", "1:15", "2:15", "3:40", right=1.0),
        walked("0:37", "1:62", "1:62", "1:60"),             # the second is missed; standing at the first pays once
        walked("0:37", "0:63", "1:62"),                     # reached in the last turn
        walked("0:37", "0:63", "2:15"),                     # milestones count in their order
        walked("0:37", "0:63"))
    assert [r.score.value for r in some] == [1.5, 0.25, 0.25, 0, 0]
    assert [[t.reward for t in r.turns] for r in some] == [
        [0, 0.25, 0, 0.25, 1], [0.25, 0, 0], [0, 0.25], [0, 0], [0]]
    assert [r.notes[vlarl.SUCCESS] for r in some] == [1, 0, 0, 0, 0]
    assert some[0].score.parts == {"right": 1, "milestones": 0.5}
    assert [r.score.value for r in paid(walked("0:37", "1:62", right=1.0), share=0.0)] == [1]
    (plain,) = paid(walked("0:37", "1:62", right=1.0, problem=Problem("plain", (), "")))
    assert plain.score.value == 1 and plain.notes[vlarl.SUCCESS] == 1 and plain.turns[0].reward == 1


# the loss and the update --------------------------------------------------------------------------------------------

def test_the_ratio_is_of_a_turn_and_is_clipped_as_one():
    """Two tokens of log-ratio 0.15 each: the turn's ratio e^0.3 is beyond 1.2, though each token's is not."""
    batch = batch_of([dialogue(["", "", ""], [0, 0, 1])])
    ratio = torch.tensor([0.15, 0.05, -0.15])[batch.turn.clamp(min=0)] * batch.mask
    old = torch.full_like(batch.logp, -1.0)
    for sign, each in ((1.0, (1.2, math.exp(0.1), math.exp(-0.3))), (-1.0, (math.exp(0.3), math.exp(0.1), 0.8))):
        given = batch.but(advantage=sign * batch.mask, old=old)
        logp = (old + ratio).requires_grad_()
        out, _ = vlarl.loss(Forward(logp, torch.zeros_like(logp)), given)
        assert by_turn(out.detach(), batch) == [[pytest.approx(-sign * x) for x in each]]
        out.sum().backward()
        slopes = [[0 if x in (1.2, 0.8) else pytest.approx(-sign * 2 * x) for x in each]]      # of both tokens' losses
        assert by_turn(logp.grad, batch) == slopes


def test_the_critics_first_updates_leave_the_policy_bit_for_bit():
    made, world = paced(methods.recipe("vlarl", groups=4, rollouts=4), lr=0.02, warmup=0, max_turns=3), toy.dialogues()
    before = {k: v.clone() for k, v in world.learner.weights().items()}
    ledger, (step,) = run(made, world, 16)
    batch = pack(step.groups, 0)
    for add in made.enrich:
        batch = add(batch, world)
    value = batch.extra["values"].clone()
    for now in (1, 4):
        made.improve(_ready(batch, made, ledger), made, world, Ledger(step=now))
        assert all(torch.equal(v, before[k]) for k, v in world.learner.weights().items())
    assert not torch.equal(world.critic.values(batch), value), "the critic learns"
    seen = made.improve(_ready(batch, made, ledger), made, world, Ledger(step=5))
    assert "critic/loss" in seen and any(not torch.equal(v, before[k]) for k, v in world.learner.weights().items())


def _ready(batch, made, ledger):
    batch = batch.but(advantage=made.advantage(batch, ledger))
    return batch.but(weight=made.weight(batch))


# the environment ----------------------------------------------------------------------------------------------------

def moved(spec, said, number=0):
    problem = list(open_environment(spec).problems())[number]
    env = open_environment(spec).make(problem)

    async def go():
        return await env.open(), [await env.step(x, None) for x in said]

    return problem, *asyncio.run(go()), env


def test_a_route_by_hand():
    meta = {"route": ((3, 7), (6, 2), (1, 5)), "reach": reach.Routes()}
    env = reach.Mover(Problem("by hand", (), "15", meta=meta))
    turns = ["HA", "ED", "EE?", "AH", "DE"]       # to 63, to 62, no move, to 25, to 15

    async def go():
        return [await env.step(x, None) for x in turns]

    shown = asyncio.run(go())
    assert [s.messages[0].content for s in shown] == ["63:", "*62:", "!62:", "25:", "*15:"]
    assert [s.key for s in shown] == ["0:63", "1:62", "1:62", "1:25", "2:15"]
    assert [s.reward for s in shown] == [0, 0, 0, 0, 1] and [s.over for s in shown] == [False] * 4 + [True]
    assert [s.fault is not None for s in shown] == [False, False, True, False, False]


def test_experts_take_the_least_moves_and_the_border_stops_a_move():
    for p in open_environment("reach:places=3,count=60").problems():
        least = sum(math.ceil(max(abs(a - c), abs(b - d)) / 4) for (a, b), (c, d) in pairwise(p.meta["route"]))
        assert p.meta["level"] == least == len(p.meta["expert"]) and p.meta["milestones"] == ("1:", "2:")
    p, _, shown, env = moved("reach:places=3", list(p.meta["expert"]), number=59)
    assert shown[-1].reward == 1 and env.final()[0] == "3"
    _, _, shown, _ = moved("reach:size=3", ["AA", "II", "IA"])
    assert [s.messages[0].content.strip("*") for s in shown] == ["00:", "22:", "20:"]


def test_noise_is_one_cell_along_an_axis():
    rng, steps = np.random.default_rng(0), []
    for p in reach.problems(reach.Routes(size=10, noise=0.4, count=300)):
        env = reach.Mover(p)
        start = env.at
        asyncio.run(env.step("EE", lambda: rng))
        steps += [b - a for a, b in zip(start, env.at, strict=True) if 0 < a < 9]      # no border near
        assert "expert" not in p.meta
    assert set(steps) == {-1, 0, 1} and np.mean(np.abs(steps)) == pytest.approx(0.4, abs=0.1)
    assert abs(np.mean(steps)) < 0.12


@pytest.mark.parametrize(("spec", "why"), [
    ("reach:size=1", "size is 2 to 10"), ("reach:places=0", "places is 1 to 5"), ("reach:noise=1", "noise is"),
    ("reach:count=0", "count is at least 1"),
])
def test_bad_options_of_reach_are_named(spec, why):
    with pytest.raises(UserError, match=why):
        open_environment(spec)
