"""One thread, so that other work on the machine cannot slow the suite tenfold; shapes in annotations are checked."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from jaxtyping import install_import_hook  # after the environment is set

install_import_hook(["isocost.types", "isocost.ops", "isocost.pack"], "beartype.beartype")

import pytest  # noqa: E402 - after the hook
import torch  # noqa: E402 - after the hook, or the shapes would not be checked

import isocost  # noqa: E402, F401 - before torch's first product: it makes the settings of torch's libraries
from programs import Shell, programs  # noqa: E402 - it imports isocost

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def programs_at_once() -> Iterator[Path]:
    """A folder with `isocost` and `python`, which start at once: forks of one process that has imported all."""
    with programs(forked=True) as bin:
        yield bin


@pytest.fixture(scope="session")
def ran(programs_at_once: Path) -> Callable[..., str]:
    """Runs an `isocost` command that trains: returns what it printed; its exit code must be `code`, or one of these.

    For commands whose worker processes would each import torch anew, had this process started them.
    """
    def run(*words: object, code: int | tuple[int, ...] = 0) -> str:
        done = Shell(Path.cwd(), programs_at_once).run(["isocost", *words])
        assert done.code in ((code,) if isinstance(code, int) else code), (words, done)
        return done.out + done.err

    return run
