"""`mcp:COMMAND`: the tools of a server of the Model Context Protocol, over its standard input and output.

    isocost doctor smollm2 --env "mcp:python my_server.py" --data questions.jsonl

The wire is JSON-RPC 2.0, one message a line (modelcontextprotocol.io/specification, 2025-06-18): `initialize`,
`tools/list`, `tools/call`. Each episode has a server process of its own, so that no state passes from one to another.
It is started without a shell and with your rights, and is ended with the episode. The package `mcp` is not used: its
client must be closed by the task that opened it, has no limit for a message, and installs OpenTelemetry, cryptography
and pydantic. A tool's `isError` is a fault of the
tool; a server that ends or answers nothing is a fault of the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
from typing import Any

from isocost.envs.tool_episode import ToolEpisode
from isocost.envs.tools import Tool, Toolbox, ToolFailed
from isocost.types import Problem

VERSION = "2025-06-18"
LINE = 1 << 22            # bytes of a message
SAID = 1000               # bytes of a server's errors that are shown
SAYS = 0.5                # seconds that a server which ended has for them, at most: what it started may keep them open


class ServerEnded(RuntimeError):
    """The server ended, or does not speak the protocol."""


class McpServer:
    """A server process, and the requests that wait for its answers."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.count = 0
        self.errors = b""       # the end of what it wrote to its standard error
        self.listener = asyncio.ensure_future(self._listen())
        self.reader = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, command: str) -> McpServer:
        """Start a server and agree on the protocol. Raises ServerEnded."""
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, start_new_session=True, limit=LINE,
            )
        except OSError as error:
            raise ServerEnded(f"{command!r} does not start: {error}") from error
        server = cls(process)
        try:
            await server.request("initialize", {
                "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "isocost", "version": "1"},
            })
            await server._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            await server.close()
            raise
        return server

    async def tools(self) -> list[Tool]:
        """The server's tools, of all pages, sorted by name."""
        found: list[Any] = []
        cursor = None
        while True:
            page = await self.request("tools/list", {"cursor": cursor} if cursor else {})
            if not isinstance(page, dict) or not isinstance(page.get("tools"), list):
                raise ServerEnded("the answer to tools/list has no list `tools`")
            found += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return [self._tool(t) for t in sorted(found, key=lambda t: str(t["name"]))]

    def _tool(self, listed: dict[str, Any]) -> Tool:
        async def run(**arguments: Any) -> str:
            result = await self.request("tools/call", {"name": listed["name"], "arguments": arguments})
            said = "\n".join(_text(part) for part in result.get("content", ()))
            if result.get("isError"):
                raise ToolFailed(f"error: {said}", "tool error")
            return said or "done"

        parameters = listed.get("inputSchema") or {"type": "object", "properties": {}}
        schema = {"name": listed["name"], "description": listed.get("description") or "", "parameters": parameters}
        return Tool(schema, run)

    async def request(self, method: str, given: dict[str, Any]) -> Any:
        """The result of one request. Raises ToolFailed for an error that the server answers, ServerEnded otherwise."""
        self.count += 1
        number = self.count
        self.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            if self.reader.done():
                raise ServerEnded(self._ended())
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": given})
            reply = await self.waiting[number]
        finally:
            self.waiting.pop(number, None)
        if "error" in reply:
            error = ToolFailed(f"error: {reply['error'].get('message', reply['error'])}", "tool error")
            if method == "tools/call":
                raise error
            raise ServerEnded(f"{method}: {error}")
        return reply["result"]

    async def close(self) -> None:
        """End the server and all that it started."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.reader.cancel()
        self.listener.cancel()
        await asyncio.gather(self.reader, self.listener, return_exceptions=True)    # those who waited know why it ended
        await self.process.wait()
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            await asyncio.wait({self.listener}, timeout=SAYS)
            raise ServerEnded(self._ended()) from error

    async def _listen(self) -> None:
        """Read what it writes to its standard error, which would block it, and keep the end."""
        assert self.process.stderr is not None
        while part := await self.process.stderr.read(2**16):
            self.errors = (self.errors + part)[-SAID:]

    def _ended(self) -> str:
        said = self.errors.decode(errors="replace").strip()
        return f"the server has ended; it wrote: {said}" if said else "the server has ended"

    async def _read(self) -> None:
        """Resolve requests until the server ends; then all that wait fail."""
        assert self.process.stdout is not None
        why = ""
        try:
            while line := await self.process.stdout.readline():
                with contextlib.suppress(json.JSONDecodeError):
                    await self._received(json.loads(line))
        except ValueError:
            why = f"the server wrote a line of more than {LINE} bytes"
        else:
            await asyncio.wait({self.listener}, timeout=SAYS)
        finally:
            for future in self.waiting.values():
                if not future.done():
                    future.set_exception(ServerEnded(why or self._ended()))

    async def _received(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        future = self.waiting.get(message.get("id", -1))
        if "method" in message:
            if "id" in message:          # the server asks for something that is not offered
                error = {"code": -32601, "message": "not offered"}
                reply = {"result": {}} if message["method"] == "ping" else {"error": error}
                await self._send({"jsonrpc": "2.0", "id": message["id"], **reply})
        elif future is not None and not future.done() and ("result" in message or "error" in message):
            future.set_result(message)


def _text(part: dict[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part.get("text", ""))
    if part.get("type") == "resource":
        return str(part.get("resource", {}).get("text", "[resource]"))
    return f"[{part.get('type', 'content')}]"


class McpTools(ToolEpisode):
    """Answers with the help of a server's tools. Its final answer is marked by the problem's own verifier."""

    def __init__(self, problem: Problem, command: str):
        super().__init__(problem)
        self.command = command
        self.server: McpServer | None = None

    async def prepare(self) -> Toolbox:
        self.server = await McpServer.start(self.command)
        return Toolbox(await self.server.tools(), fatal=(ServerEnded,))

    async def close(self) -> None:
        if self.server is not None:
            await self.server.close()
