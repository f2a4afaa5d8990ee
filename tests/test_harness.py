"""Harnesses that drive: the server, its sessions, exact tokens, faults, the contract, and runs."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from isocost.envs import gateway_protocol as protocol
from isocost.envs.harness.driven import Driven, Seat, problem_of
from isocost.envs.harness.gateway import Gateway, RolloutSession
from isocost.envs.harness.run import HarnessLoop
from isocost.envs.opening import open_environment
from isocost.errors import UserError
from isocost.parts.play import sample
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.look.environments import check_environment
from isocost.steps.settings import setting_with
from isocost.types import Message, Place, Role, Rollout, Stop
from isocost.world import EnvironmentFault
from isocost.worlds.setting import open_setting

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_harness.py"

# A client of the standard library, and rooms as a harness; files of the tests begin with it.
CLIENT = '''
import http.client, json, os
from urllib.parse import urlsplit
from isocost.envs.tiny.rooms import Rooms, Walk, problems

model, max_turns, max_tokens = "tiny-agents", 12, 2
HOUSE = {p.id: p for p in problems(Rooms())}

def tasks():
    return [{"id": p.id, "prompt": p.prompt[0].content} for p in HOUSE.values()]

def ask(base_url, messages, **more):
    url = urlsplit(base_url)
    there = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    try:
        there.request("POST", url.path + "/chat/completions", json.dumps({"messages": messages, **more}))
        answer = there.getresponse()
        body = json.loads(answer.read())
    finally:
        there.close()
    if answer.status != 200:
        raise RuntimeError(body["error"]["code"])
    return body["choices"][0]

async def moved(walk, said):
    return await walk.step(said, lambda: None)

def move(walk, said):
    try:
        moved(walk, said).send(None)
    except StopIteration as done:
        return done.value
'''
ROOMS = CLIENT + '''
def drive(task, base_url, model):
    walk, messages = Walk(HOUSE[task["id"]]), [{"role": "user", "content": task["prompt"]}]
    while True:
        said = ask(base_url, messages)
        shown = move(walk, said["message"]["content"])
        if shown.over or said["finish_reason"] == "length":
            return shown.reward
        messages += [said["message"], {"role": "tool", "content": shown.messages[0].content}]
'''


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return f"harness:{file}"


def played(env: str, problems: int = 4, attempts: int = 4, **how: Any) -> tuple[list[Rollout], Any]:
    """The rollouts of the first problems, and the world."""
    opened = open_setting(setting_with(env=env, **how))

    async def work() -> list[list[Rollout]]:
        return await asyncio.gather(*(
            sample(p, range(attempts), opened.world, opened.setting.measured, Place(3, 0, i))
            for i, p in enumerate(opened.sides.train[:problems])
        ))

    return [r for group in asyncio.run(work()) for r in group], opened.world


def same(one: Rollout, other: Rollout) -> bool:
    return len(one.segments) == len(other.segments) and all(
        np.array_equal(getattr(s, f), getattr(t, f)) for s, t in zip(one.segments, other.segments, strict=True)
        for f in ("tokens", "role", "logp", "turn", "version")
    ) and (one.stop, [t.reward for t in one.turns]) == (other.stop, [t.reward for t in other.turns])


@pytest.fixture(scope="module")
def rooms() -> tuple[list[Rollout], Any]:
    return played("rooms")


# exact tokens ------------------------------------------------------------------------------------------------------


def test_a_harness_of_rooms_has_the_tokens_rewards_and_costs_of_rooms(tmp_path: Path, rooms):
    driven, world = played(written(tmp_path, ROOMS))
    assert all(map(same, rooms[0], driven)) and sum(len(r.turns) > 2 for r in driven) > 5
    assert world.meter.of().counts() == rooms[1].meter.of().counts() and world.meter.of().reread > 0


def test_the_example_has_them_with_the_client_of_openai(rooms):
    pytest.importorskip("openai")
    driven, _ = played(f"harness:{EXAMPLE}")
    assert all(map(same, rooms[0], driven))


def test_what_the_policy_wrote_is_never_tokenised(tmp_path: Path):
    """A prompt is read once for each group; after that only what the harness adds."""
    opened = open_setting(setting_with(env=written(tmp_path, ROOMS)))
    text, read = opened.world.text, list[tuple[Message, ...]]()
    prompt, answer = text.prompt, text.answer
    text.prompt = lambda messages: (read.append(tuple(messages)), prompt(messages))[1]  # type: ignore[method-assign]
    text.answer = lambda messages: (read.append(tuple(messages)), answer(messages))[1]  # type: ignore[method-assign]
    made = asyncio.run(sample(opened.sides.train[0], range(4), opened.world, opened.setting.measured, Place(3, 0, 0)))
    assert [m.role for m in read[0]] == ["user"] and sum(len(r.turns) - 1 for r in made) > 3
    assert {m.role for messages in read for m in messages} == {"user", "tool"}


def test_a_rollout_continues_from_the_middle_of_a_harness_as_it_went_on(tmp_path: Path):
    opened = open_setting(setting_with(env=written(tmp_path, ROOMS)))
    problem, pace = opened.sides.train[0], opened.setting.measured

    async def work() -> None:
        for whole in await sample(problem, range(6), opened.world, pace, Place(3, 0, 0)):
            (text,) = whole.segments
            for turn in range(1, len(whole.turns)):
                start = whole.cut(int(np.flatnonzero(text.turn == turn)[0]))
                (again,) = await sample(problem, [whole.attempt], opened.world, pace, Place(3, 0, 0), start)
                assert same(again, whole)

    asyncio.run(work())


def test_an_edited_history_is_a_new_segment_and_credit_falls_on_each_turn_once(tmp_path: Path):
    """Before the third move the harness forgets the first: what it sends does not begin with what was read."""
    driven, _ = played(written(tmp_path, CLIENT + '''
def drive(task, base_url, model):
    walk, messages = Walk(HOUSE[task["id"]]), [{"role": "user", "content": task["prompt"]}]
    for turn in range(6):
        said = ask(base_url, messages)
        shown = move(walk, said["message"]["content"])
        if shown.over or said["finish_reason"] == "length":
            return shown.reward
        messages += [said["message"], {"role": "tool", "content": shown.messages[0].content}]
        if turn == 1:
            del messages[1:3]
    return 0.0
'''))
    long = [r for r in driven if len(r.turns) > 3]
    assert long
    for r in long:
        first, second = r.segments
        assert (first.turn.max(), second.first, second.turn[second.own].min()) == (1, 2, 2)
        known = second.tokens[: int(np.flatnonzero(second.own)[0])]
        assert set(second.role[: len(known)].tolist()) == {int(Role.PROMPT)}
        own = first.tokens[first.turn == 1]
        assert any(np.array_equal(known[i : i + len(own)], own) for i in range(len(known))), "its words are read"
        assert sorted({*first.turn[first.own].tolist(), *second.turn[second.own].tolist()}) == list(range(len(r.turns)))


def test_a_turn_that_ran_out_of_tokens_is_the_harness_to_end_or_to_go_on_with(tmp_path: Path):
    """`max_tokens` of a request limits its turn; its text goes on with the end token that the policy did not write."""
    driven, world = played(written(tmp_path, CLIENT + '''
def drive(task, base_url, model):
    messages = [{"role": "user", "content": task["prompt"]}]
    said = ask(base_url, messages, max_tokens=1)
    assert said["finish_reason"] == "length", said
    ask(base_url, [*messages, said["message"], {"role": "user", "content": "A:B"}])
    return 1.0
'''), problems=1)
    for r in driven:
        (text,) = r.segments
        own = np.flatnonzero(text.turn == 0)
        assert len(own) == 1 and int(text.tokens[own[0] + 1]) in world.text.ends and text.role[own[0] + 1] == Role.SEEN
        assert [t.reward for t in r.turns] == [0.0, 1.0] and r.stop in (Stop.DONE, Stop.LENGTH)


def test_text_completions_go_on_with_the_same_words(tmp_path: Path):
    driven, world = played(written(tmp_path, CLIENT + '''
def text(base_url, prompt, **more):
    url = urlsplit(base_url)
    there = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    there.request("POST", url.path + "/completions", json.dumps({"prompt": prompt, **more}))
    body = json.loads(there.getresponse().read())
    there.close()
    return body["choices"][0]

def drive(task, base_url, model):
    one = text(base_url, task["prompt"], max_tokens=1)
    text(base_url, task["prompt"] + one["text"] + ":AB", max_tokens=1)
    return 1.0
'''), problems=1)
    for r in driven:
        (text,) = r.segments
        first = int(np.flatnonzero(text.turn == 0)[0])
        assert world.text.decode(text.tokens[first + 1 : first + 4].tolist()) == ":AB" and text.written == 2


def test_stop_strings_of_a_request_end_its_turn(tmp_path: Path):
    driven, _ = played(written(tmp_path, CLIENT + '''
def drive(task, base_url, model):
    said = ask(base_url, [{"role": "user", "content": task["prompt"]}], stop=list("ABCDEFGHIJKLMNOP"))
    assert (said["message"]["content"], said["finish_reason"]) == ("", "stop"), said
    return 1.0
'''), problems=1)
    assert [r.stop for r in driven] == [Stop.DONE] * 4 and all(r.segments[0].written == 1 for r in driven)


def test_log_probs_ids_and_usage_are_those_that_are_recorded(tmp_path: Path):
    driven, _ = played(written(tmp_path, CLIENT + '''
def drive(task, base_url, model):
    url = urlsplit(base_url)
    messages, kept = [{"role": "user", "content": task["prompt"]}], []
    there = http.client.HTTPConnection(url.hostname, url.port, timeout=30)      # one connection for all requests
    for turn in range(2):
        body = {"messages": messages, "logprobs": True, "return_token_ids": True}
        there.request("POST", url.path + "/chat/completions", json.dumps(body))
        kept.append(json.loads(there.getresponse().read()))
        messages += [kept[-1]["choices"][0]["message"], {"role": "user", "content": "A:B"}]
    there.close()
    with open(__file__ + ".jsonl", "a") as file:
        file.write(json.dumps(kept) + "\\n")
    return 1.0
'''), problems=1)
    pairs = map(json.loads, (tmp_path / "mine.py.jsonl").read_text().splitlines())
    said = {tuple(x["choices"][0]["token_ids"] + y["choices"][0]["token_ids"]): (x, y) for x, y in pairs}
    for r in driven:
        (text,) = r.segments
        for turn, body in enumerate(said[tuple(text.tokens[text.own].tolist())]):
            own = np.flatnonzero(text.turn == turn)
            (choice,), used = body["choices"], body["usage"]
            each = choice["logprobs"]["content"]
            assert choice["token_ids"] == text.tokens[own].tolist()
            assert body["prompt_token_ids"] == text.tokens[: own[0]].tolist()
            assert [x["logprob"] for x in each] == text.logp[own].tolist()
            assert "".join(x["token"] for x in each) == choice["message"]["content"]
            assert (used["prompt_tokens"], used["completion_tokens"]) == (int(own[0]), len(own))
            before = int(np.flatnonzero(text.turn == 0)[-1]) + 1 if turn else 0
            assert used["prompt_tokens_details"]["cached_tokens"] == before
            assert body["isocost"]["weight_version"] == 0


# the server --------------------------------------------------------------------------------------------------------


def request(url: str, path: str, body: Any = None, method: str = "POST", **headers: str) -> tuple[int, Any]:
    at = urlsplit(url)
    there = http.client.HTTPConnection(at.hostname or "", at.port, timeout=10)
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body)
    there.request(method, at.path + path, raw, headers)
    answer = there.getresponse()
    said = answer.read()
    there.close()
    return answer.status, said if answer.getheader("Content-Type") == "text/event-stream" else json.loads(said)


def driven(run: Any, said: list[str], seconds: float = 5.0) -> list[Any]:
    """What is shown by a harness that is a coroutine with its seat, or a function in a thread."""
    async def work() -> list[Any]:
        async def thread(seat: Seat) -> Any:
            return await asyncio.to_thread(run, seat)

        env = Driven(problem_of({"prompt": "go"}, 0, "t"), run if asyncio.iscoroutinefunction(run) else thread, seconds)
        try:
            shown = [await env.open()]
            for turn, text in enumerate(said):
                shown.append(await env.step(text, lambda turn=turn: np.random.default_rng(turn)))
                if shown[-1].over:
                    break
            return shown
        finally:
            await env.close()

    return asyncio.run(work())


USER = {"role": "user", "content": "go"}


@pytest.mark.parametrize(("body", "says", "code"), [
    ([], "must be a JSON object", "invalid_type"),
    ({"messages": [USER], "stream_options": "x"}, "stream_options must be an object", "invalid_type"),
    ({"messages": [{**USER, "tool_calls": 3}]}, "tool_calls must be a list", "invalid_type"),
    ({}, "at least one message", "invalid_value"),
    ({"messages": [{"role": "cook", "content": ""}]}, "must have the role", "invalid_value"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "reads text alone", "unsupported_value"),
    ({"messages": [USER], "n": 2}, "n must be 1, got 2: a session is one rollout", "unsupported_value"),
    ({"messages": [USER], "response_format": {"type": "json_object"}}, "plain text", "unsupported_value"),
    ({"messages": [USER], "tool_choice": "required"}, "the policy decides", "unsupported_value"),
    ({"messages": [USER], "tools": [{"type": "code"}]}, "functions with a name", "invalid_value"),
    ({"messages": [USER], "max_tokens": 0}, "at least 1, got 0", "invalid_value"),
    ({"messages": [USER], "stop": [3]}, "stop must be", "invalid_value"),
    ({"messages": [USER], "top_logprobs": 2}, "top_logprobs is not supported", "unsupported_parameter"),
])
def test_what_cannot_be_done_is_an_error_in_the_form_of_openai(body: Any, says: str, code: str):
    def harness(seat: Seat) -> float:
        status, found = request(seat.base_url, "/chat/completions", body)
        assert status == 400 and says in found["error"]["message"] and found["error"]["code"] == code, found
        assert found["error"]["type"] == "invalid_request_error"
        request(seat.base_url, "/chat/completions", {"messages": [USER]})
        return 1.0

    assert driven(harness, ["done"])[-1].reward == 1.0


def test_addresses_keys_models_and_methods():
    def harness(seat: Seat) -> float:
        root = seat.base_url.rpartition("/s/")[0]
        key = {"Authorization": f"Bearer {seat.key}"}
        assert request(f"{root}/v1", "/models", method="GET", **key)[1]["data"][0]["id"] == seat.model
        assert request(seat.base_url, "/models", method="GET")[0] == 200
        for url, path, method, status, code in (
            (f"{root}/v1", "/models", "GET", 404, "session_ended"), (f"{root}/s/no/v1", "/models", "GET", 404,
             "session_ended"), (seat.base_url, "/embeddings", "POST", 404, "unknown_url"), (root, "/health", "GET", 404,
             "unknown_url"), (seat.base_url, "/chat/completions", "GET", 405, "method_not_allowed"),
        ):
            found = request(url, path, method=method)
            assert (found[0], found[1]["error"]["code"]) == (status, code), path
        assert request(seat.base_url, "/chat/completions", b"{")[1]["error"]["code"] == "invalid_json"
        chunked = [json.dumps({"messages": [USER]}).encode()]
        at = urlsplit(root)
        there = http.client.HTTPConnection(at.hostname or "", at.port, timeout=10)
        there.request("POST", "/v1/chat/completions?x=1", iter(chunked), key, encode_chunked=True)
        body = json.loads(there.getresponse().read())
        there.close()
        return float(body["choices"][0]["message"]["content"])

    assert driven(harness, ["0.5"])[-1].reward == 0.5


def test_tools_are_described_and_calls_are_read():
    tool = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
        "type": "object", "properties": {"x": {"type": "integer"}}}}}
    said = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"y": 1, "x": 2}}\n</tool_call>'

    def harness(seat: Seat) -> float:
        messages = [{"role": "developer", "content": "Rules."}, USER]
        first = request(seat.base_url, "/chat/completions", {"messages": messages, "tools": [tool]})[1]["choices"][0]
        (call,) = first["message"]["tool_calls"]
        assert first["finish_reason"] == "tool_calls" and first["message"]["content"] == "I add."
        assert (call["type"], call["function"]) == ("function", {"name": "add", "arguments": '{"x": 2, "y": 1}'})
        back = {**first["message"], "tool_calls": [{**call, "function": {"name": "add", "arguments": '{"y":1,"x":2}'}}]}
        messages += [back, {"role": "tool", "tool_call_id": call["id"], "content": "3"}]
        second = request(seat.base_url, "/chat/completions", {"messages": messages, "tools": [tool]})[1]["choices"][0]
        assert second["finish_reason"] == "stop" and second["message"]["content"] == "<tool_call>{"
        request(seat.base_url, "/chat/completions", {"messages": messages})
        return 1.0

    opened, second, third, last = driven(harness, [said, "<tool_call>{", "3"])
    system, user = opened.messages
    assert system.role == "system" and system.content.startswith("Rules.\n\n# Tools") and '"Adds."' in system.content
    assert user == Message("user", "go") and last.reward == 1.0
    assert second.messages == (Message("tool", "3"),) and not second.whole, "the history goes on"
    assert third.whole and third.messages[0] == Message("system", "Rules."), "without tools it is another text"
    assert third.messages[2].content == 'I add.\n<tool_call>\n{"name": "add", "arguments": {"x": 2, "y": 1}}\n' \
                                        '</tool_call>'


def test_streams():
    def harness(seat: Seat) -> float:
        body = {"messages": [USER], "stream": True, "stream_options": {"include_usage": True}}
        raw = request(seat.base_url, "/chat/completions", body)[1].decode().strip().split("\n\n")
        assert raw[-1] == "data: [DONE]"
        first, last, used = (json.loads(x.removeprefix("data: ")) for x in raw[:-1])
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": "0.25"}
        assert last["choices"][0]["finish_reason"] == "stop" and used["usage"]["completion_tokens"] == 0
        return float(first["choices"][0]["delta"]["content"])

    assert driven(harness, ["0.25"])[-1].reward == 0.25


def test_the_client_of_openai_reads_all_of_it():
    openai = pytest.importorskip("openai")

    def harness(seat: Seat) -> float:
        with openai.OpenAI(base_url=seat.base_url, api_key="x") as client:
            assert [m.id for m in client.models.list()] == [seat.model]
            stream = client.chat.completions.create(model=seat.model, messages=[USER], stream=True)
            assert "".join(c.choices[0].delta.content or "" for c in stream) == "one"
            assert client.completions.create(model=seat.model, prompt="go", logprobs=1).choices[0].text == "two"
            with pytest.raises(openai.BadRequestError, match="n must be 1") as why:
                client.chat.completions.create(model=seat.model, messages=[USER], n=3)
            assert (why.value.code, why.value.param) == ("unsupported_value", "n")
        return 1.0

    assert driven(harness, ["one", "two"])[-1].reward == 1.0


def test_a_reply_that_nobody_waited_for_is_given_once_even_before_its_own_connection_has_ended():
    """The same request comes between the policy's turn and the end of the connection that was lost, which notes it."""
    asked, reply = protocol.CompletionRequest(()), protocol.Reply("one", (), "stop", 0, 0)

    async def run() -> tuple[protocol.Reply, int]:
        session, lost = RolloutSession("s", ""), [False]
        first = asyncio.create_task(session.ask(asked, lambda: lost[0]))
        request = await session.next()
        lost[0] = True
        session.answer(request, reply)
        again = await session.ask(asked, lambda: False)
        session.miss(asked, await first)
        third = asyncio.create_task(session.ask(asked, lambda: False))      # is another turn
        await asyncio.sleep(0)
        third.cancel()
        return again, session.requests.qsize()

    assert asyncio.run(asyncio.wait_for(run(), 10)) == (reply, 1)


def test_a_client_that_went_away_is_given_its_reply_when_it_asks_again():
    """The policy writes one turn for both requests."""
    def harness(seat: Seat) -> str:
        at = urlsplit(seat.base_url)
        body = {"messages": [USER]}
        there = http.client.HTTPConnection(at.hostname or "", at.port, timeout=10)
        there.connect()
        if hasattr(socket, "TCP_CORK"):     # the end of the connection arrives with the request, before any reply
            there.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        there.request("POST", f"{at.path}/chat/completions", json.dumps(body))
        there.close()
        said = request(seat.base_url, "/chat/completions", body)[1]["choices"][0]["message"]
        again = request(seat.base_url, "/chat/completions", {"messages": [USER, said, USER]})[1]["choices"][0]
        return {"reward": 0.5 if (said["content"], again["message"]["content"]) == ("one", "two") else 0.0}

    async def slow(seat: Seat) -> Any:
        return await asyncio.to_thread(harness, seat)

    shown = driven(slow, ["one", "two"])
    assert len(shown) == 3 and shown[-1].reward == 0.5


def test_a_client_that_is_back_before_its_reply_is_written_is_given_it_once():
    """The connection may be known to be closed only after the second request came."""
    async def work() -> None:
        session, lost = RolloutSession("s", "http://s"), [False]
        asked = protocol.read_chat({"messages": [USER]})
        one = asyncio.ensure_future(session.ask(asked, lambda: lost[0]))
        two = asyncio.ensure_future(session.ask(asked, lambda: False))
        request = await session.next()
        await asyncio.sleep(0)
        lost[0] = True
        reply = protocol.Reply("said", (), "stop", 0, 0)
        session.answer(request, reply)
        assert await asyncio.wait_for(one, 5) is await asyncio.wait_for(two, 5) is reply
        session.miss(asked, reply)              # what the server does for the first connection
        later = asyncio.ensure_future(session.ask(asked, lambda: False))
        assert await asyncio.wait_for(session.next(), 5) is not request and not later.done()
        session.refuse(protocol.RequestError("over", "session_ended"))
        with pytest.raises(protocol.RequestError, match="over"):
            await later

    asyncio.run(work())


def test_random_numbers_of_a_turn_reach_the_harness():
    def harness(seat: Seat) -> float:
        found = [request(seat.base_url, "/chat/completions", {"messages": [USER]})[1]["isocost"]["luck"]
                 for _ in range(2)]
        return sum(found) / 2**60

    one, two = driven(harness, ["a", "b"]), driven(harness, ["a", "b"])
    want = sum(int(np.random.default_rng(t).integers(2**53)) for t in range(2)) / 2**60
    assert one[-1].reward == two[-1].reward == want


def test_the_server_stops_after_the_last_session_and_listens_on_this_machine_alone():
    async def work() -> None:
        gateway = Gateway.here()
        one, two = await gateway.open(), await gateway.open()
        assert one.base_url != two.base_url and urlsplit(one.base_url).hostname == "127.0.0.1"
        assert len(one.name) >= 24 and urlsplit(one.base_url).port == urlsplit(two.base_url).port
        await gateway.close(one)
        status, found = await asyncio.to_thread(request, one.base_url, "/models", None, "GET")
        assert (status, found["error"]["code"]) == (404, "session_ended")
        await gateway.close(two)
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(request, two.base_url, "/models", None, "GET")

    asyncio.run(work())


def test_no_reply_waits_for_the_client_to_acknowledge_its_head():
    """It would wait 40 ms: a body is written after its head."""
    async def work() -> None:
        gateway = Gateway.here()
        session = await gateway.open()
        there = http.client.HTTPConnection(urlsplit(session.base_url).netloc, timeout=10)
        await asyncio.to_thread(there.request, "GET", urlsplit(session.base_url).path + "/models")
        assert (await asyncio.to_thread(there.getresponse)).status == 200
        (connection,) = gateway._server.connections
        assert connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        there.close()
        await gateway.close(session)

    asyncio.run(work())


# faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "why"), [
    ("raise KeyError('x')", "the harness raised KeyError"),
    ("raise SystemExit(3)", "the harness raised RuntimeError"),
    ("return None", "the harness returned no reward"),
    ("return float('nan')", "the harness returned no reward"),
    ("return 'well done'", "the harness returned no reward"),
    ("import time; time.sleep(60)", "the harness made no request within 0.3 s"),
])
def test_what_a_harness_may_do_wrong_is_a_typed_fault(tmp_path: Path, body: str, why: str):
    """After one turn; the others of its group go on."""
    made, world = played(written(tmp_path, CLIENT + f'''
seconds = 0.3

def drive(task, base_url, model):
    said = ask(base_url, [{{"role": "user", "content": task["prompt"]}}])
    if said["message"]["content"] < "F":
        {body}
    return 1.0
'''), problems=2, attempts=8)
    wrong = [world.text.decode(r.segments[0].reply().tolist()) < "F" for r in made]
    assert 0 < sum(wrong) < len(made)
    for r, failed in zip(made, wrong, strict=True):
        if failed:
            assert r.stop is Stop.ERROR and str(r.turns[-1].fault) == f"environment: {why}"
        else:
            assert r.stop in (Stop.DONE, Stop.LENGTH) and r.turns[-1].reward == 1.0
    assert world.meter.of().rollouts == len(made), "all are charged"


@pytest.mark.parametrize(("body", "why"), [
    ("sys.exit(3)", "the harness raised RuntimeError"),
    ("raise KeyboardInterrupt", "the harness raised RuntimeError"),
    ("raise asyncio.CancelledError", "the harness raised CancelledError"),
    ("asyncio.current_task().cancel(); await asyncio.sleep(9)", "the harness raised CancelledError"),
])
def test_a_coroutine_that_ends_or_cancels_itself_ends_neither_the_run_nor_other_harnesses(
    tmp_path: Path, body: str, why: str
):
    """All 16 wait for their reply in threads of their own, since those of a group are answered together."""
    made, _ = played(written(tmp_path, CLIENT + f'''
import asyncio, sys
seconds = 10

async def drive(task, base_url, model):
    said = await asyncio.to_thread(ask, base_url, [{{"role": "user", "content": task["prompt"]}}])
    if said["message"]["content"] < "F":
        {body}
    await asyncio.sleep(0.05)
    return 1.0
'''), problems=2, attempts=8)
    faults = [str(r.turns[-1].fault or "") for r in made]
    assert set(faults) == {"", f"environment: {why}"}
    assert all(r.turns[-1].reward == (0.0 if fault else 1.0) for r, fault in zip(made, faults, strict=True))


def test_a_harness_without_a_request_has_failed(tmp_path: Path):
    made, world = played(written(tmp_path, CLIENT + "def drive(task, base_url, model): return 1.0"), problems=1)
    assert [r.stop for r in made] == [Stop.ERROR] * 4 and world.meter.of().rollouts == 4


def test_the_limit_of_turns_is_an_error_and_the_harness_may_still_return_a_reward(tmp_path: Path):
    made, _ = played(written(tmp_path, CLIENT + '''
def drive(task, base_url, model):
    messages = [{"role": "user", "content": task["prompt"]}]
    while True:
        try:
            said = ask(base_url, messages)["message"]
        except RuntimeError as error:
            if task["prompt"][1] < "H":
                raise
            return 0.75 if str(error) == "turn_limit" else 0.0
        messages += [said, {"role": "tool", "content": "A:B"}]
'''), problems=4, attempts=2, max_turns=3)
    for r in made:
        assert r.stop is Stop.TURNS and len(r.turns) == 3
        assert sum(t.reward for t in r.turns) == (0.0 if r.problem.answer or r.problem.text[1] < "H" else 0.75)
    assert {t.reward for r in made for t in r.turns} == {0.0, 0.75}


def test_a_coroutine_that_blocks_stops_neither_the_run_nor_later_harnesses(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("isocost.envs.harness.run.ANSWER", 0.2)
    made, _ = played(written(tmp_path, CLIENT + '''
import time

async def drive(task, base_url, model):
    said = ask(base_url, [{"role": "user", "content": task["prompt"]}])     # it should await
    return 1.0
'''), problems=1, attempts=2)
    assert [sum(t.reward for t in r.turns) for r in made] == [1.0, 1.0]


def test_harnesses_that_begin_slowly_one_after_the_other_share_one_loop(monkeypatch):
    """A client that is shared, such as OpenAI's, works in one loop only: late is not blocked."""
    monkeypatch.setattr("isocost.envs.harness.run.ANSWER", 1.0)
    loops, home = set(), HarnessLoop()

    async def slow():
        time.sleep(0.03)
        loops.add(asyncio.get_running_loop())

    async def together():
        await asyncio.gather(*(home.run(slow) for _ in range(50)))      # the last begins after ANSWER

    asyncio.run(together())
    assert len(loops) == 1


# commands ----------------------------------------------------------------------------------------------------------

AGENT = '''
import http.client, json, os, sys
from urllib.parse import urlsplit
task = json.loads(os.environ["ISOCOST_TASK"])
assert json.load(sys.stdin) == task
url = urlsplit(os.environ["OPENAI_BASE_URL"])
there = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
there.request("POST", "/v1/chat/completions", json.dumps({"messages": task["prompt"]}), key)
said = json.loads(there.getresponse().read())["choices"][0]["message"]["content"]
'''


@pytest.mark.parametrize(("end", "fault"), [
    ('print("working"); print(json.dumps({"reward": float(said == task["answer"])}))', None),
    ("print(0.5)", None),
    ("print('well done')", "the command printed no reward"),
    ("sys.exit(3)", "the command ended with status 3"),
    ("import subprocess, time; subprocess.Popen(['sleep', '60']); time.sleep(60)",
     "the harness made no request within 3 s"),
])
def test_a_command_is_a_harness(tmp_path: Path, end: str, fault: str | None):
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT + end)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f">{x} C:ADF", "answer": "D"}) + "\n" for x in "KLMNOP"))
    made, _ = played(f"cmd:{sys.executable} {agent} #seconds=3,turns=3,tokens=2", problems=1, attempts=2,
                     data=str(data), model="tiny-agents", held_out=2)
    for r in made:
        assert str(r.turns[-1].fault or "") == (f"environment: {fault}" if fault else "")
        if fault is None and "said" in end:
            assert r.turns[-1].reward == float(r.final == "D")
    assert not [x for x in os.listdir("/proc") if x.isdigit() and x != "self" and _runs(x, str(agent))]


def _runs(process: str, what: str) -> bool:
    try:
        return what in Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return False


def test_a_command_that_does_not_start_is_a_fault():
    async def work() -> None:
        env = open_environment("cmd:/no/such/agent").make(problem_of({"prompt": "x"}, 0, "t"))
        with pytest.raises(EnvironmentFault, match="does not start"):
            await env.open()
        await env.close()

    asyncio.run(work())


# files, contract, runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "says"), [
    ("x = 1", "has no function drive"), ("drive = 3", "has no function drive"),
    ("tasks = 3\ndef drive(*a): pass", "tasks must be a function"), ("seconds = 0\ndef drive(*a): pass", "above 0"),
    ("def drive(*a): pass\ndef tasks(): return [3]", "task 0 has the type int"),
    ("def drive(*a): pass\ndef tasks(): return 1 / 0", "the tasks of .* cannot be listed: ZeroDivisionError"),
    ("def drive(*a): pass\ndef tasks(): return [{'x': {1}}]", "not plain data"),
])
def test_a_file_that_is_no_harness_is_an_error(tmp_path: Path, text: str, says: str):
    with pytest.raises(UserError, match=says):
        list((open_environment(written(tmp_path, text)).problems or list)())


@pytest.mark.parametrize(("spec", "says"), [
    ("harness:", "names no file"), ("harness:none.py", "there is no file none.py"), ("cmd:", "names no command"),
    ("cmd:agent #wide=3", "no option 'wide'"), ("cmd:agent #seconds=x", "above 0"),
])
def test_a_spec_of_a_harness_that_cannot_be_opened_is_an_error(spec: str, says: str):
    with pytest.raises(UserError, match=says):
        open_environment(spec)


@pytest.mark.parametrize("module", ["starlette", "uvicorn"])
def test_without_the_servers_packages_a_harness_names_the_extra(module: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"harness calls needs {module}, of the extra \[serve\]: pip install {module}"):
        open_environment("cmd:agent")


def test_the_contract_holds_for_rooms_and_names_what_a_harness_breaks(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("isocost.envs.harness.run.ANSWER", 0.2)
    good = check_environment(written(tmp_path, ROOMS).removeprefix("harness:"))
    assert not good.broken and any("harness ends" in f.promise for f in good.findings)
    bad = check_environment(written(tmp_path, CLIENT + '''
import time
count = 0

async def drive(task, base_url, model):
    global count
    count += 1
    messages = [{"role": "user", "content": task["prompt"]}]
    for _ in range(3):
        said = ask(base_url, messages)["message"]
        if said["content"] == "":
            raise ValueError("empty")
        messages += [said, {"role": "user", "content": f"{count}"}]
    return 2.0
''', "bad.py"))
    broken = {f.promise.split(";")[0].split(",")[0]: f.why for f in bad.broken}
    shared = broken["Episodes share no state: one that is played beside others is as it is alone."]
    assert "messages differs" in shared and "They change `count`, which all episodes share" in shared
    assert shared.endswith("in variables of `drive`"), "the first mistake, reported once"
    assert "paid 2" in broken["Rewards are finite"]
    faults = broken["Any text is answered: a bad turn is a typed fault"]
    assert "raised ValueError: empty (bad.py, line" in faults and "answer it in the next request" in faults
    assert "blocked the event loop" in broken["No call blocks the event loop"]


def test_a_run_on_a_harness_is_the_run_on_its_rooms_and_failed_rollouts_are_lost(tmp_path: Path):
    """The same updates, and one fate for each rollout where some harnesses raise."""
    broken = ROOMS.replace("return shown.reward", 'assert task["id"][-1] not in "AEIM"; return shown.reward')
    ends = {}
    for name, env in (("rooms", "rooms"), ("harness", written(tmp_path, ROOMS)),
                      ("broken", written(tmp_path, broken, "broken.py"))):
        setting = setting_with(env=env, held_out=0.1, samples=1).but(evaluated=4)
        job = Job(name, setting, "grpo", 1, {"env-steps": 450.0}, Arm(n=4, B=4, lr=1e-3), save_every=2)
        ends[name] = asyncio.run(run(job, tmp_path / name))
        assert sum(ends[name]["fates"].values()) == sum(b["rollouts"] for b in ends[name]["bill"].values())
    one, two = (
        [{k: v for k, v in x.items() if "second" not in k} for x in read_lines(tmp_path / name / "journal.jsonl")]
        for name in ("rooms", "harness")
    )
    assert [replace_keys(x) for x in one] == [replace_keys(x) for x in two] and len(one) > 8
    assert ends["rooms"]["fates"] == ends["harness"]["fates"] and ends["broken"]["fates"]["lost"] > 0
    assert read_json(tmp_path / "harness" / "run.json")["problems"]["environment_source"]


def replace_keys(line: dict[str, Any]) -> dict[str, Any]:
    """A journal's line without the faults of turns, which a harness does not state."""
    return {k: v for k, v in line.items() if k not in ("faults", "keys")}


def test_the_protocol_compares_histories_as_the_policy_reads_them():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
    one = protocol.read_chat({"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]})
    two = protocol.read_chat({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "g"}, {"type": "text", "text": "o"}], "name": "x"},
        {"role": "assistant", "content": "", "tool_calls": [
            {**call, "id": "b", "function": {"name": "f", "arguments": '{"a":2,"b":1}'}}], "refusal": None}],
        "temperature": 0.3, "logprobs": True})
    assert one == two and replace(one, tools="x") != two
