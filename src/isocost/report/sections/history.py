"""The sealed forecast's history: what it was made from, and whether that is still the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isocost.report.html import Safe, count, interval, join, p, table, tag
from isocost.report.records import ReportRecords, Run, as_dict, as_list, number
from isocost.report.section import Section, empty
from isocost.report.sections.outcome import prescribed_arm
from isocost.screen.words import counted

SHORT = 12      # hexadecimal digits of a hash that are shown; the study's own file has all


def history(study: ReportRecords) -> Section:
    """The forecast, the records it was made from with their hashes, and the runs trained under its seal."""
    title, sealed = "The forecast's history", study["forecast"]
    if not sealed:
        return Section("history", title, empty(study, "No forecast is sealed yet.", "isocost train --plan"))
    return Section("history", title, join(_lead(study), _events(study)))


def _lead(study: ReportRecords) -> Safe:
    sealed, pilot = study["forecast"], _pilot(study)
    seal = str(sealed.get("seal") or "")
    what = f"{interval(sealed)}" if number(sealed.get("value")) is not None else "no value"
    after = f"after {counted(len(pilot), 'run')}" if pilot else "before any run"
    carried = [r for r in study.of("train") if r.about.get("seal") == seal]
    text = f"The forecast for {count(sealed.get('C'))} rollouts, {what}, was sealed {after}; "
    text += (
        f"{len(carried)} {'run was' if len(carried) == 1 else 'runs were'} then trained under that seal."
        if carried
        else "no run has been trained under it yet."
    )
    why = (
        "The seal is a hash of the forecast, which contains the hashes of the law, the plan and the pilot's records."
        " Each trained run records the seal when it starts, so the forecast existed before the run."
    )
    return join(p(text[:1].upper() + text[1:], cls="lead"), p(why))


def _pilot(study: ReportRecords) -> list[Run]:
    return [r for r in study.runs if r.purpose not in ("train", "run")]


def _events(study: ReportRecords) -> Safe:
    body = [[f"{i}. {what}", join(then, now, by=", ")] for i, (what, then, now) in enumerate(_list_events(study), 1)]
    heads = ["", "hash at the seal, and now"]
    return join(tag("h3", "In order"), table(heads, body, "The forecast's history", "quiet"))


def _list_events(study: ReportRecords) -> Iterator[tuple[str, Any, Any]]:
    """(what, its hash at the seal, whether it is the same now), in the order of a study."""
    sealed = study["forecast"]
    trained = {as_dict(r.about.get("code")).get("sources") for r in study.of("train")}
    then = as_dict(sealed.get("hashes"))
    now = {**study.sealed_from, "code": trained.pop() if len(trained) == 1 else None}
    for name, what, there in (("records", "the pilot's records", _pilot(study)), ("law", "the law", study["law"]),
                              ("plan", "the plan", study["plan"]), ("code", "the code, of the trained runs", True)):
        if there:
            yield what, _hash(then.get(name)), _same(then.get(name), now.get(name))
    yield "the forecast, sealed", _hash(sealed.get("seal")), _same(True, study.intact)
    for arm in (prescribed_arm(study), *map(as_dict, as_list(study["plan"].get("arms"))[1:])):
        if runs := [r for r in study.of("train") if r.size("n") == arm.get("n")]:
            lack = sum(r.about.get("seal") != sealed.get("seal") for r in runs)
            carried = tag("b", f"{lack} without the seal") if lack else "all have the seal"
            yield f"training, {arm.get('role') or 'arm'}: {counted(len(runs), 'run')}", "", carried


def _hash(x: Any) -> Safe | str:
    return tag("code", str(x)[:SHORT], title=str(x)) if x else "–"


def _same(then: Any, now: Any) -> Any:
    """Whether a hash at the seal and now are the same, or that it cannot be computed again."""
    if not then or now in (None, ""):
        return "not computed again"
    return "the same" if then == now else tag("b", "changed since")
