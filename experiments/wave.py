"""docs/wave.md and its pictures: every method against its parent at equal cost, in two worlds.

    python experiments/wave.py run puzzles          trains what is not trained yet, part by part, and keeps the answers
    python experiments/wave.py run sums grpo        one part of a world
    python experiments/wave.py page                 the page and its pictures, from what is kept

Design, fixed before the first run. Worlds: the shortest puzzles, worked out step by step (11 to 48 tokens, 22 in the
mean, a tail cut at 48), and sums worked out by column totals (7 to 10 tokens). Every method runs at its own n and B, at
the same FLOP as its parent, with 4 seeds (puzzles) or 5 (sums) that all arms share, after a probe of three learning
rates for each arm. A probe costs a quarter of a run. The parts of a method that depend on lengths are set to the
lengths of the world, by the paper's own proportion where it has one; staleness is 8 updates for the methods made for
stale rollouts, and for their parents. Runs with up to 256 rollouts per update cost as much as 4,096 rollouts of GRPO on
puzzles and 8,192 on sums; those with more cost what 16 updates of the largest need, and their parents as much. The
metric is the test split's pass@1 at equal cost, paired by seed. All answers of a world are judged together (Benjamini-
Hochberg, a false discovery rate of 10 %).

Hypothesis: of the methods that were identical to their parents on short sums (MinPRO, ARRoL, Rollout-GDRO, GDPO) each
differs from its parent in at least one of the two worlds. TTI is left out: it needs dialogues of several turns.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isocost import methods
from isocost.cli.commands import main as command
from isocost.compare.design import arm_of, size_of
from isocost.compare.judge import MARGIN, QUESTIONS
from isocost.compare.many import Change, Wave, wave
from isocost.laws.tracks import Track, tracks
from isocost.report import charts, theme
from isocost.runs import rules
from isocost.runs.files import read_json
from isocost.screen.words import counted, markdown_table

HOME = Path(__file__).resolve().parents[1]
RESULTS = HOME / "experiments" / "results" / "waves"
EARLIER = HOME / "experiments" / "results" / "wave.json"        # of an older world
PAGE, IMAGES = HOME / "docs" / "wave.md", HOME / "docs" / "images"
Record = Mapping[str, Any]
ORDER = ("worse", "cannot tell", "same", "better")              # misses first
IDENTICAL = ("minpro", "arrol", "rolloutgdro", "gdpo")          # to their parents, on short sums
SHARE = 3 / 4           # of a run, which the three probes of an arm cost


HEAD = """# A wave of methods, each against its parent

This page compares published methods with their parents, the methods that they change, at equal FLOP in two small
worlds: puzzles worked out step by step, and sums worked out by column totals. Every method runs at its own n and B.
Settings that depend on lengths are set to the lengths of the world. The methods for stale rollouts, and their parents,
train on rollouts up to eight updates old. The design is at the top of `experiments/wave.py` and was fixed before the
first run; each part's own design was sealed by `isocost compare`. The page and its pictures are written from
`experiments/results/waves/`.
"""
CARE = """Two small worlds say little about a method. Runs are short (32 updates of 128 rollouts on puzzles, 64 on
sums), so methods that pay off late have no time to. With few seeds, small effects are not detected. RC is at a
disadvantage: the bases cannot summarise, so its rounds cost rollouts and add nothing
([Headlines](headlines.md) has it with a base that can). MRT's and BRPO's forced answers are only continuations with
fewer tokens, because the bases know no words that request an answer. GRPO-RoC counts failed tool calls and answer tags,
which do not occur, so it keeps right answers as they come. TTI is left out: it needs dialogues of several turns.
"""


@dataclass(frozen=True)
class Part:
    """Methods that run at one cost: `flop` of a run by world, in units of 1e11, and options for all arms."""

    arms: tuple[str, ...]
    parents: int                        # parents that are not among the arms
    flop: Mapping[str, float]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class World:
    """A set of problems, and the settings that lengths decide, by method."""

    seeds: int
    options: tuple[str, ...]
    settings: Mapping[str, str]


WORLDS = {
    "puzzles": World(
        4,
        ("--data", "puzzles:length=1,count=900", "--max-tokens", "48", "--held-out", "320", "--samples", "3",
         "--evaluations", "2", "--lr", "5e-5"),
        {
            "arrol": "schedule.at=10", "mrt": "play.boundary=;,play.room=12", "brpo": "play.room=12",
            "rc": "play.room=12", "siri": "pace.period=8", "gdpo": "reward.limit=24",
            "int_": "guide.steps=8,play.boundary=;",
            "scalerl": "play.low=28,play.high=31,play.room=16,play.words=;",
        }),
    "sums": World(
        5,
        ("--data", "sums:work=1", "--limit", "1600", "--max-tokens", "12", "--held-out", "400", "--samples", "4",
         "--evaluations", "2"),
        {
            "arrol": "schedule.at=4", "mrt": "play.boundary=;,play.room=6", "brpo": "play.room=6",
            "rc": "play.room=6", "siri": "pace.period=20", "gdpo": "reward.limit=9",
            "int_": "guide.steps=16,play.boundary=;",
            "scalerl": "play.low=6,play.high=8,play.room=4,play.words=;",
        }),
}
ONE, MORE, MOST = {"puzzles": 3.3, "sums": 0.8}, {"puzzles": 7.4, "sums": 1.2}, {"puzzles": 9.9, "sums": 1.2}
PARTS = {
    "stale": Part(("minpro", "vcpo", "areal"), 2, ONE, ("--set", "max_age=8")),
    "siri": Part(("siri",), 1, ONE),
    "drgrpo": Part(("dars", "darshw", "promptgdro", "int_"), 1, ONE),
    "reinforce": Part(("ppo", "kimi", "bon", "bonrlb", "otr", "fbc"), 1, ONE),
    "grpo": Part(("mcgrpo", "gdpo", "ace", "liteppo", "v05", "mrt", "balanced", "vade", "dots", "rolloutgdro",
                  "scaler", "pope", "adhint", "arrol", "april"), 1, ONE),
    "large": Part(("roc", "brpo", "ettrl", "rc"), 1, MORE),
    "scalerl": Part(("scalerl",), 1, MOST, ("--set", "max_age=8")),
}


def words_of(world: str, name: str) -> list[str]:
    """The arguments of `isocost compare` for one part of a world."""
    part, there = PARTS[name], WORLDS[world]
    arms = [f"{arm}@{there.settings[arm]}" if arm in there.settings else arm for arm in part.arms]
    budget = part.flop[world] * 1e11 * (len(arms) + part.parents) * (there.seeds + SHARE)
    return [*arms, "--to-parents", "--own-sizes", *there.options, *part.options, "--seeds", str(there.seeds),
            "--budget", f"{budget:.4g}flop", "--threads", "1", "--workers", "1", "--out", str(folder(world, name))]


def folder(world: str, name: str) -> Path:
    """Where a part is trained."""
    return Path("comparisons") / f"wave-{world}-{name}"


def run(world: str, names: Sequence[str]) -> None:
    """Train these parts, those first that are first in `PARTS`; keep each when it has ended."""
    for name in [n for n in PARTS if n in names]:
        try:
            command(args=["compare", *words_of(world, name)])
        except SystemExit as end:           # the exit code says whether arms differ
            if end.code not in (0, 3, 4):
                raise
        keep(world, name)


def keep(world: str, name: str) -> None:
    """The record of a part: design, bill, rates, and each run's held-out reward over its cost."""
    home = folder(world, name)
    sealed, found = (read_json(home / f) for f in ("compare.json", "wave.json"))
    design = {k: v for k, v in sealed["design"].items() if k != "recipes"}
    runs = {}
    for label in design["labels"]:
        own = tracks(sorted(home.glob(f"runs/train-{label}-s*"), key=lambda f: int(f.name.rpartition("-s")[2])),
                     design["unit"], design["metric"])
        runs[label] = [{"run": t.run, "seed": t.seed, "cost": [float(x) for x in t.cost],
                        "reward": [round(float(x), 6) for x in t.reward], "diverged": t.diverged, "family": t.family,
                        "resolution": t.resolution} for t in own]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{world}-{name}.json").write_text(json.dumps({
        "command": " ".join(["isocost", "compare", *words_of(world, name)]), "setting":
        read_json(home / "study.json")["setting"], "code": read_json(home / "study.json")["code"], "design": design,
        "age": "exact", "seal": sealed["seal"], "rates": found["rates"], "bill": found["bill"],
        "ended": found["ended"], "runs": runs,
    }, indent=1) + "\n", encoding="utf-8")


# the page -------------------------------------------------------------------------------------------------------------


def kept() -> dict[str, dict[str, Record]]:
    """The record of every part that has ended, by world and part."""
    found = {world: {name: RESULTS / f"{world}-{name}.json" for name in PARTS} for world in WORLDS}
    return {world: {name: json.loads(f.read_text(encoding="utf-8")) for name, f in own.items() if f.exists()}
            for world, own in found.items()}


def judged(parts: Mapping[str, Record]) -> Wave | None:
    """All methods of a world against their parents, with one control of errors; None if no part has ended.

    Arms of different parts are different arms, although a parent may be the same method in several.
    """
    arms, parents = {}, {}
    for name, part in parts.items():
        for label, runs in part["runs"].items():
            arms[f"{name} {label}"] = [
                Track(r["run"], r["seed"], np.array(r["cost"]), np.array(r["reward"]), r["diverged"], r["family"],
                      r["resolution"]) for r in runs]
        parents |= {f"{name} {label}": f"{name} {parent}" for label, parent in part["design"]["parents"].items()
                    if _name(label) in PARTS[name].arms}
    return wave(arms, parents, unit="flops", margin=MARGIN) if parents else None


def _name(label: str) -> str:
    """The method of an arm's label, with or without its part."""
    return label.rpartition(" ")[2].partition("@")[0]


def page(found: Mapping[str, Mapping[str, Record]]) -> str:
    """The whole page; the same records give the same text."""
    told = {world: judged(parts) for world, parts in found.items()}
    parts = [HEAD, "```sh", *(f"python experiments/wave.py run {world}" for world in WORLDS),
             "python experiments/wave.py page", "```\n"]
    parts += [_hypothesis(told), CARE]
    for world, many in told.items():
        if many is not None:
            parts += _world(world, many, found[world])
    parts.append(_earlier())
    lines = "\n".join(parts).rstrip("\n").split("\n")
    return "\n".join(line if line[:1] in ("|", "<", " ") or line.startswith(("isocost ", "python ")) else
                     textwrap.fill(line, 120, break_on_hyphens=False, break_long_words=False) for line in lines) + "\n"


def _hypothesis(told: Mapping[str, Wave | None]) -> str:
    """Whether each method that was identical to its parent on short sums differs from it somewhere."""
    verdicts: dict[str, list[str]] = {name: [] for name in IDENTICAL}
    for world, many in told.items():
        for c in many.changes if many else ():
            if _name(c.method) in verdicts:
                verdicts[_name(c.method)].append(f"{c.verdict} on {world}")
    differ = [name for name, own in verdicts.items() if any(x.startswith(("better", "worse")) for x in own)]
    said = "; ".join(f"`{name}` {', '.join(own) or 'not run'}" for name, own in verdicts.items())
    return (f"Fixed before the first run: each of {len(IDENTICAL)} methods that were identical to their parents on "
            "short sums differs from its parent in at least one world. "
            f"**{len(differ)} of {len(IDENTICAL)} do**: {said}.\n")


def _world(world: str, many: Wave, parts: Mapping[str, Record]) -> list[str]:
    """One world: what was found, misses first, its picture and its table."""
    names = {x: [_name(c.method) for c in many.changes if c.verdict == x] for x in ORDER}
    some = next(iter(parts.values()))
    lacking = [arm for name, part in PARTS.items() if name not in parts for arm in part.arms]
    bill = [own for part in parts.values() for own in part["bill"].values()]
    runs, hours = sum(b["runs"] for b in bill), sum(b["seconds"] for b in bill) / 3600
    spread = "; ".join(f"**{x}** {len(own)}" + (f" ({', '.join(own)})" if own and x != "cannot tell" else "")
                       for x, own in names.items())
    ended = [text for part in parts.values() for text in part["ended"]]
    if any("max_age=8" in PARTS[name].options and part.get("age") != "exact" for name, part in parts.items()):
        ended.append("runs with `max_age` are of a version in which rollouts were at most that old; now they are "
                     "exactly that old ([Sample and learn at the same time](overlap.md))")
    named = {arm_of(label)[0] for part in parts.values() for label in part["rates"]} & {*methods.shipped()}
    if others := rules.differences({}, {name: rule for name in named if (rule := rules.of_file(name)) != 1}):
        ended.append(f"made under {others}; here, with one question and one answer, both rules give the same numbers")
    return [
        f"## {world.capitalize()}\n",
        f"{counted(len(many.changes), 'method')} on `{some['setting']['data']}`, "
        f"{counted(len(some['design']['seeds']), 'seed')} an arm. {spread}. {many.called} of {many.asked} answers are "
        f"significant; intervals are {100 * (1 - many.alpha):.3g} % intervals. {runs:,} runs with their probes, "
        f"{hours:.1f} hours of run time on a shared machine.\n",
        *([f"Not run here for lack of time on the machine: {', '.join(lacking)}.\n"] if lacking else []),
        _picture(f"wave-{world}", f"Held-out reward of every method less its parent's at equal cost, on {world}"),
        markdown_table(
            ("method", "n, B", "parent", "verdict", "rate", "reward", "parent's", "equal cost"),
            [_row(c, parts) for c in sorted(many.changes, key=lambda c: (ORDER.index(c.verdict), _difference(c)))]),
        *([*("Notes on runs:\n",), *(f"- {text}" for text in dict.fromkeys(ended)), ""] if ended else []),
    ]


def _difference(c: Change) -> float:
    return c.means[0] - c.means[1]


def _row(c: Change, parts: Mapping[str, Record]) -> Sequence[str]:
    part, _, label = c.method.partition(" ")
    design = parts[part]["design"]
    n, B = size_of(design, label).values()
    verdict = c.verdict + (f" ({c.by})" if c.verdict in ("better", "worse") else "")
    answer = c.answer(QUESTIONS[0])
    interval = "not known" if answer.value is None else f"{answer.value:+.3f} [{answer.low:+.3f}, {answer.high:+.3f}]"
    stale = ", `max_age=8`" if "max_age=8" in PARTS[part].options else ""
    return (f"`{label}`{stale}", f"{n}, {B}", f"`{_name(c.parent)}`", verdict, f"{parts[part]['rates'][label]:.2g}",
            f"{c.means[0]:.3f}", f"{c.means[1]:.3f}", interval)


def _earlier() -> str:
    """What the record of the older world says, in a line."""
    found = json.loads(EARLIER.read_text(encoding="utf-8"))["found"]["changes"]
    said = ", ".join(f"{sum(c['verdict'] == x for c in found)} {x}" for x in ORDER)
    return ("## An earlier wave\n\n[An earlier wave](wave_earlier.md) is of an older world: sums answered in four "
            f"characters, all methods at n = 8 and B = 16, most of them without the parts above. {len(found)} methods: "
            f"{said}. Its numbers are not comparable with those on this page.\n")


def _picture(name: str, text: str) -> str:
    return (f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/{name}-dark.svg">\n'
            f'  <img alt="{text}" src="images/{name}-light.svg">\n</picture>\n')


def pictures(found: Mapping[str, Mapping[str, Record]]) -> dict[str, str]:
    """Every picture by file name: each method's difference from its parent at equal cost."""
    out = {}
    for world, parts in found.items():
        many = judged(parts)
        if many is None:
            continue
        ends = [(_name(c.method), c.answer(QUESTIONS[0])) for c in many.changes]
        rows = [{"label": name, "value": a.value, "low": a.low, "high": a.high,
                 "role": "outcome" if (a.low or 0) > 0 or (a.high or 0) < 0 else "guess"}
                for name, a in sorted(ends, key=lambda x: -(x[1].value or 0.0)) if a.value is not None]
        spec = charts.forest(rows, "held-out reward less the parent's, at equal cost",
                             f"Held-out reward of each method less its parent's at equal cost, on {world}", zero=True)
        out |= {f"wave-{world}-{'dark' if dark else 'light'}.svg": theme.svg(spec, dark=dark)
                for dark in (False, True)}
    return out


def main(arguments: Sequence[str]) -> None:
    """`run WORLD [PART]...` or `page`. Raises SystemExit for anything else."""
    match arguments:
        case ["run", world, *names] if world in WORLDS and set(names) <= set(PARTS):
            run(world, names or list(PARTS))
        case ["page"]:
            found = kept()
            PAGE.write_text(page(found), encoding="utf-8")
            for name, text in pictures(found).items():
                (IMAGES / name).write_text(text, encoding="utf-8")
        case _:
            raise SystemExit(f"say `run WORLD [PART]...` or `page`; worlds are {', '.join(WORLDS)}, parts "
                             f"{', '.join(PARTS)}")


if __name__ == "__main__":
    main(sys.argv[1:])
