"""JSON over HTTP with a bound on requests in flight, timeouts, retries and rate limits, on top of httpx2.

httpx2 continues httpx, and the libraries of tokenizers use it already. One thread with an event loop of its own sends
the requests of a client, so that any thread and any event loop may make them. Which requests are repeated follows RFC
9110 and the practice of OpenAI-compatible servers: 408, 409, 425, 429 and 5xx, and connections that broke. The wait is
what `Retry-After` names, else random up to a bound that doubles ("full jitter"). A 429 holds back every request of the
client, because rate limits are of an account and not of a request.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from isocost.disk.jsonfile import parsed
from isocost.errors import UserError, needed
from isocost.gather import finished
from isocost.screen.words import visible

T = TypeVar("T")
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529)     # statuses that may pass
SPENT = ("insufficient_quota", "billing_hard_limit_reached")    # of a 429 that does not pass
CONNECT = 30.0          # seconds to connect, at most
KEPT = 3.0              # seconds that a connection is kept without a request: many servers close theirs after 5
LARGEST = 2**26         # bytes of an answer
SAID = 400              # characters of a server's message that are quoted
HIDDEN = "[the key]"    # in place of the key in what a server says
PATIENCE = 600.0        # longest Retry-After, in seconds, that is waited for


@dataclass(frozen=True)
class RequestLimits:
    """How a server is asked: `concurrency` requests in flight at most, `timeout` seconds for each, `retries` of one
    that may pass, `per_minute` requests at most (None: no limit). Waits between retries start at up to `first` seconds
    and are at most `longest`."""

    concurrency: int = 16
    timeout: float = 600.0
    retries: int = 6
    per_minute: float | None = None
    first: float = 1.0
    longest: float = 60.0

    def wait(self, tries: int) -> float:
        """Seconds before the next try, after `tries` that failed."""
        return random.uniform(0.0, min(self.longest, self.first * 2.0 ** (tries - 1)))


@dataclass
class RequestCounts:
    """Counts of requests: `sent` (each try is one), `answered`, `failed` after all retries or with a status that does
    not pass, `repeated` by reason, and `unknown`: tries that ended without an answer, whose cost is not known."""

    sent: int = 0
    answered: int = 0
    failed: int = 0
    unknown: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {
            "sent": self.sent, "answered": self.answered, "failed": self.failed, "unknown": self.unknown,
            "repeated": dict(self.repeated), "examples": dict(self.examples),
        }


class StatusError(Exception):
    """The server answered with a status that no retry changes."""

    def __init__(self, status: int, said: str):
        super().__init__(f"{status}: {said}")
        self.status, self.said = status, said


class Unanswered(Exception):
    """No answer after all retries; the text is the last reason, `status` that of the last answer if it was one, and
    `late` says that the last try took its whole time."""

    def __init__(self, why: str, status: int | None = None, late: bool = False):
        super().__init__(why)
        self.status, self.late = status, late


class _Try(Exception):
    """One try failed and another may pass. `late`: it took its whole time."""

    def __init__(self, why: str, said: str, after: float | None = None, late: bool = False):
        super().__init__(said)
        self.why, self.after, self.late = why, after, late

    @property
    def status(self) -> int | None:
        return int(self.why) if self.why.isdigit() else None


class Client:
    """Sends JSON to one server. `key` is sent as a bearer token and appears in no text of this class, also where the
    server repeats it. Raises UserError without httpx2."""

    def __init__(self, base: str, key: str = "", limits: RequestLimits = RequestLimits()):
        self.base, self.limits, self.tally = base.rstrip("/"), limits, RequestCounts()
        self._key, self._httpx = key, needed("httpx2", "endpoint", "a model behind a server")
        for name in ("httpx2", "httpcore2"):    # what they log quotes the server, which may repeat the key
            logging.getLogger(name).setLevel(logging.WARNING)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "isocost",
                         "Accept-Encoding": "identity"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._wire: _Wire | None = None
        self._lock, self._slots = threading.Lock(), asyncio.Semaphore(limits.concurrency)
        self._opens = self._next = 0.0      # when requests may be sent again, and when the next one may start
        self._flying, self._share, self._seen = 0, 0.0, 0.0

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[Any, float]:
        """The answer to a request, and its share of the time in which requests were in flight: shares of requests
        that overlap add up to that time.

        Raises Refused for a status that does not pass; Unanswered after all retries.
        """
        return await asyncio.wrap_future(self._open().begin(self._post(path, body)))

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, retries: int | None = None,
        silent: bool = False,
    ) -> Any:
        """The same without an event loop, and within the same time. Only answers are tried again. With `silent` what
        the server answers is not read, and None is returned.

        Raises as `post`.
        """
        tries, most = 0, self.limits.retries if retries is None else retries
        while True:
            work = self._open().begin(self._try(method, path, body, silent))
            try:
                return work.result()
            except _Try as e:
                tries += 1
                if tries > most or e.status is None:
                    raise Unanswered(str(e), e.status, e.late) from None
                failed = e
            finally:
                work.cancel()       # where a signal ends the wait
            self.pause(tries, failed)

    def pause(self, tries: int, failed: _Try | None = None) -> None:
        """Wait before the next try of `ask`, after `tries` that failed."""
        time.sleep(self.limits.wait(tries) if failed is None or failed.after is None else failed.after)

    def close(self) -> None:
        """End the thread and close its connections. The next request starts a new one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _open(self) -> _Wire:
        with self._lock:
            if self._wire is None:
                self._wire, self._slots = _Wire(self._client()), asyncio.Semaphore(self.limits.concurrency)
            return self._wire

    def _client(self) -> Any:
        kept = self._httpx.Limits(max_keepalive_connections=self.limits.concurrency, keepalive_expiry=KEPT)
        try:
            return self._httpx.AsyncClient(
                headers=self._headers, timeout=self._httpx.Timeout(None, connect=CONNECT), limits=kept)
        except (ImportError, ValueError) as e:      # such as SOCKS without the package for it
            raise UserError(f"the proxy that the environment names cannot be used ({e}): correct HTTP_PROXY, "
                            "HTTPS_PROXY or ALL_PROXY, or list the server in NO_PROXY") from None

    async def _post(self, path: str, body: Mapping[str, Any]) -> tuple[Any, float]:
        seconds, tries = 0.0, 0
        while True:
            async with self._slots:
                await self._turn()
                began = self._enter()
                try:
                    found = await self._try("POST", path, body)
                    return found, seconds + self._leave(began)
                except _Try as e:
                    seconds += self._leave(began)
                    again = e
                except BaseException as e:
                    self._leave(began)
                    self.tally.failed += isinstance(e, StatusError)
                    raise
            tries += 1
            await self._again(again, tries)

    async def _again(self, failed: _Try, tries: int) -> None:
        """Wait for the next try. Raises Unanswered if there is none."""
        self.tally.examples.setdefault(failed.why, str(failed))
        if tries > self.limits.retries:
            self.tally.failed += 1
            raise Unanswered(str(failed), failed.status)
        self.tally.repeated[failed.why] += 1
        wait = self.limits.wait(tries) if failed.after is None else failed.after
        if failed.why == "429":
            self._opens = max(self._opens, time.monotonic() + wait)
        else:
            await asyncio.sleep(wait)

    async def _turn(self) -> None:
        """Wait until a request may be sent."""
        now = time.monotonic()
        start = max(now, self._next)
        if self.limits.per_minute:
            self._next = start + 60.0 / self.limits.per_minute
        while (wait := max(start, self._opens) - time.monotonic()) > 0:
            await asyncio.sleep(wait)

    def _enter(self) -> float:
        self._count()
        self._flying += 1
        return self._share

    def _leave(self, began: float) -> float:
        self._count()
        self._flying -= 1
        return self._share - began

    def _count(self) -> None:
        """Add the time since the last change to what each request in flight has used."""
        now = time.monotonic()
        if self._flying:
            self._share += (now - self._seen) / self._flying
        self._seen = now

    async def _try(self, method: str, path: str, body: Mapping[str, Any] | None, silent: bool = False) -> Any:
        """One try, in all of the time that it may take. Cancelling closes its connection. Raises Refused and _Try."""
        self.tally.sent += 1
        httpx, unsent = self._httpx, (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.ProxyError)
        try:
            async with asyncio.timeout(self.limits.timeout):
                status, headers, raw = await self._exchange(method, path, body)
        except (asyncio.CancelledError, TimeoutError) as e:
            self.tally.unknown += 1
            if isinstance(e, TimeoutError):
                raise _Try("timeout", f"no answer within {self.limits.timeout:g} s", late=True) from None
            raise
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as e:
            self.tally.unknown += not isinstance(e, unsent)
            root = _root(e)
            if isinstance(root, ssl.SSLCertVerificationError):
                raise UserError(f"{self.base}: its certificate cannot be verified: {root.verify_message}") from None
            kind = "timeout" if isinstance(e, httpx.TimeoutException) else "connection"
            said = _line(self._hidden(str(root).partition(": bytearray(")[0]))
            raise _Try(kind, f"{type(root).__name__}: {said}" if said else type(root).__name__) from None
        return None if silent and status == 200 else self._read(status, headers, raw)

    async def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. Raises ValueError for one that is too large."""
        assert self._wire is not None
        data = None if body is None else json.dumps(body).encode()
        async with self._wire.client.stream(method, self.base + path, content=data) as answer:
            raw = bytearray()
            async for part in answer.aiter_raw():
                raw += part
                if len(raw) > LARGEST:
                    raise ValueError(f"an answer of more than {LARGEST:,} bytes")
            return answer.status_code, answer.headers, bytes(raw)

    def _read(self, status: int, headers: Mapping[str, str], raw: bytes) -> Any:
        """The JSON of an answer. Raises Refused or _Try by its status."""
        if status == 200:
            try:
                found = self._hidden(parsed(raw))
            except (ValueError, RecursionError) as e:
                self.tally.unknown += 1
                raise _Try("not JSON", f"an answer that {e}" if isinstance(e, ValueError) else "too deep") from None
            self.tally.answered += 1
            return found
        said = self._message(raw)
        if status in AGAIN and not (status == 429 and any(word.encode() in raw for word in SPENT)):
            after = retry_after(headers)
            if after is not None and after > PATIENCE:
                raise UserError(
                    f"{self.base} asks to wait {after:,.0f} s before the next request ({status}: {said}), and no more "
                    f"than {PATIENCE:g} s are waited for: run the same command again then"
                )
            raise _Try(str(status), f"{status}: {said}", after)
        raise StatusError(status, said)

    def _message(self, raw: bytes) -> str:
        """What a server says of an error, in one line."""
        try:
            found = parsed(raw)
        except ValueError:
            found = raw.decode("utf-8", "replace")
        for key in ("error", "message", "detail"):
            if isinstance(found, Mapping) and found.get(key):
                found = found[key]
        found = self._hidden(found)
        return _line(found if isinstance(found, str) else json.dumps(found)) or "without a message"

    def _hidden(self, found: T) -> T:
        """What a server says, a text or parsed JSON, without the key."""
        if not self._key:
            return found
        if isinstance(found, str):
            return found.replace(self._key, HIDDEN)  # type: ignore[return-value]
        if isinstance(found, list):
            return [self._hidden(x) for x in found]  # type: ignore[return-value]
        if isinstance(found, dict):
            return {self._hidden(k): self._hidden(x) for k, x in found.items()}  # type: ignore[return-value]
        return found


class _Wire:
    """An httpx2 client and the thread in which it sends."""

    def __init__(self, client: Any):
        self.client, self._up = client, threading.Event()
        self._thread = threading.Thread(target=lambda: finished(self._live()), name="isocost-http", daemon=True)
        self._thread.start()
        self._up.wait()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _live(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._up.set()
        async with self.client:
            await self._end.wait()
            work = asyncio.all_tasks() - {asyncio.current_task()}
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)


def _root(error: BaseException) -> BaseException:
    """The error that others were raised from."""
    while True:
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
        if inner is None:
            return error
        error = inner


def retry_after(headers: Any) -> float | None:
    """Seconds that a server asks to wait: `retry-after-ms`, else `Retry-After` as seconds or as a date (RFC 9110,
    10.2.3), which is read by the server's own clock: the answer's `Date`. None without one that can be read."""
    milliseconds, after = headers.get("retry-after-ms"), headers.get("retry-after")
    with suppress(TypeError, ValueError):
        return max(0.0, float(milliseconds) / 1000)
    with suppress(TypeError, ValueError):
        return max(0.0, float(after))
    with suppress(TypeError, ValueError):
        until, now = (email.utils.parsedate_to_datetime(x) for x in (after, headers.get("date")))
        return max(0.0, (until - now).total_seconds())
    return None


def _line(text: str) -> str:
    return visible(" ".join(text.split())[:SAID], lines=False)
