"""The audit: the sealed forecast against the trained runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isocost.can import Can
from isocost.laws.curves import attempts_of, curves
from isocost.planner import audit as audits
from isocost.planner import bill as bills
from isocost.planner import forecast as forecasts
from isocost.runs import parted, rules
from isocost.runs.files import RunFiles
from isocost.screen.display import OfPlanner, Row, Table, folder_field, given
from isocost.steps.study import StudyRecord, changes
from isocost.steps.training.spending import machine_of, priced


@dataclass(frozen=True)
class AuditResult(OfPlanner):
    """The forecast against the outcome (`isocost.planner.audit.Audit`). parted: a line for each n of whose runs one has
    a mark and a truth that have parted."""

    has: ClassVar[str] = "audit"

    audit: audits.Audit
    folder: Path | None = folder_field()
    parted: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        return f"audit: {self.audit.verdict}"

    def rows(self) -> list[Row | Table]:
        """The reason for the verdict, the interval scores, and the differences between the arms."""
        a = self.audit
        out: list[Row | Table] = [Row("", a.reason)]
        if a.rule:
            out.append(Row("", a.rule, "flag"))
        out += [Row("", line, "flag") for line in self.parted]
        out += [Row(f"interval score {s.score:.3f}  {s.name}", f"{s.value:.3f} [{s.low:.3f}, {s.high:.3f}]")
                for s in a.scores]
        if a.beats_naive is not None:
            out.append(Row("", f"by interval score the forecast {'beats' if a.beats_naive else 'does not beat'} the "
                               "best naive forecast; lower is better: the width of the interval, plus 20 times the "
                               "distance of the outcome from it"))
        if a.difference is not None and a.comparator is not None:
            out.append(Row(f"prescribed minus n = {a.comparator['n']}", f"{a.difference}; better: {a.better}"))
        if a.leader is not None and a.leader.difference is not None:
            out.append(Row(f"prescribed minus n = {a.leader.arm['n']}, the best at the pilot's end",
                           f"{a.leader.difference}; better: {a.leader.better}"))
        if a.gain is not None:
            out.append(Row("gain over the base", str(a.gain)))
        return [*out, *bills.missed(a.bill), *given(bills.compared(a.bill))]


@changes
def audit(study: StudyRecord) -> AuditResult:
    """Compare the sealed forecast with the outcome and write audit.json.

    `verdict` is hit, miss, cannot tell or uninformative, and `exit_code` its number for scripts.

    Raises UserError before a forecast is sealed, for a source without sealed forecasts, and where a run or the forecast
    does not carry the seal.
    """
    study.source.require(Can.SEAL, study.path)
    forecast = study.forecast
    sealed = forecasts.rules_of(forecast)
    names = (*forecast.runs, *forecast.comparator_runs, *forecast.leader_runs)
    there = [run for run in map(study.run, names) if run.has("run.json")]   # of no other run are the curves read
    found = audits.audit(
        forecast, curves(there, study.metric, clock=False), audits.seals(there),
        noise=study.planned.evaluation.sd_of(attempts_of(study.metric)), shares=audits.at_their_share(there),
        changed=(*forecasts.changed(forecast.hashes, study.hashes), *_other_rules(there, sealed)),
        rule=_rule(there, sealed), paid=_paid(study, there, len(names)),
    )
    study.write("audit.json", found.data())
    return AuditResult(found, study.path, tuple(parted.by_n(there)))


def _paid(study: StudyRecord, runs: Sequence[RunFiles], named: int) -> bills.Bill | None:
    """What the runs of a forecast were billed together; None unless all of them have ended."""
    over = [run for run in runs if run.over]
    return priced(bills.billed(over), machine_of(study)) if len(over) == named else None


def _other_rules(runs: Sequence[RunFiles], sealed: Mapping[str, int]) -> list[str]:
    """What differs between the rules by which these runs were made and those that the forecast was sealed for."""
    trained = {run.name: rules.recorded(about["recipe"], about.get("code"))
               for run in runs if (about := run.about()).get("recipe")}
    return [text for name, own in trained.items() if (text := rules.differences(sealed, own, f"in {name}"))]


def _rule(runs: Sequence[RunFiles], sealed: Mapping[str, int]) -> str:
    """A sentence if the forecast was sealed for other rules than those of this version; empty if not."""
    run = next((about for run in runs if (about := run.about()).get("recipe")), None)
    text = rules.differences(sealed, rules.now(run["recipe"])) if run else ""
    return text and f"sealed for runs under {text}: its runs are judged as they were made"
