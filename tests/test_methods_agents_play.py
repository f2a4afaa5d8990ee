"""Methods that fork, repair and continue dialogues, in the toy world of dialogues and against numbers by hand."""

import asyncio
import math
from functools import partial

import numpy as np
import pytest
import torch

from dialogues import batch_of, by_turn, dialogue
from isocost import methods
from isocost.batch import Forward
from isocost.ledger import Ledger
from isocost.methods import aepo, arpo, cleaner, fission
from isocost.pack import pack
from isocost.parts.play import lent, paused, sample, turn_starts, until
from isocost.recipe import paced
from isocost.seams import Attempts, Pace, Wave
from isocost.types import Fault, Group, Place, Role, Score, Stop, Turn
from isocost.worlds import toy
from toy import run

LEDGER, PLACE, PACE = Ledger(), Place(7, 2, 3), Pace(lr=0.0, max_tokens=4, max_turns=8)


def close(a, b, within=1e-5):
    assert a == pytest.approx(b, abs=within)


def played(play, attempts, world=None, place=PLACE, pace=PACE, start=None, **settings):
    world = world or toy.dialogues()
    return asyncio.run(play(world.problems[0], attempts, world, pace, place, start, **settings)), world


def flat(value):
    """Every token of every dialogue has this entropy."""
    return partial(_flat, value=value)


def _flat(rollouts, world, place, *, value):
    return [np.full(len(r.segments[-1]), value) for r in rollouts]


# pauses ----------------------------------------------------------------------------------------------------------------


def test_a_paused_dialogue_continues_as_if_it_had_not_been_paused():
    whole, _ = played(sample, range(12))
    world = toy.dialogues()
    (early, _), cut = played(until, range(12), world, pause=lambda m, t: len(t) == 2), 0
    for r, full in zip(early, whole, strict=True):
        if not paused(r):
            assert len(r.turns) == len(full.turns) <= 2
            continue
        (again,), _ = played(sample, [r.attempt], world, start=r)
        assert again.turns == full.turns and np.array_equal(again.segments[-1].tokens, full.segments[-1].tokens)
        cut += 1
    assert cut > 3
    assert world.meter.of().env_steps == sum(len(r.turns) for r in whole), "no step is charged twice"


def test_what_is_lent_has_no_credit_and_keeps_the_rest():
    (r, *_), _ = played(sample, [next(i for i, x in enumerate(played(sample, range(20))[0]) if len(x.turns) > 2)])
    at = turn_starts(r.segments[-1])[2]
    text = lent(r, at).segments[-1]
    assert not text.own[:at].any() and np.array_equal(text.own[at:], r.segments[-1].own[at:])
    assert set(text.role[:at][r.segments[-1].own[:at]].tolist()) == {int(Role.HINT)} and (text.turn[:at] == -1).all()
    assert (text.turn[at:][text.own[at:]] >= 2).all()


# ARPO ------------------------------------------------------------------------------------------------------------------


def test_arpo_forks_by_how_much_the_entropy_rose():
    close([arpo.linear(x, 0, base=0.5, gain=0.2) for x in (0.0, 1.0, -1.0, 5.0, -5.0)], [0.5, 0.7, 0.3, 1.0, 0.0])
    one = dialogue(["", ""], [0, 1], words=["abc", "a"])
    entropy = np.where(one.segments[0].turn == 0, 2.0, 3.0)
    close(arpo.doubts(one, entropy, 2, 2.0), [1.0, 1.5])


@pytest.mark.parametrize(("base", "forked"), [(0.0, False), (0.5, True), (1.0, True)])
def test_arpo_always_has_as_many_leaves_as_attempts(base, forked):
    leaves, world = played(arpo.play, range(16), base=base, gain=0.0, unsure=flat(1.0))
    assert [r.attempt for r in leaves] == list(range(16)) and world.meter.of().rollouts == 16
    assert any(r.parent for r in leaves) is forked
    by = {r.attempt: r for r in leaves}
    for r in leaves:
        if r.parent is None:
            continue
        trunk, at = by[r.parent[0]], r.parent[1]
        turn = int(trunk.segments[-1].turn[at])
        assert turn > 0 and r.turns[:turn] == trunk.turns[:turn], "shared turns have their luck"
        assert np.array_equal(r.segments[-1].tokens[:at], trunk.segments[-1].tokens[:at])
    shared = sum(int(by[r.parent[0]].segments[-1].turn[r.parent[1]]) for r in leaves if r.parent)
    assert world.meter.of().env_steps == sum(len(r.turns) for r in leaves) - shared


def test_arpo_without_forks_is_plain_sampling():
    leaves, _ = played(arpo.play, range(16), base=0.0, gain=0.0, unsure=flat(1.0))
    plain, _ = played(sample, range(16))
    assert all(np.array_equal(a.segments[0].tokens, b.segments[0].tokens) for a, b in zip(leaves, plain, strict=True))
    outside, _ = played(arpo.play, range(16), place=Place(7, 2, 3, 1), unsure=flat(1.0))
    assert not any(r.parent for r in outside), "an evaluation draws from the policy"


def tree():
    """A trunk of three turns, a leaf that shares one of them, and a leaf of that leaf that shares two."""
    trunk = dialogue(["", "", ""], [0, 0, 1])
    at = turn_starts(trunk.segments[0])
    leaf = dialogue(["", "", ""], [0, 0, 0]).but(parent=(0, at[1]))
    twig = dialogue(["", "", ""], [0, 0, 0]).but(parent=(1, at[2]))
    return batch_of([trunk, leaf, twig, dialogue([""], [0])])


def test_arpos_hard_credit_is_the_mean_of_the_leaves_that_share_a_token():
    batch = tree()
    soft = methods.recipe("arpo").advantage(batch, LEDGER)      # rewards (1, 0, 0, 0): 3/2 and −1/2
    hard = arpo.advantage(batch, LEDGER, hard=True)
    close([x[0] for x in by_turn(soft, batch)], [1.5, -0.5, -0.5, -0.5], 1e-4)
    close(sum(by_turn(hard, batch), []), [1 / 6, 1.5, 1.5, 1 / 6, -0.5, -0.5, 1 / 6, -0.5, -0.5, -0.5], 1e-4)


def test_arpos_hard_and_soft_credit_have_one_gradient_under_a_sum_over_tokens():
    """Shared tokens are in every leaf's row with the same log-prob, so the sum over rows is the same."""
    batch, learner = tree(), toy.dialogues().learner
    grads = []
    for hard in (False, True):
        credit = arpo.advantage(batch, LEDGER, hard=hard)
        learner.policy.zero_grad()
        (-(credit * learner.forward(batch).logp)[batch.mask].sum()).backward()
        grads.append(torch.cat([p.grad.flatten().clone() for p in learner.policy.parameters()]))
    assert float((grads[0] - grads[1]).abs().max()) < 1e-6 < float(grads[0].abs().max())


# AEPO ------------------------------------------------------------------------------------------------------------------


def test_aepo_splits_by_the_entropies_of_question_and_tools():
    close(aepo.fresh([[0.5, 0.5]], of=16, steep=1.0), 8)
    close(aepo.fresh([[1.0, 0.0, 0.0]], of=16, steep=1.0), round(16 / (1 + math.exp(-1))))
    close(aepo.fresh([[0.0, 50.0]], of=16, steep=1.0), 1)
    close([aepo.balanced(0.0, row, base=0.5, gain=0.2, less=0.25, most=0.9) for row in (0, 1, 2, 8)],
          [0.5, 0.375, 0.25, 0.05])


def test_aepo_keeps_the_gradient_of_what_it_clips():
    batch = batch_of([dialogue([""], [1])])
    ratios = torch.tensor([1.5, 1.1])
    now = torch.zeros_like(batch.logp)
    now[batch.mask] = ratios.log()
    now.requires_grad_()
    for credit, value, slope in ((1.0, [-1.28, -1.1], [-1.28, -1.1]), (-1.0, [1.5, 1.1], [1.5, 1.1])):
        batch = batch.but(old=torch.zeros_like(now), advantage=credit * batch.mask)
        each, _ = aepo.loss(Forward(now, torch.zeros_like(now)), batch)
        close(each[batch.mask].tolist(), value)
        (grad,) = torch.autograd.grad(each.sum(), now)      # of log π: that of the ratio is the ratio
        close(grad[batch.mask].tolist(), slope)


def test_aepo_scales_credit_by_the_entropy_in_units_of_its_spread():
    batch = batch_of([dialogue([""], [1]), dialogue([""], [0])])
    entropy = torch.zeros_like(batch.logp)
    entropy[batch.mask] = torch.tensor([0.0, 2.0, 0.0, 2.0])       # mean 1, spread 1
    batch = batch.but(extra={"entropy": entropy})
    plain = methods.recipe("grpo").advantage(batch, LEDGER)[batch.mask]
    found = aepo.advantage(batch, LEDGER, scale=0.2)[batch.mask]
    close((found / plain).tolist(), [0.8, 1.2, 0.8, 1.2])


# CLEANER -----------------------------------------------------------------------------------------------------------------


def test_cleaner_knows_a_fault_that_was_put_right():
    bad, good = Turn(fault=Fault.model("x")), Turn()
    assert [cleaner.failed_before(t) for t in ([], [good], [bad], [bad, good], [good, bad, bad, good], [bad, good, good])
            ] == [0, 0, 0, 1, 2, 0]
    right = partial(cleaner._put_right, (), since=0, retries=3)
    assert right([bad, good]) and right([bad] * 3 + [good]) and not right([bad] * 4 + [good])
    assert not cleaner._put_right((), [bad, good], since=1, retries=3), "an earlier part is repaired once"


def test_cleaner_leaves_no_fault_that_the_policy_put_right():
    clean, world = played(cleaner.play, range(32), share=1.0, retries=3)
    raw, _ = played(sample, range(32))
    assert [r.attempt for r in clean] == list(range(32)) and world.meter.of().rollouts == 32
    for r in clean:
        assert not any(cleaner.failed_before(r.turns[:k]) in (1, 2, 3) for k in range(2, len(r.turns)))
        text = r.segments[-1]
        assert sorted(turn_starts(text)) == list(range(len(r.turns))), "turns are numbered without gaps"
    faults = [sum(t.fault is not None for r in rs for t in r.turns) for rs in (clean, raw)]
    assert faults[0] < 0.7 * faults[1], "what is left was not put right"
    again, _ = played(sample, [99], world, start=next(r for r in clean if len(r.turns) > 2).cut(
        turn_starts(next(r for r in clean if len(r.turns) > 2).segments[-1])[2]))
    assert again[0].stop is not Stop.ERROR, "a repaired dialogue replays in its environment"


def test_cleaners_log_probs_are_those_of_the_clean_context():
    clean, world = played(cleaner.play, range(24), share=1.0)
    batch = pack([Group(world.problems[0], tuple(r.scored(Score(0.0)) for r in clean), PLACE)], 0)
    gap = (world.learner.score(batch).logp - batch.logp)[batch.mask].abs().max()
    assert float(gap) < 1e-5


def test_cleaner_at_no_share_is_plain_sampling():
    clean, _ = played(cleaner.play, range(16), share=0.0)
    plain, _ = played(sample, range(16))
    assert all(np.array_equal(a.segments[0].tokens, b.segments[0].tokens) for a, b in zip(clean, plain, strict=True))


def test_cleaner_keeps_the_reasoning_of_a_similar_call():
    world = toy.dialogues()
    bad, good = Fault.model("x"), None
    raw = dialogue(["s", "s"], [0, 0], words=["abc", "cba"], faults=[bad, good], stop=Stop.TURNS)
    raw = raw.but(segments=(raw.segments[-1].read([toy.ALPHABET.index("?")]),))

    def said(similar):
        made = cleaner.repaired(raw, world, PLACE, similar, "b")
        assert len(made.turns) == 1 and made.turns[0].fault is None
        return world.text.decode(made.segments[-1].tokens[made.segments[-1].own].tolist())

    assert said(0.0) == "aba", "shallow: the reasoning a, then the call ba"      # calls bc and ba: ratio 1/2
    assert said(0.5) == "aba" and said(0.51) == "cba" and said(1.1) == "cba", "deep: the whole turn"


# Fission ---------------------------------------------------------------------------------------------------------------


def test_fission_starts_after_the_last_fault_of_a_dialogue_that_earned_nothing():
    bad = Fault.tool("busy")
    lost = dialogue(["", "", ""], [0, 0, 0], faults=[bad, bad, None])
    assert fission.failing(lost) == turn_starts(lost.segments[0])[2]
    assert fission.failing(dialogue(["", ""], [0, 1], faults=[bad, None])) is None, "it earned something"
    assert fission.failing(dialogue(["", ""], [0, 0], faults=[None, bad])) is None, "it ended with its fault"
    assert fission.failing(dialogue([""], [0])) is None


def scheduled(share, count=16, each=4, turns=3):
    world = toy.dialogues()
    pace = Pace(lr=0.0, max_tokens=4, max_turns=turns)
    play = Attempts(sample, world, pace, Wave(1, world.engine.halt), PLACE)
    return asyncio.run(fission.schedule(world.problems[0], range(count), play, LEDGER, share=share, each=each)), world


def test_fissions_recoveries_are_cohorts_without_credit_for_the_failure():
    made, world = scheduled(0.5)
    back = [r for r in made if r.cohort]
    assert [r.attempt for r in made] == list(range(16)) and world.meter.of().rollouts == 16
    assert len(back) in (4, 8) and len({r.cohort for r in back}) == len(back) // 4
    for r in back:
        trunk = next(x for x in made if x.attempt == r.parent[0])
        turn = int(trunk.segments[-1].turn[r.parent[1]])
        assert r.turns[:turn] == trunk.turns[:turn] and r.turns[turn - 1].fault is not None
        assert not r.segments[-1].own[: r.parent[1]].any() and r.segments[-1].own.any()
    plain, _ = scheduled(0.0)
    assert not any(r.cohort for r in plain)


@pytest.mark.parametrize("name", ["arpo", "aepo", "cleaner", "fission"])
def test_every_rollout_that_was_paid_for_has_a_fate(name):
    world = toy.dialogues()
    ledger, steps = run(paced(methods.recipe(name, groups=4), lr=1e-3, max_turns=6), world, 128)
    assert steps and sum(ledger.fates.values()) == world.meter.of().rollouts
