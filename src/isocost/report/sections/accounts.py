"""The sections on cost: rollouts by fate, the budget, time, and the sizes under other trainers' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocost import units
from isocost.errors import UserError
from isocost.report.html import Safe, count, details, join, p, percent, span, table, tag
from isocost.report.records import Data, ReportRecords, Run, as_dict, number
from isocost.report.section import Section, empty
from isocost.runs.files import FATES
from isocost.runs.speed import WORK

PURPOSES = ("probe", "pilot", "edge", "train", "run")
PURPOSE_NAMES = {"probe": "rate probe", "pilot": "pilot", "edge": "rate check", "train": "train", "run": "run"}
PHASES = ("profile", "plan", "probe", "pilot", "edge", "fit", "prescribe", "train", "audit", "report")


def spent(study: ReportRecords) -> Section:
    """Rollouts by fate for each kind of run, next to what the meter counted."""
    fates = _fates(study)
    if not fates:
        return Section("spent", "Where the compute went", empty(study, "Nothing has been spent yet.", "isocost pilot"))
    total = {f: sum(own.get(f, 0) for own in fates.values()) for f in FATES}
    everything = sum(total.values())
    if not everything and study.imported:
        started = count(sum(r.metered for r in study.runs))
        whose = "The log of your trainer" if study.driven else "An imported log"
        text = f"{started} rollouts were started. {whose} does not record their fates."
        return Section("spent", "Where the compute went", join(p(text, cls="lead"), _cost_table(study)))
    return Section(
        "spent",
        "Where the compute went",
        join(_sum_sentence(study, total), _fate_table(study, fates, total), _budget(study), _cost_table(study)),
    )


def asked_for(study: ReportRecords) -> tuple[str, str]:
    """The planned budget: ("budget", as the user wrote it), or ("preset", its name); the second may be ""."""
    from isocost.planner.budget import Budget

    budget = study["pilot"].get("budget")
    if budget:
        try:
            return "budget", str(Budget.of(budget))
        except (UserError, TypeError):      # a plan of another version
            return "budget", ""
    return "preset", str(study["pilot"].get("preset") or "")


def _budget(study: ReportRecords) -> Safe:
    """The requested budget, what of it was spent, in its own unit, and what was spent outside it."""
    from isocost.planner.training.pilot import PilotPlan

    if study.imported or not study["pilot"]:
        return Safe("")
    try:
        planned = PilotPlan.of(study["pilot"])
    except (UserError, KeyError, TypeError, ValueError, AttributeError):  # a plan of another version
        return Safe("")
    unit = planned.budget.unit if planned.budget else "rollouts"

    def amount(*costs: Data) -> float:
        keys = ("rollouts", "prefill", "decode", "score", "train", "seconds")
        total = {k: sum(number(c.get(k)) or 0.0 for c in costs) for k in keys}
        if unit in ("rollouts", "seconds"):
            return total[unit]
        whole = planned.prices.measured([total | {"rollouts": 1.0}])
        return whole.bill([(1, 1, 1, 0)], planned.timing).of_unit(unit)

    def of_runs(runs: Sequence[Run]) -> float:
        if unit == "seconds":  # a run's time outside its accounts is spent, too
            return sum(r.seconds for r in runs)
        return amount(*(r.bill.get(account, {}) for r in runs for account in ("train", "lost")))

    trained = study.of("train")
    spent = {"pilot": of_runs([r for r in study.runs if r not in trained]), "training": of_runs(trained)}
    profile = study["profile"]
    beside = {"profiling": amount(as_dict(profile.get("cost")), as_dict(profile.get("lost")))}
    if unit != "seconds":
        beside["evaluations"] = amount(*(r.bill.get("evaluation", {}) for r in study.runs))
    show = {units.SECONDS: span, units.FLOPS: lambda x: f"{x:.2e}"}.get(unit, count)
    name = units.words(unit)
    total = sum(spent.values())
    rows = [*spent.items(), ("sum", total), *((f"not in the budget: {what}", x) for what, x in beside.items())]
    text = f"The preset {planned.preset} names no budget; pilot and training spent {show(total)} {name}."
    head, body = ["", name], [[what, show(x)] for what, x in rows]
    if planned.budget:
        most, asked = planned.budget.amount, planned.budget.asked
        text = f"{asked or f'{show(most)} {name}'} were requested"
        text += f", that is {show(most)} of {name}" if asked else ""
        text += f"; pilot and training spent {show(total)}, {percent(total / most)} of it."
        head.append("of the budget")
        body = [[what, show(x), percent(x / most)] for what, x in rows]
    note = "Work lost to interruptions counts; profiling and evaluations are not in the budget."
    if unit == "seconds":
        note = "Work lost to interruptions and evaluations count; profiling is not in the budget."
    return join(tag("h3", "The budget"), p(text), table(head, body, "The budget", "quiet"), p(note, cls="soft"))


def _what(run: Run) -> str:
    name = PURPOSE_NAMES.get(run.purpose, run.purpose)
    limit = f", {run.turns} turns" if run.turns else ""
    size = run.size("n") if run.purpose in ("pilot", "train", "edge") else None
    return f"{name}, n = {size}{limit}" if size else name


def _kinds(study: ReportRecords) -> dict[str, list[Run]]:
    """Runs by kind, in the order a study makes them."""

    def rank(run: Run) -> tuple[int, int, str]:
        return (PURPOSES.index(run.purpose) if run.purpose in PURPOSES else len(PURPOSES), run.size("n") or 0, run.name)

    kinds: dict[str, list[Run]] = {}
    for run in sorted(study.runs, key=rank):
        kinds.setdefault(_what(run), []).append(run)
    return kinds


def _before_runs(study: ReportRecords) -> dict[str, dict[str, int]]:
    """Rollouts sampled before any run, by fate: the profile, or the few that estimated a comparison's cost. Those of a
    profile that was killed, and that the next one could not reuse, are lost."""
    profile = study["profile"]
    spent_by = {
        "profile": {"evaluation": _rollouts(profile.get("cost")), "lost": _rollouts(profile.get("lost"))},
        "pricing": {"evaluation": _rollouts(study["compare"].get("pricing"))},
        "dry runs": {"evaluation": _rollouts(study["dry-run"].get("spent"))},
    }
    return {what: fates for what, fates in spent_by.items() if any(fates.values())}


def _rollouts(cost: Any) -> int:
    return int(number(as_dict(cost).get("rollouts")) or 0)


def _metered(study: ReportRecords) -> dict[str, int]:
    """What the meter counted, by kind."""
    runs = {what: sum(r.metered for r in runs) for what, runs in _kinds(study).items()}
    return {what: sum(fates.values()) for what, fates in _before_runs(study).items()} | runs


def _fates(study: ReportRecords) -> dict[str, dict[str, int]]:
    """By kind, rollouts by fate."""
    runs = {what: {f: sum(r.fates.get(f, 0) for r in runs) for f in FATES} for what, runs in _kinds(study).items()}
    return _before_runs(study) | runs


def _sum_sentence(study: ReportRecords, total: Mapping[str, int]) -> Safe:
    fates, metered = sum(total.values()), sum(_metered(study).values())
    parts = " + ".join(f"{count(v)} {f}" for f, v in total.items() if v)
    wasted = fates - total["trained"] - total["evaluation"]
    lead = (f"Of {count(fates)} rollouts, {percent(total['trained'] / max(fates, 1))} carried an advantage into an"
            f" update; {count(wasted)} were paid for and gave no training signal.")
    if fates == metered:
        return join(p(lead, cls="lead"), p(f"The fates sum to the metered total: {parts} = {count(metered)}."))
    text = f"The fates do not sum to the metered total: {parts} = {count(fates)}; the meter counted {count(metered)}. "
    text += "A run that is not finished explains a difference; otherwise it is a bug."
    return join(p(lead, cls="lead"), tag("div", tag("b", "Accounts differ"), p(text), cls="flag"))


def _fate_table(study: ReportRecords, fates: Mapping[str, Mapping[str, int]], total: Mapping[str, int]) -> Safe:
    present, metered = [f for f in FATES if total[f]], _metered(study)
    body = [[what, *(count(own.get(f, 0)) for f in present), count(sum(own.values())), count(metered[what])]
            for what, own in fates.items()]
    body.append(["all", *(count(total[f]) for f in present), count(sum(total.values())), count(sum(metered.values()))])
    head = ["rollouts", *present, "sum", "meter"]
    return table(head, body, "Rollouts by fate, their sum, and what the meter counted")


def _cost_table(study: ReportRecords) -> Safe:
    """The bill by account, in every unit; a dash if no record of an account has it."""
    units = ("rollouts", "prefill", "decode", "score", "train", "updates", "verify", "seconds")
    bill: dict[str, dict[str, float | None]] = {}
    profile = study["profile"]
    before = {"profile": profile.get("cost"), "lost": profile.get("lost"), "pricing": study["compare"].get("pricing"),
              "dry runs": study["dry-run"].get("spent")}
    for account, recorded in before.items():
        if any((cost := as_dict(recorded)).values()):
            bill[account] = {u: number(cost.get(u)) for u in units}
    for run in study.runs:
        for account, cost in run.bill.items():
            row = bill.setdefault(account, dict.fromkeys(units))
            for unit in units:
                if (amount := number(cost.get(unit))) is not None:
                    row[unit] = (row[unit] or 0) + amount
    body = [[name, *(count(row[u]) for u in units[:-1]), span(row["seconds"])] for name, row in bill.items()]
    head = ["account", "rollouts", *(f"{u} tokens" for u in units[1:5]), "updates", "verifier calls", "time"]
    note = ("C counts the account train only. Tokens are those that the method requested; the engine may share or skip "
            "some.")
    return details("The bill, by account", p(note, cls="soft"), table(head, body, "Cost by account"))


def time(study: ReportRecords) -> Section:
    """Seconds per phase, and within the runs the seconds of sampling, learning and evaluating."""
    phases = as_dict(study["study"].get("phases"))
    known = sorted(phases, key=lambda k: (PHASES.index(k) if k in PHASES else len(PHASES), k))
    timed = {k: s for k in known if (s := number(phases[k])) is not None}
    rows = timed or {what: x for what, runs in _kinds(study).items() if (x := sum(r.seconds for r in runs))}
    if not rows:
        return Section("time", "Time per phase", empty(study, "No phase has been timed yet.", "isocost profile"))
    total, longest = sum(rows.values()), max(rows, key=lambda what: rows[what])
    lead = f"{span(total)} in total; {longest} took {percent(rows[longest] / max(total, 1e-9))} of it."
    body = [[what, span(x)] for what, x in rows.items()]
    known_phases = table(["phase", "time"], body, "Wall-clock time of each phase on the machine named below", "quiet")
    return Section("time", "Time per phase", join(p(lead, cls="lead"), known_phases, _inside(study)))


def _inside(study: ReportRecords) -> Safe:
    body = []
    for what, runs in _kinds(study).items():
        seconds = sum(r.seconds for r in runs)
        if not seconds:
            continue
        clocks = [r.clock.last for r in runs if r.clock.last]
        known = all(k in c for c in clocks for k in WORK)  # records of earlier versions lack them
        parts = [span(sum(number(c[k]) or 0 for c in clocks)) if known else "–" for k in WORK]
        memory = [r.clock.memory for r in runs if r.clock.memory is not None]
        started = sum(r.metered for r in runs)
        peak = f"{count(max(memory))} MB" if memory else "–"
        body.append([what, len(runs), span(seconds), *parts, f"{count(started / seconds)} /s", peak])
    head = ["runs of", "runs", "time", *WORK.values(), "rollouts", "peak memory"]
    return table(head, body, "Active time inside the runs") if body else Safe("")
