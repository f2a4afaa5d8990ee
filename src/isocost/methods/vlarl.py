"""VLA-RL: PPO over moves with milestones as a process reward, a critic that learns first, and more of what fails.

    P(task j) ∝ exp((1/2 − s_j) / τ),   s_j its success of late
    r = success at the end, and w / M at each of its M milestones;   A_t = Σ_k (γ λ)^k δ_{t+k},  t a turn
    L = mean of max(−A ρ, −A clip(ρ, 1 ± 0.2)),   ρ the ratio of a turn: the product over its tokens
    the first 5 updates are the critic's alone.   Lu et al. 2025, arXiv:2505.18719
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from isocost import ops
from isocost.batch import Batch, Forward
from isocost.methods import Card, gigpo, ppo, vldac
from isocost.methods.loop import by_turn
from isocost.parts import pace
from isocost.parts.choose import first
from isocost.parts.loss import Out, credit, pessimistic
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.types import Group, Problem, Rollout, Turn
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("VLA-RL", "2505.18719", 2025, "ppo", "Rewards at milestones teach what success alone seldom pays for.")
SUCCESS = "success"     # the note with the verifier's score, whatever milestones add

needs = gigpo.needs


@requires(SUCCESS, at="reward", why="it chooses by successes without milestones, which vlarl.reward notes")
@bounds(tau="(0, inf)", window="[1, inf)")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *, tau: float = 0.5, window: int = 8
) -> list[Problem]:
    """Tasks drawn with P ∝ exp((1/2 − s) / τ), each a random problem of it (VLA-RL, arXiv:2505.18719).

    A task is a value of `meta["level"]`. Its s is the mean success in the last `window` steps, 1/2 where it was not
    seen.
    """
    level = {p.id: str(p.meta.get("level", "")) for p in pool}
    seen: dict[str, list[float]] = {k: [] for k in sorted(set(level.values()))}
    for step in range(max(ledger.step - window, 0), ledger.step):
        for group in ledger.history.get(step, ()):
            if group.id in level:
                seen[level[group.id]] += [x for x in group.notes.get(SUCCESS, ()) if x is not None]
    tasks = list(seen)
    drawn = rng.multinomial(count, odds([float(np.mean(x)) if x else 0.5 for x in seen.values()], tau))
    shelves = [[p for p in pool if level[p.id] == k] for k in tasks]
    return [p for shelf, n in zip(shelves, drawn.tolist(), strict=True) for p in first(
        shelf, rng.permutation(len(shelf)), n)]


def odds(success: Sequence[float], tau: float) -> ndarray:
    """The chance of each task: exp((1/2 − s) / τ) over the sum of all."""
    weight = np.exp((min(success) - np.asarray(success)) / tau)     # the same shares, and no overflow at a small τ
    return np.asarray(weight / weight.sum())


@trait("not_whether_right")
@gives(SUCCESS)
@bounds(share="[0, inf)")
async def reward(group: Group, world: World, *, share: float = 0.5) -> Group:
    """The verifier's score, and `share` divided by their number at each milestone that is reached, in their order.

    A problem's `meta["milestones"]` are beginnings of states' names, as the environment names them; the state after the
    last turn is the text that the verifier reads. Each milestone is the reward of the turn that reaches it. The note
    `success` is the verifier's score.
    """
    group = await verified(group, world)
    return group.of(r if r.score is None else _paid(r, share) for r in group.rollouts)


def _paid(rollout: Rollout, share: float) -> Rollout:
    assert rollout.score is not None
    right, goals = rollout.score.value, list(rollout.problem.meta.get("milestones") or ())
    noted = rollout.but(notes={**rollout.notes, SUCCESS: right})
    if not goals or not rollout.turns:
        return noted
    each, paid, turns = share / len(goals), 0.0, list[Turn]()
    for turn, state in zip(rollout.turns, [*(t.key for t in rollout.turns[1:]), rollout.final], strict=True):
        there = bool(goals) and state.startswith(goals[0])
        if there:
            goals.pop(0)
            paid += each
        turns.append(replace(turn, reward=turn.reward + each * there))
    parts = {"right": right, "milestones": paid}
    return noted.but(turns=tuple(turns)).scored(replace(rollout.score, value=right + paid, parts=parts))


@bounds(low="[0, 1]", high="[0, inf)")
def loss(out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2) -> Out:
    """PPO's surrogate with one ratio for a turn, the product over its tokens: the action is the turn."""
    return pessimistic(by_turn(ops.log_ratio(out, batch) * batch.mask, batch).exp(), credit(batch), low, high, 0.0)


@gives("a critic")
@ppo.reads_values
@shares(gamma="gamma", lam="lam")
@bounds(gamma="[0, 1]", lam="[0, 1]", faster="(0, inf)", alone="[0, inf)", epochs="[1, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, alone: int = 5,
    gamma: float = 0.99, lam: float = 0.95, faster: float = 10.0, epochs: int = 1, minibatches: int = 1,
) -> dict[str, float]:
    """`vldac.improve`, but the first `alone` steps update the critic and leave the policy as it is.

    The lines of these steps have 0 as the policy's loss, gradient and learning rate.
    """
    if ledger.step >= alone:
        return vldac.improve(
            batch, recipe, world, ledger, gamma=gamma, lam=lam, faster=faster, epochs=epochs, minibatches=minibatches)
    fits = vldac.fitted(batch, recipe, world, ledger, gamma=gamma, lam=lam, faster=faster, epochs=epochs)
    return {**dict.fromkeys(("loss", "grad_norm", "learning_rate"), 0.0), **fits}


def recipe(**changes: Any) -> Recipe:
    # γ, λ, the clip, one epoch, 5 updates of the critic alone and its tenfold rate are the public code's. τ, the window
    # and the milestones' share are ours. In the paper a model trained on segments of demonstrations says how near a
    # frame is to a milestone; here an environment names the states that are milestones. Turns weigh by their tokens,
    # as many in each move. Left out: a temperature of 1.5, the stop at a high KL, and the clip of values.
    return ppo.recipe(
        name="vlarl", choose=partial(choose, tau=0.5, window=8), reward=partial(reward, share=0.5),
        advantage=partial(vldac.advantage, gamma=0.99, lam=0.95, whiten=False), loss=partial(loss, low=0.2, high=0.2),
        improve=partial(improve, alone=5, gamma=0.99, lam=0.95, faster=10.0), pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
