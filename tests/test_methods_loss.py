"""Methods that differ in loss, ratio, clip and baseline of least variance, against numbers worked by hand."""

import asyncio
import math
from functools import partial

import numpy as np
import pytest
import torch

from isocost import methods
from isocost.batch import Forward
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.meter import Meter
from isocost.methods import areal, isoeasy, kimi, ppo, scalerl
from isocost.methods import ppo as PPO
from isocost.ops import gae, of_rollouts
from isocost.pack import pack
from isocost.parts import loss
from isocost.parts.play import sample
from isocost.recipe import tune
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run as go
from isocost.seams import Pace
from isocost.types import Cost, Group, Place, Role, Said, Segment, Stop
from isocost.worlds import toy
from isocost.worlds.setting import Setting, open_setting
from toy import QUESTION, attempt, batch_of, chances, flat_gradient, group, per_rollout, replies, run

LEDGER = Ledger()


def assert_close(a, b, within=1e-5):
    assert a == pytest.approx(b, abs=within)


def surrogate(fn, values, credit):
    """The cost of tokens of one reply whose ratios are these, and the gradient of their sum."""
    batch = batch_of([1.0], lengths=[[len(values)]])
    old = -1.0 * batch.mask
    now = old.clone()
    now[batch.mask] += torch.tensor(values).log()
    now.requires_grad_()
    cost, seen = fn(Forward(now, now.detach()), batch.but(old=old, advantage=credit * batch.mask))
    cost.sum().backward()
    seen = {k: v[batch.mask].tolist() for k, v in seen.items()}
    return cost[batch.mask].tolist(), now.grad[batch.mask].tolist(), seen


def credited(recipe, batch):
    batch = batch.but(advantage=recipe.advantage(batch, LEDGER))
    return batch.but(weight=recipe.weight(batch))


def gradient(recipe, batch):
    world = toy.world()
    world.learner.gradient(credited(recipe, batch), recipe.loss)
    return flat_gradient(world.learner)


# ScaleRL ------------------------------------------------------------------------------------------------------------

def test_scalerl_is_in_units_of_the_spread_of_what_is_left_of_the_centred_rewards():
    """Leads of 3/4 and -1/4, thrice, and the same turned round: their mean square is 3/16, so 0.4330 is one."""
    unit = math.sqrt(3) / 4
    want = [0.75 / unit, *[-0.25 / unit] * 3, *[0.25 / unit] * 3, -0.75 / unit]
    for settled in ([], [[1] * 4], [[1] * 4, [0] * 8]):
        batch = batch_of([1, 0, 0, 0], [1, 1, 1, 0], *settled)
        assert_close(per_rollout(scalerl.advantage(batch, LEDGER), batch), want + [0] * sum(map(len, settled)))
    batch = batch_of([1, 1], [0, 0])
    assert scalerl.advantage(batch, LEDGER).abs().sum() == 0


def test_scalerl_scales_the_batch_where_grpo_scales_each_group():
    """A rare success has the lead 7/8, an even group 1/2; GRPO has them at 2.47 and 0.94, here 7/4 stays 7/4."""
    batch = batch_of([1, *[0] * 7], [1, 1, 1, 1, 0, 0, 0, 0])
    rare, *_, even = (per_rollout(scalerl.advantage(batch, LEDGER), batch)[i] for i in (0, 8))
    assert_close(rare / even, 7 / 4)


def test_scalerl_caps_the_weight_at_five_and_weighs_prompts_alike():
    recipe = methods.load("scalerl").recipe()
    _, slope, _ = surrogate(recipe.loss, [1.0, 10.0, 0.1], 2.0)
    assert_close(slope, [-2.0, -10.0, -0.2])
    batch = batch_of([1, 0], [1, 0], lengths=[[1, 2], [30, 40]])
    share = torch.zeros(2).index_add(0, batch.group[batch.rollout], recipe.weight(batch).sum(-1))
    assert_close(share.tolist(), [0.5, 0.5])
    assert recipe.select(group([1, 1]), LEDGER) is None and not recipe.refill
    assert (recipe.groups * recipe.rollouts, recipe.max_age, recipe.pace(Ledger(step=99)).lr) == (768, 8, 5e-7)


def told(rewards, waves, count=2, size=5, ahead=0, rate=0.9):
    """The problems of each wave, if waves are posed `ahead` of those that returned and each is a step; the ledger."""
    pool, ledger, posed, home = toy.questions(size), Ledger(seed=3), [], []

    def pose():
        posed.append(scalerl.choose(pool, ledger, count, np.random.default_rng(0), rate=rate))
        ledger.drawn += count

    for step in range(waves):
        while len(posed) < min(step + 1 + ahead, waves):
            pose()
        for slot, p in enumerate(posed[step]):
            ledger.saw(group(rewards(p.id, step), slot=slot, problem=p))
        home.append(ledger.close(Cost(), size, {}))
    return [[p.id for p in wave] for wave in posed], ledger, pool


def test_a_problem_retires_between_epochs_and_for_ever():
    """Problem 2 is always right, 1 nine times of ten, 0 eight times of ten: two leave after the first epoch."""
    share = {"2": [1.0] * 10, "1": [1.0] * 9 + [0.0], "0": [1.0] * 8 + [0.0] * 2}
    waves, _, _ = told(lambda name, step: share.get(name, [0.0] * 10), waves=15, count=1)
    flat = [name for wave in waves for name in wave]
    assert sorted(flat[:5]) == list("01234")
    assert all(sorted(flat[k : k + 3]) == list("034") for k in (5, 8, 11))


def test_a_problem_that_is_solved_later_leaves_after_that_epoch_and_nothing_is_drawn_twice_in_one():
    """From the second epoch on problem 3 is right: 1/2 of its attempts by the end of that, which is enough here."""
    waves, _, _ = told(lambda name, step: [float(name == "3" and step >= 5)] * 2, waves=30, count=1, rate=0.5)
    flat = [name for wave in waves for name in wave]
    assert sorted(flat[:5]) == sorted(flat[5:10]) == list("01234")
    assert all(sorted(flat[k : k + 4]) == list("0124") for k in (10, 14, 18, 22, 26))


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_where_an_epoch_begins_is_found_again_from_the_ledger_alone(ahead):
    """Every wave is chosen again by a ledger that knows only what the journal and the step lines would say."""
    waves, ledger, pool = told(lambda name, step: [float(name in "14")] * 2, waves=12, ahead=ahead)
    later = Ledger(seed=3, step=ledger.step, steps=ledger.steps)
    later.history.update(ledger.history)
    for k, wave in enumerate(waves):
        later.drawn = 2 * k
        assert [p.id for p in scalerl.choose(pool, later, 2, np.random.default_rng(0), rate=0.9)] == wave
    assert all("1" not in wave for wave in waves[6 + ahead :])


def test_when_everything_is_solved_everything_comes_back():
    waves, _, _ = told(lambda name, step: [1.0, 1.0], waves=10, count=1)
    assert sorted(name for wave in waves[5:] for name in wave) == list("01234")


def interrupted(attempts=range(40), most=7, **settings):
    world, place = toy.world(), Place(0, 0, 0)
    chosen = {"low": 2, "high": 4, "room": 3, "words": "ab", "closing": "!", **settings}
    play = partial(scalerl.play, **chosen)
    return world, asyncio.run(play(QUESTION, attempts, world, Pace(lr=0.1, max_tokens=most), place))


def plain(most, attempts=range(40)):
    return asyncio.run(sample(QUESTION, attempts, toy.world(), Pace(lr=0.1, max_tokens=most), Place(0, 0, 0)))


def test_an_unfinished_thought_is_cut_and_followed_by_a_request_for_an_answer():
    world, rollouts = interrupted()
    seen = set()
    for r, alone in zip(rollouts, plain(7), strict=True):
        (text,), (free,) = r.segments, alone.segments
        words = np.flatnonzero(text.role == int(Role.HINT))
        if not len(words):
            assert free.tokens.tolist() == text.tokens.tolist() and r.stop is Stop.DONE and text.written <= 4
            continue
        cut = int(words[0]) - 2
        seen.add(cut)
        assert text.tokens[words].tolist() == [0, 1] and 2 <= cut <= 4
        assert free.tokens[2 : 2 + cut].tolist() == text.tokens[2 : 2 + cut].tolist()
        answer = text.tokens[words[-1] + 1 :]
        assert 1 <= len(answer) <= 3 and (len(answer) == 3 or answer[-1] == toy.END)
        assert r.final == world.text.decode(text.tokens[2:].tolist()) and (text.turn[-len(answer) :] == 1).all()
    assert seen == {2, 3, 4}
    spent = world.meter.of()
    assert spent.rollouts == 40 and spent.decode == sum(r.segments[0].written for r in rollouts)


def test_a_closed_thought_and_one_without_room_for_an_interruption_are_not_cut():
    _, rollouts = interrupted(closing="a")
    for r, alone in zip(rollouts, plain(7), strict=True):
        if 0 in r.segments[0].tokens[2:4]:
            assert r.segments[0].tokens.tolist() == alone.segments[0].tokens.tolist()
    assert any(0 in r.segments[0].tokens[2:4] and r.segments[0].written > 4 for r in rollouts)
    _, rollouts = interrupted(most=4)
    for r, alone in zip(rollouts, plain(4), strict=True):
        assert r.segments[0].tokens.tolist() == alone.segments[0].tokens.tolist()
    assert all(r.segments[0].written <= 7 for r in interrupted(high=40)[1])


# AReaL --------------------------------------------------------------------------------------------------------------

def three(now, proximal, sampler, credit):
    """Tokens with these probabilities under the learner, at the step's beginning, and when they were sampled."""
    batch = batch_of([1.0], lengths=[[len(now)]])
    here = [torch.zeros_like(batch.logp) for _ in range(3)]
    for x, p in zip(here, (now, proximal, sampler), strict=True):
        x[batch.mask] = torch.tensor(p).log()
    x = torch.zeros_like(batch.logp)
    x[batch.mask] = torch.tensor(credit)
    here[0].requires_grad_()
    return Forward(here[0], here[0].detach()), batch.but(old=here[1], logp=here[2], advantage=x), here[0]


def test_areal_weighs_by_the_one_ratio_and_clips_by_the_other():
    """Sampler to learner 1/2, 3/2, 3, 6 (beyond 5: left out); learner since the step began 3/2, 1/2, 11/10, 1."""
    sampler, proximal, now = [0.2, 0.2, 0.1, 0.1], [0.1, 0.3, 0.3, 0.6], [0.15, 0.15, 0.33, 0.6]
    out, batch, theta = three(now, proximal, sampler, [2.0, -1.0, 1.0, 1.0])
    value, seen = areal.loss(out, batch)
    value.sum().backward()
    assert_close(value[batch.mask].tolist(), [-0.5 * 2 * 1.2, 1.5 * 0.8, -3 * 1.1, 0.0])
    assert_close(theta.grad[batch.mask].tolist(), [0.0, 0.0, -3 * 1.1, 0.0])
    assert_close(seen["sampling/importance_ratio"][batch.mask].tolist(), [0.5, 1.5, 3.0, 0.0])
    capped, _ = areal.loss(out, batch, reject=False)
    assert_close(capped[batch.mask].tolist(), [-1.2, 1.2, -3.3, -5.0])


def test_areal_where_the_learner_is_the_sampler_is_ppo():
    p, now = [0.2, 0.2, 0.1], [0.3, 0.1, 0.1]
    out, batch, _ = three(now, p, p, [1.0, -1.0, 2.0])
    torch.testing.assert_close(areal.loss(out, batch)[0], loss.clipped(out, batch)[0])


def aged(versions, now):
    """A batch at version `now` of groups whose rollouts were sampled at these versions."""
    made = [group([1, 0], slot=k, version=v) for k, v in enumerate(versions)]
    return pack(made, now)


def test_areal_scores_every_row_at_the_start_of_a_step_however_old_it_is():
    world, recipe = toy.world(), methods.load("areal").recipe()
    seen = []
    world.learner.update = lambda part, fn, lr: seen.append(part) or {"loss": 1.0}
    batch = credited(recipe, aged([3, 5], 5))
    recipe.improve(batch, recipe, world, LEDGER)
    fresh = world.learner.forward(batch).logp.detach().float()
    torch.testing.assert_close(torch.cat([p.old for p in seen]), fresh)
    assert len(seen) == 4 and world.meter.of().score == int(batch.length.sum())


def test_areal_with_one_update_needs_no_score_and_corrects_for_the_sampler_all_the_same():
    world, recipe = toy.world(), tune(methods.load("areal").recipe(), "improve.minibatches", 1)
    seen = []
    world.learner.update = lambda part, fn, lr: seen.append(fn(world.learner.forward(part), part)) or {"loss": 1.0}
    batch = credited(recipe, aged([3], 5))
    recipe.improve(batch, recipe, world, LEDGER)
    ((value, metrics),) = seen
    apart = (world.learner.forward(batch).logp.detach() - batch.logp)[batch.mask].exp()
    torch.testing.assert_close(metrics["sampling/importance_ratio"][batch.mask], apart)
    torch.testing.assert_close(value[batch.mask].detach(), -(apart * batch.advantage[batch.mask]))
    assert world.meter.of().score == 0


def test_a_policy_between_sampler_and_learner_by_age():
    """One token each, 0, 1, 2 and 4 steps old, ρ = e from sampler to learner: α is 0, 0, 1/2, 3/4."""
    out, batch, _ = three([0.5] * 4, [0.9] * 4, [0.5 / math.e] * 4, [1.0] * 4)
    lag = torch.zeros_like(batch.logp)
    lag[batch.mask] = torch.tensor([0.0, 1.0, 2.0, 4.0])
    placed = areal.between(out, batch.but(extra={"lag": lag}))
    assert_close((placed.old - batch.logp)[batch.mask].tolist(), [0, 0, 0.5, 0.75])
    assert not placed.old.requires_grad and areal.between(out, batch) is batch
    value, _ = areal.loss(out, batch.but(extra={"lag": lag}))
    want = [-math.exp(a) * min(math.exp(1 - a), 1.2) for a in (0, 0, 0.5, 0.75)]
    assert_close(value[batch.mask].tolist(), want)


def test_the_lag_of_a_token_is_its_own_and_takes_the_place_of_a_score():
    start = Segment.empty().read([4, 14], Role.PROMPT)
    mixed = Said(np.array([0, 1, 3]), np.full(3, -1.0, dtype=np.float32), np.array([2, 3, 5]), Stop.DONE)
    rollout = attempt([3], 1.0).but(segments=(start.wrote(mixed),))
    world, recipe = toy.world(), methods.load("areal").recipe().but(enrich=(areal.lag,))
    world.engine.version = 5
    batch = areal.lag(pack([Group(QUESTION, (rollout, attempt([3], 0.0, 1, version=5)))], 5), world)
    assert batch.extra["lag"].tolist() == [[0, 0, 3, 2, 0], [0, 0, 0, 0, 0]]
    recipe.improve(credited(recipe, batch), recipe, world, LEDGER)
    assert world.meter.of().score == 0 and world.meter.of().updates == 2     # of two rollouts, no more minibatches


# MinPRO -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("each", "want"), [
    ([2.0, 1.0, 1.0], [2.0, 2.0, 1.0]),              # right after the first, whose ratio is the least: j < t, not ≤
    ([1.0, 2.0, 1.0, 1.0], [1.0, 2.0, 1.0, 1.0]),    # where the product would be 2 for ever
    ([1.0, 0.5, 1.0, 1.0], [1.0, 0.5, 0.5, 0.5]),    # one below 1: exactly the product
    ([0.5, 0.5, 0.5], [0.5, 0.25, 0.25]),            # and no longer so with two: 1/8 is the product
    ([0.8, 0.5, 2.0, 4.0], [0.8, 0.4, 1.0, 2.0]),
    ([4.0, 3.0, 1.0], [4.0, 5.0, 3.0]),              # 12 is beyond the cap
])
def test_minpro_by_hand(each, want):
    recipe = methods.load("minpro").recipe()
    value, slope, seen = surrogate(recipe.loss, each, -1.5)
    assert_close(slope, [1.5 * w for w in want])
    assert_close(value, [1.5 * w * (math.log(r) - 1) for w, r in zip(want, each, strict=True)])
    assert seen["clip_ratio/region_mean"] == [float(w == 5.0) for w in want]


def test_minpro_looks_past_what_the_environment_said():
    """Sampled tokens with ratios 1/2 and 2 around two of the environment's: the second weighs 2 · 1/2."""
    rollout = attempt([0], 1.0)
    (text,) = rollout.segments
    text = text.read([5, 6], Role.SEEN).wrote(Said(np.array([3]), np.zeros(1, np.float32), np.zeros(1, int), Stop.DONE))
    batch = pack([Group(QUESTION, (rollout.but(segments=(text,)),))], 0)
    now = torch.tensor([[0, 0, math.log(0.5), -7, 9, math.log(2)]])
    batch = batch.but(old=torch.zeros_like(now), advantage=batch.mask.float())
    _, seen = loss.reweighed(Forward(now, now), batch, over="least")
    assert_close(seen["importance_ratio"][batch.mask].tolist(), [0.5, 1.0])
    _, seen = loss.reweighed(Forward(now, now), batch, over="sequence")
    assert_close(seen["importance_ratio"][batch.mask].tolist(), [1.0, 1.0])


@pytest.mark.parametrize("each", [0.1, -0.1])
def test_a_product_of_ratios_stays_a_number_over_ten_thousand_tokens(each):
    """e^±1000: the metric's sum is finite and not 0, or VCPO would divide by 0, or step at full rate on inf / inf."""
    batch = batch_of([1], lengths=[[9999]])
    now = (each * batch.mask).float()
    _, seen = loss.reweighed(Forward(now, now), batch.but(old=torch.zeros_like(now), advantage=now), over="sequence")
    total = seen["importance_ratio"][batch.mask].sum()
    assert torch.isfinite(total) and total > 0


def test_minpro_on_rollouts_of_this_step_is_its_parent():
    batch = batch_of([1, 0, 0, 1], [0, 1, 0, 0], lengths=[[1, 3, 2, 4], [5, 1, 2, 2]])
    torch.testing.assert_close(
        gradient(methods.load("minpro").recipe(), batch), gradient(methods.load("cispo").recipe(), batch)
    )
    with pytest.raises(UserError, match="is 'prefix'; expected one of token, least, sequence"):
        surrogate(partial(loss.reweighed, over="prefix"), [1.0], 1.0)
    with pytest.raises(UserError, match="is 'k4'; expected one of k1, k2, k3"):
        surrogate(partial(isoeasy.to_reference, estimate="k4"), [1.0], 1.0)


# VCPO ---------------------------------------------------------------------------------------------------------------

class Told:
    """A learner whose gradients and ratios are given, and whose steps are remembered."""

    def __init__(self, gradients, ratios):
        self.given, self.steps = [(torch.tensor(g), {"loss": 1.0, "importance_ratio": w})
                                  for g, w in zip(gradients, ratios, strict=True)], []

    def gradients(self, batch, fn):
        assert batch.advantage.equal(batch.mask.float()) and batch.weight.equal(batch.mask.float())
        for i in batch.rollout.unique():
            yield self.given[i][0], dict(self.given[i][1])

    def step(self, gradient, *, lr):
        self.steps.append((gradient, lr))
        return float(gradient.norm())


def stepped(gradients, ratios, *rewards, **settings):
    world, recipe = toy.world(), tune(tune(methods.load("vcpo").recipe(), "pace.lr", 1.0), "pace.warmup", 0)
    world.learner = Told(gradients, ratios)
    for knob, value in settings.items():
        recipe = tune(recipe, f"improve.{knob}", value)
    metrics = recipe.improve(credited(recipe, batch_of(*rewards)), recipe, world, LEDGER)
    ((total, lr),) = world.learner.steps
    return total.tolist(), lr, metrics


def test_vcpo_takes_off_the_reward_where_the_gradient_is_long():
    """Of lengths 2 and 1: b = (4·1 + 1·0)/5 = 0.8, so 0.2 and -0.8 over a spread of 0.7071, a sixth of each (2·3)."""
    total, lr, metrics = stepped([[2.0, 0.0], [0.0, 1.0]], [1.0, 1.0], [1, 0])
    unit = math.sqrt(0.5) * 6
    assert_close(total, [0.2 * 2 / unit, -0.8 / unit])
    assert_close([lr, metrics["counting"], metrics["loss"]], [1.0, 1.0, (0.2 - 0.8) / unit])
    assert_close(metrics["grad_norm"], math.hypot(0.4, 0.8) / unit)


def test_vcpo_with_equal_lengths_is_the_mean_of_the_group_and_groups_do_not_mix():
    one = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    total, _, _ = stepped(one, [1.0] * 4, [1, 0, 0, 0])
    assert_close(total, [(1.5 + 0.5) / 12, (-0.5 + 0.5) / 12])                       # GRPO's 3/2 and -1/2, over 4 · 3
    two, _, _ = stepped([[2.0], [1.0], [1.0], [5.0]], [1.0] * 4, [1, 0], [1, 1])
    alone, _, _ = stepped([[2.0], [1.0]], [1.0] * 2, [1, 0])
    assert_close(two, [alone[0] / 2])                                               # a settled group pulls at nothing


@pytest.mark.parametrize(("ratios", "share"), [
    ([1.0] * 4, 1.0), ([3.0] * 4, 1.0), ([4.0, 0.0, 0.0, 0.0], 0.25), ([2.0, 2.0, 0.0, 0.0], 0.5),
    ([1.0, 2.0, 3.0, 4.0], 100 / 120),
])
def test_vcpo_steps_by_the_root_of_the_rollouts_that_count(ratios, share):
    for settings, scale in (({}, share**0.5), ({"power": 1.0}, share), ({"full": 0.5}, min(1, 2 * share) ** 0.5)):
        _, lr, metrics = stepped([[1.0]] * 4, ratios, [1, 0, 0, 0], **settings)
        assert_close([lr, metrics["counting"], metrics["learning_rate"]], [scale, share, scale])


def stale():
    """Each of the four one-token replies once, as of a sampler that is even among them; rewards of their own."""
    made = [attempt([k], r, k, logp=[math.log(0.25)], stop=Stop.LENGTH) for k, r in enumerate([1.0, 0.2, 0.0, 0.5])]
    return pack([Group(QUESTION, tuple(made))], 3)


def test_vcpo_finds_the_baseline_of_least_variance():
    """The sampler is even, so the four replies are its whole distribution; no ratio is capped, so E[w ∇log π] = 0."""
    world, recipe, taken = toy.world(), methods.load("vcpo").recipe(), []
    batch = credited(recipe, stale())
    parts = batch.but(old=batch.logp, advantage=batch.mask.float())
    each = torch.stack([g.clone() for g, _ in world.learner.gradients(parts, recipe.loss)]) * 4   # the weight is 1/4
    assert each.mean(0).abs().max() < 1e-6
    world.learner.step = lambda gradient, *, lr: taken.append(gradient) or 0.0
    recipe.improve(batch, recipe, world, LEDGER)
    credit = of_rollouts(batch.advantage, batch).double()
    grid = torch.linspace(-2, 2, 40001, dtype=torch.float64)

    def variance(b):
        drawn = (credit[:, None] - b) ** 2 * each.square().sum(-1)[:, None]
        mean = ((credit[:, None] - b).T @ each / 4).square().sum(-1)
        return drawn.mean(0) - mean

    best = grid[variance(grid).argmin()]
    assert best.abs() > 0.02 and variance(torch.zeros(1)) > variance(best[None]) * 1.001
    torch.testing.assert_close(taken[0], (credit - best) @ each / 4, atol=1e-4, rtol=0)


def test_vcpo_caps_the_weight_of_an_answer_and_counts_it_as_it_is():
    recipe = methods.load("vcpo").recipe()
    _, slope, seen = surrogate(recipe.loss, [2.0, 3.0, 1.0], 1.0)
    assert_close(slope, [-6.0] * 3)
    _, slope, seen = surrogate(recipe.loss, [4.0, 3.0, 1.0], 1.0)
    assert_close(slope, [-8.0] * 3)
    assert_close(seen["importance_ratio"], [12.0] * 3)


def test_vcpo_pays_for_one_pass_and_refuses_what_it_cannot_do():
    world, recipe = toy.world(), methods.load("vcpo").recipe()
    batch = credited(recipe, batch_of([1, 0, 0, 1]))
    recipe.improve(batch, recipe, world, LEDGER)
    spent = world.meter.of()
    assert (spent.train, spent.updates, spent.score) == (int(batch.length.sum()), 1, 0)
    with pytest.raises(UserError, match=r"use loss\.reweighed"):
        other = recipe.but(loss=loss.clipped)
        other.improve(batch, other, world, LEDGER)
    with pytest.raises(UserError, match="one advantage and one weight"):
        recipe.improve(batch.but(advantage=batch.advantage * torch.arange(5)), recipe, world, LEDGER)


def small_world():
    from isocost.local.world import Compute, open_world
    from isocost.tasks.builtin.sums import sums
    from isocost.tasks.verify.grade import Grader

    meter = Meter()
    return open_world("tiny", sums(count=8), Grader("exact", meter=meter), meter=meter, compute=Compute(device="cpu"))


@pytest.mark.parametrize("make", [toy.world, small_world])
def test_gradients_of_rollouts_add_up_to_the_batchs_and_a_step_down_them_is_an_update(make):
    one, other = make(), make()
    recipe = methods.load("grpo").recipe()
    batch = batch_of([1, 0, 0, 1], [0, 1, 0, 0], lengths=[[1, 3, 2, 4], [5, 1, 2, 2]])
    batch = credited(recipe, batch)
    seen = one.learner.update(batch, recipe.loss, lr=0.01)
    pieces = [(g.clone(), told["loss"]) for g, told in other.learner.gradients(batch, recipe.loss)]
    norm = other.learner.step(sum(g for g, _ in pieces), lr=0.01)
    assert len(pieces) == 8 and norm == pytest.approx(seen["grad_norm"], rel=1e-4)
    assert sum(x for _, x in pieces) == pytest.approx(seen["loss"], abs=1e-6)
    for key, value in one.learner.weights().items():
        torch.testing.assert_close(other.learner.weights()[key], value, atol=5e-4, rtol=1e-3)
    assert one.meter.of().counts() == other.meter.of().counts()
    one.learner.forget()
    assert not any(float(v.abs().sum()) for k, v in one.learner.state().items() if "adam" in k or k[0].isdigit())


# stale rollouts -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["minpro", "vcpo", "areal", "scalerl"])
def test_they_learn_from_rollouts_that_are_two_steps_old(name):
    recipe = methods.load(name).recipe(groups=10, rollouts=4, max_age=2)
    for path, value in (("pace.lr", 0.2), ("pace.warmup", 0)):
        recipe = tune(recipe, path, value)
    world = toy.world()
    before = sum(world.exact(world.problems, recipe.pace(LEDGER).sampling)) / 10
    ledger, steps = run(recipe, world, 360)
    after = sum(world.exact(world.problems, recipe.pace(LEDGER).sampling)) / 10
    lags = [len(steps[:k]) - g.version for k, step in enumerate(steps) for g in step.groups]
    assert max(lags) == 2 and ledger.fates["stale"] == 0
    assert after > before + 0.2 and all(math.isfinite(s.line["grad_norm"]) for s in steps)
    told = [s.line.get("importance_ratio", s.line.get("sampling/importance_ratio")) for s in steps]
    assert any(abs(w - 1) > 0.01 for w in told)
    if name == "vcpo":
        assert min(s.line["counting"] for s in steps) < 0.9 and steps[0].line["counting"] == 1.0


# Kimi ---------------------------------------------------------------------------------------------------------------

def replies_of(chances, credit):
    """One token for each of these chances under the sampler, credited so; logits at the sampler's."""
    batch = batch_of([0.0] * len(chances), lengths=[[1] * len(chances)])
    old = torch.zeros_like(batch.logp, dtype=torch.float64)
    old[:, 2] = torch.tensor(chances, dtype=torch.float64).log()
    x = torch.tensor(credit, dtype=torch.float64)[:, None] * batch.mask
    return batch.but(old=old, advantage=x), torch.tensor(chances, dtype=torch.float64).log().requires_grad_()


@pytest.mark.parametrize(("base", "mass"), [("mean", 0.8332), ("exact", 0.8808)])
def test_kimi_ends_where_the_squared_loss_is_least(base, mass):
    """π_i = (.5, .3, .2), r = (1, 0, 0), τ = 1/2: π_i e^(r/τ) / Z where the baseline is τ log Z, not the mean."""
    chances, tau = [0.5, 0.3, 0.2], 0.5
    z = 0.5 * math.exp(1 / tau) + 0.5
    off = 0.5 if base == "mean" else tau * math.log(z)
    batch, theta = replies_of(chances, [1 - off, -off, -off])
    odds = torch.tensor(chances, dtype=torch.float64)
    descend = torch.optim.LBFGS([theta], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def cost():
        descend.zero_grad()
        now = torch.nn.functional.pad(torch.log_softmax(theta, -1)[:, None], (2, 0))
        total = (kimi.loss(Forward(now, now), batch, tau=tau)[0][:, 2] * odds).sum()
        total.backward()
        return total

    descend.step(cost)
    found = torch.softmax(theta.detach(), -1)
    assert_close(float(found[0]), mass, 5e-5)
    if base == "exact":
        assert_close(found.tolist(), [0.5 * math.exp(2) / z, 0.3 / z, 0.2 / z], 1e-6)


def test_kimi_is_the_gradient_of_the_square_of_what_is_left():
    """Of two rollouts, of 2 and 3 tokens: Σ (A - τ Σ_t log ρ_t)² / 2τ / 2, by autograd on the formula."""
    recipe = tune(methods.load("kimi").recipe(), "loss.tau", 0.25)
    batch = credited(recipe, batch_of([1.0, 0.0], lengths=[[2, 3]]))
    shift = torch.tensor([[0, 0, 0.3, -0.1, 0], [0, 0, -0.4, 0.2, 0.5]])
    old = -1.0 * batch.mask
    batch = batch.but(old=old)
    slopes = []
    for cost in (
        lambda now: (kimi.loss(Forward(now, now), batch, tau=0.25)[0] * batch.weight)[batch.mask].sum(),
        lambda now: ((torch.tensor([0.5, -0.5]) - 0.25 * (now - old).sum(-1)).square() / (2 * 0.25)).sum() / 2,
    ):
        now = (old + shift).requires_grad_()
        cost(now).backward()
        slopes.append(now.grad * batch.mask)
    torch.testing.assert_close(*slopes)
    assert slopes[0][0, 2] == pytest.approx(-(0.5 - 0.25 * 0.2) / 2) and slopes[0][1, 3] == pytest.approx(0.2875)


def test_kimi_at_the_sampler_is_reinforce_over_the_mean_of_the_group():
    batch = batch_of([1, 0, 0, 1], [0, 1, 0, 0], lengths=[[1, 3, 2, 4], [5, 1, 2, 2]])
    plain = methods.load("reinforce").recipe(advantage=methods.load("drgrpo").advantage)
    torch.testing.assert_close(gradient(methods.load("kimi").recipe(), batch), gradient(plain, batch))


def test_kimi_begins_its_optimiser_anew_with_every_batch():
    world, recipe = toy.world(), methods.load("kimi").recipe(groups=4, rollouts=4)
    run(recipe, world, 48)
    assert world.meter.of().updates == 12 and world.learner.adam.steps == 4


# PPO ----------------------------------------------------------------------------------------------------------------

def foreseen(batch, values):
    x = torch.zeros_like(batch.logp)
    x[batch.mask] = torch.tensor(values)
    return x


@pytest.mark.parametrize(("gamma", "lam", "want"), [
    (0.9, 0.5, [-0.077, 0.14, 0.8]),      # δ = -.14, -.22, .8: from the end .8, -.22 + .45 · .8, -.14 + .45 · .14
    (1.0, 1.0, [0.5, 0.6, 0.8]),          # what was earned less what was foreseen
    (1.0, 0.0, [-0.1, -0.2, 0.8]),        # one step ahead
])
def test_advantages_by_hand(gamma, lam, want):
    batch = batch_of([1.0, 0.0], lengths=[[3, 2]])
    credit = gae(foreseen(batch, [0.5, 0.4, 0.2, 0.6, 0.1]), batch, gamma=gamma, lam=lam)
    assert_close(credit[0, 2:].tolist(), want)
    last = 0 - 0.1
    assert_close(credit[1, 2:].tolist(), [gamma * 0.1 - 0.6 + gamma * lam * last, last, 0.0])


def test_what_others_wrote_takes_no_time_and_segments_are_one_rollout():
    rollout = attempt([0], 1.0)
    (text,) = rollout.segments
    more = text.read([5, 6], Role.SEEN).wrote(Said(np.array([3]), np.zeros(1, np.float32), np.zeros(1, int), Stop.DONE))
    again = attempt([1, 3], 0.0).segments[0]
    batch = pack([Group(QUESTION, (rollout.but(segments=(more, again)), attempt([3], 0.0, 1)))], 0)
    credit = gae(foreseen(batch, [0.5, 0.4, 0.2, 0.1, 0.7]), batch, gamma=0.9, lam=0.5)
    tail = [0.9 * 0.1 - 0.2 + 0.45 * 0.9, 0.9]
    second = 0.9 * 0.2 - 0.4 + 0.45 * tail[0]
    assert_close(credit[batch.mask].tolist(), [0.9 * 0.4 - 0.5 + 0.45 * second, second, *tail, -0.7])


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_with_an_exact_critic_every_lambda_has_the_gradient_of_expected_reward(lam):
    """Over all replies of at most three tokens: the values are conditional means, and no token expects a surprise."""
    world, said = toy.world(), replies(3)
    chance = chances(world.learner, said)
    earned = torch.tensor([float(y[:1] == (0,)) + 0.3 * len(y) - (y[-1] == 1) for y in said], dtype=torch.float64)
    true = torch.autograd.grad((chance * earned).sum(), list(world.learner.policy.parameters()))
    batch = pack([Group(QUESTION, tuple(attempt(y, 0.0, i) for i, y in enumerate(said)))], 0).but(reward=earned)
    p, values = chance.detach(), torch.zeros(batch.mask.shape, dtype=torch.float64)
    for i, y in enumerate(said):
        for t in range(len(y)):
            same = torch.tensor([z[:t] == y[:t] and len(z) > t for z in said])
            values[i, 2 + t] = (p * earned)[same].sum() / p[same].sum()
    batch = batch.but(extra={"values": values}, weight=p[:, None] * batch.mask)
    credit = PPO.advantage(batch, LEDGER, lam=lam, whiten=False)
    assert float((credit * p[:, None])[:, 2].sum().abs()) < 1e-9
    recipe = methods.load("ppo").recipe()
    world.learner.gradient(batch.but(advantage=credit), recipe.loss)
    torch.testing.assert_close(-flat_gradient(world.learner), torch.cat([g.flatten() for g in true]), atol=1e-7, rtol=0)


def test_ppo_brings_the_credit_of_tokens_to_mean_0_and_spread_1():
    batch = batch_of([1, 0, 0, 1], lengths=[[1, 3, 2, 4]])
    batch = batch.but(extra={"values": foreseen(batch, [0.1 * k for k in range(10)])})
    recipe = methods.load("ppo").recipe()
    credit = recipe.advantage(batch, LEDGER)
    here = credit[batch.mask]
    assert_close([float(here.mean()), float(here.square().mean())], [0.0, 1.0])
    assert (credit[~batch.mask] == 0).all() and recipe.weight(batch)[batch.mask].tolist() == pytest.approx([0.1] * 10)


@pytest.mark.parametrize("make", [toy.world, small_world])
def test_a_critic_learns_the_mean_pays_for_it_and_leaves_the_policy_alone(make):
    world = make()
    batch = batch_of([1, 0, 0, 0, 1], lengths=[[1, 1, 1, 1, 1]])
    before = {k: v.clone() for k, v in world.learner.weights().items()}
    assert world.critic.state() == {} and world.critic.values(batch).abs().sum() == 0
    target = batch.reward[:, None] * batch.mask
    told = [world.critic.fit(batch, target, lr=0.02)["critic/loss"] for _ in range(60)]
    assert_close(told[0], 0.2)                                              # half of 2/5
    assert_close(world.critic.values(batch)[batch.mask].tolist(), [0.4] * 5, 0.02)      # all five say the same
    assert all(v.equal(before[k]) for k, v in world.learner.weights().items())
    spent = world.meter.of()
    tokens = int(batch.length.sum())
    assert (spent.score, spent.train, spent.updates) == (2 * tokens, 60 * tokens, 60)


@pytest.mark.parametrize("make", [toy.world, small_world])
def test_a_critic_knows_what_stands_before_a_token_and_not_the_token(make):
    world = make()
    batch = batch_of([1, 0], lengths=[[4, 4]])
    for _ in range(2):
        world.critic.fit(batch, 1.0 * batch.mask.cumsum(-1) * batch.mask, lr=0.05)
    before = world.critic.values(batch)
    for t in (3, 4, 5):
        tokens = batch.tokens.clone()
        tokens[:, t] = 1 - tokens[:, t].clamp(max=1)
        gap = (world.critic.values(batch.but(tokens=tokens)) - before).abs().amax(0)
        assert gap[: t + 1].max() < 1e-6 and (t == 5 or gap[t + 1] > 1e-6)


def test_ppo_learns_its_critic_towards_what_it_foresaw_plus_what_it_had_not():
    world, recipe = toy.world(), methods.load("ppo").recipe()
    seen = []
    world.critic.fit = lambda part, target, lr: seen.append((part, target, lr)) or {"critic/loss": 0.5}
    batch = batch_of([1, 0], [0, 1])
    batch = batch.but(extra={"values": foreseen(batch, [0.25] * 12)})
    metrics = recipe.improve(credited(recipe, batch), recipe, world, Ledger(step=9))
    targets = torch.cat([t[p.mask] for p, t, _ in seen])
    assert_close(targets[:3].tolist(), [0.25 + 0.75 * 0.95**2, 0.25 + 0.75 * 0.95, 1.0])
    assert [p.rollout.tolist() for p, _, _ in seen] == [[0], [1], [2], [3]] and {lr for *_, lr in seen} == {1e-6}
    assert metrics["critic/loss"] == 0.5 and {"loss", "grad_norm", "critic/explained"} <= set(metrics)


@pytest.mark.parametrize("make", [toy.world, small_world])
def test_a_restored_world_goes_on_with_policy_and_critic_to_the_last_bit(make):
    recipe = methods.load("ppo").recipe(groups=2, rollouts=4)
    recipe = tune(recipe, "pace.lr", 0.01)
    batch = batch_of([1, 0, 0, 1], [0, 1, 0, 0], lengths=[[1, 3, 2, 4], [5, 1, 2, 2]])

    def step(world):
        here = ppo.enrich(batch, world)
        recipe.improve(credited(recipe, here), recipe, world, LEDGER)

    one, other = make(), make()
    step(one)
    other.restore(one.state())
    for world in (one, other):
        step(world)
    assert one.state().keys() == other.state().keys() and any(k.startswith("critic.") for k in one.state())
    assert all(v.equal(other.state()[k]) for k, v in one.state().items())
    fresh = make()
    other.restore(fresh.state())
    assert other.critic.state() == {}


def test_a_world_without_a_critic_says_so():
    world = toy.world()
    world.critic = None
    with pytest.raises(UserError, match="a world with a critic"):
        ppo.enrich(batch_of([1.0]), world)


def test_a_run_of_ppo_keeps_its_critic_in_the_checkpoint(tmp_path):
    """A run that dies in its third step and goes on ends as the one that did not, critic and policy."""
    job = Job("ppo", Setting.of(data="sums:base=easy,count=60"), "ppo", 1, {"rollouts": 64}, Arm(n=4, B=4, lr=0.003),
              save_every=1)

    def once(folder, dies=False):
        opened = open_setting(job.setting, reference=True)
        fit, meter = opened.world.critic.fit, opened.world.meter

        def until(*args, **settings):
            if dies and meter.of().updates >= 16:
                raise RuntimeError("killed")
            return fit(*args, **settings)

        opened.world.critic.fit = until
        asyncio.run(go(job, folder, opened=opened))
        return opened.world.state()

    whole = once(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="killed"):
        once(tmp_path / "cut", dies=True)
    again = once(tmp_path / "cut")
    assert any(k.startswith("critic.") for k in whole) and again.keys() == whole.keys()
    assert all(v.equal(again[k]) for k, v in whole.items())


def test_the_toys_adam_is_torchs():
    """Bit for bit, moments kept and restored in between: nothing that was measured in the toy moves with it."""
    rng = torch.Generator().manual_seed(3)
    start = torch.randn(5, dtype=torch.float64, generator=rng)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    mine, other = toy.TableAdam([ours]), torch.optim.Adam([theirs], lr=0.0)
    for k in range(20):
        gradient = torch.randn(5, dtype=torch.float64, generator=rng)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        if k == 10:
            kept = mine.state()
            mine = toy.TableAdam([ours])
            mine.restore(kept)
        mine.step(0.01 * k)
        other.param_groups[0]["lr"] = 0.01 * k
        other.step()
    assert torch.equal(ours, theirs)
