"""The sealed forecast of a prescription of control, and its audit on fresh seeds.

The forecast is of the geometric mean of the samples that K new runs take to the wanted return; a run that does not
arrive is censored at its last sample. Its hash is in forecast.json and in every run trained under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from isocost.disk.shape import Count
from isocost.errors import UserError
from isocost.laws.value_fit import LEVEL, MISSED, OFFLINE, Arrivals, ReturnCurve, arrivals, exponential
from isocost.planner.audit import EXIT
from isocost.planner.control.curves import levels
from isocost.planner.control.pilot import SPACED, ControlFile, ControlRunPlan, SigmaArm
from isocost.planner.control.prescribe import ControlPlan
from isocost.planner.forecast import SealedFile
from isocost.runs.arm import Arm
from isocost.screen.words import counted, grouped
from isocost.stats.intervals import Interval, student

PRESCRIBED, FRESH = "prescribed", 100       # the first of the new seeds


@dataclass(frozen=True)
class ControlForecast(ControlFile, SealedFile):
    """What is sealed before the first new run: the plan, the names of the runs of each arm, `spread` the sd of ln T
    between seeds that the outcome is read with, and hashes of what it was made from. `seal` is the hash of the rest."""

    plan: ControlPlan
    runs: Mapping[str, tuple[str, ...]]
    spread: float
    falsifier: str
    hashes: Mapping[str, str]
    seal: str = ""


def runs_to_train(plan: ControlPlan, seed: int = 0) -> dict[str, list[ControlRunPlan]]:
    """The runs of each arm in a study of this seed, on seeds that its pilot does not have."""
    arms = {PRESCRIBED: plan.arm, **plan.rivals}
    first = SPACED * seed + FRESH
    seeds = range(first, first + plan.seeds)
    return {name: [ControlRunPlan("train", arm, s, plan.samples) for s in seeds] for name, arm in arms.items()}


def seal_control(plan: ControlPlan, spread: float, hashes: Mapping[str, str], seed: int = 0) -> ControlForecast:
    """The sealed forecast of a plan, in a study of this seed."""
    names = {name: tuple(r.name for r in runs) for name, runs in runs_to_train(plan, seed).items()}
    at, i = plan.arm, plan.arrival
    first = f"{grouped(at[OFFLINE])} offline updates, " if OFFLINE in at else ""
    falsifier = "nothing is forecast, so nothing can be falsified" if i is None else (
        f"a geometric mean of the samples that {counted(plan.seeds, 'new run')} at {first}sigma {at['sigma']:g}, batch "
        f"{at['batch']:g} and rate {at['rate']:.2g} take to a return of {plan.wanted:g} outside [{i.low:,.0f}, "
        f"{i.high:,.0f}] ({i.level:.0%} prediction interval)")
    return ControlForecast(plan, names, spread, falsifier, dict(hashes)).sealed()


def mean_arrival(seen: Arrivals, spread: float) -> tuple[float, float]:
    """The mean of ln T of runs of one arm, and its standard error, where the sd between seeds is known.

    The maximum of the censored likelihood; infinite where no run arrives.
    """
    side = seen.side
    off, at = side != 0, side == 0
    if not seen.reached.any():
        return float("inf"), float("inf")
    mean = float(seen.time[seen.reached].mean())
    if not at.any() and seen.reached.all():
        return mean, spread         # at most so many
    for _ in range(100):
        z = side[off] * (seen.time[off] - mean) / spread
        hazard = np.exp(-0.5 * z**2 - log_ndtr(-z)) / sqrt(2 * np.pi)
        bend = at.sum() + float((hazard * (hazard - z)).sum())
        step = spread * (float(((seen.time[at] - mean) / spread).sum()) + float((side[off] * hazard).sum())) / bend
        mean += step
        if abs(step) < 1e-9:
            break
    return mean, spread / sqrt(bend)


@dataclass(frozen=True)
class ArmOutcome:
    """What an arm's new runs did: `arrived` of `count`, the geometric mean of their samples to the return, the mean
    return at the end, and `ratio`, samples over those of the prescription, with its interval (None for itself, or
    where one of the two never arrives)."""

    name: str
    arm: SigmaArm
    count: Count
    arrived: Count
    samples: float | None
    final: float
    ratio: Interval | None


@dataclass(frozen=True)
class ControlAudit(ControlFile):
    """The verdict on a sealed forecast, the outcome of each arm, and whether the mean return at the end lies in its
    interval (None where none was forecast)."""

    verdict: str
    reason: str
    seal: str
    arms: tuple[ArmOutcome, ...]
    final_held: bool | None
    missing: tuple[str, ...]

    SHOWN: ClassVar = ("kind", "exit_code")

    @property
    def exit_code(self) -> int:
        """The exit code: hit 0, miss 3, cannot tell 4."""
        return EXIT[self.verdict]


def audit_control(
    forecast: ControlForecast, curves: Sequence[ReturnCurve], seals: Mapping[str, str | None],
    changed: Sequence[str] = (),
) -> ControlAudit:
    """The audit of a sealed forecast by the runs that it names; `seals` is run name -> the seal in its run.json.

    Raises UserError if a run that it names has another seal or another arm.
    """
    plan, by = forecast.plan, {c.run: c for c in curves}
    arms = {PRESCRIBED: plan.arm, **plan.rivals}
    found: dict[str, list[ReturnCurve]] = {}
    missing: list[str] = []
    for name, runs in forecast.runs.items():
        for run in runs:
            if run not in by:
                missing.append(run)
                continue
            if seals.get(run) != forecast.seal:
                raise UserError(f"{run}: run.json does not have the seal {forecast.seal[:16]} of this forecast, so the "
                                "run was not trained under it and cannot be audited")
            if by[run].arm != arms[name]:
                raise UserError(f"{run} was run at {by[run].arm.label}; the forecast is of {arms[name].label}")
            found.setdefault(name, []).append(by[run])
    own = found.get(PRESCRIBED, [])
    outcomes = tuple(_outcome(name, arms[name], runs, own, forecast) for name, runs in found.items())
    verdict, reason = _verdict(forecast, own, missing)
    if changed:
        verdict, reason = "cannot tell", f"changed since it was sealed: {', '.join(changed)}"
    final = None if plan.final is None or not own else plan.final.holds(_final(own))
    return ControlAudit(verdict, reason, forecast.seal, outcomes, final, tuple(missing))


def _verdict(
    forecast: ControlForecast, runs: Sequence[ReturnCurve], missing: Sequence[str]
) -> tuple[str, str]:
    plan, i = forecast.plan, forecast.plan.arrival
    if i is None:
        return "cannot tell", f"nothing was forecast: {plan.refused}"
    if left := [m for m in missing if m in forecast.runs[PRESCRIBED]]:
        return "cannot tell", f"missing of the {counted(plan.seeds, 'run')} forecast: {', '.join(left)}"
    seen = arrivals(runs, plan.wanted)
    mean, _ = mean_arrival(seen, forecast.spread)
    value = exp(mean) if mean < 700 else float("inf")
    late = f"; {counted(round(seen.missed * len(runs)), 'run')} never arrived" if seen.missed else ""
    where = (f"{'never' if value == float('inf') else grouped(round(value))} samples to a return of {plan.wanted:g} "
             f"against the forecast {i.value:,.0f} [{i.low:,.0f}, {i.high:,.0f}]{late}")
    early = float((seen.side < 0).mean())
    if early > MISSED and value > i.low:
        return "cannot tell", f"{where}: too many had it at their first evaluation to read the outcome"
    if i.holds(value):
        if seen.missed > MISSED:
            return "cannot tell", f"{where}: too few arrived to read the outcome"
        return "hit", where
    return "miss", f"{where}: {'earlier' if value < i.low else 'later'} than the interval"


def _final(runs: Sequence[ReturnCurve]) -> float:
    return float(np.mean([levels(c)[-1] for c in runs]))


def _outcome(
    name: str, arm: Arm, runs: Sequence[ReturnCurve], own: Sequence[ReturnCurve], forecast: ControlForecast
) -> ArmOutcome:
    seen = arrivals(runs, forecast.plan.wanted)
    mean, _ = mean_arrival(seen, forecast.spread)
    ratio = None if name == PRESCRIBED or not own else ratio_of(runs, own, forecast.plan.wanted, forecast.spread)
    return ArmOutcome(name, arm, len(runs), int(seen.reached.sum()), None if mean == float("inf") else exp(mean),
                      _final(runs), ratio)


def ratio_of(
    runs: Sequence[ReturnCurve], others: Sequence[ReturnCurve], wanted: float, spread: float | None = None
) -> Interval | None:
    """Samples to a return over those of other runs: a ratio of geometric means with seeds censored, and its interval.

    Without a known `spread` the sd of ln T is that between the runs that arrive, pooled. None where one of the two
    never arrives.
    """
    a, b = arrivals(runs, wanted), arrivals(others, wanted)
    dof = max(len(runs) + len(others) - 2, 1)
    if spread is None:
        apart = [x.time[x.reached] - x.time[x.reached].mean() for x in (a, b) if x.reached.sum() > 1]
        spread = max(sqrt(float((np.concatenate(apart) ** 2).sum()) / max(sum(len(x) - 1 for x in apart), 1)), 1e-3) \
            if apart else log(2)
    (mean, error), (other, unsure) = mean_arrival(a, spread), mean_arrival(b, spread)
    if not np.isfinite([mean, other]).all():
        return None
    half = student(LEVEL, dof) * sqrt(error**2 + unsure**2)
    return exponential(Interval(mean - other, mean - other - half, mean - other + half, LEVEL, "confidence", dof))
