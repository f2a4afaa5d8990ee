"""Mistakes that other trainers made in advantages and losses, each with the test that would have caught it."""

import asyncio
import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from in_turn import in_their_turn
from isocost import methods
from isocost.batch import Forward
from isocost.contract.check import Trial
from isocost.ledger import Ledger
from isocost.methods import cispo, dapo, drgrpo, isoeasy, mrt, reinforce
from isocost.ops import mismatch
from isocost.pack import pack
from isocost.parts import improve, loss, select, weight
from isocost.recipe import describe, tune
from isocost.types import Fate, Group, Place, Problem, Role, Sampling, Stop
from isocost.worlds import toy
from toy import (
    attempt,
    batch_of,
    chances,
    flat_gradient,
    group,
    per_rollout,
    ratios,
    replies,
    run,
)
from turns import OF_ONE_TURN

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
ALL = OF_ONE_TURN
TURN = in_their_turn(ALL)
LEDGER = Ledger()
RAGGED = [[1, 3, 2, 4], [5, 1, 2, 2]]

# Claims that are not true of every kind of credit. A recipe that holds one of these functions need not keep the claim,
# but must be seen to break it: a reason that has become wrong fails the test as a fault does.
EXCEPT = {
    "settled": {
        "bfsprover.advantage": "it has no baseline: it imitates steps of whatever was right",
        "mssr.advantage": "its baseline is what was expected of the problem, in units of the batch",
        "reinforce.advantage": "its baseline is the mean of the whole batch",
        "v05.advantage": "its baseline is partly what was expected of the problem, and a settled group may beat that",
        "fbc.advantage": "it has no baseline: it imitates whatever was right",
        "otr.advantage": "it has no baseline: the reward is the credit",
        "ppo.advantage": "its baseline is the critic's, token by token, and no sibling's",
        "tppo.advantage": "its baseline is the critic's, token by token, and no sibling's",
    },
    "signs": {
        "bfsprover.advantage": "it forgets what was wrong",
        "mssr.advantage": "its baseline is what was expected of the problem, and the batch's mean",
        "fbc.advantage": "it forgets what was wrong",
        "ppo.advantage": "a critic that knows nothing yet may foresee anything of a first token",
        "tppo.advantage": "a critic that knows nothing yet may foresee anything of a first token",
        "otr.advantage": "the reward is the credit, and that of a wrong token is whatever `reward.wrong` says",
        "reinforce.advantage": "its baseline is the mean of the whole batch, so another group decides the sign",
        "bon.advantage": "it has no baseline: wrong answers have no credit, right ones the more the rarer they are",
        "bonrlb.advantage": "its positive form has no baseline: wrong answers have no credit",
        "mcgrpo.advantage": "who is at the median has no credit: with right and wrong alone that is most of a group",
    },
    "shift": {
        "bfsprover.advantage": "a threshold tells right from wrong, and everything is above it after the shift",
        "prefer.reward": "it reads a score as a chance, from 0 to 1, and all are sure of it after the shift",
        "rubric.reward": "a criterion is met from 1/2 on, and everything is above it after the shift",
        "apriel.reward": "a threshold tells right from wrong, and shortens what is right",
        "drpo.advantage": "a threshold tells right from wrong, and everything is above it after the shift",
        "fapo.reward": "it pays 1 and -1 by a threshold, and everything is above it after the shift",
        "bon.advantage": "a threshold tells right from wrong, and everything is above it after the shift",
        "bonrlb.advantage": "a threshold tells right from wrong, and everything is above it after the shift",
        "v05.advantage": "it takes rewards to be 0 and 1: its expectations are of them, and do not shift along",
        "fbc.advantage": "a threshold tells right from wrong, and everything is above it after the shift",
        "otr.advantage": "it has no baseline",
        "ppo.advantage": "what the critic foresees does not shift along: it has to learn that",
        "tppo.advantage": "what the critic foresees does not shift along: it has to learn that",
        "chipseek.reward": "a threshold tells right from wrong, and everything is above it after the shift",
        "totrl.reward": "a threshold tells right from wrong, and everything is above it after the shift",
    },
    "scale": {
        "gdro.advantage": "it compares rewards in units of tau",
        "bfsprover.advantage": "whatever is above a threshold is imitated alike",
        "prefer.reward": "it reads a score as a chance, from 0 to 1",
        "rubric.reward": "a criterion is met from 1/2 on",
        "apriel.reward": "the price of length does not scale along",
        "drpo.advantage": "whatever is above a threshold has the same credit",
        "mssr.advantage": "it takes rewards to be 0 and 1",
        "bon.advantage": "a threshold tells right from wrong, and a quarter is above it after the scaling",
        "bonrlb.advantage": "a threshold tells right from wrong, and a quarter is above it after the scaling",
        "mcgrpo.advantage": "in units of the deviation where there is one, and of the reward where there is none",
        "v05.advantage": "it takes rewards to be 0 and 1",
        "fbc.advantage": "whatever is above a threshold is imitated alike",
        "ppo.advantage": "what the critic foresees does not scale along: it has to learn that",
        "tppo.advantage": "what the critic foresees does not scale along: it has to learn that",
    },
    "dead": {
        "bfsprover.advantage": "it has no baseline, so a group that is all right is imitated",
        "mssr.advantage": "its baseline is of the problem, so no group is dead",
        "t1.loss": "its leash and its bonus act on dead groups as well",
        "reinforce.advantage": "its baseline is the mean of the whole batch, so no group is dead",
        "v05.advantage": "a group that earned the same may differ from what was expected of it",
        "fbc.advantage": "it has no baseline, so a group that is all right is imitated",
        "otr.advantage": "it has no baseline, so a group that is all right is learned from",
        "ppo.advantage": "its baseline is the critic's, so no group is dead",
        "tppo.advantage": "its baseline is the critic's, so no group is dead",
        "isoeasy.loss": "its leash and its bonus act on dead groups as well",
        "kimi.loss": "its square holds every rollout to the sampler, those of dead groups as well",
        "gdpo.advantage": "it divides by the spread of the batch, which dead groups make smaller",
        "liteppo.advantage": "it divides by the spread of the batch, to which the place of dead groups belongs",
    },
}
STANDARDISED = {   # credit in units of a spread does not scale with the rewards; all other credit does
    "grpo.advantage": "the group's", "liteppo.advantage": "the batch's", "gdpo.advantage": "the group's, part by part",
    "scalerl.advantage": "the batch's, less what is settled", "adhint.advantage": "the group's",
    "branchgrpo.advantage": "the depth's",
}


@cache
def holds(name):
    """The functions a recipe is made of, at any depth, such as "grpo.advantage"."""
    def walk(x):
        if isinstance(x, dict):
            module, _, function = x.get("fn", "").rpartition(":")
            return {f"{module.rpartition('.')[2]}.{function}"}.union(*map(walk, x.values()))
        return set().union(*map(walk, x)) if isinstance(x, list) else set()

    return walk(describe(methods.load(name).recipe()))


def claim(about, name, check):
    """Hold a method to a claim; one that is excepted must break it."""
    if holds(name) & set(EXCEPT[about]):
        with pytest.raises(AssertionError):
            check()
    else:
        check()


def test_exceptions_are_of_functions_that_some_method_has():
    known = set().union(*map(holds, ALL))
    assert UNASKED.union(STANDARDISED, SHAPES, *EXCEPT.values()) <= known


# hand-made groups as a method would have them ---------------------------------------------------------------------

BESIDE = 100    # attempts from this number on were not made by hand


def with_stops(group):
    """Beside those who think on, as many who stopped and answered, and earned the same."""
    at = int(np.flatnonzero(group.rollouts[0].segments[0].own)[0])
    stops = [r.but(attempt=BESIDE + k, cohort=mrt.STOPPED, parent=(0, at)) for k, r in enumerate(group.rollouts)]
    return group.of([*group.rollouts, *stops])


def with_answers(group):
    """To each trace an answer at four places, or as many as it has, which earned what the trace did."""
    asked = []
    for trace in group.rollouts:
        own = np.flatnonzero(trace.segments[0].own).tolist()
        for budget, at in enumerate([t + 1 for t in own[:-1]][:4] or own[:1]):
            answer = attempt([0, 3], trace.score.value, BESIDE + len(asked), cohort=f"{trace.attempt}.{budget}")
            asked.append(answer.but(parent=(trace.attempt, at)))
    return group.of([*group.rollouts, *asked])


SHAPES = {"mrt.play": with_stops, "brpo.play": with_answers}   # plays whose attempts credit one another
UNASKED = {"otr.reward", "ettrl.reward"}    # rewards that ask no verifier: what was written down stands


WORLD = toy.world()      # to read and score with; nothing here trains in it


def earned(name, *groups):
    """Groups that the method's play could have made, after its own reward; the verifier says what was written down."""
    recipe = methods.load(name).recipe()

    async def told(rollouts):
        return [r.score for r in rollouts]

    async def scored():
        if holds(name) & UNASKED:
            return groups
        return [await recipe.reward(g, replace(WORLD, grade=told)) for g in groups]

    shape = next((SHAPES[f] for f in holds(name) & set(SHAPES)), None)
    if shape is None:
        return asyncio.run(scored())
    groups = [shape(g) for g in groups]
    return [recipe.select(g, LEDGER) for g in asyncio.run(scored())]     # it may train on some of them only


def written(*rewards, lengths=None):
    return [_written(tuple(r), tuple(lengths[slot]) if lengths else None, slot) for slot, r in enumerate(rewards)]


_written = cache(group)     # nothing changes a group, and every method is shown the same


def filled(name, batch):
    recipe = methods.load(name).recipe()
    for add in recipe.enrich:
        batch = add(batch, WORLD)
    batch = batch.but(advantage=recipe.advantage(batch, LEDGER))
    return batch.but(weight=recipe.weight(batch)), recipe.loss


def credits(name, *groups):
    """The credit of each hand-made attempt, group by group."""
    batch, _ = filled(name, pack(earned(name, *groups), 0))
    each = iter(per_rollout(batch.advantage, batch))
    told = [[(r.attempt, next(each)) for r in g.rollouts] for g in batch.groups]
    return [[c for number, c in g if number < BESIDE] for g in told]


def gradient(name, batch, micro=None):
    world = toy.world(micro=micro)
    batch, fn = filled(name, batch)
    world.learner.gradient(batch.but(old=batch.logp), fn)
    return flat_gradient(world.learner)


# 1 and 2: accumulation and padding ----------------------------------------------------------------------------

def ragged(name):
    return pack(earned(name, *written([1, 0, 0, 1], [0, 1, 0, 0], lengths=RAGGED)), 0)


@pytest.mark.parametrize("name", TURN)
def test_1_accumulation_changes_nothing(name):
    batch = ragged(name)
    whole = gradient(name, batch)
    assert whole.abs().max() > 0
    for micro in (1, 2, 3, 4):
        torch.testing.assert_close(gradient(name, batch, micro), whole, atol=1e-10, rtol=0)


def test_1_fails_for_an_average_per_microbatch():
    batch = batch_of([1, 0, 0, 1], lengths=RAGGED[:1])

    def wrong(micro):
        world = toy.world(micro=micro)
        part = batch.but(advantage=batch.mask.float(), weight=batch.mask.float())
        world.learner.gradient(part, lambda out, b: (-out.logp / b.mask.sum(), {}))
        return flat_gradient(world.learner)

    assert (wrong(1) - wrong(None)).abs().max() > 1e-3


def padded(batch, more=5):
    fields = ("tokens", "mask", "logp", "role", "turn")
    grown = {k: torch.nn.functional.pad(getattr(batch, k), (0, more)) for k in fields}
    extra = {k: torch.nn.functional.pad(v, (0, more)) for k, v in batch.extra.items()}
    return batch.but(**grown, extra=extra, advantage=None, weight=None)


@pytest.mark.parametrize("name", TURN)
def test_2_padding_changes_nothing(name):
    batch = ragged(name)
    torch.testing.assert_close(gradient(name, padded(batch)), gradient(name, batch), atol=1e-12, rtol=0)
    sampled, ledger, world = Trial(methods.load(name), toy.world).credited      # as its own play has it
    recipe, grads = methods.load(name).recipe(), []
    for one in (sampled, padded(sampled)):
        one = one.but(advantage=recipe.advantage(one, ledger))
        world.learner.gradient(one.but(weight=recipe.weight(one)), recipe.loss)
        grads.append(flat_gradient(world.learner))
    torch.testing.assert_close(*grads, atol=1e-12, rtol=0)


# 3 and 4: averages --------------------------------------------------------------------------------------------

def test_3_averages_in_closed_form():
    """Lengths 1 and 9, token losses 2 and 1: the averages of the field, by hand."""
    batch = batch_of([1, 0], lengths=[[1, 9]])
    cost = torch.tensor([2.0, 1.0])[:, None] * batch.mask

    def mean(fn, **settings):
        return float((fn(batch, **settings) * cost).sum())

    assert mean(weight.token_mean) == pytest.approx((2 + 9) / 10)
    assert mean(weight.rollout_mean) == pytest.approx((2 + 1) / 2)
    assert mean(reinforce.weight) == pytest.approx((2 + 9) / 2)
    assert mean(cispo.weight) == pytest.approx((2 + 9) / 10)
    assert mean(drgrpo.weight, tokens=4) == pytest.approx((2 + 9) / 8)


def test_3_prompts_weigh_the_same_whatever_their_lengths():
    batch = batch_of([1, 0], [1, 0], lengths=[[1, 2], [30, 40]])
    per_group = torch.zeros(2).index_add(0, batch.group, cispo.weight(batch).sum(-1))
    torch.testing.assert_close(per_group, torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize(("inner", "alone"), [
    (weight.token_mean, [1 / 10, 1 / 10, 0]), (weight.rollout_mean, [1 / 2, 1 / 18, 0]),
    (reinforce.weight, [1 / 2, 1 / 2, 0]), (cispo.weight, [1 / 10, 1 / 10, 0]),
    (drgrpo.weight, [1 / 2048, 1 / 2048, 0]),
], ids=lambda x: getattr(x, "__name__", ""))
def test_4_truncated_rollouts_leave_numerator_and_denominator_once(inner, alone):
    cut = attempt([0, 1, 2, 0], 0.0, 2, stop=Stop.LENGTH)
    batch = pack([group([1, 0], [1, 9]).of([*group([1, 0], [1, 9]).rollouts, cut])], 0)
    assert per_rollout(dapo.unless_cut(batch, inner=inner), batch) == pytest.approx(alone)
    assert all(w > 0 for w in per_rollout(inner(batch), batch))


# 5 and 6: advantages ------------------------------------------------------------------------------------------

SETTLED = list(itertools.product([0.1, 1 / 3, 1e8], [1, 2, 16]))     # what all of how many earned


@pytest.mark.parametrize("name", TURN)
def test_5_a_group_that_earned_the_same_gets_exactly_zero(name):
    def check():
        for value, n in SETTLED:
            assert credits(name, *written([value] * n, [1.0, 0.0, 0.0, 0.0]))[0] == [0.0] * n

    claim("settled", name, check)


@pytest.mark.parametrize("name", TURN)
def test_5_beside_it_right_answers_are_pushed_up_and_wrong_ones_down(name):
    def check():
        for value, n in SETTLED:
            right, *wrong = credits(name, *written([value] * n, [1.0, 0.0, 0.0, 0.0]))[1]
            assert right > 0 and max(wrong) < 0

    claim("signs", name, check)


@pytest.mark.parametrize("n", [2, 5, 16])
def test_5_standardised_credit_stays_within_its_algebraic_bound(n):
    """One of n alone: (n - 1) / sqrt(n) with the unbiased spread, however small the difference."""
    for gap in (1.0, 1e-3):
        batch = batch_of([gap, *[0.0] * (n - 1)])
        credit = per_rollout(methods.load("grpo").recipe().advantage(batch, LEDGER), batch)
        assert credit[0] <= (n - 1) / math.sqrt(n) + 1e-5
    assert per_rollout(methods.load("rloo").recipe().advantage(batch, LEDGER), batch)[0] == pytest.approx(1e-3)


REWARDS = ([1.0, 0.0, 0.5, 0.0], [0.25, 1.0, 1.0, 0.0], [0.0, 0.25, 1.0, 0.25])


def credited(name, f):
    return torch.tensor(list(itertools.chain(*credits(name, *written(*[[f(r) for r in rs] for rs in REWARDS])))))


@pytest.mark.parametrize("name", TURN)
def test_6_a_shift_of_rewards_changes_nothing(name):
    plain = credited(name, lambda r: r)
    assert plain.any()
    claim("shift", name, lambda: torch.testing.assert_close(
        credited(name, lambda r: r + 4), plain, atol=1e-5, rtol=1e-5))


@pytest.mark.parametrize("name", TURN)
def test_6_a_scale_of_rewards_scales_the_credit_or_changes_nothing_where_it_is_in_units_of_a_spread(name):
    times = 1 if holds(name) & set(STANDARDISED) else 8
    plain = credited(name, lambda r: r)
    claim("scale", name, lambda: torch.testing.assert_close(
        credited(name, lambda r: 8 * r), plain * times, atol=1e-4, rtol=1e-4))


# 7 and 8: groups ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", TURN)
def test_7_groups_are_distinguished_by_id_and_never_by_prompt_or_place(name):
    """Two problems with one prompt are two groups; so are two draws of one problem; order changes nothing."""
    twin = Problem("0b", toy.questions()[0].prompt, "b")
    made = group([1, 0, 0, 0], slot=0), group([1, 1, 0, 0], slot=1, problem=twin), group([0, 0, 1, 0], slot=2)
    a, b, c = earned(name, *made)
    advantage = methods.load(name).recipe().advantage

    def said(*groups):
        batch, _ = filled(name, pack(groups, 0))
        assert len({g for g, r in zip(batch.group.tolist(), _attempts(batch), strict=True) if r < BESIDE}) == 3
        return advantage(batch, LEDGER), batch

    there, batch = said(a, b, c)
    assert there.any()
    torch.testing.assert_close(there, said(c, b, a)[0])
    moved, back = said(*(Group(g.problem, g.rollouts, Place(0, 0, 2 - g.place.slot)) for g in (a, b, c)))
    size = len(a.rollouts)
    assert per_rollout(moved, back)[:size] == per_rollout(there, batch)[-size:]


def _attempts(batch):
    return [r.attempt for g in batch.groups for r in g.rollouts]


def test_7_cohorts_of_one_group_have_baselines_of_their_own():
    plain = [attempt([0, 3], r, i) for i, r in enumerate([1, 0])]
    hinted = [attempt([0, 3], r, i + 2, cohort="hinted") for i, r in enumerate([1, 1, 0, 1])]
    batch = pack([Group(toy.questions()[0], (*plain, *hinted))], 0)
    credit = per_rollout(methods.load("drgrpo").recipe().advantage(batch, LEDGER), batch)
    assert credit == [0.5, -0.5, 0.25, 0.25, -0.75, 0.25]


@pytest.mark.parametrize("name", TURN)
def test_8_dead_groups_shrink_the_update_by_the_documented_factor(name):
    """One of three groups alive: a third of the update, as `parts.weight` says; with `mixed`, all of it."""
    alive = gradient(name, pack(earned(name, group([1, 0, 0, 1])), 0))
    for dead in ([0] * 4, [1] * 4), ([0] * 4, [0] * 4), ([1] * 4, [1] * 4):
        three = earned(name, *written([1, 0, 0, 1], *dead))
        left = [g for g in three if select.mixed(g, LEDGER)]
        torch.testing.assert_close(gradient(name, pack(left, 0)), alive)

    def check():
        for dead in ([0] * 4, [1] * 4), ([0] * 4, [0] * 4), ([1] * 4, [1] * 4):
            three = earned(name, *written([1, 0, 0, 1], *dead))
            torch.testing.assert_close(gradient(name, pack(three, 0)) * 3, alive, atol=1e-9, rtol=1e-6)

    claim("dead", name, check)


# 9: KL --------------------------------------------------------------------------------------------------------

def kl_term(estimate, at):
    """E over four tokens of a KL estimate as a loss: its value and the gradient that samples of the policy give."""
    theta = torch.tensor([0.3, -0.5, 1.0, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([1.0, 0.2, -0.3, 0.0], dtype=torch.float64), -1)
    logp = torch.log_softmax(theta, -1)
    chance = at(logp).detach().exp()
    column = lambda x: torch.nn.functional.pad(x[:, None], (2, 0))  # noqa: E731 - after two tokens of prompt
    batch = batch_of([0.0] * 4, lengths=[[1] * 4]).but(extra={"reference": column(reference)})
    out = Forward(column(logp), column(logp))
    per_token, _ = isoeasy.to_reference(out, batch, scale=1.0, estimate=estimate)
    value = (chance * per_token[:, 2]).sum()
    value.backward()
    return float(value.detach()), theta.grad, logp.detach(), reference


def true_gradient(kl):
    theta = torch.tensor([0.3, -0.5, 1.0, 0.1], dtype=torch.float64, requires_grad=True)
    kl(torch.log_softmax(theta, -1)).backward()
    return theta.grad


def test_9_estimates_of_kl_by_enumeration():
    value, slope = {}, {}
    for estimate in ("k1", "k2", "k3"):
        value[estimate], slope[estimate], logp, reference = kl_term(estimate, lambda logp: logp)
    forward = float((logp.exp() * (logp - reference)).sum())
    assert value["k1"] == pytest.approx(forward) == value["k3"]
    kl = true_gradient(lambda x: (x.exp() * (x - reference)).sum())
    backward = true_gradient(lambda x: (reference.exp() * (reference - x)).sum())
    assert slope["k1"].abs().max() < 1e-12               # in a loss it has none
    torch.testing.assert_close(slope["k2"], kl)          # its own
    torch.testing.assert_close(slope["k3"], backward)    # that of the other KL
    assert (backward - kl).abs().max() > 0.05


def test_9_off_policy_no_estimate_has_the_gradient_of_kl():
    stale = torch.log_softmax(torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64), -1)
    terms = {estimate: kl_term(estimate, lambda logp: stale) for estimate in ("k1", "k2", "k3")}
    reference = terms["k1"][3]
    kl = true_gradient(lambda x: (x.exp() * (x - reference)).sum())
    assert all((slope - kl).abs().max() > 0.01 for _, slope, _, _ in terms.values())


# 10: the policy gradient --------------------------------------------------------------------------------------

def expected_gradient(name, n=2, most=2):
    """The mean of a method's gradient over every possible group of n replies to one question, exactly."""
    world, said = toy.world(), replies(most)
    chance = chances(world.learner, said)
    earned = [float(y[:1] == (0,)) + 0.25 * len(y) for y in said]
    worth = (chance * torch.tensor(earned, dtype=torch.float64)).sum()
    true = torch.autograd.grad(worth, list(world.learner.policy.parameters()))
    p, picks = chance.detach().tolist(), list(itertools.product(range(len(said)), repeat=n))
    groups = [
        Group(toy.questions()[0], tuple(attempt(said[i], earned[i], k) for k, i in enumerate(pick)), Place(0, 0, slot))
        for slot, pick in enumerate(picks)
    ]
    recipe, batch = methods.load(name).recipe(), pack(groups, 0)
    odds = torch.tensor([math.prod(p[i] for i in pick) for pick in picks for _ in pick], dtype=torch.float64)
    batch = batch.but(weight=odds[batch.rollout, None] * batch.mask / n)
    batch = batch.but(advantage=recipe.advantage(batch, LEDGER).double())
    seen = world.learner.gradient(batch, recipe.loss)
    return flat_gradient(world.learner), torch.cat([g.flatten() for g in true]), seen


def test_10_rloo_is_unbiased_and_the_group_mean_is_so_up_to_its_factor():
    """The baseline that holds a rollout's own reward costs the factor (n - 1) / n, and nothing in direction."""
    for n, most in ((2, 2), (3, 1)):
        estimate, true, _ = expected_gradient("rloo", n, most)
        torch.testing.assert_close(-estimate, true, atol=1e-6, rtol=1e-4)
        estimate, true, _ = expected_gradient("drgrpo", n, most)
        torch.testing.assert_close(-estimate, true * (n - 1) / n, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["grpo", "dapo", "cispo", "isohard"])
def test_10_on_policy_the_ratio_is_one_nothing_is_clipped_and_the_direction_is_right(name):
    estimate, true, seen = expected_gradient(name)
    assert torch.cosine_similarity(-estimate, true, dim=0) > 0.97
    assert seen.get("clip_ratio/region_mean", 0.0) == 0.0
    batch = batch_of([1.0, 0.0])
    out = Forward((batch.logp * 1.7).requires_grad_(), batch.logp)
    value, _ = loss.clipped(out, batch.but(advantage=batch.mask.float()))
    assert value[batch.mask].tolist() == [-1.0] * 6


# 11: what carries gradient ------------------------------------------------------------------------------------

def test_11_corrections_are_constants():
    """Finite differences with the weight held still give the gradient; with the weight moving they do not."""
    out, batch, now = ratios([1.3, 0.8], [1.0, -2.0])
    batch = batch.but(logp=batch.old - 0.4 * batch.mask)
    inner = lambda out, batch: loss.clipped(out, batch, low=5.0, high=5.0)  # noqa: E731 - one line says it
    loss.corrected(out, batch, inner=inner)[0].sum().backward()
    held = (batch.old - batch.logp).exp()
    want = -batch.advantage * held * (now.detach() - batch.old).exp()
    torch.testing.assert_close(now.grad, want * batch.mask)


def test_11_the_correction_is_a_constant_on_policy_where_it_depends_on_the_current_policy():
    now = torch.full((1, 3), -1.0).where(torch.tensor([[False, False, True]]), torch.tensor(0.0)).requires_grad_()
    batch = batch_of([1.0], lengths=[[1]])
    batch = batch.but(logp=-1.3 * batch.mask, advantage=batch.mask.float())
    out = Forward(now, now)
    assert not mismatch(out, batch).requires_grad
    loss.corrected(out, batch, inner=reinforce.loss)[0].sum().backward()
    assert now.grad[0, 2] == pytest.approx(-math.exp(0.3))          # moving with it would give -exp(.3)(1 + log π)


def test_11_cispo_weighs_by_a_constant():
    _, _, now = ratios([3.0], [1.0])
    out, batch, now = ratios([3.0], [1.0])
    cispo.loss(out, batch, high=5.0)[0].sum().backward()
    assert now.grad[batch.mask].item() == pytest.approx(-3.0)       # moving with it would give -3(1 + log π)


# 12: a verifier that fails ------------------------------------------------------------------------------------

def test_12_a_failed_verifier_is_counted_and_never_averaged_in():
    world, recipe = toy.world(), methods.load("grpo").recipe(groups=10, rollouts=8)
    world.grade.broken = {"3", "7"}
    ledger, steps = run(recipe, world, 80)
    assert ledger.fates[str(Fate.LOST)] == 16
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == 80
    (step,) = steps
    told = [x.score.value for g in step.groups for x in g.rollouts]
    assert {g.problem.id for g in step.groups} == set("01245689")
    assert step.line["reward"] == pytest.approx(np.mean(told))
    assert ledger.of("3").tries == 0


# 13: clipping -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("ratio", "credit", "on"), [
    (0.5, +1, True), (0.5, -1, False), (0.79, -1, False), (0.81, -1, True), (1.0, +1, True), (1.0, -1, True),
    (1.27, +1, True), (1.29, +1, False), (1.29, -1, True), (2.9, -1, True), (3.1, -1, False), (3.1, +1, False),
])
def test_13_clip_higher_and_dual_clip(ratio, credit, on):
    out, batch, now = ratios([ratio], [float(credit)])
    value, seen = loss.clipped(out, batch, low=0.2, high=0.28, dual=3.0)
    value.sum().backward()
    here = now.grad[batch.mask].item()
    assert here == pytest.approx(-credit * ratio if on else 0.0, abs=1e-6)
    within = 0.8 <= ratio <= 1.28 or (ratio > 1.28) == (credit < 0)
    assert seen["clip_ratio/region_mean"][batch.mask].item() == float(not within)
    assert value[batch.mask].item() <= 3.0


def test_13_without_dual_clip_a_bad_token_may_cost_anything():
    out, batch, now = ratios([50.0], [-1.0])
    value, _ = loss.clipped(out, batch)
    value.sum().backward()
    assert now.grad[batch.mask].item() == pytest.approx(50.0)


# old log-probs: who needs them --------------------------------------------------------------------------------

def test_fresh_rollouts_and_one_update_need_no_old_log_probs():
    world, batch = toy.world(), batch_of([1.0, 0.0])
    assert improve.with_old(batch, world, updates=1) is batch
    assert world.meter.of().score == 0


def test_old_log_probs_are_scored_for_fresh_rows_and_the_samplers_for_aged_ones():
    world = toy.world()
    groups = [group([1, 0], slot=0, version=4), group([1, 0], slot=1, version=5)]
    batch = pack(groups, 5)
    assert batch.age.tolist() == [1, 1, 0, 0]
    old = improve.with_old(batch, world, updates=1).old
    torch.testing.assert_close(old[:2], batch.logp[:2] * batch.mask[:2])
    torch.testing.assert_close(old[2:], world.learner.forward(batch).logp[2:].detach().float())
    assert world.meter.of().score == 10                     # two rows of five tokens
    assert improve.with_old(pack(groups[1:], 5), world, updates=4).old is not None


def test_minibatches_hold_whole_rollouts_and_average_by_themselves():
    world, batch = toy.world(), batch_of([1, 0, 0, 1], [0, 1, 0, 0], lengths=RAGGED)
    seen = []
    world.learner.update = lambda part, fn, lr: seen.append(part) or {"loss": 1.0}
    recipe = tune(methods.load("gspo").recipe(), "improve.minibatches", 3)
    batch = batch.but(advantage=recipe.advantage(batch, LEDGER), weight=recipe.weight(batch))
    assert recipe.improve(batch, recipe, world, LEDGER) == {"loss": 1.0, "learning_rate": 1e-7}
    assert [p.rollout.tolist() for p in seen] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [float(p.weight.sum()) for p in seen] == pytest.approx([1, 1, 1])


def test_tokens_of_the_environment_and_of_hints_have_no_credit():
    """Their log-probs may be anything: neither loss nor gradient sees them."""
    rollout = attempt([0, 1, 3], 1.0)
    (text,) = rollout.segments
    grown = text.read([5, 6], Role.SEEN).read([4], Role.HINT)
    batch = pack([Group(rollout.problem, (rollout.but(segments=(grown,)), attempt([3], 0.0, 1)))], 0)
    filled_batch, _ = filled("isoeasy", batch)
    assert batch.mask.sum() == 4 and (filled_batch.advantage[~batch.mask] == 0).all()
    assert (filled_batch.weight[~batch.mask] == 0).all()


def test_temperature_and_kept_sets_come_from_the_rollout_and_no_loss_divides_by_them():
    world = toy.world()
    recipe = methods.load("grpo").recipe(groups=10)
    for path, value in (("pace.temperature", 0.5), ("pace.top_k", 2)):
        recipe = tune(recipe, path, value)
    _, steps = run(recipe, world, 80)
    batch = pack(steps[0].groups, 0)
    assert batch.kept and set(batch.temperature.tolist()) == {0.5}
    logp = toy.world().learner.forward(batch).logp
    torch.testing.assert_close(logp.float(), batch.logp * batch.mask, atol=1e-6, rtol=1e-5)
    assert steps[0].groups[0].rollouts[0].segments[0].sampling == Sampling(0.5, 1.0, 2)
