"""Temporal-R1, TSPO, ViGoRL and the environment event: numbers worked by hand from each paper's equation."""

import asyncio
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from experiments.measures import evenly
from isocost import methods
from isocost.batch import Forward
from isocost.envs.opening import open_environment
from isocost.envs.tiny import event
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import temporalr1, tspo, vigorl
from isocost.pack import pack
from isocost.parts import intervals, weight
from isocost.seams import Pace
from isocost.steps.settings import setting_with
from isocost.types import Fault, Group, Place, Problem, Role, Rollout, Said, Score, Segment, Stop, Turn
from isocost.worlds.setting import open_setting

WHEN = Problem("when", (), "DG", meta={"event": (3, 7)})
WHAT = Problem("what", (), "7", meta={"event": (3, 7)})
PLAIN = Problem("plain", (), "7")
WORLD = SimpleNamespace(text=SimpleNamespace(decode=lambda tokens: "".join(map(chr, tokens))))
BAD = Fault.model("no such look")


def said(*turns, right=0.0, final="", problem=WHEN, stop=Stop.DONE, faults=()):
    """A dialogue whose turns are these texts, a token a character, already marked."""
    text = Segment.empty().read([0], Role.PROMPT)
    for words in turns:
        tokens = np.array([ord(c) for c in words])
        logp = np.full(len(words), -0.5, np.float32)
        text = text.wrote(Said(tokens, logp, np.zeros(len(words), np.int64), Stop.DONE))
        text = text.read([0])
    answers = tuple(Turn(fault=f) for f in faults or [None] * len(turns))
    return Rollout(problem, (text,), final, stop, turns=answers).marked(Score(float(right)))


def rewarded(reward, *rollouts):
    group = Group(rollouts[0].problem, tuple(r.but(attempt=i) for i, r in enumerate(rollouts)), Place(0, 0, 0))
    return [r.score for r in asyncio.run(reward(group, SimpleNamespace(grade=nothing, **vars(WORLD)))).rollouts]


async def nothing(rollouts):
    return []


# Temporal-R1 --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("answer", "iou"), [
    ("DG", 1), ("DE", 1 / 2), ("EH", 3 / 5), ("CH", 4 / 6), ("FF", 1 / 4), ("HJ", 0), ("AC", 0), ("GD", None),
    ("D", None), ("DGG", None), ("", None), ("3-7", 1), ("0 10", 4 / 10), ("5, 9", 2 / 6), ("2.5 to 7", 4 / 4.5),
    ("7 3", None), ("5 5", None), ("*DG", None), ("dg", None),
])
def test_the_overlap_of_an_answer_with_an_event(answer, iou):
    interval = intervals.parsed(answer)
    assert (interval is None) == (iou is None)
    if interval is not None:
        assert intervals.overlap(interval, (3, 7)) == pytest.approx(iou) == intervals.overlap((3, 7), interval)
        hull = max(interval[1], 7) - min(interval[0], 3)        # what the public code divides by
        assert iou == pytest.approx(max(min(interval[1], 7) - max(interval[0], 3), 0) / hull)


def test_temporalr1_is_half_overlap_and_half_form():
    reward = methods.load("temporalr1").recipe().reward
    scores = rewarded(
        reward, said("DG", right=1, final="DG CDFK"), said("DE", final="DE CDFK"), said("x", final="x "),
        said("?", "DE", final="DE ", faults=[BAD, None]), said("DG", right=1, final="DG ", stop=Stop.LENGTH),
        said("HJ", final="HJ "))
    assert [s.value for s in scores] == pytest.approx([1, 0.75, 0.5, 0.25, 0.5, 0.5])
    assert scores[1].parts == {"right": 0, "overlap": 0.5, "form": 1}
    # a question of another kind is right or wrong, though it has an event; so is one without an event
    for problem in (WHAT, PLAIN):
        each = [s.value for s in rewarded(reward, said("7", right=1, final="7 CDFK", problem=problem),
                                          said("8", final="8 ", problem=problem))]
        assert each == [1, 0.5]
    timed = Problem("timed", (), "3 to 7", meta={"event": (3, 7)})      # of a data set: numbers, and nothing after them
    some = (said("x", final=x, problem=timed) for x in ("3 to 5", "3-5", "3 5", "5, 9", "none"))
    assert [s.value for s in rewarded(reward, *some)] == pytest.approx([0.75, 0.75, 0.75, 0.5 + 1 / 6, 0.5])
    bad = said("?", "DE", final="DE ", faults=[BAD, None])
    (alone,) = rewarded(partial(temporalr1.reward, right=1.0, form=0.0), bad)
    assert alone.value == 0.5


def test_a_grade_separates_wrong_answers_that_right_or_wrong_cannot():
    some = [said(x, final=x) for x in ("DE", "HJ", "DF", "AB")]
    graded = [s.value for s in rewarded(temporalr1.reward, *some)]
    assert len(set(graded)) == 3 and len({r.score.value for r in some}) == 1


# TSPO ---------------------------------------------------------------------------------------------------------------

def test_tspo_adds_the_share_of_frames_inside_the_event():
    assert [tspo.inside(x, (3, 7)) for x in ("DEFG", "CDFK", "ABCH", "", "?D")] == [1, 0.5, 0, 0, 0.5]
    some = [said("CDFK", "7", right=1, final="7 CDFK", problem=WHAT), said("DEFG", "8", final="8 DEFG", problem=WHAT),
            said("8", final="8 ", problem=WHAT)]
    scores = rewarded(methods.load("tspo").recipe().reward, *some)
    assert [s.value for s in scores] == [1.5, 1, 0] and scores[0].parts == {"right": 1, "located": 0.5}
    assert [s.value for s in rewarded(partial(tspo.reward, located=0.0), *some)] == [1, 0, 0]
    assert [s.value for s in rewarded(tspo.reward, said("CDFK", "7", right=1, final="7 CDFK", problem=PLAIN))] == [1]


def test_tspo_trains_the_mean_log_probability_of_the_tokens_that_name_frames():
    recipe = methods.load("tspo").recipe()
    some = [said("CDFK", "7", right=1, final="7 CDFK", problem=WHAT), said("DE", "FG", "7", problem=WHAT),
            said("8", problem=WHAT)]
    batch = pack([Group(WHAT, tuple(r.but(attempt=i) for i, r in enumerate(some)), Place(0, 0, 0))], 0)
    credit = recipe.advantage(batch.but(reward=torch.tensor([2.0, 0.0, 1.0])), Ledger())
    assert credit[batch.mask].unique().tolist() == pytest.approx([-1 / (1 + 1e-4), 0, 1 / (1 + 1e-4)])
    each = recipe.weight(batch)
    names = [[1 / 12] * 4 + [0], [1 / 12] * 4 + [0], [1 / 3]]     # R = 3 and k = 4, 4, 1; no answer but the lone turn
    assert [each[i][batch.mask[i]].tolist() for i in range(3)] == [pytest.approx(x) for x in names]
    assert not each[~batch.mask].any()
    logp = torch.linspace(-2, -0.1, batch.mask.numel()).view(batch.mask.shape).requires_grad_()
    credit = torch.tensor([0.9, -0.4, 0.0])[:, None] * batch.mask
    loss, _ = recipe.loss(Forward(logp, torch.zeros_like(logp)), batch.but(advantage=credit))
    (loss * each).sum().backward()
    means = [logp[i][each[i] > 0].mean().item() for i in range(3)]
    assert (loss * each).sum().item() == pytest.approx(-(0.9 * means[0] - 0.4 * means[1]) / 3, abs=1e-6)
    paper = (torch.exp(logp - logp.detach()) * -credit * each).sum()      # the public code's, at the sampling policy
    assert torch.allclose(torch.autograd.grad(paper, logp)[0], logp.grad)


def test_the_log_probability_of_named_frames_over_all_choices_sums_to_one():
    """Frames are named one after the other: over all ordered pairs of 3 frames the probabilities sum to 1."""
    first = torch.tensor([0.2, 0.5, 0.3]).log()
    then = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]).log()
    texts = [said("ABC"[a] + "ABC"[b], "7", problem=WHAT) for a in range(3) for b in range(3)]
    batch = pack([Group(WHAT, tuple(r.but(attempt=i) for i, r in enumerate(texts)), Place(0, 0, 0))], 0)
    logp = torch.zeros_like(batch.logp)
    for i in range(9):
        a, b = divmod(i, 3)
        logp[i][batch.mask[i]] = torch.stack([first[a], then[a, b], torch.tensor(-9.0)])
    # R k times the weighted sum is the log-probability of the pair; that of the answer has no part in it
    total = (tspo.weight(batch) * logp).sum(-1) * 9 * 2
    assert total.exp().sum().item() == pytest.approx(1, abs=1e-6)
    assert total[5].exp().item() == pytest.approx(0.5 * 0.6)


def test_on_one_question_and_one_answer_tspo_averages_as_grpo_does():
    some = [said("7", problem=WHAT), said("789", problem=WHAT)]
    batch = pack([Group(WHAT, tuple(r.but(attempt=i) for i, r in enumerate(some)), Place(0, 0, 0))], 0)
    assert torch.allclose(tspo.weight(batch), weight.rollout_mean(batch))


# ViGoRL -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("points", "count"), [
    ([], 0), ([(0, 0)], 1), ([(0, 0), (9, 0)], 1), ([(0, 0), (11, 0)], 2), ([(0, 0), (10, 0)], 2),
    ([(0, 0), (6, 8)], 2), ([(0, 0), (6, 7)], 1), ([(0, 0), (9, 0), (18, 0)], 2), ([(0, 0), (9, 0), (9, 0)], 1),
    ([(0, 0), (20, 0), (40, 0)], 3), ([(0, 0), (20, 0), (0, 0)], 2),
])
def test_a_point_counts_if_it_is_ten_pixels_from_those_that_count(points, count):
    assert vigorl.distinct(points, 10) == count


@pytest.mark.parametrize(("turns", "changes", "value"), [
    (["7"], {"right": 1}, 0.6 + 0.4),                                   # an answer without a point has the form
    (["(5, 5)", "7"], {"right": 1}, 0.6 + 0.4),
    (["(5, 5)", "(14, 5)", "7"], {"right": 1}, 0.6 + 0.4),              # 9 pixels: no bonus
    (["(5, 5)", "(16, 5)", "7"], {"right": 1}, 0.6 + 0.4 * 1.2),        # 11 pixels
    (["(5, 5)", "(16, 5)", "7"], {}, 0.4 * 1.2),
    (["(5, 5)", "look", "(90, 5)", "(5, 90)", "7"], {}, 0.4 * 1.4),     # a turn without a point is no point
    (["(5, 5)", "(16, 5)", "7"], {"right": 1, "faults": [None, BAD, None]}, 0.6),      # malformed: no form
    (["(5, 5)", "(16, 5)", "(90, 9)"], {"stop": Stop.LENGTH}, 0.0),     # no answer
    (["(5, 5)", "(90, 90)"], {"right": 1}, 0.6 + 0.4),                  # the last turn is the answer
])
def test_vigorl_is_six_tenths_right_and_four_tenths_form(turns, changes, value):
    (score,) = rewarded(methods.load("vigorl").recipe().reward, said(*turns, **changes))
    assert score.value == pytest.approx(value)


def test_vigorl_reads_points_as_a_pattern_says():
    zooms = said("S4", "L2", "Z21", "Z21", "Z23", "L3", "Z31", "A7", right=1)
    (score,) = rewarded(partial(vigorl.reward, point=r"Z(\d)(\d)", apart=1.0), zooms)
    assert score.parts == {"right": 1, "form": pytest.approx(1.4), "points": 3}
    for bad, why in (("(", "no regular expression"), ("Z..", "in parentheses"),
                     (r"([A-Z])(\d)", r"its groups match \('S', '4'\) in 'S4'"), (r"S(\d)(\d)?", "match .*None")):
        with pytest.raises(UserError, match=why):
            rewarded(partial(vigorl.reward, point=bad), zooms)


# the environment ----------------------------------------------------------------------------------------------------

def watched(spec, turns, number=0):
    """What these turns are shown and paid, and what the verifier reads."""
    problem = list(open_environment(spec).problems())[number]
    env = open_environment(spec).make(problem)

    async def go():
        await env.open()
        return [await env.step(x, None) for x in turns]

    return problem, asyncio.run(go()), env.final()


def test_an_event_shows_its_digit_and_pays_for_enough_overlap():
    some = list(event.problems(event.Event(count=300)))
    for p in some:
        begin, end = p.meta["event"]
        digit = p.text[-1]
        assert [x == digit for x in p.meta["video"]] == [begin <= k < end for k in range(16)]
        assert 3 <= end - begin <= 8 and intervals.parsed(p.answer) == (begin, end) and p.text[:-2] == p.meta["likely"]
    inside = [x for p in some for x in p.meta["likely"] if p.meta["event"][0] <= ord(x) - 65 < p.meta["event"][1]]
    size = sum(p.meta["event"][1] - p.meta["event"][0] for p in some)
    assert len(inside) / size == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / size))
    p, shown, final = watched("event", ["CDFK", "*" + some[0].answer])
    assert [s.reward for s in shown] == [0, 1] and shown[-1].over and final == f"{p.answer} CDFK"
    assert shown[0].messages[0].content == "".join(f"{x}{p.meta['video'][ord(x) - 65]}" for x in "CDFK") + ":"
    begin, end = (ord(x) - 65 for x in p.answer)
    wide = chr(65 + begin) + chr(65 + begin + math.ceil((end - begin + 1) * 1.5))
    assert watched("event", ["*" + wide])[1][-1].reward == 0.0
    assert watched("event:enough=0.5", ["*" + wide])[1][-1].reward == float(end - begin + 1 >= 3)


def test_an_overlap_of_just_enough_is_paid_and_levels_say_how_far_likely_frames_go():
    p, *_ = watched("event:least=4,most=4,enough=0.5", ["*"])
    first = p.answer[0]
    half = f"*{first}{chr(ord(first) + 1)}"     # two of four frames
    assert watched("event:least=4,most=4,enough=0.5", [half])[1][-1].reward == 1
    for p in event.problems(event.Event(count=100)):
        likely, (begin, end) = [ord(x) - 65 for x in p.meta["likely"]], p.meta["event"]
        hull = (likely[0], likely[-1] + 1) if likely else (0, 0)
        both = max(min(end, hull[1]) - max(begin, hull[0]), 0)
        near = both / (max(end, hull[1]) - min(begin, hull[0])) >= 0.7
        assert p.meta["level"] == (1 if likely == [*range(begin, end)] else 2 if near else 3)


@pytest.mark.parametrize("turn", ["CDF", "CDFF", "CDFKL", "CDFZ", "cdfk", "", "?"])
def test_a_look_names_as_many_different_frames_as_it_may(turn):
    _, shown, final = watched("event", [turn, "*"])
    assert shown[0].fault is not None and shown[0].messages[0].content == "!:" and final == " "
    assert shown[1].fault is not None and shown[1].reward == 0


def test_a_turn_has_room_for_a_look_and_its_end():
    """The policy writes the frames' letters and an end token; an answer is three characters and the end."""
    for frames, room in ((1, 6), (4, 6), (5, 7), (8, 10)):
        assert open_environment(f"event:frames={frames}").max_tokens == room


def test_what_an_event_shows_is_a_digit():
    p, *_ = watched("event:asks=what", ["CDFK"])
    assert p.text[-1] == "*" and p.answer == p.meta["video"][p.meta["event"][0]]
    assert watched("event:asks=what", [f"*{p.answer}"])[1][-1].reward == 1
    wrong = watched("event:asks=what", [f"*{(int(p.answer) + 1) % 10}"])[1][-1]
    assert (wrong.reward, wrong.fault) == (0, None)


@pytest.mark.parametrize(("spec", "why"), [
    ("event:asks=who", "asks is when or what"), ("event:length=1", "length is 2 to 26"),
    ("event:least=9", "in this order"), ("event:frames=0", "frames is 1 to length"),
    ("event:seen=2", "seen is 0 to 1"), ("event:mistaken=-1", "mistaken is"), ("event:enough=0", "enough is above 0"),
    ("event:count=0", "count is at least 1"),
])
def test_bad_options_of_event_are_named(spec, why):
    with pytest.raises(UserError, match=why):
        open_environment(spec)


def test_even_frames_are_named_in_place_of_what_the_policy_would_name():
    opened = open_setting(setting_with(model="tiny-tools", env="event:asks=what,count=40", max_turns=3))
    some = asyncio.run(evenly(opened.sides.audit[0], range(4), opened.world, Pace(0.0, 6, max_turns=3), Place(0, 0, 0)))
    opened.close()
    assert len(some) == 4 and len({tuple(r.segments[0].tokens.tolist()) for r in some}) > 1
    for r in some:
        assert r.final.split(" ")[1][:4] == "CGKO" and r.turns[0].fault is None and len(r.turns) > 1


# what they need -----------------------------------------------------------------------------------------------------

def test_what_they_need_is_said():
    usual = {"mean": 0.4, "histogram": [1, 5, 4], "columns": []}
    talk = {**usual, "dialogues": {"turns": {"mean": 2.0}}}
    assert methods.needs("temporalr1", usual)[0] == "fails" and methods.needs("tspo", talk)[0] == "fails"
    for name in ("temporalr1", "tspo"):
        assert methods.needs(name, {**talk, "columns": ["event"]})[0] == "holds"
    for name in ("tspo", "vigorl"):
        assert "one question and one answer" in methods.needs(name, usual)[1]
    assert methods.needs("vigorl", talk)[0] == "holds"
