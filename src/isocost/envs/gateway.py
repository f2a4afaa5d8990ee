"""An OpenAI-compatible server on this machine, with one session for each rollout of a harness.

A session is named by its address, `http://127.0.0.1:PORT/s/NAME/v1`, or at `/v1` by the API key. A request waits until
the episode that the session belongs to answers it. The server runs in the event loop of the run while any session is
open. It listens on the loopback interface alone, and names cannot be guessed. Before a request names a session, little
is given to it: the connections of other users are refused, a head must arrive within `HEAD_SECONDS`, its body is not
read, and `NAMELESS` connections are open.

If a client goes away before it has its reply, and asks the same again, it is given that reply: clients repeat requests
whose connection was lost, and the policy has written the turn already.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from isocost.envs.gateway_protocol import Asked, Refused, Reply, body_of, chunks_of, models, read_chat, read_text, sse
from isocost.envs.peers import ours
from isocost.envs.tools import NO_JSON
from isocost.gather import within

log = logging.getLogger("isocost")
HOST = "127.0.0.1"
TOGETHER = 256      # functions of harnesses that start at once
HEAD, BODY = 2**16, 2**26       # bytes of a request, at most
HEAD_SECONDS = 5.0  # that a connection without a session has for a head
NAMELESS = 64       # connections without a session, at most: for more, those that wait longest are closed
_MOMENTS = 50       # turns of the event loop of 0.01 s or longer in which a connection can give its head before that
_BACKLOG = 1024
SAID = 200          # characters of an unexpected error that are logged
_REASON = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
           413: "Content Too Large", 500: "Internal Server Error"}


@dataclass(eq=False)
class Request:
    """A request that waits for its reply."""

    asked: Asked
    reply: asyncio.Future[Reply]
    gone: Callable[[], bool]        # whether its client has closed the connection, or lost it
    taken_over: bool = False        # by an equal request, after its client was gone


@dataclass(eq=False)
class Session:
    """The requests of one rollout, in their order."""

    name: str
    base_url: str
    requests: asyncio.Queue[Request] = field(default_factory=asyncio.Queue)
    refusal: Refused | None = None          # what every request is answered with from now on
    _waiting: list[Request] = field(default_factory=list)
    _missed: tuple[Asked, Reply] | None = None      # a reply that its client did not wait for
    _repeated: int = -1             # number of the last reply that a repeated request was given, or is kept for

    async def ask(self, asked: Asked, gone: Callable[[], bool]) -> Reply:
        """The reply to a request, when the policy has written it. Raises Refused."""
        missed, self._missed = self._missed, None
        if missed is not None and missed[0] == asked:
            return missed[1]
        if self.refusal is not None:
            raise self.refusal
        before = next((r for r in self._waiting if r.asked == asked and r.gone()), None)
        if before is None:
            before = Request(asked, asyncio.get_running_loop().create_future(), gone)
            self._waiting.append(before)
            self.requests.put_nowait(before)
        else:
            before.gone, before.taken_over = gone, True
        return await asyncio.shield(before.reply)

    async def next(self) -> Request:
        """The next request that has no reply."""
        while (request := await self.requests.get()).reply.done():
            pass
        return request

    def answer(self, request: Request, reply: Reply) -> None:
        """Reply to a request, and to the same one of a client that lost its connection and is back already."""
        gone = request.gone()
        again = [r for r in self._waiting if r.asked == request.asked and r is not request] if gone else []
        for each in (request, *again[:1]):
            self._waiting.remove(each)
            each.reply.set_result(reply)
        if gone and not again:      # noted now: the same request may come before the lost connection has ended here
            self.miss(request.asked, reply)
        elif again or request.taken_over:
            self._repeated = reply.number

    def miss(self, asked: Asked, reply: Reply) -> None:
        """The client went away before it had this reply."""
        if reply.number != self._repeated:
            self._missed, self._repeated = (asked, reply), reply.number

    def refuse(self, why: Refused) -> None:
        """Answer every request with an error from now on, those that wait too."""
        self.refusal, self._missed = why, None
        for request in self._waiting:
            request.reply.set_exception(why)
            request.reply.exception()       # its client may be gone: then nothing else reads it
        self._waiting.clear()


class _Unread(Refused):
    """A request whose body is not read: nothing can follow it on its connection."""


class Gateway:
    """The server of an event loop: it listens while a session is open."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        # Harnesses that are started and have not connected yet: processes, and functions. More at once starve each
        # other until their clients give up: OpenAI's after 5 s.
        self.starting = asyncio.Semaphore(max(2, os.cpu_count() or 1)), asyncio.Semaphore(TOGETHER)
        self._listener: socket.socket | None = None
        self._changing = asyncio.Lock()
        # Connections, the oldest first, and the session that the last request of each has named.
        self._connections: dict[asyncio.Task[None], Session | None] = {}
        self._room: asyncio.Task[None] | None = None
        self._warned: set[str] = set()

    @staticmethod
    def here() -> Gateway:
        """That of the running event loop."""
        loop = asyncio.get_running_loop()
        found = _GATEWAYS.get(loop)
        if found is None:
            found = _GATEWAYS[loop] = Gateway()
        return found

    async def open(self) -> Session:
        """A new session."""
        async with self._changing:
            if self._listener is None:
                self._listener = socket.create_server((HOST, 0), backlog=_BACKLOG)
                self._listener.setblocking(False)
                asyncio.get_running_loop().add_reader(self._listener, self._accept)
            port = self._listener.getsockname()[1]
            name = secrets.token_hex(12)
            self.sessions[name] = session = Session(name, f"http://{HOST}:{port}/s/{name}/v1")
            return session

    async def close(self, session: Session) -> None:
        """End a session; after the last one the server stops."""
        session.refuse(Refused("this session has ended", "session_ended"))
        async with self._changing:
            self.sessions.pop(session.name, None)
            if self.sessions or self._listener is None:
                return
            listener, self._listener = self._listener, None
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
            await asyncio.sleep(0)              # handlers that have a refusal write it
            tasks = [*self._connections, *([self._room] if self._room else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        """Take the connections that wait, as many as there is room for."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        while len(self._nameless()) < NAMELESS:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:        # no descriptor is left
                self._warn(f"the address of harnesses takes no connection for now: {error.strerror}")
                break
            connection.setblocking(False)
            task = loop.create_task(self._connected(connection))
            self._connections[task] = None
            task.add_done_callback(partial(self._ended, connection))
        loop.remove_reader(self._listener)
        self._room = loop.create_task(self._make_room())

    def _nameless(self) -> list[asyncio.Task[None]]:
        """The connections that belong to no open session, the oldest first."""
        return [t for t in self._connections if not self._named(t)]

    def _named(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a connection's last request has named a session that is open."""
        session = self._connections.get(task) if task else None
        return session is not None and session.name in self.sessions

    def _ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        if task.cancelled():        # before it began
            connection.close()

    async def _make_room(self) -> None:
        """Wait until connections have named their sessions; close those that do not, and accept others again.

        Turns of the loop are counted: a head that has arrived is read in the next one, however long one takes.
        """
        waited = self._nameless()
        for _ in range(_MOMENTS):
            await asyncio.sleep(0.01)
            if len(self._nameless()) < len(waited):
                break
        else:
            for task in set(waited) & {*self._nameless()}:
                task.cancel()
            await asyncio.sleep(0)
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def _connected(self, connection: socket.socket) -> None:
        known = ours(connection)
        reader, writer = await asyncio.open_connection(sock=connection, limit=HEAD)
        try:
            if known:
                while await self._served(reader, writer):
                    pass
            else:
                self._warn("another user of this machine connects to the address of harnesses, and is refused")
                why = Refused("this server is of another user", "other_user", 403)
                await _write(writer, why.status, why.body(), False)
        except (asyncio.IncompleteReadError, OSError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass        # the client ended, wrote no HTTP or nothing, or the server stops
        except Exception as error:
            self._warn(f"a request of a harness cannot be served: {type(error).__name__}: {error}"[:SAID])
            with contextlib.suppress(OSError):
                await _write(writer, 500, Refused("the request cannot be served", "internal_error", 500).body(), False)
        finally:
            writer.close()

    def _warn(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s", what)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another may follow on the connection. Raises TimeoutError without a head."""
        task = asyncio.current_task()
        assert task is not None
        async with within(None if self._named(task) else HEAD_SECONDS):
            method, path, headers = _head(await reader.readuntil(b"\r\n\r\n"))
        keep = headers.get("connection", "").lower() != "close"
        asked: Asked | None = None
        reply: Reply | None = None
        session: Session | None = None

        def gone() -> bool:
            """Whether the client has closed the connection, or lost it."""
            return reader.at_eof() or writer.is_closing()

        try:
            session, route = self._where(path, headers)
            self._connections[task] = session
            raw = await _body(reader, writer, headers)
            if route == "/models":
                return await _write(writer, 200, models(), keep)
            read = {"/chat/completions": read_chat, "/completions": read_text}.get(route)
            if read is None:
                raise Refused(f"there is no {route or '/'} here; there are /chat/completions, /completions and /models",
                              "unknown_url", 404)
            if method != "POST":
                raise Refused(f"{route} is a POST, not a {method}", "method_not_allowed", 405)
            try:
                data = json.loads(raw)
            except NO_JSON as error:
                raise Refused(f"the body is not JSON: {error}", "invalid_json") from error
            asked = read(data)
            reply = await session.ask(asked, gone)
            missed = gone()
            if asked.stream:
                chunks = list(chunks_of(reply, asked, session.name))
                await _write(writer, 200, sse(chunks), keep, "text/event-stream")
            else:
                await _write(writer, 200, body_of(reply, asked, session.name), keep)
            if missed:
                session.miss(asked, reply)
            return keep and not missed
        except Refused as why:
            keep = keep and session is not None and not isinstance(why, _Unread)
            await _write(writer, why.status, why.body(), keep)
            if not keep:
                await _passed_over(reader, writer)
            return keep
        except ConnectionError:
            if session is not None and asked is not None and reply is not None:
                session.miss(asked, reply)
            raise

    def _where(self, path: str, headers: dict[str, str]) -> tuple[Session, str]:
        """The session of a request and the rest of its path. Raises Refused."""
        if "origin" in headers:
            raise Refused("requests of web pages are not served", "forbidden", 403)
        path = path.partition("?")[0].rstrip("/")
        parts = path.split("/")
        if len(parts) > 3 and parts[1] == "s" and parts[3] == "v1":
            name, route = parts[2], "/" + "/".join(parts[4:])
        elif len(parts) > 1 and parts[1] == "v1":
            name, route = headers.get("authorization", "").removeprefix("Bearer ").strip(), "/" + "/".join(parts[2:])
        else:
            raise Refused(f"there is no {path} here; the address of a session is /s/NAME/v1", "unknown_url", 404)
        session = self.sessions.get(name)
        if session is None:
            raise Refused("there is no such session, or it has ended", "session_ended", 404)
        return session, route


_GATEWAYS: WeakKeyDictionary[asyncio.AbstractEventLoop, Gateway] = WeakKeyDictionary()


def _head(raw: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers, names in lower case. Raises ConnectionError for what is no HTTP."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ConnectionAbortedError("no HTTP request")
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    headers = {k.strip().lower(): v.strip() for k, v in pairs}
    if words[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return words[0], words[1], headers


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]) -> bytes:
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        parts = []
        left = BODY
        while size := _number((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            left -= size
            if left < 0:
                raise _Unread(f"a request has at most {BODY} bytes", "too_large", 413)
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)
    length = _number(headers.get("content-length", "0").encode(), 10)
    if length > BODY:
        raise _Unread(f"a request has at most {BODY} bytes", "too_large", 413)
    return await reader.readexactly(length)


def _number(text: bytes, base: int) -> int:
    """A length: digits alone. Raises Refused."""
    if not re.fullmatch(rb"[0-9]{1,15}" if base == 10 else rb"[0-9a-fA-F]{1,15}", text.strip()):
        raise _Unread(f"{text.strip()[:40].decode('latin-1')!r} is no length of a body", "invalid_length")
    return int(text, base)


async def _passed_over(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what a client still sends, and keep nothing: one whose body is not read may miss the answer."""
    left = BODY
    writer.write_eof()
    async with within(HEAD_SECONDS):
        while left > 0 and (part := await reader.read(HEAD)):
            left -= len(part)


async def _write(writer: asyncio.StreamWriter, status: int, body: Any, keep: bool,
                 kind: str = "application/json") -> bool:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()       # ASCII: any text can be written so
    head = (f"HTTP/1.1 {status} {_REASON.get(status, 'Error')}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(raw)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n")
    writer.write(head.encode("latin-1") + raw)
    await writer.drain()
    return keep
