"""The fit: a law from the pilot's curves, or the reason why it is not identified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from isocost.can import Can
from isocost.errors import UserError
from isocost.laws import law as laws
from isocost.laws.bins import binned
from isocost.laws.curves import PASS, Curve, attempts_of, curves, multiplier
from isocost.laws.fit import fit_law
from isocost.laws.interference import Interference, by_n, interferences
from isocost.laws.law import Flag, Growth, NotIdentified
from isocost.laws.overfit import Overfit, describe, overfitting
from isocost.planner.training.turn_limits import LimitChoice, choose, extrapolated
from isocost.runs import measure, source
from isocost.runs.files import RunFiles
from isocost.runs.measure import TRAINING
from isocost.screen.display import OfPlanner, Result, Row, Table, folder_field, given
from isocost.screen.words import counted, word
from isocost.stats.posterior import USUAL
from isocost.steps.study import CHOICE, StudyRecord, changes
from isocost.steps.training.limits import of_chosen, of_limit
from isocost.units import ENV_STEPS, ROLLOUTS

# Public logs that the law was not developed on, and the share of its 90 % intervals that held there, of all and of
# training rewards (docs/outside_curves.md).
SOURCES, HELD, HELD_TRAINING = 21, 90, 93
POINTS = 6      # log-spaced over a pilot at one batch, at which the best n is listed


@dataclass(frozen=True, eq=False)
class LawResult(OfPlanner):
    """The law of a study.

    law: the fitted law (`isocost.laws.law.Law`).
    metric: what its rewards are: pass@1, best@4 or worst@4.
    interference: per n, the shares of held-out problems that regressed and how uniform the gains were; not in
        `to_dict()`.
    turn_limit: the turn limits that the pilot compares, and the one that the law is of; None with fewer than two.
    extendable: whether runs can be added to the study's pilot. splits: whether held-out problems are divided into a
        validation and a test split. advice: what one imported run needs for a plan.
    binned: whether the curves are fitted to means over bins of evaluations, as those of long logs are. unit: of C.
    """

    has: ClassVar[str] = "law"

    law: laws.Law
    metric: str = PASS
    interference: tuple[Mapping[str, Any], ...] = ()
    extendable: bool = False
    splits: bool = True
    advice: str = ""
    binned: bool = False
    unit: str = ROLLOUTS
    turn_limit: LimitChoice | None = None
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        of = "law" if self.metric == PASS else f"law of {self.metric}"
        return of if self.law.refused is None else f"{of}: not identified"

    def rows(self) -> list[Row | Table]:
        """Why it is not identified and what would resolve it, the arms at the pilot's end, n*(C), and cautions."""
        law, refused, other = self.law, self.law.refused, self.law.forecast_refused
        ends = [(arm, float(arm.C[-1])) for arm in law.arms]
        cells = [(f"{a.n}", f"{a.B}", f"{a.lr:.1e}", f"{len(a.runs)}", f"{C:,.0f}", str(law.predict(a.n, C)[0]),
                  f"{a.diverged}") for a, C in ends]
        end = "at their end, test split" if self.splits else "at their end"
        resolved = [] if refused is None else [
            Row("", refused.reason), Row("to resolve", refused.settle),
            Row("", "the curves themselves can be forecast; a plan needs the above" if other is None else ""),
            *self._added(of_chosen(refused.option, self.turn_limit)),
        ]
        if other not in (None, refused):
            resolved += [Row("no forecast", other.reason), Row("to resolve", other.settle)]
        return given(
            *resolved,
            Table(("n", "B", "lr", "runs", self.unit, end, "diverged"), cells),
            Row("", f"fitted to means over at most {USUAL} bins of each run's evaluations; a curve ends at the mean C "
                    "of its last bin" if self.binned else ""),
            Row("", law.how_runs_differ),
            *self._best(),
            *(Row("", f.text, "flag") for f in law.flags),
            self._interference(),
            *self._turn_limit(),
            Row("", self.advice, "command"),
        )

    def _added(self, option: str) -> list[Row]:
        """The command that adds runs to the pilot."""
        row = Row("", f"    isocost pilot {word(self.folder)} {option}", "command")
        return [row] if self.extendable and option else []

    def _best(self) -> list[Row]:
        """n*(C); with a fixed batch, n*(M) and B*(M)."""
        if any(f.name == "fixed_batch" for f in self.law.flags) and self.law.arms:
            return _traded(self.law)
        best = self.law.n_star
        if isinstance(best, NotIdentified):
            return [Row("", f"n*(C) is not identified: {best.reason}")]
        return [] if best is None else [
            Row("n*(C)", "  ".join(f"{C:.0f}: {best.at(C).value:.1f}" for C in self.law.range))]

    def _interference(self) -> Row:
        """By n, held-out problems that regressed and how uniform the gains were; empty where no record holds them."""
        rows = self.interference
        chance = max((r["chance"] or 0.0 for r in rows), default=0.0)
        note = f" (by sampling alone up to {chance:.1%})" if chance else ""
        even = any(r["uniformity"] is not None for r in rows) * ", uniformity of gains (1: equal on every problem)"
        return Row(f"held-out problems that regressed vs. base{note}{even}", "  ".join(
            f"n={r['n']}: {r['forgotten']:.1%}" + ("" if r["uniformity"] is None else f", {r['uniformity']:.2f}")
            for r in rows))

    def _turn_limit(self) -> Iterable[Row]:
        """The turn limits that a pilot compared, and what would resolve it if they are not separated."""
        if (found := self.turn_limit) is None:
            return
        yield Row("", found.text)
        for r in found.differences:
            each = "  ".join(f"n={x['n']}: {x['mean']:+.3f}" for x in r["by_n"])
            yield Row("", f"  {counted(r['turns'], 'turn')} instead of {found.turns[-1]}, by n  {each}")
        yield Row("to resolve", found.settle)
        yield from self._added(found.option)

    def to_dict(self) -> dict[str, Any]:
        """law.json."""
        limit = {} if self.turn_limit is None else {"turn_limit": self.turn_limit.data()}
        return self.law.data() | {"metric": self.metric} | limit


def _traded(law: laws.Law) -> list[Row]:
    """n*(M) and B*(M) = nB / n*(M) at one batch, or the best n along the pilot and why no sigmoid goes through them. C
    = nB M there, so n*(M) is n*(C) (IsoCompute, arXiv 2603.12151)."""
    batch, best = law.arms[0].n * law.arms[0].B, law.n_star
    if not isinstance(best, Growth):
        C = np.geomspace(*law.range, POINTS)
        runs = groupby(zip(law.ns_at(C), C / batch, strict=True), itemgetter(0))
        ends = [(n, max(at for _, at in own)) for n, own in runs]
        return [Row("", f"n*(M) at n B = {batch} is not identified: {best.reason if best else ''}"),
                Row("best along the pilot", ", then ".join(
                    f"n={n}, B={batch // n} to {at:.0f} updates" for n, at in ends))]
    return [Row(f"after {counted(round(C / batch), 'update')} of n B = {batch}",
                f"n* = {n.value:.1f} [{n.low:.1f}, {n.high:.1f}] and B* = {batch / n.value:.1f} "
                f"[{batch / n.high:.1f}, {batch / n.low:.1f}] ({n.level:.0%})")
            for C, n in ((C, best.at(C)) for C in law.range)]


@dataclass(frozen=True)
class NoLaw(Result):
    """A study that was planned without a pilot has nothing to fit a law to; `why` says why it has no pilot."""

    why: str
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return "no law"

    def rows(self) -> list[Row]:
        """Why there is none, and the command to go on with."""
        return [Row("", f"nothing to fit: the study is planned without a pilot. {self.why}"),
                Row("", f"go on with `isocost train --plan {word(self.folder or '')}`", "command")]

    def to_dict(self) -> dict[str, Any]:
        """`law`, which is None, and `why`."""
        return {"law": None, "why": self.why}


def fit_folder(path: Path, *, metric: str | None = None) -> LawResult | NoLaw:
    """`fit` of the study in a folder; of one imported run the curve is fitted and nothing is written."""
    if not (path / "study.json").exists() and (path / "run.json").exists():
        run = RunFiles(path)
        if not source.of(run.about()).can(Can.PILOT):
            return _alone(run, metric)
    return fit(StudyRecord.read(path), metric=metric)


@changes
def fit(study: StudyRecord, *, metric: str | None = None) -> LawResult | NoLaw:
    """Fit the law to the pilot's curves and write law.json; a law that is there is read.

    `metric` (pass@1, best@4, worst@4) changes what later laws are of.

    Raises UserError before every run of the pilot has ended, and for a metric that the evaluations do not hold.
    """
    _require(study.source, study.path, metric)
    if study.has("pilot.json") and study.planned.direct:
        return NoLaw(study.planned.why, study.path)
    study = choose_metric(study, metric)
    if not study.has("law.json"):
        with study.phase("fit"):
            law, choice = _law(study)
            beside = {"metric": study.metric} | ({} if choice is None else {CHOICE: choice.data()})
            study = study.write("law.json", law.data() | beside)
    assert study.law is not None
    own = study.source.can(Can.SPLITS)
    return LawResult(
        study.law, turn_limit=study.choice, metric=study.metric, interference=tuple(by_n(_of_law(study))),
        extendable=study.source.can(Can.PILOT), splits=own, binned=not own and _are_binned(study.curves(PASS)),
        unit=measure.of(study.any_run)["unit"], folder=study.path,
    )


def _of_law(study: StudyRecord) -> list[Interference]:
    """What is known of interference, of a pilot that compares turn limits only at the limit that the law is of."""
    every = interferences(study.runs_read)
    if study.turns is None:
        return every
    names = {r.name for r in study.planned.at(study.turns).runs}
    return [x for x in every if x.run in names]


def _require(runs: source.Source, path: Path, metric: str | None) -> None:
    """Raises UserError where the evaluations of these runs hold no other metric than pass@1 and one is requested."""
    if metric not in (None, PASS):
        runs.require(Can.METRICS, path)


def _alone(run: RunFiles, metric: str | None) -> LawResult:
    """The law of one run that is in no study, and what a plan needs in addition; nothing is written. Raises UserError
    where its record does not hold the reward of the policy before training."""
    record, seen = run.about(), curves([run])
    found = source.of(record)
    _require(found, run.folder, metric)
    law = _flagged(fit_law(_with_base(found, run.folder, seen)), record)
    advice = (f"one run: a plan needs a study, with other seeds of n = {record['arm']['n']} and runs of other n where "
              f"there are any: {found.start}")
    return LawResult(
        law, splits=found.can(Can.SPLITS), advice=advice, binned=_are_binned(seen),
        unit=measure.of(record)["unit"], folder=run.folder,
    )


def _are_binned(seen: Sequence[Curve]) -> bool:
    """Whether curves are fitted to means of their evaluations, because these are many and noisy."""
    return any(binned(curve) is not curve for curve in seen if curve.purpose in ("pilot", "run"))


def _with_base(runs: source.Source, path: Path, seen: Sequence[Curve]) -> Sequence[Curve]:
    """The curves. Raises UserError where the source may lack the reward before training and no curve begins with it."""
    if not any(c.C[0] == 0 for c in seen):
        runs.require(Can.BASE, path)
    return seen


def _flagged(law: laws.Law, run: Mapping[str, Any]) -> laws.Law:
    """The law with flags on what its rewards and C are, by one of its runs; as it is for runs of isocost."""
    measured, flags = measure.of(run), []
    name = measured["metric"]
    if measured["kind"] == TRAINING:
        flags.append(Flag(
            "training_reward",
            f"these are training rewards ({name}), earned on the problems that were trained on: nothing here is "
            "held out, so over-fitting cannot be detected and reward on other problems is not predicted",
        ))
    elif not source.of(run).can(Can.SPLITS):
        flags.append(Flag(
            "one_half",
            f"one held-out number ({name}) both chooses n and is reported: the value of the n it "
            "chose is a little too high",
        ))
    if law.upper > 1:
        held, of = (HELD_TRAINING, " of those for training rewards") if measured["kind"] == TRAINING else (HELD, "")
        flags.append(Flag(
            "logged",
            f"90 % prediction intervals, tested on logs of {SOURCES} public sources at 2 to 4 times what was seen: "
            f"{held} %{of} held; a reward may still rise late, or fall again",
        ))
    if measured["unit"] != ROLLOUTS:
        flags.append(Flag("unit", f"C is in {measured['unit']}, not in rollouts"))
    low, high = measure.scale_of(run)
    if (low, high) != measure.UNIT:
        flags.append(Flag("scale", f"rewards are on a scale from 0 to 1, which is {low:g} to {high:g} in the logs"))
    return replace(law, flags=(*flags, *law.flags)) if flags else law


def _law(study: StudyRecord) -> tuple[laws.Law, LimitChoice | None]:
    """The fitted law, with flags for its metric and for over-fitting, and the turn limit that it is of. Each turn limit
    has a law of its own: the runs of another limit are fitted with none of its parameters."""
    metric, planned, seed = study.metric, study.planned, study.asked["seed"]
    seen = _with_base(study.source, study.path, _pilot_curves(study))
    choice = choose(seen, planned.limits, planned.budget.unit if planned.budget else ENV_STEPS)
    if choice is not None and choice.identified:
        each = {h: planned.at(h) for h in choice.turns}
        found = {h: fit_law(of_limit(seen, own), seed=seed) for h, own in each.items()}
        choice = extrapolated(choice, found, {h: own.train_C for h, own in each.items()})
    chosen = None if choice is None else choice.chosen
    law = _flagged(fit_law(of_limit(seen, planned.at(chosen)), seed=seed), study.any_run)
    over = overfitted(study, chosen)
    flags = [Flag("overfitting", describe(over))] if over else []
    if planned.rates:
        rate, left = planned.rates[0][1], [n for n in planned.grid if n not in dict(planned.rates)]
        flags.append(Flag("rate", f"n={', '.join(map(str, left))} left out: their runs have the rule's learning rate, "
                                  f"and {rate:g} times that was better"))
    if metric != PASS:
        flags.append(Flag("metric", f"this law is of {metric}: such values were found hard to predict (arXiv "
                                    "2603.12151), so take n, B, M and the rate from it and not the reward"))
    return replace(law, flags=(*law.flags, *flags)), choice


def choose_metric(study: StudyRecord, metric: str | None, samples: int | None = None) -> StudyRecord:
    """The study with laws of this metric from here on; a law and a plan of another metric are removed.

    `samples` are those per held-out problem of a pilot that is about to be planned; without, they are the planned
    pilot's, or the setting's where none is planned.

    Raises UserError for an unknown metric, one that the evaluations cannot give, or once a forecast is sealed.
    """
    if metric is None or metric == study.metric:
        return study
    k, drawn = attempts_of(metric), samples or study.setting.evaluation.samples
    if samples is None and study.has("pilot.json"):
        drawn = study.planned.evaluation.samples or drawn
    study.source.require(Can.METRICS, study.path)
    if not study.profiled()["exact"] and drawn < k:
        raise UserError(
            f"{metric} needs {k} samples per held-out problem and this study's evaluations have {drawn}: plan its "
            f"pilot with `isocost plan {word(study.path)} --metric {metric} --samples {k}`, before it has runs"
        )
    if study.has("forecast.json"):
        raise UserError(f"{study.path}/forecast.json is sealed for {study.metric}; start another study for {metric}")
    if study.runs.exists():
        study.curves(metric)    # raises where the runs do not hold it
    return study.amend(metric=metric).without("law.json", "plan.json")


def overfitted(study: StudyRecord, turns: int | None = None) -> list[Overfit]:
    """The pilot's arms at the rule's rate, and at this turn limit, that over-fit, by pass@1 whatever the metric; none
    without a held-out reward."""
    if measure.of(study.any_run)["kind"] == TRAINING:
        return []
    seen = of_limit(study.curves(PASS), study.planned.at(turns))
    seen = [c for c in seen if c.purpose == "pilot" and multiplier(c) == 1.0]
    return overfitting([c for c in seen if turns in (None, c.arm.get("turns"))])


def _pilot_curves(study: StudyRecord) -> list[Curve]:
    """Raises UserError unless every run that the pilot plans has ended."""
    planned = study.planned
    over = sum(study.run(r.name).over for r in planned.runs)
    if over < len(planned.runs) or planned.reserve:
        raise UserError(
            f"the pilot of {study.path} is not done: {over} of {counted(len(planned.runs), 'run')} ended; "
            f"run `isocost pilot {word(study.path)}` first"
        )
    return [c for c in study.curves() if c.purpose in ("pilot", "edge")]
