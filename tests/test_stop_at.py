"""`--stop-at`: a run ends at the step that its meter says, is the start of the run without it, and continues."""

import asyncio
import signal
from dataclasses import replace

import pytest
from click.testing import CliRunner

import kill9
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.meter import EVALUATION, LOST, Meter, on
from isocost.planner.budget import Machine
from isocost.runs import driver
from isocost.runs.arm import Arm
from isocost.runs.files import ended, read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.runs.stop_at import StopAt, go_on
from isocost.steps.events import SILENT
from isocost.steps.outside import drive
from isocost.steps.outside.drive import drive_jobs
from isocost.steps.study import StudyRecord
from isocost.steps.training.stopping import StoppedRuns, amount_of, shared
from isocost.trainers.driving.driven import DrivenRun
from isocost.types import Cost
from isocost.worlds.setting import Setting
from test_drive import command, halting, job, lines, pids, study

JOB = Job(arm=Arm(n=4, B=4, lr=1e-4), name="small", setting=Setting.of(data="sums:base=easy,count=120", held_out=0.3),
          method="grpo", seed=5, budget={"rollouts": 256}, points=(64, 128), save_every=3, export=True)
P = 83_264      # weights of the model `tiny`
PRICE = "2usd/M-prefill,4usd/M-sample,5usd/M-train"


def go(out, text=None, price=None, job=JOB):
    at = text and StopAt.parse(text, Machine.priced(price, 1, 1).worth)
    return asyncio.run(run(replace(job, stop_at=at), out))


def steps(out):
    return [x for x in read_lines(out / "metrics.jsonl") if "reward" in x]


@pytest.fixture(scope="module", autouse=True)
def checkpoints_by_steps_alone():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(driver, "WORTH_SAVING", 1e9)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    go(out)
    return out


def by_hand(whole, limit):
    """The last of the whole run's steps after which another one, at their mean FLOP, would exceed the limit."""
    spent = [2 * P * (x["prefill"] + x["decode"] + x["score"]) + 6 * P * x["train"] for x in steps(whole)]
    return next(k for k, f in enumerate(spent, 1) if f + f / k > limit), spent


@pytest.mark.parametrize("share", [0.3, 0.55, 0.77])
def test_a_run_ends_at_the_step_worked_from_its_meter_and_is_the_start_of_the_run_without(whole, tmp_path, share):
    """Its last line is the evaluation there; a run without the amount continues it to the same bytes, and what is lost
    is that evaluation."""
    limit = share * by_hand(whole, 0)[1][-1]
    k, spent = by_hand(whole, limit)
    end = go(tmp_path, f"{limit:.12g}flop")
    assert (end["reason"], end["steps"], end["stop_at"]["spent"]) == ("stopped", k, spent[k - 1])
    assert f"of --stop-at {limit:,.4g} flop spent; another update takes {spent[k - 1] / k:,.4g} flop" in end["detail"]
    assert ended(tmp_path) and (tmp_path / "final").is_dir()
    assert "stop_at" not in read_json(tmp_path / "run.json")["job"]
    *there, last = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    same = (whole / "metrics.jsonl").read_bytes()
    assert same.startswith(b"".join(there)) and b"eval/select" in last
    assert (whole / "journal.jsonl").read_bytes().startswith((tmp_path / "journal.jsonl").read_bytes())
    assert go(tmp_path, f"{limit:.12g}flop") == end         # the same amount does nothing
    more = go(tmp_path)
    assert more["reason"] == "spent" and kill9.left_by(tmp_path) == kill9.left_by(whole)
    assert more["bill"].get("lost", {}).get("train", 0) == 0


@pytest.mark.parametrize(("point", "nth"), [("step", 20), ("after-evaluation", 3)])
def test_killed_it_ends_at_the_same_step_with_the_same_bytes(whole, tmp_path, point, nth):
    """In a step, and after the evaluation of the end, whose checkpoint is from before it."""
    limit = 0.55 * by_hand(whole, 0)[1][-1]
    stopping = replace(JOB, stop_at=StopAt.parse(f"{limit}flop", {}))
    undisturbed, killed = tmp_path / "a", tmp_path / "b"
    end = asyncio.run(run(stopping, undisturbed))
    killed.mkdir()
    assert kill9.life(stopping, killed, lambda: kill9.arm(point, nth, killed)) == -signal.SIGKILL
    again = asyncio.run(run(stopping, killed))
    assert (again["reason"], again["steps"]) == ("stopped", end["steps"]) and again["bill"]["lost"]
    assert kill9.left_by(killed) == kill9.left_by(undisturbed)


def test_money_pays_for_every_token_of_every_account(tmp_path):
    """Evaluations count, and one is held back for the end. What the price names is what the end says was spent."""
    sampled = replace(JOB, setting=JOB.setting.but(data="sums:work=1,count=80", max_tokens=14, samples=2))
    end = go(tmp_path, "0.02usd", PRICE, sampled)
    bills = end["physical"].values()
    worth = sum(2e-6 * (b["prefill"] + b["score"]) + 4e-6 * b["decode"] + 5e-6 * b["train"] for b in bills)
    logical, physical = (sum(b["prefill"] for b in end[side].values()) for side in ("bill", "physical"))
    worth += 2e-6 * (logical - physical)        # no price of their own: prompts that were shared cost as any
    assert end["reason"] == "stopped" and 1 < end["steps"] < 16
    assert end["stop_at"]["spent"] == pytest.approx(worth) and worth <= 0.02


def test_what_another_step_takes_is_the_mean_so_far_with_an_evaluation_where_those_count():
    """Worked by hand: 3 steps in 60 s, 2 evaluations of 6 s, so (72 - 12) / 3 + 6 = 26 s; tokens are training's."""
    meter = Meter()
    meter.charge(Cost(decode=30, train=90, updates=3, seconds=50.0))
    for _ in range(2):
        with on(EVALUATION):
            meter.charge(Cost(decode=100, seconds=6.0))
    with on(LOST):
        meter.charge(Cost(decode=7, seconds=4.0))
    time, tokens = StopAt.parse("2m", Machine().worth), StopAt.parse("50-tokens", {})
    assert (time.spent(meter, 72.0), time.next(meter, 72.0, 3, 2)) == (72.0, 26.0)
    assert (tokens.spent(meter, 72.0), tokens.next(meter, 72.0, 3, 2)) == (30.0, 10.0)
    money = StopAt.parse("1usd", Machine.priced("7.2usd/hour", 2, 4).worth)     # four runs side by side: 0.5 a second
    assert money.spent(meter, 72.0) == pytest.approx(72 * 7.2 / 3600 / 4)
    cached = StopAt.parse("1usd", Machine.priced("2usd/M-input,1usd/M-cached,4usd/M-output", 1, 1).worth)
    assert cached.worth(Cost(prefill=1_000_000), Cost(prefill=250_000), 0.0) == pytest.approx(0.5 + 0.75)


@pytest.mark.parametrize(("options", "message"), [
    (("--stop-at", "40"), "'40' has no unit; expected a number with a unit"),
    (("--stop-at", "40usd"), "--stop-at 40usd: no price is known; give --price, such as 2.5usd/device-hour"),
    (("--stop-at", "40eur", "--price", "2usd/hour"), "no price is known in eur: the one given is in usd"),
    (("--stop-at", "1usd", "--price", "2usd/M-input,4usd/M-output"), "has none of trained tokens"),
    (("--stop-at", "15-rollouts"), "does not pay for one update, which costs at least 16 rollouts"),
    (("--stop-at", "1e3flop"), "does not pay for one update, which costs at least 1"),
    (("--stop-at", "0usd", "--price", "2usd/hour"), "expected an amount above 0"),
    (("--stop-at", "3-epochs"), "is the length of a run"),
])
def test_an_amount_that_cannot_be_used_is_named_before_anything_is_trained(tmp_path, options, message):
    done = CliRunner().invoke(main, ["train", "grpo", "--data", "sums:base=easy,count=120", "--budget", "1k-rollouts",
                                     "-n", "4", "-B", "4", "--out", str(tmp_path / "r"), *options])
    assert done.exit_code == 2 and message in done.output and not (tmp_path / "r").exists()


def test_an_amount_below_the_first_update_says_the_least(tmp_path):
    end = go(tmp_path, "1e8flop")
    assert end["steps"] == 1 and end["stop_at"]["spent"] > 1e8
    assert end["detail"] == (f"--stop-at 1e+08 flop does not pay for one update: give at least "
                             f"{end['stop_at']['spent']:,.4g} flop")


# studies ------------------------------------------------------------------------------------------------------


def test_runs_share_an_amount_by_their_rollouts_and_what_is_left(recorded, tmp_path):
    """Another number of workers, or order, changes no share; a share below one update names the amount that is enough.
    """
    home = StudyRecord.read(recorded(tmp_path / "s"))
    train = [replace(JOB, name=f"new-{C}", budget={"rollouts": C}) for C in (3000, 1000)]
    own = shared(amount_of("4k-rollouts", home), train, home)
    assert [j.stop_at.amount for j in own] == [3000, 1000]
    probe = home.planned.runs[0]
    left = 4000 - home.run(probe.name).end["bill"]["train"]["rollouts"]
    assert [j.stop_at.amount for j in shared(amount_of("4k-rollouts", home), train, home, [probe.name])] == [
        0.75 * left, 0.25 * left]
    with pytest.raises(UserError, match=r"leaves 15 rollouts for new-1000, and one update of it takes 16 rollouts: give"
                                        r" at least 64 rollouts"):
        shared(amount_of("60-rollouts", home), train, home)


def test_where_runs_were_stopped_the_sealed_law_says_the_reward_and_the_price_of_more(recorded, tmp_path):
    home = StudyRecord.read(recorded(tmp_path / "s"))
    n, at = home.forecast.n, amount_of("2k-rollouts", home)
    jobs = [replace(JOB, name=f"train-n{n}-s{k}", arm=Arm(n=n, B=4, lr=1e-4), budget={"rollouts": 4000})
            for k in range(2)]
    ends = [{"reason": "stopped", "stop_at": {}, "bill": {"train": {"rollouts": 1000}}, "physical": {}, "seconds": 1.0}
            for _ in jobs]
    found = StoppedRuns.of(at, jobs, ends, home, "isocost train")
    assert found.spent == 2000 and found.there == {n: home.law.predict(n, 1000, runs=2).prediction}
    curve, start = home.law.curve, home.law.curve(n, 1000).value[0]
    price = float(found.next[n].split()[0].replace(",", ""))        # of both runs, in rollouts
    assert curve(n, 1000 + price / 2).value[0] - start == pytest.approx(0.01, abs=5e-4)
    text = " ".join(row.text for row in found.rows())
    assert "train-n" in text and "at 1,000 of 4,000 rollouts" in text
    (home.path / "forecast.json").unlink()
    text = " ".join(row.text for row in StoppedRuns.of(at, jobs, ends, home.again(), "isocost train").rows())
    assert "not identified: no forecast is sealed" in text
    assert StoppedRuns.of(at, jobs, [{**end, "reason": "spent"} for end in ends], home, "") is None


# a trainer of the user's --------------------------------------------------------------------------------------


def test_a_trainers_run_ends_at_its_last_evaluation_that_the_amount_pays_for_and_continues(tmp_path):
    """Evaluations are after updates 8, 16 and 24, of 16 rollouts: 200 pay for 8 updates. The trainer waits after 11 of
    them to be ended; with more it is the run without an amount, and the three are lost."""
    home = study(tmp_path / "study", halting())
    own = replace(job(), stop_at=StopAt.parse("200-rollouts", {}))
    run, (end,) = home.runs / own.name, drive_jobs(home, [own], "pilot", SILENT, 1)
    assert end["reason"] == "stopped" and end["stop_at"]["amount"] == 200
    assert end["detail"] == ("128 rollouts of --stop-at 200 rollouts spent after 8 updates; going on to the evaluation "
                             "after 16 takes 128 rollouts")
    assert [x["step"] for x in lines(run) if "eval/select" in x] == [0, 8] and end["bill"]["train"]["updates"] == 11
    assert drive_jobs(home, [own], "pilot", SILENT, 1) == [end] and len(pids(run)) == 1
    (run / "trainer" / "go").touch()
    (more,) = drive_jobs(home, [replace(own, stop_at=StopAt.parse("400-rollouts", {}))], "pilot", SILENT, 1)
    other = study(tmp_path / "other", command())
    drive_jobs(other, [job()], "pilot", SILENT, 1)
    assert more["reason"] == "spent" and len(pids(run)) == 2 and more["bill"]["lost"]["updates"] == 3
    assert (run / "metrics.jsonl").read_bytes() == (other.runs / own.name / "metrics.jsonl").read_bytes()


def test_time_that_is_spent_before_the_next_evaluation_ends_a_trainers_run(tmp_path, monkeypatch):
    """The trainer waits after 11 updates, which take it an hour, and evaluates after 16."""
    monkeypatch.setattr(DrivenRun, "seconds", property(lambda run: 3600.0 * (run.seen().trained == 11)))
    monkeypatch.setattr(drive, "NOTE", 0.0)
    home = study(tmp_path / "study", halting(), stall=0.05)
    own = replace(job(), points=(256, 384), stop_at=StopAt.parse("30m", Machine().worth))
    (end,) = drive_jobs(home, [own], "pilot", SILENT, 1)
    assert (end["reason"], end["stop_at"]["spent"]) == ("stopped", 3600.0)
    assert end["detail"].endswith("of --stop-at 30 min spent before the evaluation after 16 updates")
    assert [x["step"] for x in lines(home.runs / own.name) if "eval/select" in x] == [0]


def test_only_a_larger_amount_or_none_continues_a_run(tmp_path):
    end = tmp_path / "end.json"
    for amount, there in (("300-rollouts", True), ("200-rollouts", True), ("301-rollouts", False), (None, False)):
        end.write_text('{"reason": "stopped", "stop_at": {"amount": 300, "unit": "rollouts"}}')
        go_on(tmp_path, amount and StopAt.parse(amount, {}))
        assert end.exists() is there
    end.write_text('{"reason": "stopped"}')      # by a verdict
    go_on(tmp_path, None)
    assert end.exists()
