"""Verdicts on runs while they train, against truths that are known."""

from dataclasses import replace

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.laws.fit import fit_law
from isocost.planner.stopping import Groups, judge
from isocost.runs.arm import Arm
from truth import Design, plant

END = 64_000.0
POINTS = np.geomspace(250, END, 9)


@pytest.fixture(scope="module")
def world():
    """A planted truth and the law of a pilot on it."""
    rng = np.random.default_rng(5)
    truth = plant("sigmoid", rng)
    return truth, fit_law(truth.pilot(Design(ns=(4, 8), points=6), rng), draws=100)


def upto(run, k):
    return replace(run, **{x: getattr(run, x)[:k] for x in ("C", "select", "audit", "seconds", "epochs")})


def run_of(reward, C=POINTS, n=8, base=0.3):
    """A run whose evaluations are these, after the base's."""
    C, reward = np.concatenate([[0.0], C]), np.concatenate([[base], reward])
    return Curve("r", Arm(n=n, B=16, lr=1e-3), 0, C, reward, reward, C / 1000, C / n / 1000)


def test_a_run_on_its_law_goes_on_and_is_foretold(world):
    truth, law = world
    run = truth.curve(8, 7, POINTS, np.random.default_rng(1), Design())
    said = [judge(upto(run, k), END, law=law, target=0.6) for k in range(2, 11)]
    assert {s.word for s in said} == {"continue"}
    assert all(s.final.holds(float(run.audit[-1])) for s in said)
    assert said[-2].final.width < said[0].final.width / 2


def test_a_run_that_has_stalled_is_stopped_and_one_that_rises_is_not(world):
    _, law = world
    stalled = run_of(np.minimum(0.45, 0.3 + 0.04 * np.arange(9)))
    rising = run_of(0.3 + 0.055 * np.arange(9))
    assert judge(upto(stalled, 9), END, law=law, target=0.7).word == "stop"
    assert judge(upto(rising, 9), END, law=law, target=0.7).word == "continue"
    assert judge(upto(stalled, 9), END, target=0.7).word == "stop"      # without any law


def test_a_run_is_stopped_at_three_chances_in_a_hundred_and_not_at_one_in_twenty(world):
    """The target is moved until the chance of reaching it lies on either side."""
    _, law = world
    run = upto(run_of(np.minimum(0.45, 0.3 + 0.04 * np.arange(9))), 9)
    said = [judge(run, END, law=law, target=target) for target in np.linspace(0.45, 0.8, 71)]
    doubted = [v.word for v in said if 0.031 < v.reach < 0.05]
    assert doubted and set(doubted) == {"continue"}
    assert {v.word for v in said if 0.02 < v.reach < 0.029} == {"stop"}


def test_before_its_first_step_only_the_law_speaks(world):
    truth, law = world
    run = upto(truth.curve(8, 7, POINTS, np.random.default_rng(1), Design()), 1)
    said = judge(run, END, law=law, target=0.5)
    paths = law.paths(8, np.array([END]), 0)[:, 0]
    assert said.looks == 0 and said.word == "continue"
    assert said.final.value == pytest.approx(0.8 * paths.mean() + 0.2 * said_alone(run), abs=0.05)


def said_alone(run):
    return judge(run, END).final.value


def test_more_evaluations_of_the_same_do_not_make_it_surer(world):
    truth, law = world
    run = upto(truth.curve(8, 7, POINTS, np.random.default_rng(1), Design()), 8)
    C = np.unique(np.concatenate([run.C, np.geomspace(260, run.C[-1], 200)]))
    often = replace(run, C=C, **{x: np.interp(C, run.C, getattr(run, x)) for x in (
        "select", "audit", "seconds", "epochs")})
    once, many = judge(run, END, law=law), judge(often, END, law=law)
    assert many.final.width == pytest.approx(once.final.width, rel=0.4)


def test_sampled_evaluations_say_less_than_exact_ones():
    exact = run_of(np.array([0.31, 0.35, 0.33, 0.36, 0.34]), POINTS[:5])
    sampled = replace(exact, problems=200, samples=1)
    assert judge(exact, END, target=0.7).reach < judge(sampled, END, target=0.7).reach


def test_the_choice_is_made_on_the_validation_split(world):
    truth, law = world
    run = upto(truth.curve(8, 7, POINTS, np.random.default_rng(1), Design()), 6)
    other = replace(run, audit=np.full(len(run.C), 0.9))
    assert judge(run, END, law=law, target=0.6) == judge(other, END, law=law, target=0.6)


def test_what_is_left_must_be_worth_it():
    flat = run_of(np.concatenate([0.3 + 0.1 * np.arange(4), np.full(4, 0.7)]), POINTS[:8])
    said = judge(flat, END, worth=0.1)
    assert said.word == "stop" and "gains less than 0.1" in said.why and said.worthy <= 0.05
    assert judge(flat, END, worth=0.0).word == "continue"
    assert judge(flat, POINTS[7], worth=0.1).word == "continue"     # nothing is left to stop


def groups(a, b, n=8, count=256, seed=0):
    rng = np.random.default_rng(seed)
    return Groups(n, tuple(rng.binomial(n, rng.beta(a, b, count))))


def test_dead_groups_call_for_more_rollouts_and_only_where_more_would_help():
    run = run_of(0.3 + 0.02 * np.arange(4), POINTS[:4])
    hard = judge(run, END, groups=groups(1.2, 14.0), looks=9)           # rarely solved: 8 tries are too few
    assert hard.word == "change n" and hard.n == 32
    assert hard.dead[0].low > 0.5 and hard.dead[1].high > 0.5 >= hard.dead[2].high
    assert judge(run, END, groups=groups(2, 2), looks=9).word == "continue"
    never = judge(run, END, groups=groups(0.02, 9.0), looks=9)          # nearly all never solved: no n helps
    assert never.word == "continue" and "not known to have at most half dead" in never.why
    assert judge(run, END, groups=groups(9.0, 0.6), looks=9).dead == ()     # solved: little is left to learn
    assert judge(run, END, groups=groups(1.0, 12.0, count=20), looks=9).word == "continue"
    assert judge(run, END, groups=groups(1.2, 14.0), others=(4, 8), looks=9).n is None     # no larger n is as good


def test_a_stop_comes_before_a_change():
    stalled = run_of(np.full(8, 0.35), POINTS[:8])
    assert judge(stalled, END, target=0.9, groups=groups(0.6, 9.0)).word == "stop"


def test_the_dead_shares_are_those_of_the_groups():
    run = run_of(0.3 + 0.02 * np.arange(4), POINTS[:4])
    seen = groups(0.6, 9.0)
    said = judge(run, END, groups=seen)
    assert said.dead[0].share == pytest.approx(np.mean([k in (0, 8) for k in seen.right]))
    assert [d.n for d in said.dead] == [8, 16, 32]


@pytest.mark.parametrize(("asked", "match"), [
    ({"target": 1.2}, "target .held-out reward. from 0 to 1"), ({"worth": -0.1}, "worth .held-out reward. from 0 to 1"),
])
def test_what_cannot_be_asked_is_refused(asked, match):
    with pytest.raises(UserError, match=match):
        judge(run_of(np.full(4, 0.4), POINTS[:4]), END, **asked)
    with pytest.raises(UserError, match="expected an end above 0"):
        judge(run_of(np.full(4, 0.4), POINTS[:4]), 0.0)


def test_an_n_without_a_curve_is_judged_by_its_own(world):
    run = run_of(0.3 + 0.05 * np.arange(5), POINTS[:5], n=32)
    assert judge(run, END, law=world[1]).prior == "none"
    assert judge(replace(run, arm=run.arm.but(n=8)), END, law=world[1]).prior == "law"
