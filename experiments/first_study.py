"""The study that the README begins with: its records, its picture, and the output that the README shows.

    python experiments/first_study.py study --work studies/first    isocost quickstart --seed 0, one command after the
                                                                    other, then its records into
                                                                    experiments/results/quickstart
    python experiments/first_study.py page                          draw the picture, write the output into README.md
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tutorial

HOME = Path(__file__).resolve().parents[1]
RECORDS = HOME / "experiments" / "results" / "quickstart"
PAGE, IMAGES = HOME / "README.md", HOME / "docs" / "images"
DATA = "sums:base=hard"     # the problems of `isocost quickstart`
SWEEP = HOME / "experiments" / "results" / "sweeps" / "hard.json"
GRID = (2, 4, 8, 16, 32)    # the n of its pilot
COMMAND = "isocost audit studies/quickstart-0"
SHOWN = re.compile(rf"(^```sh\n{COMMAND}\n```\n\n```text\n).*?(^```$)", flags=re.M | re.S)


def refreshed(text: str) -> str:
    """The README with what the audit of the kept study prints now."""
    with tempfile.TemporaryDirectory() as folder, tutorial.inside(Path(folder)):
        shutil.copytree(RECORDS, "studies/quickstart-0")
        said = tutorial.printed(COMMAND)
    if len(SHOWN.findall(text)) != 1:
        raise SystemExit(f"{PAGE.name} shows the output of `{COMMAND}` not once")
    output = "".join(line.rstrip() + "\n" for line in said.strip("\n").splitlines())
    return SHOWN.sub(lambda found: found[1] + output + found[2], text)


def worst() -> tuple[int, list[dict[str, float]]]:
    """The n of the quickstart's grid that ends lowest at the probed rate in the sweep of the same problems, and its
    mean held-out reward on the test split, by rollouts."""
    runs = [r for r in json.loads(SWEEP.read_text())["runs"] if r["n"] in GRID and r["multiplier"] == 1]
    n = min(GRID, key=lambda n: float(np.mean([r["audit"][-1] for r in runs if r["n"] == n])))
    own = [r for r in runs if r["n"] == n]
    means = np.mean([r["audit"] for r in own], axis=0)
    return n, [{"C": C, "reward": float(y)} for C, y in zip(own[0]["C"], means, strict=True)]


def with_worst(spec: dict[str, Any]) -> dict[str, Any]:
    """The study's picture with the worst n of its grid at equal rollouts."""
    n, rows = worst()
    words, end = spec["layer"][-1], rows[-1]
    x, y = words["encoding"]["x"], words["encoding"]["y"]

    def layer(values: list[dict[str, Any]], mark: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"data": {"values": values}, "mark": {"color": "var(--soft)", **mark},
                "encoding": {"x": x, "y": y, **more}}

    label = [{**end, "C": words["data"]["values"][0]["C"], "text": f"n = {n}: {end['reward']:.3f}"}]
    return {**spec, "layer": [
        *spec["layer"], layer(rows, {"type": "line", "strokeWidth": 1.6, "strokeDash": [2, 2]}),
        layer([{**end, "C": end["C"] * 1.24}], {"type": "point", "shape": "diamond", "size": 110, "filled": True}),
        layer(label, {**words["mark"], "color": "var(--ink)"}, text={"field": "text", "type": "nominal"}),
    ]}


def pictures() -> dict[str, str]:
    """File name -> SVG, in light and dark."""
    from isocost.report import theme
    from isocost.report.records import load
    from isocost.report.sections import overview

    spec = with_worst(overview.overview_plot(load(RECORDS))[0])
    return {f"first-{side}.svg": theme.svg(spec, dark=side == "dark") for side in ("light", "dark")}


def write_page() -> None:
    """The README's output and its picture."""
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawn in pictures().items():
        (IMAGES / name).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("study", "page"))
    options.add_argument("--work", type=Path, default=Path("studies/first"))
    asked = options.parse_args()
    tutorial.study(asked.work, RECORDS, data=DATA) if asked.what == "study" else write_page()
