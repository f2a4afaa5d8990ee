"""A run survives what happens to runs: kills, signals, a full disk, a second call; and its seed determines it."""

import asyncio
import errno
import gc
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import kill9
from isocost import methods
from isocost.disk.jsonfile import write_json
from isocost.errors import Resumable, UserError
from isocost.laws.curves import curves
from isocost.recipe import describe
from isocost.runs import driver, policy
from isocost.runs import run as runs
from isocost.runs.arm import Arm
from isocost.runs.files import ended, read_json, read_lines
from isocost.runs.job import Job, reopen
from isocost.runs.launch import local
from isocost.runs.record import RunRecord
from isocost.runs.run import run
from isocost.screen.words import word
from isocost.steps.look.evaluate import evaluate
from isocost.types import Cost
from isocost.worlds.setting import Setting, open_problems, open_setting
from programs import Shell

HERE = Path(__file__).parent
SMALL = Setting.of(data="sums:base=easy,count=120", held_out=0.3)
JOB = Job(arm=Arm(n=4, B=4, lr=1e-4), name="small", setting=SMALL, method="grpo", seed=5, budget={"rollouts": 256},
          points=(64, 128), export=True)
PATHS = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": PATHS}


def go(job, out):
    return asyncio.run(run(job, out))


def test_an_error_of_a_method_file_names_its_line_and_what_is_kept(tmp_path):
    path, out = tmp_path / "late.py", tmp_path / "run"
    path.write_text(
        '"""Late: it raises at its fourth step."""\n'
        "from isocost.methods import Card, grpo\n"
        'CARD = Card("Late", "none", 2026, "grpo", "It raises.")\n'
        "def advantage(batch, ledger):\n"
        "    return batch.missing if ledger.step >= 3 else batch.mask * 1.0\n"
        "def recipe(**changes):\n"
        '    return grpo.recipe(name="late", advantage=advantage).but(**changes)\n',
        encoding="utf-8",
    )
    with pytest.raises(UserError, match=r"line 5: AttributeError: .*missing.*is kept. Correct the file and train into"):
        go(replace(JOB, method=str(path)), out)
    assert read_lines(out / "metrics.jsonl")[-1]["step"] == 2  # steps 0 to 2 are recorded


LATE = '''"""Late: a value that is not finite at its fourth step."""
from dataclasses import replace
import torch
from isocost.methods import Card, grpo
from isocost.types import Score
CARD = Card("Late", "none", 2026, "grpo", "It breaks.")
OLD, NAN = grpo.recipe(), float("nan")
async def reward(group, world):
    group = await OLD.reward(group, world)
    late = group.place.wave >= 3 and not group.place.purpose
    return group.of(r.scored(Score(NAN)) for r in group.rollouts) if late else group
def advantage(batch, ledger):
    return OLD.advantage(batch, ledger) * (NAN if ledger.step >= 3 else 1)
def weight(batch):
    return OLD.weight(batch) / (batch.groups[0].place.wave < 3)
def noted(batch, world):
    return batch.but(extra={"mine": batch.logp * (NAN if batch.groups[0].place.wave >= 3 else 1)})
def times(now, batch):
    return now.logp * batch.extra["mine"], {}
def log(now, batch):
    return OLD.loss(now, batch)[0] * (NAN if batch.groups[0].place.wave >= 3 else 1), {}
def root(now, batch):
    flat = torch.sqrt(now.logp * 0) * 0 if batch.groups[0].place.wave >= 3 else 0
    return OLD.loss(now, batch)[0] + flat, {}
def pace(ledger, *, lr=1e-3):
    return replace(OLD.pace(ledger), lr=lr * (NAN if ledger.step >= 3 else 1))
def recipe(**changes):
    return grpo.recipe(name="late", SEAMS).but(**changes)
'''


@pytest.mark.parametrize(("seams", "named"), [
    ("reward=reward", "`reward` ({file}, line 8) returned values that are not finite"),
    ("advantage=advantage", "`advantage` ({file}, line 12) returned values that are not finite, the first in a group"),
    ("weight=weight", "`weight` ({file}, line 14) returned values that are not finite, the first in a group"),
    ("enrich=(noted,), loss=times", "`enrich` ({file}, line 16) returned values that are not finite, as 'mine'"),
    ("loss=log", "`loss` ({file}, line 20) returned values that are not finite"),
    ("loss=root", "the derivative of `loss` ({file}, line 22) is not finite"),
    ("pace=pace", "`pace` ({file}, line 25) returned a learning rate of nan"),
])
def test_a_run_that_ends_with_nan_names_the_seam_that_made_it(tmp_path, seams, named):
    path = tmp_path / "late.py"
    path.write_text(LATE.replace("SEAMS", seams), encoding="utf-8")
    end = go(replace(JOB, method=str(path)), tmp_path / "run")
    assert end["reason"] == "diverged" and end["steps"] == 4
    assert end["detail"].startswith(f"update 4: {named.format(file=path)}")


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_weights_that_cannot_be_sampled_from_end_a_run_as_diverged(tmp_path, kernels):
    end = go(replace(JOB, arm=JOB.arm.but(lr=1e38), setting=JOB.setting.but(kernels=kernels)), tmp_path / "run")
    assert sum(end["fates"].values()) == end["bill"]["train"]["rollouts"]      # those of the broken wave, too
    assert end["reason"] == "diverged" and end["steps"] == 1
    assert end["detail"] == "update 1: the policy's logits are not finite at version 1; its learning rate was 1e+38"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole")
    go(JOB, out)
    return out


def test_killed_at_every_named_point_and_at_random_instants_it_ends_the_same(tmp_path, programs_at_once):
    """Traps 31 and 30: real SIGKILLs, each of which left a witness of where it landed."""
    done = subprocess.run(
        [programs_at_once / "python", HERE / "kill9.py", "--instants", "3", "--seed", "11", "--out",
         tmp_path / "said.json"],
        env=ENVIRONMENT, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = read_json(tmp_path / "said.json")
    assert said["killed"] == len(kill9.POINTS) + 3 and said["configurations"] == 3
    assert [r for r in said["results"] if not r["equal"]] == []
    landed = " ".join(r["where"] for r in said["results"])
    assert all(x in landed for x in ("half a line", "half of", "before renaming", "after renaming", "evaluation at"))
    assert sum(r["lost_rollouts"] for r in said["results"]) > 0, "no kill landed where work could be lost"


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(whole, tmp_path):
    go(JOB, tmp_path / "again")
    go(replace(JOB, seed=6), tmp_path / "other")
    assert kill9.left_by(tmp_path / "again") == kill9.left_by(whole)
    assert kill9.left_by(tmp_path / "other")["metrics.jsonl"] != kill9.left_by(whole)["metrics.jsonl"]


COOLER = '''"""GRPO that samples more and more greedily, and hardly learns."""
from isocost.methods import Card, grpo
from isocost.seams import Pace
from isocost.types import Sampling

CARD = Card("Cooler", "", 2025, "grpo", "Nothing.")


def pace(ledger, *, lr=1e-6, max_tokens=8):
    return Pace(1e-12, max_tokens, Sampling(max(0.2, 1 - 0.1 * ledger.step)))


def recipe(**changes):
    return grpo.recipe(name="cooler", pace=pace).but(**changes)
'''


def test_a_policy_that_stays_as_it_is_is_evaluated_as_it_was_whatever_its_pace(tmp_path):
    """A pace may take what it moves and leave the rest; it must take the rate, which is planned."""
    (tmp_path / "cooler.py").write_text(COOLER)
    go(replace(JOB, method=str(tmp_path / "cooler.py")), tmp_path / "r")
    seen = [x["eval/audit"] for x in read_lines(tmp_path / "r" / "metrics.jsonl") if "eval/audit" in x]
    assert len(seen) >= 3 and max(seen) - min(seen) < 1e-4
    (tmp_path / "cooler.py").write_text(COOLER.replace("lr=1e-6, ", ""))
    with pytest.raises(UserError, match="has no keyword `lr`"):
        go(replace(JOB, method=str(tmp_path / "cooler.py")), tmp_path / "s")


def test_fates_sum_to_the_meter_and_the_budget_holds(whole):
    end = read_json(whole / "end.json")
    assert sum(end["fates"].values()) == sum(b["rollouts"] for b in end["bill"].values())
    assert end["bill"]["train"]["rollouts"] <= JOB.budget["rollouts"] and end["reason"] == "spent"


def test_a_checkpoint_follows_an_evaluation_only_where_a_kill_would_lose_enough_work(whole, tmp_path, monkeypatch):
    """Which checkpoints there are depends on the clock; what a run leaves does not."""
    saved: list[int] = []
    save = RunRecord.save
    monkeypatch.setattr(RunRecord, "save", lambda self, step, *more: saved.append(step) or save(self, step, *more))
    seen = {}
    for seconds in (0.0, math.inf):
        monkeypatch.setattr(driver, "WORTH_SAVING", seconds)
        saved.clear()
        go(replace(JOB, save_every=0), tmp_path / str(seconds))
        seen[seconds] = list(saved)
        assert kill9.left_by(tmp_path / str(seconds)) == kill9.left_by(whole)
    evaluated = [x["step"] for x in read_lines(whole / "metrics.jsonl") if "eval/audit" in x]
    end = evaluated[-1]
    assert list(dict.fromkeys(seen[0.0])) == evaluated and seen[math.inf] == [0, end] and len(evaluated) > 3


def test_evaluations_are_at_the_points_asked_for_and_at_both_ends(whole):
    at = [x["rollouts"] for x in read_lines(whole / "metrics.jsonl") if "eval/audit" in x]
    assert at == [0, 64, 128, 256]


def test_evaluations_hold_several_attempts_and_what_became_of_the_bases_problems(whole):
    lines = [x for x in read_lines(whole / "metrics.jsonl") if "eval/audit" in x]
    for x in lines:
        for side in ("select", "audit"):
            at = f"eval/{side}"
            assert 0 <= x[f"{at}/worst@4"] <= x[at] <= x[f"{at}/best@4"] <= 1
        assert sum(x["eval/histogram"]) == sum(lines[0]["eval/histogram"]) and "eval/samples" not in x
    base = lines[0]
    assert (base["eval/forgotten"], base["eval/learned"]) == (0, 0)
    held = sum(n * v for n, v in zip(base["eval/histogram"], base["eval/by_base"], strict=True) if v is not None)
    sides = open_problems(SMALL)[1]
    total = len(sides.select) * base["eval/select"] + len(sides.audit) * base["eval/audit"]
    assert held == pytest.approx(total), "the bins' means weighted by their counts are the mean over problems"


def test_a_run_begun_before_the_base_was_kept_goes_on_without(tmp_path):
    """A checkpoint without `base`, as an older version wrote it."""
    def stop(line):
        if line.get("step") == 4 and "reward" in line:
            os.kill(os.getpid(), signal.SIGINT)

    assert asyncio.run(run(JOB, tmp_path, on_step=stop))["reason"] == "interrupted"
    for path in (tmp_path / "checkpoints").glob("*/state.json"):
        state = read_json(path)
        assert len(state.pop("base")) > 10
        path.write_text(json.dumps(state))
    assert go(JOB, tmp_path)["reason"] == "spent"
    lines = [x for x in read_lines(tmp_path / "metrics.jsonl") if "eval/audit" in x]
    assert "eval/forgotten" in lines[0] and "eval/forgotten" not in lines[-1]
    assert [c.C[-1] for c in curves([tmp_path], "worst@4")] == [256]


def test_too_few_samples_say_so(tmp_path):
    """Worked sums are sampled: two samples each cannot tell of four attempts, four can."""
    setting = SMALL.but(data="sums:work=1,count=60", max_tokens=14)
    for samples in (2, 4):
        job = replace(JOB, setting=setting.but(samples=samples), budget={"rollouts": 16}, points=(), export=False)
        end = go(job, tmp_path / str(samples))
        last = read_lines(tmp_path / str(samples) / "metrics.jsonl")[-1]
        assert last["eval/samples"] == samples and sum(last["eval/histogram"]) > 10
        assert ("eval/audit/best@4" in last) is (samples == 4)
        assert any("need 4 samples a problem, evaluations drew 2" in x for x in end["notes"]) is (samples == 2)
    with pytest.raises(UserError, match="have pass@1, but not best@4; best@4 needs exact"):
        curves([tmp_path / "2"], "best@4")


def test_the_length_of_what_an_evaluation_sampled_is_written_down(tmp_path):
    """Of characters that are tokens, and an end where it was not cut; an exact evaluation samples nothing."""
    setting = SMALL.but(data="sums:work=1,count=60", held_out=4, max_tokens=8)
    go(replace(JOB, setting=setting, budget={"rollouts": 16}, points=(), export=False), tmp_path / "sampled")
    last = [x for x in read_lines(tmp_path / "sampled" / "metrics.jsonl") if "eval/audit" in x][-1]
    said = [a for g in read_lines(tmp_path / "sampled" / "samples.jsonl")[-4:] for a in g["attempts"]]
    assert len(said) == 4 * setting.evaluation.samples and {a["stop"] for a in said} == {"length", "done"}
    assert last["eval/length"] == pytest.approx(np.mean([len(a["text"]) + (a["stop"] == "done") for a in said]))
    go(replace(JOB, budget={"rollouts": 16}, points=(), export=False), tmp_path / "exact")
    assert not any("eval/length" in x for x in read_lines(tmp_path / "exact" / "metrics.jsonl"))


def test_what_was_asked_is_in_the_record_with_every_default_bound(whole):
    """A job reads back from its record, and sampling settings are in its recipe."""
    there = read_json(whole / "run.json")
    assert Job.of(there["job"]) == JOB
    assert {"lr", "warmup", "max_tokens", "temperature", "top_p", "top_k"} <= set(there["recipe"]["pace"])
    assert there["recipe"]["loss"]["low"] == 0.2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"budget": {"rollouts": 512}}, r"budget differs \(budget 256 rollouts there, 512 rollouts here\)"),
        ({"seed": 7}, r"seed differs \(seed [0-9] there, 7 here\)"),
        ({"arm": JOB.arm.but(lr=2e-4)}, "pace"),
        ({"arm": JOB.arm.but(n=8)}, r"rollouts differs? \(recipe's rollouts 4 there, 8 here"),
        ({"method": "dapo"}, "loss"),
        ({"setting": SMALL.but(verifier="final")}, "verifier"),
        ({"setting": SMALL.but(data="sums:base=easy,count=121")}, "data"),
    ],
)
def test_a_folder_that_holds_another_run_is_refused_though_that_one_has_ended(whole, change, named):
    with pytest.raises(UserError, match=f"another run: .*{named}"):
        go(replace(JOB, **change), whole)


def test_what_was_opened_for_a_run_is_closed_though_the_folder_holds_another(whole, tmp_path):
    shutil.copy(whole / "run.json", tmp_path)
    opened = open_setting(SMALL.but(data="sums:base=easy,count=121"))
    closed = []
    opened.world.close = lambda: closed.append(True)
    with pytest.raises(UserError, match="its problems have changed since"):
        asyncio.run(run(JOB, tmp_path, opened=opened))
    assert closed


def test_a_run_leaves_the_garbage_collector_as_it_was(tmp_path):
    """In a notebook, what is garbage after a run would otherwise never be collected."""
    gc.unfreeze()       # what tests/conftest.py froze
    often = gc.get_threshold()
    go(replace(JOB, budget={"rollouts": 16}, points=(), export=False), tmp_path)
    left = gc.get_freeze_count()
    gc.freeze()
    assert left == 0 and gc.get_threshold() == often


def test_runs_can_be_started_from_any_thread_where_signals_keep_their_effect():
    def inside():
        with local.stops() as stopped:
            return stopped, signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(inside).result() == ([], signal.getsignal(signal.SIGTERM))
    with local.stops() as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped == [signal.SIGTERM]


def test_a_worker_that_the_system_kills_is_one_line_and_its_run_can_be_continued(tmp_path):
    def killed():
        for worker in multiprocessing.active_children():
            worker.kill()

    job = replace(JOB, budget={"rollouts": 8192})       # longer than until the first call of `watch`
    with pytest.raises(Resumable, match="a worker process was killed"):
        local.run_all([job], tmp_path, workers=1, watch=killed)
    assert [end["reason"] for end in local.run_all([job], tmp_path, workers=1)] == ["spent"]


def test_asked_again_it_says_how_it_ended_and_touches_nothing(whole):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file() and p.name != "lock"}
    assert go(JOB, whole) == read_json(whole / "end.json")
    assert before == {p: p.stat().st_mtime_ns for p in before}


@pytest.mark.parametrize(("method", "wanted"), [("grpo", False), ("ppo", False), ("ettrl", False), ("isoeasy", True)])
def test_a_reference_is_loaded_only_where_something_is_compared_with_it(method, wanted, tmp_path, monkeypatch):
    class OpenedError(Exception):
        pass

    def opens(setting, *, reference=False):
        raise OpenedError(reference)

    monkeypatch.setattr(runs, "open_setting", opens)
    with pytest.raises(OpenedError) as told:
        go(replace(JOB, method=method, arm=JOB.arm.but(n=20, B=8)), tmp_path)
    assert told.value.args == (wanted,)


def test_an_evaluation_that_was_saved_is_not_billed_again_as_lost(tmp_path):
    """Dead before its second checkpoint: two steps are lost, and the base's evaluation is not."""
    job = replace(JOB, method="grpo", budget={"rollouts": 96}, points=(), save_every=4, export=False)
    kill9.dies_at_step(job, tmp_path, 2)
    end = go(job, tmp_path)
    assert end["bill"]["lost"]["rollouts"] == 2 * job.arm["n"] * job.arm["B"] and end["bill"]["lost"]["score"] == 0
    assert end["bill"]["evaluation"]["score"] > 0


def test_rollouts_in_flight_are_lost_with_a_checkpoint_that_lacks_them_and_fates_still_sum_to_the_bill(tmp_path):
    """A checkpoint of an earlier version: rollouts that were ahead of the step were not part of it."""
    job = replace(JOB, budget={"rollouts": 96}, points=(), save_every=2, export=False, sets={"max_age": "2"})
    kill9.dies_at_step(job, tmp_path, 4)
    for file in (tmp_path / "checkpoints").glob("*/state.json"):
        state = read_json(file)
        assert (state.pop("ahead", None) is not None) == (state["ledger"]["step"] > 0)
        write_json(file, state)
    end = go(job, tmp_path)
    assert end["fates"]["lost"] > end["bill"]["lost"]["rollouts"]     # some were paid for before the checkpoint
    assert sum(end["fates"].values()) == sum(cost["rollouts"] for cost in end["bill"].values())


def test_the_check_of_the_answer_key_is_in_the_bill_though_the_run_dies_before_its_first_checkpoint(
    tmp_path, monkeypatch
):
    async def dies(self):
        raise KeyboardInterrupt

    job = replace(JOB, budget={"rollouts": 32}, points=(), export=False)
    whole = asyncio.run(run(job, tmp_path / "whole", opened=open_setting(SMALL, check=True)))
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(driver.Driver, "_evaluate", dies)
        asyncio.run(run(job, tmp_path / "dead", opened=open_setting(SMALL, check=True)))
    dead = go(job, tmp_path / "dead")
    for end, account in ((whole, "check"), (dead, "lost")):
        assert end["bill"][account]["verify"] == 120 and end["bill"][account]["seconds"] > 0
        assert end["bill"]["train"]["verify"] == 32 and sum(end["fates"].values()) == 32


@pytest.mark.parametrize("why", ["interrupted", "diverged"])
def test_rollouts_in_flight_when_a_run_stops_are_billed_and_cancelled(tmp_path, monkeypatch, why):
    """Nothing is charged after the last checkpoint, which is one of its own, and the journal has every rollout."""
    setting = SMALL.but(data="sums:work=1,count=60", max_tokens=14)
    job = replace(JOB, setting=setting, points=(), save_every=1, export=False, sets={"max_age": "2"})
    world, saved = open_setting(setting), []
    save = RunRecord.save
    monkeypatch.setattr(RunRecord, "save", lambda self, step, *rest: (saved.append(step), save(self, step, *rest)))

    def stop(line):
        if line.get("step") == 3 and "reward" in line:
            if why == "interrupted":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                monkeypatch.setattr(policy, "math", SimpleNamespace(isfinite=lambda x: False))

    end = asyncio.run(run(job, tmp_path, opened=world, on_step=stop))
    assert end["steps"] == {"interrupted": 4, "diverged": 5}[why]
    paid, fates = world.world.meter.of(), Counter()
    for line in read_lines(tmp_path / "journal.jsonl"):
        fates.update({**Counter(line["fates"]), "cancelled": line["cancelled"]})
    state = read_json(tmp_path / "checkpoints" / f"step-{end['steps']:06d}" / "state.json")
    assert end["reason"] == why and paid.rollouts > end["steps"] * 16
    assert end["bill"]["train"] == state["meter"]["logical"]["train"] == paid.data()
    assert fates.total() == paid.rollouts == sum(end["fates"].values()) - end["fates"]["evaluation"]
    assert end["fates"]["cancelled"] == fates["cancelled"] > 0 == end["fates"]["lost"]
    assert len(saved) == len(set(saved)), saved
    if why == "interrupted":
        end = go(job, tmp_path)
        assert end["reason"] == "spent" and end["fates"]["cancelled"] == 0 == end["fates"]["lost"]
        assert sum(end["fates"].values()) == sum(cost["rollouts"] for cost in end["bill"].values())


def test_a_run_that_is_continued_is_the_run_that_was_longer_from_the_start(whole, tmp_path):
    """128 rollouts and then on to 256, evaluated where the longer one is; a smaller budget and another unit are not."""
    first = replace(JOB, budget={"rollouts": 128}, points=(64,))
    go(first, tmp_path / "r")
    for other in (first, replace(JOB, budget={"tokens": 10**6})):
        assert not reopen(tmp_path / "r", other)
    with pytest.raises(UserError, match="budget differ"):
        go(JOB, tmp_path / "r")
    assert reopen(tmp_path / "r", JOB) and not reopen(tmp_path / "r", JOB)
    go(JOB, tmp_path / "r")
    assert kill9.left_by(tmp_path / "r") == kill9.left_by(whole)
    assert read_json(tmp_path / "r" / "end.json")["fates"]["lost"] == 0


def test_a_budget_of_seconds_is_the_runs_own_time(tmp_path, monkeypatch):
    """A clock that moves 0.05 s whenever the run looks: evaluations and pauses count, by whatever busy seconds."""
    ticks = count(0, 0.05)
    monkeypatch.setattr(driver, "time", SimpleNamespace(perf_counter=lambda: next(ticks), process_time=lambda: 0.0))
    end = go(replace(JOB, budget={"seconds": 3.0}, points=(64,), export=False), tmp_path / "r")
    assert end["reason"] == "spent" and 2.0 < end["seconds"] <= 3.5
    assert 0 < end["bill"]["train"]["rollouts"] < 16 * 60, "no step without a look at the clock"


def test_a_budget_of_seconds_includes_the_last_evaluation():
    """Three evaluations took 6 s, so the one after training takes 2: at 5 s, 7 are as good as spent."""
    meter = SimpleNamespace(of={"evaluation": Cost(seconds=6.0)}.__getitem__)
    asked = SimpleNamespace(seconds=lambda: 5.0, workload=SimpleNamespace(meter=meter), measured=3)
    assert driver.Driver.clock(asked) == 7.0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_its_step_and_it_goes_on_to_the_same_bytes(whole, tmp_path, signum):
    def stop(line):
        if line.get("step") == 3 and "reward" in line:
            os.kill(os.getpid(), signum)

    end = asyncio.run(run(JOB, tmp_path, on_step=stop))
    assert (end["reason"], end["signal"]) == ("interrupted", signum)
    assert go(JOB, tmp_path)["reason"] == "spent"
    assert kill9.left_by(tmp_path) == kill9.left_by(whole)
    assert "lost" not in read_json(tmp_path / "end.json")["bill"], "a run that was asked to stop loses nothing"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system refuses such a name")
def test_a_run_in_a_folder_whose_name_is_not_utf8_goes_on_and_is_evaluated(whole, tmp_path):
    """safetensors cannot open such a path: its checkpoints would count as broken, and its policy could not be read."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff\xfe"))
    asyncio.run(run(JOB, folder, on_step=lambda line: line.get("step") == 3 and os.kill(os.getpid(), signal.SIGINT)))
    assert go(JOB, folder)["reason"] == "spent" and "lost" not in read_json(folder / "end.json")["bill"]
    assert kill9.left_by(folder) == kill9.left_by(whole)
    assert evaluate(folder, samples=2).final == evaluate(whole, samples=2).final
    command = f"echo {word(folder)}"
    assert subprocess.run(["bash", "-c", command], capture_output=True).stdout == os.fsencode(folder) + b"\n"


def test_every_problem_of_an_epoch_is_used_once_though_the_run_was_stopped(tmp_path):
    """Trap 30, over a resume."""
    pool = len(open_problems(SMALL)[1].train)
    job = replace(JOB, budget={"rollouts": pool // 4 * 16})

    def stop(line):
        if line.get("step") in (2, 9) and "reward" in line:
            os.kill(os.getpid(), signal.SIGINT)

    while asyncio.run(run(job, tmp_path, on_step=stop))["reason"] == "interrupted":
        pass
    drawn = Counter(x["id"] for x in read_lines(tmp_path / "journal.jsonl"))
    assert set(drawn.values()) == {1} and len(drawn) == pool // 4 * 4 > 60


def test_a_run_records_what_its_recipe_can_be_compared_with(whole, tmp_path):
    """The method's own recipe and its parent's, of the code that ran: another version's may differ."""
    told = read_json(whole / "run.json")
    assert told["defaults"] == describe(methods.recipe("grpo")) != told["recipe"]
    assert told["parent"] == {"method": "reinforce", "recipe": describe(methods.recipe("reinforce"))}
    (tmp_path / "mine.py").write_text(
        "from isocost.methods import Card, grpo\n\nCARD = Card('Mine', 'none', 2026, 'nowhere', 'It differs.')\n\n\n"
        "def recipe(**changes):\n    return grpo.recipe(name='mine', max_age=1).but(**changes)\n")
    mine = f"{tmp_path}/mine.py@loss.high=0.3"
    go(replace(JOB, method=mine, budget={"rollouts": 16}, export=False), tmp_path / "run")
    told = read_json(tmp_path / "run" / "run.json")
    assert (told["defaults"]["loss"]["high"], told["recipe"]["loss"]["high"]) == (0.2, 0.3)
    assert told["parent"] == {"method": "nowhere", "recipe": None}      # a parent that is none stops nothing


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
import test_run
from isocost.runs import driver
from isocost.runs.run import run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
driver.WORTH_SAVING = 0.0     # every evaluation is followed by a checkpoint

def fill(line):
    if line["step"] == 5 and "reward" in line:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))

try:
    asyncio.run(run(test_run.JOB, Path(sys.argv[1]), on_step=fill))
except OSError as e:
    print("stopped by", e.errno)
"""


@pytest.mark.parametrize("room", [100, 100_000], ids=["for no further line", "for no further checkpoint"])
def test_a_full_disk_stops_it_with_the_last_good_checkpoint(whole, tmp_path, programs_at_once, room):
    """A real limit on file sizes, reached after step 5. With room again the run ends as if nothing had been."""
    done = Shell(HERE, programs_at_once).run(["python", "-c", FULL, tmp_path, room])
    assert done.out.split() == ["stopped", "by", str(errno.EFBIG)], done.err[-1500:]
    kept = [read_json(p / "state.json")["step"] for p in sorted((tmp_path / "checkpoints").glob("step-*"))]
    assert kept[-1] == 4 and not (tmp_path / "end.json").exists()
    go(JOB, tmp_path)
    assert kill9.left_by(tmp_path) == kill9.left_by(whole)
    assert read_json(tmp_path / "end.json")["bill"]["lost"]["rollouts"] > 0


FULL_AT_THE_END = """
import resource, signal, sys
from isocost.runs.driver import Driver
from isocost.cli.commands import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
finish = Driver._finish

def full(self):
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    return finish(self)

Driver._finish = full
main(sys.argv[1:])
"""


def test_a_disk_that_is_full_for_the_trained_policy_is_one_line_and_nothing_is_lost(tmp_path, programs_at_once):
    """All steps are made and saved when it is: with room again the same command only writes what is missing."""
    data = ("--data", SMALL.problems.data, "--held-out", "0.3", "--device", "cpu")
    command = ("train", "grpo", *data, "--budget", "64-rollouts", "-n", "4", "-B", "4", "--out", "r")
    shell = Shell(tmp_path, programs_at_once)
    done = shell.run(["python", "-c", FULL_AT_THE_END, *command])
    said = (f"isocost: {os.strerror(errno.EFBIG)} at r/final; what was saved before is whole: free some space and run "
            "the same command again\n")
    assert (done.code, done.err) == (5, said)
    there = {p.name for p in (tmp_path / "r").iterdir()}
    assert not there & {"final", ".final.tmp", "end.json"} and "checkpoints" in there
    before = {f: (tmp_path / "r" / f).read_bytes() for f in ("metrics.jsonl", "journal.jsonl")}
    again = shell.run(["isocost", *command])
    assert again.code == 0, again.err
    assert {f: (tmp_path / "r" / f).read_bytes() for f in before} == before
    end = read_json(tmp_path / "r" / "end.json")
    assert end["bill"].get("lost", {}).get("rollouts", 0) == 0 and (tmp_path / "r" / "final" / "config.json").exists()


def test_a_gradient_that_is_not_finite_ends_the_run_as_diverged(tmp_path):
    end = go(replace(JOB, arm=JOB.arm.but(lr=1e30), export=False), tmp_path)
    assert end["reason"] in ("diverged", "spent")
    if end["reason"] == "diverged":
        assert "not finite" in end["detail"]


def test_the_policy_at_the_end_is_evaluated_where_its_last_waves_were_paid_for_before(tmp_path):
    """At max_age 1 the wave of the sixth step is on the bill of the fifth, where the last point was."""
    job = replace(JOB, arm=JOB.arm.but(n=4, B=2), budget={"rollouts": 48}, points=(16, 32, 48), sets={"max_age": "1"},
                  export=False)
    end = go(job, tmp_path)
    met = [(x["step"], x["rollouts"]) for x in read_lines(tmp_path / "metrics.jsonl") if "eval/audit" in x]
    assert end["steps"] == 6 and met == [(0, 0), (1, 16), (3, 32), (5, 48), (6, 48)]


def test_a_run_that_starves_says_why(tmp_path):
    sure = SMALL.but(temperature=0.001)  # siblings all say the same
    end = go(replace(JOB, method="dapo", setting=sure, budget={"rollouts": 64}), tmp_path)
    assert end["reason"] == "starved" and "never solved" in end["detail"]


def test_nothing_is_compiled():
    """Works where there is no C++ compiler: a run never asks for one."""
    code = (
        "import sys, tempfile\nfrom pathlib import Path\nimport torch\n"
        "def no(*a, **k): raise RuntimeError('asked to compile')\n"
        "torch.compile = no\nimport test_run\n"
        "print(test_run.go(test_run.JOB, Path(tempfile.mkdtemp()))['reason'])\n"
        "print('torch._inductor.cpp_builder' in sys.modules)"
    )
    bare = {**ENVIRONMENT, "CXX": "/nonexistent", "CC": "/nonexistent", "PATH": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True)
    assert done.stdout.split() == ["spent", "False"], done.stderr[-1500:]


@pytest.mark.parametrize(("reason", "over"), [
    ("spent", True), ("starved", True), ("diverged", True), ("interrupted", False), ("reward failed", False),
])
def test_a_run_has_ended_if_the_same_command_would_not_continue_it(whole, tmp_path, reason, over):
    assert not ended(tmp_path)
    write_json(tmp_path / "end.json", {**read_json(whole / "end.json"), "reason": reason})
    assert ended(tmp_path) == over
