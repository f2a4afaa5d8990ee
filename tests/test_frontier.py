"""Train or infer: costs worked by hand, the staircase, break-even points and what the bootstrap decides."""

from math import inf

import numpy as np
import pytest

from experiments import train_or_infer as study
from isocost.errors import UserError
from isocost.planner.frontier import Pair, PolicyFrontier


def pair(policy, strategy, training, answer, accuracy, seeds=1, problems=400):
    """A pair with exactly this accuracy: that share of its problems is right in every seed."""
    right = np.arange(problems) < round(accuracy * problems)
    return Pair(policy=policy, strategy=strategy, training=training, answer=answer,
                right=np.tile(right.astype(float), (seeds, 1)))


BASE = [pair("base", "one", 0, 1, 0.4), pair("base", "best of 4", 0, 4, 0.6), pair("base", "best of 16", 0, 16, 0.8)]
TRAINED = [pair("trained", "one", 600, 1, 0.6), pair("trained", "best of 4", 600, 4, 0.7)]


def test_the_staircase_of_few_answers_is_the_base_and_of_many_the_trained_policy_up_to_what_it_reaches():
    frontier = PolicyFrontier([*BASE, *TRAINED])
    assert [p.name for p in frontier.staircase(10)] == ["base, one", "base, best of 4", "base, best of 16"]
    assert [p.name for p in frontier.staircase(1000)] == [
        "base, one", "trained, one", "trained, best of 4", "base, best of 16"]
    assert [p.cost(1000) for p in frontier.staircase(1000)] == [1000, 1600, 4600, 16000]


def test_break_even_is_the_training_over_what_an_answer_saves():
    frontier = PolicyFrontier([*BASE, *TRAINED])
    assert frontier.break_even("base", "trained", 0.6).answers == 600 / (4 - 1)
    assert frontier.break_even("base", "trained", 0.65).answers == 600 / (16 - 4)
    assert frontier.break_even("base", "trained", 0.4).answers == inf           # both need one sample
    assert frontier.break_even("base", "trained", 0.75).answers is None         # the trained policy does not reach it
    pair_, _ = study.cheapest(frontier, 0.6, 200)
    assert pair_.cost(200) == 800


def test_only_the_longer_trained_policy_reaches_it_so_it_pays_from_the_first_answer():
    frontier = PolicyFrontier([BASE[0], pair("trained", "one", 50, 1, 0.9)])
    assert frontier.break_even("base", "trained", 0.5).answers == 0


def test_a_choice_is_decided_where_accuracies_are_far_from_what_is_wanted_and_not_at_it():
    frontier = PolicyFrontier([*BASE, *TRAINED])
    (sure, agree), (open_, share) = study.cheapest(frontier, 0.5, 10), study.cheapest(frontier, 0.6, 10)
    assert sure.name == open_.name == "base, best of 4"
    assert agree > 0.99 and 0.4 < share < 0.6       # exactly at what is wanted: a coin
    assert study.cheapest(frontier, 0.95, 10) is None


def test_problems_are_drawn_together_so_a_pair_that_is_better_on_each_problem_is_better_in_each_draw():
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 0.8, (3, 50))
    a = Pair(policy="a", strategy="one", training=0, answer=1, right=low)
    b = Pair(policy="a", strategy="best of 4", training=0, answer=4, right=low + 0.1)
    drawn = PolicyFrontier([a, b]).drawn
    assert np.allclose(drawn[1] - drawn[0], 0.1)


def test_the_interval_over_seeds_and_problems_is_as_wide_as_their_spread():
    rng = np.random.default_rng(1)
    table = np.clip(0.5 + rng.normal(0, 0.05, (12, 1)) + rng.normal(0, 0.2, (1, 200)), 0, 1)
    p = Pair(policy="a", strategy="one", training=1, answer=1, right=table)
    low, high = PolicyFrontier([p]).interval(p)
    sd = np.hypot(0.05 / 12**0.5, 0.2 / 200**0.5)
    assert 0.6 * 3.29 * sd < high - low < 1.4 * 3.29 * sd


@pytest.mark.parametrize("pairs, said", [
    ([], "no pair"),
    ([BASE[0], pair("x", "one", 0, 1, 0.5, problems=10)], "the same problems"),
    ([pair("x", "one", 0, 1, 0.5, seeds=2), pair("x", "two", 0, 1, 0.5)], "1 seeds, but another strategy of it has 2"),
])
def test_what_cannot_be_put_on_one_axis_is_refused(pairs, said):
    with pytest.raises(UserError, match=said):
        PolicyFrontier(pairs)


def test_a_pair_needs_a_finite_table_and_an_answer_that_costs_something():
    with pytest.raises(UserError, match="expected a finite table"):
        Pair(policy="a", strategy="one", training=0, answer=1, right=np.array([[np.nan]]))
    with pytest.raises(UserError, match="an answer more, got 0 and 0"):
        Pair(policy="a", strategy="one", training=0, answer=0, right=np.ones((1, 1)))


# the record of the puzzles -----------------------------------------------------------------------------------------


def test_the_page_and_its_pictures_are_those_of_the_sealed_record():
    record = study.read_json(study.KEPT)
    sealed = {k: record[k] for k in ("budgets", "seeds", "pilot", "rates", "forecasts")}
    assert study.digest(sealed) == record["seal"]
    assert study.PAGE.read_text(encoding="utf-8") == study.text(record), "python -m experiments.train_or_infer page"
    for kind in study.WANTED:
        kept = study.IMAGES / f"train-or-infer-{kind}-light.svg"
        assert kept.read_text(encoding="utf-8") == study.picture(record, kind, False)


def test_a_pool_gives_pass_at_n_as_best_of_n():
    found = {"right": [0, 16, study.SAMPLES], "vote": {"4": [0.0, 0.1, 1.0]}}
    assert study.accuracy(found, "best-of 2")[1] == pytest.approx(1 - 48 * 47 / (64 * 63))
    assert list(study.accuracy(found, "vote 4")) == [0.0, 0.1, 1.0]
