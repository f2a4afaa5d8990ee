"""IsoCompute's recipe for hard and mixed problems: its easy recipe without KL penalty and entropy bonus.

    A_i = r_i − mean r          L = min(π_old/μ, 2) · max(−A ρ, −A clip(ρ, 1 ± 0.2))          arXiv:2603.12151
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from isocost.batch import Batch, Forward
from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, isoeasy
from isocost.parts.loss import Out, clipped, corrected
from isocost.seams import Recipe
from isocost.traits import bounds, exported, gives

CARD = Card("IsoCompute, hard", "2603.12151", 2026, "isoeasy", "Hard sets learn only without KL and entropy terms.")


@exported("low", "high", "cap", surrogate="clipped")
@gives("a correction")
@bounds(low="[0, 1]", high="[0, inf]", cap="(0, inf]")
def loss(
    out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, cap: float = 2.0
) -> Out:
    return corrected(out, batch, inner=partial(clipped, low=low, high=high), cap=cap)


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """A hard or mixed set: many problems that the policy seldom or never solves."""
    if profile.get("regime") is None:
        return UNMEASURED, "no regime: `isocost profile` measures it"
    return HOLDS if profile["regime"] in ("hard", "mixed") else FAILS, f"the problems are {profile['regime']}"


def recipe(**changes: Any) -> Recipe:
    return isoeasy.recipe(name="isohard", loss=loss, enrich=()).but(**changes)
