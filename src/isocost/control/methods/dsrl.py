"""DSRL: a flow clones the set and stays as it is; samples teach an actor which noise to give it.

    first, on the set: flow BC        then:  w = b tanh(μ(s) + σ(s) z),  a = the flow's end from w
    y = r + γ min_k Q'_k(s', a'),  a' from w' ~ π(s')       L_Q = Σ_k mean (Q_k(s, a) − y)²
    L_W = mean (W(s, w) − mean_k Q_k(s, a(s, w)))²,  w ~ N(0, 1) in ±b      L_π = mean (α log π(w|s) − W(s, w))

    Wagenmaker et al. 2025, arXiv:2506.15799: its form with noise aliasing. W is fitted at `noises` draws a state in
    each update, where the paper takes ten steps. In the warm-up the untrained actor acts, whose w is near the flow's
    own noise. Action chunks are left out; the set is not drawn from again unless `sample.old` is above 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac, wsrl
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import flow, improve, tempo
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("DSRL", "2506.15799", 2025, "sac", "Choosing the noise steers a frozen policy to its better mode.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """SAC's, whose actor's action is w / b; the flow; and W, of (s, w / b)."""
    return {**sac.networks(space, agent), "flow": flow.velocity(space.observation, space.actions, agent),
            "latent": Mlp(space.observation + space.actions, 1, agent.width, agent.depth)}


def steered(params: Params, seen: Tensor, latent: Tensor, bound: float, steps: int) -> Tensor:
    """The flow's action from w = `bound` · `latent`, (S, B, A) both. No gradient reaches the flow's weights."""
    return flow.carried(params.fixed, "flow", seen, bound * latent, steps).clamp(-1, 1)


def target(
    batch: Transitions, params: Params, slow: Params, luck: Luck, *, bound: float = 1.5, steps: int = 10
) -> Tensor:
    """r + γ min_k Q'_k(s', a'): (S, B)."""
    latent, _ = improve.squashed(params, batch.following, luck.normal("next", *batch.action.shape[1:]))
    action = steered(params, batch.following, latent, bound, steps)
    return batch.reward + batch.discount * slow("critic", batch.following, action)[..., 0].amin(1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, bound: float = 1.5, steps: int = 10,
    noises: int = 4
) -> dict[str, Tensor]:
    """On the set the flow's loss; after it those of Q, W, the actor of w and its temperature."""
    seen = batch.observation
    if "return" in batch.others:
        return {"flow": flow.cloned(params, "flow", seen, batch.action, luck)}
    critic = (params("critic", seen, batch.action)[..., 0] - target[:, None]) ** 2
    many = seen.repeat_interleave(noises, 1)
    latent = (luck.normal("latent", many.shape[1], batch.action.shape[-1]) / bound).clamp(-1, 1)
    with torch.no_grad():
        worth = params("critic", many, steered(params, many, latent, bound, steps))[..., 0].mean(1)
    return {
        "critic": critic.mean(-1).sum(1),
        "latent": ((params("latent", many, latent)[:, 0, :, 0] - worth) ** 2).mean(-1),
        **sac.improved(batch, params, luck, value=lambda q: q[:, 0, :, 0], name="latent"),
    }


def explore(
    params: Params, observation: Tensor, luck: Luck | None, *, bound: float = 1.5, steps: int = 10
) -> Tensor:
    """The flow's action from the actor's w."""
    return steered(params, observation, improve.by_policy(params, observation, luck), bound, steps)


def agent(**changes: Any) -> Agent:
    return Agent(
        name="dsrl", acts="continuous", networks=networks, sample=partial(wsrl.sample, gamma=0.99, old=0.0),
        target=partial(target, bound=1.5, steps=10), losses=partial(losses, bound=1.5, steps=10, noises=4),
        explore=partial(explore, bound=1.5, steps=10), tempo=partial(tempo.from_set, warmup=200),
    ).but(**changes)
