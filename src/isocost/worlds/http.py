"""JSON over HTTP with a bound on requests in flight, timeouts, retries and rate limits.

The standard library's client runs in threads, one connection each, so the base install needs no HTTP package. Which
requests are repeated follows RFC 9110 and the practice of OpenAI-compatible servers: 408, 409, 425, 429 and 5xx, and
connections that broke. The wait is what `Retry-After` names, else random up to a bound that doubles ("full jitter").
A 429 holds back every request of the client, because rate limits are of an account and not of a request.
"""

from __future__ import annotations

import asyncio
import email.utils
import http.client
import json
import random
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from isocost.errors import UserError
from isocost.jsonfile import parsed
from isocost.words import visible

T = TypeVar("T")
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529)     # statuses that may pass
SPENT = ("insufficient_quota", "billing_hard_limit_reached")    # of a 429 that does not pass
CONNECT = 30.0          # seconds to connect, at most
LARGEST = 2**26         # bytes of an answer
SAID = 400              # characters of a server's message that are quoted
HIDDEN = "[the key]"    # in place of the key in what a server says
PATIENCE = 600.0        # longest Retry-After, in seconds, that is waited for


@dataclass(frozen=True)
class Limits:
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
class Tally:
    """Counts of requests: `sent` (each try is one), `answered`, `failed` after all retries or with a status that does
    not pass, `repeated` by reason, and `unknown`: tries that ended without an answer, whose cost is not known."""

    sent: int = 0
    answered: int = 0
    failed: int = 0
    unknown: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "sent": self.sent, "answered": self.answered, "failed": self.failed, "unknown": self.unknown,
            "repeated": dict(self.repeated), "examples": dict(self.examples),
        }


class Refused(Exception):
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
    """One try failed and another may pass."""

    def __init__(self, why: str, said: str, after: float | None = None):
        super().__init__(said)
        self.why, self.after = why, after

    @property
    def status(self) -> int | None:
        return int(self.why) if self.why.isdigit() else None


class Client:
    """Sends JSON to one server. `key` is sent as a bearer token and appears in no text of this class, also where the
    server repeats it."""

    def __init__(self, base: str, key: str = "", limits: Limits = Limits()):
        self.base, self.limits, self.tally = base.rstrip("/"), limits, Tally()
        self._key = key
        self.url = urlsplit(self.base)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "isocost"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._pool: ThreadPoolExecutor | None = None
        self._mine = threading.local()
        self._lock, self._open = threading.Lock(), set[http.client.HTTPConnection]()
        self._bound: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._opens = self._next = 0.0      # when requests may be sent again, and when the next one may start
        self._flying, self._share, self._seen = 0, 0.0, 0.0

    # one request ----------------------------------------------------------------------------------------------

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[Any, float]:
        """The answer to a request, and its share of the time in which requests were in flight: shares of requests
        that overlap add up to that time.

        Raises:
            Refused: for a status that does not pass.
            Unanswered: after all retries.
        """
        seconds, tries = 0.0, 0
        while True:
            async with self._slot():
                await self._turn()
                began = self._enter()
                try:
                    found = await self._one("POST", path, body)
                    return found, seconds + self._leave(began)
                except _Try as e:
                    seconds += self._leave(began)
                    again = e
                except BaseException as e:
                    self._leave(began)
                    self.tally.failed += isinstance(e, Refused)
                    raise
            tries += 1
            await self._again(again, tries)

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, retries: int | None = None,
        silent: bool = False,
    ) -> Any:
        """The same without an event loop, for one request at a time, and within the same time. Only answers are tried
        again. With `silent` what the server answers is not read, and None is returned.

        Raises as `post`.
        """
        tries, most = 0, self.limits.retries if retries is None else retries
        while True:
            line = _Line()
            limit = threading.Timer(self.limits.timeout, line.cut)
            limit.daemon = True
            limit.start()
            try:
                return self._sent(method, path, body, line, silent)
            except _Try as e:
                if line.is_cut or (e.why == "timeout" and line.written):
                    raise Unanswered(f"no answer within {self.limits.timeout:g} s", late=True) from None
                tries += 1
                if tries > most or e.status is None:
                    raise Unanswered(str(e), e.status) from None
                failed = e
            finally:
                limit.cancel()
            self.pause(tries, failed)

    def pause(self, tries: int, failed: _Try | None = None) -> None:
        """Wait before the next try of `ask`, after `tries` that failed."""
        time.sleep(self.limits.wait(tries) if failed is None or failed.after is None else failed.after)

    def close(self) -> None:
        """End the threads and close their connections. The next request starts new ones."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

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

    # limits ---------------------------------------------------------------------------------------------------

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._bound is None or self._bound[0] is not loop:
            self._bound = loop, asyncio.Semaphore(self.limits.concurrency)
        return self._bound[1]

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

    # the wire -------------------------------------------------------------------------------------------------

    async def _one(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """One try in a thread. Cancelling closes its connection."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.limits.concurrency, "isocost-http")
        line = _Line()
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._sent, method, path, body, line)
        try:
            return await asyncio.wait_for(asyncio.shield(work), self.limits.timeout)
        except (asyncio.CancelledError, TimeoutError) as e:
            line.cut()
            work.add_done_callback(_ignore)
            self._add("unknown")
            if isinstance(e, TimeoutError):
                raise _Try("timeout", f"no answer within {self.limits.timeout:g} s") from None
            raise

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, line: _Line, silent: bool = False
    ) -> Any:
        """One try on this thread's connection."""
        data = None if body is None else json.dumps(body).encode()
        self._add("sent")
        try:
            answer, raw = self._exchanged(method, path, data, line)
        except (OSError, http.client.HTTPException, ValueError) as e:
            self._drop()
            if line.written and not line.is_cut:
                self._add("unknown")
            if isinstance(e, ssl.SSLCertVerificationError):
                raise UserError(f"{self.base}: its certificate cannot be verified: {e.verify_message}") from None
            kind = "timeout" if isinstance(e, TimeoutError) else "connection"
            said = _line(self._hidden(str(e)))
            raise _Try(kind, f"{type(e).__name__}: {said}" if said else type(e).__name__) from None
        finally:
            if line.is_cut or self._pool is None:   # closed meanwhile: a request opens a closed connection again
                self._drop()
        return None if silent and answer.status == 200 else self._read(answer, raw)

    def _exchanged(
        self, method: str, path: str, data: bytes | None, line: _Line
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send and read; once more on a new connection if the server had closed a kept one before it read anything."""
        for fresh in (False, True):
            connection, kept = self._connection(fresh)
            line.take(connection)
            try:
                if connection.sock is None:
                    connection.connect()
                    if connection.sock is not None:
                        connection.sock.settimeout(self.limits.timeout)
                line.use(connection.sock)
                connection.request(method, self._target(path), data, self._headers)
                line.written = True
                answer = connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if not kept or line.is_cut:
                    raise
                self._drop()
                line.written = False
                continue
            with answer:        # without a length the answer alone holds the connection
                raw = answer.read(LARGEST + 1)
            if len(raw) > LARGEST:
                raise ValueError(f"an answer of more than {LARGEST:,} bytes")
            if answer.will_close:
                self._drop()
            return answer, raw
        raise ConnectionResetError("the server closes every connection")

    def _read(self, answer: http.client.HTTPResponse, raw: bytes) -> Any:
        """The JSON of an answer. Raises Refused or _Try by its status."""
        status = answer.status
        if status == 200:
            try:
                found = self._hidden(parsed(raw))
            except (ValueError, RecursionError) as e:
                self._add("unknown")
                raise _Try("not JSON", f"an answer that {e}" if isinstance(e, ValueError) else "too deep") from None
            self._add("answered")
            return found
        said = self._message(raw)
        if status in AGAIN and not (status == 429 and any(word.encode() in raw for word in SPENT)):
            after = retry_after(answer.headers)
            if after is not None and after > PATIENCE:
                raise UserError(
                    f"{self.base} asks to wait {after:,.0f} s before the next request ({status}: {said}), and no more "
                    f"than {PATIENCE:g} s are waited for: run the same command again then"
                )
            raise _Try(str(status), f"{status}: {said}", after)
        raise Refused(status, said)

    def _message(self, raw: bytes) -> str:
        """What a server says of an error, in one line."""
        try:
            found = parsed(raw)
        except ValueError:
            found = raw.decode("utf-8", "replace")
        for key in ("error", "message", "detail"):
            if isinstance(found, Mapping) and found.get(key):
                found = found[key]
        text = found if isinstance(found, str) else json.dumps(found)
        return _line(self._hidden(text)) or "without a message"

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

    def _connection(self, fresh: bool) -> tuple[http.client.HTTPConnection, bool]:
        """This thread's connection, and whether it was used before."""
        there = getattr(self._mine, "connection", None)
        if there is not None and there.sock is not None and not fresh:
            return there, True
        self._drop()
        self._mine.connection = made = _connect(self.url, min(CONNECT, self.limits.timeout))
        with self._lock:
            self._open.add(made)
        return made, False

    def _drop(self) -> None:
        """Close this thread's connection."""
        there = getattr(self._mine, "connection", None)
        if there is not None:
            there.close()
            self._mine.connection = None
            with self._lock:
                self._open.discard(there)

    def _add(self, count: str) -> None:
        """Count one; threads count at the same time."""
        with self._lock:
            setattr(self.tally, count, getattr(self.tally, count) + 1)

    def _target(self, path: str) -> str:
        own = f"{self.url.path}{path}"
        return f"{self.base}{path}" if self.url.scheme == "http" and _proxy(self.url) else own


@dataclass
class _Line:
    """The connection of one try, so that it can be closed from another thread."""

    connection: http.client.HTTPConnection | None = None
    sock: socket.socket | None = None       # kept: a connection forgets it where an answer has no length
    written: bool = False
    is_cut: bool = False

    def take(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.use(None)

    def use(self, sock: socket.socket | None) -> None:
        """From now on. Raises ConnectionAbortedError if it was cut meanwhile."""
        self.sock = sock
        if self.is_cut:
            raise ConnectionAbortedError("cancelled")

    def cut(self) -> None:
        self.is_cut = True
        there = self.sock or (self.connection.sock if self.connection else None)
        if there is not None:
            with suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)


def _ignore(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()


def _proxy(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for a server (HTTP_PROXY, HTTPS_PROXY, NO_PROXY)."""
    named = getproxies().get(url.scheme)
    if not named or proxy_bypass(url.hostname or ""):
        return None
    return urlsplit(named if "://" in named else f"http://{named}")


def _connect(url: SplitResult, timeout: float) -> http.client.HTTPConnection:
    proxy = _proxy(url)
    to = proxy or url
    host, port = to.hostname or "", to.port
    if url.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout)
    made = http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
    if proxy:
        user = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
        own = {"Proxy-Authorization": f"Basic {b64encode(user.encode()).decode()}"} if proxy.username else {}
        made.set_tunnel(url.hostname or "", url.port or 443, own)
    return made


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
