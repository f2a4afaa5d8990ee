"""PPO and the seam of rollouts: numbers worked from the equations, when updates are made, and from what."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch

from isocost.control import methods
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Draws, Luck
from isocost.control.methods import ppo
from isocost.control.networks import Mlp, Params
from isocost.control.replay import Replay
from isocost.control.tasks import open_task
from isocost.control.types import Space, Transitions
from isocost.errors import UserError
from isocost.runs import control
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, run_stack
from isocost.runs.stop_at import StopAt
from isocost.steps.control.single import ControlOptions, _stop_at
from isocost.types import Cost
from isocost.units import ENV_STEPS
from logs_to_import import said


@dataclass(frozen=True)
class Same:
    """A value that is the observation itself, and a policy of mean 0 and deviation 1."""

    outputs: int
    members: int = 1
    multiplications: int = 0

    def __call__(self, weights, x):
        return x[..., :1] if self.outputs == 1 else torch.zeros(*x.shape[:-1], 2)


def prepared(rows, stride=1, **settings):
    """What is kept of a rollout of rows (s, a, r, s', terminal, cut)."""
    replay = Replay.of(Space(1, 1), 1, 16, stride, len(rows), ("log_prob", "advantage", "return"))
    replay.add([0], torch.zeros(1, 3, 6))       # what came before it
    replay.add([0], torch.tensor([rows], dtype=torch.float32))
    view, nets = replay.view([0]), {"critic": Same(1), "actor": Same(2)}
    view.keep(ppo.prepare(view, Params(nets, dict.fromkeys(nets, torch.zeros(1, 1, 32))), **settings))
    return {k: x[0].tolist() for k, x in view.named(view.newest()).items()}


def test_advantages_end_with_their_episode_and_go_on_where_it_was_cut():
    """V(s) = s, γ = λ = 1/2: δ = 1 + 1 − 1, 2 + 3/2 − 2 (cut: s' counts, later rewards do not), 3 − 4 (terminal)."""
    found = prepared([(1, 0, 1, 2, 0, 0), (2, 0, 2, 3, 0, 1), (4, 0.5, 3, 5, 1, 0)], gamma=0.5, lam=0.5)
    assert found["advantage"] == [1 + 0.25 * 1.5, 1.5, -1] and found["return"] == [2.375, 3.5, 3]
    assert found["log_prob"] == pytest.approx([0, 0, -np.arctanh(0.5) ** 2 / 2])


def test_advantages_stay_in_their_environment():
    rows = [(0, 0, 1, 0, 0, 0), (0, 0, 10, 0, 0, 0), (0, 0, 2, 0, 0, 0), (0, 0, 20, 0, 0, 0)]
    assert prepared(rows, stride=2, gamma=1.0, lam=0.5)["advantage"] == [1 + 1, 10 + 10, 2, 20]


def params(seed=0):
    nets = {"actor": Mlp(2, 4, 16), "critic": Mlp(2, 1, 16)}
    rng = np.random.default_rng(seed)
    return Params(nets, {k: torch.from_numpy(n.start(rng))[None].requires_grad_() for k, n in nets.items()})


def test_the_ratio_is_that_of_the_squashed_policies():
    s, a = (Luck([Draws(0)], [0], "test").uniform(name, 8, 2) for name in ("s", "a"))
    laws = []
    for p in (params(0), params(1)):
        mean, spread = p("actor", s)[:, 0].chunk(2, -1)
        laws.append(torch.distributions.TransformedDistribution(torch.distributions.Normal(
            mean, spread.exp()), torch.distributions.transforms.TanhTransform()).log_prob(a).sum(-1))
    found = ppo.log_prob(params(0), s, a) - ppo.log_prob(params(1), s, a)
    assert torch.allclose(found, laws[0] - laws[1], atol=1e-5) and found.abs().min() > 0


def test_the_clipped_loss():
    """ρ = 3/2, 3/2, 1/2, 1/2, Â = 1, −1, 1, −1: min(1.5, 1.2) + min(−1.5, −1.2) + min(0.5, 0.8) + min(−0.5, −0.8)."""
    draws = Luck([Draws(0)], [0], "test")
    p, s, a = params(), draws.uniform("s", 4, 2), draws.uniform("a", 4, 2) - 0.5
    now = ppo.log_prob(p, s, a).detach()
    old = now - torch.tensor([[1.5, 1.5, 0.5, 0.5]]).log()
    batch = Transitions(s, a, now, s, now, {"log_prob": old, "advantage": torch.tensor([[7.0, 3, 7, 3]]),
                                            "return": torch.ones(1, 4)})
    target = ppo.target(batch, p, p, None)
    found = ppo.losses(batch, target, p, None)
    assert found["actor"].tolist() == pytest.approx([0.6 / 4]) and target.tolist() == [[1.0] * 4]
    value = p("critic", s)[0, 0, :, 0]
    assert found["critic"].tolist() == pytest.approx([((value - 1) ** 2).mean().item()])
    for keep, moves in (([0, 3], False), ([1, 2], True)):       # of those that moved far enough nothing is gained
        part = batch._replace(observation=s[:, keep], action=a[:, keep], others={k: x[:, keep] for k, x in (
            batch.others.items())})
        gradient, = torch.autograd.grad(ppo.losses(part, target[:, keep], p, None)["actor"].sum(), p.weights["actor"])
        assert bool(gradient.abs().max() > 0) == moves


def small(**sets):
    return methods.tuned(methods.agent("ppo", batch=16, width=16), {"rollout": "32", **sets})


def test_each_epoch_has_every_sample_of_the_rollout_once_in_an_order_of_its_own():
    loop = Loop(small(), open_task("pendulum"), [StackedRun(0, 0.0, 1e-3)], 40)
    loop.advance([64])
    view, run = loop.replay.view([0]), loop.runs[0]
    newest = {tuple(x) for x in view.split(view.at(view.newest()))[0][0].tolist()}
    parts = [[tuple(x) for x in ppo.sample(view, 16, Luck([run.source], [k], "update")).observation[0].tolist()]
             for k in range(4)]
    assert {*parts[0], *parts[1]} == {*parts[2], *parts[3]} == newest and len(newest) == 32
    assert parts[0] != parts[2]


@pytest.mark.parametrize("k", [1, 4])
def test_updates_wait_for_the_whole_rollout_and_one_policy_acts_in_it(k):
    agent = small()
    loop = Loop(agent, open_task("pendulum"), [StackedRun(0, agent.sigma, 1e-3, environments=k)], 96)
    first = {n: w.clone() for n, w in loop.weights.items()}
    loop.advance([28])
    assert (loop.runs[0].samples, loop.runs[0].updates) == (28, 0)
    seen = loop.replay.view([0])
    loop.advance([32])
    assert loop.runs[0].updates == 10 * 32 / 16 and (loop.weights["actor"] != first["actor"]).any()
    s, a, *_ = seen.split(loop.replay.rows[:, :32])
    with torch.no_grad():
        acted = ppo.log_prob(Params(loop.networks, first), s, a)
    assert torch.allclose(loop.replay.rows[0, :32, -3], acted, atol=1e-5)
    later = {n: w.clone() for n, w in loop.weights.items()}
    loop.advance([60])
    assert loop.runs[0].updates == 20 and all(torch.equal(w, later[n]) for n, w in loop.weights.items())


def test_a_run_that_is_saved_in_a_rollout_goes_on_in_another_stack_to_the_same_bytes():
    def ended(seeds, stop):
        task, agent = open_task("pendulum"), small()
        loop = Loop(agent, task, [StackedRun(s, agent.sigma, 1e-3) for s in seeds], 128)
        if stop:
            before = Loop(agent, task, [StackedRun(0, agent.sigma, 1e-3)], 128)
            before.advance([stop])
            loop.load(seeds.index(0), *before.save(0))
        while loop.runs[seeds.index(0)].samples < 96:
            loop.advance([96] * len(seeds))
        tensors, state = loop.save(seeds.index(0))
        return repr(state), {k: x.numpy().tobytes() for k, x in tensors.items()}

    assert ended([0], 0) == ended([1, 0], 40) == ended([0, 2, 1], 64)


def test_it_learns_a_short_maze():
    agent = methods.tuned(methods.agent("ppo", batch=64, width=32), {"rollout": "128"})
    loop = Loop(agent, open_task("maze:2"), [StackedRun(s, agent.sigma, 3e-3) for s in (0, 2)], 768)
    before = loop.evaluate(range(2), 4)[0]
    loop.advance([768] * 2)
    assert loop.evaluate(range(2), 4)[0].mean() > -3 and (before == -20).all()


@pytest.mark.slow
def test_it_learns_the_pendulum():
    agent = methods.tuned(methods.agent("ppo", width=64), {"prepare.gamma": "0.9"})
    loop = Loop(agent, open_task("pendulum"), [StackedRun(s, agent.sigma, 1e-3) for s in range(4)], 20_480)
    loop.advance([20_480] * 4)
    assert np.median(loop.evaluate(range(4), 16)[0].mean(1)) > -600


def job(sets=None, **more):
    arm = Arm(sigma=0.625, batch=16, width=16, rate=1e-3)
    return ControlJob("p", "pendulum", "ppo", 0, **{"budget": {"env-steps": 100.0}, "episodes": 2, "arm": arm, **more},
                      sets={"rollout": "32", **(sets or {})})


def test_what_a_rollout_is_prepared_by_is_charged_and_a_budget_in_flop_pays_for_all_of_it(tmp_path):
    """O = 3, A = 1, 16 wide: the actor has 48 + 256 + 32 multiplications, V 16 fewer; V is read twice a sample."""
    end, = run_stack([job()], [tmp_path / "a"])
    actor, value = 336, 320
    action, kept, update = 2 * actor, 2 * (actor + 2 * value), 2 * 16 * 3 * (actor + value)
    assert end["updates"] == 60 and end["flop_of"]["acting"] == 100 * action
    assert end["flop"] == 60 * update + 100 * action + 96 * kept
    assert end["bill"]["train"]["train"] == 60 * 16 * 2 and end["bill"]["train"]["score"] == 100 + 96 * 3
    paid = 50 * update + 64 * (action + kept)       # two rollouts, and half of the updates of a third
    less, = run_stack([job(budget={"flop": float(paid)})], [tmp_path / "b"])
    assert less["flop"] <= paid and (less["updates"], less["samples"] < 96) == (40, True)
    work = control.price(small(), open_task("pendulum"))
    assert (work.prepared.flop, work.action.flop, work.update.flop) == (kept, action, update)
    at = _stop_at(ControlOptions("100-env-steps", stop_at="1e9flop"), job())
    assert at.worth(Cost(env_steps=32, updates=20), Cost(), 0.0) == 32 * (action + kept) + 20 * update


def test_a_budget_in_flop_pays_for_what_a_begun_rollout_is_prepared_by(tmp_path):
    """Half of a rollout, to an evaluation; its rest is not begun where it cannot be prepared and learned from."""
    work = control.price(small(), open_task("pendulum"))
    each = work.action.flop + work.prepared.flop + 0.625 * work.update.flop
    paid = 32 * each - 8 * work.prepared.flop
    end, = run_stack([job(budget={"flop": float(paid)}, points=(16.0,))], [tmp_path / "a"])
    assert end["flop"] <= paid and (end["updates"], 16 < end["samples"] < 32) == (0, True)


def test_a_run_that_is_killed_between_two_rollouts_writes_the_losses_that_it_had(tmp_path):
    def lines(out, **more):
        run_stack([job(points=(32.0, 40.0, 48.0))], [out], save_every=1, save_seconds=0, **more)
        return (out / "metrics.jsonl").read_bytes()

    lines(tmp_path / "b", stop_at=StopAt(45.0, ENV_STEPS, {"env_steps": 1.0}))
    whole = lines(tmp_path / "a")
    assert lines(tmp_path / "b") == whole and b'"env_steps": 48, "updates": 20' in whole


@pytest.mark.parametrize("more, told", [
    ({"sets": {"rollout": "40"}}, "a rollout of 40 samples is no whole number of batches of 16"),
    ({"environments": 3}, "and steps of 3 environments: --set rollout=384"),
    ({"sets": {"rollout": "128"}}, "a budget of 100 samples ends before the first rollout of 128"),
])
def test_rollouts_that_cannot_be(tmp_path, more, told):
    with pytest.raises(UserError, match=told):
        run_stack([job(**more)], [tmp_path / "a"])
    assert not (tmp_path / "a").exists()


def test_ten_epochs_are_usual_and_a_study_of_updates_per_sample_is_refused(tmp_path):
    text = said("train", "ppo", "--control", "bandit", "--batch", 16, "--width", 16, "--budget", "64-env-steps",
                "--set", "rollout=32", "--evaluations", 1, "--out", tmp_path / "r")
    assert "64 samples, 40 updates" in text
    assert "learns from its last rollout" in said(
        "profile", "--control", "bandit", "--method", "ppo", "--out", tmp_path / "s", code=2)
    assert methods.agent("ppo").sigma == 10 / 64 and methods.agent("sac").sigma == 1.0
    assert isinstance(methods.agent("ppo").prepare, partial)
