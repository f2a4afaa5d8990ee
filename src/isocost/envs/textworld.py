"""`textworld:FILE` and `textworld:OPTIONS`: games of TextWorld (Cote et al., 2018, arXiv:1806.11532).

    textworld:game.z8                                  one game, or a folder of games: a problem each
    textworld:rooms=3,objects=4,quest=3,count=20       games that TextWorld makes, with seeds from `seed` on

A made game is compiled by Inform 7, which takes about 5 s, and is kept in the user's cache. The score of a turn is what
the game's score rose by, divided by its highest score. The game says which commands it does not understand; they are a
fault of the model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.envs import outside
from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.options import read
from isocost.envs.threads import in_thread
from isocost.errors import UserError
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import Luck

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
    outside.library("textworld", "textworld")
    problems: Callable[[], Iterator[Problem]]
    if rest and "=" not in rest:
        files = _files(rest)
        problems = lambda: (_problem(f.stem, str(f), i) for i, f in enumerate(files))  # noqa: E731
    else:
        which = Made(**read(spec, Made()))
        problems = lambda: _made(which)  # noqa: E731
    return EnvironmentSet(spec, Play, problems, max_turns=24, max_tokens=24)


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
    textworld = outside.library("textworld", "textworld")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isocost" / "textworld"
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"r{which.rooms}-o{which.objects}-q{which.quest}-s{seed}-v{textworld.__version__}.z8"
    if not path.exists():
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects, options.quest_length = which.rooms, which.objects, which.quest
        options.seeds = seed
        part = home / f"{path.stem}-{os.getpid()}.z8"
        options.path = str(part)
        with outside.global_random(seed):
            textworld.make(options)
        os.replace(part.with_suffix(".json"), path.with_suffix(".json"))
        part.with_suffix(".ni").unlink(missing_ok=True)
        os.replace(part, path)
    return str(path)


class Play:
    """One game, from its introduction to its end."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.game: Any = None
        self.said, self.state, self.score, self.most = "", "", 0.0, 1.0

    async def open(self) -> Shown:
        text = await in_thread(self._start)
        return Shown((Message("user", text),), key=self.state)

    def _start(self) -> str:
        textworld = outside.library("textworld", "textworld")
        file = self.problem.meta["game"]
        file = file if isinstance(file, str) else made(file, self.problem.meta["seed"])
        wanted = textworld.EnvInfos(max_score=True, score=True, won=True, lost=True, location=True, inventory=True)
        self.game = textworld.start(file, wanted)
        self.game.seed(self.problem.meta["seed"])
        state = self.game.reset()
        self.most = float(state.max_score or 1)
        self.score = float(state.score or 0)
        return self._shown(state)

    async def step(self, said: str, luck: Luck) -> Shown:
        """One command; a game has no luck of its own."""
        self.said = said
        command = " ".join(said.split())[:200] or "look"
        state, _, done = await in_thread(self.game.step, command)
        text = self._shown(state)
        reward = (float(state.score or 0) - self.score) / self.most
        self.score = float(state.score or 0)
        fault = Fault.model("not understood") if NOT_UNDERSTOOD.search(text) else None
        return Shown((Message("user", text),), bool(done), reward, self.state, fault)

    def _shown(self, state: Any) -> str:
        """The words of the game, without its banner and its status line."""
        text = re.sub(r"\n?>\s*-=[^\n]*=-\d+/\d+\s*$", "", str(state.feedback).rstrip())
        text = "\n".join(line for line in text.splitlines() if not BANNER.fullmatch(line))
        text = re.sub(r"\n{3,}", "\n\n", text)
        self.state = outside.digest(f"{state.get('location')} {state.get('inventory')} {state.score} {text}")
        return text.strip()

    def final(self) -> str:
        return self.said

    async def close(self) -> None:
        if self.game is not None:
            await in_thread(self.game.close)
