"""pi_RL: PPO on the denoising steps of a flow policy, whose noise gives every step a density.

    ρ_k = π(x_{k+1} | x_k) / π_old(x_{k+1} | x_k)  of each step (flow-SDE), or Π_k ρ_k of the path (flow-noise)
    A_k by GAE over the steps, γ = 0.99, λ = 0.95; the reward comes after the last step
    Chen et al. 2025, "πRL", arXiv:2510.25889
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.batch import Batch, Forward
from isocost.errors import UserError
from isocost.methods import Card, ppo
from isocost.ops import log_ratio, row_mean
from isocost.parts.loss import FINITE, RATIOS, Out, credit, pessimistic
from isocost.seams import Recipe
from isocost.traits import bounds, gives

CARD = Card("pi_RL", "2510.25889", 2025, "ppo", "A flow policy that imitates few examples learns by reinforcement.")


@gives("importance ratios")
@bounds(low="[0, 1]", high="[0, inf]")
def loss(out: Forward, batch: Batch, *, over: str = "step", low: float = 0.2, high: float = 0.2) -> Out:
    """`loss.clipped`, with the ratio of a step, of the whole "path", or the geometric "mean" over its steps."""
    moved = log_ratio(out, batch)
    if over == "path":
        moved = RATIOS["sequence"](moved, batch.mask)
    elif over == "mean":
        moved = row_mean(moved, batch.mask).expand_as(moved)
    elif over != "step":
        raise UserError(f"loss.over is {over!r}; expected step, path or mean")
    return pessimistic(moved.clamp(-FINITE, FINITE).exp(), credit(batch), low, high, 0.0)


def recipe(**changes: Any) -> Recipe:
    # Noise is the world's: in flow2d --noise is a of flow-SDE (0.5 in the paper), and --learned-noise makes it
    # flow-noise, whose ratio is that of the path, loss.over=path; the released code seems to average over steps,
    # loss.over=mean. In a world of text a step is a token. The critic reads the point that is denoised as well as the
    # prompt. Left out: chunks of several actions, an environment between them, and paths with noise in one step alone.
    # The noise network is not removed in evaluations, which sample as training does.
    return ppo.recipe(
        name="pirl",
        advantage=partial(ppo.advantage, gamma=0.99, lam=0.95),
        loss=partial(loss, over="step", low=0.2, high=0.2),
        improve=partial(ppo.improve, gamma=0.99, lam=0.95, faster=1.0, minibatches=4),
    ).but(**changes)
