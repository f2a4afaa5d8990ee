"""The seams: a method is one function for each of them, and a recipe holds these functions and four sizes.

Every seam value is a top-level function, or a `partial` of one, so recipes can be pickled, printed, hashed and
compared. The signature of a function is the schema of its settings. Seams have no state: what a run has learned so far
is in the ledger, which they may read, and which keeps groups for a later step (`Ledger.kept`).
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np

from isocost.batch import Batch, Forward
from isocost.traits import Bounds
from isocost.types import Group, Place, Problem, Rollout, Sampling, Segment

if typing.TYPE_CHECKING:
    from torch import Tensor

    from isocost.ledger import Ledger
    from isocost.world import World

__all__ = [
    "Advantage", "Allocate", "Attempts", "Choose", "Enrich", "Guide", "Improve", "Loss", "Pace", "PaceFn", "Play",
    "Recipe", "Reward", "Schedule", "Select", "Wave", "Weight",
]


@dataclass
class Wave:
    """What a schedule may know of the other groups of its wave, and how it stops them.

    Any schedule may end a wave early: partial rollouts, time limits and races between groups need the same two things.
    """

    groups: int                         # number of groups in the wave
    halt: Callable[[Place], None]       # stops all decoding of the wave; rollouts return with `Stop.CANCELLED`
    done: int = 0                       # groups that need no more attempts, counted by the schedules that use it
    expected: int = 0                   # attempts that were started, and those that are complete, counted likewise
    ended: int = 0


@dataclass(frozen=True)
class Attempts:
    """What a schedule calls: `play` with everything bound except the problem, the attempts and the start."""

    play: Play
    world: World
    pace: Pace
    wave: Wave
    place: Place

    async def __call__(
        self, problem: Problem, attempts: Sequence[int], start: Segment | Rollout | None = None, *, max_tokens: int = 0
    ) -> list[Rollout]:
        """Play these attempts, from `start` if given. With `max_tokens`, pause each turn at that many tokens."""
        cut = 0 < max_tokens < self.pace.max_tokens
        pace = replace(self.pace, max_tokens=max_tokens, in_parts=True) if cut else self.pace
        return await self.play(problem, attempts, self.world, pace, self.place, start)


class Choose(Protocol):
    """Which problems come next; `rng` is addressed by (seed, wave)."""
    def __call__(
        self, pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator
    ) -> list[Problem]: ...
class Guide(Protocol):
    """In which variants a problem is posed."""
    async def __call__(self, problem: Problem, world: World, ledger: Ledger) -> list[Problem]: ...
class Allocate(Protocol):
    """Attempts per slot of a wave, `total` in all; a generator receives each phase's groups."""
    def __call__(
        self, problems: Sequence[Problem], ledger: Ledger, total: int
    ) -> list[int] | Generator[list[int], list[Group], None]: ...
class Play(Protocol):
    """The decode strategy: several attempts from one start in one call, each one rollout."""
    async def __call__(
        self, problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
        start: Segment | Rollout | None = None,
    ) -> list[Rollout]: ...
class Schedule(Protocol):
    """The order of attempts; which to fork, stop or continue."""
    async def __call__(
        self, problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger
    ) -> list[Rollout]: ...
class Reward(Protocol):
    """The score of each attempt of a finished group."""
    async def __call__(self, group: Group, world: World) -> Group: ...
class Select(Protocol):
    """The part of a group that is trained on; None for nothing."""
    def __call__(self, group: Group, ledger: Ledger) -> Group | None: ...
class Enrich(Protocol):
    """What is added to the batch: reference log-probs, values, entropies."""
    def __call__(self, batch: Batch, world: World) -> Batch: ...
class Advantage(Protocol):
    """The advantage of each token: (N, T)."""
    def __call__(self, batch: Batch, ledger: Ledger) -> Tensor: ...
class Weight(Protocol):
    """How tokens are averaged: (N, T), computed once on the whole batch."""
    def __call__(self, batch: Batch) -> Tensor: ...
class Loss(Protocol):
    """The per-token surrogate, unreduced: (N, T), {name: (N, T)}."""
    def __call__(self, out: Forward, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]: ...
class Improve(Protocol):
    """How a batch becomes one or more updates."""
    def __call__(self, batch: Batch, recipe: Recipe, world: World, ledger: Ledger) -> dict[str, float]: ...
class PaceFn(Protocol):
    """What changes as the run goes on."""
    def __call__(self, ledger: Ledger) -> Pace: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """The learning rate, sampling and limits of one wave and of the step that it leads to."""

    lr: float
    max_tokens: int                     # per turn
    sampling: Sampling = Sampling()
    max_turns: int = 1
    stop: tuple[str, ...] = ()          # strings that end a turn, besides the model's own end tokens
    eval_turns: int | None = None       # max_turns of evaluations, for any pace that changes it; None: the same
    in_parts: bool = False              # a turn cut at max_tokens is not over: any play or schedule may continue it

    def evaluated(self, max_tokens: int, sampling: Sampling, turns: int | None = None) -> Pace:
        """The pace of an evaluation: limits that change during the run must not change what is measured.

        `turns` is the limit of evaluations where training has a limit of its own; None: that of the pace.
        """
        if turns is None:
            turns = self.max_turns if self.eval_turns is None else self.eval_turns
        return replace(self, max_tokens=max_tokens, sampling=sampling, max_turns=turns)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method: a value for each of the thirteen seams, and the four sizes that spend the budget."""

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
    groups: int = 16         # B: groups per update (posed variants; problems without a guide)
    rollouts: int = 8        # n: rollouts per group, on average over a wave
    max_age: int = 0         # steps a rollout may lag behind; 0 is synchronous
    refill: bool = False     # launch further waves until B groups pass `select`; else train on those that passed

    def but(self, **changes: Any) -> Recipe:
        return replace(self, **changes)


SEAMS = tuple(f.name for f in fields(Recipe) if f.name not in ("name", "groups", "rollouts", "max_age", "refill"))
SIZES = ("groups", "rollouts", "max_age", "refill")
SIZE_BOUNDS = {"groups": Bounds.of("[1, inf)"), "rollouts": Bounds.of("[1, inf)"), "max_age": Bounds.of("[0, inf)")}
