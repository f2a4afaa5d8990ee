"""docs/wave_earlier.md and its pictures: the earlier wave, on short sums, from experiments/results/wave.json.

    python experiments/wave_earlier.py

The later waves, on puzzles and on worked sums, are those of `wave.py`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost import methods
from isocost.compare.design import size_of
from isocost.compare.judge import QUESTIONS
from isocost.compare.many import RATE
from isocost.report import arm_charts, charts, theme
from isocost.screen.words import counted, markdown_table

HOME = Path(__file__).resolve().parents[1]
KEPT = HOME / "experiments" / "results" / "wave.json"
PAGE, IMAGES = HOME / "docs" / "wave_earlier.md", HOME / "docs" / "images"
Record = Mapping[str, Any]
LATER = "best@4"        # a metric that was not sealed: the same runs, looked at once more
ORDER = ("better", "worse", "same", "cannot tell")


CARE = """One small world says little about a method. Most of these methods were made for models that reason at
length, for stale rollouts, or for problems that are never solved. Here answers have at most four tokens, rollouts are
fresh except those of AReaL and ScaleRL, and the base is right half of the time. Some methods have nothing to act on
here and equal their parents to the last digit, or nearly: MinPRO (ratios of fresh rollouts are 1), ARRoL (no answer
is long enough to be stopped), TTI (one turn), Rollout-GDRO (by pass@8 nearly all problems share a bin), GDPO (no
answer is too long). `isocost profile` reports beforehand that the preconditions of POPE, InT and ADHint fail on these
problems, and that those of SCALER hold. MRT spends rollouts on answers that are not trained on, and RC on such
rounds; equal cost counts both. FBC and TTI were billed about an eighth more FLOP than they need, for log-probs that
their loss does not read.
"""
ONE_SIZE = """\
All arms ran at one n and B, whatever their own file says. The table shows a method's own sizes where they differ.
This is a handicap for methods made for larger groups: eight rollouts of BRPO are one trace and its answers, without
another trace to compare it with, and most of them carry no advantage. MC-GRPO needs an odd n. For methods with sizes
of their own, the wave measures them at these sizes, not as published.
"""
OWN_SIZES = """\
Every arm ran at its method's own n and B, which the table shows. All cost the same, so an arm with larger updates
made fewer of them.
"""
AGAIN = """\
mcgrpo, mrt, brpo, scaler and v05 were trained again under the same seal, after a review had found faults in them. No
number here includes the cost of their first runs.
"""


def page(data: Record) -> str:
    """The whole page; the same record gives the same text."""
    found, d = data["found"], data["design"]
    tried = " ".join(label for label in d["labels"] if label in d["parents"])
    amount = f"{d['budget']['amount']:.3g}{'flop' if d['unit'] == 'flops' else '-' + d['unit']}"
    seeds = counted(len(d["seeds"]), "seed")
    said = {x: [c["method"] for c in found["changes"] if c["verdict"] == x] for x in ORDER}
    cost = f"{d['cost']:.2g} FLOP" if d["unit"] == "flops" else f"{d['cost']:,.0f} {d['unit']}"
    bill = found["bill"]
    own = d.get("sizes")
    at = "each at its method's own n and B" if own else f"n = {d['n']}, B = {d['B']}"
    runs = sum(part["runs"] for part in bill.values())
    hours = sum(part["seconds"] for part in bill.values()) / 3600
    told = "; ".join(f"**{x}** {len(names)}" + (f" ({', '.join(names)})" if x in ("better", "worse") else "")
                     for x, names in said.items() if names)
    parts = [
        "# An earlier wave of methods\n",
        "This record is of an older world: sums answered in four characters. [A wave of methods](wave.md) has the "
        "later ones, on problems that are worked out step by step. `roc` is here under rule 1, and this version has "
        "rule 2: with one question and one answer, as here, both give the same numbers.\n",
        "This page compares every method of a wave with its parent, the method that it changes, at equal cost. The "
        "situation, metric, budget, seeds and margin were sealed before the first run. "
        "`python experiments/wave_earlier.py` writes the page from `experiments/results/wave.json`.\n",
        "```sh", f"isocost compare {tried} --to-parents {'--own-sizes ' if own else ''}--data "
        f"{data['setting']['data']} --seeds {len(d['seeds'])} --budget {amount} --out comparisons/wave",
        "```\n",
        f"{len(found['changes'])} methods were tried, each at three learning rates and then with {seeds} of {cost} on "
        f"`{data['setting']['data']}` with {data['setting']['model']}, {at}. Parents ran once "
        f"and are shared. This took {runs:,} runs and {hours:.1f} hours of run time. Results: {told}.\n",
        f"{found['called']} of {found['asked']} answers are significant by the Benjamini-Hochberg procedure, which"
        " keeps "
        f"the expected share of false differences at {RATE:.0%} or less. Intervals are "
        f"{100 * (1 - found['alpha']):.3g} % intervals.\n",
        CARE,
        *([OWN_SIZES] if own else [ONE_SIZE, AGAIN]),
        _picture("wave-cost", "Held-out reward of every method less its parent's at equal cost, with intervals"),
        _picture("wave", "Effect of every method on the asymptote against its effect on efficiency, with intervals"),
        "The second picture shows the methods with both effects known: the parent's cost for the same reward as a "
        "multiple of the method's (right of 1 the method is cheaper), and the difference of the asymptotes.\n",
        markdown_table(
            ("method", "n, B" if own else "own n, B", "parent", "verdict", "rate", "reward", "parent's", "equal cost",
             "efficiency", "asymptote"),
            [_row(c, found["rates"], d) for c in sorted(found["changes"], key=lambda c: ORDER.index(c["verdict"]))]),
    ]
    told = [c for c in data["later"]["changes"] if c["verdict"] in ("better", "worse")]
    parts += [
        f"## The same runs by {LATER}\n",
        f"This metric was not sealed; it was computed afterwards by the same procedure ({data['later']['called']} of "
        f"{data['later']['asked']} answers significant). None of the methods made to raise the best of several (BoN, "
        "DARS, ACE) significantly does so here, where the base's best of four is right nine times in ten. Significant "
        "differences:\n",
        markdown_table(("method", "parent", "verdict", LATER, "parent's", "equal cost"), [
            (f"`{c['method']}`", f"`{c['parent']}`", f"{c['verdict']} ({c['by']})", *(f"{x:.3f}" for x in c["means"]),
             _told({a["question"]: a for a in c["answers"]}["equal cost"], "+.3f"))
            for c in sorted(told, key=lambda c: ORDER.index(c["verdict"]))]),
    ]
    notes = [*found["ended"], *(n for c in found["changes"] for n in c["notes"])]
    if notes:
        parts += ["Notes on runs:\n", *(f"- {n}" for n in dict.fromkeys(notes))]
    lines = "\n".join(parts).rstrip("\n").split("\n")
    return "\n".join(line if line[:1] in ("|", "<", " ") or line.startswith("isocost ") else
                     textwrap.fill(line, 120, break_on_hyphens=False) for line in lines) + "\n"


def _picture(name: str, text: str) -> str:
    return (f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/{name}-dark.svg">\n'
            f'  <img alt="{text}" src="images/{name}-light.svg">\n</picture>\n')


def own_sizes(name: str, n: int, B: int) -> str:
    """A method's own n and B, those that are not these; empty where both are."""
    recipe = methods.load(name).recipe()
    sizes = (("n", recipe.rollouts, n), ("B", recipe.groups, B))
    return ", ".join(f"{size} = {own}" for size, own, here in sizes if own != here)


def _row(c: Record, rates: Mapping[str, float], design: Record) -> Sequence[str]:
    verdict = c["verdict"] + (f" ({c['by']})" if c["verdict"] in ("better", "worse") else "")
    answers = {a["question"]: a for a in c["answers"]}
    own, its = c["means"]
    n, B = size_of(design, c["method"]).values()
    sizes = f"n = {n}, B = {B}" if design.get("sizes") else own_sizes(design["arms"][c["method"]], n, B)
    means = (f"{own:.3f}", f"{its:.3f}")
    return (f"`{c['method']}`", sizes, f"`{c['parent']}`", verdict, f"{rates[c['method']]:.2g}", *means,
            *(_told(answers[q], form) for q, form in zip(QUESTIONS, ("+.3f", ".2f", "+.3f"), strict=True)))


def _told(answer: Record, form: str) -> str:
    if answer["value"] is None:
        return "not known"
    value, low, high = (format(answer[k], form) for k in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def pictures(data: Record) -> dict[str, str]:
    """Every picture by file name."""
    changes = data["found"]["changes"]
    by = {c["method"]: {a["question"]: a for a in c["answers"]} for c in changes}
    ends = sorted(((m, a["equal cost"]) for m, a in by.items() if a["equal cost"]["value"] is not None),
                  key=lambda x: -x[1]["value"])
    rows = [{"label": m, "value": a["value"], "low": a["low"], "high": a["high"],
             "role": "outcome" if a["low"] > 0 or a["high"] < 0 else "guess"} for m, a in ends]
    told = {c["method"] for c in changes if c["verdict"] in ("better", "worse")}
    both = [{"name": m, "told": m in told, **_bounds("x", a["efficiency"]), **_bounds("y", a["asymptote"])}
            for m, a in by.items() if None not in (a["efficiency"]["value"], a["asymptote"]["value"])]
    specs = {
        "wave-cost": charts.forest(rows, "held-out reward less the parent's, at equal cost",
                                   "Held-out reward of each method less its parent's at equal cost", zero=True),
        "wave": arm_charts.plane(both, "times the method's cost that its parent needs (log scale)",
                             "asymptote less the parent's", "Effect on the asymptote against effect on efficiency"),
    }
    return {f"{name}-{'dark' if dark else 'light'}.svg": theme.svg(spec, dark=dark)
            for name, spec in specs.items() for dark in (False, True)}


def _bounds(axis: str, answer: Record) -> dict[str, float]:
    return {axis: answer["value"], f"{axis}_low": answer["low"], f"{axis}_high": answer["high"]}


def main() -> None:
    """Write page and pictures."""
    data = json.loads(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(page(data), encoding="utf-8")
    for name, text in pictures(data).items():
        (IMAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
