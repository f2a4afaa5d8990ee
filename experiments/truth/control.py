"""Simulated sweeps of value-based runs, with a planted law of samples, batch and rate.

A run's return rises as 1 - exp(-t / tau), so that it reaches J when t = T_J, with ln T_J normal about the law; it is
evaluated at equally spaced samples, with noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocost.laws.papers.value import DataLaw
from isocost.laws.value_fit import ReturnCurve
from isocost.runs.arm import Arm


@dataclass(frozen=True)
class OfflineLaw:
    """Samples after x offline updates: floor + scale exp(-x / fold)."""

    floor: float
    scale: float
    fold: float

    def __call__(self, x: np.ndarray | float) -> np.ndarray:
        return np.asarray(self.floor + self.scale * np.exp(-np.asarray(x) / self.fold))


@dataclass(frozen=True)
class PlantedControl:
    """ln T_J = ln law(sigma) + curves[0] ln^2(B / B*) + curves[1] ln^2(rate / rate*), sd `spread` between seeds.

    The best batch is batch[0] sigma^batch[1], the best rate rate[0] sigma^rate[1].
    """

    law: DataLaw | OfflineLaw
    batch: tuple[float, float]
    rate: tuple[float, float]
    curves: tuple[float, float] = (0.15, 0.25)
    spread: float = 0.25
    wanted: float = 0.7
    noise: float = 0.01
    task: str = ""
    points: int = 60

    def best(self, sigma: float) -> tuple[float, float]:
        """The best batch and rate at a sigma."""
        return self.batch[0] * sigma ** self.batch[1], self.rate[0] * sigma ** self.rate[1]

    def mean(self, arm: Arm) -> float:
        """E ln T_J of an arm."""
        batch, rate = self.best(arm["sigma"])
        off = self.curves[0] * np.log(arm["batch"] / batch) ** 2 + self.curves[1] * np.log(arm["rate"] / rate) ** 2
        return float(np.log(self.law(arm["sigma"])) + off)

    def run(self, arm: Arm, seed: int, samples: float, rng: np.random.Generator) -> ReturnCurve:
        """A run of so many samples."""
        points = self.points
        arrives = np.exp(self.mean(arm) + self.spread * rng.standard_normal())
        at = np.linspace(samples / points, samples, points)
        seen = 1 - np.exp(np.log(1 - self.wanted) * at / arrives) + self.noise * rng.standard_normal(points)
        return ReturnCurve(f"{self.task}{arm.label}-s{seed}", arm, seed, at, seen, self.task)

    def sweep(self, arms: Sequence[Arm], seeds: int, samples: float, rng: np.random.Generator) -> list[ReturnCurve]:
        """Seeds of each arm."""
        return [self.run(arm, seed, samples, rng) for arm in arms for seed in range(seeds)]

    def lasting(self, **changes: float) -> PlantedControl:
        """The same with other numbers."""
        return replace(self, **changes)     # type: ignore[arg-type]
