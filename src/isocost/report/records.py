"""A study's JSON files and its runs, as the report reads them. Missing and broken files are named, never guessed.

Nothing here is executed or unpickled: records may come from strangers.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import isocost.planner  # noqa: F401 (registers the shapes of a study's files)
from isocost.disk.jsonfile import Absent, Damaged
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.runs import source
from isocost.runs.files import DIVERGED, good_lines, read_json
from isocost.runs.source import RunLog

if TYPE_CHECKING:
    from isocost.laws.law import Law

STUDY_FILES = (
    "study", "profile", "pilot", "rate", "shift", "law", "plan", "forecast", "audit", "compare", "comparison",
    "dry-run",
)
SHOWN = 3       # unreadable lines of a file that are named
MOST = 256      # evaluations of a run that are kept, about: a page draws no more
SPLITS = ("eval/select", "eval/audit")

Data = dict[str, Any]


class RunEnds(NamedTuple):
    """Of a run's steps and evaluations: the evaluations, and the totals of the last step (empty before it)."""

    evaluations: tuple[Data, ...]
    last: Data


class Clock(NamedTuple):
    """Of a run's timing: active seconds, the last line, and the most memory in MB (None if it is not recorded)."""

    seconds: float
    last: Data
    memory: float | None


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

    def size(self, name: str) -> int | None:
        """A whole number of its arm; None where the record has none."""
        return _whole(self.arm.get(name))

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
    def stream(self) -> RunEnds:
        """What metrics.jsonl holds of use to a page."""
        return _stream(_lines(self.folder / "metrics.jsonl")[0], self.metric)

    @property
    def evaluations(self) -> tuple[Data, ...]:
        """Evaluations in order of compute, the base (step 0) first: rollouts and rewards, of at most about `MOST`."""
        return self.stream.evaluations

    def rewards(self) -> list[tuple[float, float]]:
        """(rollouts, held-out reward) of its evaluations, without the base: a log axis has no zero."""
        found = ((number(x.get("rollouts")), number(x.get(SPLITS[1], x.get(SPLITS[0])))) for x in self.evaluations)
        return [(c, y) for c, y in found if c and y is not None]

    @cached_property
    def clock(self) -> Clock:
        """What timing.jsonl holds of use to a page."""
        return _clock(_lines(self.folder / "timing.jsonl")[0])

    @property
    def seconds(self) -> float:
        """Active seconds so far."""
        return self.clock.seconds

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
            if unchosen := line.get("unchosen"):
                counts["unchosen"] = counts.get("unchosen", 0) + unchosen
        return counts

    @cached_property
    def bill(self) -> dict[str, Data]:
        """Cost per account; while the run has not ended, the last step's totals as the account `train`."""
        recorded = {str(k): as_dict(v) for k, v in as_dict(self.end.get("bill")).items()}
        if recorded:
            return recorded
        return {"train": self.stream.last} if self.stream.last else {}

    @property
    def metered(self) -> int:
        """Rollouts started, over all accounts."""
        return int(sum(number(cost.get("rollouts")) or 0 for cost in self.bill.values()))

    def samples(self) -> list[Data]:
        return _lines(self.folder / "samples.jsonl")[0]


@dataclass(frozen=True)
class ReportRecords:
    """Everything that a report shows."""

    folder: Path
    files: dict[str, Data]  # by STUDY_FILES name; absent when the step has not run
    runs: tuple[Run, ...]
    broken: tuple[str, ...] = ()  # files that exist and cannot be read, with the reason

    def __getitem__(self, name: str) -> Data:
        return self.files.get(name, {})

    def of(self, *purposes: str) -> list[Run]:
        """The runs of these purposes; of a pilot that compares turn limits, those of the limit that the law is of, and
        of an n with another learning rate than the rule's, those at that rate."""
        limit = as_dict(self["law"].get("turn_limit")).get("chosen")
        return [r for r in self.runs if self.purpose_of(r) in purposes and (limit is None or r.purpose != "pilot"
                                                                            or r.turns == limit)]

    def purpose_of(self, run: Run) -> str:
        """The run's purpose; a run of the grid and one that checked another rate change places where that was
        chosen."""
        rates = dict(as_list(self["pilot"].get("rates")))
        if not rates or run.purpose not in ("pilot", "edge"):
            return run.purpose
        return "pilot" if run.arm.get("multiplier", 1.0) == rates.get(run.size("n")) else "edge"

    @property
    def metric(self) -> str:
        """The metric of the rewards: pass@1 unless the study, or the comparison, has another."""
        return _metric(self.files)

    @property
    def kind(self) -> str:
        """Whose page it is: "comparison" of arms, or the kind of the study; folders of runs are of training."""
        return "comparison" if self["comparison"] or self["compare"] else source.of(self["study"]).kind

    @property
    def imported(self) -> bool:
        """Whether every run came from another trainer's log."""
        return bool(self.runs) and all(RunLog.of(r.about) for r in self.runs)

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


def load(folder: Path) -> ReportRecords:
    """A study directory, a directory of runs, or one run. Raises UserError if there is no such directory, nothing in it
    is a study or a run, or it is a run that cannot be read."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a directory; give a study, a directory of runs, or a run")
    broken: list[str] = []
    files = {name: data for name in STUDY_FILES if (data := _read(folder / f"{name}.json", broken))}
    shared: dict[str, Any] = {}
    if not files and (folder / "run.json").is_file():
        read_json(folder / "run.json", partial=True)       # of one run there is nothing else to show
    runs = tuple(run for place in _run_folders(folder) if (run := _run(place, broken, _metric(files), shared)))
    if not files and not runs and not broken:
        wanted = "study.json, profile.json, run.json"
        raise UserError(f"{folder} holds neither a study nor a run (looked for {wanted} and runs/*/run.json)")
    return ReportRecords(folder, files, runs, tuple(broken))


def law_of(study: ReportRecords) -> Law | None:
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
    return _run(folder, [], metric, {}) if folder.is_dir() else None


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


def _stream(lines: list[Data], metric: str) -> RunEnds:
    """Of many evaluations every second is kept, or every fourth and so on, and the last."""
    found = [x for x in lines if any(key in x for key in SPLITS)]
    every = 2 ** max(0, math.ceil(math.log2(max(len(found), 1) / MOST)))
    names = dict(zip(SPLITS, SPLITS if metric == PASS else [f"{key}/{metric}" for key in SPLITS], strict=True))
    kept = [{"rollouts": x.get("rollouts")}
            | {key: x.get(name) for key, name in names.items() if metric != PASS or name in x}
            for i, x in enumerate(found) if i % every == 0 or x is found[-1]]
    steps = [x for x in lines if not any(key in x for key in SPLITS)]
    return RunEnds(tuple(kept), steps[-1] if steps else {})


def _clock(lines: list[Data]) -> Clock:
    memory = [mb for x in lines if (mb := number(x.get("rss_mb"))) is not None]
    return Clock(max((number(x.get("seconds")) or 0.0 for x in lines), default=0.0), lines[-1] if lines else {},
                 max(memory, default=None))


def _run(folder: Path, broken: list[str], metric: str, shared: dict[str, Any]) -> Run | None:
    """A run that can be read, or None. Values that its run.json has in common with others are one object (`shared`)."""
    about = _read(folder / "run.json", broken)
    if not about:
        return None
    about = {k: shared.setdefault(json.dumps(v, sort_keys=True), v) for k, v in about.items()}
    run = Run(folder, about, _read(folder / "end.json", broken), metric)
    for name, kept in (("metrics.jsonl", "stream"), ("timing.jsonl", "clock")):
        lines, bad = _lines(folder / name)      # the cached property would read them again
        vars(run)[kept] = _stream(lines, metric) if kept == "stream" else _clock(lines)
        broken += [f"{name} in {folder.name}{why}" for why in bad[:SHOWN]]
        broken += [f"{name} in {folder.name} has {len(bad) - SHOWN} more such lines"] if len(bad) > SHOWN else []
    return run


def _read(path: Path, broken: list[str]) -> Data:
    """A file's data; empty, with why in `broken`, where it cannot be used. Raises UserError for a newer format."""
    try:
        return read_json(path, partial=True) if os.path.lexists(path) else {}
    except Damaged as e:
        broken.append(f"{path.name} in {path.parent.name}{e.why}")
    except Absent as e:         # a link to nothing
        broken.append(str(e).replace(str(path), f"{path.name} in {path.parent.name}"))
    return {}


def _lines(path: Path) -> tuple[list[Data], list[str]]:
    """The readable lines of a JSON-lines file, and why the others cannot be read."""
    try:
        return good_lines(path)
    except Damaged as e:
        return [], [e.why]
