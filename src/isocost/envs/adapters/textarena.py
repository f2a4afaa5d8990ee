"""`textarena:GAME`: the games for one player of TextArena (Guertler et al., 2025, arXiv:2504.11442).

    textarena:GuessTheNumber-v0        textarena:Mastermind-v0,count=200

Problems are seeds: `count` and `seed` (the first) are options; all others go to `textarena.make`. The games draw from
Python's global generator, so it is seeded for the length of a call, one call at a time. An invalid move is a fault of
the model. The reward is the game's, at its end: of an episode that the turn limit ends it is 0. Some games of words
download word lists when they are first used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from isocost.envs.adapters import seeded
from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.threads import in_thread
from isocost.errors import UserError
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck


@dataclass(frozen=True)
class Game:
    """A spec: which game, with what options, and how many seeds."""

    id: str
    given: dict[str, Any] = field(hash=False)
    count: int
    seed: int

    @classmethod
    def of(cls, spec: str) -> Game:
        """Read "textarena:GAME[,key=value...]". Raises UserError for a game that does not exist."""
        arena = seeded.library("textarena", "textarena")
        id, _, said = spec.partition(":")[2].partition(",")
        games = arena.envs.registration.ENV_REGISTRY
        if id not in games:
            own = sorted(g for g in games if not g.endswith("-raw"))
            near = [g for g in own if id and g.lower().startswith(id.lower()[:5])][:6]
            raise UserError(f"textarena has no game {id!r}" + (f"; near it are {', '.join(near)}" if near else ""))
        given = seeded.options(said)
        count = seeded.whole(given, "count", seeded.COUNT, 1)
        return cls(id, given, count, seeded.whole(given, "seed", 0, 0))

    def make(self) -> Any:
        """A new game, without the wrappers that repeat its history: the dialogue has it."""
        arena = seeded.library("textarena", "textarena")
        raw = f"{self.id}-raw"
        return arena.make(raw if raw in arena.envs.registration.ENV_REGISTRY else self.id, **self.given)


def open_game(spec: str) -> EnvironmentSet:
    """What a spec names. Raises UserError."""
    which = Game.of(spec)
    GameEpisode(next(seeded.seeds(which.id, 1, which.seed)), which).reset()
    return EnvironmentSet(
        spec, lambda problem: GameEpisode(problem, which), lambda: seeded.seeds(which.id, which.count, which.seed),
        max_turns=32, max_tokens=64,
    )


class GameEpisode(BaseEpisode):
    """One game."""

    def __init__(self, problem: Problem, which: Game):
        self.problem, self.which = problem, which
        self.game: Any = None
        self.said = ""

    async def open(self) -> Shown:
        text = await in_thread(self.reset)
        return Shown((Message("user", text),), key=seeded.digest(text))

    def reset(self) -> str:
        """Begin the game. Returns what it says; raises UserError for a game of several players."""
        with seeded.global_random(self.problem.meta["seed"]):
            self.game = self.which.make()
            try:
                self.game.reset(num_players=1, seed=self.problem.meta["seed"])
            except AssertionError as error:
                raise UserError(f"textarena's {self.which.id} is not for one player: {error}") from error
            return self._seen()

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said = said
        return await in_thread(self._step, said, int(luck().integers(2**31)))

    def _step(self, said: str, seed: int) -> Shown:
        with seeded.global_random(seed):
            done, _ = self.game.step(said)
            state = self.game.state
            invalid = state.error_count > 0 or bool(state.game_info[0].get("invalid_move"))
            text = self._seen() if not done else ""
        reward = float((state.rewards or {}).get(0, 0.0)) if done else 0.0
        return Shown((Message("user", text),), bool(done), reward, seeded.digest(text),
                     Fault.model("invalid move") if invalid else None)

    def _seen(self) -> str:
        """What the game says since the last turn, without what the policy said."""
        _, seen = self.game.get_observation()
        if isinstance(seen, str):
            return seen
        own = [m for m in seen if not str(m[2]).endswith("PLAYER_ACTION")]
        return "\n".join(re.sub(r"\n{3,}", "\n\n", str(m[1])).strip() for m in own) or "Go on."
