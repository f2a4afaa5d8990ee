"""Methods for dialogues against numbers worked by hand from their papers' equations."""

import asyncio
import math
import statistics

import pytest
import torch

from dialogues import batch_of, by_turn, dialogue
from isocost import methods, ops
from isocost.batch import Forward
from isocost.contract.conflicts import refuse
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import drgrpo, gigpo, grpo, hgpo, loop, otc, roc, scalinginter
from isocost.ops import in_states, to_go, turns_of
from isocost.recipe import paced, tune
from isocost.types import Fault, Group, Place, Stop
from isocost.worlds import toy
from toy import run
from turns import OF_TURNS

LEDGER = Ledger()
MINE = ("gigpo", "hgpo", "loop", "otc", "scalinginter")


def close(a, b, within=1e-5):
    if isinstance(b, list) and b and isinstance(b[0], list):
        assert [len(x) for x in a] == [len(x) for x in b]
        a, b = ([x for each in y for x in each] for y in (a, b))
    assert a == pytest.approx(b, abs=within)


@pytest.mark.parametrize("name", sorted(OF_TURNS))
def test_a_method_of_turns_is_refused_on_one_question_and_one_answer(name):
    recipe = methods.recipe(name)
    with pytest.raises(UserError, match=r"turns of a dialogue.*--env"):
        refuse(recipe, turns=1)
    assert refuse(recipe, turns=4) is None and refuse(recipe) is None


@pytest.mark.parametrize("name", MINE)
def test_a_profile_without_turns_says_what_measures_them(name):
    known = {"mean": 0.4, "histogram": [1, 1, 1]}
    assert methods.needs(name, {})[0] == "not measured" and "--env" in methods.needs(name, {})[1]
    assert methods.needs(name, known)[0] == "fails" and "--env" in methods.needs(name, known)[1]
    assert methods.needs(name, {**known, "dialogues": {"turns": {"mean": 1.0}}})[0] == "fails"
    assert methods.needs(name, {**known, "dialogues": {"turns": {"mean": 3.5}}})[0] == "holds"


# GiGPO ----------------------------------------------------------------------------------------------------------------
def test_gigpo_compares_two_turns_in_one_state():
    """Returns 1 and 0 of two visits to one state: ±1/2, beside the ±1/2 of their rollouts."""
    batch = batch_of([dialogue(["s", "t"], [0, 1]), dialogue(["s", "u"], [0, 0])])
    found = by_turn(gigpo.advantage(batch, LEDGER, gamma=1.0), batch)
    close(found, [[1.0, 0.5], [-1.0, -0.5]])
    close(by_turn(gigpo.advantage(batch, LEDGER, gamma=0.5), batch), [[0.75, 0.5], [-0.75, -0.5]])   # returns 1/2 and 0


def test_gigpo_without_a_state_visited_twice_is_grpo_without_its_spread():
    named = [dialogue(["a", "b"], [0, 1]), dialogue(["c"], [0])]
    batch = batch_of(named, [dialogue(["", ""], [1, 0]), dialogue([""], [0])])
    assert torch.equal(gigpo.advantage(batch, LEDGER), drgrpo.advantage(batch, LEDGER))
    assert torch.equal(gigpo.advantage(batch, LEDGER, std=True), grpo.advantage(batch, LEDGER))


def test_gigpo_credits_the_turn_of_a_loop_less_than_the_turn_that_leaves_it():
    """One rollout comes back to s before it takes the turn to the goal: with γ = 1/2 its first turn is worth 1/4."""
    batch = batch_of([dialogue(["s", "t", "s"], [0, 0, 1]), dialogue(["s"], [1])])
    step = in_states(to_go(turns_of(batch), gamma=0.5), turns_of(batch).key)
    close(step.tolist(), [0.25 - 0.75, 0.0, 0.25, 0.25])
    assert float(step.sum()) == 0


def test_gigpo_in_units_of_a_spread():
    batch = batch_of([dialogue(["s"], [1]), dialogue(["s"], [0])])
    close(by_turn(gigpo.advantage(batch, LEDGER, std=True), batch), [[math.sqrt(2)], [-math.sqrt(2)]])  # 1/√2 twice


def test_turns_of_different_problems_and_cohorts_are_not_compared():
    one, other = dialogue(["s"], [1]), dialogue(["s"], [0])
    apart = batch_of([one, one], [other, other])
    assert not gigpo.advantage(apart, LEDGER).any()
    assert not gigpo.advantage(batch_of([one, other.but(cohort="x")]), LEDGER).any()


# HGPO -----------------------------------------------------------------------------------------------------------------
def test_hgpo_levels_refine_each_other():
    """s after t and s after u share level 1 alone; no turn has a level 3 here, and a first turn only level 1."""
    batch = batch_of([dialogue(["t", "s"], [0, 1]), dialogue(["u", "s"], [0, 0]), dialogue(["t", "s"], [0, 0])])
    first, second, third = ([x.tolist() for x in hgpo.levels(turns_of(batch), 2)][k] for k in range(3))
    assert first[1] == first[3] == first[5]
    assert second[1] == second[5] != second[3] and first[0] == first[4] and len({second[0], second[4]}) == 2
    assert len(set(third)) == 6
    for coarse, fine in ((first, second), (second, third)):
        assert all(coarse[i] == coarse[j] for i in range(6) for j in range(6) if fine[i] == fine[j])


def test_hgpo_weighs_levels_by_their_length():
    """K = 1, α = 1: the turn s of three rollouts has level 1 with all three and level 2 with the one that also came by
    t."""
    batch = batch_of([dialogue(["t", "s"], [0, 1]), dialogue(["u", "s"], [0, 0]), dialogue(["t", "s"], [0, 0])])
    found = by_turn(hgpo.advantage(batch, LEDGER, history=1, gamma=1.0, episode=False, eps=0.0), batch)
    three = [2 / 3 * math.sqrt(3), -1 / 3 * math.sqrt(3), -1 / 3 * math.sqrt(3)]     # (1, 0, 0) less 1/3, std 1/√3
    two = [math.sqrt(0.5), None, -math.sqrt(0.5)]                                    # (1, 0) less 1/2, std 1/√2
    close(found[0][1], (2 * three[0] + 3 * two[0]) / 5)
    close(found[1][1], three[1])
    close(found[2][1], (2 * three[2] + 3 * two[2]) / 5)
    whole = by_turn(hgpo.advantage(batch, LEDGER, history=1, gamma=1.0, eps=0.0), batch)
    close(whole[0][1], (three[0] + 2 * three[0] + 3 * two[0]) / 6)                   # level 0 is GRPO's, here the same
    close(whole[1][0], three[1])                                                     # alone in u: GRPO's alone


def test_hgpo_has_no_level_for_states_that_are_not_there():
    """K = 2, and turn 1 in s of four rollouts, which came by t, t, u, u and earn 1, 0, 0, 1/2: two levels."""
    batch = batch_of([dialogue([way, "s"], [0, r]) for way, r in (("t", 1), ("t", 0), ("u", 0), ("u", 0.5))])
    found = by_turn(hgpo.advantage(batch, LEDGER, history=2, gamma=1.0, episode=False), batch)
    four, two = 0.625 / statistics.stdev([1, 0, 0, 0.5]), math.sqrt(0.5)        # 1.3056 and 0.7071
    close(found[0][1], (2 * four + 3 * two) / 5, within=1e-4)
    close(found[0][1], 0.9465, within=1e-4)             # with a third level: 0.8401
    close(found[0][0], two, within=1e-4)                # a first turn has level 1 alone
    whole = by_turn(hgpo.advantage(batch, LEDGER, history=2, gamma=1.0), batch)
    close(whole[0][1], (four + 2 * four + 3 * two) / 6, within=1e-4)


def test_hgpos_turn_t_has_the_levels_1_to_t_plus_1():
    """Two rollouts in one loop: with K = 2, turn t is not alone on min(K, t) + 1 levels."""
    batch = batch_of([dialogue(["a", "b", "c", "d"], [0, 0, 0, r]) for r in (1, 0)])
    alone = [torch.bincount(x)[x] > 1 for x in hgpo.levels(turns_of(batch), 2)]
    assert torch.stack(alone).sum(0).tolist() == [1, 2, 3, 3, 1, 2, 3, 3]


def test_hgpo_without_history_and_episode_is_gigpos_term_of_turns_in_units_of_a_spread():
    batch = batch_of([dialogue(["s", "t"], [0, 1]), dialogue(["s", "t"], [0, 0]), dialogue(["s"], [0])])
    turns = turns_of(batch)
    step = ops.spread_turns(in_states(to_go(turns, gamma=0.95), turns.key, std=True), turns, batch)
    assert torch.equal(hgpo.advantage(batch, LEDGER, history=0, episode=False), step)


# ScalingInter ---------------------------------------------------------------------------------------------------------
def test_scalinginter_looks_its_stage_up():
    def turns(step, **more):
        ledger = Ledger()
        ledger.step = step
        now = scalinginter.pace(ledger, **more)
        return now.max_turns, now.eval_turns

    assert [turns(s) for s in (0, 99, 100, 250, 5000)] == [(10, 30), (10, 30), (20, 30), (30, 30), (30, 30)]
    assert turns(250, max_turns=12) == (12, 12)


# OTC ------------------------------------------------------------------------------------------------------------------
def test_otc_pays_by_the_distance_from_the_fewest_calls():
    close([otc.share(m, 0, 4) for m in (0, 1, 2, 4)], [1, 0.866025, 0.707107, 0.5])
    close([otc.share(m, 2, 4) for m in (0, 1, 2, 4, 8)], [0, 0.866025, 1, 0.866025, 0.587785])


def noted(turns, reward, stop=Stop.DONE):
    made = dialogue(["k"] * turns, [0] * (turns - 1) + [reward], stop=stop)
    return made.but(notes={otc.CALLS: otc.answered(made)})


def test_otc_counts_the_turns_that_the_dialogue_went_on_from():
    assert [otc.answered(noted(3, 1)), otc.answered(noted(3, 0, Stop.TURNS)), otc.answered(noted(1, 1))] == [2, 3, 0]


def test_otc_remembers_the_fewest_calls_of_a_problem():
    """3 and 5 calls, both right: the fewest are 3, until an earlier group had 1."""
    batch = batch_of([noted(4, 1), noted(6, 1), noted(2, 0)])
    first = otc.share(5, 3, 4)
    close(by_turn(otc.advantage(batch, Ledger(), inner=drgrpo.advantage), batch)[0][0], 1 - (1 + first) / 3)
    ledger = Ledger()
    earlier = Group(noted(2, 1).problem, (noted(2, 1), noted(1, 0)))
    ledger.saw(earlier)
    ledger.settle(earlier, ["trained"] * 2)
    ledger.close(ledger.spent, 1, {})
    now = [otc.share(3, 1, 4), otc.share(5, 1, 4), 0.0]
    close([x[0] for x in by_turn(otc.advantage(batch, ledger, inner=drgrpo.advantage), batch)],
          [x - sum(now) / 3 for x in now])
    again = Ledger()
    again.replay(ledger.fresh)
    again.step = 1
    assert torch.equal(otc.advantage(batch, again), otc.advantage(batch, ledger)), "a resumed run knows them"


def test_otc_leaves_the_score_that_of_the_verifier():
    ledger, _ = run(paced(methods.recipe("otc", groups=4, rollouts=4), lr=1e-3, max_turns=4), toy.dialogues(), 64)
    assert {r for seen in ledger.history.values() for s in seen for r in s.rewards} <= {0.0, 1.0}
    assert any(s.notes[otc.CALLS] for seen in ledger.history.values() for s in seen)


# LOOP -----------------------------------------------------------------------------------------------------------------
def test_loops_baseline_is_the_mean_of_the_others():
    batch = batch_of([dialogue([""], [x]) for x in (1.0, 0.0, 0.5)])
    found = [x[0] for x in by_turn(methods.recipe("loop").advantage(batch, LEDGER), batch)]
    close(found, [0.75, -0.75, 0.0])
    weights = by_turn(loop.weight(batch.but(advantage=methods.recipe("loop").advantage(batch, LEDGER))), batch)
    close(weights, [[1 / 4], [1 / 4], [0.0]])      # two tokens each; the third attempt is dropped


def ratio_of(over, ratios, credit):
    """The loss of one dialogue of two turns of two tokens, with these ratios."""
    batch = batch_of([dialogue(["", ""], [0, 1])])
    now = torch.zeros_like(batch.logp)
    now[batch.mask] = torch.tensor(ratios).log()
    batch = batch.but(old=torch.zeros_like(now), advantage=credit * batch.mask)
    return loop.loss(Forward(now, torch.zeros_like(now)), batch, eps=0.1, over=over)[0][batch.mask].tolist()


def test_loops_clip_is_symmetric_in_the_logarithm_and_its_ratio_may_be_of_a_turn():
    close(ratio_of("token", [1.05, 1.2, 0.8, 1.0], 1.0), [-1.05, -1.1, -0.8, -1.0])
    close(ratio_of("token", [1.05, 1.2, 0.8, 1.0], -1.0), [1.05, 1.2, 1 / 1.1, 1.0])
    close(ratio_of("turn", [1.05, 1.2, 0.8, 1.0], 1.0), [-1.1, -1.1, -0.8, -0.8])
    close(ratio_of("turn", [1.02, 1.03, 0.8, 1.0], 1.0), [-1.0506, -1.0506, -0.8, -0.8])
    close(ratio_of("rollout", [1.02, 1.03, 0.99, 1.0], 1.0), [-1.040094] * 4)
    with pytest.raises(UserError, match="token, turn, rollout"):
        ratio_of("word", [1.0] * 4, 1.0)


def test_loop_ends_a_wave_before_its_last_attempts():
    recipe = paced(methods.recipe("loop", groups=4, rollouts=8), lr=1e-3, max_turns=30)
    _, steps = run(recipe, toy.dialogues(), 64)
    sizes = [[g.size for g in s.groups] for s in steps]
    assert all(6 <= n <= 8 for s in sizes for n in s) and any(n < 8 for s in sizes for n in s)
    assert all(sum(s) >= math.ceil(0.9 * 32) for s in sizes)
    whole = tune(recipe, "schedule.wave", 1.0)
    _, steps = run(whole, toy.dialogues(), 64)
    assert {g.size for s in steps for g in s.groups} == {8}


# RoC ------------------------------------------------------------------------------------------------------------------
def test_roc_counts_the_faults_that_the_environment_recorded():
    busy = Fault.tool("busy")
    one = dialogue(["", ""], [0, 1], faults=[busy, None], words=["ab", "a"]).but(score=None)
    two = dialogue(["", ""], [0, 1], faults=[None, None], words=["ab", "a"]).but(score=None)
    world = toy.dialogues()
    made = asyncio.run(roc.reward(Group(one.problem, (one, two), Place(0, 0, 0)), world, opens=""))
    assert [r.score.parts["faults"] for r in made.rollouts] == [1.0, 0.0]      # one call, then the answer
    tagged = asyncio.run(roc.reward(Group(one.problem, (one, two), Place(0, 0, 0)), world))
    assert [r.score.parts["faults"] for r in tagged.rollouts] == [2.0, 1.0], "no answer tags is a fault of form"

