"""The harnesses of verifiers and inspect-ai in a process of their own, and what may go wrong there.

The real libraries are tested where VERIFIERS_PYTHON and INSPECT_PYTHON name a Python that has them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from isocost.envs.harness import library as harness_library
from isocost.envs.harness import process as harness_process
from isocost.envs.harness.driven import Driven, problem_of
from isocost.envs.opening import open_environment
from isocost.errors import UserError
from isocost.types import Stop
from isocost.world import EnvironmentFault
from test_harness import played

# A library whose task says what happens. It is run by the same process as the real ones.
LIBRARY = '''
import runpy, os, time, json, urllib.request
there = runpy.run_path({path!r})

class Tasks:
    def __init__(self, config):
        self.named = config["names"]
        import no_such_module if config.get("missing") else os

    def listed(self):
        return [dict(id=n, prompt="task " + n) for n in self.named]

    def run(self, asked):
        print("a library prints what it likes")
        body = json.dumps(dict(messages=[dict(role="user", content=asked["task"])])).encode()
        head = {{"Authorization": "Bearer " + asked["key"]}}
        with urllib.request.urlopen(urllib.request.Request(asked["base_url"] + "/chat/completions", body, head)) as got:
            said = json.load(got)["choices"][0]["message"]["content"]
        if said == "raise":
            raise KeyError("x")
        if said == "die":
            os._exit(3)
        if said == "hang":
            time.sleep(60)
        return float(said)

there["LIBRARIES"]["verifiers"] = Tasks
there["main"].__globals__["LIBRARIES"]["verifiers"] = Tasks
there["main"]()
'''.replace("import no_such_module if config.get(\"missing\") else os", "__import__(config.get(\"needs\", \"os\"))")


@pytest.fixture
def library(tmp_path: Path, monkeypatch):
    file = tmp_path / "process.py"
    file.write_text(textwrap.dedent(LIBRARY.format(path=harness_process.__file__)))
    monkeypatch.setattr(harness_process, "__file__", str(file))
    made = []

    def make(**config):
        made.append(harness_library.Library(sys.executable, "verifiers", json.dumps({"names": ["a"], **config})))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_rollouts_are_forks_that_cost_themselves_alone(library):
    made = library(names=["a", "b"])
    assert made.tasks == [{"id": "a", "prompt": "task a"}, {"id": "b", "prompt": "task b"}]

    async def one(said: str) -> float | str:
        problem = problem_of({"task": "a", "prompt": "x"}, 0, "t")
        env = Driven(problem, made.run, 1.0 if said == "hang" else 20.0, spawns=True)
        try:
            opened = await env.open()
            assert opened.messages[0].content == "a"
            return (await env.step(said, lambda: np.random.default_rng(0))).reward
        except EnvironmentFault as fault:
            return str(fault)
        finally:
            await env.close()

    async def all_of_them() -> list[float | str]:
        return await asyncio.gather(*map(one, ("0.5", "raise", "die", "hang", "1", "x")))

    assert asyncio.run(all_of_them()) == [
        0.5, "the harness raised KeyError", "the harness raised it ended with status 768",
        "the harness made no request within 1 s", 1.0, "the harness raised ValueError",
    ]
    made.process.kill()
    made.process.wait()
    assert asyncio.run(one("1")) == "the process of the harness has ended"


def test_a_library_that_is_missing_is_an_error_with_the_line_that_installs_it(library):
    with pytest.raises(UserError, match=r"No module named 'no_such'.*pip install 'verifiers"):
        library(needs="no_such")
    with pytest.raises(UserError, match="does not start"):
        harness_library.Library("/no/such/python", "verifiers", "{}")


@pytest.mark.parametrize(("spec", "says"), [
    ("verifiers:", "names no taskset"), ("inspect:tasks.py", "names no task"), ("inspect:none.py@a", "names no task"),
])
def test_a_spec_without_what_it_needs_is_an_error(spec: str, says: str):
    with pytest.raises(UserError, match=says):
        open_environment(spec)


@pytest.fixture
def processes():
    """Ends those that a test opened by a specification."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        begin = harness_library.Library.__init__
        patch.setattr(harness_library.Library, "__init__", lambda self, *a: (made.append(self), begin(self, *a))[1])
        yield
    harness_library._library.cache_clear()
    for each in made:
        each.close()


INSPECT = '''
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, TaskState, solver

@solver
def twice():
    async def solve(state: TaskState, generate: Generate):
        state = await generate(state)
        state.messages.append(ChatMessageUser(content="D:CEH"))
        return await generate(state)
    return solve

@task
def letters(all: str = "KLMNOPAB"):
    return Task(dataset=[Sample(input=f">{x} C:ADF", target="C") for x in all], solver=twice(), scorer=includes())
'''
VERIFIERS = '''
import verifiers.v1 as vf

__all__ = ["LettersTaskset"]

class LettersData(vf.TaskData):
    answer: str

class LettersTask(vf.Task[LettersData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace) -> float:
        return float(trace.assistant_messages[-1].content == self.data.answer)

class LettersTaskset(vf.Taskset[LettersTask, vf.TasksetConfig]):
    def load(self):
        for x in "KLMNOPAB":
            yield LettersTask(LettersData(prompt=f">{x} C:ADF", answer="D"), self.config.task)
'''


@pytest.mark.skipif("INSPECT_PYTHON" not in os.environ, reason="INSPECT_PYTHON names no Python with inspect-ai")
def test_a_task_of_inspect_is_sampled_by_the_policy_and_marked_by_its_scorer(tmp_path: Path, processes):
    file = tmp_path / "tasks.py"
    file.write_text(INSPECT)
    spec = f"inspect:{file}@letters#python={os.environ['INSPECT_PYTHON']},seconds=200,tokens=2,all=KLMN"
    made, world = played(spec, problems=1, attempts=6, model="tiny-agents", held_out=2)
    for r in made:
        (text,) = r.segments
        last = world.text.decode(text.tokens[text.turn == 1].tolist())
        assert r.stop is not Stop.ERROR and [t.reward for t in r.turns] == [0.0, float("C" in last)]
    assert len({r.segments[0].tokens.tobytes() for r in made}) > 1


@pytest.mark.skipif("VERIFIERS_PYTHON" not in os.environ, reason="VERIFIERS_PYTHON names no Python with verifiers")
def test_a_taskset_of_verifiers_is_played_by_its_harness_and_marked(tmp_path: Path, monkeypatch, processes):
    (tmp_path / "letters.py").write_text(VERIFIERS)
    monkeypatch.chdir(tmp_path)
    python = os.environ["VERIFIERS_PYTHON"]
    monkeypatch.setenv("PATH", f"{Path(python).parent}:{os.environ['PATH']}")       # its programs are run by `uv`
    spec = (f'verifiers:letters#python={python},seconds=200,tokens=2,agent.harness.id="null",'
            "agent.runtime.type=subprocess")
    made, world = played(spec, problems=1, attempts=6, model="tiny-agents", held_out=2)
    for r in made:
        (text,) = r.segments
        said = world.text.decode(text.reply().tolist())
        assert r.stop is not Stop.ERROR and [t.reward for t in r.turns] == [float(said == "D")]
    assert len({t.reward for r in made for t in r.turns}) == 2, "some are right"
