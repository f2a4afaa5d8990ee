"""One thread, so that other work on the machine cannot slow the suite tenfold; shapes are checked in turn."""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Images of containers set it. The suite starts some hundred Python processes, and each would compile the package anew;
# each worker would rewrite the assertions of every file again in each run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

from jaxtyping import config, install_import_hook  # noqa: E402 - after the environment is set

install_import_hook(["isocost.types", "isocost.ops", "isocost.pack"], "beartype.beartype")

import pytest  # noqa: E402 - after the hook
import torch  # noqa: E402 - after the hook, or the shapes would not be checked

import isocost  # noqa: E402, F401 - before torch's first product: it makes the settings of torch's libraries
from fixtures.study_records import write_study  # noqa: E402 - it imports isocost
from in_turn import checks_shapes  # noqa: E402 - it imports isocost
from programs import Shell, locked, programs  # noqa: E402 - it imports isocost

torch.set_num_threads(1)

pytest_plugins = ["cpu_seconds"]


def pytest_collection_finish() -> None:
    gc.freeze()     # modules and tests stay to the end: no collection need go through them again


@pytest.fixture(scope="module", autouse=True)
def shapes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Shapes are checked in the files whose turn it is; with `-m release` and `-m slow` in all."""
    file = request.path.relative_to(request.config.rootpath).as_posix()
    asked = request.config.getoption("-m") != request.config.getini("addopts")[2]
    config.update("jaxtyping_disable", not (asked or checks_shapes(file)))
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Shapes are not checked where every method runs: that takes a third of the time, of dialogues half.

    `test_every_method_runs_as_it_is_and_at_the_usual_sizes` checks them, with every method.
    """
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def programs_at_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `isocost` and `python`, which start at once: forks of one process that has imported all.

    The processes of the suite share it: to make it takes four seconds of processor time.
    """
    with programs(forked=True, shared=shared(tmp_path_factory) / "server") as bin:
        yield bin


def shared(factory: pytest.TempPathFactory) -> Path:
    """The folder of this session that all of its processes see."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`recorded(folder, upto="train")` makes the folder a study whose records arithmetic made (`study_records.py`).

    It is made once a session, by the first process that asks, and copied.
    """
    home = shared(tmp_path_factory) / "recorded"
    home.mkdir(exist_ok=True)

    def copy(folder: Path, upto: str = "train") -> Path:
        with locked(home / f"{upto}.lock"):
            if not (home / upto).exists():
                write_study(home / f"{upto}.new", upto=upto).rename(home / upto)
        return shutil.copytree(home / upto, folder, dirs_exist_ok=True)

    return copy


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
