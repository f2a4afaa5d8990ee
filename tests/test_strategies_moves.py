"""Strategies that revise, force, go back, search a tree or use a second model: each against its equation, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from isocost import strategies
from isocost.chance import Purpose
from isocost.envs.opening import open_environment
from isocost.envs.tiny import signal
from isocost.errors import UserError
from isocost.gather import finished
from isocost.steps.look.evaluate import evaluate_model
from isocost.strategies import backtrack, route, sparse_to_dense, tree
from isocost.strategies.paths import Answer
from isocost.types import Role, Said, Stop
from isocost.worlds import toy
from isocost.worlds.setting import Setting
from test_strategies import PACE, PLACE, by_letters, run, tokens


def called(world):
    """What its engine is asked from now on: (text before, text after) of each attempt, as letters."""
    seen, generate = [], world.engine.generate

    async def watched(start, attempts, **how):
        said = await generate(start, attempts, **how)
        seen.extend((letters(start.tokens), letters(start.wrote(s).tokens)) for s in said)
        return said

    world.engine.generate = watched
    return seen


def letters(text):
    return "".join(toy.ALPHABET[t] for t in text)


# revise and nested --------------------------------------------------------------------------------------------------

def test_a_revision_reads_the_answers_before_it():
    world = toy.world()
    seen = called(world)
    (answer,), tab, _ = run("revise:n=6,keep=2", [1], world=world, show="0{answer}1", pace=replace(PACE, max_tokens=4))
    question, whole, said = seen[0][0], [], []
    for before, after in seen:
        assert before == question + "".join(f"0{x}1" for x in whole[-2:])
        said.append(after[len(before):])
        if said[-1].strip(".") and said[-1].endswith("."):      # an answer that was cut, or is empty, is not shown
            whole.append(said[-1].rstrip("."))
    assert len(whole) >= 3 and answer.final == said[-1].rstrip(".") and answer.problem is world.problems[0]
    assert tab.cost.rollouts == 6 == answer.notes["tries"] and answer.notes["depth"] == sum(map(len, said))


def test_of_revisions_a_scorer_takes_the_best_and_the_best_is_shown():
    world = toy.world()
    seen = called(world)
    (answer,), _, _ = run("revise:n=5,base=best,show=0{answer}1", [2], world=world, scorer=by_letters)
    said = [after[len(before):].rstrip(".") for before, after in seen]
    value = [(1 + s.count("b")) / (2 + len(s)) for s in said]
    assert answer.final == max(zip(value, said, strict=True), key=lambda x: x[0])[1]
    ended = [i for i, (_, after) in enumerate(seen) if after.endswith(".") and said[i]]
    for k, (before, _) in enumerate(seen):
        there = [i for i in ended if i < k]
        assert before == seen[0][0] + (f"0{said[max(there, key=lambda i: (value[i], i))]}1" if there else "")


def test_a_model_that_cannot_read_its_answer_or_the_forced_word_is_refused():
    for name, why in (("revise", "cannot be shown its answer, because '.n' in .*show=.answer."),
                      ("force", "cannot be forced, because 'W' in 'Wait' .*force:word=;")):
        with pytest.raises(UserError, match=why):
            evaluate_model(Setting.of({"model": "tiny", "data": "sums", "limit": 3}), samples=1, strategy=name)
    with pytest.raises(UserError, match=r"has no \{answer\}"):
        run("revise:n=3,show=again")
    with pytest.raises(UserError, match="not 'best' without one: add scorer=outcome"):
        run("revise:base=best")


@pytest.mark.parametrize(("spec", "same"), [
    ("nested:n=1,turns=3,show={answer}", "revise:n=3,show={answer}"), ("nested:n=4,turns=1", "vote:n=4"),
    ("nested:n=4,turns=1,scorer=outcome", "best-of:n=4"), ("nested:n=1,turns=1,answer=(force:waits=2,word=b)",
                                                           "force:waits=2,word=b"),
    ("nested:n=1,turns=1", "one"), ("nested:n=4,turns=2,context=8", "nested:n=4,turns=2"),
])
def test_with_one_axis_alone_three_axes_are_that_axis(spec, same):
    (left, bill, _), (right, other, _) = run(spec), run(same)
    assert tokens(left) == tokens(right) and bill.cost == other.cost and bill.unchosen == other.unchosen
    assert [r.notes["depth"] for r in left] == [r.notes["depth"] for r in right]


def test_three_axes_multiply_and_the_context_limits_each_sample():
    world = toy.world()
    seen = called(world)
    made, tab, _ = run("nested:n=3,turns=4,context=2,show={answer},scorer=outcome", [0], world=world)
    assert tab.cost.rollouts == 12 == made[0].notes["tries"] and tab.unchosen == 11
    assert made[0].notes["calls"] == tab.cost.verify > 3 and max(len(b) - len(a) for a, b in seen) == 2
    for answer in ("best-of:n=4", "route", "by-band", "beam:n=4"):
        with pytest.raises(UserError, match="answer is a strategy of one try"):
            strategies.parse(f"nested:answer=({answer})")


# force ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("waits", [1, 2, 3])
def test_each_wait_is_read_and_not_written(waits):
    made, tab, _ = run(f"force:waits={waits},word=0b", range(12), pace=replace(PACE, max_tokens=40))
    plain, once, _ = run("one", range(12))
    forced = 0
    for answer, first in zip(made, plain, strict=True):
        (text,) = answer.segments
        hints = letters(text.tokens[text.role == Role.HINT])
        assert hints == "0b" * int(answer.notes["waits"]) and set(text.logp[text.role == Role.HINT]) <= {0.0}
        start = letters(first.segments[0].tokens).rstrip(".")
        assert letters(text.tokens).startswith(start + "0b" if answer.notes["waits"] else start)
        full = letters(text.reply()).split("0b")
        assert answer.notes["waits"] == waits or full[-1] in ("", ".") or answer.stop is Stop.LENGTH
        forced += answer.notes["waits"]
    assert forced > 3 * waits and tab.cost.rollouts == 12 and tab.unchosen == 0
    assert tab.cost.decode == sum(r.notes["depth"] for r in made) > once.cost.decode


def test_thinking_that_is_too_long_is_finished_and_the_answer_follows():
    """It has three tokens at most; then the text goes on after "0"."""
    made, _, _ = run("force:waits=1,word=1,most=3,finish=0", range(24), pace=replace(PACE, max_tokens=8))
    kinds = set()
    for said in (letters(r.segments[0].reply()) for r in made):
        thought, cut, _ = said.partition("0")
        written = thought.replace("1", "")
        assert len(written) == 3 and "." not in written if cut else len(written) <= 3
        assert ("1" in said) == (0 < len(said.partition("1")[0]) < 3 and said != ".")
        kinds.add((cut, "1" in said))
    assert kinds >= {("0", False), ("0", True), ("", True)}
    closed, _, _ = run("force:waits=1,word=1,close=a", range(24))      # an a closes the thinking, and is dropped
    for said in (letters(r.segments[0].reply()) for r in closed):
        before, forced, after = said.partition("1")
        assert "a" not in before if forced else said[0] in "a."
        assert after.endswith(".") or not forced
    assert sum("1" in r.final for r in closed) > 8
    short, _, _ = run("force:waits=1,word=1,least=3", range(24))        # two tokens are too few, and the end is one
    plain = [r.segments[0] for r in run("one", range(24))[0]]
    assert [r.notes["waits"] for r in short] == [letters(s.tokens[-1:]) == "." and s.written == 2 for s in plain]
    cut, _, _ = run("force:waits=1,word=1,close=a", range(24), pace=replace(PACE, max_tokens=2))
    assert {r.stop for r in cut} == {Stop.DONE, Stop.LENGTH} and max(r.segments[0].written for r in cut) == 2


# search over steps, on scripted texts -------------------------------------------------------------------------------

def scripted(monkeypatch, wrote, score, steps=3):
    """Texts of so many steps, each a letter that `wrote` gives for (text, number of the continuation) with its
    probability; `score` of a text. Returns the texts in the order in which they went on."""
    seen, taken = [], {}

    async def advance(self, paths, step, look=0):
        out = []
        for p in paths:
            text = p.rollout.segments[-1]
            before = letters(text.reply())
            taken[before] = k = taken.get(before, -1) + 1
            letter, probability = wrote(before, k)
            said = Said(np.array([toy.ALPHABET.index(letter)]), np.log([probability]).astype(np.float32),
                        np.zeros(1, int), Stop.STEP)
            grown = p.rollout.but(segments=(text.wrote(said),), final=before + letter, stop=Stop.DONE)
            seen.append(before + letter)
            past = (*p.past, p) if p.length else ()
            out.append(replace(p, rollout=grown, past=past, over=len(before) + 1 == steps,
                               score=None if self.scorer is None else score(before + letter)))
        self.depth += 1
        return out

    monkeypatch.setattr(Answer, "advance", advance)
    return seen


def test_each_fall_at_one_place_goes_back_further(monkeypatch):
    """The third step is always wrong: it is tried again from two, one and no steps, while there are texts."""
    score = {1: 0.6, 2: 0.7, 3: 0.1}
    seen = scripted(monkeypatch, lambda text, k: ("abc"[k % 3], 1.0), lambda text: score[len(text)])
    (answer,), _, _ = run("backtrack:n=4", [0])
    assert seen == ["a", "aa", "aaa", "aab", "ab", "aba", "b", "ba", "baa"]
    assert answer.final == "aaa" and answer.notes["tries"] == 4 and answer.notes["score"] == 0.1


def test_a_text_that_does_not_fall_ends_the_search_and_a_drop_is_allowed(monkeypatch):
    score = {"a": 0.4, "b": 0.8, "ba": 0.7, "bb": 0.9, "bba": 0.9, "baa": 0.6}
    seen = scripted(monkeypatch, lambda text, k: ("ab"[min(k, 1)], 1.0), score.get)
    (answer,), _, _ = run("backtrack:n=9", [0])
    assert seen == ["a", "b", "ba", "bb", "bba"] and answer.final == "bba" and answer.notes["tries"] == 3
    seen = scripted(monkeypatch, lambda text, k: ("ab"[min(k, 1)], 1.0), {"a": 0.4, "aa": 0.3, "aaa": 0.3}.get)
    assert run("backtrack:n=9,drop=0.11", [0])[0][0].final == "aaa" and seen == ["a", "aa", "aaa"]
    assert [backtrack.matched(*x) for x in ((100, 30), (90, 30), (20, 30))] == [3, 3, 0]


def test_best_first_pops_the_highest_length_normalised_likelihood(monkeypatch):
    """With alpha 0 the probability of a text counts, with 1 the geometric mean of its steps."""
    p = {"": 0.5, "a": 0.3, "b": 0.9, "ba": 0.5, "aa": 0.9, "ab": 0.9, "bb": 0.5}

    def wrote(text, k):
        return "ab"[min(k, 1)], 0.4 if (text, k) == ("", 1) else p[text]

    seen = scripted(monkeypatch, wrote, None)
    (answer,), _, _ = run("bfs:n=2,width=2,alpha=0", [0])
    #   a .5, b .4 -> aa .15 -> b goes on: ba .36 -> baa .18 is over, and above aa
    assert seen == ["a", "b", "aa", "ba", "baa"] and answer.final == "baa"
    assert answer.notes["score"] == pytest.approx(0.4 * 0.9 * 0.5) and answer.notes["tries"] == 2
    seen = scripted(monkeypatch, wrote, None)
    (answer,), _, _ = run("bfs:n=2,width=2,alpha=1", [0])
    #   a .5, b .4 -> aa sqrt(.15) = .387 -> ba sqrt(.36) = .6 -> baa .18^(1/3) = .565 is over
    assert seen == ["a", "b", "aa", "ba", "baa"]
    assert answer.notes["score"] == pytest.approx(0.18 ** (1 / 3))


def test_best_first_by_a_scorer_widens_while_texts_are_left(monkeypatch):
    score = {"a": 0.2, "b": 0.6, "ba": 0.1, "bb": 0.5, "bba": 0.4, "bbb": 0.45}
    seen = scripted(monkeypatch, lambda text, k: ("ab"[min(k, 1)], 1.0), score.get)
    (answer,), _, _ = run("bfs:n=4,width=2", [0], scorer=by_letters)
    #   b -> ba .1, bb .5 -> bb goes on twice: bba .4, bbb .45 is over, but ab .. has not begun: a stays at .2
    assert seen == ["a", "b", "ba", "bb", "bba", "bbb"] and answer.final == "bbb" and answer.notes["tries"] == 4


def test_the_bound_of_a_tree_by_hand(monkeypatch):
    node = tree.TextNode(None, prior=0.5, visits=1, total=0.6)
    assert node.bound(4, 1.0) == pytest.approx(0.6 + 0.5 * 2 / 2) and tree.TextNode(None).bound(0, 1.0) == 0
    root = tree.TextNode(None, below=[tree.TextNode(None, 0.75, [], 3, 1.5), tree.TextNode(None, 0.25, [], 1, 0.6)])
    #   Q .5 and .6, bounds .5 + c .75 2 / 4 and .6 + c .25 2 / 2: .875 against .85 with c = 1
    assert root.next(1.0) is root.below[0] and root.next(0.0) is root.below[1]
    #   a .2, b .6 -> below b: .1 and .5 -> Q(b) = .4, so b again: bb .5 -> bba .9 is over
    score = {"a": 0.2, "b": 0.6, "ba": 0.1, "bb": 0.5, "bba": 0.9, "bbb": 0.7, "baa": 0.3}
    seen = scripted(monkeypatch, lambda text, k: ("ab"[k % 2], 1.0), score.get)
    (answer,), _, _ = run("tree:n=3,width=2,c=0", [0], scorer=by_letters)
    assert seen == ["a", "b", "ba", "bb", "bba", "bbb"] and answer.final == "bba" and answer.notes["tries"] == 4
    #   with c = 1 b's bound is then .4 + 2 / 8, and a's is its score + 2 / 4: .6 stays below, .7 does not
    for score["a"], third in ((0.1, ["bba", "bbb"]), (0.2, ["aa", "ab"])):
        seen = scripted(monkeypatch, lambda text, k: ("ab"[k % 2], 1.0), lambda text: score.get(text, 0.3))
        run("tree:n=3,width=2", [0], scorer=by_letters)
        assert seen[:6] == ["a", "b", "ba", "bb", *third]
    seen = scripted(monkeypatch, lambda text, k: ("ab"[k % 2], 1.0), score.get)
    (answer,), _, _ = run("tree:n=1,width=2", [0], scorer=by_letters)      # then without exploration, to an end
    assert seen == ["a", "b", "ba", "baa"] and answer.final == "baa" and answer.notes["tries"] == 2


def test_equal_steps_are_one_node_with_their_share():
    world = toy.world()
    answer = Answer(world.problems[0], 0, world, PACE, PLACE)
    first = finished(strategies.paths.opening(world.problems[0], world, PACE, PLACE))
    begun = answer.begin(first, 2)
    a, b = (replace(p, rollout=p.rollout.but(segments=(first.read([k]),))) for k, p in enumerate(begun))
    assert [(n.path, n.prior) for n in tree.distinct([a, b, a, a])] == [(a, 0.75), (b, 0.25)]


# two models ---------------------------------------------------------------------------------------------------------

def two(**changes):
    world = toy.world()
    world.others["strong"] = other = toy.world(seed=5)
    other.engine.meter = world.meter
    return world, other


def test_a_threshold_of_0_is_the_policy_and_1_the_strong_model():
    world, other = two()
    weak, _, _ = run("route:strong=strong,below=0,scorer=outcome,step=a", world=world)
    assert tokens(weak) == tokens(run("one")[0]) and {r.notes["routed"] for r in weak} == {0}
    seen = called(other)
    made, tab, _ = run("route:strong=strong,below=1,scorer=outcome,step=a", world=world, scorer=certain)
    assert seen and all(set(r.segments[0].role.tolist()) == {Role.PROMPT, Role.TEACHER} for r in made)
    wrote = sum(len(after) - len(before) for before, after in seen)
    assert wrote == sum(r.notes["strong"] for r in made) == world.meter.of("model strong").decode
    assert sum(len(before) for before, _ in seen) == sum(r.notes["strong_read"] for r in made)
    assert world.meter.of("model strong").rollouts == 0 and sum(r.notes["routed"] for r in made) == len(seen)
    for r in made:
        assert letters(r.segments[0].reply()) == r.final
    assert sum(r.notes["tries"] for r in made) == tab.cost.rollouts
    assert sum(r.notes["depth"] for r in made) == tab.cost.decode       # one text, step after step


def test_a_draft_that_is_dropped_has_numbers_of_its_own_and_the_limit_is_of_the_whole_text():
    world, _ = two()
    drawn, generate = [], world.engine.generate

    async def watched(start, attempts, *, turn, **how):
        drawn.extend((a, turn, int((start.turn == turn).sum())) for a in attempts)
        return await generate(start, attempts, turn=turn, **how)

    world.engine.generate = watched
    made, _, _ = run("route:strong=strong,below=1,step=a", range(12), world=world, scorer=certain,
                     pace=replace(PACE, max_tokens=3))
    assert len(set(drawn)) == len(drawn) > 12 and max(len(r.segments[0].reply()) for r in made) == 3


@pytest.mark.parametrize("value, below, routed", [
    (0.5, 0.5, False), (0.5, 0.51, True), (1.0, 1, True), (0.0, 0, False)])
def test_by_the_rule_prompt_one_of_the_two_models_writes_all_as_it_does_alone(value, below, routed):
    world, other = two()
    seen, read = called(other if routed else world), []

    async def said(problem, texts, over, world):
        read.extend(t.final for t in texts)
        return [value] * len(texts)

    made, tab, _ = run(f"route:strong=strong,rule=prompt,below={below}", range(6), world=world, scorer=said)
    alone, _, _ = run("one", range(6), world=toy.world(seed=5) if routed else toy.world())
    assert [r.final for r in made] == [r.final for r in alone] and len({r.final for r in made}) > 1
    assert {*read} == {""} and all(r.notes["score"] == value and r.notes["tries"] == 1 for r in made)
    wrote, asked = (sum(x) for x in zip(*((len(b) - len(a), len(a)) for a, b in seen), strict=True))
    assert sum(r.notes["depth"] for r in made) == wrote
    assert sum(r.notes["strong"] for r in made) == wrote * routed == world.meter.of("model strong").decode
    assert sum(r.notes["strong_read"] for r in made) == asked * routed and {r.notes["routed"] for r in made} == {routed}
    assert tab.cost.rollouts == len(made)


def test_a_prompt_without_a_score_is_answered_by_neither_model():
    async def none(problem, texts, over, world):
        return [None] * len(texts)

    world, other = two()
    mine, theirs = called(world), called(other)
    made, _, _ = run("route:strong=strong,rule=prompt", world=world, scorer=none)
    assert {r.stop for r in made} == {Stop.ERROR} and not mine and not theirs


def test_agg_counts_the_steps_before():
    """0.5 - 6 t / 30 is above 0 for the first two steps."""
    made, _, _ = run("route:strong=strong,rule=agg,below=0.5,weights=0 0 0 0 -6,step=a", range(12), world=two()[0],
                     scorer=certain)
    assert {min(r.notes["steps"], 2) for r in made} == {1, 2} and max(r.notes["steps"] for r in made) > 3
    assert all(r.notes["routed"] == min(r.notes["steps"], 2) for r in made)


async def certain(problem, texts, over, world):
    return [1.0 for _ in texts]


async def no_b(problem, texts, over, world):
    return [0.1 if "b" in t.final else 0.9 for t in texts]


def test_a_doubted_step_is_written_again_by_the_strong_model_and_the_policy_goes_on():
    """To the token: each step of the policy with a b is replaced by one of the other model from the same beginning."""
    world, other = two()
    mine, theirs = called(world), called(other)
    (answer,), _, _ = run("route:strong=strong,step=a", [4], world=world, scorer=no_b)
    text, strong, weak = mine[0][0], list(theirs), list(mine)
    while weak:
        before, after = weak.pop(0)
        assert before.replace(".", "") == text
        if "b" in after[len(mine[0][0]):]:
            before, after = strong.pop(0)
            assert before == text
        text = after.replace(".", "")
    assert not strong and theirs and text[len(mine[0][0]):] == answer.final and answer.notes["routed"] == len(theirs)


def test_agg_with_its_own_weights_is_the_threshold():
    router = route.Router(0.4, (0, 0, -1, 0, 0), 0.9, 0.97, 0.2, 10)
    rng = np.random.default_rng(0)
    for score, *before in rng.random((50, 4)):
        assert router.agg(score, before, 7) == router.thr(score, before, 7) == (score < 0.4)
    other = replace(router, weights=(1.0, -2.0, 0.5, 3.0, -6.0))
    assert other.agg(0.8, (0.5, 0.6), 30) == (0.4 + 0.5 - 2 * 0.3 + 0.4 + 3 * 0.1 - 6 * 0.1 > 0)


@pytest.mark.parametrize("cost", [0.05, 0.3, 0.8, 2.0])
def test_with_a_perfect_scorer_a_pomdp_rewrites_a_wrong_last_step_if_that_pays(cost):
    """Against value iteration over the three states: all right, last step wrong, an earlier one wrong."""
    router = route.Router(0.5, (), 0.866, 0.9704, cost, 10)
    right, wrong, h = 0.0, 0.0, 0.1
    for _ in range(2000):
        after = h + (1 - h) * (0.866 * right + (1 - 0.866) * wrong)
        right, wrong = max(after, 0.9704 * after - cost), max(0.0, 0.9704 * after - cost)
    assert router.value == pytest.approx(right, abs=1e-9)
    assert router.pomdp(0.0, (1.0, 1.0), 5) == (0.9704 * right > cost) == (wrong > 0)
    assert not router.pomdp(1.0, (1.0,), 5) and not router.pomdp(0.0, (1.0, 0.0), 5)


def test_routing_opens_the_second_model_by_its_name_and_bills_it_apart():
    setting = Setting.of({"model": "tiny-puzzles", "data": "puzzles:count=60", "limit": 6, "max_tokens": 64})
    found = evaluate_model(setting, samples=1, strategy="route:strong=tiny-puzzles,below=1")
    second = found.strategy.second
    assert second["strong"] > 0 and found.strategy.answer == 0 and found.cost["decode"] == (
        second["strong"] + found.strategy.tries) and "charged to it" in str([r.text for r in found.strategy.rows()])
    with pytest.raises(UserError, match="no model 'nowhere'"):
        evaluate_model(setting, samples=1, strategy="route:strong=nowhere")
    with pytest.raises(UserError, match="route is for evaluations and answers"):
        run("route:step=a,scorer=outcome", place=replace(PLACE, purpose=int(Purpose.TRAIN)))
    with pytest.raises(UserError, match="rule is one of thr, agg, pomdp"):
        run("route:rule=trh")


# frames -------------------------------------------------------------------------------------------------------------

def test_a_signal_shows_evenly_spaced_samples_and_pays_for_its_level():
    p = next(iter(signal.problems(signal.Signal(length=16, clear=1.0))))
    assert p.text == p.answer * 4 + ">" and p.meta["level"] == 1 and signal.shown("0123456789abcdef", 4) == "26ae"
    assert signal.shown("0123", 4) == "0123" and signal.shown("01234567", 1) == "4"
    some = list(signal.problems(signal.Signal(count=200)))
    assert [p.id for p in some[:3]] == ["signal-0-0", "signal-0-1", "signal-0-2"]
    asked = {k: [replace(p, meta={**p.meta, "frames": k}) for p in some] for k in (2, 8, 32)}
    right = {k: np.mean([signal.SignalEpisode(p).expert() == p.answer for p in each]) for k, each in asked.items()}
    assert right[2] < right[8] < right[32] > 0.95 and right[2] < 0.6      # a reader of more samples is right more often
    env = open_environment("signal").make(asked[8][0])
    opened = finished(env.open())
    assert len(opened.messages[0].content) == 9
    end = finished(env.step(some[0].answer, lambda: None))
    assert end.over and end.reward == 1 and env.final() == some[0].answer and end.fault is None
    assert finished(env.step("x", lambda: None)).fault is not None
    for spec, why in (("signal:first=40", "the length, not 40"), ("signal:clear=0.1", "above 0.1"),
                      ("signal:length=1", "2 to 64")):
        with pytest.raises(UserError, match=why):
            open_environment(spec)


def test_frames_are_doubled_until_all_agree(monkeypatch):
    world, seen = toy.world(), []
    problem = replace(world.problems[0], meta={**world.problems[0].meta, "frames": 2, "most_frames": 9})

    async def shown(problem, attempts, world, pace, place, start=None):
        frames = problem.meta["frames"]
        seen.append((frames, list(attempts)))
        made = await sample(problem, attempts, world, pace, place, start)
        said = [str(frames) if frames >= agreed[0] or i else "1" for i in range(len(made))]
        return [r.but(final=x, stop=Stop.DONE) for r, x in zip(made, said, strict=True)]

    sample = sparse_to_dense.sample
    monkeypatch.setattr(sparse_to_dense, "sample", shown)
    agreed = [0]
    for agreed[0], ends in ((2, [2]), (4, [2, 4]), (100, [2, 4, 8])):        # 16 frames are more than there are
        seen.clear()
        (answer,), tab, _ = run("sparse-to-dense:n=3", [1], problem=0, world=replace(world, problems=[problem]))
        assert [k for k, _ in seen] == ends and answer.final == str(ends[-1]) and answer.notes["frames"] == ends[-1]
        assert answer.notes["frames_read"] == 3 * sum(ends) and tab.cost.rollouts == 3 * len(ends)
        assert len({a for _, own in seen for a in own}) == 3 * len(ends)
    even = replace(problem, meta={**problem.meta, "most_frames": 8})
    seen.clear()
    run("sparse-to-dense:n=3", [1], problem=0, world=replace(world, problems=[even]))
    assert [k for k, _ in seen] == [2, 4, 8]
    seen.clear()
    run("sparse-to-dense:n=3,first=12", [1], problem=0, world=replace(world, problems=[problem]))
    assert [k for k, _ in seen] == [9]      # no more than there are
    none = replace(problem, meta={**problem.meta, "frames": 0})
    with pytest.raises(UserError, match="has frames=0 of 9 in its data"):
        run("sparse-to-dense:n=3", [1], problem=0, world=replace(world, problems=[none]))
    with pytest.raises(UserError, match="has no frames and most_frames in its data: use --env signal"):
        run("sparse-to-dense")


def test_more_frames_read_more_tokens_of_a_model():
    setting = Setting.of({"model": "tiny-tools", "env": "signal:count=8", "data": "signal:count=8", "max_turns": 1,
                          "max_tokens": 2})
    few = evaluate_model(setting, samples=1, strategy="vote:n=2")
    found = evaluate_model(setting, samples=1, strategy="sparse-to-dense:n=2")
    assert found.cost["prefill"] > few.cost["prefill"] == 8 * 2 * 5 and found.problems == 8


def test_what_a_study_varies_is_the_size_of_a_strategy():
    sizes = {name: strategies.parse(name).size for name in strategies.names()}
    assert {n for n, s in sizes.items() if s != "n"} == {"force", "rounds", "one", "route", "by-band"}
    assert sizes["force"] == "waits" and sizes["rounds"] == "rounds" and sizes["route"] == ""
