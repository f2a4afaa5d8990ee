"""Compare settings of a user's trainer at equal cost: every arm is the same command with other words for {arm}.

The files are those of a comparison of methods (`isocost.compare.steps`). Every arm has the same number of rollouts, its
learning rate is probed alike, and its runs have the same seeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from isocost.compare.design import LEAST, SHARE, Conditions, Design
from isocost.compare.gate import SEEDS, Gate, known_before
from isocost.compare.results import MethodComparison, ParentComparison, TrainerComparisonPlan
from isocost.compare.steps import conclude, run_pilot, sealed_in
from isocost.compare.training import Trials, name_of
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.planner.evaluation import EvaluationPlan, spaced
from isocost.planner.training.learning_rate import MULTIPLIERS, NOISE, RateRule, given, starting_rule
from isocost.planner.training.study_runs import PlannedRun, warmup
from isocost.runs.job import Job
from isocost.runs.launch.site import HERE, Site
from isocost.screen.words import counted
from isocost.steps.events import SILENT, Observer
from isocost.steps.execution import Execution
from isocost.steps.folder import found, writing
from isocost.steps.outside.settle import trainer_of
from isocost.steps.outside.trainer import Stated
from isocost.trainers.driving.command import Trainer
from isocost.trainers.driving.driven import KINDS
from isocost.units import ROLLOUTS

ARM = "{arm}"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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


@dataclass(frozen=True)
class TrainerTerms:
    """The arguments of a comparison of settings of a trainer: its arms, what all have, and what no log holds."""

    arms: Arms
    common: Conditions
    stated: Stated

    @staticmethod
    def of(arms: Sequence[str], trainer: str, *, metrics: str | None = None,
           columns: Mapping[str, str] | None = None, stall: float | None = None, **options: Any) -> TrainerTerms:
        """`options` are those of `Conditions` and of `Stated`. Raises UserError for those that do not fit."""
        stated = Stated(**{f.name: options.pop(f.name) for f in fields(Stated) if f.name in options})
        return TrainerTerms(Arms.of(arms, trainer, metrics=metrics, columns=columns, stall=stall),
                            Conditions(**options), stated)

    @property
    def folder(self) -> Path:
        """Where a comparison is kept unless a folder is given."""
        return Path("comparisons") / "-".join(self.arms.words)

    def design(self) -> Design:
        """The design that the budget pays for. Raises UserError for a budget that is too small or not in rollouts."""
        common, stated = self.common, self.stated
        spend, size, words = common.spend, int(common.arm["n"] * common.arm["B"]), self.arms.words
        if spend.unit != ROLLOUTS:
            raise UserError(f"--budget {spend}: settings of a trainer are compared in rollouts, such as 200k-rollouts")
        each = common.each(len(words))
        M = int(each / size)
        if M < LEAST:
            least = LEAST * size * spend.amount / each
            raise UserError(f"{spend} over {len(words)} arms of {common.seeds} seeds pays for {counted(M, 'update')} "
                            f"of {size:,} rollouts a run; the minimum is {LEAST}: give {least:,.0f} rollouts, or fewer "
                            "seeds, or a smaller n or B")
        C, probe_C = M * size, max(int(SHARE * M), 1) * size
        rule = starting_rule(None) if common.lr is None else given(common.lr, size)
        return Design(
            arms=dict(words), labels=tuple(words),
            recipes={label: {"command": t.command, "trainer": t.kind} for label, t in self.arms.trainers.items()},
            arm=common.arm, budget=spend.data(), unit=ROLLOUTS, cost=float(C), probe_cost=float(probe_C), rollouts=C,
            probe_rollouts=probe_C, points=spaced(C, size, common.evaluations), probe_points=spaced(probe_C, size, 2),
            rule=rule.data(), rates=tuple(rule.at(size, x) for x in MULTIPLIERS),
            seeds=common.seeds_of("train"), probe_seeds=common.seeds_of("probe"), margin=common.margin, metric=PASS,
            sd=(NOISE**2 + EvaluationPlan(stated.problems * stated.samples, 1).sd ** 2) ** 0.5,
        )


def plan_trainer_comparison(arms: Sequence[str], trainer: str, **terms: Any) -> TrainerComparisonPlan:
    """The design of a comparison of settings of a trainer; nothing is launched or written. Takes the `terms` of
    `compare_trainer` and raises the same errors."""
    return TrainerComparisonPlan(TrainerTerms.of(arms, trainer, **terms).design())


def compare_trainer(
    arms: Sequence[str], trainer: str, *, out: str | Path | None = None, workers: int | None = None, site: Site = HERE,
    observer: Observer = SILENT, **terms: Any,
) -> MethodComparison | ParentComparison:
    """Train settings of a user's trainer at equal cost and judge which is better.

    A comparison that was stopped continues where it stopped; one that has ended is judged again from its records.

    Args:
        arms: NAME=WORDS; the words replace {arm} in the command.
        trainer: the command, as `--trainer` takes it.
        out: the folder; by default comparisons/ and the arms' names.
        site: where runs are executed, `workers` side by side.
        **terms: budget in rollouts, seeds, rollouts, groups, lr, evaluations, margin and seed
            (`isocost.compare.design.Conditions`);
            held_out, samples, model and data (`isocost.steps.outside.trainer.Stated`);
            metrics: the file that the trainer logs to; columns: its columns; stall: as for `isocost profile`.

    Raises:
        UserError: for arguments that do not fit, a budget that is too small, a run that fails, or a folder with other
            settings.
        Interrupted: after a signal, with every process gone.
    """
    asked = TrainerTerms.of(arms, trainer, **terms)
    with _begin(asked, Path(out or asked.folder), Execution(workers, site, observer)) as trials:
        lacks = dict.fromkeys(m for t in asked.arms.trainers.values() for m in KINDS[t.kind].lacks)
        return conclude(trials, asked.stated.setting, asked.common.seed, [f"the logs lack {m}" for m in lacks])


def pilot_trainer(
    arms: Sequence[str], trainer: str, *, pilot: int = SEEDS, out: str | Path | None = None,
    workers: int | None = None, site: Site = HERE, observer: Observer = SILENT, **terms: Any,
) -> Gate:
    """Train a pilot of a comparison of settings of a trainer, and say whether the comparison is decidable. Takes the
    arguments of `compare_trainer`, of the comparison that is planned, and raises the same errors. `pilot` is as in
    `isocost.compare.steps.pilot_methods`."""
    asked = TrainerTerms.of(arms, trainer, **terms)
    with _begin(asked, Path(out or asked.folder) / "pilot", Execution(workers, site, observer)) as trials:
        return run_pilot(trials, asked.common.seed, pilot)


@contextmanager
def _begin(asked: TrainerTerms, folder: Path, execution: Execution) -> Iterator[Trials]:
    """The sealed comparison in its folder, while it is written to."""
    d, setting = asked.design(), asked.stated.setting
    site = execution.site.data()
    settings = {"seed": asked.common.seed, "method": None, "design": d.data(), "launch": site["launch"],
                "trainers": {k: t.data() for k, t in asked.arms.trainers.items()}, **site}
    with writing(folder):
        home = found(folder, setting, **settings)
        execution.observer.on(TrainerComparisonPlan(d, *known_before(home, d, setting)))
        seal = sealed_in(home, d, {"rollouts": d.total})
        yield Trials(home, d, seal, execution, _job, asked.arms.trainers)


def _job(trials: Trials, label: str, run: PlannedRun, rule: RateRule) -> Job:
    """One run of one arm."""
    home, kind = trials.home, str(trials.design.recipes[label]["trainer"])
    return Job(name_of(label, run), home.setting, kind, run.seed, {"rollouts": run.C},
               run.arm.but(lr=run.lr(rule), warmup=warmup(run.M)), points=trials.points(run), purpose=run.purpose,
               seal=trials.seal)
