"""Tracks: one run's held-out reward as a function of its training cost, in any unit of cost.

A curve (`isocost.laws.curves`) is a function of rollouts. Methods may also be compared at equal tokens, FLOPs or
seconds: a method that writes longer answers spends more of these for the same rollouts.
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
from isocost.runs.files import RunFiles
from isocost.runs.source import RunLog
from isocost.units import ENV_STEPS, UNITS

LENGTH = "completions/mean_length"      # key in metrics.jsonl: mean tokens of a completion


@dataclass(frozen=True, eq=False)
class Track:
    """One run's mean held-out reward (K,) at its cost (K,) in one unit, in order of cost.

    The base policy has cost 0 and comes first if it was evaluated. `family` names the problems of the evaluations.
    `resolution` is the smallest step of the reward: 0 if it is computed exactly, else set by the number of samples.
    Several evaluations at one cost count once, with their mean. Raises UserError if cost and reward differ in length or
    are empty, or a value is not finite or a cost is negative.
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
            raise UserError(f"run {self.run}: {cost.shape} costs and {reward.shape} rewards; a track needs equal "
                            "numbers of both, at least 1")
        if not (np.isfinite(cost).all() and np.isfinite(reward).all() and cost.min() >= 0):
            raise UserError(f"run {self.run}: costs and rewards must be finite, and costs 0 or more")
        at, index = np.unique(cost, return_inverse=True)
        object.__setattr__(self, "cost", at)
        object.__setattr__(self, "reward", np.bincount(index, weights=reward) / np.bincount(index))

    @property
    def end(self) -> float:
        """The cost at the last evaluation, in the unit of `cost`."""
        return float(self.cost[-1])

    def at(self, cost: ndarray | float) -> ndarray:
        """Reward at these costs (...): linear in ln cost between evaluations, in cost before them, constant after
        them."""
        known = self.cost > 0
        if not known.any():
            return np.full(np.shape(cost), self.reward[-1])
        later = np.interp(np.log(cost), np.log(self.cost[known]), self.reward[known])
        return np.where(cost < self.cost[known][0], np.interp(cost, self.cost, self.reward), later)


def tracks(folders: Sequence[Path], unit: str = "rollouts", metric: str = PASS) -> list[Track]:
    """The runs in these folders as tracks of test-split reward, by name; runs without an evaluation are left out.

    `unit` is rollouts, tokens (decoded), env-steps, flops or seconds (busy with training); only training counts. Raises
    UserError for an unknown unit, or if a record does not hold the cost in that unit.
    """
    unit = ENV_STEPS if unit == "env-steps" else unit
    if unit not in UNITS:
        raise UserError(f"unknown unit of cost {unit!r}; expected one of {', '.join(UNITS)}")
    found = []
    for folder in sorted(Path(f) for f in folders):
        run = RunFiles(folder)
        found += [_track(run, curve, unit) for curve in curves([run], metric)]
    return found


def _track(run: RunFiles, curve: Curve, unit: str) -> Track:
    cost = curve.C if unit == "rollouts" else np.interp(curve.C, *_spent(run, unit))
    step = 0.0 if curve.samples is None else 2.0 / (curve.problems * curve.samples)
    family = str((run.about().get("problems") or {}).get("spec") or "")
    return Track(str(run.folder), curve.seed, cost, curve.audit, curve.diverged, family, step)


def _spent(run: RunFiles, unit: str) -> tuple[ndarray, ndarray]:
    """Rollouts (S,) and the cost in `unit` (S,) after every step, starting at 0."""
    folder, record, lines = run.folder, run.about(), run.lines("metrics.jsonl")
    if unit == "seconds":
        rows = [(x["rollouts"], _seconds(x)) for x in run.lines("timing.jsonl") if "rollouts" in x]
    elif unit == "tokens" and RunLog.of(record):
        rows = written(lines)
    else:
        size = float((record.get("model") or {}).get("parameters") or 0)
        if unit == "flops" and not size:
            counted = any("decode" in x or LENGTH in x for x in lines)
            raise UserError(f"{folder}/run.json does not hold the number of the model's parameters, so FLOPs are not "
                            f"known; compare in rollouts{' or tokens' if counted else ''}")
        rows = [(x["rollouts"], _amount(x, unit, size)) for x in lines if "decode" in x]
    if not any(amount > 0 for _, amount in rows):
        raise UserError(f"{folder} does not record its cost in {unit}; compare in rollouts")
    at, amounts = np.array([(0.0, 0.0), *rows]).T
    return at, amounts


def written(lines: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(rollouts, tokens decoded by then) from an imported log, whose mean lengths hold since the last; or empty."""
    found = [(float(x["rollouts"]), float(x[LENGTH])) for x in lines if LENGTH in x]
    if not found:
        return []
    at, lengths = np.array([*found, (max(float(x["rollouts"]) for x in lines), found[-1][1])]).T
    return list(zip(at.tolist(), np.cumsum(np.diff(at, prepend=0.0) * lengths).tolist(), strict=True))


def _seconds(line: Mapping[str, Any]) -> float:
    """Busy seconds of training; seconds since the start if the record does not split them."""
    busy = [line[k] for k in ("sample", "score", "learn") if k in line]
    return float(sum(busy) if busy else line.get("seconds") or 0.0)


def _amount(line: Mapping[str, Any], unit: str, parameters: float) -> float:
    """Tokens decoded; environment steps; or FLOPs, 2P per token read first or written and 6P per token trained."""
    if unit == "tokens":
        return float(line["decode"])
    if unit == ENV_STEPS:
        return float(line.get("env_steps") or 0)
    read = sum(line.get(k) or 0 for k in ("prefill", "decode", "score")) - (line.get("reread") or 0)
    return 2.0 * parameters * read + 6.0 * parameters * float(line.get("train") or 0)
