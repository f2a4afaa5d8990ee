"""BroRL: hundreds of rollouts for each problem, so that no right answer loses probability for not being sampled.

    A_i = (r_i − mean r) / std_batch(r − mean r),   512 rollouts, groups that differ only
    L = (1/Σ|y_i|) Σ_i Σ_t min(π_old / μ, c) max(−A ρ, −A clip(ρ, 1 − 0.2, 1 + 0.28)),   lr ∝ √(rollouts of an update)
    Hu et al. 2025, arXiv:2510.01180
"""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, dapo, scalerl
from isocost.parts import improve, loss, reward
from isocost.parts.pace import PLANNED, warmed
from isocost.seams import Pace, Recipe
from isocost.traits import bounds

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("BroRL", "2510.01180", 2025, "dapo", "Breadth raises a policy that longer training no longer raises.")


@bounds(grown="(0, inf)", **PLANNED)
def pace(
    ledger: Ledger, *, grown: float = 8.0, lr: float = 1e-6, warmup: int = 10, max_tokens: int = 1024,
    temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, max_turns: int = 1, stop: tuple[str, ...] = (),
) -> Pace:
    """`pace.warmed` at √`grown` times `lr`: an update has `grown` times the rollouts for which `lr` was chosen."""
    return warmed(
        ledger, lr=lr * sqrt(grown), warmup=warmup, max_tokens=max_tokens, temperature=temperature, top_p=top_p,
        top_k=top_k, max_turns=max_turns, stop=stop,
    )


def recipe(**changes: Any) -> Recipe:
    # 16 rollouts of 512 problems become 512 of 128: 8 times the rollouts in as many updates, four here. The clip is
    # DAPO's, as the paper names none. Left out: the resets of the reference policy, whose KL term this has not, and
    # the 3,000 steps of training before it. A run whose rate is tuned needs pace.grown=1.
    clip = partial(loss.corrected, inner=partial(loss.clipped, low=0.2, high=0.28), cap=2.0)
    return dapo.recipe(
        name="brorl", advantage=scalerl.advantage, loss=clip, reward=reward.verified, pace=partial(pace, grown=8.0),
        improve=partial(improve.policy, minibatches=4), groups=128, rollouts=512,
    ).but(**changes)
