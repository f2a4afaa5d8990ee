"""The choice of n by expected loss: what all n have in common cancels, and what replaces the best loses next to
nothing."""

import numpy as np
import pytest

from isocost.planner.training.choice import Choice, choose

D = 100
COMMON = np.linspace(-0.3, 0.3, D)      # an uncertainty of all n, far larger than the margin


def draws(**values):
    """n -> its draws: a number, or a number per draw, which is what it is beside the common uncertainty."""
    return {int(n[1:]): COMMON + v for n, v in values.items()}


def seldom(often, rare, value):
    """One value in `rare` of the draws, another in the rest."""
    return np.where(np.arange(D) < rare, value, often)


def chosen(known, **asked) -> Choice:
    return choose(known, **{"margin": 0.01, "common": 8, **asked})


def test_the_highest_expected_reward_is_chosen_and_a_tie_goes_to_the_smaller_n():
    found = chosen(draws(n2=0.7, n4=0.9, n8=0.8), where=" at 1,024 rollouts a run")
    assert (found.n, found.equal, found.undecided) == (4, (4,), ()) and found.risk.reward == pytest.approx(0)
    assert found.chosen == "n = 4: it has the highest expected reward at 1,024 rollouts a run"
    assert chosen({n: np.full(D, 0.5) for n in (32, 4, 16)}).n == 4


@pytest.mark.parametrize("offset", [0.0, 0.5, 5.0])
def test_an_uncertainty_that_all_n_have_in_common_changes_nothing(offset):
    known = draws(n2=0.88, n4=0.9, n8=seldom(0.87, 20, 0.96), n16=0.895)
    rng = np.random.default_rng(0)
    common = offset * rng.standard_normal(D)
    found, plain = chosen({n: v + common for n, v in known.items()}), chosen(known)
    assert (found.n, found.equal, found.undecided) == (plain.n, plain.equal, plain.undecided) == (4, (4, 16), (8,))
    assert found.risk.reward == pytest.approx(plain.risk.reward) == pytest.approx(0.2 * 0.06)


NEARLY = [      # what another n loses in each draw, and whether that is next to nothing
    (0.0009, True), (0.0011, False),                                # a tenth of the margin of 0.01, in the mean
    (seldom(-0.0015, 9, 0.02), True), (seldom(-0.0022, 10, 0.02), False),   # more than the margin: in 9 %, in 10 %
]


@pytest.mark.parametrize(("lost", "near"), NEARLY)
def test_the_default_replaces_the_best_only_where_that_loses_next_to_nothing(lost, near):
    known = draws(n4=0.9, n8=0.9 - np.asarray(lost))
    assert known[4].mean() > known[8].mean()
    found = chosen(known)
    assert found.n == (8 if near else 4)
    assert found.chosen.startswith("n = 8: as good as n = 4 and the default" if near else "n = 4: it has the highest")
    assert chosen(known, common=16).n == 4, "an n that is not the default has no such advantage"


@pytest.mark.parametrize(("lost", "near"), NEARLY)
def test_a_cheaper_n_replaces_the_best_only_where_that_loses_next_to_nothing(lost, near):
    known = draws(n4=0.9, n16=0.9 - np.asarray(lost))
    found = chosen(known, costs={4: 100.0, 16: 94.0})
    assert found.n == (16 if near else 4)
    assert ("as good as n = 4 and cheaper in time" in found.chosen) == near
    assert chosen(known, costs={4: 100.0, 16: 96.0}).n == 4, "costs within 5 % are equal"
    assert chosen(known).n == 4, "without costs nothing is cheaper"


def test_of_a_cheaper_n_and_the_default_the_cheaper_one_is_taken():
    known = draws(n4=0.9, n8=0.8995, n16=0.8995)
    assert chosen(known, costs={4: 100.0, 8: 80.0, 16: 70.0}).n == 16
    assert chosen(known, costs={4: 100.0, 8: 99.0, 16: 98.0}).n == 8


@pytest.mark.parametrize(("passes", "n"), [(90, 2), (89, 4)])
def test_an_n_that_is_behind_at_the_pilots_end_passes_with_a_probability_of_nine_in_ten(passes, n):
    known = draws(n4=0.8, n2=seldom(0.7, passes, 0.95), n8=0.5)
    found = chosen(known, ahead={2: [4]})
    assert found.n == n
    assert chosen(known).n == 2, "if it were not behind"
    assert 2 not in found.undecided, "an n that is behind is not open"


@pytest.mark.parametrize(("better", "n"), [(70, 4), (69, 2)])
def test_the_best_at_the_pilots_end_is_replaced_by_one_that_is_better_with_a_probability_of_seven_in_ten(better, n):
    known = draws(n2=0.8, n4=seldom(0.79, better, 0.9), n8=0.5)
    found = chosen(known, leader=2, where=" at 1,024 rollouts a run")
    assert found.n == n and chosen(known).n == 4, "the one with the highest mean, without a leader"
    kept = "n = 2: the best at the pilot's end; n = 4 is better with a probability below 0.7"
    assert found.chosen.startswith(f"{kept} at 1,024 rollouts a run" if n == 2 else "n = 4: it has the highest")
    assert found.risk.reward == pytest.approx(better / D * 0.1 if n == 2 else (1 - better / D) * 0.01)
    assert chosen(known, leader=64).n == 4, "a leader that is not known is not kept"
    assert chosen(known, leader=2, ahead={2: [8]}).n == 2 + 2 * (n == 4), "it passes the one that is ahead"
    assert chosen(draws(n2=0.4, n4=0.8, n8=0.5), leader=2, ahead={2: [8]}).n == 4


def test_a_leader_that_is_kept_gives_way_to_a_cheaper_n_or_the_default_only_if_that_loses_next_to_nothing():
    known = draws(n4=0.8, n16=seldom(0.79, 60, 0.85), n8=0.7995)
    assert chosen(known, leader=4).n == 8 and chosen(known, leader=4, common=64).n == 4
    assert chosen(known, leader=4, costs={4: 100.0, 8: 90.0, 16: 80.0}).chosen.startswith("n = 8: as good as n = 4 and")


def test_an_n_that_is_behind_has_to_pass_each_that_is_ahead():
    known = draws(n2=0.9, n4=0.8, n8=seldom(0.85, 50, 0.95))
    assert chosen(known, ahead={2: [4]}).n == 2 and chosen(known, ahead={2: [4, 8]}).n == 8
    assert chosen(known, ahead={2: [64]}).n == 2, "one that has no curve is not compared"
    assert chosen(known, ahead={2: [8], 4: [8], 8: [2]}).n in known, "where every n is behind another, all are left"


def test_the_risk_is_the_mean_of_what_is_lost_to_the_best_of_each_draw():
    known = draws(n4=0.9, n8=seldom(0.8, 20, 1.0), n16=seldom(0.8, 10, 1.1))
    found = chosen(known)
    assert found.n == 4 and found.risk.reward == pytest.approx(0.1 * 0.2 + 0.1 * 0.1) and found.risk.share is None


@pytest.mark.parametrize(("other", "equal", "undecided"), [
    (0.891, True, False), (0.889, False, False),
    (seldom(0.895, 10, 0.8), True, False), (seldom(0.895, 11, 0.8), False, False),     # shown in nine of ten draws
    (seldom(0.88, 10, 0.92), False, False), (seldom(0.88, 11, 0.92), False, True),     # worse in nine of ten draws
])
def test_equal_is_shown_worse_is_shown_and_the_rest_cannot_be_told(other, equal, undecided):
    found = chosen(draws(n4=0.9, n16=other))
    assert found.n == 4 and (16 in found.equal, 16 in found.undecided) == (equal, undecided)
    assert ("n = 16 is equal, within 0.01" in found.chosen) == equal
    assert ("cannot tell from n = 16" in found.chosen) == undecided


def test_several_equal_n_are_named_together():
    found = chosen(draws(n2=0.899, n4=0.9, n16=0.899, n32=seldom(0.88, 40, 0.92)))
    assert found.chosen.endswith("; n = 2, 16 are equal, within 0.01; cannot tell from n = 32")
