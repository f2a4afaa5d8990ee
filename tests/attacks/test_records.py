"""Records that are torn, foreign, hostile or of another shape; numbers that are none; seals and clocks."""

from __future__ import annotations

import ast
import asyncio
import json
import math
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.study_records import write_run
from isocost import report
from isocost.cli.printer import show
from isocost.disk import jsonfile
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.laws.curves import curves
from isocost.ledger import Ledger, as_measured
from isocost.planner import forecast as forecasts
from isocost.report.records import load
from isocost.runs import schema
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.record import RunRecord
from isocost.screen.console import console
from isocost.worlds.setting import Setting, setting_names
from trees import nodes, sources

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    """A whole study; a case damages one of its files and mends it again."""
    folder = recorded(tmp_path_factory.mktemp("records") / "study")
    trained = sorted((folder / "runs").glob("train-*"))[0]
    (trained / "journal.jsonl").write_text('{"wave": 0, "slot": 0, "rewards": [1.0, 0.0, null]}\n')
    return folder


@contextmanager
def damaged(path: Path, content: str | bytes) -> Iterator[None]:
    """A file with another content, mended at the end."""
    before = path.read_bytes()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        yield
    finally:
        path.write_bytes(before)


DOCUMENTS: dict[str, tuple[str | bytes, str]] = {
    "a list": ("[]", "it is an empty list, expected an object"),
    "a number": ("7", "it is 7, expected an object"),
    "null": ("null", "it is null, expected an object"),
    "empty": ("", "is not whole JSON"),
    "torn": ('{"schema": 1, "na', "is not whole JSON"),
    "not UTF-8": (b'{"schema": 1, "name": "\xff"}', "is not UTF-8 text"),
    "a schema that is a word": ('{"schema": "x"}', "schema is 'x', expected an integer"),
    "a newer schema": ('{"schema": 99}', "has schema 99; this isocost reads up to 2: use a newer one"),
    "nested 100,000 deep": ("[" * 100_000, "nested too deeply"),
    "an integer of 5000 digits": ('{"schema": ' + "9" * 5000 + "}", "JSON that can be read"),
}
NEEDED = {      # a file of a study or of a run: (what an empty object lacks first, a command that reads it)
    "study.json": ("setting", ("plan",)),
    "profile.json": ("samples", ("plan",)),
    "pilot.json": ("preset", ("pilot", "--dry-run")),
    "law.json": ("arms", ("fit",)),
    "plan.json": ("direct", ("train", "--dry-run", "--plan")),
    "forecast.json": ("arm", ("audit",)),
    "runs/train-n8-s0/run.json": ("name", ("audit",)),
    "runs/train-n8-s0/end.json": ("reason", ("audit",)),
}
FILES = {f"{name}, {kind}": (name, content, expected, NEEDED[name][1]) for name in NEEDED
         for kind, (content, expected) in DOCUMENTS.items()}
FILES |= {f"{name}, an empty object": (name, '{"schema": 1}', f"{missing} is missing", command)
          for name, (missing, command) in NEEDED.items()}


@pytest.mark.parametrize("case", FILES)
def test_a_broken_file_of_a_study_is_one_line(case: str, study: Path, refused):
    name, content, expected, command = FILES[case]
    with damaged(study / name, content):
        line = refused(*command, study)
    assert str(study / name) in line and expected in line, line
    assert "restore it from a copy" in line or "newer one" in line, "it says what to do"


def changed(path: Path, *keys: Any, to: Any) -> str:
    """A file's JSON with one value changed; ... takes it out."""
    data = json.loads(path.read_text())
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    if to is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = to
    return json.dumps(data)


VALUES: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "a setting that is unknown": ("study.json", ("setting", "speed"), 9, "setting.speed is not a key"),
    "a temperature in words": ("study.json", ("setting", "temperature"), "hot", "setting.temperature is 'hot'"),
    "0 threads": ("study.json", ("setting", "threads"), 0, "setting.threads is 0, expected at least 1"),
    "phases that are a list": ("study.json", ("phases",), [1.0], "phases is a list of 1"),
    "seconds in words": ("study.json", ("phases", "fit"), "long", "phases.fit is 'long', expected a number"),
    "counts that are text": ("profile.json", ("right",), "many", "right is 'many', expected a list"),
    "one count that is text": ("profile.json", ("right", 3), "x", r"right\[3\] is 'x', expected an integer"),
    "no counts": ("profile.json", ("right",), [], "right is an empty list, expected at least one entry"),
    "a rate of null": ("profile.json", ("rate", "rollouts_per_second"), None, "rollouts_per_second is null"),
    "a recipe without a method": ("profile.json", ("recipe", "method"), ..., "recipe.method is missing"),
    "a budget of another shape": ("pilot.json", ("budget",), {"dollars": 3}, "budget.amount is missing"),
    "runs that are a number": ("pilot.json", ("runs",), 3, "runs is 3, expected a list"),
    "a run without its n": ("pilot.json", ("runs", 0, "arm", "n"), ..., r"runs\[0\].arm.n is missing"),
    "a run of B in words": ("pilot.json", ("runs", 1, "arm", "B"), "all",
                            r"runs\[1\].arm.B is 'all', expected an integer"),
    "an unknown key": ("pilot.json", ("plans",), 1, "plans is not a key that this version of isocost knows"),
    "points that are text": ("pilot.json", ("points",), "few", "points is 'few', expected a list"),
    "a machine of no devices": ("pilot.json", ("units",), {"machine": {"devices": 0}, "rows": []}, "devices is 0"),
    "ragged draws": ("law.json", ("arms", 0, "fits", 0, "draws"), [[1.0], [1.0, 2.0]], "lists of equal length"),
    "a curve of text": ("law.json", ("arms", 0, "audit"), [["high"]], r"arms\[0\].audit is a list of 1"),
    "a level of 7": ("law.json", ("level",), 7, "level is 7, expected at most 1"),
    "noise that is missing": ("law.json", ("noise",), ..., "noise is missing"),
    "no arms in a plan": ("plan.json", ("arms",), [], "arms is an empty list"),
    "an interval without its bounds": ("plan.json", ("arms", 0, "prediction", "low"), ..., "low is missing"),
    "a bound that is text": ("plan.json", ("arms", 0, "prediction", "high"), "1", "high is '1', expected a number"),
    "checks that are text": ("plan.json", ("checks",), "passed", "checks is 'passed', expected a list"),
    "an interval that was moved": ("forecast.json", ("interval", "low"), 0.0, "was changed after it was sealed"),
    "a forecast of text": ("forecast.json", ("C",), "far", "C is 'far', expected an integer"),
    "a seal version of the future": ("forecast.json", ("seal_version",), 9, "seal_version is 9"),
    "0 rollouts a group": ("runs/train-n8-s0/run.json", ("arm", "n"), 0, "arm.n is 0, expected at least 1"),
    "a rate in words": ("runs/train-n8-s0/run.json", ("arm", "lr"), "high", "arm.lr is 'high', expected a number"),
    "an arm that is a list": ("runs/train-n8-s0/run.json", ("arm",), [2, 8], "arm is a list of 2"),
    "a seed of 1e400": ("runs/train-n8-s0/run.json", ("seed",), 10**400, "seed is 1000"),
    "a bill in words": ("runs/train-n8-s0/end.json", ("bill", "train", "rollouts"), "all", "rollouts is 'all'"),
    "a bill of unknown things": ("runs/train-n8-s0/end.json", ("bill", "train", "coffee"), 3, "coffee is not a key"),
    "steps below zero": ("runs/train-n8-s0/end.json", ("steps",), -1, "steps is -1, expected at least 0"),
}


def test_the_shape_of_a_setting_has_the_fields_that_settings_have():
    """A field that the shape lacks would make every record with it unreadable."""
    assert schema.SETTING.more.keys() == setting_names()


READERS = ("isocost.steps.folder", "isocost.report.records", "isocost.planner.forecast")


@pytest.mark.parametrize("module", READERS)
def test_what_reads_a_study_checks_its_files(module: str):
    code = f"import {module}; from isocost.runs.schema import _FILES, _LATER; print(*sorted(_FILES.keys() & _LATER))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(schema._LATER)


def test_only_a_known_file_can_be_registered():
    with pytest.raises(KeyError, match="later room"):
        schema.register("other.json", Setting)


@pytest.mark.parametrize("case", VALUES)
def test_a_value_of_another_shape_is_one_line_that_names_it(case: str, study: Path, refused):
    name, keys, to, expected = VALUES[case]
    command = ("audit",) if name == "runs/train-n8-s0/end.json" else NEEDED[name][1]
    with damaged(study / name, changed(study / name, *keys, to=to)):
        line = refused(*command, study)
    assert re.search(expected, line) and name.rpartition("/")[2] in line, line


STREAMS: dict[str, tuple[str, str | bytes, str]] = {
    "a line that is not JSON": ("metrics.jsonl", '{"step": 0}\nstep 1\n', "metrics.jsonl, line 2, is not whole JSON"),
    "a line that is a list": ("metrics.jsonl", "[1]\n", "line 1: it is a list of 1, expected an object"),
    "a reward in words": ("metrics.jsonl", '{"step": 0, "rollouts": 0, "eval/select": "high", "eval/audit": 0}\n',
                          "eval/select is 'high'"),
    "an evaluation that is nowhere": ("metrics.jsonl", '{"step": 0, "eval/select": 0.5, "eval/audit": 0.5}\n',
                                      "rollouts is missing"),
    "a reward of 1e999": ("metrics.jsonl", '{"step": 0, "rollouts": 0, "eval/select": 1e999, "eval/audit": 0}\n',
                          "eval/select is inf, expected a finite number"),
    "not UTF-8": ("metrics.jsonl", b'{"step": "\xff"}\n', "line 1, is not UTF-8 text"),
    "zeros where a disk lost its pages": ("metrics.jsonl", b"\0" * 64 + b"\n", "line 1, is not whole JSON"),
    "a histogram of three bins": ("metrics.jsonl", json.dumps({
        "step": 0, "rollouts": 0, "eval/select": 0.5, "eval/audit": 0.5, "eval/histogram": [1, 2, 3],
        "eval/by_base": [0.5] * 17, "eval/forgotten": 0, "eval/learned": 0}) + "\n", "expected a list of 17 values"),
    "a clock in words": ("timing.jsonl", '{"step": 0, "seconds": "soon"}\n', "timing.jsonl, line 1: seconds is 'soon'"),
    "nested too deep": ("timing.jsonl", "[" * 100_000 + "\n", "nested too deeply"),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_broken_stream_names_its_line(case: str, study: Path, refused):
    name, content, expected = STREAMS[case]
    run = study / "runs" / "train-n8-s0"
    with damaged(run / name, content):      # an audit needs no clock
        line = refused("verdict", run) if name == "timing.jsonl" else refused("audit", study)
    assert expected in line and "run it again" in line, line


ONE_RUN: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "report": ("run.json", "[]", ("report", "{run}"), "expected an object"),
    "verdict": ("run.json", '{"schema": 1}', ("verdict", "{run}"), "is missing"),
    "verdict of a run without a budget": ("run.json", "budget", ("verdict", "{run}"), "budget is missing"),
    "verdict by a broken journal": ("journal.jsonl", "{\n", ("verdict", "{run}"), "journal.jsonl, line 1 from the end"),
    "eval": ("run.json", '{"schema": 1}', ("eval", "{run}"), "no final policy"),
    "train": ("run.json", '{"schema": 1}', ("train", "grpo", "--budget", "8k-rollouts", "--out", "{run}"),
              "is missing"),
    "train on an end": ("end.json", '{"schema": 1}', ("train", "grpo", "--budget", "8k-rollouts", "--out", "{run}"),
                        "is missing"),
    "compare": ("run.json", '{"schema": "x"}', ("compare", "{run}", "{other}"), "schema is 'x'"),
}


@pytest.mark.parametrize("case", ONE_RUN)
def test_commands_on_one_broken_run_are_one_line(case: str, study: Path, refused):
    name, content, command, expected = ONE_RUN[case]
    run, other = sorted((study / "runs").glob("train-*"))[:2]
    if content == "budget":
        content = changed(run / name, "budget", to=...)
    with damaged(run / name, content):
        line = refused(*(x.format(run=run, other=other) for x in command))
    assert expected in line and str(run) in line, line


def test_what_is_not_a_regular_file_is_not_waited_for(study: Path, refused):
    path = study / "runs" / "train-n8-s0" / "end.json"
    before = path.read_bytes()
    for make, expected in ((os.mkfifo, "is not a regular file"), (os.mkdir, "cannot be read: Is a directory"),
                           (lambda p: os.symlink("/dev/zero", p), "is not a regular file")):
        path.unlink()
        make(path)
        try:
            assert expected in refused("audit", study)
        finally:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            path.write_bytes(before)


def test_ls_names_a_study_whose_pilot_is_broken(study: Path):
    from isocost.steps.look import listing

    with damaged(study / "pilot.json", changed(study / "pilot.json", "runs", 0, "arm", "n", to=...)):
        (row,) = [r for r in listing.list_folder(study).to_dict() if r["kind"] == "study"]
    assert "runs[0].arm.n is missing" in row["broken"]


def test_ls_names_every_broken_record_and_hides_no_other(study: Path, tmp_path: Path):
    from isocost.steps.look import listing

    for i, (content, _) in enumerate(DOCUMENTS.values()):
        run = write_run(tmp_path / "runs", f"r{i}", "pilot", 2, 512, 0)
        (run / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    write_run(tmp_path / "runs", "whole", "pilot", 2, 512, 0)
    found = listing.list_folder(tmp_path)
    assert [("broken" in r) for r in found.to_dict()] == [True] * len(DOCUMENTS) + [False]
    show(found, console())


@pytest.mark.parametrize("content", ["[]", b"\xff", '{"schema": "x"}', "[" * 100_000], ids=lambda c: repr(c)[:16])
def test_a_report_of_broken_records_names_them_and_opens(content: str | bytes, study: Path, tmp_path: Path):
    with ExitStack() as damages:
        for name in NEEDED:
            damages.enter_context(damaged(study / name, content))
        text = report.write(study, tmp_path / "r.html").read_text()
    named = [name for name in NEEDED if not name.endswith("end.json")]      # of a run that cannot be read at all
    assert text.count("Unreadable record") == len(named)
    assert all(name.rpartition("/")[2] in text for name in named)


@pytest.mark.parametrize("case", [name for name in STREAMS if "nowhere" not in name])
def test_a_report_names_broken_streams(case: str, study: Path):
    name, content, _ = STREAMS[case]
    with damaged(study / "runs" / "train-n8-s0" / name, content):
        assert any(f"{name} in train-n8-s0, line" in why for why in load(study).broken)


@pytest.mark.parametrize("case", [name for name in VALUES if "seal" not in name and "moved" not in name])
def test_a_report_is_not_stopped_by_a_value_of_another_shape(case: str, study: Path):
    name, keys, to, _ = VALUES[case]
    before = {run.name for run in load(study).runs}
    with damaged(study / name, changed(study / name, *keys, to=to)):
        found = load(study)
    left_out = before - {run.name for run in found.runs}
    assert left_out <= {Path(name).parent.name}, "the other runs are there"
    assert all(any(run in why for why in found.broken) for run in left_out), found.broken


# what cannot be counted ---------------------------------------------------------------------------------------


def test_every_line_is_plain_json_where_nothing_was_scored(tmp_path: Path):
    """A verifier that fails throughout: no reward, no evaluation, and still JSON that any reader takes.

    The run is so small that it ends before 32 calls in a row without a score, which would end it first.
    """
    from isocost.runs.job import Job
    from isocost.runs.run import run

    (tmp_path / "none.py").write_text("def reward(completions, **_):\n    raise ValueError('never')\n")
    setting = Setting.of(data="sums:base=easy,count=40", held_out=6, verifier=f"{tmp_path}/none.py:reward", samples=2)
    job = Job("r", setting, "reinforce", 0, {"rollouts": 4}, Arm(n=2, B=2, lr=1e-4))
    end = asyncio.run(run(job, tmp_path / "r"))
    assert end["reason"] in ("starved", "spent") and end["verifier_failures"]["exception"] > 0
    every = [x for f in sorted((tmp_path / "r").glob("*.json*")) for x in f.read_text().splitlines()]
    assert not any(word in x for x in every for word in ("NaN", "Infinity"))
    first = read_lines(tmp_path / "r" / "metrics.jsonl")[0]
    assert first["eval/select"] is None and first["eval/audit"] is None and first["eval/unscored"] > 0
    with pytest.raises(UserError, match="has no select reward: no attempt was scored"):
        curves([tmp_path / "r"])
    assert "eval/select" in load(tmp_path / "r").runs[0].evaluations[0]
    report.write(tmp_path / "r")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")])
def test_what_json_lacks_is_written_as_null(tmp_path: Path, value: float):
    write_json(tmp_path / "x.json", {"a": [value, {"b": value}], "c": 0.1})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [None, {"b": None}], "c": 0.1}
    assert jsonfile.line({"a": value}) == '{"a": null}'


def test_old_nan_and_null_are_read_alike(tmp_path: Path):
    """Versions before wrote NaN and Infinity."""
    names = ("old", "older", "new")
    for name, word in zip(names, ("NaN", "Infinity", "null"), strict=True):
        run = write_run(tmp_path, name, "pilot", 4, 512, 0)
        text = (run / "metrics.jsonl").read_text()
        (run / "metrics.jsonl").write_text(text.replace('"reward": 0.8', f'"reward": {word}'))
        end = read_json(run / "end.json")
        (run / "end.json").write_text(json.dumps(end)[:-1] + f', "tokens_per_second": {word}}}')
    read = [read_lines(tmp_path / name / "metrics.jsonl") for name in names]
    assert read[0] == read[1] == read[2] and read[0][-1]["reward"] is None
    assert [read_json(tmp_path / name / "end.json")["tokens_per_second"] for name in names] == [None] * 3
    found = curves([tmp_path / name for name in names])
    assert all(np.array_equal(c.audit, found[0].audit) for c in found)


def test_a_ledger_takes_null_back_as_the_nan_that_it_was(tmp_path: Path):
    """What a controller reads of a run that went on is what it would have read of one that was not killed."""
    live = Ledger().close(spent=_cost(), pool=10, metrics={"loss": 0.5})
    back = as_measured(json.loads(jsonfile.line(live)))
    assert math.isnan(live["reward"]) and repr(back) == repr(live)


def _cost() -> Any:
    from isocost.types import Cost

    return Cost(rollouts=4)


HUGE = ("1e308", "-1e308", "1e13", "10**400", "float('-inf')", "float('nan')")


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """The score of a reward that returns the value of the completion, as Python reads it."""
    from isocost.tasks.load import load_problems
    from isocost.tasks.verify.grade import Grader

    folder = tmp_path_factory.mktemp("huge")
    (folder / "huge.py").write_text("def reward(completions, **_):\n    return [eval(completions[0])]\n")
    (folder / "p.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    problem = load_problems(str(folder / "p.jsonl"), check=False).problems[0]
    with Grader(f"{folder}/huge.py:reward", workers=1) as grader:
        yield lambda value: grader.mark([(value, problem)])[0]


@pytest.mark.parametrize("value", HUGE)
def test_a_reward_too_large_to_be_summed_is_no_score(value: str, huge: Callable[[str], Any]):
    """Sums and squares of such rewards overflow, to infinity and in silence."""
    told = huge(value)
    assert isinstance(told, str) and re.search("too large|not finite|OverflowError", told), told


def test_a_reward_that_is_allowed_can_be_squared_and_summed(huge: Callable[[str], Any]):
    from isocost.tasks.verify.processes import LARGEST

    assert huge("1e12") == LARGEST and np.isfinite(np.square(np.full(4096, LARGEST, dtype=np.float32)).sum())


# what a seal depends on ---------------------------------------------------------------------------------------


def sealed(study: Path) -> Any:
    files = {k: forecasts.digest_of(read_json(study / f"{k}.json")) for k in ("plan", "law")}
    from isocost.laws.law import Law
    from isocost.planner.training.prescription import Plan

    plan, law = (cls.of(read_json(study / f"{k}.json")) for cls, k in ((Plan, "plan"), (Law, "law")))
    return forecasts.seal(plan, law, curves(study), records=forecasts.records_hash(study), code="c", files=files)


def slower(study: Path) -> dict[Path, str]:
    """The files of the same study on a machine that takes three times as long."""
    paths = [study / "plan.json", study / "law.json"]
    out = {path: _slower(json.loads(path.read_text())) for path in paths}
    plan = out[study / "plan.json"]
    plan["chosen"] += " after 3 more seconds"
    return {path: json.dumps(data) for path, data in out.items()}


def _slower(x: Any, key: str = "") -> Any:
    if isinstance(x, dict):
        return {k: {**v, "update": 3 * v["update"]} if k == "timing" else _slower(v, k) for k, v in x.items()}
    if isinstance(x, list):
        return [_slower(v, key) for v in x]
    return 3 * x if key == "seconds" and x is not None else x


def test_equal_studies_have_equal_seals_however_long_they_took(study: Path):
    first, files = sealed(study), slower(study)
    before = {path: path.read_bytes() for path in files}
    try:
        for path, text in files.items():
            path.write_text(text)
        again = sealed(study)
    finally:
        for path, data in before.items():
            path.write_bytes(data)
    assert again.seal == first.seal and again.data() == first.data() and first.seal_version == forecasts.SEAL


@pytest.mark.parametrize("keys", [("margin",), ("arms", 0, "lr"), ("runs", 0, "seed"), ("arms", 0, "C"), ("claim",)])
def test_a_promise_that_was_changed_is_found_out(keys: tuple[Any, ...], study: Path):
    first = forecasts.digest_of(read_json(study / "plan.json"))
    data = json.loads((study / "plan.json").read_text())
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    old = inner[keys[-1]]
    inner[keys[-1]] = (not old) if isinstance(old, bool) else old * 2 + 1
    assert forecasts.digest_of(data) != first


def test_seals_of_earlier_versions_verify_as_they_did(tmp_path: Path):
    """The study of commit cf90da5 was sealed before seals had versions."""
    with tarfile.open(Path(__file__).parents[1] / "fixtures" / "records_cf90da5.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    there = tmp_path / "before" / "tiny"
    old = forecasts.read(there / "forecast.json")
    assert old.seal_version == 1 and "seal_version" not in old.data()
    for name in ("plan", "law"):
        assert old.hashes[name] == forecasts.digest_of(read_json(there / f"{name}.json"), 1)
    assert load(there).intact and not load(there).changed


# checkpoints --------------------------------------------------------------------------------------------------


def begun(path: Path, stream: str = "metrics.jsonl") -> None:
    import torch

    from isocost.meter import Meter

    with RunRecord.opened(path) as record:
        record.pay_since(0)
        for step in (1, 2):
            record.write(stream, {"step": step})
            record.save(step, {"w": torch.full((4,), float(step))}, {"meter": Meter().state()})


STATES: dict[str, Callable[[Path], object]] = {
    "a list": lambda p: p.write_text("[]"),
    "an empty object": lambda p: p.write_text("{}"),
    "not UTF-8": lambda p: p.write_bytes(b"\xff"),
    "no offsets": lambda p: p.write_text(changed(p, "offsets", to=...)),
    "offsets in words": lambda p: p.write_text(changed(p, "offsets", "metrics.jsonl", to="end")),
    "offsets below zero": lambda p: p.write_text(changed(p, "offsets", "metrics.jsonl", to=-5)),
    "a meter of text": lambda p: p.write_text(changed(p, "meter", to="full")),
    "a bill of text": lambda p: p.write_text(changed(p, "meter", "logical", to={"train": {"rollouts": "x"}})),
    "a step in words": lambda p: p.write_text(changed(p, "step", to="two")),
    "weights that are not": lambda p: (p.parent / "learner.safetensors").write_bytes(b"\0" * 99),
    "a pipe": lambda p: (p.unlink(), os.mkfifo(p)),
}


@pytest.mark.parametrize("case", STATES)
def test_a_broken_checkpoint_falls_back_and_is_kept_aside_until_the_next(case: str, tmp_path: Path):
    from isocost.meter import Meter

    begun(tmp_path)
    STATES[case](tmp_path / "checkpoints" / "step-000002" / "state.json")
    with RunRecord.opened(tmp_path) as record:
        tensors, state = record.restore(Meter()) or ({}, {})
        assert state["step"] == 1 and "falling back" in record.notes[0]
        assert (tmp_path / "checkpoints" / ".step-000002.broken").is_dir(), "what was paid for is not deleted"
        record.pay_since(1)
        record.save(3, tensors, {"meter": Meter().state()})
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-000001", "step-000003"]


def test_streams_that_lost_lines_are_refused_before_anything_is_cut(tmp_path: Path, says):
    from isocost.meter import Meter

    begun(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def go_on() -> None:
        with RunRecord.opened(tmp_path) as record:
            record.restore(Meter())

    assert "metrics.jsonl has 12 bytes, and had 24 at checkpoint 2: lines are missing" in says(go_on)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a digit": lambda b: b.replace(b"1", b"7", 1), "zeros at the end": lambda b: b[:-8] + bytes(8),
    "zeros": lambda b: bytes(len(b)), "noise": lambda b: b[:5] + b"\xa7\x01\xff" + b[8:],
    "lines in another order": lambda b: b"".join(b.splitlines(keepends=True)[::-1]),
    "a space": lambda b: b[:-2] + b" \n",
}


@pytest.mark.parametrize("name", schema.STREAMS)
@pytest.mark.parametrize("how", DAMAGES)
def test_damage_inside_a_stream_is_seen_before_a_run_goes_on(how: str, name: str, tmp_path: Path, says):
    """Also where it keeps the length, and in both checkpoints: nothing is trained on top of it."""
    from isocost.meter import Meter

    begun(tmp_path, name)
    stream = tmp_path / name
    sound = stream.read_bytes()
    stream.write_bytes(DAMAGES[how](sound))
    assert len(stream.read_bytes()) == len(sound) and stream.read_bytes() != sound
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def go_on() -> Any:
        with RunRecord.opened(tmp_path) as record:
            return record.restore(Meter())

    assert f"{name} is damaged: its first {len(sound)} bytes are not those of checkpoint 2" in says(go_on)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    stream.write_bytes(sound + b'{"step": 3}\n')       # what came after the checkpoint is of no interest
    assert go_on()[1]["step"] == 2 and stream.read_bytes() == sound


def test_checkpoints_of_older_versions_have_no_checksums_and_are_continued(tmp_path: Path):
    from isocost.meter import Meter

    begun(tmp_path)
    for state in tmp_path.glob("checkpoints/*/state.json"):
        state.write_text(changed(state, "checksums", to=...))
    with RunRecord.opened(tmp_path) as record:
        assert (record.restore(Meter()) or ({}, {}))[1]["step"] == 2


# clocks -------------------------------------------------------------------------------------------------------

CLOCKS = {"time.time", "time.time_ns", "time.ctime", "time.localtime", "time.gmtime", "time.strftime", "datetime.now",
          "datetime.utcnow", "date.today", "datetime.today"}


def test_nothing_reads_the_clock_on_the_wall_or_a_files_age():
    """Seconds are measured by clocks that only go forward, so a clock that is put back cannot break a record."""
    found = []
    for module, source in sources().items():
        for node in nodes(source):
            if isinstance(node, ast.Attribute):
                name = ast.unparse(node)
                if any(name.endswith(clock) for clock in CLOCKS) or node.attr.startswith(("st_mtime", "st_ctime")):
                    found.append(f"{module}:{node.lineno} {name}")
    assert found == []


def test_records_read_the_same_whatever_the_ages_of_their_files(tmp_path: Path):
    from isocost.steps.look import listing

    for i in range(3):
        write_run(tmp_path / "runs", f"r{i}", "pilot", 2, 512, i)
    before, rows = curves(tmp_path), listing.list_folder(tmp_path)
    for i, path in enumerate(sorted(p for p in tmp_path.rglob("*") if p.is_file())):
        os.utime(path, (0, 0) if i % 2 else (4e9, 4e9))
    assert listing.list_folder(tmp_path) == rows
    assert [c.run for c in curves(tmp_path)] == [c.run for c in before]
    assert replace(before[0]).run == "r0"
