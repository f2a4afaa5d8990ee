"""BRC: one large regularised critic of several tasks, categorical, with a learned embedding of the task.

    e = E[task] / |E[task]|,  critic: BRO's blocks of (s, e, a), logits of Z at 101 atoms z_i in ±10
    p = mean_k softmax Q'_k(s', a') at r/c + γ (z_i − α log π(a'|s')), clipped, shared by the two nearest atoms
    L_Q = Σ_k mean CE(p, Q_k(s, a))     L_π = mean (α log π − Σ_i z_i mean_k softmax Q_k),  E without gradient
    c = (G + α H A/4) / 10,  H = 1/(1 − γ),  G = H times the largest |r| of the task so far

    Nauman et al. 2025, arXiv:2505.23150. G is a bound by rewards; the paper uses returns of whole episodes. Each
    critic has its own embedding, and the actor reads the first's. One learner and one α for all tasks of a `family:K`;
    without tasks there is one embedding. α starts at 0.1, and the target entropy is −A/2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Mlp, Network, Numbers, Params
from isocost.control.parts import improve, tempo
from isocost.control.parts.heads import cross_entropy
from isocost.control.replay import Replay, uniform
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("BRC", "2505.23150", 2025, "bro", "Width helps one critic of many tasks, by cross-entropy and embeddings.")


def task_of(seen: Tensor, tasks: int) -> Tensor:
    """The number of the task in the last `tasks` numbers: (..., O) -> (...); 0 without tasks."""
    return seen[..., -tasks:].argmax(-1) if tasks else torch.zeros(seen.shape[:-1], dtype=torch.long)


@dataclass(frozen=True)
class TaskAtoms(Mlp):
    """A network of (s, e, a) with a logit for each atom. Its input is (s, one-hot task, a), with s of `plain`
    numbers; the embeddings are its last weights."""

    plain: int = 1
    actions: int = 1
    tasks: int = 1
    embedded: int = 32
    most: float = 10.0

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [*super().shapes, (self.tasks, self.embedded)]

    @property
    def atoms(self) -> Tensor:
        return torch.linspace(-self.most, self.most, self.outputs)

    def start(self, rng: np.random.Generator) -> np.ndarray:
        out, many = super().start(rng), self.tasks * self.embedded
        out[:, self.parameters - many : self.parameters] = rng.standard_normal((self.members, many))
        return out

    def placed(self, weights: Tensor, seen: Tensor) -> Tensor:
        """(S, 1, B, s and task) -> (S, K, B, s and e)."""
        table = list(self.parts(weights))[-1].reshape(*weights.shape[:2], self.tasks, self.embedded)
        table = table / table.norm(dim=-1, keepdim=True)
        at = task_of(seen, seen.shape[-1] - self.plain)[..., None].expand(*weights.shape[:2], -1, self.embedded)
        return torch.cat((seen[..., : self.plain].expand(*weights.shape[:2], -1, -1), table.gather(2, at)), -1)

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        seen, action = x.split((x.shape[-1] - self.actions, self.actions), -1)
        action = action.expand(*weights.shape[:2], -1, -1)
        return super().__call__(weights, torch.cat((self.placed(weights, seen), action), -1))

    def value(self, logits: Tensor) -> Tensor:
        """(S, K, B, atoms) -> (S, B): the mean of the members' mean distribution."""
        return (logits.softmax(-1).mean(1) * self.atoms).sum(-1)


def networks(
    space: Space, agent: Agent, *, atoms: int = 101, embedded: int = 32, decay: float = 1e-4
) -> Mapping[str, Network]:
    """K critics of blocks with a slow copy, an actor of one block, and log α."""
    plain, shape = space.observation - space.tasks, partial(Mlp, norm=True, residual=True, decay=decay)
    critic = TaskAtoms(plain + embedded + space.actions, atoms, agent.width, agent.depth, agent.members, norm=True,
                       residual=True, decay=decay, slow=True, plain=plain, actions=space.actions,
                       tasks=max(space.tasks, 1), embedded=embedded)
    return {"actor": shape(plain + embedded, 2 * space.actions, agent.width, 1), "critic": critic,
            "temperature": Numbers((math.log(0.1),))}


def head(params: Params) -> TaskAtoms:
    found = params.networks["critic"]
    assert isinstance(found, TaskAtoms)
    return found


def for_actor(params: Params, observation: Tensor) -> Tensor:
    """What the actor sees: the state and the first critic's embedding of the task, without gradient."""
    return head(params).placed(params.weights["critic"][:, :1].detach(), observation[:, None])[:, 0]


def sample(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99) -> Transitions:
    """Transitions, each with G of its task as "scale", (S, B)."""
    batch, tasks = uniform(replay, count, luck, gamma=gamma), replay.space.tasks
    held = min(max(replay.stored), replay.capacity)     # rows behind it are zeros, and a replay may hold a million
    seen, _, reward, *_ = replay.split(replay.rows[list(replay.runs), :held])
    table = torch.zeros(len(seen), max(tasks, 1)).scatter_reduce(1, task_of(seen, tasks), reward.abs(), "amax")
    return batch._replace(others={"scale": table.gather(1, task_of(batch.observation, tasks)) / (1 - gamma)})


def projected(mass: Tensor, moved: Tensor, atoms: Tensor) -> Tensor:
    """Mass (..., n) at `moved` values (..., n), moved onto the atoms: each shared by its two nearest, in proportion."""
    width = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    at = (moved.clamp(float(atoms[0]), float(atoms[-1])) - atoms[0]) / width
    below = at.floor().clamp(max=len(atoms) - 2)
    share, left = at - below, below.long()
    return torch.zeros_like(mass).scatter_add(-1, left, mass * (1 - share)).scatter_add(-1, left + 1, mass * share)


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, horizon: float = 100.0) -> Tensor:
    """The mass of each atom: (S, B, atoms). `horizon` is H, of the entropy in c."""
    action, surprise = improve.squashed(
        params, for_actor(params, batch.following), luck.normal("next", *batch.action.shape[1:]))
    mass = slow("critic", batch.following, action).softmax(-1).mean(1)
    alpha, atoms = params.numbers("temperature").exp(), head(params).atoms
    scale = (batch.others["scale"] + alpha * horizon * batch.action.shape[-1] / 4) / head(params).most
    moved = (batch.reward / scale)[..., None] + batch.discount[..., None] * (atoms - (alpha * surprise)[..., None])
    return projected(mass, moved, atoms)


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """Cross-entropy of each critic; the actor's value by the mean of both, with entropy; log α."""
    logits = params("critic", batch.observation, batch.action)
    action, surprise = improve.squashed(
        params, for_actor(params, batch.observation), luck.normal("new", *batch.action.shape[1:]))
    value = head(params).value(params.fixed("critic", batch.observation, action))
    alpha, aim = params.fixed.numbers("temperature").exp(), -batch.action.shape[-1] / 2
    return {
        "critic": cross_entropy(target[:, None], logits).mean(-1).sum(1),
        "actor": (alpha * surprise - value).mean(-1),
        "temperature": -(params.numbers("temperature")[:, 0] * (surprise.detach() + aim).mean(-1)),
    }


def explore(params: Params, observation: Tensor, luck: Luck | None) -> Tensor:
    """SAC's, of the state and the embedding."""
    return improve.by_policy(params, for_actor(params, observation), luck)


def agent(**changes: Any) -> Agent:
    return sac.agent(
        name="brc", networks=partial(networks, atoms=101, embedded=32, decay=1e-4), sample=partial(sample, gamma=0.99),
        target=partial(target, horizon=100.0), losses=losses, explore=explore,
        tempo=partial(tempo.steady, warmup=200, tau=0.005),
    ).but(**changes)
