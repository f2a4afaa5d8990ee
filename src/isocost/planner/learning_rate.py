"""The learning-rate rule, measured before anything is compared: lr = lr0 (rollouts per update / reference)^a.

A sweep of n at fixed problems per update changes the rollouts per update, and through the rule the learning rate;
which n wins then depends on the rule's anchor and exponent more than on the budget. So a short probe runs three
rates at the smallest and the largest batch of the grid. The square root of arXiv:2603.12151 is the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, log, sqrt
from typing import Any

import numpy as np

from isocost.laws.curves import Curve
from isocost.laws.tracks import Track

MULTIPLIERS = (0.25, 1.0, 4.0)   # rates of the probe, times the anchor's
EDGES = (0.5, 2.0)               # rates at which the smallest and the largest n are rerun
EXPONENT, EXPONENT_SD = 0.5, 0.25
NOISE = 0.02                     # run-to-run standard deviation of held-out reward assumed of one short run

# Where a probe starts looking, not an answer: (parameters, lr at 256 rollouts per update), joined in log-log.
_STARTS = ((1e5, 3e-4), (1.35e8, 2e-5), (7e9, 5e-7))


@dataclass(frozen=True)
class ProbeResult:
    """One probe run: rollouts per update, learning rate, held-out reward before and after."""

    nB: int
    lr: float
    start: float
    end: float
    diverged: bool = False
    run: str = ""


@dataclass(frozen=True)
class RateRule:
    """lr = lr0 (nB / reference)^exponent, kept under what the probe saw hold.

    `ceilings` are (rollouts per update, highest lr allowed there); between two they are joined in log-log, and
    outside they stay flat. `refused` are the settings that fell below the base. `arms` are (n, B, learning rate) of
    arms that keep the rate they had, whatever the rule says there.
    """

    lr0: float
    reference: int
    exponent: float = EXPONENT
    ceilings: tuple[tuple[int, float], ...] = ()
    refused: tuple[ProbeResult, ...] = ()
    measured: bool = False
    flags: tuple[str, ...] = ()
    why: str = ""
    arms: tuple[tuple[int, int, float], ...] = ()

    def of_arm(self, n: int, B: int) -> float:
        """The learning rate of n rollouts for each of B problems per update: the arm's own, else the rule's."""
        own = {(k, problems): lr for k, problems, lr in self.arms}
        return own[n, B] if (n, B) in own else self.at(n * B)

    def at(self, nB: int, multiplier: float = 1.0) -> float:
        """The learning rate for this many rollouts per update, times `multiplier`, never above the ceiling."""
        return min(multiplier * self.lr0 * (nB / self.reference) ** self.exponent, self.ceiling(nB))

    def ceiling(self, nB: int) -> float:
        """The highest rate allowed at this batch; infinite where nothing was measured."""
        if not self.ceilings:
            return inf
        x, y = zip(*((log(b), log(lr)) for b, lr in self.ceilings), strict=True)
        return exp(float(np.interp(log(nB), x, y)))

    def data(self) -> dict[str, Any]:
        """Plain data for JSON; `arms` only where there are any."""
        return {"schema": 1, **{k: v for k, v in asdict(self).items() if k != "arms" or v}}

    @staticmethod
    def of(data: dict[str, Any]) -> RateRule:
        """The rule that `data()` wrote."""
        d = {k: v for k, v in data.items() if k != "schema"}
        return RateRule(**{
            **d, "arms": tuple((int(n), int(B), float(lr)) for n, B, lr in d.get("arms", ())),
            "ceilings": tuple((int(b), float(lr)) for b, lr in d.get("ceilings", ())),
            "refused": tuple(ProbeResult(**t) for t in d.get("refused", ())), "flags": tuple(d.get("flags", ())),
        })


def given(lr0: float, reference: int, exponent: float = EXPONENT) -> RateRule:
    """A rule the user set: taken as it is, and said to be unmeasured."""
    why = f"set by the user: {_rule(lr0, reference, exponent)}; not measured here"
    return RateRule(lr0, reference, exponent, why=why)


def starting_rule(parameters: float, reference: int = 256) -> RateRule:
    """Where the probe looks first, from the model's size alone: healthy rates seen at 0.1M, 135M and 7B parameters.

    Healthy rates fall as models grow; being wrong by a factor of four is what the probe is there to find.
    """
    x, y = zip(*((log(p), log(lr)) for p, lr in _STARTS), strict=True)
    lr0 = exp(float(np.interp(log(parameters), x, y))) * (reference / 256) ** EXPONENT
    lr0 = float(f"{lr0:.2g}")
    return RateRule(lr0, reference, EXPONENT, why=f"assumed from the model's size ({parameters:.2g} parameters): "
                    f"{_rule(lr0, reference, EXPONENT)}; not measured yet")


def probe_results(curves: Sequence[Curve]) -> list[ProbeResult]:
    """The probe runs among these curves, judged on the `select` split, which chooses."""
    return [
        ProbeResult(c.n * c.B, c.lr, float(c.select[0]), float(c.select[-1]), c.diverged, c.run)
        for c in curves if c.purpose == "probe"
    ]


def fit_rate(
    results: Sequence[ProbeResult], reference: int = 256, prior: float = EXPONENT, *, noise: float = NOISE
) -> RateRule:
    """The rule a probe supports.

    At each batch the best log-rate is the mean of those tried, weighted by exp(reward / noise), so rates that tie
    give the middle of the tie and not the luckiest of them. The exponent is the slope between the batches, shrunk
    to the prior in proportion to how little the probe says (standard deviation 0.25 of the prior), and kept in
    [0, 1]. Settings that end more than one `noise` below the base are refused: they cannot be chosen, and bound
    the rate allowed.

    Raises:
        ValueError: without any result.
    """
    if not results:
        raise ValueError("a learning-rate rule needs at least one probe run")
    batches = sorted({t.nB for t in results})
    results = _merged(results)
    refused = tuple(t for t in results if t.diverged or t.end < t.start - noise)
    looks = [_best_rate([t for t in results if t.nB == b], refused, noise) for b in batches]
    at = np.log(np.array(batches) / reference)
    x, v = (np.array(column) for column in zip(*looks, strict=True))
    exponent = _slope(at, x, v, prior)
    lr0 = exp(float(((x - exponent * at) / v).sum() / (1 / v).sum()))
    ceilings = tuple((b, _ceiling([t for t in results if t.nB == b], refused)) for b in batches)
    flags = _flags(results, refused, batches)
    why = f"measured at {' and '.join(map(str, batches))} rollouts per update: {_rule(lr0, reference, exponent)}"
    if refused:
        why += f"; {len(refused)} of {len(results)} settings fell below the base and were rejected"
    return RateRule(lr0, reference, exponent, ceilings, refused, True, flags, why)


def _merged(results: Sequence[ProbeResult]) -> list[ProbeResult]:
    """One trial per setting: the mean over its seeds, diverged if any seed did."""
    by: dict[tuple[int, float], list[ProbeResult]] = {}
    for t in results:
        by.setdefault((t.nB, t.lr), []).append(t)
    return [
        ProbeResult(nB, lr, float(np.mean([t.start for t in ts])), float(np.mean([t.end for t in ts])),
              any(t.diverged for t in ts), " ".join(t.run for t in ts))
        for (nB, lr), ts in sorted(by.items())
    ]


def _rule(lr0: float, reference: int, exponent: float) -> str:
    return f"lr = {lr0:.2g} (rollouts per update / {reference})^{exponent:.2f}"


def _spacing(rates: Sequence[float]) -> float:
    """Log distance between neighbouring rates tried; that of a probe's multipliers when only one was."""
    x = np.log(sorted(set(rates)))
    return float(np.diff(x).mean()) if len(x) > 1 else log(MULTIPLIERS[-1])


def _best_rate(tried: Sequence[ProbeResult], refused: Sequence[ProbeResult], noise: float) -> tuple[float, float]:
    """(best log lr, its variance) at one batch. The grid's coarseness counts: a rate stands for those around it."""
    step = _spacing([t.lr for t in tried])
    held = [t for t in tried if t not in refused]
    if not held:
        return log(min(t.lr for t in tried)) - step, step**2
    x, y = np.log([t.lr for t in held]), np.array([t.end for t in held])
    w = np.exp((y - y.max()) / noise)
    w /= w.sum()
    best = float(w @ x)
    return best, float(w @ (x - best) ** 2) + step**2 / 12


def _slope(at: np.ndarray, x: np.ndarray, v: np.ndarray, prior: float) -> float:
    """Exponent by weighted least squares over batches, shrunk to the prior, within [0, 1]."""
    if len(at) < 2:
        return prior
    w = 1 / v
    centred = at - (w @ at) / w.sum()
    precision = float(w @ centred**2)
    slope = float((w * centred) @ x) / precision
    trust = 1 / EXPONENT_SD**2
    return float(np.clip((slope * precision + prior * trust) / (precision + trust), 0.0, 1.0))


def _ceiling(tried: Sequence[ProbeResult], refused: Sequence[ProbeResult]) -> float:
    """Halfway, in log, between the highest rate that held and the lowest that fell; else half a step beyond."""
    half = exp(_spacing([t.lr for t in tried]) / 2)
    fell = [t.lr for t in tried if t in refused]
    held = [t.lr for t in tried if t not in refused and (not fell or t.lr < min(fell))]
    if not fell:
        return max(held) * half
    return sqrt(max(held) * min(fell)) if held else min(fell) / half


def _flags(results: Sequence[ProbeResult], refused: Sequence[ProbeResult], batches: Sequence[int]) -> tuple[str, ...]:
    flags = []
    for b in batches:
        tried = [t for t in results if t.nB == b]
        held = [t for t in tried if t not in refused]
        if not held:
            flags.append(f"every rate tried at {b} rollouts per update fell below the base; the rule goes below them")
            continue
        best, rates = max(held, key=lambda t: t.end), sorted({t.lr for t in tried})
        if len(rates) > 1 and best.lr == rates[-1]:
            flags.append(f"at {b} rollouts per update the highest rate tried won: a higher one may be better")
        if len(rates) > 1 and best.lr == rates[0]:
            flags.append(f"at {b} rollouts per update the lowest rate tried won: a lower one may be better")
    return tuple(flags)


@dataclass(frozen=True)
class Shift:
    """Whether the winning n moves when the learning rate is halved or doubled at the edges of the grid."""

    winners: dict[str, int]     # multiplier -> winning n
    moved: bool
    text: str

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def shift(curves: Sequence[Curve], *, noise: float = NOISE) -> Shift:
    """Rerun edge arms against the grid, at the last compute every arm reached, on the `select` split.

    At multiplier x the edge arms' values are those run at x, the others' those at 1. The winner has moved when
    another n is ahead of the old one by more than `noise` scaled to the runs behind the difference. The text names
    for every n the rate it was run at.
    """
    grid = [c for c in curves if c.purpose == "pilot" and not c.diverged]
    edges = [c for c in curves if c.purpose == "edge"]
    if not grid or not edges:
        return Shift({}, False, "no edge arm was rerun at another learning rate: whether n* depends on it is not known")
    common = min(float(c.C[-1]) for c in [*grid, *edges])
    base = _means(grid, common)
    first = max(base, key=lambda n: base[n][0])
    winners, moved = {"1": first}, False
    said: dict[tuple[int, ...], list[str]] = {}     # (winner, *the n rerun) -> at which multipliers
    for x in sorted({c.multiplier for c in edges}):
        rerun = _means([c for c in edges if c.multiplier == x], common)
        values = base | rerun
        best = max(values, key=lambda n: values[n][0])
        (v, k), (v0, k0) = values[best], values[first]
        if best != first and v - v0 > noise * sqrt(1 / k + 1 / k0):
            moved = True
        else:
            best = first
        winners[f"{x:g}"] = best
        said.setdefault((best, *rerun), []).append(f"x{x:g}")
    parts = [f"n = {first} at x1"]
    for (best, *ns), at in said.items():
        those = f"n = {', '.join(map(str, ns))} at {' and '.join(at)}"
        parts.append(f"{'still' if best == first else 'but'} n = {best} with {those}, the others at x1")
    lead = "n* depends on the learning rate here" if moved else "the winner does not move with the learning rate"
    return Shift(winners, moved, f"{lead}: {'; '.join(parts)}")


def _means(curves: Sequence[Curve], C: float) -> dict[int, tuple[float, int]]:
    """n -> (mean select reward at C, runs)."""
    return {n: (float(np.mean(v)), len(v)) for n, v in by_n(curves, C).items()}


def by_n(curves: Sequence[Curve], C: float) -> dict[int, list[float]]:
    """n, ascending -> the `select` reward of each of its runs at C rollouts (`reward_at`)."""
    by: dict[int, list[float]] = {}
    for c in sorted(curves, key=lambda c: c.n):
        by.setdefault(c.n, []).append(reward_at(c.C, c.select, C))
    return by


def reward_at(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """A run's reward at `at` rollouts, from evaluations at C (K,), ascending, with rewards (K,).

    As `Track.at`: linear in ln C between evaluations, as it last was beyond them. Up to the first one after the base,
    where there is no logarithm to go by, it is linear in C.
    """
    known = C > 0
    if not known.any() or at <= C[known][0]:
        return float(np.interp(at, C, reward))
    return float(Track("", 0, C, reward).at(at))
