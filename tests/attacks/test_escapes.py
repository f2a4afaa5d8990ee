"""Programs that try to leave the sandbox: 100 attempts, none gets out, and without a layer some do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import escapes
import pytest

from isocost.envs.sandbox.client import CallLimits, Sandbox, SandboxFailed, available
from isocost.envs.sandbox.process import LAYERS

HERE = Path(__file__).parent
missing = available().get("missing", "")
pytestmark = pytest.mark.skipif(bool(missing), reason=str(missing))
NOTHING = (*LAYERS, "namespaces")


def some(*names: str) -> dict[str, str]:
    return {n: escapes.ATTEMPTS[n] for n in names}


KINDS = ("FILES", "NETWORK", "PROCESSES", "RESOURCES")
# Versions of Landlock (7: the newest, or the kernel's own) with and without namespaces. Of FILES more than one in every
# run of the tests: what Landlock does not keep from a file, the filter of system calls must.
VERSIONS = [(kind, abi, without) for kind in KINDS for abi in (1, 2, 3, 7) for without in ((), ("namespaces",))]
QUICK = {*((kind, 7, ()) for kind in KINDS), ("FILES", 1, ("namespaces",)), ("RESOURCES", 7, ("namespaces",))}


@pytest.mark.parametrize(("kind", "abi", "without"), [
    pytest.param(*each, marks=[] if each in QUICK else pytest.mark.slow) for each in VERSIONS
])
def test_no_attempt_gets_out(
    kind: str, abi: int, without: tuple[str, ...], record_property: Callable[[str, object], None],
):
    record_property("attempts", len(getattr(escapes, kind)))
    assert escapes.out(without, getattr(escapes, kind), abi=abi) == {}


def test_there_are_a_hundred_of_their_own_names():
    assert len(escapes.ATTEMPTS) == sum(len(getattr(escapes, kind)) for kind in KINDS) == 100


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


# --- what a program may do to other episodes, the machine's memory, the one that cleans up, and the verdict on it

# Looks for a text in every object, and in every page near them that a system call can read.
SEARCH = r"""
import ctypes, gc, os, re, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.write.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
libc.sbrk.restype = ctypes.c_void_p
found, form = set(), re.compile(rb"S[E]CRET-[A-Z]")
read, write = os.pipe()
near = {id(x) >> 25 for x in gc.get_objects()} | {(libc.sbrk(0) - (i << 20)) >> 25 for i in range(32)}
for part in near:
    for page in range(part << 25, (part + 1) << 25, 1 << 15):
        if libc.write(write, page, 1 << 15) > 0:
            found |= {*form.findall(os.read(read, 1 << 16))}
frame = sys._getframe()
while frame:
    found |= {*form.findall(repr(frame.f_locals).encode())}
    frame = frame.f_back
print(sorted(found))
"""


def test_no_program_finds_what_another_wrote_or_runs():
    def program(name: str, seconds: float) -> str:
        return f"import time; print('SECRET-{name}', flush=True); time.sleep({seconds})"

    with Sandbox(CallLimits(wall=20), at_once=2) as sandbox, sandbox.folder() as folder:
        calls = [sandbox._send(code, folder, 0)[1] for code in (
            program("A", 1.5), program("B", 0.3), SEARCH, program("C", 0.0))]     # the last waits for the third
        results = [c.result(30) for c in calls]
        assert [r.text for r in results] == ["SECRET-A\n", "SECRET-B\n", "[]\n", "SECRET-C\n"]
        own = "mine = b'SECRE' + bytes([84]) + b'-M'\n" + SEARCH       # it finds what is there
        assert sandbox.run_now(own, folder).text == "[b'SECRET-M']\n"


WRITES = {
    "named": "import os\nfor i in range(60): open(str(i), 'wb').write(b'1' * (1 << 20))",
    "nested": "import os\nfor i in range(18): os.mkdir('x' * 240); os.chdir('x' * 240)\n"
              "for i in range(60): open(str(i), 'wb').write(b'1' * (1 << 20))",
    "removed": "import os\nk = []\nfor i in range(40):\n  f = open('f', 'wb', 0); k.append(f); os.unlink('f')\n"
               "  f.write(b'1' * (1 << 20))",
    "mapped": "import mmap, os\nk = []\nfor i in range(60):\n  f = os.open('f', os.O_RDWR | os.O_CREAT)\n"
              "  os.unlink('f'); os.write(f, b'1' * (1 << 20)); k.append(mmap.mmap(f, 4096)); os.close(f)",
    "unnamed": "import os\nk = [os.open('.', os.O_TMPFILE | os.O_RDWR) for i in range(40)]\n"
               "for f in k: os.write(f, b'1' * (1 << 20))",
}


@pytest.mark.parametrize("how", list(WRITES))
def test_the_kernel_limits_what_a_folder_holds(how: str):
    """Where it gives namespaces: no measurement can come too late. Elsewhere a program is ended: see escapes.py."""
    if "mnt" not in available()["namespaces"]:
        pytest.skip("no file system can be mounted here")
    with Sandbox(CallLimits(disk=8 << 20), at_once=1) as sandbox, sandbox.folder() as folder:
        watch = "\nimport os; space = os.statvfs('.'); print((space.f_blocks - space.f_bfree) * space.f_frsize)"
        code = f"try:\n  exec({WRITES[how]!r})\nexcept OSError as e: print(e.errno)\nos.chdir({str(folder)!r}){watch}"
        result = sandbox.run_now(code, folder)
        assert result.how in ("ok", "disk", "error")
        assert result.how == "disk" or int(result.text.split()[-1]) <= (8 << 20) + 4096, result
        assert not list(folder.iterdir())       # nothing is in the memory or on the disk that others share


def test_names_that_the_one_that_cleans_up_would_use_do_not_keep_a_folder():
    for without in ((), ("namespaces",)):
        with Sandbox(at_once=1, without=without) as sandbox:
            with sandbox.folder() as folder:
                code = "import os\nfor i in range(60):\n  os.mkdir(f'isocost-{i}')\n  open(f'isocost-{i}/x', 'w')"
                assert sandbox.run_now(code, folder).how == "ok"
            assert not folder.exists() and not sandbox._left


def test_a_folder_that_could_not_be_removed_is_removed_with_the_next(monkeypatch: pytest.MonkeyPatch):
    from isocost.envs.sandbox import client as module

    with Sandbox(at_once=1, without=("namespaces",)) as sandbox:
        with monkeypatch.context() as stuck, sandbox.folder() as folder:
            stuck.setattr(module, "remove", lambda folder: False)
            sandbox.run_now("open('x', 'w')", folder)
            sandbox._left.add(folder)
        folder.exists()
        with sandbox.folder():
            pass
        assert not folder.exists() and not sandbox._left

def test_a_deep_folder_and_one_that_cannot_be_listed_are_removed():
    for without in ((), ("namespaces",), ("namespaces", "seccomp")):
        with Sandbox(CallLimits(files=1500), at_once=1, without=without) as sandbox:
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
    with Sandbox(CallLimits(wall=0.2), at_once=1) as sandbox, sandbox.folder() as folder:
        began = time.monotonic()
        assert sandbox.run_now("import os, time; os.close(1); os.close(2); time.sleep(60)", folder).how == "time"
        assert time.monotonic() - began < 5
        assert sandbox.run_now("import signal, time\nfor s in range(1, 32):\n  try: signal.signal(s, signal.SIG_IGN)\n"
                               "  except OSError: pass\ntime.sleep(60)", folder).how == "time"


def test_output_is_bounded_and_what_is_not_text_is_replaced():
    with Sandbox(CallLimits(output=100), at_once=1) as sandbox, sandbox.folder() as folder:
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
        sandbox._process.kill()
        sandbox._process.wait()
        if "mnt" in sandbox.layers["namespaces"]:       # the files of the call that worked have ended with it
            with pytest.raises(SandboxFailed, match="the files of earlier calls with it"):
                sandbox.run_now("1 + 1", folder)


def test_when_the_one_that_forks_dies_alone_the_folders_of_others_stay():
    with Sandbox(at_once=1) as sandbox, sandbox.folder() as folder, sandbox.folder() as other:
        (other / "theirs").write_text("x")
        _, future = sandbox._send("import os, time; print(os.getppid(), flush=True); time.sleep(60)", folder, 0)
        time.sleep(0.2)
        assert sandbox._process is not None
        children = Path(f"/proc/{sandbox._process.pid}/task/{sandbox._process.pid}/children").read_text().split()
        os.kill(int(children[0]), 9)
        with pytest.raises(SandboxFailed):
            future.result(10)
        assert (other / "theirs").exists()
        with sandbox.folder() as another:
            assert sandbox.run_now("1 + 1", another).text == "2\n"


@pytest.mark.parametrize("without", [(), ("namespaces",)])
def test_nothing_outlives_the_process_that_opened_the_sandbox(without: tuple[str, ...]):
    code = f"""if True:
        import os, time
        from isocost.envs.sandbox.client import Sandbox
        sandbox = Sandbox(at_once=1, without={without!r})
        with sandbox.folder() as one, sandbox.folder() as two:
            deep = "import os\\nfor i in range(100): os.mkdir('x' * 200); os.chdir('x' * 200)\\nopen('f', 'w')"
            sandbox.run_now(deep, one)
            sandbox._send("import time\\nopen('f', 'w')\\ntime.sleep(60)", two, 0)
            print(sandbox._process.pid, sandbox._home.name, flush=True)
            time.sleep(0.2)
            os.kill(os.getpid(), 9)"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                         env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")})
    pid, home = run.stdout.split()
    for _ in range(100):
        children = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", pid, "-p", pid],
                                  capture_output=True, text=True, check=False).stdout.split("\n")
        alive = [c for c in children if c.strip() and "Z" not in c]
        if not alive and not Path(home).exists():
            return
        time.sleep(0.05)
    raise AssertionError(alive)
