"""Run records as tracks: one run's held-out reward against what it had cost by then, in whatever unit costs are equal.

A curve (`isocost.laws.curves`) is against rollouts. What is equal between two methods may be tokens, FLOPs or seconds
instead: a method that writes longer answers spends more of these for the same rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.laws.curves import PASS, Curve, curves
from isocost.runs.files import read_json, read_lines
from isocost.units import UNITS

SPENT = {"rollouts": "rollouts", "tokens": "tokens", "flops": "FLOP", "seconds": "busy seconds"}   # unit -> in words
LENGTH = "completions/mean_length"      # tokens of an answer, as the lines of a record call them


@dataclass(frozen=True, eq=False)
class Track:
    """One run's mean held-out reward (K,) at its cost (K,) in some unit, the base policy (cost 0) first if measured.

    `family` names the problems it was held to; `resolution` is the smallest step its reward can take, 0 where that
    is computed rather than sampled. Evaluations at one cost count once, with their mean; their order is that of cost.
    """

    run: str
    seed: int
    cost: ndarray
    reward: ndarray
    diverged: bool = False
    family: str = ""
    resolution: float = 0.0

    def __post_init__(self) -> None:
        cost, reward = np.asarray(self.cost, dtype=float), np.asarray(self.reward, dtype=float)
        if cost.shape != reward.shape or cost.ndim != 1 or not len(cost):
            raise UserError(f"run {self.run}: {cost.shape} costs and {reward.shape} rewards; it needs as many of each, "
                            "one or more")
        if not (np.isfinite(cost).all() and np.isfinite(reward).all() and cost.min() >= 0):
            raise UserError(f"run {self.run}: costs and rewards must be finite, and costs not negative")
        at, index = np.unique(cost, return_inverse=True)
        object.__setattr__(self, "cost", at)
        object.__setattr__(self, "reward", np.bincount(index, weights=reward) / np.bincount(index))

    @property
    def end(self) -> float:
        """What the run had cost at its last evaluation."""
        return float(self.cost[-1])

    def at(self, cost: ndarray | float) -> ndarray:
        """Reward at these costs (...): linear in ln cost between evaluations, as it last was beyond the last one."""
        known = self.cost > 0
        if not known.any():
            return np.full(np.shape(cost), self.reward[-1])
        return np.interp(np.log(cost), np.log(self.cost[known]), self.reward[known])


def tracks(folders: Sequence[Path], unit: str = "rollouts", metric: str = PASS) -> list[Track]:
    """The run records in these folders as tracks of `audit` reward, in order of name; a run not yet evaluated is left
    out.

    `unit` is rollouts, tokens (decoded), flops or seconds (busy with training), all of the training account. Raises
    UserError where a record does not say what it cost in that unit.
    """
    if unit not in UNITS:
        raise UserError(f"{unit!r} is no unit of cost: {', '.join(UNITS)}")
    found = []
    for folder in sorted(Path(f) for f in folders):
        for curve in curves([folder], metric):
            record = read_json(folder / "run.json")
            found.append(_track(folder, record, curve, unit))
    return found


def _track(folder: Path, record: Mapping[str, Any], curve: Curve, unit: str) -> Track:
    cost = curve.C if unit == "rollouts" else np.interp(curve.C, *_spent(folder, record, unit))
    step = 0.0 if curve.samples is None else 2.0 / (curve.problems * curve.samples)
    family = str((record.get("problems") or {}).get("spec") or "")
    return Track(str(folder), curve.seed, cost, curve.audit, curve.diverged, family, step)


def _spent(folder: Path, record: Mapping[str, Any], unit: str) -> tuple[ndarray, ndarray]:
    """Rollouts (S,) and the amount in `unit` (S,) after every step, from none on; costs after the last stay as they
    are."""
    lines = read_lines(folder / "metrics.jsonl")
    if unit == "seconds":
        rows = [(x["rollouts"], _seconds(x)) for x in read_lines(folder / "timing.jsonl") if "rollouts" in x]
    elif unit == "tokens" and record.get("imported"):
        rows = written(lines)
    else:
        size = float((record.get("model") or {}).get("parameters") or 0)
        if unit == "flops" and not size:
            counted = any("decode" in x or LENGTH in x for x in lines)
            raise UserError(f"{folder}/run.json does not say how many parameters the model has, so its FLOPs are not "
                            f"known; compare in rollouts{' or tokens' if counted else ''}")
        rows = [(x["rollouts"], _amount(x, unit, size)) for x in lines if "decode" in x]
    if not any(amount > 0 for _, amount in rows):
        raise UserError(f"{folder} does not record its cost in {unit}; compare in rollouts")
    at, amounts = np.array([(0.0, 0.0), *rows]).T
    return at, amounts


def written(lines: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Rollouts and tokens decoded by then, of an imported log that tells how long answers were.

    A length is of all rollouts since the one before it; those after the last are as long as that.
    """
    told = [(float(x["rollouts"]), float(x[LENGTH])) for x in lines if LENGTH in x]
    if not told:
        return []
    at, lengths = np.array([*told, (max(float(x["rollouts"]) for x in lines), told[-1][1])]).T
    return list(zip(at.tolist(), np.cumsum(np.diff(at, prepend=0.0) * lengths).tolist(), strict=True))


def _seconds(line: Mapping[str, Any]) -> float:
    """Busy seconds of the training account; active seconds where a record has no others."""
    busy = [line[k] for k in ("sample", "score", "learn") if k in line]
    return float(sum(busy) if busy else line.get("seconds") or 0.0)


def _amount(line: Mapping[str, Any], unit: str, parameters: float) -> float:
    """Tokens decoded; or FLOPs, 2P per token read or written and 6P per token trained, P parameters."""
    if unit == "tokens":
        return float(line["decode"])
    read = sum(line.get(k) or 0 for k in ("prefill", "decode", "score"))
    return 2.0 * parameters * read + 6.0 * parameters * float(line.get("train") or 0)
