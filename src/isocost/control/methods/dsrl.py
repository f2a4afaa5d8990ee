"""DSRL: a flow clones the set and stays as it is; what is learned by samples is which noise to give it.

    first, on the set: flow BC        then:  w = b tanh(μ(s) + σ(s) z),  a = the flow's end from w
    y = r + γ min_k Q'_k(s', a'),  a' from w' ~ π(s')       L_Q = Σ_k mean (Q_k(s, a) − y)²
    L_W = mean (W(s, w) − mean_k Q_k(s, a(s, w)))²,  w ~ N(0, 1) in ±b      L_π = mean (α log π(w|s) − W(s, w))

    Wagenmaker et al. 2025, arXiv:2506.15799: its form with noise aliasing. W is fitted at `noises` draws a state in
    each update, where the paper takes ten steps. The first samples are by the actor as it starts, whose w is near the
    flow's own noise. Without chunks of actions; the set is not drawn from again unless `sample.old` says so.
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
from isocost.control.parts import flow, improve, tempo
from isocost.control.parts.mix import beside, weighted
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("DSRL", "2506.15799", 2025, "sac", "Choosing the noise steers a frozen policy to its better mode.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """SAC's, whose actor is of w; the flow; and W of (s, w)."""
    return {**sac.networks(space, agent), "flow": flow.velocity(space.observation, space.actions, agent),
            "latent": Mlp(space.observation + space.actions, 1, agent.width, agent.depth)}


def sample(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, old: float = 0.0) -> Transitions:
    """Of the set, with its rows, before the first sample; then of the run's own."""
    return weighted(replay, count, luck, gamma=gamma) if replay.fixed else beside(
        replay, count, luck, gamma=gamma, old=old)


def steered(params: Params, seen: Tensor, noise: Tensor, bound: float, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """w of the actor, log π of tanh⁻¹(w / b), and the action."""
    latent, surprise = improve.squashed(params, seen, noise)
    return bound * latent, surprise, flow.carried(params.fixed, "flow", seen, bound * latent, steps).clamp(-1, 1)


def target(
    batch: Transitions, params: Params, slow: Params, luck: Luck, *, bound: float = 1.5, steps: int = 10
) -> Tensor:
    """r + γ min_k Q'_k(s', a'): (S, B)."""
    noise = luck.normal("next", *batch.action.shape[1:])
    *_, action = steered(params, batch.following, noise, bound, steps)
    return batch.reward + batch.discount * slow("critic", batch.following, action)[..., 0].amin(1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, bound: float = 1.5, steps: int = 10,
    noises: int = 4
) -> dict[str, Tensor]:
    """The flow's on the set; later those of Q, W, the actor of w and its temperature."""
    seen = batch.observation
    if "row" in batch.others:
        return {"flow": flow.cloned(params, "flow", seen, batch.action, luck)}
    critic = (params("critic", seen, batch.action)[..., 0] - target[:, None]) ** 2
    many = seen.repeat_interleave(noises, 1)
    latent = luck.normal("latent", many.shape[1], batch.action.shape[-1]).clamp(-bound, bound)
    with torch.no_grad():
        made = flow.carried(params, "flow", many, latent, steps).clamp(-1, 1)
        worth = params("critic", many, made)[..., 0].mean(1)
    own, surprise = improve.squashed(params, seen, luck.normal("new", *batch.action.shape[1:]))
    alpha, aim = params.fixed.numbers("temperature").exp(), -batch.action.shape[-1]
    value = params.fixed("latent", seen, bound * own)[:, 0, :, 0]
    return {
        "critic": critic.mean(-1).sum(1),
        "latent": ((params("latent", many, latent)[:, 0, :, 0] - worth) ** 2).mean(-1),
        "actor": (alpha * surprise - value).mean(-1),
        "temperature": -(params.numbers("temperature")[:, 0] * (surprise.detach() + aim).mean(-1)),
    }


def explore(
    params: Params, observation: Tensor, luck: Luck | None, *, bound: float = 1.5, steps: int = 10
) -> Tensor:
    """The flow's action from the actor's w."""
    latent = bound * improve.by_policy(params, observation, luck)
    return flow.carried(params, "flow", observation, latent, steps).clamp(-1, 1)


def agent(**changes: Any) -> Agent:
    return Agent(
        name="dsrl", acts="continuous", networks=networks, sample=partial(sample, gamma=0.99, old=0.0),
        target=partial(target, bound=1.5, steps=10), losses=partial(losses, bound=1.5, steps=10, noises=4),
        explore=partial(explore, bound=1.5, steps=10), tempo=partial(tempo.from_set, warmup=200),
    ).but(**changes)
