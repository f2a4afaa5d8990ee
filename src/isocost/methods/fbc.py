"""Filtered behaviour cloning: imitate the policy's own right attempts, fresh and replayed, and drop the others.

    L = −(1/Σ|y_i|) Σ_i 1{r_i > 0} Σ_t log π(y_it),   over fresh and remembered right attempts alone
    REINFORCE without a baseline; with nothing remembered, rejection fine-tuning (RFT, arXiv:2308.01825)
    as in TTI, Shen et al. 2025, arXiv:2506.07976
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, reinforce
from isocost.ops import spread
from isocost.parts import improve, weight
from isocost.seams import Recipe
from isocost.traits import bounds
from isocost.types import Group

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card(
    "Filtered BC", "2506.07976", 2025, "reinforce",
    "Where failures carry little information, successes alone perform as well.",
)


@bounds(shortest="(0, 1]")
def select(group: Group, ledger: Ledger, *, over: float = 0.0, shortest: float = 1.0) -> Group | None:
    """The attempts that earned more than `over`, of these the shortest share `shortest`, rounded up; ties to the first.
    """
    good = [r for r in group.rollouts if r.score is not None and r.score.value > over]
    ranked = sorted(good, key=lambda r: (sum(s.written for s in r.segments), r.attempt))
    kept = ranked[: ceil(shortest * len(good))]
    return group.of(sorted(kept, key=lambda r: r.attempt)) if kept else None


def advantage(batch: Batch, ledger: object, *, over: float = 0.0) -> Tensor:  # -> (N, T)
    return spread((batch.reward > over).to(batch.reward), batch)


def recipe(**changes: Any) -> Recipe:
    # TTI draws each update from a buffer that grows by the right attempts of every iteration; here half of an update is
    # fresh. The sampler's log-probs do not matter: the tokens are targets, not samples.
    learn = partial(improve.replayed, fresh=0.5, room=512, mixed=False, inner=partial(improve.policy, ratios=False))
    right = partial(select, over=0.0, shortest=1.0)
    return reinforce.recipe(
        name="fbc", select=right, advantage=advantage, weight=weight.token_mean, improve=learn
    ).but(**changes)
