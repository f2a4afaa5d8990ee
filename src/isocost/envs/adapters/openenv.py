"""`openenv:URL`: an environment of an OpenEnv server (huggingface/OpenEnv), over its WebSocket, without its package.

    openenv:http://127.0.0.1:8000          openenv:http://127.0.0.1:8000#count=100,seed=7

Each episode is a session of its own. `reset` is sent the problem's seed; the server says in GET /schema what an action
is. If that is one text, a turn is the action; else a turn is a JSON object with its fields. What an observation shows
is its text if it is one text, else its fields as JSON. Rewards and the end are the server's. A turn that is no valid
action is a fault of the model; a server that reports an error, or does not answer, is a fault of the environment.
`count` and `seed` (the first) say which problems there are; a server that does not use the seed opens differently for
the attempts at one problem, which is a fault as well.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isocost.envs.adapters import seeded
from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.tools import NO_JSON, shortened
from isocost.errors import UserError, needed
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

WAIT = 10.0       # seconds for the schema
LARGEST = 1 << 24       # bytes of a message
CLOSED = 2.0      # seconds for the server to answer a close


class ServerFailed(RuntimeError):
    """The server reported an error."""


@dataclass(frozen=True)
class OpenEnvServer:
    """Where it is, what its actions are, and which seeds."""

    url: str
    text: str             # the field of an action that is one text; empty if an action is an object
    action: str           # its schema
    count: int
    seed: int

    @classmethod
    def of(cls, spec: str) -> OpenEnvServer:
        """Read "openenv:URL[#key=value,...]" and ask the server for its schema. Raises UserError."""
        needed("websockets", "openenv", "an environment of an OpenEnv server")
        url, _, said = spec.partition(":")[2].partition("#")
        if not url.startswith(("http://", "https://")):
            raise UserError(f"{spec!r} names no server: write openenv:http://127.0.0.1:8000")
        url = url.rstrip("/")
        count, seed = seeded.count_and_seed("openenv", said)
        try:
            with urllib.request.urlopen(f"{url}/schema", timeout=WAIT) as reply:
                schema = json.load(reply)["action"]
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{url} does not answer as an OpenEnv server: {error}") from error
        return cls(url, _one_text(schema), json.dumps(_fields(schema)), count, seed)


def open_openenv(spec: str) -> EnvironmentSet:
    """What a spec names. Raises UserError."""
    which = OpenEnvServer.of(spec)
    return EnvironmentSet(
        spec, lambda problem: OpenEnvEpisode(problem, which), lambda: seeded.seeds(which.url, which.count, which.seed),
        max_turns=16, max_tokens=128,
    )


class OpenEnvEpisode(BaseEpisode):
    """One episode."""

    def __init__(self, problem: Problem, which: OpenEnvServer):
        self.problem, self.which = problem, which
        self.socket: ClientConnection | None = None
        self.said = ""

    async def open(self) -> Shown:
        from websockets.asyncio.client import connect

        self.socket = await connect("ws" + self.which.url.removeprefix("http") + "/ws", max_size=LARGEST,
                                    ping_interval=None, close_timeout=CLOSED)     # a busy server answers no ping
        data = await self._ask("reset", {"seed": self.problem.meta["seed"]})
        text = _words(data)
        how = "" if self.which.text else f"\n\nAnswer with a JSON object of these fields: {self.which.action}"
        return Shown((Message("user", text + how),), key=seeded.digest(text))

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said = said
        action: Any = {self.which.text: said}
        if not self.which.text:
            try:
                action = json.loads(said)
            except NO_JSON:
                action = None
        if not isinstance(action, dict):
            text = f"error: that is no JSON object of the fields {self.which.action}"
            return Shown((Message("user", text),), fault=Fault.model("malformed action"))
        try:
            data = await self._ask("step", action)
        except ValueError as error:
            return Shown((Message("user", shortened(f"error: {error}")),), fault=Fault.model("invalid action"))
        text = _words(data)
        return Shown((Message("user", text),), bool(data.get("done")), float(data.get("reward") or 0.0),
                     seeded.digest(text))

    async def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The observation that answers. Raises ValueError for an action that the server does not take, ServerFailed."""
        assert self.socket is not None
        await self.socket.send(json.dumps({"type": kind, "data": data}))
        try:
            reply = json.loads(await self.socket.recv())
        except NO_JSON as error:
            raise ServerFailed(f"what it answered is not JSON: {error}") from error
        found: dict[str, Any] = reply.get("data") or {}
        if reply.get("type") == "error":
            if found.get("code") == "VALIDATION_ERROR":
                raise ValueError(found.get("message", "invalid action"))
            raise ServerFailed(f"{found.get('code')}: {found.get('message')}")
        return found

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.close()


def _fields(schema: dict[str, Any]) -> dict[str, Any]:
    """The fields of an action that a policy fills in: without metadata."""
    return {k: {x: v[x] for x in ("type", "description", "enum", "anyOf") if x in v}
            for k, v in schema.get("properties", {}).items() if k != "metadata"}


def _one_text(schema: dict[str, Any]) -> str:
    fields = _fields(schema)
    name = next(iter(fields), "")
    return name if len(fields) == 1 and fields[name].get("type") == "string" else ""


def _words(data: dict[str, Any]) -> str:
    seen = data.get("observation")
    if isinstance(seen, dict):
        seen = {k: v for k, v in seen.items() if k not in ("metadata", "done", "reward") and v is not None}
        if len(seen) == 1 and isinstance(next(iter(seen.values())), str):
            return str(next(iter(seen.values())))
    return seen if isinstance(seen, str) else json.dumps(seen, ensure_ascii=False)
