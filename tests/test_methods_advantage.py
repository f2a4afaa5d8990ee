"""Methods that differ in baseline, scale and shape of the advantage, against numbers worked by hand."""

import asyncio
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from isocost import methods
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import ace, bon, bonrlb, brpo, gdpo, mcgrpo, mrt, v05
from isocost.methods.grpo import advantage as grpo_advantage
from isocost.ops import spread
from isocost.pack import pack
from isocost.parts import play
from isocost.runs.evaluate import evaluate
from isocost.seams import Pace
from isocost.types import Fate, Group, Place, Role, Sampling, Score
from isocost.worlds import toy
from toy import QUESTION, attempt, batch_of, group, per_rollout, run

LEDGER = Ledger()


def assert_close(a, b, within=1e-6):
    assert a == pytest.approx(b, abs=within)


def credit(advantage, *rewards, **settings):
    batch = batch_of(*rewards)
    return per_rollout(advantage(batch, LEDGER, **settings), batch)


def marked(*parts, slot=0):
    """A group whose scores have these parts, and their sum for a value."""
    made = group([sum(p.values()) for p in parts], slot=slot)
    exact = [{k: float(v) for k, v in p.items()} for p in parts]
    return made.of(r.scored(Score(r.score.value, p)) for r, p in zip(made.rollouts, exact, strict=True))


# MC-GRPO ------------------------------------------------------------------------------------------------------------

def test_mcgrpo_measures_from_the_median_in_median_deviations():
    assert_close(credit(mcgrpo.advantage, [0.1, 0.9, 0.4]), [-0.3 / 0.301, 0.5 / 0.301, 0])
    # 10 r + 2: the same, but for ε
    assert_close(credit(mcgrpo.advantage, [3.0, 11.0, 6.0], eps=0.0), [-1, 5 / 3, 0])


def test_mcgrpo_where_most_are_at_the_median():
    assert_close(credit(mcgrpo.advantage, [0, 0, 1]), [0, 0, 1])
    assert_close(credit(mcgrpo.advantage, [1, 1, 0]), [0, 0, -1])
    assert_close(credit(mcgrpo.advantage, [0, 0, 1], flat=0.0), [0, 0, 1000], 1e-2)        # as released: ε alone
    assert_close(credit(mcgrpo.advantage, [0, 0, 1], rescale=True), [0, 0, 3])             # 3 rollouts, 1 with credit
    assert credit(mcgrpo.advantage, [0.3] * 3) == [0, 0, 0]


def test_mcgrpo_measures_an_even_group_from_the_mean_of_the_middle_two():
    assert_close(credit(mcgrpo.advantage, [0, 0, 1, 1]), [-0.5 / 0.501, -0.5 / 0.501, 0.5 / 0.501, 0.5 / 0.501])
    # from 3, MAD 1.5
    assert_close(credit(mcgrpo.advantage, [4, 1, 9, 2]), [1 / 1.501, -2 / 1.501, 6 / 1.501, -1 / 1.501])
    batch = batch_of([0, 0, 1, 1], [1, 0, 0])
    average = methods.load("mcgrpo").recipe().weight(batch)
    # 3 tokens each, no pivot of four
    assert_close(per_rollout(average, batch), [1 / 18] * 4 + [1 / 18, 0, 1 / 18])


def test_mcgrpo_leaves_one_pivot_out_of_the_average_and_of_the_bill():
    batch = batch_of([1, 0, 0], [0.1, 0.9, 0.4], [1, 1, 1], lengths=[[2, 4, 4], [1, 5, 9], [2, 2, 2]])
    recipe = methods.load("mcgrpo").recipe()
    average = per_rollout(recipe.weight(batch), batch)
    # 1/(6 |y|): six are left of nine
    assert_close(average, [1 / 12, 0, 1 / 24, 1 / 6, 1 / 30, 0, 0, 1 / 12, 1 / 12])
    world = toy.world()
    batch = batch.but(advantage=recipe.advantage(batch, LEDGER), weight=recipe.weight(batch))
    recipe.improve(batch, recipe, world, LEDGER)
    assert world.meter.of().train == int(batch.length.sum() - batch.length[[1, 5, 6]].sum())


def test_a_median_flips_fewer_signs_than_a_mean():
    """Three rewards of 0.4 or 0.6, each an outlier of 10 in one case of ten: whose credit points the wrong way?"""
    flips = {}
    for name, of in (("median", mcgrpo.advantage), ("mean", grpo_advantage)):
        wrong = 0.0
        for draws in itertools.product([(0.4, 0.45), (0.6, 0.45), (10.0, 0.1)], repeat=3):
            said = credit(of, [r for r, _ in draws])
            flipped = sum((r == 0.6 and a < 0) or (r == 0.4 and a > 0) for (r, _), a in zip(draws, said, strict=True))
            wrong += math.prod(p for _, p in draws) * flipped
        flips[name] = wrong
    # 0.6 is below the mean whenever an outlier is there, and below the median only if two are.
    assert_close(flips["mean"], 3 * 0.45 * (1 - 0.9**2))
    assert_close(flips["median"], 3 * 0.45 * 0.1**2)


# Lite PPO -----------------------------------------------------------------------------------------------------------

def test_liteppo_takes_the_mean_of_the_group_and_the_spread_of_the_batch():
    liteppo = methods.load("liteppo").recipe()
    said = credit(liteppo.advantage, [1, 0, 0, 0], [1, 1, 1, 0])      # std of 4 ones and 4 zeros: 1/2
    assert_close(said, [1.5, -0.5, -0.5, -0.5, 0.5, 0.5, 0.5, -1.5], 1e-5)
    assert credit(liteppo.advantage, [0.1] * 3, [1, 0, 0])[:3] == [0, 0, 0]
    batch = batch_of([1, 0], [1, 1], lengths=[[1, 9], [2, 4]])
    assert_close(per_rollout(liteppo.weight(batch), batch), [1 / 16] * 4)


# GDPO ---------------------------------------------------------------------------------------------------------------

def test_gdpo_tells_apart_what_a_sum_cannot():
    one = marked({"a": 0, "b": 0}, {"a": 0, "b": 1})
    both = marked({"a": 0, "b": 0}, {"a": 1, "b": 1}, slot=1)
    batch = pack([one, both], 0)
    half = math.sqrt(0.5)
    assert_close(per_rollout(grpo_advantage(batch, LEDGER), batch), [-half, half] * 2, 1e-5)
    raw = gdpo.advantage(batch, LEDGER, parts=("a", "b"), whiten=False, eps=0.0)
    assert_close(per_rollout(raw, batch), [-half, half, -2 * half, 2 * half])
    white = gdpo.advantage(batch, LEDGER, parts=("a", "b"), eps=0.0)      # squares add up to 5; unbiased: over 3
    assert_close(per_rollout(white, batch), [x * math.sqrt(3 / 5) for x in (-half, half, -2 * half, 2 * half)])
    skewed = gdpo.advantage(batch, LEDGER, parts=("a", "b"), weights=(3.0, 1.0), whiten=False, eps=0.0)
    assert_close(per_rollout(skewed, batch), [-half, half, -4 * half, 4 * half])


def test_gdpo_with_one_reward_is_grpo_up_to_the_batch():
    groups = [marked(*({"a": r} for r in rs), slot=k) for k, rs in enumerate([[1, 0, 0, 0], [1, 1, 0, 0], [1] * 4])]
    batch = pack(groups, 0)
    plain, ours = grpo_advantage(batch, LEDGER), gdpo.advantage(batch, LEDGER, parts=("a",))
    assert_close(ours / ours[0, 2], plain / plain[0, 2], 1e-3)
    assert per_rollout(ours, batch)[8:] == [0, 0, 0, 0]
    with pytest.raises(UserError, match="GDPO needs the reward 'right'; the score has a"):
        gdpo.advantage(batch, LEDGER)


def test_gdpos_two_rewards():
    world = toy.world()
    replies = [([0, 3], 1, 1), ([1, 3], 0, 1), ([0, 0, 0, 3], 0, 0)]      # the answer to "0?" is a, the first letter
    one = Group(QUESTION, tuple(attempt(y, None, i) for i, (y, _, _) in enumerate(replies)))
    one = one.of(r.but(final=world.text.decode(r.segments[0].reply())) for r in one.rollouts)
    for given in (False, True):
        scored = asyncio.run(gdpo.reward(one, world, limit=3, given=given)).rollouts
        want = [{"right": a, "short": b * (a if given else 1)} for _, a, b in replies]
        assert [r.score.parts for r in scored] == want
        assert [r.score.value for r in scored] == [sum(w.values()) for w in want]


# ACE ----------------------------------------------------------------------------------------------------------------

def shifted(rewards, shifts, **settings):
    """ACE's credit over GRPO's where log π − log π_0 of each whole answer is as given."""
    batch = batch_of(rewards, lengths=[[2 + k for k in range(len(rewards))]])
    each = torch.tensor(shifts) / batch.mask.sum(-1)
    batch = batch.but(extra={"reference": batch.logp - spread(each, batch) - 7.0 * ~batch.mask})
    plain = per_rollout(grpo_advantage(batch, LEDGER), batch)
    return plain, per_rollout(ace.advantage(batch, LEDGER, **settings), batch)


def test_ace_multiplies_what_is_negative_by_the_softplus_of_the_shift():
    plain, ours = shifted([1.0, 1.0, 0.0, 0.0, 0.0], [4.0, -4.0, 0.0, -80.0, 3.0])
    assert ours[:2] == plain[:2]                                     # bit for bit
    assert_close([a / b for a, b in zip(ours[2:], plain[2:], strict=True)],
          [1 + math.log(2), 1, 1 + math.log(1 + math.exp(3))], 1e-5)
    plain, ours = shifted([1.0, 0.0, 0.0], [0.0, 0.0, 50.0], alpha=0.5, cap=10.0)
    assert_close([a / b for a, b in zip(ours[1:], plain[1:], strict=True)],
          [1 + math.log(2) / 2, 1 + math.log(1 + math.exp(10)) / 2], 1e-4)


def test_ace_takes_any_credit():
    lead = methods.load("drgrpo").advantage
    _, ours = shifted([1.0, 0.0, 0.0, 0.0], [0.0] * 4, inner=lead)
    assert_close(ours, [0.75, *[-0.25 * (1 + math.log(2))] * 3])


def test_ace_unlearns_an_error_that_training_has_boosted_faster():
    """Ten draws of three arms: 2 right, 7 of a wrong one raised from 0.4 to 0.7, 1 of a wrong one lowered to 0.1."""
    policy, before = torch.tensor([0.2, 0.7, 0.1]), torch.tensor([0.2, 0.4, 0.4])
    arms = torch.tensor([0] * 2 + [1] * 7 + [2])
    after = []
    for said in shifted([1.0, 1.0, *[0.0] * 8], (policy / before).log()[arms].tolist()):
        score = torch.nn.functional.one_hot(arms, 3) - policy
        after.append(torch.softmax(policy.log() + 0.1 * (torch.tensor(said)[:, None] * score).sum(0), 0))
    plain, ours = after
    assert ours[1] < plain[1] < policy[1]
    assert ours[2] > plain[2]                                        # the other error is not pushed in its place


# BoN ----------------------------------------------------------------------------------------------------------------

def test_bon_weights_by_the_chance_of_being_the_only_right_one():
    assert_close(credit(bon.advantage, [1, 0, 0, 0], n=2), [2, 0, 0, 0])
    assert_close(credit(bon.advantage, [1, 1, 0, 0], n=2), [4 / 3, 4 / 3, 0, 0])
    # of two others, never both wrong
    assert_close(credit(bon.advantage, [1, 1, 1, 0], n=3), [0, 0, 0, 0])
    assert credit(bon.advantage, [1, 0, 1, 1], n=1) == [1, 0, 1, 1]                  # REINFORCE
    assert_close(credit(bon.advantage, [1, 0], [1, 0, 0, 0], n=4), [0, 0, 4, 0, 0, 0])      # the first has lost two
    with pytest.raises(UserError, match="groups of 2 are too small for the best of 4"):
        credit(bon.advantage, [1, 0])


def test_bons_sum_over_a_group_is_unbiased():
    """n = 8, N = 4, p = 0.8: N p^3 (1 − p) = 0.4096, by enumeration of the number of wrong ones."""
    total = 0.0
    for wrong in range(9):
        mine = credit(bon.advantage, [0.0] * wrong + [1.0] * (8 - wrong), n=4)
        total += math.comb(8, wrong) * 0.8**wrong * 0.2 ** (8 - wrong) * sum(mine) / 8
    assert_close(total, 0.4096, 1e-7)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_bons_expected_gradient_is_that_of_best_of_n(n):
    """Every group of four answers from three arms, two of them right, against the derivative of 1 − p^N."""
    logits = torch.tensor([0.3, -0.8, 0.5], dtype=torch.float64, requires_grad=True)
    chance, right = torch.softmax(logits, 0), torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    (want,) = torch.autograd.grad(1 - chance[1] ** n, logits, retain_graph=True)
    got, p = torch.zeros(3, dtype=torch.float64), chance.detach()
    for said in itertools.product(range(3), repeat=4):
        batch = batch_of([0.0] * 4)
        batch = batch.but(reward=right[list(said)])
        each = torch.tensor(per_rollout(bon.advantage(batch, LEDGER, n=n), batch), dtype=torch.float64)
        score = torch.eye(3, dtype=torch.float64)[list(said)] - p
        got += p[list(said)].prod() * (each[:, None] * score).mean(0)
    assert_close(got.tolist(), want.tolist(), 1e-7)


def test_both_exact_forms_are_the_gradient_and_minus_is_not():
    """Seven answers, N = 4: expectations over best-of-N's own draws against finite differences."""
    logits = torch.tensor([0.2, -0.5, 1.0, 0.0, -1.2, 0.7, 0.4], dtype=torch.float64)
    right = torch.tensor([1, 0, 0, 1, 0, 0, 0], dtype=torch.bool)

    def best(x):
        return 1 - torch.softmax(x, 0)[~right].sum() ** 4

    eye = torch.eye(7, dtype=torch.float64)
    slope = torch.stack([(best(logits + 1e-5 * e) - best(logits - 1e-5 * e)) / 2e-5 for e in eye])
    pi = torch.softmax(logits, 0)
    p = pi[~right].sum()
    handed = torch.where(right, pi / (1 - p) * (1 - p**4), pi / p * p**4)      # best-of-N's distribution
    score = eye - pi                                                           # row y: ∇ log π(y)
    for form, factor in (("positive", 1.0), ("plus", 1.0), ("minus", (1 + p) / (1 - p))):
        good, bad = bonrlb.gains(p, 4, form)
        got = ((handed * torch.where(right, good, bad))[:, None] * score).sum(0)
        assert_close(got.tolist(), (slope * factor).tolist(), 1e-7)


def test_weights_at_the_edges():
    p = torch.tensor([0.0, 0.5, 0.9, 1 - 1e-9], dtype=torch.float64)
    for n in (1, 2, 4, 32):
        positive, _ = bonrlb.gains(p, n, "positive")
        assert bool((positive <= 1 + 1e-6).all()) and positive[-1] == pytest.approx(1, abs=1e-6)
        steep, _ = bonrlb.gains(p, n, "plus")
        assert steep[-1] * (1 - p[-1]) == pytest.approx(1, abs=1e-5)            # g⁺ -> 1/(1 − p)
        assert (bonrlb.gains(p, n, "minus")[1] == -bonrlb.gains(p, n, "plus")[1]).all()
    assert_close(bonrlb.gains(p, 1, "positive")[0].tolist(), [1, 1, 1, 1])
    with pytest.raises(UserError, match="positive, plus, minus; not 'both'"):
        bonrlb.gains(p, 4, "both")


def test_bonrlb_hands_out_the_best_and_knows_how_many_failed():
    made = group([0, 0, 1, 0, 0, 1, 1, 0])
    best = bonrlb.select(made, LEDGER, n=4)
    assert [r.attempt for r in best.rollouts] == [2, 5]                          # ties to the first
    assert [r.attempt for r in bonrlb.select(made, LEDGER, n=3).rollouts] == [2, 5]
    assert bonrlb.select(made.of(made.rollouts[:3]), LEDGER, n=4) is None
    failed = pack([marked({"failed": 0.625}, {"failed": 0.625})], 0)
    failed = failed.but(reward=torch.tensor([1.0, 0.0]))
    said = per_rollout(bonrlb.advantage(failed, LEDGER, n=4), failed)
    assert_close(said, [4 * 0.625**3 * 0.375 / (1 - 0.625**4), 0])
    said = per_rollout(bonrlb.advantage(failed, LEDGER, n=4, form="minus", most=0.5), failed)
    assert_close(said, [4 * 0.5**3 / (1 - 0.5**4), -4])


def test_bonrlb_pays_for_what_best_of_n_throws_away():
    ledger, _ = run(methods.load("bonrlb").recipe(groups=8, rollouts=8), toy.world(), 192)
    assert ledger.fates[str(Fate.FILTERED)] == 144 and sum(ledger.fates.values()) == 192
    recipe, world = methods.load("bonrlb").recipe(), toy.world()
    one = Group(QUESTION, tuple(attempt([k % 2, 3], None, k) for k in range(5)))
    one = one.of(r.but(final=world.text.decode(r.segments[0].reply())) for r in one.rollouts)
    assert [r.score.parts["failed"] for r in asyncio.run(recipe.reward(one, world)).rollouts] == [
        pytest.approx(0.4)] * 5


# V_0.5 --------------------------------------------------------------------------------------------------------------

def test_the_fused_baselines_weights():
    for mean, prior, base in ((1, 0, 0.75), (1, 1, 1), (0.5, 0, 0)):
        assert_close(v05.fused(mean, prior, 4), base)
    gap = 1.5**2 - 0.25
    assert_close((v05.fused(-1, 0.5, 4) - 0.5) / (-1 - 0.5), gap / (gap + 0.25))       # 0.889
    assert_close(gap / (gap + 0.25), 0.889, 5e-4)
    assert_close(v05.fused(0.3, -0.6, 10**9), 0.3)


@pytest.mark.parametrize(("k", "excess"), [(4, 0.162), (8, 0.073), (16, 0.034)])
def test_the_fused_baselines_error(k, excess):
    """By enumeration of k rewards: at most min(1/k, bias²) + 0.65/k, and no more than is known of it."""
    worst, largest = -1.0, 0.0
    for m in np.linspace(-0.95, 0.95, 39):
        p = (1 + m) / 2
        heads = [math.comb(k, h) * p**h * (1 - p) ** (k - h) for h in range(k + 1)]
        for prior in np.linspace(-1, 1, 41):
            error = sum(q * (v05.fused(2 * h / k - 1, prior, k) - m) ** 2 for h, q in enumerate(heads))
            worst, largest = max(worst, error - min(1 / k, (prior - m) ** 2)), max(largest, error)
    assert excess - 0.005 < worst <= excess + 5e-4 and worst < 0.65 / k
    if k == 4:
        assert 0.40 < largest < 0.4125


def test_what_one_more_attempt_is_worth():
    assert_close(v05.error_drop(1.0, 0.0, 4), 0.75 / 4 - 0.75 / 4.75)
    assert v05.error_drop(0.5, 0.0, 4) == 0.0                                        # within chance of the prior
    made = group([1, 1, 1, 1])
    assert_close(v05.gain(made, LEDGER), 0.75 / 4 - 0.75 / 4.75)
    assert v05.gain(made.of(()), LEDGER) == 0.0


def test_v05s_credit():
    assert credit(v05.advantage, [1, 1, 1, 1], whiten=False) == [0.25] * 4          # V = 0: a dead group has some
    assert credit(v05.advantage, [1, 1, 0, 0], whiten=False) == [1, 1, -1, -1]
    assert_close(credit(v05.advantage, [1, 1, 0, 0], [1, 1, 1, 1]),      # mean 1/8, mean square (4 + 1/4)/8
          [x / math.sqrt(4.25 / 8 - 1 / 64) for x in (1, 1, -1, -1, 0.25, 0.25, 0.25, 0.25)], 1e-5)


def test_v05_does_not_divide_by_no_spread():
    # all wrong at first: w = 7/8, so b = -7/8
    assert_close(credit(v05.advantage, [0] * 8, [0] * 8), [-0.125] * 16)


def test_the_prior_is_what_was_known_before():
    ledger, other = Ledger(), toy.questions()[1]
    assert v05.remembered(QUESTION, ledger) is None
    for rewards in ([1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]):
        ledger.saw(group(rewards))
    assert_close(v05.remembered(QUESTION, ledger), (0.25 + 0.5 + 1) / 3)
    assert_close(v05.remembered(QUESTION, ledger, [1, 1, 1, 1]), (0.25 + 0.5) / 2)
    assert_close(v05.remembered(QUESTION, ledger, [1, 1, 1, 1], last=1), 0.5)
    assert_close(v05.remembered(other, ledger), 7 / 12)
    ledger.saw(group([0, 0], problem=other))
    assert_close(v05.remembered(other, ledger, [0, 0]), 7 / 12)      # new but for this group
    batch = batch_of([1, 1, 1, 1])
    assert_close(per_rollout(v05.advantage(batch, ledger, whiten=False), batch),
          [1 - v05.fused(1, 2 * 0.375 - 1, 4)] * 4)


def test_attempts_go_where_prior_and_rewards_disagree():
    rewards = {0: 1, 1: 0.5, 2: 1}
    plan = v05.allocate(
        [QUESTION] * 3, LEDGER, 30, gain=lambda g, _: 1.0 - 0.1 * g.place.slot if g.rewards.mean() == 1 else 0.0,
        start=4, most=7, least=0.5,
    )
    counts, had = next(plan), [0, 0, 0]
    while True:
        had = [a + b for a, b in zip(had, counts, strict=True)]
        try:
            counts = plan.send([group([rewards[k]] * had[k], slot=k) for k in range(3)])
        except StopIteration:
            break
        told = counts
    assert sum(had) == 30 and told == [4, 4, 4]                       # 7, 4 and 7 by need, and then what is over
    short = v05.allocate([QUESTION] * 3, LEDGER, 13, gain=lambda g, _: float(g.place.slot), least=0.5)
    assert next(short) == [4, 4, 4]
    assert short.send([group([1.0] * 4, slot=k) for k in range(3)]) == [0, 0, 1]    # the largest gain comes first


# MRT ----------------------------------------------------------------------------------------------------------------

def forked(stopped, on):
    made = [attempt([0, 3], 1.0, 0, cohort=mrt.SCOUT)]
    made += [attempt([0, 3], r, 1 + k, cohort=mrt.STOPPED).but(parent=(0, 2)) for k, r in enumerate(stopped)]
    made += [attempt([1, 3], r, 9 + k).but(parent=(0, 2)) for k, r in enumerate(on)]
    return Group(QUESTION, tuple(made))


def test_mrt_credits_what_going_on_adds_to_stopping():
    made = forked([1, 0, 0, 0], [1, 0, None])

    class Told:
        async def grade(self, rollouts):
            return [r.score for r in rollouts]

    scored = asyncio.run(mrt.reward(made, Told()))
    kept = mrt.select(scored, LEDGER)
    assert [r.attempt for r in kept.rollouts] == [9, 10]
    batch = pack([kept], 0)
    assert_close(per_rollout(mrt.advantage(batch, LEDGER), batch), [0.75, -0.25])
    assert mrt.select(asyncio.run(mrt.reward(forked([None], [1, 0]), Told())), LEDGER) is None
    # Going on as stopping would have: no credit on average.
    same = asyncio.run(mrt.reward(forked([1, 0, 0, 0], [1, 0, 0, 0]), Told()))
    batch = pack([mrt.select(same, LEDGER)], 0)
    assert_close(sum(per_rollout(mrt.advantage(batch, LEDGER), batch)), 0)


PACE = Pace(lr=1.0, max_tokens=4, sampling=Sampling())


def played(play, count, seed=0, pace=PACE, **settings):
    world = toy.world(seed)
    return asyncio.run(play(QUESTION, range(count), world, pace, Place(seed, 0, 0), **settings)), world


def test_halted_forks_from_one_place_and_everybody_is_charged():
    cuts = set()
    for seed in range(12):
        pace = replace(PACE, max_tokens=2)
        rollouts, world = played(mrt.play, 8, seed, pace, boundary="")      # every letter ends an episode
        assert world.meter.of().rollouts == 8 and [r.attempt for r in rollouts] == list(range(8))
        assert [r.cohort for r in rollouts] == ["scout", *["stopped"] * 3, *[""] * 4]
        scout, (cut,) = rollouts[0].segments[0], {r.parent[1] for r in rollouts[1:]}
        assert all(r.parent[0] == 0 for r in rollouts[1:])
        for r in rollouts[1:]:
            text = r.segments[0]
            assert text.tokens[:cut].tolist() == scout.tokens[:cut].tolist()
            assert set(text.role[2:cut].tolist()) <= {int(Role.HINT)} and text.role[cut] == Role.OWN
            assert r.cohort or text.written + cut - 2 <= 2      # who goes on has what the scout left of its budget
            assert r.final == world.text.decode(text.tokens[2:].tolist())      # the verifier reads all of it
        cuts.add(cut - 2)
    assert cuts == {0, 1}
    with pytest.raises(UserError, match="3 rollouts or more"):
        played(mrt.play, 2)


@pytest.mark.parametrize("play", [brpo.play, mrt.play])
def test_evaluations_measure_the_policy_and_not_what_its_credit_is_made_of(play):
    """With as few samples as they like, a training play's scouts, stops and answers are in no pass rate."""
    made = []
    for recipe in (methods.load("grpo").recipe(), methods.load("grpo").recipe(play=play)):
        world = toy.world()
        made.append(asyncio.run(evaluate(recipe, world, world.problems, PACE, samples=2, exact=False)))
    assert [[r.final for r in g.rollouts] for g in made[0].groups] == [
        [r.final for r in g.rollouts] for g in made[1].groups
    ]
    assert made[0].right.tolist() == made[1].right.tolist()
    assert not any(r.cohort or r.parent for g in made[1].groups for r in g.rollouts)


@pytest.mark.parametrize(("play", "cohorts"), [(brpo.play, {"0.0"}), (mrt.play, {mrt.STOPPED})])
def test_an_answer_has_no_more_room_than_a_turn(play, cohorts):
    for seed in range(8):
        rollouts, _ = played(play, 9, seed, replace(PACE, max_tokens=1), words="!?", room=128)
        answers = [r.segments[0].written for r in rollouts if r.parent is not None and r.cohort in cohorts]
        assert answers and max(answers) == 1


def test_a_policy_that_stops_gets_the_notice():
    rollouts, world = played(mrt.play, 5, words="!?", room=2)
    stopped = [r for r in rollouts if r.cohort == mrt.STOPPED]
    for r in stopped:
        text, cut = r.segments[0], r.parent[1]
        assert world.text.decode(text.tokens[cut : cut + 2].tolist()) == "!?" and text.written <= 2
        assert (text.role[cut : cut + 2] == Role.HINT).all()
    assert len(stopped) == 2


def test_episodes_end_at_boundaries_however_they_are_split():
    text, pieces = attempt([0, 2, 0, 1, 1, 0, 2], 1.0).segments[0], {0: "a", 1: "\n", 2: "b\n\n"}
    ends = play.episodes(text, "\n\n", lambda tokens: "".join(pieces[t] for t in tokens))
    assert ends == [2, 4, 7]           # at the start, after the second token and after the fifth; not at the end


def test_mrt_trains_on_those_who_go_on_alone():
    world = toy.world()
    ledger, steps = run(methods.load("mrt").recipe(groups=4, rollouts=8), world, 96)
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == 96
    assert ledger.fates[str(Fate.FILTERED)] == 48                       # of eight: the scout and three who stop
    assert all(r.parent is not None and not r.cohort for s in steps for g in s.groups for r in g.rollouts)


# BRPO ---------------------------------------------------------------------------------------------------------------

def test_brpos_advantages():
    c = torch.tensor([[0.0, 1, 1, 1], [0, 0, 0, 1]])
    said = brpo.lead(c, torch.full((4,), 0.25))
    assert_close(said[0].tolist(), [0.25, 0.375, 0.25 * 7 / 12, 0.25 * 3 / 28])       # .25, .375, .1458, .0268
    assert_close(said[1].tolist(), [-0.25, -0.125, 0.0625, 0.1875])
    base = brpo.lead(c, torch.tensor([0.0, 0, 0, 1]))                          # all mass on the last: R_s = c_S
    assert_close(base[:, 0].tolist(), [0, 0])
    assert_close(brpo.lead(torch.tensor([[1.0], [0.0], [0.5]]), torch.ones(1))[:, 0].tolist(), [0.5, -0.5, 0])
    # at s = 0 the baseline is V2 alone
    assert_close(said[:, 0].sum().item(), 0)


def thought(scores, cuts):
    """Traces of five tokens and the end, with answers at these positions; `scores` per trace and cut."""
    made = [attempt([0, 1, 2, 0, 1, 3], 0.0, t) for t in range(len(scores))]
    number = itertools.count(len(scores))
    for t, each in enumerate(scores):
        for s, earned in enumerate(each):
            made += [attempt([0, 3], r, next(number), cohort=f"{t}.{s}").but(parent=(t, 2 + cuts[s])) for r in earned]
    return Group(QUESTION, tuple(made))


def test_brpo_credits_each_stretch_of_a_trace():
    made = thought([[(0, 0), (1, 1), (1, 1), (1, 1)], [(0, 0), (0, 0), (0, 0), (1, 1)]], [1, 2, 4, 5])
    batch = pack([made], 0)
    said = brpo.advantage(batch, LEDGER)
    want = brpo.lead(torch.tensor([[0.0, 1, 1, 1], [0, 0, 0, 1]]), torch.full((4,), 0.25))
    for t in range(2):
        assert_close(said[t].tolist(), [0, 0, *(want[t, s].item() for s in (0, 1, 2, 2, 3, 3))])
    assert not said[2:].any()                                    # no answer beat its siblings


def test_brpo_compares_answers_at_one_cut_of_one_trace():
    made = thought([[(1, 0), (1, 1)], [(0, 0), (1, 0)]], [2, 5])
    batch = pack([made], 0)
    said = brpo.advantage(batch, LEDGER, prior=(0.5, 0.5))
    assert_close([x[2].item() for x in said[2:]], [0.5, -0.5, 0, 0, 0, 0, 0.5, -0.5])
    want = brpo.lead(torch.tensor([[0.5, 1.0], [0.0, 0.5]]), torch.tensor([0.5, 0.5]))
    assert_close(said[0].tolist(), [0, 0, *(want[0, s].item() for s in (0, 0, 1, 1, 1, 1))])
    with pytest.raises(UserError, match="at 2 budgets, of which 1 have a prior"):
        brpo.advantage(batch, LEDGER, prior=(1.0,))


def test_brpo_where_a_trace_ends_early_and_where_answers_are_lost():
    made = thought([[(0, 0), (1, 1)], [(0, 0), (1, 0)]], [2, 5])
    batch = pack([made], 0)
    four = brpo.advantage(batch, LEDGER)                         # two cuts for four budgets: the last stands for three
    want = brpo.lead(torch.tensor([[0.0, 1, 1, 1], [0, 0.5, 0.5, 0.5]]), torch.full((4,), 0.25))
    assert_close(four[0].tolist(), [0, 0, *(want[0, s].item() for s in (0, 0, 1, 1, 1, 1))])
    lost = made.of(r for r in made.rollouts if r.cohort != "0.0")
    batch = pack([lost], 0)
    said = brpo.advantage(batch, LEDGER)
    assert not said[0].any() and said[1].any()                   # nothing is known of the first trace's start


def test_anytime_asks_at_every_budget_and_everybody_is_charged():
    shares, found = (0.25, 0.5, 1.0), set()
    for seed in range(8):
        rollouts, world = played(brpo.play, 15, seed, shares=shares, answers=2)
        assert world.meter.of().rollouts == 15 and sorted(r.attempt for r in rollouts) == list(range(15))
        traces = [r for r in rollouts if r.parent is None]
        assert [t.attempt for t in traces] == [0, 1]
        asked = [r for r in rollouts if r.parent is not None]
        for trace in traces:
            text = trace.segments[0]
            most = text.written - (text.tokens[-1] == toy.END)
            cuts = [min(math.ceil(share * PACE.max_tokens), most) for share in shares]
            mine = [r for r in asked if r.parent[0] == trace.attempt]
            assert {r.parent[1] - 2 for r in mine} == set(cuts)
            for r in mine:
                at = r.parent[1]
                assert r.cohort == f"{trace.attempt}.{sorted(set(cuts)).index(at - 2)}"
                assert r.segments[0].tokens[:at].tolist() == text.tokens[:at].tolist()
                assert not r.segments[0].own[:at].any() and r.segments[0].own[at:].all()
            found |= {len(set(cuts))}
        assert len(asked) == 13                                   # 2 per budget and trace; the one left over is first's
    assert found >= {1, 2}
    with pytest.raises(UserError, match="takes 4 rollouts or more"):
        played(brpo.play, 3, shares=shares)


def test_what_is_given_is_read_with_the_same_chances():
    """The learner gives a forked answer the log-probs it was drawn with: the prefix is context, and has no credit."""
    rollouts, world = played(mrt.play, 8, 3, boundary="")
    batch = pack([Group(QUESTION, tuple(r.scored(Score(1.0)) for r in rollouts))], 0)
    with torch.no_grad():
        gap = (world.learner.forward(batch).logp - batch.logp)[batch.mask].abs().max()
    assert gap < 1e-6
    assert int(batch.mask.sum()) == sum(r.segments[0].written for r in rollouts)
