"""Cal-QL: SAC whose critic is pushed down on the policy's actions, but not below the return of the set's policy.

    L_Q += α mean (log Σ_i exp(q_i) − Q(s, a)),  the q_i over n uniform actions, and n of π(s) and n of π(s') each:
    q = Q − log density;  for actions of the policy Q is max(Q, R),  R the discounted return of the set from s

    Nakamoto et al. 2023, arXiv:2303.05479, on CQL, arXiv:2006.04779. Uniform actions are not lifted to R (some
    published code does). A trajectory that was cut goes on with its last reward for ever. The target is SAC's without
    its entropy; offline only, and CQL's α is a setting.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Params
from isocost.control.parts import improve, tempo
from isocost.control.parts.mix import returns, weighted
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Transitions
from isocost.found import Card

CARD = Card("Cal-QL", "2303.05479", 2023, "sac", "Pessimism that stops at the set's own return is kept by fine-tuning.")


def sample(
    replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, weighting: str = "none", temperature: float = 0.1
) -> Transitions:
    """Transitions with the set's return from each, "return"."""
    batch = weighted(replay, count, luck, gamma=gamma, weighting=weighting, temperature=temperature)
    return batch._replace(others={"return": returns(replay, gamma)[batch.others["row"]]})


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """r + γ min_k Q'_k(s', a'): (S, B)."""
    action, _ = improve.squashed(params, batch.following, luck.normal("next", *batch.action.shape[1:]))
    return batch.reward + batch.discount * slow("critic", batch.following, action)[..., 0].amin(1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, alpha: float = 5.0, drawn: int = 10
) -> dict[str, Tensor]:
    """SAC's, and the penalty of each critic with `drawn` actions of each kind."""
    found = sac.losses(batch, target, params, luck)
    own = params("critic", batch.observation, batch.action)[..., 0]
    pushed = spread(batch, params, luck, drawn).logsumexp(-1)
    return {**found, "critic": found["critic"] + alpha * (pushed - own).mean(-1).sum(1)}


def spread(batch: Transitions, params: Params, luck: Luck, drawn: int) -> Tensor:
    """The q_i: (S, K, B, 3 drawn)."""
    s, rows, size = batch.observation, batch.observation.shape[1] * drawn, batch.action.shape[-1]

    def many(x: Tensor) -> Tensor:
        return x.repeat_interleave(drawn, 1)

    def valued(action: Tensor) -> Tensor:
        return params("critic", many(s), action)[..., 0].unflatten(-1, (-1, drawn))

    floor = batch.others["return"][:, None, :, None]
    found = [valued(2 * luck.uniform("anywhere", rows, size) - 1) + size * math.log(2)]
    for name, seen in (("here", s), ("there", batch.following)):
        with torch.no_grad():
            action, surprise = improve.squashed(params, many(seen), luck.normal(name, rows, size))
        found.append(valued(action).maximum(floor) - surprise.unflatten(-1, (-1, drawn))[:, None])
    return torch.cat(found, -1)


def agent(**changes: Any) -> Agent:
    return sac.agent(
        name="calql", sample=partial(sample, gamma=0.99, weighting="none", temperature=0.1), target=target,
        losses=partial(losses, alpha=5.0, drawn=10), tempo=partial(tempo.offline, tau=0.005),
    ).but(**changes)
