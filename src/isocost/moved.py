"""Old import paths: what moved can be imported from where it was, and under its old name, for one version, with one
warning.

A user's method file is part of a run's identity, so a run that began with an old path must continue without an edit.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# (old package, new package): the modules that moved between them, as `name` or `old name=new name`
ROOMS = {
    ("", "disk"): "jsonfile shape store",
    ("runs", "disk"): "lock",
    ("", "fast"): "columns",
    ("", "screen"): "console display terminal words",
    ("envs", "envs.tiny"): "boxes desk needle pages rooms shop sql",
    ("envs", "envs.sandbox"):
        "python sandbox=client sandbox_filter=filter sandbox_process=process sandbox_server=server",
    ("envs", "envs.harness"):
        "gateway harness=driven harness_kinds=kinds harness_library=library harness_process=process "
        "harness_run=run",
    ("envs", "envs.adapters"):
        "browser gym mcp minigrid_words miniwob openenv outside=seeded textarena textworld textworld_process "
        "user_tools",
    ("envs", "contract"): "contract=environments shared_state",
    ("trainers", "trainers.reading"): "lines logs names points record stitch text wire",
    ("trainers", "trainers.driving"): "command drive driven export loss",
    ("steps", "steps.training"):
        "audit by_limit dialogues fit jobs limits pass_rates pilot plan plans profile served single spending "
        "stored train whole",
    ("steps", "steps.outside"): "drive early imported importing settle trainer trainer_profile",
    ("steps", "steps.look"): "environments evaluate export laws listing rollouts=kept_rollouts verdict",
    ("planner", "planner.training"):
        "afford choice focus learning_rate more n_growth next_runs pilot prescription rollouts=prescribe "
        "seeds shapes standing study_runs turn_limits",
    ("tasks", "tasks.builtin"): "addition chain countdown drawn families puzzles sums",
    ("tasks", "tasks.verify"): "answers equal forms grade numbers processes supervisor verify=verifiers worker",
    ("runs", "runs"): "rollouts=kept_rollouts",
    ("report", "report.sections"):
        "accounts contest episodes evidence fit headline history interference outcome overview problems reach "
        "recipe rollouts=turns",
}
MODULES = {
    ".".join(filter(None, ("isocost", old, name.partition("=")[0]))): f"isocost.{new}.{name.rpartition('=')[2]}"
    for (old, new), names in ROOMS.items() for name in names.split()
}
# module of today: its public names that had another name, old=new
NAMES = {
    "isocost.envs.tools": "Answer=ToolAnswer Malformed=MalformedCall",
    "isocost.ledger": "Line=JournalLine",
    "isocost.promise": "Finding=Promise",
    "isocost.report.sections.fit": "left_out=leave_one_out",
    "isocost.screen.display": "Shown=Result Text=TextResult",
    "isocost.stats.forms": "risen=gain_share",
    "isocost.steps.look.evaluate": "Measured=EvaluationResult MeasuredModel=ModelEvaluation",
    "isocost.steps.look.export": "Export=ExportResult",
    "isocost.steps.training.audit": "Audit=AuditResult",
    "isocost.steps.training.fit": "Law=LawResult",
    "isocost.steps.training.pilot": "Pilot=PilotResult",
    "isocost.steps.training.plans": "PilotPlan=PilotPlanResult Plan=PlanResult",
    "isocost.steps.training.profile": "Profile=ProfileResult",
    "isocost.steps.training.train": "Forecast=ForecastResult Trained=TrainResult",
    "isocost.steps.training.whole": "Whole=QuickstartResult",
}
RENAMED = {home: dict(pair.split("=") for pair in names.split()) for home, names in NAMES.items()}
_warned = False


def _warn(old: str, new: str) -> None:
    """The one warning, at the line that imports: frames of the import system do not count."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"{old} is {new} now; old import paths end with the next version", FutureWarning, stacklevel=3)


def names_of_old(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package that has the name of a module that moved into it: the names of that module."""
    def of_old(name: str) -> Any:
        if not name.startswith("__") and find_spec(f"{package}.{name}") is None:
            now = importlib.import_module(MODULES[package])
            if name in vars(now):
                _warn(package, now.__name__)
                return vars(now)[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return of_old


def find_old_names(home: str) -> None:
    """Let the old names of `RENAMED` be taken from this module. A module calls it that stands where it stood."""
    module = sys.modules[home]

    def renamed(name: str) -> Any:
        if name not in RENAMED[home]:
            raise AttributeError(f"module {home!r} has no attribute {name!r}")
        _warn(f"{home}.{name}", f"{home}.{RENAMED[home][name]}")
        return getattr(module, RENAMED[home][name])

    vars(module)["__getattr__"] = renamed


class _Old(MetaPathFinder, Loader):
    """Finds a module at its old name, and gives it the names of the module at its new one."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        now = importlib.import_module(MODULES[module.__name__])
        _warn(module.__name__, now.__name__)

        def missing(name: str) -> Any:
            return getattr(now, RENAMED.get(now.__name__, {}).get(name, name))

        vars(module).update({k: v for k, v in vars(now).items() if not k.startswith("__")}, __getattr__=missing)


def find_old_paths() -> None:
    """Let every import of this process find modules at their old names. Calls after the first change nothing."""
    if not any(isinstance(finder, _Old) for finder in sys.meta_path):
        sys.meta_path.append(_Old())
