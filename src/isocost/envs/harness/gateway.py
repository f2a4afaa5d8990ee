"""An OpenAI-compatible address on this machine, with one session for each rollout of a harness.

A session is named by its address, `http://127.0.0.1:PORT/s/NAME/v1`, or at `/v1` by the API key. A request waits until
the episode that the session belongs to answers it. This is an application of `isocost.serve`, which limits what a
client without a session is given. It is served in the event loop of the run while any session is open. Names cannot be
guessed.

If a client goes away before it has its reply, and asks the same again, it is given that reply: clients repeat requests
whose connection was lost, and the policy has written the turn already.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from starlette import requests
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route, Router

from isocost.envs.gateway_protocol import (
    CompletionRequest,
    Reply,
    RequestError,
    body_of,
    chunks_of,
    head_of,
    models,
    read_chat,
    read_text,
    sse,
    usage,
)
from isocost.envs.tools import NO_JSON
from isocost.serve import server
from isocost.serve.server import HOST, BytesResponse, Scope, Server

TOGETHER = 256      # functions of harnesses that start at once
_THERE = "the address of a session is /s/NAME/v1, and there are /chat/completions, /completions and /models"
_CODES = {404: "unknown_url", 405: "method_not_allowed", 413: "too_large"}


@dataclass(eq=False)
class PendingRequest:
    """A request that waits for its reply."""

    asked: CompletionRequest
    reply: asyncio.Future[Reply]
    gone: Callable[[], bool]        # whether its client has closed the connection, or lost it
    taken_over: bool = False        # by an equal request, after its client was gone


@dataclass(eq=False)
class RolloutSession:
    """The requests of one rollout, in their order."""

    name: str
    base_url: str
    open: bool = True
    requests: asyncio.Queue[PendingRequest] = field(default_factory=asyncio.Queue)
    refusal: RequestError | None = None          # what every request is answered with from now on
    _waiting: list[PendingRequest] = field(default_factory=list)
    _missed: tuple[CompletionRequest, Reply] | None = None      # a reply that its client did not wait for
    _repeated: int = -1             # number of the last reply that a repeated request was given, or is kept for

    async def ask(self, asked: CompletionRequest, gone: Callable[[], bool]) -> Reply:
        """The reply to a request, when the policy has written it. Raises Refused."""
        missed, self._missed = self._missed, None
        if missed is not None and missed[0] == asked:
            return missed[1]
        if self.refusal is not None:
            raise self.refusal
        before = next((r for r in self._waiting if r.asked == asked and r.gone()), None)
        if before is None:
            before = PendingRequest(asked, asyncio.get_running_loop().create_future(), gone)
            self._waiting.append(before)
            self.requests.put_nowait(before)
        else:
            before.gone, before.taken_over = gone, True
        return await asyncio.shield(before.reply)

    async def next(self) -> PendingRequest:
        """The next request that has no reply."""
        while (request := await self.requests.get()).reply.done():
            pass
        return request

    def answer(self, request: PendingRequest, reply: Reply) -> None:
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

    def miss(self, asked: CompletionRequest, reply: Reply) -> None:
        """The client went away before it had this reply."""
        if reply.number != self._repeated:
            self._missed, self._repeated = (asked, reply), reply.number

    def refuse(self, why: RequestError) -> None:
        """Answer every request with an error from now on, those that wait too."""
        self.refusal, self._missed = why, None
        for request in self._waiting:
            request.reply.set_exception(why)
            request.reply.exception()       # its client may be gone: then nothing else reads it
        self._waiting.clear()


class Gateway:
    """The sessions of an event loop, which are served while there are any."""

    def __init__(self) -> None:
        self.sessions: dict[str, RolloutSession] = {}
        # Harnesses that are started and have not connected yet: processes, and functions. More at once starve each
        # other until their clients give up: OpenAI's after 5 s.
        self.starting = asyncio.Semaphore(max(2, os.cpu_count() or 1)), asyncio.Semaphore(TOGETHER)
        self._changing = asyncio.Lock()
        self._routes = Router([
            Route("/models", _listed), Route("/chat/completions", partial(_completed, read_chat), methods=["POST"]),
            Route("/completions", partial(_completed, read_text), methods=["POST"]),
        ])
        self._server, self._port = Server(Starlette(
            routes=[Mount(at, self._routed) for at in ("/s/{name}/v1", "/v1")],
            exception_handlers=dict.fromkeys((RequestError, HTTPException, Exception), partial(refused, _THERE)),
        )), 0

    @staticmethod
    def here() -> Gateway:
        """That of the running event loop."""
        loop = asyncio.get_running_loop()
        found = _GATEWAYS.get(loop)
        if found is None:
            found = _GATEWAYS[loop] = Gateway()
        return found

    async def open(self) -> RolloutSession:
        """A new session."""
        async with self._changing:
            if not self.sessions:
                self._port = self._server.start()
            name = secrets.token_hex(12)
            self.sessions[name] = session = RolloutSession(name, f"http://{HOST}:{self._port}/s/{name}/v1")
            return session

    async def close(self, session: RolloutSession) -> None:
        """End a session; after the last one the server stops."""
        session.refuse(RequestError("this session has ended", "session_ended"))
        async with self._changing:
            session.open = False
            if self.sessions.pop(session.name, None) is not None and not self.sessions:
                await self._server.stop()

    async def _routed(self, scope: Scope, receive: Any, send: Any) -> None:
        """Find the session of a request before anything else is read of it. Raises Refused."""
        request = requests.Request(scope)
        if "origin" in request.headers:
            raise RequestError("requests of web pages are not served", "forbidden", 403)
        name = request.path_params.get("name") or request.headers.get("authorization", "").removeprefix("Bearer ")
        request.state.session = request.state.connection.owner = self.sessions.get(name.strip())
        if request.state.session is None:
            raise RequestError("there is no such session, or it has ended", "session_ended", 404)
        await self._routes(scope, receive, send)


async def _listed(request: requests.Request) -> BytesResponse:
    return BytesResponse(models())


async def _completed(read: Callable[[Any], CompletionRequest], request: requests.Request) -> BytesResponse:
    """The reply to a request for a completion, when the policy has written it. Raises Refused."""
    session, connection = request.state.session, request.state.connection
    asked = read(await json_of(request))
    reply = await session.ask(asked, lambda: connection.gone)
    missed, used = partial(session.miss, asked, reply), usage(reply)
    head = head_of(asked, f"{session.name}-{reply.number}", system_fingerprint=f"v{reply.version}",
                   isocost={"luck": reply.luck, "weight_version": reply.version})
    if asked.stream:
        return BytesResponse(sse(list(chunks_of([reply], asked, head, used))), 200, "text/event-stream", missed)
    return BytesResponse(body_of([reply], asked, head, used), missed=missed)


async def json_of(request: requests.Request) -> Any:
    """The body of a request. Raises RequestError, and what `isocost.serve.server.body_of` raises."""
    raw = await server.body_of(request)
    try:
        return json.loads(raw)
    except NO_JSON as error:
        raise RequestError(f"the body is not JSON: {error}", "invalid_json") from error


async def refused(there: str, request: requests.Request, error: Exception) -> BytesResponse:
    """An error in the form of OpenAI; `there` says which addresses there are. A connection without a name ends with it.
    """
    if isinstance(error, HTTPException):
        what = {404: f"there is no {request.url.path} here; {there}",
                405: f"{request.url.path} is no {request.method}"}.get(error.status_code, error.detail)
        error = RequestError(what, _CODES.get(error.status_code, "invalid_request"), error.status_code)
    elif not isinstance(error, RequestError):
        error = RequestError("the request cannot be served", "internal_error", 500)
    if not request.state.connection.named:
        request.state.connection.end()
    answer = BytesResponse(error.body(), error.status)
    if error.after:
        answer.headers["retry-after"] = str(error.after)
    return answer


_GATEWAYS: WeakKeyDictionary[asyncio.AbstractEventLoop, Gateway] = WeakKeyDictionary()
