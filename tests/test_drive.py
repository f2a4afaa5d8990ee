"""Runs of a trainer that is not isocost's: real processes, killed and launched again, and what their logs give."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from isocost.errors import Interrupted, UserError
from isocost.planner.evaluation import EvaluationPlan, spaced
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.launch.launcher import Launch, State, job_name, write_script
from isocost.runs.launch.processes import Processes
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import found
from isocost.steps.look.verdict import Bearings
from isocost.steps.outside import drive, early
from isocost.steps.outside.drive import drive_jobs
from isocost.steps.outside.early import Stops
from isocost.steps.outside.settle import trainer_of
from isocost.steps.outside.trainer import profile_trainer
from isocost.trainers import trl
from isocost.trainers.driving import driven
from isocost.trainers.driving.command import Sizes
from isocost.trainers.driving.drive import Begin
from isocost.trainers.reading.stitch import Columns, attempts_of, stitch
from isocost.worlds.setting import Setting
from waiting import until

SCRIPT = Path(__file__).parent.parent / "examples" / "own_trainer.py"
OPTIONS = "--n {n} --groups {B} --updates {M} --lr {lr} --seed {seed} --eval-every {eval_every} --out {out}"
SETTING = Setting.of(model="softmax", data="larger of two", held_out=64.0, samples=4)


def command(*more):
    return " ".join([f"cmd: {sys.executable} {SCRIPT} {OPTIONS}", *more])


def halting():
    """The same trainer, whose first two attempts wait to be killed, after updates 11 and 20."""
    return f"cmd: {sys.executable} {SCRIPT.parent.parent / 'tests' / 'halting_trainer.py'} {{attempt}} {OPTIONS}"


def study(path, text, **options):
    return found(path, SETTING, seed=0, method=None, trainer=trainer_of(text, **options).data(), launch="local")


def job(name="pilot-n4-s0", n=4, B=4, M=24, seed=7, **more):
    points = tuple(n * B * u for u in (8, 16, M))
    return Job(name, SETTING, "cmd", seed, {"rollouts": n * B * M}, Arm(n=n, B=B, lr=0.05), points=points,
               purpose="pilot", **more)


class Each(Observer):
    """Calls a function several times a second while runs are under way."""

    def __init__(self, look):
        self.look = look

    @contextmanager
    def running(self, title, folder, jobs):
        yield self.look


def lines(run):
    return read_lines(run / "metrics.jsonl")


def pids(run):
    return [read_json(t)["pid"] for t in sorted(run.glob("attempts/*/ticket.json"), key=lambda p: int(p.parent.name))]


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False


def killer(run, after, log="trainer/metrics.jsonl", word=b"{"):
    """Kills the process of the attempt K of a run, once its log has `after[K]` lines with a word."""
    def look():
        numbers = pids(run)
        k, path = len(numbers) - 1, run / log
        logged = sum(word in line for line in path.read_bytes().splitlines()) if path.exists() else 0
        if k in after and logged >= after[k]:
            os.kill(numbers[k], signal.SIGKILL)
            after.pop(k)

    return Each(look)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing killed."""
    home = study(tmp_path_factory.mktemp("whole") / "study", command())
    (end,) = drive_jobs(home, [job()], "pilot", SILENT, 1)
    return home.runs / "pilot-n4-s0", end


# runs ---------------------------------------------------------------------------------------------------------


def test_a_run_is_a_record_of_what_its_log_holds(whole):
    run, end = whole
    assert [(x["step"], x["rollouts"]) for x in lines(run) if "eval/select" in x] == [(0, 0), (8, 128), (16, 256),
                                                                                     (24, 384)]
    assert sum("reward" in x for x in lines(run)) == 24
    about = read_json(run / "run.json")
    assert about["arm"] == {"n": 4, "B": 4, "lr": 0.05, "warmup": 0, "multiplier": 1.0} and about["seed"] == 7
    assert about["trainer"]["command"] == command().partition(": ")[2]
    assert end["reason"] == "spent" and end["bill"] == {"train": {"rollouts": 384, "updates": 24}}
    assert any(n.startswith("missing: rollouts before filtering") for n in end["notes"])
    assert 0 < end["seconds"] < 60


def test_a_killed_run_is_continued_and_its_curve_is_that_of_the_run_that_was_not_killed(tmp_path, whole):
    """Killed twice with kill -9; what each attempt logged after its last checkpoint is charged as lost."""
    home = study(tmp_path / "study", halting())
    run = home.runs / "pilot-n4-s0"
    (end,) = drive_jobs(home, [job()], "pilot", killer(run, {0: 13, 1: 26}), 1)
    assert (run / "metrics.jsonl").read_bytes() == (whole[0] / "metrics.jsonl").read_bytes()
    assert len(pids(run)) == 3 and end["bill"]["lost"] == {"rollouts": 16 * 7, "updates": 7}    # 9 to 11, 17 to 20
    assert end["bill"]["train"] == whole[1]["bill"]["train"]
    assert any("2 attempts ended early" in n and "at most 32 rollouts" in n for n in end["notes"])
    clock = [x["seconds"] for x in read_lines(run / "timing.jsonl")]
    assert clock == sorted(clock)


def test_a_driver_that_was_killed_finds_the_process_that_still_runs(tmp_path, whole):
    """Its second start launches nothing: one attempt, one process, one curve."""
    folder = tmp_path / "study"
    code = ("import test_drive as t; from pathlib import Path\n"
            f"t.drive_jobs(t.study(Path({str(folder)!r}), t.halting()), [t.job()], 'pilot', t.SILENT, 1)")
    root = SCRIPT.parent.parent
    driver = subprocess.Popen([sys.executable, "-c", code], cwd=root, env={
        **os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "tests")])})
    run, until = folder / "runs" / "pilot-n4-s0", time.time() + 60
    log = run / "trainer" / "metrics.jsonl"
    while not (log.exists() and len(log.read_bytes().splitlines()) == 13) and time.time() < until:
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    (pid,) = pids(run)
    assert alive(pid)
    (run / "trainer" / "go").touch()
    (end,) = drive_jobs(study(folder, halting()), [job()], "pilot", SILENT, 1)
    assert pids(run) == [pid] and not alive(pid) and "lost" not in end["bill"]
    assert (run / "metrics.jsonl").read_bytes() == (whole[0] / "metrics.jsonl").read_bytes()


def test_a_stopped_driver_stops_its_runs_and_goes_on_later(tmp_path, whole):
    home = study(tmp_path / "study", halting())
    run = home.runs / "pilot-n4-s0"

    def stop():
        log = run / "trainer" / "metrics.jsonl"
        if log.exists() and len(log.read_bytes().splitlines()) == 13:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        drive_jobs(home, [job()], "pilot", Each(stop), 1)
    assert not any(map(alive, pids(run))) and not (run / "end.json").exists()
    (run / "trainer" / "go").touch()
    (end,) = drive_jobs(home, [job()], "pilot", SILENT, 1)
    assert end["bill"]["lost"]["updates"] == 3
    assert (run / "metrics.jsonl").read_bytes() == (whole[0] / "metrics.jsonl").read_bytes()


def test_a_longer_run_continues_the_shorter_one(tmp_path, whole):
    """From its last checkpoint: its first 24 updates are those of the run that was there."""
    home = study(tmp_path / "study", command())
    drive_jobs(home, [job(M=16)], "pilot", SILENT, 1)
    (end,) = drive_jobs(home, [job()], "pilot", SILENT, 1)
    run = home.runs / "pilot-n4-s0"
    assert end["bill"]["train"]["updates"] == 24 and len(pids(run)) == 2 and "lost" not in end["bill"]
    assert (run / "metrics.jsonl").read_bytes() == (whole[0] / "metrics.jsonl").read_bytes()


def test_a_command_without_a_length_is_stopped_when_everything_is_logged(tmp_path, whole):
    text = command().replace("--updates {M}", "--updates 100000") + " --pause 0.01"
    (end,) = drive_jobs(study(tmp_path / "study", text), [job()], "pilot", SILENT, 1)
    run = tmp_path / "study" / "runs" / "pilot-n4-s0"
    held = [(x["rollouts"], x["eval/select"]) for x in lines(run) if "eval/select" in x]
    assert held == [(x["rollouts"], x["eval/select"]) for x in lines(whole[0]) if "eval/select" in x]
    assert end["steps"] == 24 or end["bill"]["train"]["rollouts"] >= 384


def test_runs_go_side_by_side(tmp_path):
    home, most = study(tmp_path / "study", command("--pause", "0.02")), [0]

    def count():
        most[0] = max(most[0], sum(map(alive, (p for r in home.runs.glob("*") for p in pids(r)))))

    jobs = [job(f"pilot-n4-s{i}", seed=i) for i in range(4)]
    ends = drive_jobs(home, jobs, "pilot", Each(count), 2)
    assert most[0] == 2 and [e["reason"] for e in ends] == ["spent"] * 4


# what is wrong ------------------------------------------------------------------------------------------------


def script(path, text):
    path.write_text(text)
    return f"cmd: {sys.executable} {path} {{n}} {{B}} {{lr}} {{seed}} {{out}} {{M}}"


def test_a_command_that_fails_is_named_with_what_it_printed(tmp_path):
    home = study(tmp_path / "s", script(tmp_path / "t.py", "raise SystemExit('no such model: qwen')"))
    with pytest.raises(UserError, match=r"run pilot-n4-s0: 2 attempts in a row logged nothing in .*metrics\.jsonl"):
        drive_jobs(home, [job()], "pilot", SILENT, 1)
    with pytest.raises(UserError, match="no such model: qwen"):
        drive_jobs(home, [job()], "pilot", SILENT, 1)
    with pytest.raises(UserError, match=r"the trainer's command cannot be started: .*/no/python"):
        drive_jobs(study(tmp_path / "b", "cmd: /no/python {n} {B} {lr} {seed} {out}"), [job()], "pilot", SILENT, 1)


@pytest.mark.parametrize(("ends", "attempts"), [
    ("raise SystemExit('no rank 17 at 12:40')", 2), ("print('no rank')", 2),
    ("import os\nraise SystemExit('no rank ' + 'abc'[int(os.environ['ISOCOST_ATTEMPT'])])", 3), ("pass", 3),
])
def test_a_command_that_ends_twice_alike_before_its_first_line_is_not_tried_again(tmp_path, ends, attempts):
    """Numbers in its last line may differ; where nothing was printed, or another line, a third attempt is made."""
    home = study(tmp_path / "s", script(tmp_path / "t.py", ends))
    with pytest.raises(UserError, match=rf"run pilot-n4-s0: {attempts} attempts in a row logged nothing"):
        drive_jobs(home, [job()], "pilot", SILENT, 1)
    assert len(list((home.runs / "pilot-n4-s0" / "attempts").iterdir())) == attempts


def test_a_run_that_logs_nothing_is_stopped(tmp_path, monkeypatch):
    home = study(tmp_path / "s", script(tmp_path / "t.py", "import time\ntime.sleep(60)"), stall=0.002)
    monkeypatch.setattr(drive, "FRUITLESS", 1)
    with pytest.raises(UserError, match=r"it logged nothing for 0\.002 minutes and was stopped"):
        drive_jobs(home, [job()], "pilot", SILENT, 1)
    assert not any(map(alive, pids(home.runs / "pilot-n4-s0")))


def test_an_evaluation_that_is_not_logged_is_named(tmp_path):
    text = command().replace("{eval_every}", "7")
    with pytest.raises(UserError, match=r"made its 24 updates, and its log has no evaluation after 8, 16: .*every 8"):
        drive_jobs(study(tmp_path / "s", text), [job()], "pilot", SILENT, 1)


def test_a_log_that_disagrees_with_what_was_asked_for_is_refused(tmp_path):
    """The trainer says what rate it used."""
    text = command("--pause 0.0{warmup}").replace("--lr {lr}", "--lr 0.5") + " --lr {lr} --lr 0.5"
    with pytest.raises(UserError, match=r"lr is 0\.5 by the log, 0\.05 by --lr"):
        drive_jobs(study(tmp_path / "s", text), [job(M=24)], "pilot", SILENT, 1)


@pytest.mark.parametrize(("text", "what"), [
    ("cmd: t {n} {B} {lr} {seed} {out} {rank}", r"\{rank\} is unknown; expected one of \{n\}, \{B\}"),
    ("cmd: t {n} {B} {lr} {out}", r"the command has no \{seed\} \(seed\)"),
    ("cmd: t {n} {lr} {seed} {out}", r"has no \{B\} or \{nB\} \(problems per update\)"),
    ("python train.py --n {n}", r"is no trainer; expected one of cmd, trl, verl, .*: write --trainer 'cmd: python"),
    ("cmd:", "has no command"),
    ("cmd: t 'x {n}", "cannot be split into words"),
    ("cmd: t {config}", r"\{config\} and \{options\} are for trainers that isocost writes"),
])
def test_a_command_is_checked_before_anything_runs(text, what):
    with pytest.raises(UserError, match=what):
        trainer_of(text)


# a study ------------------------------------------------------------------------------------------------------


def test_the_first_run_says_what_a_study_needs(tmp_path):
    found = profile_trainer(tmp_path / "s", trainer_of(command()), lr=0.05, held_out=64, samples=4)
    data = read_json(tmp_path / "s" / "trainer.json")
    assert found.base == lines(tmp_path / "s" / "profile")[0]["eval/select"] == data["base"]
    assert data["cost"]["rollouts"] == 4 * 8 * 8 and data["select"] == 64 and not data["exact"]
    assert data["timing"]["start"] > 0 and data["timing"]["rollout"] > 0
    again = profile_trainer(tmp_path / "s", trainer_of(command()), lr=0.05, held_out=64, samples=4)
    assert again.seconds == found.seconds       # it is not run again
    with pytest.raises(UserError, match="different settings"):
        profile_trainer(tmp_path / "s", trainer_of(command("--pause", "1")), lr=0.05, held_out=64, samples=4)


def test_a_first_run_that_failed_does_not_take_the_folder(tmp_path):
    """Another command, or other sizes of an evaluation, begin anew there; a study with a result, a process that may
    still run, or a file of another kind is kept."""
    failing, there = trainer_of(script(tmp_path / "t.py", "raise SystemExit('no model')")), tmp_path / "s"
    with pytest.raises(UserError, match="no model"):
        profile_trainer(there, failing, lr=0.05, held_out=256)
    (there / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"different settings \(held_out was 256\.0 and is now 64\.0, samples was 1 and "
                                        r"is now 4, trainer\.command was '.*t\.py.* and is now '.*own_trainer"):
        profile_trainer(there, trainer_of(command().replace(sys.executable, "python")), held_out=64, samples=4)
    (there / "notes.txt").unlink()
    launched = there / "profile" / "attempts" / "7"
    launched.mkdir()
    (launched / "launch.json").write_text("{}")
    with pytest.raises(UserError, match="different settings"):
        profile_trainer(there, trainer_of(command()), held_out=64)
    (launched / "ended.json").write_text("{}")
    found = profile_trainer(there, trainer_of(command()), lr=0.05, held_out=64, samples=4)
    assert found.select == 64 and len(list((there / "profile" / "attempts").iterdir())) == 1
    with pytest.raises(UserError, match="different settings"):
        profile_trainer(there, trainer_of(command()), lr=0.05, held_out=32)


# logs ---------------------------------------------------------------------------------------------------------

COLUMNS = Columns("step", "reward", "held_out")


def rows(begin, end, evals=(), again=False):
    out = [{"step": begin, "held_out": begin / 100}] if again else []
    for step in range(begin + 1, end + 1):
        out.append({"step": step, "reward": step / 10})
        out += [{"step": step, "held_out": step / 100}] if step in evals else []
    return out


def test_attempts_are_one_curve():
    """Killed at 14 after a checkpoint at 10, which is evaluated again; then at 17, from 15 where none was planned."""
    evals = (10, 20)
    one = [{"step": 0, "held_out": 0.0}, *rows(0, 14, evals)]
    two, three = rows(10, 17, evals, again=True), rows(15, 20, evals, again=True)
    made = stitch([one, two, three], COLUMNS, {0, 10, 20})
    assert list(made.rows) == [{"step": 0, "held_out": 0.0}, *rows(0, 20, evals)]
    assert made.lost == (11, 12, 13, 14, 16, 17) and made.repeated == (10,) and made.unplanned == (15,)
    assert made.resumed == (0, 10, 15)
    appended = stitch(attempts_of([*one, *two, *three], COLUMNS), COLUMNS, {0, 10, 20})
    assert appended.rows == made.rows and appended.lost == made.lost


def test_an_attempt_that_logged_nothing_loses_nothing():
    """It died at its start, after one that had logged 14 updates and before one that continues from 10."""
    one = [{"step": 0, "held_out": 0.0}, *rows(0, 14, (10, 20))]
    for empty in ([], [{"step": 0, "note": 1.0}]):
        made = stitch([one, empty, rows(10, 20, (10, 20))], COLUMNS, {0, 10, 20})
        assert [r for r in made.rows if "note" not in r] == [{"step": 0, "held_out": 0.0}, *rows(0, 20, (10, 20))]
        assert made.lost == (11, 12, 13, 14) and made.resumed == (0, 10)
    assert stitch([one, []], COLUMNS, {0, 10, 20}).rows == tuple(one)


def test_an_evaluation_of_a_policy_that_was_lost_is_made_again():
    first = [*rows(0, 20, (20,)), {"step": 21, "reward": 1.0}]
    made = stitch([first, [{**r, "held_out": 0.9} if "held_out" in r else r for r in rows(10, 20, (20,))]], COLUMNS)
    assert [r["held_out"] for r in made.rows if "held_out" in r] == [0.9]


@pytest.mark.parametrize("way", ["appends", "truncates", "restores"])
def test_a_log_is_read_whichever_way_a_trainer_continues_it(tmp_path, way):
    """The same process, killed after update 14 and continued from 10, with each of three ways to write its log."""
    text = f"""
import json, os, sys
from pathlib import Path
out = Path(sys.argv[5]); log = out / "metrics.jsonl"; mark = out / "checkpoint"
start = int(mark.read_text()) if mark.exists() else 0
before = [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []
if {way!r} == "restores":
    before = [r for r in before if r["step"] <= start]
    log.write_text("".join(json.dumps(r) + "\\n" for r in before))
f = log.open("w" if {way!r} == "truncates" else "a")
def write(**row):
    f.write(json.dumps(row) + "\\n"); f.flush()
write(step=start, held_out=start / 100)
for step in range(start + 1, 25):
    write(step=step, reward=step / 100)
    if step == 14 and not start: os._exit(9)
    if step % 8 == 0:
        write(step=step, held_out=step / 100); mark.write_text(str(step))
"""
    home = study(tmp_path / "s", script(tmp_path / "t.py", text))
    (end,) = drive_jobs(home, [job()], "pilot", SILENT, 1)
    run = home.runs / "pilot-n4-s0"
    assert [x["reward"] for x in lines(run) if "reward" in x] == [s / 100 for s in range(1, 25)]
    assert [x["eval/select"] for x in lines(run) if "eval/select" in x] == [0, 0.08, 0.16, 0.24]
    assert end["bill"]["lost"] == {"rollouts": 6 * 16, "updates": 6}


# parts --------------------------------------------------------------------------------------------------------


def test_a_launch_that_is_submitted_twice_is_one_process(tmp_path):
    launcher, launch = Processes(), Launch("s/r/0", ("sleep", "30"), {}, tmp_path, tmp_path)
    launcher.submit(launch)
    (pid,) = (read_json(tmp_path / "ticket.json")["pid"],)
    Processes().submit(launch)
    assert read_json(tmp_path / "ticket.json")["pid"] == pid
    assert Processes().look([tmp_path]) == {tmp_path: State.RUNNING}
    Processes().stop(tmp_path, now=True)
    until = time.time() + 10
    while launcher.look([tmp_path])[tmp_path] is State.RUNNING and time.time() < until:
        time.sleep(0.01)
    assert launcher.look([tmp_path]) == {tmp_path: State.GONE}
    launcher.submit(launch)     # it ran: only another attempt runs again
    assert launcher.look([tmp_path]) == {tmp_path: State.GONE}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system refuses such a name")
def test_the_script_of_a_launch_names_folders_that_are_not_utf8(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff"))
    folder.mkdir()
    launch = Launch("s/r/0", ("touch", str(folder / "made")), {}, folder, folder)
    assert job_name(launch).startswith("s/r/0-")
    subprocess.run(["sh", write_script(launch, output=True)], check=True)
    assert (folder / "made").exists() and (folder / "output.txt").exists()


def test_a_rest_ends_when_a_process_does_and_is_not_shortened_by_one_that_ended_before(tmp_path):
    launcher = Processes()
    for name, seconds in (("slow", "60"), ("quick", "1")):
        (tmp_path / name).mkdir()
        launcher.submit(Launch(name, ("sleep", seconds), {}, tmp_path / name, tmp_path))
    try:
        began = time.monotonic()
        launcher.rest(30)
        assert time.monotonic() - began < 25
        began = time.monotonic()
        launcher.rest(0.1)
        assert time.monotonic() - began >= 0.1
    finally:
        launcher.stop(tmp_path / "slow", now=True)
        assert until(lambda: launcher.look([tmp_path / "slow"])[tmp_path / "slow"] is State.GONE, pause=0.01)


def test_an_attempts_time_is_counted_as_far_as_it_is_known(tmp_path, monkeypatch):
    """Not while it waits, not across a restart of the machine, and never backwards."""
    boot = "a"
    monkeypatch.setattr(driven, "_boot", lambda: boot)

    def note(now, **more):
        with monkeypatch.context() as m:
            m.setattr(driven, "time", SimpleNamespace(monotonic=lambda: now))
            driven.note_clock(tmp_path, **more)
        return read_json(tmp_path / driven.CLOCK)["seconds"]

    assert [note(100), note(105), note(107, runs=False), note(200), note(203)] == [0, 5, 5, 5, 8]
    boot = "b"
    assert [note(4), note(6), note(5), note(500)] == [8, 10, 10, 505]


def test_an_attempt_that_ended_unwatched_counts_until_it_was_last_noted(tmp_path):
    """Whatever the ages of its files."""
    home = study(tmp_path / "study", command())
    drive_jobs(home, [job()], "pilot", SILENT, 1)
    run = home.runs / "pilot-n4-s0"
    noted = read_json(run / "attempts" / "0" / "clock.json")["seconds"]
    for path in (run / "end.json", run / "attempts" / "0" / "ended.json"):
        path.unlink()
    for path in run.rglob("*"):
        os.utime(path, (4e9, 4e9))
    (end,) = drive_jobs(home, [job()], "pilot", SILENT, 1)
    assert len(pids(run)) == 1 and end["seconds"] == round(noted, 2) > 0
    assert any("1 attempt ended while no isocost watched" in n for n in end["notes"])


def test_the_states_of_a_trl_attempt_are_those_that_it_adds_or_changes(tmp_path):
    """Whatever their ages: the last one of before holds updates behind the checkpoint that the attempt continues."""
    def rows(end):
        return [{"step": s, "reward": s / 10} for s in range(1, end + 1)]

    def state(name, end):
        path = tmp_path / "trainer" / name / "trainer_state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"log_history": {str(rows(end)).replace(chr(39), chr(34))}}}')
        os.utime(path, (4e9, 4e9) if end == 6 else (0, 0))

    attempt = tmp_path / "attempts" / "1"
    attempt.mkdir(parents=True)
    state("checkpoint-4", 4)
    state("", 6)
    sizes = Sizes("a", n=2, B=2, C=32, lr=0.1, warmup=0, seed=1, points=(16, 32))
    kept = trl.prepared(Begin(sizes, tmp_path / "trainer", attempt)).kept
    assert trl.logged(Path(), attempt, kept, []) == []
    state("checkpoint-8", 8)
    assert trl.logged(Path(), attempt, kept, []) == rows(8)[4:]


def test_evaluations_at_equal_distances():
    assert spaced(24, 1, 8) == (3, 6, 9, 12, 15, 18, 21, 24)
    assert spaced(18, 1, 4) == (5, 10, 15, 18)      # 6 divides it, and leaves too few
    assert spaced(7, 1, 8) == (1, 2, 3, 4, 5, 6, 7)
    assert spaced(26, 1, 8)[-1] == 26 and spaced(37 * 256, 256, 8)[0] % 256 == 0
    assert EvaluationPlan(64, 4, splits=1, even=8).points(24, 1) == spaced(24, 1, 8)
    assert EvaluationPlan(64, 4, splits=1).sd == pytest.approx(0.5 / (64 * 4) ** 0.5)


def test_a_run_is_asked_to_evaluate_where_its_plan_does():
    sizes = Sizes("a", n=2, B=8, C=18 * 256, lr=0.1, warmup=0, seed=1, points=tuple(256 * k for k in (5, 10, 15, 18)))
    assert sizes.M == 288 and sizes.evals == (80, 160, 240, 288) and sizes.eval_every == 80
    assert sizes.values(Path("/o"), 2, Path("/o/m"))["evals"] == "80,160,240,288"



# ended early --------------------------------------------------------------------------------------------------


def flat():
    """A run that learns nothing, evaluated every 4 updates."""
    points = tuple(16 * u for u in range(4, 161, 4))
    return Job("pilot-n4-s0", SETTING, "cmd", 7, {"rollouts": 16 * 160}, Arm(n=4, B=4, lr=1e-9), points=points,
               purpose="pilot")


def test_a_run_that_gains_nothing_is_ended_and_its_folder_says_why(tmp_path):
    """The bill is of what was run, and a second call leaves it as it is."""
    home = study(tmp_path / "study", command("--pause", "0.02"))
    ends = drive_jobs(home, [flat()], "pilot", SILENT, 1, stops=Stops(worth=0.2))
    run, (stopped,) = home.runs / "pilot-n4-s0", ends
    assert stopped["reason"] == "stopped" and "the rest gains less than 0.2" in stopped["detail"]
    verdict = read_json(run / "verdict.json")
    assert verdict["word"] == "stop" and verdict["worthy"] <= 0.03 and verdict["why"] in stopped["detail"]
    updates = max(x["step"] for x in lines(run) if "reward" in x) + 1
    assert verdict["C"] // 16 <= updates < 160
    assert stopped["bill"]["train"] == {"rollouts": 16 * updates, "updates": updates}
    again = drive_jobs(home, [flat()], "pilot", SILENT, 1)
    assert again == ends and len(pids(run)) == 1


def test_a_training_run_that_will_miss_the_forecast_is_ended(tmp_path, monkeypatch):
    """The target is the forecast's lower bound of its n, and only `target` asks for it."""
    bearings = Bearings(targets={4: 0.95})
    monkeypatch.setattr(early.Bearings, "of", staticmethod(lambda study: bearings))
    home = study(tmp_path / "study", command("--pause", "0.02"))
    (end,) = drive_jobs(home, [replace(flat(), purpose="train")], "training", SILENT, 1, stops=Stops(target=True))
    assert end["reason"] == "stopped" and "will miss the target 0.950" in end["detail"]
    verdict = read_json(home.runs / "pilot-n4-s0" / "verdict.json")
    assert verdict["target"] == 0.95 and verdict["reach"] <= 0.03
    assert Stops(worth=0.001).judge(home)(home.runs / "pilot-n4-s0") is None


def test_a_driver_that_was_killed_after_a_verdict_ends_the_run_by_it(tmp_path, monkeypatch):
    """The verdict is written before the process is ended."""
    home = study(tmp_path / "study", command("--pause", "0.02"))
    run = home.runs / "pilot-n4-s0"

    def stop(self, run, now, why):
        raise KeyboardInterrupt

    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(drive._Drive, "stop", stop)
        drive_jobs(home, [flat()], "pilot", SILENT, 1, stops=Stops(worth=0.2))
    assert (run / "verdict.json").exists() and not (run / "end.json").exists()
    (end,) = drive_jobs(home, [flat()], "pilot", SILENT, 1)
    assert end["reason"] == "stopped" and len(pids(run)) == 1


def test_only_runs_of_a_trainer_are_ended_early(tmp_path):
    with pytest.raises(UserError, match=r"--worth ends runs of a trainer of yours; those of .* are isocost's own"):
        Stops(0.1).require(found(tmp_path / "s", SETTING, seed=0, method=None))
    Stops().require(found(tmp_path / "s", SETTING, seed=0, method=None))


# stalls -------------------------------------------------------------------------------------------------------


def test_a_run_that_stalls_is_launched_again_and_the_attempt_is_counted(tmp_path, whole):
    """The first attempt waits after update 11 without an end, the second after update 20; nobody kills them."""
    home = study(tmp_path / "study", halting(), stall=0.03)
    (end,) = drive_jobs(home, [job()], "pilot", SILENT, 1)
    run = home.runs / "pilot-n4-s0"
    assert (run / "metrics.jsonl").read_bytes() == (whole[0] / "metrics.jsonl").read_bytes()
    assert len(pids(run)) == 3 and not any(map(alive, pids(run)))
    assert end["bill"]["lost"] == {"rollouts": 16 * 7, "updates": 7}
    assert any("2 attempts ended early" in n for n in end["notes"])
