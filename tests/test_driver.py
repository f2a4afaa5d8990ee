"""The driver of runs, with a run that is no policy: it counts, and its points and budget are in environment steps."""

import asyncio
import math
import os
import signal

import pytest
import torch

from isocost import meter, units
from isocost.errors import RewardFailed
from isocost.meter import Meter
from isocost.runs import driver
from isocost.runs.driver import Driver
from isocost.runs.files import DIVERGED, REWARD_FAILED, ended, read_json, read_lines
from isocost.runs.record import RunRecord
from isocost.types import Cost

BUDGET = {"env-steps": 100}     # 33 steps of 3


class Counting:
    """A number is hashed again and again, at three environment steps a step."""

    units = ("env-steps",)

    def __init__(self, *, fails=math.inf, error=None, broken=math.inf):
        self.meter, self.spent, self.step, self.value = Meter(), Cost(), 0, 1
        self.fails, self.error, self.broken = fails, error, broken

    def about(self):
        return {"name": "counting", "seed": 0, "purpose": "run", "budget": BUDGET}

    async def steps(self, run):
        while units.spent("env-steps", self.meter.of(), None, run.clock()) + 3 <= BUDGET["env-steps"]:
            self.meter.charge(Cost(env_steps=3))
            self.value, self.step, self.spent = self.value * 69_069 % 65_537, self.step + 1, self.meter.of()
            if self.step == self.broken:
                run.end.reason, run.end.why = DIVERGED, "the number is not finite"
            yield {"step": self.step - 1, "env_steps": self.spent.env_steps, "value": self.value}
        run.end.reason, run.end.why = "spent", "no further step fits"

    def done(self, run):
        return self.step

    async def evaluate(self):
        with meter.on(meter.EVALUATION):
            self.meter.charge(Cost(env_steps=1))
        if self.step >= self.fails:
            raise self.error
        return {"eval/select": self.value / 65_537}

    def state(self):
        return {"value": torch.tensor(self.value)}, {"count": self.step}

    def restore(self, tensors, state, lines):
        self.value, self.step, self.spent = int(tensors["value"]), state["count"], self.meter.of()
        assert sum("value" in x for x in lines) == self.step

    def finish(self, run):
        return {"notes": [f"counted to {self.step}"]}


@pytest.fixture(autouse=True, scope="module")
def checkpoints_by_steps_alone():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(driver, "WORTH_SAVING", math.inf)
        yield


def go(out, *, on_step=lambda line: None, points=(10, 11, 50), save_every=4, **workload):
    with RunRecord.opened(out) as record:
        run = Driver(Counting(**workload), record, points=points, save_every=save_every, on_step=on_step)
        return asyncio.run(run.go())


def left(out):
    """What must be equal byte for byte, and the bill of all but lost work."""
    (last,) = out.glob("checkpoints/step-000033")
    end = read_json(out / "end.json")
    bill = {account: cost["env_steps"] for account, cost in end["bill"].items() if account != "lost"}
    streams = [(out / name).read_bytes() for name in ("metrics.jsonl", "journal.jsonl", "samples.jsonl")]
    return *streams, (last / "learner.safetensors").read_bytes(), bill, end["notes"], end["detail"], end["steps"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    go(out)
    return out


def test_points_and_the_budget_are_in_the_runs_own_unit(whole):
    """Both points that the fourth step passes are one evaluation; 99 of 100 are spent."""
    end, lines = read_json(whole / "end.json"), read_lines(whole / "metrics.jsonl")
    assert [(x["step"], x["env_steps"]) for x in lines if "eval/select" in x] == [(0, 0), (4, 12), (17, 51), (33, 99)]
    assert [x["step"] for x in lines if "value" in x] == list(range(33))
    assert (end["reason"], end["detail"], end["notes"]) == ("spent", "no further step fits", ["counted to 33"])
    assert {k: v["env_steps"] for k, v in end["bill"].items()} == {"train": 99, "evaluation": 4}
    clock = read_lines(whole / "timing.jsonl")
    assert [(x["step"], x["env-steps"]) for x in clock] == [(k, 3 * k) for k in range(34)]
    told = read_json(whole / "run.json")
    assert told["name"] == "counting" and told["code"]["version"] and ended(whole) and "rollouts" not in clock[0]
    assert sorted(p.name for p in (whole / "checkpoints").iterdir()) == ["step-000032", "step-000033"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_after_its_step_and_it_resumes_to_the_same_bytes(whole, tmp_path, signum):
    def stop(line):
        if line["step"] == 20:
            os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    end = go(tmp_path, on_step=stop)
    assert (end["reason"], end["signal"], end["steps"]) == ("interrupted", signum, 21) and not ended(tmp_path)
    assert "goes on where it was" in end["detail"]
    assert go(tmp_path)["bill"].keys() == {"train", "evaluation"} and left(tmp_path) == left(whole)
    assert signal.getsignal(signum) is before


@pytest.mark.parametrize("dies", [0, 2, 17, 22])
def test_killed_twice_it_loses_what_is_after_its_checkpoint_and_resumes_to_the_same_bytes(whole, tmp_path, dies):
    """At the start, before its second checkpoint, at an evaluation, and at a step."""
    def die(line):
        if line["step"] == dies:
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path, on_step=die)
    lost = go(tmp_path)["bill"]["lost"]["env_steps"]
    assert left(tmp_path) == left(whole)
    assert lost == {0: 2, 2: 18, 17: 8, 22: 18}[dies]


def test_an_error_of_an_evaluation_leaves_a_run_that_the_same_call_continues(whole, tmp_path):
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, fails=17, error=ZeroDivisionError())
    assert not (tmp_path / "end.json").exists()
    assert go(tmp_path)["bill"]["lost"]["env_steps"] == 4 and left(tmp_path) == left(whole)


def test_a_reward_that_fails_ends_it_until_it_is_corrected(whole, tmp_path):
    """Its checkpoint is of the step before: what was paid for is in no `lost`."""
    end = go(tmp_path, fails=17, error=RewardFailed("the reward raised"))
    assert (end["reason"], end["steps"]) == (REWARD_FAILED, 17) and not ended(tmp_path)
    assert end["detail"].startswith("the reward raised. All that was paid for is kept")
    end = go(tmp_path)
    assert end["reason"] == "spent" and "lost" not in end["bill"] and end["bill"]["evaluation"]["env_steps"] == 5
    assert (tmp_path / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(("workload", "detail", "evaluations"), [
    ({"broken": 17}, "update 17: the number is not finite", 2),         # a point is reached, and not evaluated
    ({"fails": 17, "error": FloatingPointError("nan")}, "update 17: nan", 2),
])
def test_a_run_that_diverges_ends_with_its_step_and_is_not_evaluated_again(tmp_path, workload, detail, evaluations):
    end = go(tmp_path, **workload)
    assert (end["reason"], end["detail"], end["steps"]) == (DIVERGED, detail, 17) and ended(tmp_path)
    lines = read_lines(tmp_path / "metrics.jsonl")
    assert sum("eval/select" in x for x in lines) == evaluations and sum("value" in x for x in lines) == 17
