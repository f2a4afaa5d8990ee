"""One idea, one file: what is found by the name of its file, by the path of a user's own file, or in a plug-in.

Methods, strategies and scorers are found so, without registration.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from isocost.errors import Interrupted, UserError


@dataclass(frozen=True)
class Card:
    """The source of a method or a strategy, and its claim."""

    title: str
    paper: str              # arXiv id, or a citation where there is none
    year: int
    parent: str | None      # the method this one is a change to
    claim: str              # one sentence, checkable
    acts: str = ""          # the note of a rollout that is not 0 where the method acted; the gate counts it
    rule: int = 1           # grows when what its functions compute changes: part of every recipe that uses one of them


@dataclass(frozen=True)
class FileKind:
    """What the files of a package are, such as methods. A plug-in's entry point has the package's name as group."""

    package: str                    # "isocost.methods"
    noun: str                       # "method"
    has: tuple[str, ...]            # names that each file defines
    page: str                       # that says how one is written
    dashes: bool = False            # "best-of" is best_of.py
    beside: tuple[str, ...] = ()    # modules of the package that are none

    def names(self) -> list[str]:
        """Those of the package and of installed plug-ins, sorted."""
        return sorted({*self.shipped(), *(e.name for e in entry_points(group=self.package))})

    def shipped(self) -> list[str]:
        """Those of the package, sorted. A plug-in of the same name does not replace them."""
        return list(_files(self))

    def load(self, name: str) -> Any:
        """The module of a name, or of the path of a .py file.

        Raises UserError if it does not exist, does not import, or lacks what such a file has.
        """
        module = from_file(Path(name)) if name.endswith(".py") else self._by_name(name)
        if lacking := [part for part in self.has if not hasattr(module, part)]:
            raise UserError(f"{name} is not a {self.noun}: it has no {' and no '.join(lacking)} (see {self.page})")
        return module

    def _by_name(self, name: str) -> Any:
        if name in _files(self):        # first, because reading the installed packages takes a hundred times as long
            return importlib.import_module(f"{self.package}.{_files(self)[name]}")
        plugin = next((e for e in entry_points(group=self.package) if e.name == name), None)
        if plugin is None:
            close = " or ".join(map(repr, get_close_matches(name, self.names())))
            if Path(f"{name}.py").is_file():
                raise UserError(f"unknown {self.noun} {name!r}; a file is named by its path: ./{name}.py")
            raise UserError(f"unknown {self.noun} {name!r}{f' (did you mean {close}?)' if close else ''}; expected one "
                            f"of {', '.join(self.names())}, or the path of a .py file")
        try:
            return plugin.load()
        except Exception as e:      # other people's files may raise anything
            why = told(e, _origin(plugin.module))
            raise UserError(f"the {self.noun} {name} of an installed package ({plugin.value}) does not import: {why}"
                            ) from e


@cache
def _files(kind: FileKind) -> dict[str, str]:
    """name -> file."""
    path = importlib.import_module(kind.package).__path__
    found = sorted(m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_"))
    return {n.replace("_", "-") if kind.dashes else n: n for n in found if n not in kind.beside}


def told(error: BaseException, file: str) -> str:
    """An error with the last line of this file that led to it, or of the package if none did."""
    if isinstance(error, UserError):
        return str(error)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}: {(error.text or '').strip()}"
    frames = traceback.extract_tb(error.__traceback__)
    if here := [f for f in frames if f.filename == file]:
        return f"line {here[-1].lineno}: {said}: {here[-1].line}"
    package = Path(__file__).parent
    if here := [f for f in frames if package in Path(f.filename).parents and f.filename != __file__]:
        return f"{said} ({Path(here[-1].filename).relative_to(package.parent)}, line {here[-1].lineno})"
    return said


def raised_in(error: BaseException, file: str) -> bool:
    """Whether a line of this file raised the error, itself or in a library, and not in the package that it called."""
    package = Path(__file__).parent
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    known = [f for f in frames if f == file or package in Path(f).parents]
    return bool(known) and known[-1] == file


def _origin(module: str) -> str:
    """The file of a module that may not import; empty if it is not found."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:       # it imports the parent package, which may raise anything
        return ""
    return (spec.origin or "") if spec else ""


def from_file(path: Path) -> Any:
    """The module of a user's file, one for each content. Raises UserError if it is missing or does not import."""
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    # The module's name must be the same in every process and wherever the file is, for runs and seals made with it; two
    # files of one name must have different modules.
    source = path.read_bytes()
    name = f"{path.stem}_{hashlib.sha256(source).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UserError(f"{path} cannot be read as Python")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:    # not by its loader: bytecode of another text of the same length and second would be taken for its own
            exec(compile(source, spec.origin or str(path), "exec", dont_inherit=True), module.__dict__)
        except BaseException as e:
            del sys.modules[name]
            if not isinstance(e, Exception | SystemExit) or isinstance(e, Interrupted):
                raise
            raise UserError(f"{path} does not import: {told(e, spec.origin or '')}") from e
    return sys.modules[name]
