"""The sealed forecast's history: what was known when it was sealed, and each later evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from isocost.report.html import Safe, count, interval, join, names, p, share, table, tag
from isocost.report.records import Data, ReportRecords, Run, as_dict, as_list, law_of, number
from isocost.report.section import Section, empty
from isocost.report.sections.outcome import prescribed_arm, trained_means, verdict_of
from isocost.screen.words import counted, freedom

if TYPE_CHECKING:
    from isocost.laws.law import Law

SHORT = 12      # hexadecimal digits of a hash that are shown; the study's own file has all


def history(study: ReportRecords) -> Section:
    """The forecast, the records it was made from with their hashes, and how each later evaluation compares."""
    title, sealed = "The forecast's history", study["forecast"]
    if not sealed:
        return Section("history", title, empty(study, "No forecast is sealed yet.", "isocost train --plan"))
    return Section("history", title, join(_lead(study), _events(study), _evaluations(study)))


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


# what happened, in order --------------------------------------------------------------------------------------


def _events(study: ReportRecords) -> Safe:
    body = [
        [f"{i}. {what}", tag("span", known), join(then, now, by=", ")]
        for i, (what, known, then, now) in enumerate(_list_events(study), 1)
    ]
    head = ["", "content", "hash at the seal, and now"]
    return join(tag("h3", "In order"), table(head, body, "The forecast's history", "quiet"))


def _list_events(study: ReportRecords) -> Iterator[tuple[Any, Any, Any, Any]]:
    """(what, what was known, hash at the seal, whether it is the same now), in the order of a study."""
    sealed = study["forecast"]
    trained = {as_dict(r.about.get("code")).get("sources") for r in study.of("train")}
    then = as_dict(sealed.get("hashes"))
    now = {**study.sealed_from, "code": trained.pop() if len(trained) == 1 else None}

    def mark(name: str) -> tuple[Any, Any]:
        return _hash(then.get(name)), _same(then.get(name), now.get(name))

    if _pilot(study):
        yield ("the pilot's records", _knew(study), *mark("records"))
    if study["law"]:
        yield ("the law", _law_words(study), *mark("law"))
    if study["plan"]:
        yield ("the plan", _plan_words(study), *mark("plan"))
    version = as_dict(study["study"].get("code")).get("version", "–")
    yield ("the code", f"version {version}; compared with the code of the trained runs", *mark("code"))
    yield ("the forecast, sealed", _forecast_words(study), _hash(sealed.get("seal")), _same(True, study.intact))
    for arm in (prescribed_arm(study), *map(as_dict, as_list(study["plan"].get("arms"))[1:])):
        runs = [r for r in study.of("train") if r.size("n") == arm.get("n")]
        if runs:
            under = sum(r.about.get("seal") == sealed.get("seal") for r in runs)
            ended = sum(r.finished for r in runs)
            words = f"{counted(len(runs), 'run')} at n = {arm.get('n')}, {ended} ended"
            lack = len(runs) - under
            carried = tag("b", f"{lack} without the seal") if lack else "all have the seal"
            yield (f"training, {arm.get('role') or 'arm'}", words, "", carried)
    if study["audit"]:
        verdict = verdict_of(study)
        yield ("the audit", tag("b", verdict or "no verdict"), "", "")


def _knew(study: ReportRecords) -> str:
    kinds: dict[str, int] = {}
    for run in _pilot(study):
        kinds[run.purpose] = kinds.get(run.purpose, 0) + 1
    pilot = study.of("pilot")
    words = ", ".join(f"{v} {k}" for k, v in sorted(kinds.items(), key=lambda x: -x[1])) + " runs"
    if pilot:
        words += f"; n = {names(sorted({r.size('n') for r in pilot if r.size('n')}))}"
        ends = [number(r.evaluations[-1].get("rollouts")) or 0 for r in pilot if r.evaluations]
        words += f", up to {count(max(ends))} rollouts each" if ends else ""
    return words


def _law_words(study: ReportRecords) -> str:
    law, refused = law_of(study), as_dict(study["law"].get("refused"))
    if law is None:
        return "written by another version"
    if refused:
        return f"not identified: {str(refused.get('reason', '')).rstrip('.')}"
    if not law.measured:
        return law.how_runs_differ
    return f"runs differ by {share(law.sd)} at reward 1/2 (standard deviation, {freedom(law.dof)})"


def _plan_words(study: ReportRecords) -> str:
    arm, ratio = prescribed_arm(study), number(study["plan"].get("extrapolation"))
    words = f"n = {arm.get('n')}, B = {arm.get('B')}, M = {count(arm.get('M'))}: {count(arm.get('C'))} rollouts"
    return words + (f", {ratio:.2g} times the pilot's largest run" if ratio else "")


def _forecast_words(study: ReportRecords) -> str:
    sealed = study["forecast"]
    if number(sealed.get("value")) is None:
        return "no value"
    guesses = [f"{x.get('name')} {share(x.get('value'))}" for x in map(as_dict, as_list(sealed.get("naive")))]
    return f"{interval(sealed)}" + (f"; naive: {', '.join(guesses)}" if guesses else "")


def _hash(x: Any) -> Safe | str:
    return tag("code", str(x)[:SHORT], title=str(x)) if x else "–"


def _same(then: Any, now: Any) -> Any:
    """Whether a hash at the seal and now are the same, or that it cannot be computed again."""
    if not then or now in (None, ""):
        return "not computed again"
    return "the same" if then == now else tag("b", "changed since")


# each evaluation ----------------------------------------------------------------------------------------------


def evaluations(study: ReportRecords) -> list[Data]:
    """The trained runs at every evaluation, compared with the sealed law's prediction. C is in rollouts per run.

    Rows: C, runs (evaluated there), mean, expected, low, high (90 % prediction interval for the mean of that many
    runs), held, off (distance from expected in half-widths of the interval, towards the outcome's side).
    """
    law, arm = law_of(study), prescribed_arm(study)
    if law is None or arm.get("n") not in law.ns or number(study["forecast"].get("value")) is None:
        return []
    return [_evaluated(law, arm, C, values) for C, values in trained_means(study, arm).items()]


def _evaluated(law: Law, arm: Data, C: float, values: list[float]) -> Data:
    predicted, mean = law.predict(int(arm["n"]), C, len(values))[1], sum(values) / len(values)
    half = predicted.high - predicted.value if mean > predicted.value else predicted.value - predicted.low
    return {
        "C": C, "runs": len(values), "mean": mean,
        "expected": predicted.value, "low": predicted.low, "high": predicted.high,
        "held": predicted.holds(mean), "off": (mean - predicted.value) / half if half > 0 else None,
    }


def _evaluations(study: ReportRecords) -> Safe:
    rows, sealed = evaluations(study), study["forecast"]
    if not rows:
        return Safe("")
    arm, end = prescribed_arm(study), number(study["plan"].get("pilot_C")) or 0.0
    held, beyond = [r for r in rows if r["held"]], [r for r in rows if r["C"] > end]
    text = f"The mean of the runs with n = {arm.get('n')} was in the band at {len(held)} of {len(rows)} evaluations"
    if beyond and len(beyond) < len(rows):
        text += f", and at {sum(r['held'] for r in beyond)} of the {len(beyond)} beyond the pilot"
    first = next((r for r in rows if not r["held"]), None)
    if first:
        side = "above" if first["off"] > 0 else "below"
        text += f"; it first left the band at {count(first['C'])} rollouts, {side} it"
    text += ". Evaluations of the same runs are not independent trials."
    if "law.json" in study.changed:
        text += " The law was changed after the seal, so this is not the sealed prediction."
    title = tag("h3", "Evaluation by evaluation")
    unsealed = "" if sealed.get("seal") else p("This forecast has no seal.", cls="soft")
    return join(title, p(text), unsealed)
