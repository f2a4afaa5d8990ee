"""A study's source has capabilities, and each step asks for the one that it needs."""

import tarfile
from pathlib import Path

import pytest

import isocost
from isocost.can import Can
from isocost.errors import UserError
from isocost.runs import source
from isocost.runs.source import IMPORTED, OWN, Source
from isocost.steps.look.evaluate import evaluate
from isocost.steps.look.export import export
from isocost.steps.study import StudyRecord

ARCHIVE = Path(__file__).parent / "fixtures" / "records_cf90da5.tar.xz"
STEPS = {
    Can.PROFILE: lambda study: (study.path / "profile.json").unlink() or study.profile(),
    Can.PILOT: lambda study: study.pilot(),
    Can.TRAIN: lambda study: study.train(),
    Can.SEAL: lambda study: study.audit(),
    Can.STOP: lambda study: study.verdict(),
    Can.METRICS: lambda study: study.fit(metric="best@4"),
    Can.EVALUATE: lambda study: evaluate(next((study.path / "runs").glob("train-*"))),
}


@pytest.fixture
def studies(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "before"


@pytest.mark.parametrize("capability", STEPS, ids=lambda c: c.name)
def test_a_step_asks_for_the_capability_that_it_needs(studies, monkeypatch, capability):
    """Of any source: the text says what it is, and what to do instead."""
    other = Source("other", "is of another trainer", "start", {capability: "do this in {path}"})
    monkeypatch.setattr(source, "of", lambda record: other)
    with pytest.raises(UserError, match=r"tiny.* is of another trainer: do this in .*tiny"):
        STEPS[capability](isocost.open(studies / "tiny"))


def test_a_source_that_cannot_launch_runs_is_planned_from_those_it_has(studies, monkeypatch):
    own = isocost.open(studies / "tiny").fit()
    assert own.extendable and own.splits
    found = isocost.open(studies / "imp").fit()
    assert not found.extendable and not found.splits and "one_half" in [f.name for f in found.flags]
    monkeypatch.setattr(source, "of", lambda record: Source("other", "is of another trainer", "", {Can.PILOT: ""},
                                                              "imported"))
    (studies / "imp" / "plan.json").unlink()
    (studies / "imp" / "law.json").unlink()
    study = isocost.open(studies / "imp")
    assert "one_half" not in [f.name for f in study.fit().flags]
    assert study.plan().n in study.fit().ns
    with pytest.raises(UserError, match="is of another trainer: its runs and rates are what they are"):
        study.plan(size="tiny")


def test_an_export_names_the_source(studies):
    for name in ("law", "plan"):
        (studies / "imp" / f"{name}.json").unlink()
    with pytest.raises(UserError, match=r"it was imported and has no law yet\. Run `isocost fit"):
        export(StudyRecord.read(studies / "imp"), "trl")


def test_an_imported_study_is_not_profiled(studies):
    with pytest.raises(UserError, match="was imported: logs hold no policy"):
        isocost.open(studies / "imp").profile()
    with pytest.raises(UserError, match="was imported: logs hold no policy"):
        isocost.study(out=studies / "imp").profile()
    assert not (studies / "imp" / "profile.json").exists()


def test_a_record_names_its_source():
    assert source.of({}) is OWN and source.of({"imported": True}) is IMPORTED
    driven = source.of({"trainer": {"kind": "cmd"}, "imported": {}})    # its runs are read from logs too
    assert driven.name == "driven" and all(map(driven.can, (Can.PILOT, Can.TRAIN, Can.SEAL))) and not driven.can(
        Can.SPLITS)
    assert all(OWN.can(c) for c in Can)
    assert [c for c in Can if c.of == "source" and IMPORTED.can(c)] == [Can.SAMPLING]
