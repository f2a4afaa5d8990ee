"""Eleven methods, ExIt to SAPO, and the expressions, against numbers worked by hand from each paper's rule."""

import asyncio
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import toy
from isocost import methods
from isocost.chance import Purpose
from isocost.contract.check import tried
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import chipseek, exit_, j1, jetrl, rlad, rlsqm, sapo, spct, totrl, tppo
from isocost.methods.grpo import advantage as grpo_advantage
from isocost.ops import gae, rounded
from isocost.pack import pack
from isocost.parts.play import sample
from isocost.recipe import tune
from isocost.scorers import checks_of, solutions_of
from isocost.seams import Attempts, Wave
from isocost.tasks.builtin import countdown, expressions, families
from isocost.types import Group, Message, Place, Problem, Role, Said, Score, Segment, Stop
from isocost.worlds.toy import world as toy_world
from toy import QUESTION, attempt, per_rollout, ratios, run
from toy import group as hand_made

LEDGER = Ledger()


def scores(group):
    return [None if r.score is None else pytest.approx(r.score.value) for r in group.rollouts]


def answered(problem, texts, rewards=None, **changes):
    """A group that ends in these texts, each of other tokens, marked if rewards are given."""
    made = [attempt([k % 3] * (1 + k // 3) + [toy.END], None, k) for k in range(len(texts))]
    made = [r.but(problem=problem, final=x, **changes) for r, x in zip(made, texts, strict=True)]
    if rewards is not None:
        made = [r.marked(Score(float(x))) for r, x in zip(made, rewards, strict=True)]
    return Group(problem, tuple(made))


# ExIt ---------------------------------------------------------------------------------------------------------------

def told(ledger, *groups, room=512):
    made = [g.of(r.but(final="abc"[k % 3], notes={"depth": float(i)}) for k, r in enumerate(g.rollouts))
            for i, g in enumerate(groups)]
    exit_.improve(pack(made, 0), None, None, ledger, room=room, inner=lambda *_: {})
    return ledger


def test_exit_learns_most_from_groups_whose_rewards_vary():
    assert exit_.learnable(hand_made([1, 0, 0, 0])) == 0.25 * 0.75
    assert exit_.learnable(hand_made([1, 1, 1, 1])) == 0.0
    other = [replace(QUESTION, id=f"0{k}") for k in range(3)]
    groups = [hand_made(r, slot=k, problem=p) for k, (r, p) in enumerate(
        zip(([1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]), other, strict=True))]
    ledger = told(Ledger(), *groups)
    assert [g.problem.id for g in ledger.kept["answers"]] == ["01", "02"], "equal rewards teach nothing"
    assert [g.problem.id for g in told(Ledger(), *groups, room=1).kept["answers"]] == ["02"], "the lowest S goes first"
    drawn = Counter(exit_._drawn(ledger.kept["answers"], np.random.default_rng(k)).problem.id for k in range(2000))
    assert abs(drawn["02"] / 2000 - 0.25 / (0.25 + 0.1875)) < 0.04


def test_exit_poses_what_it_chose_one_step_deeper_than_the_answer_it_shows():
    pool = [replace(QUESTION, id=f"0{k}") for k in range(3)]
    ledger = told(Ledger(), hand_made([1, 1, 0, 0], problem=pool[0]), hand_made([1, 0, 0, 0], slot=1, problem=pool[1]))
    depths, fresh = Counter(), 0
    for k in range(120):
        ledger.drawn = k
        (problem,) = exit_.choose(pool, ledger, 1, np.random.default_rng(k))
        (task,) = asyncio.run(exit_.guide(problem, None, ledger))
        assert problem in pool
        if not task.variant:
            fresh += 1
            assert task == problem
            continue
        depth = 1 + int(problem.id[1])          # the groups above had depths 0 and 1
        depths[depth] += 1
        assert (task.variant, task.meta["depth"]) == (f"after {depth}", depth)
        question, before, asked = task.prompt
        assert question == problem.prompt[0] and before.role == "assistant" and before.content in "abc"
        assert asked.content in (exit_.IMPROVE, exit_.DIVERGE)
    assert abs(fresh / 120 - 0.5) < 0.15 and min(depths[1], depths[2]) > 10
    assert asyncio.run(exit_.guide(pool[2], None, ledger)) == [pool[2]], "that problem has no answer"
    ledger = told(Ledger(), hand_made([1, 1, 0, 0], problem=pool[0]))
    drawn = exit_.choose(pool, ledger, 8, np.random.default_rng(0), inner=lambda pool, _, count, rng: [pool[1]] * count)
    for ledger.drawn, problem in enumerate(drawn):
        (task,) = asyncio.run(exit_.guide(problem, None, ledger))
        assert bool(task.variant) is (problem == pool[0]), "choose and guide agree on each problem of a wave"
    assert 0 < drawn.count(pool[0]) < 8


def test_exit_trains_on_one_step_at_any_depth():
    world = toy_world()
    recipe = methods.recipe("exit_", groups=4, rollouts=4)
    ledger, steps = run(recipe, world, 320)
    lines = [line for line in ledger.fresh if line["variant"]]
    assert lines and {line["variant"] for line in lines} >= {"after 1", "after 2"}
    assert all(set(line["depth"]) == {float(line["variant"].removeprefix("after ") or 0)} for line in lines)
    assert all(len(r.segments) == 1 and r.segments[0].own[-1] for s in steps for g in s.groups for r in g.rollouts)


# SPCT ---------------------------------------------------------------------------------------------------------------

def test_spct_pays_the_highest_score_alone():
    assert [spct.rule(x, "1") for x in ([3, 7], [7, 7], [9, 3], None, [3, 7, 7], [3, 8, 7])] == [1, -1, -1, -1, -1, 1]
    assert [spct.rule([1], "0"), spct.rule([1], ""), spct.rule([0], ""), spct.rule([0], "0")] == [1, -1, 1, -1]
    for order in ([9, 2, 5], [2, 9, 5], [5, 2, 9]):       # the label moves with the answer
        assert spct.rule(order, str(order.index(9))) == 1
    assert spct.scores_of("weights 3, 2. Scores: 4, 10", 2) == [4, 10] and spct.scores_of("1", 2) is None
    assert spct.scores_of("x73", 2, digits=True) == [7, 3]


def shelved(texts, rewards, problem=QUESTION, seed=0):
    ledger = Ledger(seed=seed)
    ledger.kept["shelf"] = [answered(problem, texts, rewards)]
    return ledger


def test_spct_shows_one_right_answer_among_different_ones():
    labels = Counter()
    for seed in range(40):
        ledger = shelved("abbc", (1, 0, 0, 0), seed=seed)
        posed = asyncio.run(spct.guide(QUESTION, None, ledger, answers=3))
        task = posed[1]
        assert posed[0] == QUESTION and task.meta["scores"] == 3 and task.variant == "scores"
        shown = [x.partition("\n")[2].partition("\n")[0] for x in task.text.split("Answer ")[1:]]
        assert sorted(shown) == ["a", "b", "c"] and shown[int(task.answer)] == "a"
        labels[task.answer] += 1
    assert len(labels) == 3
    (_, one) = asyncio.run(spct.guide(QUESTION, None, shelved("aaaa", (1, 1, 1, 1))))
    assert one.meta["scores"] == 1 and one.answer == "0"
    (_, wrong) = asyncio.run(spct.guide(QUESTION, None, shelved("aaaa", (0, 0, 0, 0))))
    assert wrong.answer == "" and asyncio.run(spct.guide(QUESTION, None, Ledger())) == [QUESTION]
    sum_ = next(iter(families.SUMS.listed("sums:level=0")))
    (_, digits) = asyncio.run(spct.guide(sum_, None, shelved(("78", "9"), (1, 0), sum_)))
    assert digits.text in (f"{sum_.text}78=9=;", f"{sum_.text}9=78=;")


def test_spct_scores_what_was_said_and_verifies_answers():
    task = replace(QUESTION, variant="scores", answer="1", meta={"scores": 2})
    own = answered(task, ("2, 9", "9, 2", "5, 5", "no"))
    paid = asyncio.run(spct.reward(own, toy_world()))
    assert scores(paid) == [1, -1, -1, -1] and {r.notes["judged"] for r in paid.rollouts} == {1.0}
    failed = asyncio.run(spct.reward(own.of(r.but(stop=Stop.ERROR) for r in own.rollouts), toy_world()))
    assert scores(failed) == [None] * 4


# J1 -----------------------------------------------------------------------------------------------------------------

def pair(label="A"):
    task = asyncio.run(j1.guide(QUESTION, None, shelved("xy", (1, 0))))[1]
    assert task.answer == label
    return task


def test_j1_reads_a_pair_in_both_orders():
    world, task = toy_world(), pair()
    one, other = (task.text.partition(f"Answer {x}:\n")[2][0] for x in "AB")
    turned = task.meta["turned"]
    assert (one, other) == ("x", "y") and turned.partition("Answer A:\n")[2][0] == "y"
    world.text.encode = lambda text: [toy.ALPHABET.index(c if c in toy.ALPHABET else "?") for c in text[-2:]]
    pace = methods.recipe("j1").pace(LEDGER)
    read = []
    world.text.prompt = lambda messages: read.append(messages[-1].content) or [4, 14]
    made = asyncio.run(j1.play(task, range(5), world, pace, Place(0, 0, 0)))
    assert [r.cohort for r in made] == ["", "turned", "", "turned", ""] and [r.attempt for r in made] == list(range(5))
    assert set(read) == {task.text, turned} and all(r.problem == task for r in made)
    assert asyncio.run(j1.guide(QUESTION, None, shelved("xx", (1, 0)))) == [QUESTION], "equal answers are no pair"
    assert asyncio.run(j1.guide(QUESTION, None, shelved("xy", (1, 1)))) == [QUESTION]


def test_j1_pays_what_is_right_in_both_orders():
    task = pair()
    own = answered(task, ("A", "B", "A", "A", "B", "B", "A"))       # pairs (0, 1), (2, 3), (4, 5), and 6 alone
    own = own.of(r.but(cohort="turned" if r.attempt % 2 else "") for r in own.rollouts)
    paid = asyncio.run(j1.reward(own, toy_world()))
    assert scores(paid) == [1, 1, 0, 0, 0, 0, 1], "A is right in the first order, B in the other"
    lost = own.of(r.but(stop=Stop.ERROR) if r.attempt == 0 else r for r in own.rollouts)
    assert scores(asyncio.run(j1.reward(lost, toy_world())))[:2] == [None, 0]


# RLAD ---------------------------------------------------------------------------------------------------------------

def abstracted(problem=QUESTION):
    """Two abstractions, of which the first leaks; three solutions with each, and two without."""
    named = [("proposed", 1), ("proposed", 2), ("without", 0), ("without", 0)]
    named += [("with 1", 1)] * 3 + [("with 2", 2)] * 3
    texts = (f"it is {problem.answer}", "add", *(str(problem.answer),) * 2, *(str(problem.answer),) * 3,
             str(problem.answer), "z", "z")
    own = answered(problem, texts)
    each = zip(own.rollouts, named, strict=True)
    return own.of(r.but(cohort=c, notes={"abstraction": float(k)}) for r, (c, k) in each)


def test_rlad_pays_an_abstraction_by_its_solutions_and_nothing_without_one():
    world = toy_world()
    paid = asyncio.run(rlad.reward(abstracted(), world))
    assert scores(paid) == [0, 1 / 3, 0, 0, 1, 1, 1, 1, 0, 0], "the first holds the answer; without one nothing is paid"
    assert world.meter.of().verify == 8 and [r.mark is None for r in paid.rollouts] == [True] * 2 + [False] * 8
    batch = pack([paid], 0)
    credit = per_rollout(grpo_advantage(batch, LEDGER), batch)
    assert credit[2:4] == [0, 0], "an attempt without an abstraction has no advantage"
    assert credit[0] < 0 < credit[1] and credit[4:7] == [0, 0, 0] and credit[7] > 0 > credit[8]
    unheard = abstracted()
    unheard = unheard.of(r.but(stop=Stop.ERROR) if r.cohort == "with 2" else r for r in unheard.rollouts)
    assert scores(asyncio.run(rlad.reward(unheard, world)))[1] is None


def test_rlad_deals_solutions_over_its_abstractions():
    world, pace = toy_world(), methods.recipe("rlad").pace(LEDGER)
    made = asyncio.run(rlad.play(QUESTION, range(20), world, pace, Place(0, 0, 0), propose="a", use="{abstraction}"))
    assert Counter(r.cohort for r in made) == {"proposed": 4, "without": 4, **{f"with {k}": 3 for k in range(1, 5)}}
    assert world.meter.of().rollouts == 20 and [r.attempt for r in made] == list(range(20))
    shown = {k: next(r for r in made if r.cohort == f"with {k}").segments[0] for k in range(1, 5)}
    for k, idea in enumerate((r for r in made if r.cohort == "proposed"), 1):
        text = shown[k]
        assert world.text.decode(text.tokens[text.role == int(Role.PROMPT)].tolist()) == QUESTION.text + idea.final
    plain = asyncio.run(rlad.play(QUESTION, range(4), world, pace, Place(0, 0, 0, int(Purpose.EVALUATION))))
    assert {r.cohort for r in plain} == {""}, "evaluations pose the problem alone"


# ToTRL --------------------------------------------------------------------------------------------------------------

def test_totrl_pays_all_solutions_and_not_a_part_of_them():
    several = replace(QUESTION, answer="4", meta={"solutions": ["4", "6"]})
    said = ("\\boxed{4}, \\boxed{6}", "\\boxed{6} or \\boxed{4}", "\\boxed{4}", "\\boxed{4}, \\boxed{6}, \\boxed{8}",
            "", "\\boxed{4}, \\boxed{6}")
    own = answered(several, said)
    own = own.of(r.but(stop=Stop.LENGTH) if r.attempt == 5 else r for r in own.rollouts)
    world = toy_world()
    world.grade = all_marked
    assert scores(asyncio.run(totrl.reward(own, world))) == [1, 1, -0.5, -0.5, -1, -1]
    alone = answered(QUESTION, ("\\boxed{4}", "\\boxed{5}", ""))
    world.grade = by_text
    assert scores(asyncio.run(totrl.reward(alone, world))) == [1, -0.5, -1]
    cut = alone.of(r.but(stop=Stop.LENGTH) for r in alone.rollouts)
    assert scores(asyncio.run(totrl.reward(cut, world))) == [-1, -1, -1], "whatever the verifier says of it"


async def all_marked(rollouts):
    return [Score(1.0)] * len(rollouts)


async def by_text(rollouts):
    return [Score(float("4" in r.final)) for r in rollouts]


def test_a_countdown_has_all_its_solutions():
    assert countdown.solutions("3,8,2=22>") == {"8+3*2", "3+8*2", "3*8-2", "8*3-2"}
    assert countdown.solutions("2,2=4>") == {"2+2", "2*2"} and countdown.solutions("2,9=1>") == set()
    puzzle = next(p for p in families.PUZZLES.listed("puzzles:kind=countdown,length=1,count=9"))
    every = solutions_of(puzzle)
    assert solutions_of(next(families.SUMS.listed("sums:level=0"))) == {"20"}
    assert puzzle.answer in every and all(countdown.accepts(puzzle.text, x) for x in every)
    with pytest.raises(UserError, match="at most five"):
        countdown.solutions("1,2,3,4,5,6=7>")


def test_totrl_asks_for_a_tree_and_first_without_thinking():
    (early,) = asyncio.run(totrl.guide(QUESTION, None, Ledger(step=15)))
    (late,) = asyncio.run(totrl.guide(QUESTION, None, Ledger(step=16)))
    assert early.prefix == totrl.EMPTY and late.prefix == "" and early.text == late.text == QUESTION.text + totrl.ASK


# T-PPO --------------------------------------------------------------------------------------------------------------

def windows(window, rollouts=160, most=6):
    recipe = methods.recipe("tppo", groups=4, rollouts=4)
    for path, value in (("schedule.window", window), ("pace.max_tokens", most), ("improve.minibatches", 1)):
        recipe = tune(recipe, path, value)
    world = toy_world()
    return recipe, world, *run(recipe, world, rollouts)


def test_tppo_trains_each_token_once_and_goes_on_where_it_stopped():
    _, world, ledger, steps = windows(2)
    whole = [r for s in steps for g in s.groups for r in g.rollouts]
    assert max(r.segments[0].written for r in whole) == 2, "credit is on the window's tokens alone"
    longer = [r for r in whole if r.parent]
    assert longer and any(r.numbers["unfinished"] for r in longer) and len(steps) == 10
    for r in longer:
        text = r.segments[0]
        assert r.parent == (-1, len(text) - text.written) and (text.role[2 : r.parent[1]] == int(Role.HINT)).all()
        assert any((x.segments[0].tokens == text.tokens[: r.parent[1]]).all() for x in whole
                   if len(x.segments[0]) == r.parent[1] and x.numbers["unfinished"])
    assert all(r.score.value == 0 and r.mark is None for r in whole if r.numbers["unfinished"])
    assert world.meter.of().decode == sum(r.segments[0].written for r in whole)
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == 160, "every window is one rollout"
    assert max(len(r.segments[0]) for r in whole) > 2 + 4, "a third window"


def test_tppo_keeps_the_texts_for_which_a_step_has_no_attempt():
    world, pace = toy_world(), replace(methods.recipe("tppo").pace(LEDGER), max_tokens=6)
    begun = asyncio.run(sample(QUESTION, range(12), world, replace(pace, max_tokens=1, in_parts=True), Place(0, 0, 0)))
    cut, ledger = [r for r in begun if r.stop is Stop.LENGTH][:3], Ledger()
    ledger.kept["unfinished"] = [Group(QUESTION, tuple(cut), Place(0, 0, 0))]
    play = Attempts(sample, world, pace, Wave(1, world.engine.halt), Place(0, 1, 0))
    made = asyncio.run(tppo.schedule(QUESTION, [0, 1], play, ledger, window=1))
    (kept,) = ledger.kept["unfinished"]
    assert len(cut) == 3 and len(made) == 2 and kept.rollouts[-1] is cut[2]


def test_tppo_with_a_window_of_the_whole_answer_is_ppo():
    _, _, _, steps = windows(6)
    plain = tune(methods.recipe("ppo", groups=4, rollouts=4), "pace.max_tokens", 6)
    plain = tune(plain, "improve.minibatches", 1)
    _, other = run(plain, toy_world(), 160)
    assert [g.rewards.tolist() for g in steps[0].groups] == [g.rewards.tolist() for g in other[0].groups]
    assert torch.equal(steps[0].batch.advantage, other[0].batch.advantage)


def under_way(rewards, cut):
    made = hand_made(rewards)
    made = made.of(r.but(notes={"unfinished": float(c)}) for r, c in zip(made.rollouts, cut, strict=True))
    batch = pack([made], 0)
    values = torch.arange(batch.mask.numel()).reshape(batch.mask.shape) * 0.1 * batch.mask
    return batch.but(extra={"values": values.to(batch.logp)})


def test_tppo_bootstraps_a_text_that_was_cut_by_its_last_value():
    batch = under_way([0.0, 1.0], [1, 0])
    credit = tppo.advantage(batch, LEDGER, lam=0.5, whiten=False)
    v = batch.extra["values"][0][batch.mask[0]].tolist()
    delta = [v[1] - v[0], v[2] - v[1], 0.0]                 # V(s_l) := V(s_l-1), so the last is 0
    worked = [delta[0] + 0.5 * (delta[1] + 0.5 * delta[2]), delta[1] + 0.5 * delta[2], delta[2]]
    assert credit[0][batch.mask[0]].tolist() == pytest.approx(worked, abs=1e-6)
    assert torch.equal(credit[1], gae(batch.extra["values"], batch, lam=0.5)[1]), "a finished one is as in PPO"


def test_tppos_critic_learns_from_finished_texts_alone_and_from_all_their_tokens():
    batch, world, fits = under_way([0.0, 1.0], [1, 0]), toy_world(), []
    role = batch.role.clone()
    first = int(batch.mask[1].float().argmax())
    role[1, first] = int(Role.HINT)                          # written in an earlier window
    batch = batch.but(role=role, mask=batch.mask & (role == int(Role.OWN)))
    world.critic = type("Critic", (), {"fit": lambda self, b, t, lr: fits.append((b, t)) or {}})()
    recipe = methods.recipe("tppo").but(advantage=grpo_advantage)
    batch = batch.but(advantage=batch.mask * 0.0, weight=batch.mask * 1.0)
    seen = tppo.improve(batch, recipe, world, LEDGER, minibatches=1)
    (part, target), = fits
    assert part.rollout.tolist() == [1] and int(part.mask.sum()) == 3 and target[part.mask].tolist() == [1, 1, 1]
    assert seen["unfinished"] == 0.5
    tppo.improve(under_way([0.0, 0.0], [1, 1]).but(advantage=batch.mask * 0.0, weight=batch.mask * 1.0), recipe, world,
                 LEDGER, minibatches=1)
    assert len(fits) == 1, "nothing is finished, and nothing is fitted"


# expressions, ChipSeek-R1, RLSQM ------------------------------------------------------------------------------------

EXPRESSION = Problem("expression", (Message("user", "%*2*3+4+1>"),), "%*6+5",
                     meta={"source": "expressions", "puzzle": "%*2*3+4+1>", "solution": "%*6+5"})


def test_expressions_are_read_from_left_to_right():
    assert expressions.values(expressions.parsed("%+1*2"))[:3] == [2, 4, 6]
    assert expressions.values(expressions.parsed("3-%*%"))[:3] == [0, 2, 2]
    assert [expressions.cost(expressions.parsed(x)) for x in ("%", "%*6+5", "%*2*3+4+1")] == [0, 3, 6]
    assert all(expressions.parsed(x) is None for x in ("", "%+", "+3", "%*-2", "6 *%", "%" * 2, "1+" * 20 + "1"))
    right = ("%*6+5", "6*%+5", "%+%+%*2+5", "%*2*3+4+1")
    assert all(expressions.accepts(EXPRESSION, x) for x in right)
    assert not any(expressions.accepts(EXPRESSION, x) for x in ("%*6+4", "5+6*%", "65", ""))


def test_expressions_can_all_be_made_cheaper():
    problems, again = (list(families.EXPRESSIONS.listed("expressions:count=200,seed=3")) for _ in range(2))
    assert len({p.id for p in problems}) == 200 and problems == again
    for p in problems:
        best = expressions.parsed(p.answer)
        assert expressions.accepts(p, p.answer) and expressions.cost(best) < expressions.cost(expressions.reference(p))
        assert families.of(p) is families.EXPRESSIONS and len(best) == 1 + p.meta["level"]
    assert str(expressions.Expressions.of("expressions:level=2,count=5")) == "expressions:level=2,count=5"
    with pytest.raises(UserError, match="level is 1 to 4, not 5"):
        expressions.Expressions(level=5)
    with pytest.raises(UserError, match=r"only .* different problems"):
        list(families.EXPRESSIONS.listed("expressions:level=1,count=9000"))


async def by_value(rollouts):
    return [Score(float(families.of(r.problem).accepts(r.problem, r.final))) for r in rollouts]


def test_chipseeks_gates_are_monotone():
    world = toy_world()
    world.grade = by_value
    own = answered(EXPRESSION, ("6)", "%*6", "%*2*3+4+1", "%*2*3+5", "%*6+5", "%*2*3+4+1+0"))
    paid = asyncio.run(chipseek.reward(own, world))
    assert scores(paid) == [0, 0.1, 0.5, 0.5 + 0.5 / 6, 0.75, 0.5]        # costs 6, 5, 3, and 7 of a reference of 6
    assert [r.numbers["saved"] for r in paid.rollouts] == pytest.approx([0, 0, 0, 1 / 6, 0.5, 0])
    assert scores(asyncio.run(chipseek.reward(own, world, syntax=0.0, function=1.0))) == [0, 0, 1, 1, 1, 1]
    with pytest.raises(UserError, match="a wrong answer would earn more"):
        asyncio.run(chipseek.reward(own, world, syntax=0.6))


def test_rlsqm_checks_without_running():
    said = ("%*6+5", "%*2*3", "3+4", "%+0", "%+", "%+2*3-1")
    checks = {x: tuple(map(checks_of(EXPRESSION, x).get, rlsqm.METRICS)) for x in said}
    assert rlsqm.METRICS == ("parses", "reads", "acts", "folded")
    assert checks == {"%*6+5": (1, 1, 1, 1), "%*2*3": (1, 1, 1, 0), "3+4": (1, 0, 1, 1), "%+0": (1, 1, 0, 1),
                      "%+": (0, 0, 0, 0), "%+2*3-1": (1, 1, 1, 1)}
    world = toy_world()
    world.grade = by_value
    own = answered(EXPRESSION, ("%*6+5", "%*2*3", "%+", "3"))
    assert scores(asyncio.run(rlsqm.reward(own, world))) == [1, 0.75, 0, 0.75]
    weighed = asyncio.run(rlsqm.reward(own, world, metrics=("parses", "3*folded")))
    assert scores(weighed) == [1, 0.25, 0, 1] and [r.score.parts["right"] for r in weighed.rollouts] == [1, 0, 0, 0]
    for wrong in ("short",), ():
        with pytest.raises(UserError, match=r"reward\.metrics has '(short|nothing)'"):
            asyncio.run(rlsqm.reward(own, world, metrics=wrong))
    for weight in ("0", "-1", "nan", "x"):
        with pytest.raises(UserError, match="with a weight above 0"):
            asyncio.run(rlsqm.reward(own, world, metrics=(f"{weight}*parses",)))


# DORA ---------------------------------------------------------------------------------------------------------------

def test_dora_is_late_by_whole_windows_and_has_one_version():
    recipe = tune(tune(methods.recipe("dora", groups=4, rollouts=4), "schedule.window", 2), "pace.max_tokens", 8)
    world = toy_world()
    ledger, steps = run(recipe, world, 240)
    groups = [(k, g) for k, s in enumerate(steps) for g in s.groups]
    for step, group in groups:
        longest = max(r.segments[0].written for r in group.rollouts)
        versions = {int(v) for r in group.rollouts for v in r.segments[0].version if v >= 0}
        late = {r.numbers["late"] for r in group.rollouts}
        assert len(versions) == 1 and step - versions.pop() <= max(late), "a wave in which none is due makes no step"
        assert late == {float(min(math.ceil(longest / 2) - 1, 2))}
    assert {r.numbers["late"] for _, g in groups for r in g.rollouts} == {0.0, 1.0, 2.0}
    assert max(r.segments[0].written for _, g in groups for r in g.rollouts) > 6, "three waves late but for the bound"
    assert sum(ledger.fates.values()) == world.meter.of().rollouts


def test_dora_bounds_gradients_from_three_sides():
    loss = methods.recipe("dora").loss
    out, batch, now = ratios([0.5, 1.2, 2.0, 0.5, 0.7, 2.0, 5.0], [1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0])
    batch = batch.but(logp=batch.old)                               # the sampler is the old policy
    value, _ = loss(out, batch)
    value.sum().backward()
    worked = [-0.5, -1.2, 0.0, 0.0, 0.0, 2.0, 0.0]                  # outside its bounds a ratio has no gradient
    assert now.grad[batch.mask].tolist() == pytest.approx(worked, abs=1e-5)


# Jet-RL -------------------------------------------------------------------------------------------------------------

def test_rounding_by_hand():
    x = torch.tensor([[1.0, -0.5, 0.26], [0.0, 0.0, 0.0]])
    assert torch.allclose(rounded(x, 3), torch.tensor([[1.0, -2 / 3, 1 / 3], [0.0, 0.0, 0.0]]))    # steps of 1/3
    assert torch.equal(rounded(x[0], 3), x[0]), "vectors stay exact"
    assert torch.allclose(rounded(x, 16), x, atol=1e-4)


@pytest.mark.parametrize("both", [True, False])
def test_one_rounded_flow_has_no_mismatch(both):
    recipe = tune(methods.recipe("jetrl", groups=4, rollouts=4), "improve.both", both)
    recipe = tune(tune(recipe, "pace.lr", 0.1), "pace.warmup", 0)
    world, gaps = toy_world(), []

    def inner(batch, *rest):
        gaps.append(float(((world.learner.score(batch).logp - batch.logp) * batch.mask).abs().max()))
        return policy(batch, *rest)

    from isocost.parts.improve import policy
    run(recipe.but(improve=partial(jetrl.improve, bits=4, both=both, inner=inner)), world, 96)
    assert (max(gaps[1:]) < 1e-6) is both, gaps
    flow, exact = world.learner.weights(), world.reference.weights()
    for name in flow:
        torch.testing.assert_close(flow[name], rounded(exact[name], 4))
        assert not torch.equal(flow[name], exact[name])


def test_small_updates_add_up_in_the_exact_weights():
    world = toy_world()
    before = {k: v.clone() for k, v in world.reference.weights().items()}

    def inner(*_):
        for own in world.learner.weights().values():
            own.add_(1e-4)          # far below a step of the rounding
        return {}

    for _ in range(5):
        jetrl.improve(None, None, world, LEDGER, bits=3, inner=inner)
    for name, now in world.reference.weights().items():
        torch.testing.assert_close(now, before[name] + 5e-4, atol=1e-7, rtol=0)
    other = toy_world()
    other.restore(world.state())
    assert all(torch.equal(v, other.reference.weights()[k]) for k, v in world.reference.weights().items())
    world.reference = None
    with pytest.raises(UserError, match="reference=True"):
        jetrl.improve(None, None, world, LEDGER)


# SAPO ---------------------------------------------------------------------------------------------------------------

def swarm(folder, seed, rollouts=64, foreign=1.0):
    recipe = methods.recipe("sapo", groups=4, rollouts=4)
    recipe = tune(tune(tune(recipe, "improve.folder", str(folder)), "improve.foreign", foreign), "pace.lr", 0.1)
    world = toy_world()
    ledger, steps = run(recipe, world, rollouts, seed=seed)
    return world, ledger, [s.line for s in steps]


def test_a_swarm_of_one_is_grpo(tmp_path):
    world, _, lines = swarm(tmp_path, 0)
    alone = tune(methods.recipe("grpo", groups=4, rollouts=4), "pace.lr", 0.1)
    other = toy_world()
    run(tune(alone, "loss.high", 0.28), other, 64)
    assert all(torch.equal(v, other.learner.weights()[k]) for k, v in world.learner.weights().items())
    assert [x["foreign"] for x in lines] == [0, 0, 0, 0] and len(list(tmp_path.glob("0/*.jsonl"))) == 4


def test_a_run_trains_on_what_another_published_a_step_before(tmp_path):
    swarm(tmp_path, 0)
    world, ledger, lines = swarm(tmp_path, 1)
    first = [len((tmp_path / "0" / f"{k}.jsonl").read_text(encoding="utf-8").splitlines()) for k in range(4)]
    assert [x["foreign"] for x in lines] == [0, *(min(4, k) for k in first[:3])] and sum(first[:3]) > 0
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == 64, "foreign rollouts are the other run's"
    again, _, same = swarm(tmp_path, 1)
    assert all(torch.equal(v, again.learner.weights()[k]) for k, v in world.learner.weights().items())
    assert lines[-1]["rollouts"] == same[-1]["rollouts"]
    assert [x["foreign"] for x in swarm(tmp_path, 1, foreign=0.25)[2]] == [0, 1, 1, 1]


def test_a_trial_before_a_run_publishes_nothing(tmp_path):
    recipe = tune(methods.recipe("sapo", groups=4, rollouts=4), "improve.folder", str(tmp_path / "swarm"))
    tried("sapo", recipe)
    assert not list(tmp_path.iterdir()), "another run would train on texts of the toy world"


def test_a_foreign_text_is_as_if_the_policy_had_written_it_now():
    world = toy_world()
    own = hand_made([1.0, 0.0, 1.0])
    said = sapo.published(own, world)
    assert said["rewards"] == [1.0, 0.0, 1.0] and said["prompt"] == [["user", QUESTION.text]]
    group = sapo.taken(said, 3, world, own.rollouts[0].segments[0].sampling)
    for r, was in zip(group.rollouts, own.rollouts, strict=True):
        assert r.origin == "peer" and (r.segments[0].tokens == was.segments[0].tokens).all()
    batch = pack([group], world.engine.version)
    assert batch.age.tolist() == [0, 0, 0], "so its old log-probs are the learner's own, and ratios are 1 at first"
    assert sapo.published(hand_made([1.0, 1.0]), world) == {}, "without a difference there is nothing to learn"
    words = Said(np.array([0, 1]), np.zeros(2, np.float32), np.zeros(2, np.int64), Stop.LENGTH)
    cut = Segment.given([4, 14], Role.PROMPT).wrote(words)
    half = own.of([own.rollouts[0], own.rollouts[1].but(segments=(cut,), stop=Stop.LENGTH)])
    assert sapo.taken(sapo.published(half, world), 0, world, cut.sampling).rollouts[1].segments[0].tokens[-1] == 1
