"""A run's curve from numbers written in a test; whole simulated studies come from `truth`."""

from __future__ import annotations

from typing import Any

from numpy import ndarray

from isocost.laws import Curve
from isocost.runs.arm import Arm


def curve(n: int, seed: int, C: ndarray, select: ndarray, audit: ndarray, **changes: Any) -> Curve:
    """A run's curve from its base (C = 0) on; 16 problems per update, 1000 training problems."""
    arm = Arm(n=n, B=changes.pop("B", 16), lr=changes.pop("lr", 1e-3), multiplier=changes.pop("multiplier", 1.0))
    rest = {"run": f"n{n}-s{seed}", "seconds": C / 1000, "epochs": C / n / 1000, **changes}
    return Curve(arm=arm, seed=seed, C=C, select=select, audit=audit, **rest)
