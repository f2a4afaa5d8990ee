"""`gym:ID`: environments of Gymnasium, read and acted on in words.

    gym:FrozenLake-v1@words.py,is_slippery=true       a user's words
    gym:MiniGrid-DoorKey-5x5-v0                       the words for minigrid and BabyAI, below
    gym:MyText-v0                                     one whose observations and actions are text already

words.py has `show(observation, info) -> str` and `read(said) -> action`, None for no action, and may have
`about(env) -> str` (read first) and `key(observation, info) -> str` (names the state). Problems are seeds: `count` and
`seed` (the first) are options; all others go to `gymnasium.make`. The environment's random numbers are those of the
turn, so that two attempts at one problem differ in their luck. Rewards are Gymnasium's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocost.envs.adapters import minigrid_words, seeded
from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.threads import in_thread
from isocost.envs.user_file import load
from isocost.errors import UserError
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck


@dataclass(frozen=True)
class GymText:
    """How an environment is read and acted on."""

    show: Callable[[Any, Any], str]
    read: Callable[[str], Any]
    about: Callable[[Any], str] = lambda env: ""
    key: Callable[[Any, Any], str] | None = None
    source: str | None = None          # SHA-256 of a user's file


@dataclass(frozen=True)
class Gym:
    """A spec: what is made, how often, and its words."""

    id: str
    given: dict[str, Any] = field(hash=False)
    count: int
    seed: int
    file: str = ""

    @classmethod
    def of(cls, spec: str) -> Gym:
        """Read "gym:ID[@FILE.py][,key=value...]". Raises UserError."""
        _, _, rest = spec.partition(":")
        named, _, said = rest.partition(",")
        id, _, file = named.partition("@")
        if not id:
            raise UserError(f"{spec!r} names no environment: write gym:FrozenLake-v1@words.py")
        given = seeded.options(said)
        count = seeded.whole(given, "count", seeded.COUNT, 1)
        return cls(id, given, count, seeded.whole(given, "seed", 0, 0), file)

    def make(self) -> Any:
        """A new environment. Raises UserError for an id or options that Gymnasium does not take."""
        gymnasium = seeded.library("gymnasium", "gymnasium minigrid")
        if self.id.startswith(("MiniGrid-", "BabyAI-")):
            seeded.library("minigrid", "gymnasium minigrid")
        try:
            return gymnasium.make(self.id, **self.given)
        except (gymnasium.error.Error, TypeError) as error:
            raise UserError(f"gymnasium does not make {self.id!r}: {error}") from error

    def words(self) -> GymText:
        """Those of the file, those for minigrid, or those of text. Raises UserError if there are none."""
        if self.file:
            module, source = load(self.file)
            lacks = [n for n in ("show", "read") if not callable(getattr(module, n, None))]
            if lacks:
                raise UserError(f"{self.file} has no function {lacks[0]}: words are show and read")
            gymnasium = seeded.library("gymnasium", "gymnasium minigrid")
            try:
                gymnasium.spec(self.id)
            except (gymnasium.error.Error, ImportError) as error:
                raise UserError(f"gymnasium does not make {self.id!r}: {error}") from error
            return GymText(module.show, module.read, getattr(module, "about", lambda env: ""),
                           getattr(module, "key", None), source)
        if self.id.startswith(("MiniGrid-", "BabyAI-")):
            return GymText(minigrid_words.show, minigrid_words.read, minigrid_words.about)
        made = self.make()
        try:
            text = seeded.library("gymnasium", "gymnasium minigrid").spaces.Text
            if isinstance(made.observation_space, text) and isinstance(made.action_space, text):
                return GymText(lambda observation, info: str(observation), lambda said: said)
        finally:
            made.close()
        named = f"gym:{self.id}@{self.id.partition('-')[0].lower()}.py"
        raise UserError(f"{self.id} is not made of text: write its words in a file and name it, such as {named}")


def open_gym(spec: str) -> EnvironmentSet:
    """What a spec names. Raises UserError."""
    which = Gym.of(spec)
    words = which.words()
    named = f"{which.id}{'@' + Path(which.file).name if which.file else ''}"
    return EnvironmentSet(
        spec, lambda problem: GymEpisode(problem, which, words), lambda: seeded.seeds(named, which.count, which.seed),
        max_turns=64, max_tokens=16, source=words.source,
    )


class GymEpisode(BaseEpisode):
    """One episode. A turn that is no action is a fault of the model, and the environment stays as it is."""

    def __init__(self, problem: Problem, which: Gym, words: GymText):
        self.problem, self.which, self.words = problem, which, words
        self.env: Any = None
        self.said, self.state, self.shown = "", "", ""

    async def open(self) -> Shown:
        observation, info = await in_thread(self._reset)
        about = self.words.about(self.env)
        text = self._show(observation, info)
        return Shown((Message("user", f"{about}\n\n{text}" if about else text),), key=self.state)

    def _reset(self) -> tuple[Any, Any]:
        self.env = self.which.make()
        out: tuple[Any, Any] = self.env.reset(seed=self.problem.meta["seed"])
        return out

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said = said
        action = self.words.read(said)
        if action is None:
            text = f"That is no action.\n{self.shown}"
            return Shown((Message("user", text),), key=self.state, fault=Fault.model("no such action"))
        self.env.unwrapped.np_random = luck()
        observation, reward, ended, cut, info = await in_thread(self.env.step, action)
        text = self._show(observation, info)
        return Shown((Message("user", text),), bool(ended or cut), float(reward), self.state)

    def _show(self, observation: Any, info: Any) -> str:
        self.shown = str(self.words.show(observation, info))
        named = self.words.key(observation, info) if self.words.key else self.shown
        self.state = seeded.digest(str(named))
        return self.shown

    async def close(self) -> None:
        if self.env is not None:
            await in_thread(self.env.close)
