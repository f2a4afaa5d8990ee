"""A run of control is the same alone, in any stack, and after a kill, byte for byte."""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from in_turn import in_turn
from isocost.control import methods, native
from isocost.control.loop import Loop, StackedRun
from isocost.control.networks import Effort
from isocost.control.parts import alike
from isocost.control.tasks import open_task
from isocost.errors import UserError
from isocost.runs import control, driver
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, run_stack
from isocost.runs.files import read_json, read_lines
from isocost.runs.stop_at import StopAt
from isocost.units import ENV_STEPS
from offline_sets import CHEAP, fitting

SIGMAS = (2.0, 1.0, 4.0, 0.5)


@pytest.fixture(autouse=True, scope="module")
def checkpoints_by_steps_alone():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(driver, "WORTH_SAVING", float("inf"))
        yield


@pytest.mark.parametrize(("ours", "theirs", "top"), [
    (alike.sigmoid, torch.sigmoid, 90), (alike.softplus, softplus, 90), (alike.atanh, torch.atanh, 0.99),
    (lambda x: alike.cross_entropy(x, torch.full_like(x, 0.3)),
     lambda x: binary_cross_entropy_with_logits(x, torch.full_like(x, 0.3), reduction="none"), 90)])
def test_a_function_that_rounds_alike_has_torchs_values_and_slopes(ours, theirs, top):
    """Of the same number, wherever it is in an array of 33, one number; at 0 the slope is 1/4, 1/2, 1 and 1/2 - 0.3."""
    x = torch.cat((torch.linspace(-top, top, 32), torch.zeros(1))).requires_grad_()
    slopes = []
    for f in (ours, theirs):
        y = f(x)
        slopes.append((y.detach(), *torch.autograd.grad(y.sum(), x)))
    torch.testing.assert_close(*slopes, atol=1e-6, rtol=1e-5)
    for k in (3, 20):
        assert ours(x.detach()[k].repeat(33)).unique().numel() == 1


def stacked(method, seeds, updates):
    """After so many updates of each run: a hash of everything that it would save, by seed."""
    agent = methods.agent(method, batch=16, width=32)
    agent = methods.tuned(agent, CHEAP.get(method, {}) | (
        {} if agent.offline or agent.prepare else {"tempo.warmup": "40"}))
    task, rows = fitting(agent)
    first = 20 if agent.warms else 0        # of the updates; samples follow at other times in each run
    runs = [StackedRun(s, 1.0 if agent.offline else SIGMAS[s % 4], 1e-3, first=first) for s in seeds]
    ends = {r.seed: updates if agent.offline else first + 40 + int((updates - first) / r.sigma) for r in runs}
    loop, found = Loop(agent, task, runs, 40 + 2 * updates, rows), {}
    while loop.runs:
        for i in sorted(loop.advance([ends[r.seed] for r in loop.runs]), reverse=True):
            assert loop.runs[i].failure is None
            tensors, state = loop.save(i)
            text = hashlib.sha256(repr(state).encode())
            for name in sorted(tensors):
                text.update(tensors[name].numpy().tobytes())
            found[loop.runs[i].seed] = text.hexdigest(), loop.runs[i].updates
            if len(loop.runs) == 1:
                return found
            loop.drop(i)
    return found


@pytest.fixture(params=["kernel", "torch"])
def path(request, monkeypatch):
    """Both ways to compute a network."""
    if request.param == "torch":
        monkeypatch.setattr(native, "usable", lambda *_: False)
        monkeypatch.setattr(native, "adam", lambda *_: False)
    elif native._library()[0] is None:
        pytest.skip("no C++ compiler here")


@pytest.mark.parametrize("method, path", [
    *((name, "kernel") for name in methods.names()),
    *(pytest.param(name, "torch", marks=() if name in in_turn(methods) else pytest.mark.release)
      for name in methods.names()),
], indirect=["path"])
def test_stacked_equals_alone(method, path):
    """36 updates at 2, 1, 4 and 1/2 updates per sample; those that end early leave the others. 64 of whole rollouts.

    The contract of each method compares it with a stack of three.
    """
    many = 64 if methods.agent(method).prepare else 36
    alone, seven = stacked(method, [3], many), stacked(method, [*range(7)][::-1], many)
    assert {updates for _, updates in seven.values()} == {many} and len({text for text, _ in seven.values()}) == 7
    assert alone == {3: seven[3]}


def jobs(*seeds, samples=120, **more):
    arm = {"batch": 16, "width": 16, "rate": 1e-3}
    return [ControlJob(f"s{s}", "maze:2", "sac", s, {"env-steps": samples}, Arm(arm, sigma=SIGMAS[s % 4]),
                       points=(60.0,), sets={"tempo.warmup": "40"}, episodes=2, **more) for s in seeds]


def left(out: Path):
    """What must be equal byte for byte: metrics, weights, and the bill of all but lost work, without seconds."""
    end = read_json(out / "end.json")
    bill = {a: {k: v for k, v in cost.items() if k != "seconds"} for a, cost in end["bill"].items() if a != "lost"}
    last = sorted(out.glob("checkpoints/step-*"))[-1]
    return (out / "metrics.jsonl").read_bytes(), (last / "learner.safetensors").read_bytes(), bill, end["detail"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three runs in one stack, never stopped."""
    out = tmp_path_factory.mktemp("whole")
    run_stack(jobs(0, 1, 2), [out / f"s{s}" for s in (0, 1, 2)], save_every=1, save_seconds=0)
    return out


def test_the_record_of_a_run(whole):
    about, end, lines = (f(whole / "s2" / n) for f, n in (
        (read_json, "run.json"), (read_json, "end.json"), (read_lines, "metrics.jsonl")))
    assert (about["kind"], about["arm"], about["seed"]) == (
        "control", {"batch": 16, "rate": 1e-3, "sigma": 4.0, "width": 16}, 2)
    assert about["task"]["name"] == "maze:2" and about["scale"]["reference"] == -1.0
    assert [(x["env_steps"], x["updates"]) for x in lines if "return" in x] == [(0, 0), (60, 80), (120, 320)]
    last = lines[-1]
    low = about["scale"]["random"]
    assert -20 < low < -2 and last["eval/select"] == pytest.approx((last["return/select"] - low) / (-1 - low))
    train, held_out = end["bill"]["train"], end["bill"]["evaluation"]
    assert (train["env_steps"], train["updates"], train["train"]) == (120, 320, 320 * 16 * 3)
    # 2 · 352 FLOP of the actor for each action but the 40 random ones, and for each step of an evaluation
    flop = {"updates": 320 * about["update"]["flop"], "acting": 80 * 704, "evaluation": held_out["env_steps"] * 704}
    assert end["flop_of"] == flop and last["flop"] == end["flop"] == flop["updates"] + flop["acting"]
    assert train["score"] == 320 * about["update"]["score"] + 80 and held_out["score"] == held_out["env_steps"]
    assert held_out["env_steps"] == int(sum(x.get("eval/length", 0) * 4 for x in lines))
    assert end["transitions"] == {"collected": 120, "stored": 120, "evicted": 0}


def test_alone_it_leaves_what_it_leaves_in_a_stack(whole, tmp_path):
    for job in jobs(0, 2):
        run_stack([job], [tmp_path / job.name], save_every=1, save_seconds=0)
        assert left(tmp_path / job.name) == left(whole / job.name)


class Died(BaseException):
    """As a kill: nothing handles it."""


@pytest.mark.parametrize("after", [4, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 7, 9))])
def test_killed_and_resumed_with_other_neighbours_it_leaves_the_same_bytes(whole, tmp_path, after):
    seen = []

    def dies(name, line):
        seen.append(line)
        if len(seen) == after:
            raise Died

    outs = {s: tmp_path / f"s{s}" for s in (0, 1, 2, 3)}
    with pytest.raises(BaseException) as told:
        run_stack(jobs(0, 1, 2), [outs[s] for s in (0, 1, 2)], save_every=1, save_seconds=0, on_step=dies)
    assert "Died" in repr(told.value)
    run_stack(jobs(3, 2), [outs[3], outs[2]], save_every=1, save_seconds=0)
    run_stack(jobs(1, 0), [outs[1], outs[0]], save_every=1, save_seconds=0)
    assert all(left(outs[s]) == left(whole / f"s{s}") for s in (0, 1, 2))


def test_a_run_that_diverges_ends_alone(whole, tmp_path):
    bad, good = jobs(1, 2)
    bad = ControlJob(**{**bad.__dict__, "arm": bad.arm.but(rate=1e30)})
    ended = run_stack([good, bad], [tmp_path / "good", tmp_path / "bad"], save_every=1, save_seconds=0)
    assert [e["reason"] for e in ended] == ["spent", "diverged"]
    assert "update" in ended[1]["detail"] and "learning rate 1e+30" in ended[1]["detail"]
    assert left(tmp_path / "good") == left(whole / "s2")


def test_another_run_is_not_continued_here(whole):
    changed = ControlJob(**{**jobs(0)[0].__dict__, "seed": 5})
    with pytest.raises(UserError, match="its seed differs; choose another --out"):
        run_stack([changed], [whole / "s0"])


def test_runs_that_differ_in_batch_cannot_share_a_stack(tmp_path):
    a, b = jobs(0, 1)
    b = ControlJob(**{**b.__dict__, "arm": b.arm.but(batch=32)})
    with pytest.raises(UserError, match="same task, method, batch"):
        run_stack([a, b], [tmp_path / "a", tmp_path / "b"])


@pytest.mark.parametrize(("arm", "said"), [
    ({"sigma": 0.0}, "updates per sample are 0, expected above 0 and at most 256"),
    ({"sigma": 300.0}, "updates per sample are 300"), ({"batch": 40}, "batch is 40, expected a multiple of 16"),
])
def test_arms_that_cannot_be_run(tmp_path, arm, said):
    job = jobs(0)[0]
    with pytest.raises(UserError, match=said):
        run_stack([ControlJob(**{**job.__dict__, "arm": job.arm.but(**arm)})], [tmp_path / "a"])
    assert not (tmp_path / "a").exists()


def test_a_budget_of_updates_and_of_flop(tmp_path):
    """SAC at 16 wide, batch 16, on two numbers and two actions: 4 passes of the actor, 12 of critics; and an actor's
    pass for each of the last 20 samples."""
    update, act = 2 * 16 * ((32 + 256 + 64) * 4 + (64 + 256 + 16) * 12), 2 * (32 + 256 + 64)
    (job,) = jobs(2)
    for budget in ({"updates": 80.0}, {"flop": 80.0 * update + 20 * act}, {"flop": 84.0 * update + 20 * act}):
        out = tmp_path / str(budget)
        (end,) = run_stack([ControlJob(**{**job.__dict__, "budget": budget})], [out])
        assert (end["reason"], end["updates"], end["samples"], end["flop"]) == ("spent", 80, 60, 80 * update + 20 * act)


def test_the_price_of_sac_on_pendulum_and_the_papers_beside_it():
    """CONTROL: 2 · 4,416 · 64 · (4 + 12) FLOP, and 10 N B of two critics of 4,545 weights."""
    agent = methods.agent("sac", batch=64, width=64)
    work = control.price(agent, open_task("pendulum"))
    assert (work.update.flop, work.paper, work.action.flop) == (9_043_968, 5_817_600, 2 * 4416)


@pytest.mark.parametrize("method, task, passes", [
    ("sac", "pendulum", {"actor": 1}), ("flowbc", "pendulum", {"actor": 10}), ("fql", "pendulum", {"actor": 1}),
    ("sharsa", "goalmaze:4", {"high": 32 * 10, "critic": 2 * 32, "actor": 10}),      # the best of 32 subgoals
])
def test_an_action_is_charged_by_the_passes_that_it_takes(method, task, passes):
    agent = methods.agent(method, batch=16, width=16)
    nets, work = agent.networks(open_task(task).space, agent), control.price(agent, open_task(task))
    assert work.evaluated.score == sum(passes.values())
    assert work.evaluated.flop == sum(2 * k * nets[n].multiplications for n, k in passes.items())
    assert work.action == (Effort() if agent.offline else work.evaluated)


def test_a_run_that_began_before_actions_were_charged_ends_as_it_began(whole, tmp_path):
    """Its record has no price of an action."""
    out = tmp_path / "s2"
    run_stack(jobs(2), [out], save_every=1, save_seconds=0, stop_at=StopAt(100.0, ENV_STEPS, {"env_steps": 1.0}))
    about = read_json(out / "run.json")
    del about["action"], about["evaluated"]
    (out / "run.json").write_text(json.dumps(about))
    run_stack(jobs(2), [out], save_every=1, save_seconds=0)
    end = read_json(out / "end.json")
    assert end["flop"] == 320 * about["update"]["flop"] and "flop_of" not in end
    assert end["bill"]["evaluation"]["score"] == end["bill"]["evaluation"]["env_steps"]


@pytest.mark.parametrize("k", [12, 300])
def test_environments_that_divide_neither_points_nor_stretches_are_stepped_to_the_budget(tmp_path, k):
    """The evaluation at 8 and that at 100 are made after the next whole step."""
    (job,) = jobs(3)
    more = {"environments": k, "points": (8.0, 100.0), "budget": {"env-steps": 700.0}}
    (end,) = run_stack([ControlJob(**{**job.__dict__, **more})], [tmp_path / "a"])
    seen = [x["env_steps"] for x in read_lines(tmp_path / "a" / "metrics.jsonl") if "return" in x]
    assert seen == [0, k, -(-100 // k) * k, 700 // k * k][: 4 if k == 12 else 2] + [600] * (k == 300)
    assert end["samples"] == 700 // k * k


@pytest.mark.parametrize("k", [1, 8])
@pytest.mark.parametrize("sigma", [0.5, 1, 4, 16])
def test_updates_per_sample_are_those_that_were_set(sigma, k):
    agent = methods.tuned(methods.agent("sac", batch=16, width=16), {"tempo.warmup": "16"})
    run = StackedRun(0, sigma, 1e-3, environments=k)
    Loop(agent, open_task("pendulum"), [run], 64).advance([32])
    assert (run.samples, run.updates) == (32, int(sigma * 16))


@pytest.mark.release
@pytest.mark.parametrize("count", [2, 3, 7, 16, 64])
def test_ten_thousand_updates_of_sac_in_stacks_of_every_size(count, path):
    """Two updates per sample at batch 64 and 64 wide, to the last bit of everything that a run saves."""
    def ended(seeds):
        agent = methods.agent("sac", batch=64, width=64)
        loop = Loop(agent, open_task("pendulum"), [StackedRun(s, 2.0, 1e-3) for s in seeds], 5200)
        loop.advance([5200] * len(seeds))
        assert {r.updates for r in loop.runs} == {10_000}
        return [(repr(state), *(x.numpy().tobytes() for x in tensors.values()))
                for tensors, state in map(loop.save, range(len(seeds)))]

    (alone,) = ended([5])
    many = ended([*range(5, 5 + count)])
    assert many[0] == alone and len(set(many)) == count


KILLED = """
import sys
sys.path[:0] = [{here!r}, *{path!r}]
from test_control_stack import jobs, run_stack
from isocost.runs import driver
driver.WORTH_SAVING = float("inf")
from pathlib import Path
run_stack(jobs(*range(8), samples=400), [Path({out!r}) / f"s{{s}}" for s in range(8)], save_every=1, save_seconds=0)
"""


@pytest.mark.slow
def test_kill_9_at_twenty_points_of_a_stack_of_eight_leaves_every_record_as_it_is_without(tmp_path):
    """The process is killed when its records have grown by a twentieth, begun again, and so on."""
    def begun(out):
        code = KILLED.format(here=str(Path(__file__).parent), path=sys.path, out=str(out))
        return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "1"})

    def lines(out):
        return sum(len(p.read_bytes().splitlines()) for p in out.glob("*/metrics.jsonl"))

    assert begun(tmp_path / "whole").wait() == 0
    total, kills = lines(tmp_path / "whole"), 0
    for k in range(20):
        process = begun(tmp_path / "killed")
        while process.poll() is None and lines(tmp_path / "killed") < total * (k + 1) / 21:
            time.sleep(0.02)
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert begun(tmp_path / "killed").wait() == 0 and kills >= 15
    assert all(left(tmp_path / "killed" / f"s{s}") == left(tmp_path / "whole" / f"s{s}") for s in range(8))


def test_functions_that_round_by_their_place_are_those_of_alike():
    """A row alone has the bits that it has among others, whatever the processor takes at once."""
    x = torch.linspace(-0.99, 0.99, 20 * 17).reshape(20, 17)
    for f in (alike.sigmoid, alike.softplus, alike.atanh):
        assert torch.equal(f(x), torch.stack([f(row.clone()) for row in x]))
    with_place = re.compile(r"(?<!alike\.)\b(sigmoid|softplus|atanh|silu|elu|mish|binary_cross_entropy\w*)\(")
    home = Path(alike.__file__).parents[1]
    assert [f"{f.name}: {found[0]}" for f in home.rglob("*.py") if f.name != "alike.py"
            for found in with_place.finditer(f.read_text())] == []
