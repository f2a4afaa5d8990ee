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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from isocost.cli.commands import main as command
from isocost.laws.tracks import tracks
from isocost.runs.files import read_json

HOME = Path(__file__).resolve().parents[1]
RESULTS = HOME / "experiments" / "results" / "waves"
SHARE = 3 / 4           # of a run, which the three probes of an arm cost


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
        "seal": sealed["seal"], "rates": found["rates"], "bill": found["bill"], "ended": found["ended"], "runs": runs,
    }, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """`run WORLD [PART]...`. Raises SystemExit for anything else."""
    match arguments:
        case ["run", world, *names] if world in WORLDS and set(names) <= set(PARTS):
            run(world, names or list(PARTS))
        case _:
            raise SystemExit(f"say `run WORLD [PART]...`; worlds are {', '.join(WORLDS)}, parts {', '.join(PARTS)}")


if __name__ == "__main__":
    main(sys.argv[1:])
