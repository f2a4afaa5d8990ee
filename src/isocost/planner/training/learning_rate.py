"""The learning-rate rule, measured before arms are compared: lr = lr0 (rollouts per update / reference)^a.

A sweep of n at fixed problems per update changes the rollouts per update, and through the rule the learning rate. The
best n then depends on lr0 and the exponent more than on the budget. So a short probe runs three rates at the smallest
and the largest batch of the grid. The prior of the exponent is the square root of arXiv:2603.12151.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt
from typing import Any, ClassVar

import numpy as np

from isocost.disk.shape import Plain
from isocost.laws.curves import Curve, multiplier
from isocost.laws.tracks import Track
from isocost.screen.display import Row

MULTIPLIERS = (0.25, 1.0, 4.0)   # rates of the probe, times the anchor's
EDGES = (0.5, 2.0)               # rates at which the smallest and the largest n are rerun
EXPONENT, EXPONENT_SD = 0.5, 0.25
NOISE = 0.02                     # assumed run-to-run standard deviation of held-out reward of one short run

ADAPTER = 10        # times the rate of all weights, for an adapter
ASSUMED = 1e8       # parameters of a model whose size is not known
# Starting points of a probe: (parameters, lr at 256 rollouts per update), interpolated in log-log.
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
class RateRule(Plain):
    """lr = lr0 (nB / reference)^exponent, at most the ceiling that the probe found.

    `ceilings` are (rollouts per update, highest lr allowed there), interpolated in log-log and constant outside.
    `refused` are the settings that fell below the base. `arms` are (n, B, learning rate) of arms with a learning rate
    of their own instead of the rule's.
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

    heading: ClassVar[str] = "learning rate"
    HEAD: ClassVar = {"schema": 1}
    LATER: ClassVar = ("arms",)

    def rows(self) -> list[Row]:
        """Why this rule, and cautions."""
        return [Row("", self.why), *(Row("", text, "flag") for text in self.flags)]

    def of_arm(self, n: int, B: int) -> float:
        """The learning rate of n rollouts for each of B problems per update: the arm's own, else the rule's."""
        own = {(k, problems): lr for k, problems, lr in self.arms}
        return own[n, B] if (n, B) in own else self.at(n * B)

    def at(self, nB: int, multiplier: float = 1.0) -> float:
        """The learning rate for this many rollouts per update, times `multiplier`, never above the ceiling."""
        return min(multiplier * self.lr0 * (nB / self.reference) ** self.exponent, self.ceiling(nB))

    def ceiling(self, nB: int) -> float:
        """The highest rate allowed at this batch; infinite if nothing was measured."""
        if not self.ceilings:
            return inf
        x, y = zip(*((log(b), log(lr)) for b, lr in self.ceilings), strict=True)
        return exp(float(np.interp(log(nB), x, y)))


def given(lr0: float, reference: int, exponent: float = EXPONENT) -> RateRule:
    """The user's rule, marked as not measured."""
    why = f"set by the user: {_rule(lr0, reference, exponent)}; not measured here"
    return RateRule(lr0, reference, exponent, why=why)


def starting_rule(
    parameters: float | None, reference: int = 256, own: Mapping[str, Any] | None = None, *, adapter: bool = False
) -> RateRule:
    """The rule that a probe starts from: the model's `own` rate, else by its size alone.

    `own` is what the model's maker measured (`isocost.local.weights.Model.starting_rate`): `lr` at `rollouts` per
    update. Otherwise the rate follows from those that worked at 0.1M, 135M and 7B parameters; such rates fall as models
    grow. The probe corrects errors up to a factor of four. A model of unknown size is assumed to have 1e8 parameters.
    An `adapter` takes ten times the rate of all weights (Schulman and Thinking Machines Lab 2025, LoRA Without Regret).
    """
    if adapter:
        whole = starting_rule(parameters, reference, own)
        return replace(whole, lr0=ADAPTER * whole.lr0, why=f"{ADAPTER} times the rate of all weights, for an adapter; "
                       f"that rate is {whole.why}")
    if own is not None:
        lr0 = float(own["lr"]) * (reference / int(own["rollouts"])) ** EXPONENT
        return RateRule(lr0, reference, EXPONENT, why="measured by the model's maker on its own problems: "
                        f"{_rule(lr0, reference, EXPONENT)}; not measured here yet")
    size = f"the model's size ({parameters:.2g} parameters)" if parameters else (
        f"a model of {ASSUMED:.0e} parameters, as this one's size is not known (--parameters, or --lr, sets it)")
    parameters = parameters or ASSUMED
    x, y = zip(*((log(p), log(lr)) for p, lr in _STARTS), strict=True)
    lr0 = exp(float(np.interp(log(parameters), x, y))) * (reference / 256) ** EXPONENT
    lr0 = float(f"{lr0:.2g}")
    return RateRule(lr0, reference, EXPONENT, why=f"assumed from {size}: "
                    f"{_rule(lr0, reference, EXPONENT)}; not measured yet")


def probe_results(curves: Sequence[Curve]) -> list[ProbeResult]:
    """The probe runs among these curves, with their rewards on the `select` split."""
    return [
        ProbeResult(c.arm["n"] * c.arm["B"], c.arm["lr"], float(c.select[0]), float(c.select[-1]), c.diverged, c.run)
        for c in curves if c.purpose == "probe"
    ]


def fit_rate(
    results: Sequence[ProbeResult], reference: int = 256, prior: float = EXPONENT, *, noise: float = NOISE
) -> RateRule:
    """The learning-rate rule fitted to the results of a probe.

    At each batch the best log-rate is the mean of those tried, weighted by exp(reward / noise), so that tied rates give
    the middle of the tie. The exponent is the slope between the batches, shrunk towards the prior (standard deviation
    0.25) by its uncertainty, and clipped to [0, 1]. Settings that end more than one `noise` below the base are
    rejected: they are not chosen, and they bound the rate (`RateRule.ceiling`). Raises ValueError without any result.
    """
    if not results:
        raise ValueError("a learning-rate rule needs at least one probe run")
    batches = sorted({t.nB for t in results})
    results = _merged(results)
    refused = tuple(t for t in results if t.diverged or t.end < t.start - noise)
    best = [_best_rate([t for t in results if t.nB == b], refused, noise) for b in batches]
    at = np.log(np.array(batches) / reference)
    x, v = (np.array(column) for column in zip(*best, strict=True))
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
    """Log distance between neighbouring rates tried; that of a probe's multipliers if there was only one."""
    x = np.log(sorted(set(rates)))
    return float(np.diff(x).mean()) if len(x) > 1 else log(MULTIPLIERS[-1])


def _best_rate(tried: Sequence[ProbeResult], refused: Sequence[ProbeResult], noise: float) -> tuple[float, float]:
    """(best log lr, its variance) at one batch; the variance includes the spacing of the grid."""
    step = _spacing([t.lr for t in tried])
    stable = [t for t in tried if t not in refused]
    if not stable:
        return log(min(t.lr for t in tried)) - step, step**2
    x, y = np.log([t.lr for t in stable]), np.array([t.end for t in stable])
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
    """The log midpoint of the highest stable rate and the lowest rejected one; else half a step beyond."""
    half = exp(_spacing([t.lr for t in tried]) / 2)
    fell = [t.lr for t in tried if t in refused]
    stable = [t.lr for t in tried if t not in refused and (not fell or t.lr < min(fell))]
    if not fell:
        return max(stable) * half
    return sqrt(max(stable) * min(fell)) if stable else min(fell) / half


def _flags(results: Sequence[ProbeResult], refused: Sequence[ProbeResult], batches: Sequence[int]) -> tuple[str, ...]:
    flags = []
    for b in batches:
        tried = [t for t in results if t.nB == b]
        stable = [t for t in tried if t not in refused]
        if not stable:
            flags.append(f"every rate tried at {b} rollouts per update fell below the base; the rule goes below them")
            continue
        best, rates = max(stable, key=lambda t: t.end), sorted({t.lr for t in tried})
        if len(rates) > 1 and best.lr == rates[-1]:
            flags.append(f"at {b} rollouts per update the highest rate tried won: a higher one may be better")
        if len(rates) > 1 and best.lr == rates[0]:
            flags.append(f"at {b} rollouts per update the lowest rate tried won: a lower one may be better")
    return tuple(flags)


@dataclass(frozen=True)
class Shift(Plain):
    """Whether the best n changes if the learning rate is halved or doubled at the edges of the grid."""

    winners: dict[str, int]     # multiplier -> best n
    moved: bool
    text: str


def shift(curves: Sequence[Curve]) -> Shift:
    """The edge arms at other learning rates against the grid, at the largest C of all arms, on the `select` split."""
    grid = [c for c in curves if c.purpose == "pilot" and not c.diverged]
    edges = [c for c in curves if c.purpose == "edge"]
    if not grid or not edges:
        return Shift({}, False, "no edge arm was rerun at another learning rate: whether n* depends on it is not known")
    common = min(float(c.C[-1]) for c in [*grid, *edges])
    base = _means(grid, common)
    first = max(base, key=lambda n: base[n][0])
    winners, moved = {"1": first}, False
    cases: dict[tuple[int, ...], list[str]] = {}    # (best n, *the n rerun) -> multipliers
    for x in sorted({multiplier(c) for c in edges}):
        rerun = _means([c for c in edges if multiplier(c) == x], common)
        values = base | rerun
        best = max(values, key=lambda n: values[n][0])
        (v, k), (v0, k0) = values[best], values[first]
        if best != first and v - v0 > NOISE * sqrt(1 / k + 1 / k0):
            moved = True
        else:
            best = first
        winners[f"{x:g}"] = best
        cases.setdefault((best, *rerun), []).append(f"x{x:g}")
    parts = [f"n = {first} is best at the planned rates"]
    for (best, *ns), at in cases.items():
        those = f"n = {', '.join(map(str, ns))} at {' and '.join(at)} their rate"
        parts.append(f"with {those}, {f'still n = {best}' if best == first else f'n = {best} is best'}")
    lead = "n* depends on the learning rate here" if moved else "the winner does not move with the learning rate"
    return Shift(winners, moved, f"{lead}: {'; '.join(parts)}")


def _means(curves: Sequence[Curve], C: float) -> dict[int, tuple[float, int]]:
    """n -> (mean select reward at C, runs)."""
    return {n: (float(np.mean(v)), len(v)) for n, v in by_n(curves, C).items()}


def by_n(curves: Sequence[Curve], C: float) -> dict[int, list[float]]:
    """n, ascending -> the `select` reward of each of its runs at C rollouts (`reward_at`)."""
    by: dict[int, list[float]] = {}
    for c in sorted(curves, key=lambda c: c.arm["n"]):
        by.setdefault(c.arm["n"], []).append(reward_at(c.C, c.select, C))
    return by


def reward_at(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """A run's reward at `at` rollouts, from evaluations at C (K,): as `Track.at`, linear in C between the first two."""
    known = C > 0
    if not known.any() or at <= C[known][0]:
        return float(np.interp(at, C, reward))
    return float(Track("", 0, C, reward).at(at))
