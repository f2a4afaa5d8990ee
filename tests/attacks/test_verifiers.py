"""Attacks by verifiers: they fork, forge, hang, die, print and grow, and cost their own score, never another's."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.errors import RewardFailed, UserError
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.tasks.verify import answers, grade, numbers, processes, supervisor, verifiers, worker
from isocost.tasks.verify.grade import Grader
from isocost.types import Message, Problem, Rollout
from isocost.worlds.setting import Setting
from waiting import until

REWARDS = r'''
import asyncio, atexit, os, signal, subprocess, sys, threading, time
import numpy as np

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no message")

FORGER = """
import os
import re
for fd in range(3, 1100):
    try:
        os.write(fd, b'["score", 1.0]\\n')
    except OSError:
        pass
"""

def everywhere(data):
    """Write to every descriptor above the standard ones."""
    for fd in range(3, 1100):
        try:
            os.write(fd, data)
        except OSError:
            pass

def detached(seconds):
    """A process that is a child of nobody here, in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", seconds])
        os._exit(0)

def act(completions, **columns):
    said = completions[0]
    # forks and forgeries
    if said == "fork":
        return [1.0] if os.fork() == 0 else [0.0]
    if said == "fork, and later":
        if os.fork() == 0:
            time.sleep(0.2)
            return [1.0]
        return [0.0]
    if said == "fork in an exception":
        if os.fork() == 0:
            raise KeyError("in the child")
        return [0.0]
    if said == "forge":
        everywhere(b'["score", 1.0]\n' * 50)
        return [0.0]
    if said == "forge in a child":
        subprocess.run([sys.executable, "-c", FORGER], close_fds=False)
        return [0.0]
    if said == "forge in a fork":
        if os.fork() == 0:
            everywhere(b'["score", 1.0]\n' * 50)
            os._exit(0)
        os.wait()
        return [0.0]
    if said.startswith("write "):
        everywhere(eval(said[6:]))
        return [0.0]
    # descriptors
    if said == "chatter":
        for _ in range(200):
            print("x" * 2**18)
            print("x" * 2**18, file=sys.stderr)
        return [7.0]
    if said == "standard descriptors":
        for fd in (0, 1, 2):
            try:
                os.write(fd, b'["score", 1.0]\n')
            except OSError:
                pass
        read = sys.stdin.read()
        sys.stdin.close()
        for fd in (0, 1, 2):
            os.close(fd)
        return [float(len(read)) + 7.0]
    if said == "input":
        return [float(input())]
    # what goes on afterwards
    if said == "elsewhere":
        os.chdir("/")
        return [7.0]
    if said == "handlers":
        for s in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        atexit.register(time.sleep, 1000)
        threading.Thread(target=time.sleep, args=(1000,)).start()
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        return [7.0]
    if said == "dies later":
        threading.Timer(0.1, os._exit, (3,)).start()
        return [7.0]
    if said.startswith("detached "):
        detached(said.split()[1])
        return [7.0]
    if said.startswith("crowd "):
        for _ in range(400):
            subprocess.Popen(["sleep", said.split()[1]], start_new_session=True)
        while True:
            time.sleep(1)
    if said == "pid":
        return [float(os.getpid())]
    # ends
    if said == "interrupt": raise KeyboardInterrupt
    if said == "generator": raise GeneratorExit
    if said == "cancelled": raise asyncio.CancelledError
    if said == "mute": raise Mute
    if said == "recursion": return act(completions, **columns)
    if said == "exit": os._exit(5)
    if said == "segfault": os.kill(os.getpid(), signal.SIGSEGV)
    if said == "stopped": os.kill(os.getpid(), signal.SIGSTOP)
    if said == "closes all": os.closerange(0, 2000)
    if said == "bomb":
        import re
        return [float(bool(re.match(r"(a+)+$", "a" * 60 + "b")))]
    if said == "sleeps":
        while True:
            try:
                time.sleep(1e6)
            except BaseException:
                pass
    if said.endswith(" GiB"):
        return [float(len(bytearray(int(said.split()[0]) * 2**30)))]
    # values
    if said == "text": return ["1.0"]
    if said == "bytes": return [b"1"]
    if said == "bare": return 1.0
    if said == "dict": return {"score": 1.0}
    if said == "two": return [1.0, 2.0]
    if said == "huge": return [10**400]
    if said == "complex": return [1j]
    if said == "true": return [True]
    if said == "float32": return [np.float32(0.5)]
    if said == "int64": return [np.int64(3)]
    if said == "array": return np.array([0.25])
    if said == "array in a list": return [np.array(0.75)]
    if said == "generated": return (x for x in [0.5])
    if said == "KeyError": raise KeyError("lost")
    if said == "none": return [None]
    if said == "ink": raise ValueError("one\n\x1b[2Jtwo [/red] \u202e\x07[bold")
    if said == "limits":
        import resource
        core, cpu = resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_CPU)[0]
        return [float(cpu) if core == 0 else -1.0]
    return [float(len(said))]
'''

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are counted in /proc")


def rollouts(*texts):
    problem = Problem("p17", (Message("user", "47+38="),), "85")
    return [Rollout(problem, (), t, attempt=i) for i, t in enumerate(texts)]


def marks(grader, *texts):
    return [None if s is None else s.value for s in asyncio.run(grader(rollouts(*texts)))]


@pytest.fixture(scope="module")
def rewards(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "rewards.py"
    path.write_text(REWARDS)
    return f"{path}:act"


@pytest.fixture(scope="module")
def grader(rewards):
    """One process: whatever a text leaves behind meets the next text."""
    with Grader(rewards, workers=1, timeout=20.0) as grader:
        yield grader


@pytest.fixture
def why(grader):
    """The message of the latest failure."""
    grader.failures.clear()
    grader.examples.clear()
    return lambda: " ".join(f"{k}: {v}" for k, v in grader.examples.items())


def own(seconds):
    """So many seconds to sleep, and a fraction that no other test process on this machine has."""
    return f"{seconds}.{os.getpid()}"


def alive(seconds):
    """Processes `sleep SECONDS`: the number is a test's own, so that they are its own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def exists(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def becomes(count, seconds):
    """Whether so many of these processes are there, now or soon: one that was forked is not what it runs yet."""
    return until(lambda: len(alive(seconds)) == count, pause=0.05)


# marks that are not its own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["fork", "fork, and later", "fork in an exception", "forge in a child",
                                  "forge in a fork"])
def test_children_answer_for_nobody(grader, text):
    said = marks(grader, text, "abc", text, "", "abcde")
    time.sleep(0.3)       # longer than the child takes that returns late: nothing shows from outside that it has
    assert said + marks(grader, "ab", "", "abcd") == [0.0, 3.0, 0.0, 0.0, 5.0, 2.0, 0.0, 4.0]


@pytest.mark.parametrize("text", [
    "forge", "write b'5\\n'", "write b'[]\\n'", "write b'{}\\n'", "write b'NaN\\n'", "write b'\\n'",
    "write b'\\xff\\xfe\\n'", "write b'[' * 9000 + b'\\n'", "write b'[\"' + b'0' * 32 + b'\", \"score\", 1.0]\\n'",
    "write b'9' * 9000 + b'\\n'", "write b'x' * 20000",
])
def test_bytes_on_descriptors_are_no_marks_and_shift_none(grader, why, text):
    assert marks(grader, text, "abc", "", "abcde") == [None, 3.0, 0.0, 5.0]
    assert "malformed: problem 'p17': the process " in why() and grader.failures == {"malformed": 1}


def test_what_is_printed_and_read_is_nothing(grader):
    assert marks(grader, "chatter", "standard descriptors", "abc") == [7.0, 7.0, 3.0]


def test_an_answer_longer_than_any_pipe_is_marked(grader):
    assert marks(grader, "é" * 1_000_000, "abc", "x" * 70_000) == [1e6, 3.0, 7e4]


def test_input_is_at_its_end(grader, why):
    assert marks(grader, "exit", "input", "abc") == [None, None, 3.0]
    assert "EOFError" in why() and "(rewards.py, line " in why()


# what it leaves -----------------------------------------------------------------------------------------------------


def test_another_folder_handlers_and_threads_change_no_mark(grader):
    assert marks(grader, "elsewhere", "handlers", "abc", "exit", "abcd") == [7.0, 7.0, 3.0, None, 4.0]


def test_a_process_that_dies_between_two_answers_costs_neither(grader):
    (process,) = marks(grader, "pid")
    said = marks(grader, "dies later")
    assert until(lambda: not exists(int(process)))
    assert said + marks(grader, "abc") == [7.0, 3.0]


@needs_proc
def test_detached_processes_end_with_the_worker(rewards):
    with Grader(rewards, workers=1) as grader:
        one, other = own(98761), own(98762)
        assert marks(grader, f"detached {one}", f"detached {one}", "abc") == [7.0, 7.0, 3.0] and becomes(2, one)
        assert marks(grader, "exit") == [None] and not alive(one)
        assert marks(grader, f"detached {other}") == [7.0] and becomes(1, other)
    assert not alive(other)


@needs_proc
def test_a_crowd_of_processes_is_ended(rewards):
    with Grader(rewards, workers=1, timeout=60.0) as grader:
        assert marks(grader, f"crowd {own(98763)}", "abc") == [None, 3.0]
        assert not alive(own(98763)) and "processes running, and was ended with them" in grader.examples["died"]


@needs_proc
def test_when_the_run_is_killed_the_workers_and_what_they_started_end(rewards):
    code = f"""if True:
        import asyncio, sys
        sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
        from test_verifiers import Grader, marks
        grader = Grader({rewards!r}, workers=1, timeout=1000.0)
        print(marks(grader, "detached {own(98764)}"), flush=True)
        marks(grader, "bomb")
    """
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "[7.0]\n" and becomes(1, own(98764))
    finally:
        child.kill()
        child.communicate()
    assert becomes(0, own(98764))


# how it ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "said"), [
    ("interrupt", "KeyboardInterrupt"), ("generator", "GeneratorExit"), ("cancelled", "CancelledError"),
    ("mute", "Mute, whose message cannot be shown (rewards.py, line "), ("recursion", "RecursionError"),
    ("huge", "OverflowError"),
    ("text", "act returned '1.0' (str) where a number was expected"),
    ("bytes", "act returned b'1' (bytes) where a number was expected"),
    ("complex", "act returned 1j (complex) where a number was expected"),
    ("bare", "must return 1 reward, but returned 1.0 (float): return a list of one"),
    ("dict", "must return 1 reward, but returned {'score': 1.0} (dict)"),
    ("ink", "ValueError: one ?[2Jtwo [/red] ??[bold (rewards.py, line "),
    ("two", "must return 1 reward, but returned [1.0, 2.0] (list)"),
])
def test_whatever_is_raised_is_an_exception_and_costs_no_process(grader, why, text, said):
    before, failed, after = marks(grader, "pid", text, "pid")
    assert failed is None and before == after
    assert grader.failures == {"exception": 1} and said in why()


@pytest.mark.parametrize(("text", "said"), [
    ("exit", "its process ended with exit status 5"), ("segfault", "its process was killed by SIGSEGV"),
    ("closes all", "its process "),
])
def test_a_dead_process_says_how_it_ended(grader, why, text, said):
    assert marks(grader, text, "abc") == [None, 3.0]
    assert grader.failures == {"died": 1} and said in why()


@pytest.mark.parametrize("text", ["bomb", "stopped", "sleeps"])
def test_what_holds_the_interpreter_or_stops_costs_one_score(rewards, text):
    with Grader(rewards, workers=1, timeout=0.5) as grader:
        assert marks(grader, text, "abc") == [None, 3.0]
        assert grader.failures == {"timeout": 1}


def test_cpu_time_is_limited_for_each_answer_and_no_core_files_are_left(grader):
    """By the time of one answer on every core: what a child that is left behind may use too."""
    (seconds,) = marks(grader, "limits")
    assert 0 < seconds <= 2 * 20.0 * os.cpu_count() + 60


def test_numbers_are_numbers_whatever_they_are_made_of(grader):
    texts = ("true", "float32", "int64", "array", "array in a list", "generated")
    assert marks(grader, *texts) == [1.0, 0.5, 3.0, 0.25, 0.75, 0.5]


# memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="data is limited by Linux only")
def test_more_memory_than_it_may_have_is_an_exception(monkeypatch, rewards):
    monkeypatch.setenv("ISOCOST_REWARD_MEMORY", "1.5")
    with Grader(rewards, workers=1) as grader:
        assert marks(grader, "2 GiB", "abc", "30 GiB", "abc") == [None, 3.0, None, 3.0]
        assert "MemoryError" in grader.examples["exception"]


@pytest.mark.parametrize("asked", ["", "much", "0", "-1", "nan", "inf", "16G"])
def test_an_amount_of_memory_that_is_none_is_refused(monkeypatch, rewards, asked):
    monkeypatch.setenv("ISOCOST_REWARD_MEMORY", asked)
    with pytest.raises(UserError, match=f"ISOCOST_REWARD_MEMORY is {asked!r}; expected a number of GiB above 0"):
        Grader(rewards)


# too often ----------------------------------------------------------------------------------------------------------

DYING = """
import os
import re
with open({log!r}, "a") as log:
    log.write("started\\n")
def act(completions, **columns):
    os._exit(9)
"""


def test_one_that_always_dies_is_refused_after_a_few_processes(tmp_path):
    path, log = tmp_path / "dying.py", tmp_path / "log"
    path.write_text(DYING.format(log=str(log)))
    with Grader(f"{path}:act", workers=2) as grader:
        with pytest.raises(RewardFailed, match=r"ended or hung its process 8 times in a row; the first failure, on "
                                               r"problem 'p17': died: its process ended with exit status 9"):
            asyncio.run(grader(rollouts(*"abcdefghijklmnopqrst")))
        assert grader.failures["died"] in (8, 9)       # two at a time
        assert len(log.read_text().splitlines()) <= grade.RESTARTS_IN_A_ROW + 1
        with pytest.raises(RewardFailed):              # and nothing more is asked
            asyncio.run(grader(rollouts("a")))
        said = grader.mark([("a", rollouts("x")[0].problem)])
        assert isinstance(said[0], str) and "8 times in a row" in said[0]
    assert len(log.read_text().splitlines()) <= grade.RESTARTS_IN_A_ROW + 1


def test_checking_answers_with_one_that_always_dies_ends_too(tmp_path):
    path, log = tmp_path / "dying.py", tmp_path / "log"
    path.write_text(DYING.format(log=str(log)))
    problems = [Problem(str(i), (Message("user", f"{i}?"),), str(i)) for i in range(100)]
    with Grader(f"{path}:act", workers=1) as grader:
        wrong = verifiers.check_gold(problems, f"{path}:act", grader.mark)
    assert len(wrong) == 100 and "exit status 9" in wrong[0].why and "8 times in a row" in wrong[-1].why
    assert len(log.read_text().splitlines()) == grade.RESTARTS_IN_A_ROW


def test_one_that_never_scores_is_refused(rewards):
    for text, said in (("KeyError", r"problem 'p17': KeyError: 'lost' \(rewards.py, line "), ("none", "returned None")):
        with (
            Grader(rewards, workers=1) as grader,
            pytest.raises(RewardFailed, match=rf"rewards.py:act gave no score 32 times in a row; .*{said}"),
        ):
            asyncio.run(grader(rollouts(*[text] * 40)))


def test_a_share_of_failures_is_refused_and_less_of_it_is_not(rewards):
    with Grader(rewards, workers=1) as grader:
        assert Counter(marks(grader, *["KeyError", "none", "abc"] * 100)) == {None: 200, 3.0: 100}
        with pytest.raises(RewardFailed, match=r"failed on \d+ of the last 256 answers, and at most 50% may fail"):
            asyncio.run(grader(rollouts(*["KeyError", "KeyError", "abc"] * 200)))
        assert 60 <= grader.failures["exception"] - 100 <= 200


def test_a_share_of_new_processes_is_refused():
    record = grade._Record("v")
    for i in range(300):
        record.saw(("score", 1.0), "p", replaced=i % 5 == 0)       # a fifth, between answers
    assert not record.stopped
    for _ in range(40):
        record.saw(("died", "why"), "p9", replaced=True)
        record.saw(("score", 1.0), "p9")
    assert "cost 65 processes for the last 256 answers; at most 25% may cost one; the first failure" in record.stopped
    assert record.stopped.endswith("on problem 'p9': died: why")


def test_built_in_verifiers_are_held_to_the_same():
    broken = [Rollout(Problem("p1", (Message("user", "?"),), "three"), (), "3") for _ in range(40)]
    with pytest.raises(RewardFailed, match=r"numeric gave no score 32 times .* 'p1': ValueError: the answer 'three'"):
        asyncio.run(Grader("numeric")(broken))


# what a model writes ------------------------------------------------------------------------------------------------


def test_boxes_in_boxes_are_read_in_one_pass():
    """One more box took twice as long to read: 60 would have outlived the machine."""
    def never(*_):
        raise TimeoutError("a minute for a few kilobytes")

    before = signal.signal(signal.SIGALRM, never)
    signal.alarm(60)
    try:
        assert numbers.said(r"\boxed{" * 5000 + "85" + "}" * 5000) == numbers.Quantity(Fraction(85))
        assert numbers.said(r"\boxed{" * 60 + "85" + "}" * 60 + r" \boxed{84}") is None
        assert numbers.said(r"\boxed{" * 30000 + "85") is None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def by_definition(text):
    """`answers.boxed` and `answers.innermost` as they are defined, in quadratic time."""
    found, last = [], None
    for start in re.finditer(r"\\boxed\s*\{", text):
        depth, last = 1, None
        for at in range(start.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                last = text[start.end() : at]
                found.append(last)
                break
    cut = r"\boxed" in text and last is None
    return found, None if cut else [b for b in found if not by_definition(b)[0]]


def test_they_are_read_as_they_are_defined():
    from random import Random

    rng = Random(5)
    for _ in range(3000):
        parts = [r"\boxed{", "{", "}", "}", "1", "2", " ", r"\boxed {", "####"]
        text = "".join(rng.choices(parts, k=rng.randint(0, 14)))
        assert (answers.boxed(text), answers.innermost(text)) == by_definition(text), text


def test_what_a_completion_makes_the_math_verifier_raise_is_no_way_out_of_a_score():
    """A completion without a score is left out of every mean: a policy that could choose that would keep its best."""
    pytest.importorskip("math_verify")
    problem = Problem("p", (Message("user", "?"),), "85")
    for text in ("{" * 1900 + "1" + "}" * 1900, r"\boxed{\sqrt[0]{1}}", r"\boxed{0^{-1}}", r"\boxed{\log_0 0}",
                 r"\boxed{\begin{pmatrix}1 & 2 \\ 3\end{pmatrix}}", r"\boxed{(((}", r"\boxed{\pm\pm\mp x < }"):
        assert verifiers.math(text, problem) == 0.0, text


BOMBS = [r"\boxed{9^{9^{9^{9}}}}", r"\boxed{" * 400 + "1" + "}" * 400, r"$\sqrt{" * 300 + "2" + "}" * 300 + "$",
         r"$\binom{10^9}{5\cdot 10^8}$", r"$10^{9}!$", "$" + "(x+1)" * 400 + "$", r"$\frac{1}{" * 200 + "2" + "}" * 200,
         "$" + "9" * 5000 + "$", r"$\int_0^1 " + "x^" * 200 + "2 dx$", "$" + "-" * 3000 + "1$"]


@pytest.mark.slow
@pytest.mark.parametrize("text", BOMBS, ids=lambda t: t[:24])
def test_what_a_model_writes_does_not_get_through_the_math_verifier(text):
    pytest.importorskip("math_verify")
    with Grader("math", workers=1, timeout=5.0) as grader:
        got = marks(grader, text, r"\boxed{85}", text, r"\boxed{85}")
    assert got[1::2] == [1.0, 1.0] and set(got[::2]) <= {None, 0.0}


# its surroundings ---------------------------------------------------------------------------------------------------


def test_what_lies_in_the_current_folder_is_not_imported_in_place_of_pythons(monkeypatch, tmp_path, rewards):
    """Data comes in folders: a json.py among it must not run as part of isocost."""
    for name in ("json", "isocost", "numpy", "signal"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'it ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    with Grader("reasoning-gym", workers=1) as grader:
        grader.mark([("a", rollouts("x")[0].problem)])
    assert not (tmp_path / "it ran").exists()


def test_a_reward_may_import_what_lies_beside_it_and_in_the_current_folder(monkeypatch, tmp_path):
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "beside.py").write_text("one = 1.0\n")
    (tmp_path / "here.py").write_text("two = 2.0\n")
    (tmp_path / "rewards" / "r.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport beside, here\n"
        "@dataclass\nclass Three:\n    value: float = 3.0\n"
        "def act(completions): return [beside.one + here.two + Three().value]\n"
    )
    monkeypatch.chdir(tmp_path)
    with Grader("rewards/r.py:act", workers=1) as grader:
        assert marks(grader, "a") == [6.0]


def test_a_file_that_is_edited_while_it_is_used_does_not_mark_by_two_texts(tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("import os\ndef act(completions):\n    return [1.0] if completions[0] else os._exit(0)\n")
    with Grader(f"{path}:act", workers=1) as grader:
        assert marks(grader, "a") == [1.0]
        path.write_text("def act(completions):\n    return [2.0]\n")
        with pytest.raises(RewardFailed, match=r"edited.py was changed while it was in use"):
            asyncio.run(grader(rollouts("a", "", "a")))


@pytest.mark.parametrize("text", ["import os; os._exit(3)", "raise KeyboardInterrupt", "import time; time.sleep(99)"])
def test_a_file_that_ends_or_hangs_on_import_is_refused_at_once(monkeypatch, tmp_path, text):
    if "sleep" in text:
        monkeypatch.setattr(processes, "STARTUP", 3.0)
    path = tmp_path / "bad.py"
    path.write_text(text)
    with Grader(f"{path}:act", workers=1) as grader:
        with pytest.raises(UserError, match=r"bad.py.*(cannot be loaded|import)"):
            asyncio.run(grader(rollouts("a")))
        assert not grader.failures


def test_the_page_has_the_limits_that_are():
    page = " ".join((Path(__file__).parents[2] / "docs" / "safety.md").read_text(encoding="utf-8").split())
    for text in (
        f"after {grade.RESTARTS_IN_A_ROW} calls in a row that ended or hung",
        f"{grade.FAILURES_IN_A_ROW} in a row without a score", f"of the last {grade.WINDOW} calls failed",
        f"(at least {grade.LEAST} calls)",
        f"built-in verifiers: {worker.MEMORY >> 30} GiB", f"at least {processes.LEAST_MEMORY} GiB; `ISOCOST_REWARD",
        f"{supervisor.LEFT - 4 * os.cpu_count()}, and 4 for each core", f"{processes.LONGEST >> 10} KiB",
        f"{Grader('exact').timeout:g} s (20 s while",
    ):
        assert text in page
    assert (grade.FAILED, grade.RESTARTED) == (0.5, 0.25) and "more than half" in page and "than a quarter" in page


# a run --------------------------------------------------------------------------------------------------------------

FLAKY = """
import os
import re
def act(completions, **columns):
    with open({count!r}, "a") as f:
        f.write("x")
    if os.path.getsize({count!r}) > {until}:
        raise KeyError("no [/red] service")
    return [float(len(completions[0]) % 2)]
"""
SMALL = Job(
    name="r", setting=Setting.of(data="sums:base=easy,count=120", held_out=10, samples=4), method="grpo", seed=5,
    budget={"rollouts": 256}, arm=Arm(n=4, B=4, lr=1e-4), points=(64, 128),
)


DATA = ("--data", SMALL.setting.problems.data)


def flaky(folder, until):
    path = folder / "flaky.py"
    path.write_text(FLAKY.format(count=str(folder / "count"), until=until))
    (folder / "count").write_text("")
    return replace(SMALL, setting=SMALL.setting.but(verifier=f"{path}:act"))


def paid(end):
    return sum(b["rollouts"] for b in end["bill"].values())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the run is where nothing fails: how its records look."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert asyncio.run(run(flaky(folder, 10**9), folder / "run"))["reason"] == "spent"
    return folder / "run"


@pytest.mark.parametrize(("method", "until"), [
    ("grpo", 0),                                     # at the base's evaluation, in a step, at an evaluation
    *(pytest.param("grpo", until, marks=pytest.mark.slow) for until in (100, 110)),
    ("dapo", 100), ("areal", 100),                   # with groups kept for a step, and with waves in flight
])
def test_a_run_whose_reward_fails_ends_whole_and_goes_on_once_it_is_mended(tmp_path, undisturbed, method, until):
    job, out = replace(flaky(tmp_path, until), method=method), tmp_path / "run"
    end = asyncio.run(run(job, out))
    assert end["reason"] == "reward failed" and end == read_json(out / "end.json")
    assert "gave no score 32 times in a row; the first failure, on problem '" in end["detail"]
    assert "KeyError: 'no [/red] service' (flaky.py, line 8)" in end["detail"]
    assert end["verifier_failures"] == {"exception": end["verifier_failures"]["exception"]}
    assert paid(end) == sum(end["fates"].values()), "every rollout that was begun has a fate"
    assert paid(end) <= until + 200, "and few were begun after the reward had failed"
    assert "KeyError: 'no [/red] service' (flaky.py, line 8)" in end["verifier_examples"]["exception"]
    for line in [*read_lines(out / "metrics.jsonl"), *read_lines(out / "journal.jsonl")]:
        json.dumps(line, allow_nan=False)

    flaky(tmp_path, 10**9)        # mended: another file under the same name
    after = asyncio.run(run(job, out))
    assert after["reason"] == "spent" and paid(after) == sum(after["fates"].values())
    assert all(paid({"bill": {k: after["bill"][k]}}) >= b["rollouts"] for k, b in end["bill"].items()
               if k != "lost"), "what was paid stays on the bill"
    assert len(read_json(out / "run.json")["rewards_before"]) == 1
    evaluated, wanted = ([x["rollouts"] for x in read_lines(f / "metrics.jsonl") if "eval/audit" in x]
                         for f in (out, undisturbed))
    assert evaluated[0] == 0 and (method != "grpo" or len(evaluated) == len(wanted))
    steps = [x["step"] for x in read_lines(out / "metrics.jsonl") if "reward" in x]
    assert steps == list(range(len(steps)))


def said(*args, code):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.mark.slow       # two commands whole; a run whose reward fails is in the normal suite
def test_a_profile_whose_reward_fails_is_one_line_and_keeps_its_bill(tmp_path):
    """The answers of 120 problems are checked first."""
    asked = ("profile", *DATA, "--out", tmp_path / "study", "--problems", "20", "--reward")
    reward = flaky(tmp_path, 220).setting.problems.verifier
    text = said(*asked, reward, code=2)
    assert text.count("\n") == 1 and "gave no score 32 times in a row; the first failure, on problem '" in text
    assert "KeyError: 'no [/red] service' (flaky.py, line 8)" in text and not (tmp_path / "study" / "lock").exists()
    begun = sum(x["cost"]["rollouts"] for x in read_lines(tmp_path / "study" / "profile.jsonl"))
    assert 100 <= begun <= 20 * 16
    flaky(tmp_path, 10**9)
    said(*asked, reward, code=0)
    profile = read_json(tmp_path / "study" / "profile.json")
    assert profile["unscored"] == 0 and profile["lost"]["rollouts"] > 0
    assert profile["cost"]["rollouts"] + profile["lost"]["rollouts"] >= begun


@pytest.mark.slow       # two commands whole; a run whose reward fails is in the normal suite
def test_a_trained_run_whose_reward_fails_says_why_and_goes_on(tmp_path):
    asked = ("train", "grpo", *DATA, "--held-out", "10", "--samples", "1", "-n", "4", "-B", "4", "--budget",
             "128-rollouts", "--evaluations", "0", "--out", tmp_path / "run", "--reward")
    reward = flaky(tmp_path, 170).setting.problems.verifier
    text = " ".join(said(*asked, reward, code=5).split())
    assert "reward failed: " in text and "KeyError: 'no [/red] service'" in text
    assert "All that was paid for is kept: correct it, and the same command goes on" in text
    flaky(tmp_path, 10**9)
    assert "spent:" in said(*asked, reward, code=0)


@pytest.mark.slow       # two pools of processes, each of which imports torch
def test_a_reward_that_fails_ends_every_run_of_a_phase(tmp_path):
    """What is true of one run's reward is true of the others': they are stopped, saved, and go on later."""
    from isocost.runs.launch.local import run_all

    job = replace(flaky(tmp_path, 70), budget={"rollouts": 64}, points=())
    jobs = [replace(job, name=f"r{i}", seed=i) for i in range(3)]
    with pytest.raises(RewardFailed, match=r"run r0: .*flaky.py:act gave no score 32 times in a row"):
        run_all(jobs, tmp_path / "runs", workers=1)
    assert not (tmp_path / "runs" / "r2").exists()
    flaky(tmp_path, 10**9)
    assert [end["reason"] for end in run_all(jobs, tmp_path / "runs", workers=1)] == ["spent"] * 3


def test_a_reward_that_was_changed_is_another_run_unless_it_had_failed(tmp_path):
    job, out = flaky(tmp_path, 10**9), tmp_path / "run"

    def stop(line):
        if line.get("step") == 2 and "reward" in line:
            os.kill(os.getpid(), signal.SIGINT)

    assert asyncio.run(run(job, out, on_step=stop))["reason"] == "interrupted"
    flaky(tmp_path, 10**8)
    with pytest.raises(UserError, match="holds another run: its problems have changed"):
        asyncio.run(run(job, out))
