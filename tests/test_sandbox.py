"""The sandbox: results, determinism, limits, the filter of system calls, and kernels that lack a layer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isocost.envs.sandbox import filter as rules
from isocost.envs.sandbox.client import CallLimits, CallResult, Sandbox, available
from isocost.errors import UserError

missing = available().get("missing", "")
here = pytest.mark.skipif(bool(missing), reason=str(missing))
HEADERS = {"x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
           "aarch64": Path("/usr/include/asm-generic/unistd.h")}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(CallLimits(wall=5), at_once=2) as opened:
        yield opened


@here
@pytest.mark.parametrize(("code", "how", "text"), [
    ("print(1 + 1)", "ok", "2\n"), ("1 + 1", "ok", "2\n"), ("x = 3\nx * 2", "ok", "6\n"), ("None", "ok", ""),
    ("1 +", "error", "SyntaxError: invalid syntax (line 1)\n"),
    ("x = 1\n1 / 0", "error", "ZeroDivisionError: division by zero (line 2)\n"),
    ("print('a')\nraise ValueError('b')", "error", "a\nValueError: b (line 2)\n"),
    ("def f():\n    return g()\nf()", "error", "NameError: name 'g' is not defined (line 2)\n"),
    ("import sys; sys.exit(3)", "error", ""), ("exit = 1", "ok", ""),
    ("import sys; print('e', file=sys.stderr)", "ok", "e\n"),
    ("bytearray(2 << 30)", "memory", "MemoryError\n"), ("{'b', 'a', 'c'}", "ok", None),
    ("import sympy", "error", "ModuleNotFoundError: No module named 'sympy' (line 1)\n"),
    ("import math, json, csv, hashlib, dataclasses, sqlite3, decimal", "ok", ""),
])
def test_what_a_program_gives(sandbox: Sandbox, code: str, how: str, text: str | None):
    with sandbox.folder() as folder:
        result = sandbox.run_now(code, folder)
        assert result.how == how and (text is None or result.text == text)
        assert sandbox.run_now(code, folder).text == result.text


@here
def test_random_numbers_and_the_order_of_sets_are_the_seeds(sandbox: Sandbox):
    code = "import random; print(random.random(), {'a', 'b', 'c', 'd'}, hash('x'))"
    with sandbox.folder() as folder, Sandbox(at_once=1) as another:
        first = sandbox.run_now(code, folder, seed=5)
        assert another.run_now(code, folder, seed=5).text == first.text
        assert sandbox.run_now(code, folder, seed=6).text != first.text
    import random
    assert float(first.text.split()[0]) == random.Random(5).random()


@here
def test_files_stay_in_a_folder_and_not_between_folders(sandbox: Sandbox):
    with sandbox.folder() as one, sandbox.folder() as two:
        sandbox.run_now("open('note', 'w').write('kept')", one)
        assert sandbox.run_now("open('note').read()", one).text == "'kept'\n"
        assert sandbox.run_now("open('note').read()", two).how == "error"
        assert sandbox.run_now("import os; os.environ.get('HOME')", two).text == f"'{two}'\n"
    assert not one.exists() and not two.exists()


@here
def test_nothing_of_this_process_is_in_it(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "a key")
    with Sandbox(at_once=1) as opened, opened.folder() as folder:
        assert opened.run_now("import sys; {'torch', 'isocost'} & {*sys.modules}", folder).text == "set()\n"
        assert "HF_TOKEN" not in opened.run_now("import os; print(sorted(os.environ))", folder).text


@here
def test_calls_run_side_by_side_and_a_cancelled_one_ends(sandbox: Sandbox):
    async def go() -> tuple[list[CallResult], float]:
        with sandbox.folder() as folder:
            hung = [asyncio.create_task(sandbox.run("import time; time.sleep(4)", folder)) for _ in range(2)]
            await asyncio.sleep(0.1)
            began = time.monotonic()
            for task in hung:
                task.cancel()
            results = await asyncio.gather(*(sandbox.run(f"print({i})", folder) for i in range(20)))
            return results, time.monotonic() - began

    results, seconds = asyncio.run(go())
    assert [r.text for r in results] == [f"{i}\n" for i in range(20)] and seconds < 3


@here
def test_its_layers_are_recorded(sandbox: Sandbox):
    record = sandbox.record()
    assert record["layers"]["landlock"] >= 1 and record["layers"]["seccomp"] and record["without"] == []
    json.dumps(record)
    with Sandbox(layers="none") as open_to_all, open_to_all.folder() as folder:
        record = open_to_all.record()
        assert not any(record["layers"][x] for x in ("landlock", "seccomp", "capabilities", "limits", "namespaces"))
        assert open_to_all.run_now("import os; os.getcwd()", folder).text == f"'{folder}'\n"


@pytest.mark.parametrize("name", ["memory", "cpu", "wall", "file", "disk", "files", "output"])
def test_a_limit_of_nothing_is_an_error(name: str):
    with pytest.raises(UserError, match=f"{name} must be above 0, got 0"):
        CallLimits(**{name: 0})


# --- kernels that lack a layer, as this one for a process that may not ask for it

BLOCK = """if True:
    import ctypes, struct, sys
    sys.path.insert(0, {src!r})
    from isocost.envs.sandbox import filter as rules, process as inside
    code = [(0x20, 0, 0, 0), *{test!r}, (6, 0, 0, 0x7FFF0000)]
    inside.no_new_privileges()
    inside.seccomp(rules.packed(code))
    from isocost.envs.sandbox.client import Sandbox
    from isocost.errors import UserError
    try:
        with Sandbox(): print("opened")
    except UserError as error:
        print(error)
    with Sandbox(layers="none") as sandbox, sandbox.folder() as folder:
        print(sandbox.run_now("1 + 1", folder).text, sandbox.record()["layers"]["landlock"])
"""
# Answer ENOSYS to landlock_create_ruleset; EINVAL to prctl(PR_SET_SECCOMP), as kernels without them do.
NO_LANDLOCK = [(0x15, 0, 1, 444), (6, 0, 0, 0x00050000 | 38)]
NO_SECCOMP = [(0x15, 0, 3, 157 if os.uname().machine == "x86_64" else 167), (0x20, 0, 0, 16), (0x15, 0, 1, 22),
              (6, 0, 0, 0x00050000 | 22)]


@here
@pytest.mark.parametrize(("test", "says"), [
    (NO_LANDLOCK, "this kernel has no Landlock"), (NO_SECCOMP, "seccomp: Invalid argument"),
])
def test_a_kernel_without_a_layer_is_an_error_and_none_has_to_be_spelled_out(test: list[tuple[int, ...]], says: str):
    code = BLOCK.format(src=str(Path(rules.__file__).parents[2]), test=test)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, *_ = run.stdout.split("\n")
    assert says in first and "sandbox=none" in first and second == "2"


# --- the filter of system calls, run by an interpreter of classic BPF

def filtered(machine: str, number: int, *args: int, arch: int | None = None) -> int:
    """What the filter returns for one call: the machine of seccomp_filter.rst, for the instructions used."""
    program = rules.program(machine)
    data = struct.pack("<IIQ6Q", number, rules.MACHINES[machine][1] if arch is None else arch, 0,
                       *(*args, *(0,) * 6)[:6])
    at = a = 0
    while True:
        code, yes, no, k = program[at]
        if code == 0x20:
            (a,) = struct.unpack_from("<I", data, k)
        elif code == 0x54:
            a &= k
        elif code in (0x15, 0x35, 0x45):
            at += yes if {0x15: a == k, 0x35: a >= k, 0x45: bool(a & k)}[code] else no
        else:
            assert code == 0x06
            return k
        at += 1


ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


@pytest.mark.parametrize("machine", list(rules.MACHINES))
def test_the_filter_lets_through_what_the_tables_say_and_nothing_else(machine: str):
    column = rules.MACHINES[machine][0]
    listed = {n[column] for n in rules.CALLS.values()} - {None}
    some = {v[0][column] for v in rules.SOME.values()} | {v[0][column] for v in (rules.OPENS | rules.BITS).values()}
    newer = {v[column] for v in rules.NEWER_CALLS.values()}
    for number in range(600):
        got = filtered(machine, number, 0xFFFF, 0xFFFFFFF, 0x10)
        if number in listed:
            assert got == ALLOW
        elif number in newer:
            assert got == ENOSYS
        elif number not in some:
            assert got == EPERM, number
    assert len(rules.program(machine)) < 4096        # BPF_MAXINSNS


@pytest.mark.parametrize("machine", list(rules.MACHINES))
def test_arguments_are_compared(machine: str):
    column = rules.MACHINES[machine][0]
    fcntl, ioctl, limit, prctl = (rules.SOME[n][0][column] for n in ("fcntl", "ioctl", "prlimit64", "prctl"))
    openat = rules.OPENS["openat"][0][column]
    assert filtered(machine, fcntl, 5, 3) == ALLOW and filtered(machine, fcntl, 5, 8) == EPERM       # F_SETOWN
    assert filtered(machine, fcntl, 5, 10) == EPERM and filtered(machine, fcntl, 5, 15) == EPERM
    assert filtered(machine, ioctl, 0, 0x5401) == ALLOW and filtered(machine, ioctl, 0, 0x5412) == EPERM    # TIOCSTI
    assert filtered(machine, limit, 0, 7, 0) == ALLOW and filtered(machine, limit, 0, 7, 1 << 40) == EPERM
    assert filtered(machine, limit, 0, 7, 16) == EPERM
    assert filtered(machine, prctl, 15) == ALLOW and filtered(machine, prctl, 4) == EPERM
    for flags, said in ((0, ALLOW), (1, ALLOW), (0o1000, EPERM), (0o1001, ALLOW), (0o1002, ALLOW), (0o102000, ALLOW),
                        (3, EPERM), (0o1003, EPERM), (0o2003, EPERM), (0o20200002, EPERM), (0o20000000, EPERM)):
        assert filtered(machine, openat, 5, 0, flags) == filtered(machine, openat, 5, 0, flags, 0o7777) == said
    for mode, said in ((0o777, ALLOW), (0, ALLOW), (0o4777, EPERM), (0o2000, EPERM), (0o1600, EPERM)):
        assert filtered(machine, openat, 5, 0, 0o101, mode) == said
    mkdirat, umask, renameat2 = (rules.BITS[n][0][column] for n in ("mkdirat", "umask", "renameat2"))
    for mode, said in ((0o777, ALLOW), (0o700, ALLOW), (0o300, EPERM), (0, EPERM), (0o1777, EPERM), (0o4700, EPERM)):
        assert filtered(machine, mkdirat, 5, 0, mode) == said
    assert filtered(machine, umask, 0o77) == ALLOW and filtered(machine, umask, 0o277) == EPERM
    assert filtered(machine, renameat2, 5, 0, 5, 0, 3) == ALLOW and filtered(machine, renameat2, 5, 0, 5, 0, 4) == EPERM
    assert "flock" not in rules.CALLS


def test_another_processors_calls_and_x32_end_the_program():
    for machine in rules.MACHINES:
        assert filtered(machine, 0, arch=0x40000003) == KILL            # i386
    assert filtered("x86_64", 0x40000000) == KILL
    with pytest.raises(rules.MissingTable, match="riscv64"):
        rules.program("riscv64")


@pytest.mark.parametrize("machine", list(rules.MACHINES))
def test_the_numbers_are_those_of_the_kernels_headers(machine: str):
    if not HEADERS[machine].exists():
        pytest.skip("no kernel headers")
    known = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR(?:3264)?_(\w+) (\d+)", HEADERS[machine].read_text())}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    column = rules.MACHINES[machine][0]
    tables = [*rules.CALLS.items(), *((k, v[0]) for k, v in rules.SOME.items()),
              *((k, v[0]) for k, v in (rules.OPENS | rules.BITS).items()), *rules.NEWER_CALLS.items()]
    for name, both in tables:
        assert both[column] == known.get(name), name


def test_the_doctor_names_the_layers(monkeypatch: pytest.MonkeyPatch):
    from isocost.doctor import sandbox as check

    found = {"landlock": 4, "seccomp": True, "capabilities": True, "limits": True, "namespaces": ["user", "net"]}
    monkeypatch.setattr(check, "available", lambda: found)
    finding = asyncio.run(check.sandbox(None))
    assert finding.verdict == "ok" and finding.said.endswith(
        "limits, capabilities, Landlock (ABI 4), seccomp, namespaces (user, net)")
    monkeypatch.setattr(check, "available", lambda: {"missing": "no Landlock"})
    assert asyncio.run(check.sandbox(None)).verdict == "warn"
