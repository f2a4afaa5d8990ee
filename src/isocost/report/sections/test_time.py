"""Test-time strategies: accuracy against the cost of an answer, the plan, its forecast and its audit."""

from __future__ import annotations

from isocost.report import charts
from isocost.report.html import Safe, count, figure, interval, join, p, sentence, share, tag
from isocost.report.records import Data, ReportRecords, as_dict, as_list, number
from isocost.report.section import Section, empty, of_results, result_of, told
from isocost.units import words


def answer(study: ReportRecords) -> Safe:
    """The top of the page: the prescription, its expected accuracy and the verdict."""
    plan, verdict = study["plan"], str(study["audit"].get("verdict") or "")
    badge = tag("p", sentence(verdict), cls="verdict" if verdict == "hit" else "verdict caution") if verdict else ""
    result = result_of(study, "plan")
    if result is None:
        rate = next((number(x) for x in as_list(study["profile"].get("solved"))), None)
        said = "There is no profile." if rate is None else f"One sample is right in {share(rate)}. No plan yet."
        return tag("div", badge, tag("h1", said), id="answer")
    expected = f"Expected accuracy {interval(plan.get('expected'))} on the test split."
    return tag("div", badge, tag("h1", sentence(result.heading)), p(expected), id="answer")


def strategies(study: ReportRecords) -> Section:
    """Accuracy of every strategy against its cost, on the validation split."""
    title, rows = "Strategies", list[Data]()
    plan, profile = study["plan"], study["profile"]
    unit = str(plan.get("unit") or "tokens")
    for row in map(as_dict, as_list(plan.get("candidates")) or as_list(profile.get("rows"))):
        gain, cost = as_dict(row.get("gain")), number(row.get("cost", row.get("tokens")))
        if cost and number(row.get("accuracy")) is not None:
            one, arm = number(row.get("size")) == 1, f"@{row['arm']}" if row.get("arm") else ""
            rows.append({"arm": ("one" if one else str(row.get("strategy"))) + arm, "n": row.get("size"), "cost": cost,
                         "accuracy": row["accuracy"], "gain": gain.get("value")})
    if not rows:
        return Section("strategies", title, empty(study, "No strategy has been measured.", "isocost profile"))
    alt_text = f"Accuracy against the cost of an answer in {unit}: " + "; ".join(
        f"{r['arm']} of {r['n']}: {share(r['accuracy'])} at {count(r['cost'])}" for r in rows)
    caption = ("Each point is a strategy with a number of samples, measured on the validation split. The larger "
               "point is what is prescribed; the bar is its sealed forecast with its 90 % prediction interval.")
    sealed = [{"cost": plan["cost"], **{k: as_dict(plan.get("expected")).get(k) for k in ("value", "low", "high")}}
              ] if plan else []
    plot = figure("strategies", charts.by_cost(rows, sealed, unit, alt_text), alt_text, caption, rows)
    return Section("strategies", title, join(plot, _frontier(study), told(study, "profile", flags=True),
                                           told(study, "plan", flags=True)))


def _frontier(study: ReportRecords) -> Safe:
    """The staircases of a plan that counts training."""
    table = as_dict(study["plan"].get("frontier"))
    rows = [{"answers": count(case.get("answers")), "C": as_dict(s.get("total")).get(str(table.get("unit"))), "pair":
             f"{s.get('policy')}, {s.get('strategy')}", **{k: s.get(k) for k in ("accuracy", "low", "high", "policy")}}
            for case in map(as_dict, as_list(table.get("staircases")))
            for s in map(as_dict, as_list(case.get("steps")))]
    if not rows:
        return join()
    unit = words(str(table.get("unit")))
    alt_text = f"Accuracy against the {unit} of training and answers together, a staircase for each number of answers"
    caption = ("Train or think: the pairs of a policy and a strategy that no other one beats in cost and accuracy. The "
               "bars are 90 % intervals over problems, and over seeds of training where there are several.")
    return figure("frontier", charts.staircases(rows, alt_text, unit), alt_text, caption, rows)


outcome = of_results("outcome", "Forecast and outcome", "isocost audit", "audit")
