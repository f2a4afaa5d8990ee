"""Judges that err, votes of noisy readings, the methods with judges, and the count of a method's acts."""

import asyncio
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import toy
from isocost import chance, meter, methods
from isocost.contract.check import tried
from isocost.doctor import marks
from isocost.doctor.reward.audit import diagnose_reward
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import bfsprover, fapo, goedel, rubric, scope, spark
from isocost.parts.reward import scored
from isocost.recipe import tune
from isocost.scorers import parse, scores
from isocost.seams import Pace
from isocost.stats import decidable
from isocost.types import Group, Place, Role, Rollout, Said, Score, Segment, Stop
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.toy import world as toy_world
from toy import END, attempt, batch_of, per_rollout, ratios
from toy import group as hand_made

ADDITION = "puzzles:kind=addition,length=1,count=40"


@pytest.fixture(scope="module")
def world():
    return open_setting(Setting.of(model="tiny-puzzles", data=ADDITION, verifier="coarse:parity", truth="final",
                                   max_tokens=32)).world


def answers(problem, texts):
    """Attempts at a problem that end in these texts, not marked yet, each of other tokens."""
    made = [attempt([k % 3] * (1 + k // 3) + [END], None, k) for k in range(len(texts))]
    return Group(problem, tuple(r.but(problem=problem, final=x) for r, x in zip(made, texts, strict=True)))


def said(spec, problem, texts, world):
    return asyncio.run(parse(spec)(problem, answers(problem, texts).rollouts, [True] * len(texts), world))


def test_a_judge_that_errs_misses_and_flags_a_share_that_the_text_fixes(world):
    problem = world.problems[0]
    texts = [f"x{k}" for k in range(400)]       # all wrong
    found = said("outcome:misses=0.3,flags=0.9", problem, texts, world)
    exact = said("outcome", problem, texts, world)
    missed = [x != y for x, y in zip(found, exact, strict=True)]
    low, high = (said(f"outcome:misses={m}", problem, texts, world) for m in (0.0, 1.0))
    assert low == exact and high == [1 - x for x in exact]
    assert abs(sum(m for m, x in zip(missed, exact, strict=True) if x < 0.5) / sum(x < 0.5 for x in exact) - 0.3) < 0.08
    assert found == said("outcome:misses=0.3,flags=0.9", problem, texts, world)


def test_votes_are_the_mean_of_readings_with_errors_of_their_own(world):
    problem, texts = world.problems[0], [f"x{k}" for k in range(120)]
    wide = said("outcome:wrong=0.3,votes=9", problem, texts, world)
    each = [said(f"outcome:wrong=0.3,draw={k}", problem, texts, world) for k in range(9)]
    assert wide == [pytest.approx(sum(x) / 9) for x in zip(*each, strict=True)]
    exact = said("outcome", problem, texts, world)

    def wrong(found):
        return sum((x >= 0.5) != (y >= 0.5) for x, y in zip(found, exact, strict=True)) / len(exact)

    assert abs(wrong(each[0]) - 0.3) < 0.08 and abs(wrong(wide) - 0.0988) < 0.05       # P(Bin(9, 0.3) >= 5) = 0.0988
    with pytest.raises(UserError, match="votes counts readings that differ"):
        said("outcome:votes=3", problem, texts[:2], world)


@pytest.mark.parametrize(("rewards", "sign"), [((1, 1, 1, 0, -1), -1), ((1, 0, -1, -1, -1), 1)])
def test_fapo_raises_flawed_answers_while_wrong_ones_are_more_than_clean_ones(rewards, sign):
    batch = batch_of(list(rewards))
    credit = per_rollout(methods.recipe("fapo").advantage(batch, Ledger()), batch)
    assert credit[rewards.index(0)] * sign > 0


def test_fapo_pays_clean_flawed_and_wrong_and_notes_which(world):
    problem = next(p for p in world.problems if p.meta["solution"].count(";") >= 1)
    clean, answer = str(problem.meta["solution"]), int(problem.answer)
    flawed = clean.rpartition(";")[0] + f";{answer + 2}"       # of the right parity, and wrong
    broken = f"0+0=0;{clean}"
    wrong = clean.rpartition(";")[0] + f";{answer + 1}"
    own = answers(problem, (clean, flawed, broken, wrong))
    paid = asyncio.run(fapo.reward(own, world, judge="steps"))
    assert [r.score.value for r in paid.rollouts] == [1.0, 0.0, 1.0, -1.0]     # `steps` reads the answer alone
    assert [r.notes["flawed"] for r in paid.rollouts] == [0.0, 1.0, 0.0, 0.0]
    assert [r.score.parts["right"] for r in paid.rollouts] == [1.0, 1.0, 1.0, 0.0]
    half = asyncio.run(fapo.reward(own, world, judge="steps", less=0.5, misses=1.0))
    assert [r.score.value for r in half.rollouts] == [1.0, 1.0, 1.0, -1.0], "every flaw is missed"


def test_a_reward_takes_a_scorer_by_its_specification(world):
    own = answers(world.problems[0], (str(world.problems[0].meta["solution"]), "x"))
    found = asyncio.run(scored(own, world, scorer="steps:sure=0.8,flags=1"))
    assert [r.score.value for r in found.rollouts] == [pytest.approx(0.2), pytest.approx(0.2)]
    assert isinstance(found.rollouts[0].score, Score)


def test_a_method_that_never_acts_is_refused_and_one_that_does_is_counted():
    assert decidable.acts("a", "b", 0, 3, {"b": (0, 40)}).passed is False
    ruling = decidable.acts("a", "b", 0, 3, {"b": (5, 40)})
    assert ruling.passed is True and "b acted in 5 of 40 groups" in ruling.text
    assert decidable.acts("a", "b", 3, 3, {"b": (5, 40)}).passed is False, "equal runs are a refusal all the same"


def test_what_a_scorer_samples_is_no_rollout_wherever_it_is_asked(world):
    async def asks(problem, texts, over, world):
        prompt = Segment.given(world.text.prompt(problem.prompt), Role.PROMPT)
        await world.engine.generate(prompt, range(2), place=Place(0, 0, 0, 0), turn=0, max_tokens=2)
        return [0.5] * len(texts)

    before = world.meter.of()
    with meter.begins(True):
        asyncio.run(scores(asks, world.problems[0], answers(world.problems[0], ("x",)).rollouts, [True], world))
    after = world.meter.of()
    assert after.rollouts == before.rollouts and after.decode > before.decode


# methods with judges -----------------------------------------------------------------------------------------------


def test_a_scorer_is_the_verifier_that_trains_and_charges_what_it_does():
    here = open_setting(Setting.of(model="tiny-puzzles", data=ADDITION, verifier="scored:steps:misses=1",
                                   truth="final", max_tokens=32)).world
    problem, other = here.problems[:2]
    own = answers(problem, (str(problem.meta["solution"]), "x", str(other.meta["solution"]))).rollouts
    own = (*own[:2], own[2].but(problem=other))
    assert [s.value for s in asyncio.run(here.grade(own))] == pytest.approx([0.9, 0.9, 0.9]), "no error is seen"
    assert here.meter.of().verify == 3 and here.meter.of().rollouts == 0
    assert [s.value for s in asyncio.run(here.truth(own))] == [1.0, 0.0, 1.0]


def test_a_scorer_that_asks_the_verifier_asks_the_truth_and_without_one_nobody():
    own = {"model": "tiny-puzzles", "data": ADDITION, "verifier": "scored:outcome:misses=1", "max_tokens": 32}
    here = open_setting(Setting.of(**own, truth="final")).world
    rollouts = answers(here.problems[0], (str(here.problems[0].meta["solution"]), "x")).rollouts
    assert [s.value for s in asyncio.run(here.grade(rollouts))] == [1.0, 1.0]
    with pytest.raises(UserError, match="name the one that knows with --truth"):
        asyncio.run(open_setting(Setting.of(**own)).world.grade(rollouts))
    for wrong, why in (("outcme", "unknown scorer 'outcme'"), ("", "names no scorer")):
        with pytest.raises(UserError, match=why):
            open_setting(Setting.of(**{**own, "verifier": f"scored:{wrong}"}))


def told(world, problem, texts):
    """Attempts of the policy that say these texts to a problem, each with its end."""
    start = Segment.given(world.text.prompt(problem.prompt), Role.PROMPT)
    made = []
    for k, text in enumerate(texts):
        tokens = np.array([*world.text.encode(text), world.text.ends[0]])
        said = Said(tokens, np.full(len(tokens), -0.5, dtype=np.float32), np.zeros(len(tokens), dtype=int), Stop.DONE)
        made.append(Rollout(problem, (start.wrote(said),), text, Stop.DONE, k))
    return made


def test_scope_keeps_the_right_beginning_to_the_byte_and_uses_no_repair_that_is_wrong(monkeypatch):
    world = open_setting(Setting.of(model="tiny-puzzles", data="puzzles:kind=addition,length=2,count=40",
                                    max_tokens=64)).world
    problem = world.problems[0]
    steps = str(problem.meta["solution"]).split(";")             # four columns and the sum
    late, early = ";".join([*steps[:3], "1+1=3", "7"]), ";".join(["1+1=3", *steps[1:4], "7"])
    made = told(world, problem, (late, early, str(problem.meta["solution"])))

    async def sampled(*_):
        return made

    monkeypatch.setattr(scope, "sample", sampled)

    def played(problem=problem, purpose=chance.Purpose.TRAIN, start=None, **settings):
        at = Place(0, 0, 0, purpose)
        return asyncio.run(scope.play(problem, [0, 1, 2], world, Pace(0.0, 64), at, start, **settings))

    repaired, kept, right = played()
    text, whole = made[0].segments[-1], repaired.segments[-1]
    at = len(text) - len(world.text.encode("1+1=3;7")) - 1
    assert whole.tokens[:at].tobytes() == text.tokens[:at].tobytes()
    assert whole.own[:at].tolist() == text.own[:at].tolist()
    assert set(whole.role[at:].tolist()) == {int(Role.TEACHER)} and repaired.final == problem.meta["solution"]
    assert repaired.mark.value == 1.0 and [r.notes["repaired"] for r in (repaired, kept, right)] == [1.0, 0.0, 0.0]
    assert kept.final == early, "a wrong first step is no late one"
    assert whole.tokens[-1] == world.text.ends[0]
    assert [r.notes["repaired"] for r in played(near=0.0, most=2)] == [1.0, 1.0, 0.0]
    made.reverse()
    assert [r.notes["repaired"] for r in played(near=0.0)] == [0.0, 0.0, 1.0], "the longest right beginning"
    assert played(start=made[0].segments[0]) == made, "what goes on elsewhere has no repair"
    made.reverse()
    assert played(purpose=chance.Purpose.EVALUATION) == made, "evaluations have no repair"
    wrong = str(problem.meta["solution"])[:-1] + str((int(problem.answer) + 1) % 10)
    bad = replace(problem, meta={**problem.meta, "solution": wrong})
    assert [r.notes["repaired"] for r in played(bad)] == [0.0] * 3, "the verifier finds the repair wrong"


def test_scopes_loss_lifts_rare_tokens_of_the_teacher_most():
    """Its gradient in log π is -A γ π / (π + γ)²: with γ = 0.1 largest at π = 0.1; the policy's own tokens as given."""
    out, batch, now = ratios([1.0, 1.0], [2.0, 2.0])
    batch = batch.but(role=torch.where(batch.mask & (batch.rollout == 1)[:, None], int(Role.TEACHER), batch.role))
    value, _ = scope.loss(out, batch, inner=lambda out, b: (-b.advantage * out.logp, {}), gamma=0.1)
    value.sum().backward()
    p = math.exp(-1.0)
    assert now.grad[batch.mask].tolist() == pytest.approx([-2.0, -2.0 * 0.1 * p / (p + 0.1) ** 2])


def test_a_rubric_is_the_weighted_share_of_what_is_met_and_brevity_counts_above_its_threshold(world, tmp_path):
    path = tmp_path / "c.py"
    path.write_text("def long(problem, texts):\n    return [float(len(t) > 30) for t in texts]\n"
                    "def yes(problem, texts):\n    return [0.5] * len(texts)\n"
                    "def some(problem, texts):\n    return [None if t == 'x' else 1.0 for t in texts]\n")
    problem = world.problems[0]
    own = answers(problem, (str(problem.meta["solution"]), "x", str(problem.meta["solution"]) + " " * 40))
    graded = [f"2*{path}:yes", "1*right", f"-1*{path}:long"]
    found = asyncio.run(rubric.reward(own, world, criteria=graded))
    points = [r.score.parts["rubric"] for r in found.rollouts]
    assert points[0] == 1.0 and points[1] in (1.0, 2 / 3) and all(-1 / 3 <= x <= 1 for x in points)
    met = asyncio.run(rubric.reward(own, world, criteria=[f"2*{path}:yes", f"1*{path}:yes", f"-1*{path}:yes"]))
    assert [r.score.value for r in met.rollouts] == pytest.approx([2 / 3] * 3), "weights 2, 1, -1, all met"
    brief = asyncio.run(rubric.reward(answers(problem, ["x"] * 7), world, criteria=[f"1*{path}:yes"], brief=0.5))
    spared = [r.score.parts["brief"] for r in brief.rollouts]
    lengths = brief.lengths
    assert spared == pytest.approx([0.5 * (1 - k / max(lengths)) for k in lengths]) and max(spared) > 0
    finals = ["y" * 40 if k == max(lengths) else "x" for k in lengths]      # the longest are below it
    some = asyncio.run(rubric.reward(answers(problem, finals), world, criteria=[f"1*{path}:yes", f"-1*{path}:long"],
                                     brief=0.5))
    longest = max(k for k in lengths if k < max(lengths))
    assert [r.score.value for r in some.rollouts] == pytest.approx(
        [0.0 if k == max(lengths) else 1 + 0.5 * (1 - k / longest) for k in lengths])
    unsure = asyncio.run(rubric.reward(own, world, criteria=[f"1*{path}:some", "1*right"]))
    assert [r.score is None for r in unsure.rollouts] == [False, True, False]
    least = {"criteria": [f"1*{path}:yes"], "brief": 0.5, "least": 1}
    none = asyncio.run(rubric.reward(answers(problem, ["x"] * 7), world, **least))
    assert [r.score.value for r in none.rollouts] == [1.0] * 7, "no brevity at the threshold or below it"
    for wrong in (["right"], ["-1*right"]):
        with pytest.raises(UserError, match=r"reward\.criteria"):
            asyncio.run(rubric.reward(own, world, criteria=wrong))


@pytest.mark.parametrize(("keep", "there"), [(0.0, 0.0), (1.0, 1.0), (0.8, 0.8)])
def test_goedel_averages_with_the_weights_before_the_stage(keep, there):
    """From the base at 0 and the trained weights at 1 the average is `keep`; the next stage's beginning is there."""
    world, ledger = toy_world(), Ledger()
    base = {k: v.clone() for k, v in world.learner.weights().items()}

    def trained(batch, recipe, world, ledger):
        for own in world.learner.weights().values():
            own.add_(1.0)
        return {}

    seen = [goedel.improve(None, None, world, ledger, keep=keep, period=2, inner=trained)]
    ledger.step = 1
    seen.append(goedel.improve(None, None, world, ledger, keep=keep, period=2, inner=trained))
    assert [s["averaged"] for s in seen] == [0.0, 1.0]
    for side in (world.learner, world.reference):
        assert all(torch.allclose(v, base[k] + 2 * there) for k, v in side.weights().items())


@pytest.mark.parametrize(("rewards", "kept"), [((0, 0, 0, 0), False), ((1, 0, 0, 0), True), ((1, 1, 1, 0), True),
                                               ((1, 1, 1, 1), False), ((1, 1, 1, 1, 1, 1, 1, 0), False),
                                               ((1, 1, 1, None), False)])
def test_goedel_keeps_groups_with_a_share_right_in_the_published_range(rewards, kept):
    assert (goedel.select(hand_made(rewards), Ledger()) is not None) is kept


def test_bfs_prover_imitates_steps_of_middle_surprise_and_begins_again_from_the_base():
    """Steps of one right answer: surprises 0.1, 1, 2 and 9 have ranks 1/8, 3/8, 5/8 and 7/8 of four."""
    batch = batch_of([1.0, 0.0], lengths=[[8, 8]])
    step = torch.zeros_like(batch.logp)
    step[batch.mask] = torch.arange(16).float() % 8 // 2 + 1
    logp = torch.zeros_like(batch.logp)
    logp[batch.mask] = -torch.tensor([0.1, 0.1, 1.0, 1.0, 1.5, 2.5, 9.0, 9.0] * 2)
    batch = batch.but(logp=logp, extra={"step": step})
    for low, high, kept in ((0.2, 0.8, (0, 0, 1, 1, 1, 1, 0, 0)), (0, 1, [1] * 8), (0.5, 0.8, [0] * 4 + [1, 1, 0, 0]),
                            (0.125, 0.375, [1, 1] + [0] * 6)):      # a rank at an edge is in the upper part
        assert bfsprover.advantage(batch, None, low=low, high=high)[0][batch.mask[0]].tolist() == list(kept)
        assert not bfsprover.advantage(batch, None, low=low, high=high)[1].any(), "what was wrong is not imitated"
    step[0, batch.mask[0]] = torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0])
    logp[0, batch.mask[0]] = -torch.tensor([1.2, 0.5, 0.5, 0.5, 2.0, 2.0, 2.0, 9.0])      # by the mean, not the sum
    uneven = bfsprover.advantage(batch.but(logp=logp, extra={"step": step}), None, low=0, high=0.25)
    assert uneven[0][batch.mask[0]].tolist() == [0, 1, 1, 1, 0, 0, 0, 0]
    made = tune(tune(methods.recipe("bfsprover", groups=4, rollouts=8), "improve.period", 2), "improve.updates", 1)
    here, base = toy_world(), {k: v.clone() for k, v in toy_world().learner.weights().items()}
    _, steps = toy.run(tune(tune(made, "pace.lr", 0.5), "pace.warmup", 0), here, 4 * 8 * 2)
    moved = max(float((v - base[k]).abs().max()) for k, v in here.learner.weights().items())
    assert [s.line["begun again"] for s in steps] == [0.0, 1.0] and 0 < moved <= 0.5 + 1e-6, "one step of Adam from it"


def test_bfs_prover_numbers_steps_from_1_and_nothing_that_the_policy_did_not_write(world):
    problem = world.problems[0]
    own = Group(problem, tuple(told(world, problem, [str(problem.meta["solution"])])))
    (made,) = asyncio.run(bfsprover.reward(own, world)).rollouts
    text, number = made.segments[-1], made.notes["step"][-1]
    assert not number[~text.own].any() and number[text.own][0] == 1.0
    said = [world.text.decode(text.tokens[number == k].tolist()) for k in range(1, int(number.max()) + 1)]
    assert [x.rstrip(";") for x in said[:-1]] == str(problem.meta["solution"]).split(";")[:-1]


def test_where_training_begins_again_the_optimiser_is_new_and_what_was_kept_has_its_turn(monkeypatch):
    world, ledger, did = toy_world(), Ledger(step=1), []
    monkeypatch.setattr(type(world.learner), "forget", lambda self: did.append("new"), raising=False)
    names = "abc"
    kept = [hand_made((1, 0), problem=replace(toy.QUESTION, id=x)) for x in names]
    batch = toy.pack([g.of(r.but(notes={"step": tuple(np.zeros(len(s)) for s in r.segments)}) for r in g.rollouts)
                      for g in kept], 0)

    def inner(batch, *_):
        did.append("".join(g.problem.id for g in batch.groups))
        return {}

    goedel.improve(batch, None, world, ledger, period=2, inner=inner)
    bfsprover.improve(batch, methods.recipe("grpo"), world, ledger, period=2, updates=2, inner=inner)
    assert did == ["abc", "new", "abc", "new", "abc", "abc"]
    few = Ledger(step=1)        # of batches as large as two groups, the third is not left out
    few.kept["shelf"] = kept[:1]
    small = batch.but(groups=batch.groups[1:])
    did.clear()
    bfsprover.improve(small, methods.recipe("grpo"), world, few, period=2, updates=3, inner=inner)
    assert did == ["bc", "new", "ab", "ca", "bc"]
    spark.improve(batch, None, world, few, room=2, inner=inner)
    assert [g.problem.id for g in few.kept["shelf"]] == ["b", "c"]


def judging(answered, rewards, seed, problem=toy.QUESTION, drawn=0):
    ledger = Ledger(seed=seed, drawn=drawn)
    own = hand_made(rewards, problem=problem)
    ledger.kept["shelf"] = [own.of(r.but(final=x).marked(r.score) for r, x in zip(own.rollouts, answered, strict=True))]
    return ledger


def test_a_task_of_spark_is_drawn_anew_for_each_draw_and_problem_and_is_of_its_own_problem():
    world = toy_world()

    def posed(name, drawn):
        problem = replace(toy.QUESTION, id=name)
        ledger = judging("abcd", (1, 1, 0, 0), 0, problem, drawn)
        return asyncio.run(spark.guide(problem, world, ledger, reflect=0.0))[1].text

    assert len({posed("0", k) for k in range(16)}) > 4 < len({posed(f"0{k}", 0) for k in range(16)})
    new = replace(toy.QUESTION, id="00")
    assert asyncio.run(spark.guide(new, world, judging("ab", (1, 0), 0))) == [new], "that group is of another problem"


def test_the_digits_of_a_verdict_of_a_built_in_problem_say_which_is_right(world):
    problem, seen = world.problems[0], set()
    for seed in range(16):
        ledger = judging("78", (1, 0), seed, problem)
        task = asyncio.run(spark.guide(problem, world, ledger))[1]
        shown = task.text.removeprefix(problem.text).split("=")
        assert task.answer == {"pair": {"7": "1", "8": "2"}, "point": {"7": "1", "8": "0"}}[task.variant][shown[-3]
            if task.variant == "pair" else shown[-2]], task
        seen.add((task.variant, task.answer))
    assert len(seen) == 4


def test_sparks_tasks_are_balanced_and_never_compare_equal_answers():
    world, labels, said = toy_world(), Counter(), Counter()
    for seed in range(120):
        posed = asyncio.run(spark.guide(toy.QUESTION, world, judging("aabc", (1, 1, 0, 0), seed), reflect=0.0))
        task = posed[1]
        labels[task.variant, task.answer] += 1
        if task.variant == "pair":
            one, other = (task.text.partition(f"Answer {x}:\n")[2][0] for x in "AB")
            said[one == other] += 1
            assert (one == "a") is (task.answer == "A"), "the label is that of the right answer"
    pairs = labels["pair", "A"] + labels["pair", "B"]
    assert abs(pairs / 120 - 0.7) < 0.1 and abs(labels["pair", "A"] / pairs - 0.5) < 0.12 and said[True] == 0
    assert abs(labels["point", "yes"] / (120 - pairs) - 0.5) < 0.2
    for rewards, answer in (((1, 1, 1, 1), "yes"), ((0, 0, 0, 0), "no")):
        tasks = [asyncio.run(spark.guide(toy.QUESTION, world, judging("aabc", rewards, s), reflect=0.0))[1]
                 for s in range(20)]
        assert {(t.variant, t.answer) for t in tasks} == {("point", answer)}
    again = asyncio.run(spark.guide(toy.QUESTION, world, judging("aabc", (1, 0, 0, 0), 1), reflect=1.0))[1]
    assert (again.variant, again.answer) == ("reflect", toy.QUESTION.answer)
    shown = {asyncio.run(spark.guide(toy.QUESTION, world, judging("abcd", (1, 0, 1, 0), s), reflect=1.0))[1].text
             .partition("wrong:\n")[2][0] for s in range(20)}
    assert shown == {"b", "d"}, "wrong answers alone are to be corrected"
    batch, ledger = batch_of([1.0, 0.0]), Ledger()
    posed = batch.groups[0].of(batch.groups[0].rollouts)
    spark.improve(batch.but(groups=(replace(posed, problem=replace(posed.problem, variant="point")),)), None, world,
                  ledger, inner=lambda *_: {})
    assert not ledger.kept["shelf"], "no task is made of a task"
    spark.improve(batch, None, world, ledger, inner=lambda *_: {})
    assert [g.problem for g in ledger.kept["shelf"]] == [posed.problem]
    assert asyncio.run(spark.guide(toy.QUESTION, world, Ledger())) == [toy.QUESTION]


def test_spark_pays_verdicts_by_their_last_word(world):
    task = replace(toy.QUESTION, variant="point", answer="no")
    own = hand_made((None,) * 4, problem=task)
    said = ("no", "yes, no", "no: yes", "?")
    own = own.of(r.but(problem=task, final=x) for r, x in zip(own.rollouts, said, strict=True))
    paid = asyncio.run(spark.reward(own, toy_world()))
    assert [r.score.value for r in paid.rollouts] == [1.0, 1.0, 0.0, 0.0]
    assert [r.notes["judged"] for r in paid.rollouts] == [1.0] * 4 and all(r.mark is None for r in paid.rollouts)
    failed = asyncio.run(spark.reward(own.of(r.but(stop=Stop.ERROR) for r in own.rollouts), toy_world()))
    assert all(r.score is None for r in failed.rollouts), "what failed is not judged"
    answered = asyncio.run(spark.reward(hand_made((None,) * 2), toy_world()))
    assert [r.notes["judged"] for r in answered.rollouts] == [0.0] * 2


def test_the_doctor_says_that_it_cannot_mark_a_text_alone_by_a_scorer():
    case = SimpleNamespace(opened=SimpleNamespace(problems=SimpleNamespace(verifier="scored:steps")))
    for check in (marks.answer_key, marks.reward_probes):
        assert asyncio.run(check(case)).verdict == "cannot tell"
    with pytest.raises(UserError, match="no text to audit: name a model"):
        diagnose_reward("scored:steps")


def test_a_method_is_tried_in_the_toy_world_with_a_scorer_that_knows_its_own_problems_alone():
    tried("fapo", tune(methods.recipe("fapo", groups=4), "reward.judge", "steps"))
    with pytest.raises(UserError, match="unknown scorer 'stepz'"):
        tried("fapo", tune(methods.recipe("fapo", groups=4), "reward.judge", "stepz"))
