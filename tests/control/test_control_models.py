"""Agents that learn from what a learned model makes, by numbers worked from the papers' equations."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from test_control_offline import Fixed, Given, chain, constant, one
from torch.utils.flop_counter import FlopCounterMode

from isocost.control import methods, native
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Draws, Luck
from isocost.control.methods import fdvl, fly, moorl, neubay, pgd, ravl, recoil, sac, srl, vagram
from isocost.control.networks import Effort, Mlp, Numbers, Params
from isocost.control.parts import model
from isocost.control.parts.tempo import model_first
from isocost.control.tasks import open_task
from isocost.control.tasks.reach import STRIDE
from isocost.control.types import Progress, Space, Transitions
from isocost.errors import UserError
from offline_sets import CHEAP, fitting, made


def params(due=("model", "critic", "actor", "temperature"), **networks):
    weights = {k: torch.zeros(1, n.members, 32, requires_grad=True) for k, n in networks.items()}
    return Params(networks, weights, frozenset(due))


def members(*functions, outputs):
    """One function for each member: (S, 1, B, I) -> (S, K, B, out)."""
    return Given(lambda x: torch.cat([f(x[:, :1]) for f in functions], 1), outputs, len(functions))


def moves(by, *, ends=99.0):
    """A model in which a state moves by `by` times the action, pays what it is, and ends behind `ends`."""
    return lambda x: torch.cat((by * x[..., 1:], x[..., :1], ends - (x[..., :1] + by * x[..., 1:])), -1)


def rows(states, discount=0.5):
    s = torch.tensor(states)[None, :, None]
    flat = torch.zeros(1, len(states))
    return Transitions(s, 0 * s, flat, s + 100, flat + discount)


def walked(model_net, batch, *, step, member=0.0, **settings):
    """`imagined` where the policy's action is 1: tanh of 20."""
    actor = Given(lambda x: torch.cat((20 + 0 * x, -30 + 0 * x), -1), 2)
    count = batch.reward.shape[1]
    luck = Fixed(member=torch.full((1, count), member), step=torch.tensor(step)[None],
                 **{f"walk_{k}": 0.0 for k in range(9)})
    p = params(model=model_net, actor=actor, critic=Given(lambda x: x[..., :1]))
    with torch.no_grad():
        return model.imagined(batch, p, luck, **{"gamma": 0.5, "real": 0.0, **settings})


# walks --------------------------------------------------------------------------------------------------------------


def test_a_walk_goes_by_its_policy_and_one_of_its_steps_is_a_row():
    """From 0, 10, 20 by 1 a step: the first, second and third of three steps; the state pays itself."""
    found = walked(members(moves(1.0), outputs=3), rows([0.0, 10.0, 20.0]), step=[0.0, 0.5, 0.99], horizon=3)
    assert found.observation[0, :, 0].tolist() == [0, 11, 22] and found.following[0, :, 0].tolist() == [1, 12, 23]
    assert found.reward[0].tolist() == [0, 11, 22] and found.action[0, :, 0].tolist() == [1, 1, 1]
    assert found.discount[0].tolist() == [0.5] * 3
    was = model.replayed(found)
    assert was.following[0, :, 0].tolist() == [100, 110, 120] and model.replayed(was).reward is was.reward


def test_a_walk_ends_where_its_model_says_and_begins_again_at_another_state():
    """The end is behind 0.5: the first step from 0 ends, from 10 and 20 too; the next begin in the row before."""
    net = members(moves(1.0, ends=0.5), outputs=3)
    assert walked(net, rows([0.0, 10.0, -9.0]), step=[0.0] * 3, horizon=2).discount[0].tolist() == [0, 0, 0.5]
    again = walked(net, rows([0.0, 10.0, -9.0]), step=[0.9] * 3, horizon=2)
    assert again.observation[0, :, 0].tolist() == [-9, 0, -8]


def test_a_walk_stays_with_its_member_and_a_share_of_rows_is_real():
    net = members(moves(1.0), moves(3.0), outputs=3)
    for member, ends in ((0.0, [2, 12]), (0.99, [6, 16])):
        found = walked(net, rows([0.0, 10.0]), step=[0.99] * 2, member=member, horizon=2)
        assert found.following[0, :, 0].tolist() == ends
    half = walked(net, rows([0.0, 10.0]), step=[0.99] * 2, horizon=2, real=0.5)
    assert half.following[0, :, 0].tolist() == [100, 12] and half.observation[0, :, 0].tolist() == [0, 11]


def test_a_walk_of_members_that_are_alike_never_ends_for_doubt():
    """Members that move by 1 and by 1 + x/10 are x/20 apart. The rows' own actions are 1 too, so doubt there is at
    most 0.5, of the row at 10: its walk ends behind its second step, from 11, and that of 0 goes on."""
    def further(x):
        return torch.cat(((1 + x[..., :1] / 10) * x[..., 1:], x[..., :1], 0 * x[..., :1] + 9), -1)

    batch = rows([0.0, 10.0])._replace(action=torch.ones(1, 2, 1))
    net = members(moves(1.0), further, outputs=3)
    walk = partial(walked, net, batch, horizon=3, doubtful=True)
    assert walk(step=[0.4] * 2).observation[0, :, 0].tolist() == [1, 11]
    assert walk(step=[0.4] * 2).discount[0].tolist() == [0.5, 0.5]
    assert walk(step=[0.99] * 2).observation[0, :, 0].tolist() == [2, 10]
    alike = walked(members(moves(1.0), moves(1.0), outputs=3), batch, step=[0.99] * 2, horizon=3, doubtful=True)
    assert alike.observation[0, :, 0].tolist() == [2, 12]
    assert model.doubt(torch.tensor([[[[0.0, 0.0]], [[2.0, 4.0]]]])).item() == pytest.approx((5 / 2) ** 0.5)


def test_the_error_of_a_model_by_hand():
    """s 1, a 0.5, s' 3, r 2, goes on: the model says s' 2 and 4, r 1 and 1, logit 0: each 1 + 1 + ln 2."""
    net = members(lambda x: torch.cat((x[..., :1], x[..., :1], 0 * x[..., :1]), -1),
                  lambda x: torch.cat((3 * x[..., :1], x[..., :1], 0 * x[..., :1]), -1), outputs=3)
    one = torch.ones(1, 1, 1)
    batch = Transitions(one, one / 2, one[..., 0] * 2, 3 * one, one[..., 0] * 0.9)
    assert model.fitted(params(model=net), batch).item() == pytest.approx(2 * (1 + 1 + np.log(2)))
    assert model.fitted(params(model=net), batch, torch.full((1, 1, 1, 1), 4.0)).item() == pytest.approx(
        2 * (4 + 1 + np.log(2)))
    sure = members(lambda x: torch.cat((x[..., :1], x[..., :1], 0 * x[..., :1] + 2), -1), outputs=3)    # logit 2
    for ends, loss in ((0.0, np.log(1 + np.exp(2))), (0.9, np.log(1 + np.exp(-2)))):
        now = batch._replace(discount=one[..., 0] * ends)
        assert model.fitted(params(model=sure), now).item() == pytest.approx(1 + 1 + loss)


def test_first_the_model_is_trained_and_then_all_but_the_model():
    agent = methods.agent("ravl", batch=16, width=16, members=3, tempo=partial(model_first, fitted=5))
    task, data = fitting(agent)
    loop = Loop(agent, task, [StackedRun(0, 1.0, 1e-3)], 1, data)
    loop.advance([5])
    assert {k: int(m.steps) for k, m in loop.moments.items()} == {"model": 5, "critic": 0, "actor": 0, "temperature": 0}
    alone = loop.runs[0].work.flop
    assert alone == 5 * 16 * 3 * 2 * 5 * loop.networks["model"].multiplications      # 5 members, forward and backward
    loop.advance([8])
    assert {k: int(m.steps) for k, m in loop.moments.items()} == {"model": 5, "critic": 3, "actor": 3, "temperature": 3}
    assert model_first(Progress(0, 1000)).every.keys() == {"model"}


# RAVL ---------------------------------------------------------------------------------------------------------------


def test_how_alike_slopes_are_is_the_sum_of_cosines_of_pairs():
    """Q_k = w_k · a. Three alike: 6 pairs of 1 over K − 1. At right angles: 0. Opposite: 2 · −1 / 1."""
    one = torch.full((1, 4, 2), 0.3)
    batch = Transitions(one, one, one[..., 0], one, one[..., 0])
    for slopes, found in (([(1, 1)], 0.0), ([(1, 0), (2, 0), (5, 0)], 3.0), ([(1, 0), (0, 2)], 0.0),
                          ([(1, 1), (-3, -3)], -2.0)):
        w = torch.tensor(slopes, dtype=torch.float32)[None, :, None]
        net = Given(lambda x, w=w: (x[..., 2:] * w).sum(-1, keepdim=True), 1, len(slopes))
        assert ravl.alike(params(critic=net), batch).item() == pytest.approx(found, abs=1e-5)


def test_slopes_that_are_alike_are_driven_apart():
    """Two critics with relu: the gradient of their slopes' cosine is that of finite differences."""
    net = Mlp(3, 1, 32, 1, 2, slow=True, twice=True)
    weights = torch.from_numpy(net.start(np.random.default_rng(0)))[None].double().requires_grad_()
    one, two = (torch.linspace(-1, 1, 8 * k, dtype=torch.double).reshape(1, 8, k) for k in (1, 2))
    batch, work = Transitions(one, two, one[..., 0], one, one[..., 0]), Effort()

    def alike(w):
        return ravl.alike(Params({"critic": net}, {"critic": w}, frozenset({"critic"}), work), batch)

    slope, = torch.autograd.grad(alike(weights).sum(), weights)
    step = torch.zeros_like(weights)
    step[0, 1] = torch.sin(torch.arange(weights.shape[-1]))
    with torch.no_grad():
        up, down = weights + 1e-6 * step, weights - 1e-6 * step
    change = (alike(up.requires_grad_()) - alike(down.requires_grad_())) / 2e-6
    assert change.item() == pytest.approx((slope * step).sum().item(), rel=1e-4) and abs(change) > 1e-3
    assert work.flop == 3 * 8 * 2 * 2 * net.multiplications * (3 + 3)


class Point(Numbers):
    """The dynamics of `reach`, exact, which never pays and never ends: every value is 0."""

    outputs = 4

    def __call__(self, weights, x):
        at = (x[..., :2] + STRIDE * x[..., 2:]).clamp(-1, 1)
        return torch.cat((at - x[..., :2], 0 * at[..., :1], 1 + 0 * at[..., :1]), -1) + 0 * weights.sum()


def still(space, agent):
    return {**ravl.networks(space, agent), "model": Point((0.0,)), "temperature": Numbers((-20.0,))}


def at_the_edge(inner, count, eta, seeds=6):
    """Values, (S,), of states between `inner` and `inner` + 0.2, before and after 300 updates on walks of one exact
    step from states within `inner`."""
    agent = methods.agent(
        "ravl", members=count, width=32, batch=32, networks=still, imagine=partial(model.imagined, horizon=1, real=0.0),
        target=partial(model.target, rest=partial(sac.target, pessimism="min")),
        losses=partial(model.losses, rest=partial(ravl.losses, eta=eta, pessimism="min")),
        tempo=partial(model_first, fitted=0, tau=0.3))
    u = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    seen, none = inner * u, torch.zeros(2000, 1)
    loop = Loop(agent, open_task("reach"), [StackedRun(k, 1.0, 1e-2) for k in range(seeds)], 1,
                torch.cat((seen, 0 * seen, none, seen, none, none + 1), -1))
    outside = u[:500] * (inner + 0.2)
    outside, out = outside[outside.abs().amax(-1) > inner].expand(seeds, -1, -1), []
    for updates in (0, 300):
        loop.advance([updates] * seeds)
        p = Params(loop.networks, loop.weights)
        with torch.no_grad():
            action = torch.tanh(p("actor", outside)[:, 0].chunk(2, -1)[0])
            out.append(p("critic", outside, action)[..., 0].amin(1).amax(-1))
    return out


def test_values_at_the_edge_of_reach_grow_without_a_target_and_the_least_of_three_bounds_them():
    """True dynamics, value 0 everywhere. States seen only as next ones: without min their values grow by more than 10
    times; with the least of three diverse critics they stay under 0. Where every state is drawn, none grows so."""
    before, alone = at_the_edge(0.1, 1, 0.0)
    assert alone.mean() > 10 * before.abs().mean() and (alone > 0).all()
    assert (at_the_edge(0.1, 3, 1.0, 2)[1] < 0).all()


@pytest.mark.slow
def test_values_do_not_grow_where_every_state_is_drawn():
    before, after = at_the_edge(1.0, 1, 0.0)
    assert after.abs().mean() < 3 * before.abs().mean()


# VaGraM -------------------------------------------------------------------------------------------------------------


def test_the_model_of_vagram_is_weighed_by_the_slope_of_the_value():
    """V = 3 s_1 and V constant: the error of the other number, and of both, is nothing. A long slope is shortened."""
    s = torch.tensor([[[1.0, 2.0], [1.0, 2.0]]])
    batch = Transitions(s, 0 * s[..., :1], s[..., 0], s, s[..., 0])
    actor = Given(lambda x: 0 * x, 2)
    linear = params(critic=members(lambda x: 2 * x[..., :1], lambda x: 4 * x[..., :1], outputs=1), actor=actor)
    assert vagram.slopes(linear, batch, 0.95).tolist() == [[[3, 0], [3, 0]]]
    flat = params(critic=Given(lambda x: 0 * x[..., :1] + 7), actor=actor)
    assert vagram.slopes(flat, batch, 0.95).abs().max() == 0
    steep = params(critic=Given(lambda x: x[..., :1] ** 2 / 2), actor=actor)
    two = batch._replace(following=torch.tensor([[[1.0, 0.0], [5.0, 0.0]]]))
    assert vagram.slopes(steep, two, 1.0)[0, :, 0].tolist() == [1, 5]
    assert vagram.slopes(steep, two, 0.5)[0, :, 0].tolist() == pytest.approx([1, 3])     # the quantile is 3


def test_an_error_that_no_value_depends_on_teaches_the_model_of_vagram_nothing():
    """The model errs by 1 in s_2 alone: with V = 3 s_1 its error is that of the reward and of the end."""
    net = Given(lambda x: torch.cat((0 * x[..., :1], 0 * x[..., :1] + 1, x[..., :1], 0 * x[..., :1] + 50), -1), 4)
    p = params(model=net, critic=Given(lambda x: 3 * x[..., :1]), actor=Given(lambda x: torch.cat((x, x), -1)[..., :2]),
               temperature=Numbers((0.0,)))
    s = torch.ones(1, 1, 2)
    batch = Transitions(s, 0 * s[..., :1], s[..., 0], s, s[..., 0] * 0.9)
    found = {k: vagram.losses(batch, batch.reward, p, Fixed(new=0.0), **v)["model"].item() for k, v in (
        ("valued", {}), ("plain", {"valued": 0.0, "plain": 1.0}), ("both", {"plain": 0.5}))}
    assert found == pytest.approx({"valued": 0, "plain": 1, "both": 0.5}, abs=1e-6)
    steep = replace(p, networks={**p.networks, "critic": Given(lambda x: 3 * x[..., 1:2])})
    assert vagram.losses(batch, batch.reward, steep, Fixed(new=0.0))["model"].item() == pytest.approx(3**2)


# policy-guided diffusion --------------------------------------------------------------------------------------------


def guided(velocity, guidance, *, steps=2, count=1, start=0.0, aim=20.0):
    """Pieces of two steps of (s, a, r, end), whose policy's action is tanh of `aim`: the batch that is made."""
    none = torch.zeros(1, count, 1, 4)
    flat = torch.zeros(1, count, 1)
    batch = Transitions(flat, flat, flat[..., 0], flat, flat[..., 0],
                        {"piece": torch.zeros(1, count, 2, 4), "mean": none, "spread": none + 1})
    p = params(model=Given(velocity, 8), actor=Given(lambda x: 0 * x[..., :1] + aim), critic=constant(0.0))
    with torch.no_grad():
        return pgd.imagined(batch, p, Fixed(piece=start, step=0.0), gamma=0.5, guidance=guidance, flow_steps=steps)


def test_a_step_of_guidance_by_hand():
    """No velocity, N = 2, λ = 0.5: g = (1, 1)/√2, λ_0 = 0.5 (1 + 0.3 sin(π/2)), and none before the last step."""
    found = guided(lambda x: 0 * x[..., :8], 0.5)
    assert found.action.item() == pytest.approx(0.65 / 2**0.5)
    assert (found.observation.item(), found.reward.item(), found.discount.item()) == (0, 0, 0.5)
    assert guided(lambda x: 0 * x[..., :8], 0.0).action.item() == 0
    assert guided(lambda x: 0 * x[..., :8] + 1, 0.0).discount.item() == 0       # its end is 1
    assert pgd.towards(torch.zeros(1, 1, 2, 1), torch.tensor([[[[3.0], [-4.0]]]])).flatten().tolist() == pytest.approx(
        [0.6, -0.8])


def test_more_guidance_draws_actions_nearer_to_the_policys():
    """The exact velocity of normal data, (2t − 1) x / (t² + (1 − t)²): without guidance the mean is 0."""
    def velocity(x):
        t = x[..., 8:]
        return (2 * t - 1) / (t**2 + (1 - t) ** 2) * x[..., :8]

    start = torch.randn(1, 512, 2, 4, generator=torch.Generator().manual_seed(0)) / 2
    for sign in (1, -1):
        means = [sign * guided(velocity, g, steps=20, count=512, start=start, aim=sign * 20.0).action.mean().item()
                 for g in (0.0, 0.1, 0.3)]
        assert abs(means[0]) < 0.05 < means[1] - means[0] and means[2] - means[1] > 0.05


def test_pieces_are_of_one_trajectory_and_in_units_of_the_sets_spread():
    """Of trajectories of 3, 1 and 4 steps, pieces of 3 begin in rows 0, 4 and 5."""
    replay = chain([3, 1, 4])
    batch = pgd.sample(replay, 3, Fixed(replay=torch.tensor([[0.1, 0.5, 0.9]])), gamma=0.9, steps=3)
    piece = batch.others["piece"] * batch.others["spread"] + batch.others["mean"]
    assert np.allclose(piece[0, :, :, 0], [[0, 1, 2], [20, 21, 22], [21, 22, 23]], atol=1e-5)
    assert np.allclose(piece[0, :, -1, 3], [1, 0, 1], atol=1e-5) and batch.observation[0, :, 0].tolist() == [0, 20, 21]
    rows, others = replay.split(replay.rows[0])[0], batch.others
    assert others["mean"][0, 0, 0, 0] == rows.mean() and others["spread"][0, 0, 0, 0] == rows.std(correction=0)
    with pytest.raises(UserError, match=r"networks\.steps is 4 and sample\.steps is 6"):
        methods.refuse_unfit(methods.tuned(methods.agent("pgd"), {"sample.steps": "6"}), open_task("maze:4"))
    short = pgd.sample(chain([2, 1]), 1, Fixed(replay=0.0), gamma=0.9, steps=3).others
    assert np.allclose((short["piece"] * short["spread"] + short["mean"])[0, 0, :, 0], [0, 1, 1], atol=1e-5)


# ReCOIL -------------------------------------------------------------------------------------------------------------


def test_the_dual_of_recoil_is_the_papers_if_the_experts_states_follow_one_another():
    """β (1 − γ) E Q(s0, π) + E_mix f*(y) − (1 − β) E_S y, y = γ Q(s', π) − Q, on a chain of random numbers: 3 states, 2
    actions; the visits of the experts solve d = (1 − γ) d0 + γ d P."""
    rng, gamma, beta = np.random.default_rng(0), 0.9, 0.3
    start, other = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(6)).reshape(3, 2)
    expert, acts = rng.dirichlet(np.ones(2), 3), rng.dirichlet(np.ones(2), 3)
    moves_to, q = rng.dirichlet(np.ones(3), (3, 2)), rng.standard_normal((3, 2)) / 10
    states = np.linalg.solve(np.eye(3) - gamma * np.einsum("sa,sat->ts", expert, moves_to), (1 - gamma) * start)
    visits, value = states[:, None] * expert, (acts * q).sum(1)
    y = gamma * moves_to @ value - q
    mix, dual = beta * visits + (1 - beta) * other, fdvl.conjugate(torch.tensor(y), "chi2").numpy()
    paper = beta * (1 - gamma) * start @ value + (mix * dual).sum() - (1 - beta) * (other * y).sum()
    assert paper == pytest.approx(beta * (states @ value - (visits * q).sum()) + (mix * y**2).sum() / 4)


def test_recoil_raises_what_experts_do_and_reads_no_reward():
    """Q is 1 + 2a; the set's actions are 0.5, the policy's 0; γ V(s') is 1: 1 − 2 + (1 − 2)²/4, or 0.25 of others."""
    critic = Given(lambda x: 1 + 2 * x[..., 1:], 1, 2)
    p = params(critic=critic, value=constant(2.0), actor=constant(0.0))
    for expert, found in ((1.0, -0.75), (0.0, 0.25)):
        batch = one(reward=50.0, expert=torch.full((1, 1), expert))._replace(
            action=torch.full((1, 1, 1), 0.5), discount=torch.full((1, 1), 0.5))
        target = recoil.target(batch, p, p, Fixed())
        assert target[0, 0].tolist() == [1, 2]
        assert recoil.losses(batch, target, p, Fixed())["critic"].item() == pytest.approx(2 * found)


def test_experts_are_the_best_trajectories_of_the_set():
    """Returns −2, −1, −3, −1: of a quarter the first of the best; of a half both."""
    replay = chain([2, 1, 3, 1])
    assert recoil.experts(replay, 0.25).tolist() == [2] and recoil.experts(replay, 0.5).tolist() == [2, 6]
    batch = recoil.sample(replay, 4, Fixed(replay=torch.tensor([[0.0, 0.9, 0.0, 0.99]])), expert=0.5, beta=0.5)
    assert batch.others["expert"].tolist() == [[1, 1, 0, 0]] and batch.observation[0, :, 0].tolist() == [10, 30, 0, 30]


# MOORL --------------------------------------------------------------------------------------------------------------


def half_done(runs=1):
    """A stack of MOORL on a set and samples."""
    agent = methods.tuned(methods.agent("moorl", batch=16, width=16), {"tempo.warmup": "40"})
    loop = Loop(agent, open_task("pendulum"), [StackedRun(s, 1.0, 1e-3) for s in range(runs)], 100,
                made("pendulum").rows)
    loop.advance([44] * runs)
    return loop, Params(loop.networks, {k: w.clone().requires_grad_() for k, w in loop.weights.items()},
                        frozenset(loop.networks))


def test_a_batch_of_moorl_has_one_source_that_each_run_draws():
    loop, _ = half_done(8)
    kept = {tuple(x) for x in made("pendulum").rows[:, :3].tolist()}
    batch = loop.agent.sample(loop.replay.view(range(8)), 16, Luck([r.source for r in loop.runs], [3] * 8, "test"))
    of_set = [[tuple(x) in kept for x in run] for run in batch.observation.tolist()]
    assert {sum(run) for run in of_set} == {0, 16}
    for old, many in ((0.0, 0), (1.0, 16)):
        batch = moorl.sample(loop.replay.view([0]), 16, Luck([Draws(0)], [3], "test"), old=old)
        assert sum(tuple(x) in kept for x in batch.observation[0].tolist()) == many


def test_one_inner_step_of_moorl_is_sac_and_two_move_by_the_mean_of_their_slopes():
    loop, p = half_done()
    luck = Luck([Draws(0)], [0], "test")
    batch = loop.agent.sample(loop.replay.view([0]), 16, luck)
    target = batch.reward

    def slopes(found, of):
        return dict(zip(found, torch.autograd.grad(sum(found.values()).sum(), [of.weights[k] for k in found]),
                        strict=True))

    plain, once = sac.losses(batch, target, p, luck), moorl.losses(batch, target, p, luck, steps=1, inner=1e-3)
    assert {k: x.item() for k, x in once.items()} == pytest.approx({k: x.item() for k, x in plain.items()})
    first, found = slopes(plain, p), slopes(once, p)
    assert all(torch.allclose(found[k], first[k], atol=1e-3, rtol=1e-2) for k in first)
    moved = Params(p.networks, {k: (w - 0.1 * first[k]).detach().requires_grad_() for k, w in p.weights.items()}, p.due)
    second = slopes(sac.losses(batch, target, moved, luck), moved)
    both = slopes(moorl.losses(batch, target, p, luck, steps=2, inner=0.1), p)
    for k in first:
        assert torch.allclose(both[k], (first[k] + second[k]) / 2, atol=1e-4, rtol=1e-3), k
        assert not torch.allclose(both[k], first[k], atol=1e-4, rtol=1e-3), k


# SRL ----------------------------------------------------------------------------------------------------------------


def held_for(steps, **sets):
    """SRL on a task of so many steps for each decision, with a batch, its weights and SAC's of the same space."""
    agent = methods.tuned(methods.agent("srl", batch=16, width=16), {"tempo.warmup": "8", **sets})
    loop = Loop(agent, open_task(f"held:{steps}"), [StackedRun(0, 1.0, 1e-3)], 64)
    loop.advance([24])
    luck = Luck([Draws(0)], [0], "test")
    return loop, agent.sample(loop.replay.view([0]), 16, luck), luck, Params(
        loop.networks, {k: w.clone().requires_grad_() for k, w in loop.weights.items()}, frozenset(loop.networks))


def test_a_sequence_of_one_action_is_sac():
    """With `repeats` and the noise of one action; J = 1 has no task, so the first of J is read."""
    loop, batch, luck, p = held_for(2, **{"networks.repeats": "True"})
    plain = srl.steps_of(batch, p)
    slow = Params(loop.networks, loop.slow, p.due)
    assert torch.equal(srl.target(batch, p, slow, luck), sac.target(plain, p, slow, luck))
    found, same = srl.losses(batch, batch.reward, p, luck), sac.losses(plain, batch.reward, p, luck)
    assert found["critic"] == same["critic"] and found["actor"] != same["actor"]
    once = batch._replace(observation=batch.observation[..., :7], following=batch.following[..., :7])     # J = 1
    alone = srl.losses(once, batch.reward, p, luck)
    assert {k: alone[k].item() for k in same} == pytest.approx({k: x.item() for k, x in same.items()})


def test_each_action_of_a_sequence_is_judged_where_the_model_expects_it():
    """Actions tanh(1), tanh(2), a model that moves by the action, Q = 10 s + a, log π of z = 0 and σ = e^−1."""
    first, second = np.tanh(1), np.tanh(2)
    p = params(actor=Given(lambda x: torch.tensor([1.0, -1, 2, -1]).expand(*x.shape[:-1], 4), 4),
               critic=Given(lambda x: 10 * x[..., :1] + x[..., 1:]), model=members(moves(1.0), outputs=3),
               temperature=Numbers((0.0,)))
    for net in ("actor", "critic"):
        object.__setattr__(p.networks[net], "inputs", {"actor": 1, "critic": 2}[net])
    s = torch.zeros(1, 1, 4)
    batch = Transitions(s, s[..., :1], s[..., 0], s, s[..., 0])
    found = srl.losses(batch, batch.reward, p, Fixed(new=0.0))
    logs = [1 - 0.5 * np.log(2 * np.pi) - np.log(1 - a * a + 1e-6) for a in (first, second)]
    worth = (first + 10 * first + second) / 2
    assert found["actor"].item() == pytest.approx(np.mean(logs) - worth, rel=1e-5)
    assert found["model"].grad_fn is not None and found["critic"].item() == pytest.approx(0)
    after = srl.target(batch._replace(discount=s[..., 0] + 0.5), p, p, Fixed(next=0.0))     # of the first action
    assert after.item() == pytest.approx(0.5 * (first - logs[0]), rel=1e-5)


def test_srl_acts_by_the_state_of_its_last_decision_alone():
    loop, _, _, p = held_for(3)
    seen = torch.zeros(1, 3, 9)
    seen[..., 3:6] = torch.tensor([0.5, 0.1, -0.3])
    seen[0, :, 6:] = torch.eye(3)
    action = srl.explore(p, seen, None)
    seen[..., :3] = 7.0
    assert torch.equal(srl.explore(p, seen, None), action)
    made = p("actor", seen[:, :1, 3:6])[0, 0, 0].unflatten(-1, (3, 2))[:, 0]
    assert torch.allclose(action[0, :, 0], torch.tanh(made))
    with pytest.raises(UserError, match="decided at every step: take held:4"):
        methods.refuse_unfit(loop.agent, open_task("pendulum"))


# Learning to Fly ------------------------------------------------------------------------------------------------------


def test_what_is_hidden_changes_the_critics_and_not_the_actor():
    x = torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(0))
    other = torch.cat((x[..., :2], x[..., 2:] + 1), -1)
    for shown in (True, False):
        agent = methods.tuned(methods.agent("fly", batch=16, width=16), {
            "networks.hidden": "1", "networks.shown": str(shown)})
        p = Params(*(Loop(agent, open_task("pendulum"), [StackedRun(0, 1.0, 0.0)], 1).__dict__[k]
                     for k in ("networks", "weights")))
        assert torch.equal(p("actor", x), p("actor", other))
        assert torch.equal(p("critic", x, x[..., :1]), p("critic", other, x[..., :1])) == (not shown)
        assert not torch.equal(p("critic", x, x[..., :1]), p("critic", x, x[..., :1] + 1))
    with pytest.raises(UserError, match="hidden is 3, and an observation has 3 numbers"):
        fly.networks(Space(3, 1), agent, hidden=3)


# runs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "key", "value"), [
    ("ravl", "networks.models", "0"), ("neubay", "networks.models", "0"), ("vagram", "networks.models", "0"),
    ("fly", "networks.hidden", "-1"), ("bpp", "networks.delay", "-1"), ("pgd", "imagine.flow_steps", "0")])
def test_a_setting_that_makes_no_network_and_no_piece_is_refused(name, key, value):
    with pytest.raises(UserError, match=f"{key}={value}"):
        methods.tuned(methods.agent(name), {key: value})


@pytest.mark.parametrize("name", ["neubay", "vagram"])
def test_the_model_learns_what_follows(name):
    """On the pendulum, after 200 updates: the error of a step is below a tenth of that of saying that nothing moves."""
    agent = methods.tuned(methods.agent(name, width=32, batch=32), CHEAP.get(name, {}) | (
        {"tempo.fitted": "200"} if name == "neubay" else {"losses.plain": "1", "losses.valued": "0"}))
    rows, first = made("pendulum").rows, name == "neubay"
    run = StackedRun(0, 1.0, 1e-2)
    loop = Loop(agent, open_task("pendulum"), [run], 600, rows if first else None)
    loop.advance([200 if first else 400])
    assert run.updates == 200
    s, a, _, s2, *_ = (x[None] for x in loop.replay.view([0]).split(rows))
    with torch.no_grad():
        after = model.predicted(Params(loop.networks, loop.weights), s, a)[0].mean(1)
    assert ((after - s2) ** 2).mean() < 0.1 * ((s - s2) ** 2).mean()


@pytest.mark.parametrize("name", ["ravl", "neubay", "vagram", "pgd", "recoil", "moorl", "srl", "fly"])
def test_a_run_goes_on_from_what_it_saved_byte_for_byte(name):
    """At 24 of 48 updates, in a stack of two, to another stack."""
    agent = methods.tuned(methods.agent(name, batch=16, width=32), CHEAP.get(name, {}) | (
        {} if methods.agent(name).offline else {"tempo.warmup": "8"}))
    task, data = fitting(agent)

    def loop(*seeds):
        return Loop(agent, task, [StackedRun(s, 1.0, 1e-3) for s in seeds], 64, data)

    def text(of, i):
        tensors, state = of.save(i)
        return repr(state), [x.numpy().tobytes() for x in tensors.values()]

    shift = 0 if agent.offline else 8
    whole, begun, second = loop(0), loop(3, 0), loop(0, 5)
    whole.advance([48 + shift])
    begun.advance([24 + shift] * 2)
    second.load(0, *begun.save(1))
    second.advance([48 + shift] * 2)
    assert text(second, 0) == text(whole, 0)


@pytest.mark.parametrize("name", ["ravl", "neubay", "vagram", "pgd", "recoil", "moorl", "srl", "fly", "bpp"])
def test_all_that_an_update_multiplies_is_charged(name, monkeypatch):
    """By torch's count, which lacks gradients by the inputs of first layers alone: 1 to 12 % here."""
    monkeypatch.setattr(native, "usable", lambda *_: False)      # its products are no operations of torch
    agent = methods.tuned(methods.agent(name, batch=32, width=32), CHEAP.get(name, {}))
    task, data = fitting(agent)
    run = StackedRun(0, 1.0, 1e-3)
    loop = Loop(agent, task, [run, StackedRun(1, 1.0, 1e-3)], 64, data)
    loop.advance([0 if agent.offline else 40] * 2)
    model_alone = [{"model"}] if agent.offline and "model" in loop.networks else []
    for due in [*model_alone, set(loop.networks) - ({"model"} if agent.offline else set())]:
        before = run.work.flop
        with FlopCounterMode(display=False) as counted:
            loop._update([0, 1], frozenset(due), 0.0, not agent.offline)
        assert 1 <= 2 * (run.work.flop - before) / counted.get_total_flops() < 1.12


def test_neubay_is_redq_on_its_walks():
    agent = methods.tuned(methods.agent("neubay", batch=16, width=32), CHEAP["neubay"])
    task, data = fitting(agent)
    loop = Loop(agent, task, [StackedRun(0, 1.0, 1e-3)], 1, data)
    luck, due = Luck([Draws(0)], [0], "test"), frozenset(loop.networks)
    p, slow = Params(loop.networks, loop.weights, due), Params(loop.networks, loop.slow, due)
    with torch.no_grad():
        batch = agent.imagine(agent.sample(loop.replay.view([0]), 16, luck), p, luck)
    assert (agent.target(batch, p, slow, luck) == neubay.redq.target(batch, p, slow, luck, drawn=2)).all()
    assert (agent.target(batch, Params(loop.networks, loop.weights, frozenset({"model"})), slow, luck) == 0).all()
    found = agent.losses(batch, batch.reward, p, luck)
    assert (found["critic"] == neubay.redq.losses(batch, batch.reward, p, luck)["critic"]).all()
    assert (found["model"] == model.fitted(p, model.replayed(batch))).all()
