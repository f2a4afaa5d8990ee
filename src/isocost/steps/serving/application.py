"""The application that answers: an OpenAI-compatible address of `isocost.serve`, in front of one world.

A request is read, waits for room, is played, journaled, and answered. A client that goes away cancels what is under way
for it; what was written by then is billed. One completion is streamed as it is written; a strategy sends comments while
it searches, then the text that it chose.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router

from isocost.envs import gateway_protocol as protocol
from isocost.envs.gateway_protocol import CompletionRequest, Reply, RequestError
from isocost.envs.harness.gateway import json_of, refused
from isocost.errors import Resumable, UserError
from isocost.runs.files import Stream
from isocost.seams import Pace
from isocost.serve.server import BytesResponse, Events, Scope, unless_gone
from isocost.steps.serving.admission import Admission, Full
from isocost.steps.serving.answers import CHOICES, AnswerBill, AnswerRequest, Choose, play, wanted
from isocost.world import World

log = logging.getLogger("isocost")
THERE = "there are /v1/chat/completions, /v1/completions, /v1/models and /health"
SILENT = 5.0        # seconds after which a stream that has nothing to say sends a comment, so that no proxy closes it
PIECE = 32          # characters of a piece of a text that was complete before it is sent
ANSWERED, CANCELLED, FAILED, REFUSED = "answered", "cancelled", "failed", "refused"


class Application:
    """Answers requests from a world until `closing` is set. `open` as an owner of connections (`isocost.serve`)."""

    open = True

    def __init__(
        self, world: World, model: str, pace: Pace, choose: Choose, admission: Admission, *, key: str = "",
        journal: Stream | None = None, first: int = 0,
    ):
        """`first` is the number of the first request, after those that the journal has."""
        self.world, self.model, self.pace, self.choose, self.admission = world, model, pace, choose, admission
        self.key, self.journal, self._number = key, journal, first
        self._known = {p.text: p for p in world.problems}
        self.counts: Counter[str] = Counter()
        self.closing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._under_way = 0
        self._routes = Router([
            Route("/models", self._models),
            Route("/chat/completions", partial(self._completed, protocol.read_chat), methods=["POST"]),
            Route("/completions", partial(self._completed, protocol.read_text), methods=["POST"]),
        ])
        self.app = Starlette(
            routes=[Route("/health", self._health), Mount("/v1", self._admitted)],
            exception_handlers=dict.fromkeys((RequestError, HTTPException, Exception), partial(refused, THERE)),
        )

    async def idle(self) -> None:
        """Wait until every request is answered."""
        await self._idle.wait()

    async def _health(self, request: Request) -> BytesResponse:
        state = {"status": "closing" if self.closing else "ok", "tokens_under_way": self.admission.under_way,
                 "waiting": self.admission.waiting}
        return BytesResponse(state, 503 if self.closing else 200)

    async def _admitted(self, scope: Scope, receive: Any, send: Any) -> None:
        """Check the key before anything else is read of a request. Raises RequestError."""
        request = Request(scope)
        if "origin" in request.headers:
            raise RequestError("requests of web pages are not served", "forbidden", 403)
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if self.key and not hmac.compare_digest(given.encode(), self.key.encode()):
            raise RequestError("the key of this server is missing or wrong: send it as the API key", "invalid_api_key",
                               401)
        request.state.connection.owner = self
        self._under_way += 1
        self._idle.clear()
        try:
            await self._routes(scope, receive, send)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
                if (forget := getattr(self.world.engine, "forget", None)) is not None:
                    forget()        # a server that runs for weeks must not keep every text

    async def _models(self, request: Request) -> BytesResponse:
        return BytesResponse(protocol.models(self.model))

    async def _completed(self, read: Callable[..., CompletionRequest], request: Request) -> Response:
        """The answer to a request for completions. Raises RequestError."""
        try:
            if self.closing:
                raise RequestError("the server is closing", "closing", 503, after=10)
            body = await json_of(request)
            asked, number = read(body, fixed=False), self._number
            want = wanted(asked, body, number, self.world, self.pace, self.choose, self._known)
            if want.tokens > self.admission.most:
                raise RequestError(
                    f"the request may have {want.tokens:,} tokens under way, and {self.admission.most:,} are admitted "
                    "at once: lower max_tokens, n, or the size of the strategy", "too_many_tokens")
        except (RequestError, UserError) as e:
            self.counts[REFUSED] += 1
            raise e if isinstance(e, RequestError) else RequestError(str(e), "invalid_request") from None
        self._number += 1
        if asked.stream:
            return Events(request, partial(self._streamed, want, number))
        replies, used = await unless_gone(request, self._answered(want, number))
        return BytesResponse(protocol.body_of(replies, asked, protocol.head_of(asked, str(number), self.model), used))

    async def _answered(
        self, want: AnswerRequest, number: int, on_tokens: Any = None
    ) -> tuple[Sequence[Reply], dict[str, Any]]:
        """The replies to a request, and its usage, once there is room for it. Raises RequestError. However it ends, its
        bill is in the journal before."""
        bills: list[AnswerBill] = []
        replies: Sequence[Reply] = ()
        how = CANCELLED
        try:
            async with self.admission.room(want.tokens):
                replies = await play(want, number, self.world, bills.append, on_tokens)
            how = ANSWERED
            return replies, bills[0].usage()
        except Full as e:
            how = REFUSED
            raise RequestError(
                f"{self.admission.under_way:,} tokens are under way and {self.admission.waiting} requests wait: ask "
                f"again in {e.after} s", "overloaded", 429, after=e.after) from None
        except Exception as e:
            how = FAILED
            if isinstance(e, UserError):
                what = ("backend_failed", 502) if isinstance(e, Resumable) else ("invalid_request", 400)
                raise RequestError(str(e), *what) from None
            raise
        finally:
            self._keep(how, want, number, replies, bills)

    def _keep(
        self, how: str, want: AnswerRequest, number: int, replies: Sequence[Reply], bills: Sequence[AnswerBill]
    ) -> None:
        """Count a request, and write it to the journal with its bill."""
        self.counts[how] += 1
        if self.journal is None or how == REFUSED:
            return
        self.journal.write({
            "request": number, "end": how, "prompt": [[m.role, m.content] for m in want.problem.prompt],
            "prefix": want.problem.prefix, "seed": want.seed, "max_tokens": want.pace.max_tokens,
            "answers": [{"text": r.content, "calls": r.calls, "finish": r.finish} for r in replies],
            "usage": bills[0].usage() if bills else None, "cost": bills[0].cost.data() if bills else None,
        })

    async def _streamed(self, want: AnswerRequest, number: int, send: Callable[[bytes], Any]) -> None:
        """The same as events. Raises RequestError before the first; after that an error is an event."""
        asked, news = want.asked, asyncio.Event()
        head = protocol.head_of(asked, str(number), self.model)
        texts = Growing(want, self.world)
        begun = False

        async def say(raw: bytes) -> None:
            nonlocal begun
            begun = True
            await send(raw)

        async def piece(index: int, text: str | None = None, **how: Any) -> None:
            more = how.pop("more", {})
            await say(_event({**head, "choices": [protocol.piece(asked, index, text, **how)], **more}))

        def heard(attempt: int, tokens: Sequence[int]) -> None:
            texts.add(attempt, tokens)
            news.set()

        work = asyncio.ensure_future(self._answered(want, number, heard if texts.grow else None))
        work.add_done_callback(lambda _: news.set())
        try:
            while not work.done():
                try:
                    async with asyncio.timeout(SILENT):
                        await news.wait()
                except TimeoutError:
                    await say(b": under way\n\n")
                news.clear()
                for i, first, text in texts.new():
                    await piece(i, text, first=first)
            replies, used = work.result()
        except RequestError as e:
            if not begun:
                raise
            await send(_event(e.body()))
            return
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        for reply in replies:
            i = reply.number % CHOICES
            for j, text in enumerate(texts.rest(i, reply)):
                await piece(i, text, first=not (texts.sent[i] or j), reply=None if texts.grow else reply)
            last = reply is replies[-1] and not asked.usage
            await piece(i, finish=reply.finish, more={"usage": used} if last else {})
        if asked.usage:
            await say(_event({**head, "choices": [], "usage": used}))
        await send(b"data: [DONE]\n\n")


class Growing:
    """The texts of a request's choices as their tokens come, and how many characters of each were sent. Held back are
    what may begin a stop string, and the bytes of a character that is not complete. A text does not `grow` where what
    is written may not be what is answered, and where calls or log-probs go with it."""

    def __init__(self, want: AnswerRequest, world: World):
        asked = want.asked
        self.whole = bool(asked.tools) or asked.logprobs
        self.grow = want.chosen.plain and not self.whole and not want.problem.prefix
        self._decode, self._asked = world.text.decode, asked
        self._held = 0 if asked.keeps_stop else max(map(len, asked.stop), default=1) - 1
        self._tokens: list[list[int]] = [[] for _ in range(want.choices)]
        self.sent = [0] * want.choices

    def add(self, attempt: int, tokens: Sequence[int]) -> None:
        """Take what an attempt wrote next."""
        self._tokens[attempt] += tokens

    def new(self) -> Iterator[tuple[int, bool, str]]:
        """(choice, whether it is its first, text) of what can be sent, and counts it as sent."""
        for i, tokens in enumerate(self._tokens):
            text, _, stopped = protocol.parted(self._decode(tokens).rstrip("\ufffd"), self._asked)
            upto = len(text) if stopped else len(text) - self._held
            if upto > self.sent[i]:
                yield i, not self.sent[i], text[self.sent[i] : upto]
                self.sent[i] = upto

    def rest(self, i: int, reply: Reply) -> Iterator[str]:
        """What was not sent of a choice that is complete, in pieces; at least one if nothing was sent."""
        text = reply.content[self.sent[i] :]
        step = max(len(text), 1) if self.whole else PIECE
        for at in range(0, max(len(text), 0 if self.sent[i] else 1), step):
            yield text[at : at + step]


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
