"""Programs that try to leave the sandbox: 82 attempts, none gets out, and without a layer some do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import escapes
import pytest

from isocost.envs.sandbox import Limits, Sandbox, SandboxFailed, available
from isocost.envs.sandbox_process import LAYERS

HERE = Path(__file__).parent
missing = available().get("missing", "")
pytestmark = pytest.mark.skipif(bool(missing), reason=str(missing))
NOTHING = (*LAYERS, "namespaces")


def some(*names: str) -> dict[str, str]:
    return {n: escapes.ATTEMPTS[n] for n in names}


@pytest.mark.parametrize("kind", ["FILES", "NETWORK", "PROCESSES", "RESOURCES"])
def test_no_attempt_gets_out(kind: str):
    assert escapes.out((), getattr(escapes, kind)) == {}


def test_there_are_more_than_sixty():
    kinds = (escapes.FILES, escapes.NETWORK, escapes.PROCESSES, escapes.RESOURCES)
    assert len(escapes.ATTEMPTS) == sum(map(len, kinds))
    assert len(escapes.ATTEMPTS) >= 60


@pytest.mark.parametrize(("without", "names"), [
    ("limits", ["memory", "descriptors", "a large file"]),
    ("landlock", ["read a file", "create a file", "delete a file", "read another episode's folder"]),
    ("seccomp", ["fork", "thread", "change a mode", "change an owner", "a Unix socket", "new shared memory"]),
])
def test_without_a_layer_these_get_out(without: str, names: list[str]):
    """So each of the three is needed, and the attempts are real ones."""
    assert list(escapes.out((without,), some(*names))) == names


def test_namespaces_keep_the_network_where_seccomp_is_missing():
    reached = some("UDP", "shared memory")
    assert list(escapes.out(("seccomp", "namespaces"), reached)) == list(reached)
    if available()["namespaces"]:
        assert escapes.out(("seccomp",), reached) == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root has capabilities to drop")
def test_dropped_capabilities_keep_root_from_the_machine():
    assert escapes.out(("seccomp", "namespaces"), escapes.ROOT) == {}
    found = escapes.out(("seccomp", "namespaces", "capabilities"), escapes.ROOT)
    assert list(found) == list(escapes.ROOT)


@pytest.mark.parametrize("abi", [1, 3, 5])
def test_older_versions_of_landlock_are_enough(abi: int):
    """Truncation and signals are not Landlock's there: the filter of system calls keeps them in."""
    names = some("truncate a file", "truncate on opening", "through a hard link", "move a file in", "kill", "TCP")
    assert escapes.out((), names, abi=abi) == {}


@pytest.mark.slow
def test_without_any_layer_every_attempt_gets_out():
    assert set(escapes.ATTEMPTS) - set(escapes.out(NOTHING)) == set()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_no_attempt_of_a_user_without_rights_gets_out():
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False).returncode:
        pytest.skip("the system has no Python 3.11 that other users may run")
    run = subprocess.run(
        [python, "-B", HERE / "escapes.py"], user=65534, group=65534, extra_groups=[], capture_output=True, text=True,
        env={"PYTHONPATH": str(HERE.parents[1] / "src"), "PATH": "/usr/bin:/bin"}, cwd="/", check=True,
    )
    assert json.loads(run.stdout) == {}


# --- what a program may do to the one that cleans up, and to the verdict on it

def test_a_deep_folder_and_one_that_cannot_be_listed_are_removed():
    with Sandbox(Limits(files=1500), at_once=1) as sandbox:
        with sandbox.folder() as folder:
            code = "import os\nfor i in range(1200): os.mkdir('d'); os.chdir('d')"
            assert sandbox.run_now(code, folder).how == "ok"
        assert not folder.exists()
        with sandbox.folder() as folder:
            sandbox.run_now("import os; os.mkdir('x', 0o300); open('x/y', 'w'); os.mkdir('z', 0)", folder)
        assert not folder.exists()


def test_a_program_cannot_pass_its_end_off_as_a_failure_of_the_sandbox():
    """Then a wrong program would cost nothing: rollouts whose environment failed are not scored."""
    with Sandbox(at_once=1) as sandbox, sandbox.folder() as folder:
        for code in ("import os; os._exit(70)", "import os; os.close(1); os.close(2); os._exit(70)",
                     "import os; os.write(1, b'{\"missing\": 1}\\n'); os._exit(3)"):
            assert sandbox.run_now(code, folder).how == "killed"
        assert sandbox.run_now("import os; os.abort()", folder).how == "killed"
        assert sandbox.run_now("import ctypes; ctypes.string_at(0)", folder).how == "killed"


def test_a_program_that_closes_its_output_is_still_ended_in_time():
    with Sandbox(Limits(wall=0.2), at_once=1) as sandbox, sandbox.folder() as folder:
        began = time.monotonic()
        assert sandbox.run_now("import os, time; os.close(1); os.close(2); time.sleep(60)", folder).how == "time"
        assert time.monotonic() - began < 5
        assert sandbox.run_now("import signal, time\nfor s in range(1, 32):\n  try: signal.signal(s, signal.SIG_IGN)\n"
                               "  except OSError: pass\ntime.sleep(60)", folder).how == "time"


def test_output_is_bounded_and_what_is_not_text_is_replaced():
    with Sandbox(Limits(output=100), at_once=1) as sandbox, sandbox.folder() as folder:
        result = sandbox.run_now("print('x' * 1000)", folder)
        assert (result.how, result.text) == ("cut", "x" * 100)
        assert sandbox.run_now("while True: print('x' * 1000)", folder).how == "output"
        assert sandbox.run_now("import os; os.write(1, b'\\xff\\x00a'); None", folder).text == "\ufffd\0a"


def test_when_the_process_that_forks_dies_its_calls_fail_and_the_next_works():
    with Sandbox(at_once=1) as sandbox, sandbox.folder() as folder:
        _, future = sandbox._send("import time; time.sleep(60)", folder, 0)
        time.sleep(0.1)
        assert sandbox._process is not None
        sandbox._process.kill()
        with pytest.raises(SandboxFailed):
            future.result(10)
        assert sandbox.run_now("1 + 1", folder).text == "2\n"


def test_no_fork_outlives_the_process_that_opened_the_sandbox(tmp_path: Path):
    code = f"""if True:
        import os, time
        from pathlib import Path
        from isocost.envs.sandbox import Sandbox
        sandbox = Sandbox(at_once=1)
        sandbox._send("import os, time\\nprint(os.getpid(), flush=True)\\ntime.sleep(60)", Path({str(tmp_path)!r}), 0)
        print(sandbox._process.pid, flush=True)
        time.sleep(0.2)
        os.kill(os.getpid(), 9)"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                         env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")})
    pid = int(run.stdout)
    for _ in range(100):
        children = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(pid), "-p", str(pid)],
                                  capture_output=True, text=True, check=False).stdout.split("\n")
        alive = [c for c in children if c.strip() and "Z" not in c]
        if not alive:
            return
        time.sleep(0.05)
    raise AssertionError(alive)
