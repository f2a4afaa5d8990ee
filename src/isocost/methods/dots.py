"""DOTS with rollout replay: pose problems of a predicted pass rate near ½, and train on each good group twice or more.

    p̂ = σ(w logit(Σ_j softmax_j(q·k_j/τ_a) r_j) + b)          x drawn ∝ exp(−|p̂(x) − α| / τ), without replacement
    a batch is σ fresh and 1 − σ remembered mixed groups, their ratios π_θ / π_sampler as stored
    Sun et al. 2025, arXiv:2506.05316
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import choose, improve, track
from isocost.seams import Recipe

CARD = Card("DOTS with rollout replay", "2506.05316", 2025, "grpo", "Equal reward for about half of the sampling.")


def recipe(**changes: Any) -> Recipe:
    # 256 references for 512 chosen problems: a third. Their keys are hashed trigrams, or what the problems bring as
    # meta["embedding"]; the paper's trained adapter over a frozen model is not here.
    chosen = partial(
        choose.targeted, aim=0.5, spread=1e-3, probes=1 / 3, references=256, sharpness=0.05, embed=track.trigrams
    )
    learn = partial(improve.replayed, fresh=0.5, room=512, inner=improve.policy)
    # Groups of an update: 8 fresh, 8 remembered.
    return grpo.recipe(name="dots", choose=chosen, improve=learn, groups=8).but(**changes)
