"""Folders made by others: links in place of files, names that lead elsewhere, places that cannot be written."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.steps.look import listing

TRAIN = ("train", "grpo", "--data", "sums:base=easy,count=60", "--budget", "64-rollouts", "-n", "4", "-B", "4",
         "--evaluations", "0", "--seed", "0")
SECRET = "what the owner keeps here\n" * 10_000       # longer than any stream of the run


def ran(*args: object) -> str:
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted and goes on when it is asked for again, as if somebody had sent it."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    ran(*TRAIN, "--out", out)
    (out / "end.json").unlink()
    return out


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    """A whole study."""
    return recorded(tmp_path_factory.mktemp("folders") / "study")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of the user's own, outside of what was sent."""
    path = tmp_path / "mine"
    path.write_text(SECRET)
    return path


def contents(path: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in (path, *path.rglob("*")) if p.is_file()}


# links --------------------------------------------------------------------------------------------------------

FILES = ("metrics.jsonl", "journal.jsonl", "samples.jsonl", "timing.jsonl", "lost.jsonl", "end.json", ".end.json.tmp",
         "lock", "paid-000-000000.jsonl")


@pytest.mark.parametrize("name", [*FILES, "checkpoints", ".final.tmp", "final"])
def test_a_link_in_a_run_is_not_written_through(
    name: str, stopped: Path, mine: Path, tmp_path: Path, refused: Callable[..., str]
):
    """A run from an archive may hold links to any file; going on with it must change none of them."""
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    if name in ("checkpoints", ".final.tmp", "final"):
        shutil.rmtree(run / name, ignore_errors=True)
        there = shutil.copytree(stopped, tmp_path / "there", ignore=lambda *_: ["checkpoints", "final"])
    else:
        (run / name).unlink(missing_ok=True)
        there = mine
    before = contents(there)
    (run / name).symlink_to(there)
    line = refused(*TRAIN, "--out", run)
    assert f"{run / name} " in line and re.search("symbolic link|used as a lock", line)
    assert contents(there) == before


@pytest.mark.parametrize(("command", "name"), [("report", "report.html"), ("audit", "audit.json"),
                                               ("audit", ".audit.json.tmp"), ("audit", "study.json")])
def test_a_link_in_a_study_is_not_written_through(command: str, name: str, study: Path, mine: Path, tmp_path: Path):
    study = shutil.copytree(study, tmp_path / "study")
    if name.startswith("."):
        (study / name).symlink_to(mine)
    else:       # the file itself is elsewhere, and a command that writes it replaces the link
        content = (study / name).read_bytes() if (study / name).exists() else b""
        mine.write_bytes(content)
        (study / name).unlink(missing_ok=True)
        (study / name).symlink_to(mine)
    before = mine.read_bytes()
    assert CliRunner().invoke(main, [command, str(study)]).exit_code in (0, 3, 4)
    assert mine.read_bytes() == before


def test_folders_that_are_links_are_used_and_loops_end(stopped: Path, tmp_path: Path):
    """The user's own disk may be elsewhere; a link back into itself lists nothing twice and ends."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    ran(*TRAIN, "--out", tmp_path / "runs" / "r")
    assert (tmp_path / "disk" / "r" / "end.json").is_file()
    (tmp_path / "disk" / "r" / "again").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "self").symlink_to("self")
    assert [r.path for r in listing.list_folder(tmp_path / "disk").found] == [str(tmp_path / "disk" / "r")]
    ran("report", tmp_path / "disk")


def test_a_folder_that_is_a_link_to_itself_is_one_line(tmp_path: Path, refused: Callable[..., str]):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for asked in (("ls", tmp_path / "loop"), ("report", tmp_path / "loop"), (*TRAIN, "--out", tmp_path / "loop")):
        assert "loop" in refused(*asked)


# names that lead elsewhere ------------------------------------------------------------------------------------


@pytest.mark.parametrize("purpose", ["../../evil", "/tmp/evil", "a/b", "evil\0"])
def test_a_planned_run_of_another_folder_is_refused(purpose: str, study: Path, tmp_path: Path, refused):
    """The names of the runs to train follow from plan.json, which anybody can write."""
    copy = shutil.copytree(study, tmp_path / "a" / "study")
    for name in ("forecast", "audit"):
        (copy / f"{name}.json").unlink()
    plan = json.loads((copy / "plan.json").read_text())
    for run in plan["runs"]:
        run["purpose"] = purpose
    (copy / "plan.json").write_text(json.dumps(plan))
    line = refused("train", "--plan", copy)
    assert repr(purpose)[1:-1] in line and "not the name of a folder" in line
    assert not list(tmp_path.rglob("evil*"))


def test_a_name_that_stands_beside_a_planned_run_is_not_its_name(study: Path):
    """It follows from the run's sizes, and one that is written beside them was a traceback."""
    from isocost.planner.training.prescription import Plan

    plan = json.loads((study / "plan.json").read_text())
    names = [r.name for r in Plan.of(plan).runs]
    for run in plan["runs"]:
        run["name"] = "../../evil"
    assert [r.name for r in Plan.of(plan).runs] == names


# places that cannot be written --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked_away(study: Path) -> Iterator[Path]:
    """A study and a run that may be read and not written to."""
    with tempfile.TemporaryDirectory(prefix="isocost-readonly-") as folder:
        home = Path(folder)
        study = shutil.copytree(study, home / "study")
        for p in (home, study, *study.rglob("*")):
            p.chmod(0o555 if p.is_dir() else 0o444)
        yield study
        for p in (home, study, *study.rglob("*")):
            p.chmod(0o755)


def as_nobody(*args: object) -> tuple[int, str]:
    """(exit code, all that was printed) of a command by a user who owns nothing here; root may write anywhere."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            done = CliRunner().invoke(main, [str(a) for a in args])
            broken = done.exception is not None and not isinstance(done.exception, SystemExit)
            text = f"a traceback: {done.exception!r}" if broken else done.output
            os.write(write, text.encode("utf-8", "replace")[:60_000])
            os._exit(done.exit_code)
        finally:
            os._exit(99)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


WRITING = (
    ("report", "{study}"), ("audit", "{study}"), ("plan", "{study}", "--budget", "200k-rollouts"),
    ("export", "{study}", "--to", "trl", "--out", "{study}/x.yaml"),
    (*TRAIN, "--out", "{study}/runs/new"), ("import", "{study}/x.csv", "--out", "{study}/new"),
    ("profile", "--data", "sums:base=easy,count=60", "--out", "{study}/new"),
)


@pytest.mark.parametrize("asked", WRITING, ids=lambda words: words[0])
def test_a_folder_that_cannot_be_written_is_one_line(asked: tuple[str, ...], locked_away: Path):
    code, text = as_nobody(*(x.format(study=locked_away) for x in asked))
    assert code == 2 and str(locked_away) in text and len(text.strip().splitlines()) <= 3, (code, text)


@pytest.mark.parametrize("asked", [("ls", "{study}"), ("ls", "{study}", "--json"), ("verdict", "{study}"),
                                   ("pilot", "{study}", "--dry-run"), ("export", "{study}", "--to", "trl")],
                         ids=" ".join)
def test_what_only_reads_works_in_a_folder_that_cannot_be_written(asked: tuple[str, ...], locked_away: Path):
    code, text = as_nobody(*(x.format(study=locked_away) for x in asked))
    assert code in (0, 2, 3, 4) and "traceback" not in text and "denied" not in text, (code, text)
