"""Answers served: the official client, many at once, clients that leave, models that fail or are slow, and the bill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest
from click.testing import CliRunner

from examples.openai_server import Background, Server, error
from isocost.chance import Purpose
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.local.world import open_world
from isocost.meter import ANSWERS, Meter
from isocost.parts.play import sample
from isocost.runs.files import Stream
from isocost.seams import Pace
from isocost.serve.server import Server as Listener
from isocost.steps.serving.admission import Admission, Full
from isocost.steps.serving.answers import AnswerBill, ChosenStrategy
from isocost.steps.serving.application import Application
from isocost.steps.serving.choosing import by_plan, by_strategy
from isocost.steps.serving.serve import Access, Answerer, Load, serve
from isocost.steps.study import StudyRecord
from isocost.strategies import best_of, one, parse
from isocost.tasks.builtin import puzzles
from isocost.types import Cost, Place, Problem, Role, Segment
from isocost.worlds import endpoint
from isocost.worlds.http import RequestLimits
from isocost.worlds.spec import spec_of

PROBLEMS = tuple(puzzles.listed(puzzles.Puzzles(count=60)))
ASKED = [[{"role": "user", "content": p.prompt[0].content}] for p in PROBLEMS]
PACE = Pace(lr=0.0, max_tokens=128)
OPEN: list[openai.AsyncOpenAI] = []
EIGHT = "best-of:n=8,scorer=steps"
SEARCH = "best-of:n=4,scorer=steps"


@cache
def weights() -> Any:
    return open_world("tiny-puzzles", (), None)


@pytest.fixture
def world():
    """The puzzles' model with a meter of its own, and the problems, which scorers know by their prompts."""
    opened = weights()
    opened.meter = opened.engine.meter = Meter()
    opened.problems = PROBLEMS
    return opened


@asynccontextmanager
async def served(world: Any, strategy: str = "one", **how: Any) -> AsyncIterator[tuple[Application, str]]:
    """The application, and its address."""
    load = how.pop("load", Load())
    app = Application(world, "tiny-puzzles", PACE, how.pop("choose", by_strategy(strategy)),
                      Admission(load.tokens, load.queue), **how)
    server = Listener(app.app, public=bool(app.key))
    try:
        yield app, f"http://127.0.0.1:{server.start()}/v1"
    finally:
        while OPEN:
            await OPEN.pop().close()
        await server.stop()


def client(url: str, **how: Any) -> openai.AsyncOpenAI:
    """One that is closed with the server."""
    OPEN.append(openai.AsyncOpenAI(base_url=url, api_key=how.pop("key", "any"), **how))
    return OPEN[-1]


def asks(url: str, messages: Any, strategy: str = "", budget: str = "", **how: Any) -> Any:
    own = {k: v for k, v in (("strategy", strategy), ("budget", budget)) if v}
    return client(url).chat.completions.create(
        model="any", messages=messages, **({"extra_body": {"isocost": own}} if own else {}), **how)


def sums(usages: Any) -> tuple[int, int]:
    usages = list(usages)
    return sum(u.completion_tokens for u in usages), sum(u.prompt_tokens for u in usages)


def bill(meter: Meter) -> tuple[int, int]:
    cost = meter.of(ANSWERS)
    return cost.decode, cost.prefill


# one request --------------------------------------------------------------------------------------------------------


def test_a_request_is_answered_with_the_text_and_the_tokens_that_sampling_gives(world, tmp_path):
    place = Place(7, 0, 1, int(Purpose.ANSWER))

    async def work():
        said = await sample(PROBLEMS[3], range(2), world, PACE, place)
        world.meter = world.engine.meter = Meter()
        stream = Stream(tmp_path / "answers.jsonl")
        async with served(world, journal=stream, first=5) as (app, url):
            return said, await asks(url, ASKED[3], n=2, seed=7), app.world.meter

    said, answer, meter = asyncio.run(work())
    assert [c.message.content for c in answer.choices] == [r.final for r in said]
    assert [c.finish_reason for c in answer.choices] == ["stop", "stop"]
    usage = answer.usage
    assert usage.completion_tokens == sum(s.written for r in said for s in r.segments)
    assert usage.isocost == {"answer": usage.completion_tokens, "tries": 0, "scorer": 0, "reread": 0, "calls": 0,
                             "completions": 2, "lost": 0, "strategy": "one", "band": "",
                             "depth": max(s.written for r in said for s in r.segments)}
    assert sums([usage]) == bill(meter)
    (line,) = map(json.loads, (tmp_path / "answers.jsonl").read_text().splitlines())
    assert (line["request"], line["end"], line["usage"]) == (5, "answered", json.loads(answer.usage.model_dump_json(
        exclude_unset=True)))
    assert [a["text"] for a in line["answers"]] == [r.final for r in said]
    assert Cost.of(line["cost"]).counts() == meter.of(ANSWERS).counts()


def test_a_strategy_is_chosen_by_the_request_and_its_usage_says_what_it_took(world):
    async def work():
        async with served(world) as (_, url):
            first = await asks(url, ASKED[0], SEARCH)
            return first, await asks(url, ASKED[0], "best-of:n=64,scorer=steps", "300-tokens", max_tokens=128)

    first, second = asyncio.run(work())
    own = first.usage.isocost
    assert (own["strategy"], own["completions"]) == (SEARCH, 4) and 1 <= own["calls"] <= 4      # equal texts once
    assert own["answer"] + own["tries"] + own["scorer"] == first.usage.completion_tokens and own["tries"] > 0
    assert first.usage.prompt_tokens == 4 * len(weights().text.prompt(PROBLEMS[0].prompt))
    assert second.usage.isocost["strategy"] == "best-of:n=2,scorer=steps"      # 300 tokens are two of 128
    assert second.usage.completion_tokens <= 300


def test_what_a_scorer_alone_reads_is_in_the_usage_where_there_is_any():
    for score in (0, 7):
        bill = AnswerBill(ChosenStrategy("mine", None), SimpleNamespace(cost=Cost(prefill=4, score=score)),
                          SimpleNamespace(started=1, lost=0))
        assert bill.usage()["isocost"].get("scored") == (score or None) and bill.usage()["prompt_tokens"] == 4


def test_what_a_scorer_writes_is_apart_from_the_tries(world):
    """A scorer that asks the model for four tokens about each text."""
    judged = []

    async def verdicts(problem, texts, over, there):
        judged.extend(texts)
        start = Segment.given(there.text.prompt(problem.prompt), Role.PROMPT)
        said = await there.engine.generate(
            start, range(len(texts)), place=Place(1, 0, 0, int(Purpose.FORK)), turn=0, max_tokens=4)
        return [len(s.tokens) / 8 for s in said]

    chosen = ChosenStrategy("mine", partial(best_of.play, n=3, scorer=verdicts), 3)

    async def work():
        async with served(world, choose=lambda strategy, budget, limit, problem: chosen) as (_, url):
            return await asks(url, ASKED[4])

    usage = asyncio.run(work()).usage
    own = usage.isocost
    assert own["scorer"] == 4 * len(judged) > 0 and own["completions"] == 3 + len(judged)
    assert own["answer"] + own["tries"] + own["scorer"] == usage.completion_tokens
    assert sums([usage]) == bill(world.meter)


def test_a_second_model_has_its_own_place_in_the_usage_and_row_at_the_end():
    puzzled = Answerer.of("tiny-puzzles", {"data": "puzzles:count=60"}, ["data"])

    async def work(url):
        answer = await asks(url, ASKED[0])
        os.kill(os.getpid(), signal.SIGTERM)
        await OPEN.pop().close()
        return answer

    asking = Client(work)
    ended = serve(puzzled, "route:strong=tiny-puzzles,below=1", access=Access(port=0), observer=asking)
    asking.thread.join()
    usage, ((name, second),) = asking.found.usage, ended.others.items()
    own, account = usage.isocost, "model tiny-puzzles"
    assert name == account and own["strong"] == second["decode"] > 0
    assert own["tries"] == ended.cost["decode"] and sums([usage]) == tuple(
        ended.cost[k] + second[k] for k in ("decode", "prefill"))
    said = {r.name: r.text for r in ended.rows()}
    assert said[account] == f"{second['prefill']:,} tokens read, {second['decode']:,} written"


def test_a_server_opens_the_models_that_its_strategy_or_its_study_names():
    spec = "by-band:easy=(route:strong=a#b),hard=(best-of:n=3,scorer=(generative:model=c,readings=2))"
    assert sorted(parse(spec).models) == ["a#b", "c"] and parse("best-of:n=3").models == []
    study = SimpleNamespace(asked={"strategies": ["best-of"], "searches": ["route:strong=a"], "sizes": [1, 4],
                                   "scorer": "generative:model=c"})
    assert Answerer(None, True, study).models(None) == ["c", "a", "c"]
    assert Answerer(None, True, study).models("one") == []


def test_temperature_0_is_the_most_likely_token(world):
    async def work():
        async with served(world) as (_, url):
            cold = await asks(url, ASKED[7], temperature=0)
            return cold, await asks(url, ASKED[7], temperature=0.001)

    cold, cool = asyncio.run(work())
    assert cold.choices[0].message.content == cool.choices[0].message.content


def test_a_server_that_closes_answers_what_is_under_way_and_tells_others_when_to_come_back(world):
    async def work():
        async with served(world) as (app, url):
            first = asyncio.ensure_future(asks(url, ASKED[4]))
            while not app.admission.under_way:
                await asyncio.sleep(0)
            app.closing = True
            async with httpx2.AsyncClient() as there:
                late = await there.post(f"{url}/chat/completions", json={"messages": ASKED[4]})
                health = await there.get(url.replace("/v1", "/health"))
            await app.idle()
            return await first, late, health

    first, late, health = asyncio.run(work())
    assert first.choices[0].message.content
    assert (late.status_code, late.headers["retry-after"], late.json()["error"]["code"]) == (503, "10", "closing")
    assert (health.status_code, health.json()["status"]) == (503, "closing")


def planned(folder):
    """A study of 60 problems with 8 stored samples each, of 8 tokens; problem i is right in i % 7 of them."""
    rows = [{"problem_id": f"p{i}", "response": f"{k < i % 7}", "correct": k < i % 7, "completion_tokens": 8}
            for i in range(60) for k in range(8)]
    (folder / "pool.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    study = folder / "study"
    for words in (f"profile --completions {folder}/pool.jsonl --strategies best-of --scorer verifier "
                  f"--out {study}",
                  f"plan {study} --budget 32-tokens/answer"):
        done = CliRunner().invoke(main, words.split())
        assert done.exit_code == 0, done.output
    return study


def test_a_study_of_strategies_answers_as_its_plan_says_and_plans_for_the_budget_of_a_request(tmp_path):
    """The best-of of a pool is exact: eight tokens a sample buy four samples for 32, and two for 20."""
    study = StudyRecord.read(planned(tmp_path))
    choose, named = by_plan(study, None)

    def chosen(strategy="", budget=""):
        return choose(strategy, budget, 128, Problem("p", ()))

    assert named == "best of 4" and chosen().name == "best-of:n=4"
    assert chosen(budget="20-tokens").name == chosen(budget="20-tokens/answer").name == "best-of:n=2"
    assert chosen("vote:n=3").name == "vote:n=3"
    with pytest.raises(UserError, match="below one sample"):
        chosen(budget="5-tokens")


@pytest.mark.parametrize("stop", [None, ";", "8;"])
def test_a_stream_has_the_text_of_the_answer_and_its_usage_last(world, stop, monkeypatch):
    """What may begin a stop string is held back: with one token a call, an 8 comes before it is known what follows."""
    monkeypatch.setattr(world.engine, "burst", 1)
    more = {} if stop is None else {"stop": stop}

    async def work():
        async with served(world) as (_, url):
            whole = await asks(url, ASKED[4], seed=3, n=2, **more)
            parts = [x async for x in await asks(url, ASKED[4], seed=3, n=2, stream=True,
                                                 stream_options={"include_usage": True}, **more)]
            late = [x async for x in await asks(url, ASKED[4], SEARCH, seed=3, stream=True, **more)]
            return whole, parts, late, await asks(url, ASKED[4], SEARCH, seed=3, **more)

    whole, parts, late, searched = asyncio.run(work())
    texts, ends = ["", ""], ["", ""]
    for part in parts[:-1]:
        (choice,) = part.choices
        assert (choice.delta.role == "assistant") == (choice.delta.content is not None and not texts[choice.index])
        texts[choice.index] += choice.delta.content or ""
        ends[choice.index] += choice.finish_reason or ""
    assert texts == [c.message.content for c in whole.choices] and ends == ["stop", "stop"]
    assert parts[-1].choices == [] and parts[-1].usage == whole.usage
    assert all(x.usage is None for x in parts[:-1]) and "".join(texts)
    assert "".join(x.choices[0].delta.content or "" for x in late) == searched.choices[0].message.content
    assert late[-1].usage == searched.usage         # also where the client did not ask for it


def test_one_completion_is_streamed_while_it_is_written(world):
    """The first piece is there before the last token is: with two tokens a call, the engine is asked to stop after it.
    """
    world.engine.burst, before = 2, world.engine.burst

    async def work():
        async with served(world) as (app, url):
            async for part in await asks(url, ASKED[4], seed=3, stream=True):
                if part.choices[0].delta.content:
                    return app.admission.under_way
            return None

    try:
        assert asyncio.run(work()) > 0
    finally:
        world.engine.burst = before


def test_an_assistants_message_is_continued_and_a_full_context_is_a_length(world):
    room = world.engine.config.max_len - len(world.text.prompt(PROBLEMS[0].prompt))

    async def work():
        async with served(world) as (_, url):
            more = {"extra_body": {"continue_final_message": True}}
            said = await asks(url, [*ASKED[0], {"role": "assistant", "content": "1+"}], seed=1)
            gone_on = await client(url).chat.completions.create(
                model="", messages=[*ASKED[0], {"role": "assistant", "content": "1+"}], seed=1, stop=";", **more)
            full = await client(url).chat.completions.create(
                model="", messages=[*ASKED[0], {"role": "assistant", "content": "1" * room}], **more)
            with pytest.raises(openai.BadRequestError, match="the model's context is 256") as long:
                await asks(url, [{"role": "user", "content": "1" * 300}])
            return said, gone_on, full, long.value

    _, gone_on, full, long = asyncio.run(work())
    assert ";" not in gone_on.choices[0].message.content and gone_on.choices[0].finish_reason == "stop"
    assert full.choices[0].finish_reason == "length" and full.choices[0].message.content == ""
    assert full.usage.completion_tokens == 0 and long.code == "context_length_exceeded"


@pytest.mark.parametrize("body, param", [
    ({"n": 0}, "n"), ({"n": 129}, "n"), ({"n": 1.5}, "n"), ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"), ({"temperature": 0, "n": 2}, "temperature"),
    ({"top_p": 2}, "top_p"), ({"seed": "x"}, "seed"),
    ({"presence_penalty": 1}, "presence_penalty"), ({"isocost": 3}, "isocost"), ({"isocost": {"plan": 1}}, "isocost"),
    ({"isocost": {"strategy": "best-off"}}, "isocost"), ({"isocost": {"strategy": "best-of:k=2"}}, "isocost"),
    ({"isocost": {"budget": "800"}}, "isocost"), ({"isocost": {"budget": "2s"}}, "isocost"),
    ({"isocost": {"budget": "100-tokens"}}, "isocost"), ({"continue_final_message": True}, "continue_final_message"),
    ({"response_format": {"type": "json_object"}}, "response_format"), ({"max_tokens": 0}, "max_tokens"),
])
def test_a_wrong_value_is_named_and_costs_nothing(world, body, param):
    async def work():
        async with served(world) as (app, url), httpx2.AsyncClient() as there:
            answer = await there.post(f"{url}/chat/completions", json={"messages": ASKED[0], **body})
            return answer, app.counts

    answer, counts = asyncio.run(work())
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert counts == {"refused": 1} and bill(world.meter) == (0, 0)


def test_a_request_names_no_file_and_no_address(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(Path(one.__file__).read_text())
    problem = Problem("p", ())
    for said in (str(mine), "best-of:n=2,scorer=http://127.0.0.1:1/score"):
        with pytest.raises(UserError, match="names no file and no address"):
            by_strategy("one")(said, "", 128, problem)
        own = by_strategy(said)     # the server's own, which a request may name
        assert own(said, "", 128, problem) == own("", "", 128, problem)


# many at once, and clients that leave -----------------------------------------------------------------------------


def test_two_hundred_at_once_are_all_answered_and_usage_is_the_meter(world, tmp_path):
    """By the official client as it is, which tries a refused request twice more, after what Retry-After says."""
    stream = Stream(tmp_path / "answers.jsonl")

    async def work():
        async with served(world, load=Load(2**13, 128), journal=stream) as (app, url):
            there = client(url)
            answers = await asyncio.gather(*(there.chat.completions.create(
                model="", messages=ASKED[i % len(ASKED)], max_tokens=64,
                extra_body={"isocost": {"strategy": SEARCH if i % 2 else "one"}}) for i in range(200)))
            return answers, app

    answers, app = asyncio.run(work())
    assert app.counts["answered"] == 200 and app.counts["refused"] > 0
    assert sums(a.usage for a in answers) == bill(world.meter)
    assert app.admission.under_way == 0 and app.admission.waiting == 0
    lines = [json.loads(x) for x in (tmp_path / "answers.jsonl").read_text().splitlines()]
    texts = sorted(a.choices[0].message.content for a in answers)
    assert sorted(x["answers"][0]["text"] for x in lines) == texts and len({x["request"] for x in lines}) == 200
    assert sum((Cost.of(x["cost"]) for x in lines), Cost()).counts() == world.meter.of(ANSWERS).counts()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_tries_and_what_was_written_is_billed(world, tmp_path, stream):
    journal, engine = Stream(tmp_path / "answers.jsonl"), world.engine
    before, ends = engine.burst, engine._is_end.copy()
    engine.burst, engine._is_end[:] = 1, False      # 240 turns of the loop for each text

    async def work():
        async with served(world, journal=journal) as (app, url):
            asking = asyncio.ensure_future(asks(url, ASKED[0], EIGHT, stream=stream, max_tokens=240))
            while not engine._slots.live:
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            while not app.counts:
                await asyncio.sleep(0)
            return dict(app.counts), app.admission.under_way, engine._slots.live

    try:
        counts, under_way, live = asyncio.run(work())
    finally:
        engine.burst, engine._is_end[:] = before, ends
    (line,) = map(json.loads, (tmp_path / "answers.jsonl").read_text().splitlines())
    assert counts == {"cancelled": 1} and (under_way, live) == (0, 0)
    assert line["end"] == "cancelled" and line["answers"] == []
    written, read = bill(world.meter)
    assert line["usage"]["completion_tokens"] == written and read == 8 * len(world.text.prompt(PROBLEMS[0].prompt))
    assert 8 <= written < 8 * 240


def test_requests_wait_in_order_for_room_and_then_are_refused_with_the_time_to_wait():
    now = [0.0]

    async def work():
        room = Admission(10, 2, clock=lambda: now[0])
        order = []

        async def enter(name, tokens, stay):
            async with room.room(tokens):
                order.append(name)
                await stay.wait()

        gates = {name: asyncio.Event() for name in "abcd"}
        a = asyncio.ensure_future(enter("a", 8, gates["a"]))
        await asyncio.sleep(0)
        b, c = (asyncio.ensure_future(enter(x, t, gates[x])) for x, t in (("b", 4), ("c", 2)))
        await asyncio.sleep(0)
        assert order == ["a"] and room.waiting == 2         # c would fit, and waits behind b
        with pytest.raises(Full) as first:
            await enter("x", 2, gates["d"])
        now[0] = 4.0
        gates["a"].set()
        await asyncio.sleep(0.001)
        assert order == ["a", "b", "c"] and room.under_way == 6
        d, e = (asyncio.ensure_future(enter(x, 10, gates["d"])) for x in "de")
        await asyncio.sleep(0)
        with pytest.raises(Full) as second:     # 8 left in 4 s, and half of 6; 9 more, and the half, are to leave
            await enter("f", 9, gates["d"])
        d.cancel()
        await asyncio.gather(d, return_exceptions=True)
        assert room.waiting == 1
        for gate in gates.values():
            gate.set()
        await asyncio.gather(a, b, c, e)
        assert (room.under_way, room.waiting) == (0, 0)
        return first.value.after, second.value.after

    assert asyncio.run(work()) == (1, 5)        # 12 tokens at 11 in 4 s


# models that fail or are slow --------------------------------------------------------------------------------------


class Faulty(Server):
    """`fault(number of the request)` says what happens to it: None, an answer, or an event to wait for."""

    def __init__(self):
        super().__init__("tiny-puzzles")
        self.asked, self.fault, self.bodies = 0, lambda k: None, []

    async def answer(self, method, path, body):
        if method == "POST":
            self.asked += 1
            self.bodies.append(body)
            fault = self.fault(self.asked)
            if isinstance(fault, tuple):
                return fault
            if fault is not None:
                await fault()
        return await super().answer(method, path, body)


@pytest.fixture(scope="module")
def faulty():
    server = Faulty()
    with Background(server) as url:
        yield server, f"openai:{url}#tiny-puzzles"


def behind(faulty, **limits):
    server, spec = faulty
    server.asked, server.fault = 0, lambda k: None
    world = endpoint.open_world(spec_of(spec), PROBLEMS, None, meter=Meter(),
                                limits=RequestLimits(first=0.001, longest=0.01, **{"retries": 0, **limits}))
    server.asked = 0
    return server, world


def test_a_model_that_fails_one_call_in_ten_loses_no_answer(faulty):
    """A try that fails is lost and counted; the strategy goes on with the others."""
    server, world = behind(faulty, concurrency=32)
    server.fault = lambda k: (500, {}, error("out of memory")) if k % 10 == 0 else None

    async def work():
        async with served(world, "best-of:n=4,scorer=steps") as (app, url):
            there = client(url, max_retries=0)
            answers = await asyncio.gather(*(
                there.chat.completions.create(model="", messages=m, max_tokens=64) for m in ASKED[:25]))
            return answers, dict(app.counts)

    answers, counts = asyncio.run(work())
    world.close()
    assert counts == {"answered": 25} and server.asked == 100
    assert sum(a.usage.isocost["lost"] for a in answers) == 10
    assert sums(a.usage for a in answers) == bill(world.meter)
    assert all(a.choices[0].message.content for a in answers)


def test_where_every_try_fails_the_answer_is_502_with_their_number(faulty):
    server, world = behind(faulty)
    server.fault = lambda k: (400, {}, error("this prompt is refused"))

    async def work():
        async with served(world, "best-of:n=4,scorer=steps") as (app, url):
            there = client(url, max_retries=0)
            with pytest.raises(openai.InternalServerError) as whole:
                await there.chat.completions.create(model="", messages=ASKED[0])
            with pytest.raises(openai.InternalServerError) as stream:
                await there.chat.completions.create(model="", messages=ASKED[0], stream=True)
            return whole.value, stream.value, dict(app.counts)

    whole, stream, counts = asyncio.run(work())
    world.close()
    for failed in (whole, stream):
        assert failed.status_code == 502 and "all of 4 tries: 400: this prompt is refused" in failed.message
    assert counts == {"failed": 2}


def test_a_request_has_its_own_sampling_in_front_of_another_server_too(faulty):
    server, world = behind(faulty)

    async def work():
        async with served(world) as (_, url):
            one = await asks(url, ASKED[0], seed=5, temperature=0.5, top_p=0.9)
            world.engine.dialect.dropped.append("top_p")
            with pytest.raises(openai.BadRequestError, match=r"does not take top_p, and 0\.9 was asked for: leave it"):
                await asks(url, ASKED[0], top_p=0.9)
            world.engine.dialect.dropped.clear()
            return one

    one = asyncio.run(work())
    world.close()
    assert world.text.decode([0]) == "" and len(world.text._parts) == 1 and not world.engine._counted      # forgotten
    assert {k: server.bodies[-1][k] for k in ("temperature", "top_p")} == {"temperature": 0.5, "top_p": 0.9}
    assert one.choices[0].message.content


def test_a_slow_try_delays_its_own_answer_alone(faulty):
    """The third call waits until every other request was answered."""
    server, world = behind(faulty, concurrency=32)
    over = threading.Event()
    server.fault = lambda k: (lambda: asyncio.to_thread(over.wait, 60)) if k == 3 else None

    async def work():
        async with served(world, "best-of:n=4,scorer=steps") as (app, url):
            asking = [asyncio.ensure_future(asks(url, m, max_tokens=64)) for m in ASKED[:10]]
            while sum(one.done() for one in asking) < 9:
                await asyncio.sleep(0.005)
            assert app.admission.under_way > 0
            over.set()
            return await asyncio.gather(*asking)

    answers = asyncio.run(work())
    world.close()
    assert sums(a.usage for a in answers) == bill(world.meter) and len(answers) == 10


def test_a_search_runs_in_front_of_a_server_that_continues_texts_and_chat_is_refused_with_the_reason():
    """The server behind is this one, which takes a mark of steps as vLLM does."""
    back = weights()
    back.meter = back.engine.meter = Meter()
    back.problems = ()
    up, over = threading.Event(), threading.Event()
    there: list[str] = []

    async def behind_it():
        async with served(back) as (_, url):
            there.append(url)
            up.set()
            await asyncio.to_thread(over.wait)

    async def search(world):
        async with served(world) as (_, url):
            return await asyncio.gather(*(asks(url, m, "particles:n=2,scorer=steps") for m in ASKED[:2]),
                                        return_exceptions=True)

    serving = threading.Thread(target=lambda: asyncio.run(behind_it()))
    serving.start()
    up.wait()
    found = []
    try:
        for path in ("/completions", ""):
            world = endpoint.open_world(spec_of(f"openai:{there[0]}{path}#tiny-puzzles"), PROBLEMS, None, meter=Meter())
            found.append(asyncio.run(search(world)))
            world.close()
            if path:
                assert sums(a.usage for a in found[0]) == bill(world.meter)
                assert world.meter.of(ANSWERS).decode == back.meter.of(ANSWERS).decode - 1      # of its first request
    finally:
        over.set()
        serving.join()
    searched, refused = found
    assert all(a.choices[0].finish_reason == "stop" and a.usage.isocost["depth"] < 128 for a in searched)
    assert all("give the address of text completions" in str(e) for e in refused)


# access, and the command ----------------------------------------------------------------------------------------


def test_another_interface_needs_a_key_and_requests_without_it_are_refused(world):
    with pytest.raises(UserError, match="set ISOCOST_SERVE_KEY or give --key"):
        Access("0.0.0.0")
    assert "secret" not in repr(Access("0.0.0.0", 1, "secret"))

    async def work():
        async with served(world, key="secret") as (_, url):
            with pytest.raises(openai.AuthenticationError, match="missing or wrong"):
                await client(url).models.list()
            async with httpx2.AsyncClient() as there:
                page = await there.get(f"{url}/models", headers={"Origin": "http://evil"})
                health = await there.get(url.replace("/v1", "/health"))
            return page, health, (await client(url, key="secret").models.list()).data

    page, health, models = asyncio.run(work())
    assert page.status_code == 403 and health.json()["status"] == "ok"
    assert [m.id for m in models] == ["tiny-puzzles"]


class Client:
    """An observer whose `work(url)` asks once the server listens, from a thread, and ends with a signal to this
    process."""

    def __init__(self, work):
        self.work, self.found = work, None

    def on(self, event):
        self.thread = threading.Thread(target=self.go, args=(event.url,))
        self.thread.start()

    def go(self, url):
        try:
            self.found = asyncio.run(self.work(url))
        except BaseException:
            os.kill(os.getpid(), signal.SIGTERM)
            raise


def test_a_signal_ends_the_server_after_what_is_under_way_and_the_journal_goes_on(tmp_path):
    """Each request gets an answer, or an error that says that the server closes."""
    puzzled = Answerer.of("tiny-puzzles", {"data": "puzzles:count=60"}, ["data"])
    assert puzzled.known and puzzled.setting.lengths.max_tokens == 128

    async def work(url):
        there = client(url, max_retries=0)
        first = await there.chat.completions.create(model="", messages=ASKED[0])
        waits = [asyncio.ensure_future(there.chat.completions.create(model="", messages=m)) for m in ASKED[:8]]
        async with httpx2.AsyncClient() as health:
            while not (await health.get(url.replace("/v1", "/health"))).json()["tokens_under_way"]:
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        answers = await asyncio.gather(*waits, return_exceptions=True)
        await OPEN.pop().close()
        return [first, *answers]

    found = []
    for _ in range(2):
        asking = Client(work)
        ended = serve(puzzled, SEARCH, access=Access(port=0), out=tmp_path, observer=asking)
        asking.thread.join()
        answers = [a for a in asking.found if not isinstance(a, Exception)]
        assert {a.code for a in asking.found if isinstance(a, Exception)} <= {"closing"} and len(answers) > 1
        assert ended.requests["answered"] == len(answers)
        assert sums(a.usage for a in answers) == (ended.cost["decode"], ended.cost["prefill"])
        found += answers
    lines = [json.loads(x) for x in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len({x["request"] for x in lines}) == len(lines) == len(found)
    assert sorted(x["answers"][0]["text"] for x in lines) == sorted(a.choices[0].message.content for a in found)
