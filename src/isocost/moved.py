"""Old import paths: what moved can be imported from where it was, and under its old name, for one version, with one
warning.

A user's method file is part of a run's identity, so a run that began with an old path must continue without an edit.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

# modules: (old package, new package, the modules that moved between them, as `name` or `old name=new name`); names: of
# modules of today, public names that had another one; functions: those of recorded recipes that moved alone.
MOVED = json.loads((Path(__file__).parent / "moved.json").read_text(encoding="utf-8"))
MODULES = {
    ".".join(filter(None, ("isocost", old, name.partition("=")[0]))): f"isocost.{new}.{name.rpartition('=')[2]}"
    for old, new, names in MOVED["modules"] for name in names
}
RENAMED: dict[str, dict[str, str]] = MOVED["names"]
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
