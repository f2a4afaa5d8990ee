"""Methods of control and their parts, by numbers worked from the papers' equations."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import nn

from isocost.control import methods
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Draws, Luck
from isocost.control.methods import bro, dsact, redq
from isocost.control.networks import Mlp, Numbers, Params
from isocost.control.optimise import Moments, adam, follow
from isocost.control.parts.heads import ReturnBins, cross_entropy
from isocost.control.parts.improve import squashed
from isocost.control.parts.tempo import steady
from isocost.control.replay import Replay, uniform
from isocost.control.tasks import open_task
from isocost.control.types import Progress, Space, Transitions
from isocost.errors import UserError
from isocost.recipe import describe, tune


def luck(count=0, runs=1):
    return Luck([Draws(s) for s in range(runs)], [count] * runs, "test")


class Fixed(Luck):
    """Luck that gives what it was made with."""

    def __init__(self, **values):
        object.__setattr__(self, "values", values)

    def normal(self, name, *shape):
        return torch.as_tensor(self.values[name], dtype=torch.float32).expand(1, *shape)

    uniform = normal


# draws ------------------------------------------------------------------------------------------------------------


def test_a_draw_depends_on_seed_name_count_and_nothing_else():
    one = luck(5).normal("a", 3)
    assert (Luck([Draws(7), Draws(0)], [1, 5], "test").normal("a", 3)[1] == one[0]).all()
    source = Draws(0)
    for count in (200, 3, 5):       # in another order, through other blocks
        drawn = source.draw("normal", "test a", count, (3,))
    assert (torch.from_numpy(drawn) == one[0]).all()
    others = [luck(6).normal("a", 3), luck(5).normal("b", 3), luck(5).uniform("a", 3), luck(5, 2).normal("a", 3)[1:]]
    assert all((x != one).any() for x in others)


def test_normal_and_uniform_have_their_moments():
    z, u = luck().normal("a", 100_000), luck().uniform("a", 100_000)
    assert (z.mean().item(), z.std().item()) == pytest.approx((0, 1), abs=0.02)
    assert 0 <= u.min() < u.max() < 1 and u.mean().item() == pytest.approx(0.5, abs=0.01)


# replay -----------------------------------------------------------------------------------------------------------


def filled(rewards, capacity=16, stride=1, ends=(), cuts=()):
    """A run whose observations are 0, 1, 2, .. and whose following one is a step later in the same environment."""
    replay = Replay.of(Space(1, 1), 1, capacity, stride)
    for t, r in enumerate(rewards):
        row = [t, 0, r, t + stride, t in ends, t in cuts]
        replay.add([0], torch.tensor([[row]], dtype=torch.float32))
    return replay.view([0])


def all_of(replay, **settings):
    """The batch that has every stored row once, by its observation."""
    held = min(replay.stored[0], replay.capacity)
    at = (torch.arange(held) + 0.5) / held
    batch = uniform(replay, held, Fixed(replay=at), **settings)
    return {int(s): (r.item(), s2.item(), d.item()) for s, r, s2, d in zip(
        batch.observation[0, :, 0], batch.reward[0], batch.following[0, :, 0], batch.discount[0], strict=True)}


def test_returns_of_three_steps_end_with_their_episode_and_at_the_newest_row():
    found = all_of(filled([1, 2, 4, 8, 16, 32], ends=[2], cuts=[4]), gamma=0.5, steps=3)
    assert found[0] == (1 + 1 + 1, 3, 0)                # ends inside: discount 0
    assert found[1] == (2 + 2, 3, 0) and found[2] == (4, 3, 0)
    assert found[3] == (8 + 8, 5, 0.25)                 # cut after two steps: the learner goes on
    assert found[4] == (16, 5, 0.5)
    assert found[5] == (32, 6, 0.5)                     # the newest row


def test_a_full_ring_has_the_newest_rows_and_none_follows_the_newest():
    found = all_of(filled([1.0] * 10, capacity=4), gamma=1.0, steps=3)
    assert found == {6: (3, 9, 1), 7: (3, 10, 1), 8: (2, 10, 1), 9: (1, 10, 1)}


def test_with_two_environments_a_return_stays_in_one_of_them():
    found = all_of(filled([1, 10, 2, 20, 4, 40], stride=2), gamma=1.0, steps=2)
    assert found[0] == (3, 4, 1) and found[1] == (30, 5, 1) and found[4] == (4, 6, 1) and found[5] == (40, 7, 1)


# networks and optimiser -------------------------------------------------------------------------------------------


def test_a_network_is_torchs_layers():
    net = Mlp(3, 2, 5, depth=2, members=2, activation="tanh")
    weights = torch.from_numpy(net.start(np.random.default_rng(0)))[None]
    x = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    parts = list(net.parts(weights))
    for k in range(2):
        h = x[0]
        for i, (matrix, bias) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            h = torch.nn.functional.linear(h, matrix[k].T, bias[k, 0])
            h = torch.tanh(h) if i < 2 else h
        assert torch.allclose(net(weights, x[:, None])[0, k], h, atol=1e-6)
    assert (net.parameters, net.multiplications, net.size) == (3 * 5 + 5 + 30 + 12, 15 + 25 + 10, 64)
    bound = 1 / math.sqrt(5)
    assert weights[0, :, 20:50].abs().max() <= bound < weights[0, :, :20].abs().max() <= 1 / math.sqrt(3)


def test_a_residual_network_is_bros():
    net = bro.networks(Space(2, 1), methods.agent("bro", width=4, depth=2))["critic"]
    weights = torch.from_numpy(net.start(np.random.default_rng(1)))[None, :1]
    w, x = [p[0] for p in net.parts(weights)], torch.tensor([[0.3, -1.0, 0.5]])
    layers = [(w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]) for k in range(5)]

    def dense(h, layer):
        m, b, scale, shift = layer
        return nn.functional.layer_norm(h @ m + b, (4,)) * scale + shift

    h = torch.relu(dense(x, layers[0]))
    for k in (1, 3):
        h = h + dense(torch.relu(dense(h, layers[k])), layers[k + 1])
    found = net(weights.expand(1, 2, -1), x[None, None])[0, 0]
    assert torch.allclose(found, h @ w[20] + w[21], atol=1e-6)


def test_adam_is_torchs_and_adamw_its_decay():
    for decay in (0.0, 0.1):
        w = nn.Parameter(torch.linspace(-1, 1, 32))
        theirs = torch.optim.AdamW([w], lr=0.01, weight_decay=decay)
        ours = w.detach().clone()[None, None]
        moments, rate = Moments.of(ours), torch.tensor([0.01], dtype=torch.float64)
        for k in range(20):
            w.grad = torch.sin(w.detach() * 3 + k)
            adam(ours, moments, w.grad[None, None], rate, decay)
            theirs.step()
        assert torch.allclose(ours[0, 0], w.detach(), atol=1e-6)
    slow = torch.zeros(1)
    follow(slow, torch.ones(1), 0.25)
    assert slow.item() == 0.25


# policies, heads, targets -----------------------------------------------------------------------------------------


def test_the_log_prob_of_a_squashed_action_is_that_of_the_transformed_normal():
    net = Mlp(2, 4, 8)
    params = Params({"actor": net}, {"actor": torch.from_numpy(net.start(np.random.default_rng(0)))[None]})
    x, z = luck().normal("x", 6, 2), luck().normal("z", 6, 2)
    action, surprise = squashed(params, x, z)
    mean, spread = params("actor", x)[:, 0].chunk(2, -1)
    law = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, spread.exp()), torch.distributions.transforms.TanhTransform())
    assert torch.allclose(surprise, law.log_prob(action).sum(-1), atol=1e-3)


def test_the_gaussian_over_bins():
    """Support [−1, 1], 5 bins, ratio 0.75, y = 0.3."""
    head = ReturnBins(1, 5, 8, low=-1.0, high=1.0)
    p = head.gaussian(torch.tensor([0.3, 5.0]), 0.75)
    assert p[0].tolist() == pytest.approx([0.00136, 0.04690, 0.32484, 0.47658, 0.15032], abs=1e-5)
    assert p.sum(-1).tolist() == pytest.approx([1, 1]) and p[1].argmax() == 4       # clipped to the support
    logits = torch.randn(5, requires_grad=True)
    (gradient,) = torch.autograd.grad(cross_entropy(p[0], logits), logits)
    assert torch.allclose(gradient, logits.softmax(-1) - p[0], atol=1e-6)
    assert head.value(torch.tensor([0.0, 0, 50, 0, 0])).item() == pytest.approx(0)


class Values(Numbers):
    """A critic whose members have these values everywhere."""

    def __call__(self, weights, x):
        return torch.tensor(self.values)[None, :, None, None].expand(1, -1, x.shape[2], 1)


def test_redq_takes_the_least_of_two_that_are_drawn():
    """The mean over all draws of the least of 2 of 1..10 is 11/3."""
    net = Mlp(1, 2, 4)
    nets = {"actor": net, "critic": Values(tuple(float(k) for k in range(1, 11)), 10), "temperature": Numbers((0.0,))}
    weights = {"actor": torch.zeros(1, 1, net.size), "critic": torch.zeros(1, 10, 32),
               "temperature": torch.full((1, 1, 32), -60.0)}
    params, found = Params(nets, weights), []
    batch = Transitions(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.zeros(1, 1, 1),
                        torch.ones(1, 1))
    for pair in combinations(range(10), 2):
        u = torch.ones(10)
        u[list(pair)] = 0
        found.append(redq.target(batch, params, params, Fixed(next=0.5, which=u)).item())
    assert np.mean(found) == pytest.approx(11 / 3)


def test_td3_trains_its_actor_and_moves_its_slow_copies_in_every_second_update():
    made = methods.tuned(methods.agent("td3", batch=16, width=16), {"tempo.warmup": "20"})
    run = StackedRun(0, 1.0, 1e-3)
    loop = Loop(made, open_task("pendulum"), [run], 60)
    seen = []
    for samples in (20, 21, 22, 23, 24):
        loop.advance([samples])
        seen.append([loop.weights["actor"].clone(), loop.weights["critic"].clone(), loop.slow["critic"].clone()])
    moved = [[bool((a != b).any()) for a, b in zip(x, y, strict=True)] for x, y in pairwise(seen)]
    assert moved == [[False, True, False], [True, True, True], [False, True, False], [True, True, True]]


def test_networks_start_again_and_the_replay_stays():
    made = methods.tuned(methods.agent("bro", batch=16, width=16), {"tempo.warmup": "20", "tempo.reset_every": "10"})
    run = StackedRun(0, 1.0, 1e-3)
    loop = Loop(made, open_task("pendulum"), [run], 60)
    loop.advance([30])
    before = loop.weights["critic"].clone()
    loop.advance([31])
    assert run.resets == 1 and loop.moments["critic"].steps.item() == 1 and loop.replay.stored == [31]
    fresh = torch.from_numpy(loop.networks["critic"].start(np.random.default_rng(0)))
    assert (loop.weights["critic"][0] - before[0]).abs().max() > 0.1 * fresh.abs().max()


def test_a_tempo_by_hand():
    assert steady(Progress(199, 0)).random and not steady(Progress(199, 0)).learns
    assert not steady(Progress(200, 0)).random and steady(Progress(200, 0)).learns
    assert [u for u in range(11) if steady(Progress(300, u), reset_every=5).reset] == [5, 10]


@pytest.mark.parametrize("name", methods.names())
def test_a_method_is_described_and_tuned_as_a_recipe_is(name):
    module = methods.load(name)
    made, card = module.agent(), module.CARD
    told = describe(made)
    assert told["name"] == made.name == name and card.claim and 2010 < card.year < 2027
    assert describe(tune(made, "batch", "64"))["batch"] == 64
    seam = "prepare" if made.prepare else "sample"
    assert describe(tune(made, f"{seam}.gamma", "0.9"))[seam]["gamma"] == 0.9
    with pytest.raises(KeyError, match="neither a seam"):
        tune(made, "advantage.clip", 1)
    with pytest.raises(UserError, match="batch=0: expected a value in"):
        methods.tuned(made, {"batch": "0"})


def test_a_method_that_does_not_exist(tmp_path):
    with pytest.raises(UserError, match=r"unknown method of control 'sak' \(did you mean 'saw' or 'sac'"):
        methods.agent("sak")
    (tmp_path / "mine.py").write_text("CARD = 1\n")
    with pytest.raises(UserError, match="is not a method of control: it has no agent"):
        methods.load(str(tmp_path / "mine.py"))


# DSAC-T -----------------------------------------------------------------------------------------------------------


def of_dsact(raw, mean=0.0, y=0.0, errors=(2.0, -2.0), usual=1.0, **settings):
    """Gradients of DSAC-T's critic by its mean and its raw spread, where y_z lies `errors` from the mean."""
    weights = torch.zeros(1, 1, 32)
    weights[0, 0, :2] = torch.tensor([mean, raw])
    weights.requires_grad_()
    nets = {"critic": Numbers((mean, raw)), "actor": Numbers((0.0, 0.0)), "temperature": Numbers((0.0,))}
    params = Params(nets, {"critic": weights, "actor": torch.zeros(1, 1, 32), "temperature": torch.zeros(1, 1, 32)})
    many, zeros = len(errors), torch.zeros(1, len(errors), 1)
    target = torch.stack([torch.full((1, many), y), mean + torch.tensor([errors]), torch.full((1, many), usual)], -1)
    batch = Transitions(zeros, zeros, zeros[..., 0], zeros, zeros[..., 0])
    loss = dsact.losses(batch, target, params, Fixed(), **settings)["critic"]
    return torch.autograd.grad(loss.sum(), weights)[0][0, 0, :2].tolist()


def raw(sigma):
    return math.log(math.expm1(sigma))


def test_dsact_spread_settles_at_the_squared_error_of_bounded_targets():
    # sigma² = E(Q − b)² = 4 with the paper's factor; half of it in released code
    assert of_dsact(raw(2.0))[1] == pytest.approx(0.0, abs=1e-6)
    assert of_dsact(raw(1.9))[1] < -1e-2 and of_dsact(raw(2.1))[1] > 1e-2
    assert of_dsact(raw(math.sqrt(2.0)), square=1.0)[1] == pytest.approx(0.0, abs=1e-6)
    # errors of 9 are cut at 3 usual spreads, of 1.5: sigma² = 4.5²
    assert of_dsact(raw(4.5), errors=(9.0, -9.0), usual=1.5)[1] == pytest.approx(0.0, abs=1e-6)


def test_dsact_weighs_the_error_of_the_mean():
    # d/dQ of omega H(Q − y) is omega (Q − y): omega = 1.5² / (2² + 0.1), and 0.1 at least
    assert of_dsact(raw(2.0), y=-3.0, usual=1.5)[0] == pytest.approx(2.25 / 4.1 * 3.0, rel=1e-5)
    assert of_dsact(raw(2.0), y=-3.0, usual=0.1)[0] == pytest.approx(0.1 * 3.0, rel=1e-5)
    assert of_dsact(raw(2.0), y=-80.0, usual=1.5)[0] == pytest.approx(2.25 / 4.1 * 50.0, rel=1e-5)     # Huber's delta


def test_dsact_targets_are_of_the_critic_with_the_lower_mean():
    nets = {"critic": Numbers((0.0, 0.0), members=2), "actor": Numbers((0.0, -20.0)), "temperature": Numbers((0.0,))}
    slow, own = torch.zeros(1, 2, 32), torch.full((1, 1, 32), -20.0)
    slow[0, :, :2] = torch.tensor([[5.0, raw(1.0)], [4.0, raw(2.0)]])
    actor = torch.zeros(1, 1, 32)
    params = Params(nets, {"critic": slow, "actor": actor, "temperature": own})
    zeros = torch.zeros(1, 1, 1)
    batch = Transitions(zeros, zeros, torch.tensor([[1.0]]), zeros, torch.tensor([[0.5]]))
    z = torch.tensor([[[10.0], [-0.5]]])
    y, y_z, first, second = dsact.target(batch, params, params, Fixed(next=0.0, **{"return": z}))[0, 0].tolist()
    assert (first, second) == pytest.approx((1.0, 2.0), rel=1e-5)
    assert y == pytest.approx(1 + 0.5 * 4.0, abs=1e-3)              # the temperature is e^-20
    assert y_z == pytest.approx(1 + 0.5 * (4.0 - 0.5 * 2.0), abs=1e-3)
