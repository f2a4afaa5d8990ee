"""One thread, so that other work on the machine cannot slow the suite tenfold; shapes in annotations are checked."""

import gc
import os
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
from programs import Shell, programs  # noqa: E402 - it imports isocost

torch.set_num_threads(1)

# The files that take longest, first: a worker that began one of them last would leave the others without work.
LONGEST = (
    "test_docs_run", "test_methods", "test_study", "test_cli", "test_native", "test_local_engine", "test_verifiers",
    "test_laws_fit", "test_methods_learn", "test_report", "test_processors", "test_agents_run", "test_vllm",
    "test_drive", "test_two_processes", "test_compare_methods", "test_run", "test_harness", "test_laws_plan",
    "test_printing", "test_methods_docs", "test_truth", "test_study_own", "test_docs_site", "test_endpoint",
    "test_records", "test_tinker", "test_traps_loss", "test_hostile_text", "test_results", "test_rollouts",
    "test_turn_limits", "test_tutorial", "test_doctor_service", "test_conflicts", "test_doctor", "test_layers",
    "test_folders", "test_begun_records", "test_old_records", "test_local_learner", "test_import_study", "test_overlap",
    "test_examples", "test_problems_grade", "test_methods_choice", "test_claims", "test_sessions",
    "test_methods_play", "test_drive_trainers",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))      # stable: within a file nothing moves


def pytest_collection_finish() -> None:
    gc.freeze()     # modules and tests stay to the end: no collection need go through them again


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Shapes are not checked where every method runs: that takes a third of the time, of dialogues half.

    `test_every_method_runs_as_it_is_and_at_the_usual_sizes` checks them, with every method.
    """
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def programs_at_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `isocost` and `python`, which start at once: forks of one process that has imported all.

    The processes of the suite share it: to make it takes four seconds of processor time.
    """
    own = tmp_path_factory.getbasetemp()
    with programs(forked=True, shared=(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "server") as bin:
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
