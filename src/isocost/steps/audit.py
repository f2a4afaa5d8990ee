"""The audit: the sealed forecast against the trained runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isocost.laws.curves import attempts_of, curves
from isocost.planner import audit as audits
from isocost.planner import forecast as forecasts
from isocost.runs import rules
from isocost.runs.files import RunFiles
from isocost.runs.source import Can
from isocost.steps.results import Audit
from isocost.steps.study import Study, changes


@changes
def audit(study: Study) -> Audit:
    """Compare the sealed forecast with the outcome and write audit.json.

    `verdict` is hit, miss, cannot tell or uninformative, and `exit_code` its number for scripts.

    Raises:
        UserError: before a forecast is sealed, for a source without sealed forecasts, and where a run or the forecast
            does not carry the seal.
    """
    study.source.require(Can.SEAL, study.path)
    forecast = study.forecast
    sealed = forecasts.rules_of(forecast)
    names = (*forecast.runs, *forecast.comparator_runs, *forecast.leader_runs)
    there = [run for run in map(study.run, names) if run.has("run.json")]   # of no other run are the curves read
    found = audits.audit(
        forecast,
        curves(there, study.metric, clock=False),
        audits.seals(there),
        noise=study.planned.evaluation.sd_of(attempts_of(study.metric)),
        shares=audits.at_their_share(there),
        changed=(*forecasts.changed(forecast.hashes, study.hashes), *_other_rules(there, sealed)),
        rule=_rule(there, sealed),
    )
    study.write("audit.json", found.data())
    return Audit.beside(found, folder=study.path)


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
