"""A model behind an OpenAI-compatible server, over a real socket, with the faults that servers have."""

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from email.utils import formatdate
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest
from click.testing import CliRunner

from examples.openai_server import Background, Server, error
from isocost import meter as meters
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.planner.token_price import TokenPrice
from isocost.runs.files import read_json
from isocost.steps.look.evaluate import evaluate_model
from isocost.steps.settings import setting_with
from isocost.steps.training.pass_rates import pass_rates
from isocost.types import Cost, Message, Place, Role, Sampling, Segment, Stop
from isocost.worlds import endpoint, http
from isocost.worlds.endpoint import IN_A_ROW, WordTable
from isocost.worlds.http import Client, RequestLimits, Unanswered, retry_after
from isocost.worlds.protocol import CHAT, TEXT, Completion, Dialect, MalformedAnswer
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.spec import Spec, spec_of

DATA = "sums:base=easy,count=60"
QUICK = RequestLimits(concurrency=4, first=0.001, longest=0.01, timeout=60)
PROBLEMS = 4


class Faulty(Server):
    """`fault(number of the request, body)` may answer in place of the model; None is no fault, "cut" no answer."""

    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self, fault=lambda k, body: None, takes=None):
        self.fault, self.takes = fault, takes
        self.asked, self.times, self.headers = [], [], []

    async def answer(self, method, path, body):
        if method == "POST":
            self.asked.append(body)
            self.times.append(time.monotonic())
            if self.takes and (unknown := set(body) - self.takes):
                return 400, {}, error(f"Unrecognized request argument supplied: {sorted(unknown)[0]}")
            fault = self.fault(len(self.asked), body)
            if fault == "cut":
                return None
            if isinstance(fault, float):
                await asyncio.sleep(fault)
            elif fault is not None:
                return fault
        return await super().answer(method, path, body)


@pytest.fixture(scope="module")
def served():
    server = Faulty()
    with Background(server) as url:
        yield server, url


@pytest.fixture
def server(served):
    served[0].reset()
    return served[0]


@pytest.fixture
def model(served):
    return f"openai:{served[1]}#tiny"


def profile(model, limits=QUICK, **kept):
    return asyncio.run(pass_rates(Setting.of(model=model, data=DATA), problems=PROBLEMS, limits=limits, **kept))


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def plain(served):
    """A profile without any fault, and the requests that it made."""
    served[0].reset()
    return profile(f"openai:{served[1]}#tiny"), list(served[0].asked)


def test_a_profile_is_of_the_model_behind_the_server(plain):
    """Rewards are those of the local model: its exact pass@1 of the same problems, within four standard errors."""
    found, asked = plain
    local = open_setting(Setting.of(data=DATA))
    by = {p.id: p for p in local.sides.train}
    exact = np.array(local.world.exact([by[i] for i in found["ids"]], Sampling()))
    deviation = np.sqrt((exact * (1 - exact)).sum() / 16) / PROBLEMS
    assert abs(found["mean"] - exact.mean()) < 4 * deviation
    assert len(asked) == 1 + 17 * PROBLEMS and found["exact"] is False and found["parameters"] is None
    assert found["server"]["sent"] == found["server"]["answered"] == 2 + 17 * PROBLEMS      # and its list of models
    local.close()


def test_a_request_carries_all_of_the_sampling(plain):
    """What it left out would be the server's default: llama.cpp's top-k is 40, vLLM's is the model's own."""
    seeds = [body["seed"] for body in plain[1][1:]]
    assert len(set(seeds)) == len(seeds)
    body = plain[1][1]
    assert {k: body[k] for k in ("temperature", "top_p", "top_k", "min_p", "max_tokens")} == {
        "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "max_tokens": 4}


def test_the_bill_is_what_the_server_counts(plain):
    found, _ = plain
    cost = Cost.of(found["cost"])
    assert cost.rollouts == 16 * PROBLEMS and cost.verify == 60 + 16 * PROBLEMS
    assert cost.decode == round(found["lengths"]["mean"] * 16 * PROBLEMS) + 1       # the first request wrote one


@pytest.mark.parametrize("fault", [
    (500, {}, error("out of memory")), (503, {}, error("loading")), "cut", (429, {"Retry-After": "0"}, error("slow")),
], ids=["500", "503", "cut", "429"])
def test_a_fault_that_passes_changes_no_completion(server, model, plain, fault):
    seen = Counter()

    def every_third(k, body):
        key = body["seed"], body["messages"][0]["content"]
        seen[key] += 1
        return fault if k > 1 and k % 3 == 0 and seen[key] < 4 else None

    server.reset(every_third)
    found = profile(model)
    for key in ("right", "lengths", "examples", "dead"):
        assert found[key] == plain[0][key], key
    again, cost = found["server"], Cost.of(found["cost"])
    name = "connection" if fault == "cut" else str(fault[0])
    # a connection that the server cut before it answered may be tried again at once, and is then not counted
    assert again["repeated"].get(name, 0) > 0 or fault == "cut"
    assert again["failed"] == 0 and cost.counts() == Cost.of(plain[0]["cost"]).counts()


def test_a_server_that_answers_the_test_of_it_badly_is_not_down(server, model, plain):
    """After eight requests in a row without an answer, one that was answered before is sent again."""
    bad = {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    server.reset(lambda k, body: None if k == 1 else (200, {}, bad) if body["max_tokens"] == 1 else
                 (500, {}, error("boom")) if k <= 2 * IN_A_ROW else None)
    found = profile(model, RequestLimits(concurrency=1, first=0.001, longest=0.01, retries=0))
    assert found["unscored"] > 0 and found["cost"]["prefill"] > 0 and found["right"]


def test_no_request_is_sent_before_a_rate_limit_ends(server, model):
    """The 429 of one request holds back all of them."""
    server.reset(lambda k, body: (429, {"Retry-After": "1"}, error("rate limit")) if k == 10 else None)
    found = profile(model)
    refused = server.times[9]
    later = [t - refused for t in server.times[10:]]
    assert found["server"]["repeated"] == {"429": 1} and found["server"]["failed"] == 0
    assert not [t for t in later if 0.3 < t < 0.99]      # those in flight had been sent before


def test_a_slow_answer_is_asked_again_after_the_timeout_and_its_cost_is_not_known(server, model, plain):
    server.reset(lambda k, body: 30.0 if k == 7 else None)
    found = profile(model, RequestLimits(concurrency=4, first=0.001, longest=0.01, timeout=5))
    assert found["right"] == plain[0]["right"]
    assert found["server"]["repeated"]["timeout"] >= 1 and found["server"]["unknown"] >= 1


def test_a_request_that_fails_for_good_is_billed_and_has_no_score(server, model, plain):
    """Its problem, the last one, is in no table; the others are as without it. The server is tested after each eight,
    which tells a prompt that it cannot answer from a server that is down."""
    hard = plain[1][-1]["messages"][0]["content"]
    server.reset(lambda k, body: (500, {}, error("boom")) if k > 1 and body["messages"][0]["content"] == hard
                 and body["max_tokens"] > 1 else None)
    limits = RequestLimits(concurrency=1, first=0.001, longest=0.01, retries=1)
    found = profile(model, limits)
    failed = found["server"]["failed"]
    assert failed == found["unscored"] == 16 and len(found["ids"]) == PROBLEMS - 1
    assert Cost.of(found["cost"]).rollouts == Cost.of(plain[0]["cost"]).rollouts     # a test of the server is none
    assert len([b for b in server.asked if b["max_tokens"] == 1]) == 1 + 16 // IN_A_ROW + PROBLEMS
    assert found["server"]["repeated"] == {"500": failed} and found["server"]["examples"] == {"500": "500: boom"}
    kept = [plain[0]["right"][plain[0]["ids"].index(i)] for i in found["ids"]]
    assert found["right"] == kept


def test_a_refused_prompt_is_a_rollout_without_a_score(server, model, plain):
    long = plain[1][5]["messages"][0]["content"]
    server.reset(lambda k, body: (400, {}, error("the context is 128 tokens"))
                 if k > 1 and body["messages"][0]["content"] == long else None)
    found = profile(model)
    assert found["unscored"] == 16 and found["server"]["repeated"] == {} and len(found["ids"]) == PROBLEMS - 1


def test_a_server_that_goes_away_stops_the_profile_and_the_next_one_continues(server, model, plain, tmp_path):
    out = ("--out", tmp_path / "s", "--data", DATA, "--problems", PROBLEMS, "--retries", 0, "--concurrency", 1)
    server.reset(lambda k, body: (500, {}, error("down")) if k > 40 else None)
    text = said("profile", "--model", model, *out, code=2)
    assert "left 8 requests in a row without an answer" in text and "run the same command again to continue" in text
    lines = [json.loads(x) for x in (tmp_path / "s" / "profile.jsonl").read_text().splitlines()]
    assert sum(len(x["rewards"]) for x in lines) >= 16
    server.reset()
    said("profile", "--model", model, *out)
    found = read_json(tmp_path / "s" / "profile.json")
    assert found["right"] == plain[0]["right"] and found["lost"]["rollouts"] > 0
    assert len(server.asked) < 1 + 16 * PROBLEMS


def test_parameters_that_a_server_does_not_take_are_left_out(server, model):
    """One after the other, as their messages name them; what changes the distribution is an error."""
    server.reset(takes={"model", "messages", "max_tokens", "temperature", "top_p", "presence_penalty",
                        "frequency_penalty"})
    found = profile(model)
    assert sorted(found["server"]["dropped"]) == ["min_p", "repeat_penalty", "repetition_penalty", "seed", "top_k"]
    with pytest.raises(UserError, match=r"does not take top_k = 5 .*with --top-k"):
        open_setting(Setting.of(model=model, data=DATA, top_k=5), learn=False)


def test_what_a_refusal_names_is_changed():
    asked = Dialect("m", Sampling())
    body = asked.body("x", 4, 1)
    assert asked.adapt("top_k must be at least 0", body) and asked.body("x", 4, 1)["top_k"] == 0
    assert asked.adapt("top_k is not permitted", asked.body("x", 4, 1)) and "top_k" not in asked.body("x", 4, 1)
    assert asked.adapt("Use max_completion_tokens instead of max_tokens", body)
    assert asked.body("x", 9, 1)["max_completion_tokens"] == 9 and "max_tokens" not in asked.body("x", 9, 1)
    assert not Dialect("m", Sampling()).adapt("no such thing", body, named=True)
    assert Dialect("m", Sampling()).adapt("extra inputs are not permitted", body)
    with pytest.raises(UserError, match=r"temperature = 0.5 .*--temperature"):
        Dialect("m", Sampling(0.5)).adapt("temperature: only 1 is supported", body | {"temperature": 0.5})


def stepwise(server, url, fault):
    """What two attempts at one step say, and the requests for them, of a server that answers as `fault` says."""
    local = open_setting(Setting.of(data=DATA)).world
    world = endpoint.open_world(Spec("openai", "tiny", url + TEXT), local.problems, local.grade, limits=QUICK)
    server.reset(fault)
    start = Segment.given(world.text.prompt(local.problems[0].prompt), Role.PROMPT)
    try:
        said = asyncio.run(world.engine.generate(
            start, [0, 1], place=Place(0, 0, 0), turn=0, max_tokens=9, stop=("!",), ends=world.text.encode(";")))
        return [(world.text.decode(s.tokens.tolist()), len(s.tokens), s.stop) for s in said], server.asked
    finally:
        world.close()


def completion(text, **more):
    usage = {"prompt_tokens": 5, "completion_tokens": 4}
    return 200, {}, {"choices": [{"text": text, "finish_reason": "stop", **more}], "usage": usage}


def test_a_step_ends_at_a_string_that_the_server_keeps_in_its_answer(server, served):
    texts = iter(["1+2=3;", "3"])
    said, asked = stepwise(server, served[1], lambda k, body: completion(next(texts)))
    assert sorted(said) == [("1+2=3;", 4, Stop.STEP), ("3", 4, Stop.DONE)]
    assert all(b["stop"] == ["!", ";"] and b["include_stop_str_in_output"] is True for b in asked)


def test_a_step_ends_at_a_string_that_a_server_names_as_the_reason_or_is_refused_with_what_to_do(server, served):
    def without(**more):
        def fault(k, body):
            if "include_stop_str_in_output" in body:
                return 400, {}, error("Unrecognized request argument supplied: include_stop_str_in_output")
            return completion("1+2=3", **more)
        return fault

    said, asked = stepwise(server, served[1], without(stop_reason=";"))
    assert said == [("1+2=3;", 4, Stop.STEP)] * 2 and asked[-1]["stop"] == ["!", ";"]
    assert stepwise(server, served[1], without(stop_reason=None))[0] == [("1+2=3", 4, Stop.DONE)] * 2
    with pytest.raises(UserError, match=r"whether a text stopped at ';' or is over: .*best-of and vote"):
        stepwise(server, served[1], without())


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_log_probs_of_a_server_are_the_learner_s(server, served, path):
    """Where they were asked for; else they are NaN, and lengths are those of the usage counts."""
    local = open_setting(Setting.of(data=DATA)).world
    problems = local.problems[:3]
    spec = Spec("openai", "tiny", served[1] + path)
    for wanted in (True, False):
        world = endpoint.open_world(spec, problems, local.grade, limits=QUICK, logprobs=wanted)
        for slot, p in enumerate(problems):
            start = Segment.empty().read(world.text.prompt(p.prompt), Role.PROMPT)
            said = asyncio.run(world.engine.generate(start, range(2), place=Place(0, 0, slot, 2), turn=0, max_tokens=4))
            for one in said:
                words = world.text.decode(one.tokens.tolist())
                tokens = local.text.encode(words)
                assert len(one.tokens) == len(tokens) + (one.stop is Stop.DONE)
                if not wanted:
                    assert np.isnan(one.logp).all()
                elif one.stop is Stop.DONE:
                    read = local.text.prompt(p.prompt) if path == CHAT else local.text.encode(p.text)
                    exact = local.learner.sequence_logp([read], [tokens], Sampling())
                    assert float(one.logp.sum()) == pytest.approx(float(exact[0]), abs=1e-5)
        world.close()


def test_a_wave_that_is_halted_returns_what_it_has(server, served):
    server.reset(lambda k, body: 20.0 if k > 1 else None)
    local = open_setting(Setting.of(data=DATA)).world
    world = endpoint.open_world(Spec("openai", "tiny", served[1]), local.problems, local.grade, limits=QUICK)
    place = Place(0, 0, 0, 0)

    async def halted():
        start = Segment.empty().read(world.text.prompt(local.problems[0].prompt), Role.PROMPT)
        task = asyncio.ensure_future(world.engine.generate(start, range(2), place=place, turn=0, max_tokens=4))
        while len(server.asked) < 3:
            await asyncio.sleep(0.01)
        world.engine.halt(place)
        return await task, await world.engine.generate(start, [2], place=place, turn=0, max_tokens=4)

    with meters.begins(True):
        first, later = asyncio.run(halted())
    world.close()
    assert [s.stop for s in (*first, *later)] == [Stop.CANCELLED] * 3 and len(server.asked) == 3
    assert world.meter.of(meters.TRAIN).rollouts == 2


def test_shares_of_overlapping_requests_add_up_to_the_time_of_all(monkeypatch):
    """Two requests, one from 0 to 4 s and one from 1 to 3 s: 3 s and 1 s, and then one alone for 5 s.

    The clock is that of the client's module only: the server's thread needs the real one.
    """
    clock = iter([0.0, 1.0, 3.0, 4.0, 10.0, 15.0])
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    client = Client("http://localhost/v1")
    a, b = client._enter(), client._enter()
    assert client._leave(b) == pytest.approx(1.0) and client._leave(a) == pytest.approx(3.0)
    assert client._leave(client._enter()) == pytest.approx(5.0)


def test_retry_after_is_read_in_every_form():
    assert retry_after({"retry-after": "3"}) == 3.0 and retry_after({"retry-after-ms": "250"}) == 0.25
    assert retry_after({"retry-after": "soon"}) is None and retry_after({}) is None
    waits = [RequestLimits(first=1.0, longest=4.0).wait(k) for k in (1, 2, 3, 9) for _ in range(50)]
    assert all(0 <= w <= top for w, top in zip(waits, np.repeat([1, 2, 4, 4], 50), strict=True))


def test_a_date_to_retry_after_is_read_by_the_server_s_clock():
    """It may be years off this machine's; without a Date header nothing is known of it."""
    for now in (0, 2e9):
        after = {"retry-after": formatdate(now + 10, usegmt=True)}
        assert retry_after({**after, "date": formatdate(now, usegmt=True)}) == 10
        assert retry_after({**after, "date": formatdate(now + 60, usegmt=True)}) == 0
        assert retry_after(after) is None and retry_after({**after, "date": "today"}) is None


def test_an_hour_s_wait_and_an_empty_account_are_errors(server, model):
    server.reset(lambda k, body: (429, {"Retry-After": "3600"}, error("come back")) if k > 2 else None)
    with pytest.raises(UserError, match=r"asks to wait 3,600 s"):
        profile(model)
    spent = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    server.reset(lambda k, body: (429, {}, spent))
    with pytest.raises(UserError, match=r"429: You exceeded your quota; the account has no quota left"):
        profile(model)


def test_no_more_requests_than_allowed_are_in_flight(served):
    server, url = served
    flying, most, lock = 0, 0, threading.Lock()

    async def answer(method, path, body):
        nonlocal flying, most
        with lock:
            flying, most = flying + 1, max(most, flying + 1)
        await asyncio.sleep(0.01)
        with lock:
            flying -= 1
        return 200, {}, {}

    server.answer, own = answer, server.answer
    try:
        client = Client(url, limits=RequestLimits(concurrency=3))

        async def many():
            await asyncio.gather(*(client.post("/x", {}) for _ in range(12)))

        asyncio.run(many())
        client.close()
        slow = Client(url, limits=RequestLimits(concurrency=3, per_minute=1200))
        began = time.monotonic()

        async def spaced():
            await asyncio.gather(*(slow.post("/x", {}) for _ in range(5)))

        asyncio.run(spaced())
        slow.close()
    finally:
        server.answer = own
    assert most <= 3 and time.monotonic() - began >= 4 * 60 / 1200


def test_an_address_that_cannot_be_used_says_what_is_wrong(server, served, monkeypatch):
    monkeypatch.delenv("ISOCOST_API_KEY", raising=False)

    def opening(model):
        return open_setting(Setting.of(model=model, data=DATA), learn=False, limits=QUICK)

    with pytest.raises(UserError, match=r"no server answers at http://127.0.0.1:9/v1 .*start it"):
        opening("openai:http://127.0.0.1:9/v1#m")
    with pytest.raises(UserError, match=r"has no model 'other'; it has tiny"):
        opening(f"openai:{served[1]}#other")
    with pytest.raises(UserError, match="names no model"):
        opening("openai:http://127.0.0.1:9/v1")
    with pytest.raises(UserError, match="not the address of a server"):
        opening("openai:localhost:8000#m")
    with pytest.raises(UserError, match="may hold no user, password or query") as why:
        opening("openai:https://me:secret@host/v1#m")
    assert "secret" not in str(why.value)
    with pytest.raises(UserError, match=r"write vllm:URL#MODEL, such as vllm:http://localhost:8000#my-model"):
        spec_of("vllm:http://localhost:8000")
    assert str(spec_of("local:tiny")) == "tiny" and spec_of("a/folder").kind == "local"


def test_the_key_is_sent_and_stands_nowhere_else(server, model, monkeypatch, tmp_path, caplog):
    keys = []
    own = httpx2.AsyncHTTPTransport.handle_async_request

    def seen(self, request):
        keys.append(request.headers.get("Authorization"))
        return own(self, request)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", seen)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-another-host")
    monkeypatch.setenv("ISOCOST_API_KEY", "sk-very-secret")
    text = said("profile", "--model", model, "--data", DATA, "--problems", 2, "--out", tmp_path / "s")
    assert set(keys) == {"Bearer sk-very-secret"}
    files = [p.read_text() for p in (tmp_path / "s").rglob("*") if p.is_file()]
    assert files and not any("sk-" in x for x in (*files, text, caplog.text))
    monkeypatch.delenv("ISOCOST_API_KEY")
    keys.clear()
    profile(model)
    assert set(keys) == {None}      # the key of another host stays at home
    monkeypatch.setenv("ISOCOST_API_KEY", "sk-very-secret")
    with pytest.raises(UserError, match="is not encrypted"):
        open_setting(Setting.of(model="openai:http://example.org/v1#m", data=DATA), learn=False)


def test_requests_go_through_the_proxy_of_the_environment_and_past_it_to_a_server_in_no_proxy(served, monkeypatch):
    server, url = served
    paths = []

    async def answer(method, path, body):
        paths.append(path)
        return 200, {}, {}

    monkeypatch.setattr(server, "answer", answer)
    monkeypatch.setenv("HTTP_PROXY", url.removesuffix("/v1"))
    monkeypatch.delenv("REQUEST_METHOD", raising=False)
    for name in ("http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for base, skipped in (("http://model.invalid/v1", ""), (url, ""), (url, "127.0.0.1")):
        monkeypatch.setenv("NO_PROXY", skipped)
        client = Client(base)
        assert client.ask("GET", "/models") == {}
        client.close()
    assert paths == ["http://model.invalid/v1/models", f"{url}/models", "/v1/models"]
    monkeypatch.setenv("HTTP_PROXY", "nothing://proxy")
    with pytest.raises(UserError, match=r"proxy that the environment names cannot be used .*correct HTTP_PROXY"):
        Client("http://model.invalid/v1").ask("GET", "/models")


def test_without_its_http_package_an_endpoint_names_the_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UserError, match=r"behind a server needs httpx2, of the extra \[endpoint\]: pip install httpx2"):
        open_setting(Setting.of(model=model, data=DATA), learn=False)


def test_a_client_sends_from_every_event_loop_and_leaves_no_thread(served, monkeypatch):
    client = Client(served[1], limits=RequestLimits(concurrency=1))
    monkeypatch.setattr(served[0], "answer", lambda method, path, body: asyncio.sleep(0.01, (200, {}, {})))

    async def twice():
        return await asyncio.gather(client.post("/x", {}), client.post("/x", {}))

    for _ in range(2):
        assert client.ask("GET", "/x") == {} and len(asyncio.run(twice())) == 2
        client.close()
    assert client.tally.sent == client.tally.answered == 6
    assert not [t for t in threading.enumerate() if t.name == "isocost-http"]


def test_an_answer_is_read_up_to_a_size_and_its_cost_is_not_known(served, monkeypatch):
    monkeypatch.setattr(http, "LARGEST", 1000)
    monkeypatch.setattr(served[0], "answer", lambda method, path, body: asyncio.sleep(0, (200, {}, ["x" * body])))
    client = Client(served[1])
    assert client.ask("POST", "/x", 900) == ["x" * 900]
    with pytest.raises(Unanswered, match="an answer of more than 1,000 bytes"):
        client.ask("POST", "/x", 2000)
    client.close()
    assert (client.tally.answered, client.tally.unknown) == (1, 1)


def test_a_profile_says_what_it_cost_and_is_planned_for_another_trainer(server, model, tmp_path):
    s = tmp_path / "s"
    price = "10usd/M-input,20usd/M-output"
    text = said("profile", "--model", model, "--data", DATA, "--problems", PROBLEMS, "--out", s, "--price", price,
                "--parameters", "1.5B")
    found = read_json(s / "profile.json")
    cost = found["cost"]
    read, written = (cost[k] + found["measuring"][k] for k in ("prefill", "decode"))
    assert found["money"]["amount"] == pytest.approx((10 * read + 20 * written) / 1e6, abs=1e-6)
    assert "pass@k  k=2:" in text and "70 sent" in text and f"usd ({price})" in text
    assert found["parameters"] == 1.5e9
    plan = said("plan", s, "--size", "tiny")
    assert "the runs that `isocost plan" in plan and "pilot-n2-s0" in plan and "of memory a run" not in plan
    assert "cannot be counted: the time of training is not known" in said("plan", s, "--budget", "2h", code=2)
    assert "its server trains nothing" in said("pilot", s, code=2)
    direct = said("plan", s, "--budget", "200-rollouts")
    assert "the training is for a trainer of yours" in direct
    assert "learning_rate" in said("export", s, "--to", "trl")
    assert "is of a model behind a server" in said("train", "--plan", s, code=2)


@pytest.mark.parametrize("command", [
    ("quickstart",), ("train", "grpo", "--budget", "1k-rollouts"),
    ("compare", "grpo", "rloo", "--budget", "4k-rollouts"),
])
def test_what_needs_gradients_is_refused_before_anything_is_sent(server, model, command, tmp_path):
    text = said(*command, "--model", model, "--data", DATA, "--out", tmp_path / "x", code=2)
    assert "can only be sampled" in text and "no gradient" in text
    assert not server.asked and not (tmp_path / "x").exists()
    assert "can only be sampled" in said("doctor", model, code=2)


def test_a_dry_run_counts_what_can_be_counted(server, model, tmp_path):
    text = " ".join(said("profile", "--model", model, "--data", DATA, "--problems", PROBLEMS, "--out", tmp_path / "s",
                         "--dry-run", "--price", "1usd/M-tokens").split())
    assert "at most 256 tokens written, and the prompts" in text and "0.000256 usd" in text
    assert not (tmp_path / "s").exists() and len(server.asked) == 1


def test_a_model_is_evaluated_on_all_problems(server, model):
    """As a local model is, where it is computed exactly."""
    found = evaluate_model(Setting.of(model=model, data="sums:base=easy,count=12"), samples=8, limits=QUICK)
    exact = evaluate_model(Setting.of(data="sums:base=easy,count=12"))
    assert exact.samples == 0 and exact.problems == found.problems == 12 and found.samples == 8
    assert abs(found.right.value - exact.right.value) < 4 * 0.5 / np.sqrt(12 * 8)
    assert [x["k"] for x in found.pass_at] == [1, 2, 4, 8] and found.pass_at[0]["value"] == found.right.value
    text = said("eval", "--model", model, "--data", "sums:base=easy,count=12", "--samples", 2, "--max-tokens", 4)
    assert "12 problems, 2 completions each" in text and "requests: 26 sent" in text
    assert "name what to measure" in said("eval", code=2)
    assert "--temperature is for a model" in said("eval", "runs/x", "--temperature", 2, code=2)


def test_answers_that_are_not_of_the_protocol_are_named():
    read = Dialect("m", Sampling()).read
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    chat = {"message": {"content": "ab"}, "finish_reason": "stop"}
    assert read({"choices": [chat], "usage": usage}) == Completion("ab", Stop.DONE, 3, 2)
    assert read({"choices": [chat | {"finish_reason": "length"}], "usage": usage}).stop is Stop.LENGTH
    assert read({"choices": [chat | {"finish_reason": "content_filter"}], "usage": usage}).stop is None
    assert read({"choices": [{"text": "ab", "token_ids": [1, 2, 3]}]}).written == 3
    assert read({"choices": [{"message": {"content": None}}], "usage": usage}).text == ""
    for data, cost in (({"usage": usage}, (3, 2)), ({"choices": [chat]}, (0, 0)), ([], (0, 0)), (None, (0, 0))):
        with pytest.raises(MalformedAnswer) as why:
            read(data)
        assert why.value.usage == cost


def test_a_dialogue_is_sent_as_messages_and_a_begun_answer_as_text():
    text = WordTable()
    start = Segment.empty().read(text.prompt([Message("user", "q")]), Role.PROMPT)
    first = start.wrote(text.said(Completion("an answer", Stop.DONE, 1, 3)))
    assert len(first) == 4 and text.decode(first.reply().tolist()) == "an answer"
    whole = first.read(text.answer([Message("user", "more")]))
    assert text.spoken(whole, chat=True) == (Message("user", "q"), Message("assistant", "an answer"),
                                             Message("user", "more"))
    hinted = start.read(text.encode("It is "), Role.HINT)
    assert text.spoken(hinted, chat=False) == "qIt is "
    with pytest.raises(UserError, match=r"cannot continue the started answer 'It is '.*/completions#MODEL"):
        text.spoken(hinted, chat=True)


def test_prices_per_token():
    both = TokenPrice.parse("0.15usd/M-input, 0.60usd/M-output")
    assert both.of(Cost(prefill=2_000_000, decode=1_000_000)).data() == {
        "amount": 0.9, "currency": "usd", "price": "0.15usd/M-input, 0.60usd/M-output"}
    assert TokenPrice.parse("2eur/k-tokens").of(Cost(prefill=500, decode=500)).amount == pytest.approx(2.0)
    for wrong in ("0.15", "1usd/M-input", "1usd/M-input,1eur/M-output", "1usd/M-input,2usd/M-tokens", "1xyz/M-tokens"):
        with pytest.raises(UserError, match=r"expected a price per million tokens"):
            TokenPrice.parse(wrong)


TWICE = """
from isocost.types import Message, Problem, Shown
class Twice:
    max_turns, max_tokens = 2, 4
    @staticmethod
    def problems(): return [Problem(f'p{i}', (Message('user', f'{i}+{i}='),)) for i in range(10, 60)]
    def __init__(self, problem): self.problem, self.turn = problem, 0
    async def open(self): return Shown(self.problem.prompt)
    async def step(self, said, luck):
        self.turn += 1
        return Shown((Message('user', '11+11='),), self.turn == 2, float(self.turn == 2))
    def final(self): return ''
    async def close(self): pass
"""


@pytest.fixture
def twice(server, model, tmp_path):
    """Dialogues of two turns, of a model behind a server."""
    (tmp_path / "twice.py").write_text(TWICE)
    return setting_with(model=model, env=f"{tmp_path}/twice.py:Twice")


def test_a_server_that_counts_less_than_it_was_sent_has_read_no_more_than_that_again(twice, monkeypatch):
    read = Dialect.read
    monkeypatch.setattr(Dialect, "read", lambda self, data, *marks: replace(read(self, data, *marks), read=1))
    cost = asyncio.run(pass_rates(twice, problems=2, limits=QUICK))["cost"]
    assert cost["env_steps"] == 64 and cost["reread"] == 32 and cost["prefill"] >= 64


def test_a_dialogue_goes_on_over_a_server_and_what_it_counts_again_is_told_apart(twice):
    found = asyncio.run(pass_rates(twice, problems=2, limits=QUICK))
    cost, there = found["cost"], found["dialogues"]
    assert there["turns"]["mean"] == 2.0 and there["ends"] == {"success": 1.0} and cost["env_steps"] == 64
    assert 0 < cost["reread"] < cost["prefill"] and 0.3 < there["reread"] < 0.6, "the first turn, read again"
    one, two = found["by_limit"]
    assert two["written"] * 32 == cost["decode"] - 1, "one token was requested to check the server"
    assert 0 < one["written"] < two["written"]
    assert {x[k] for x in (one, two) for k in ("read", "reread")} == {0.0}, "only the server knows what it read"
