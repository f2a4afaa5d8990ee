"""Judges that err, votes of noisy readings, FAPO, and the count of a method's acts."""

import asyncio

import pytest

from isocost import methods
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import fapo
from isocost.parts.reward import scored
from isocost.scorers import parse
from isocost.stats import decidable
from isocost.types import Group, Score
from isocost.worlds.setting import Setting, open_setting
from toy import END, attempt, batch_of, per_rollout

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
    problem, texts = world.problems[0], [f"x{k}" for k in range(300)]
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
