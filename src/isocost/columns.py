"""Rollouts of whole waves as arrays: one question and one answer each, all written by one version of the policy.

Most rollouts are only counted, packed and recorded. Their `Rollout` objects are made when a seam reads them: see
`Group.drawn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from isocost.types import Group, Place, Problem, Role, Rollout, Sampling, Score, Segment, Stop

_PROMPT, _OWN = int(Role.PROMPT), int(Role.OWN)
_STOPS = {True: Stop.DONE, False: Stop.LENGTH}      # by whether an end token ended it


class Rows(NamedTuple):
    """Padded rows of a prompt and an answer each; T is the longest."""

    tokens: Int[ndarray, "N T"]
    mask: Bool[ndarray, "N T"]
    logp: Float[ndarray, "N T"]
    role: Int[ndarray, "N T"]
    turn: Int[ndarray, "N T"]
    length: Int[ndarray, "N"]


class Written(NamedTuple):
    """What an engine wrote for all R rows of a wave in one call; W is the limit."""

    tokens: Int[ndarray, "R W"]
    logp: Float[ndarray, "R W"]
    wrote: Int[ndarray, "R"]        # tokens of each row; what follows them is undefined
    ended: Bool[ndarray, "R"]       # by an end token, not by the limit
    version: int
    number: int = -1                # of the wave in its engine, which may have kept something of it for the learner
    rows: Rows | None = None        # all of them, with their prompts


@dataclass
class WaveColumns:
    """The rollouts of a wave: those of group g are rows begin[g] to begin[g + 1]."""

    problems: Sequence[Problem]
    places: Sequence[Place]
    prompts: Sequence[list[int]]            # the tokens that each group was given
    begin: list[int]
    attempts: list[int]                     # the number of each row within its group
    written: Written
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

    def each_problem(self) -> list[Problem]:
        """The problem of each row."""
        return [p for p, (a, b) in zip(self.problems, pairwise(self.begin), strict=True) for _ in range(b - a)]

    def groups(self) -> list[Group]:
        """The groups with at least one rollout, each of which makes its rollouts when they are read."""
        each = zip(self.problems, self.places, pairwise(self.begin), strict=True)
        return [
            Group.drawn(problem, place, Columns(self, g, a, b))
            for g, (problem, place, (a, b)) in enumerate(each) if b > a
        ]


def _values(scores: Sequence[Score | None]) -> list[float] | None:
    try:
        return [s.value for s in scores] or None        # type: ignore[union-attr]
    except AttributeError:      # a row without a score
        return None


class Columns:
    """The rollouts of one group of a wave: rows first to last of its columns."""

    __slots__ = ("first", "last", "number", "wave")

    def __init__(self, wave: WaveColumns, number: int, first: int, last: int):
        self.wave, self.number, self.first, self.last = wave, number, first, last

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def version(self) -> int:
        return self.wave.written.version

    @property
    def prompt(self) -> list[int]:
        return self.wave.prompts[self.number]

    @property
    def attempts(self) -> list[int]:
        return self.wave.attempts[self.first : self.last]

    @property
    def scores(self) -> list[Score | None]:
        return list(self.wave.scores[self.first : self.last]) or [None] * len(self)

    @property
    def values(self) -> list[float] | None:
        """The value of each score; None if one of the wave's rows has none."""
        every = self.wave.values
        return None if every is None else every[self.first : self.last]

    @property
    def lengths(self) -> list[int]:
        return self.wave.lengths[self.first : self.last]

    @property
    def stops(self) -> list[Stop]:
        return self.wave.stops[self.first : self.last]

    def rollouts(self) -> tuple[Rollout, ...]:
        """The same as objects."""
        w, problem = self.wave, self.wave.problems[self.number]
        each = zip(range(self.first, self.last), self.attempts, self.scores, self.stops, strict=True)
        return tuple(
            Rollout(problem, (self._segment(i),), w.finals[i], stop, attempt, score, mark=score)
            for i, attempt, score, stop in each
        )

    def _segment(self, row: int) -> Segment:
        w, k, shown = self.wave.written, self.wave.lengths[row], len(self.prompt)
        given, never = np.full(shown, _PROMPT), np.full(shown, -1)
        return Segment(
            np.concatenate((np.array(self.prompt, dtype=np.int64), w.tokens[row, :k])),
            np.concatenate((given, np.full(k, _OWN))),
            np.concatenate((np.zeros(shown, dtype=np.float32), w.logp[row, :k])),
            np.concatenate((never, np.zeros(k, dtype=np.int64))),
            np.concatenate((never, np.full(k, w.version))),
            self.wave.sampling,
        )


def whole(groups: Sequence[Group]) -> WaveColumns | None:
    """The wave of which these are all groups that have rollouts, in order; None if they are not."""
    first = groups[0].columns if groups else None
    if not isinstance(first, Columns):
        return None
    wave, at = first.wave, 0
    for group in groups:
        c = group.columns
        if not isinstance(c, Columns) or c.wave is not wave or c.first != at:
            return None
        at = c.last
    return wave if at == len(wave.attempts) else None


def padded(columns: Sequence[Columns]) -> Rows:
    """The rows of these groups, prompts and answers, without making rollouts."""
    parts = _adjoining(columns)
    sizes = [len(c) for c in columns]
    count = _joined([w.wrote[part] for w, part in parts])
    prompt = np.repeat(np.array([len(c.prompt) for c in columns]), sizes)
    length = prompt + count
    here = np.arange(length.max(initial=1))
    before, mask = here < prompt[:, None], here < length[:, None]
    mask &= ~before
    tokens, logp = np.zeros(mask.shape, dtype=np.int64), np.zeros(mask.shape, dtype=np.float32)
    tokens[before] = [t for c, k in zip(columns, sizes, strict=True) for _ in range(k) for t in c.prompt]
    filled = [np.arange(w.tokens.shape[1]) < w.wrote[part, None] for w, part in parts]
    tokens[mask] = _joined([w.tokens[part][some] for (w, part), some in zip(parts, filled, strict=True)])
    logp[mask] = _joined([w.logp[part][some] for (w, part), some in zip(parts, filled, strict=True)])
    return Rows(tokens, mask, logp, np.where(mask, _OWN, _PROMPT), mask.astype(np.int64) - 1, length)


def _adjoining(columns: Sequence[Columns]) -> list[tuple[Written, slice]]:
    """The rows of these groups, those that are neighbours in one wave together."""
    parts: list[tuple[Written, slice]] = []
    for c in columns:
        first = c.first
        if parts and parts[-1][0] is c.wave.written and parts[-1][1].stop == first:
            first = parts.pop()[1].start
        parts.append((c.wave.written, slice(first, c.last)))
    return parts


def _joined(parts: list[ndarray]) -> ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
