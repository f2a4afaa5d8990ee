"""`tools:my_env.py:Class`: a class written for TRL's `environment_factory`, as it is.

TRL's contract (trl 1.x, `GRPOTrainer(environment_factory=...)`): an instance for each rollout; `reset(**columns)` gets
the row and returns None or words that are appended to the last user message; its other public methods are tools, with
docstrings; `get_reward()`, if there is one, scores the state. Both may be coroutines. A tool that raises is reported to
the policy.

`tools:my_env.py:Class#count=500` has problems of its own, for a class whose `reset` makes the task. Python's `random`
is seeded by the problem in `reset`, and by the turn in tools (`own_random`): all attempts at one problem open alike.

Differences. `get_reward` is called after each turn, and a turn's reward is the change since the one before: so the
rewards of an episode sum to what the last call returned, also where the turn limit ends it. An instance is used for one
rollout only, and not reset and used again. A public method `close` is no tool: it is called at the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from isocost.envs import own_random
from isocost.envs.adapters import seeded
from isocost.envs.threads import in_thread
from isocost.envs.tools import Toolbox, of_object
from isocost.types import Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

APART = ("reset", "get_reward", "close")
OWNED = "owned"          # in the meta of a problem whose task `reset` makes


class UserTools(BaseEpisode):
    """An episode of a user's class."""

    def __init__(self, problem: Problem, made: Callable[[], Any]):
        self.problem, self.made = problem, made
        self.thing: Any = None
        self.toolbox: Toolbox | None = None
        self.said, self.paid = "", 0.0

    async def open(self) -> Shown:
        with own_random.seeded(int(seeded.digest(self.problem.id), 16)):
            self.thing = await in_thread(self.made)
            self.toolbox = Toolbox(of_object(self.thing, APART, blocks=True))
            words = await _called(self.thing.reset, **_taken(self.thing.reset, columns(self.problem)))
        messages = [Message("user", "")] if OWNED in self.problem.meta else list(self.problem.prompt)
        if words is not None:
            if not isinstance(words, str):
                raise TypeError(f"reset returned {type(words).__name__}; only text can be read")
            messages[-1] = replace(messages[-1], content=messages[-1].content + words)
        return Shown(self.toolbox.prompt(messages) if self.toolbox.tools else tuple(messages))

    async def step(self, said: str, luck: Luck) -> Shown:
        assert self.toolbox is not None
        self.said = said
        reward = 0.0
        with own_random.seeded(int(luck().integers(2**63))):
            answer = await self.toolbox.answer(said)
            if hasattr(self.thing, "get_reward"):
                now = float(await _called(self.thing.get_reward))
                reward, self.paid = now - self.paid, now
        if answer is None:
            return Shown(over=True, reward=reward)
        return Shown(answer.messages, reward=reward, fault=answer.fault)

    async def close(self) -> None:
        if callable(close := getattr(self.thing, "close", None)):
            await _called(close)


def owned(name: str, count: int, first: int) -> Iterator[Problem]:
    """Problems of a class whose `reset` makes the task: they differ in the seed of `random` and have no columns."""
    for problem in seeded.seeds(name, count, first):
        yield replace(problem, meta={**problem.meta, OWNED: True})


def columns(problem: Problem) -> dict[str, Any]:
    """A problem's row as TRL passes it: its own columns, with `prompt` as messages, and `answer` if it has one."""
    if OWNED in problem.meta:
        return {}
    given = dict(problem.meta.get("columns", {}))
    given["prompt"] = [{"role": m.role, "content": m.content} for m in problem.prompt]
    if problem.answer is not None:
        given.setdefault("answer", problem.answer)
    return given


def _taken(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Of the columns, those that a function takes."""
    known = inspect.signature(function).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in known.values())
    return {k: v for k, v in given.items() if every or k in known}


async def _called(function: Callable[..., Any], **given: Any) -> Any:
    """The result of a user's function: a coroutine is awaited, another runs in a thread, for it may block."""
    if inspect.iscoroutinefunction(function):
        return await function(**given)
    return await in_thread(function, **given)
