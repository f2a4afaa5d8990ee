"""Rollouts of whole waves as arrays: one question and one answer each, all written by one version of the policy.

Most rollouts are only counted, packed and recorded. Their `Rollout` objects are made when a seam reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from isocost.types import Group, Place, Problem, Role, Rollout, Sampling, Score, Segment, Stop

_PROMPT, _OWN = int(Role.PROMPT), int(Role.OWN)
_STOPS = {True: Stop.DONE, False: Stop.LENGTH}      # by whether an end token ended it


class PaddedRows(NamedTuple):
    """Padded rows of a prompt and an answer each; T is the longest."""

    tokens: Int[ndarray, "N T"]
    mask: Bool[ndarray, "N T"]
    logp: Float[ndarray, "N T"]
    role: Int[ndarray, "N T"]
    turn: Int[ndarray, "N T"]
    length: Int[ndarray, "N"]


class WrittenRows(NamedTuple):
    """What an engine wrote for all R rows of a wave in one call; W is the limit."""

    tokens: Int[ndarray, "R W"]
    logp: Float[ndarray, "R W"]
    wrote: Int[ndarray, "R"]        # tokens of each row; what follows them is undefined
    ended: Bool[ndarray, "R"]       # by an end token, not by the limit
    version: int
    number: int = -1                # of the wave in its engine, which may have kept something of it for the learner
    rows: PaddedRows | None = None        # all of them, with their prompts


@dataclass
class WaveColumns:
    """The rollouts of a wave: those of group g are rows begin[g] to begin[g + 1]."""

    problems: Sequence[Problem]
    places: Sequence[Place]
    prompts: Sequence[list[int]]            # the tokens that each group was given
    begin: list[int]
    attempts: list[int]                     # the number of each row within its group
    written: WrittenRows
    sampling: Sampling
    finals: list[str]                       # what the verifier reads

    def __post_init__(self) -> None:
        self.lengths: list[int] = self.written.wrote.tolist()
        self.stops = [_STOPS[x] for x in self.written.ended.tolist()]
        self.sizes = [b - a for a, b in pairwise(self.begin) if b > a]      # of each group that has rollouts
        self.scores = ()

    @property
    def scores(self) -> Sequence[Score | None]:
        """Of each row, once it is scored."""
        return self._scores

    @scores.setter
    def scores(self, scores: Sequence[Score | None]) -> None:
        self._scores = scores
        self.values = _values(scores)       # of each row's score; None if a row has none
        self.rewards = None if self.values is None else np.array(self.values, dtype=np.float32)

    def each_problem(self) -> list[Problem]:
        """The problem of each row."""
        return [p for p, (a, b) in zip(self.problems, pairwise(self.begin), strict=True) for _ in range(b - a)]

    def groups(self) -> list[Group]:
        """The groups with at least one rollout, each of which makes its rollouts when they are read."""
        return [WaveGroup.of_rows(self, g, a, b) for g, (a, b) in enumerate(pairwise(self.begin)) if b > a]

    def rollouts(self, number: int, first: int, last: int) -> tuple[Rollout, ...]:
        """Those of group `number`, rows first to last, as objects."""
        problem, prompt, scores = self.problems[number], self.prompts[number], self.scores
        return tuple(
            Rollout(problem, (self._segment(i, prompt),), self.finals[i], self.stops[i], self.attempts[i], score,
                    mark=score)
            for i in range(first, last) for score in [scores[i] if scores else None]
        )

    def _segment(self, row: int, prompt: list[int]) -> Segment:
        w, k, shown = self.written, self.lengths[row], len(prompt)
        given, never = np.full(shown, _PROMPT), np.full(shown, -1)
        return Segment(
            np.concatenate((np.array(prompt, dtype=np.int64), w.tokens[row, :k])),
            np.concatenate((given, np.full(k, _OWN))),
            np.concatenate((np.zeros(shown, dtype=np.float32), w.logp[row, :k])),
            np.concatenate((never, np.zeros(k, dtype=np.int64))),
            np.concatenate((never, np.full(k, w.version))),
            self.sampling,
        )


def _values(scores: Sequence[Score | None]) -> list[float] | None:
    try:
        return [s.value for s in scores] or None        # type: ignore[union-attr]
    except AttributeError:      # a row without a score
        return None


class WaveGroup(Group):
    """The group of rows first to last of a wave: it answers from the wave's arrays. `rollouts` makes them objects."""

    wave: WaveColumns
    number: int     # of the group in its wave
    first: int
    last: int

    def __new__(cls, *rollouts: Any, **named: Any) -> Any:
        """With rollouts given, as `dataclasses.replace` does, it is a plain group."""
        return Group(*rollouts, **named) if rollouts or named else object.__new__(cls)

    @classmethod
    def of_rows(cls, wave: WaveColumns, number: int, first: int, last: int) -> Any:
        group = object.__new__(cls)
        group.__dict__.update(problem=wave.problems[number], place=wave.places[number], wave=wave, number=number,
                              first=first, last=last)
        return group

    @cached_property
    def rollouts(self) -> tuple[Rollout, ...]:
        return self.wave.rollouts(self.number, self.first, self.last)

    @property
    def size(self) -> int:
        return self.last - self.first

    @property
    def attempts(self) -> list[int]:
        return self.wave.attempts[self.first : self.last]

    @property
    def scores(self) -> list[Score | None]:
        return list(self.wave.scores[self.first : self.last]) or [None] * self.size

    @property
    def stops(self) -> list[Stop]:
        return self.wave.stops[self.first : self.last]

    @property
    def scored(self) -> Group:
        return super().scored if self.wave.values is None else self

    @property
    def ages(self) -> bool:
        return True

    @property
    def noted(self) -> tuple[Rollout, ...]:
        return ()

    @property
    def rewards(self) -> Float[ndarray, "G"]:
        every = self.wave.rewards
        return super().rewards if every is None else every[self.first : self.last].copy()

    @property
    def version(self) -> int:
        return self.wave.written.version

    @property
    def lengths(self) -> list[int]:
        return self.wave.lengths[self.first : self.last]


def whole(groups: Sequence[Group]) -> WaveColumns | None:
    """The wave of which these are all groups that have rollouts, in order; None if they are not."""
    first = groups[0] if groups else None
    if not isinstance(first, WaveGroup):
        return None
    wave, at = first.wave, 0
    for group in groups:
        if not isinstance(group, WaveGroup) or group.wave is not wave or group.first != at:
            return None
        at = group.last
    return wave if at == len(wave.attempts) else None
