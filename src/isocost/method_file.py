"""A file of a method, of training or of control: its card, its import, and what is said of its errors."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import Interrupted, UserError


@dataclass(frozen=True)
class Card:
    """The source of a method, and its claim."""

    title: str
    paper: str              # arXiv id, or a citation where there is none
    year: int
    parent: str | None      # the method this one is a change to
    claim: str              # one sentence, checkable
    rule: int = 1           # grows when what its functions compute changes: part of every recipe that uses one of them


def from_file(path: Path) -> Any:
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
