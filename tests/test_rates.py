"""Where a run's time goes: measured where the work is done, written down once, and shown as it is written."""

import asyncio
import io
import json
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from isocost.cli.commands import main
from isocost.cli.live import Counts, Watch
from isocost.disk.jsonfile import write_json
from isocost.meter import EVALUATION, LEARN, SAMPLE, SCORE, Meter, on, tab, work_of
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.runs.speed import WORK, rates, together, told
from isocost.screen.words import duration
from isocost.types import Cost
from isocost.worlds.setting import Setting, open_setting
from waiting import until

JOB = Job(arm=Arm(n=4, B=4, lr=1e-4), name="small", setting=Setting.of(data="sums:base=easy,count=120", held_out=0.3),
          method="grpo", seed=5, budget={"rollouts": 128})
LINE = {
    "step": 8, "rollouts": 128, "tokens": 400, "seconds": 4.0, "sample": 1.5, "score": 0.5, "learn": 1.0,
    "evaluate": 0.4, "rss_mb": 300,
}
SLEEP = 0.02


# the meter ----------------------------------------------------------------------------------------------------


def test_a_tab_counts_what_is_charged_to_any_account_and_so_do_the_tabs_around_it():
    meter = Meter()
    with tab() as outer, on(EVALUATION), tab() as inner:
        meter.charge(Cost(verify=2))
        with on("probe"):
            meter.charge(Cost(verify=3))
    meter.charge(Cost(verify=5))
    assert (inner.cost.verify, outer.cost.verify) == (5, 5)
    assert [meter.of(name).verify for name in (EVALUATION, "probe", "train")] == [2, 3, 5]


@pytest.mark.parametrize(
    ("cost", "work"),
    [
        (Cost(prefill=20, decode=12), SAMPLE),
        (Cost(prefill=20), SAMPLE),
        (Cost(verify=4), SCORE),
        (Cost(), SCORE),  # a verifier in processes of its own: calls are charged when asked, seconds when they are back
        (Cost(train=32, updates=1), LEARN),
        (Cost(score=32), LEARN),
    ],
)
def test_a_charge_tells_what_its_seconds_were_spent_on(cost, work):
    meter = Meter()
    meter.charge(cost + Cost(seconds=2.0))
    assert work_of(cost) == work and meter.busy == {"train": {work: 2.0}}


def test_seconds_by_work_add_up_to_the_meters_and_survive_a_checkpoint():
    meter = Meter()
    for k, cost in enumerate([Cost(decode=3), Cost(verify=1), Cost(train=5), Cost(score=5)] * 3):
        meter.charge(cost + Cost(seconds=0.25 * (k + 1)))
    with on(EVALUATION):
        meter.charge(Cost(decode=3, seconds=7.0))
    again = Meter()
    again.restore(json.loads(json.dumps(meter.state())))
    assert again.busy == meter.busy
    for account in ("train", EVALUATION):
        assert sum(again.busy[account].values()) == pytest.approx(again.of(account).seconds)
    assert again.seconds(SAMPLE, EVALUATION) == 7.0 and again.seconds(SAMPLE, "nobody") == 0.0


def test_a_checkpoint_of_before_seconds_were_split_still_restores():
    meter = Meter()
    meter.charge(Cost(decode=3, seconds=1.0))
    old = {k: v for k, v in meter.state().items() if k in ("logical", "physical")}
    again = Meter()
    again.restore(old)
    assert again.of() == meter.of() and again.seconds(SAMPLE) == 0.0
    again.charge(Cost(decode=1, seconds=0.5))
    assert again.seconds(SAMPLE) == 0.5


# rates --------------------------------------------------------------------------------------------------------


def test_rates_by_hand():
    r = rates(LINE)
    assert (r.tokens_per_second, r.rollouts_per_second) == (100.0, 32.0)
    assert r.shares == pytest.approx({"sample": 0.375, "score": 0.125, "learn": 0.25, "evaluate": 0.1, "rest": 0.15})


def test_where_work_overlaps_shares_are_of_its_sum_and_never_more_than_one():
    """Four verifier processes are busy for longer than the clock says."""
    r = rates({**LINE, "score": 8.0})
    assert sum(r.shares.values()) == pytest.approx(1.0) and r.shares["rest"] == pytest.approx(0.0)
    assert r.shares["score"] == pytest.approx(8.0 / 10.9)
    assert r.tokens_per_second == 100.0, "speed is by the clock"


@pytest.mark.parametrize("line", [{}, {**LINE, "seconds": 0.0}, {"step": 1, "seconds": 3.0, "rollouts": 8}])
def test_what_does_not_tell_has_no_rates(line):
    assert rates(line) is None


def test_runs_side_by_side_add_their_speeds_and_average_their_shares():
    other = {**LINE, "seconds": 12.0, "sample": 12.0, "score": 0.0, "learn": 0.0, "evaluate": 0.0}
    r = together([LINE, other, {}])
    assert r.tokens_per_second == pytest.approx(100 + 400 / 12)
    assert r.shares["sample"] == pytest.approx((1.5 + 12) / 16) and sum(r.shares.values()) == pytest.approx(1.0)
    assert together([{}]) is None


# a run --------------------------------------------------------------------------------------------------------


class SlowLearner:
    """A learner that sleeps at every update, and says so on the meter."""

    def __init__(self, inner, meter):
        self.inner, self.meter = inner, meter

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def update(self, batch, loss, *, lr):
        seen = self.inner.update(batch, loss, lr=lr)
        time.sleep(4 * SLEEP)       # what is tested: seconds in which nothing is computed are the learner's too
        self.meter.charge(Cost(train=1, seconds=4 * SLEEP))
        return seen


def slow_grade(inner, meter):
    """A quarter of `SLEEP` for each rollout, however many are graded in one call."""
    async def grade(rollouts):
        scores, slow = await inner(rollouts), len(rollouts) * SLEEP / JOB.arm["n"]
        time.sleep(slow)
        meter.charge(Cost(seconds=slow))
        return scores

    return grade


@pytest.mark.parametrize("slow", ["score", "learn"])
def test_what_is_slow_shows_as_what_it_is(tmp_path, slow):
    """8 steps of 4 groups: 32 slow verdicts, or 8 updates four times as slow, are 0.64 s of a run of a few tenths."""
    opened = open_setting(JOB.setting)
    world, slept = opened.world, 32 * SLEEP
    if slow == "score":
        world.grade = slow_grade(world.grade, world.meter)
    else:
        world.learner = SlowLearner(world.learner, world.meter)
    end = asyncio.run(run(JOB, tmp_path, opened=opened))
    timing, other = end["timing"], "learn" if slow == "score" else "score"
    assert slept <= timing[slow] <= timing["seconds"]
    assert timing[other] <= timing["seconds"] - slept, "none of it is counted as the other"
    assert end["shares"][slow] > 0.8 * slept / timing["seconds"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(folder, what was printed, --json) of `isocost train`."""
    out = tmp_path_factory.mktemp("trained") / "run"
    asked = ["train", "grpo", "--data", "sums:base=easy,count=120", "--held-out", "0.3", "--budget", "256-rollouts"]
    done = CliRunner().invoke(main, [*asked, "--rollouts", "4", "--groups", "4", "--out", str(out)])
    assert done.exit_code == 0, (done.output, done.exception)
    again = CliRunner().invoke(main, [*asked, "--rollouts", "4", "--groups", "4", "--out", str(out), "--json"])
    assert again.exit_code == 0, (again.output, again.exception)
    return out, done.output, json.loads(again.stdout)


def test_the_record_adds_up(trained):
    out, _, _ = trained
    lines, end = read_lines(out / "timing.jsonl"), read_json(out / "end.json")
    assert [x["step"] for x in lines] == list(range(17))
    for before, after in zip(lines, [*lines[1:], end["timing"]], strict=True):
        assert all(after[k] >= before[k] for k in ("seconds", "rollouts", "tokens", *WORK))
    last, bill = end["timing"], end["bill"]
    assert last["sample"] + last["score"] + last["learn"] == pytest.approx(bill["train"]["seconds"], abs=1e-3)
    assert last["evaluate"] == pytest.approx(bill["evaluation"]["seconds"], abs=1e-3)
    assert (last["tokens"], last["rollouts"]) == (bill["train"]["decode"], bill["train"]["rollouts"])
    assert sum(last[k] for k in WORK) <= last["seconds"], "one process, one thing at a time"
    assert sum(end["shares"].values()) == pytest.approx(1.0, abs=1e-3)
    assert end["tokens_per_second"] == pytest.approx(last["tokens"] / last["seconds"], abs=1e-3)
    assert end["rollouts_per_second"] == pytest.approx(256 / last["seconds"], abs=1e-3)


def test_what_train_shows_is_what_its_record_says(trained):
    out, text, said = trained
    end, steps = read_json(out / "end.json"), {x["step"]: x for x in read_lines(out / "timing.jsonl")}
    assert said == end, "--json carries the rates"
    flat = " ".join(text.split())
    assert f"speed: {told(rates(end['timing']))}" in flat
    evaluated = [x["step"] for x in read_lines(out / "metrics.jsonl") if "eval/select" in x and x["step"]]
    assert evaluated and all(told(rates(steps[k])) in flat for k in evaluated)


def watched(folder, width, terminal=True, jobs=(JOB, JOB), written=lambda: None):
    """What the live table shows once `written` has written, after the watch began."""
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    watch = Watch("pilot", list(jobs), folder, console)
    written()
    console.print(watch._table(watch._look()))
    return console.file.getvalue()


def test_a_count_says_what_is_done_and_when_the_rest_is(monkeypatch):
    """10 of 50 were there; 8 more took 20 s of the 24 s so far, so the 32 that are left take 80."""
    clock = [100.0]
    monkeypatch.setattr("isocost.cli.live.time.perf_counter", lambda: clock[0])
    counts = Counts("profile", Console(file=io.StringIO()))
    counts("opening the model")
    clock[0] = 104.0
    assert counts.line() == "profile: opening the model after 4 s"
    counts("problems", 10, 50)
    assert counts.line() == "profile: 10 of 50 problems after 4 s"
    clock[0] = 124.0
    counts("problems", 18, 50)
    assert counts.line() == "profile: 18 of 50 problems after 24 s, about 80 s left"


def test_a_count_is_printed_while_the_step_works_on_one_thing(monkeypatch):
    """Where there is no terminal; on one, the line is redrawn and goes away."""
    monkeypatch.setattr("isocost.cli.live.EVERY", 0.001)
    file = io.StringIO()
    with Counts("profile", Console(file=file)) as counts:
        counts("problems", 1, 4)
        until(lambda: "profile: 1 of 4 problems after" in file.getvalue())
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=80, color_system=None, highlight=False)
    with Counts("profile", terminal) as counts:
        counts("problems", 2, 4)
        counts.live.refresh()
    assert "profile: 2 of 4 problems" in shown.getvalue() and not counts.talker.is_alive()


def record(folder, *clock):
    """A run under way, as far as its timing.jsonl tells."""
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 3, "rollouts": 64}) + "\n")
    (folder / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in clock) + "{")


def test_the_live_table_shows_the_records_numbers(tmp_path):
    """The speed of all runs together, in a line."""
    text = watched(tmp_path, 80, written=lambda: record(tmp_path / JOB.name, {**LINE, "seconds": 3.9}, LINE))
    assert "200 tokens/s, 64 rollouts/s; sampling 38 %, scoring 12 %, learning 25 %" in " ".join(text.split())


def test_runs_that_wait_for_a_worker_are_in_no_speed(tmp_path):
    """Of two runs that an earlier command left, one is gone on with: its speed alone is shown, and its row."""
    other = replace(JOB, name="other")
    for job in (JOB, other):
        record(tmp_path / job.name, LINE)
    text = watched(tmp_path, 160, jobs=(JOB, other), written=lambda: record(tmp_path / JOB.name, LINE, {
        **LINE, "seconds": 2 * LINE["seconds"], "rollouts": 2 * LINE["rollouts"], "tokens": 2 * LINE["tokens"]}))
    assert "100 tokens/s, 32 rollouts/s" in " ".join(text.split())
    assert [x.split()[0] for x in text.splitlines() if x.startswith(("small", "other"))] == ["small"]


@pytest.mark.parametrize(("reason", "going"), [("spent", False), ("interrupted", True)])
def test_a_run_that_was_interrupted_is_not_shown_as_over(tmp_path, reason, going):
    home = tmp_path / JOB.name
    home.mkdir()
    (home / "metrics.jsonl").write_text(json.dumps({"step": 3, "rollouts": 64}) + "\n")
    write_json(home / "end.json", {"reason": reason})
    assert (JOB.name in watched(tmp_path, 100).split()) == going


def test_durations_are_in_everyday_units():
    told = {89: "89 s", 5000: "83 min", 7200: "2.0 h", 359_000: "99.7 h", 864_000: "10 days", 6.8e19: "2.15e+12 years"}
    assert {seconds: duration(seconds) for seconds in told} == told
