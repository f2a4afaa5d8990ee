"""A client of WebSocket (RFC 6455) for text messages, by the standard library."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import ssl
import struct
from urllib.parse import urlsplit

LARGEST = 1 << 24        # bytes of a message
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class Closed(ConnectionError):
    """The other side closed the connection, or is no WebSocket server."""


class WebSocket:
    """One connection. `send` and `receive` are used by one task at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, url: str) -> WebSocket:
        """Connect to ws:// or wss://. Raises Closed, OSError."""
        parts = urlsplit(url)
        secure = parts.scheme == "wss"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(
            host, port, ssl=ssl.create_default_context() if secure else None, limit=LARGEST,
        )
        key = base64.b64encode(os.urandom(16)).decode()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        writer.write((
            f"GET {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            writer.close()
            raise Closed(f"{url} does not answer as a WebSocket server") from error
        status, *lines = head.split("\r\n")
        given = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        wanted = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
        if status.split(" ")[1:2] != ["101"] or given.get("sec-websocket-accept") != wanted:
            writer.close()
            raise Closed(f"{url} is no WebSocket server: {status}")
        return cls(reader, writer)

    async def send(self, text: str) -> None:
        """One text message."""
        self._frame(_TEXT, text.encode())
        await self.writer.drain()

    async def receive(self) -> str:
        """The next text message. Raises Closed."""
        parts: list[bytes] = []
        while True:
            try:
                last, kind, body = await self._read()
            except asyncio.IncompleteReadError as error:
                raise Closed("the connection was closed") from error
            if kind == _PING:
                self._frame(_PONG, body)
            elif kind == _CLOSE:
                why = body[2:].decode("utf-8", "replace") or body[:2].hex()
                raise Closed(f"the server closed the connection: {why}")
            elif kind in (_TEXT, _BINARY, _CONTINUED):
                parts.append(body)
                if sum(map(len, parts)) > LARGEST:
                    raise Closed(f"a message of more than {LARGEST} bytes")
                if last:
                    return b"".join(parts).decode("utf-8", "replace")

    async def close(self) -> None:
        """Say so, and close the connection."""
        with contextlib.suppress(OSError, RuntimeError):
            self._frame(_CLOSE, struct.pack(">H", 1000))
            self.writer.close()
            async with asyncio.timeout(2):
                await self.writer.wait_closed()

    def _frame(self, kind: int, body: bytes) -> None:
        size = len(body)
        length = bytes([0x80 | size]) if size < 126 else (
            b"\xfe" + struct.pack(">H", size) if size < 1 << 16 else b"\xff" + struct.pack(">Q", size))
        mask = os.urandom(4)
        repeated = mask * (size // 4 + 1)
        masked = int.from_bytes(body, "big") ^ int.from_bytes(repeated[:size], "big")
        self.writer.write(bytes([0x80 | kind]) + length + mask + masked.to_bytes(size, "big"))

    async def _read(self) -> tuple[bool, int, bytes]:
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
        if size > LARGEST:
            raise Closed(f"a message of {size} bytes")
        mask = await self.reader.readexactly(4) if second & 0x80 else b""
        body = await self.reader.readexactly(size)
        if mask:
            body = bytes(b ^ mask[i % 4] for i, b in enumerate(body))
        return bool(first & 0x80), first & 0x0F, body
