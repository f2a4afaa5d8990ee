"""The answer in a sentence, its numbers, and every caution."""

from __future__ import annotations

from typing import Any

from isocost.report.html import Safe, brief, count, join, names, p, sentence, share, signed, span, tag
from isocost.report.records import Data, ReportRecords, as_dict, as_list, law_of, number
from isocost.report.section import Section
from isocost.report.sections import contest
from isocost.report.sections.outcome import equal_set, outcome_of, prescribed_arm, reason_of, verdict_of
from isocost.report.sections.overview import overview
from isocost.runs import measure
from isocost.screen.words import counted
from isocost.units import ROLLOUTS

VERDICTS = {
    "hit": "The forecast held",
    "miss": "The forecast missed",
    "cannot tell": "Cannot tell",
    "uninformative": "Forecast uninformative",
}


def method(study: ReportRecords) -> str:
    """The method that the study trained, or that the profile selected; empty for a comparison of several."""
    if study.kind == "comparison":
        return ""
    runs = study.of("train") or study.of("pilot") or list(study.runs)
    if runs and runs[0].about.get("method"):
        return str(runs[0].about["method"])
    return str(as_dict(study["profile"].get("recipe")).get("method") or "")


def answer(study: ReportRecords) -> Safe:
    """The top of the page. A law that is not identified comes first."""
    unknown, verdict = as_dict(study["law"].get("refused")), verdict_of(study)
    said = "Law: not identified" if unknown else VERDICTS.get(verdict, verdict.capitalize())
    badge = tag("p", said, cls="verdict" if verdict == "hit" and not unknown else "verdict caution") if said else ""
    result = _forecast_and_outcome(study) if prescribed_arm(study) else ""
    return tag(
        "div", badge, tag("h1", _sentence(study, unknown)), p(result, cls="answer") if result else "",
        *_support(study, unknown), _spent(study), overview(study), id="answer",
    )


def _sentence(study: ReportRecords, unknown: Data) -> str:
    if study.kind == "comparison":
        return contest.headline(study)
    arm, equal = prescribed_arm(study), equal_set(study)
    if unknown:
        lead = "The pilot does not identify a law"
        return f"{lead}. Fallback: n = {arm['n']}." if arm.get("n") else f"{lead}."
    if arm:
        return _prescription(study, arm, equal)
    if study["law"]:
        return "The law is fitted. There is no prescription yet."
    if study.of("pilot"):
        done = sum(r.finished for r in study.of("pilot"))
        return f"{done} of {counted(len(study.of('pilot')), 'pilot run')} have ended. No law is fitted yet."
    if study["profile"]:
        data = study["profile"]
        return (
            f"For this model the problems are {data.get('regime', 'unclassified')}: {_measured(study)} is"
            f" {share(data.get('mean'))}. No run is trained yet."
        )
    return _of_runs(study)


def _measured(study: ReportRecords) -> str:
    """What the mean of a profile is of."""
    return "mean reward" if study["profile"].get("graded") else "mean pass@1"


def _prescription(study: ReportRecords, arm: Data, equal: list[int]) -> str:
    unit = measure.of(study.runs[0].about)["unit"] if study.runs else ROLLOUTS
    at = f"at {count(arm.get('C'))} {unit}"
    if study["plan"].get("direct"):
        return f"n = {arm['n']} {at}, fixed by the plan; no other n was tried."
    if why := _chosen(study)[0]:
        return f"Use n = {arm['n']}{_limit(study)}: {why}."
    if len(equal) > 1:      # a plan of an earlier version
        found = f"it is the cheapest of n = {names(equal)}, which are equal within margin or noise {at}."
        return f"Use n = {arm['n']}{_limit(study)}: {found}"
    return f"Use n = {arm['n']}{_limit(study)}: {at}, {_others(study, arm)}."


def _chosen(study: ReportRecords) -> tuple[str, str]:
    """Why this n, in parts: what the headline says, empty if there was no choice by expected loss, and the rest."""
    plan, law = study["plan"], law_of(study)
    said = str(plan.get("chosen") or "")
    if not plan.get("risk") or (law is not None and len(law.ns) < 2):
        return "", said
    first, _, rest = said.partition("; ")
    return first.partition(": ")[2], rest


def _others(study: ReportRecords, arm: Data) -> str:
    """What is known of the other n where none of them is equal to the prescribed one."""
    law = law_of(study)
    if law is None:
        return "it alone is within the margin of the best"
    others, unknown = [n for n in law.ns if n != arm["n"]], law.unknown(float(arm["C"]))
    if not others:
        return "no other n was tried"
    if left := [n for n in others if n in unknown]:
        worse = ", every other n is worse" if len(left) < len(others) else ""
        return f"the reward of n = {names(left)} is not identified{worse}"
    return "every other n is worse"


def _limit(study: ReportRecords) -> str:
    """The turn limit of the prescription, and whether the pilot identified it; empty where none was planned."""
    turns = study["plan"].get("turns")
    compared = as_dict(study["law"].get("turn_limit"))
    if turns is None:
        return ""
    known = "" if compared.get("identified", True) else " (the environment's: the best limit is not identified)"
    return f" and a turn limit of {turns}{known}"


def _forecast_and_outcome(study: ReportRecords) -> str:
    """Forecast and outcome in one sentence; empty without either."""
    data = outcome_of(study)
    forecast, result, verdict = data.get("forecast"), data.get("outcome"), verdict_of(study)
    if not result:
        return f"Forecast: held-out reward {share(forecast['value'])}." if forecast else ""
    if not forecast:
        return f"Held-out reward was {share(result['value'])}; there was no forecast."
    low, high = share(forecast["low"]), share(forecast["high"])
    ends = {
        "hit": "the forecast held",
        "miss": "the forecast missed",
        "cannot tell": "whether it held is not known",
        "uninformative": "the interval holds the outcome, and every naive forecast too",
    }
    return (
        f"Held-out reward was {share(result['value'])}; the forecast was {low} to {high}:"
        f" {ends.get(verdict, verdict or 'not audited yet')}."
    ) + (f" {reason_of(study)}" if study.changed else "")


def _of_runs(study: ReportRecords) -> str:
    ends = {
        r.name: r.evaluations[-1].get("eval/audit", r.evaluations[-1].get("eval/select"))
        for r in study.runs
        if r.evaluations
    }
    known = {k: v for k, x in ends.items() if (v := number(x)) is not None}
    if not known:
        return f"{counted(len(study.runs), 'run')}, none evaluated yet."
    best = max(known, key=lambda k: known[k])
    some = "One run" if len(study.runs) == 1 else f"{len(study.runs)} runs"
    first = next(r for r in study.runs if r.name == best).evaluations[0]
    start = first.get("eval/audit", first.get("eval/select"))
    return f"{some}: held-out reward went from {share(start)} to {share(known[best])}" + (
        "." if len(study.runs) == 1 else f" in {best}, the best."
    )


def _support(study: ReportRecords, unknown: Data) -> list[Safe]:
    """The text below the headline: why this n, what it was compared with, what would identify the law."""
    plan, out = study["plan"], []
    if plan.get("fallback"):
        out.append(p(sentence(plan["fallback"])))
    elif rest := _chosen(study)[1]:
        out.append(p(sentence(rest)))
    if unknown:
        if not plan.get("fallback"):
            out.append(p(sentence(unknown.get("reason", ""))))
        out.append(p(_to_resolve(unknown)))
    data = outcome_of(study)
    if data.get("difference"):
        out.append(p(_difference(study, data)))
    elif plan.get("comparison"):
        out.append(p(sentence(f"Compared with {plan['comparison']}")))
    return out


def _to_resolve(unknown: Data) -> str:
    cost = f" (about {brief(unknown.get('rollouts'))} rollouts)" if number(unknown.get("rollouts")) else ""
    return f"To resolve: {str(unknown.get('settle', '')).strip().rstrip('.')}{cost}."


def _difference(study: ReportRecords, data: Data) -> str:
    """What the prescription gained over its comparator, and over the best n at the pilot's end if it is another, where
    they have cost the same in the unit of the budget."""
    d, other = as_dict(data["difference"]), f"n = {data.get('other_n', '–')}"
    low, high = number(d.get("low")), number(d.get("high"))
    named = str(study["plan"].get("comparison") or "")
    unit = as_dict(study["plan"].get("budget")).get("unit") or ROLLOUTS
    text = (
        f"At equal {unit} the reward of n = {data.get('n')} minus that of {other} is {signed(d.get('value'))} "
        f"[{signed(low)}, {signed(high)}], paired by seed: "
    )
    if low is None or high is None or low <= 0 <= high:
        text += "not significantly different from zero."
    else:
        text += "the prescription is better." if low > 0 else "the prescription is worse."
    led = as_dict(study["audit"].get("leader"))
    if gap := as_dict(led.get("difference")):
        text += (f" Minus that of n = {led.get('n')}, the best at the pilot's end, it is {signed(gap.get('mean'))} "
                 f"[{signed(gap.get('low'))}, {signed(gap.get('high'))}].")
    why = named.startswith(other) and len(named) > len(other)
    return f"{text} {sentence(f'The comparator is {named}')}" if why else text


def _spent(study: ReportRecords) -> Safe:
    """From the records: the phases of a command that was killed are not recorded."""
    before = as_dict(study["profile"].get("cost"))
    rollouts = sum(r.metered for r in study.runs) + (number(before.get("rollouts")) or 0)
    seconds = sum(r.seconds for r in study.runs) + (number(before.get("seconds")) or 0)
    return p(f"Spent: {brief(rollouts)} rollouts, {span(seconds)} of run time.", cls="soft")


def flags(study: ReportRecords) -> Section:
    """What is not identified and how to resolve it, cautions, broken records, and what was left out."""
    parts = [*_not_identified(study), *_cautions(study), *_checks(study), *_trouble(study)]
    if not parts:
        parts = [p("No flags: everything is identified.", cls="empty")]
    return Section("flags", "Flags", join(*parts))


def _flag(title: str, *texts: Any) -> Safe:
    return tag("div", tag("b", title), *(p(t) for t in texts if t), cls="flag")


def _not_identified(study: ReportRecords) -> list[Safe]:
    found = [("Law: not identified", as_dict(study["law"].get("refused")))]
    growth = as_dict(study["law"].get("n_star"))
    if "reason" in growth:
        found.append(("n*(C) is not identified", growth))
    out, named = [], set()
    for title, unknown in found:
        if unknown:
            resolve = _to_resolve(unknown)
            out.append(_flag(title, sentence(unknown.get("reason", "")), "" if resolve in named else resolve))
            named.add(resolve)
    return out


def _cautions(study: ReportRecords) -> list[Safe]:
    """Every flag once, from any step."""
    said: dict[str, str] = {}
    for flag in as_list(study["law"].get("flags")):
        data = as_dict(flag)
        said.setdefault(str(data.get("text", flag)), str(data.get("name", "law")).replace("_", " "))
    for name in ("rate", "pilot", "plan", "forecast", "audit"):
        for flag in as_list(study[name].get("flags")):
            said.setdefault(str(as_dict(flag).get("text", flag)), "learning rate" if name == "rate" else name)
    if rule := study["audit"].get("rule"):
        said.setdefault(f"the forecast was {rule}", "audit")
    return [_flag(title[:1].upper() + title[1:], sentence(text)) for text, title in said.items()]


def _checks(study: ReportRecords) -> list[Safe]:
    failed = [c for c in map(as_dict, as_list(study["plan"].get("checks"))) if c.get("holds") is False]
    return [_flag(f"Check failed: {str(c.get('name')).replace('_', ' ')}", sentence(c.get("text", ""))) for c in failed]


def _trouble(study: ReportRecords) -> list[Safe]:
    """Unreadable files, runs that did not end as planned, verifier failures, and what loading the problems reported."""
    out = [_flag("Unreadable record", text) for text in study.broken]
    if study["law"] and law_of(study) is None:
        out.append(_flag("Unreadable record", "law.json was written by another version: its curves are not drawn."))
    for run in study.runs:
        reason = run.end.get("reason")
        if run.finished and reason not in ("spent", None):
            why = sentence(run.end.get("detail") or "no reason was recorded")
            out.append(_flag(f"Run {run.name} ended as {reason}", why))
        out += [_flag(f"Run {run.name}", sentence(note)) for note in as_list(run.end.get("notes"))]
    open_runs = [r.name for r in study.runs if not r.finished]
    if open_runs:
        have = "has" if len(open_runs) == 1 else "have"
        out.append(_flag("Not finished", f"{names(open_runs)} {have} not ended: their records so far are shown."))
    if failures := _failures(study):
        counts = ", ".join(f"{k} {count(v)}" for k, v in failures.items())
        out.append(_flag("Verifier failures", f"Counted, and left out of every mean: {counts}."))
    lines = [str(x) for x in as_list(study["profile"].get("found"))]
    return out + ([_flag("The problems, as loaded", *map(sentence, lines))] if lines else [])


def _failures(study: ReportRecords) -> dict[str, float]:
    total: dict[str, float] = {}
    for source in (study["profile"], *(r.end for r in study.runs)):
        for kind, n in as_dict(source.get("verifier_failures")).items():
            total[str(kind)] = total.get(str(kind), 0) + (number(n) or 0)
    return {k: v for k, v in total.items() if v}
