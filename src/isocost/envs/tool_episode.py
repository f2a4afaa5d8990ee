"""An episode in which the policy calls tools and then answers: what the environments with tools share."""

from __future__ import annotations

from isocost.envs.tools import Toolbox
from isocost.types import Problem, Shown
from isocost.world import BaseEpisode, Luck


class ToolEpisode(BaseEpisode):
    """An `isocost.world.Environment`: turns with calls are answered by tools, a turn without one is the final answer.

    What differs is in `prepare` and `score`. Subclasses that hold something also have `close`.
    """

    about = ""          # what the system message says before the tools

    def __init__(self, problem: Problem):
        self.problem, self.said = problem, ""
        self.toolbox: Toolbox | None = None
        self.luck: Luck | None = None       # of the turn that is being answered

    async def prepare(self) -> Toolbox:
        """Make what the episode needs, and its tools."""
        raise NotImplementedError

    async def score(self) -> float:
        """The reward of the final answer and of the state in which it was given."""
        return 0.0

    def key(self) -> str:
        """Names the state that the policy is in; empty if states are not compared."""
        return ""

    async def open(self) -> Shown:
        self.toolbox = await self.prepare()
        return Shown(self.toolbox.prompt(self.problem.prompt, self.about), key=self.key())

    async def step(self, said: str, luck: Luck) -> Shown:
        assert self.toolbox is not None
        self.said, self.luck = said, luck
        answer = await self.toolbox.answer(said)
        if answer is None:
            return Shown(over=True, reward=await self.score(), key=self.key())
        return Shown(answer.messages, key=self.key(), fault=answer.fault)
