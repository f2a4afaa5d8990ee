"""Writes docs/outside_curves.md from the files in experiments/results/outside: python experiments/outside_page.py."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import made_with
import outside_forms
import outside_sure
from outside_sure import Figure

HOME = Path(__file__).resolve().parents[1]
RESULTS, PAGE = HOME / "experiments" / "results" / "outside", HOME / "docs" / "outside_curves.md"
Record = Mapping[str, Any]
SETS = {"third": "third set", "reporting": "reporting half", "tuning": "tuning half"}     # by record
TRAINING = "LLM training reward"
LOW, HIGH, RATIO, REFUSED = 0.85, 0.95, 0.9, 0.6


def records(folder: Path = RESULTS) -> dict[str, Record]:
    """What has been recorded, by name: the manifests, and each set with and without the noise model."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def page(found: Mapping[str, Record]) -> str:
    """The whole page; the same records give the same text."""
    logs, judged = [*found["manifest_third"]["logs"], *found["manifest"]["logs"]], ("third", "reporting")
    lines = [*_head(logs), *(line for name in judged for line in _targets(found[f"{name}_judged"], SETS[name])),
             *_sure(found, judged), *_now(found, judged), *_sought(found),
             *_compared(found),
             *(line for name in judged for line in _misses(found[f"{name}_judged"], SETS[name])), *_sources(logs),
             *_limits()]
    return "\n".join(map(wrapped, lines)) + "\n"


def wrapped(line: str) -> str:
    """A paragraph or an item in lines of at most 120 characters; tables as they are."""
    if len(line) <= 120 or line.startswith("|"):
        return line
    return textwrap.fill(line, 120, subsequent_indent="  " if line.startswith("- ") else "", break_long_words=False,
                         break_on_hyphens=False)


def _head(logs: Sequence[Record]) -> list[str]:
    sources = {half: len({x["source"] for x in logs if x["half"] == half}) for half in SETS}
    old = made_with.sentence([RESULTS / f"{name}.json" for name in (*SETS, "forms")])
    return [
        "# Forecasts of other people's runs", "",
        f"This page tests the law on {sum(x['runs'] for x in logs)} runs from {sum(sources.values())} public sources. "
        "The last 50 % and 75 % of each run were hidden and forecast with 90 % intervals. `python "
        "experiments/outside_page.py` writes the page from `experiments/results/outside`; `experiments/outside.py` "
        "has the design and the commands. Terms are in the [glossary](glossary.md).", "",
        "Two sets were split by source before any curve was fitted. The noise model of logs was developed on the "
        f"tuning half. The reporting half, {sources['reporting']} sources, was judged once. The third set, "
        f"{sources['third']} sources, was collected later. Its list was fixed before any forecast of it, and "
        "it was judged once with the same noise model. One constant of the law was chosen after that: "
        "[the law now](#the-law-now).", "",
        *([old, ""] if old else [])]


def _targets(record: Record, name: str) -> list[str]:
    every, training = record["groups"]["all"], record["groups"].get(TRAINING)
    rows = [
        ("90 % intervals that hold, all logs", "85 to 95 %", f"{100 * every['held']:.2f} %",
         LOW <= every["held"] <= HIGH),
        ("90 % intervals that hold, LLM training reward", "85 to 95 %", f"{100 * training['held']:.2f} %",
         LOW <= training["held"] <= HIGH),
        ("median interval score, ratio to the best naive forecast, all logs", "at most 0.90", f"{every['ratio']:.2f}",
         every["ratio"] <= RATIO),
        ("the same, LLM training reward", "at most 0.90", f"{training['ratio']:.2f}", training["ratio"] <= RATIO),
        ("forecasts refused, all logs", "at most 60 %", _percent(every["refused"]), every["refused"] <= REFUSED),
    ]
    rows.sort(key=lambda row: row[3])       # misses first
    return [f"## Targets, on the {name}", "", "Missed targets come first.", "",
            "| what | target | measured |  |", "| --- | --- | --- | --- |",
            *(f"| {a} | {b} | {c} | {'met' if ok else '**missed**'} |" for a, b, c, ok in rows), ""]


def _sure(found: Mapping[str, Record], judged: Sequence[str]) -> list[str]:
    together = [x for name in judged for x in found[f"{name}_judged"]["cases"]]
    sets = {"both sets": together, **{f"the {SETS[name]}": found[f"{name}_judged"]["cases"] for name in judged}}
    rows, apart = [], 0
    for name, cases in sets.items():
        for kind, own in (("all", cases), (TRAINING, [x for x in cases if x["kind"] == TRAINING])):
            of = outside_sure.figures(own, found["tuning_before"]["cases"])
            sources = len({x["source"] for x in own if "law" in x})
            rows.append(f"| {name} | {kind} | {sources} | {_shares(of['law held'])} | "
                        f"{_shares(of['last tenth held'])} | {_spread(of['median score'])} | "
                        f"{_spread(of['mean score'])} |")
            apart += of["law held"][2] < LOW or of["law held"][1] > HIGH
            apart += of["median score"][1] > RATIO
    return ["## How sure these figures are", "",
            "Square brackets hold 95 % intervals over sources: sources are drawn with replacement, because the logs "
            f"of one source are alike. Sources are few: of the {2 * len(rows)} intervals here for a figure with a "
            f"target, {2 * len(rows) - apart} hold the target or a part of its range, and {apart} "
            f"{'lies' if apart == 1 else 'lie'} outside it.", "",
            "The targets use the median interval score. A forecast with narrow intervals can have a small median "
            "although it misses often, as the last tenth's mean does here. The last column uses the mean score, in "
            "which every miss counts. It was added after the sets were judged, and it has no target.", "",
            "| set | logs | sources | held | last tenth's mean: held | median score, ratio to the best naive | mean "
            "score, ratio to the best naive |", "|" + " --- |" * 7, *rows, ""]


def _now(found: Mapping[str, Record], judged: Sequence[str]) -> list[str]:
    one_out = outside_sure.left_out([x for name in SETS for x in found[f"{name}_judged"]["cases"]])
    drawn, chosen = one_out["drawn"], one_out["chosen"]
    weights, agree = outside_sure.weigh(drawn, False), sum(x == chosen for x in one_out["factors"].values())
    late = np.array([x["source"] in {y["source"] for name in judged for y in found[name]["cases"]} for x in drawn])
    held, own = (np.average(one_out["held"][part], weights=weights[part]) for part in (slice(None), late))
    score, before = (np.average(x, weights=weights) for x in (one_out["score"], outside_sure.scores(drawn)))
    shown: tuple[tuple[str, Callable[[float], str]], ...] = (
        ("held", _percent), ("width", "{:.3f}".format), ("ratio", "{:.2f}".format), ("refused", _percent))
    rows = [f"| {name} | {kind} | " + " | ".join(
                f"{show(found[f'{key}_judged']['groups'][kind][k])}, {show(found[key]['groups'][kind][k])}"
                for k, show in shown) + " |"
            for key, name in SETS.items() for kind in ("all", TRAINING)]
    return ["## The law now", "",
            "Most outcomes that the third set's forecasts missed lay above them: some rewards rise late. So in logs of "
            "other trainers the upper end of a prediction now lies further from the forecast, by a factor that grows "
            f"to {chosen} at one doubling beyond what was seen. The factor is the least, in steps of 0.1, at which "
            f"90 % of the intervals hold over all {len(one_out['factors'])} sources.", "",
            "No set is left that this choice has not seen. So each source was left out once, and the others chose the "
            f"factor for it: {agree} of {len(one_out['factors'])} times it is {chosen}. Then {_percent(held)} of the "
            f"intervals hold ({_percent(own)} in the two judged sets), and the mean score falls from {before:.3f} to "
            f"{score:.3f}. The median score, which the targets use, gets worse, because intervals are wider. That it "
            "is the upper end was also decided after the third set had been judged.", "",
            "Each cell holds two figures: as judged, and now.", "",
            "| set | logs | held | median width | median score, ratio to the best naive | refused |",
            "|" + " --- |" * 6, *rows, ""]


def _sought(found: Mapping[str, Record]) -> list[str]:
    record = found["forms"]
    rows = {row["form"]: row for row in record["forms"]}
    now, picked, wide = rows[outside_forms.NOW], rows[outside_forms.PICKED], rows[outside_forms.WIDE]
    shorter = [row for name, row in rows.items() if name.startswith(f"{outside_forms.NOW},")]
    met = next(row for row in shorter if row["all"]["ratio"] <= RATIO)
    chosen = [rows[name] for name in outside_forms.CHOSEN.values()]
    short = rows[outside_forms.NAIVELY]["all"]["held"]
    table = [f"| {name} | {row['constants'] or ''} | " + " | ".join([
        ", ".join(_percent(row[part]["held"]) for part in ("all", "training", "third")),
        ", ".join(f"{row[part]['ratio']:.2f}" for part in ("all", "training")),
        f"{row['all']['score']:.3f}", _spread(row["apart"]["mean"])]) + " |" for name, row in rows.items()]
    return ["## Sharper intervals were sought", "",
            "No form of the intervals was found that is reliably better than the law now, so the law was not changed. "
            "`python experiments/outside_forms.py MIRROR` has the forms, and each source is forecast with constants "
            f"from the other {record['sources'] - 1}. All three sets had been judged before, so this is no evidence "
            "on fresh logs.", "",
            "A form lies between the run's last level and the law's value. Below and above it has a scale of its own, "
            "from the law's spread, the run's changes, point noise, or the errors of earlier forecasts. The "
            "constants maximise the likelihood of the outcomes.", "",
            f"- A ratio of {RATIO:.2f} and intervals that hold {100 * LOW:.0f} % were not reached together. With its "
            f"ends at {met['form'].split(' at ')[1].split()[0]} of their distance, the law has "
            f"a ratio of {met['all']['ratio']:.2f}, and {_percent(met['all']['held'])} hold.",
            f"- The last tenth's mean has its small median because its intervals are short: {_percent(short)} hold. "
            f"Wide enough to hold {_percent(wide['all']['held'])}, its median score is "
            f"{wide['all']['ratio']:.2f} times as large, and that of the law now is {now['all']['ratio']:.2f} times as "
            "large.",
            "- One form adds the errors of the law's own earlier forecasts and, below, what its curve misses of the "
            f"last tenth. Its mean score is {_spread(picked['apart']['mean'])} times the law's. It was picked after "
            "more than 200 forms had been seen.",
            f"- If one of {record['family']} forms is chosen on the other sources, nothing is gained: the mean score "
            f"is {_spread(chosen[0]['apart']['mean'])} times the law's if the likelihood chooses, and "
            f"{_spread(chosen[1]['apart']['mean'])} if the interval score does. Of the third set's intervals "
            f"{_percent(chosen[0]['third']['held'])} and {_percent(chosen[1]['third']['held'])} hold, of the law's "
            f"{_percent(now['third']['held'])}.", "",
            "| form | constants | held: all, LLM training reward, third set | median score, ratio to the best naive: "
            "all, LLM training reward | mean score | mean score, ratio to the law now |",
            "|" + " --- |" * 6, *table, ""]


def _shares(x: Figure) -> str:
    return f"{100 * x[0]:.0f} % [{100 * x[1]:.0f}, {100 * x[2]:.0f}]"


def _spread(x: Sequence[float]) -> str:
    return f"{x[0]:.2f} [{x[1]:.2f}, {x[2]:.2f}]"


def _compared(found: Mapping[str, Record]) -> list[str]:
    out = []
    for key, name in SETS.items():
        out += [f"## The {name}", "",
                "| logs | noise model | forecasts | held | outcome below, above | median error | median width | "
                "score | ratio to the best naive | refused |", "|" + " --- |" * 10]
        before, new = found[f"{key}_before"]["groups"], found[f"{key}_judged"]["groups"]
        for group in new:
            whole = new.get(group.rsplit(", ", 1)[0])
            if whole is new[group] or whole != new[group]:      # else all of the kind: shown already
                out += [_row(group, "before", before[group]), _row(group, "new", new[group])]
        out += [""]
    return [*out, "Noise model *before*: nine single rewards of a run are fitted, and evaluation noise is a fixed "
            "share of the noise between runs. *New*: means over bins, with noise from second differences. Ratio: the "
            "law's median interval score over that of the best of three naive forecasts. These are the last tenth's "
            "mean, the last doubling's gain repeated, and ScaleRL's sigmoid, with intervals learned on other sources.",
            ""]


def _row(name: str, model: str, x: Record) -> str:
    if not x.get("drawn"):
        return f"| {name} | {model} | 0 of {x['cases']} | not measured |  |  |  |  |  |  |"
    return (f"| {name} | {model} | {x['drawn']} of {x['cases']} | {_percent(x['held'])} | {_percent(x['below'])}, "
            f"{_percent(x['above'])} | {x['error']:+.3f} | {x['width']:.3f} | {x['score']:.3f} | {x['ratio']:.2f} "
            f"({x['best']}) | {_percent(x['refused'])} |")


def _misses(record: Record, name: str) -> list[str]:
    drawn = [x for x in record["cases"] if "law" in x]
    missed = [x for x in drawn if not x["law"][1] <= x["outcome"] <= x["law"][2]]
    left = [x for x in record["cases"] if "left_out" in x]
    without = [x for x in record["cases"] if "law" not in x and "left_out" not in x]
    near = sum(abs(x["outcome"] - x["seen"]) < abs(x["outcome"] - x["law"][0]) for x in missed)
    fallen = sum(x["outcome"] < x["law"][1] for x in missed)
    by: dict[str, list[Record]] = {}
    for x in missed:
        by.setdefault(x["source"], []).append(x)
    return [f"## Where forecasts of the {name} miss", "",
            f"{len(missed)} of {len(drawn)} intervals miss (cases counted alike): {fallen} outcomes lie below, "
            f"{len(missed) - fallen} above. {near} of these outcomes are nearer to the last tenth seen than to the "
            f"forecast. {len(without)} cases have no curve: the run fell, or has too few points. {len(left)} are left "
            "out, with fewer than 4 points after the base.", "",
            "| source | misses | of |", "| --- | --- | --- |",
            *(f"| {source} | {len(cases)} | {sum(x['source'] == source for x in drawn)} |"
              for source, cases in sorted(by.items(), key=lambda item: -len(item[1]))), ""]


def _sources(logs: Sequence[Record]) -> list[str]:
    rows = []
    for name in dict.fromkeys(x["source"] for x in logs):
        own = [x for x in logs if x["source"] == name]
        kinds = ", ".join(dict.fromkeys(x["kind"] for x in own))
        known = ("trl", "verl", "tinker", "csv", "jsonl", "wandb", "sb3")
        read = sum(x["imported"].split(":")[0] in known for x in own)
        rows.append(f"| {name} | {own[0]['licence']} | {SETS[own[0]['half']]} | {kinds}: {own[0]['what']} | "
                    f"{sum(x['runs'] for x in own)} | {read} of {len(own)} | `{own[0]['commit'][:10]}` |")
    return ["## Sources", "", "No log is part of this repository. `manifest.json` has the path, commit and sha256 of "
            "each, `manifest_third.json` those of the third set. A source whose licence is *none* has no licence file. "
            "The last but one column counts logs that `isocost import` reads without options.", "",
            "| repository | licence | set | what | runs | imported as it is | commit |", "|" + " --- |" * 7, *rows, ""]


def _limits() -> list[str]:
    return ["## Limits", "",
            "- Sources are few: the intervals above do not decide most of the targets.",
            "- Outcomes are the ends of the same runs, which is easier than new runs.",
            "- No form of the law foresees a reward that rises late. Wider intervals hold more of them.",
            "- In control logs with several seeds the new noise model is worse than the one before. It was not changed "
            "after the reporting half was judged.",
            "- Few logs hold held-out rewards of language models, and few have several seeds.",
            "- Rewards without natural limits are scaled by round numbers around all logged values, hidden ones "
            "included.",
            "- The logs are those that public repositories keep. Failed runs are rarer there than in practice."]


def _percent(x: float) -> str:
    return f"{100 * x:.1f} %"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(records()), encoding="utf-8")


if __name__ == "__main__":
    main()
