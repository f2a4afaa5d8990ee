"""`examples/loop.py` is the loop of isocost: the same recipe in the same world gives the same numbers."""

import ast
import asyncio
import runpy
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from isocost.runs.arm import Arm
from isocost.runs.files import read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.tasks.load import ProblemSet
from isocost.tasks.split import Split
from isocost.tasks.verify.grade import Grader
from isocost.worlds import toy
from isocost.worlds.setting import Opened, Setting

COPY = Path(__file__).resolve().parents[1] / "examples" / "loop.py"


@pytest.fixture(scope="module")
def copy():
    return SimpleNamespace(**runpy.run_path(str(COPY), run_name="reading_copy"))


def trained(settings, out):
    """What `isocost train` does with a job once its world is open: the lines of metrics.jsonl, and end.json.

    No command names the toy world, so it is opened here. All ten questions are its validation split.
    """
    world, own = toy.world(settings.seed), asdict(settings)
    setting = Setting.of(model="toy", data="toy", max_tokens=toy.LONGEST)
    problems = ProblemSet(tuple(world.problems), "exact")
    opened = Opened(setting, problems, Split(problems.problems, problems.problems, ()), world, Grader("exact"))
    job = Job("copy", setting, "grpo", own["seed"], {"rollouts": own["budget"]},
              Arm({k: own[k] for k in ("n", "B", "lr", "warmup")}), own["points"])
    end = asyncio.run(run(job, out, opened=opened))
    return list(read_lines(out / "metrics.jsonl")), end


@pytest.mark.parametrize("changed", [
    {}, {"seed": 3 << 33 | 7, "n": 5, "B": 12, "lr": 0.1, "warmup": 0, "budget": 1234, "points": (60, 700)},
], ids=["as it is", "other settings"])
def test_the_reading_copy_has_the_numbers_of_a_run_to_the_last_bit(unchecked_shapes, copy, tmp_path, changed):
    settings = copy.Settings(**changed)
    lines, end = trained(settings, tmp_path / "run")
    mine = list(copy.train(settings))
    assert len(mine) == len(lines) > 10
    for own, theirs in zip(mine, lines, strict=True):
        if "eval/select" in theirs:
            theirs = {k: theirs[k] for k in ("step", "rollouts", "eval/select")}
            own = {"eval/select" if k == "eval/pass@1" else k: v for k, v in own.items()}
        assert own == theirs
    steps = [x for x in mine if "loss" in x]
    assert end["reason"] == "spent" and end["steps"] == len(steps)
    assert {k: steps[-1][k] for k in copy.BILLED} == {k: end["bill"]["train"][k] for k in copy.BILLED}
    assert max(x["eval/pass@1"] for x in mine if "eval/pass@1" in x) > 0.5


def test_the_reading_copy_imports_nothing_from_isocost_and_fits_300_lines():
    text = COPY.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    named = {a.name for x in nodes if isinstance(x, ast.Import) for a in x.names}
    named |= {x.module.split(".")[0] for x in nodes if isinstance(x, ast.ImportFrom)}
    assert named == {"__future__", "bisect", "collections", "dataclasses", "numpy", "torch"}
    assert len(text.splitlines()) <= 300
