"""Reasoning effort and the longest answer as arms of a study: sampled, planned, answered, audited and served."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from examples.openai_server import Background, Server, error
from isocost import meter
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.test_time.pool import Pool, parts
from isocost.planner.test_time.prescribe import AnswerGoal, prescribe
from isocost.steps.serving.choosing import by_plan, by_strategy
from isocost.steps.settings import setting_of
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.sampling import PoolSampler
from isocost.types import Message, Problem
from isocost.worlds.endpoint import open_world
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.spec import spec_of
from test_serving import PACE, client, served

PROBLEMS = "sums:base=easy,count=80"


class Thinking(Server):
    """It is right at effort "high", wrong at "low", and knows no other; without one it answers like the model."""

    asked, knows = (), True

    async def answer(self, method, path, body):
        if method != "POST":
            return await super().answer(method, path, body)
        self.asked = [*self.asked, body]
        effort = body.get("reasoning_effort")
        if effort and not (self.knows and effort in ("low", "high")):
            return 400, {}, error("Unrecognized request argument supplied: reasoning_effort")
        if not effort:
            return await super().answer(method, path, body)
        a, b = map(int, body["messages"][-1]["content"].rstrip("=").split("+"))
        usage = {"prompt_tokens": 6, "completion_tokens": 4}
        return 200, {}, {"choices": [{"message": {"content": str(a + b + (effort == "low"))}, "finish_reason": "stop"}],
                         "usage": usage}


@pytest.fixture(scope="module")
def thinking():
    server = Thinking()
    with Background(server) as url:
        yield server, f"openai:{url}#tiny"


def run(*words, code=0):
    ended = CliRunner().invoke(main, list(map(str, words)))
    assert ended.exit_code == code, ended.output
    return ended.output


def test_a_plan_chooses_an_effort_which_its_answers_its_audit_and_its_server_keep(thinking, tmp_path):
    server, model = thinking
    server.asked, server.knows, study = (), True, tmp_path / "s"
    run("profile", "--model", model, "--data", PROBLEMS, "--held-out", "0.8", "--strategies", "vote", "--pool", "2",
        "--efforts", "low,high", "--out", study)
    efforts = [b.get("reasoning_effort") for b in server.asked]
    assert efforts[:3] == [None, "low", "high"]        # each is tried before the pool
    assert {efforts.count(x) for x in ("low", "high")} == {1 + 2 * 60}
    pool = [json.loads(x) for x in (study / "pool@effort=high.jsonl").read_text().splitlines()]
    assert all(x["right"] == [1.0, 1.0] for x in pool)
    assert "effort=high" in run("plan", study, "--budget", "5-tokens/answer")
    assert StudyRecord.read(study).record("plan.json", "plan")["each"][0]["arm"] == "effort=high"
    assert "hit" in run("audit", study)
    server.asked = ()
    run("answer", study, "--data", "sums:base=easy,count=3", "--out", tmp_path / "a.jsonl")
    assert [b["reasoning_effort"] for b in server.asked if b["max_tokens"] > 1] == ["high"] * 3
    choose, _ = by_plan(StudyRecord.read(study), None)

    async def work(world):
        async with served(world) as (_, url):
            await client(url).chat.completions.create(
                model="x", messages=[{"role": "user", "content": "27+58="}], reasoning_effort="low")
        async with served(world, choose=choose) as (_, url):
            return await client(url).chat.completions.create(
                model="x", messages=[{"role": "user", "content": "27+58="}])

    world = open_world(spec_of(model), (Problem("p", (Message("user", "27+58="),)),), lambda r: None)
    server.asked = ()
    planned = asyncio.run(work(world))
    world.close()
    assert [b.get("reasoning_effort") for b in server.asked] == ["low", "high"]
    assert planned.choices[0].message.content == "85"


def test_a_server_that_does_not_know_an_effort_says_so_before_anything_is_sampled(thinking, tmp_path):
    server, model = thinking
    server.asked, server.knows = (), False
    said = run("profile", "--model", model, "--data", PROBLEMS, "--strategies", "vote", "--pool", "2", "--efforts",
               "low", "--out", tmp_path / "s", code=2)
    assert "the server does not take reasoning_effort = low (400: Unrecognized request argument supplied" in said
    assert len(server.asked) <= 3


def test_what_is_tried_is_charged_as_a_check(thinking):
    server, model = thinking
    server.knows = True
    opened = open_setting(setting_of({"model": model, "data": PROBLEMS, "held_out": 0.8}).but(effort="low"),
                          check=False, learn=False)
    finished(PoolSampler(opened, opened.sides.held_out, 0, lambda *_: None).tried())
    assert {*opened.world.meter.logical} == {meter.CHECK}
    opened.close()


def test_a_plan_s_longest_answer_is_asked_for_unless_a_request_says_its_own(thinking):
    server, model = thinking
    planned = 7 * PACE.max_tokens

    def choose(*asked):
        return replace(by_strategy("one")(*asked), arm={"max_tokens": planned})

    async def work(world):
        async with served(world, choose=choose) as (_, url):
            for own in ({}, {"max_tokens": 5}):
                await client(url).chat.completions.create(
                    model="x", messages=[{"role": "user", "content": "27+58="}], **own)

    world = open_world(spec_of(model), (Problem("p", (Message("user", "27+58="),)),), lambda r: None)
    server.asked = ()
    asyncio.run(work(world))
    world.close()
    assert [b["max_tokens"] for b in server.asked] == [planned, 5]


def test_a_model_of_this_machine_has_no_effort(tmp_path):
    said = run("profile", "--data", PROBLEMS, "--strategies", "vote", "--efforts", "low", "--out", tmp_path / "s",
               code=2)
    assert "reasoning effort" in said and not (tmp_path / "s" / "study.json").exists()


def test_a_setting_without_effort_is_recorded_as_before():
    plain = Setting.of(model="openai:http://h/v1#m")
    assert "effort" not in plain.to_dict() and Setting.of(plain.to_dict()) == plain
    assert Setting.of(plain.but(effort="low").to_dict()).sampling.effort == "low"


def planned(budget, accuracy=None):
    """A plan for 200 problems, of which short answers (12 tokens) are right half as often as long ones (40)."""
    rng = np.random.default_rng(0)
    rate = rng.random(200)

    def pool(tokens, share):
        right = (rng.random((200, 8)) < share * rate[:, None]).astype(float)
        return Pool(tuple(map(str, range(200))), right, right, np.where(right > 0, 1, 2), np.full((200, 8), tokens))

    arms = {f"max_tokens={k}": [pool(k, share)] for k, share in ((12, 0.5), (24, 0.99))}
    split = parts(pool(40, 1.0), probe=0, bands=1, least=10, seed=0, arms=arms)
    return prescribe(split, ["vote"], AnswerGoal.of(budget, accuracy, None, None), 0)


@pytest.mark.parametrize("budget, accuracy, arm", [
    ("15-tokens/answer", None, "max_tokens=12"), ("30-tokens/answer", None, "max_tokens=24"),
    ("45-tokens/answer", None, ""), (None, 0.4, "max_tokens=24"), (None, 0.2, "max_tokens=12")])
def test_a_plan_chooses_the_longest_answer(budget, accuracy, arm):
    """Below the cost of the study's own length a shorter one is taken, and for an accuracy the cheapest that has it."""
    made = planned(budget, accuracy)
    assert [b.arm for b in made.each] == [arm] and made.one.arm == arm
    assert made.decision == "one" and made.optimism == 0 == made.gain.value, "it is the sample to be compared with"
    assert made.cost == {"max_tokens=12": 12, "max_tokens=24": 24, "": 40}[arm]
    assert str(made.each[0]) == ("one sample" + (f" at {arm}" if arm else ""))


def test_a_budget_below_the_shortest_answer_names_what_that_takes():
    with pytest.raises(UserError, match="is below one sample, which takes 12 tokens"):
        planned("11-tokens/answer")
