"""Budgets and costs: what may be spent, in the unit it was given in, and what a run costs in every unit.

A study's budget covers its pilot and training: every seed and arm, and rollouts that were lost. The profile is not in
it. Evaluations have an account of their own: they count in seconds, and so in hours and money, but not in rollouts,
tokens or FLOPs. A plan prints the costs outside the budget next to it.

There are four kinds of time. *Run time* is the active seconds of every run, added up; plans count in it. If W runs go
side by side, an hour of wall-clock time holds W run-hours. A machine of D devices is paid for D *device-hours* in every
hour of wall-clock time, used or not; *money* is their number times the price. So W run-hours = 1 wall-clock hour = D
device-hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite, log10
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from isocost import units
from isocost.disk.shape import Plain
from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.planner.token_price import TokenPrice
from isocost.screen.words import duration, grouped, megabytes
from isocost.units import (
    ASKED,
    CURRENCIES,
    DEVICE_HOURS,
    DEVICE_SECONDS,
    ENV_STEPS,
    FLOPS,
    ROLLOUTS,
    SECONDS,
    TOKENS,
    WALL,
    words,
)

_PRICE_HELP = "expected money per time, such as 2.5usd/device-hour, or 20usd/hour for the whole machine"
MEASURED = "measured on"
UNKNOWN = "not known"
_UPDATE_PRIOR = 0.01    # assumed seconds of an update in addition to its rollouts, until measured
_LEARN_PRIOR = 2.5      # assumed seconds of sampling and learning per second of sampling, until measured


@dataclass(frozen=True)
class Budget(Plain):
    """An amount in one unit; `asked` is the user's text, if the amount was converted to another unit for planning."""

    amount: float
    unit: str
    asked: str = ""

    def __post_init__(self) -> None:
        if self.unit not in ASKED:
            raise UserError(f"{self.unit!r} is not a unit of a budget; {units.HELP}")
        if not (isfinite(self.amount) and self.amount > 0):
            raise UserError(f"expected a finite budget above 0, got {self.amount:g} {self.unit}")

    @staticmethod
    def parse(text: str) -> Budget:
        """The budget in a text: `50k-rollouts`, `50,000 rollouts`, `2h`, `30m`, `90s`, `1d`, `2M-tokens`, `1e18flop`,
        `16 device-hours`, `20usd`.

        Raises UserError for a number without a unit, or an unknown unit.
        """
        return Budget(*units.amount(text))

    @property
    def as_asked(self) -> Budget:
        """The budget as the user wrote it, before conversion to a unit of plans."""
        return Budget.parse(self.asked) if self.asked else self

    def __str__(self) -> str:
        return self.asked or f"{grouped(self.amount)} {self.unit}"


def worded(budget: Budget, amount: float, *, up: bool = True) -> str:
    """An amount in a budget's unit as a user would write it, to three digits, rounded up so that it is enough."""
    asked = budget.as_asked
    unit, own = units.asked(asked.unit, amount / budget.amount * asked.amount)
    if unit == SECONDS and own >= 120:
        unit, own = ("hours", own / 3600) if own >= 7200 else ("minutes", own / 60)
    step = 10.0 ** (floor(log10(own)) - 2)
    return f"{grouped((ceil if up else round)(own / step) * step)} {unit}"


@dataclass(frozen=True)
class Machine(Plain):
    """The machine of a study: D devices, W runs side by side, and the price of a device-hour if known; `tokens` is the
    price of a service's tokens, which it has instead."""

    devices: int = 1
    side_by_side: int = 1
    price: float | None = None
    currency: str = ""
    tokens: str = ""

    LATER: ClassVar = ("tokens",)

    @staticmethod
    def priced(price: str | None, devices: int, side_by_side: int, model: str = "") -> Machine:
        """A machine with a price as a user writes it: `2.5usd/device-hour`, `2.5usd/gpu-hour`, `20usd/hour` for all
        devices, or one of tokens (`TokenPrice.parse`; `model` is its name in a file of prices).

        Raises UserError for a price that cannot be read.
        """
        if price is None:
            return Machine(devices, side_by_side)
        if TokenPrice.given(price):
            found = TokenPrice.parse(price, model)
            return Machine(devices, side_by_side, None, found.currency, found.asked)
        asked = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?) ?([A-Za-z]+) ?/ ?(device-|gpu-|)(?:hour|h)", price.strip())
        try:
            amount = float(asked[1]) if asked else float("nan")
        except ValueError:
            amount = float("nan")
        if not (asked and asked[2].lower() in CURRENCIES and isfinite(amount) and amount > 0):
            raise UserError(f"cannot read the price {price!r}; {_PRICE_HELP}; in {', '.join(CURRENCIES)}")
        return Machine(devices, side_by_side, amount if asked[3] else amount / devices, asked[2].lower())

    @property
    def worth(self) -> dict[str, dict[str, float]]:
        """What counts of a cost are worth, by unit, as `isocost.runs.stop_at.StopAt` takes them: time and money."""
        run = self.device_hours(3600.0)
        out = {SECONDS: {"seconds": 1 / self.side_by_side}, DEVICE_SECONDS: {"seconds": run}}
        if self.price is not None:
            out[self.currency] = {"seconds": run * self.price / 3600}
        if self.tokens:
            out[self.currency] = TokenPrice.parse(self.tokens).each
        return out

    def device_hours(self, run_seconds: float) -> float:
        """Device-hours of this run time: D / W for every run-hour."""
        return run_seconds / 3600 * self.devices / self.side_by_side

    def money(self, run_seconds: float) -> float | None:
        """The price of this run time; None if the price is not known."""
        return None if self.price is None else self.device_hours(run_seconds) * self.price

    def plannable(self, budget: Budget, asked: str = "", rollout: float | None = None) -> Budget:
        """A budget in a unit of plans: every kind of time, and money, are converted to seconds of run time; money that
        pays for tokens to rollouts, at the price of a `rollout`.

        Raises UserError for money without a price, or in another currency than the price.
        """
        unit, amount = budget.unit, budget.amount
        if unit in (ROLLOUTS, TOKENS, FLOPS, ENV_STEPS):
            return budget
        if unit in CURRENCIES:
            if self.price is None and not self.tokens:
                raise UserError(f"a budget of {budget} needs a --price; {_PRICE_HELP}")
            if unit != self.currency:
                raise UserError(f"the budget is in {unit} and the price in {self.currency}; give both in one currency")
            if self.price is None:
                if rollout is None:
                    raise UserError(f"a budget of {budget} at a price per token says no length of a run: give --budget "
                                    f"in rollouts, and --stop-at {budget.amount:g}{unit}")
                return Budget(amount / rollout, ROLLOUTS, asked or str(budget))
            amount, unit = amount / self.price * 3600, DEVICE_SECONDS
        wall = amount / self.devices if unit == DEVICE_SECONDS else amount
        return Budget(wall * self.side_by_side, SECONDS, asked or str(budget))

    def spend(self, asked: str | None, uncounted: Mapping[str, str], rollout: float | None = None) -> Budget | None:
        """A budget as a user writes it, in a unit of plans; None without one. `uncounted` is unit -> why it cannot be
        counted.

        Raises UserError, naming the units that can be counted, for a budget in another.
        """
        if asked is None:
            return None
        budget = Budget.parse(asked)
        paid = ROLLOUTS if self.tokens and budget.unit in CURRENCIES else SECONDS
        if why := uncounted.get(budget.unit if budget.unit in units.UNITS else paid):
            *most, last = (units.TABLE[unit].asked for unit in units.UNITS if unit not in uncounted)
            others = f"{', '.join(most)} or {last}" if most else last
            raise UserError(f"a budget of {budget} cannot be counted: {why}; give {others}, such as 50k-rollouts")
        return self.plannable(budget, asked.strip(), rollout)


@dataclass(frozen=True)
class Timing(Plain):
    """Seconds on this machine: start + M (update + problem B + rollout nB) + evaluation per evaluation.

    A small batch costs more per rollout, because every update costs `update` once. `start` are seconds of a run outside
    of its updates and evaluations, such as the start of a user's trainer.
    """

    update: float
    problem: float
    rollout: float
    evaluation: float
    source: str
    start: float = 0.0

    LATER: ClassVar = ("start",)

    @property
    def measured(self) -> bool:
        """Whether runs were timed, rather than only the profile's sampling."""
        return self.source.startswith(MEASURED)

    @property
    def known(self) -> bool:
        """Whether anything is known of the time that a run takes; if not, every number of it is 0."""
        return not self.source.startswith(UNKNOWN)

    def seconds(self, n: int, B: int, C: float, evaluations: int = 0) -> float:
        """Active seconds of a run of C rollouts, n per problem and B problems per update."""
        steps = C / (n * B)
        each = self.update + self.problem * B + self.rollout * n * B
        return self.start + steps * each + self.evaluation * evaluations

    def per_rollout(self, n: int, B: int) -> float:
        """Seconds per rollout, without evaluations and start."""
        return self.seconds(n, B, 1.0) - self.start


UNTIMED = Timing(0.0, 0.0, 0.0, 0.0, f"{UNKNOWN}: nothing was sampled or trained on the machine that will train")


def expected_timing(profile: Mapping[str, Any], held_out: int, samples: int | None) -> Timing:
    """The expected timing before anything is trained, from the profile's sampling rate and two assumed constants."""
    rate = float((profile.get("rate") or {}).get("rollouts_per_second") or 0.0)
    if not rate > 0:
        raise UserError("the profile has no rate.rollouts_per_second, so a plan cannot compute its time")
    evaluation = held_out * (samples or 1) / rate
    return Timing(_UPDATE_PRIOR, 0.0, _LEARN_PRIOR / rate, evaluation, "expected from the profile's sampling rate")


def measure_timing(curves: Sequence[Curve], otherwise: Timing) -> Timing:
    """The timing of the runs so far: non-negative least squares on the stretches between evaluations.

    A stretch takes steps x (update + problem B + rollout nB) + one evaluation. Errors are relative to its expected
    time, not to its measured time, which would give slow stretches less weight. Terms that the runs do not identify are
    merged: `problem` into `update` if all have one B, `update` into `rollout` if all have one nB. With fewer than four
    timed stretches the result is `otherwise`, whose `start` is kept in any case.
    """
    stretches = np.array([s for c in curves for s in _stretches(c)])
    if len(stretches) < 4:
        return otherwise
    steps, n, B, seconds = stretches.T
    sizes, varied = len(np.unique(n * B)) > 1, len(np.unique(B)) > 1
    columns = np.stack([steps * sizes, steps * B * varied, steps * n * B, np.ones_like(steps)], 1)
    found = least_relative(columns, seconds, 1e-3)
    if not found[:3].sum() > 0:
        return otherwise
    update, problem, rollout, evaluation = (float(f"{x:.4g}") for x in found)
    return Timing(update, problem, rollout, evaluation, f"{MEASURED} {len(stretches)} stretches of runs here",
                  otherwise.start)


def least_relative(columns: ndarray, amounts: ndarray, least: float) -> ndarray:
    """The factors (K,) >= 0 of `columns` (N, K) that explain `amounts` (N,), by least squares of relative errors.

    An error is relative to the expected amount, at least `least`, in ten rounds from the mean.
    """
    from scipy.optimize import nnls  # here: importing it takes longer than most commands

    expected = np.full(len(amounts), amounts.mean())
    for _ in range(10):
        weight = 1 / np.maximum(expected, least)
        found, _ = nnls(columns * weight[:, None], amounts * weight)
        expected = columns @ found
    return found


def _stretches(c: Curve) -> Iterable[tuple[float, int, int, float]]:
    """(steps, n, B, seconds) between consecutive timed evaluations."""
    for dC, ds in zip(np.diff(c.C), np.diff(c.seconds), strict=True):
        if np.isfinite(ds) and ds > 0 and dC > 0:
            yield float(dC / (c.arm["n"] * c.arm["B"])), c.arm["n"], c.arm["B"], float(ds)


@dataclass(frozen=True)
class Usage(Plain):
    """The cost of some runs: training rollouts and tokens, FLOPs, seconds with evaluations, memory and disk."""

    rollouts: int
    tokens: float            # decoded, in training
    flops: float | None      # None if the model's size is not known
    seconds: float
    evaluations: int
    memory_mb: float | None  # weights, gradient, moments, reference; long rollouts need more
    disk_mb: float | None
    env_steps: float = 0.0   # in training

    LATER: ClassVar = ("env_steps",)

    def of_unit(self, unit: str) -> float:
        """The amount in a budget's unit. Raises UserError if FLOPs are not known, or no environment is stepped."""
        amount = {ROLLOUTS: self.rollouts, TOKENS: self.tokens, FLOPS: self.flops, SECONDS: self.seconds,
                  ENV_STEPS: self.env_steps}[unit]
        if amount is None:
            raise UserError("a budget in FLOPs needs the model's number of parameters; give rollouts, tokens or time")
        if unit == ENV_STEPS and self.rollouts and not amount:
            raise UserError("a budget in env-steps needs an environment (--env): these problems are one question and "
                            "one answer; give rollouts, tokens or time")
        return float(amount)

    def __add__(self, other: Usage) -> Usage:
        def both(a: float | None, b: float | None, join: Any) -> float | None:
            return None if a is None or b is None else join(a, b)

        return Usage(
            self.rollouts + other.rollouts, self.tokens + other.tokens,
            both(self.flops, other.flops, float.__add__), self.seconds + other.seconds,
            self.evaluations + other.evaluations, both(self.memory_mb, other.memory_mb, max),
            both(self.disk_mb, other.disk_mb, float.__add__), self.env_steps + other.env_steps,
        )

    def times(self, share: float) -> Usage:
        """A share of this bill, in whole rollouts and evaluations; memory is that of a run."""
        return replace(
            self, rollouts=round(share * self.rollouts), tokens=share * self.tokens,
            flops=None if self.flops is None else share * self.flops, seconds=share * self.seconds,
            evaluations=round(share * self.evaluations),
            disk_mb=None if self.disk_mb is None else share * self.disk_mb, env_steps=share * self.env_steps,
        )

    def text(self, unit: str = ROLLOUTS, *, costs: bool = True) -> str:
        """What runs cost, in words, where C counts `unit`; what is not known is left out, and without `costs` what a
        bill says."""
        return ", ".join((
            f"{self.rollouts:,} {unit}",
            *([f"{duration(self.seconds)} of run time"] if self.seconds and costs else []),
            *([f"{self.flops:.1e} {words(FLOPS)}"] if self.flops and costs else []),
            *([f"{megabytes(self.memory_mb)} of memory a run"] if self.memory_mb else []),
            *([f"{megabytes(self.disk_mb)} of disk"] if self.disk_mb else []),
        ))


_COUNTS = ("prefill", "decode", "reread", "env_steps")      # of an account's bill


@dataclass(frozen=True)
class Prices(Plain):
    """The cost of one rollout of this problem set, except seconds, from a profile."""

    prefill: float                  # tokens read for the first time
    decode: float                   # tokens written
    parameters: float | None        # of the model
    score: float = 0.0              # tokens through a forward pass without gradient, such as a reference's
    train: float | None = None      # tokens trained; None: every token read or written, once
    learned: int | None = None      # of the parameters; None: all of them
    env_steps: float = 0.0          # turns that an environment answered

    LATER: ClassVar = ("env_steps",)

    @staticmethod
    def of_profile(profile: Mapping[str, Any], parameters: float | None = None, compares: bool | None = None) -> Prices:
        """From the profile's bill, else its mean length. A recipe that `compares` has a reference score every token."""
        if parameters is None:
            parameters = profile.get("parameters")
        cost = profile.get("cost") or {}
        rollouts = cost.get("rollouts") or 0
        read, written, again, steps = (cost.get(k, 0) / rollouts if rollouts else 0.0 for k in _COUNTS)
        read -= again
        if not rollouts:
            lengths = profile.get("lengths") or {}
            read, written = (float(lengths.get(k) or 0.0) for k in ("prompt", "mean"))
        if compares is None:
            compares = bool((profile.get("recipe") or {}).get("compares"))
        return Prices(read, written, parameters, (read + written) * compares, learned=profile.get("learned") or None,
                      env_steps=steps)

    def measured(self, bills: Sequence[Mapping[str, float]]) -> Prices:
        """The prices measured by the training accounts of runs (`rollouts` and tokens); unchanged without any."""
        rollouts = sum(b.get("rollouts", 0) for b in bills)
        if not rollouts:
            return self
        keys = (*_COUNTS, "score", "train")
        read, written, again, steps, scored, trained = (sum(b.get(k, 0) for b in bills) / rollouts for k in keys)
        train = trained if any("train" in b for b in bills) else None
        return replace(self, prefill=read - again, decode=written, score=scored, train=train, env_steps=steps)

    def sampling(self, rollouts: float, seconds: float) -> Usage:
        """The bill of rollouts that are sampled but not trained on, such as those of evaluations."""
        flops = None if self.parameters is None else 2 * self.parameters * rollouts * (self.prefill + self.decode)
        return Usage(int(rollouts), self.decode * rollouts, flops, seconds, 0, None, None, self.env_steps * rollouts)

    def bill(self, sizes: Iterable[tuple[int, int, int, int]], timing: Timing) -> Usage:
        """The bill of runs given as (n, B, C, evaluations)."""
        sizes = list(sizes)
        rollouts = sum(C for _, _, C, _ in sizes)
        evaluations = sum(e for *_, e in sizes)
        seconds = sum(timing.seconds(n, B, C, e) for n, B, C, e in sizes)
        tokens, steps, p = self.decode * rollouts, self.env_steps * rollouts, self.parameters
        if p is None:
            return Usage(rollouts, tokens, None, seconds, evaluations, None, None, steps)
        sampled = self.prefill + self.decode
        trained = sampled if self.train is None else self.train
        own = p if self.learned is None else self.learned
        flops = rollouts * (2 * p * (sampled + self.score) + (4 * p + 2 * own) * trained)     # as `Cost.flops`
        memory = 500 + 5 * 4 * p / 1e6                                # the program; five numbers per parameter
        disk = (len(sizes) * 28 * p + 400 * rollouts) / 1e6           # two checkpoints and a final folder; the journal
        return Usage(rollouts, tokens, flops, seconds, evaluations, memory, disk, steps)


@dataclass(frozen=True)
class Amounts(Plain):
    """The cost in one unit: of pilot, of training, and the whole budget if spent in the planned proportions.

    `known` is "asked" for the budget's unit, else how the row follows from the planned rollouts: "planned", "measured",
    "assumed", "derived" or "priced"; `why` names the source.
    """

    unit: str
    pilot: float
    training: float
    budget: float | None
    known: str
    why: str


def in_every_unit(
    pilot: Usage, training: Usage, budget: Budget | None, machine: Machine, timing: Timing, lengths: str
) -> tuple[Amounts, ...]:
    """A study's cost in every unit; `lengths` says where tokens per rollout were measured.

    The budget in other units is the plan's mix of pilot and training, scaled to spend all of it; at another n the same
    hours would be another number of rollouts. FLOPs are left out if the model's size is not known, money without a
    price.
    """
    W, D, run = machine.side_by_side, machine.devices, (pilot.seconds, training.seconds)
    hours = (machine.device_hours(run[0]), machine.device_hours(run[1]))
    rows: list[tuple[str, tuple[float, float], str, str]] = [
        (ROLLOUTS, (pilot.rollouts, training.rollouts), "planned", "started for training"),
        (TOKENS, (pilot.tokens, training.tokens), "measured", f"mean length of answers in {lengths}"),
        (SECONDS, run, "measured" if timing.measured else "derived" if timing.source.startswith("derived") else
         "assumed", f"run time, {timing.source}"),
        (WALL, (run[0] / W, run[1] / W), "assumed", f"runs side by side throughout: {W}"),
        (DEVICE_HOURS, hours, "derived", f"devices for every hour on the wall: {D}"),
    ]
    if pilot.flops is not None and training.flops is not None:
        why = "2P a token read, written or scored, 6P a token trained"
        rows.insert(2, (FLOPS, (pilot.flops, training.flops), "derived", why))
    if pilot.env_steps + training.env_steps:
        turns = (pilot.env_steps, training.env_steps)
        rows.insert(1, (ENV_STEPS, turns, "measured", f"mean turns in {lengths}"))
    if machine.price is not None:
        money = (hours[0] * machine.price, hours[1] * machine.price)
        rows.append((machine.currency, money, "priced", f"{machine.price:g} {machine.currency} a device-hour"))
    if machine.tokens:
        rows = [row for row in rows if row[0] != DEVICE_HOURS]
    if not timing.known:
        rows = [row for row in rows if row[0] in (ROLLOUTS, TOKENS, FLOPS, ENV_STEPS)]
    if not any(both[0] + both[1] for unit, both, _, _ in rows if unit == TOKENS):
        rows = [row for row in rows if row[0] not in (TOKENS, FLOPS)]      # no completion's tokens were counted
    whole = {unit: sum(both) for unit, both, _, _ in rows}
    scale = budget.amount / whole[budget.unit] if budget and whole.get(budget.unit) else None
    own = _row_of(budget)
    return tuple(
        Amounts(unit, float(both[0]), float(both[1]), None if scale is None else scale * whole[unit],
             "asked" if unit == own else known, f"{budget}" if unit == own else why)
        for unit, both, known, why in rows
    )


def _row_of(budget: Budget | None) -> str | None:
    """The unit that a budget was given in, as a row's name."""
    if budget is None or not budget.asked:
        return budget.unit if budget else None
    return row_of(budget.as_asked.unit)


def row_of(unit: str) -> str:
    """The row of a unit in which a budget was given: seconds are wall-clock time, device-seconds are device-hours."""
    return {SECONDS: WALL, DEVICE_SECONDS: DEVICE_HOURS}.get(unit, unit)
