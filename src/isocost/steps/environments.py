"""The environments that ship, and the contract on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from isocost.display import Shown
from isocost.envs import contract
from isocost.envs.opening import KINDS, open_environment
from isocost.errors import UserError
from isocost.jsonfile import finite
from isocost.tasks.load import load_problems


@dataclass(frozen=True)
class EnvironmentRow:
    """An environment that ships: its name, what it is, its options with their defaults, and its limits.

    `form` is that of its specification where NAME alone names none, and `needs` what it needs; the numbers are then 0.
    """

    name: str
    about: str
    options: Mapping[str, Any]
    problems: int
    max_turns: int
    max_tokens: int
    verifier: str
    model: str
    form: str = ""
    needs: str = ""


@dataclass(frozen=True)
class EnvironmentList(Shown):
    """The environments that ship, by name."""

    environments: tuple[EnvironmentRow, ...]

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data for JSON, as `isocost envs list --json` prints it."""
        return [dict(finite(vars(e))) for e in self.environments]


def list_environments() -> EnvironmentList:
    """Every environment that ships."""
    return EnvironmentList(tuple(_row(name) for name in sorted(KINDS)))


def _row(name: str) -> EnvironmentRow:
    kind = KINDS[name]
    if kind.form or kind.needs:
        return EnvironmentRow(name, kind.about, dict(kind.options), 0, 0, 0, "", "", kind.form or name, kind.needs)
    found = open_environment(name)
    count = sum(1 for _ in found.problems()) if found.problems else 0
    return EnvironmentRow(name, KINDS[name].about, dict(KINDS[name].options), count, found.max_turns,
                          found.max_tokens, found.verifier, found.model)


@dataclass(frozen=True)
class EnvironmentCheck(Shown):
    """The result of the contract on an environment: findings in order, each with `promise`, `state` and `why`."""

    environment: str
    problems: int
    findings: tuple[contract.Finding, ...]

    @property
    def broken(self) -> tuple[contract.Finding, ...]:
        """The promises that the environment breaks."""
        return tuple(f for f in self.findings if f.state == "BROKEN")

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data for JSON, as `isocost envs check --json` prints it: a list with an entry per promise."""
        return [{"promise": f.promise, "state": f.state, "kept": f.kept, "why": f.why} for f in self.findings]


def check_environment(spec: str, data: str | None = None) -> EnvironmentCheck:
    """Play episodes of an environment without a model, and check what it promises (`isocost.envs.contract`).

    `data` names the problems of an environment that lists none.

    Raises:
        UserError: for an environment that does not exist, and for one without problems.
    """
    found = open_environment(spec)
    if found.problems is not None:
        problems = tuple(islice(found.problems(), contract.PROBLEMS))
    elif data is None:
        raise UserError(f"the environment {spec} lists no problems: name them with --data")
    else:
        problems = load_problems(data, verifier=found.verifier, limit=contract.PROBLEMS, check=False).problems
    if not problems:
        raise UserError(f"the environment {spec} lists no problem")
    return EnvironmentCheck(spec, len(problems), tuple(contract.check(found, problems)))
