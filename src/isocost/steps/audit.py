"""The audit: the sealed forecast against the trained runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from isocost.laws.curves import attempts_of, curves
from isocost.planner import audit as audits
from isocost.planner import forecast as forecasts
from isocost.planner import pilot as pilots
from isocost.runs import rules
from isocost.runs.files import is_run, read_json
from isocost.runs.source import Can
from isocost.steps.folder import opened, writes
from isocost.steps.results import Audit
from isocost.steps.train import hashes


@writes()
def audit(study: Path) -> Audit:
    """Compare the sealed forecast with the outcome and write audit.json.

    `verdict` is hit, miss, cannot tell or uninformative, and `exit_code` its number for scripts.

    Raises:
        UserError: before a forecast is sealed, for a source without sealed forecasts, and where a run or the forecast
            does not carry the seal.
    """
    home = opened(study)
    home.source.require(Can.SEAL, study)
    forecast = forecasts.read(home.path / "forecast.json")
    planned = pilots.PilotPlan.of(home.read("pilot.json", "plan"))
    metric, sealed = home.metric, forecasts.rules_of(forecast)
    named = [home.runs / name for name in (*forecast.runs, *forecast.comparator_runs, *forecast.leader_runs)]
    there = [folder for folder in named if is_run(folder)]     # no other run is opened, however many the study has
    found = audits.audit(
        forecast,
        curves(there, metric),
        audits.seals(there),
        noise=planned.evaluation.sd_of(attempts_of(metric)),
        shares=audits.at_their_share(there),
        changed=(*forecasts.changed(forecast.hashes, hashes(home, forecast.seal_version)),
                 *_other_rules(there, sealed)),
        rule=_rule(there, sealed),
    )
    home.write("audit.json", found.data())
    return Audit.beside(found, folder=study)


def _other_rules(runs: Sequence[Path], sealed: Mapping[str, int]) -> list[str]:
    """What differs between the rules by which these runs were made and those that the forecast was sealed for."""
    read = {folder.name: read_json(folder / "run.json") for folder in runs}
    trained = {name: rules.recorded(run["recipe"], run.get("code")) for name, run in read.items() if run.get("recipe")}
    return [text for name, own in trained.items() if (text := rules.differences(sealed, own, f"in {name}"))]


def _rule(runs: Sequence[Path], sealed: Mapping[str, int]) -> str:
    """A sentence if the forecast was sealed for other rules than those of this version; empty if not."""
    run = next((run for folder in runs if (run := read_json(folder / "run.json")).get("recipe")), None)
    text = rules.differences(sealed, rules.now(run["recipe"])) if run else ""
    return text and f"sealed for runs under {text}: its runs are judged as they were made"
