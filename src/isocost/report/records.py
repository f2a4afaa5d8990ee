"""A study's JSON files and its runs, as the report reads them. Missing and broken files are named, never guessed.

Nothing here is executed or unpickled: records may come from strangers.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import isocost.planner  # noqa: F401 (registers the shapes of a study's files)
from isocost.errors import UserError
from isocost.jsonfile import Damaged
from isocost.laws.curves import PASS
from isocost.runs.files import DIVERGED, good_lines, read_json

if TYPE_CHECKING:
    from isocost.laws.law import Law

STUDY_FILES = (
    "study", "profile", "pilot", "rate", "shift", "law", "plan", "forecast", "audit", "compare", "comparison",
    "dry-run",
)
SHOWN = 3       # unreadable lines of a file that are named

Data = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run directory. A missing file is an empty dict or list."""

    folder: Path
    about: Data  # run.json
    end: Data = field(default_factory=dict)  # end.json; empty while it runs
    metric: str = PASS  # the metric of its rewards

    @property
    def name(self) -> str:
        return str(self.about.get("name") or self.folder.name)

    @property
    def purpose(self) -> str:
        return str(self.about.get("purpose") or "run")

    @property
    def arm(self) -> Data:
        return as_dict(self.about.get("arm"))

    @property
    def n(self) -> int | None:
        return _whole(self.arm.get("n"))

    @property
    def turns(self) -> int | None:
        """The turn limit of training, where it was planned."""
        return _whole(self.arm.get("turns"))

    @property
    def lr(self) -> float | None:
        return number(self.arm.get("lr"))

    @property
    def seed(self) -> Any:
        return self.about.get("seed")

    @property
    def finished(self) -> bool:
        return bool(self.end)

    @property
    def diverged(self) -> bool:
        return self.end.get("reason") == DIVERGED

    @cached_property
    def lines(self) -> list[Data]:
        return _lines(self.folder / "metrics.jsonl")[0]

    @cached_property
    def evaluations(self) -> list[Data]:
        """Evaluation lines in order of compute, the base (step 0) first; of another metric than pass@1, with its
        values as `eval/select` and `eval/audit`."""
        found = [x for x in self.lines if "eval/select" in x or "eval/audit" in x]
        if self.metric == PASS:
            return found
        return [{**x, **{key: x.get(f"{key}/{self.metric}") for key in ("eval/select", "eval/audit")}} for x in found]

    @cached_property
    def steps(self) -> list[Data]:
        return [x for x in self.lines if "eval/select" not in x and "eval/audit" not in x]

    @cached_property
    def timing(self) -> list[Data]:
        return _lines(self.folder / "timing.jsonl")[0]

    @property
    def seconds(self) -> float:
        """Active seconds so far."""
        return max((number(x.get("seconds")) or 0.0 for x in self.timing), default=0.0)

    @cached_property
    def fates(self) -> dict[str, int]:
        """Rollouts by fate: from end.json, or counted in the journal while the run has not ended."""
        recorded = as_dict(self.end.get("fates"))
        if recorded:
            return {str(k): int(v) for k, v in recorded.items() if number(v) is not None}
        counts: dict[str, int] = {}
        for line in _lines(self.folder / "journal.jsonl")[0]:
            for fate in line.get("fates") or ():
                counts[str(fate)] = counts.get(str(fate), 0) + 1
        return counts

    @cached_property
    def bill(self) -> dict[str, Data]:
        """Cost per account; while the run has not ended, the last step's totals as the account `train`."""
        recorded = {str(k): as_dict(v) for k, v in as_dict(self.end.get("bill")).items()}
        if recorded:
            return recorded
        return {"train": self.steps[-1]} if self.steps else {}

    @property
    def metered(self) -> int:
        """Rollouts started, over all accounts."""
        return int(sum(number(cost.get("rollouts")) or 0 for cost in self.bill.values()))

    def samples(self) -> list[Data]:
        return _lines(self.folder / "samples.jsonl")[0]


@dataclass(frozen=True)
class Study:
    """Everything that a report shows."""

    folder: Path
    files: dict[str, Data]  # by STUDY_FILES name; absent when the step has not run
    runs: tuple[Run, ...]
    broken: tuple[str, ...] = ()  # files that exist and cannot be read, with the reason

    def __getitem__(self, name: str) -> Data:
        return self.files.get(name, {})

    def of(self, *purposes: str) -> list[Run]:
        """The runs of these purposes; of a pilot that compares turn limits, those of the limit that the law is of."""
        limit = as_dict(self["law"].get("turn_limit")).get("chosen")
        return [r for r in self.runs if r.purpose in purposes and (limit is None or r.purpose != "pilot"
                                                                   or r.turns == limit)]

    @property
    def metric(self) -> str:
        """The metric of the rewards: pass@1 unless the study, or the comparison, has another."""
        return _metric(self.files)

    @property
    def imported(self) -> bool:
        """Whether every run came from another trainer's log."""
        return bool(self.runs) and all("imported" in r.about for r in self.runs)

    @property
    def driven(self) -> bool:
        """Whether isocost launches its runs by a trainer of the user's, and reads that trainer's log."""
        return bool(self["study"].get("trainer"))

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def hashes(self) -> dict[str, str]:
        """SHA-256 of each study file as it lies on disk."""
        paths = {f"{name}.json": self.folder / f"{name}.json" for name in STUDY_FILES}
        return {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in paths.items() if p.is_file()}

    @cached_property
    def sealed_from(self) -> dict[str, str]:
        """The hashes of the forecast's inputs, computed again; missing or broken inputs are left out."""
        from isocost.planner.forecast import digest_of, records_hash

        version = self["forecast"].get("seal_version", 1)
        out = {name: digest_of(self[name], version) for name in ("law", "plan") if self[name]}
        if not self.broken and any(r.purpose not in ("train", "run") for r in self.runs):
            out["records"] = records_hash(self.folder)
        return out

    @cached_property
    def intact(self) -> bool | None:
        """Whether the forecast still has the hash of its seal; None for another version's, or without one."""
        from isocost.planner.forecast import Forecast

        try:
            Forecast.of(self["forecast"])
        except UserError:
            return False
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return True

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """What was changed after the forecast was sealed, in words; empty without a forecast."""
        from isocost.planner.forecast import changed

        then = as_dict(self["forecast"].get("hashes"))
        own = ("forecast.json",) if self.intact is False else ()
        return (*own, *(changed(then, self.sealed_from) if then else ()))


def load(folder: Path) -> Study:
    """A study directory, a directory of runs, or one run.

    Raises:
        UserError: there is no such directory, or nothing in it is a study or a run.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a directory; give a study, a directory of runs, or a run")
    broken: list[str] = []
    files = {name: data for name in STUDY_FILES if (data := _read(folder / f"{name}.json", broken))}
    runs = tuple(run for place in _run_folders(folder) if (run := _run(place, broken, _metric(files))))
    if not files and not runs and not broken:
        wanted = "study.json, profile.json, run.json"
        raise UserError(f"{folder} holds neither a study nor a run (looked for {wanted} and runs/*/run.json)")
    return Study(folder, files, runs, tuple(broken))


def law_of(study: Study) -> Law | None:
    """The fitted law; None without one, or if this version cannot read it."""
    if not study["law"]:
        return None
    from isocost.laws.law import Law

    try:
        return Law.of(study["law"])
    except (UserError, KeyError, TypeError, ValueError, AttributeError):  # of another version: a flag reports it
        return None


def read_run(folder: Path, metric: str = PASS) -> Run | None:
    """The run in a folder, or None if there is none that can be read."""
    return _run(folder, [], metric) if folder.is_dir() else None


def number(x: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        return None
    return float(x) if math.isfinite(x) else None


def as_dict(x: Any) -> Data:
    return x if isinstance(x, dict) else {}


def as_list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else []


def _whole(x: Any) -> int | None:
    value = number(x)
    return None if value is None else int(value)


def _run_folders(folder: Path) -> list[Path]:
    if (folder / "run.json").is_file():
        return [folder]
    inside = folder / "runs" if (folder / "runs").is_dir() else folder
    return sorted(p.parent for p in inside.glob("*/run.json"))


def _metric(files: dict[str, Data]) -> str:
    recorded = (as_dict(files.get(name)).get("metric") for name in ("study", "comparison", "compare"))
    return next((str(x) for x in recorded if x), PASS)


def _run(folder: Path, broken: list[str], metric: str) -> Run | None:
    about = _read(folder / "run.json", broken)
    if not about:
        return None
    run = Run(folder, about, _read(folder / "end.json", broken), metric)
    for name, kept in (("metrics.jsonl", "lines"), ("timing.jsonl", "timing")):
        vars(run)[kept], bad = _lines(folder / name)        # the cached property would read them again
        broken += [f"{name} in {folder.name}{why}" for why in bad[:SHOWN]]
        broken += [f"{name} in {folder.name} has {len(bad) - SHOWN} more such lines"] if len(bad) > SHOWN else []
    return run


def _read(path: Path, broken: list[str]) -> Data:
    try:
        return read_json(path, partial=True) if os.path.lexists(path) else {}
    except Damaged as e:
        broken.append(f"{path.name} in {path.parent.name}{e.why}")
    except UserError as e:      # a newer schema
        broken.append(str(e).replace(str(path), f"{path.name} in {path.parent.name}"))
    return {}


def _lines(path: Path) -> tuple[list[Data], list[str]]:
    """The readable lines of a JSON-lines file, and why the others cannot be read."""
    try:
        return good_lines(path)
    except Damaged as e:
        return [], [e.why]
