"""Errors that a user can correct, and interruptions. Neither shows a traceback; any other exception is a bug."""

from __future__ import annotations

import asyncio
import asyncio.runners
import importlib
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isocost.screen.words import whole

__all__ = ["Interrupted", "Resumable", "RewardFailed", "Unreachable", "UserError"]
TOLD = 300          # characters of an exception of other people's code
_OWN = str(Path(__file__).parent / "runs")      # what handles signals


class UserError(Exception):
    """A mistake in a request: the message names the wrong value and the correction."""


class Interrupted(Exception):
    """Stopped by a signal, with everything saved. `resume` is the command that continues, if it is another one."""

    def __init__(self, signum: int, resume: str = ""):
        super().__init__(f"stopped by signal {signum}")
        self.signum, self.resume = signum, resume


class Resumable(UserError):
    """Something that work needs failed too often. Everything charged is saved, and the same command continues."""


class RewardFailed(Resumable):
    """A verifier failed too often. Everything charged is saved, and the run can be resumed with a corrected reward."""


class Unreachable(Resumable):
    """A server that is sampled from no longer answers."""


def needed(module: str, extra: str, who: str) -> Any:
    """Import a module that an extra of this package installs. Raises UserError with the line that does so."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{who} needs {module}, of the extra [{extra}]: pip install {module}") from error


def told(thing: object, *, kind: bool = True) -> str:
    """An exception or a value of other people's code in at most `TOLD` characters: its `repr`, or what `str` gives.

    Its type's name where it cannot be written: also that may raise, or be of any length.
    """
    try:
        text = repr(thing) if kind else str(thing)
    except BaseException:
        text = type(thing).__name__
    return whole(text[:TOLD])


def interrupts(error: BaseException) -> bool:
    """Whether an exception is the Ctrl-C of a user: code that was called may raise a KeyboardInterrupt of its own.

    A handler of signals that is not Python's raises it from a line of its own, in this package or in asyncio.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler or not files:
        return True
    return files[-1] == asyncio.runners.__file__ or files[-1].startswith(_OWN)


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Put the name of the file before every UserError that does not contain it."""
    try:
        yield
    except UserError as e:
        if str(path) in str(e):
            raise
        raise UserError(f"{path}: {e}") from e.__cause__


@contextmanager
def foreign(what: Path | str, fix: str) -> Iterator[None]:
    """Turns any error of another library's parser into one line.

    A parser may raise anything for a broken file, also Rust's panics, which are not an Exception; it stays the cause.
    Raises UserError naming `what` was read, the first line of the error, and the `fix`.
    """
    try:
        yield
    except (UserError, Interrupted):
        raise
    except BaseException as e:
        if not (isinstance(e, Exception) or type(e).__name__ == "PanicException"):
            raise
        said = (str(e).strip() or type(e).__name__).splitlines()[0][:300]
        raise UserError(f"{what} cannot be read: {said}; {fix}") from e
