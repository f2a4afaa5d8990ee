"""Episodes of an environment, played by the texts of its turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.opening import open_environment
from isocost.types import Problem, Shown

Say = str | Callable[[Shown], str]


def call(name: str, **arguments: Any) -> str:
    """A turn with one call."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def first(found: EnvironmentSet, n: int = 0) -> Problem:
    assert found.problems is not None
    return next(islice(iter(found.problems()), n, None))


async def played(found: EnvironmentSet, problem: Problem, said: Sequence[Say], seed: int = 0) -> list[Shown]:
    """What was shown: when it opened, and after each text, until it was over."""
    env = found.make(problem)
    try:
        shown = [await env.open()]
        for turn, text in enumerate(said):
            words = text if isinstance(text, str) else text(shown[-1])
            shown.append(await env.step(words, lambda turn=turn: np.random.default_rng([seed, turn])))
            if shown[-1].over:
                break
        env.final()
        return shown
    finally:
        await env.close()


def play(spec: str, said: Sequence[Say], problem: Problem | None = None, *, n: int = 0, seed: int = 0) -> list[Shown]:
    found = open_environment(spec)
    return asyncio.run(played(found, problem or first(found, n), said, seed))


def text(shown: Shown) -> str:
    return "\n".join(m.content for m in shown.messages)
