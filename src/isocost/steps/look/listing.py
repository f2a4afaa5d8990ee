"""List studies and runs below a folder, and methods by seam."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from isocost import methods as catalogue
from isocost import strategies
from isocost.disk.shape import Each, Keys
from isocost.errors import UserError
from isocost.laws.curves import MEASURED
from isocost.planner.control.pilot import ControlRunPlan
from isocost.planner.training.study_runs import SIZES, PlannedRun
from isocost.promise import told as promises
from isocost.recipe import diff
from isocost.runs import measure
from isocost.runs.arm import Arm
from isocost.runs.files import GO_ON, ended, find_runs, fit, read_json, read_lines
from isocost.runs.schema import ARMED
from isocost.screen.display import Result, Row, Table, TextResult, given
from isocost.screen.words import counted, duration, visible
from isocost.seams import SEAMS

FILES = (
    "profile.json", "pilot.json", "law.json", "plan.json", "forecast.json", "audit.json", "comparison.json",
    "report.html",
)
LISTED = MEASURED.needing(method=str, purpose=str)
OF_KIND = ARMED.needing(method=str, purpose=str, kind=str)      # a run of another kind than a policy's training
RATES = ("lr", "rate")      # names of an arm's learning rate
PILOT = Keys({"runs": Each(PlannedRun)})


# studies and runs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StudyRow:
    """A study: its folder, model and data, its audit's verdict (None before one), the files it `has`, its `steps` by
    name, and the seconds that they took."""

    path: str
    model: str
    data: str
    verdict: str | None
    has: tuple[str, ...]
    steps: tuple[str, ...]
    seconds: float

    def row(self) -> Row:
        """Its folder, what it is of, its steps and its verdict; logs of other trainers, and those who import them, may
        name neither model nor problems."""
        model, data = (f"{what} not named" if x == measure.UNNAMED else x
                       for x, what in ((self.model, "a model"), (self.data, "problems")))
        of = "model and problems not named" if self.model == self.data == measure.UNNAMED else f"{model} on {data}"
        verdict = f"; audit: {self.verdict}" if self.verdict else ""
        return Row(visible(self.path, lines=False), f"{of}: {', '.join(self.steps) or 'no step yet'}; "
                                                    f"{duration(self.seconds)}{verdict}", "head")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "study", **asdict(self)}


@dataclass(frozen=True)
class RunRow:
    """A run. `rollouts` is its cost at the latest evaluation, counted in `unit`; `first` and `last` are its rewards in
    [0, 1] there and at the first evaluation (None before one). `reward` is their kind, held-out or training, and
    `scale` (lowest, highest) are 0 and 1 in the units of an imported log. `ended` is the reason of its end, `running`
    or `unfinished`."""

    path: str
    method: str
    purpose: str
    arm: Arm
    seed: int
    rollouts: float
    ended: str
    unit: str
    reward: str
    scale: tuple[float, float]
    first: float | None
    last: float | None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "run", **{k: v for k, v in asdict(self).items() if k != "arm"}, **self.arm}


@dataclass(frozen=True)
class BrokenRow:
    """A study or run (`kind`) that cannot be read, and why."""

    kind: str
    path: str
    broken: str


@dataclass(frozen=True)
class Listing(Result):
    """The studies and then the runs below a folder, each in order of path."""

    entries: ClassVar[str] = "found"

    found: tuple[StudyRow | RunRow | BrokenRow, ...]

    def rows(self) -> list[Row | Table]:
        """Studies a line each, runs as a table, then what cannot be read."""
        if not self.found:
            return [Row("", "no study and no run here; `isocost quickstart` makes one", "head")]
        return given(
            *(r.row() for r in self.found if isinstance(r, StudyRow)),
            _table([r for r in self.found if isinstance(r, RunRow)]),
            *(Row(f"{visible(r.path, lines=False)}, broken", r.broken, "head") for r in self.found
              if isinstance(r, BrokenRow)),
        )


def _table(runs: list[RunRow]) -> Table:
    """One row per run, its arm by the names of its sizes; the unit of cost and the kind of reward are in the heading if
    all runs share them."""
    sizes = list(dict.fromkeys(k for r in runs for k in r.arm if k not in RATES))
    units, kinds = {r.unit for r in runs}, {r.reward for r in runs}
    spent = units.pop() if len(units) == 1 else "C"
    reward = kinds.pop() if len(kinds) == 1 else "reward"
    cells = []
    for r in runs:
        held = ""
        if r.first is not None and r.last is not None:
            said = (r.reward if reward != r.reward else "", measure.from_to(r.scale, r.first, r.last))
            held = " ".join((f"{r.first:.3f} -> {r.last:.3f}", *(f"({x})" for x in said if x)))
        cost = str(r.rollouts) + ("" if spent == r.unit else f" {r.unit}")
        cells.append((visible(r.path, lines=False), r.method, r.purpose, *(str(r.arm.get(k, "")) for k in sizes),
                      f"{next((r.arm[k] for k in RATES if k in r.arm), 0.0):.1e}", str(r.seed), cost, held, r.ended))
    last = len(sizes) + 6
    return Table(("run", "method", "purpose", *sizes, "lr", "seed", spent, reward, "ended"), cells,
                 left=(0, 1, 2, last, last + 1))


def list_folder(folder: str | Path) -> Listing:
    """The studies and runs below a folder. Raises UserError if the folder does not exist."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    studies = [_row("study", p.parent, _study) for p in sorted(folder.glob("**/study.json"))]
    return Listing((*studies, *(_row("run", p, _run) for p in find_runs(folder))))


def _row(kind: str, path: Path, read: Callable[[Path], StudyRow | RunRow]) -> StudyRow | RunRow | BrokenRow:
    try:
        return read(path)
    except UserError as e:
        return BrokenRow(kind, str(path), str(e))


def _study(path: Path) -> StudyRow:
    asked = read_json(path / "study.json")
    setting = asked.get("setting") or {}
    verdict = read_json(path / "audit.json").get("verdict") if (path / "audit.json").exists() else None
    return StudyRow(
        path=str(path),
        model=setting.get("model", ""),
        data=setting.get("data", "") or asked.get("task", ""),
        verdict=verdict,
        has=tuple(f for f in FILES if (path / f).exists()),
        steps=tuple(_steps(path)),
        seconds=sum(asked.get("phases", {}).values()),
    )


def _steps(path: Path) -> list[str]:
    """The steps of a study by name, in order; an unfinished pilot with the number of its runs that have ended."""
    steps = {f.split(".")[0]: "" for f in FILES if (path / f).exists()}
    if "pilot" in steps:
        of_control = read_json(path / "study.json").get("kind") == "control"
        runs = read_json(path / "pilot.json", None if of_control else PILOT)["runs"]
        names = [(ControlRunPlan if of_control else PlannedRun).of(r).name for r in runs]
        over = sum(ended(path / "runs" / name) for name in names)
        started = any((path / "runs" / name).exists() for name in names)
        if not names:
            del steps["pilot"]      # planned without a pilot
        elif over < len(names):
            steps["pilot"] = f" ({over} of {counted(len(names), 'run')})" if started else " (planned)"
    return [name + more for name, more in steps.items()]


def _about(path: Path) -> tuple[dict[str, Any], Arm]:
    """A run's run.json and its arm: of a policy's training its sizes and learning rate, of another kind all of it."""
    run = read_json(path / "run.json")
    own = "kind" not in run
    fit(path / "run.json", run, LISTED if own else OF_KIND)
    return run, Arm(run["arm"]).only(*SIZES, "lr") if own else Arm(run["arm"])


def _run(path: Path) -> RunRow:
    run, arm = _about(path)
    end = read_json(path / "end.json") if (path / "end.json").exists() else {}
    lines = [x for x in read_lines(path / "metrics.jsonl") if "eval/audit" in x]
    measured = measure.of(run)
    low, high = measure.scale_of(run)
    return RunRow(
        path=str(path),
        method=run["method"],
        purpose=run["purpose"],
        arm=arm,
        seed=run["seed"],
        rollouts=lines[-1].get("rollouts", lines[-1].get("env_steps", 0)) if lines else 0,
        ended=_ended(path, end.get("reason")),
        unit=measured["unit"],
        reward=measured["kind"],
        scale=(low, high),
        first=lines[0]["eval/audit"] if lines else None,
        last=lines[-1]["eval/audit"] if lines else None,
    )


def _ended(path: Path, reason: str | None) -> str:
    """Why a run ended, or whether it is running: a training process holds its lock, which the system releases. A run
    that was stopped keeps the end of that time while it continues."""
    if reason not in (None, *GO_ON):
        return str(reason)
    with suppress(FileNotFoundError), open(path / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return "running"
    return reason or "unfinished"


# methods ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodRow:
    """A method: the year of its paper, its parent (None for the root), the seams it `changes` in its parent, its claim
    and its paper. If it cannot be loaded, `broken` says why and the other fields are empty."""

    name: str
    year: int | None = None
    parent: str | None = None
    changes: tuple[str, ...] = ()
    claim: str = ""
    paper: str = ""
    broken: str | None = None

    def to_dict(self) -> dict[str, Any]:
        if self.broken is not None:
            return {"name": self.name, "broken": self.broken}
        return {k: v for k, v in asdict(self).items() if k != "broken"}


@dataclass(frozen=True)
class MethodList(Result):
    """Methods, in order of name."""

    entries: ClassVar[str] = "methods"

    methods: tuple[MethodRow, ...]

    def rows(self) -> list[Row | Table]:
        """One row per method, then those that cannot be loaded."""
        cells = [(m.name, str(m.year), m.parent or "",
                  "all (the root)" if m.parent is None else ", ".join(m.changes), m.claim)
                 for m in self.methods if m.broken is None]
        return [Table(("method", "year", "parent", "changes", "claim"), cells, left=range(5)),
                *(Row(m.name, m.broken, "command") for m in self.methods if m.broken is not None)]


def list_methods() -> MethodList:
    """Every method, with those that cannot be loaded."""
    out = []
    for name in catalogue.names():
        try:
            method = catalogue.load(name)
            card = method.CARD
            parent = catalogue.load(card.parent) if card.parent else None
        except UserError as e:
            out.append(MethodRow(name, broken=str(e)))
            continue
        changed = tuple(diff(parent.recipe(), method.recipe())) if parent else tuple(SEAMS)
        out.append(MethodRow(name, card.year, card.parent, changed, card.claim, card.paper))
    return MethodList(tuple(out))


@dataclass(frozen=True)
class MethodFile(TextResult):
    """A method's own file: its path and its source."""

    method: str
    path: Path
    source: str

    def __str__(self) -> str:
        return self.source


def method_file(name: str) -> MethodFile:
    """The file of a method, by its name or path. Raises UserError for a method that does not exist or cannot be loaded.
    """
    path = Path(catalogue.load(name).__file__)
    return MethodFile(name, path, path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class MethodCheck(Result):
    """The result of the contract on a method: (promise, state, kept, why) in order; a state is kept, BROKEN or a
    reason why the promise does not apply."""

    entries: ClassVar[str] = "findings"

    method: str
    findings: tuple[Any, ...]

    @property
    def broken(self) -> tuple[Any, ...]:
        """The promises that the method breaks."""
        return tuple(f for f in self.findings if f.state == "BROKEN")

    def rows(self) -> list[Row]:
        """Each promise, and whether it is kept."""
        return promises(self.method, self.findings)


def check_method(name: str) -> MethodCheck:
    """Run the contract of every method file on a name, METHOD@SETTINGS or a .py file; that of strategies on a strategy,
    and that of methods of control on one of these. Raises UserError for a method or a strategy that does not exist or
    cannot be loaded."""
    from isocost.control import methods as agents

    if strategies.known(name):
        from isocost.contract.strategies import check
    elif agents.known(name):
        from isocost.contract.agents import check
    else:
        from isocost.contract.check import check

    return MethodCheck(name, tuple(check(name)))
