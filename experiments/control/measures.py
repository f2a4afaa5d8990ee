"""What claims of control read of a trained run, beside its returns: each is a function of the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.control.loop import Loop
from isocost.control.luck import Draws, Luck
from isocost.control.methods import fql, parl
from isocost.control.networks import Params
from isocost.control.parts import flow
from isocost.control.tasks import open_task, random_return
from isocost.control.tasks.maze import _home
from isocost.runs.control import load_policy
from isocost.runs.files import RunFiles

STARTS, GAMMA, HORIZON = 64, 0.99, 600      # states; discount; steps of an episode, after which 0.2 % is left
MANY, BEST = 512, 8                         # actions of the bandit; drawn for each
EARLY = 2000                                # samples


def overestimation(folder: Path) -> float:
    """The critics' mean value of the policy's action less its discounted return, which is known: tasks and policies
    draw nothing, and episodes have no time limit. Over `STARTS` starts; a best action's value where they are discrete.
    """
    loop = load_policy(folder).loop
    state = np.stack([loop.task.begin(generator(1, Purpose.EVALUATION, k), ("evaluate", 1, k)) for k in range(STARTS)])
    seen, action = _acted(loop, state)
    with torch.no_grad():
        p = Params(loop.networks, loop.weights)
        value = (p("critic", seen)[0, 0].amax(-1) if loop.task.space.discrete
                 else p("critic", seen, torch.from_numpy(action).float()[None])[0, ..., 0].mean(0))
    total, going = np.zeros(STARTS), np.ones(STARTS, bool)
    for step in range(HORIZON):
        state, reward, ended = loop.task.step(state, loop.scaled(_acted(loop, state)[1]))
        total += np.where(going, GAMMA**step * reward, 0.0)
        going &= ~ended
        if not going.any():
            break
    return float(value.double().numpy().mean() - total.mean())


def _acted(loop: Loop, state: ndarray) -> tuple[torch.Tensor, ndarray]:
    seen = loop.task.observe(state)[None]
    return torch.from_numpy(seen).float(), loop.policy([0], seen, None)[0]


def of_actor(folder: Path) -> float:
    """FQL on the bandit: the mean return of the actor, on the task's scale."""
    return _scaled(_flow(folder)[0])


def best_of_flow(folder: Path) -> float:
    """FQL on the bandit: the mean return of the best of 8 actions of its flow, by its critics, on the task's scale."""
    return _scaled(_flow(folder)[1])


def _scaled(action: ndarray) -> float:
    low, task = random_return("bandit"), open_task("bandit")
    return float((task.step(np.ones((len(action), 1)), action)[1].mean() - low) / (task.reference - low))


def _flow(folder: Path) -> tuple[ndarray, ndarray]:
    """Actions (MANY, 2) of the actor of FQL, and those that its critics pick from its flow."""
    loop = load_policy(folder).loop
    p, luck, s = Params(loop.networks, loop.weights), Luck([Draws(1)], [0], "measure"), torch.ones(1, MANY, 1)
    with torch.no_grad():
        actor = fql.one_step(p, s, luck.normal("z", MANY, 2)).clamp(-1, 1)
        wide = s.repeat_interleave(BEST, 1)
        made = flow.carried(p, "flow", wide, luck.normal("x", BEST * MANY, 2), 10).clamp(-1, 1)
        at = p("critic", wide, made)[..., 0].mean(1).unflatten(-1, (-1, BEST)).argmax(-1)
    picked = made.unflatten(1, (-1, BEST)).gather(2, at[..., None, None].expand(-1, -1, 1, 2))[:, :, 0]
    return actor[0].double().numpy(), picked[0].double().numpy()


def actor_on_better_peak(folder: Path) -> float:
    """FQL on the bandit: the share of the actor's actions on the higher peak."""
    return float((_flow(folder)[0].sum(-1) > 0).mean())


def picked_on_better_peak(folder: Path) -> float:
    """The same of the actions that are picked from its flow."""
    return float((_flow(folder)[1].sum(-1) > 0).mean())


def policy_on_better_peak(folder: Path) -> float:
    """PA-RL on the bandit: the share of its policy's own actions, before any is improved, on the higher peak."""
    loop = load_policy(folder).loop
    noise = Luck([Draws(1)], [0], "measure").normal("z", MANY, 2)
    with torch.no_grad():
        p = Params(loop.networks, loop.weights)
        action = parl.policy_of(p).act(p, torch.ones(1, MANY, 1), noise)
    return float((action[0].sum(-1) > 0).double().mean())


def after_the_set(folder: Path) -> float:
    """The return after the first sample, on the task's scale: what the updates on the set have taught."""
    return _returns(folder)[0]


def fallen(folder: Path) -> float:
    """By how much the return falls below that after the set within `EARLY` samples, at its least; 0 if never."""
    first, *later = _returns(folder)
    return max(first - min(later), 0.0)


def _returns(folder: Path) -> list[float]:
    return [(x["eval/select"] + x["eval/audit"]) / 2 for x in RunFiles(folder).lines("metrics.jsonl")
            if "return" in x and 0 < x["env_steps"] <= EARLY]


def right_signs(folder: Path) -> float:
    """The share of pairs of cells, the second at least half of the corridor ahead, in which the high value is higher
    2 cells nearer to it."""
    loop = load_policy(folder).loop
    cells = loop.task.cells
    points = loop.task.observe(np.stack([_home(c) for c in range(cells)]))[:, :2]
    pairs = [(i, j) for i in range(cells) for j in range(i + cells // 2, cells)]
    seen = np.array([[np.r_[points[i + more], points[j]] for i, j in pairs] for more in (0, 2)])
    with torch.no_grad():
        here, nearer = Params(loop.networks, loop.weights)(
            "critic", torch.from_numpy(seen).float().reshape(1, -1, 4))[0, ..., 0].mean(0).chunk(2)
    return float((nearer > here).double().mean())


MEASURES: Mapping[str, Callable[[Path], float]] = {
    "over-estimation": overestimation, "return of the actor": of_actor,
    "return of the best of 8": best_of_flow,
    "actor's share on the better peak": actor_on_better_peak, "share on the better peak of 8": picked_on_better_peak,
    "right signs": right_signs, "policy's share on the better peak": policy_on_better_peak,
    "return after the set": after_the_set, "fall in the first 2,000 samples": fallen,
}
