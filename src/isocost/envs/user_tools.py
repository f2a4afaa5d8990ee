"""`tools:my_env.py:Class`: a class written for TRL's `environment_factory`, as it is.

TRL's contract (trl 1.x, `GRPOTrainer(environment_factory=...)`): an instance for each rollout; `reset(**columns)` gets
the row and returns None or words that are appended to the last user message; its other public methods are tools, with
docstrings; `get_reward()`, if there is one, scores the state. Both may be coroutines. A tool that raises is reported to
the policy.

Two differences. `get_reward` is called after each turn, and a turn's reward is the change since the one before: so the
rewards of an episode sum to what the last call returned, also where the turn limit ends it. An instance is used for one
rollout only, and not reset and used again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from isocost.envs.threads import in_thread
from isocost.envs.tools import Toolbox, of_object
from isocost.types import Message, Problem, Shown
from isocost.world import Luck

APART = ("reset", "get_reward", "close")


class UserTools:
    """An episode of a user's class."""

    def __init__(self, problem: Problem, made: Callable[[], Any]):
        self.problem, self.made = problem, made
        self.thing: Any = None
        self.toolbox: Toolbox | None = None
        self.said, self.paid = "", 0.0

    async def open(self) -> Shown:
        self.thing = await in_thread(self.made)
        self.toolbox = Toolbox(of_object(self.thing, APART, blocks=True))
        words = await _called(self.thing.reset, **columns(self.problem))
        messages = list(self.problem.prompt) or [Message("user", "")]
        if words is not None:
            if not isinstance(words, str):
                raise TypeError(f"reset returned {type(words).__name__}; only text can be read")
            messages[-1] = replace(messages[-1], content=messages[-1].content + words)
        return Shown(self.toolbox.prompt(messages) if self.toolbox.tools else tuple(messages))

    async def step(self, said: str, luck: Luck) -> Shown:
        assert self.toolbox is not None
        self.said = said
        answer = await self.toolbox.answer(said)
        reward = 0.0
        if hasattr(self.thing, "get_reward"):
            now = float(await _called(self.thing.get_reward))
            reward, self.paid = now - self.paid, now
        if answer is None:
            return Shown(over=True, reward=reward)
        return Shown(answer.messages, reward=reward, fault=answer.fault)

    def final(self) -> str:
        return self.said

    async def close(self) -> None:
        if callable(close := getattr(self.thing, "close", None)):
            await _called(close)


def columns(problem: Problem) -> dict[str, Any]:
    """A problem's row as TRL passes it: its own columns, with `prompt` as messages, and `answer` if it has one."""
    given = dict(problem.meta.get("columns", {}))
    given["prompt"] = [{"role": m.role, "content": m.content} for m in problem.prompt]
    if problem.answer is not None:
        given.setdefault("answer", problem.answer)
    return given


async def _called(function: Callable[..., Any], **given: Any) -> Any:
    """The result of a user's function: a coroutine is awaited, another runs in a thread, for it may block."""
    if inspect.iscoroutinefunction(function):
        return await function(**given)
    return await in_thread(function, **given)
