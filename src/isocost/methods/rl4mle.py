"""RL4MLE: weigh each turn by the time that it took, since a policy that waits sees slow actions less often.

    in a time T an action x is tried about π(x) T / Δt_x times;   ∇J = E Σ_t (Δt_t / mean Δt) A_t ∇ log π(a_t | s_t)
    Yang et al. 2025, "Reinforcement learning for machine learning engineering agents", arXiv:2509.01684
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, gigpo, grpo
from isocost.ops import Turns, spread_turns, turns_of
from isocost.parts import pace
from isocost.seams import Advantage, Recipe
from isocost.traits import bounds, trait

CARD = Card("RL4MLE", "2509.01684", 2025, "grpo", "Slow actions that are better are found where fast ones would win.")

needs = gigpo.needs


@trait("compares_siblings", "by_token", "by_group_spread", "needs_turns")
@bounds(most="(0, inf]")
def advantage(
    batch: Batch, ledger: Any, *, inner: Advantage = grpo.advantage, most: float = 10.0
) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    return inner(batch, ledger) * spread_turns(durations(turns, batch).clamp(max=most), turns, batch)


def durations(turns: Turns, batch: Batch) -> Tensor:
    """The seconds of each turn over their mean in the batch; 1 for all where no environment states any. -> (S,)"""
    rollouts = [r for g in batch.groups for r in g.rollouts]
    stated = [[t.seconds for t in r.turns] for r in rollouts]
    pairs = zip(turns.rollout.tolist(), turns.number.tolist(), strict=True)
    seconds = torch.tensor([stated[r][n] if n < len(stated[r]) else 0.0 for r, n in pairs]).to(batch.reward)
    known = seconds > 0
    mean = seconds[known].mean() if bool(known.any()) else seconds.new_ones(())
    return torch.where(known, seconds / mean, torch.ones_like(seconds))


def recipe(**changes: Any) -> Recipe:
    # The advantage is GRPO's, where the paper has PPO's with a critic. Seconds are those that the environment states,
    # so that a run is reproducible. Left out: actors that sample on while others wait, on which the weights rest;
    # credit for parts of a program that were reached, which an environment can pay as rewards of turns; and problems
    # posed with an earlier solution. A weight is at most 10.
    credit = partial(advantage, inner=grpo.advantage, most=10.0)
    return grpo.recipe(name="rl4mle", advantage=credit, pace=partial(pace.warmed, max_turns=10)).but(**changes)
