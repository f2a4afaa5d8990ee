"""SCALER: each environment has a dial for its level, turned so that half of the attempts are right.

    d ← clip(d + clip(k (acc − τ), ±1), 0, D)          levels ⌊d⌋ and ⌈d⌉ mixed so that their mean is d
    retire after 5 steps of nothing right, 5 at level D, or 10 without a rise of d
    Xu et al. 2026, arXiv:2601.04809
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from isocost.methods import FAILS, Card, grpo
from isocost.parts import choose
from isocost.seams import Recipe

CARD = Card("SCALER", "2601.04809", 2026, "grpo", "Accuracy stays near one half while the level climbs.")


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Problems of several levels (`meta["level"]`), and siblings that differ."""
    levels = set(profile.get("levels", ()))
    if len(levels) == 1:
        level = levels.pop()
        said = "no problem has a `level`" if level is None else f"every problem has the same level, {level}"
        return FAILS, f"{said}: there is no dial to turn"
    return grpo.needs(profile)


def recipe(**changes: Any) -> Recipe:
    # A dial starts at the lowest level, as the paper's does. An environment that stays at acc = τ is retired with those
    # that fall: the rule is "does not rise". Its own pool stands for the paper's generator.
    chosen = partial(choose.at_the_dial, window=64, gain=2.0, aim=0.5, step=1.0, never=5, full=5, slope=10)
    return grpo.recipe(name="scaler", choose=chosen).but(**changes)
