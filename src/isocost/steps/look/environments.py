"""The environments that ship, and the contract on one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from isocost.contract import environments as contract
from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.opening import KINDS, open_environment
from isocost.errors import UserError
from isocost.promise import told as promises
from isocost.screen.display import Result, Row
from isocost.screen.words import counted
from isocost.tasks.load import Reads, load_problems


@dataclass(frozen=True)
class EpisodeLimits:
    """What an environment sets for its rollouts; `problems` is None where they come from a data set."""

    problems: int | None
    max_turns: int
    max_tokens: int
    verifier: str
    model: str


@dataclass(frozen=True)
class EnvironmentRow:
    """An environment that ships: its name, what it is, the form of its spec, its options with their defaults. `needs`
    is what has to be installed. `limits` is None for an environment that its spec has to name, and for one that this
    machine cannot open."""

    name: str
    about: str
    form: str
    options: Mapping[str, Any]
    needs: str
    limits: EpisodeLimits | None

    def rows(self) -> list[Row]:
        """The form of its spec, its options, its limits and what it needs."""
        bounds, m = "", self.limits
        if m is not None:
            problems = "problems of --data" if m.problems is None else counted(m.problems, "problem")
            bounds = (f"{problems}, at most {counted(m.max_turns, 'turn')} of {counted(m.max_tokens, 'token')}, "
                      f"verifier {m.verifier or 'of the problems'}, model {m.model or 'any'}")
        options = ", ".join(f"{k}={v}" for k, v in self.options.items())
        named = {"limits": bounds, "written": self.form, "options": options, "needs": self.needs}
        return [Row("", f"{self.name}: {self.about}", "head"),
                *(Row(name, text, "command") for name, text in named.items() if text)]


@dataclass(frozen=True)
class EnvironmentList(Result):
    """The environments that ship, by name."""

    entries: ClassVar[str] = "environments"

    environments: tuple[EnvironmentRow, ...]

    def rows(self) -> list[Row]:
        """Those of each environment."""
        return [*(row for e in self.environments for row in e.rows()),
                Row("your own", "--env my_env.py:Class; check it with `isocost envs check my_env.py:Class`", "head")]


def list_environments() -> EnvironmentList:
    """Every environment that ships."""
    return EnvironmentList(tuple(
        EnvironmentRow(name, kind.about, kind.form, dict(kind.options), kind.needs,
                       None if kind.form else _limits(name))
        for name, kind in KINDS.items()
    ))


def _limits(name: str) -> EpisodeLimits | None:
    try:
        found = open_environment(name)
    except UserError:       # what it needs is not on this machine
        return None
    count = sum(1 for _ in found.problems()) if found.problems else None
    return EpisodeLimits(count, found.max_turns, found.max_tokens, found.verifier, found.model)


@dataclass(frozen=True)
class EnvironmentCheck(Result):
    """The result of the contract on an environment: findings in order, each with `promise`, `state` and `why`."""

    entries: ClassVar[str] = "findings"

    environment: str
    problems: int
    findings: tuple[contract.Promise, ...]

    @property
    def broken(self) -> tuple[contract.Promise, ...]:
        """The promises that the environment breaks."""
        return tuple(f for f in self.findings if f.state == "BROKEN")

    def rows(self) -> list[Row]:
        """Each promise, and whether it is kept."""
        return promises(self.environment, self.findings, f" ({counted(self.problems, 'problem')} played)")


def check_environment(spec: str, data: str | None = None, model: str | None = None) -> EnvironmentCheck:
    """Play episodes of an environment without a model, and check what it promises (`isocost.contract.environments`).

    `data` names the problems of an environment that lists none. `model` is the one that will read what it opens with,
    by default the environment's own; without one on this machine this is not checked. No weights are read.

    Raises UserError for an environment or a model that does not exist, and for an environment without problems.
    """
    found = open_environment(spec)
    if found.problems is not None:
        if data is not None:
            raise UserError(f"the environment {spec} has its own problems: leave out --data")
        problems = tuple(islice(found.problems(), contract.LISTED))
    elif data is None:
        raise UserError(f"the environment {spec} lists no problems: name them with --data")
    else:
        problems = load_problems(data, verifier=found.verifier, limit=contract.PROBLEMS, check=False).problems
    if not problems:
        raise UserError(f"the environment {spec} lists no problem")
    played = min(len(problems), contract.PROBLEMS)
    return EnvironmentCheck(spec, played, tuple(contract.check(found, problems, _reads(found, model))))


def _reads(found: EnvironmentSet, model: str | None) -> Reads | None:
    """What the model of a check can read; None if there is none, or the environment's own is not on this machine."""
    from isocost.local import models

    if model is not None:
        return Reads(*models.reading(model))
    with suppress(UserError):
        return Reads(*models.reading(found.model)) if found.model else None
    return None
