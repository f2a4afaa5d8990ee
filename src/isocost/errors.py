"""What a user can put right, and what a user asked for. Neither shows a traceback; all else is a bug and does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """A mistake in what was asked: the message names the thing and says what would be right."""


class Interrupted(Exception):
    """Asked to stop by a signal, with all paid for on disk. `resume` is the command that goes on, if another."""

    def __init__(self, signum: int, resume: str = ""):
        super().__init__(f"stopped by signal {signum}")
        self.signum, self.resume = signum, resume


class RewardFailed(UserError):
    """A verifier failed too often to go on. What was paid for is kept, and once it is mended the run can go on."""


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Put the name of what is read before every UserError that does not have it."""
    try:
        yield
    except UserError as e:
        if str(path) in str(e):
            raise
        raise UserError(f"{path}: {e}") from e.__cause__


@contextmanager
def foreign(what: Path | str, fix: str) -> Iterator[None]:
    """Around a call into another library's parser: whatever it raises for a broken file becomes one line.

    Such a parser may raise anything, down to the panics of Rust, which are no Exception; its error stays the cause.
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
