"""What a curriculum knows of the problems: folds over the ledger's closed steps (see `Ledger.fold`).

A problem's guided variants are other questions; what is tracked here is the problem as posed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import comb, floor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

UNSEEN = -1   # the bin of a problem that has not come home yet


# beliefs ------------------------------------------------------------------------------------------------------------

@dataclass
class Beliefs:
    """Right and wrong attempts per problem, each counting the less the older it is."""

    steps: int = 0
    counts: dict[str, tuple[float, float, int]] = field(default_factory=dict)   # right, wrong, as of which step


def beliefs(ledger: Ledger, *, touched: float, idle: float) -> dict[str, tuple[float, float]]:
    """Discounted (right, wrong) counts of every problem that came home.

    What was known is multiplied by `touched` when a problem comes home again, before the new counts are added, and
    by `idle` in every step in which it does not. With both at 1 these are plain counts, and a Beta prior plus them
    is the exact posterior.
    """
    known = ledger.fold(partial(_believe, touched=touched, idle=idle), Beliefs())
    return {k: (a * idle ** (known.steps - t), b * idle ** (known.steps - t)) for k, (a, b, t) in known.counts.items()}


def _believe(known: Beliefs, seen: Sequence[Seen], *, touched: float, idle: float) -> Beliefs:
    fresh: dict[str, tuple[float, float]] = {}
    for s in seen:
        if not s.variant:
            right, wrong = fresh.get(s.id, (0.0, 0.0))
            gained = _right(s)
            fresh[s.id] = right + gained, wrong + len(s.rewards) - gained
    for name, (right, wrong) in fresh.items():
        a, b, at = known.counts.get(name, (0.0, 0.0, known.steps))
        keep = touched * idle ** (known.steps - at)
        known.counts[name] = keep * a + right, keep * b + wrong, known.steps + 1
    known.steps += 1
    return known


@dataclass
class Passed:
    """Right and all attempts per problem so far, and when a problem's share of right ones first was enough."""

    steps: int = 0
    counts: dict[str, tuple[float, int]] = field(default_factory=dict)   # right, attempts
    since: dict[str, int] = field(default_factory=dict)                  # how many steps were closed by then


def passed(ledger: Ledger, *, rate: float) -> dict[str, int]:
    """By problem, after how many closed steps its share of right attempts first was `rate` or more."""
    return ledger.fold(partial(_pass, rate=rate), Passed()).since


def _pass(known: Passed, seen: Sequence[Seen], *, rate: float) -> Passed:
    known.steps += 1
    for s in seen:
        if not s.variant:
            right, tries = known.counts.get(s.id, (0.0, 0))
            known.counts[s.id] = right, tries = right + _right(s), tries + len(s.rewards)
            if right >= rate * tries:
                known.since.setdefault(s.id, known.steps)
    return known


# bins ---------------------------------------------------------------------------------------------------------------

@dataclass
class Bins:
    """Problems by their windowed pass@k, and how far from solved the problems of each bin have been."""

    window: dict[str, list[tuple[float, float, int]]] = field(default_factory=dict)   # pass@k, right, attempts
    of: dict[str, int] = field(default_factory=dict)             # problem -> bin
    score: dict[int, float] = field(default_factory=dict)        # bin -> running mean of its loss

    def rate(self, name: str) -> float:
        """Share right in the window, from a flat prior: never quite 0 or 1. A half for a problem never seen."""
        window = self.window.get(name, [])
        return (1 + sum(r for _, r, _ in window)) / (2 + sum(n for _, _, n in window))


def bins(ledger: Ledger, *, count: int, k: int, window: int, margin: float, beta: float = 0.1) -> Bins:
    """Problems in `count` bins of equal width by their mean pass@k over the latest `window` groups (arXiv:2601.19280).

    A problem leaves its bin only when it is past the edge by `margin`. A bin's score is the running mean, at rate
    `beta`, of 1 − mean reward of the problems that were in it when a step began: of problems, not of steps times
    problems, so that a common bin counts no more than a rare one.
    """
    return ledger.fold(partial(_sort, count=count, k=k, window=window, margin=margin, beta=beta), Bins())


def _sort(
    known: Bins, seen: Sequence[Seen], *, count: int, k: int, window: int, margin: float, beta: float
) -> Bins:
    seen = [s for s in seen if not s.variant]
    losses: dict[int, list[float]] = {}
    for s in seen:
        losses.setdefault(known.of.get(s.id, UNSEEN), []).append(1 - _right(s) / len(s.rewards))
    for b, each in losses.items():
        mean = sum(each) / len(each)
        known.score[b] = (1 - beta) * known.score.get(b, mean) + beta * mean
    for s in seen:
        mine = (pass_at(_right(s), len(s.rewards), k), _right(s), len(s.rewards))
        known.window[s.id] = [*known.window.get(s.id, []), mine][-window:]
        solved = sum(p for p, _, _ in known.window[s.id]) / len(known.window[s.id])
        known.of[s.id] = rebin(solved, known.of.get(s.id, UNSEEN), count, margin)
    return known


def pass_at(right: float, attempts: int, k: int) -> float:
    """Chance that one of k of these attempts was right, drawn without replacement; of all of them where k is more."""
    k, wrong = min(k, attempts), attempts - round(right)
    return 1 - comb(wrong, k) / comb(attempts, k)


def rebin(rate: float, old: int, count: int, margin: float) -> int:
    """The bin of a rate among `count` on [0, 1], or the old one while its edge is not crossed by `margin`."""
    new = min(floor(rate * count + 1e-9), count - 1)
    if old == UNSEEN or new == old:
        return new
    crossed = rate - (old + 1) / count if new > old else old / count - rate
    return new if crossed >= margin - 1e-9 else old


def _right(seen: Seen) -> float:
    """Right attempts of a group; a shaped reward counts for what it is worth between 0 and 1."""
    return sum(min(max(r, 0.0), 1.0) for r in seen.rewards)


# dials ---------------------------------------------------------------------------------------------------------------

@dataclass
class Dial:
    """One environment's difficulty, a real number of levels, and what became of it since it was taken up."""

    at: float = 0.0
    past: list[float] = field(default_factory=list)   # where it stood, step by step
    never: int = 0                                    # steps in a row with nothing right
    full: int = 0                                     # steps in a row at the highest level


@dataclass
class Dials:
    """The environments there are, and the few that are in use."""

    where: Mapping[str, tuple[str, int]]              # problem -> environment, level
    top: Mapping[str, int]                            # environment -> highest level
    active: list[str]
    of: dict[str, Dial]
    retired: int = 0


def dials(
    ledger: Ledger, pool: Sequence[Problem], *,
    window: int, gain: float, aim: float, step: float, never: int, full: int, slope: int,
) -> Dials:
    """Environments with a dial each, turned towards a share `aim` of right attempts (SCALER, arXiv:2601.04809).

    After a step, d ← clip(d + clip(gain · (right − aim), ±step), 0, highest level). Up to `window` environments are in
    use. One is put back, and another taken at random, when nothing was right for `never` steps in a row, when it
    stood at its highest level for `full`, or when the line through its last `slope` levels does not rise. An
    environment is `meta["environment"]`, or `meta["source"]`; its levels are the values of `meta["level"]`, in order.
    """
    start = _dials(pool, window, ledger.seed)
    turn = partial(
        _turn, seed=ledger.seed, gain=gain, aim=aim, step=step, never=never, full=full, slope=slope
    )
    return ledger.fold(turn, start)


def _dials(pool: Sequence[Problem], window: int, seed: int) -> Dials:
    named = {p.id: (environment(p), p.meta.get("level") or 0) for p in pool}
    levels: dict[str, list[Any]] = {}
    for name, level in sorted(set(named.values())):
        levels.setdefault(name, []).append(level)
    first = chance.generator(seed, chance.Purpose.CHOOSE, 0, 1).permutation(len(levels))[:window]
    names = list(levels)
    return Dials(
        where={k: (name, levels[name].index(level)) for k, (name, level) in named.items()},
        top={name: len(each) - 1 for name, each in levels.items()},
        active=[names[i] for i in first],
        of={name: Dial() for name in names},
    )


def environment(problem: Problem) -> str:
    return str(problem.meta.get("environment", problem.meta.get("source", "")))


def _turn(
    known: Dials, seen: Sequence[Seen], *,
    seed: int, gain: float, aim: float, step: float, never: int, full: int, slope: int,
) -> Dials:
    """The dials a step on. Every group counts alike, by its share of right attempts; those of variants do not count.

    A dial goes by its environment's levels on either side of it, each the mean of its groups, weighed by how near it
    is; by all levels where neither was played. An environment that was not played stands still.
    """
    marks: dict[str, dict[int, list[float]]] = {}
    for s in seen:
        if s.id in known.where and not s.variant:
            name, level = known.where[s.id]
            marks.setdefault(name, {}).setdefault(level, []).append(_right(s) / len(s.rewards))
    for slot, name in enumerate(list(known.active)):
        if name not in marks:
            continue
        dial, top = known.of[name], known.top[name]
        right = _between(dial.at, {level: sum(x) / len(x) for level, x in marks[name].items()})
        dial.past = [*dial.past, dial.at][-slope:]
        dial.never = dial.never + 1 if right <= 0 else 0
        dial.full = dial.full + 1 if dial.at >= top else 0
        dial.at = min(max(dial.at + min(max(gain * (right - aim), -step), step), 0.0), float(top))
        if dial.never >= never or dial.full >= full or (len(dial.past) == slope and rise(dial.past) <= 1e-12):
            dial.past, dial.never, dial.full = [], 0, 0
            known.retired += 1
            idle = [e for e in known.of if e not in known.active]
            if idle:
                draw = chance.generator(seed, chance.Purpose.CHOOSE, known.retired, 1)
                known.active[slot] = idle[int(draw.integers(len(idle)))]
    return known


def _between(at: float, right: Mapping[int, float]) -> float:
    """Share right at a level that was played as a mix of the two beside it."""
    near = {level: max(1 - abs(at - level), 0.0) for level in right}
    if not any(near.values()):
        return sum(right.values()) / len(right)
    return sum(near[level] * r for level, r in right.items()) / sum(near.values())


def rise(y: Sequence[float]) -> float:
    """Slope of the least-squares line through equally spaced points."""
    middle = (len(y) - 1) / 2
    return sum((i - middle) * v for i, v in enumerate(y)) / max(sum((i - middle) ** 2 for i in range(len(y))), 1.0)


# likeness ------------------------------------------------------------------------------------------------------------

def predicted(
    pool: Sequence[Problem], ledger: Ledger, *,
    references: int, sharpness: float, embed: Callable[[Problem], ndarray],
) -> ndarray:
    """(P,) pass rates of problems, most of which never came home, from those that did (DOTS, arXiv:2506.05316).

    The `references` that came home last are the keys of an attention over embeddings, their latest mean rewards its
    values: p = softmax(cos(q, k) / sharpness) · r. Then p ← σ(w logit p + b), with w and b fitted to predict each
    reference from the others. A reference is what it last told; a half where nothing is known.
    """
    tallies = [ledger.of(p.id) for p in pool]
    known = sorted((i for i, t in enumerate(tallies) if t.recent), key=lambda i: -tallies[i].last)[:references]
    if not known:
        return np.full(len(pool), 0.5)
    points = np.stack([embed(p) for p in pool])
    values = np.clip([tallies[i].recent[-1] for i in known], 0.0, 1.0)
    alike = points @ points[known].T / sharpness
    guess = _attend(alike, values)
    if len(known) > 1:
        others = alike[known]
        np.fill_diagonal(others, -np.inf)
        w, b = calibration(_attend(others, values), values)
        guess = _logistic(w * _logit(guess) + b)
    guess[known] = values
    return guess


def calibration(guess: ndarray, truth: ndarray, *, steps: int = 50) -> tuple[float, float]:
    """w ≥ 0 and b with the least cross-entropy of σ(w logit(guess) + b) to `truth`, by Newton's method in short steps.

    Held at (1, 0), no calibration, by a quadratic that weighs as much as one observation. A guess that is worse than
    none counts for nothing: w = 0, and b is the logit of the mean.
    """
    x = np.stack([_logit(guess), np.ones(len(guess))], 1)
    at = none = np.array([1.0, 0.0])
    for _ in range(steps):
        p = _logistic(x @ at)
        slope = x.T @ (p - truth) + (at - none)
        curve = (x * (p * (1 - p))[:, None]).T @ x + np.eye(2)
        move = np.linalg.solve(curve, slope)
        at = at - move / max(1.0, float(np.linalg.norm(move)) / 0.5)
    return (float(at[0]), float(at[1])) if at[0] > 0 else (0.0, float(_logit(truth.mean())))


def trigrams(problem: Problem) -> ndarray:
    """(256,) how often each triple of characters occurs, hashed, at length 1; or `meta["embedding"]`, where given."""
    given = problem.meta.get("embedding")
    return _trigrams(problem.text) if given is None else _unit(np.asarray(given, dtype=np.float64))


@lru_cache(maxsize=2**14)
def _trigrams(text: str) -> ndarray:
    text, counts = f"\x02{text}\x03", np.zeros(256)
    for i in range(len(text) - 2):
        counts[zlib.crc32(text[i : i + 3].encode()) % 256] += 1
    return _unit(counts)


def _unit(x: ndarray) -> ndarray:
    return x / max(float(np.linalg.norm(x)), 1e-12)


def _attend(alike: ndarray, values: ndarray) -> ndarray:
    weight = np.exp(alike - alike.max(1, keepdims=True))
    return weight @ values / weight.sum(1)


def _logit(p: ndarray) -> ndarray:
    p = p.clip(1e-4, 1 - 1e-4)
    return np.log(p / (1 - p))


def _logistic(x: ndarray) -> ndarray:
    return 1 / (1 + np.exp(-x.clip(-30, 30)))


# outlooks ------------------------------------------------------------------------------------------------------------

def odds(ledger: Ledger, outlooks: Sequence[float], *, bins: int, window: int) -> list[float]:
    """The chance that attempts with these outlooks end well, by how the latest `window` that had one have ended.

    These are cut into `bins` of as many each by their outlook, and an attempt gets the share right of its bin, from a
    flat prior: never quite 0 or 1. A half where nothing is known.
    """
    known = ledger.fold(partial(_told, window=window), list[tuple[float, float]]())
    if not known:
        return [0.5] * len(outlooks)
    scores, ends = np.array(known).T
    edges = np.quantile(scores, np.arange(1, bins) / bins)
    home = np.searchsorted(edges, scores, side="right")
    right, count = np.bincount(home, ends, bins), np.bincount(home, minlength=bins)
    return ((1 + right) / (2 + count))[np.searchsorted(edges, outlooks, side="right")].tolist()


def _told(known: list[tuple[float, float]], seen: Sequence[Seen], *, window: int) -> list[tuple[float, float]]:
    known += [
        (told, min(max(reward, 0.0), 1.0))
        for s in seen for told, reward in zip(s.outlooks, s.rewards, strict=False) if told is not None
    ]
    return known[-window:]
