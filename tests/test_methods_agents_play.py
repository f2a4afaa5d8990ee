"""Methods that fork, repair and continue dialogues, in the toy world of dialogues and against numbers by hand."""

import asyncio
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import local_world
from dialogues import batch_of, by_turn, dialogue
from isocost import methods
from isocost.batch import Forward
from isocost.ledger import Ledger
from isocost.methods import aepo, agentrlvr, arpo, cleaner, dart, drgrpo, fission, grpo, rl4mle, uis1
from isocost.pack import pack
from isocost.parts.play import lent, paused, sample, turn_starts, until
from isocost.recipe import paced
from isocost.seams import Attempts, Pace, Wave
from isocost.types import Fault, Group, Message, Place, Problem, Role, Score, Shown, Stop, Turn
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


# pauses ---------------------------------------------------------------------------------------------------------------


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


# ARPO -----------------------------------------------------------------------------------------------------------------


def test_arpo_forks_by_how_much_the_entropy_rose():
    close([arpo.linear(x, 0, base=0.5, gain=0.2) for x in (0.0, 1.0, -1.0, 5.0, -5.0)], [0.5, 0.7, 0.3, 1.0, 0.0])
    one = dialogue(["", ""], [0, 1], words=["abc", "a"])        # turns of 4 and 2 tokens with their ends
    entropy = np.where(one.segments[0].turn == 0, 2.0, 3.0)
    close(arpo.doubts(one, entropy, 3, 2.0), [3 * 2 / 2, 2 * 3 / 2])       # the first 3 tokens of each, summed
    close(arpo.doubts(one, entropy, 20, 2.0), [4.0, 3.0])


def test_arpo_sums_entropies_in_units_of_the_models_own_vocabulary():
    """From 20 tokens at 0.1 nats to 20 at 0.5, in the toy world of 4 tokens: ΔH = 5.77."""
    world, asked = toy.dialogues(), []

    def odds(more, row):
        asked.append(more)
        return 0.0

    def rising(rollouts, world, place):
        return [np.where(r.segments[-1].turn == 0, 0.1, 0.5) for r in rollouts]

    async def grow():
        return await arpo.grown(world.problems[0], range(8), world, PACE, PLACE, 4, None, odds, 1, 20, rising)

    leaves = asyncio.run(grow())
    first = {r.attempt: r for r in played(sample, range(4))[0]}
    sizes = [[int((r.segments[-1].turn == t).sum()) for t in range(len(r.turns))] for r in first.values()]
    wanted = [(0.5 * k[t] - 0.1 * k[0]) / math.log(4) for t in range(1, 8) for k in sizes if t < len(k)]
    assert wanted and sorted(asked) == pytest.approx(sorted(wanted)) and len(leaves) == 8
    close((20 * 0.5 - 20 * 0.1) / math.log(world.learner.vocabulary), 5.7708, 1e-4)


def test_what_is_the_vocabulary_of_a_model_here():
    learner = local_world.world().learner
    assert learner.vocabulary == learner.config.vocab > 4 == toy.dialogues().learner.vocabulary


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
    close([x for one in by_turn(hard, batch) for x in one],
          [1 / 6, 1.5, 1.5, 1 / 6, -0.5, -0.5, 1 / 6, -0.5, -0.5, -0.5], 1e-4)


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


# AEPO -----------------------------------------------------------------------------------------------------------------


def test_aepo_splits_by_the_entropies_of_question_and_tools():
    """int(k σ(0.5 (H_root − mean H_tool))) + 1 of k, at most all."""
    close(aepo.fresh([[0.5, 0.5]], of=16, steep=0.5), 9)
    close(aepo.fresh([[1.0, 0.0, 0.0]], of=16, steep=0.5), int(16 / (1 + math.exp(-0.5))) + 1)      # 9.96: 10
    close(aepo.fresh([[0.0, 50.0]], of=16, steep=0.5), 1)
    close(aepo.fresh([[50.0, 0.0]], of=16, steep=0.5), 16)
    close(aepo.fresh([[0.5]], of=16, steep=0.5), 8)             # no second turn


def test_aepo_forks_less_after_rounds_in_a_row_with_a_fork():
    """(u + 0.2 ΔH)(1 − 0.05 l) ≥ 0.5, u uniform: 1 − 0.5 / (1 − 0.05 l) + 0.2 ΔH."""
    odds = partial(aepo.balanced, base=0.5, gain=0.2, less=0.05)
    close([odds(0.0, row) for row in (0, 1, 4, 10, 20, 30)], [0.5, 1 - 0.5 / 0.95, 1 - 0.5 / 0.8, 0.0, 0.0, 0.0])
    close([odds(x, 2) for x in (1.0, -1.0, 5.0)], [1 - 0.5 / 0.9 + 0.2, 1 - 0.5 / 0.9 - 0.2, 1.0])
    u = (np.arange(100_000) + 0.5) / 100_000
    close(((u + 0.2 * 0.3) * (1 - 0.05 * 3) >= 0.5).mean(), odds(0.3, 3), 1e-4)


def test_rounds_in_a_row_are_counted_for_the_problem_and_not_for_a_path():
    """Two dialogues in three rounds: one is forked before turn 1, the other before turn 2, neither before turn 3."""
    world, rows = toy.dialogues(), {}
    trunks = [r for r in played(sample, range(40))[0] if len(r.turns) > 4][:2]
    assert len(trunks) == 2
    seen = []

    def odds(more, row):
        rows.setdefault(round(more), []).append(row)
        seen.append(round(more))
        return float(round(more) in (1, 2) and seen.count(round(more)) == round(more))     # the 1st, then the 2nd asked

    def numbered(rollouts, world, place):
        """The entropy of a turn sums to its number times log 4."""
        out = []
        for r in rollouts:
            turn = r.segments[-1].turn
            size = np.array([max((turn == t).sum(), 1) for t in turn])
            out.append(np.maximum(turn, 0) * math.log(4) / size)
        return out

    async def grow():
        numbers = [r.attempt for r in trunks] + list(range(50, 60))
        return await arpo.grown(world.problems[0], numbers, world, PACE, PLACE, 2, None, odds, 1, 20, numbered)

    leaves = asyncio.run(grow())
    assert rows[1] == [0, 0] and set(rows[2]) == {1} and set(rows[3]) == {2} and set(rows[4]) == {0}
    forks = [r for r in leaves if r.parent]
    assert sorted(r.segments[-1].turn[r.parent[1]] for r in forks) == [1, 2]


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


# CLEANER --------------------------------------------------------------------------------------------------------------


def test_cleaner_knows_a_fault_that_was_put_right():
    bad, good = Turn(fault=Fault.model("x")), Turn()
    each = ([], [good], [bad], [bad, good], [good, bad, bad, good], [bad, good, good])
    assert [cleaner.failed_before(t) for t in each] == [0, 0, 0, 1, 2, 0]
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


# Fission --------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", ["arpo", "aepo", "cleaner", "fission", "uis1", "dart", "agentrlvr"])
def test_every_rollout_that_was_paid_for_has_a_fate(name):
    world = toy.dialogues()
    ledger, steps = run(paced(methods.recipe(name, groups=4), lr=1e-3, max_turns=6), world, 128)
    assert steps and sum(ledger.fates.values()) == world.meter.of().rollouts


# starts whose turn is over --------------------------------------------------------------------------------------------


def test_a_start_that_ends_with_an_end_token_is_answered_before_anything_is_sampled():
    whole, world = played(sample, range(12))
    r = next(r for r in whole if len(r.turns) > 2)
    text = r.segments[-1]
    end = int(np.flatnonzero(text.turn == 1)[-1]) + 1
    steps = world.meter.of().env_steps
    (again,), _ = played(sample, [r.attempt], world, start=r.cut(end))
    assert again.turns == r.turns and np.array_equal(again.segments[-1].tokens, text.tokens)
    assert world.meter.of().env_steps - steps == len(r.turns) - 1, "the first turn is replayed, the second is answered"


# UI-S1 ----------------------------------------------------------------------------------------------------------------


class Recital:
    """The expert says a, b, c; anything else is answered alike, so that a dialogue ends after three turns."""

    def __init__(self, problem):
        self.problem, self.said = problem, []

    async def open(self):
        return Shown(self.problem.prompt, key="0")

    async def step(self, said, luck):
        self.said.append(said)
        return Shown((Message("tool", "?"),), len(self.said) == 3, float(self.said == ["a", "b", "c"]))

    def final(self):
        return "".join(self.said)

    async def close(self):
        pass


def recited(patches, count=48):
    world = toy.dialogues()
    world.env = Recital
    world.problems = [Problem("0", (Message("user", "0?"),), "abc", meta={"expert": ("a", "b", "c")})]
    made, _ = played(uis1.play, range(count), world, patches=patches)
    return made, world


def test_ui_s1_patches_turns_that_are_not_the_experts():
    made, world = recited(2)
    assert world.meter.of().rollouts == 48
    for r in made:
        main, *wrong = r.segments
        rewards = [t.reward for t in r.turns]
        theirs = main.role == int(Role.TEACHER)
        assert len(wrong) <= 2 and all(x in (0.0, 1 / 3) for x in rewards)
        for segment in wrong:       # the replaced turn, after what the policy and the expert had said before
            (t,) = set(segment.turn[segment.own].tolist())
            assert rewards[t] == 0 and world.text.decode(segment.tokens[segment.own].tolist()) != "abc"[t]
            assert t not in main.turn[main.own]
        assert int(theirs.sum()) == 2 * len(wrong), "a letter and the end of its turn"
    assert any(len(r.segments) == 3 and len(r.turns) == 3 for r in made)


def test_ui_s1_without_patches_stops_at_the_first_mismatch():
    made, _ = recited(0)
    for r in made:
        rewards = [t.reward for t in r.turns]
        assert len(r.segments) == 1 and all(rewards[:-1]) and (len(rewards) == 3 or rewards[-1] == 0)


def test_ui_s1_gives_no_credit_through_a_patch():
    """Rewards 1, 1, 0 (patched), 1 with γ 1/2: 3/2, 1, 0, 1; against an attempt that matched nothing, std is Δ/√2."""
    batch = batch_of([dialogue(["0", "1", "2", "3"], [1, 1, 0, 1]), dialogue(["0", "1", "2", "3"], [0, 0, 0, 0])])
    from isocost.ops import to_go, turns_of
    turns = turns_of(batch)
    close(to_go(turns, gamma=0.5 * (turns.reward > 0)).tolist(), [1.5, 1, 0, 1, 0, 0, 0, 0])
    found = by_turn(uis1.advantage(batch, LEDGER, eps=0.0), batch)
    half = math.sqrt(0.5)
    close(found[0], [2 * half, 2 * half, half, 2 * half])
    close(found[1], [-2 * half, -2 * half, -half, -2 * half])


# DART -----------------------------------------------------------------------------------------------------------------


def test_dart_gives_tasks_that_succeed_fewer_attempts():
    ledger = Ledger()
    for name, reward in (("0", 0), ("1", 1)):
        ledger.saw(Group(Problem(name, ()), (dialogue([""], [reward]),)))
    tasks = [Problem("0", ()), Problem("1", ())]
    assert dart.allocate(tasks, ledger, 10) == [7, 3]       # 2 each, and 6 by 1 : 1/4: 4.8 and 1.2
    assert dart.allocate(tasks, ledger, 10, shrink=0.0) == [5, 5]
    assert sum(dart.allocate(tasks, ledger, 3, least=8)) == 3


def test_dart_trains_on_the_uncertain_turns():
    batch = batch_of([dialogue([""] * 5, [0] * 4 + [1]), dialogue([""], [0])])
    entropy = torch.zeros_like(batch.logp)
    for t, value in enumerate((3.0, 1.0, 4.0, 2.0, 5.0)):
        entropy[0][batch.turn[0] == t] = value
    batch = batch.but(extra={"entropy": entropy})
    assert by_turn(dart.uncertain(batch, 0.8), batch) == [[1, 0, 1, 1, 1], [1]]
    assert by_turn(dart.uncertain(batch, 0.5), batch) == [[1, 0, 1, 0, 1], [1]]
    close(float(dart.weight(batch)[0].sum()), 8 / 10)


def test_dart_remembers_a_success_for_a_group_that_has_none():
    world = toy.dialogues()
    made = paced(methods.recipe("dart", groups=4, rollouts=4), lr=1e-3, max_turns=2)
    ledger, _ = run(made, world, 4 * 4 * 8)
    assert any(s["remembered"] > 0 for s in ledger.steps)
    assert all(len(g.rollouts) == 1 and g.rollouts[0].origin == "replay" for g in ledger.kept[dart.POOL])
    assert made.advantage is drgrpo.advantage


def test_dart_limits_dialogues_by_the_longest_success():
    ledger = Ledger()
    world = toy.dialogues()
    play = Attempts(sample, world, Pace(lr=0.0, max_tokens=4, max_turns=8), Wave(1, world.engine.halt), PLACE)

    def longest():
        made = asyncio.run(dart.schedule(world.problems[0], range(32), play, ledger, slack=1))
        return max(len(r.turns) for r in made)

    assert longest() > 4
    won = dialogue(["", "", ""], [0, 0, 1]).but(notes={dart.TOOK: 3.0})
    ledger.saw(Group(world.problems[0], (won, dialogue([""], [0]).but(notes={dart.TOOK: 1.0}))))
    ledger.close(ledger.spent, 1, {})
    assert longest() == 4


# Agent-RLVR -----------------------------------------------------------------------------------------------------------


def test_agent_rlvr_has_dpos_gradient():
    batch = batch_of([dialogue([""], [x]) for x in (1, 0, 0)], [dialogue([""], [x]) for x in (1, 1)])
    moved = torch.tensor([0.5, -0.2, 0.1, 0.3, 0.0], requires_grad=True)
    gap = 0.3 * (moved[0] - moved[1:3])
    (slope,) = torch.autograd.grad(-torch.nn.functional.logsigmoid(gap).mean(), moved)
    found = agentrlvr.pulls(moved.detach(), batch, 0.3)
    close((-found / 5).tolist(), slope.tolist())
    assert found[3:].tolist() == [0, 0], "no pairs: all of them passed"


def test_agent_rlvr_learns_of_guided_attempts_without_the_guidance():
    world = toy.dialogues()
    world.text = toy.Letters()
    hard = replace(world.problems[0], answer="bbb")      # that nobody says
    pace = Pace(lr=0.0, max_tokens=4, max_turns=3)
    play = Attempts(sample, world, pace, Wave(1, world.engine.halt), PLACE)
    made = asyncio.run(agentrlvr.schedule(hard, range(8), play, LEDGER, first=0.5, words="{problem}{hint}!"))
    assert [r.attempt for r in made] == list(range(8)) and {r.problem.variant for r in made} == {""}
    assert all(world.text.decode(r.segments[0].tokens[:2].tolist()) == "0?" for r in made)
    batch = pack([Group(hard, tuple(r.scored(Score(0.0)) for r in made), PLACE)], 0)
    gap = (world.learner.score(batch).logp - batch.logp)[batch.mask].abs().max()
    assert float(gap) < 1e-5, "log-probs are those without the guidance"


# RL4MLE ---------------------------------------------------------------------------------------------------------------


def lasting(reward, seconds):
    made = dialogue([""], [reward])
    return made.but(turns=(replace(made.turns[0], seconds=seconds),))


def test_rl4mle_undoes_that_slow_actions_are_seen_less_often():
    """Two actions, equally likely, of 1 s for 0.6 and of 10 s for 1: in 20 s each, ten of one and one of the other."""
    batch = batch_of([*(lasting(0.6, 1.0) for _ in range(10)), lasting(1.0, 10.0)])
    weights = torch.tensor([x[0] for x in by_turn(rl4mle.advantage(batch, LEDGER, inner=_ones), batch)])
    close(float(weights[:10].sum()), float(weights[10:].sum()))
    close(float(weights.mean()), 1.0)
    capped = by_turn(rl4mle.advantage(batch, LEDGER, inner=_ones, most=2.0), batch)
    close(capped[10][0], 2.0)


def _ones(batch, ledger):
    return batch.mask.to(batch.reward.dtype)


def test_rl4mle_where_no_time_is_stated_is_grpo():
    batch = batch_of([dialogue(["", ""], [0, 1]), dialogue([""], [0])])
    assert torch.equal(rl4mle.advantage(batch, LEDGER), grpo.advantage(batch, LEDGER))


def test_seconds_of_turns_are_part_of_a_kept_rollout():
    from isocost.runs import shelf
    (group,) = shelf.groups(shelf.data([Group(lasting(1, 2.5).problem, (lasting(1, 2.5),))]), toy.questions())
    assert group.rollouts[0].turns[0].seconds == 2.5
    old = shelf.data([Group(lasting(1, 2.5).problem, (lasting(1, 2.5),))])
    old[0]["rollouts"][0]["turns"][0] = old[0]["rollouts"][0]["turns"][0][:4]
    assert shelf.groups(old, toy.questions())[0].rollouts[0].turns[0].seconds == 0.0, "earlier records have none"
