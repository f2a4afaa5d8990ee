"""Scorers: what they say of texts, how their errors are addressed, and what is no score."""

import asyncio
import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from isocost import chance, meter, scorers
from isocost.errors import UserError
from isocost.parts import reward
from isocost.scorers import SECONDS, generative, likelihood, mistaken, outcome, pairwise, python, scores, stepwise
from isocost.stats.ranking import auroc, auroc_within, shared_errors
from isocost.tasks.builtin import puzzles
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Said, Sampling, Segment, Stop
from isocost.worlds import toy

PROBLEM = toy.questions(1)[0]


def texts(*said, problem=PROBLEM):
    """Rollouts of texts of the toy's letters, which have ended."""
    out = []
    for words in said:
        tokens = [toy.ALPHABET.index(c) for c in words] + [toy.END]
        segment = Segment.given([4, 14], Role.PROMPT).read(tokens, Role.OWN)
        out.append(Rollout(problem, (segment,), words, Stop.DONE))
    return out


def asked(scorer, rollouts, over=None, world=None, problem=PROBLEM, **how):
    over = [True] * len(rollouts) if over is None else over
    return asyncio.run(scores(scorer, problem, rollouts, over, world or toy.world(), **how))


def test_outcome_is_the_verifier_and_knows_nothing_of_a_text_under_way():
    world = toy.world()
    found = asked(outcome.score, texts("a", "b", "a", "ab"), [True, True, True, False], world)
    assert found.scores == [1.0, 0.0, 1.0, 0.5] and world.meter.of().verify == 2       # equal texts once
    world.grade.broken.add(PROBLEM.id)
    assert asked(outcome.score, texts("a"), world=world).scores == [None]


def test_steps_are_legal_steps_and_an_ended_text_is_judged_by_its_answer():
    problem = next(puzzles.listed(puzzles.Puzzles(kind="chain", count=1)))
    good = problem.meta["solution"]
    steps = good.rpartition(";")[0] + ";"
    rollouts = [r.but(problem=problem, final=f) for r, f in zip(texts("a", "b", "c"), [good, steps, "9" + good],
                                                                strict=True)]
    world, over = toy.world(), [True, False, False]
    parse = partial(asked, rollouts=rollouts, over=over, world=world, problem=problem)
    assert parse(scorers.parse("steps")).scores == pytest.approx([0.9, 0.9, 0.1])
    assert parse(scorers.parse("steps:sure=1")).scores == [1.0, 1.0, 0.0]
    assert world.meter.of().verify == 6
    with pytest.raises(UserError, match="problem '0' has no step checker; those of sums, puzzles, expressions h"):
        asked(scorers.parse("steps"), texts("a"))


def test_likelihood_is_the_mean_log_prob_and_costs_nothing():
    text = Segment.given([4, 14], Role.PROMPT)
    logp = np.log(np.array([0.5, 0.25], dtype=np.float32))
    said = Said(np.array([0, 3]), logp, np.zeros(2, dtype=np.int64), Stop.DONE)
    rollout = Rollout(PROBLEM, (text.wrote(said),), "a")
    world = toy.world()
    assert asked(likelihood.score, [rollout], world=world).scores == pytest.approx([0.125**0.5])
    assert asked(scorers.parse("likelihood:mean=false"), [rollout], world=world).scores == pytest.approx([0.125])
    assert not any(world.meter.total.counts().values())


@pytest.mark.parametrize("prefers", ["a", "b", None])
def test_a_knockout_has_one_winner_and_one_comparison_less_than_texts(prefers):
    seen = []

    async def prefer(problem, one, other, world):
        seen.append((one, other))
        return None if prefers is None else one.count(prefers) >= other.count(prefers)

    some = texts("ab", "aab", "abbb", "aaab", "b")
    found = asked(partial(pairwise.score, prefer=prefer), some, [True] * 5).scores
    assert len(seen) == 4 and found.count(1.0) == 1
    assert some[found.index(1.0)].final == {"a": "aaab", "b": "abbb", None: "ab"}[prefers]
    assert asked(partial(pairwise.score, prefer=prefer), some, [True, False, True, False, False]).scores == [
        *((0.0, None, 1.0) if prefers == "b" else (1.0, None, 0.0)), None, None]


class Says:
    """An engine that answers a question with words in turn."""

    version = 0

    def __init__(self, words, world):
        self.words, self.world, self.places = iter(words), world, []

    async def generate(self, start, attempts, *, place, turn, max_tokens):
        self.places.append(place)
        self.world.meter.charge(meter.Cost(prefill=len(start), decode=3), started=len(attempts))
        said = [np.array([ord(c) for c in next(self.words)]) for _ in attempts]
        return [Said(t, np.zeros(len(t), dtype=np.float32), np.zeros(len(t), dtype=np.int64), Stop.DONE) for t in said]


class Ascii:
    ends = ()

    def prompt(self, messages):
        return [ord(c) % 128 for c in messages[-1].content]

    def decode(self, tokens):
        return "".join(map(chr, tokens))


def judge(*words):
    world = toy.world()
    world.engine, world.text = Says(words, world), Ascii()
    return world


def test_a_verdict_is_the_share_of_yes_and_its_tokens_are_charged_as_no_rollout():
    world = judge("Yes.", "I say no", "hm", "no. Yes", "yes", "hm")
    found = asked(scorers.parse("generative:readings=3"), texts("a", "b"), world=world)
    assert found.scores == [0.5, 1.0] and world.meter.of().decode == 6 and world.meter.of().rollouts == 0
    assert len(set(world.engine.places)) == 2
    assert asked(generative.score, texts("a"), world=judge("hm")).scores == [None]
    assert scorers.parse("votes").keywords["readings"] == 8
    assert asyncio.run(generative.prefer(PROBLEM, "a", "b", judge("B, no: A"))) is True
    with pytest.raises(UserError, match="no model 'large' is open; there are none"):
        asked(scorers.parse("generative:model=large"), texts("a"), world=judge())
    world.others["large"] = judge("no")
    assert asked(scorers.parse("generative:model=large"), texts("a"), world=world).scores == [0.0]


def test_wrong_flips_a_share_of_texts_which_the_text_decides():
    said = ["".join(x) for x in np.random.default_rng(0).choice(list("abc"), (300, 7))]
    found = asked(scorers.parse("outcome:wrong=0.3"), texts(*said)).scores
    assert abs(np.mean(found) - 0.3) < 4 * (0.21 / len(set(said))) ** 0.5
    assert found[::-1] == asked(scorers.parse("outcome:wrong=0.3"), texts(*said[::-1])).scores
    assert found != asked(scorers.parse("outcome:wrong=0.3,draw=1"), texts(*said)).scores
    assert set(asked(scorers.parse("outcome:wrong=1"), texts("a", "b")).scores) == {0.0, 1.0}


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
def test_shared_is_the_correlation_of_the_errors_of_texts_with_one_answer(shared):
    """Pairs of texts with one answer, of many problems: P(both wrong) = s q + (1 - s) q²."""
    q, pairs, world = 0.3, [], toy.world()
    dial = partial(mistaken, inner=outcome.score, wrong=q, shared=shared)
    for k in range(300):
        problem = Problem(f"p{k}", (Message("user", "?"),), "1", meta={"source": "sums"})
        two = [r.but(problem=problem, final=f) for r, f in zip(texts("a", "b"), ["1+1;2", "2+0;2"], strict=True)]
        pairs.append(asyncio.run(dial(problem, two, [True, True], world)))
    wrong = np.array(pairs) > 0.5
    both = wrong.all(1).mean()
    assert abs(wrong.mean() - q) < 0.09 and abs(both - (shared * q + (1 - shared) * q * q)) < 0.09
    assert shared < 1 or (wrong[:, 0] == wrong[:, 1]).all()


@pytest.mark.parametrize(("by", "value"), [("last", 0.4), ("min", 0.2), ("mean", 0.4), ("prod", 0.048)])
def test_a_text_is_scored_by_its_steps(by, value):
    problem = Problem("p", (Message("user", "?"),), "1")
    world, known = toy.world(), {"a!": 0.6, "a!ba!": 0.2, "a!ba!c": 0.4}

    async def inner(problem, texts, over, world):
        return [known[t.final] for t in texts]

    rollout = texts("a!ba!c", problem=problem)[0]
    scorer = partial(stepwise, inner=inner, by=by)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorers, "step_of", lambda problem, step="": "!")
        found = asyncio.run(scorer(problem, [rollout], [True], world))
    assert found == pytest.approx([value])


BAD = {
    "outside": (lambda texts: [0.5, 1.5], "returned 1.5 for 'b'; expected a number from 0 to 1"),
    "no number": (lambda texts: [0.5, float("nan")], "returned nan for 'b'; expected a number from 0 to 1"),
    "text": (lambda texts: [0.5, "high"], "returned 'high' for 'b'"),
    "too few": (lambda texts: [0.5], "returned 1 scores for 2 texts"),
    "raises": (lambda texts: 1 / 0, r"raised ZeroDivisionError\('division by zero'\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_number_in_0_to_1_is_no_score(case):
    function, why = BAD[case]
    world = toy.world()
    found = asked(partial(python.score, function=lambda problem, texts: function(texts)), texts("a", "b"), world=world)
    assert found.scores == ([0.5, None] if case in ("outside", "no number", "text") else [None, None])
    assert world.failures[f"scorer: {found.why}"] == 1 and world.meter.of().verify == 2       # billed all the same
    with pytest.raises(AssertionError):
        assert found.why == ""
    import re

    assert re.search(why, found.why)


def test_a_scorer_that_takes_too_long_gives_no_score():
    async def sleeps(problem, texts):
        await asyncio.sleep(SECONDS)
        return [1.0]

    found = asked(partial(python.score, function=sleeps), texts("a"), seconds=0.05)
    assert found.scores == [None] and found.why == "the scorer took longer than 0.05 s"


def test_a_users_function_is_a_scorer(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def length(problem, texts, over):\n    return [min(len(t), 9) / 9 for t in texts]\n"
                    "async def half(problem, texts):\n    return [0.5 for _ in texts]\n")
    assert asked(scorers.parse(f"{file}:length"), texts("abc")).scores == pytest.approx([1 / 3])
    assert asked(scorers.parse(f"{file}:half:wrong=0.2"), texts("abc")).scores == [0.5]
    with pytest.raises(UserError, match="has no function 'nothing'"):
        scorers.parse(f"{file}:nothing")


def test_an_address_scores_texts():
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = json.dumps({"scores": [len(t) / 10 for t in body["texts"]]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            """It says nothing."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/score"
        assert asked(scorers.parse(url), texts("ab", "abc")).scores == [0.2, 0.3]
        assert asked(scorers.parse(f"{url}:wrong=1"), texts("ab")).scores == [0.8]
        server.shutdown()
    assert asked(scorers.parse("http://127.0.0.1:1/none"), texts("ab")).scores == [None]


def test_a_scorer_is_a_reward():
    world = toy.world()
    group = Group(PROBLEM, tuple(r.but(attempt=i) for i, r in enumerate(texts("a", "b"))), Place(0, 0, 0))
    found = asyncio.run(reward.scored(group, world, scorer=scorers.parse("outcome:wrong=1")))
    assert [r.score.value for r in found.rollouts] == [0.0, 1.0]
    assert [r.score.parts["right"] for r in found.rollouts] == [1.0, 0.0] == [r.mark.value for r in found.rollouts]


def test_an_address_alone_decides_a_number():
    assert chance.share("x", 1) == chance.share("x", 1) != chance.share("x", 2)
    assert 0.45 < np.mean([chance.share(k) for k in range(1000)]) < 0.55 and Sampling().temperature == 1.0


def test_ranks_by_hand():
    """Of six pairs four are in order and one is a tie; groups of one kind have no AUROC."""
    assert auroc([0.9, 0.4, 0.4, 0.2, 0.6], [True, True, False, False, False]) == pytest.approx(4.5 / 6)
    assert np.isnan(auroc([0.5, 0.6], [True, True]))
    groups = [([0.1, 0.9], [False, True]), ([0.1, 0.9], [True, False]), ([0.5], [True])]
    assert auroc_within(groups).tolist() == [1.0, 0.0]
    assert auroc([0.1, 0.9, 0.1, 0.9], [False, True, True, False]) == 0.5


def test_shared_errors_are_the_correlation_within_a_key():
    assert shared_errors([True, True, False, False], ["x", "x", "y", "y"]) == pytest.approx(1.0)
    assert shared_errors([True, False, False, True], ["x", "x", "y", "y"]) == pytest.approx(-1.0)
    assert np.isnan(shared_errors([True, False], ["x", "y"]))
    rng = np.random.default_rng(1)      # the dial's own errors: half of the keys share one
    keys, wrong = [], []
    for k in range(3000):
        one = rng.random() < 0.5
        drawn = rng.random(2) < 0.3
        wrong += [bool(drawn[0]), bool(drawn[0] if one else drawn[1])]
        keys += [k, k]
    assert abs(shared_errors(wrong, keys) - 0.5) < 0.06
