"""How likely the policy itself finds a text: exp of the mean log-prob of its tokens, or of their sum. It costs nothing.

    s(x, y) = exp(1/|y| Σ_t log π(y_t | x, y_<t))
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from isocost.types import Problem, Rollout
from isocost.world import World


async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, mean: bool = True,
) -> list[float | None]:
    """Of the log-probs that the tokens were drawn with; None for a text without a token of the policy."""
    logp = [np.concatenate([s.logp[s.own] for s in t.segments]) for t in texts]
    return [exp(min(float(x.mean() if mean else x.sum()), 0.0)) if len(x) else None for x in logp]
