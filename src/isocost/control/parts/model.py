"""Learned dynamics: an ensemble predicts what follows a state and an action, and generates transitions of the policy.

    (Δ, r̂, c)_k = f_k(s, a),  ŝ'_k = s + Δ_k,  the episode goes on where c_k > 0
    L = Σ_k mean (Σ_d w_d (ŝ'_kd − s'_d)² + (r̂_k − r)² + CE(c_k, goes on)),  w = 1 or as given

Members differ by their initial weights and learn from the same rows. Numbers are in the task's own units. A model
rollout starts in a replayed state and uses one member; where that member predicts the end of the episode, it restarts
in another replayed state. One of its `horizon` steps, uniformly at random, becomes a row of the batch.

S is runs in the stack, K members, B rows, O numbers of an observation. After MBPO (Janner et al. 2019,
arXiv:1906.08253).
"""

from __future__ import annotations

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Params
from isocost.control.parts import alike, backup, improve
from isocost.control.seams import Agent, Losses, Target
from isocost.control.types import Space, Transitions
from isocost.traits import bounds

NAMES = Transitions._fields[:5]     # of the replayed rows, in `others`


def network(space: Space, agent: Agent, members: int, *, norm: bool = False) -> Mlp:
    """A network of (s, a): the change of the state, the reward, and the logit that the episode continues."""
    size = agent.width, agent.depth
    return Mlp(space.observation + space.actions, space.observation + 2, *size, members=members, norm=norm)


def predicted(params: Params, seen: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each member's next state, (S, K, B, O), reward and logit, (S, K, B), for states and actions (S, B, ...)."""
    made = params("model", seen, action)
    change, reward, on = made.split((seen.shape[-1], 1, 1), -1)
    return seen.unsqueeze(1) + change, reward[..., 0], on[..., 0]


def fitted(params: Params, batch: Transitions, weights: Tensor | float = 1.0) -> Tensor:
    """L, (S,). `weights` are w, (S, 1, B, O)."""
    after, reward, on = predicted(params, batch.observation, batch.action)
    goes = (batch.discount > 0).float()[:, None].expand_as(on)
    error = (weights * (after - batch.following[:, None]) ** 2).sum(-1) + (reward - batch.reward[:, None]) ** 2
    return (error + alike.cross_entropy(on, goes)).mean(-1).sum(1)


def doubt(after: Tensor) -> Tensor:
    """The disagreement of the members, √ mean_d var_k: (S, K, B, O) -> (S, B)."""
    return after.var(1, correction=0).mean(-1).sqrt()


def replayed(batch: Transitions) -> Transitions:
    """The rows from the replay of a batch that `imagined` changed."""
    return Transitions._make([*(batch.others.get(k, x) for k, x in zip(NAMES, batch[:5], strict=True)), {}])


@bounds(real="[0, 1]", horizon="[1, inf)")
def imagined(
    batch: Transitions, params: Params, luck: Luck, *, gamma: float = 0.99, horizon: int = 5, real: float = 0.05,
    doubtful: bool = False
) -> Transitions:
    """The batch with all rows but a share `real` from model rollouts of `horizon` steps of the tanh-Gaussian policy;
    unchanged while the model alone is trained. With `doubtful` a model rollout also restarts after a step whose `doubt`
    exceeds that of every replayed row.

    The replayed rows stay in `others`, by the names of the fields.
    """
    if "critic" not in params.due:
        return batch
    rows, size = batch.action.shape[1:]
    members = params.networks["model"].members
    which = (luck.uniform("member", rows) * members).long()[:, None]
    taken = (luck.uniform("step", rows) * horizon).long()
    made, at, limit = list(batch[:5]), batch.observation, None
    if doubtful:
        limit = doubt(predicted(params, batch.observation, batch.action)[0]).amax(-1, keepdim=True)
    for k in range(horizon):
        action, _ = improve.squashed(params, at, luck.normal(f"walk {k}", rows, size))
        each, rewards, ons = predicted(params, at, action)
        after = each.gather(1, which[..., None].expand(-1, -1, -1, each.shape[-1]))[:, 0]
        ended = ons.gather(1, which)[:, 0] <= 0
        now = (taken == k) & (torch.arange(rows) >= round(real * rows))
        found = at, action, rewards.gather(1, which)[:, 0], after, torch.where(ended, 0.0, gamma)
        made = [torch.where(now[..., None] if x.dim() == 3 else now, x, y) for x, y in zip(found, made, strict=True)]
        stopped = ended if limit is None else ended | (doubt(each) > limit)
        at = torch.where(stopped[..., None], batch.observation.roll(k + 1, 1), after)
    return Transitions._make([*made, {**batch.others, **dict(zip(NAMES, batch[:5], strict=True))}])


def of_drawn(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """L of the replayed rows."""
    return {"model": fitted(params, replayed(batch))}


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, rest: Target) -> Tensor:
    """The target of `rest`, (S, B); zeros while the model alone is trained."""
    return (rest if "critic" in params.due else backup.nothing)(batch, params, slow, luck)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, rest: Losses, own: Losses = of_drawn
) -> dict[str, Tensor]:
    """The losses of `rest` and of the model, (S,) each, where their networks are trained."""
    found = rest(batch, target, params, luck) if "critic" in params.due else {}
    return {**found, **(own(batch, target, params, luck) if "model" in params.due else {})}
