"""The verbs. A method is a choice of one function for each; a recipe is that choice, written down.

Every seam value is a top-level function, or a `partial` of one: so recipes pickle, print, hash and diff, and a
function's own signature is the schema of its settings. Seams keep no state: what a run has learned so far is in
the ledger, which they may read, and where groups may be left for later (`put_by`, `take_up`, `remember`).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import types as pytypes
import typing
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from isocost.errors import UserError
from isocost.traits import Bounds, Declared, declared, outside
from isocost.types import Batch, Forward, Group, Place, Problem, Rollout, Sampling, Segment

if typing.TYPE_CHECKING:
    from isocost.ledger import Ledger
    from isocost.world import World


@dataclass
class Wave:
    """What the groups of one wave know of each other while they are played."""

    groups: int                         # how many there are
    halt: Callable[[Place], None]       # whoever still writes for the wave comes home as far as it got
    home: int = 0                       # how many need no more attempts: schedules that ask count themselves in


@dataclass(frozen=True)
class Attempts:
    """A play with everything but the start and the attempts already filled in: what `schedule` orders."""

    play: Play
    world: World
    pace: Pace
    wave: Wave
    place: Place

    async def __call__(
        self, problem: Problem, attempts: Sequence[int], start: Segment | None = None, *, most: int = 0
    ) -> list[Rollout]:
        """Play these attempts, from `start` if there is one; with `most`, until a turn has so many tokens."""
        cut = 0 < most < self.pace.max_tokens
        pace = replace(self.pace, max_tokens=most, in_parts=True) if cut else self.pace
        return await self.play(problem, attempts, self.world, pace, self.place, start)


class Choose(Protocol):     # which problems next; `rng` is addressed by (seed, wave)
    def __call__(
        self, pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator
    ) -> list[Problem]: ...
class Guide(Protocol):      # in which variants; how much help a problem needs is something that a run learns
    async def __call__(self, problem: Problem, world: World, ledger: Ledger) -> list[Problem]: ...
class Allocate(Protocol):   # how many each slot of a wave gets, `total` in all; a generator is told each phase's scores
    def __call__(
        self, problems: Sequence[Problem], ledger: Ledger, total: int
    ) -> list[int] | Generator[list[int], list[Group], None]: ...
class Play(Protocol):       # how attempts are made: the decode strategy, several attempts of one start at once
    async def __call__(
        self, problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
        start: Segment | None = None,
    ) -> list[Rollout]: ...
class Schedule(Protocol):   # in what order; what to fork, stop, reuse
    async def __call__(
        self, problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger
    ) -> list[Rollout]: ...
class Reward(Protocol):     # what each attempt of a finished group was worth
    async def __call__(self, group: Group, world: World) -> Group: ...
class Select(Protocol):     # what of a group is worth an update; None for nothing
    def __call__(self, group: Group, ledger: Ledger) -> Group | None: ...
class Enrich(Protocol):     # what else the batch must carry: reference log-probs, values, a teacher's
    def __call__(self, batch: Batch, world: World) -> Batch: ...
class Advantage(Protocol):  # which tokens get the credit        -> (N, T)
    def __call__(self, batch: Batch, ledger: Ledger) -> Tensor: ...
class Weight(Protocol):     # how tokens are averaged             -> (N, T), settled once on the whole batch
    def __call__(self, batch: Batch) -> Tensor: ...
class Loss(Protocol):       # the per-token surrogate, unreduced  -> (N, T), {name: (N, T)}
    def __call__(self, out: Forward, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]: ...
class Improve(Protocol):    # how a batch becomes one or more updates
    def __call__(self, batch: Batch, recipe: Recipe, world: World, ledger: Ledger) -> dict[str, float]: ...
class PaceFn(Protocol):     # what changes as the run goes on
    def __call__(self, ledger: Ledger) -> Pace: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """What a wave is played with, and the step it leads to is taken with."""

    lr: float
    max_tokens: int                     # per turn
    sampling: Sampling = Sampling()
    max_turns: int = 1
    stop: tuple[str, ...] = ()          # strings that end a turn, beside the model's own end tokens
    most: int | None = None             # max_turns of evaluations; None: those of training
    in_parts: bool = False              # a turn cut at max_tokens is not over: it may be gone on with

    def evaluated(self, max_tokens: int, sampling: Sampling) -> Pace:
        """What an evaluation is played with: whatever moves as the run goes on must not move what is measured."""
        turns = self.max_turns if self.most is None else self.most
        return replace(self, max_tokens=max_tokens, sampling=sampling, max_turns=turns)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method, whole: thirteen verbs and the sizes that spend the budget."""

    name: str
    choose: Choose
    guide: Guide
    allocate: Allocate
    play: Play
    schedule: Schedule
    reward: Reward
    select: Select
    enrich: tuple[Enrich, ...] = ()
    advantage: Advantage
    weight: Weight
    loss: Loss
    improve: Improve
    pace: PaceFn
    groups: int = 16         # B: groups per update (posed variants; problems where nothing is guided)
    rollouts: int = 8        # n: rollouts per group, on average over a wave
    max_age: int = 0         # steps a rollout may lag behind; 0 is synchronous
    refill: bool = False     # launch further waves until B groups survive `select` (DAPO), or train on what is left

    def but(self, **changes: Any) -> Recipe:
        return replace(self, **changes)


SEAMS = tuple(f.name for f in fields(Recipe) if f.name not in ("name", "groups", "rollouts", "max_age", "refill"))
SIZES = ("groups", "rollouts", "max_age", "refill")
SIZE_BOUNDS = {"groups": Bounds.of("[1, inf)"), "rollouts": Bounds.of("[1, inf)"), "max_age": Bounds.of("[0, inf)")}


def describe(x: Any) -> Any:
    """A recipe as plain data: every parameter with its value, defaults bound. Records store it, `diff` compares it.

    A function from outside the package is described with the hash of its source file, for its name alone says little.
    Raises UserError for one that has no name to be found by: a lambda, a function within another, a callable object.
    """
    if isinstance(x, partial) or (callable(x) and not isinstance(x, type)):
        fn, args, keywords = (x.func, x.args, x.keywords) if isinstance(x, partial) else (x, (), {})
        _refuse_nameless(fn)
        settings = {k: p.default for k, p in _settings(fn).items()}
        out: dict[str, Any] = {"fn": _named(fn)}
        if not fn.__module__.startswith("isocost."):
            out["source"] = _source_hash(fn)
        out |= {k: describe(v) for k, v in {**settings, **keywords}.items() if v is not inspect.Parameter.empty}
        return out | ({"args": [describe(a) for a in args]} if args else {})
    if is_dataclass(x) and not isinstance(x, type):
        return {f.name: describe(getattr(x, f.name)) for f in fields(x)}
    if isinstance(x, (list, tuple)):
        return [describe(i) for i in x]
    if isinstance(x, dict):
        return {str(k): describe(v) for k, v in x.items()}
    return x.item() if isinstance(x, np.generic) else x


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
    """The short name of a described function, such as "grpo.advantage"."""
    return _short(x["fn"])


@dataclass(frozen=True)
class Used:
    """A function as a recipe uses it, with its settings, every default bound."""

    fn: Callable[..., Any]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its short name, such as "grpo.advantage"."""
        return _short(_named(self.fn))

    @property
    def foreign(self) -> bool:
        """Whether it is from outside the package: what it calls inside cannot be known."""
        return not self.fn.__module__.startswith("isocost.")

    @property
    def declared(self) -> Declared:
        return declared(self.fn)


def functions(x: Any) -> Iterator[Used]:
    """Every function in a seam's value, at any depth, the outermost first. Raises UserError as `describe` does."""
    if isinstance(x, partial) or (callable(x) and not isinstance(x, type)):
        fn, keywords = (x.func, x.keywords) if isinstance(x, partial) else (x, {})
        _refuse_nameless(fn)
        defaults = {k: p.default for k, p in _settings(fn).items() if p.default is not p.empty}
        settings = {**defaults, **keywords}
        yield Used(fn, settings)
        for value in (*(x.args if isinstance(x, partial) else ()), *settings.values()):
            yield from functions(value)
    elif isinstance(x, (list, tuple, dict)):
        for value in x.values() if isinstance(x, dict) else x:
            yield from functions(value)


def fingerprint(x: Any) -> str:
    """A short hash of plain data, the same on every machine."""
    return hashlib.sha256(json.dumps(x, sort_keys=True, default=str).encode()).hexdigest()[:16]


def diff(a: Recipe, b: Recipe) -> dict[str, tuple[Any, Any]]:
    """The seams and sizes at which two recipes differ, defaults bound: {name: (in a, in b)}."""
    left, right = describe(a), describe(b)
    return {k: (left[k], right[k]) for k in left if left[k] != right[k] and k != "name"}


def tune(recipe: Recipe, path: str, value: Any) -> Recipe:
    """`tune(r, "loss.high", 0.28)`, `tune(r, "rollouts", 16)`. The function's own signature is the schema.

    A string is read as the type of the setting it replaces. Raises KeyError naming what would be right, for a value
    out of the bounds that the function declares too.
    """
    seam, *rest = path.split(".")
    if seam not in {f.name for f in fields(Recipe)} or seam == "name":
        raise KeyError(f"{seam!r} is neither a seam ({', '.join(SEAMS)}) nor a size ({', '.join(SIZES)})")
    old = getattr(recipe, seam)
    if not rest:
        if seam not in SIZES:
            knob = next(iter(_knobs(old)), "name")
            raise KeyError(f"{seam} is a function; set one of its settings, such as {seam}.{knob}")
        size = _read(value, old, path)
        if type(size) is not type(old) or size < 0:
            raise KeyError(f"{path} is {old!r}, a {'whole number' if type(old) is int else 'truth'}; {value!r} is none")
        if seam in SIZE_BOUNDS and not SIZE_BOUNDS[seam].hold(size):
            raise KeyError(f"it takes a value in {SIZE_BOUNDS[seam].text}")
        return recipe.but(**{seam: size})
    name = ".".join(rest)
    if seam in SIZES:
        raise KeyError(f"{seam} is a size, {old!r}: it has no setting {name!r}")
    if isinstance(old, tuple):
        raise KeyError(f"{seam} is several functions: their settings are given in a method's file")
    fn, keywords = (old.func, old.keywords) if isinstance(old, partial) else (old, {})
    knobs = _knobs(old)
    if name not in knobs:
        takes = ", ".join(knobs) or "no settings"
        raise KeyError(f"{seam} is {fn.__module__}:{fn.__qualname__}, which takes {takes}; not {name!r}")
    read = _read(value, knobs[name], path)
    for _, _, allowed in outside({name: read}, declared(fn)):
        raise KeyError(f"{_named(fn)} takes a value in {allowed}")
    return recipe.but(**{seam: partial(fn, **{**keywords, name: read})})


def paced(recipe: Recipe, **planned: Any) -> Recipe:
    """A recipe whose pace has the planned settings, those of them that it takes.

    Raises UserError if it takes no `lr`: every run plans and tunes that.
    """
    pace = recipe.pace
    fn, keywords = (pace.func, pace.keywords) if isinstance(pace, partial) else (pace, {})
    takes = inspect.signature(fn).parameters
    if "lr" not in takes:
        raise UserError(f"{_where(fn)} takes no `lr`, which is planned and tuned: give it the keyword lr")
    return recipe.but(pace=partial(fn, **{**keywords, **{k: v for k, v in planned.items() if k in takes}}))


def _refuse_nameless(fn: Callable) -> None:
    if "<" in getattr(fn, "__qualname__", "<"):
        raise UserError(f"{_where(fn)} cannot be recorded: a recipe holds top-level functions and partials of them")


def _named(fn: Callable) -> str:
    return f"{fn.__module__}:{fn.__qualname__}"


def _short(name: str) -> str:
    module, _, function = name.rpartition(":")
    return f"{module.rpartition('.')[2]}.{function}"


def _settings(fn: Callable) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(fn).parameters
    return {
        k: p for k, p in parameters.items()
        if p.kind is p.KEYWORD_ONLY or (p.default is not p.empty and k not in ("start", "ledger"))
    }


def _knobs(value: Any) -> dict[str, Any]:
    if not callable(value):
        return {}
    fn, keywords = (value.func, value.keywords) if isinstance(value, partial) else (value, {})
    return {k: keywords.get(k, p.default) for k, p in _settings(fn).items()}


def _read(value: Any, old: Any, path: str) -> Any:
    """A command line's string as the type of what it replaces; anything else as it is."""
    if not isinstance(value, str) or isinstance(old, str):
        return value
    try:
        parsed = json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except json.JSONDecodeError as e:
        raise KeyError(f"{path} is {old!r}; {value!r} is not a number, true or false") from e
    if isinstance(old, bool) != isinstance(parsed, bool) or (
        isinstance(old, int | float) and not isinstance(parsed, int | float)
    ):
        raise KeyError(f"{path} is {old!r}; {value!r} is of another kind")
    if isinstance(old, bool) or not isinstance(old, int):
        return parsed
    if not float(parsed).is_integer():
        raise KeyError(f"{path} is {old!r}, a whole number; {value!r} is none")
    return int(parsed)


def _where(fn: Callable) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{fn.__qualname__} ({code.co_filename}, line {code.co_firstlineno})" if code else repr(fn)


def _source_hash(fn: Callable) -> str:
    file = inspect.getsourcefile(inspect.unwrap(fn)) if isinstance(fn, pytypes.FunctionType) else None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
