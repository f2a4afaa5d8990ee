"""Methods that learn from a set and then from samples, by numbers worked from the papers' equations."""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from isocost.control import data, methods
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Draws, Luck
from isocost.control.methods import brc, calql, dsrl, fdvl, parl, sac, wsrl
from isocost.control.networks import Numbers, Params
from isocost.control.parts import mix
from isocost.control.parts.improve import squashed
from isocost.control.parts.tempo import steady
from isocost.control.replay import Replay
from isocost.control.tasks import open_task, random_return
from isocost.control.tasks.family import BEST
from isocost.control.types import Space, Transitions
from isocost.errors import UserError
from isocost.runs import driver
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, agent_of, price, run_stack, updates_of
from isocost.runs.files import read_json, read_lines
from isocost.runs.stop_at import StopAt
from isocost.steps.control.single import ControlOptions, _stop_at, train_control
from isocost.types import Cost
from offline_sets import made


@pytest.fixture(autouse=True, scope="module")
def checkpoints_by_steps_alone():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(driver, "WORTH_SAVING", float("inf"))
        yield


def begun(method, *, first, sigma=4.0, warmup=40, **sets):
    """One run on pendulum with a set of random actions, and its loop."""
    agent = methods.tuned(methods.agent(method, batch=16, width=16, members=3), {"tempo.warmup": str(warmup), **sets})
    run = StackedRun(0, sigma, 1e-3, first=first)
    return run, Loop(agent, open_task("pendulum"), [run], 500, made("pendulum").rows)


def weights(loop):
    return hashlib.sha256(b"".join(w.numpy().tobytes() for w in loop.weights.values())).hexdigest()


# phases -----------------------------------------------------------------------------------------------------------


def test_wsrl_learns_from_the_set_then_waits_then_learns_from_its_own_samples_alone():
    """12 updates on the set; 40 samples without an update; 10 more: 40 updates of the critic and 10 of the actor."""
    run, loop = begun("wsrl", first=12, **{"losses.drawn": "2"})
    loop.advance([12])
    assert (run.updates, run.samples, loop.moments["actor"].steps.item()) == (12, 0, 12)
    taught = weights(loop)
    loop.advance([12 + 40])
    assert (run.samples, run.updates, loop.replay.stored) == (40, 12, [40]) and weights(loop) == taught
    loop.advance([12 + 50])
    assert (run.updates, loop.moments["critic"].steps.item(), loop.moments["actor"].steps.item()) == (52, 52, 22)
    batch = loop.agent.sample(loop.replay.view([0]), 64, Luck([run.source], [0], "test"))
    own = {tuple(x) for x in loop.replay.rows[0, :50, :3].tolist()}
    assert loop.replay.stored == [50] and {tuple(x) for x in batch.observation[0].tolist()} <= own


@pytest.mark.slow
def test_five_thousand_samples_of_warm_up_of_wsrl():
    """As the paper's run: after 5,100 samples 400 updates of the critic and 100 of the actor, 5,100 transitions."""
    agent = methods.tuned(methods.agent("wsrl", batch=16, width=16, members=2), {"losses.drawn": "2"})
    run = StackedRun(0, 4.0, 1e-3, first=4)
    loop = Loop(agent, open_task("pendulum"), [run], 5200, made("pendulum").rows)
    loop.advance([5004])
    taught = weights(loop)
    loop.advance([5004 + 100])
    assert (run.samples, run.updates - 4, loop.moments["actor"].steps.item() - 4) == (5100, 400, 100)
    assert loop.replay.stored == [5100] and weights(loop) != taught


def test_a_batch_beside_a_set_has_its_share_of_each_run_alone():
    """Rows of the set are 100 and more: the last quarter of the batch; in the updates on the set, all of it."""
    replay = Replay.of(Space(1, 1), 2, 8)
    replay.add([0, 1], torch.arange(10).reshape(2, 5, 1).expand(2, 5, 6).float())
    replay.prior = Replay.of_set(Space(1, 1), 2, (100 + torch.arange(30.0))[:, None].expand(30, 6))
    luck = Luck([StackedRun(s, 1.0, 0.0).source for s in (0, 1)], [3, 3], "test")
    seen = mix.beside(replay.view([0, 1]), 16, luck, old=0.25).observation[..., 0]
    assert seen.shape == (2, 16) and (seen[:, :12] < 100).all() and (seen[:, 12:] >= 100).all()
    assert (seen[0, :12] < 5).all() and (seen[1, :12] >= 5).all() and (seen[0] != seen[1]).any()
    alone = mix.beside(replay.view([1]), 16, Luck(luck.sources[1:], [3], "test"), old=0.25)
    assert (alone.observation[0, :, 0] == seen[1]).all()
    assert (mix.beside(replay.prior.view([0]), 8, Luck(luck.sources[:1], [3], "test")).observation >= 100).all()


def test_rlpd_draws_half_from_the_set_and_its_actor_waits():
    run, loop = begun("rlpd", first=0, sigma=20.0)
    loop.advance([42])
    assert (run.updates, loop.moments["critic"].steps.item(), loop.moments["actor"].steps.item()) == (40, 40, 2)
    batch = loop.agent.sample(loop.replay.view([0]), 64, Luck([run.source], [0], "test"))
    kept = {tuple(x) for x in made("pendulum").rows[:, :3].tolist()}
    assert [tuple(x) in kept for x in batch.observation[0].tolist()] == [False] * 32 + [True] * 32


def test_wsrl_is_cal_ql_on_the_set_and_sac_without_entropy_in_its_target_after_it():
    run, loop = begun("wsrl", first=4, **{"losses.drawn": "2"})
    luck, due = Luck([run.source], [0], "test"), frozenset(loop.networks)
    params, slow = Params(loop.networks, loop.weights, due), Params(loop.networks, loop.slow, due)
    on_set = loop.agent.sample(loop.replay.prior.view([0]), 16, luck)
    target = loop.agent.target(on_set, params, slow, luck)
    found = loop.agent.losses(on_set, target, params, luck)
    assert found["critic"] == calql.losses(on_set, target, params, luck, alpha=5.0, drawn=2)["critic"]
    later = on_set._replace(others={})
    assert loop.agent.losses(later, target, params, luck)["critic"] == sac.losses(later, target, params, luck)["critic"]
    loop.weights["temperature"] += 5.0
    assert (wsrl.target(on_set, Params(loop.networks, loop.weights, due), slow, luck) == target).all()


# records ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    path = tmp_path_factory.mktemp("set") / "a.parquet"
    data.write(made("pendulum"), open_task("pendulum").space, path)
    return path


def job(seed, where, method="wsrl", **more):
    arm = Arm({"batch": 16, "width": 16, "rate": 1e-3, "members": 2}, sigma=(1.0, 2.0)[seed % 2])
    sets = {"tempo.warmup": "20", **({"losses.drawn": "2"} if method == "wsrl" else {})}
    return ControlJob(**{"name": f"s{seed}", "task": "pendulum", "method": method, "seed": seed,
                         "budget": {"env-steps": 60.0}, "arm": arm, "points": (1.0, 40.0), "sets": sets, "episodes": 2,
                         "data": str(where), "offline_updates": 30 + 10 * seed, **more})


def left(out):
    end = read_json(out / "end.json")
    bill = {a: {k: v for k, v in c.items() if k != "seconds"} for a, c in end["bill"].items() if a != "lost"}
    last = sorted(out.glob("checkpoints/step-*"))[-1]
    return (out / "metrics.jsonl").read_bytes(), (last / "learner.safetensors").read_bytes(), bill


def test_both_phases_are_billed_recorded_and_resumed_byte_for_byte(where, tmp_path):
    """30 and 40 updates on the set, then 60 samples of which 40 are paid back once or twice, in one stack or alone."""
    whole = [tmp_path / f"whole{s}" for s in (0, 1)]
    ends = run_stack([job(s, where) for s in (0, 1)], whole)
    assert [(e["samples"], e["updates"]) for e in ends] == [(60, 30 + 40), (60, 40 + 80)]
    assert [updates_of(job(s, where)) for s in (0, 1)] == [70, 120]
    about, lines = read_json(whole[1] / "run.json"), read_lines(whole[1] / "metrics.jsonl")
    assert about["offline"]["updates"] == 40 and about["data"]["hash"] == made("pendulum").card["hash"]
    assert [(x["env_steps"], x["updates"]) for x in lines if "return" in x] == [(0, 0), (1, 40), (40, 80), (60, 120)]
    bill, both = ends[1]["bill"]["train"], about["offline"]["flop"] * 40
    assert (bill["env_steps"], bill["updates"]) == (60, 120) and ends[1]["flop"] > both > 30 * about["update"]["flop"]
    assert next(x for x in lines if x["updates"] == 40)["flop"] == both
    seen = []

    def dies(name, line):
        seen.append(line)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(BaseException, match=r".*"):
        run_stack([job(1, where)], [tmp_path / "again"], save_every=1, save_seconds=0, on_step=dies)
    run_stack([job(1, where)], [tmp_path / "again"], save_every=1, save_seconds=0)
    assert left(tmp_path / "again") == left(whole[1])
    with pytest.raises(UserError, match="its offline differs"):
        run_stack([job(1, where, offline_updates=50)], [whole[1]])
    out, own = tmp_path / "stopped", job(1, where)
    for amount, reached in ((f"{both}flop", (0, 40)), ("45-env-steps", (40, 80))):
        asked = ControlOptions("60-env-steps", stop_at=amount, offline=where, offline_updates=40)
        end, = run_stack([own], [out], stop_at=_stop_at(asked, own))     # in one phase, then in the other
        assert (end["reason"], end["samples"], end["updates"]) == ("stopped", *reached)
    run_stack([own], [out])
    assert left(out) == left(whole[1])


def test_a_budget_in_flop_or_updates_pays_for_the_updates_on_the_set(where, tmp_path):
    """Even where an evaluation after the first sample is still to come."""
    first = price(agent_of(job(0, where)), open_task("pendulum")).first.flop
    for budget in ({"flop": 12.5 * first}, {"updates": 12.0}):
        end, = run_stack([job(0, where, budget=budget)], [tmp_path / next(iter(budget))])
        assert (end["updates"], end["samples"], end["flop"]) == (12, 0, 12 * first)


def test_stop_at_in_flop_has_the_price_of_each_phase(where):
    own = job(0, where)
    work = price(agent_of(own), open_task("pendulum"))
    at = _stop_at(ControlOptions("60-env-steps", stop_at="1e9flop", offline=where, offline_updates=30), own)
    for many, worth in ((20, 20 * work.first.flop), (40, 30 * work.first.flop + 10 * work.update.flop)):
        cost = Cost(updates=many, env_steps=5)
        assert at.worth(cost, cost, 0.0) == worth + 5 * work.action.flop and work.first.flop > 2 * work.update.flop
    assert "first" not in StopAt(1.0, "seconds", {}).data()
    on_set = job(0, where, "iql", budget={"updates": 9.0}, offline_updates=0, sets={}, arm=own.arm.but(sigma=1.0))
    at = _stop_at(ControlOptions("9-updates", stop_at="1e9flop", offline=where), on_set)
    assert at.worth(Cost(updates=3, env_steps=5), Cost(), 0.0) == 3 * price(
        agent_of(on_set), open_task("pendulum")).update.flop, "a run on a set acts in evaluations alone"


def test_what_the_set_has_taught_is_evaluated_after_the_first_sample(where, tmp_path):
    train_control("wsrl", "pendulum", ControlOptions(
        "32-env-steps", batch=16, width=16, offline=where, offline_updates=2, evaluations=8, environments=2,
        sets=["tempo.warmup=20", "losses.drawn=2"]), tmp_path / "r")
    lines = [x for x in read_lines(tmp_path / "r" / "metrics.jsonl") if "return" in x]
    assert [(x["env_steps"], x["updates"]) for x in lines][:2] == [(0, 0), (2, 2)]


@pytest.mark.parametrize("method, more, said", [
    ("wsrl", {"data": None}, "wsrl learns from a set: give --offline FILE; `isocost collect pendulum`"),
    ("wsrl", {"offline_updates": 0}, "wsrl learns from the set before its first sample alone: give --offline-updates"),
    ("sac", {"data": None}, "sac has no phase on a set before its samples: leave --offline-updates out"),
    ("iql", {"budget": {"updates": 9.0}}, "iql has no phase on a set"),
    ("wsrl", {"sets": {"sample.old": "1.5"}}, r"sample.old=1.5: .* expects a value in \[0, 1\]"),
])
def test_what_does_not_go_together(where, tmp_path, method, more, said):
    with pytest.raises(UserError, match=said):
        run_stack([job(0, where, method, **{"sets": {}, **more})], [tmp_path / "a"])
    assert not (tmp_path / "a").exists()


# policy classes ---------------------------------------------------------------------------------------------------


class Known(Numbers):
    """A critic that is this function of its input, whatever its weights: (S, 1, B, O + A) -> (S, 1, B, 1)."""

    inputs = 0

    def __init__(self, function, inputs):
        super().__init__((0.0,), 1, slow=True)
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "inputs", inputs)

    outputs = 1

    def __call__(self, weights, x):
        return self.function(x)[..., None] + 0 * weights.sum()


class Drawn(Luck):
    """Luck that gives these numbers."""

    def __init__(self, numbers):
        object.__setattr__(self, "numbers", numbers)

    def normal(self, name, *shape):
        return self.numbers.reshape(1, *shape)


def test_pa_rl_moves_actions_uphill_and_keeps_the_best_of_those_drawn():
    """Q = 3 a₁ − 2 a₂: ten steps of 3e-4 take (0.2, −0.1) to (0.209, −0.106); the two highest of four stay."""
    agent = methods.agent("parl", width=8)
    nets = {**agent.networks(Space(1, 2), agent), "critic": Known(lambda x: 3 * x[..., 1] - 2 * x[..., 2], 3)}

    class Still(parl.FlowPolicy):
        def act(self, params, seen, noise):
            return noise

    nets["actor"] = Still(4, 2, 8, numbers=2)
    params = Params(nets, {"critic": torch.zeros(1, 1, 32), "actor": torch.zeros(1, 1, nets["actor"].size)})
    noise = torch.tensor([[[0.2, -0.1], [0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]]])
    luck = Drawn(noise)
    action, value = parl.improved(params, torch.zeros(1, 1, 1), luck, "here", drawn=4, kept=2, steps=10, rate=3e-4)
    found = {tuple(round(x, 6) for x in a) for a in action[0, 0].tolist()}
    assert found == {(0.209, -0.106), (1.0, -1.0)}      # the other is at the bounds
    assert sorted(value[0, 0].tolist()) == pytest.approx([3 * 0.209 + 2 * 0.106, 5.0], abs=1e-5)
    assert parl.picked(action, value.argmax(-1))[0, 0].tolist() == [1.0, -1.0]
    one, _ = parl.improved(params, torch.zeros(1, 1, 1), Drawn(noise[:, :1]), "here", drawn=1, kept=1, steps=0)
    assert (one[0, 0, 0] == noise[0, 0]).all()          # m = 1 without a step: its own samples


def known(method, functions, width=8):
    """Its networks on one number and two actions, these being what the functions are, and their weights."""
    agent = methods.agent(method, width=width)
    nets = {**agent.networks(Space(1, 2), agent), **{k: Known(f, 3) for k, f in functions.items()}}
    weights = {k: torch.from_numpy(n.start(np.random.default_rng(0)))[None] for k, n in nets.items()}
    return Params(nets, weights, frozenset(nets))


def test_the_penalty_of_pa_rl_ends_at_the_return_of_the_set():
    """Q = 0 everywhere and R = 2: log of the mean of exp max(Q, R) less Q is 2, by alpha 1/2."""
    params, luck = known("parl", {"critic": lambda x: 0 * x[..., 0]}), Luck([Draws(0)], [0], "test")
    batch = Transitions(torch.zeros(1, 4, 1), torch.zeros(1, 4, 2), torch.zeros(1, 4), torch.zeros(1, 4, 1),
                        torch.ones(1, 4), {"return": torch.full((1, 4), 2.0)})
    few = partial(parl.improved, drawn=4, kept=2, steps=0)
    with_it, without = (parl.losses(batch, torch.zeros(1, 4), params, luck, better=few, alpha=alpha)["critic"].item()
                        for alpha in (0.5, 0.0))
    assert with_it - without == pytest.approx(1.0)


def test_the_value_of_noise_in_dsrl_is_that_of_the_action_it_becomes():
    """Q = 3 and W = 5 everywhere: a loss of 4."""
    params = known("dsrl", {"critic": lambda x: 0 * x[..., 0] + 3, "latent": lambda x: 0 * x[..., 0] + 5})
    x, action = torch.zeros(1, 4, 1), torch.zeros(1, 4, 2)
    batch = Transitions(x, action, torch.zeros(1, 4), x, torch.ones(1, 4))
    found = dsrl.losses(batch, torch.zeros(1, 4), params, Luck([Draws(0)], [0], "test"))
    assert found["latent"].item() == pytest.approx(4.0)


def on_bandit(space, agent, *, policy="flow"):
    def value(x):
        high, low = ((x[..., 1:] - 0.5) ** 2).sum(-1), ((x[..., 1:] + 0.5) ** 2).sum(-1)
        return torch.maximum((-high / 0.08).exp(), 0.8 * (-low / 0.5).exp()) / 0.05     # logits of π_opt

    return {**parl.networks(space, agent, policy=policy), "critic": Known(value, 3)}


@pytest.mark.parametrize("policy, rate", [("flow", 5e-3), ("gaussian", 2e-2), ("binned", 5e-3)])
def test_pa_rl_teaches_each_class_of_policy_the_higher_peak(policy, rate):
    """With the true Q of the bandit and a set of uniform actions, the policy's own actions come to the narrow peak."""
    few = {f"{seam}.better.{name}": value for seam in ("losses", "explore") for name, value in (
        ("kept", "4"), ("steps", "5"), ("rate", "2e-3"))}
    none = {f"target.better.{name}": value for name, value in (("drawn", "1"), ("kept", "1"), ("steps", "0"))}
    agent = methods.agent("parl", batch=16, width=32).but(networks=partial(on_bandit, policy=policy))
    agent = methods.tuned(agent, {**few, **none, "losses.cloning": "80"})
    task = open_task("bandit")
    loop = Loop(agent, task, [StackedRun(0, 1.0, rate, first=200)], 10, made("bandit", 1000).rows)
    loop.advance([200])
    params = Params(loop.networks, loop.weights)
    noise = Luck([Draws(1)], [0], "test").normal("own", 256, 2)
    own = loop.networks["actor"].act(params, torch.ones(1, 256, 1), noise)[0]
    assert task.value(own.numpy()).mean() > 0.6 > 0.45 > random_return("bandit")
    assert (own > 0).all(-1).float().mean() > 0.9       # the quadrant of the higher peak
    assert loop.evaluate([0], 8)[0].min() > 0.9


def test_a_gaussian_whose_log_sd_begins_above_0_narrows():
    """Actions at 0 and a log sd of 0.4: the loss is 0.4 for each of two numbers, and falls with it by 1."""
    actor = methods.agent("parl").but(networks=partial(parl.networks, policy="gaussian"))
    policy = actor.networks(Space(1, 2), actor)["actor"]
    spread = torch.full((1, 1, 3, 2), 0.4, requires_grad=True)
    loss = policy.taught(lambda *_: torch.cat((torch.zeros_like(spread), spread), -1), torch.ones(1, 3, 1),
                         torch.zeros(1, 3, 2), None)
    loss.sum().backward()
    assert loss.item() == pytest.approx(0.8) and spread.grad.sum().item() == pytest.approx(2.0)


def test_dsrl_steers_a_flow_that_stays_as_it_is():
    """30 updates change the flow alone; after them it is never written, and noise is within its bound."""
    agent = methods.tuned(methods.agent("dsrl", batch=16, width=16), {"tempo.warmup": "10"})
    loop = Loop(agent, open_task("reach"), [StackedRun(0, 1.0, 1e-3, first=30)], 100, made("reach", navigate=1.0).rows)
    before = {k: w.clone() for k, w in loop.weights.items()}
    loop.advance([30])
    moved = {k: bool((w != before[k]).any()) for k, w in loop.weights.items()}
    assert [k for k, m in moved.items() if m] == ["flow"]
    taught = {k: w.clone() for k, w in loop.weights.items()}
    loop.advance([60])
    assert {k for k, w in loop.weights.items() if (w != taught[k]).any()} == {
        "actor", "critic", "latent", "temperature"}


def test_dsrl_with_the_identity_as_its_generator_is_sac_without_entropy_in_its_target():
    """A flow of constant velocity 0 and b = 1 gives a = w; b → 0 is the end of noise 0."""
    agent = methods.agent("dsrl", width=8, batch=4)
    nets = agent.networks(Space(2, 2), agent)
    weights = {k: torch.from_numpy(n.start(np.random.default_rng(1)))[None] for k, n in nets.items()}
    weights["flow"] = torch.zeros_like(weights["flow"])
    params, luck = Params(nets, weights, frozenset(nets)), Luck([Draws(0)], [0], "test")
    seen = luck.normal("x", 4, 2)
    latent = squashed(params, seen, luck.normal("z", 4, 2))[0]
    action = dsrl.steered(params, seen, latent, 1.0, 10)
    assert (latent == action).all() and (dsrl.steered(params, seen, latent, 0.0, 10) == 0).all()
    batch = Transitions(seen, action, torch.zeros(1, 4), seen, torch.ones(1, 4))
    noiseless = {k: w - 60 if k == "temperature" else w for k, w in weights.items()}
    y = dsrl.target(batch, params, params, luck, bound=1.0)
    assert (y == sac.target(batch, Params(nets, noiseless), params, luck)).all()


@pytest.mark.slow
def test_dsrl_finds_the_better_mode_of_its_demonstrations():
    agent = methods.tuned(methods.agent("dsrl", batch=64, width=32), {"tempo.warmup": "50"})
    loop = Loop(agent, open_task("reach"), [StackedRun(0, 4.0, 3e-3, first=600)], 500,
                made("reach", 2000, navigate=1.0).rows)
    loop.advance([600])
    loop.advance([1000])
    assert loop.evaluate([0], 32)[0].mean() > 0.9


# several tasks ----------------------------------------------------------------------------------------------------


def test_brc_shares_mass_between_the_nearest_atoms():
    """All mass at 2.0, r 0.5, γ 0.99: 0.6 at 2.4 and 0.4 at 2.6, mean 2.48; what is clipped stays 1."""
    atoms = torch.linspace(-10, 10, 101)
    mass = torch.zeros(101)
    mass[60] = 1
    found = brc.projected(mass, 0.5 + 0.99 * atoms, atoms)
    assert found[[62, 63]].tolist() == pytest.approx([0.6, 0.4], abs=1e-4) and found.sum().item() == pytest.approx(1)
    assert (found * atoms).sum().item() == pytest.approx(2.48, abs=1e-4)
    for moved in (atoms, atoms + 50, atoms - 50):       # on the atoms themselves, and beyond both ends
        assert brc.projected(torch.full((101,), 1 / 101), moved, atoms).sum().item() == pytest.approx(1)


def test_brc_names_the_task_by_a_direction_that_the_actor_does_not_train_and_scales_rewards_by_task():
    task, agent = open_task("family:3"), methods.agent("brc", batch=32, width=16)
    loop = Loop(agent, task, [StackedRun(s, 1.0, 1e-3) for s in (0, 1)], 400)
    loop.agent = agent.but(tempo=partial(steady, warmup=400))
    loop.advance([300, 300])
    net, weights = loop.networks["critic"], loop.weights["critic"]
    seen = loop.replay.rows[:, :40, :6]
    placed = net.placed(weights, seen[:, None])
    assert placed.shape == (2, 2, 40, 3 + 32) and torch.allclose(placed[..., 3:].norm(dim=-1), torch.ones(1))
    assert (placed[0, 0, 0, 3:] == placed[0, 0, 1, 3:]).all()       # one episode, one task
    luck = Luck([r.source for r in loop.runs], [0, 0], "test")
    batch = loop.agent.sample(loop.replay.view([0, 1]), 32, luck)
    rows = loop.replay.rows[1]
    which = batch.observation[1, 0, 3:].argmax()
    most = rows[rows[:, 3:6].argmax(-1) == which][:, 7].abs().max()
    assert batch.others["scale"][1, 0].item() == pytest.approx(100 * most.item(), rel=1e-5)
    held = {k: w.clone().requires_grad_() for k, w in loop.weights.items()}
    params, slow = Params(loop.networks, held, frozenset(held)), Params(loop.networks, loop.slow)
    with torch.no_grad():
        target = agent.target(batch, params, slow, luck)
    assert torch.allclose(target.sum(-1), torch.ones(1), atol=1e-5)
    near = batch._replace(discount=torch.full_like(batch.discount, 0.5))        # nothing is clipped
    with torch.no_grad():
        mean = (agent.target(near, params, slow, luck) * net.atoms).sum(-1)
        action, surprise = squashed(params, brc.for_actor(params, near.following), luck.normal("next", 32, 1))
        after = (slow("critic", near.following, action).softmax(-1).mean(1) * net.atoms).sum(-1) - 0.1 * surprise
    by = (batch.others["scale"] + 0.1 * 100 / 4) / 10
    assert torch.allclose(mean, near.reward / by + 0.5 * after, atol=1e-4)
    loss = agent.losses(batch, target, params, luck)["actor"].sum()
    assert torch.autograd.grad(loss, held["critic"], allow_unused=True) == (None,)


def test_brc_on_several_tasks_is_the_same_alone_and_in_a_stack():
    def ended(seeds):
        agent = methods.tuned(methods.agent("brc", batch=16, width=16), {"tempo.warmup": "250"})
        loop = Loop(agent, open_task("family:3"), [StackedRun(s, 1.0, 1e-3) for s in seeds], 400)
        loop.advance([260] * len(seeds))
        assert loop.replay.rows[0, :260, 3:6].sum(0).count_nonzero() == 2      # two episodes, of two tasks
        return b"".join(w[0].numpy().tobytes() for w in loop.weights.values())

    assert ended([3]) == ended([3, 0, 1])


def test_a_family_has_the_pendulum_in_its_middle_and_names_each():
    family, pendulum = open_task("family:3"), open_task("pendulum")
    assert family.lengths.tolist() == pytest.approx([0.8, 1.0, 1.2]) and family.space == Space(6, 1, tasks=3)
    state, action = np.array([[0.1, 0.2, 1.0]]), np.array([[1.0]])
    after, reward, _ = family.step(state, action)
    theirs, paid, _ = pendulum.step(state[:, :2], action)
    assert np.allclose(after[:, :2], theirs) and reward == paid and after[0, 2] == 1
    short, _, _ = family.step(np.array([[0.1, 0.0, 0.0]]), np.array([[0.0]]))
    assert short[0, 1] == pytest.approx(15 / 0.8 * np.sin(0.1) * 0.05)
    assert family.observe(state)[0, 3:].tolist() == [0, 1, 0]
    stiff, _, _ = family.step(np.array([[0.0, 0.0, 0.0]]), np.array([[1.0]]))
    assert stiff[0, 1] == pytest.approx(3 / 0.8**2 * 0.05), "3 u / (m l²)"
    assert not family.step(np.zeros((1, 3)), np.zeros((1, 1)))[2].any(), "upright is no end"
    assert family.reference == pytest.approx((BEST[0.8] + BEST[1.0] + BEST[1.2]) / 3)
    assert family.limit == pendulum.limit and random_return("family:2") < -1000


def test_the_two_places_of_reach_pay_1_and_a_half_and_demonstrations_go_to_both():
    task, found = open_task("reach"), made("reach", 1000, navigate=1.0)
    states = np.array([[0.0, 0.0]] * 2)
    for _ in range(3):
        states, reward, ended = task.step(states, np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert reward.tolist() == [1.0, 0.5] and ended.all() and states[:, 0].tolist() == pytest.approx([0.6, -0.6])
    assert 0.7 < found.card["return"]["mean"] < 0.8 and found.card["cut"] == 0
    far, paid, _ = task.step(np.array([[0.55, 0.0], [0.65, 0.0]]), np.array([[9.0, 0.0], [-0.3, 0.0]]))
    assert far[:, 0].tolist() == pytest.approx([0.75, 0.59]) and paid.tolist() == [1.0, 0.0], "a stride is 0.2"
    assert task.reference == reward.max(), "that of the better place"
    late = data.make(replace(task, limit=4), {"navigate": 1.0}, 300, 0)
    *_, end, cut = data.split(task.space, late.rows)
    lengths = np.diff(np.flatnonzero(np.append(1.0, end + cut)))
    assert (end[cut > 0] == 0).all() and 4 in lengths[end[end + cut > 0] > 0], "an end at the limit is an end"
    begun = found.rows[:, :2].abs().amax(-1) < 0.1
    assert 0.3 < (found.rows[begun, 2] > 0.3).float().mean() < 0.7 and random_return("reach") < 0.2


# duals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence, f", [("chi2", lambda w: (w - 1) ** 2)])
def test_the_conjugates_of_f_dvl_by_maximisation(divergence, f):
    """f*(y) = max over w >= 0 of w y − f(w): flat at −1 below −2, and nowhere rising again."""
    w = np.linspace(0, 6, 600_001)
    for y in (-9.0, -4.0, -2.0, -0.7, 0.0, 1.3, 4.0):
        assert fdvl.conjugate(torch.tensor(y), divergence).item() == pytest.approx((w * y - f(w)).max(), abs=1e-6)
    assert fdvl.conjugate(torch.tensor([-2.0, 0.0, 3.0]), "tv").tolist() == [0, 0, 3]
    with pytest.raises(UserError, match="divergence is 'kl': expected chi2 or tv"):
        fdvl.conjugate(torch.zeros(1), "kl")


def test_the_value_of_f_dvl_is_an_implicit_maximum_with_tv():
    """Q of 0 and 1 with the same chance: (1 − λ) V + λ max(Q − V, 0) has its least at 1 for λ > 2/3, at 0 below 1/2."""
    q, at = torch.tensor([0.0, 1.0]), torch.linspace(-0.5, 1.5, 2001)
    for weight, best in ((0.8, 1.0), (0.6, 0.0), (0.4, -0.5)):
        loss = (1 - weight) * at + weight * fdvl.conjugate(q[:, None] - at, "tv").mean(0)
        assert at[loss.argmin()].item() == pytest.approx(best, abs=1e-3)


# learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method, sets, first, sigma, samples, least", [
    ("fdvl", {}, 0, 1.0, 300, 0.4),
    *(pytest.param(*more, marks=pytest.mark.slow) for more in (
        ("brc", {"tempo.warmup": "50"}, 0, 2.0, 250, 0.6),
        ("rlpd", {"tempo.warmup": "50", "tempo.actor_every": "2"}, 0, 4.0, 400, 0.7),
        ("wsrl", {"tempo.warmup": "20", "tempo.actor_every": "2", "losses.drawn": "2"}, 100, 4.0, 300, 0.7))),
])
def test_it_learns_the_bandit_from_a_set_of_random_actions_or_samples(method, sets, first, sigma, samples, least):
    """Random actions return 0.295, and the lower of the two peaks 0.8."""
    agent = methods.tuned(methods.agent(method, batch=32, width=32, members=2), sets)
    rows = made("bandit", 1000).rows if agent.offline or agent.warms else None
    loop = Loop(agent, open_task("bandit"), [StackedRun(0, sigma, 3e-3, first=first)], samples, rows)
    loop.advance([first + samples])
    assert loop.evaluate([0], 16)[0].mean() > least > random_return("bandit") + 0.1
