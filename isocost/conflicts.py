"""Combinations that conflict: what a recipe may not hold together, and why. Data, so that a new one is a line.

A recipe is looked at as `describe` writes it down, so a function counts wherever it is: at its seam, or inside
another as `inner` or one of the `terms`. `isocost train`, `compare` and `methods check` refuse what is listed here.
What cannot come about here is not listed: pass rates are counted before anything is selected, every sampled token
keeps the log-prob and the version it was drawn with, and a scaled rate is applied after the gradient was clipped.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import FunctionType, ModuleType
from typing import Any

from isocost.errors import UserError
from isocost.seams import Recipe, describe

PARTED = {"in_groups", "siblings_of"}       # what `isocost.ops` has for credit that compares siblings
BOUNDS = {"<": operator.lt, ">": operator.gt}
BINARY = ("exact", "final", "words", "numeric", "math")     # verifiers that say 0 or 1 and nothing between


@dataclass(frozen=True)
class Has:
    """A function at a seam, at any depth, with these settings; or a number, or a word, within these."""

    seam: str                                                  # or a size, "batch" (n B), "verifier"
    fn: str = ""                                               # "grpo.advantage": the module's last name and its own
    settings: Mapping[str, Any] = field(default_factory=dict)  # {"std": False, "keep": ("<", 1)}
    value: Any = None                                          # ("<", 16), or one of several words

    def found(self, whole: Mapping[str, Any]) -> str:
        """How it reads where it is there; empty where it is not."""
        if not self.fn:
            return f"{self.seam} {whole[self.seam]}" if _meets(whole[self.seam], self.value) else ""
        for x in calls(whole[self.seam]):
            if call(x) == self.fn and all(_meets(x.get(k), v) for k, v in self.settings.items()):
                said = ", ".join(f"{k}={x[k]}" for k in self.settings)
                return f"{self.fn}({said})" if said else self.fn
        return ""


@dataclass(frozen=True)
class Lacks:
    """None of these functions at a seam. A function from outside the package may call them inside: it is let be."""

    seam: str
    fns: tuple[str, ...]

    def found(self, whole: Mapping[str, Any]) -> str:
        there = any(call(x) in self.fns or "source" in x for x in calls(whole[self.seam]))
        return "" if there else f"{self.seam} without {' or '.join(self.fns)}"


@dataclass(frozen=True)
class Compares:
    """A function at a seam that compares siblings, itself or by one that it calls, as its code shows."""

    seam: str

    def found(self, whole: Mapping[str, Any]) -> str:
        """How it reads where it is there; empty where it is not."""
        return next((call(x) for x in calls(whole[self.seam]) if _by_siblings(_function(x))), "")


@dataclass(frozen=True)
class Conflict:
    """Any of `one` with any of `other`."""

    one: tuple[Has, ...]
    other: tuple[Has | Lacks | Compares, ...]
    why: str        # and what would be right


@dataclass(frozen=True)
class Apart:
    """Two numbers of a recipe that do not fit: each a seam, a function there and its setting, or a size.

    Of a setting that is a list it is the length.
    """

    one: tuple[str, str, str]       # ("advantage", "bon.advantage", "n")
    other: tuple[str, ...]          # as well, or ("rollouts",)
    unfit: Callable[[Any, Any], Any]
    why: str

    def found(self, whole: Mapping[str, Any]) -> str:
        """How they read where they do not fit; empty where they do, or one is not there."""
        pairs = product(_numbers(whole, *self.one), _numbers(whole, *self.other))
        return next((f"{a} does not go with {b}" for (a, x), (b, y) in pairs if self.unfit(x, y)), "")


BY_SPREAD = (      # credit in units of the group's spread
    Has("advantage", "grpo.advantage"), Has("advantage", "gdpo.advantage"), Has("advantage", "mcgrpo.advantage"),
    Has("advantage", "adhint.advantage"), Has("advantage", "isoeasy.advantage", {"std": True}),
)
BY_BATCH = (       # credit in units of the batch's spread
    Has("advantage", "gdpo.advantage", {"whiten": True}), Has("advantage", "v05.advantage", {"whiten": True}),
    Has("advantage", "liteppo.advantage"), Has("advantage", "scalerl.advantage"),
)
TRACKERS = (       # what goes by pass rates that the ledger has counted
    Has("choose", "choose.by_belief"), Has("choose", "choose.targeted"), Has("choose", "choose.at_the_dial"),
    Has("choose", "choose.unretired"), Has("allocate", "allocate.by_spread"), Has("advantage", "promptgdro.advantage"),
    Has("advantage", "v05.advantage"),
)
TOGETHER = (       # plays that lay out the attempts of one call among themselves
    Has("play", "forced.anytime"), Has("play", "forced.halted"), Has("play", "rounds.continued"),
    Has("play", "taught.hinted"), Has("play", "taught.one_token"), Has("play", "taught.repaired"),
)
PHASED = (Has("allocate", "allocate.by_shortfall"), Has("allocate", "allocate.while_it_pays"))
CORRECTED = ("areal.loss", "isohard.loss")      # losses that call loss.corrected themselves
BEST_OF = (        # where the N of best-of-N stands
    ("select", "select.best_of", "n"), ("advantage", "bon.advantage", "n"), ("advantage", "bonrlb.advantage", "n"),
)
GIVES_UP = (       # on attempts, before they are marked
    Has("schedule", "schedule.first_back", {"keep": ("<", 1)}), Has("schedule", "schedule.pruned", {"keep": ("<", 1)}),
)

CONFLICTS = (
    Conflict(
        BY_SPREAD, (Has("allocate", "allocate.by_shortfall", {"std": False}),),
        "dividing by the spread weighs rare answers up already, and these counts do so again; allocate.std=true "
        "counts for credit in units of a spread, and Dr. GRPO's credit has none",
    ),
    Conflict(
        (Has("advantage", "mcgrpo.advantage", {"flat": 0}),), (Has("verifier", value=BINARY),),
        "with right and wrong alone most of a group is at the median, its deviation is 0, and one attempt has a "
        "credit of 1/eps; advantage.flat=1 takes the reward's own unit there",
    ),
    Conflict(
        TRACKERS, GIVES_UP,
        "whoever is given up on is never marked, so pass rates are not the policy's; keep all (schedule.keep=1)",
    ),
    Conflict(
        TRACKERS, (Has("reward", "reward.agreed"), Has("reward", "reward.verified_and_short")),
        "the ledger counts what the reward makes of an attempt, which here is not whether it is right",
    ),
    Conflict(
        TRACKERS, (
            Has("play", "forced.anytime"), Has("play", "forced.halted"), Has("play", "rounds.continued"),
            Has("play", "tree.forked"),
        ),
        "most attempts of this play go on from what another began, or stop there, so what the ledger counts of them is "
        "not the policy's pass rate on the problem as posed",
    ),
    Conflict(
        (Has("play", "forced.interrupted"),), (Has("schedule", "schedule.first_groups"),),
        "an attempt that was put by beyond the interruption would end after one token more when it is taken up",
    ),
    Conflict(
        (Has("play", "tree.forked"),),
        (
            Has("advantage", "bon.advantage"), Has("advantage", "bonrlb.advantage"), Has("select", "select.best_of"),
        ),
        "leaves of a tree share what they were forked from, and it counts on attempts that are independent draws",
    ),
    Conflict(
        (*TOGETHER, Has("play", "tree.forked")), (
            Has("schedule", "schedule.first_back"), Has("schedule", "schedule.pruned"),
            Has("schedule", "schedule.first_groups"),
        ),
        "the play compares attempts that it makes in one call, and this schedule asks for them one by one or in parts",
    ),
    Conflict(
        TOGETHER, PHASED,
        "the play lays out the attempts of one call, and each phase would lay out its own, to be compared as if alike",
    ),
    Conflict(
        (Has("schedule", "schedule.first_groups"),), (*PHASED, Has("guide", "guide.with_beginning")),
        "a group that was put by is taken up as it was posed, once: not in a later phase of a wave that is over, nor "
        "beside a guided twin",
    ),
    Conflict(
        (Has("schedule", "schedule.first_groups"),), (Lacks("choose", ("choose.unfinished_first",)),),
        "what was put by would wait for its problem to be drawn again; choose.unfinished_first draws it next",
    ),
    Conflict(
        (Has("schedule", "schedule.first_groups"),), (Has("max_age", value=(">", 0)),),
        "a wave that is launched ahead is posed before the one in the air takes up what was put by, and poses the same "
        "unfinished problems once more; wait for each (max_age=0)",
    ),
    Conflict(
        BY_BATCH, (Has("batch", value=("<", 16)),),
        "a spread of fewer than 16 rollouts is off by a fifth or more as often as not, and by less in a larger batch; "
        "raise rollouts (-n) or groups (-B)",
    ),
    Conflict(
        (Has("rollouts", value=("<", 2)),), (Compares("advantage"),),
        "it compares siblings, and a group of one has none, so that nothing would earn credit; give 2 rollouts or more "
        "(-n)",
    ),
    Conflict(
        (Has("improve", "improve.least_variance"),), (Lacks("loss", ("loss.reweighed", "loss.truncated")),),
        "its baseline and its step count rollouts by their importance ratio, which this loss does not tell",
    ),
    Conflict(
        (Has("improve", "improve.least_variance"),), (Has("advantage", "brpo.advantage"),),
        "its baseline is for whole rollouts, and this credit differs from token to token",
    ),
    Conflict(
        (Has("advantage", "ppo.advantage"), Has("improve", "improve.with_critic")),
        (Lacks("enrich", ("enrich.values",)), Lacks("improve", ("improve.with_critic",))),
        "it credits by what a critic foresees, which enrich.values asks it and improve.with_critic teaches it",
    ),
    Conflict(
        (Has("advantage", "ettrl.advantage"),), (Lacks("enrich", ("enrich.entropy",)),),
        "it goes by how unsure an attempt was; add enrich.entropy to `enrich`",
    ),
    Conflict(
        (Has("advantage", "ace.advantage"), Has("loss", "loss.to_reference"), Has("loss", "isoeasy.loss")),
        (Lacks("enrich", ("enrich.reference",)),),
        "it compares with the policy that the run began with; add enrich.reference to `enrich`",
    ),
    Conflict(
        (Has("advantage", "bonrlb.advantage"),), (Lacks("reward", ("bonrlb.reward",)),),
        "it goes by the failure rate of whole groups, which that reward notes before best-of-n is taken",
    ),
    Conflict(
        (Has("advantage", "mrt.advantage"),), (Lacks("play", ("forced.halted",)), Lacks("reward", ("mrt.reward",))),
        "it measures from siblings that stopped at the same prefix, and here nobody stops, or it is not noted",
    ),
    Conflict(
        (Has("advantage", "brpo.advantage"),), (Lacks("play", ("forced.anytime",)),),
        "it goes by answers at several budgets, and this play asks for none",
    ),
    Conflict(
        (Has("loss", "areal.loss"),), (Lacks("improve", ("improve.decoupled",)),),
        "it corrects from the sampler to the learner as the step begins, which improve.decoupled scores the batch for",
    ),
    Conflict(
        (Has("improve", "improve.decoupled"),), (Lacks("loss", ("loss.corrected", *CORRECTED)),),
        "its ratios are to the learner as the step begins, so what the sampler was apart from it must be corrected; "
        "put the loss inside loss.corrected",
    ),
    Conflict(
        (Has("select", "select.clean_right"),), (Lacks("reward", ("reward.verified_with_faults",)),),
        "it keeps the right answers with the fewest faults, which that reward notes; without it all have none",
    ),
)
APARTS = (
    *(Apart(
        at, ("rollouts",), operator.gt, "a group that is smaller than N says nothing about the best of N",
    ) for at in BEST_OF),
    *(Apart(
        at, BEST_OF[0], operator.ne, "the credit is for the N that attempts were drawn by; set both alike",
    ) for at in BEST_OF[1:]),
    Apart(
        ("advantage", "brpo.advantage", "prior"), ("play", "forced.anytime", "shares"), operator.ne,
        "the prior has one number for each budget",
    ),
    *(Apart(
        ("advantage", "ppo.advantage", name), ("improve", "improve.with_critic", name), operator.ne,
        "the critic would be taught other returns than the credit counts with; set both alike",
    ) for name in ("gamma", "lam")),
)


def refuse(recipe: Recipe, *, verifier: str = "") -> None:
    """Raises UserError, with the reason, for a recipe that holds what conflicts. `verifier` is its name, if known."""
    whole = {**describe(recipe), "batch": recipe.groups * recipe.rollouts, "verifier": verifier}
    for conflict in CONFLICTS:
        one = next(filter(None, (x.found(whole) for x in conflict.one)), "")
        other = next(filter(None, (x.found(whole) for x in conflict.other)), "") if one else ""
        if other:
            raise UserError(f"{one} does not go with {other}: {conflict.why}")
    for apart in APARTS:
        if said := apart.found(whole):
            raise UserError(f"{said}: {apart.why}")


def calls(x: Any) -> Iterator[Mapping[str, Any]]:
    """Every function in a described seam or recipe, the outermost first."""
    if isinstance(x, Mapping):
        if "fn" in x:
            yield x
        for value in x.values():
            yield from calls(value)
    elif isinstance(x, list):
        for value in x:
            yield from calls(value)


def call(x: Mapping[str, Any]) -> str:
    """Its short name, such as "grpo.advantage"."""
    module, _, name = x["fn"].rpartition(":")
    return f"{module.rpartition('.')[2]}.{name}"


def _function(x: Mapping[str, Any]) -> Any:
    module, _, name = x["fn"].partition(":")
    return getattr(sys.modules.get(module), name, None)


def _by_siblings(fn: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a function's code, or that of one of ours or of its own file that it calls, parts rollouts by sibling."""
    if not isinstance(fn, FunctionType) or fn in seen:
        return False
    names = set(fn.__code__.co_names)
    here = [fn.__globals__[name] for name in names & fn.__globals__.keys()]
    here += [cell.cell_contents for cell in fn.__closure__ or ()]       # what a decorator lifts
    inside = [getattr(module, name, None) for module in here if isinstance(module, ModuleType) for name in names]
    ours = [f for f in (*here, *inside)
            if isinstance(f, FunctionType) and f.__module__.startswith(("isocost.", fn.__module__))]
    return bool(names & PARTED) or any(_by_siblings(f, seen | {fn}) for f in ours)


def _numbers(whole: Mapping[str, Any], seam: str, fn: str = "", setting: str = "") -> Iterator[tuple[str, Any]]:
    """Every place where such a number stands, how it reads there, and what it is."""
    if not fn:
        yield f"{seam}={whole[seam]}", whole[seam]
    for x in calls(whole[seam]) if fn else ():
        if call(x) == fn:
            value = x[setting]
            yield f"{fn}({setting}={value})", len(value) if isinstance(value, list) else value


def _meets(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple) and wanted and wanted[0] in BOUNDS:
        return bool(BOUNDS[wanted[0]](value, wanted[1]))
    return value in wanted if isinstance(wanted, tuple) else bool(value == wanted)
