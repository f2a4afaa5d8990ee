"""A headless Chromium, driven over pipes by the Chrome DevTools Protocol: no driver program, no port, no package.

Messages are JSON, ended by a zero byte, on descriptors 3 and 4 of the browser (`--remote-debugging-pipe`). One browser
serves all episodes; each has a context of its own, without cookies or storage of others. No name is resolved and no
address but local files is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from typing import Any

from isocost.errors import UserError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_EXEC = """if True:
    import os, sys
    os.dup2(int(sys.argv[1]), 3)
    os.dup2(int(sys.argv[2]), 4)
    os.execv(sys.argv[3], sys.argv[3:])"""


class BrowserFailed(RuntimeError):
    """The browser ended, or a command of its protocol failed."""


def program() -> str:
    """The browser of this machine. Raises UserError if there is none."""
    found = next((at for name in NAMES if (at := shutil.which(name))), None)
    if found is None:
        raise UserError("this environment needs a browser: install chromium (Debian: apt install chromium)")
    return found


class Browser:
    """A browser process. Usable from any thread and event loop."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="isocost-browser-", ignore_cleanup_errors=True)
        # Far from 3 and 4, which the browser's end is copied to.
        to_read, self._to = (_high(fd) for fd in os.pipe())
        self._from, to_write = (_high(fd) for fd in os.pipe())
        command = [
            program(), "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self._home.name}",
            "--no-first-run", "--disable-gpu", "--disable-extensions", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--mute-audio", "--window-size=500,400",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-dev-shm-usage",
            *(["--no-sandbox"] if os.getuid() == 0 else []),      # Chromium's own sandbox does not start for root
            "about:blank",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", _EXEC, str(to_read), str(to_write), *command], pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._thread = threading.Thread(target=self._read, daemon=True, name="isocost-browser")
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, method: str, session: str = "", **given: Any) -> Future[Any]:
        """Start a command; its result is the future's. Raises BrowserFailed if the browser has ended."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": given, **({"sessionId": session} if session else {})}
        future: Future[Any] = Future()
        with self._lock:
            self._waiting[number] = future
            rest = memoryview(json.dumps(message).encode() + b"\0")
            try:
                while rest:
                    rest = rest[os.write(self._to, rest):]
            except OSError as error:
                del self._waiting[number]
                raise BrowserFailed("the browser has ended") from error
        return future

    async def call(self, method: str, session: str = "", **given: Any) -> Any:
        """The result of a command. Raises BrowserFailed."""
        return await asyncio.wrap_future(self.send(method, session, **given))

    async def open_page(self, url: str) -> Page:
        """A page in a context of its own, at a URL."""
        context = (await self.call("Target.createBrowserContext", disposeOnDetach=False))["browserContextId"]
        target = await self.call("Target.createTarget", url=url, browserContextId=context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        return Page(self, context, attached["sessionId"])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join(5)
        for end in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(end)
        self._home.cleanup()

    def _read(self) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while got := os.read(self._from, 1 << 16):
                buffer += got
                *lines, rest = bytes(buffer).split(b"\0")
                buffer = bytearray(rest)
                for line in lines:
                    self._settle(json.loads(line))
        with self._lock:
            left = list(self._waiting.values())
            self._waiting.clear()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(BrowserFailed("the browser has ended"))

    def _settle(self, message: dict[str, Any]) -> None:
        with self._lock:
            future = self._waiting.pop(message.get("id", 0), None)
        if future is None or not future.set_running_or_notify_cancel():
            return              # an event, or nobody waits any more
        if "error" in message:
            future.set_exception(BrowserFailed(str(message["error"].get("message", message["error"]))))
        else:
            future.set_result(message.get("result", {}))


class Page:
    """A page of a browser."""

    def __init__(self, browser: Browser, context: str, session: str):
        self.browser, self.context, self.session = browser, context, session

    async def run(self, script: str) -> Any:
        """The value of an expression of JavaScript; promises are awaited. Raises BrowserFailed for an exception."""
        got = await self.browser.call(
            "Runtime.evaluate", self.session, expression=script, returnByValue=True, awaitPromise=True,
        )
        if "exceptionDetails" in got:
            details = got["exceptionDetails"]
            raise BrowserFailed(str(details.get("exception", {}).get("description", details.get("text"))))
        return got["result"].get("value")

    async def click(self, x: float, y: float) -> None:
        """Press and release the left button of the mouse at a place of the page."""
        for kind, count in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 1)):
            await self.browser.call("Input.dispatchMouseEvent", self.session, type=kind, x=x, y=y,
                                    button="left" if count else "none", clickCount=count)

    async def write(self, text: str) -> None:
        """Write a text where the focus is."""
        await self.browser.call("Input.insertText", self.session, text=text)

    async def press(self, key: str, code: int) -> None:
        """Press and release a key, with its virtual key code."""
        for kind in ("keyDown", "keyUp"):
            await self.browser.call("Input.dispatchKeyEvent", self.session, type=kind, key=key, code=key,
                                    windowsVirtualKeyCode=code)

    async def close(self) -> None:
        with contextlib.suppress(BrowserFailed):
            await self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)


def _high(fd: int) -> int:
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(fd)
    return high
