"""A server for programs of this user on this machine: one ASGI application behind uvicorn's HTTP protocol.

What every application needs is here: limits of heads, bodies and connections, and whether a client still waits for its
answer. A connection is named when one of its requests has named what it belongs to: the application sets `owner`.
Until then little is given to it: the connections of other users are refused, a head must arrive within `HEAD_SECONDS`,
its body is not read, and `NAMELESS` connections are open. uvicorn limits none of this, and its own `Server` would take
the run's signal handlers, so connections are accepted here. An application that asks for a key may be `public`: it then
serves other users and other machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable, Coroutine, MutableMapping
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from isocost.serve.peers import ours

log = logging.getLogger("isocost")
HOST = "127.0.0.1"
HEAD, BODY = 2**16, 2**26       # bytes of a request, at most
HEAD_SECONDS = 5.0  # that a connection without a name has for a head, and one that ends for what it still sends
NAMELESS = 64       # connections without a name, at most: for more, those that wait longest are closed
SAID = 200          # characters of an unexpected error that are logged
_EIGHTHS = 8        # in which HEAD_SECONDS are counted, as by `isocost.gather.within`
_MOMENTS = 50       # turns of the event loop of 0.01 s or longer in which a connection can give its head before that
_BACKLOG = 1024
_IDLE = 2**20       # seconds that a connection may be kept without a request: the session's limit is the application's
_OTHER = "this server is of another user"
_REFUSED = (f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(_OTHER)}\r\nConnection: close\r\n\r\n{_OTHER}").encode()
_SILENT = logging.Logger("isocost.serve", logging.CRITICAL + 1)     # uvicorn's lines would name sessions

T = TypeVar("T")
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Any]


class Owner(Protocol):
    """What requests belong to, such as a session of a rollout."""

    open: bool


class Connection(H11Protocol):
    """One connection: `request.state.connection` of its requests. `owner` is what the last of them has named."""

    def __init__(self, server: Server, config: Config, state: ServerState):
        super().__init__(config, state, {"connection": self})
        self.logger, self.access_log = _SILENT, False
        self.owner: Owner | None = None
        self.lost = False               # with an error: what was written last may not have arrived
        self._of, self._ends, self._passed = server, False, 0
        self._limit: asyncio.TimerHandle | None = None

    @property
    def named(self) -> bool:
        """Whether it belongs to something that is open."""
        return self.owner is not None and self.owner.open

    @property
    def gone(self) -> bool:
        """Whether the client has closed the connection, or lost it."""
        return self.transport.is_closing()

    def end(self) -> None:
        """Close the connection after the next response. What is still sent meanwhile is read and not kept: a client
        whose body is not read may miss the response."""
        self._ends = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = error is not None
        if self._limit is not None:
            self._limit.cancel()
        self._of.connections.pop(self, None)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if not self._ends:
            super().data_received(data)
            return
        self._passed += len(data)
        if self._passed > BODY:
            self.transport.abort()

    def on_response_complete(self) -> None:
        if not self._ends:
            super().on_response_complete()
        elif not self.gone:
            self.flow.resume_reading()
            self.transport.write_eof()
            self._wait()

    def _wait(self, left: int = _EIGHTHS) -> None:
        """Close it `HEAD_SECONDS` from now if it is not named by then, or ends. The loop must turn meanwhile."""
        if self.named and not self._ends:
            return
        if left:
            self._limit = self.loop.call_later(HEAD_SECONDS / _EIGHTHS, self._wait, left - 1)
        else:
            self.transport.abort()


class Server:
    """Serves an application in the running event loop, from `start` to `stop`."""

    def __init__(self, app: App, *, public: bool = False):
        self.connections: dict[Connection, asyncio.Task[Any]] = {}      # the oldest first, and what opens each
        self._app, self._public, self._state = app, public, ServerState()
        self._config = Config(
            self._served, ws="none", lifespan="off", interface="asgi3", log_config=None, proxy_headers=False,
            timeout_keep_alive=_IDLE, h11_max_incomplete_event_size=HEAD,
        )
        self._listener: socket.socket | None = None
        self._room: asyncio.Task[None] | None = None
        self._warned: set[str] = set()

    def start(self, host: str = HOST, port: int = 0) -> int:
        """Listen on an interface, the loopback one if none is named. Returns the port. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        # Of its connections, too: uvicorn writes a body after its head, which would wait for the client's ACK.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        return int(self._listener.getsockname()[1])

    async def stop(self) -> None:
        """Close all connections. Answers that are ready are written first."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()
        await asyncio.sleep(0)
        for connection, opening in list(self.connections.items()):
            opening.cancel()
            if connection.transport is not None:
                connection.transport.close()
        work = [*self._state.tasks, *([self._room] if self._room else [])]
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        for connection in list(self.connections):       # whose client does not read
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)

    def warn(self, what: str) -> None:
        """Log a warning, once."""
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s", what)

    async def _served(self, scope: Scope, receive: Any, send: Any) -> None:
        """The application: what it raises is one line in the log. It has answered with an error then."""
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            pass
        except Exception as error:
            self.warn(f"a request cannot be served: {type(error).__name__}: {error}"[:SAID])

    def _accept(self) -> None:
        """Take the connections that wait, as many as there is room for."""
        assert self._listener is not None
        for _ in range(NAMELESS):       # then others have their turn
            if len(self._nameless()) >= NAMELESS:
                break
            try:
                with self._listener.dup():      # a descriptor that `ours` has then: without one it refuses everybody
                    connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:        # no descriptor is left
                self.warn(f"the server takes no connection for now: {error.strerror}")
                break
            self._begin(connection)
        else:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._room = loop.create_task(self._make_room())

    def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        if not (self._public or ours(connection)):
            self.warn("another user of this machine connects to the server, and is refused")
            with contextlib.suppress(OSError):
                connection.send(_REFUSED)
            connection.close()
            return
        loop, made = asyncio.get_running_loop(), Connection(self, self._config, self._state)
        opening = loop.create_task(loop.connect_accepted_socket(lambda: made, connection))
        self.connections[made] = opening
        opening.add_done_callback(partial(self._opened, made, connection))

    def _opened(self, made: Connection, connection: socket.socket, opening: asyncio.Task[Any]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            self.connections.pop(made, None)
            connection.close()

    def _nameless(self) -> list[Connection]:
        return [c for c in self.connections if not c.named]

    async def _make_room(self) -> None:
        """Wait until connections have named their owners; close those that do not, and accept others again. Turns of
        the loop are counted: a head that has arrived is read in the next one, however long one takes."""
        waited = self._nameless()
        for _ in range(_MOMENTS):
            await asyncio.sleep(0.01)
            if len(self._nameless()) < len(waited):
                break
        else:
            for connection in waited:
                if not connection.named and connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(0)
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)


class BytesResponse(Response):
    """A response of bytes, or of JSON in ASCII, which can hold any text. `missed` is called if its client went away
    before it had the response."""

    def __init__(
        self, content: Any, status: int = 200, kind: str = "application/json", missed: Callable[[], None] | None = None,
    ):
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        super().__init__(raw, status, {"content-type": kind})
        self.missed = missed

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        connection: Connection = scope["state"]["connection"]
        gone = connection.gone
        await super().__call__(scope, receive, send)
        if self.missed is not None:
            await asyncio.sleep(0)      # in which a write that failed is noticed
            if gone or connection.lost:
                self.missed()


class Events(Response):
    """Server-sent events that `write` writes: it is given what sends a part. A client that goes away cancels it. What
    `write` raises before the first part is answered as any error is."""

    def __init__(self, request: Request, write: Callable[[Callable[[bytes], Any]], Coroutine[Any, Any, None]]):
        super().__init__()
        self.request, self.write = request, write

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        begun = False

        async def part(raw: bytes, last: bool = False) -> None:
            nonlocal begun
            if not begun:
                headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                begun = True
            await send({"type": "http.response.body", "body": raw, "more_body": not last})

        await unless_gone(self.request, self.write(part))
        await part(b"", last=True)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of work for a client, whose body was read. If it goes away, the work is cancelled, and awaited. Raises
    ClientDisconnect then."""
    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left())
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)
    raise ClientDisconnect


async def body_of(request: Request) -> bytes:
    """The body of a request. Raises HTTPException for one of more than `BODY` bytes, ClientDisconnect."""
    raw, stated = bytearray(), request.headers.get("content-length", "0")
    if int(stated) <= BODY:
        async for part in request.stream():
            raw += part
            if len(raw) > BODY:
                break
        else:
            return bytes(raw)
    request.state.connection.end()
    raise HTTPException(413, f"a request has at most {BODY} bytes")
