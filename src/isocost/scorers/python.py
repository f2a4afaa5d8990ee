"""A user's own function as a scorer: `my_scorer.py:function`.

    def function(problem, texts): ...        one number in [0, 1] for each text, sync or async

`problem` is an `isocost.types.Problem`; `texts` are strings. A function with a parameter `over` gets which of them have
ended. What it costs is its own: calls of a model elsewhere are on no bill here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.found import from_file
from isocost.scorers import Scorer
from isocost.types import Cost, Problem, Rollout
from isocost.world import World


def named(name: str) -> Scorer:
    """The scorer `file.py:function`. Raises UserError if there is no such file, or no such function in it."""
    path, _, function = name.rpartition(":")
    found = getattr(from_file(Path(path)), function, None)
    if not callable(found):
        raise UserError(f"scorer {name!r}: {path} has no function {function!r}")
    return partial(score, function=found)


async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, function: Callable[..., Any],
) -> list[float | None]:
    """What the function returns for the texts. Charged as one verifier call each."""
    world.meter.charge(Cost(verify=len(texts)))
    more = {"over": list(over)} if "over" in inspect.signature(function).parameters else {}
    found = function(problem, [t.final for t in texts], **more)
    return list(await found if inspect.isawaitable(found) else found)
