"""What a spec names, and what ships."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isocost.types import Problem
from isocost.world import Environment

TURNS, TOKENS = 8, 64                   # limits of a user's environment that states none


@dataclass(frozen=True)
class EnvironmentSet:
    """What a spec names: how the environment of a problem is made, its problems and its verifier."""

    spec: str
    make: Callable[[Problem], Environment]
    problems: Callable[[], Iterable[Problem]] | None = None     # None: they come from a data set
    verifier: str = "environment"   # empty: that of the data set
    max_turns: int = TURNS
    max_tokens: int = TOKENS        # of a turn
    model: str = ""                 # the built-in model that was taught it
    source: str | None = None       # SHA-256 of a user's file
    machine: Mapping[str, Any] = field(default_factory=dict)    # what a run records of this machine


@dataclass(frozen=True)
class EnvironmentKind:
    """An environment that ships: what it is, and what opens its specs."""

    about: str
    options: Mapping[str, Any]      # with their defaults
    open: Callable[[str], EnvironmentSet]
    form: str = ""                  # of its spec, if it is not NAME:key=value,...
    needs: str = ""                 # what to install
