"""Verdicts while a run trains: wrong stops, and compute saved."""

from __future__ import annotations

from collections.abc import Iterable

from accuracy.pieces import HELD, Record, Target, dots, percent, picture, wilson
from isocost.report import theme
from isocost.screen.words import markdown_table


def section(r: Record) -> str:
    head = ["runs", "how many", "wrong stops, of runs", "of stops", "misses found", "saved of the oracle's", "regret",
            "never stopping", "stop below the band"]
    groups = (("all", r["all"]), ("truths inside the law's forms", r["inside"]), ("outside", r["outside"]),
              ("exact rewards", r["exact"]), ("sampled rewards", r["sampled"]))
    rows = [[name, s["runs"],
             *(percent(s[k]) for k in ("wrong_of_runs", "wrong_of_stops", "found", "saved_of_oracle")),
             *(f"{s[k]:.3f}" if s[k] is not None else "–" for k in ("regret", "regret_never", "regret_band"))]
            for name, s in groups]
    w, c = r["worth"], r["change"]
    return (
        "## Verdicts while a run trains\n\n"
        + picture("verdicts", "Wrong stops and compute saved, for each kind of truth")
        + f"\nThis is `isocost verdict` on {r['all']['runs']:,} simulated runs of {r['studies']} studies whose end is"
        " known. A stop is wrong if the run would have reached its target. Regret is in budgets of a run, relative"
        " to an"
        " oracle that knows the end; two alternatives are never stopping, and stopping below the forecast's band."
        " Sampled rewards are of 128 problems, four samples each, the default.\n\n"
        + markdown_table(head, rows)
        + f"\nStops because less than {w['worth']:g} was left to gain: {percent(w['wrong_of_stops'])} of {w['stopped']}"
        f" were wrong, and they saved {percent(w['saved_of_oracle'])} of what the oracle saves. `change n` was"
        " advised in"
        f" {percent(c['just_below_half']['changed'])} of runs whose share of dead groups stays just below one half"
        f" (wrong) and in {percent(c['to_0.7']['changed'])} of those whose share rises to 0.7 (right).\n\n"
        f"`{r['command'].replace('records/', 'experiments/', 1)} --out experiments/results/verdicts.json`{HELD}, seed"
        f" {r['seed']}\n"
    )


def pictures(r: Record) -> Iterable[tuple[str, theme.Spec]]:
    rows = []
    for kind, s in r["by_truth"].items():
        if s["stopped"]:
            low, high = wilson(s["wrong_of_runs"], s["runs"])
            rows.append({"label": kind, "what": "wrong stops, of runs", "value": s["wrong_of_runs"], "low": low,
                         "high": high})
        if s["saved_of_oracle"] is not None:
            rows.append({"label": kind, "what": "saved, of the oracle's saving", "value": s["saved_of_oracle"]})
    marks = [("at most 5 % wrong", 0.05), ("at least 50 % saved", 0.5)]
    yield "verdicts", dots(rows, "share", marks, "Wrong stops and savings, by kind of truth")


def targets(r: Record) -> list[Target]:
    s = r["all"]
    stops, saved = s["wrong_of_stops"], s["saved_of_oracle"]
    return [
        ("mid-run stops that are wrong, of all runs", "at most 5 %", percent(s["wrong_of_runs"]),
         s["wrong_of_runs"] <= 0.05),
        ("mid-run stops that are wrong, of the stops", "at most 5 %", percent(stops), stops is None or stops <= 0.05),
        ("compute saved, of what the oracle saves", "at least 50 %", percent(saved), (saved or 0) >= 0.5),
    ]
