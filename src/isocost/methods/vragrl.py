"""VRAG-RL: search, zoom and answer; the reward is for the answer, its form, and the order in which pages were found.

    r = 0.7 · right + 0.1 · form + 0.2 · NDCG,   NDCG = Σ_k 1{page k is gold} / log2(k + 1)  /  the same with gold first
    Wang et al. 2025, arXiv:2505.22019
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import log2
from typing import Any

from isocost.methods import FAILS, HOLDS, Card, gigpo, grpo
from isocost.methods.mirothinker import malformed
from isocost.parts import pace
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout
from isocost.world import World

CARD = Card("VRAG-RL", "2505.22019", 2025, "grpo", "Zooming and an ordered search answer more than one coarse look.")


def ndcg(order: Sequence[str], gold: Collection[str]) -> float:
    """Normalised discounted cumulative gain of an order, with relevance 0 or 1; 0 where nothing is gold."""
    best = sum(1 / log2(k + 2) for k in range(len(gold)))
    return sum(1 / log2(k + 2) for k, page in enumerate(order) if page in gold) / best if best else 0.0


@trait("not_whether_right")
@bounds(right="[0, 1]", form="[0, 1]", found="[0, 1]")
async def reward(
    group: Group, world: World, *, right: float = 0.7, form: float = 0.1, found: float = 0.2
) -> Group:
    """Weighted: the verifier's score, 1 if no turn was malformed, and the NDCG of the pages in the order found.

    The pages are the second word of what the verifier reads, a character each; `meta["gold"]` are those that hold the
    answer (VRAG-RL, arXiv:2505.22019). Parts: `right`, `form`, `found`.
    """
    group = await verified(group, world)
    gold = {str(x) for x in group.problem.meta.get("gold", ())}
    return group.of(_summed(r, gold, right, form, found) for r in group.rollouts)


def _summed(rollout: Rollout, gold: Collection[str], right: float, form: float, found: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    order = rollout.final.partition(" ")[2]
    parts = {"right": score.value, "form": float(not malformed(rollout)), "found": ndcg(order, gold)}
    value = right * parts["right"] + form * parts["form"] + found * parts["found"]
    return rollout.scored(replace(score, value=value, parts=parts))


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Dialogues about pages, some of which hold the answer."""
    state, why = gigpo.needs(profile)
    if state == HOLDS and "gold" not in profile.get("columns", ()):
        return FAILS, "problems have no `gold` pages: the order of what is found earns nothing"
    return state, why


def recipe(**changes: Any) -> Recipe:
    # The verifier takes the place of the judge. Left out: the retriever and the pictures; the small world is `needle`.
    return grpo.recipe(
        name="vragrl", reward=partial(reward, right=0.7, form=0.1, found=0.2), pace=partial(pace.warmed, max_turns=10)
    ).but(**changes)
