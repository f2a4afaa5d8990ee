"""The pages made from records say what the records say: the tutorial's code prints what stands under it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from accuracy.pieces import wilson
from isocost.planner.training.n_growth import LOSS

HOME = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    """A command of the records folder as a module."""
    spec = importlib.util.spec_from_file_location(name, HOME / "experiments" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tutorial = load("tutorial")


# from runs to a law to a plan ---------------------------------------------------------------------------------


def test_the_tutorials_code_prints_what_stands_under_it():
    text = tutorial.PAGE.read_text(encoding="utf-8")
    assert len(tutorial.BLOCK.findall(text)) == text.count("```python\n") + text.count("```sh\n") >= 10
    assert tutorial.refreshed(text) == text, "python experiments/tutorial.py page"


def test_a_wrong_output_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tutorial, "RECORDS", tmp_path / "none")
    (tmp_path / "none").mkdir()
    page = "Before.\n\n```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n\nAfter.\n\n```python\nx = 2\n```\n\nEnd.\n"
    fresh = tutorial.refreshed(page)
    assert fresh == page.replace("```text\n3\n", "```text\n2\n")
    assert tutorial.refreshed(fresh) == fresh


def test_the_tutorials_pictures_are_of_its_records():
    text = tutorial.PAGE.read_text(encoding="utf-8")
    for name, picture in tutorial.pictures().items():
        assert (tutorial.IMAGES / name).read_text(encoding="utf-8") == picture, "python experiments/tutorial.py page"
        assert f'"images/{name}"' in text


# the study of the README --------------------------------------------------------------------------------------


def test_the_readme_shows_the_output_and_the_picture_of_the_kept_study(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(HOME / "experiments")
    first = load("first_study")
    text = first.PAGE.read_text(encoding="utf-8")
    assert first.refreshed(text) == text, "python experiments/first_study.py page"
    with pytest.raises(SystemExit, match="not once"):
        first.refreshed("# isocost\n")
    for name, picture in first.pictures().items():
        assert (first.IMAGES / name).read_text(encoding="utf-8") == picture, "python experiments/first_study.py page"
        assert f'docs/images/{name}"' in text
    said = first.pictures()["first-light.svg"]
    n, worst = first.worst()
    for word in ("forecast 0.821", "outcome 0.883", "n = 8: 0.865", f"n = {n}: {worst[-1]['reward']:.3f}",
                 "the pilot ends here"):
        assert word in said
    assert f"worst n, {n} (dotted, of a sweep), ends at {worst[-1]['reward']:.3f}" in " ".join(text.split())


@pytest.mark.parametrize("name", ["tutorial", "quickstart"])
def test_a_kept_study_is_small_and_sealed(name: str):
    from isocost.planner.forecast import digest_of, read, records_hash

    home = tutorial.RECORDS.parent / name
    files = [p for p in home.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 1_500_000
    assert {p.name for p in files if p.parent.parent.name == "runs"} == set(tutorial.KEPT)
    sealed = read(home / "forecast.json")
    assert sealed.hashes["records"] == records_hash(home)
    for step in ("law", "plan"):
        file = json.loads((home / f"{step}.json").read_text())
        assert sealed.hashes[step] == digest_of(file, sealed.seal_version)
    assert all(json.loads((home / "runs" / r / "run.json").read_text())["seal"] == sealed.seal
               for r in (*sealed.runs, *sealed.comparator_runs))


# how accurate the forecasts are -------------------------------------------------------------------------------


def test_the_page_of_trust_is_written_from_the_records():
    how_sure = load("how_sure")
    found = how_sure.records()
    assert how_sure.PAGE.read_text(encoding="utf-8") == how_sure.page(found), "python experiments/how_sure.py"
    for name, picture in how_sure.pictures(found).items():
        assert (how_sure.IMAGES / name).read_text(encoding="utf-8") == picture, "python experiments/how_sure.py"


def test_a_page_says_which_of_its_records_are_older_than_the_law(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    made = load("made_with")
    source = "def f(x):\n    return x + 1\n"
    assert made.code('"""A."""\n\n' + source.replace(":\n", ":   # why\n    \"\"\"B.\"\"\"\n")) == made.code(source)
    assert made.code(source.replace("1", "2")) != made.code(source)
    warned = 'warn("{}", f"{}n={{k}}")\n'
    assert made.code(warned.format("two runs", "of ")) == made.code(warned.format("the runs", "with "))
    assert made.code(warned.format("short", "")) != made.code(warned.format("cut", ""))     # names are code
    monkeypatch.setattr(made, "RESULTS", tmp_path)
    monkeypatch.setattr(made, "KEPT", tmp_path / "made_with.json")
    record = tmp_path / "a.json"
    made.note(record)
    assert made.sentence([record, tmp_path / "unknown.json"]) == "" and made.older([record]) == []
    made.KEPT.write_text(made.KEPT.read_text().replace(made.noted()["a.json"]["code"], "0" * 16))
    assert made.sentence([record]) == "The code of the law has changed since `a.json` was made: a new run may differ."


def test_the_planners_line_on_the_growth_of_n_says_what_its_page_says():
    """No n above 4 gained more than the planner says up to its first threshold; from the second on, where all are hard,
    one did."""
    page = (HOME / "docs" / "when_n_grows.md").read_text(encoding="utf-8").partition("## What the planner uses")[2]
    rows = re.findall(r"^\| (training|held out) \| (\d+)% \| (\S+) \| \S+ \| (\S+) \|$", page, re.M)
    assert len(rows) == 12 and max(float(few) for *_, few, _ in rows) <= LOSS
    assert max(float(many) for problems, hard, _, many in rows if (problems, hard) == ("training", "100")) > LOSS


def test_a_missed_target_is_called_missed(tmp_path: Path):
    how_sure = load("how_sure")
    whole = how_sure.records()
    if "compare" not in whole:
        pytest.skip("no comparison has been recorded")
    compare = {**whole["compare"], "summary": {**whole["compare"]["summary"], "wrong verdicts": 0.0612}}
    page = how_sure.page({"compare": compare})
    row = next(x for x in page.splitlines() if "names a worse arm as better" in x)
    assert "6.1 %" in row and "**missed**" in row
    assert "targets is missed." in page


def test_what_is_not_recorded_is_named():
    how_sure = load("how_sure")
    page = how_sure.page({})
    assert all(f"experiments/results/{name}.json" in page for name in how_sure.NAMES)
    assert not re.search(r"\d %\s*\|", page)


def test_wilsons_interval():
    # 8 of 10 at z = 2: centre (0.8 + 4/20) / 1.4 = 5/7, half width 2 sqrt(0.8*0.2/10 + 4/400) / 1.4
    low, high = wilson(0.8, 10, z=2.0)
    half = 2 * (0.016 + 0.01) ** 0.5 / 1.4
    assert (low, high) == (pytest.approx(5 / 7 - half), pytest.approx(5 / 7 + half))
    assert wilson(0.0, 12)[0] == 0.0
    assert wilson(1.0, 12)[1] == 1.0


def test_studies_lose_only_single_steps(tmp_path: Path):
    """What is cut from a run: every line of its metrics and its clock that is not of an evaluation."""
    source = tutorial.RECORDS / "runs" / "pilot-n4-s0"
    run = tmp_path / "runs" / "a"
    shutil.copytree(source, run)
    before = (run / "metrics.jsonl").read_text()
    with (run / "metrics.jsonl").open("a") as f:
        f.write('{"step": 3, "rollouts": 48, "reward": 0.5}\n')
    with (run / "timing.jsonl").open("a") as f:
        f.write('{"step": 3, "seconds": 1.0}\n')
    tutorial._cut(tmp_path, trained=True)
    assert (run / "metrics.jsonl").read_text() != before, "a run of the pilot is not cut with the trained ones"
    tutorial._cut(tmp_path, trained=False)
    assert (run / "metrics.jsonl").read_text() == before
    assert '"step": 3,' not in (run / "timing.jsonl").read_text()


def test_a_picture_is_the_same_whatever_was_drawn_before():
    first = tutorial.pictures()
    assert tutorial.pictures() == first and any("clip" in x for x in first.values())
