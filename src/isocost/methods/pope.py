"""POPE: beside each hard problem, pose it with just enough of its solution that something is ever right.

    i*(x) = min { i ≤ L/4 : E r(x, y) > 0 for y ~ π(·|x, z_1..z_i) }          half the groups are x, half (x, z_1..z_i*)
    A_i = (r_i − mean r) / (std r + ε) within either; no loss on z          Qu et al. 2026, arXiv:2601.18779
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, grpo
from isocost.parts import guide
from isocost.seams import Recipe

CARD = Card("POPE", "2601.18779", 2026, "grpo", "Guided success turns into unguided success where RL alone has none.")

LEAST_UNSOLVED = 0.1   # share of problems with no right sample below which there is little to guide


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Reference solutions, and problems that are never solved."""
    if profile.get("solutions") is None or not profile.get("histogram"):
        return UNMEASURED, "no share of problems with solutions, or no histogram: `isocost profile` measures both"
    share, said = grpo.unsolved(profile)
    state = HOLDS if profile["solutions"] > 0 and share >= LEAST_UNSOLVED else FAILS
    return state, f"{profile['solutions']:.0%} of problems have a reference solution; {said}"


def recipe(**changes: Any) -> Recipe:
    # The paper's hard set, 0 of 128, is chosen before the run, and so are the problems here. Its search is too; here
    # the guided attempts are the search, so that it is paid for and knows the policy as it is. 16 stands for its
    # unstated number. In the mouth, for a base model follows no instruction: guide.told puts it in the prompt.
    twins = partial(guide.with_beginning, most=0.25, levels=8, tries=16, told=False)
    return grpo.recipe(name="pope", guide=twins).but(**changes)
