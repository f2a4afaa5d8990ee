"""What every attack is held to: one line that names the thing, exit code 2, and no traceback."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.errors import UserError

Refused = Callable[..., str]


@pytest.fixture
def refused() -> Refused:
    """Runs a command that must be refused, and gives the line that it printed."""

    def run(*args: object) -> str:
        done = CliRunner().invoke(main, [str(a) for a in args])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise AssertionError(f"a traceback: {done.exception!r}") from done.exception
        assert done.exit_code == 2, done.output
        (line,) = [x for x in done.stderr.splitlines() if x.startswith("isocost: ")]
        return line

    return run


@pytest.fixture
def says() -> Callable[[Callable[[], object]], str]:
    """Calls what must raise UserError, and gives its one line."""

    def call(act: Callable[[], object]) -> str:
        with pytest.raises(UserError) as told:
            act()
        (line,) = str(told.value).splitlines()
        return line

    return call


@pytest.fixture
def limited() -> Callable[[int], AbstractContextManager[None]]:
    """`with limited(2**30)`: so much more address space and no more, where the system tells how much is used."""

    @contextmanager
    def limit(room: int) -> Iterator[None]:
        statm, (soft, hard) = Path("/proc/self/statm"), resource.getrlimit(resource.RLIMIT_AS)
        if statm.exists():
            used = int(statm.read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + room, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    return limit
