"""Names and texts of other people: what they say must not reach a browser, a spreadsheet, a terminal or a shell as
anything but text."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fixtures.study_records import write_study
from isocost import report
from isocost.cli.commands import main
from isocost.disk.jsonfile import UserError
from isocost.runs.files import read_json
from isocost.screen.words import FORMULAS, csv_text, visible
from isocost.steps.look import listing
from test_report import CHROMIUM, Page, _browse

SCRIPT = "document.documentElement.dataset.owned=1;document.title=`owned`"
# One text that attacks all of them. A formula must be the beginning of its cell, so it comes first.
HOSTILE = (
    f"=cmd|'/C calc'!A0</script></style></title>--><script>{SCRIPT}</script><img src=x onerror=\"{SCRIPT}\">"
    f"'\"><svg onload='{SCRIPT}'>`${{{SCRIPT}}}`\x1b]0;owned\x07\x1b[2J\x9b2J\r\x00\u202e\u2066[/red][bold]\ud800&amp;"
)
FOLDER = f"-=<img src=x onerror={SCRIPT}>\x1b[2J"       # a name that a file system takes
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
OPTIONAL = ("purpose", "better", "best", "seal", "digest")     # what is compared with names of isocost's own
Leaf = tuple[str, ...]


def leaves(x: Any, at: Leaf = ()) -> Iterator[Leaf]:
    """Where the texts of a record are; items of a list are one place."""
    if isinstance(x, dict):
        for k, v in x.items():
            yield from leaves(v, (*at, k))
    elif isinstance(x, list):
        for v in x:
            yield from leaves(v, (*at, "[]"))
    elif isinstance(x, str):
        yield at


def poisoned(x: Any, where: Leaf) -> Any:
    """The same data with the hostile text at one place."""
    if not where:
        return HOSTILE if isinstance(x, str) else x
    if where[0] == "[]":
        return [poisoned(v, where[1:]) for v in x] if isinstance(x, list) else x
    return {k: poisoned(v, where[1:]) if k == where[0] else v for k, v in x.items()} if isinstance(x, dict) else x


def fits(path: Path, data: Any) -> bool:
    before = path.read_text()
    path.write_text(json.dumps(data))
    try:
        read_json(path)
    except UserError:
        path.write_text(before)
        return False
    return True


def poison(path: Path) -> int:
    """Put the hostile text wherever this file still is what it should be with it; returns at how many places."""
    stream = path.suffix == ".jsonl"
    data = [json.loads(x) for x in path.read_text().splitlines()] if stream else json.loads(path.read_text())
    places = 0
    for where in dict.fromkeys(leaves(data)):
        if where[-1] in OPTIONAL:
            continue
        other = poisoned(data, where)
        if stream or fits(path, other):
            data, places = other, places + 1
    if stream:
        path.write_text("".join(json.dumps(x) + "\n" for x in data))
    return places


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    """A study in whose records every text is hostile that may be anything, keys of free objects among them."""
    folder = recorded(tmp_path_factory.mktemp("hostile") / FOLDER)
    runs = sorted(p for p in (folder / "runs").iterdir() if p.name.startswith(("pilot-n2-", "pilot-n4-", "train-")))
    for run in (folder / "runs").iterdir():
        if run not in runs:
            shutil.rmtree(run)
    for run in runs:
        path = run / "journal.jsonl"
        path.write_text(json.dumps({"step": 0, "id": "p", "variant": "", "wave": 0, "slot": 0, "attempts": [0],
                                    "fates": ["trained"], "cancelled": 0, "rewards": [1.0], "stops": ["done"]}) + "\n")
        end = json.loads((run / "end.json").read_text())
        end["notes"], end["verifier_failures"][HOSTILE], end["fates"][HOSTILE] = ["a note"], 3, 5
        end["bill"][HOSTILE] = end["bill"]["train"]
        (run / "end.json").write_text(json.dumps(end))
    files = [p for p in sorted(folder.rglob("*.json*")) if p.name not in ("metrics.jsonl", "timing.jsonl")]
    places = {p: poison(p) for p in files}
    assert sum(places.values()) > 300 and all(places[p] for p in files if p.name == "run.json")
    study = json.loads((folder / "study.json").read_text())
    study["phases"][HOSTILE] = 1.0
    (folder / "study.json").write_text(json.dumps(study))
    for i, run in enumerate(runs):
        run.rename(run.with_name(f"{FOLDER} {i}"))
    return folder


@pytest.fixture(scope="module")
def page(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write(hostile, tmp_path_factory.mktemp("pages") / "report.html")


# in a browser -------------------------------------------------------------------------------------------------


def opened(page: Path, profile: Path) -> tuple[str, list[str]]:
    """What the page is once its scripts ran, and what the console said."""
    found = _browse(page, profile, "--dump-dom")
    return found.stdout, [line for line in found.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_nothing_that_a_record_says_runs_in_a_browser(page: Path, tmp_path: Path):
    text = page.read_text(encoding="utf-8")
    assert text.count(visible(HOSTILE)[:12].replace("'", "&#x27;")) > 20, "the texts are in the page"
    after, said = opened(page, tmp_path / "profile")
    assert 'data-drawn="' in after, "the page's own script ran"
    assert "data-owned" not in after and "<title>owned" not in after
    assert said == [], "the page's policy had nothing to stop"
    top = after[: after.index(">", after.index("<html"))]
    assert "owned" not in top


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_the_attack_works_where_a_page_does_not_escape(tmp_path: Path):
    """Without this the test above could not fail."""
    path = tmp_path / "bad.html"
    path.write_text(f"<!doctype html><html><head></head><body>{visible(HOSTILE)}</body></html>", encoding="utf-8")
    after, _ = opened(path, tmp_path / "profile")
    assert 'data-owned="1"' in after


def test_a_page_holds_only_its_own_scripts_and_no_handlers(page: Path):
    text = page.read_text(encoding="utf-8")
    seen = Page(text)
    for labels in (v for k, v in seen.scripts.items() if k.startswith("spec-")):     # which the page draws
        assert not OBEYED.search(json.dumps(json.loads(labels), ensure_ascii=False))
    assert len([a for a in seen.of("script") if a.get("type") != "application/json"]) == 2
    for tag, attributes in seen.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert tag not in ("img", "iframe", "object", "base", "form")
    assert not OBEYED.search(text)


# in a spreadsheet ---------------------------------------------------------------------------------------------


def number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_no_cell_of_any_csv_begins_a_formula(page: Path):
    """The downloads of the report are all the CSV that isocost writes."""
    links = [a["href"] for a in Page(page.read_text(encoding="utf-8")).of("a") if "download" in a]
    tables = [urllib.parse.unquote(link.split(",", 1)[1]) for link in links]
    assert len(tables) >= 4
    cells = [c for table in tables for row in csv.reader(io.StringIO(table)) for c in row]
    assert [c for c in cells if c.startswith(FORMULAS) and not number(c)] == []
    assert any(c.startswith("'=cmd|") for c in cells), "the attack is in one of them"


@pytest.mark.parametrize("start", [*"=+-@\t\n\r", "\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_what_spreadsheets_calculate_is_text_as_cell_and_as_column(start: str):
    text = csv_text([{f"{start}1+1": f"{start}1+1", "b": -1.5, "c": "plain"}])
    (head, row) = csv.reader(io.StringIO(text))
    assert head[0] == row[0] == ("" if start[0] == "\r" else "'") + visible(start) + "1+1"
    assert row[1:] == ["-1.5", "plain"] and not row[0].startswith(FORMULAS)


# in a terminal ------------------------------------------------------------------------------------------------


def shown(*args: object) -> str:
    """All that a command prints. Whether it does what it is asked or refuses, it is no traceback."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"a traceback: {done.exception!r}") from done.exception
    if done.exit_code == 2:
        assert len([x for x in done.stderr.splitlines() if x.startswith("isocost: ")]) == 1, done.stderr
    return done.output


COMMANDS: dict[str, Callable[[Path, Path], tuple[object, ...]]] = {
    "ls": lambda study, run: ("ls", study),
    "ls --json": lambda study, run: ("ls", study, "--json"),
    "verdict of a study": lambda study, run: ("verdict", "--", study),
    "verdict of a run": lambda study, run: ("verdict", "--", run),
    "compare": lambda study, run: ("compare", "--", run, run.with_name(f"{FOLDER} 1")),
    "fit": lambda study, run: ("fit", "--", study),
    "plan": lambda study, run: ("plan", "--", study),
    "pilot": lambda study, run: ("pilot", "--dry-run", "--", study),
    "audit": lambda study, run: ("audit", "--", study),
    "eval": lambda study, run: ("eval", "--", run),
    "train": lambda study, run: ("train", "--dry-run", "--plan", study),
    "train on a run": lambda study, run: ("train", "grpo", "--budget", "8k-rollouts", "--out", run),
    "report": lambda study, run: ("report", "--", study),
    "export": lambda study, run: ("export", "--to", "trl", "--", study),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_record_commands_the_terminal(command: str, hostile: Path):
    run = hostile / "runs" / f"{FOLDER} 0"
    text = shown(*COMMANDS[command](hostile, run))
    assert text and not OBEYED.search(text), [text[max(m.start() - 40, 0) : m.end()] for m in OBEYED.finditer(text)]


def test_every_text_of_a_run_is_listed_as_text(hostile: Path):
    rows = listing.list_folder(hostile).to_dict()
    assert not any("broken" in r for r in rows) and len(rows) > 8
    assert all(r["method"] == HOSTILE for r in rows if r["kind"] == "run")
    assert "owned" in shown("ls", hostile)


# names that are no text or look like options ------------------------------------------------------------------

NAMES = ("-rf", "--help", "-", "\udcff\udcfe", "a\nb", "$(touch owned)", "a b", "~", "\x1b[31m", "[red]", "\U0001f4a5")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, trained once."""
    out = tmp_path_factory.mktemp("small") / "run"
    asked = ("train", "grpo", "--data", "sums:base=easy,count=60", "--budget", "32-rollouts", "-n", "4", "-B", "4",
             "--evaluations", "0", "--out", out)
    assert CliRunner().invoke(main, [str(a) for a in asked]).exit_code == 0
    return out


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_may_have_any_name(name: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copytree(small, Path(name))
    asked = (("ls", "."), ("verdict", "--", name), ("report", "--", name))
    said = [shown(*words) for words in asked]
    assert said[2].strip().endswith("report.html")
    assert not any(OBEYED.search(x) for x in said)
    assert [p.name for p in (tmp_path / "here").iterdir()] == [name] and Path(name, "report.html").is_file()


def test_a_command_that_is_shown_can_be_pasted_into_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where a message holds a command, the name of a folder is one word of it, and none of its options."""
    monkeypatch.chdir(tmp_path)
    for name in ("-a b; touch owned", "$(touch owned)"):
        study = write_study(Path(name), upto="profile")
        said = shown("pilot", "--", study) + shown("verdict", "--", study) + shown("export", "--to", "trl", "--", study)
        (study / "pilot.json").write_text("[]")
        lines = re.findall("`(isocost [^`]+)`", said + shown("pilot", "--", study))
        assert len(lines) > 5
        for line in lines:
            done = subprocess.run(["sh", "-c", f'isocost() {{ printf "%s\\n" "$@"; }}; {line}'], cwd=tmp_path,
                                  capture_output=True, text=True, timeout=60)
            place = f"./{name}" if name.startswith("-") else name
            assert {place, f"{place}/runs/NAME"} & set(done.stdout.splitlines()), line
    assert not (tmp_path / "owned").exists()


TARGETS = ("trl", "verl", "prime-rl", "nemo-rl", "skyrl", "openrlhf")
LINE = "evil: true; touch owned"
SETTINGS: dict[str, tuple[str, ...]] = {
    "temperature": ("pace", "temperature"), "the clip": ("loss", "inner", "low"), "passes": ("improve", "epochs"),
    "the age": ("max_age",), "the cap": ("loss", "cap"),
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    """A study with a plan, in a folder whose name would be a line of its own."""
    folder = recorded(tmp_path_factory.mktemp("export") / f"study\n{LINE}\udcff", "plan")
    for run in sorted((folder / "runs").iterdir())[1:]:
        shutil.rmtree(run)
    return folder


@pytest.mark.parametrize("target", TARGETS)
def test_a_name_is_no_line_of_what_is_exported(target: str, planned: Path, tmp_path: Path):
    """Another trainer reads the file, or a shell."""
    shown("export", "--to", target, "--out", tmp_path / "x", "--", planned)
    lines = (tmp_path / "x").read_text(encoding="utf-8").splitlines()
    assert any(LINE in x for x in lines) and all(x.startswith("#") for x in lines if LINE in x)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_is_no_number_is_exported_nowhere(
    setting: str, planned: Path, tmp_path: Path, refused: Callable[..., str]
):
    study = shutil.copytree(planned, tmp_path / "study")
    path = next((study / "runs").glob("*/run.json"))
    data = json.loads(path.read_text())
    part = data["recipe"]
    for key in SETTINGS[setting][:-1]:
        part = part[key]
    part[SETTINGS[setting][-1]] = LINE
    path.write_text(json.dumps(data))
    for target in TARGETS:
        assert "cannot be exported: " in refused("export", study, "--to", target)
