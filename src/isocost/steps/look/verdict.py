"""Verdicts on runs while they train, from their records alone: any process can request them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from isocost.can import Can
from isocost.disk.jsonfile import TAIL
from isocost.errors import UserError
from isocost.laws.curves import PASS, curves
from isocost.laws.law import Law
from isocost.meter import LEARN, SAMPLE, SCORE
from isocost.planner.budget import Machine
from isocost.planner.stopping import Groups, StoppingVerdict, judge
from isocost.runs import measure, source
from isocost.runs.files import RunFiles, is_run, tail
from isocost.runs.parted import Parting
from isocost.runs.schema import BUDGETED, PLACED
from isocost.screen.display import Result, Row
from isocost.screen.words import counted, word
from isocost.steps.study import StudyRecord
from isocost.steps.training.spending import machine_of
from isocost.types import Cost
from isocost.units import ENV_STEPS, FLOPS, ROLLOUTS, SECONDS, TOKENS, compared, of_run

JOURNAL = 1 << 20       # bytes of a journal's end that hold the latest groups


@dataclass(frozen=True)
class Bearings:
    """What a study predicts for its trained runs: the law, the target reward of each n, equally good n, and the price.
    Law and targets are of `metric`, and the curve of a run must be of the same metric."""

    law: Law | None = None
    targets: Mapping[int, float] | None = None
    equal: tuple[int, ...] = ()
    machine: Machine = Machine()
    metric: str = PASS

    @staticmethod
    def of(study: Path | None) -> Bearings:
        """Of a study folder; empty without one. An arm's target is the lower bound of its forecast."""
        if study is None or not (study / "study.json").exists():
            return Bearings()
        known = StudyRecord(study)
        if not known.has("forecast.json"):
            return Bearings(metric=known.metric)
        sealed = known.forecast
        targets: dict[int, float] = {}
        equal: tuple[int, ...] = ()
        if known.has("plan.json"):
            plan = known.plan
            targets = {a.n: a.prediction.low for a in plan.arms if a.prediction is not None}
            # If the law is not identified, no other n is known to be equally good.
            equal = (plan.arm.n,) if plan.fallback else (*plan.equal, *plan.undecided)
        if sealed.low is not None:
            targets[sealed.n] = sealed.low
        return Bearings(known.law, targets, equal, machine_of(known), known.metric)


def study_of(run: Path) -> Path | None:
    """The study that holds a run's folder; None if there is none."""
    home = run.resolve().parent.parent
    return home if (home / "study.json").exists() else None


def judge_run(
    run: Path, bearings: Bearings, *, target: float | None = None, worth: float | None = None
) -> StoppingVerdict | None:
    """The verdict on the run in a folder, by its study's metric; None if it has not been evaluated yet.

    `target` is the held-out reward wanted at the end, `worth` the least gain that makes more training worth it.

    Raises UserError if the folder is not a run, or its evaluations do not hold the metric.
    """
    files = RunFiles(run)
    record, found = files.about(BUDGETED), curves([files], bearings.metric)
    if not found:
        return None
    planned = record["purpose"] == "train"
    if target is None and planned:
        target = (bearings.targets or {}).get(record["arm"]["n"])
    end = _end(run, record)
    if end is None:
        return None
    points = (record.get("job") or {}).get("points") or found[0].C[found[0].C > 0]      # an imported run has no job
    said = judge(
        found[0], end, law=bearings.law if planned else None, target=target, worth=worth, groups=groups_of(run, record),
        others=bearings.equal if planned else (), looks=max(len(points), 1),
    )
    parting = Parting.of(files)
    return said if parting is None or not parting.hacked else replace(said, word="stop", why=parting.said())


def _end(run: Path, record: Mapping[str, Any]) -> float | None:
    """The rollouts that a run's budget pays for; in other units, at the run's cost per rollout so far. Of several
    limits, the one that ends it first, as far as it is known."""
    ends = [_end_by(run, record, unit, limit) for unit, limit in record["budget"].items()]
    return min((end for end in ends if end is not None), default=None)


def _end_by(run: Path, record: Mapping[str, Any], unit: str, limit: float) -> float | None:
    """The same by one limit; None before the first update, in another unit than rollouts."""
    if unit == of_run(ROLLOUTS):
        return float(limit)
    steps = [x for x in tail(run / "metrics.jsonl", TAIL) if "reward" in x]
    clock = tail(run / "timing.jsonl", 1024)
    if not steps or not clock:
        return None
    cost = Cost(**{k: steps[-1].get(k, 0) for k in ("prefill", "decode", "score", "train", "reread")})
    model = record["model"]
    flops = cost.flops(model["parameters"], model.get("learned"))
    busy = sum(clock[-1].get(work, 0.0) for work in (SAMPLE, SCORE, LEARN))
    spent = {
        of_run(TOKENS): cost.decode, of_run(FLOPS): flops, of_run(SECONDS): clock[-1]["seconds"],
        compared(SECONDS): busy, of_run(ENV_STEPS): steps[-1].get("env_steps", 0),
    }[unit]
    return float(steps[-1]["rollouts"] * max(limit / spent, 1.0)) if spent else None


def groups_of(run: Path, record: Mapping[str, Any]) -> Groups | None:
    """The latest complete groups of n rollouts in a run's journal; None if a reward is not 0 or 1."""
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


def per_cost(verdict: StoppingVerdict, run: Path, machine: Machine) -> dict[str, float]:
    """Expected gain in reward over the next stretch: per 1,000 rollouts, run-hour, device-hour and unit of money. Time
    is by the run's own seconds per rollout."""
    if not verdict.stretch > 0:
        return {}
    out = {"per_1000_rollouts": verdict.gain.value / verdict.stretch * 1000}
    clock = tail(run / "timing.jsonl", 1024)
    if clock and clock[-1]["rollouts"] and clock[-1]["seconds"] > 0:
        seconds = verdict.stretch * clock[-1]["seconds"] / clock[-1]["rollouts"]
        hours, money = machine.device_hours(seconds), machine.money(seconds)
        out |= {"per_run_hour": verdict.gain.value / seconds * 3600, "per_device_hour": verdict.gain.value / hours}
        if money:
            out[f"per_{machine.currency}"] = verdict.gain.value / money
    return out


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on one run. `per_cost` is the expected gain in reward per unit of cost, by unit (see the function of
    that name). `reason` and `detail` say why the run ended; both are empty while it trains. `measured` is what its
    rewards are (`isocost.runs.measure.of`). `parting` is of mark and truth, where the run has both."""

    path: str
    verdict: StoppingVerdict
    per_cost: Mapping[str, float]
    ended: bool
    reason: str
    detail: str
    measured: Mapping[str, str]
    parting: Parting | None = None

    def rows(self) -> list[Row]:
        """The word first, then its reasons; rewards of isocost's own runs are on the validation split."""
        v, m = self.verdict, self.measured
        latest = f"{'' if v.metric == PASS else f'{v.metric} '}{v.reward:.3f} on the validation split"
        if m["metric"]:
            latest = f"{m['metric']} {v.reward:.3f} ({m['kind']} reward)"
        latest += f" after {v.C:,.0f} of {v.end:,.0f} {m['unit']}"
        hacked = self.parting is not None and self.parting.hacked
        apart = [] if self.parting is None else [Row("", self.parting.said(), "flag" if hacked else "")]
        if self.reason:
            detail = f" ({self.detail})" if self.detail else ""
            return [Row(v.run, f"ended, {self.reason}{detail}", "head"), Row("", latest, "command"), *apart]
        prior = "the law and its own curve" if v.prior == "law" else "its own curve alone"
        return [
            Row(v.run, f"change n to {v.n}" if v.word == "change n" else v.word, "head"),
            Row("", f"{latest}; expected at the end{'' if m['metric'] else ', on the test split'}, {v.final} "
                    f"({v.final.level:.0%} prediction interval, by {prior}, {counted(v.looks, 'evaluation')})"),
            *([] if hacked else [Row("", v.why)]), *apart,
            *([Row("expected reward", "  ".join(f"{x:+.3g} {k.replace('_', ' ')}" for k, x in self.per_cost.items()))]
              if self.per_cost else []),
        ]

    def to_dict(self) -> dict[str, Any]:
        beside = {} if self.parting is None else {"parting": self.parting.data()}
        return {**self.verdict.data(), "per_cost": dict(self.per_cost), "ended": self.ended, "reason": self.reason,
                "detail": self.detail, "path": self.path, **beside}


@dataclass(frozen=True)
class Verdicts(Result):
    """The verdicts on a run, or on the runs of a study, in order of path."""

    entries: ClassVar[str] = "runs"

    runs: tuple[RunVerdict, ...]

    def rows(self) -> list[Row]:
        """Those of each run."""
        return [row for run in self.runs for row in run.rows()]


def verdict(path: str | Path, *, target: float | None = None, worth: float | None = None) -> Verdicts:
    """The verdict on a run, or on every training run of a study (on all of them once all have ended).

    Nothing is stopped. `target` is the held-out reward wanted at the end; by default the forecast's lower bound.
    `worth` is the gain in reward below which the rest of a run is not worth its cost.

    Raises UserError if the folder is neither a run nor a study, or none of its runs has been evaluated.
    """
    path, found = Path(path), []
    bearings: dict[Path | None, Bearings] = {}
    for files in _runs(path):
        run, study = files.folder, study_of(files.folder)
        if study not in bearings:
            bearings[study] = Bearings.of(study)
        judged = judge_run(run, bearings[study], target=target, worth=worth)
        if judged is not None:
            over = files.end if files.over else {}
            found.append(RunVerdict(
                str(run), judged, per_cost(judged, run, bearings[study].machine), bool(over), over.get("reason", ""),
                over.get("detail", ""), measure.of(files.about()), Parting.of(files),
            ))
    if not found:
        raise UserError(f"no run in {path} has been evaluated yet: a verdict needs at least one evaluation")
    return Verdicts(tuple(found))


def _runs(path: Path) -> list[RunFiles]:
    if is_run(path):
        if RunFiles(path).about().get("kind") == source.CONTROL.kind:
            source.CONTROL.require(Can.STOP, path)
        return [RunFiles(path)]
    if not (path / "study.json").exists():
        raise UserError(f"{path} is neither a study nor a run: it has no study.json and no run.json")
    study = StudyRecord(path)
    study.source.require(Can.STOP, path)
    trained = [run for run in study.runs_read if run.about().get("purpose") == "train"]
    if not trained:
        raise UserError(f"{path} has no training run yet: start them with `isocost train --plan {word(path)}`. To "
                        f"judge a run of the pilot, name its folder, {path}/runs/NAME")
    return [run for run in trained if not run.over] or trained
