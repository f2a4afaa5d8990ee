"""SRL: the actor outputs J actions at once; each is evaluated in the state that a learned model predicts for it.

    (a_0 .. a_{J−1}) ~ π(s_0),  ŝ_0 = s_0,  ŝ_{i+1} = f(ŝ_i, a_i) without gradient
    L_π = mean (1/J) Σ_i (α log π(a_i|s_0) − min_k Q_k(ŝ_i, a_i))       Q: SAC's, of steps, with a' = a_0 of s'

Patel & Siegelmann 2024, arXiv:2410.08979. Acts by the state of the last decision alone (`held:4`). J = 1 is SAC. With
`networks.repeats` there is one action for all J: action repeat, but for exploration, which is drawn anew in each
step. Left out: the recurrent actor of sequences of any length (here one output for each step), and the score over
several J.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import improve, model
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.errors import UserError
from isocost.found import Card

CARD = Card("SRL", "2410.08979", 2024, "sac", "A sequence of actions acts better than one action that is repeated.")


def networks(space: Space, agent: Agent, *, repeats: bool = False) -> Mapping[str, Network]:
    """SAC's of the state, J means and log sds at once, and a model. Raises UserError for tasks without decisions."""
    if not space.held:
        raise UserError("this task is decided at every step: take held:4, or another method")
    plain = Space((space.observation - space.held) // 2, space.actions)
    outputs = 2 * space.actions * (1 if repeats else space.held)
    return {**sac.networks(plain, agent), "actor": Mlp(plain.observation, outputs, agent.width, agent.depth),
            "model": model.network(plain, agent, 1)}


def parts(params: Params, observation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The state now, that of the last decision, and the steps since it."""
    size = params.networks["actor"].inputs
    now, then, since = observation.split((size, size, observation.shape[-1] - 2 * size), -1)
    return now, then, since


def sequence(params: Params, seen: Tensor, size: int, steps: int = -1) -> tuple[Tensor, Tensor]:
    """Means and log sds of the actions from a state: (S, B, J, A) each; a single one is used in all `steps`."""
    made = params("actor", seen)[:, 0].unflatten(-1, (-1, 2 * size)).expand(-1, -1, steps, -1)
    mean, spread = made.chunk(2, -1)
    return mean, spread


def steps_of(batch: Transitions, params: Params) -> Transitions:
    """A batch of the states as they were."""
    return batch._replace(observation=parts(params, batch.observation)[0], following=parts(params, batch.following)[0])


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """r + γ (min_k Q'_k(s', a') − α log π(a'|s')), a' the first of a new sequence: (S, B)."""
    after, size = steps_of(batch, params).following, batch.action.shape[-1]
    mean, spread = sequence(params, after, size)
    action, surprise = improve.squash(mean[:, :, 0], spread[:, :, 0], luck.normal("next", *batch.action.shape[1:]))
    value = slow("critic", after, action)[..., 0].amin(1) - params.numbers("temperature").exp() * surprise
    return batch.reward + batch.discount * value


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """Squared error of each critic, the model's, and those of a sequence from the states of the batch."""
    batch, steps = steps_of(batch, params), parts(params, batch.observation)[2].shape[-1]
    at, size = batch.observation, batch.action.shape[-1]
    mean, spread = sequence(params, at, size, steps)
    alone = params.networks["actor"].outputs == 2 * size
    z = luck.normal("new", at.shape[1], 1 if alone else steps, size).expand(-1, -1, steps, -1)
    action, surprise = improve.squash(mean, spread, z)
    alpha, worth = params.fixed.numbers("temperature").exp(), torch.zeros_like(batch.reward)
    for i in range(steps):
        worth = worth + params.fixed("critic", at, action[:, :, i])[..., 0].amin(1) / steps
        if i < steps - 1:
            with torch.no_grad():
                at = model.predicted(params, at, action[:, :, i])[0][:, 0]
    critic = (params("critic", batch.observation, batch.action)[..., 0] - target[:, None]) ** 2
    return {
        "critic": critic.mean(-1).sum(1), "model": model.fitted(params, batch),
        "actor": (alpha * surprise.mean(-1) - worth).mean(-1),
        "temperature": -(params.numbers("temperature")[:, 0] * (surprise.detach().mean(-1) - size).mean(-1)),
    }


def explore(params: Params, observation: Tensor, luck: Luck | None) -> Tensor:
    """The action of this step, of those that were named in the state of the last decision."""
    _, then, since = parts(params, observation)
    size = params.networks["critic"].inputs - then.shape[-1]
    mean, spread = ((since[..., None] * x).sum(-2) for x in sequence(params, then, size, since.shape[-1]))
    if luck is None:
        return torch.tanh(mean)
    return improve.squash(mean, spread, luck.normal("explore", *mean.shape[1:]))[0]


def agent(**changes: Any) -> Agent:
    return sac.agent(name="srl", networks=partial(networks, repeats=False), target=target, losses=losses,
                     explore=explore).but(**changes)
