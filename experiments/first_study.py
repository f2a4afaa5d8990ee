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

import tutorial

HOME = Path(__file__).resolve().parents[1]
RECORDS = HOME / "experiments" / "results" / "quickstart"
PAGE, IMAGES = HOME / "README.md", HOME / "docs" / "images"
DATA = "sums:base=hard"     # the problems of `isocost quickstart`
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


def pictures() -> dict[str, str]:
    """File name -> SVG, in light and dark."""
    from isocost.report import overview, theme
    from isocost.report.records import load

    spec = overview.overview_plot(load(RECORDS))[0]
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
