"""The pool: samples of problems with reward, score, answer and tokens, of which strategies are functions.

Problems have two disjoint parts: the validation split `select` chooses a strategy, the test split `audit` reports it.
The first `probe` samples of a problem say how difficult it is, without the verifier. A single strategy is measured on
the others. A strategy for each band has the probes as its first samples, as in use: so their cost is in it, and a
problem that seems hard because they failed is answered with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.errors import UserError

MANY = 20           # different values of a column above which it is a number, and its bands are quantiles


@dataclass(frozen=True, eq=False)
class Pool:
    """m samples of each of P problems; the tables are (P, m), and None where they are not known.

    `right` are rewards in [0, 1]. `score` is the scorer's. `answer` numbers the different answers of a problem 0, 1, 2
    and so on; equal numbers are one vote, and -1 is no answer and no vote. `tokens` were written, and `read` (P,) is
    what a sample reads: its prompt, of a dialogue all turns. `level` is a column of the user's. `exact` says that the
    scorer is the verifier, at test time too. `scoring` (P,) are the tokens that scoring one sample took.
    """

    ids: tuple[str, ...]
    right: ndarray
    score: ndarray | None = None
    answer: ndarray | None = None
    tokens: ndarray | None = None
    read: ndarray | None = None
    level: tuple[Any, ...] | None = None
    exact: bool = False
    scoring: ndarray | None = None

    @property
    def samples(self) -> int:
        """m: samples of each problem."""
        return int(self.right.shape[1])

    @property
    def written(self) -> ndarray:
        """(P,) mean tokens of a sample; 1 where tokens are not known, so that a cost counts samples."""
        return np.ones(len(self.ids)) if self.tokens is None else np.asarray(self.tokens.mean(1))

    def of(self, problems: ndarray) -> Pool:
        """The pool of these problems, by their numbers."""
        level = None if self.level is None else tuple(self.level[i] for i in problems)
        rows: dict[str, Any] = {k: None if getattr(self, k) is None else getattr(self, k)[problems]
                for k in ("score", "answer", "tokens", "read", "scoring")}
        return replace(self, ids=tuple(self.ids[i] for i in problems), right=self.right[problems], level=level, **rows)

    def columns(self, first: int, last: int) -> Pool:
        """The pool of the samples from `first` to before `last`."""
        tables: dict[str, Any] = {k: None if getattr(self, k) is None else getattr(self, k)[:, first:last]
                  for k in ("right", "score", "answer", "tokens")}
        return replace(self, **tables)

    @cached_property
    def classes(self) -> ndarray:
        """(P, C) the mean reward of each different answer; 0 for numbers that a problem does not have."""
        assert self.answer is not None
        size = max(int(self.answer.max()), 0) + 1
        at, there = np.arange(len(self.ids))[:, None] * size + np.maximum(self.answer, 0), self.answer >= 0
        total = np.bincount(at.ravel(), (self.right * there).ravel(), len(self.ids) * size)
        count = np.bincount(at.ravel(), there.ravel(), len(self.ids) * size)
        return np.asarray((total / np.maximum(count, 1)).reshape(-1, size))

    def lines(self) -> list[dict[str, Any]]:
        """The pool as the lines of pool.jsonl."""
        tables = {k: getattr(self, k) for k in ("right", "score", "answer", "tokens")}
        return [
            {"id": name, **{k: t[i].tolist() for k, t in tables.items() if t is not None},
             **({} if self.read is None else {"read": float(self.read[i])}),
             **({} if self.level is None else {"level": self.level[i]})}
            for i, name in enumerate(self.ids)
        ]

    @staticmethod
    def read_lines(lines: Sequence[Mapping[str, Any]], exact: bool) -> Pool:
        """The pool in the lines of pool.jsonl. Raises UserError where they have no common number of samples."""
        if len({len(line["right"]) for line in lines}) != 1:
            raise UserError("pool.jsonl: every problem needs the same number of samples; restore it from a copy")

        def table(key: str) -> ndarray | None:
            return np.array([line[key] for line in lines]) if all(line.get(key) is not None for line in lines) else None

        right = np.array([line["right"] for line in lines], dtype=float)
        level = tuple(line.get("level") for line in lines) if any("level" in line for line in lines) else None
        return Pool(tuple(line["id"] for line in lines), right, table("score"), table("answer"), table("tokens"),
                    table("read"), level, exact, table("scoring"))


@dataclass(frozen=True, eq=False)
class Parts:
    """A pool in its parts: `select` and `audit` hold different problems, without the probe samples.

    `band` and `audit_band` (P,) number the bands of difficulty of these problems from 0; `bands` names them. `probe` is
    how many samples tell an answer's band: 0 where the user's column says it. `select_all` and `audit_all` have them
    in front. `arms` are both halves at other settings or of other policies, by name; of a policy a pair for each run.
    """

    select: Pool
    audit: Pool
    select_all: Pool
    audit_all: Pool
    probe: int
    bands: tuple[str, ...]
    band: ndarray
    audit_band: ndarray
    edges: tuple[float, ...] = ()       # of the probe's statistic, between bands
    arms: Mapping[str, tuple[tuple[Pool, Pool], ...]] = field(default_factory=dict)
    policies: frozenset[str] = frozenset()      # which arms are other policies


def halves(count: int, seed: int) -> tuple[ndarray, ndarray]:
    """The numbers of the problems of the validation split and of the test split: two random halves, in order."""
    order = chance.generator(seed, chance.Purpose.SPLIT, count).permutation(count)
    return np.sort(order[: (count + 1) // 2]), np.sort(order[(count + 1) // 2:])


def parts(
    pool: Pool, *, probe: int, bands: int, least: int, seed: int,
    arms: Mapping[str, Sequence[Pool]] = MappingProxyType({}),
) -> Parts:
    """The parts of a pool; `arms` are pools of the same problems, by the name of their settings or policy.

    Bands are the values of the user's column, its quantiles where it has many, or without one quantiles of the probe
    samples' statistic: their mean score, else the share of their most common answer. A band needs `least` problems in
    each half; with fewer there are fewer bands, down to one. Raises UserError where the probe leaves no sample.
    """
    if probe >= pool.samples:
        raise UserError(f"--probe {probe} leaves none of {pool.samples} samples per problem to judge: give a smaller "
                        "one")
    one, two = halves(len(pool.ids), seed)
    rest = pool.columns(probe, pool.samples)
    values, named = _difficulty(pool, probe)
    for count in range(bands, 1, -1):
        names, edges, number = _banded(values, named, one, count)
        sizes = [min((number[one] == k).sum(), (number[two] == k).sum()) for k in range(len(names))]
        if len(names) > 1 and min(sizes) >= least:
            break
    else:
        names, edges, number = ("all",), (), np.zeros(len(pool.ids), dtype=np.int64)
    whole = rest if named else pool
    return Parts(rest.of(one), rest.of(two), whole.of(one), whole.of(two), 0 if named else probe, names, number[one],
                 number[two], edges,
                 {name: tuple((arm.of(one), arm.of(two)) for arm in own) for name, own in arms.items()})


def statistic(score: ndarray | None, answer: ndarray | None) -> ndarray | None:
    """(P,) what probe samples say of difficulty without a verifier: their mean score, else the share of the most common
    answer; None where neither is known."""
    if score is not None:
        return np.asarray(score.mean(1))
    if answer is None:
        return None
    return np.array([max(Counter(x for x in row.tolist() if x >= 0).values(), default=0) / len(row) for row in answer])


def _difficulty(pool: Pool, probe: int) -> tuple[Sequence[Any] | ndarray | None, bool]:
    """What bands are made of, and whether it is the user's column."""
    if pool.level is not None:
        return pool.level, True
    if not probe:
        return None, False
    few = pool.columns(0, probe)
    return statistic(few.score, few.answer), False


def _banded(
    values: Sequence[Any] | ndarray | None, named: bool, chooses: ndarray, count: int
) -> tuple[tuple[str, ...], tuple[float, ...], ndarray]:
    """(names, edges, (P,) numbers) of at most `count` bands; edges are quantiles over the validation split."""
    if values is None:
        return (), (), np.zeros(0, dtype=np.int64)
    numbers = all(isinstance(x, int | float) for x in values)
    if named and (not numbers or len(set(values)) <= MANY):
        names = _common(values, count)
        return names, (), np.array([names.index(str(x)) if str(x) in names else len(names) - 1 for x in values])
    x = np.asarray(values, dtype=float)
    edges = tuple(np.unique(np.quantile(x[chooses], np.arange(1, count) / count)).tolist())
    edges = tuple(e for e in edges if (x[chooses] < e).any())
    names = tuple(f"{'below' if i < len(edges) else 'from'} {edges[min(i, len(edges) - 1)]:.3g}"
                  for i in range(len(edges) + 1)) if edges else ("all",)
    return names, edges, np.digitize(x, edges)


def _common(values: Iterable[Any], count: int) -> tuple[str, ...]:
    """The `count` most common values, in order; the others join the last band."""
    found = Counter(str(x) for x in values)
    if len(found) <= count:
        return tuple(sorted(found))
    return (*sorted(name for name, _ in found.most_common(count - 1)), "other")
