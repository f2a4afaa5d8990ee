"""The comparison that docs/compare.md shows: its answers and curves, kept, and its picture.

    isocost compare grpo drgrpo dapo --data sums:base=easy --budget 240k-rollouts
    python experiments/compare_example.py comparisons/grpo-drgrpo-dapo

Writes experiments/results/compare_example.json and docs/images/compare-light.svg and -dark.svg.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from isocost.compare.judge import Comparison
from isocost.laws.curves import curves
from isocost.laws.tracks import Track
from isocost.report import charts, theme

HOME = Path(__file__).parents[1]


def kept(folder: Path) -> dict:
    """The record: compare.json's design, comparison.json with runs by name, and every run's evaluations."""
    found = json.loads((folder / "comparison.json").read_text())
    for arm in found["arms"]:
        arm["runs"] = [Path(r).name for r in arm["runs"]]
    lines = [
        {"arm": arm["name"], "run": run, "C": float(C), "reward": round(float(y), 5)}
        for arm in found["arms"] for run in arm["runs"]
        for c in curves([folder / "runs" / run]) for C, y in zip(c.C, c.audit, strict=True) if C > 0
    ]
    return {"design": json.loads((folder / "compare.json").read_text())["design"], "comparison": found, "curves": lines}


def picture(data: dict, dark: bool) -> str:
    """Held-out reward of every run over rollouts, thick where it is the mean of an arm, as SVG."""
    rows, means = data["curves"], []
    for arm in data["comparison"]["arms"]:      # a method that refills its batch passes a point at its own C
        own = [[r for r in rows if r["run"] == run] for run in arm["runs"]]
        own_tracks = [Track(o[0]["run"], 0, [r["C"] for r in o], [r["reward"] for r in o]) for o in own]
        for C in data["design"]["points"]:
            means.append({"arm": arm["name"], "C": C, "reward": float(np.mean([t.at(C) for t in own_tracks]))})
    answer = Comparison.of(data["comparison"])
    text = "Held-out reward against rollouts, a line for each run: " + ", ".join(
        f"{a.name} ends at {a.mean:.3f}" for a in answer.arms)
    return theme.svg(charts.arm_curves(rows, means, text), dark=dark)


if __name__ == "__main__":
    data = kept(Path(sys.argv[1]))
    (HOME / "experiments" / "results" / "compare_example.json").write_text(json.dumps(data, indent=1) + "\n")
    for dark, name in ((False, "light"), (True, "dark")):
        (HOME / "docs" / "images" / f"compare-{name}.svg").write_text(picture(data, dark))
