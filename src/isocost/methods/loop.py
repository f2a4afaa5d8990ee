"""LOOP: leave-one-out baselines and a symmetric clip, several epochs over the attempts that differ, and no critic.

    A_i = r_i − mean_{j≠i} r_j;   attempts with |A_i| < 0.01 are dropped from the average
    L = (1/Σ|y_i|) Σ_i Σ_t max(−A w, −A clip(w, 1/(1 + ε), 1 + ε)),   w the ratio of a token, of a turn or of all turns
    Chen et al. 2025, "Reinforcement learning for long-horizon interactive LLM agents", arXiv:2502.01600
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost import ops
from isocost.batch import Batch, Forward
from isocost.errors import UserError
from isocost.gather import together
from isocost.methods import Card, gigpo, rloo
from isocost.parts import improve, pace
from isocost.parts.loss import Out, credit, pessimistic
from isocost.parts.weight import token_mean
from isocost.seams import Attempts, Recipe, Weight
from isocost.traits import bounds, trait
from isocost.types import Problem, Rollout, Stop

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("LOOP", "2502.01600", 2025, "rloo", "Leave-one-out PPO trains agents of many turns without a second model.")
OVER = ("token", "turn", "rollout")

needs = gigpo.needs


@trait("in_parts", "needs_turns")
@trait("leaves_unmarked", wave=("<", 1))
@bounds(wave="(0, 1]", group="(0, 1]")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, wave: float = 0.9, group: float = 0.75
) -> list[Rollout]:
    """Stop a wave once a share `wave` of its attempts is complete, and a share `group` of those of each group.

    LOOP's straggler control (arXiv:2502.01600). Attempts under way are cancelled and charged. With `wave` 1 all are
    complete. A wave ends at a turn, so attempts of equal length are complete together.
    """
    needed, done = ceil(group * len(attempts)), list[Rollout]()
    play.wave.expected += len(attempts)

    async def complete(attempt: int) -> None:
        (rollout,) = await play(problem, [attempt])
        if rollout.stop is Stop.CANCELLED:
            return
        done.append(rollout)
        play.wave.ended += 1
        play.wave.done += len(done) == needed
        enough = play.wave.done >= play.wave.groups and play.wave.ended >= ceil(wave * play.wave.expected)
        if enough and wave < 1:
            play.wave.halt(play.place)

    await together(*map(complete, attempts))
    return sorted(done, key=lambda r: r.attempt)


@bounds(least="[0, inf)")
def weight(batch: Batch, *, inner: Weight = token_mean, least: float = 0.01) -> Tensor:
    """Any average, over the rollouts with an advantage of at least `least`. -> (N, T)"""
    told = ops.of_rollouts(credit(batch).abs(), batch) >= least
    return inner(batch.but(mask=batch.mask & told[batch.rollout, None]))


@bounds(eps="(0, inf)")
def loss(out: Forward, batch: Batch, *, eps: float = 0.1, over: str = "token") -> Out:
    """PPO's surrogate with the ratio in [1 / (1 + eps), 1 + eps], a symmetric interval of its logarithm.

    `over` is what the ratio is of: a token, a turn (the product over its tokens) or the whole row of a rollout.
    """
    if over not in OVER:
        raise UserError(f"loss.over is {over!r}; expected one of {', '.join(OVER)}")
    log_ratio = ops.log_ratio(out, batch) * batch.mask
    if over == "turn":
        log_ratio = by_turn(log_ratio, batch)
    elif over == "rollout":
        log_ratio = log_ratio.sum(-1, keepdim=True) * batch.mask
    return pessimistic(log_ratio.exp(), credit(batch), 1 - 1 / (1 + eps), eps, 0.0)


def by_turn(x: Tensor, batch: Batch) -> Tensor:
    """The sum over the tokens of a turn, at each of them. -> (N, T)"""
    turn = batch.turn.clamp(min=0)
    width = int(turn.max()) + 1 if turn.numel() else 1
    return torch.zeros_like(x[:, :1]).repeat(1, width).scatter_add(1, turn, x).gather(1, turn) * batch.mask


def recipe(**changes: Any) -> Recipe:
    # The paper's 40 scenarios of 6 rollouts, two epochs and ε. Minibatches of 32 of 240 rollouts are 8 updates an
    # epoch. Left out: the abort of an iteration at a KL above 20, and its own limit of the gradient's norm, 0.1, which
    # is the learner's here. Its ratio may be of a turn or of a trajectory (loss.over), and then clips far more.
    return rloo.recipe(
        name="loop", schedule=partial(schedule, wave=0.9, group=0.75), weight=partial(weight, least=0.01),
        loss=partial(loss, eps=0.1, over="token"), improve=partial(improve.policy, epochs=2, minibatches=8),
        pace=partial(pace.warmed, max_turns=40), groups=40, rollouts=6,
    ).but(**changes)
