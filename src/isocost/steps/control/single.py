"""Runs of control outside a study: trained as one stack, and measured again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray
from scipy.special import stdtrit

from isocost.errors import UserError
from isocost.planner.budget import Budget, Machine
from isocost.planner.evaluation import points
from isocost.runs.arm import Arm
from isocost.runs.files import STOPPED, find_runs, read_json, read_lines
from isocost.runs.stop_at import StopAt
from isocost.screen.display import Result, Row, Table
from isocost.screen.words import counted, duration, grouped
from isocost.steps.events import SILENT, Observer
from isocost.steps.training.stopping import stop_of
from isocost.units import FLOPS, of_run
from isocost.units import amount as amount_of

if TYPE_CHECKING:
    from isocost.runs.control import ControlJob

FRESH = 1       # the seed of the starts that `isocost eval` measures on: no run was evaluated on them
LEVEL = 0.9
SOON = 8        # samples of the first evaluation


@dataclass(frozen=True)
class ControlOptions:
    """The options of `isocost train METHOD --control TASK`.

    budget: what training may spend ("3k-env-steps", "10m", "1e12flop"). updates_per_sample: sigma. lr: learning rate.
    sigma, batch, width: the method's own where they are None. seeds: runs of `seed`, `seed` + 1, .. in one stack.
    environments: copies of the task that one run steps together. sets: "SEAM.NAME=VALUE". evaluations: how many,
    log-spaced from the eighth sample to the end; None for two per doubling.
    stop_at: an amount at which each run ends before its budget is spent; `price` and `devices` are for one in money.
    offline: the file of the set that it learns from; the budget of an offline method may be in updates ("20k-updates").
    offline_updates: on this set, before the first sample of a method that takes samples; besides a budget in samples.
    teacher: what chooses the episodes of training ("alp-gmm:every=20").
    """

    budget: str
    updates_per_sample: float | None = None
    lr: float = 3e-4
    batch: int | None = None
    width: int | None = None
    seed: int = 0
    seeds: int = 1
    environments: int = 1
    sets: Sequence[str] = ()
    evaluations: int | None = None
    stop_at: str | None = None
    price: str | None = None
    devices: int | None = None
    offline: Path | None = None
    offline_updates: int = 0
    teacher: str | None = None

    def __post_init__(self) -> None:
        if self.budget is None:
            raise UserError("a run of control needs a --budget with a unit, such as 3k-env-steps, 1e12flop or 10m")
        if bad := next((s for s in self.sets if "=" not in s), None):
            raise UserError(f"--set {bad!r} has no value; write SEAM.NAME=VALUE, such as sample.steps=3")


@dataclass(frozen=True)
class ControlEnd(Result):
    """How runs of control ended: the contents of end.json of each, by folder, and its last evaluation."""

    ends: Mapping[str, Mapping[str, Any]]
    last: Mapping[str, Mapping[str, Any]]

    @property
    def exit_code(self) -> int:
        """0 if every run has spent its budget, or the amount of --stop-at, on updates; else 5."""
        return 0 if all(e["reason"] in ("spent", STOPPED) and e["updates"] for e in self.ends.values()) else 5

    def rows(self) -> list[Row]:
        """For each run why it ended, what it did, and the return of its last evaluation."""
        out: list[Row] = []
        for folder, end in self.ends.items():
            line = self.last[folder]
            out += [
                Row(end["reason"], end["detail"]),
                Row("", f"{grouped(end['samples'])} samples, {counted(end['updates'], 'update')}, {_flop(end)} in "
                        f"{duration(end['seconds'])}"),
                *(Row("", text, "flag") for text in end["notes"]),
            ]
            if line:
                scaled = (line["eval/select"] + line["eval/audit"]) / 2
                out.append(Row("return", f"{line['return']:.4g}, sd {line['return/sd']:.3g} between episodes; "
                                         f"{scaled:.3f} on the task's scale"))
            out.append(Row("record", folder, "command"))
        return out

    def to_dict(self) -> dict[str, Any]:
        """end.json of each run, by folder."""
        return {k: dict(v) for k, v in self.ends.items()}


def _flop(end: Mapping[str, Any]) -> str:
    """What end.json counts; that of earlier versions counts updates alone."""
    if not (of := end.get("flop_of")):
        return f"{end['flop']:.3g} FLOP of updates"
    return (f"{end['flop']:.3g} FLOP ({of['updates']:.3g} of updates, {of['acting']:.3g} of acting; besides "
            f"{of['evaluation']:.3g} of evaluations)")


def train_control(
    method: str, task: str, asked: ControlOptions, out: Path | None = None, *, observer: Observer = SILENT
) -> ControlEnd:
    """Train a method of control on a task: one run in `out`, or several in `out`/seed-S, as one stack. Run it again to
    continue.

    Raises UserError for a method, task, size or budget that does not exist or does not fit.
    """
    from isocost.control import methods
    from isocost.runs.control import ControlJob, run_stack

    unit, amount = _stops(asked.budget)
    sets, agent = dict(s.split("=", 1) for s in asked.sets), methods.agent(method)
    agent = agent.but(batch=asked.batch or agent.batch, width=asked.width or agent.width)
    usual = methods.tuned(agent, sets).sigma
    arm = Arm(sigma=usual if asked.updates_per_sample is None else asked.updates_per_sample, rate=asked.lr,
              batch=agent.batch, width=agent.width)
    axis = "updates" if agent.offline else "env-steps"
    at: tuple[float, ...] = _evaluated_at(amount, asked.evaluations) if unit == axis else ()
    if asked.offline_updates:       # after the first sample, by what the set has taught
        at = (asked.environments, *at)
    jobs, outs = [], []
    for seed in range(asked.seed, asked.seed + asked.seeds):
        name = f"{agent.name}-{task.replace(':', '-')}-{seed}"
        jobs.append(ControlJob(name, task, method, seed, {unit: amount}, arm, at, sets, asked.environments,
                               data=str(asked.offline) if asked.offline else None,
                               offline_updates=asked.offline_updates, teacher=asked.teacher))
        home = out or Path("runs") / name
        outs.append(home if asked.seeds == 1 else (out or Path("runs") / f"{agent.name}-{task}") / f"seed-{seed}")
    with observer.counting("train") as tell:
        total = len(jobs) * amount
        reached: dict[str, int] = {}

        def told(name: str, line: Mapping[str, Any]) -> None:
            counted_in = axis.replace("-", "_")
            reached[name] = line[counted_in]
            known = unit.replace("-", "_") == counted_in
            tell(counted_in.replace("env_steps", "samples"), sum(reached.values()), int(total) if known else 0)

        ends = run_stack(jobs, outs, stop_at=_stop_at(asked, jobs[0]), on_step=told)
    last: dict[str, Mapping[str, Any]] = {}
    for home in outs:
        last[str(home)] = next((x for x in reversed(read_lines(home / "metrics.jsonl")) if "return" in x), {})
    return ControlEnd({str(home): end for home, end in zip(outs, ends, strict=True)}, last)


def _evaluated_at(amount: float, many: int | None) -> tuple[float, ...]:
    """So many points up to the end."""
    if many is None:
        return tuple(points(amount, SOON))
    return tuple(map(float, np.unique(np.geomspace(amount, min(SOON, amount), many).round())))


def _stop_at(asked: ControlOptions, job: ControlJob) -> StopAt | None:
    """The amount of --stop-at, one in FLOP by what an action takes, and an update in which all networks are trained,
    on the set or after it."""
    from isocost.control.tasks import open_task
    from isocost.runs.control import agent_of, price

    found = stop_of(asked.stop_at, Machine.priced(asked.price, asked.devices or 1, 1))
    offline = agent_of(job).offline
    if found and found.unit == FLOPS:
        work = price(agent_of(job), open_task(job.task))
        acting = {} if offline else {"env_steps": float(work.action.flop + work.prepared.flop)}
        found = replace(found, each={"updates": float(work.update.flop), **acting},
                        first=(asked.offline_updates, float(work.first.flop - work.update.flop)))
    counted_in = {"updates", "seconds"} | (set() if offline else {"env_steps"})
    if found and not (found.each and found.each.keys() <= counted_in):
        own = "a run on a set counts" if offline else "a run of control counts environment steps,"
        raise UserError(f"--stop-at {asked.stop_at}: {own} FLOP, time and money")
    return found


def _stops(budget: str) -> tuple[str, float]:
    """What stops a run, and where. Updates are no unit of plans: a run of control alone can be given them."""
    if found := re.fullmatch(r"(.+?)[-_ ]?updates?", budget.strip()):
        return "updates", amount_of(f"{found[1]}-env-steps")[0]
    parsed = Budget.parse(budget)
    return of_run(parsed.unit), parsed.amount


@dataclass(frozen=True)
class ReturnResult(Result):
    """The return of a run's policy on fresh episodes, which none of its evaluations had.

    low, high: 90 % interval of the mean. sd, worst, best: of single episodes. failures: episodes that returned no more
    than random actions do on average (`random`); scaled: the mean on the task's scale.
    """

    run: str
    task: str
    episodes: int
    mean: float
    low: float
    high: float
    sd: float
    worst: float
    best: float
    failures: int
    random: float
    reference: float
    scaled: float
    length: float

    def rows(self) -> list[Row]:
        """Mean with its interval, spread, and failures."""
        return [
            Row("return", f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}] ({LEVEL:.0%} over "
                          f"{counted(self.episodes, 'fresh episode')}); random actions {self.random:.4g}, reference "
                          f"{self.reference:.4g}: {self.scaled:.3f} of the scale"),
            Row("spread", f"sd {self.sd:.3g} between episodes, worst {self.worst:.4g}, best {self.best:.4g}; "
                          f"{self.length:.4g} steps on average"),
            Row("failures", f"{self.failures} of {self.episodes} episodes returned no more than random actions do"),
        ]


@dataclass(frozen=True)
class SeedReturns(Result):
    """The returns of several runs of one method, task and setting, each on the same fresh episodes: one for each seed.

    mean, low, high: over the runs, with its 90 % interval by their spread, `sd`. scaled: the mean on the task's scale.
    """

    folder: str
    runs: tuple[ReturnResult, ...]
    mean: float
    low: float
    high: float
    sd: float
    scaled: float

    def rows(self) -> list[Row | Table]:
        """A line for each run, and the mean over them."""
        cells = [(r.run, f"{r.mean:.4g}", f"{r.sd:.3g}", f"{r.worst:.4g}", str(r.failures)) for r in self.runs]
        return [
            Table(("run", "return", "sd", "worst", "failures"), cells, (0,)),
            Row("return", f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}] ({LEVEL:.0%} over "
                          f"{counted(len(self.runs), 'run')}, sd {self.sd:.3g} between them); {self.scaled:.3f} of the "
                          "scale"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return {**vars(self), "runs": [r.to_dict() for r in self.runs]}


def evaluate_control(folder: Path, episodes: int = 64) -> ReturnResult | SeedReturns:
    """Measure a run's policy on fresh episodes, without exploration; of a folder with several runs, all of them.

    Raises UserError as `load_policy` does, and for runs of several methods, tasks or settings.
    """
    homes = find_runs(folder)
    if homes == [folder]:
        return _measured(folder, episodes)
    abouts = [read_json(home / "run.json") for home in homes]
    for what in ("method", "task", "arm", "teacher"):
        if (other := next((h for h, a in zip(homes, abouts, strict=True) if a.get(what) != abouts[0].get(what)), None)):
            raise UserError(f"{folder} has runs of several settings: {homes[0].name} and {other.name} differ in their "
                            f"{what}. Name one run, or a folder with the seeds of one")
    found = tuple(_measured(home, episodes) for home in homes)
    means = np.array([r.mean for r in found])
    low, high = _interval(means)
    return SeedReturns(str(folder), found, float(means.mean()), low, high, float(means.std(ddof=1)),
                       float(np.mean([r.scaled for r in found])))


def _interval(values: ndarray) -> tuple[float, float]:
    """The interval of a mean by Student's t."""
    n, mean = len(values), float(values.mean())
    sd = float(values.std(ddof=1)) if n > 1 else 0.0
    half = sd / np.sqrt(n) * float(stdtrit(max(n - 1, 1), (1 + LEVEL) / 2))
    return mean - half, mean + half


def _measured(run: Path, episodes: int) -> ReturnResult:
    from isocost.runs.control import load_policy

    policy = load_policy(run)
    returns, steps = policy.returns(episodes, FRESH)
    scale, mean = read_json(run / "run.json")["scale"], float(returns.mean())
    sd = float(returns.std(ddof=1)) if episodes > 1 else 0.0
    low, high = scale["random"], scale["reference"]
    return ReturnResult(
        str(run), policy.task.name, episodes, mean, *_interval(returns), sd, float(returns.min()),
        float(returns.max()), int((returns <= low).sum()), low, high, (mean - low) / (high - low), float(steps.mean()))
