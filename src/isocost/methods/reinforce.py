"""REINFORCE: raise the probability of attempts that earned more than the batch average. The root of the tree.

    A_i = r_i − mean r          L = −(1/R) Σ_i A_i Σ_t log π(y_it)          Williams 1992, Machine Learning 8
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.methods import FAILS, HOLDS, UNMEASURED, Card
from isocost.ops import lengths, spread
from isocost.parts import allocate, choose, guide, improve, pace, play, reward, schedule, select
from isocost.parts.loss import Out, credit
from isocost.parts.weight import count
from isocost.seams import Recipe
from isocost.traits import exported

CARD = Card("REINFORCE", "Williams 1992", 1992, None, "Following the score function ascends expected reward.")

SOLVED = 0.9   # mean pass@1 above which there is little left to learn


@exported(advantage="batch")
def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    return spread(batch.reward - batch.reward.mean(), batch)


@exported(average="sum")
def weight(batch: Batch) -> Tensor:
    """Log-probs of whole rollouts, averaged over rollouts: 1 / R per token. -> (N, T)"""
    return batch.mask / count(lengths(batch))


@exported(surrogate="reinforce")
def loss(out: Forward, batch: Batch) -> Out:
    """-A log π."""
    return -credit(batch) * out.logp, {}


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Rewards that differ: neither all wrong nor nearly all right."""
    if profile.get("mean") is None:
        return UNMEASURED, "no pass rates: `isocost profile` measures them"
    mean, what = profile["mean"], "mean reward" if profile.get("graded") else "mean pass@1"
    if not 0 < mean < SOLVED:
        return FAILS, f"{what} is {mean:.3f}: {'little is left to learn' if mean else 'nothing was ever right'}"
    return HOLDS, f"{what} is {mean:.3f}"


def recipe(**changes: Any) -> Recipe:
    return Recipe(
        name="reinforce",
        choose=choose.uniform,
        guide=guide.unguided,
        allocate=allocate.equal,
        play=play.sample,
        schedule=schedule.together,
        reward=reward.verified,
        select=select.everything,
        advantage=advantage,
        weight=weight,
        loss=loss,
        improve=improve.policy,
        pace=pace.warmed,
    ).but(**changes)
