"""Kept rollouts: what a record keeps as text, how they are found, and the viewer of the report in a real browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from browsing import needs_browser, opened
from fixtures.study_records import write_json, write_lines, write_run
from isocost import report
from isocost.cli import rollouts as options
from isocost.cli.commands import main
from isocost.envs.adapters.browser import Browser
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.parts import play
from isocost.report.records import load
from isocost.report.sections import turns as viewer
from isocost.runs import kept_rollouts as rollouts
from isocost.runs import samples, shelf
from isocost.runs.arm import Arm
from isocost.runs.files import read_lines
from isocost.runs.job import Job
from isocost.runs.kept_rollouts import Outcome, end_of, outcome_of
from isocost.runs.run import run
from isocost.seams import Pace
from isocost.steps.look.kept_rollouts import FAULTS, PARTS, find_rollouts
from isocost.steps.look.kept_rollouts import told as rows_of
from isocost.steps.settings import setting_with
from isocost.types import Fate, Fault, Group, Message, Place, Role, Said, Score, Segment, Shown, Stop, Turn
from isocost.world import EnvironmentFault, World
from isocost.worlds import toy
from test_faster_forms import sampled
from test_report import Page as Parsed

SCRIPT = "document.documentElement.dataset.owned=1"
HOSTILE = (
    f"</script><script>{SCRIPT}</script><img src=x onerror=\"{SCRIPT}\"></details></ol></section>--><svg "
    f"onload='{SCRIPT}'>\x1b[2J\x1b]0;owned\x07\x9b2J\r\x00\u202e\u2066&amp;\ufffd\udcff '\">"
)


OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def told(text: Any, *words: str) -> str:
    done = CliRunner().invoke(main, ["rollouts", str(text), *words])
    assert done.exit_code == 0, done.output
    return done.output


# what became of one -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reward", "stop", "outcome", "end"), [
    (1.0, "done", Outcome.SUCCESS, "success"),
    (0.6, "turns", Outcome.SUCCESS, "success"),
    (0.5, "done", Outcome.FAILURE, "ended without success"),
    (0.5, "", Outcome.FAILURE, "ended without success"),        # a record of a version that did not say why
    (0.0, "turns", Outcome.LIMIT, "out of turns"),
    (0.0, "length", Outcome.LIMIT, "turn cut at its token limit"),
    (0.0, "cancelled", Outcome.STOPPED, "stopped early"),
    (None, "cancelled", Outcome.STOPPED, "stopped early"),
    (None, "done", Outcome.FAULT, "no score"),
    (None, "error", Outcome.FAULT, "environment failed"),
])
def test_every_rollout_has_one_outcome(reward, stop, outcome, end):
    assert outcome_of(reward, stop) is outcome and end_of(reward, stop) == end


def test_the_options_name_what_there_is():
    assert {*Outcome} == {*options.OUTCOMES} and FAULTS == options.FAULTS and PARTS == options.PARTS


# what is kept -------------------------------------------------------------------------------------------------------


class Breaks:
    """Answers each turn with a letter; in its second turn a tool fails, or by luck the environment itself."""

    def __init__(self, problem):
        self.problem, self.turn = problem, 0

    async def open(self):
        return Shown(self.problem.prompt, key="start")

    async def step(self, said, luck):
        self.turn += 1
        if self.turn == 2 and luck().random() < 0.3:
            raise OSError("it is gone")
        fault = Fault.tool("down") if self.turn == 2 else None
        return Shown((Message("tool", "b"),), self.turn == 3, float(self.turn == 3), f"k{self.turn}", fault)

    def final(self):
        return "a"

    async def close(self):
        pass


def broken_world() -> World:
    world = toy.world()
    world.env = Breaks
    return world


def group_of(world: World, slot: int = 0, n: int = 6) -> Group:
    problem, place = world.problems[slot], Place(3, 0, slot)
    pace = Pace(lr=0.0, max_tokens=3, max_turns=4)
    made = asyncio.run(play.sample(problem, range(n), world, pace, place))
    return Group(problem, tuple(r.but(score=None if r.stop == "error" else Score(1.0)) for r in made), place)


def test_tokens_of_kept_rollouts_are_those_that_the_engine_charged():
    world = toy.dialogues()
    problem = world.problems[0]
    before = world.meter.of()
    made = asyncio.run(play.sample(problem, range(6), world, Pace(lr=0.0, max_tokens=3, max_turns=4), Place(1, 0, 0)))
    spent = world.meter.of() - before
    group = Group(problem, tuple(r.but(score=Score(0.0)) for r in made), Place(1, 0, 0))
    (line,) = samples.samples([group], 0, world.text)
    found = rollouts.read([line], "r")
    assert any(len(r.turns) > 1 for r in found)
    for name, charged in (("fresh", spent.fresh), ("reread", spent.reread), ("written", spent.decode)):
        assert sum(getattr(r.tokens, name) for r in found) == charged
        assert all(sum(getattr(t.tokens, name) for t in r.turns) == getattr(r.tokens, name) for r in found)
    assert sum(r.steps for r in found) == spent.env_steps and spent.reread > 0


def test_tokens_written_under_other_weights_are_read_anew():
    world = toy.world()
    (r,) = group_of(world, n=1).rollouts
    text = Segment.empty().read([4, 5], Role.PROMPT)
    for version in (0, 0, 1):
        said = Said(np.array([0, 3]), np.array([-1.0, -1.0], dtype=np.float32), np.full(2, version), Stop.DONE)
        text = text.wrote(said).read([4])
    # Read before a turn: 2; 5, of which 4 are known; 8, whose keys and values are those of other weights.
    assert samples.tokens(r.but(segments=(text,)), world.text) == {"fresh": 2 + 1 + 8, "reread": 4, "written": 6}


def test_faulty_rollouts_of_every_update_are_kept_up_to_a_bound():
    world, ledger = broken_world(), Ledger(seed=1)
    groups = [group_of(world, slot) for slot in range(3)]
    for group in groups:
        ledger.settle(group, [Fate.LOST if s is None else Fate.TRAINED for s in group.scores])
    broken = [r for g in groups for r in g.rollouts if r.score is None]
    assert broken and all(r.turns[-1].fault.source == "environment" for r in broken)
    of_all = samples.of_update(ledger.fresh, groups[: samples.PER_UPDATE], 7, world.text, used=lambda: 0)
    assert [x.get("kept", "") for x in of_all] == ["", "", "fault"]
    assert of_all[0]["attempts"][0]["fate"] in ("trained", "lost") and of_all[0]["part"] == "training"
    only = samples.of_update(ledger.fresh, (), 8, world.text, used=lambda: 0)
    assert sum(len(x["attempts"]) for x in only) == samples.FAULTY and all(x["kept"] == "fault" for x in only)
    read = rollouts.read(only, "r")
    assert all(r.sources for r in read) and read[0].step == 8 and read[0].turns[1].fault.endswith(("down", "OSError"))
    assert samples.of_update(ledger.fresh, (), 8, world.text, used=lambda: samples.ROOM) == []


class Closed(Breaks):
    """Does not open at two of six attempts, and has no final text at two others."""

    made = 0

    def __init__(self, problem):
        super().__init__(problem)
        self.number, Closed.made = Closed.made, Closed.made + 1

    async def open(self):
        if self.number < 2:
            raise EnvironmentFault("the server is full")
        return await super().open()

    async def step(self, said, luck):
        return Shown((), over=True)

    def final(self):
        return "a" if self.number < 4 else None


def test_a_fault_outside_a_turn_is_kept_with_its_rollout():
    Closed.made, world = 0, toy.world()
    world.env = Closed
    group, ledger = group_of(world), Ledger()
    full, none = "environment: the server is full", "environment: final returned None; return a text"
    assert [str(r.fault or "") for r in group.rollouts] == [full, full, "", "", none, none]
    assert all(r.fault is None for r in group_of(broken_world()).rollouts)     # there a turn has it
    first = group.rollouts[0]
    assert first.scored(Score(0.0)).fault == first.marked(Score(0.0)).fault == first.fault
    (restored,) = shelf.groups(shelf.data([group]), world.problems)
    assert [r.fault for r in restored.rollouts] == [r.fault for r in group.rollouts]
    ledger.settle(group, [Fate.LOST if s is None else Fate.TRAINED for s in group.scores])
    assert ledger.fresh[0]["faults"] == [{"environment": 1}] * 2 + [{}] * 2 + [{"environment": 1}] * 2
    (line,) = samples.samples([group], 0, world.text)
    read = rollouts.read([line], "r")
    assert [r.fault for r in read] == [full, full, "", "", none, none]
    assert [r.sources for r in read] == [("environment",) if r.fault else () for r in read]
    assert any(f"fault {full}" in x.text for x in rows_of(read[0])) and read[0].to_dict()["fault"] == full


def test_faulty_are_rollouts_without_a_score_and_those_whose_tools_or_environment_failed():
    scored = Score(0.0)
    faults = (Fault.model("no call"), Fault.tool("down"), Fault.environment("gone"))
    made = [(None, ()), (scored, ()), *((scored, (Turn("a", 0.0), Turn("b", 0.0, x))) for x in faults)]
    group = group_of(toy.world(), n=len(made))
    group = group.of([r.but(score=s, turns=t) for r, (s, t) in zip(group.rollouts, made, strict=True)])
    assert samples.faulty(group) == [0, 3, 4]
    unscored = [group for _, wave in (sampled((3, 2), [Score(0.5)] * 4 + [None]),) for group in wave.groups()]
    assert [samples.faulty(g) for g in unscored] == [[], [1]]
    assert [samples.faulty(g) for g in sampled((3, 2))[1].groups()] == [[], []]


def test_a_wave_of_arrays_is_not_made_into_objects_to_find_faults(tmp_path, monkeypatch):
    from isocost.fast.columns import WaveColumns
    made = 0
    real = WaveColumns.rollouts

    def counted(self, *which):
        nonlocal made
        made += 1
        return real(self, *which)

    monkeypatch.setattr(WaveColumns, "rollouts", counted)
    job = Job("run", setting_with(), "grpo", 1, {"rollouts": 4 * 4 * 7}, Arm(n=4, B=4, lr=1e-3))
    asyncio.run(run(job, tmp_path / "r"))
    kept = read_lines(tmp_path / "r" / "samples.jsonl")
    assert {x["step"] for x in kept} == {0, 1, 3} and made <= len(kept)
    assert all(a["tokens"]["written"] > 0 and a["fate"] in ("trained", "dead") for x in kept for a in x["attempts"])


def test_a_run_keeps_more_rollouts_as_text_if_asked_to(tmp_path):
    job = Job("run", setting_with(), "grpo", 1, {"rollouts": 4 * 4 * 7}, Arm(n=4, B=4, lr=1e-3))
    asyncio.run(run(replace(job, keep=4), tmp_path / "all"))
    asyncio.run(run(job, tmp_path / "some"))
    every, some = (rollouts.of_run(tmp_path / x) for x in ("all", "some"))
    assert {r.step: sum(x.step == r.step for x in every) for r in every} == dict.fromkeys(range(7), 16)
    assert {r.step: sum(x.step == r.step for x in some) for r in some} == dict.fromkeys((0, 1, 3), 8)
    assert [r for r in every if r in some] == some and len(every) == rollouts.started(tmp_path / "all")


FLAKY = """
from isocost.types import Fault, Message, Problem, Shown


class Flaky:
    max_turns, max_tokens = 3, 2

    @staticmethod
    def problems():
        return [Problem(f"p{i}", (Message("user", f">{i} :"),)) for i in range(80)]

    def __init__(self, problem):
        self.problem, self.turn = problem, 0

    async def open(self):
        return Shown(self.problem.prompt)

    async def step(self, said, luck):
        self.turn += 1
        draw = luck().random()
        if draw < 0.05:
            raise OSError("gone")
        fault = Fault.tool("down") if draw < 0.2 else None
        return Shown((Message("tool", "!"),), self.turn == 3, float(self.turn == 3 and draw > 0.5), "", fault)

    def final(self):
        return ""

    async def close(self):
        pass
"""


def test_a_run_that_was_stopped_and_resumed_keeps_the_same_rollouts(tmp_path):
    """Faulty ones too: whether there is room for more follows from the size of the file, which a resume cuts."""
    (tmp_path / "flaky.py").write_text(FLAKY)
    setting = setting_with(env=f"{tmp_path}/flaky.py:Flaky", model="tiny-agents", samples=1)
    job = Job("run", setting, "grpo", 1, {"env-steps": 320.0}, Arm(n=4, B=4, lr=1e-3), save_every=2, points=(64,))

    def stops(line):
        if line["step"] == 4 and "reward" in line:
            os.kill(os.getpid(), signal.SIGINT)

    whole = asyncio.run(run(job, tmp_path / "whole"))
    assert asyncio.run(run(job, tmp_path / "parts", on_step=stops))["reason"] == "interrupted"
    shutil.rmtree(max((tmp_path / "parts" / "checkpoints").glob("step-*")))     # as if it was killed two steps later
    before = (tmp_path / "parts" / "samples.jsonl").stat().st_size
    assert asyncio.run(run(job, tmp_path / "parts"))["reason"] == whole["reason"] == "spent"
    one, other = ((tmp_path / x / "samples.jsonl").read_bytes() for x in ("whole", "parts"))
    assert one == other
    kept = rollouts.of_run(tmp_path / "parts")
    faulty = [r for r in kept if r.chosen_for]
    assert {r.outcome for r in faulty} >= {Outcome.FAULT, Outcome.SUCCESS} and {r.step for r in faulty} >= {2, 4, 5}
    assert 0 < before < len(one) and rollouts.started(tmp_path / "whole") == sum(whole["fates"].values())


def test_long_texts_and_long_dialogues_are_bounded(monkeypatch):
    monkeypatch.setattr(samples, "MOST", 4)
    monkeypatch.setattr(samples, "TURNS", 1)
    world = broken_world()
    group = next(g for g in (group_of(world, slot) for slot in range(9)) if any(len(r.turns) == 3 for r in g.rollouts))
    long = group.of(r.but(final="x" * 100) for r in group.rollouts)
    (line,) = samples.samples([long], 0, world.text)
    read = rollouts.read([line], "r")
    assert read[0].text == "xx\n[96 characters left out]\nxx"
    whole = next(i for i, r in enumerate(group.rollouts) if len(r.turns) == 3)
    assert len(read[whole].turns) == 1 and read[whole].left_out == 2 and read[whole].steps == 3


# finding ------------------------------------------------------------------------------------------------------------


def line(step: int, part: str, problem: str, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"step": step, "part": part, "id": problem, "variant": "", "prompt": "q", "attempts": list(attempts), **more}


def attempt(number: int, reward: float | None, stop: str = "done", *turns: Any, **more: Any) -> dict[str, Any]:
    return {"attempt": number, "text": "an answer", "reward": reward, "stop": stop, "fate": "trained",
            "tokens": {"fresh": 7, "reread": 40, "written": 3}, **({"turns": list(turns)} if turns else {}), **more}


def turn(said: str, shown: str = "", fault: str = "", reward: float = 0.0, key: str = "") -> dict[str, Any]:
    return {"said": said, "shown": shown, "reward": reward, "fault": fault, "key": key,
            "tokens": {"fresh": 2, "reread": 5, "written": 1}}


CALL = '<tool_call>\n{"name": "find_order", "arguments": {"id": 7}}\n</tool_call>'
LINES = [
    line(0, "training", "easy", attempt(0, 1.0), attempt(1, 0.0)),
    line(0, "held-out", "hard",
         attempt(0, 0.0, "turns", turn("go", "wall", "model: no such door", key="A"), turn("go")),
         attempt(1, None, "error", turn("go", "", "environment: OSError"))),
    line(16, "training", "easy", attempt(0, 0.0, "length", text="cut " * 3000), attempt(1, 0.0, "cancelled")),
    line(16, "held-out", "hard", attempt(0, 1.0, "done", turn(CALL, "order 7\nis here", "tool: timeout", 0.25, "B"),
                                         turn("done", reward=0.75)), opened="the rules of the shop"),
    line(5, "training", "odd", attempt(3, 0.0, "done", turn(CALL, "", "tool: timeout")), kept="fault"),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study folder with three runs: one of dialogues, one of single answers, one whose texts are hostile."""
    home = tmp_path_factory.mktemp("viewer") / "shown"
    for name in ("dialogues", "single", "hostile"):
        write_run(home / "runs", name, "train", 4, 1024, 1)
    write_lines(home / "runs" / "dialogues" / "samples.jsonl", LINES)
    bad = [
        line(2, HOSTILE, HOSTILE, attempt(0, 1.0, HOSTILE, turn(HOSTILE, HOSTILE, f"tool: {HOSTILE}", 0.5, HOSTILE),
                                          turn(f"<tool_call>{HOSTILE}</tool_call>", "y" * 200_000)),
             attempt(1, None, "done", text=HOSTILE, fate=HOSTILE), opened=HOSTILE)
        | {"prompt": HOSTILE, "variant": HOSTILE},
    ]
    write_lines(home / "runs" / "hostile" / "samples.jsonl", bad)
    about = json.loads((home / "runs" / "hostile" / "run.json").read_text())
    write_json(home / "runs" / "hostile" / "run.json", about | {"name": f"hostile {HOSTILE}"})
    return home


@pytest.mark.parametrize(("asked", "matching"), [
    ({}, 8), ({"outcome": "success"}, 2), ({"outcome": "failure"}, 2), ({"outcome": "limit"}, 2),
    ({"outcome": "stopped"}, 1), ({"outcome": "fault"}, 1), ({"fault": "tool"}, 2), ({"fault": "any"}, 4),
    ({"update": 16}, 3), ({"problem": "hard"}, 3), ({"part": "held-out", "update": 16}, 1),
    ({"attempt": 1, "problem": "easy"}, 2), ({"problem": "none"}, 0),
])
def test_kept_rollouts_are_found_by_what_they_are(study, asked, matching):
    found = find_rollouts(study, run="dialogues", first=100, **asked)
    assert found.matching == len(found.found) == sum(found.outcomes.values()) == matching
    assert found.kept == 8 and found.started == 1032, "its fates: those of training, and 8 that were lost"


def test_a_run_or_an_update_that_is_not_there_is_an_error_that_names_what_is(study, tmp_path):
    with pytest.raises(UserError, match=r"has no run 'x'; it has dialogues"):
        find_rollouts(study, run="x")
    with pytest.raises(UserError, match=r"no rollout of update 3 was kept; there are some of 0, 5, 16"):
        find_rollouts(study, run="dialogues", update=3)
    with pytest.raises(UserError, match="there are no rollouts to show"):
        find_rollouts(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        find_rollouts(tmp_path / "none")


def test_runs_of_one_name_in_several_studies_are_told_apart(tmp_path):
    for name in ("x", "y", "z"):
        write_run(tmp_path / name / "runs", "a", "train", 4, 1024, 1)
        write_lines(tmp_path / name / "runs" / "a" / "samples.jsonl", LINES[:1])
    found = find_rollouts(tmp_path)
    assert found.runs == ("a", "y/a", "z/a")
    assert (found.started, found.matching) == (3 * 1032, 3 * len(LINES[0]["attempts"]))


def test_the_command_prints_a_rollout_turn_by_turn(study):
    said = told(study, "--run", "dialogues", "--outcome", "success", "--update", "16")
    for words in ("1 of 8 kept rollouts match: 1 success",
                  "dialogues, after 16 updates, held-out, problem hard, attempt 0",
                  "success, reward 1, 2 environment steps, 3 tokens written, 7 read for the first time, 40 read again",
                  "turn 1, reward 0.25, fault tool: timeout, state B, 1 token written, 2 read for the first time, "
                  "5 read again",
                  '{"name": "find_order"', "shown   order 7\n            is here", "the rules of the shop"):
        assert words in said, (words, said)
    assert "5 more match: --first 8 shows all" in told(study, "--run", "dialogues")
    data = json.loads(told(study, "--run", "dialogues", "--fault", "tool", "--first", "1", "--json"))
    assert data["matching"] == 2 and data["rollouts"][0]["turns"][0]["fault"] == "tool: timeout"


def test_hostile_texts_are_harmless_in_a_terminal(study):
    said = told(study, "--first", "50")
    assert not OBEYED.search(said)
    assert "␛[2J" in said and "[U+202E]" in said


# the viewer ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write(study, tmp_path_factory.mktemp("pages") / "report.html")


def test_the_page_has_a_bounded_sample_and_says_what_it_leaves_out(study, page):
    parsed = Parsed(page.read_text(encoding="utf-8"))
    shown = [a for a in parsed.of("details") if a.get("class") == "rollout"]
    kept = sum(len(x["attempts"]) for r in ("dialogues", "single", "hostile")
               for x in read_lines(study / "runs" / r / "samples.jsonl"))
    assert f"{len(shown)} of {kept} rollouts that the records keep as text; 3,096 were sampled." in parsed.text
    assert f"isocost rollouts {study.name}" in parsed.text
    command = "isocost rollouts shown --run dialogues --update 16 --part held-out --problem hard --attempt 0"
    assert command in parsed.text
    assert "find_order" in parsed.text and page.stat().st_size < 1_600_000
    assert parsed.text.count("y" * 100) < 60, "a text of 200,000 characters is cut in the middle"


def test_the_sample_has_every_outcome_and_every_problem_before_it_repeats_one():
    many = [line(k, "training", f"p{i}", *(attempt(a, float(a == 7), "done") for a in range(8)))
            for k in (0, 1, 3, 7) for i in range(2)]
    faulty = [line(9, "training", "z", attempt(i, None, "error"), kept="fault") for i in range(9)]
    kept = rollouts.read([*many, *faulty], "r")
    found = viewer.chosen({"r": kept})
    assert [(r.step, r.problem, r.attempt) for r in found] == [
        (k, p, a) for k in (0, 7) for p, a in (("p0", 0), ("p0", 7), ("p1", 0), ("p1", 1))] + [
        (9, "z", i) for i in range(viewer.EACH)]
    runs = {f"r{i}": kept for i in range(20)}       # of a large study only the first
    assert len(viewer.chosen(runs)) == viewer.RUNS * len(found)


def test_a_page_is_bounded_however_long_rollouts_are(tmp_path):
    write_run(tmp_path, "a", "run", 4, 1024, 1)
    empty = len(viewer.rollouts(load(tmp_path)).body)
    long = attempt(0, 0.0, "turns", *(turn("s" * 9_000, "t" * 9_000) for _ in range(200)), text="a" * 9_000)
    write_lines(tmp_path / "a" / "samples.jsonl", [line(3, "training", "p", long, opened="o" * 9_000)])
    body = viewer.rollouts(load(tmp_path)).body
    assert viewer.WHOLE < len(body) - empty < viewer.WHOLE + 4 * viewer.MOST
    assert "197 more turns not in this page." in body and "characters left out]" in body


def test_the_name_of_another_metric_does_not_change_texts_of_rollouts(tmp_path):
    home = tmp_path / "s"
    write_run(home / "runs", "a", "pilot", 4, 1024, 1)
    write_json(home / "study.json", {"schema": 1, "setting": {"model": "tiny", "data": "sums"}, "metric": "best@4"})
    write_lines(home / "runs" / "a" / "samples.jsonl", [
        line(0, "training", "p", attempt(0, 1.0, text="my held-out reward is high"))])
    page = report.write(home).read_text(encoding="utf-8")
    assert "my held-out reward is high" in page
    assert page.count("held-out reward") == 1, "elsewhere it is held-out best@4"


def test_old_records_are_shown_too(tmp_path):
    """Lines of earlier versions have no part, no attempt and no tokens."""
    write_run(tmp_path, "a", "run", 4, 1024, 1)
    old = {"step": 1, "id": "a", "variant": "", "prompt": "47+38=",
           "attempts": [{"text": "85", "reward": 1.0, "stop": "done"}]}
    write_lines(tmp_path / "a" / "samples.jsonl", [old])
    text = Parsed(report.write(tmp_path).read_text(encoding="utf-8")).text
    assert "47+38=" in text and "85" in text and "1 of 1 rollout that" in text
    (found,) = find_rollouts(tmp_path, first=9).found
    assert found.attempt is None and found.tokens is None and found.prompt == "47+38="


# in the browser -----------------------------------------------------------------------------------------------------

OPEN = "document.querySelectorAll('details.rollout').forEach(r => { r.open = true; })"


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


LUMINANCE = """
const lum = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
  .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
"""


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (360, False)])
def test_the_viewer_is_readable_in_light_dark_and_narrow_windows(browser, page, width, dark):
    """Every text has a contrast of at least 4.5 to what is behind it (WCAG AA); nothing is wider than the window."""
    async def look():
        tab = await opened(browser, page, width, dark)
        await tab.run(OPEN)
        low = await tab.run(f"""(() => {{ {LUMINANCE}
            const words = [...document.querySelectorAll('#rollouts *')].filter((e) => e.offsetParent !== null &&
              [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && !e.matches('option, .mark'));
            return [words.length, words.map((e) => {{ const [a, b] = [lum(getComputedStyle(e).color), lum(behind(e))];
              return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.className || e.tagName]; }})
              .filter(([c]) => c < 4.5)]; }})()""")
        assert low[0] > 100 and low[1] == []
        over = await tab.run("""[...document.querySelectorAll('#rollouts *')].filter((e) =>
            !e.closest('.scroll') && e.offsetParent !== null &&
            e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
            .map((e) => e.className || e.tagName)""")
        assert over == []
        await tab.close()

    asyncio.run(look())


@needs_browser
def test_nothing_that_a_rollout_holds_runs(browser, page):
    async def look():
        tab = await opened(browser, page)
        await tab.run(OPEN)
        owned, images, marked = await tab.run(
            "[document.documentElement.dataset.owned || '', document.querySelectorAll('#rollouts img, #rollouts svg,"
            " #rollouts script').length, document.getElementById('rollouts').textContent.includes('<img src=x')]")
        assert (owned, images, marked) == ("", 0, True)
        text = await tab.run("document.getElementById('rollouts').textContent")
        assert not OBEYED.search(text)
        assert await tab.run("document.querySelectorAll('main > section').length") == len(
            Parsed(page.read_text(encoding="utf-8")).of("section")), "the page's structure is whole"
        await tab.close()

    asyncio.run(look())
