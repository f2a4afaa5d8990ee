"""The fit of a study of control: the law of samples for several returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isocost.laws.value_fit import OFFLINE, SIGMA
from isocost.planner.control.curves import return_curves
from isocost.planner.control.prescribe import WORDS, ControlLaws, fit_returns
from isocost.screen.display import OfPlanner, Row, Table, folder_field
from isocost.screen.words import counted, word
from isocost.steps.study import StudyRecord, changes


@dataclass(frozen=True)
class ControlLawResult(OfPlanner):
    """The laws of a study of control (`isocost.planner.control.prescribe.ControlLaws`)."""

    has: ClassVar[str] = "laws_of"

    laws_of: ControlLaws
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return f"samples to a return, from {counted(self.laws_of.runs, 'run')}"

    def rows(self) -> list[Row | Table]:
        """Samples at each sigma for each return, how the best batch and rate move, and returns without a law."""
        out: list[Row | Table] = []
        laws = self.laws_of.laws
        if laws:
            sigmas, cells, over = sorted({s for law in laws for s in law.sigmas}), [], laws[0].over
            for law in laws:
                at = {s: f"{i.value:,.0f} [{i.low:,.0f}, {i.high:,.0f}]"
                      for s, i in zip(law.sigmas, law.samples, strict=True)}
                none = "none arrives" if over == SIGMA else "left out"
                cells.append((f"{law.wanted:.4g}", f"{law.missed:.0%}", *(at.get(s, none) for s in sigmas),
                              f"{law.falls:.0%}"))
            out.append(Table(("return", "missed", *map(WORDS[over][2], sigmas), "falls"), cells))
            for axis, slope in laws[-1].slopes.items() if over == SIGMA else ():
                text = "not identified: it needs 3 values, the middle one the best" if slope is None else (
                    f"sigma^{slope.value:.2f} [{slope.low:.2f}, {slope.high:.2f}] at a return of {laws[-1].wanted:.4g}")
                out.append(Row(f"best {axis}", text))
        out += [Row("no law", why, "flag") for _, why in self.laws_of.dropped]
        out.append(Row("", "missed: runs that never reach the return; they are censored, not left out"))
        if laws and laws[0].over == OFFLINE:
            out.append(Row("", "left out: no run arrives, or most have the return at their first evaluation"))
        if self.folder is not None and laws:
            out.append(Row("next", f"isocost plan {word(self.folder)} --return RETURN", "command"))
        return out


@changes
def fit_control_study(study: StudyRecord) -> ControlLawResult:
    """Fit the laws to the runs of the pilot, or of the logs, and write law.json.

    Raises UserError where the study has no runs.
    """
    curves = return_curves(study.runs_read, ("pilot",))
    if not curves:
        study.record("pilot.json", "plan")
        study.record("law.json", "pilot")       # raises, naming the step
    with study.phase("fit"):
        told = fit_returns(curves)[1]
        study.without("plan.json") if not study.has("forecast.json") else None
        study.write("law.json", told.data())
    return ControlLawResult(told, study.path)
