"""What a recipe may not hold together, and why: a table between traits, which names no function and no method.

Functions declare their traits beside themselves (`isocost.traits`), wherever they are: at a seam, or inside another
function as `inner` or one of the `terms`. Sizes and the verifier have traits too (`FACTS`). What one function requires
another must give; and settings that stand for one number must agree. `isocost train`, `compare` and `methods check`
refuse what is listed here. What cannot come about is not listed: pass rates are counted before anything is selected,
every sampled token keeps the log-prob and the version it was drawn with, and a scaled rate is applied after the
gradient was clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from isocost.errors import UserError
from isocost.recipe import Used, functions
from isocost.seams import SEAMS, SIZE_BOUNDS, Recipe
from isocost.traits import outside

BINARY = ("exact", "final", "words", "numeric", "math")     # verifiers that say 0 or 1 and nothing between


@dataclass(frozen=True)
class Conflict:
    """Two traits of a recipe, each a function's (`isocost.traits.TRAITS`) or a fact (`FACTS`)."""

    one: str
    other: str
    why: str        # and what would be right


# A trait of a recipe's sizes or its verifier: what it reads like where it is there, empty where it is not.
FACTS: dict[str, Callable[[Recipe, str], str]] = {
    "group_of_one": lambda r, verifier: f"rollouts {r.rollouts}" if r.rollouts < 2 else "",
    "small_batch": lambda r, verifier: f"batch {r.groups * r.rollouts}" if r.groups * r.rollouts < 16 else "",
    "runs_ahead": lambda r, verifier: f"max_age {r.max_age}" if r.max_age > 0 else "",
    "binary_rewards": lambda r, verifier: f"verifier {verifier}" if verifier in BINARY else "",
}
CONFLICTS = (
    Conflict(
        "by_group_spread", "favours_rare",
        "dividing by the spread weighs rare answers up already, and these counts do so again; allocate.std=true "
        "counts for credit in units of a spread, or take credit without one",
    ),
    Conflict(
        "needs_graded_rewards", "binary_rewards",
        "with right and wrong alone most of a group is at the median, its deviation is 0, and one attempt has a "
        "credit of 1/eps; advantage.flat=1 takes the reward's own unit there",
    ),
    Conflict(
        "tracks_pass_rate", "leaves_unmarked",
        "whoever is given up on is never marked, so pass rates are not the policy's; keep all (schedule.keep=1)",
    ),
    Conflict(
        "tracks_pass_rate", "not_whether_right",
        "the ledger counts what the reward makes of an attempt, which here is not whether it is right",
    ),
    Conflict(
        "tracks_pass_rate", "not_as_posed",
        "most attempts of this play go on from what another began, or stop there, so what the ledger counts of them is "
        "not the policy's pass rate on the problem as posed",
    ),
    Conflict(
        "forces_end", "defers_groups",
        "an attempt that was put by beyond the interruption would end after one token more when it is taken up",
    ),
    Conflict(
        "shares_beginnings", "independent_attempts",
        "leaves of a tree share what they were forked from, and it counts on attempts that are independent draws",
    ),
    Conflict(
        "one_call", "in_parts",
        "the play compares attempts that it makes in one call, and this schedule asks for them one by one or in parts",
    ),
    Conflict(
        "casts_roles", "phased",
        "the play lays out the attempts of one call, and each phase would lay out its own, to be compared as if alike",
    ),
    *(Conflict(
        "defers_groups", other,
        "a group that was put by is taken up as it was posed, once: not in a later phase of a wave that is over, nor "
        "beside a guided twin",
    ) for other in ("phased", "poses_twins")),
    Conflict(
        "defers_groups", "runs_ahead",
        "a wave that is launched ahead is posed before the one in the air takes up what was put by, and poses the same "
        "unfinished problems once more; wait for each (max_age=0)",
    ),
    Conflict(
        "by_batch_spread", "small_batch",
        "a spread of fewer than 16 rollouts is off by a fifth or more as often as not, and by less in a larger batch; "
        "raise rollouts (-n) or groups (-B)",
    ),
    Conflict(
        "group_of_one", "compares_siblings",
        "it compares siblings, and a group of one has none, so that nothing would earn credit; give 2 rollouts or more "
        "(-n)",
    ),
    Conflict(
        "by_rollout", "by_token",
        "its baseline is for whole rollouts, and this credit differs from token to token",
    ),
)
SHARED = {      # numbers that settings share: why they must agree
    "best_of": "the credit is for the N that attempts were drawn by; set both alike",
    "budgets": "the prior has one number for each budget",
    "gamma": "the critic would be taught other returns than the credit counts with; set both alike",
    "lam": "the critic would be taught other returns than the credit counts with; set both alike",
}
AT_MOST = {"best_of": ("rollouts", "a group that is smaller than N says nothing about the best of N")}
ONE_NUMBER = "they stand for one number; set both alike"


def refuse(recipe: Recipe, *, verifier: str = "", shows: Sequence[str] = ()) -> None:
    """Raises UserError, with the reason, for a recipe with a value out of its bounds, or that holds what conflicts.

    `verifier` is its name, if known; `shows` are traits of its credit that no function declares, but that were seen.
    """
    used = {seam: list(functions(getattr(recipe, seam))) for seam in SEAMS}
    for said in (*_out_of_bounds(recipe, used), *_conflicting(recipe, used, verifier, shows), *_lacking(used),
                 *_apart(recipe, used)):
        raise UserError(said)


def _out_of_bounds(recipe: Recipe, used: dict[str, list[Used]]) -> Iterator[str]:
    for size, allowed in SIZE_BOUNDS.items():
        if not allowed.hold(value := getattr(recipe, size)):
            yield f"{size} is {value!r}: it takes a value in {allowed.text}"
    for seam, there in used.items():
        for x in there:
            for setting, value, text in outside(x.settings, x.declared):
                yield f"{seam}: {x.name} has {setting}={value!r}, and takes a value in {text}"


def _conflicting(recipe: Recipe, used: dict[str, list[Used]], verifier: str, shows: Sequence[str]) -> Iterator[str]:
    def found(name: str) -> str:
        """How a trait reads where it is there: the function that has it, with what of its settings makes it so."""
        if name in FACTS:
            return FACTS[name](recipe, verifier)
        for x in (x for there in used.values() for x in there):
            if (trait := x.declared.has(name, x.settings)) is not None:
                because = ", ".join(f"{k}={x.settings[k]}" for k in trait.when)
                return f"{x.name}({because})" if because else x.name
        return used["advantage"][0].name if name in shows else ""

    for conflict in CONFLICTS:
        if (one := found(conflict.one)) and (other := found(conflict.other)):
            yield f"{one} does not go with {other}: {conflict.why}"


def _lacking(used: dict[str, list[Used]]) -> Iterator[str]:
    """What no function gives. One from outside the package may call another inside that does: it is let be."""
    for x in (x for there in used.values() for x in there):
        for need in x.declared.requires:
            there = used[need.at]
            if not any(need.thing in y.declared.gives or y.foreign for y in there):
                has = ", ".join(y.name for y in there) or "empty"
                yield f"{x.name} requires {need.thing} from `{need.at}`, which is {has}: {need.why}"


def _apart(recipe: Recipe, used: dict[str, list[Used]]) -> Iterator[str]:
    """Settings that share a number and differ, and those beyond a size. Of a list the number is its length."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for seam in sorted(used, key=lambda seam: seam != "advantage"):     # credit is told first
        for x in used[seam]:
            for number, setting in x.declared.shares.items():
                value = x.settings[setting]
                size = len(value) if isinstance(value, (list, tuple)) else value
                found.setdefault(number, []).append((f"{x.name}({setting}={value})", size))
    for number, there in found.items():
        if number in AT_MOST:
            size, why = AT_MOST[number]
            for said, value in reversed(there):     # what hands the attempts out is told first, their credit next
                if value > (most := getattr(recipe, size)):
                    yield f"{said} does not go with {size}={most}: {why}"
        (first, value), *others = there
        for said, other in others:
            if other != value:
                yield f"{first} does not go with {said}: {SHARED.get(number, ONE_NUMBER)}"
