"""The memory of a run that seams may read: the rewards of each problem, and what everything cost.

Curricula, baselines and controllers are functions of the ledger, so a test of a curriculum writes a ledger by hand. On
disk the ledger is the journal (one line per group, written when the group's fate is known) and the step lines.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy import ndarray

from isocost.disk import jsonfile
from isocost.types import Cost, Fate, FaultSource, Group, Problem, Rollout, Stop

S = TypeVar("S")
COLUMNS = (     # of a line of the journal; any other is a note
    "step", "wave", "slot", "id", "variant", "version", "attempts", "rewards", "lengths", "stops", "fates", "cancelled",
    "unchosen", "turns", "faults",
)


@dataclass
class Tally:
    """The rewards of one variant of a problem: scored attempts only."""

    tries: int = 0
    total: float = 0.0
    square: float = 0.0
    last: int = -1  # step of the latest group
    recent: list[float] = field(default_factory=list)  # mean reward of the latest 16 groups, oldest first

    @property
    def mean(self) -> float:
        return self.total / max(self.tries, 1)


@dataclass(frozen=True, slots=True)
class Seen:
    """One complete group as curricula and controllers read it."""

    id: str
    variant: str
    rewards: tuple[float, ...]  # scored attempts only, at least one
    notes: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)  # their numbers by name, in order

    @property
    def right(self) -> float:
        """Right attempts, as a sum; a shaped reward counts by its value, limited to [0, 1]."""
        return sum(min(max(r, 0.0), 1.0) for r in self.rewards)


class JournalLine(Mapping[str, Any]):
    """A group's line of the journal. A run writes it and nobody else reads most of them, so it is made when read."""

    __slots__ = ("_made", "cancelled", "fates", "group", "step", "unchosen")

    def __init__(self, step: int, group: Group, fates: Sequence[Fate], cancelled: int, unchosen: int = 0):
        self.step, self.group, self.fates, self.cancelled, self.unchosen = step, group, fates, cancelled, unchosen
        self._made: dict[str, Any] | None = None

    @property
    def data(self) -> dict[str, Any]:
        if self._made is None:
            group = self.group
            self._made = {
                "step": self.step,
                "wave": group.place.wave,
                "slot": group.place.slot,
                "id": group.problem.id,
                "variant": group.problem.variant,
                "version": group.version,
                "attempts": group.attempts,
                "rewards": [None if s is None else round(s.value, 6) for s in group.scores],
                "lengths": group.lengths,
                "stops": list(map(str, group.stops)),
                "fates": list(map(str, self.fates)),
                "cancelled": self.cancelled,
                **({"unchosen": self.unchosen} if self.unchosen else {}),
                **_dialogues(group.noted),
                **_columns(group.noted),
            }
        return self._made

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def text(self) -> str:
        """`data` as one line of JSON."""
        return jsonfile.line(self.data)


class Played(NamedTuple):
    """A complete group, how many of its rollouts were cancelled, and how many tries of its answers were not chosen.

    Rollouts that are completed in a later wave were counted as cancelled in their own, so the number can be negative.
    """

    group: Group
    cancelled: int
    unchosen: int = 0


@dataclass(frozen=True)
class Ahead:
    """Between two steps, what is complete and not yet trained on: whole waves, and selected groups of earlier ones."""

    waves: Sequence[Sequence[Played]] = ()
    held: Sequence[Played] = ()


_READING = threading.RLock()     # sampling and learning may read at the same time what is brought up to date then
_FATES, _CANCELLED, _UNCHOSEN = list(Fate), str(Fate.CANCELLED), str(Fate.UNCHOSEN)


@dataclass
class Ledger:
    """`saw` when a group is complete, `settle` when its fate is known, `close` at the end of a step: these only add.

    A seam may keep groups for a later step in `kept`, by name: a schedule those to continue, an `improve`
    those to train on again. They are part of a checkpoint.
    """

    seed: int = 0
    step: int = 0  # steps closed
    waves: int = 0  # waves launched
    drawn: int = 0  # problems drawn, over all waves
    spent: Cost = field(default_factory=Cost)  # the training account at the last close: C and its companions
    kept: defaultdict[str, list[Group]] = field(default_factory=lambda: defaultdict(list))  # by name, oldest first
    ahead: Ahead = Ahead()  # part of a checkpoint, too
    steps: list[dict[str, Any]] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)
    fresh: list[JournalLine] = field(default_factory=list)  # journal lines not yet written
    _seen: list[Group] = field(default_factory=list)  # since the last close, before selection
    _folds: dict[Any, tuple[int, Any]] = field(default_factory=dict)  # of `fold`: steps included, and the outcome
    _tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    _history: dict[int, list[Seen]] = field(default_factory=dict)
    # Groups that are not yet in the two: the step, the problem, the rewards and their notes. Most runs read neither.
    _new: list[tuple[int, Problem, list[float], Mapping[str, list[float | None]]]] = field(default_factory=list)

    @property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """By problem and variant."""
        self._count()
        return self._tallies

    @property
    def history(self) -> dict[int, list[Seen]]:
        """By step: every group with a score."""
        self._count()
        return self._history

    def of(self, problem_id: str, variant: str = "") -> Tally:
        return self.tallies.get((problem_id, variant), Tally())

    def fold(self, f: Callable[[S, Sequence[Seen]], S], start: S) -> S:
        """f(.. f(f(start, step 0), step 1) .., the last closed step): the state of a curriculum.

        `f` is a top-level function or a partial of one. It may modify the state that it receives; no other code may.
        The outcome is kept, so a call includes only the steps that were closed since the last call. It is not part of a
        checkpoint: the journal contains all of it.
        """
        key = (f.func, f.args, *sorted(f.keywords.items())) if isinstance(f, partial) else f
        with _READING:
            done, state = self._folds.get(key, (0, start))
            for step in range(done, self.step):
                state = f(state, self.history.get(step, ()))
            self._folds[key] = (self.step, state)
            return state

    def saw(self, *groups: Group) -> None:
        """Count complete groups, before anything is selected from them."""
        for group in groups:
            notes = _columns([r for r in group.noted if r.score is not None])
            self._seen.append(group)
            self._new.append((self.step, group.problem, group.rewards.tolist(), notes))

    def _count(self) -> None:
        """Bring tallies and history up to date."""
        if self._new:
            with _READING:
                for step, problem, rewards, notes in self._new:
                    self._tally(problem.id, problem.variant, rewards, notes, step)
                self._new.clear()

    def settle(self, group: Group, fates: Sequence[Fate], cancelled: int = 0, unchosen: int = 0) -> None:
        """Record the fate of each rollout of a group, and how many more were started and cancelled, or not chosen.

        A negative `cancelled` subtracts: these were counted as cancelled in an earlier wave and are now complete.
        """
        self.settle_all([group], [fates], cancelled, unchosen)

    def settle_all(
        self, groups: Sequence[Group], fates: Sequence[Sequence[Fate]], cancelled: int = 0, unchosen: int = 0
    ) -> None:
        """The same for several groups, with `cancelled` and `unchosen` more in each."""
        every = list(chain.from_iterable(fates))
        for fate in _FATES:
            if count := every.count(fate):
                self.fates[str(fate)] += count
        self.fates[_CANCELLED] += cancelled * len(groups)
        if unchosen:
            self.fates[_UNCHOSEN] += unchosen * len(groups)
        for group, some in zip(groups, fates, strict=True):
            self.fresh.append(line := JournalLine(self.step, group, some, cancelled, unchosen))
            if group.noted:
                line.data       # a note that cannot be a column is an error now  # noqa: B018

    def close(self, spent: Cost, pool: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        """End a step: `spent` is the training account's total. Rewards are of all groups, not of the selected ones."""
        self.spent = spent
        line = {
            "step": self.step,
            **spent.counts(),
            **_summary(self._seen),
            "epoch": round(self.drawn / max(pool, 1), 6),
            **{k: float(v) for k, v in metrics.items()},
        }
        self.steps.append(line)
        self.step, self._seen = self.step + 1, []
        return line

    def replay(self, journal: Sequence[Mapping[str, Any]]) -> None:
        """Restore tallies and fates from a journal. Counters come from the checkpoint that belongs to it.

        A group of which `select` kept a part has two lines; it was counted whole, so it is tallied whole. A wave is
        counted in one step, and some of its groups get their fate in that step; others may be held for a later one.
        """
        groups: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
        counted: dict[int, int] = {}        # by wave: the step
        for line in journal:
            groups.setdefault((line["wave"], line["slot"]), []).append(line)
            counted[line["wave"]] = min(line["step"], counted.get(line["wave"], line["step"]))
            self.fates.update(line["fates"])
            self.fates[_CANCELLED] += line["cancelled"]
            if more := line.get("unchosen"):
                self.fates[_UNCHOSEN] += more
        for _, lines in sorted(groups.items()):
            names = {name: None for x in lines for name in x if name not in COLUMNS}
            rows = (zip(x["attempts"], x["rewards"], *(x.get(k) or [None] * len(x["attempts"]) for k in names),
                        strict=True) for x in lines)
            scored = sorted((row for each in rows for row in each if row[1] is not None), key=lambda row: row[0])
            notes = {k: [row[2 + i] for row in scored] for i, k in enumerate(names)}
            first = lines[0]
            self.step = counted[first["wave"]]
            self._tally(first["id"], first["variant"], [row[1] for row in scored], notes)

    def _tally(
        self, problem_id: str, variant: str, rewards: Sequence[float],
        notes: Mapping[str, Sequence[float | None]] | None = None, step: int | None = None,
    ) -> None:
        step = self.step if step is None else step
        t = self._tallies.setdefault((problem_id, variant), Tally())
        t.last = step
        if rewards:
            if all(r == 0.0 or r == 1.0 for r in rewards):     # exact in any order of summation
                each, total = tuple(rewards), float(sum(rewards))
                square = total
            else:
                r = np.array(rewards, dtype=np.float64).round(6)  # as the journal keeps them, so a replay is exact
                each, total, square = tuple(r.tolist()), float(r.sum()), float((r * r).sum())
            t.tries, t.total, t.square = t.tries + len(each), t.total + total, t.square + square
            t.recent = [*t.recent[-15:], total / len(each)]
            known = {k: tuple(x) for k, x in (notes or {}).items() if any(y is not None for y in x)}
            self._history.setdefault(step, []).append(Seen(problem_id, variant, each, known))


def _dialogues(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    """The number of turns that environments answered in each rollout, and of their faults by source; empty if none."""
    if not any(r.turns or r.fault for r in rollouts):
        return {}
    faults = [Counter(str(f.source) for f in r.faults) for r in rollouts]
    return {"turns": [len(r.turns) for r in rollouts], "faults": [dict(sorted(f.items())) for f in faults]}


def _columns(rollouts: Sequence[Rollout]) -> dict[str, list[float | None]]:
    """The notes of these rollouts that are numbers, to six decimals: a column for each name, None where there is none.

    Raises ValueError for a note that is called like another column of the journal.
    """
    if not any(r.notes for r in rollouts):
        return {}
    names = sorted({name for r in rollouts for name in r.numbers})
    if taken := next((name for name in names if name in COLUMNS), None):
        raise ValueError(f"a note cannot be called {taken!r}: the journal has a column of that name")
    return {k: [None if (x := r.numbers.get(k)) is None else round(x, 6) for r in rollouts] for k in names}


def as_measured(line: Mapping[str, Any]) -> dict[str, Any]:
    """A step's line as it was when the step was closed: null on disk means not a number."""
    return {k: math.nan if v is None else v for k, v in line.items()}


def _summary(seen: Sequence[Group]) -> dict[str, float]:
    """Metrics of the groups of a step, under TRL's names."""
    rewards = [g.rewards for g in seen]
    sizes = [len(r) for r in rewards if len(r)]
    every = np.concatenate([np.zeros(0), *rewards])
    stds = _stds(every, sizes)
    lengths = [k for g in seen for k in g.lengths]     # whole numbers, whose sum is exact
    stops = [s for g in seen for s in g.stops]
    return {
        "reward": float(np.add.reduce(every) / len(every)) if sizes else float("nan"),  # a third of the time of `mean`
        "reward_std": float(np.add.reduce(stds) / len(stds)) if sizes else float("nan"),
        "frac_reward_zero_std": stds.tolist().count(0.0) / len(sizes) if sizes else float("nan"),
        "completions/mean_length": sum(lengths) / len(lengths) if lengths else float("nan"),
        "completions/max_length": float(max(lengths)) if lengths else float("nan"),
        "completions/clipped_ratio": stops.count(Stop.LENGTH) / len(stops) if stops else float("nan"),
        **_of_dialogues([x for g in seen if (x := _dialogues(g.noted))]),
    }


def _of_dialogues(seen: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean turns of a rollout, and faults of each source per turn; empty without environments that answer turns."""
    turns = [k for some in seen for k in some["turns"]]
    if not turns:
        return {}
    faults = sum((Counter(f) for some in seen for f in some["faults"]), Counter[str]())
    return {"turns": sum(turns) / len(turns), **{f"faults/{s}": faults[s] / max(sum(turns), 1) for s in FaultSource}}


def _stds(rewards: ndarray, sizes: Sequence[int]) -> ndarray:
    """Each group's standard deviation. Groups of one size are computed together, step by step as `std` does."""
    if len(set(sizes)) == 1:
        x = rewards.reshape(-1, sizes[0])
        off = x - np.add.reduce(x, axis=1, keepdims=True) / x.shape[1]
        return np.sqrt(np.add.reduce(off * off, axis=1) / x.shape[1])
    return np.array([np.std(rewards[a:b]) for a, b in pairwise(accumulate(sizes, initial=0))])
