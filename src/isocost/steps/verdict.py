"""Verdicts on runs while they train, read from their records alone: so it can be asked from another terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from isocost.cli import text as tell
from isocost.cli.live import TAIL
from isocost.errors import UserError
from isocost.jsonfile import page
from isocost.laws.curves import PASS, curves
from isocost.laws.law import Law
from isocost.meter import LEARN, SAMPLE, SCORE
from isocost.planner import forecast as forecasts
from isocost.planner.budget import Machine
from isocost.planner.rollouts import Plan
from isocost.planner.stopping import Groups, Verdict, judge
from isocost.runs import measure
from isocost.runs.files import is_run, read_json, tail
from isocost.runs.launch.local import ended
from isocost.runs.schema import BUDGETED, PLACED
from isocost.steps.folder import Home
from isocost.steps.imported import is_imported
from isocost.steps.spending import machine_of
from isocost.terminal import echo
from isocost.types import Cost
from isocost.words import word

JOURNAL = 1 << 20       # bytes of a journal's end that hold the latest groups


@dataclass(frozen=True)
class Bearings:
    """What a study knows of its trained runs: the law, the target of each n, the n as good as each other, the price.

    Law and targets are of `metric`, and so must be the curve of a run that is held against them.
    """

    law: Law | None = None
    targets: Mapping[int, float] | None = None
    equal: tuple[int, ...] = ()
    machine: Machine = Machine()
    metric: str = PASS

    @staticmethod
    def of(study: Path | None) -> Bearings:
        """Of a study folder; nothing without one. An arm's target is the lower bound of what was forecast of it."""
        if study is None or not (study / "study.json").exists():
            return Bearings()
        metric = Home(study).metric
        if not (study / "forecast.json").exists():
            return Bearings(metric=metric)
        sealed = forecasts.read(study / "forecast.json")
        law = Law.of(read_json(study / "law.json")) if (study / "law.json").exists() else None
        targets: dict[int, float] = {}
        equal: tuple[int, ...] = ()
        if (study / "plan.json").exists():
            plan = Plan.of(read_json(study / "plan.json"))
            targets = {a.n: a.prediction.low for a in plan.arms if a.prediction is not None}
            # Where the law refuses, of the others nobody knows that they are as good.
            equal = (plan.arm.n,) if plan.fallback else plan.equal
        if sealed.low is not None:
            targets[sealed.n] = sealed.low
        return Bearings(law, targets, equal, machine_of(Home(study)), metric)


def study_of(run: Path) -> Path | None:
    """The study that a run's folder lies in."""
    home = run.resolve().parent.parent
    return home if (home / "study.json").exists() else None


def judge_run(
    run: Path, bearings: Bearings, *, target: float | None = None, worth: float | None = None
) -> Verdict | None:
    """The verdict on the run in a folder, by its study's metric; None where it has not been evaluated yet.

    Raises:
        UserError: if the folder is no run, or its evaluations do not hold the metric.
    """
    record = read_json(run / "run.json", BUDGETED)
    found = curves([run], bearings.metric)
    if not found:
        return None
    planned = record["purpose"] == "train"
    if target is None and planned:
        target = (bearings.targets or {}).get(record["arm"]["n"])
    end = _end(run, record)
    if end is None:
        return None
    points = (record.get("job") or {}).get("points") or found[0].C[found[0].C > 0]      # an imported run has no job
    return judge(
        found[0], end, law=bearings.law if planned else None, target=target, worth=worth, groups=groups_of(run, record),
        others=bearings.equal if planned else (), looks=max(len(points), 1),
    )


def _end(run: Path, record: Mapping[str, Any]) -> float | None:
    """The rollouts a run may spend; of a budget in another unit, as many as it will buy at the run's pace so far."""
    unit, limit = next(iter(record["budget"].items()))
    if unit == "rollouts":
        return float(limit)
    steps = [x for x in tail(run / "metrics.jsonl", TAIL) if "reward" in x]
    clock = tail(run / "timing.jsonl", 1024)
    if not steps or not clock:
        return None
    cost = Cost(**{k: steps[-1].get(k, 0) for k in ("prefill", "decode", "score", "train")})
    parameters = record["model"]["parameters"]
    busy = sum(clock[-1].get(work, 0.0) for work in (SAMPLE, SCORE, LEARN))
    spent = {
        "tokens": cost.decode, "flop": cost.flops(parameters), "seconds": clock[-1]["seconds"], "busy seconds": busy
    }[unit]
    return float(steps[-1]["rollouts"] * max(limit / spent, 1.0)) if spent else None


def groups_of(run: Path, record: Mapping[str, Any]) -> Groups | None:
    """The latest groups in a run's journal; None where rewards are not 0 or 1, or groups not of n rollouts."""
    n = int(record["arm"]["n"])
    by: dict[tuple[int, int], list[Any]] = {}
    for line in tail(run / "journal.jsonl", JOURNAL, PLACED):
        by.setdefault((line["wave"], line["slot"]), []).extend(line["rewards"])
    right = []
    for rewards in by.values():
        if len(rewards) != n or None in rewards:
            continue
        if not all(r in (0, 1) for r in rewards):
            return None
        right.append(int(sum(rewards)))
    return Groups(n, tuple(right))


def per_cost(said: Verdict, run: Path, machine: Machine) -> dict[str, float]:
    """Reward expected per unit of cost over the next stretch: per 1000 rollouts, run-hour, device-hour and money.

    Seconds are those the run itself has taken per rollout.
    """
    if not said.stretch > 0:
        return {}
    out = {"per_1000_rollouts": said.gain.value / said.stretch * 1000}
    clock = tail(run / "timing.jsonl", 1024)
    if clock and clock[-1]["rollouts"] and clock[-1]["seconds"] > 0:
        seconds = said.stretch * clock[-1]["seconds"] / clock[-1]["rollouts"]
        hours, money = machine.device_hours(seconds), machine.money(seconds)
        out |= {"per_run_hour": said.gain.value / seconds * 3600, "per_device_hour": said.gain.value / hours}
        if money:
            out[f"per_{machine.currency}"] = said.gain.value / money
    return out


def short(said: Verdict) -> str:
    """A verdict in a few letters, for a table."""
    if said.word == "change n":
        return f"n = {said.n}"
    if said.word == "stop":
        return "stop"
    return f"{said.gain.value:+.3f}" if said.stretch > 0 else ""


def verdict(path: Path, *, target: float | None, worth: float | None, as_json: bool, console: Console) -> int:
    """Judge a run, or every trained run of a study that has begun and not ended. Nothing is stopped by it.

    Raises:
        UserError: if the folder is neither, or none of its runs has been evaluated.
    """
    runs = _runs(path)
    rows = []
    bearings: dict[Path | None, Bearings] = {}
    for run in runs:
        study = study_of(run)
        if study not in bearings:
            bearings[study] = Bearings.of(study)
        said = judge_run(run, bearings[study], target=target, worth=worth)
        if said is not None:
            over = read_json(run / "end.json") if ended(run) else {}
            why = {k: over.get(k, "") for k in ("reason", "detail")}
            rows.append({**said.data(), "per_cost": per_cost(said, run, bearings[study].machine),
                         "ended": bool(over), **why, "path": str(run)})
            if not as_json:
                measured = measure.of(read_json(run / "run.json"))
                tell.verdict(console, said, rows[-1]["per_cost"], over=why, measured=measured)
    if not rows:
        raise UserError(f"no run in {path} has been evaluated yet: a verdict needs the record of one that trains")
    if as_json:
        echo(page(rows))
    return 0


def _runs(path: Path) -> list[Path]:
    if is_run(path):
        return [path]
    if not (path / "study.json").exists():
        raise UserError(f"{path} is neither a study nor a run: it has no study.json and no run.json")
    if is_imported(Home(path)):
        raise UserError(f"{path} was imported, and its runs ended with their logs, so there is none to stop: "
                        f"`isocost fit {word(path)}` says how each n ended, "
                        f"`isocost verdict {word(path / 'runs')}/NAME` how one did")
    trained = [p.parent for p in sorted((path / "runs").glob("*/run.json")) if read_json(p).get("purpose") == "train"]
    if not trained:
        raise UserError(f"{path} has no trained run yet: `isocost train --plan {word(path)}` begins them. One of its "
                        f"pilot's is judged by its own folder, {path}/runs/NAME")
    return [p for p in trained if not ended(p)] or trained
