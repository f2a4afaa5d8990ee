"""docs/how_sure.md and its pictures from the records: every number on it is one of theirs.

    python experiments/how_sure.py

Reads experiments/results/calibration.json, second_rise.json, rises_and_falls.json, backtest.json, compare.json,
verdicts.json, quickstart_seeds.json, bills.json and sweeps/judged.json; what is not there is named as not measured. The
same records and code give the same page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import made_with
import pages
from accuracy import choice, comparisons, costs, falls, real, second, simulated, stopping
from accuracy.pieces import Record
from isocost.report import theme
from isocost.screen.words import markdown_table

HOME = Path(__file__).resolve().parents[1]
RECORDS, PAGE, IMAGES = HOME / "experiments" / "results", HOME / "docs" / "how_sure.md", HOME / "docs" / "images"
NAMES = ("calibration", "second_rise", "rises_and_falls", "backtest", "compare", "verdicts", "quickstart_seeds",
         "sweeps/judged", "bills")
FRESH = "outside/fifth_judged"  # the latest set of other trainers' logs, as it was judged
HEAD = """# How accurate the forecasts are

This page tests the 90 % intervals of isocost on hundreds of simulated studies whose truth is known, and on real
studies whose outcome came later. Missed targets are marked. `python experiments/how_sure.py` writes the page from the
files in `experiments/results`; the command that made each file is given. Terms are in the [glossary](glossary.md).
"""


def main() -> None:
    """Write the page and its pictures."""
    found = records()
    IMAGES.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(found), encoding="utf-8")
    for name, picture in pictures(found).items():
        (IMAGES / name).write_text(picture, encoding="utf-8")


def records(folder: Path = RECORDS) -> dict[str, Record]:
    """What has been recorded, by name."""
    paths = {name: folder / f"{name}.json" for name in (*NAMES, FRESH)}
    return {name: json.loads(p.read_text(encoding="utf-8")) for name, p in paths.items() if p.is_file()}


def page(found: Mapping[str, Record]) -> str:
    """The whole page; the same records give the same text."""
    old = made_with.sentence([RECORDS / f"{name}.json" for name in found])
    parts = [HEAD, *([_fresh(found[FRESH])] if FRESH in found else []), *([old + "\n"] if old else []),
             _targets(found)]
    parts += [part(found[name]) for name, part in PARTS.items() if name in found]
    absent = [f"`experiments/results/{name}.json`" for name in PARTS if name not in found]
    if absent:
        parts.append(f"Not measured yet: {', '.join(absent)}.\n")
    return pages.wrapped("\n".join(parts))


def _fresh(record: Record) -> str:
    every, training = record["groups"]["all"], record["groups"]["LLM training reward"]
    return (f"Logs of other trainers have a page of their own, [other people's runs](outside_curves.md). On "
            f"{every['sources']} fresh public sources {100 * every['held']:.1f} % of the 90 % intervals hold, and "
            f"{100 * training['held']:.1f} % of those for training rewards of language models.\n")


def pictures(found: Mapping[str, Record]) -> dict[str, str]:
    """File name -> SVG, in light and dark."""
    out = {}
    for name, make in PICTURES.items():
        if name not in found:
            continue
        for key, spec in make(found[name]):
            for side in ("light", "dark"):
                out[f"how-sure-{key}-{side}.svg"] = theme.svg(spec, dark=side == "dark")
    return out


def met(holds: bool | str | None) -> str:
    """The verdict on a target; a text says how it is missed."""
    if isinstance(holds, str):
        return f"**missed**: {holds}"
    return "not measured" if holds is None else "met" if holds else "**missed**"


def _targets(found: Mapping[str, Record]) -> str:
    """What must hold, what was measured, and whether it does."""
    rows: list[tuple[str, str, str, str]] = []
    for name, make in TARGETS.items():
        if name in found:
            rows += [(what, wanted, measured, met(holds)) for what, wanted, measured, holds in make(found[name])]
    if not rows:
        return ""
    rows.sort(key=lambda row: not row[3].startswith(met(False)))      # misses first; the sort is stable
    missed = sum(row[3].startswith(met(False)) for row in rows)
    told = [row for row in rows if row[3] != met(True) or row[0].startswith(KEY)]
    text = f"{missed} of {len(rows)} targets {'is' if missed == 1 else 'are'} missed."
    if not missed:
        text = f"All {len(rows)} targets are met."
    more = f" The table has the misses, and the main ones of those that are met; {len(rows) - len(told)} more are met."
    return (f"## Targets\n\n{text}{more * (len(told) < len(rows))}\n\n"
            + markdown_table(["what", "target", "measured", ""], told))


KEY = ("90 % interval covers: reward", "the same, truth outside", "sufficient pilots", "insufficient pilots: not",
       "prescribed n: extra compute, median", "mean shortfall of the prescribed n", "comparison: names",
       "mid-run stops that are wrong, of all", "bill:", "first part of real runs: 90 %",
       "real quickstarts: outcome in")
PARTS: Mapping[str, Callable[[Record], str]] = {
    "calibration": simulated.section, "second_rise": second.section, "rises_and_falls": falls.section,
    "sweeps/judged": choice.section, "quickstart_seeds": real.section,
    "backtest": real.backtest, "compare": comparisons.section, "verdicts": stopping.section,
    "bills": costs.section,
}
PICTURES = {
    "calibration": simulated.pictures, "quickstart_seeds": real.pictures, "compare": comparisons.pictures,
    "verdicts": stopping.pictures,
}
TARGETS = {
    "quickstart_seeds": real.targets, "backtest": real.backtest_targets, "calibration": simulated.targets,
    "second_rise": second.targets, "rises_and_falls": falls.targets, "sweeps/judged": choice.targets,
    "compare": comparisons.targets, "verdicts": stopping.targets,
    "bills": costs.targets,
}

if __name__ == "__main__":
    main()
