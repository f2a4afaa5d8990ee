"""What a client without a name, another user, a broken client and the texts of a policy may do to a running gateway.

Everything goes over sockets to a process of its own: nothing here depends on how the server is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from isocost.serve import peers

HERE = Path(__file__).parent
NAMELESS = 64       # connections without a session
HEAD_SECONDS = 5


class Server:
    """A gateway in a process, and ways to talk to it."""

    def __init__(self, descriptors: int = 256):
        self.errors = tempfile.TemporaryFile()      # noqa: SIM115  (closed in __exit__)
        self.process = subprocess.Popen(
            [sys.executable, HERE / "gateway_server.py", str(descriptors)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        at = urlsplit(self.url)
        self.address, self.path = (at.hostname, at.port), at.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()
        self.errors.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=20)

    def head(self, length: object, path: str = "", extra: str = "") -> bytes:
        path = path or f"{self.path}/chat/completions"
        return f"POST {path} HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {length}\r\n\r\n".encode()

    def say(self, text: str, **more: Any) -> bytes:
        """A whole request whose reply is the text."""
        body = json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()
        return self.head(len(body)) + body

    def ask(self, raw: bytes) -> tuple[int, bytes]:
        """Status and body of the answer on a connection of its own; (0, b"") if it is closed without one."""
        with self.connect() as connection:
            connection.sendall(raw)
            return answer(connection)

    def serves(self) -> bool:
        status, body = self.ask(self.say("hello"))
        return status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "hello"

    def memory(self) -> int:
        """Bytes that are resident."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def said(self) -> str:
        """What it wrote to its standard error."""
        self.errors.seek(0)
        return self.errors.read().decode()


def answer(connection: socket.socket) -> tuple[int, bytes]:
    got = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            got += part
            head, _, body = got.partition(b"\r\n\r\n")
            length = [int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")]
            if length and len(body) >= length[0]:
                return int(head.split()[1]), body
    return 0, b""


def closed(connection: socket.socket, seconds: float) -> bool:
    """Whether the server closes a connection within this time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
        return True
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as opened:
        yield opened
        said = opened.said()        # of all that the tests below do: that another user connects
        assert "Traceback" not in said and said.count("\n") <= 1, said


def test_it_serves(server: Server):
    assert server.serves()


@pytest.mark.slow
def test_a_connection_that_gives_no_head_is_closed_in_time(server: Server):
    with server.connect() as silent, server.connect() as dripping:
        for letter in b"POST /s/nobody/v1 HTTP/1.1\r\n":
            with contextlib.suppress(ConnectionError):
                dripping.sendall(bytes([letter]))
            time.sleep((HEAD_SECONDS + 1) / 28)
        assert closed(silent, 2) and closed(dripping, 2)


def test_silent_connections_hold_few_descriptors_and_keep_nobody_out(server: Server):
    before = server.descriptors()
    silent = [server.connect() for _ in range(200)]
    began = time.monotonic()
    assert server.serves()
    assert time.monotonic() - began < 10
    assert server.descriptors() - before <= NAMELESS + 8
    for each in silent:
        each.close()


def test_a_body_is_not_read_before_its_name_is_known(server: Server):
    before, part = server.memory(), b"x" * (1 << 20)
    chunk = b"100000\r\n" + part + b"\r\n"
    for path in ("/nobody", "/s/nobody/v1/chat/completions", "/v1/chat/completions"):
        for raw, more in ((server.head(1 << 26, path), part),
                          (server.head(1 << 26, path, "Connection: close\r\n"), part),
                          (server.head(0, path).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"), chunk)):
            held = [server.connect() for _ in range(6)]
            for each in held:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    each.sendall(raw)
                    each.settimeout(0.5)
                    for _ in range(4):
                        each.sendall(more)
            assert server.memory() - before < 16 << 20
            for each in held:
                each.settimeout(10)
                assert answer(each)[0] == 404
                each.close()
    assert server.serves()


def test_who_names_no_session_is_told_so_and_its_connection_ends(server: Server):
    """Whatever it sends with that request, or after the answer."""
    good, bad = server.say("hello"), b"no request\r\n\r\n"
    for with_it, more in ((b"", b""), (b"", bad), (b"", good), (bad, b""), (good, b"")):
        with server.connect() as connection:
            connection.sendall(server.head(5, "/s/nobody/v1/models") + b"12345" + with_it)
            assert answer(connection)[0] == 404
            with contextlib.suppress(ConnectionError):
                connection.sendall(more)
            assert closed(connection, HEAD_SECONDS / 2)


OTHER = """
import encodings.idna, os, socket, sys, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
body = b'{"messages": [{"role": "user", "content": "hello"}]}'
said = []
head = b" HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
for raw in (b"POST %s/chat/completions" % path.encode() + head + body,
            b"GET %s/models HTTP/1.1\\r\\n\\r\\n" % path.encode()):
    s = socket.create_connection((host, port), timeout=10)
    try:
        s.sendall(raw)
        said.append(s.recv(12)[9:12].decode())
    except ConnectionError:
        said.append("")
kept = []
for i in range(150):
    try: kept.append(socket.create_connection((host, port), timeout=10))
    except OSError: pass
print(said, flush=True)
time.sleep(float(sys.argv[4]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_another_user_of_the_machine_is_refused_even_with_the_name(server: Server):
    before = server.descriptors()
    words = [sys.executable, "-S", "-c", OTHER, *map(str, server.address), server.path, "1.5"]
    if not Path("/proc/net/tcp").exists():
        pytest.skip("no table of connections")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd="/") as other:
        assert other.stdout is not None
        assert eval(other.stdout.readline()) in (["403", "403"], ["", ""])
        time.sleep(0.5)
        assert server.descriptors() - before <= 8       # it holds nothing of this process
        assert server.serves()
    assert server.said().count("another user of this machine") <= 1


def test_where_the_kernels_table_cannot_be_read_now_nobody_is_taken_for_ours(monkeypatch: pytest.MonkeyPatch):
    """Where it has none, everybody is: then the name decides."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert peers.ours(connection)
            for asked in (peers._asked, peers._listed):     # both ways give this user
                ends = connection.getpeername(), connection.getsockname()
                assert not Path("/proc/net/tcp").exists() or asked(*ends) in (None, os.getuid())
            for error, says in ((OSError(24, "too many"), False), (FileNotFoundError(), True)):
                def fails(*_: object, error: OSError = error) -> None:
                    raise error

                monkeypatch.setattr(peers, "_asked", lambda *_: None)
                monkeypatch.setattr(peers, "_listed", fails)
                assert peers.ours(connection) is says


def test_where_no_descriptor_is_left_it_goes_on_and_says_so_once():
    with Server(40) as few:
        silent = [few.connect() for _ in range(120)]
        began = time.monotonic()
        assert few.serves() and time.monotonic() - began < 15
        for each in silent:
            each.close()
        assert few.said().count("\n") <= 2 and "Traceback" not in few.said()


LENGTHS = ("-5", "+5", "1_0", "0x10", "", "five", "5 5", "5,5", "1e3", "9" * 5000, "-0",
           "\u0663".encode().decode("latin-1"))
CHUNKS = ("-5", "+5", "1_0", "0x10", "", "zz", "f" * 5000, "-0", " ")


@pytest.mark.parametrize("length", LENGTHS, ids=range(len(LENGTHS)))
def test_a_length_that_is_none_ends_its_connection_alone(server: Server, length: str):
    status, _ = server.ask(server.head(length).decode().encode("latin-1") + b"12345")
    assert status in (0, 400, 413) and server.serves() and "Traceback" not in server.said()


@pytest.mark.parametrize("size", CHUNKS, ids=range(len(CHUNKS)))
def test_a_size_of_a_chunk_that_is_none_ends_its_connection_alone(server: Server, size: str):
    raw = server.head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + size.encode() + b"\r\n12345\r\n"
    with server.connect() as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        assert answer(connection)[0] in (0, 400, 413)
    assert server.serves() and "Traceback" not in server.said()


HEADS = {
    "no HTTP": b"hello\r\n\r\n", "long": b"x" * 70_000, "zeros": b"\0" * 100 + b"\r\n\r\n", "no end": b"GET /",
    "many headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bytes": bytes(range(128, 256)) + b"\r\n\r\n",
    "no length": b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    "cut": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab",
    "no path": b"GET  HTTP/1.1\r\n\r\n", "far up": b"GET /s/../../etc/passwd HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_what_is_no_request_ends_its_connection_alone(server: Server, name: str):
    with server.connect() as connection:
        connection.sendall(HEADS[name])
        connection.shutdown(socket.SHUT_WR)
        assert answer(connection)[0] in (0, 400, 404, 431)
    assert server.serves() and "Traceback" not in server.said()


def test_a_web_page_is_not_served(server: Server):
    raw = server.say("hello").replace(b"Host: x\r\n", b"Host: x\r\nOrigin: https://example.org\r\n")
    status, body = server.ask(raw)
    assert status == 403 and b"hello" not in body


def test_a_client_that_was_reset_is_given_the_reply_that_it_missed(server: Server):
    """Each reply has a number: an equal request after a reset gets the same one, and later ones theirs.

    A server that is busy notices the reset only as it writes the reply.
    """
    def number(raw: bytes) -> int:
        return int(json.loads(server.ask(raw)[1])["id"].rpartition("-")[2])

    for turn in range(4):
        last = number(server.say("hello"))
        raw = server.say(f"{'busy' if turn % 2 else 'wait'} {turn}")
        lost = server.connect()
        lost.sendall(raw)
        time.sleep(0.03)
        lost.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        lost.close()                            # with RST
        assert [number(raw), number(raw)] == [last + 1, last + 2]
    assert server.serves()


CALL = '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>'
TEXTS = {
    "half of a pair": CALL % '{"x": "\\ud800"}', "the other half": CALL % '{"x": "\\udfff a"}',
    "half in a key": CALL % '{"\\ud834": 1}', "turned round": CALL % '{"x": "\\udc00\\ud800"}',
    "half in a name": '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
    "half in arguments of arguments": CALL % json.dumps('{"x": "\\ud800"}'),
    "a pair": CALL % '{"x": "\\ud83d\\ude00"}', "infinite": CALL % '{"x": 1e999}', "NaN": CALL % '{"x": NaN}',
    "minus infinite": CALL % '{"x": [-1e999]}', "deep": CALL % ('{"x":' * 990 + "1" + "}" * 990),
    "deeper": CALL % ('{"x":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "a long number": CALL % ('{"x": %s}' % ("9" * 5000)), "4,000 digits": CALL % ('{"x": %s}' % ("9" * 4000)),
    "zeros": "a\0b", "lines": "\r\n\r\nHTTP/1.1 500 no\r\n\r\n", "an event": "data: [DONE]\n\n",
    "an end": "</tool_call>", "a start": "<tool_call>", "all planes": "\ufffe\U0010ffff\u2028",
    "half of a pair as text": "\ud800",
}


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_of_a_policy_breaks_a_reply(server: Server, name: str):
    tools = [{"type": "function", "function": {"name": "f"}}]
    for more in ({}, {"tools": tools}, {"tools": tools, "stream": True}, {"tools": tools, "logprobs": True}):
        status, body = server.ask(server.say(TEXTS[name], **more))
        assert status == 200 and body.isascii()
        parts = body.decode().split("\n\n") if "stream" in more else ["data: " + body.decode()]
        for part in (p.removeprefix("data: ") for p in parts if p and p != "data: [DONE]"):
            choices = json.loads(part, parse_constant=pytest.fail)["choices"]
            for call in (choices[0].get("message") or choices[0].get("delta") or {}).get("tool_calls") or []:
                json.loads(call["function"]["arguments"], parse_constant=pytest.fail)
    assert server.serves() and "Traceback" not in server.said()


@pytest.mark.parametrize("text", ["nan", "minus"])
def test_log_probs_that_are_no_numbers_are_left_out(server: Server, text: str):
    for more in ({"logprobs": True}, {"logprobs": True, "stream": True}):
        status, body = server.ask(server.say(text, **more))
        assert status == 200 and b"NaN" not in body and b"Infinity" not in body
