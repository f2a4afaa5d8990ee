"""Run records as curves: one run is one curve of held-out reward against rollouts.

Nothing here imports the trainer, so the records of another trainer can be read too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from isocost.disk.shape import Size
from isocost.errors import UserError
from isocost.runs.arm import Arm
from isocost.runs.files import DIVERGED, GO_ON, RunFiles, runs_of
from isocost.runs.measure import TRAINING
from isocost.runs.schema import ARM, ARMED
from isocost.runs.source import RunLog
from isocost.stats.posterior import USUAL

SIZED = ARMED.needing(arm=ARM.needing(n=Size, B=Size))                  # run.json, as a law of n needs it
MEASURED = ARMED.needing(arm=ARM.needing(n=Size, B=Size, lr=float))     # and as a curve has it
FALL = 3.0              # standard errors below its start from which on a run counts as diverged
TENTH = 0.1             # share of a noisy run that its start and its end are means of
FALLEN = 0.03           # and the least change of their rewards that counts
COLLAPSED = 0.1         # least fall from its peak, in reward, of a run that counts as diverged because it is back at
                        # its start
HELD_OUT = 256          # held-out problems assumed if a record does not state their number
PASS = "pass@1"
MARK = "mark"           # of a run with a truth: held-out reward by the verifier that trains
_METRIC = re.compile(r"(best|worst)@([1-9][0-9]*)")


@dataclass(frozen=True, eq=False)
class Curve:
    """One run's held-out reward at its evaluation points, K of them, the base policy (C = 0) first.

    `C` is in training rollouts, `seconds` is active time since the start, `epochs` passes over the training
    problems. `select` is the mean held-out reward on the validation split, which chooses an arm, `audit` on the test
    split, which is reported. `arm` is all that the run's planner set. Missing seconds or epochs are NaN.

    `select` and `audit` are means of `metric`. `train` (K,) is the mean reward of the rollouts sampled for training
    since the previous evaluation, before any filter (NaN at the first); None if it is not recorded. `problems` is the
    number of held-out problems, both splits together, each evaluated by `samples` attempts (None: exactly). The
    rewards of a `noisy` curve have an unknown noise: they are from another trainer's log. Those of a `training` curve
    are training rewards, of other problems at every point. `error` (2, K) are the standard errors of (select, audit)
    if they are known to be means of noisy rewards (`bins.binned`). `env_steps` and `tokens` (K,) are environment steps
    and tokens written in training so far, None if they are not recorded.
    """

    run: str
    arm: Arm
    seed: int
    C: ndarray
    select: ndarray
    audit: ndarray
    seconds: ndarray
    epochs: ndarray
    diverged: bool = False
    purpose: str = "pilot"
    metric: str = PASS
    train: ndarray | None = None
    problems: int = HELD_OUT
    samples: int | None = None
    noisy: bool = False
    training: bool = False
    error: ndarray | None = None
    env_steps: ndarray | None = None
    tokens: ndarray | None = None

    def __post_init__(self) -> None:
        order = np.argsort(np.asarray(self.C, dtype=float), kind="stable")
        optional = [name for name in ("train", "env_steps", "tokens") if getattr(self, name) is not None]
        for name in ("C", "select", "audit", "seconds", "epochs", *optional):
            values = np.asarray(getattr(self, name), dtype=float)
            if values.shape != order.shape or values.ndim != 1:
                raise UserError(f"run {self.run}: {name} has shape {values.shape}, C has {order.shape}; "
                                "expected lists of equal length")
            object.__setattr__(self, name, values[order])
        if self.error is not None:
            object.__setattr__(self, "error", np.asarray(self.error, dtype=float)[:, order])
        _check(self)


def _check(curve: Curve) -> None:
    if len(curve.C) == 0:
        raise UserError(f"run {curve.run} has no evaluation")
    if not np.all(np.isfinite(curve.C)) or curve.C[0] < 0:
        raise UserError(f"run {curve.run}: rollouts must be finite and at least 0")
    for name in ("select", "audit"):
        values = getattr(curve, name)
        if np.isnan(values).any():
            at = float(curve.C[np.isnan(values)][0])
            raise UserError(f"run {curve.run}: its evaluation at {at:g} rollouts has no {name} reward: no attempt was "
                            "scored. Fix the verifier (end.json counts its failures by kind), and run it again")
        bad = ~((values >= 0) & (values <= 1))
        if bad.any():
            raise UserError(f"run {curve.run}: {name} reward {values[bad][0]} is outside [0, 1]; "
                            "the laws need rewards between 0 and 1")


def multiplier(curve: Curve) -> float:
    """A run's learning rate relative to the rule of its study."""
    return curve.arm.get("multiplier", 1.0)


def attempts_of(metric: str) -> int:
    """The number of attempts of a metric: 1 for pass@1 and mark, k for best@k and worst@k. Raises UserError for any
    other name."""
    if metric in (PASS, MARK):
        return 1
    found = _METRIC.fullmatch(metric)
    if found is None:
        raise UserError(f"unknown metric {metric!r}; expected {PASS}, best@k (at least one of k right) or worst@k (all "
                        f"k right), such as best@4; {MARK} (by --verifier) of runs with a --truth")
    return int(found[2])


def curves(source: str | Path | Iterable[str | Path | RunFiles], metric: str = PASS, *, clock: bool = True
           ) -> list[Curve]:
    """The curves of a study folder (its `runs/`) or of a list of runs, in a fixed order.

    `metric` is pass@1, or best@k, worst@k or mark if the evaluations have them. Without `clock` their seconds are NaN.
    A run without an evaluation is left out. Raises UserError if a folder is not a run record, its schema is newer than
    this program's, its evaluations lack the metric, or its metrics stop before the recorded end.
    """
    attempts_of(metric)
    found = runs_of(source)
    if not found and isinstance(source, str | Path):
        raise UserError(f"{source} contains no runs: expected {source}/runs/NAME/run.json")
    read = [_read(run, metric, clock) for run in found]
    return sorted((curve for curve in read if curve is not None), key=lambda c: (c.arm.only("n", "B"), c.seed, c.run))


def _read(run: RunFiles, metric: str, timed: bool) -> Curve | None:
    folder, record, ended = run.folder, run.about(MEASURED), run.end
    every = run.lines("metrics.jsonl")
    log = RunLog.of(record)
    if log is None:
        _whole(folder, every, ended)
    lines = [line for line in every if "eval/select" in line]
    if not lines:
        return None
    timing = run.lines("timing.jsonl") if timed else ()
    clock = {line["step"]: line["seconds"] for line in timing if "seconds" in line}
    held_out = _size(record.get("problems", {}))
    curve = Curve(
        run=record["name"], arm=Arm(record["arm"]), seed=int(record["seed"]),
        C=np.array([line["rollouts"] for line in lines], dtype=float),
        select=np.array([_number(line["eval/select"]) for line in lines]),
        audit=np.array([_number(line.get("eval/audit")) for line in lines]),
        seconds=np.array([_number(clock.get(line["step"])) for line in lines]),
        epochs=np.array([_number(line.get("epoch")) for line in lines]),
        purpose=record.get("purpose", "run"),
        train=_train(every), problems=held_out, samples=_samples(record, lines), noisy=log is not None,
        training=log is not None and log.kind == TRAINING,
        env_steps=_spent(every, "env_steps"), tokens=_spent(every, "decode"),
    )
    fell = ended.get("reason") == DIVERGED or diverged(curve, held_out)    # by pass@1, whatever the metric
    return replace(curve, diverged=fell, **({} if metric == PASS else _values(folder, lines, metric)))


def _whole(folder: Path, lines: Sequence[dict[str, Any]], ended: dict[str, Any]) -> None:
    """Raises UserError if lines are missing: a record has a line per step and the evaluation at the end, or only
    that."""
    evaluated = [int(line.get("step", 0)) for line in lines if "eval/select" in line]
    steps, recorded = ended.get("steps"), max(len(lines) - len(evaluated), *evaluated, 0)
    if steps is None or ended.get("reason") in GO_ON:
        return
    if recorded < steps:
        raise UserError(f"{folder}/metrics.jsonl holds {recorded} steps, and end.json records {steps}: lines are "
                        "missing; restore the file, or remove the folder to run it again")


def _values(folder: Path, lines: Sequence[dict[str, Any]], metric: str) -> dict[str, Any]:
    names = {split: f"eval/{split}/{metric}" for split in ("select", "audit")}
    if any(line.get(name) is None for line in lines for name in names.values()):
        others = sorted(k.removeprefix("eval/select/") for k in lines[-1] if k.startswith("eval/select/"))
        raise UserError(f"{folder}: its evaluations have {', '.join((PASS, *others))}, but not {metric}"
                        + ("; a mark needs a run with --truth" if metric == MARK else "" if others else
                           "; best@4 needs exact evaluations, or at least 4 samples per problem"))
    found = {split: np.array([line[name] for line in lines], dtype=float) for split, name in names.items()}
    order = np.argsort([line["rollouts"] for line in lines], kind="stable")
    return {"metric": metric} | {split: values[order] for split, values in found.items()}


def _train(lines: Sequence[dict[str, Any]]) -> ndarray | None:
    """Mean training reward between one evaluation and the next; every step has equal weight."""
    out: list[float] = []
    since: list[float] = []
    for line in lines:
        if "eval/select" in line:
            good = [x for x in since if math.isfinite(x)]
            out.append(sum(good) / len(good) if good else math.nan)
            since = []
        elif "reward" in line:
            since.append(_number(line["reward"]))
    return np.array(out) if np.isfinite(out).any() else None


def _spent(lines: Sequence[dict[str, Any]], key: str) -> ndarray | None:
    """What training had cost at each evaluation, by the last step before it; None if the record does not hold it."""
    out, now = [], 0.0
    for line in lines:
        if "eval/select" in line:
            out.append(now)
        elif key in line:
            now = float(line[key])
    return np.array(out) if now else None


def _samples(record: dict[str, Any], lines: Sequence[dict[str, Any]]) -> int | None:
    """Attempts per held-out problem; None if evaluation was exact, or if the record does not say."""
    if lines[-1].get("eval/exact", True):
        return None
    samples = lines[-1].get("eval/samples") or record.get("job", {}).get("setting", {}).get("samples")
    return int(samples) if samples else None


class Ends(NamedTuple):
    """Where a run's reward began, its highest, and where it ended; the least changes from `start` and from `peak` that
    are no noise (3 standard errors)."""

    start: float
    peak: float
    end: float
    from_start: float
    from_peak: float

    @property
    def fell_back(self) -> bool:
        """Whether the run rose, and ended at its start or lower, below its peak by `COLLAPSED` at least."""
        lost = self.peak - self.end > max(self.from_peak, COLLAPSED)
        return lost and self.peak > self.start + self.from_start and not self.risen

    @property
    def risen(self) -> bool:
        """Whether the run ended above its start."""
        return self.end > self.start + self.from_start


def ends_of(curve: Curve, held_out: int = HELD_OUT) -> Ends:
    """Start, peak and end of a run, both splits averaged, because a collapse affects both.

    The standard error is that of a mean of `held_out` right-or-wrong problems at the starting reward, an upper bound. A
    noisy curve of many evaluations is compared by the means of its tenths, with the noise of its own rewards.
    """
    reward = (curve.select + curve.audit) / 2
    if curve.noisy and (curve.C > 0).sum() > USUAL:
        tenth = max(round(TENTH * len(reward)), 1)
        peak = max(float(part.mean()) for part in np.array_split(reward, len(reward) // tenth))
        least = max(FALL * point_noise(reward) * math.sqrt(2 / tenth), FALLEN)
        return Ends(float(reward[:tenth].mean()), peak, float(reward[-tenth:].mean()), least, least)
    start = min(max(float(reward[0]), 1 / held_out), 1 - 1 / held_out)
    least = FALL * math.sqrt(start * (1 - start) / held_out)
    return Ends(float(reward[0]), float(reward.max()), float(reward[-1]), least, math.sqrt(2) * least)


def diverged(curve: Curve, held_out: int = HELD_OUT) -> bool:
    """Whether a run ends 3 standard errors below its start, or fell from its peak back to its start (`Ends`)."""
    ends = ends_of(curve, held_out)
    return ends.end < ends.start - ends.from_start or ends.fell_back


def point_noise(values: ndarray) -> float:
    """The standard deviation of single values (K,) about a smooth curve, from second differences (`bins`); or NaN."""
    second = values[1:-1] - (values[:-2] + values[2:]) / 2
    return math.sqrt(float((second**2).mean()) / 1.5) if len(second) else math.nan


def _size(problems: dict[str, Any]) -> int:
    total = 0
    for split in ("select", "audit"):
        held = problems.get(split, 0)
        total += len(held) if isinstance(held, list) else int(held or 0)
    return total or HELD_OUT


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
