"""The study behind docs/from_runs_to_a_plan.md, its pictures, and the page's own output.

    python experiments/tutorial.py study --work studies/tutorial    a whole study, then its records into
                                                                    experiments/results/tutorial
    python experiments/tutorial.py page                             run the page's code, write its output, draw pictures

The study is `isocost quickstart --data sums:level=1 --seed 0`, one command after the other; with `--budget
800k-rollouts` it is that of the same command with this option. What is kept of a run is run.json, end.json, and of
metrics.jsonl and timing.jsonl the lines of evaluations. The pilot's are cut down before the forecast is sealed, so that
the seal is over what lies here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
RECORDS, IMAGES = HOME / "experiments" / "results" / "tutorial", HOME / "docs" / "images"
PAGE = HOME / "docs" / "from_runs_to_a_plan.md"
KEPT = ("run.json", "end.json", "metrics.jsonl", "timing.jsonl")
PILOT = ("profile --seed 0 --out", "plan", "pilot")
TRAINING = ("fit", "plan", "train --plan", "audit")
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", flags=re.M | re.S)
STUDY = "studies/tutorial"      # what the page calls it; its records are copied there to be read


# the study ----------------------------------------------------------------------------------------------------


def study(work: Path, records: Path, budget: str | None = None, data: str | None = None) -> None:
    """Make the study in `work`, continuing where it was stopped, and copy what is kept of it to `records`."""
    for step in (f"profile --data {data} --seed 0 --out" if data else PILOT[0], *PILOT[1:]):
        planned = step == "plan" and (work / "pilot.json").exists()
        _isocost(f"plan --budget {budget}" if step == "plan" and budget and not planned else step, work)
    _cut(work, trained=False)
    for step in TRAINING:
        _isocost(step, work)
    _cut(work, trained=True)
    shutil.rmtree(records, ignore_errors=True)
    for path in sorted([*work.glob("*.json"), *(f for k in KEPT for f in work.glob(f"runs/*/{k}"))]):
        there = records / path.relative_to(work)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)


def _isocost(step: str, work: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "isocost", *shlex.split(step), str(work)], check=False)
    if done.returncode not in (0, 3, 4):    # an audit ends with its verdict's own code
        raise SystemExit(f"isocost {step} {work} ended with {done.returncode}")


def _cut(work: Path, *, trained: bool) -> None:
    """Leave only the lines of evaluations in the metrics and the clock of the pilot's runs, or of the trained ones.

    A trained run that was stopped goes on from bytes it counted, so those are cut when all of them are done.
    """
    for end in work.glob("runs/*/end.json"):
        if (json.loads(end.with_name("run.json").read_text(encoding="utf-8"))["purpose"] == "train") != trained:
            continue
        metrics, timing = (end.with_name(name) for name in ("metrics.jsonl", "timing.jsonl"))
        kept = [line for line in _lines(metrics) if "eval/select" in json.loads(line)]
        steps = {json.loads(line)["step"] for line in kept}
        metrics.write_text("".join(kept), encoding="utf-8")
        clock = [line for line in _lines(timing) if json.loads(line)["step"] in steps]
        timing.write_text("".join(clock), encoding="utf-8")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


# the page -----------------------------------------------------------------------------------------------------


def refreshed(text: str) -> str:
    """The page with each block's output as the code prints it now, its blocks run in order on a copy of the records."""
    with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
        shutil.copytree(RECORDS, STUDY)
        names: dict[str, object] = {}
        return BLOCK.sub(lambda found: _ran(found[1], found[2], names), text)


def _ran(kind: str, code: str, names: dict[str, object]) -> str:
    said = _python(code, names) if kind == "python" else "".join(map(printed, code.splitlines()))
    output = "\n".join(line.rstrip() for line in said.strip("\n").splitlines())
    return f"```{kind}\n{code}```\n" + (f"\n```text\n{output}\n```\n" if output else "")


def _python(code: str, names: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(PAGE), "exec"), names)
    return out.getvalue()


def printed(line: str) -> str:
    """What `isocost ...` prints, without a process of its own."""
    from click.testing import CliRunner

    from isocost.cli import commands as cli

    said = CliRunner().invoke(cli.main, shlex.split(line)[1:])
    if said.exit_code not in (0, 3, 4):
        raise SystemExit(f"{line} ended with {said.exit_code}: {said.output}")
    return "".join(_broken(x) + "\n" for x in said.output.splitlines())


def _broken(line: str) -> str:
    """A line as a terminal of 120 columns shows it."""
    return line if len(line) <= 120 else "\n".join(
        textwrap.wrap(line, 120, break_long_words=False, break_on_hyphens=False))


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def pictures() -> dict[str, str]:
    """File name -> SVG, of the plots on the page, in light and dark."""
    from isocost.report import theme
    from isocost.report.records import load
    from isocost.report.sections import overview, reach

    found = load(RECORDS)
    specs = {"reward": reach.reward_plot(found)[0], "path": overview.overview_plot(found)[0]}
    return {
        f"tutorial-{name}-{side}.svg": theme.svg(spec, dark=side == "dark")
        for name, spec in specs.items()
        for side in ("light", "dark")
    }


def write_page() -> None:
    """The page's output and its pictures."""
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, picture in pictures().items():
        (IMAGES / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("study", "page"))
    options.add_argument("--work", type=Path, default=Path("studies/tutorial"))
    options.add_argument("--budget", help="of the study, instead of the default size")
    asked = options.parse_args()
    study(asked.work, RECORDS, asked.budget) if asked.what == "study" else write_page()
