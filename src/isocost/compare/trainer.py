"""Compare settings of a user's trainer at equal cost: every arm is the same command with other words for {arm}.

The files are those of a comparison of methods (`isocost.compare.steps`). Every arm has the same number of rollouts, its
learning rate is probed alike, and its runs have the same seeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from isocost.compare.design import LEAST, MANY, SHARE, Design
from isocost.compare.gate import SEEDS, Gate, known_before, piloted, rates_of, read_pilot, train_pilot
from isocost.compare.judge import MARGIN, compare
from isocost.compare.results import MethodComparison, Sealed, TrainerComparisonPlan
from isocost.compare.training import Run, bill, rates, run_arms, tracks_of
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.planner.budget import Budget
from isocost.planner.evaluation import EvaluationPlan, spaced
from isocost.planner.forecast import digest
from isocost.planner.training.learning_rate import MULTIPLIERS, NOISE, RateRule, given, starting_rule
from isocost.planner.training.study_runs import PlannedRun, run_seed, warmup
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.launch.site import HERE, PROCESSES, Site
from isocost.runs.measure import UNNAMED
from isocost.screen.words import counted
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import Home, check, found, writing
from isocost.steps.outside.drive import drive_jobs
from isocost.steps.outside.settle import trainer_of
from isocost.trainers.driving.command import Trainer
from isocost.trainers.driving.driven import KINDS
from isocost.units import ROLLOUTS
from isocost.worlds.setting import Setting

ARM = "{arm}"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ROLLOUTS_EACH, GROUPS = 8, 16    # n and B, where they are not given


@dataclass(frozen=True)
class Arms:
    """The arms of a comparison: each one's words for {arm}, and its trainer, by its name."""

    words: Mapping[str, str]
    trainers: Mapping[str, Trainer]

    @staticmethod
    def of(arms: Sequence[str], trainer: str, **options: Any) -> Arms:
        """From NAME=WORDS. Raises UserError for a name that is no folder's, equal arms, and a command without {arm}."""
        if ARM not in trainer:
            raise UserError(f"--trainer: the command has no {ARM}, so all arms would be the same: write it where the "
                            f"words of an arm belong, in {trainer}")
        words: dict[str, str] = {}
        for arm in arms:
            label, _, own = arm.partition("=")
            if not LABEL.fullmatch(label):
                raise UserError(f"arm {arm!r}: expected NAME=WORDS with a name of letters, digits, '.', '_' and '-', "
                                "such as kl='--beta 0.04'")
            if label in words or own in words.values():
                raise UserError(f"arm {arm!r} is given twice: arms must differ in their name and their words")
            words[label] = own
        if len(words) < 2:
            raise UserError("expected at least two arms, such as plain= kl='--beta 0.04'")
        return Arms(words, {k: trainer_of(trainer.replace(ARM, own), **options) for k, own in words.items()})


def plan_trainer_comparison(
    arms: Sequence[str], trainer: str, *, budget: str | None, seeds: int = 5, rollouts: int | None = None,
    groups: int | None = None, lr: float | None = None, evaluations: int = 8, margin: float = MARGIN, seed: int = 0,
    held_out: int = 256, samples: int = 1, metrics: str | None = None, columns: Mapping[str, str] | None = None,
    stall: float | None = None,
) -> TrainerComparisonPlan:
    """The design of a comparison of settings of a trainer; nothing is launched or written.

    Takes the arguments of `compare_trainer` and raises the same errors.
    """
    made = Arms.of(arms, trainer, metrics=metrics, columns=columns, stall=stall)
    return TrainerComparisonPlan(_design(made, budget, seeds, _size(rollouts, groups), lr, evaluations,
                                         margin, seed, held_out * samples))


def compare_trainer(
    arms: Sequence[str], trainer: str, *, budget: str | None, seeds: int = 5, rollouts: int | None = None,
    groups: int | None = None, lr: float | None = None, evaluations: int = 8, margin: float = MARGIN, seed: int = 0,
    held_out: int = 256, samples: int = 1, metrics: str | None = None, columns: Mapping[str, str] | None = None,
    stall: float | None = None, model: str | None = None, data: str | None = None, out: str | Path | None = None,
    workers: int | None = None, site: Site = HERE, observer: Observer = SILENT,
) -> MethodComparison:
    """Train settings of a user's trainer at equal cost and judge which is better.

    A comparison that was stopped continues where it stopped; one that has ended is judged again from its records.

    Args:
        arms: NAME=WORDS; the words replace {arm} in the command.
        trainer: the command, as `--trainer` takes it.
        budget: the cost of all probes and runs, in rollouts.
        seeds: runs per arm, paired by seed.
        rollouts: n of every arm (default 8). groups: B (default 16).
        lr: where the learning-rate probe starts; each arm tries a quarter, 1 and 4 times it.
        evaluations: the number of evaluations of a run.
        margin: difference in reward below which two arms count as the same.
        held_out: held-out problems of an evaluation. samples: completions of each.
        metrics: the file that the trainer logs to. columns: its columns. stall: as for `isocost profile`.
        out: the folder; by default comparisons/ and the arms' names.
        site: where runs are executed.

    Raises:
        UserError: for arguments that do not fit, a budget that is too small, a run that fails, or a folder with other
            settings.
        Interrupted: after a signal, with every process gone.
    """
    with _begun(arms, trainer, "", budget=budget, seeds=seeds, rollouts=rollouts, groups=groups, lr=lr,
                evaluations=evaluations, margin=margin, seed=seed, held_out=held_out, samples=samples, metrics=metrics,
                columns=columns, stall=stall, model=model, data=data, out=out, workers=workers, site=site,
                observer=observer) as (made, d, home, seal, run):
        observer.on(Sealed(seal, home.path / "compare.json"))
        if not home.has("rates.json") and (pilot := piloted(home, d, home.setting)) is not None:
            home.write("rates.json", rates_of(pilot, d))
        trained, notes = tracks_of(home, d, run_arms(home, d, seal, observer, run, _job), seal)
        lacks = dict.fromkeys(m for t in made.trainers.values() for m in KINDS[t.kind].lacks)
        notes += [f"the logs lack {m}" for m in lacks]
        chosen = {label: rule.at(d.batch(label)) for label, rule in rates(home).items()}
        answer = compare(trained, unit=d.unit, margin=d.margin, seed=seed, missing=notes)
        judged = MethodComparison(answer, chosen, bill(home), seal, d.metric, home.path / "comparison.json")
        home.write("comparison.json", judged.to_dict())
    return judged


def pilot_trainer(arms: Sequence[str], trainer: str, *, pilot: int = SEEDS, observer: Observer = SILENT, **options: Any
                  ) -> Gate:
    """Train a pilot of a comparison of settings of a trainer, and say whether the comparison is decidable.

    Takes the arguments of `compare_trainer`, of the comparison that is planned, and raises the same errors. `pilot` is
    as in `isocost.compare.steps.pilot_methods`.
    """
    with _begun(arms, trainer, "pilot", observer=observer, **options) as (_, d, home, seal, run):
        train_pilot(home, d, options.get("seed", 0), pilot, seal, observer, run, _job)
    return read_pilot(home.path, d.labels, seeds=len(d.seeds), margin=d.margin, metric=d.metric)


@contextmanager
def _begun(
    arms: Sequence[str], trainer: str, below: str, *, budget: str | None, seeds: int = 5, rollouts: int | None = None,
    groups: int | None = None, lr: float | None = None, evaluations: int = 8, margin: float = MARGIN, seed: int = 0,
    held_out: int = 256, samples: int = 1, metrics: str | None = None, columns: Mapping[str, str] | None = None,
    stall: float | None = None, model: str | None = None, data: str | None = None, out: str | Path | None = None,
    workers: int | None = None, site: Site = HERE, observer: Observer = SILENT,
) -> Iterator[tuple[Arms, Design, Home, str, Run]]:
    """The arms, the design, its folder (or one `below` it) while it is written to, the seal, and what executes jobs."""
    made = Arms.of(arms, trainer, metrics=metrics, columns=columns, stall=stall)
    d = _design(made, budget, seeds, _size(rollouts, groups), lr, evaluations, margin, seed, held_out * samples)
    setting = Setting.of(
        model=model or UNNAMED, data=data or UNNAMED, held_out=float(held_out), samples=samples, threads=1
    )
    folder = (Path(out) if out else Path("comparisons") / "-".join(made.words)) / below
    asked = {"seed": seed, "method": None, "design": d.data(), "launch": site.to or PROCESSES,
             "trainers": {k: t.data() for k, t in made.trainers.items()},
             **({"address": site.address, "gpus": site.gpus} if site.address or site.gpus else {})}
    with writing(folder):
        check(folder, setting, **asked)
        home = found(folder, setting, **asked)
        observer.on(TrainerComparisonPlan(d, *known_before(home, d, setting)))
        if not home.has("compare.json"):
            expected = {"rollouts": d.total}
            home.write("compare.json", {"design": d.data(), "expected": expected, "seal": digest(d.data())})
        sealed = home.record("compare.json", "compare")
        if digest(sealed["design"]) != sealed["seal"]:
            raise UserError(f"{folder}/compare.json was changed after it was sealed: its hash does not match its seal")
        yield made, d, home, str(sealed["seal"]), partial(_drive, home, made, observer, workers)


def _size(rollouts: int | None, groups: int | None) -> Arm:
    return Arm(n=rollouts or ROLLOUTS_EACH, B=groups or GROUPS)


def _design(
    made: Arms, budget: str | None, seeds: int, arm: Arm, lr: float | None, evaluations: int, margin: float,
    seed: int, attempts: int,
) -> Design:
    """The design that a budget pays for: equal shares for all arms, each for a probe of three rates and its runs."""
    if budget is None:
        raise UserError("comparing settings of a trainer needs a --budget for the whole comparison, such as "
                        "200k-rollouts")
    spend, size = Budget.parse(budget), int(arm["n"] * arm["B"])
    if spend.unit != ROLLOUTS:
        raise UserError(f"--budget {spend}: settings of a trainer are compared in rollouts, such as 200k-rollouts")
    if seeds < 2:
        raise UserError(f"--seeds {seeds}: the spread between runs needs at least 2 seeds per arm; use 5 or more for a "
                        "useful power")
    probe_seeds = 2 if seeds >= MANY else 1
    each = spend.amount / (len(made.words) * (seeds + len(MULTIPLIERS) * probe_seeds * SHARE))
    M = int(each / size)
    if M < LEAST:
        least = LEAST * size * spend.amount / each
        raise UserError(f"{spend} over {len(made.words)} arms of {seeds} seeds pays for {counted(M, 'update')} of "
                        f"{size:,} rollouts a run; the minimum is {LEAST}: give {least:,.0f} rollouts, or fewer seeds, "
                        "or a smaller n or B")
    C, probe_C = M * size, max(int(SHARE * M), 1) * size
    rule = starting_rule(None) if lr is None else given(lr, size)
    return Design(
        arms=dict(made.words), labels=tuple(made.words),
        recipes={label: {"command": t.command, "trainer": t.kind} for label, t in made.trainers.items()},
        arm=arm, budget=spend.data(), unit=ROLLOUTS, cost=float(C), probe_cost=float(probe_C), rollouts=C,
        probe_rollouts=probe_C, points=spaced(C, size, evaluations), probe_points=spaced(probe_C, size, 2),
        rule=rule.data(), rates=tuple(rule.at(size, x) for x in MULTIPLIERS),
        seeds=tuple(run_seed(seed, "train", i) for i in range(seeds)),
        probe_seeds=tuple(run_seed(seed, "probe", i) for i in range(probe_seeds)),
        margin=margin, metric=PASS, sd=(NOISE**2 + EvaluationPlan(attempts, 1).sd ** 2) ** 0.5,
    )


def _job(home: Home, d: Design, label: str, run: PlannedRun, rule: RateRule, seal: str) -> Job:
    """One run of one arm."""
    probe = run.purpose == "probe"
    times = "" if run.purpose == "train" else f"-x{run.multiplier:g}"
    return Job(
        f"{run.purpose}-{label}{times}-s{run.index}", home.setting, str(d.recipes[label]["trainer"]), run.seed,
        {"rollouts": run.C}, run.arm.but(lr=run.lr(rule), warmup=warmup(run.M)),
        points=d.probe_points if probe else d.points, purpose=run.purpose, seal=seal,
    )


def _drive(
    home: Home, made: Arms, observer: Observer, workers: int | None, jobs: Sequence[Job], title: str
) -> list[dict[str, Any]]:
    """Run jobs, each by the trainer of its arm."""
    arm = {job.name: label for job in jobs for label in made.words
           if re.fullmatch(rf"(probe|pilot|train)-{re.escape(label)}(-x[0-9.]+)?-s[0-9]+", job.name)}
    return drive_jobs(home, jobs, title, observer, workers, trainers={k: made.trainers[v] for k, v in arm.items()})
