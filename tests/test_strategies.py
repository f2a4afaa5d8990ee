"""Strategies: each against its equation, by enumeration where the toy world allows it; and what each try costs."""

import asyncio
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from math import comb, exp, inf

import numpy as np
import pytest
import torch

from isocost import meter, methods, strategies
from isocost.chance import Purpose
from isocost.contract.strategies import check
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.parts import play
from isocost.runs.evaluate import best_of as unbiased
from isocost.runs.evaluate import evaluate
from isocost.scorers import FOLDS
from isocost.seams import Pace
from isocost.steps.look.listing import check_method
from isocost.steps.look.strategy_bill import StrategyBill
from isocost.strategies import beam, best_of, particles, until_sure, vote
from isocost.strategies.paths import Answer, Path
from isocost.traits import declared
from isocost.types import Cost, End, Place, Rollout, Sampling, Score, Segment, Stop
from isocost.worlds import toy

PLACE, PACE = Place(3, 0, 1, int(Purpose.EVALUATION)), Pace(lr=0.0, max_tokens=toy.LONGEST)
POOLED = ("one", "best-of:n=4", "vote:n=4", "vote:n=4,scorer=outcome", "until-sure:n=6,by=2", "by-band:probe=2")
ONE_AFTER_THE_OTHER = ("revise:n=3,show={answer},scorer=outcome", "force:waits=2,word=b", "nested:n=3,show={answer}",
                       "route:scorer=outcome,step=a,below=0.6")
SEARCHES = ("beam:n=4,width=2,scorer=outcome,step=a", "dvts:n=4,width=2,scorer=outcome,step=a",
            "particles:n=4,scorer=outcome,step=a", "beam:n=4,width=2,scorer=outcome,step=a,look=1",
            "particles:n=4,scorer=outcome,step=a,iterations=2,twist=true", "backtrack:n=6,scorer=outcome,step=a",
            "bfs:n=4,width=3,step=a", "tree:n=3,width=2,scorer=outcome,step=a")


async def by_letters(problem, texts, over, world):
    """A score for every text: more for those with many b's."""
    return [(1 + t.final.count("b")) / (2 + len(t.final)) for t in texts]


async def alike(problem, texts, over, world):
    return [0.7 for _ in texts]


async def never(problem, texts, over, world):
    return [None for _ in texts]


def run(spec, attempts=range(3), *, world=None, pace=PACE, place=PLACE, problem=0, **changes):
    """(answers, tab, world) of a strategy in the toy world."""
    world = world or toy.world()
    made = strategies.parse(spec) if isinstance(spec, str) else spec
    play = partial(made.play, **changes) if changes else made.play
    with meter.tab() as tab, meter.begins(True):
        answers = asyncio.run(play(world.problems[problem], list(attempts), world, pace, place))
    return answers, tab, world


def sampled(numbers, pace=PACE, problem=0):
    world = toy.world()
    with meter.begins(True):
        return asyncio.run(play.sample(world.problems[problem], numbers, world, pace, PLACE))


def tokens(rollouts):
    return [r.segments[-1].tokens.tolist() for r in rollouts]


@pytest.mark.parametrize("spec", [*POOLED, *SEARCHES, *ONE_AFTER_THE_OTHER])
def test_each_attempt_has_one_rollout_and_every_try_is_charged_and_has_a_fate(spec):
    answers, tab, _ = run(spec)
    assert [r.attempt for r in answers] == [0, 1, 2]
    tries = [int(r.notes["tries"]) for r in answers]
    assert sum(tries) == tab.cost.rollouts == tab.unchosen + len(answers)
    longest = [sum(s.written for s in r.segments) for r in answers]
    assert all(r.notes["depth"] >= k for r, k in zip(answers, longest, strict=True)) and tab.cost.decode >= sum(longest)


@pytest.mark.parametrize("spec", [*POOLED, *SEARCHES, *ONE_AFTER_THE_OTHER])
def test_an_attempt_does_not_depend_on_the_others(spec):
    (alone,) = run(spec, [2])[0]
    assert tokens([alone]) == tokens(run(spec)[0][2:])


@pytest.mark.parametrize("spec", [*POOLED, *SEARCHES, *ONE_AFTER_THE_OTHER,
                                  "by-band:probe=2,low=1,high=1,hard=(beam:n=4,width=2,step=a,scorer=outcome,look=1)"])
def test_no_random_number_is_used_twice(spec):
    """Numbers are addressed by try, turn and position of the token: their ranges in all calls are disjoint."""
    world, used = toy.world(), []
    generate = world.engine.generate

    async def watched(start, attempts, **how):
        said = await generate(start, attempts, **how)
        turn, at = how["turn"], int((start.turn == how["turn"]).sum())
        used.extend((a, turn, at + k) for a, s in zip(attempts, said, strict=True) for k in range(len(s.tokens)))
        return said

    world.engine.generate = watched
    run(spec, world=world)
    assert len(used) == len(set(used)) > 5


def test_one_is_a_plain_sample():
    assert tokens(run("one")[0]) == tokens(sampled(range(3)))
    hot = Pace(lr=0.0, max_tokens=8, sampling=Sampling(temperature=0.5))
    assert tokens(run("one:temperature=0.5")[0]) == tokens(sampled(range(3), hot)) != tokens(sampled(range(3)))


@pytest.mark.parametrize("spec", ["best-of:n=1", "vote:n=1", "beam:n=1,width=1,scorer=outcome,step=a",
                                  "particles:n=1,scorer=outcome,step=a", "dvts:n=1,width=1,scorer=outcome,step=b",
                                  "rounds:rounds=0", "until-sure:n=1", "revise:n=1", "force:waits=0",
                                  "nested:n=1,turns=1",
                                  "backtrack:n=1,scorer=outcome,step=a", "bfs:n=1,step=a", "bfs:width=1,step=b",
                                  "tree:n=1,width=1,scorer=outcome,step=a", "route:below=0,scorer=outcome,step=a"])
def test_a_strategy_of_one_try_is_one(spec):
    assert tokens(run(spec)[0]) == tokens(sampled(range(3)))


def test_best_of_n_with_an_exact_scorer_is_right_with_pass_at_n():
    """Over all patterns of right and wrong; and, with the toy's numbers, wherever one of its tries is right."""
    world = toy.world()
    (p,) = world.exact(world.problems[:1], Sampling())
    for n in (1, 2, 3, 5, 8):
        right = 0.0
        for marks in product((0.0, 1.0), repeat=n):
            chosen = best_of.choose([""] * n, marks, n=n).chosen
            right += marks[chosen] * p ** sum(marks) * (1 - p) ** (n - sum(marks))
        assert right == pytest.approx(1 - (1 - p) ** n, abs=1e-12)
    for n in (1, 4, 32):
        pool = [r.final == "a" for r in sampled(range(6 * n))]
        assert [r.final == "a" for r in run(f"best-of:n={n}", range(6))[0]] == [
            any(pool[a * n : a * n + n]) for a in range(6)]


def test_choices_of_a_pool_average_to_the_unbiased_formula():
    marks = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    for n in range(1, 7):
        strategy = strategies.parse(f"best-of:n={n}")
        drawn = [strategy.choose([""] * n, x) for x in combinations(marks, n)]
        right = [x[d.chosen] for x, d in zip(combinations(marks, n), drawn, strict=True)]
        assert np.mean(right) == pytest.approx(unbiased(marks, n)) and len(right) == comb(6, n)


@pytest.mark.parametrize("spec", ["best-of:n=4,scorer=outcome:wrong=0.3", "vote:n=4", "until-sure:n=6,by=2",
                                  "vote:n=4,scorer=outcome:wrong=0.3"])
def test_the_choice_of_a_pool_is_what_play_returns(spec):
    """What a plan computes from a stored pool is what the strategy does with a model."""
    from isocost.strategies.paths import voted

    strategy, world = strategies.parse(spec), toy.world()
    for a, answer in enumerate(run(spec, range(8))[0]):
        tries = sampled(range(a * strategy.most, (a + 1) * strategy.most))
        scorer = strategies.scorers.parse(strategy.scorer or "outcome")
        scores = asyncio.run(scorer(world.problems[0], tries, [True] * len(tries), world))
        pick = strategy.choose([voted(t) for t in tries], scores)
        assert tokens([answer]) == tokens([tries[pick.chosen]]) and answer.notes["tries"] == pick.tries
        assert answer.notes["depth"] == pick.depth([t.segments[-1].written for t in tries])


def test_depth_by_hand_is_the_longest_text_of_each_batch():
    assert strategies.Pick(0, (3, 2)).depth([4, 1, 7, 2, 3]) == 7 + 3 and strategies.Pick(0, (3,)).depth([4]) == 4


def test_votes_by_hand():
    assert vote.choose(["x", "y", "y", None, "x"], [None] * 5, n=5).chosen == 0       # a tie: the answer that was first
    assert vote.choose(["x", "y", "y", "x"], [None] * 4, n=3).chosen == 1
    assert vote.choose([None, None], [None] * 2, n=2).chosen == 0
    weighted = partial(vote.choose, scorer=alike)
    assert weighted(["x", "x", "y"], [0.2, 0.2, 0.5], n=3).chosen == 2
    assert weighted(["x", "y"], [None, None], n=2).chosen is None
    assert vote.choose(["x", "y", "y"], [0.5] * 3, n=3) == weighted(["x", "y", "y"], [0.5] * 3, n=3)   # equal weights
    steps = {"a": (0.9, 0.2), "b": (0.5, 0.6)}
    for by, wins in (("min", 1), ("last", 1), ("mean", 0), ("prod", 1)):
        scores = [round(FOLDS[by](s), 9) for s in steps.values()]
        assert weighted(list(steps), scores, n=2).chosen == wins, by


def test_a_vote_is_sure_by_its_beta_posterior():
    assert until_sure.sure(["x"] * 4) == pytest.approx(1 - 0.5**5) == pytest.approx(0.96875)
    assert until_sure.sure(["x"] * 3) == pytest.approx(0.9375)
    assert until_sure.sure(["x", "x", "y"]) == pytest.approx(0.6875) and until_sure.sure([None]) == 0.0
    choose = partial(until_sure.choose, n=7, surety=0.95, by=2)
    assert choose(["x"] * 7, [None] * 7) == (0, (2, 2))
    assert choose(["x", "y"] * 4, [None] * 8) == (0, (2, 2, 2, 1))       # never more than n
    assert choose([None, None, "x", "x", "x", "x", "y"], [None] * 7) == (2, (2, 2, 2))


def test_a_beam_of_one_step_is_best_of_and_a_single_subtree_is_a_beam():
    """A mark that never occurs leaves one step; the tries have the numbers of best-of."""
    assert tokens(run("beam:n=4,width=4,step=?", scorer=by_letters)[0]) == tokens(
        run("best-of:n=4", scorer=by_letters)[0])
    both = [run(f"{name}:n=4,width=4,step=a", scorer=by_letters) for name in ("dvts", "beam")]
    assert tokens(both[0][0]) == tokens(both[1][0]) and both[0][1] == both[1][1]


def test_a_beam_by_hand():
    """n = 2, width = 2: each step keeps the better path, which goes on under its own number and once more."""
    world, problem = toy.world(), toy.world().problems[0]
    (answer,), tab, _ = run("beam:n=2,width=2,step=b", [1], scorer=by_letters)
    first = play.opened(sampled([2]))
    texts = [(first, 2), (first, 3)]
    fork, decoded = 2 << 20, 0
    while True:
        after = []
        for text, number in texts:
            if text is None or (text.written and int(text.tokens[-1]) == toy.END):
                after.append((text, number))
                continue
            with meter.begins(True):
                (said,) = asyncio.run(world.engine.generate(
                    text, [number], place=PLACE, turn=0, max_tokens=8, ends=[1]))
            decoded += len(said.tokens)
            after.append((text.wrote(said), number))
        said = ["".join(toy.ALPHABET[t] for t in text.reply() if t != toy.END) for text, _ in after]
        value = [(1 + s.count("b")) / (2 + len(s)) for s in said]
        over = [int(text.tokens[-1]) == toy.END or text.written >= 8 for text, _ in after]
        best = int(value[1] > value[0]) if len(after) > 1 else 0
        if all(over):
            break
        texts = [after[best]] if over[best] else [after[best], (after[best][0], fork)]
        fork += not over[best]
    assert answer.final == said[best] and tab.cost.decode == decoded and answer.notes["tries"] == 2 + fork - (2 << 20)
    assert problem == answer.problem


@pytest.mark.parametrize(("name", "keep", "left"), [("dvts", 1, {0, 1}), ("beam", 2, {0})])
def test_no_subtree_loses_its_last_path(name, keep, left):
    """Where all paths of one subtree score higher, a beam drops the other one, and each subtree of its own stays."""

    class Scripted(Answer):
        async def advance(self, paths, step, look=0):
            after.append({p.tree if name == "dvts" else int(p.rollout.attempt > 1) for p in paths})
            return [replace(p, over=len(after) == 3, score=0.9 if p.rollout.attempt < 2 else 0.1) for p in paths]

        def branch(self, path, count, *, others=False):
            return [path] * count

    after, four = [], [replace(p, rollout=p.rollout.but(attempt=i)) for i, p in enumerate(paths(*[0.5] * 4))]
    trees = [replace(p, over=False, tree=i // 2 if name == "dvts" else 0) for i, p in enumerate(four)]
    answer = Scripted(four[0].rollout.problem, 0, toy.world(), PACE, PLACE)
    asyncio.run(beam.widest(answer, trees, keep, 2, "a"))
    assert after == [{0, 1}, left, left]


def test_lookahead_costs_its_steps_and_no_rollouts():
    """With a constant scorer the paths are the same: what is scored later is dropped."""
    plain, tab, _ = run("beam:n=4,width=2,step=a,look=0", scorer=alike)
    same, _, _ = run("beam:n=4,width=2,step=a", scorer=alike)
    assert tokens(plain) == tokens(same)
    for look in (1, 2):
        ahead, more, _ = run(f"beam:n=4,width=2,step=a,look={look}", scorer=alike)
        assert tokens(ahead) == tokens(plain) and more.cost.rollouts == tab.cost.rollouts
        assert more.cost.decode > tab.cost.decode
        tab = more


# particles --------------------------------------------------------------------------------------------------------

def paths(*scores):
    empty = Rollout(toy.questions(1)[0], (Segment.empty(),), "")
    return [Path(empty, True, s) for s in scores]


def test_particles_weigh_odds():
    w = particles.weights(paths(0.9, 0.1, None), 1.0)
    assert w[0] / w[1] == pytest.approx(81) and w[2] == 0
    assert particles.weights(paths(0.9, 0.1), 2.0)[0] == pytest.approx(3)
    assert np.isfinite(particles.weights(paths(1.0, 0.0), 1.0)).all()


def law(pace, odds):
    """(probability under the policy, weight) of each text of the toy's first question, by its letters and end."""
    world = toy.world()
    first = torch.tensor([world.text.prompt(world.problems[0].prompt)])
    found, open_texts = {}, {"": 1.0}
    for k in range(pace.max_tokens):
        grown = {}
        for text, p in open_texts.items():
            row = torch.tensor([[*first[0].tolist(), *(toy.ALPHABET.index(c) for c in text)]])
            probs = torch.softmax(world.learner.policy(row)[0, -1], -1).tolist()
            for token, q in enumerate(probs):
                if token == toy.END or k == pace.max_tokens - 1:
                    found[text + toy.ALPHABET[token]] = p * q
                else:
                    grown[text + toy.ALPHABET[token]] = p * q
        open_texts = grown
    return {text: (p, odds(text.removesuffix("."))) for text, p in found.items()}


SHORT = Pace(lr=0.0, max_tokens=2)


def odds(text):
    score = (1 + text.count("b")) / (2 + len(text))
    return score / (1 - score)


@pytest.mark.parametrize("scorer", [alike, by_letters])
def test_the_mean_weights_product_has_the_expectation_of_the_final_weight(scorer):
    """Twisted particles: E[product of mean weights] = E_π[w(y)], by enumeration of all texts of two letters."""
    count = 120
    made, _, _ = run("particles:n=3,twist=true,step=a", range(count), scorer=scorer, pace=SHORT)
    known = law(SHORT, odds if scorer is by_letters else lambda text: 0.7 / 0.3)
    wanted = sum(p * w for p, w in known.values())
    found = np.array([exp(r.notes["evidence"]) for r in made])
    assert sum(p for p, _ in known.values()) == pytest.approx(1.0)
    assert abs(found.mean() - wanted) <= 3.5 * max(found.std() / count**0.5, 1e-9)


def frequencies(made, known):
    said = [r.final + ("." if int(r.segments[-1].tokens[-1]) == toy.END else "") for r in made]
    return np.array([said.count(text) for text in known])


def test_a_constant_scorer_keeps_the_policys_texts():
    """Chi-square of 160 particles drawn after resampling against the policy's own probabilities."""
    made, _, _ = run("particles:n=4,choose=sample,step=a", range(160), scorer=alike, pace=SHORT)
    known = law(SHORT, odds)
    expected = np.array([p for p, _ in known.values()]) * len(made)
    seen, large = frequencies(made, known), expected >= 5
    chi = ((seen - expected)[large] ** 2 / expected[large]).sum() + (
        (seen[~large].sum() - expected[~large].sum()) ** 2 / expected[~large].sum())
    assert seen.sum() == len(made) and chi < large.sum() + 4 * (2 * large.sum()) ** 0.5


@pytest.mark.parametrize("spec", ["particles:n=16,choose=sample,twist=true,step=a",
                                  "particles:n=4,choose=sample,twist=true,step=a,iterations=4"])
def test_many_particles_or_iterations_draw_texts_by_their_weight(spec):
    """The share of each first letter, against enumeration: within 4 standard errors and the bias of n particles."""
    count = 80
    made, _, _ = run(spec, range(count), scorer=by_letters, pace=SHORT)
    known = law(SHORT, odds)
    z = sum(p * w for p, w in known.values())
    for letter in "abc.":
        wanted = sum(p * w for text, (p, w) in known.items() if text[0] == letter) / z
        share = np.mean([(r.final or ".")[0] == letter for r in made])
        assert abs(share - wanted) < 4 * (wanted * (1 - wanted) / count) ** 0.5 + 0.03, letter
    plain = sum(p for text, (p, _) in known.items() if text[0] == "b")
    assert abs(plain - sum(p * w for t, (p, w) in known.items() if t[0] == "b") / z) > 0.05    # it differs from π


def test_systematic_resampling_is_unbiased():
    """Over all offsets index i is drawn n w_i / Σ w times on average, and each time that number up or down."""
    w, grid = np.array([0.5, 0.1, 2.0, 1.4]), 400

    class Offset:
        def __init__(self, u):
            self.random = lambda: u

    drawn = [particles._systematic(w, Offset((k + 0.5) / grid)) for k in range(grid)]
    counts = np.array([np.bincount(x, minlength=4) for x in drawn])
    assert counts.mean(0) == pytest.approx(w) and (np.abs(counts - w) < 1).all() and (counts.sum(1) == 4).all()


def test_one_step_of_particles_is_importance_sampling():
    one = Pace(lr=0.0, max_tokens=1)
    (made,), tab, _ = run("particles:n=6", [0], scorer=by_letters, pace=one)
    w = [odds(r.final) for r in sampled(range(6), one)]
    assert made.notes["evidence"] == pytest.approx(np.log(np.mean(w))) and tab.cost.rollouts == 6
    assert odds(made.final) == max(w)


# what is charged, settled and refused -------------------------------------------------------------------------------

def test_a_run_that_trains_on_best_of_has_a_fate_for_every_try():
    recipe = methods.load("grpo").recipe(play=partial(best_of.play, n=4), groups=4, rollouts=4)
    world, ledger, end = toy.world(), Ledger(), End()

    async def go():
        return [step async for step in train(recipe, world, ledger, {"rollouts": 200}, end)]

    steps = asyncio.run(go())
    billed = world.meter.of().rollouts
    assert len(steps) == 3 and billed == 3 * 16 * 4 and not end.why
    assert ledger.fates["unchosen"] == 3 * 16 * 3 and ledger.fates["cancelled"] == 0
    assert sum(ledger.fates.values()) == billed
    again = Ledger()
    again.replay([line.data for line in ledger.fresh])
    assert +again.fates == +ledger.fates


@pytest.mark.parametrize("spec", ["best-of:n=4", "vote:n=4,scorer=outcome", "beam:n=4,width=2,scorer=outcome,step=a",
                                  "particles:n=4,scorer=outcome,step=a"])
def test_without_any_score_there_is_no_answer_and_it_is_billed(spec):
    answers, tab, _ = run(spec, scorer=never)
    assert [r.stop for r in answers] == [Stop.ERROR] * 3 and {r.final for r in answers} == {""}
    assert tab.cost.rollouts == 12 and tab.cost.decode > 0


def test_whole_dialogues_are_chosen_among_and_searches_over_them_refused():
    world = toy.dialogues()
    made, tab, _ = run("best-of:n=4", world=world, pace=Pace(lr=0.0, max_tokens=4, max_turns=3))
    assert all(r.turns for r in made) and tab.cost.rollouts == 12 and tab.unchosen == 9
    for spec in (*SEARCHES, *ONE_AFTER_THE_OTHER):
        with pytest.raises(UserError, match="the environment of a dialogue cannot follow paths that are dropped"):
            run(spec, world=world)


def test_a_band_is_told_by_probes_that_are_part_of_the_pool():
    vote_4, one_more = strategies.parse("vote:n=4").play, strategies.parse("best-of:n=5").play
    spec = "by-band:probe=4,low=0,high=0"
    easy, tab, _ = run(spec, easy=vote_4)
    assert tab.cost.rollouts == 3 * 4 and [r.notes["tries"] for r in easy] == [4, 4, 4]      # probes alone
    more, tab, _ = run(spec, easy=one_more)
    assert tab.cost.rollouts == 3 * 5 and all(r.notes["score"] in (0.0, 1.0) for r in more)
    live, tab, _ = run(spec, easy=strategies.parse("beam:n=2,width=1,scorer=outcome,step=a").play)
    assert tab.cost.rollouts == sum(r.notes["tries"] for r in live) == 3 * 6 == tab.unchosen + 3


def test_what_may_be_trained_is_said_by_traits():
    trained = {name for name in strategies.names() if "chosen_by_steps" not in strategies.parse(name).traits}
    assert trained == {"one", "best-of", "vote", "until-sure", "rounds", "by-band", "revise", "force", "nested",
                       "sparse-to-dense"}
    assert {n for n in strategies.names() if strategies.parse(n).of_pool} == {"one", "best-of", "vote", "until-sure"}


@pytest.mark.parametrize("name", strategies.names())
def test_a_file_is_whole(name):
    module = strategies.KIND.load(name)
    strategy = strategies.parse(name)
    assert module.__doc__.count("\n") >= 3 and module.CARD.claim.endswith(".") and module.CARD.year > 2000
    assert set(declared(module.play).bounds) <= strategy.settings.keys() and str(strategy) == name
    assert strategies.parse(str(strategy)).settings == strategy.settings


@pytest.mark.parametrize("name", [*strategies.names(), "vote:scorer=outcome", "by-band:scorer=outcome",
                                  "particles:iterations=2,twist=true", "beam:look=1",
                                  "bfs:scorer=outcome,width=2",
                                  "revise:scorer=outcome,base=best,show={answer}", "force:waits=2,word=b,close=a",
                                  "force:most=3,finish=b", "route:below=1", "route:rule=pomdp",
                                  "nested:scorer=outcome"])
def test_every_strategy_keeps_the_contract(name):
    assert [(p.promise, p.why) for p in check(name) if not p.kept] == []


FILE = '''"""The first of n.

    y = y_1
"""
from isocost import meter
from isocost.parts.play import sample
from isocost.strategies import Card, Pick
from isocost.strategies.paths import written
CARD = Card("First", "-", 2026, None, "It is the first.")
def choose(answers, scores, *, n):
    return Pick(0, (n,))
async def play(problem, attempts, world, pace, place, start=None, *, n=2):
    made = await sample(problem, [a * n + k for a in attempts for k in range(n)], world, pace, place, start)
    meter.unchosen((n - 1) * len(attempts))
    return [made[i * n].but(attempt=a, notes={"tries": float(n), "depth": float(max(map(written, made[i*n:i*n+n])))})
            for i, a in enumerate(attempts)]
'''
BROKEN = {
    "no sentence": ('the first.")', 'the first")', "is no sentence"),
    "another sample": ("made[i * n]", "made[i * n + 1]", "play returns another text"),
    "not counted": ("meter.unchosen((n - 1) * len(attempts))", "pass", "0 were counted as unchosen"),
    "no default": ("n=2):", "n):", "n has no default"),
    "numbers": ("attempt=a, ", "", "attempts [0, 1, 2, 3] returned"),
    "neighbours": ("a * n + k for", "a * n + k + len(attempts) for", "differ from themselves"),
    "depth": ('"depth": float(', '"depth": 0 * float(', "has depth 0"),
    "raises": ("made = await", "made = 1 / 0 or await", "line 13: ZeroDivisionError: division by zero"),
}


def test_a_users_strategy_is_checked_and_what_it_breaks_is_named(tmp_path):
    file = tmp_path / "first.py"
    file.write_text(FILE)
    assert not check_method(str(file)).broken
    for case, (old, new, why) in BROKEN.items():
        assert old in FILE
        file = tmp_path / f"{case.replace(' ', '_')}.py"
        file.write_text(FILE.replace(old, new))
        assert why in " ".join(p.why for p in check(str(file))), case


WRONG = {
    "bestof:n=4": r"unknown strategy 'bestof' \(did you mean 'best-of'\?\)",
    "best-of:m=4": "has no setting 'm'; best-of has n, scorer",
    "beam:widht=2": r"has no setting 'widht' \(did you mean 'width'\?\)",
    "best-of:n=0": r"n=0: .*expects a value in \[1, inf\)",
    "best-of:n=two": "n=two: best-of.n is 8; expected a number",
    "beam:n=6,width=4": "n=6 is not a multiple of width=4: write n=4 or n=8",
    "dvts:n=2,width=4": "n=2 is not a multiple of width=4: write n=4",
    "best-of:scorer=step": r"unknown scorer 'step' \(did you mean 'steps'\?\)",
    "best-of:scorer=(steps:worng=1)": r"has no setting 'worng' \(did you mean 'wrong'\?\)",
    "by-band:hard=bestof": "unknown strategy 'bestof'",
}


@pytest.mark.parametrize("spec", WRONG)
def test_a_specification_that_is_wrong_is_named_with_the_nearest_that_is_right(spec):
    with pytest.raises(UserError, match=WRONG[spec]):
        strategies.parse(spec)


def test_a_specification_is_read_and_written():
    spec = "by-band:probe=2,hard=(best-of:n=16,scorer=(outcome:wrong=0.1,shared=0.5)),scorer=outcome"
    read = strategies.parse(spec)
    assert read.settings["hard"] == "best-of:n=16,scorer=(outcome:wrong=0.1,shared=0.5)" and read.settings["probe"] == 2
    assert strategies.parse(str(read)).settings == read.settings
    assert str(strategies.parse("best-of: n=8, scorer=outcome")) == "best-of"


def test_a_users_file_is_a_strategy(tmp_path):
    file = tmp_path / "last.py"
    file.write_text('"""The last of n."""\nfrom isocost.strategies import Card\n'
                    'from isocost.strategies.vote import play\nCARD = Card("Last", "-", 2026, None, "Last.")\n')
    assert strategies.parse(f"{file}:n=3").settings["n"] == 3
    file.write_text('"""Nothing."""\n')
    with pytest.raises(UserError, match="is not a strategy: it has no CARD and no play"):
        strategies.parse(str(file))


def test_scores_reach_the_meter_as_calls_of_no_rollout():
    answers, tab, _ = run("best-of:n=4")
    assert sum(r.notes["calls"] for r in answers) == tab.cost.verify > 0
    assert isinstance(Answer(answers[0].problem, 0, toy.world(), PACE, PLACE).scoring, tuple)
    assert Score(1.0).value == answers[0].notes["score"] and -inf < answers[0].notes["depth"] < inf


async def dear(problem, texts, over, world):
    """A scorer that reads, writes and passes texts through a model."""
    world.meter.charge(Cost(prefill=7, decode=2, score=5))
    return [0.5] * len(texts)


@pytest.mark.parametrize("spec", ["best-of:n=3", "beam:n=4,width=2,step=a"])
def test_the_bill_of_a_strategy_sums_to_the_meter(spec):
    strategy = strategies.parse(spec)
    strategy = replace(strategy, play=partial(strategy.play, scorer=dear))
    world = toy.world()
    recipe = methods.load("reinforce").recipe(play=strategy.play)
    found = asyncio.run(evaluate(recipe, world, world.problems[:3], PACE, samples=2, exact=False))
    cost = world.meter.of(meter.EVALUATION)
    bill = StrategyBill.of(strategy, found.groups, cost, world.failures)
    scored = bill.scorer // 14
    assert bill.scorer == 14 * scored and bill.answers == 6 and bill.rollouts == cost.rollouts
    assert bill.answer + bill.tries + 2 * scored == cost.decode
    assert bill.read + bill.reread + 7 * scored == cost.prefill and bill.read > 0
    assert bill.answer == sum(s.written for g in found.groups for r in g.rollouts for s in r.segments)
    assert bill.alike == (6 if spec.startswith("best-of") else 0)
    flags = " ".join(row.text for row in bill.rows() if row.kind == "flag")
    assert ("all tries of 100% of the answers have one score" in flags) == (bill.alike == 6)
    assert ("of the tries give no answer" in flags) == (bill.mute > 0.05 * bill.rollouts)
    none = replace(bill, unanswered=2, unstepped=6, failures={"scorer: it raised": 3})
    assert [row.text.split(",")[0] for row in none.rows() if row.kind == "flag"][:2] == [
        "3 calls of the scorer failed", "2 answers of 6 could not be chosen: no try had a score. They are billed"]


def test_the_pages_are_those_of_the_files():
    from pathlib import Path

    from docs.build import strategies as built

    home = Path(__file__).parents[1] / "docs"
    there = {name: (home / f"{name}.md").read_text(encoding="utf-8") for name in ("strategies", "scorers")}
    assert there == built.pages(), "python -m docs.build.strategies docs"
