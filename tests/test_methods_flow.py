"""The flow world: its steps by hand, what sampler and learner agree on, what is charged, and what trains in it."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from isocost import meter
from isocost.batch import Forward
from isocost.chance import Purpose
from isocost.credit import credited
from isocost.doctor.model import diagnose
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import branchgrpo, gdro, grpo, pirl, solrl
from isocost.pack import pack
from isocost.parts.play import fork, given, sample
from isocost.parts.reward import verified
from isocost.planner.training.learning_rate import starting_rule
from isocost.runs.arm import Arm
from isocost.runs.files import read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.seams import Pace
from isocost.steps.look.evaluate import evaluate
from isocost.steps.settings import setting_of
from isocost.steps.training.single import starting_rule_of
from isocost.tasks.builtin import modes
from isocost.types import Group, Place, Role, Sampling, Score, Stop
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.spec import spec_of
from isocost.worlds.tiny import flow

SETTING = Setting.of(model="flow2d:modes", data="modes:count=120", max_tokens=modes.STATES, held_out=0.4, samples=2)


def opened(reference=False, **changes):
    return open_setting(SETTING.but(**changes), reference=reference)


@pytest.fixture(scope="module")
def there():
    made = opened(reference=True)
    yield made
    made.close()


def play(world, attempts=8, temperature=1.0, slot=0, **changes):
    pace = Pace(lr=0.0, max_tokens=modes.STATES, sampling=Sampling(temperature), **changes)
    return asyncio.run(sample(world.problems[slot], range(attempts), world, pace, Place(1, 0, slot)))


def batch_of(world, rollouts, rewards):
    scored = tuple(r.scored(Score(float(x))) for r, x in zip(rollouts, rewards, strict=True))
    return pack([Group(rollouts[0].problem, scored, Place(1, 0, 0))], world.engine.version)


class Still(torch.nn.Module):
    """A velocity that is (0.5, −1) everywhere."""

    def forward(self, x, t, prompt):
        return torch.tensor([0.5, -1.0], dtype=flow.WIDE).expand(len(x), 2)


def test_a_step_is_the_equation_of_the_paper_by_hand():
    policy = flow.Flow(0.5, False)
    policy.velocity = Still()
    x, k, warm = torch.tensor([[1.0, 0.0]] * 3, dtype=flow.WIDE), torch.tensor([0, 5, 9]), torch.ones(3)
    mean, sd = policy(x, k, x, warm)
    # t = 1, δ = 0.1: x0 = (0.5, 1), x1 = (1, 0); σ² = 0.25 · 1 / 0.1 = 2.5; x0 0.1 + x1 (0.9 − 0.125)
    # t = 0.5: x0 = (0.75, 0.5), x1 = (1.25, −0.5); σ² = 0.25; x0 0.6 + x1 (0.4 − 0.025);   t = 0.1: x0, no noise
    torch.testing.assert_close(mean, torch.tensor(
        [[0.05 + 0.775, 0.1], [0.45 + 0.46875, 0.3 - 0.1875], [0.95, 0.1]], dtype=flow.WIDE))
    torch.testing.assert_close(sd, torch.tensor([0.25, 0.025, 0.0], dtype=flow.WIDE).sqrt())
    mean, sd = policy(x, k, x, 0 * warm)           # without noise it is Euler's step
    torch.testing.assert_close(mean, x - 0.1 * torch.tensor([0.5, -1.0], dtype=flow.WIDE))
    assert not sd.any()
    learned = flow.Flow(0.5, True)
    torch.testing.assert_close(learned(x, k, x, 0.5 * warm)[1], 0.5 * learned(x, k, x, warm)[1])


def test_a_token_is_a_point_and_the_text_is_the_last_one():
    points = np.array([[0.1, -2.5], [-0.0, 3e-8]], dtype=np.float32)
    tokens = flow.tokens_of(points)
    assert tokens.dtype == np.int64 and (flow.points_of(tokens) == points).all()
    text = flow.PlaneText()
    assert text.decode(tokens[:1].tolist()) == "0.100000 -2.500000"
    assert text.encode("") == [] and len(text.prompt([modes.Message("user", "45.0")])) == 1
    with pytest.raises(UserError, match=r"reads no text but a direction, so not '0\.5 -1\.5'"):
        text.encode("0.5 -1.5")             # as SAPO and hints would
    for words in (["17+25="], ["45.0", "5"]):
        with pytest.raises(UserError, match="is not a direction"):
            text.prompt([modes.Message("user", x) for x in words])


@pytest.mark.parametrize("options", [{}, {"learned_noise": True}, {"noise": 0.3}])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_learner_gives_the_densities_that_the_sampler_recorded(options, temperature):
    world = opened(**options).world
    rollouts = play(world, temperature=temperature)
    batch = batch_of(world, rollouts, [0] * 8)
    out = world.learner.score(batch)
    torch.testing.assert_close(out.logp.float(), batch.logp, atol=2e-6, rtol=2e-6)
    assert batch.mask.sum(-1).tolist() == [modes.STATES] * 8
    assert not batch.logp[:, -1].any() and batch.logp[:, 1:-1].all()          # the last step has no noise
    k = torch.arange(9)
    x, prompt, warm = torch.zeros(9, 2), torch.zeros(9, 2), torch.full((9,), temperature)
    if not world.engine.policy.spread:      # 1 + log 2π + 2 log sd, the same for all points
        sd = world.engine.policy(x.double(), k, prompt.double(), warm.double())[1]
        torch.testing.assert_close(out.entropy[0, 2:11], 1 + np.log(2 * np.pi) + 2 * sd.log())


def test_noise_keeps_the_shares_of_the_regions(there):
    world, shares = there.world, []
    centres = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    for temperature in (1.0, 1e-9):
        ends = np.array([modes.point(r.final) for r in play(world, 2000, temperature)])
        apart = np.linalg.norm(ends[:, None] - centres, axis=-1)
        shares.append(np.bincount(apart.argmin(-1), minlength=4) / 2000)
        assert (apart.min(-1) < 0.6).mean() > 0.8
    np.testing.assert_allclose(*shares, atol=0.05)       # 3 standard errors of a difference are 0.041
    np.testing.assert_allclose(shares, 0.25, atol=0.06)


def test_steps_are_charged_and_a_fork_pays_for_its_own():
    world = opened().world
    (trunk,) = play(world, 1)
    cost = world.meter.of()
    assert (cost.decode, cost.prefill, cost.score) == (10, 0, 0)
    pace = Pace(lr=0.0, max_tokens=modes.STATES)
    (leaf,) = asyncio.run(fork(trunk, 8, [1], world, pace, Place(1, 0, 0)))      # after the prompt and 7 points
    assert world.meter.of().decode == 10 + 4
    assert leaf.parent == (0, 8) and (leaf.segments[0].tokens[:8] == trunk.segments[0].tokens[:8]).all()
    assert (leaf.segments[0].tokens[8:11] != trunk.segments[0].tokens[8:11]).all()
    (again,) = asyncio.run(sample(trunk.problem, [0], world, pace, Place(1, 0, 0), trunk.cut(5)))
    assert (again.segments[0].tokens == trunk.segments[0].tokens).all() and again.final == trunk.final
    batch = batch_of(world, [trunk, leaf], [0, 1])
    before = world.meter.of()
    world.learner.score(batch)
    assert (world.meter.of() - before).score == 22         # of each path ten steps and the first point
    taught = batch.but(advantage=batch.logp, weight=batch.mask.double())
    for learn, updates in ((lambda: world.learner.update(taught, gdro.loss, lr=0.0), 1),
                           (lambda: list(world.learner.gradients(taught, gdro.loss)), 0)):
        before = world.meter.of()
        learn()
        cost = world.meter.of() - before
        assert (cost.train, cost.updates, cost.score) == (22, updates, 0)
    assert opened(learned_noise=True).world.learner.parameters == world.learner.parameters + sum(
        x.numel() for x in flow.Field(1).parameters()), "the network of the noise is paid for in each pass"
    before = world.meter.of()
    world.critic.fit(batch, world.critic.values(batch) + 1, lr=0.0)      # of the first point, too
    cost = world.meter.of() - before
    assert (cost.score, cost.train, cost.updates) == (22, 22, 1) and cost.seconds > 0
    before = world.meter.of()
    asyncio.run(sample(trunk.problem, [4, 5], world, pace, Place(1, 0, 0), given(trunk.segments[0], 12)))
    cost = world.meter.of() - before
    assert (cost.decode, cost.rollouts) == (0, 2), "attempts at the end of a path begin, and write nothing"


def test_a_cancelled_attempt_leaves_the_pass_that_it_waits_for():
    world, rows = opened().world, []
    policy = world.engine.policy
    policy.register_forward_hook(lambda module, given, out: rows.append(len(given[0])))

    async def two():
        x = torch.zeros(1, 2).double()
        tasks = [asyncio.create_task(world.engine.passed(x, torch.tensor([1]), x, torch.ones(1).double()))
                 for _ in range(2)]
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(two())
    assert isinstance(first, asyncio.CancelledError) and len(second) == 3 and rows == [1]


def test_company_changes_no_point():
    world = opened().world
    alone = play(world, 1)[0]
    among = play(world, 300)[0]
    assert (alone.segments[0].tokens == among.segments[0].tokens).all()


def test_a_halted_wave_ends(there):
    there.world.engine.halt(Place(1, 77, 0))
    pace = Pace(lr=0.0, max_tokens=modes.STATES)
    (said,) = asyncio.run(sample(there.world.problems[0], [0], there.world, pace, Place(1, 77, 0)))
    assert said.stop == "cancelled" and said.segments[0].written == 0


@pytest.mark.parametrize(("changes", "said"), [
    ({"model": "flow2d:circle"}, "there is no flow policy 'circle': give flow2d:modes"),
    ({"noise": 0.0}, "--noise is 0: give a number above 0"),
    ({"data": "sums:level=1"}, "is not a direction"),
])
def test_what_it_cannot_do_is_one_line(changes, said):
    with pytest.raises(UserError, match=said):
        opened(**changes)


def test_what_has_no_language_model_is_neither_diagnosed_nor_evaluated_again(tmp_path):
    with pytest.raises(UserError, match="doctor checks language models, and flow2d:modes is none"):
        diagnose("flow2d:modes", data="modes")
    asyncio.run(run(job("grpo", export=True), tmp_path / "r"))
    with pytest.raises(UserError, match="its model is not written as a Hugging Face folder"):
        evaluate(tmp_path / "r")


def test_its_name_has_no_address_and_its_options_arrive_with_its_problems():
    asked = setting_of({"data": "modes", "noise": 0.4})
    assert (asked.model, asked.world.noise, asked.lengths.max_tokens, asked.machine.threads) == (
        "flow2d:modes", 0.4, 11, 1)
    assert str(spec_of("flow2d:modes")) == "flow2d:modes" and spec_of("flow2d:modes").url == ""


def test_a_run_without_a_learning_rate_begins_at_that_of_its_models_size():
    sizes = {"flow2d:modes": 4866, "masked:sums": 26733, "vllm:http://localhost:1#tiny": 83264}
    for model, size in sizes.items():
        rule = starting_rule_of(Setting.of(model=model))
        assert rule == starting_rule(size), (model, rule)


# branches ---------------------------------------------------------------------------------------------------------

def tree(world, attempts=8, **settings):
    pace = Pace(lr=0.0, max_tokens=modes.STATES)
    place = Place(1, 0, 0, Purpose.TRAIN)
    return asyncio.run(branchgrpo.play(world.problems[0], range(attempts), world, pace, place, **settings))


def test_a_tree_has_its_forks_where_it_says_and_every_edge_once():
    world = opened().world
    leaves = tree(world)
    assert [r.parent for r in leaves] == [
        None, (0, 2), (0, 5), (1, 5), (0, 8), (1, 8), (2, 8), (3, 8)]      # the prompt is a token, too
    own = np.stack([r.segments[0].role == Role.OWN for r in leaves])
    assert own.sum(0).tolist() == [0, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8]
    assert world.meter.of().decode == 10 + 10 + 2 * 7 + 4 * 4 and world.meter.of().rollouts == 8
    tokens = np.stack([r.segments[0].tokens for r in leaves])
    assert [len({*t}) for t in tokens.T.tolist()] == [1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8]


def test_credit_is_compared_within_each_depth():
    """Leaves 1 0 | 1 1 below the first fork: values 0.5 and 1, then 1, 0, 1, 1."""
    world = opened().world
    leaves = tree(world, 4, forks=(1, 4))
    assert [r.parent for r in leaves] == [None, (0, 2), (0, 5), (1, 5)]
    batch = batch_of(world, leaves, [1, 1, 0, 1])
    value, below = branchgrpo.values(batch)
    assert value[0].tolist() == [0.75, 0.75, *[0.5] * 3, *[1] * 7] and below[0].tolist() == [4, 4, 2, 2, 2, *[1] * 7]
    got = branchgrpo.advantage(batch, None, eps=0.0)
    half = 0.25 / (2 * 0.25**2) ** 0.5
    np.testing.assert_allclose(got[:, 3].tolist(), [-half, half, 0, 0], atol=1e-6)
    np.testing.assert_allclose(got[:, 8].tolist(), [0.5, 0.5, -1.5, 0.5], atol=1e-6)
    assert not got[:, :2].any() and np.allclose(got.sum(0), 0, atol=1e-6)
    weight = branchgrpo.weight(batch)
    np.testing.assert_allclose(weight.sum(0)[1:].tolist(), [1 / 11] * 11, atol=1e-6)      # every depth has four leaves
    assert np.allclose(weight[:, 3].tolist(), [2 / 44, 2 / 44, 0, 0])


def test_without_forks_it_is_grpo(there):
    rollouts, rewards = play(there.world, 6), [1, 0, 0, 1, 1, 0]
    batch = batch_of(there.world, rollouts, rewards)
    torch.testing.assert_close(branchgrpo.advantage(batch, None), grpo.advantage(batch, None))
    plain = tree(there.world, 6, forks=())
    assert [r.parent for r in plain] == [None] * 6


# groups of known rewards -------------------------------------------------------------------------------------------

def test_gdro_of_two_is_the_logistic_loss_and_equal_rewards_ask_for_equal_shares(there):
    world = there.world
    batch = batch_of(world, play(world, 2), [0, 1])
    moved = torch.tensor([0.7, -0.4], dtype=torch.float32)        # log π / π_0 of the paths
    batch = batch.but(extra={"reference": batch.logp - moved[:, None] / 11 * batch.mask})
    s = moved.double().requires_grad_()
    (-torch.nn.functional.logsigmoid(2 * (s[1] - s[0]))).backward()     # β = 2, τ → 0
    got = gdro.advantage(batch, None, beta=2.0, tau=1e-3)
    np.testing.assert_allclose(got[:, 5].tolist(), (-s.grad).tolist(), atol=1e-5)
    assert np.ptp(got[0, 1:].numpy()) == 0
    even = gdro.advantage(batch.but(reward=torch.ones(2)), None, beta=1.0)
    want = 0.5 - torch.softmax(moved, 0)
    np.testing.assert_allclose(even[:, 5].tolist(), want.tolist(), atol=1e-6)


def test_gdros_credit_is_the_slope_of_its_loss(there):
    world, r = there.world, [0.2, 0.9, 0.9, 0.0, 0.5]
    batch = batch_of(world, play(world, 5), r)
    moved = torch.linspace(-1, 0.5, 5)
    batch = batch.but(extra={"reference": batch.logp - moved[:, None] / 11 * batch.mask})
    s = moved.double().requires_grad_()
    order = torch.tensor(r, dtype=torch.float64).argsort(descending=True, stable=True)
    ranked, rewards = s[order], torch.tensor(r, dtype=torch.float64)[order]
    loss = sum(ranked[i:].logsumexp(0) - (torch.softmax(rewards[i:] / 0.3, 0) * ranked[i:]).sum() for i in range(4))
    loss = loss - 0.5 * s[order[0]]
    loss.backward()
    got = gdro.advantage(batch, None, beta=1.0, tau=0.3, gamma=0.5)[:, 4]
    np.testing.assert_allclose(got.tolist(), (-s.grad).tolist(), atol=1e-5)


def test_gdros_second_update_has_the_slope_at_the_policy_after_the_first(there):
    batch, taught = batch_of(there.world, play(there.world, 2), [0, 1]), []
    batch = batch.but(extra={"reference": batch.logp}, advantage=batch.logp * 0)
    now = batch.logp + torch.tensor([[0.3], [-0.2]]) * batch.mask

    class Learner:
        def score(self, batch):
            return Forward(now, now)

        def update(self, batch, loss, *, lr):
            taught.append(batch.advantage)
            return {"loss": 0.0}

    gdro.improve(batch, gdro.recipe(), SimpleNamespace(learner=Learner()), Ledger(), epochs=2)
    assert torch.equal(taught[0], batch.advantage)
    torch.testing.assert_close(taught[1], gdro.advantage(batch.but(logp=now), None))


def test_the_ratio_of_a_path_is_the_product_of_its_steps(there):
    world = there.world
    batch = batch_of(world, play(world, 2), [0, 1])
    out = world.learner.score(batch)
    moved = 0.1 * batch.mask                                     # log ρ of every step
    batch = batch.but(old=(out.logp - moved).float(), advantage=-torch.ones_like(batch.logp) * batch.mask)
    for over, ratio in (("step", np.exp(0.1)), ("mean", np.exp(0.1)), ("path", np.exp(1.1))):
        loss, _ = pirl.loss(out, batch, over=over)
        np.testing.assert_allclose(loss[batch.mask].tolist(), ratio, rtol=1e-5)
    with pytest.raises(UserError, match=r"loss.over is 'chunk'; expected step, path or mean"):
        pirl.loss(out, batch, over="chunk")


# cheap candidates -------------------------------------------------------------------------------------------------

def candidates(world, attempts=8, wave=0, **settings):
    """What Sol-RL trains on, with exact candidates unless the settings say otherwise, and its verified group."""
    pace, place = Pace(lr=0.0, max_tokens=modes.STATES), Place(1, wave, 0)
    given = {"times": 4, "bits": 0, "steps": flow.STEPS, "price": 1.0} | settings
    with meter.begins(True):
        made = asyncio.run(solrl.play(world.problems[0], range(attempts), world, pace, place, **given))
    return asyncio.run(verified(Group(world.problems[0], tuple(made), place), world))


def test_exact_candidates_are_best_and_worst_of_n_and_are_charged():
    world = opened().world
    group, cost = candidates(world), world.meter.of()
    assert (cost.decode, cost.rollouts, cost.verify) == (32 * 10 + 8 * 10, 8, 32 + 8)
    every = asyncio.run(verified(Group(world.problems[0], tuple(play(world, 32)), Place(1, 0, 0)), world))
    by_rank = sorted(range(32), key=lambda i: -every.rewards[i])
    assert group.attempts == sorted(by_rank[:4] + by_rank[-4:]) and 0 < group.rewards.mean() < 1
    for r in group.rollouts:
        other = every.rollouts[r.attempt]
        assert (r.segments[0].tokens == other.segments[0].tokens).all() and r.score == other.score
        assert r.notes == {"proxy": r.score.value}


def test_cheap_candidates_have_fewer_steps_and_rounded_weights_and_the_loss_does_not_know_them():
    world = opened().world
    group, cost = candidates(world, steps=6, bits=3, price=0.25), world.meter.of()
    assert (cost.decode, cost.rollouts) == (32 * 6 // 4 + 80, 8)
    assert world.meter.physical["train"].decode == 32 * 6 + 80, "what ran"
    cheap = world.engine.cheap(3, 6, 0.25)
    assert cheap.policy.at.tolist() == [0, 2, 3, 5, 7, 8, 10] and cheap is world.engine.cheap(3, 6, 0.25)
    assert all(len(x.unique()) <= 7 for w in cheap.policy.velocity.layers for x in w.weight), "whole numbers, -3 to 3"
    assert torch.equal(cheap.policy.velocity.layers[0].bias, world.learner.policy.velocity.layers[0].bias)
    batch = pack([group], world.engine.version)
    torch.testing.assert_close(world.learner.score(batch).logp.float(), batch.logp, atol=2e-6, rtol=2e-6)
    asyncio.run(world.engine.load(world.learner.weights()))
    assert world.engine.cheap(3, 6, 0.25) is not cheap, "it is of the new weights"
    with pytest.raises(UserError, match="a path has 10 steps, so its cheap form cannot have 11"):
        candidates(world, steps=11)
    recipe, ends = grpo.recipe(), []
    for proxy in (0.0, 7.0):
        now = opened().world
        other = group.of(r.but(notes={"proxy": proxy * i}).scored(Score(i % 2.0)) for i, r in enumerate(group.rollouts))
        batch = credited([other], recipe, now, Ledger())
        seen = solrl.improve(batch, recipe, now, Ledger())
        assert ("rank_agreement" in seen) == (proxy > 0) and seen["grad_norm"] > 0
        ends.append(now.learner.weights())
    assert all(torch.equal(a, b) for a, b in zip(*(x.values() for x in ends), strict=True))


def test_a_long_step_has_the_noise_of_those_that_it_stands_for():
    world = opened().world
    world.engine.policy.velocity = Still()
    pace, place = Pace(lr=0.0, max_tokens=modes.STATES), Place(1, 0, 0)
    fine = flow.points_of(play(world, 1)[0].segments[0].tokens)[1:]
    there = replace(world, engine=world.engine.cheap(0, 5, 1.0))
    (rollout,) = asyncio.run(sample(world.problems[0], [0], there, pace, place))
    coarse = flow.points_of(rollout.segments[0].tokens)[1:]
    assert len(coarse) == 6 and (coarse[0] == fine[0]).all()

    def step(policy, k, before, after):     # what a step drew
        x = torch.from_numpy(before[None])
        mean, sd = policy(x, torch.tensor([k]), x, torch.ones(1))
        return (after - mean[0].numpy()) / float(sd)

    drawn = [step(world.engine.policy, k, fine[k], fine[k + 1]) for k in (2, 3)]
    np.testing.assert_allclose(step(there.engine.policy, 1, coarse[1], coarse[2]), sum(drawn) / 2**0.5, atol=1e-5)
    (again,) = asyncio.run(sample(world.problems[0], [0], there, pace, place, rollout.cut(3)))
    assert again.segments[0].tokens.tolist() == rollout.segments[0].tokens.tolist(), "of a prompt and two points"


def test_what_is_not_for_training_has_no_candidates_and_one_candidate_each_is_grpo():
    world = opened().world
    one = candidates(world, times=1)
    assert one.attempts == list(range(8)) and world.meter.of().decode == 160
    pace, place = Pace(lr=0.0, max_tokens=modes.STATES), Place(1, 0, 0, Purpose.EVALUATION)
    made = asyncio.run(solrl.play(world.problems[0], range(3), world, pace, place))
    assert [r.attempt for r in made] == [0, 1, 2] and world.meter.of().decode == 190


def test_a_wave_that_is_stopped_writes_no_more_cheap_paths():
    world = opened().world
    there = replace(world, engine=world.engine.cheap(4, 6, 1.0))
    world.engine.halt(Place(1, 1, 0))
    for wave, stop, decode in ((1, Stop.CANCELLED, 0), (2, Stop.DONE, 12)):
        made = asyncio.run(sample(world.problems[0], [0, 1], there, Pace(lr=0.0, max_tokens=11), Place(1, wave, 0)))
        assert {r.stop for r in made} == {stop} and world.meter.of().decode == decode


def test_candidates_of_an_engine_without_a_cheap_form_are_rollouts_and_are_marked_once():
    world = open_setting(Setting.of(model="tiny", data="sums", limit=40)).world
    problem, pace, place = world.problems[0], Pace(lr=0.0, max_tokens=6), Place(1, 0, 0)
    with meter.begins(True), meter.tab() as tab:
        made = asyncio.run(solrl.play(problem, range(8), world, pace, place, times=4))
    group = asyncio.run(verified(Group(problem, tuple(made), place), world))
    assert (tab.cost.rollouts, tab.unchosen, world.meter.of().verify) == (32, 24, 32)
    assert all(r.notes == {"proxy": r.score.value} for r in group.rollouts) and len({*group.attempts}) == 8


def test_agreement_of_ranks_falls_with_bits_and_steps():
    """Of rewards that grade the distance; the paper measured 0.93 of images."""
    world, found = opened().world, []
    pace, place = Pace(lr=0.0, max_tokens=modes.STATES), Place(1, 0, 0)
    centre = modes.point(world.problems[0].answer)
    for bits, steps in ((0, 10), (4, 6), (2, 2)):
        there = replace(world, engine=world.engine.cheap(bits, steps, 1.0))
        made = asyncio.run(sample(world.problems[0], range(300), there, pace, place))
        found.append([-np.linalg.norm(np.subtract(modes.point(r.final), centre)) for r in made])
    same, near, far = (solrl.agreement(x, found[0]) for x in found)
    assert same == pytest.approx(1) and near > 0.85 and far < near - 0.1


# runs -------------------------------------------------------------------------------------------------------------

def job(method, **changes):
    return Job(arm=Arm(n=8, B=4, lr=3e-3), name="flow", setting=SETTING, method=method, seed=5,
               budget={"rollouts": 8 * 32}, points=(128, 256), save_every=3, **changes)


@pytest.mark.parametrize("method", ["pirl", "branchgrpo", "gdro", "solrl"])
def test_a_run_that_is_killed_resumes_to_the_same_bytes(tmp_path, method):
    def killed(line):
        if line["step"] == 5:
            raise KeyboardInterrupt

    asyncio.run(run(job(method), tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run(job(method), tmp_path / "again", on_step=killed))
    asyncio.run(run(job(method), tmp_path / "again"))
    for name in ("metrics.jsonl", "journal.jsonl", "samples.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.slow
def test_a_method_for_tokens_learns_in_it_as_it_is(tmp_path):
    """GRPO, 150 updates of 64 rollouts."""
    learning = Job(arm=Arm(n=8, B=8, lr=3e-3), name="flow", setting=SETTING.but(samples=4), method="grpo", seed=901,
                   budget={"rollouts": 64 * 150}, points=(64 * 150,))
    asyncio.run(run(learning, tmp_path / "r"))
    told = [x["eval/audit"] for x in read_lines(tmp_path / "r" / "metrics.jsonl") if "eval/audit" in x]
    assert told[-1] - told[0] > 0.3
