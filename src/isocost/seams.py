"""The verbs. A method is a choice of one function for each; a recipe is that choice, written down.

Every seam value is a top-level function, or a `partial` of one: so recipes pickle, print, hash and diff, and a
function's own signature is the schema of its settings. Seams keep no state: what a run has learned so far is in
the ledger, which they may read, and where groups may be left for later (`put_by`, `take_up`, `remember`).
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.traits import Bounds
from isocost.types import Group, Place, Problem, Rollout, Sampling, Segment

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
