"""Compare folders of control runs: sample efficiency, and return at equal samples and at equal FLOP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.compare.design import labels_of
from isocost.errors import UserError
from isocost.laws.value_fit import ReturnCurve
from isocost.planner.control.curves import levels, return_curves
from isocost.planner.control.outcome import ratio_of
from isocost.runs.files import RunFiles, find_runs, read_json
from isocost.screen.display import Result, Row, Table
from isocost.screen.words import grouped
from isocost.stats.intervals import Interval
from isocost.stats.power import bootstrap, iqm

SAME = 1.1      # a ratio of samples whose interval lies within this factor of 1 is none


@dataclass(frozen=True)
class ControlArm:
    """An arm: its runs, how many reach the return, and interquartile means (value, low, high) of its returns at equal
    samples, and at equal FLOP where all records count the same. `ratio` is its samples over those of the first arm."""

    name: str
    runs: int
    arrived: int
    at_samples: tuple[float, float, float]
    at_flop: tuple[float, float, float] | None
    ratio: Interval | None


@dataclass(frozen=True)
class ControlComparison(Result):
    """Arms of control runs, compared at the samples and FLOP that all of them spent. `wanted` is the largest return
    that half of the runs of every arm reach; the ratios are of samples to it."""

    wanted: float
    samples: float
    flop: float | None
    arms: tuple[ControlArm, ...]

    @property
    def exit_code(self) -> int:
        """0 if an arm differs from the first, 3 if all are the same, 4 if it cannot tell."""
        ratios = [a.ratio for a in self.arms[1:]]
        if any(r is not None and not r.holds(1.0) for r in ratios):
            return 0
        return 3 if all(r is not None and r.low * SAME >= 1 and r.high <= SAME for r in ratios) else 4

    @property
    def heading(self) -> str:
        return f"samples to a return of {self.wanted:.4g}, and returns at equal cost"

    def rows(self) -> list[Row | Table]:
        """A line per arm, and what the numbers are."""
        def mean(x: tuple[float, float, float] | None) -> str:
            return "" if x is None else f"{x[0]:.4g} [{x[1]:.4g}, {x[2]:.4g}]"

        cells = [(a.name, f"{a.arrived} of {a.runs}",
                  "" if a.ratio is None else f"{a.ratio.value:.2f} [{a.ratio.low:.2f}, {a.ratio.high:.2f}]",
                  mean(a.at_samples), mean(a.at_flop)) for a in self.arms]
        flop = "" if self.flop is None else f"return at {self.flop:.2g} FLOP"
        heads = ("arm", "arrived", f"samples / {self.arms[0].name}", f"return at {grouped(self.samples)} samples", flop)
        table = Table(heads, cells) if flop else Table(heads[:-1], [c[:-1] for c in cells])
        said = {0: "they differ in samples", 3: f"the same within a factor {SAME:g}", 4: "cannot tell: more seeds"}
        lacks = "" if flop else "; no returns at equal FLOP: not all records count the same FLOP"
        return [table, Row("", "runs that do not arrive are censored at their last sample; returns are interquartile "
                               "means, with a stratified bootstrap over seeds" + lacks),
                Row("verdict", said[self.exit_code])]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}


def are_control(folders: Sequence[str | Path]) -> bool:
    """Whether each of these is a folder with control runs."""
    return all(Path(f).is_dir() and (runs := find_runs(Path(f))) and read_json(runs[0] / "run.json").get("kind")
               == "control" for f in folders)


def compare_control(folders: Sequence[str | Path], seed: int = 0) -> ControlComparison:
    """Compare folders of control runs, each an arm, at the samples that all of its runs took. Raises UserError for an
    arm without an evaluated run, with several settings, or of another task."""
    labels = labels_of([str(f) for f in folders])
    files = [[RunFiles(r) for r in find_runs(Path(f))] for f in folders]
    arms: dict[str, list[ReturnCurve]] = {}
    for folder, label, recorded in zip(folders, labels, files, strict=True):
        curves = return_curves(recorded)
        if not curves and any(run.about().get("data") for run in recorded):
            raise UserError(f"{label} has runs that learned from a set, without samples; returns are compared by "
                            f"samples. `isocost eval {folder}` gives their return, with an interval over seeds")
        if not curves:
            raise UserError(f"{label} has no run with an evaluation")
        if len({c.arm for c in curves}) > 1:
            raise UserError(f"{label} has runs of several settings, such as {curves[0].arm.label} and "
                            f"{next(c.arm.label for c in curves if c.arm != curves[0].arm)}; an arm is one setting")
        arms[label] = curves
    tasks = {c.task: label for label, own in arms.items() for c in own}
    if len(tasks) > 1:
        raise UserError(f"the tasks differ: {' and '.join(sorted(tasks))}; returns of one task are compared")
    samples = min(float(c.samples[-1]) for own in arms.values() for c in own)
    wanted = min(float(np.median([levels(c)[-1] for c in own])) for own in arms.values())
    spent = {label: _flop(recorded) for label, recorded in zip(labels, files, strict=True)}
    kinds = {"action" in run.about() for recorded in files for run in recorded}     # without it: updates alone
    counted = len(kinds) == 1 and all(len(spent[k]) == len(own) for k, own in arms.items())
    flop = min(float(x[0][-1]) for by_run in spent.values() for x in by_run.values()) if counted else None
    first = arms[labels[0]]
    found = []
    for label, own in arms.items():
        by_flop = None if flop is None else np.array([
            float(np.interp(np.interp(flop, *spent[label][c.run]), c.samples, levels(c))) for c in own])
        found.append(ControlArm(
            label, len(own), sum(bool(levels(c)[-1] >= wanted) for c in own),
            _mean(np.array([float(np.interp(samples, c.samples, levels(c))) for c in own]), seed),
            None if by_flop is None else _mean(by_flop, seed),
            None if own is first else ratio_of(own, first, wanted)))
    return ControlComparison(wanted, samples, flop, tuple(found))


def _mean(values: ndarray, seed: int) -> tuple[float, float, float]:
    return (float(iqm(values)), *bootstrap([values], seed=seed))


def _flop(runs: Sequence[RunFiles]) -> dict[str, tuple[ndarray, ndarray]]:
    """run -> its FLOP and samples after each line, where its record counts them."""
    found = {}
    for run in runs:
        lines = [(float(x["flop"]), float(x["env_steps"])) for x in run.lines("metrics.jsonl") if x.get("flop")]
        if lines:
            at, samples = np.array(sorted(set(lines))).T
            found[run.name] = at, samples
    return found
