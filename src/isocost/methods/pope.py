"""POPE: pose each hard problem a second time, with just enough of its solution to earn a reward.

    i*(x) = min { i ≤ L/4 : E r(x, y) > 0 for y ~ π(·|x, z_1..z_i) }          half the groups are x, half (x, z_1..z_i*)
    A_i = (r_i − mean r) / (std r + ε) within either; no loss on z          Qu et al. 2026, arXiv:2601.18779
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from isocost import chance
from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, grpo
from isocost.parts.guide import pieces_of, says
from isocost.seams import Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Message, Problem
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("POPE", "2601.18779", 2026, "grpo", "Guided success turns into unguided success where RL alone has none.")

LEAST_UNSOLVED = 0.1   # least share of problems with no right sample: below it there is little to guide

GUIDED = "begun-"    # the start of a variant's name; the number of pieces of the solution follows

PROMPT = (
    "{problem}\n\nA correct solution begins like this:\n\n{beginning}\n\nStudy what it has established, go on from "
    "where it stops, and end with the final answer."
)


@asks("text")
@trait("poses_twins")
@bounds(most="(0, 1]", levels="[1, inf)", tries="[0, inf)")
async def guide(
    problem: Problem, world: World, ledger: Ledger, *,
    most: float = 0.25, levels: int = 8, tries: int = 16, told: bool = False, words: str = PROMPT,
) -> list[Problem]:
    """The problem, and a second variant with the beginning of its solution (POPE, arXiv:2601.18779).

    The beginning is the shortest that has earned anything. There are up to `levels` lengths, evenly spaced up to the
    share `most`; a length is skipped once `tries` attempts earned nothing, and kept for good once one did. If all
    failed, the length is drawn at random each time. The beginning is put into the answer, or with `told` into the
    prompt by `words`. A problem without a solution, or whose beginnings all contain the answer, is posed alone.
    """
    pieces = pieces_of(str(problem.meta.get("solution") or ""))
    lengths = [k for k in beginnings(len(pieces), most, levels) if not says(problem.answer, "".join(pieces[:k]))]
    if not lengths:
        return [problem]
    length = shortest_that_helped(problem, ledger, lengths, tries)
    if length is None:
        rng = chance.generator(ledger.seed, chance.Purpose.GUIDE, ledger.drawn)
        length = lengths[int(rng.integers(len(lengths)))]
    beginning = "".join(pieces[:length])
    guided = replace(problem, variant=f"{GUIDED}{length}", prefix="" if told else beginning)
    if told:
        *before, last = problem.prompt
        said = words.replace("{beginning}", beginning).replace("{problem}", last.content)
        guided = replace(guided, prompt=(*before, Message(last.role, said)))
    return [problem, guided]


def beginnings(size: int, most: float, levels: int) -> list[int]:
    """Up to `levels` lengths, evenly spaced up to the share `most` of `size` pieces; at least one, never all pieces."""
    longest = min(max(floor(most * size), 1), size - 1)
    return sorted({ceil(k * longest / levels) for k in range(1, levels + 1)}) if longest > 0 else []


def shortest_that_helped(problem: Problem, ledger: Ledger, lengths: Sequence[int], tries: int) -> int | None:
    """The first length that earned something or has fewer than `tries` attempts; None if all failed."""
    tallies = ((k, ledger.of(problem.id, f"{GUIDED}{k}")) for k in lengths)
    return next((k for k, seen in tallies if seen.total > 0 or seen.tries < tries), None)


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Reference solutions, and problems that are never solved."""
    if profile.get("solutions") is None or not profile.get("histogram"):
        return UNMEASURED, "no share of problems with solutions, or no histogram: `isocost profile` measures both"
    share, said = grpo.unsolved(profile)
    state = HOLDS if profile["solutions"] > 0 and share >= LEAST_UNSOLVED else FAILS
    return state, f"{profile['solutions']:.0%} of problems have a reference solution; {said}"


def recipe(**changes: Any) -> Recipe:
    # The paper selects its hard set, 0 of 128 right, before the run, and so are the problems here. Its search also
    # precedes the run; here the guided attempts are the search, so it is part of the budget and uses the current
    # policy. 16 is a substitute for its unstated number. The beginning is put into the answer, because a base model
    # follows no instruction; guide.told=true puts it into the prompt.
    twins = partial(guide, most=0.25, levels=8, tries=16, told=False)
    return grpo.recipe(name="pope", guide=twins).but(**changes)
