"""Which combinations a recipe must not have, and why: a table between traits, which names no function and no method.

Functions declare their traits beside themselves (`isocost.traits`), at a seam or inside another function as `inner` or
one of the `terms`. Sizes and the verifier have traits too (`FACTS`). What one function requires another must provide,
and settings that represent one number must be equal. `isocost train`, `compare` and `methods check` apply this table.
Combinations that cannot occur are not listed: pass rates are counted before selection, every sampled token keeps the
log-prob and the version it was drawn with, and a scaled learning rate is applied after the gradient was clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from isocost.can import LEARNER, Can
from isocost.errors import UserError
from isocost.recipe import Used, functions
from isocost.seams import SEAMS, SIZE_BOUNDS, Recipe
from isocost.traits import outside

BINARY = ("exact", "final", "words", "numeric", "math")     # verifiers whose score is 0 or 1


@dataclass(frozen=True)
class Conflict:
    """Two traits of a recipe, each a function's (`isocost.traits.TRAITS`) or a fact (`FACTS`)."""

    one: str
    other: str
    why: str        # and how to change it


@dataclass(frozen=True)
class RunFacts:
    """What is known of a recipe's run besides the recipe."""

    verifier: str = ""      # its name; empty: not known
    turns: int = 0          # of a dialogue, at most; 0: not known


# Traits of a recipe's sizes or of its run: a text if the recipe has the trait, empty if not.
FACTS: dict[str, Callable[[Recipe, RunFacts], str]] = {
    "group_of_one": lambda r, known: f"rollouts {r.rollouts}" if r.rollouts < 2 else "",
    "small_batch": lambda r, known: f"batch {r.groups * r.rollouts}" if r.groups * r.rollouts < 16 else "",
    "runs_ahead": lambda r, known: f"max_age {r.max_age}" if r.max_age > 0 else "",
    "binary_rewards": lambda r, known: f"verifier {known.verifier}" if known.verifier in BINARY else "",
    "one_turn": lambda r, known: "one question and one answer" if known.turns == 1 else "",
    "dialogue": lambda r, known: f"a dialogue of up to {known.turns} turns" if known.turns > 1 else "",
}
CONFLICTS = (
    Conflict(
        "by_group_spread", "favours_rare",
        "dividing by the spread already gives rare answers more weight, and these counts do so again; set "
        "allocate.std=true, which counts in units of the spread, or use an advantage without a spread",
    ),
    Conflict(
        "needs_graded_rewards", "binary_rewards",
        "with rewards of 0 and 1 most of a group is at the median, its deviation is 0, and one attempt has an "
        "advantage of 1/eps; set advantage.flat=1, which uses the unit of the reward",
    ),
    Conflict(
        "tracks_pass_rate", "leaves_unmarked",
        "cancelled attempts are never marked, so pass rates are biased; keep all attempts (schedule.keep=1)",
    ),
    Conflict(
        "tracks_pass_rate", "not_whether_right",
        "the ledger counts the reward of an attempt, which here is not whether it is right",
    ),
    Conflict(
        "tracks_pass_rate", "not_as_posed",
        "most attempts of this play continue from another attempt, or stop there, so the ledger does not count the "
        "policy's pass rate on the problem as posed",
    ),
    *(Conflict(
        other, "chosen_by_reward",
        "the attempts of a group were chosen among others for their rewards, so their mean is not the pass rate and "
        "they are no independent draws",
    ) for other in ("tracks_pass_rate", "independent_attempts")),
    Conflict(
        "chosen_by_reward", "dialogue",
        "candidates are single answers, so in a dialogue there are none and the method is its parent; leave out --env",
    ),
    Conflict(
        "forces_end", "defers_groups",
        "an attempt that was deferred after its interruption would end one token after it is continued",
    ),
    Conflict(
        "shares_beginnings", "independent_attempts",
        "leaves of a tree share their beginnings, and the other needs attempts that are independent draws",
    ),
    Conflict(
        "chosen_by_steps", "compares_siblings",
        "a scorer decided after each step which texts went on, and a comparison of siblings would credit its choices "
        "to the policy; train with best_of, vote or until_sure, which choose among whole samples",
    ),
    Conflict(
        "chosen_by_steps", "dialogue",
        "the environment of a dialogue cannot follow texts that are dropped; use best_of, vote or until_sure, which "
        "choose among whole dialogues",
    ),
    Conflict(
        "one_call", "in_parts",
        "the play compares attempts that it makes in one call, and this schedule requests them one by one or in parts",
    ),
    Conflict(
        "casts_roles", "phased",
        "the play assigns roles within one call, so each phase would have its own, and they would be compared",
    ),
    *(Conflict(
        "defers_groups", other,
        "a deferred group is continued once, as it was posed: not in a later phase of a wave that is over, and not "
        "together with a guided variant",
    ) for other in ("phased", "poses_twins")),
    Conflict(
        "defers_groups", "runs_ahead",
        "a wave that is launched ahead is posed before the current one has continued its deferred groups, and would "
        "pose the same problems again; set max_age=0",
    ),
    Conflict(
        "by_batch_spread", "small_batch",
        "half of the time the spread of fewer than 16 rollouts has an error of a fifth or more; raise rollouts (-n) or "
        "groups (-B)",
    ),
    Conflict(
        "group_of_one", "compares_siblings",
        "it compares siblings, and a group of one has none, so no rollout would have an advantage; set 2 rollouts or "
        "more (-n)",
    ),
    Conflict(
        "needs_turns", "one_turn",
        "it acts on the turns of a dialogue, and with one turn it is its parent at the same or a higher cost; name an "
        "environment that answers turns (--env, and --max-turns above 1), or use the parent",
    ),
    Conflict(
        "by_rollout", "by_token",
        "its baseline is for whole rollouts, and this advantage differs from token to token",
    ),
)
ORDER = "later updates on a batch would follow another slope than the first; set both to one value"
SHARED = {      # numbers that settings share: why they must agree
    "best_of": "the advantage must use the N that attempts were drawn with; set both to one value",
    "budgets": "the prior has one number for each budget",
    "decay": "problems would be drawn by other pass rates than those that rollouts are compared with",
    "gamma": "the critic would be trained on other returns than the advantage uses; set both to one value",
    "lam": "the critic would be trained on other returns than the advantage uses; set both to one value",
    **dict.fromkeys(("order_beta", "order_tau", "order_bonus"), ORDER),
    "posed_anew": "problems would be drawn by another chance than they are posed anew with; set both to one value",
}
AT_MOST = {"best_of": ("rollouts", "a group smaller than N cannot estimate the best of N")}
ONE_NUMBER = "they represent one number; set both to one value"


def refuse(
    recipe: Recipe, *, verifier: str = "", turns: int = 0, shows: Sequence[str] = (), can: frozenset[Can] = LEARNER,
    where: str = "",
) -> None:
    """Raises UserError, with the reason, for a recipe with a value out of its bounds or with a conflict. `verifier` is
    its name and `turns` the limit of a dialogue, if known; `shows` are traits of its advantage that no function
    declares, but that were observed; `can` is what the learner can do, and `where` names its model."""
    used = {seam: list(functions(getattr(recipe, seam))) for seam in SEAMS}
    for said in (*_out_of_bounds(recipe, used), *_conflicting(recipe, used, RunFacts(verifier, turns), shows),
                 *_lacking(used), *_apart(recipe, used), *_beyond(used, can, where)):
        raise UserError(said)


def _out_of_bounds(recipe: Recipe, used: dict[str, list[Used]]) -> Iterator[str]:
    for size, allowed in SIZE_BOUNDS.items():
        if not allowed.hold(value := getattr(recipe, size)):
            yield f"{size} is {value!r}; expected a value in {allowed.text}"
    for seam, there in used.items():
        for x in there:
            for setting, value, text in outside(x.settings, x.declared):
                yield f"{seam}: {x.name} has {setting}={value!r}; expected a value in {text}"


def _conflicting(recipe: Recipe, used: dict[str, list[Used]], known: RunFacts, shows: Sequence[str]) -> Iterator[str]:
    def found(name: str) -> str:
        """How a trait reads where it is there: the function that has it, with what of its settings makes it so."""
        if name in FACTS:
            return FACTS[name](recipe, known)
        for x in (x for there in used.values() for x in there):
            if (trait := x.declared.has(name, x.settings)) is not None:
                because = ", ".join(f"{k}={x.settings[k]}" for k in trait.when)
                return f"{x.name}({because})" if because else x.name
        return used["advantage"][0].name if name in shows else ""

    for conflict in CONFLICTS:
        if (one := found(conflict.one)) and (other := found(conflict.other)):
            yield f"{one} conflicts with {other}: {conflict.why}"


def _lacking(used: dict[str, list[Used]]) -> Iterator[str]:
    """What no function provides. A function from outside the package may provide it inside, so it is accepted."""
    for x in (x for there in used.values() for x in there):
        for need in x.declared.requires:
            there = used[need.at]
            if not any(need.thing in y.declared.gives or y.foreign for y in there):
                has = ", ".join(y.name for y in there) or "empty"
                yield f"{x.name} requires {need.thing} from `{need.at}`, which is {has}: {need.why}"


def needs(recipe: Recipe) -> frozenset[Can]:
    """What a recipe's functions need of the learner; its pace aside."""
    return frozenset().union(*(x.declared.asks for seam in SEAMS for x in functions(getattr(recipe, seam))))


def _beyond(used: dict[str, list[Used]], can: frozenset[Can], where: str) -> Iterator[str]:
    """What a function needs of the learner, and the learner cannot do."""
    for x in (x for there in used.values() for x in there):
        for need in sorted(x.declared.asks - can, key=attrgetter("name")):
            yield (f"{x.name} needs {need.meaning}, which the model {where} cannot give: {need.remedy}, or a model on "
                   "this machine")
    settings = [x.settings for x in used["pace"]]
    for name, plain, need in (("temperature", 1.0, Can.TEMPERATURE), ("top_p", 1.0, Can.TRUNCATION),
                              ("top_k", 0, Can.TRUNCATION)):
        value = next((s[name] for s in settings if name in s), plain)
        if value != plain and need not in can:
            yield (f"{name} is {value:g}: training needs {need.meaning}, which the model {where} cannot give; leave it "
                   f"at {plain:g}")


def _apart(recipe: Recipe, used: dict[str, list[Used]]) -> Iterator[str]:
    """Settings that share a number and differ, and those beyond a size. Of a list the number is its length."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for seam in sorted(used, key=lambda seam: seam != "advantage"):     # the advantage is named first
        for x in used[seam]:
            for number, setting in x.declared.shares.items():
                value = x.settings[setting]
                size = len(value) if isinstance(value, (list, tuple)) else value
                found.setdefault(number, []).append((f"{x.name}({setting}={value})", size))
    for number, there in found.items():
        if number in AT_MOST:
            size, why = AT_MOST[number]
            for said, value in reversed(there):     # the function that selects attempts is named first
                if value > (most := getattr(recipe, size)):
                    yield f"{said} conflicts with {size}={most}: {why}"
        (first, value), *others = there
        for said, other in others:
            if other != value:
                yield f"{first} conflicts with {said}: {SHARED.get(number, ONE_NUMBER)}"
