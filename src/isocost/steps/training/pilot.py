"""The pilot: the runs that are planned, and those that are added to them until a forecast is sealed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isocost.can import Can
from isocost.errors import Interrupted, UserError
from isocost.laws.curves import PASS
from isocost.planner.budget import Machine, measure_timing, worded
from isocost.planner.training.focus import focused
from isocost.planner.training.learning_rate import RateRule, Shift, fit_rate, probe_results, shift
from isocost.planner.training.pilot import PilotPlan
from isocost.runs import rules
from isocost.runs.files import SCHEMA
from isocost.runs.launch.site import HERE, Site
from isocost.runs.schema import ENDED
from isocost.runs.stop_at import StopAt
from isocost.screen.display import Result, Row, folder_field
from isocost.screen.words import counted, word
from isocost.steps.events import SILENT, Extended, Observer
from isocost.steps.execution import Execution
from isocost.steps.outside.early import NEVER, Stops
from isocost.steps.outside.settle import settle
from isocost.steps.study import StudyRecord, changes
from isocost.steps.training import plans, spending
from isocost.steps.training.jobs import execution_for, jobs_of, run_phase
from isocost.steps.training.limits import of_limit
from isocost.steps.training.stopping import StoppedRuns, amount_of, shared


@dataclass(frozen=True)
class PilotResult(Result):
    """A pilot that has run: the learning rate rule its probe supports, and whether the best n depends on the rate."""

    rate: RateRule
    shift: Shift
    folder: Path | None = folder_field()

    def rows(self) -> list[Row]:
        """Whether the best n depends on the learning rate; the rule itself is shown before the grid runs."""
        return [Row("", self.shift.text)]

    def to_dict(self) -> dict[str, Any]:
        """rate.json, and shift.json as `shift`."""
        return {"schema": SCHEMA, **self.rate.data(), "shift": self.shift.data()}


@dataclass(frozen=True)
class Additions:
    """Runs to add to a pilot, at the turn limit `turns` or at every limit that the pilot compares. `longer` ("4=24576",
    "4=4x", "all=4x") continues the runs of n, `seeds` ("8=2", "all=2") adds runs of n. Raises UserError for a turn
    limit alone."""

    longer: Sequence[str] = ()
    seeds: Sequence[str] = ()
    turns: int | None = None

    def __post_init__(self) -> None:
        if self.turns is not None and not self:
            raise UserError(f"--turns {self.turns} says where --longer and --seeds add runs: give one of them")

    def __bool__(self) -> bool:
        return bool(self.longer or self.seeds)

    def to(self, planned: PilotPlan) -> PilotPlan:
        """The pilot with these runs. Raises UserError for a text that cannot be read and for runs that do not fit."""
        ends = planned.lengths_at(self.turns) or planned.lengths
        return planned.extended(_of_each("--longer", self.longer, ends, "4=24576, 4=4x or all=4x"),
                                _of_each("--seeds", self.seeds, dict.fromkeys(ends, 0), "8=2 or all=2"), self.turns)


@changes
def pilot(
    study: StudyRecord, added: Additions = Additions(), *, dry_run: bool = False, trainer: str | None = None,
    stops: Stops = NEVER, workers: int | None = None, site: Site = HERE, observer: Observer = SILENT,
) -> PilotResult | plans.PilotPlanResult | StoppedRuns:
    """Run what pilot.json plans: the learning-rate probe, then the grid of n and its edges at the rule that the probe
    supports. Finished runs are not repeated.

    The `added` runs are planned first: what ran is not paid for again.
    `workers` runs go side by side, where `site` says; results do not depend on either. A dry run, and a plan without
    a pilot, return the plan with its cost, at what the runs so far have cost. A user's `trainer` is the one that the
    study began with; `stops` says when its runs are ended early. Of the amount at which all end, the probe's runs may
    take all, and the others share what is left.

    Raises:
        UserError: for a source whose runs cannot be launched, before there is a plan, and where the pilot leaves
            nothing for training.
        Interrupted: after a signal, with everything paid for on disk.
    """
    study.source.require(Can.PILOT, study.path)
    study = settle(study, trainer, site)
    rules.refuse_other_runs(study.runs_read, study.path)
    stops.require(study)
    planned = study.planned
    if added:
        there = measured(study, planned)
        study, planned = _extended(study, there, added, dry_run=dry_run)
        before, after = there.pilot_bill, planned.pilot_bill
        observer.on(Extended(after.rollouts - before.rollouts, after.seconds - before.seconds, before.rollouts,
                       planned.timing.source))
    elif dry_run:
        planned = measured(study, planned)
    if dry_run or planned.direct:
        return plans.PilotPlanResult(planned, folder=study.path)
    try:
        return _run(study, planned, Execution(workers, site, observer), stops, amount_of(stops.at, study))
    except Interrupted as e:    # the added runs are recorded: the command to continue must not add them again
        raise Interrupted(e.signum, f"isocost pilot {word(study.path)}" if added else "") from None


def _run(
    study: StudyRecord, planned: PilotPlan, asked: Execution, stops: Stops, at: StopAt | None
) -> PilotResult | StoppedRuns:
    execution, again = execution_for(study, asked), f"isocost pilot {word(study.path)} [--stop-at MORE]"
    probes = planned.of_purpose("probe")
    with study.phase("probe"):
        jobs = shared(at, jobs_of(study, planned, probes, planned.rate), study)
        ends = run_phase(study, jobs, "learning-rate probe", execution, replace(stops, worth=None))
    study = study.again()
    if stopped := StoppedRuns.of(at, jobs, ends, study, again):
        return stopped      # no rate follows from a part of the probe
    if not study.has("rate.json"):
        seen = probe_results(study.curves(PASS)) if planned.of_purpose("probe") else []
        start = planned.rate
        study = study.write("rate.json", (fit_rate(seen, start.reference, start.exponent) if seen else start).data())
    rule = study.rule
    execution.observer.on(rule)
    _require_affordable(study, planned)
    while True:
        with study.phase("pilot"):
            both = (*planned.of_purpose("pilot"), *planned.of_purpose("edge"))
            jobs = shared(at, jobs_of(study, planned, both, rule), study, [run.name for run in probes])
            ends = run_phase(study, jobs, "pilot", execution, stops)
        study = study.again()
        if stopped := StoppedRuns.of(at, jobs, ends, study, again, [run.name for run in probes]):
            return stopped
        if not planned.reserve:
            break
        planned = focused(measured(study, planned), study.curves(PASS))
        study = write_pilot(study, planned, spending.machine_of(study))
    found = shift(of_limit(study.curves(PASS), replace(planned, rates=()).at(None)))
    study.write("shift.json", found.data())
    return PilotResult(rule, found, study.path)


def refuse_sealed(study: StudyRecord) -> None:
    """Raises UserError once a forecast is sealed."""
    if study.has("forecast.json"):
        raise UserError(f"{study.path}/forecast.json is sealed, so its plan and law cannot change; to plan again, "
                        "start another study")


def write_pilot(study: StudyRecord, planned: PilotPlan, machine: Machine) -> StudyRecord:
    """The study with a pilot's plan, and without the prescription, which follows from it."""
    beside = spending.of_pilot(study, planned, machine)
    return study.write("pilot.json", {**planned.data(), **beside}).without("plan.json")


def _extended(
    study: StudyRecord, planned: PilotPlan, added: Additions, *, dry_run: bool
) -> tuple[StudyRecord, PilotPlan]:
    """The study and its pilot with runs added, written unless this is a dry run; its law and plan are removed. Every
    run must have ended: after a kill, the same options would otherwise add a second time."""
    refuse_sealed(study)
    if planned.direct:
        raise UserError(f"this plan has no pilot that runs could be added to: {planned.why}")
    under_way = [r.name for r in planned.runs if not study.run(r.name).over]
    if under_way or planned.reserve:
        left = (f"{counted(len(under_way), 'run')} of the planned pilot still to end, such as {under_way[0]}"
                if under_way else "the pilot still has a reserve to spend after its grid")
        raise UserError(f"{left}: go on with `isocost pilot {word(study.path)}` first")
    made = added.to(planned)
    _require_affordable(study, made)
    if not dry_run:
        study = write_pilot(study.without("law.json", "shift.json"), made, spending.machine_of(study))
    return study, made


def _of_each(option: str, texts: Sequence[str], there: Mapping[int, int], example: str) -> dict[int, int]:
    """n -> amount of options N=AMOUNT: `all` is every n of the pilot, 4x four times its length."""
    out = {}
    for text in texts:
        found = re.fullmatch(r"([0-9]+|all)=([0-9]+)(x?)", text)
        if not found or (found[3] and not any(there.values())):
            raise UserError(f"cannot read {option} {text!r}: write n and how much, such as {option} {example}")
        for n in there if found[1] == "all" else (int(found[1]),):
            out[n] = int(found[2]) * (there.get(n, 1) if found[3] else 1)
    return out


def measured(study: StudyRecord, planned: PilotPlan) -> PilotPlan:
    """The plan with its bills at what the study's runs so far have cost; unchanged where no run has ended. With turn
    limits, prices are those of the runs at the largest; the others are relative to it."""
    planned = planned.rebased()
    last = planned.at(None)
    runs = [study.run(r.name) for r in last.runs]
    bills = [run.ended(ENDED)["bill"].get("train", {}) for run in runs if run.end]
    if not bills:
        return planned
    seen = of_limit(study.curves(PASS), last)
    return planned.repriced(planned.prices.measured(bills), measure_timing(seen, planned.timing))


def _require_affordable(study: StudyRecord, planned: PilotPlan) -> None:
    """Raises UserError if the pilot, at its measured cost, leaves less than the least cost of training."""
    if planned.budget is None or not any(study.run(r.name).end for r in planned.runs):
        return
    now = measured(study, planned)
    pilot, least = now.pilot_bill, now.least_training(now.prices, now.timing)
    cost, more = (worded(planned.budget, b.of_unit(planned.budget.unit)) for b in (pilot, pilot + least))
    if (pilot + least).of_unit(planned.budget.unit) > planned.budget.amount:
        raise UserError(
            f"by what was measured so far the pilot takes {cost} in all, and with the least training after it {more}: "
            f"{planned.budget} is too little. Give `isocost plan {word(study.path)} --budget` more, or add or plan less"
        )
