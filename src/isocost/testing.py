"""For tests of your own files: the contract of a method and of an environment, and a small world to train in.

    from isocost.testing import check_environment, check_method, toy_world

A check raises AssertionError with the broken promises, one a line. Torch is imported by the first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isocost.promise import Promise
    from isocost.types import Problem
    from isocost.world import World

__all__ = ["check_environment", "check_method", "toy_world"]


def check_method(method: str) -> None:
    """Check a method, by name or path, as `isocost methods check` does.

    Raises:
        AssertionError: with each promise that is broken, and why.
        UserError: for a method that does not exist.
    """
    from isocost.contract.check import check

    _assert_kept(method, check(method))


def check_environment(environment: str, problems: Sequence[Problem] | None = None) -> None:
    """Check an environment, `my_env.py:Class` or one that ships, as `isocost envs check` does, without a model.

    `problems` are those to play, by default the first of its own.

    Raises:
        AssertionError: with each promise that is broken, and why.
        UserError: for an environment that does not exist, and for one without problems.
    """
    from isocost.contract.environments import LISTED, check
    from isocost.envs.opening import open_environment
    from isocost.errors import UserError

    found = open_environment(environment)
    if problems is None:
        problems = tuple(islice(found.problems(), LISTED)) if found.problems is not None else ()
    if not problems:
        raise UserError(f"the environment {environment} has no problems: pass problems=[...]")
    _assert_kept(environment, check(found, problems))


def toy_world(seed: int = 0, *, dialogues: bool = False, problems: int = 10) -> World:
    """A world of at most ten questions and four tokens, in double precision, whose base solves one in four.

    With `dialogues`, each question is a dialogue: a wrong answer is followed by another turn.
    """
    from isocost.worlds import toy

    return (toy.dialogues if dialogues else toy.world)(seed, count=problems)


def _assert_kept(name: str, found: Sequence[Promise]) -> None:
    broken = [f"{x.promise}: {x.why}" for x in found if x.tried and not x.kept]
    if broken:
        raise AssertionError("\n".join((f"{name} breaks {len(broken)} of {len(found)} promises", *broken)))
