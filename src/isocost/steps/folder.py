"""A study's folder: its settings, its records, and the seconds of each of its phases.

study.json  profile.json  pilot.json  rate.json  law.json  plan.json  forecast.json  audit.json  report.html  runs/

A study of a user's trainer has trainer.json, the first run of that trainer (in profile/), in place of profile.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from shutil import rmtree
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import isocost.planner  # noqa: F401 (registers the shapes of a study's files)
from isocost.disk.jsonfile import line as json_line
from isocost.disk.jsonfile import write_json, write_text
from isocost.disk.lock import locked
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.runs import files as records
from isocost.runs import source
from isocost.runs.files import read_json
from isocost.screen.words import word
from isocost.trainers.driving.command import Trainer
from isocost.types import Cost
from isocost.worlds.setting import Setting

_OPTION = {"profiled": "--problems"}      # settings whose option has another name
_PROFILING = {"study.json", "profile.jsonl", "profile", "base", "lock", "dry-run.json"}     # before a first result


P = ParamSpec("P")
R = TypeVar("R")
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())   # folders whose lock this process has


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the lock of a study's or a run's folder; a step inside may hold it again. Raises UserError, naming the
    process, if another process writes there."""
    where = path.resolve()
    if where in _held.get():
        yield
        return
    with locked(path):
        token = _held.set(_held.get() | {where})
        try:
            yield
        finally:
            _held.reset(token)


def writes(*, new: bool = False) -> Callable[[Callable[Concatenate[Path, P], R]], Callable[Concatenate[Path, P], R]]:
    """Decorates a step whose first argument is the folder that it writes to: `writing` around all of it. No lock is
    taken where nothing will be written: in a dry run, and in a folder that does not exist, unless the step makes a
    `new` one."""

    def of(command: Callable[Concatenate[Path, P], R]) -> Callable[Concatenate[Path, P], R]:
        @wraps(command)
        def alone(path: Path, *args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs.get("dry_run") or not (new or path.is_dir()):
                return command(path, *args, **kwargs)
            with writing(path):
                return command(path, *args, **kwargs)

        return alone

    return of


@dataclass(frozen=True)
class StudyFolder:
    """A study's folder."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def record(self, name: str, step: str) -> dict[str, Any]:
        """A step's record. Raises UserError, naming the step that writes it, if there is none."""
        if not self.has(name):
            command = f"profile --out {word(self.path)}" if step == "profile" else f"{step} {word(self.path)}"
            raise UserError(f"{self.path} has no {name} yet: run `isocost {command}` first")
        return read_json(self.path / name)

    def write(self, name: str, data: Mapping[str, Any]) -> Self:
        """Write a step's record; returns the folder with it."""
        write_json(self.path / name, {"schema": records.SCHEMA, **data})
        return self

    def amend(self, **changes: Any) -> Self:
        """Write study.json with these changes; returns the folder with it. What a step inside has written stays."""
        return self.write("study.json", read_json(self.path / "study.json") | changes)

    @property
    def asked(self) -> dict[str, Any]:
        return self.record("study.json", "profile")

    @property
    def source(self) -> source.Source:
        """Where the study's runs come from, and what isocost can do with them."""
        return source.of(self.asked)

    @property
    def setting(self) -> Setting:
        return Setting.of(self.asked["setting"])

    @property
    def trainer(self) -> Trainer | None:
        """The trainer whose runs the study launches; None for isocost's own."""
        found = self.asked.get("trainer")
        return Trainer.of(found) if found else None

    @property
    def method(self) -> str:
        """The study's method: the one that was asked for, else that of its profile; the kind of a user's trainer."""
        trainer = self.trainer
        return str(trainer.kind if trainer else self.asked["method"] or self.profiled()["recipe"]["method"])

    def profiled(self) -> dict[str, Any]:
        """What plans need of the model and problems: profile.json, or trainer.json of a user's trainer."""
        return self.record("profile.json" if self.trainer is None else "trainer.json", "profile")

    @property
    def metric(self) -> str:
        """The metric of the study's laws: pass@1 unless another was requested."""
        return str(self.asked.get("metric", PASS))

    @contextmanager
    def phase(self, name: str, began: float | None = None) -> Iterator[None]:
        """Time a phase, since `began` if given; a phase that is continued adds to its time."""
        began = time.perf_counter() if began is None else began
        try:
            yield
        finally:
            phases = read_json(self.path / "study.json").get("phases", {})      # those of the steps inside too
            self.amend(phases=phases | {name: round(phases.get(name, 0.0) + time.perf_counter() - began, 2)})


def check(path: Path, setting: Setting, **asked: Any) -> None:
    """Raises UserError, naming what differs, if the study in `path` has different settings. A setting that the record
    of an earlier version lacks differs only if it is set now."""
    home = StudyFolder(path)
    if not home.has("study.json"):
        return
    there = home.asked
    old, new = {**there["setting"], **there}, {"truth": None, **setting.to_dict(), **asked}
    changed = sorted(k for k in new if (k in old or new[k])
                     and records.canonical(old.get(k)) != records.canonical(new[k]))
    if changed:
        differences = ", ".join(f"{_OPTION.get(k, k)} was {a!r} and is now {b!r}"
                                for name in changed for k, a, b in _parts(name, old.get(name), new[name]))
        raise UserError(
            f"{path} already contains a study with different settings ({differences}); choose another --out, or "
            "remove it"
        )


def _parts(name: str, old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    """(name, old, new) of a setting that differs; of one that is an object, its parts that do."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return [(name, old, new)]
    return [(f"{name}.{k}", old.get(k), new.get(k)) for k in {**old, **new} if old.get(k) != new.get(k)]


def restart(path: Path, setting: Setting, **asked: Any) -> None:
    """Remove the study in `path` if it has other settings and no result: its profile failed, or was stopped. A study
    with more than its profile is kept, and so is one with a process that may still run, and one with completions that a
    server was paid for. The cost of what was sampled here stays in profile.jsonl, to be billed."""
    home = StudyFolder(path)
    if not home.has("study.json") or not {p.name for p in path.iterdir()} <= _PROFILING:
        return
    asks, attempts = home.asked, path.glob("*/attempts/*/launch.json")
    runs = any(not (p.parent / "ended.json").exists() for p in attempts)
    if runs or source.of(asks) is source.IMPORTED or (asks.get("source") and home.has("profile.jsonl")):
        return
    try:
        check(path, setting, **asked)
    except UserError:
        for name in ("profile", "base"):
            rmtree(path / name, ignore_errors=True)
        if lines := records.read_lines(path / "profile.jsonl"):
            cost = sum((Cost.of(line["cost"]) for line in lines), Cost())
            spent: dict[str, Any] = {"slot": None, "id": None, "rewards": [], "cost": cost.data()}
            write_text(path / "profile.jsonl", json_line(spent) + "\n")
        (path / "study.json").unlink()


def found(path: Path, setting: Setting, **asked: Any) -> StudyFolder:
    """Start a study, or open the one in `path`. Raises UserError if that one has different settings."""
    check(path, setting, **asked)
    home = StudyFolder(path)
    if not home.has("study.json"):
        path.mkdir(parents=True, exist_ok=True)
        asks = {"setting": setting.to_dict(), **asked}
        home.write("study.json", {**asks, "code": records.code(), "phases": {}})
    return home


def bill_dry_run(path: Path, cost: Mapping[str, Any]) -> None:
    """Add what a dry run has sampled to dry-run.json in its folder: no other bill counts it. `cost` is that of the last
    dry run, `spent` of all of them."""
    file = path / "dry-run.json"
    earlier = Cost.of(read_json(file)["spent"]) if file.exists() else Cost()
    path.mkdir(parents=True, exist_ok=True)
    write_json(file, {"schema": records.SCHEMA, "cost": dict(cost), "spent": (earlier + Cost.of(cost)).data()})
