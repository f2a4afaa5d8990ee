"""The prescription of control: updates per sample, batch and rate for a wanted return at least cost, or the best return
for a cost; and the reasons for which none is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from isocost.disk.shape import Count, Plain, Size
from isocost.errors import UserError
from isocost.laws.papers.value import rounded
from isocost.laws.value_fit import (
    AXES,
    DECIDED,
    LEVEL,
    MISSED,
    OFFLINE,
    SIGMA,
    WIDEST,
    ControlLaw,
    ControlPrice,
    ReturnCurve,
    arrivals,
    exponential,
    fit_control,
)
from isocost.planner.control.curves import levels
from isocost.planner.control.pilot import COUNT, ControlFile, SigmaArm
from isocost.runs.arm import Arm
from isocost.screen.words import grouped
from isocost.stats.intervals import Interval, student

RETURNS = 8             # returns that a law is fitted to, from a fifth to the top of what the pilot reached
USUAL = 0.3             # without a wanted return: the largest that at most this share of the pilot's runs missed
ROOM = 1.25             # the samples of a prescribed run, over the upper end of its interval
NEAR = 2.0              # runs whose clock is at most this factor apart foretell a return
WORDS: Mapping[str, tuple[str, str, Callable[[float], str]]] = {
    SIGMA: ("sigma", "updates per sample", "sigma {:g}".format),
    OFFLINE: ("number of offline updates", "offline updates", "{:g} offline updates".format)}


@dataclass(frozen=True)
class ReturnLaw(Plain):
    """The law of one return, in numbers: `samples` at each sigma that was run, the power law, and the slopes. `over`
    says what `sigmas` are: updates per sample, or offline updates, whose law is exponential (`laws.value_fit`)."""

    wanted: float
    missed: float
    sigmas: tuple[float, ...]
    samples: tuple[Interval, ...]
    floor: float
    exponent: float
    falls: float
    spread: tuple[float, ...]
    slopes: Mapping[str, Interval | None]
    over: str = SIGMA

    LATER: ClassVar = ("over",)


@dataclass(frozen=True)
class ControlLaws(ControlFile):
    """The laws of several returns, from the least; `dropped` are returns without one, each with the reason."""

    laws: tuple[ReturnLaw, ...]
    dropped: tuple[tuple[float, str], ...]
    runs: Count


def summary(law: ControlLaw) -> ReturnLaw:
    """The numbers of a law."""
    at = [exponential(law.interval(law.least[:, i])) for i in range(len(law.sigmas))]
    return ReturnLaw(law.wanted, law.missed, tuple(map(float, law.sigmas)), tuple(at), float(law.floor[0]),
                     float(law.exponent[0]), law.falls(), tuple(map(float, law.sd)),
                     {axis: law.slope(axis) for axis in AXES}, law.over)


def returns_of(curves: Sequence[ReturnCurve]) -> list[float]:
    """Returns to fit, equally far apart: from a fifth of the way between start and top up to the top, which half of
    the runs reach."""
    ends = np.array([levels(c)[-1] for c in curves])
    start = float(np.median([levels(c)[0] for c in curves]))
    top = float(np.quantile(ends, MISSED))
    return list(dict.fromkeys(float(f"{start + (top - start) * k:.4g}") for k in np.linspace(0.2, 1.0, RETURNS)))


def fit_returns(curves: Sequence[ReturnCurve], wanted: float | None = None) -> tuple[list[ControlLaw], ControlLaws]:
    """The laws of `returns_of` these curves, or of the one that is wanted."""
    found, dropped = [], []
    for value in returns_of(curves) if wanted is None else [wanted]:
        try:
            found.append(fit_control(curves, value))
        except UserError as why:
            dropped.append((value, str(why)))
    return found, ControlLaws(tuple(map(summary, found)), tuple(dropped), len(curves))


def unidentified(law: ControlLaw, price: ControlPrice | None) -> str:
    """Why a law prescribes nothing; empty if it does. Without a price only the law itself is asked."""
    name, rise, at_value = WORDS[law.over]
    if not law.scale[0] > 0 or law.falls() < DECIDED:
        return (f"samples to {law.wanted:g} fall as {rise} rise in {law.falls():.0%} of the draws, and "
                f"{DECIDED:.0%} are needed. Add seeds, or a larger {name}")
    if price is None or not price.chosen(law.over):
        return ""
    best = law.cheapest(price)
    for end, at, factor in (("largest", law.sigmas[-1], 2.0), ("smallest", law.sigmas[0], 0.5)):
        if (best.value / at - 1) * (factor - 1) > 0 and abs(np.log(best.value / at)) > 0.95 * np.log(2):
            return (f"the cheapest {name} lies beyond the {end} that was run, {at:g}: run "
                    f"{at_value(at * factor * factor)} too")
    if best.high > WIDEST * best.low:
        return (f"the cheapest {name} is {best.value:.2g} [{best.low:.2g}, {best.high:.2g}], ends more than a factor "
                f"{WIDEST:g} apart. Add seeds, or values{' of sigma' * (law.over == SIGMA)} further apart")
    for axis in AXES:
        if side := law.outside(axis, best.value):
            edge = law.axes[axis]
            value = np.exp(edge.low if side == "below" else edge.high) if edge else 0.0
            return (f"the best {axis} at {name} {best.value:.2g} is at the edge of the grid, {side} {value:.3g}: run a "
                    f"{'smaller' if side == 'below' else 'larger'} one")
    return ""


@dataclass(frozen=True)
class ControlPlan(ControlFile):
    """A prescription: `arm` for `samples` samples and `seeds` seeds, to reach `wanted`.

    `sigma` is the cheapest with its interval (on a set, the cheapest number of offline updates), None where updates
    cost nothing or nothing is identified; `arrival` the prediction interval of the geometric mean of samples to
    `wanted` of so many new runs, and `final` that of their mean return at the end; both None if `refused` says why
    nothing is forecast. `cost` is that of one run in `unit`, and `rivals` are the arms that it is trained against, by
    name.
    """

    wanted: float
    unit: str
    arm: SigmaArm
    samples: Count
    seeds: Size
    sigma: Interval | None
    arrival: Interval | None
    final: Interval | None
    cost: float
    budget: float | None
    rivals: Mapping[str, SigmaArm]
    refused: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    """What a plan is asked for: a return (by default the largest that is well reached), at a price, for so many seeds,
    and what is left to spend on them in the unit of the price; `default` is the method's own arm."""

    price: ControlPrice
    wanted: float | None = None
    left: float | None = None
    seeds: int = COUNT
    default: Arm | None = None


def prescribe_control(curves: Sequence[ReturnCurve], wish: Wish) -> ControlPlan:
    """The prescription for a wish, from the pilot's curves.

    Raises UserError for a wanted return without a law, and where no return that has one is paid for.
    """
    found, told = fit_returns(curves, wish.wanted)
    if not found:
        raise UserError(f"no law to plan by: {told.dropped[-1][1] if told.dropped else 'there are no runs'}")
    plans = [_for(curves, law, wish) for law in found]
    able = [p for p in plans if not p.refused] or plans
    if wish.left is not None:
        paid = [p for p in able if p.cost * wish.seeds <= wish.left]
        if not paid:
            least = min(able, key=lambda p: p.cost)
            raise UserError(f"{grouped(round(wish.left, 3))} {wish.price.unit} are left for training, and {wish.seeds} "
                            f"runs to a return of {least.wanted:g} take {grouped(round(least.cost * wish.seeds, 3))}: "
                            "raise the budget, or lower --train-seeds")
        if wish.wanted is None:
            return max(paid, key=lambda p: p.wanted)
        return paid[-1]
    if wish.wanted is None:
        usual = {law.wanted for law in found if law.missed <= USUAL}
        return max([p for p in able if p.wanted in usual] or able[:1], key=lambda p: p.wanted)
    return plans[0]


def _for(curves: Sequence[ReturnCurve], law: ControlLaw, wish: Wish) -> ControlPlan:
    refused, price = unidentified(law, wish.price), wish.price
    best = pilot_best(curves, law.wanted)
    rivals = {"the pilot's best": best}
    if law.over == SIGMA and wish.default:
        rivals["the method's default"] = wish.default
    if law.over == OFFLINE and best[OFFLINE] < (most := max(c.arm[OFFLINE] for c in curves)):
        rivals["the most offline updates"] = best.but(offline=int(most))
    longest = int(max(c.samples[-1] for c in curves))
    if refused:
        cost = price.run(best, longest)
        return ControlPlan(law.wanted, price.unit, best, longest, wish.seeds, None, None, None, cost, wish.left,
                           {k: v for k, v in rivals.items() if v != best}, refused, ())
    costs, varied = price.chosen(law.over), law.over == SIGMA
    sigma = law.cheapest(price) if costs else None
    value = float(f"{sigma.value:.2g}") if sigma else float(law.sigmas[-1])
    arm = best.but(sigma=value, batch=rounded(float(law.best("batch", value))),
                   rate=float(f"{float(law.best('rate', value)):.2g}")) if varied else best.but(offline=int(value))
    arrival = law.forecast(arm, wish.seeds)
    alone = law.forecast(arm, 1)
    samples = int(np.ceil(alone.high * ROOM))
    flags = []
    if not costs:
        flags.append(f"updates cost nothing in this unit, so the largest {WORDS[law.over][0]} that was run is taken; a "
                     "budget in time, money or FLOP finds the cheapest")
    for axis in AXES if varied else ():
        if law.slope(axis) is None:
            flags.append(f"the best {axis} is not identified as a line in sigma: {axis} {arm[axis]:g} is kept")
    flags += [f"{WORDS[law.over][2](value)} lies outside the {law.sigmas[0]:g} to {law.sigmas[-1]:g} that were run"] * (
        not law.sigmas[0] <= value <= law.sigmas[-1])
    plan = ControlPlan(law.wanted, price.unit, arm, samples, wish.seeds, sigma, arrival, None,
                       price.run(arm, samples), wish.left,
                       {k: v for k, v in rivals.items() if v != arm}, "", tuple(flags))
    return replace(plan, final=return_at(curves, law, arm, samples, wish.seeds))


def pilot_best(curves: Sequence[ReturnCurve], wanted: float) -> Arm:
    """The pilot's setting whose seeds reach the return first, by their geometric mean; a seed that never does counts
    with twice its last sample, the convention of a sweep that has no better one."""
    seen = arrivals(curves, wanted)
    times = np.where(seen.reached, seen.time, seen.time + np.log(2))
    by: dict[Arm, list[float]] = {}
    for c, t in zip(curves, times, strict=True):
        by.setdefault(c.arm, []).append(float(t))
    return min(sorted(by), key=lambda arm: float(np.mean(by[arm])))


def return_at(
    curves: Sequence[ReturnCurve], law: ControlLaw, arm: Arm, samples: float, seeds: int
) -> Interval | None:
    """The mean return of so many new runs of an arm after so many samples, as a prediction interval.

    Each pilot run is read at the time that is as far in it: its clock runs T(arm) / T(its own) as fast. Only runs whose
    clocks are within a factor `NEAR`, and that are long enough, are read; None with fewer than three.
    """
    here = law.to_reach(arm)
    read, moved = [], []
    for c in curves:
        shift = here - law.to_reach(c.arm)
        at = samples / np.exp(shift)
        if abs(shift[0]) <= np.log(NEAR) and at[0] <= c.samples[-1] * 1.0001:
            level = levels(c)
            read.append(float(np.interp(at[0], c.samples, level)))
            moved.append(np.interp(at[1:], c.samples, level))
    if len(read) < 3:
        return None
    value, dof = float(np.mean(read)), len(read) - 1.0
    between = float(np.var(read, ddof=1)) * (1 / seeds + 1 / len(read)) + float(np.mean(moved, axis=0).var())
    half = student(LEVEL, dof) * float(np.sqrt(between))
    return Interval(value, value - half, value + half, LEVEL, "prediction", dof)
