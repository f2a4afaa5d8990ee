"""What a model's server may answer: a lie about usage, the key of the request, a byte now and then, another model."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from isocost.cli.commands import main
from isocost.runs.files import read_json

KEY = "sk-SECRET/KEY\\4711"
MODEL = "good-model"
Answered = tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None]
USAGE = {"prompt_tokens": 3, "completion_tokens": 1}


class Hostile(ThreadingHTTPServer):
    """Answers as a server should, unless `lie(number of the completion)` gives something else."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.count = 0
        self.lie: Callable[[int], Answered | None] = lambda k: None
        self.models: Answered | None = None


class Handler(BaseHTTPRequestHandler):
    server: Hostile
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.give(self.server.models or (200, json.dumps({"data": [{"id": MODEL}]}).encode()))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.count += 1
        self.give(self.server.lie(self.server.count) or (200, completion()))

    def give(self, answer: Answered) -> None:
        with suppress(OSError):
            if callable(answer):
                self.close_connection = True
                answer(self)
                return
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

    def log_message(self, *_: object) -> None:
        pass


def completion(text: str = "7", usage: object = USAGE, model: str = MODEL, **more: Any) -> bytes:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **more}
    return json.dumps({"choices": [choice], "usage": usage, "model": model}).encode()


@pytest.fixture(scope="module")
def running() -> Iterator[Hostile]:
    with Hostile() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def server(running: Hostile) -> Hostile:
    running.count, running.lie, running.models = 0, lambda k: None, None
    return running


@pytest.fixture
def profile(server: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`isocost profile` of the server's model. The key is nowhere in what it prints and writes."""
    monkeypatch.setenv("ISOCOST_API_KEY", KEY)

    def run(*more: object) -> Result:
        words = ("profile", "--model", f"openai:http://127.0.0.1:{server.server_address[1]}/v1#{MODEL}", "--data",
                 "sums:base=easy,count=60", "--problems", 2, "--max-tokens", 4, "--out", tmp_path / "s", "--retries", 0,
                 *(("--timeout", 60) if "--timeout" not in more else ()), *more)
        done = CliRunner().invoke(main, [str(w) for w in words])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        written = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
        assert KEY not in done.output + done.stderr + written and "SECRET" not in done.stderr
        return done

    return run


def good(done: Result) -> None:
    assert done.exit_code == 0, done.stderr


def line(done: Result) -> str:
    assert done.exit_code == 2, done.output
    (said,) = [x for x in done.stderr.splitlines() if x.startswith("isocost: ")]
    return said


def counts(read: object = 3, written: object = 1) -> dict[str, object]:
    return {"prompt_tokens": read, "completion_tokens": written}


LIES = {
    "a billion written": counts(written=10**9), "400 digits": counts(written=10**400), "2**63": counts(2**63),
    "2**62 each": counts(2**62, 2**62), "20 million read": counts(read=20_000_000), "negative": counts(written=-1),
    "a fraction": counts(written=1.5), "true": counts(written=True), "text": counts(written="1"), "nothing": None,
    "a list": [1, 2], "twice what was asked": counts(written=64), "nested": counts(written={"x": 1}),
}


@pytest.mark.parametrize("name", LIES)
def test_a_usage_that_is_a_lie_is_no_usage(
    name: str, server: Hostile, profile: Callable[..., Result], limited: Callable[[int], AbstractContextManager[None]],
    tmp_path: Path,
):
    """In the first answer it ends the command; in a later one it costs its rollout."""
    began = time.monotonic()
    with limited(1 << 31):
        server.lie = lambda k: (200, completion(usage=LIES[name]))
        assert "is not OpenAI-compatible: it gave " in line(profile())
        server.count, server.lie = 0, lambda k: (200, completion(usage=LIES[name])) if k == 2 else None
        good(profile())
    found = read_json(tmp_path / "s" / "profile.json")
    assert found["unscored"] == 1 and found["cost"]["decode"] < 200 and found["cost"]["prefill"] < 200
    assert len(found["server"]["examples"]["malformed"]) < 200 and time.monotonic() - began < 30


CHOICES = {
    "more ids than tokens": {"token_ids": [1] * 5000}, "tokens that are numbers": {
        "logprobs": {"content": [{"token": 1, "logprob": -1}]}}, "a log-prob of 400 digits": {
        "logprobs": {"content": [{"token": "7", "logprob": -(10**400)}]}}, "log-probs of text": {"logprobs": "content"},
    "half of a pair": {"message": {"content": "\ud800"}}, "no content": {"message": {"content": None}},
    "a list": {"message": {"content": ["7"]}},
    "a reason": {"finish_reason": ["stop"]}, "ids of text": {"token_ids": "77"}, "no message": {"message": 5},
    "deep": {"logprobs": json.loads("[" * 400 + "]" * 400)},
}


@pytest.mark.parametrize("name", CHOICES)
def test_no_form_of_a_completion_is_a_traceback(
    name: str, server: Hostile, profile: Callable[..., Result], tmp_path: Path,
):
    server.lie = lambda k: (200, completion(**CHOICES[name])) if k == 2 else None
    good(profile())
    assert read_json(tmp_path / "s" / "profile.json")["server"]["answered"] > 0     # and what was paid for can be read


BEARER = f"bad key: Bearer {KEY}"


@pytest.mark.parametrize(("status", "form"), [      # each form where it is refused and where it may pass
    *((status, "error") for status in (400, 401, 403, 404, 429, 500)),
    *((status, form) for status in (401, 500) for form in ("plain", "escaped", "late", "nested")),
])
def test_a_key_that_the_server_repeats_is_not_shown(
    status: int, form: str, server: Hostile, profile: Callable[..., Result],
):
    raw = {
        "error": json.dumps({"error": {"message": BEARER}}), "plain": BEARER,
        "escaped": json.dumps({"error": BEARER}).replace("S", "\\u0053").replace("/", "\\/"),
        "late": "x" * 390 + KEY, "nested": json.dumps({"headers": [{"Authorization": f"Bearer {KEY}"}]}),
    }[form].encode()
    server.lie = lambda k: (status, raw)
    assert f"{status}" in line(profile())
    server.models = (status, raw)
    if status in (401, 403, 500, 429):
        assert "SECRET" not in line(profile())


def test_a_key_in_a_completion_a_name_and_a_status_is_not_shown(
    server: Hostile, profile: Callable[..., Result], tmp_path: Path,
):
    server.models = (200, json.dumps({"data": [{"id": f"{KEY}-{i}"} for i in range(20)]}).encode())
    assert "[the key]-0" in line(profile())

    def no_status(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(f"{KEY} {'x' * 9000}\r\n\r\n".encode())

    server.models = no_status
    assert len(line(profile())) < 900
    server.models = None
    server.lie = lambda k: (200, completion(f"7 {KEY}", model=f"of {KEY}"))
    good(profile())
    assert "[the key]" in (tmp_path / "s" / "profile.json").read_text()


def drips(head: bytes, drop: bytes, seconds: float = 0.2) -> Callable[[BaseHTTPRequestHandler], None]:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(head)
        for _ in range(60):
            handler.wfile.write(drop)
            handler.wfile.flush()
            time.sleep(seconds)

    return drip


DRIPS = {
    "a byte of the body": drips(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b" "),
    "a byte without a length": drips(b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "a chunk": drips(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a header": drips(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"), "a letter of the status": drips(b"HTTP/1.1 200 ", b"O"),
    "100 Continue": drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "nothing": drips(b"", b""),
}


@pytest.mark.parametrize("name", DRIPS)
@pytest.mark.parametrize("where", ["models", "the first token", "later"])
def test_a_time_limit_holds_for_every_request(name: str, where: str, server: Hostile, profile: Callable[..., Result]):
    server.models = DRIPS[name] if where == "models" else None
    server.lie = lambda k: DRIPS[name] if k >= 1 + (where == "later") else None
    began = time.monotonic()
    done = profile("--timeout", 0.5, "--concurrency", 32)
    if where == "later":
        assert "without an answer" in line(done)
    else:
        assert "no answer within 0.5 s" in line(done)
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(("named", "says"), [
    ("good-model-cheap", True), ("another", True), (MODEL, False), ("good-model-2026-08-07", False),
    ("/models/Good-Model.gguf", False), ("", False), ("x" * 10_000, True), ("\x1b[2J\nisocost: all is well", True),
])
def test_answers_of_another_model_are_noticed_in_one_line(
    named: str, says: bool, server: Hostile, profile: Callable[..., Result], tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    server.lie = lambda k: (200, completion(model=named))
    good(profile())
    lines = [r.getMessage() for r in caplog.records if "answers with the model" in r.getMessage()]
    assert len(lines) == int(says) and all(len(x) < 400 and x.isprintable() for x in lines)
    assert ("another model" in read_json(tmp_path / "s" / "profile.json")["server"]["examples"]) is says


def test_a_file_of_completions_cannot_count_more_than_a_record_holds(tmp_path: Path):
    rows = [{"problem": str(i), "completion": "7", "reward": 1, "tokens": 2**62, "prompt_tokens": 2**62}
            for i in range(4)]
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = CliRunner().invoke(main, ["profile", "--completions", str(file), "--out", str(tmp_path / "s")])
    assert "4 of 4 rows" in line(done) and "a whole number up to 16,777,216" in done.stderr
    assert not (tmp_path / "s" / "profile.json").exists()
