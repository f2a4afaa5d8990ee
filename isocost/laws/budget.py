"""What may be spent, in the unit it was given in, and what a run costs in each of them.

A study's budget is everything it may spend: pilot, training, every seed and arm. Evaluations have an account of
their own: they count in seconds, and never in rollouts, tokens or FLOPs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
from scipy.optimize import nnls

from isocost.errors import UserError
from isocost.laws.table import Curve

UNITS = ("rollouts", "seconds", "tokens", "flops")
_WORDS = {
    "rollout": ("rollouts", 1), "rollouts": ("rollouts", 1),
    "token": ("tokens", 1), "tokens": ("tokens", 1),
    "flop": ("flops", 1), "flops": ("flops", 1),
    "s": ("seconds", 1), "sec": ("seconds", 1), "seconds": ("seconds", 1),
    "min": ("seconds", 60), "minutes": ("seconds", 60),
    "h": ("seconds", 3600), "hours": ("seconds", 3600), "d": ("seconds", 86400), "days": ("seconds", 86400),
}
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_HELP = "a budget carries a unit: 50k-rollouts, 2h, 30min, 90s, 2M-tokens or 1e18flop"
_UPDATE_PRIOR = 0.01    # seconds an update takes beside its rollouts, until measured
_LEARN_PRIOR = 2.5      # seconds of sampling and learning per second of sampling alone, until measured


@dataclass(frozen=True)
class Budget:
    """An amount of one unit: rollouts, seconds, (decoded) tokens or FLOPs."""

    amount: float
    unit: str

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UserError(f"{self.unit!r} is no unit of a budget: {_HELP}")
        if not (isfinite(self.amount) and self.amount > 0):
            raise UserError(f"a budget must be more than nothing, not {self.amount:g} {self.unit}")

    @staticmethod
    def parse(text: str) -> Budget:
        """Reads `50k-rollouts`, `2h`, `30min`, `2M-tokens`, `1e18flop`.

        Raises:
            UserError: for a bare number or an unknown unit; the message lists what would be right.
        """
        found = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([kMGBT]?)[-_ ]?([A-Za-z]*)", text.strip())
        if not found:
            raise UserError(f"cannot read the budget {text!r}: {_HELP}")
        number, scale, word = found.groups()
        try:
            amount = float(number) * _SCALE[scale]
        except ValueError:
            raise UserError(f"cannot read the number in {text!r}: {_HELP}") from None
        if not word:
            raise UserError(f"{text!r} has no unit: {_HELP}")
        if word.lower() not in _WORDS:
            raise UserError(f"{word!r} is no unit of a budget: {_HELP}")
        unit, factor = _WORDS[word.lower()]
        return Budget(amount * factor, unit)

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Budget:
        """The budget that `data()` wrote."""
        return Budget(**data)


@dataclass(frozen=True)
class Timing:
    """Seconds on this machine: M (update + problem B + rollout nB) + evaluation per evaluation.

    Small batches are dearer per rollout, since every update pays `update` once; so a plan counts seconds too.
    """

    update: float
    problem: float
    rollout: float
    evaluation: float
    source: str

    def seconds(self, n: int, B: int, C: float, evaluations: int = 0) -> float:
        """Active seconds of a run of C rollouts, n per problem and B problems per update."""
        steps = C / (n * B)
        return steps * (self.update + self.problem * B + self.rollout * n * B) + self.evaluation * evaluations

    def per_rollout(self, n: int, B: int) -> float:
        """Seconds per rollout, evaluations apart."""
        return self.seconds(n, B, 1.0)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Timing:
        """The timing that `data()` wrote."""
        return Timing(**data)


def expected_timing(profile: Mapping[str, Any], held_out: int, samples: int | None) -> Timing:
    """Seconds before anything was trained: from the profile's sampling rate and two assumed constants."""
    rate = float((profile.get("rate") or {}).get("rollouts_per_second") or 0.0)
    if not rate > 0:
        raise UserError("the profile has no rate.rollouts_per_second, so a plan cannot say how long it takes")
    evaluation = held_out * (samples or 1) / rate
    return Timing(_UPDATE_PRIOR, 0.0, _LEARN_PRIOR / rate, evaluation, "expected from the profile's sampling rate")


def measure_timing(curves: Sequence[Curve], otherwise: Timing) -> Timing:
    """Seconds as the runs so far took them: non-negative least squares on the stretches between evaluations.

    A stretch took steps x (update + problem B + rollout nB) + one evaluation; errors count in proportion to its
    length. What the runs do not separate (`problem`, when all had one B) stays in `update`. Fewer than four timed
    stretches, one batch size only, or rollouts that would come out free, give `otherwise`.
    """
    stretches = np.array([s for c in curves for s in _stretches(c)])
    if len(stretches) < 4:
        return otherwise
    steps, n, B, seconds = stretches.T
    if len(np.unique(n * B)) < 2:
        return otherwise
    varied = len(np.unique(B)) > 1
    columns = np.stack([steps, steps * B * varied, steps * n * B, np.ones_like(steps)], 1)
    weight = 1 / np.maximum(seconds, 1e-3)
    found, _ = nnls(columns * weight[:, None], seconds * weight)
    if not found[2] > 0:
        return otherwise
    update, problem, rollout, evaluation = (float(f"{x:.4g}") for x in found)
    return Timing(update, problem, rollout, evaluation, f"measured on {len(stretches)} stretches of runs here")


def _stretches(c: Curve) -> Iterable[tuple[float, int, int, float]]:
    """(steps, n, B, seconds) between neighbouring evaluations that were timed."""
    for dC, ds in zip(np.diff(c.C), np.diff(c.seconds), strict=True):
        if np.isfinite(ds) and ds > 0 and dC > 0:
            yield float(dC / (c.n * c.B)), c.n, c.B, float(ds)


@dataclass(frozen=True)
class Bill:
    """What some runs cost: in training rollouts and tokens, FLOPs, seconds with evaluations, memory and disk."""

    rollouts: int
    tokens: float            # decoded, in training
    flops: float | None      # None where the model's size is not known
    seconds: float
    evaluations: int
    memory_mb: float | None  # weights, gradient, moments, reference: what long rollouts need comes on top
    disk_mb: float | None

    def of_unit(self, unit: str) -> float:
        """The amount in a budget's unit. Raises UserError where FLOPs cannot be known."""
        amount = {"rollouts": self.rollouts, "tokens": self.tokens, "flops": self.flops, "seconds": self.seconds}[unit]
        if amount is None:
            raise UserError("a budget in FLOPs needs the model's number of parameters; give rollouts, tokens or time")
        return float(amount)

    def __add__(self, other: Bill) -> Bill:
        def both(a: float | None, b: float | None, join: Any) -> float | None:
            return None if a is None or b is None else join(a, b)

        return Bill(
            self.rollouts + other.rollouts, self.tokens + other.tokens,
            both(self.flops, other.flops, float.__add__), self.seconds + other.seconds,
            self.evaluations + other.evaluations, both(self.memory_mb, other.memory_mb, max),
            both(self.disk_mb, other.disk_mb, float.__add__),
        )

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Bill:
        """The bill that `data()` wrote."""
        return Bill(**data)


@dataclass(frozen=True)
class Prices:
    """What one rollout of this problem set costs beside seconds, from a profile."""

    prefill: float              # tokens read
    decode: float               # tokens written
    parameters: float | None    # of the model

    @staticmethod
    def of(profile: Mapping[str, Any], parameters: float | None = None) -> Prices:
        """From the profile's bill, or from its mean length where it kept none."""
        if parameters is None:
            parameters = profile.get("parameters")
        cost = profile.get("cost") or {}
        begun = cost.get("rollouts") or 0
        if begun:
            return Prices(cost.get("prefill", 0) / begun, cost.get("decode", 0) / begun, parameters)
        return Prices(0.0, float((profile.get("lengths") or {}).get("mean", 0.0)), parameters)

    def bill(self, sizes: Iterable[tuple[int, int, int, int]], timing: Timing) -> Bill:
        """The bill of runs given as (n, B, C, evaluations)."""
        sizes = list(sizes)
        rollouts = sum(C for _, _, C, _ in sizes)
        evaluations = sum(e for *_, e in sizes)
        seconds = sum(timing.seconds(n, B, C, e) for n, B, C, e in sizes)
        tokens, p = self.decode * rollouts, self.parameters
        if p is None:
            return Bill(rollouts, tokens, None, seconds, evaluations, None, None)
        read = self.prefill + self.decode
        flops = rollouts * (2 * p * read + 6 * p * read)              # sampled once, trained once
        memory = 500 + 5 * 4 * p / 1e6                                # the program; five numbers per parameter
        disk = (len(sizes) * 28 * p + 400 * rollouts) / 1e6           # two checkpoints and a final folder; the journal
        return Bill(rollouts, tokens, flops, seconds, evaluations, memory, disk)
