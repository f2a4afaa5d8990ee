"""`textworld:FILE` and `textworld:OPTIONS`: games of TextWorld (Cote et al., 2018, arXiv:1806.11532).

    textworld:game.z8                                  one game, or a folder of games: a problem each
    textworld:rooms=3,objects=4,quest=3,count=20       games that TextWorld makes, with seeds from `seed` on

A made game is compiled by Inform 7, which takes about 5 s, and is kept in the user's cache. The score of a turn is what
the game's score rose by, divided by its highest score. The game says which commands it does not understand; they are a
fault of the model. Games run in processes of their own (`textworld_process`): some commands crash their interpreter.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.envs.adapters import seeded, textworld_process
from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.threads import in_thread
from isocost.errors import UserError
from isocost.options import read
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

LONGEST = 80         # characters of a command
FILES = (".z8", ".ulx", ".z5")
BANNER = re.compile(r"(?=.*[$_|\\])[\s$\\_|/<>]+")
NOT_UNDERSTOOD = re.compile(
    r"(that's not a verb i recogni[sz]e|i didn't understand|you can't see any such thing|i beg your pardon|"
    r"you must supply a noun|that's not something you can)", re.I,
)


@dataclass(frozen=True)
class Made:
    """Games that are made: their size, and how many."""

    rooms: int = 3
    objects: int = 5
    quest: int = 3        # commands of the shortest solution
    count: int = 20
    seed: int = 0         # of the first

    def __post_init__(self) -> None:
        for name, least in (("rooms", 1), ("objects", 1), ("quest", 1), ("count", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"textworld: {name} is at least {least}, not {getattr(self, name)}")


def open_textworld(spec: str) -> EnvironmentSet:
    """What a spec names. Raises UserError."""
    rest = spec.partition(":")[2]
    seeded.library("textworld", "textworld")
    problems: Callable[[], Iterator[Problem]]
    if rest and "=" not in rest:
        files = _files(rest)
        problems = lambda: (_problem(f.stem, str(f), i) for i, f in enumerate(files))  # noqa: E731
    else:
        which = Made(**read(spec, Made()))
        problems = lambda: _made(which)  # noqa: E731
    return EnvironmentSet(spec, TextWorldGame, problems, max_turns=24, max_tokens=24)


def _files(path: str) -> list[Path]:
    at = Path(path)
    found = sorted(f for f in at.iterdir() if f.suffix in FILES) if at.is_dir() else [at] if at.is_file() else []
    if not found:
        raise UserError(f"there is no TextWorld game at {path}: a file or folder of {', '.join(FILES)}")
    return found


def _made(which: Made) -> Iterator[Problem]:
    for seed in range(which.seed, which.seed + which.count):
        yield _problem(f"r{which.rooms}o{which.objects}q{which.quest}s{seed}", which, seed)


def _problem(name: str, game: str | Made, seed: int) -> Problem:
    known = f"textworld {name}"
    return Problem(f"textworld-{name}", (Message("user", known),), None, meta={
        "game": game, "seed": seed, "source": "textworld", "kin": known, "exact": False,
    })


def made(which: Made, seed: int) -> str:
    """The file of a game, made if it is not there yet."""
    textworld = seeded.library("textworld", "textworld")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isocost" / "textworld"
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"r{which.rooms}-o{which.objects}-q{which.quest}-s{seed}-v{textworld.__version__}.z8"
    if not path.exists():
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects, options.quest_length = which.rooms, which.objects, which.quest
        options.seeds = seed
        part = home / f"{path.stem}-{os.getpid()}.z8"
        options.path = str(part)
        with seeded.global_random(seed):
            textworld.make(options)
        os.replace(part.with_suffix(".json"), path.with_suffix(".json"))
        part.with_suffix(".ni").unlink(missing_ok=True)
        os.replace(part, path)
    return str(path)


class Games:
    """The process that plays games, started when it is first needed, and again if it has ended."""

    def __init__(self) -> None:
        self.home = tempfile.TemporaryDirectory(prefix="isocost-textworld-", ignore_cleanup_errors=True)
        self.path = f"{self.home.name}/socket"
        self.process = subprocess.Popen(
            [sys.executable, "-P", textworld_process.__file__, self.path], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            self.close()
            raise GameFailed("the process that plays games does not start")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            assert end is not None
            end.close()
        self.home.cleanup()


class GameFailed(RuntimeError):
    """A game crashed, or took too long for a command."""


_LOCK = threading.Lock()
_GAMES: list[Games] = []


def games() -> Games:
    """The process of this process."""
    with _LOCK:
        if _GAMES and _GAMES[0].process.poll() is not None:
            _GAMES.pop().close()
        if not _GAMES:
            _GAMES.append(Games())
            atexit.register(close_games)
        return _GAMES[0]


def close_games() -> None:
    """End the process that plays games, if there is one."""
    with _LOCK:
        while _GAMES:
            _GAMES.pop().close()


class TextWorldGame(BaseEpisode):
    """One game, from its introduction to its end."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.said, self.state, self.score, self.most = "", "", 0.0, 1.0
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def open(self) -> Shown:
        seed, game = self.problem.meta["seed"], self.problem.meta["game"]
        file = game if isinstance(game, str) else await in_thread(made, game, seed)
        self.reader, self.writer = await asyncio.open_unix_connection((await in_thread(games)).path, limit=1 << 20)
        found = await self._ask({"file": file, "seed": seed})
        self.most, self.score = found["most"], found["score"]
        return Shown((Message("user", self._shown(found)),), key=self.state)

    async def step(self, said: str, luck: Luck) -> Shown:
        """One command, of printable ASCII; a game has no luck of its own."""
        self.said = said
        command = " ".join(said.split())
        if not command or len(command) > LONGEST or not (command.isascii() and command.isprintable()):
            text = f"A command is a few plain words, of at most {LONGEST} characters."
            return Shown((Message("user", text),), key=self.state, fault=Fault.model("not understood"))
        found = await self._ask({"command": command})
        text = self._shown(found)
        reward = (found["score"] - self.score) / self.most
        self.score = found["score"]
        fault = Fault.model("not understood") if NOT_UNDERSTOOD.search(text) else None
        return Shown((Message("user", text),), found["done"], reward, self.state, fault)

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.reader is not None and self.writer is not None
        try:
            self.writer.write(json.dumps(request).encode() + b"\n")
            await self.writer.drain()
            line = await self.reader.readline()
        except (ConnectionError, ValueError) as error:
            raise GameFailed("the game ended") from error
        if not line.endswith(b"\n"):
            raise GameFailed("the game crashed, or took too long for a command")
        found: dict[str, Any] = json.loads(line)
        return found

    def _shown(self, found: dict[str, Any]) -> str:
        """The words of the game, without its banner and its status line."""
        text = re.sub(r"\n?>\s*-=[^\n]*=-\d+/\d+\s*$", "", found["feedback"].rstrip())
        text = "\n".join(line for line in text.splitlines() if not BANNER.fullmatch(line))
        text = re.sub(r"\n{3,}", "\n\n", text).strip()
        self.state = seeded.digest(f"{found['where']} {found['score']} {text}")
        return text

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            with contextlib.suppress(OSError):
                await self.writer.wait_closed()
