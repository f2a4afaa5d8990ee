"""The pages say what is so: links lead somewhere, commands parse, what is marked as run is run, lists are complete."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from isocost import cli, docs, seams
from isocost.laws import audit, forecast, law, pilot, plan, rate
from isocost.report import aliases

HOME = Path(__file__).parents[1]
PAGES = sorted([*HOME.glob("*.md"), *(HOME / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.M | re.S)
OWN = (HOME / "docs" / "use_your_own.md").read_text(encoding="utf-8")


def prose(text: str) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", text)


def slugs(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def lines(text: str) -> list[str]:
    """Every `isocost ...` that a page shows, in blocks and in the text."""
    blocks = [x for _, body in FENCE.findall(text) for x in body.splitlines()]
    inline = re.findall(r"`([^`\n]+)`", prose(text))
    return [x.strip() for x in (*blocks, *inline) if x.strip().startswith("isocost ")]


def named(text: str) -> set[str]:
    """Everything between backticks in a page's text."""
    return set(re.findall(r"`([^`\n]+)`", prose(text)))


# links and names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"\]\(([^)\s]+)\)", prose(text)) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for link in (x for x in found if "://" not in x):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in slugs(target.read_text(encoding="utf-8")), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_are_named_exist(page):
    for name in named(page.read_text(encoding="utf-8")):
        if re.fullmatch(r"(isocost|tests|docs|examples)(/[\w.]+)+", name):
            assert (HOME / name).exists(), f"{page.name}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_parse(page):
    for line in lines(page.read_text(encoding="utf-8")):
        try:
            parse(shlex.split(line)[1:])
        except click.ClickException as e:
            pytest.fail(f"{page.name}: {line}: {e.format_message()}")


def parse(words: list[str]) -> None:
    """Read a command line as the command would, without running it. Named alone, a command need only exist."""
    command: click.Command = cli.main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        if name not in command.commands:
            raise click.UsageError(f"there is no command {name!r}")
        command = command.commands[name]
    words = [w for w in words if w != "[OPTIONS]"]
    if words and words != ["--help"]:
        command.make_context(command.name, words)


def test_a_wrong_option_is_found():
    parse(["plan", "studies/mine", "--budget", "2h"])
    for wrong in (["plan", "studies/mine", "--bugdet", "2h"], ["prophesy"], ["methods", "burn"]):
        with pytest.raises(click.ClickException):
            parse(wrong)


def test_make_targets_exist():
    makefile = (HOME / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"\bmake (quickstart|test|lint|clean)\b", page.read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, flags=re.M)


# pages made from code, or complete by code -------------------------------------------------------------------


def test_the_commands_page_is_current():
    said = (HOME / "docs" / "cli.md").read_text(encoding="utf-8")
    assert said == docs.commands(), "python -m isocost.docs > docs/cli.md"


def test_the_notation_has_every_trainers_names():
    said = (HOME / "docs" / "notation.md").read_text(encoding="utf-8")
    for row in aliases.rows({}):
        assert "| " + " | ".join(row) + " |" in said


def test_the_tour_is_of_this_code():
    said = (HOME / "docs" / "read_the_code.md").read_text(encoding="utf-8")
    assert "thirteen seams" in said and len(seams.SEAMS) == 13
    assert "four sizes" in said and len(seams.SIZES) == 4
    assert all(seam in said for seam in ("choose", "guide", "allocate", "schedule", "play", "reward", "select"))
    for name in ("_launch_ahead", "_sift", "RunRecord.save", "RunRecord.restore", "_Run.go"):
        sources = "".join(p.read_text(encoding="utf-8") for p in (HOME / "isocost").glob("*.py"))
        assert name in said and f"def {name.split('.')[-1]}(" in sources


STEPS = {
    "pilot.json": pilot.PilotPlan,
    "rate.json": rate.RateRule,
    "shift.json": rate.Shift,
    "law.json": law.Law,
    "plan.json": plan.Plan,
    "forecast.json": forecast.Forecast,
    "audit.json": audit.Audit,
}


@pytest.mark.parametrize("file", STEPS)
def test_what_the_records_page_says_of_a_study_is_there(file):
    said = (HOME / "docs" / "records.md").read_text(encoding="utf-8")
    row = next(x for x in said.splitlines() if x.startswith(f"| `{file}`"))
    there = {f.name for f in dataclasses.fields(STEPS[file])}
    assert set(re.findall(r"`(\w+)`", row)) <= there


# what is marked as run is run ---------------------------------------------------------------------------------


DRIVER = """
import json, runpy, sys
from click.testing import CliRunner
from isocost import cli

for words in json.loads(sys.argv[1]):
    if words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
    else:
        said = CliRunner().invoke(cli.main, words[1:])
        if said.exit_code:
            sys.exit(f"{words} ended with {said.exit_code}\\n{said.output}\\n{said.exception!r}")
"""


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """docs/use_your_own.md, followed to the letter: files saved, `sh` blocks run in order, in one process."""
    home = tmp_path_factory.mktemp("own")
    for name, body in re.findall(r"Save this as `([\w.]+)`:\n\n```python\n(.*?)^```$", OWN, flags=re.M | re.S):
        (home / name).write_text(body, encoding="utf-8")
    words = [shlex.split(x) for kind, body in FENCE.findall(OWN) if kind == "sh" for x in body.splitlines()]
    here = {**os.environ, "PYTHONPATH": str(HOME)}
    said = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(words)], cwd=home, env=here, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    return home


def test_the_walk_leaves_what_it_promises(walked):
    assert len((walked / "mine.jsonl").read_text().splitlines()) == 120
    assert (walked / "studies/mine/profile.json").exists()
    assert json.loads((walked / "runs/second/run.json").read_text())["model"]["name"] == "runs/first/final"
    assert "difference" in json.loads((walked / "runs/second/eval.json").read_text())
    recipe = json.loads((walked / "runs/maxrl/run.json").read_text())["recipe"]
    assert recipe["advantage"]["least"] == 0.01
    rewards = {r for x in read(walked / "runs/reward/journal.jsonl") for r in x["rewards"]}
    assert rewards == {0.0, 0.5, 1.0}


def test_the_readmes_method_keeps_the_contract(tmp_path):
    from isocost import methods

    text = (HOME / "README.md").read_text(encoding="utf-8")
    body = next(b for kind, b in FENCE.findall(text) if kind == "python" and "CARD" in b)
    path = tmp_path / "clip_higher.py"
    path.write_text(body, encoding="utf-8")
    assert [f for f in methods.check(str(path)) if not f.kept] == []


def read(path: Path) -> list[dict]:
    return [json.loads(x) for x in path.read_text().splitlines()]


def test_the_records_page_names_every_field_of_a_run(walked):
    said = named((HOME / "docs" / "records.md").read_text(encoding="utf-8"))
    run = walked / "runs" / "reward"
    keys = {k for f in ("run.json", "end.json") for k in json.loads((run / f).read_text())}
    keys |= set(json.loads((run / "run.json").read_text())["arm"])
    for f in ("journal.jsonl", "timing.jsonl", "samples.jsonl"):
        keys |= {k for x in read(run / f) for k in x}
    methods_own = ("clip_ratio/low_mean", "clip_ratio/high_mean")
    keys |= {k for x in read(run / "metrics.jsonl") for k in x if k not in methods_own}
    assert keys - {"schema"} <= said, sorted(keys - said)
    files = {"paid-L-S.jsonl" if f.name.startswith("paid-") else f.name for f in run.iterdir()}
    assert files <= {x.rstrip("/") for x in said}, sorted(files)
