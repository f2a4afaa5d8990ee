"""The study that the README begins with: its records, its picture, and the output that the README shows.

    python experiments/first_study.py study --work studies/first    isocost quickstart --seed 0, one command after the
                                                                    other, then its records into
                                                                    experiments/results/quickstart
    python experiments/first_study.py page                          draw the picture, write the output into README.md
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tutorial

HOME = Path(__file__).resolve().parents[1]
RECORDS = HOME / "experiments" / "results" / "quickstart"
PAGE, IMAGES = HOME / "README.md", HOME / "docs" / "images"
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


def picture() -> dict[str, Any]:
    """Pilot, sealed forecast, outcome and comparator in one plot, as a Vega-Lite specification."""
    import altair as alt

    from isocost.report import outcome, reach, theme
    from isocost.report.records import load

    found = load(RECORDS)
    told = outcome.outcome_of(found)
    n, other, C = told["n"], told["other_n"], told["C"]
    low, value, high = (told["forecast"][k] for k in ("low", "value", "high"))
    ends = {n: told["outcome"]["value"], other: told["other"]["value"]}
    names = {n: f"n = {n}, prescribed", other: f"n = {other}, default"}
    pilot = [
        {"arm": names[r["n"]], "C": r["C"], "reward": r["reward"]}
        for r in reach.reward_plot(found)[2] if r["kind"] == "observed" and r["n"] in names
    ]
    runs = [
        {"arm": names[n if "prescribed" in r["what"] else other], "C": r["C"], "reward": r["reward"], "run": r["run"]}
        for r in outcome.path_plot(found)[2] if r["kind"] == "run"
    ]
    end, at, after = max(r["C"] for r in pilot), 1.15 * C, 1.42 * C
    colour = alt.Color(
        "arm:N", scale=alt.Scale(domain=list(names.values()), range=["var(--accent)", "var(--filtered)"]),
        legend=alt.Legend(title=None),
    )
    x = alt.X(
        "C:Q", title="training rollouts per run",
        axis=alt.Axis(format="~s", values=[300, 1000, 3000, 10_000, 30_000]),
        scale=alt.Scale(type="log", domain=[min(r["C"] for r in pilot), 5.6 * C], nice=False),
    )
    y = alt.Y("reward:Q", title="held-out reward", scale=alt.Scale(domain=[0.6, 1.0]))
    soft = [
        ({"C": end, "reward": 0.615, "text": "the pilot ends here"}, "right", -8),
        ({"C": end, "reward": 0.615, "text": "trained after the forecast was sealed"}, "left", 8),
    ]
    words = [
        (high - 0.002, f"forecast {value:.3f}"),
        (high - 0.021, f"90 %: {low:.3f} to {high:.3f}"),
        (ends[n] + 0.004, f"outcome {ends[n]:.3f}"),
        (ends[other] - 0.012, f"default n = {other}: {ends[other]:.3f}"),
    ]

    def rows(*given: dict[str, Any]) -> alt.Chart:
        return alt.Chart(alt.Data(values=list(given)))

    layers = [
        rows({"C": end}).mark_rule(strokeDash=[4, 4], color="var(--soft)").encode(x=x),
        *(rows(row).mark_text(align=align, dx=dx, color="var(--soft)").encode(x=x, y=y, text="text:N")
          for row, align, dx in soft),
        rows(*runs).mark_line(strokeWidth=1.3, opacity=0.7).encode(x=x, y=y, color=colour, detail="run:N"),
        rows(*pilot).mark_point(size=46).encode(x=x, y=y, color=colour),
        rows({"C": at, "reward": low, "high": high}).mark_rule(
            strokeWidth=10, opacity=0.45, color="var(--accent)").encode(x=x, y=y, y2="high:Q"),
        rows({"C": at, "reward": value}).mark_tick(
            orient="horizontal", thickness=3, size=26, color="var(--accent)").encode(x=x, y=y),
        rows(*({"C": after, "reward": ends[k], "arm": names[k]} for k in ends)).mark_point(size=90).encode(
            x=x, y=y, color=colour),
        *(rows({"C": 1.62 * C, "reward": height, "text": text}).mark_text(align="left", fontSize=12).encode(
            x=x, y=y, text="text:N") for height, text in words),
    ]
    alt_text = (
        f"Held-out reward against training rollouts. Left: the pilot of n = {n} and n = {other}. Right: the sealed"
        f" forecast {value:.3f} ({low:.3f} to {high:.3f}), the outcome {ends[n]:.3f}, and the default"
        f" n = {other} at {ends[other]:.3f}"
    )
    return theme.finish(alt.layer(*layers), alt_text, 340)


def pictures() -> dict[str, str]:
    """File name -> SVG, in light and dark."""
    from isocost.report import theme

    return {f"first-{side}.svg": theme.svg(picture(), dark=side == "dark") for side in ("light", "dark")}


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
    tutorial.study(asked.work, RECORDS) if asked.what == "study" else write_page()
