"""How many seeds a difference takes, against simulated comparisons."""

from math import sqrt

import numpy as np
import pytest
from scipy.special import stdtrit

from isocost.errors import UserError
from isocost.planner.seeds import MOST, seeds_for, seen


def test_the_smallest_difference_by_hand():
    """Four pairs: (t_0.95 + t_0.8) sd sqrt(2 / 4) with 3 degrees of freedom: (2.3534 + 0.9785) 0.02 0.7071."""
    assert seen(4, 0.02) == pytest.approx((2.35336 + 0.97847) * 0.02 * sqrt(0.5), rel=1e-4)
    assert seen(1, 0.02) == float("inf")


@pytest.mark.parametrize("effect", [0.005, 0.013, 0.03, 0.2])
def test_it_is_the_fewest_that_see_the_effect(effect):
    found = seeds_for(effect, 0.02)
    assert seen(found, 0.02) <= effect < seen(found - 1, 0.02)
    assert seeds_for(-effect, 0.02) == found


@pytest.mark.parametrize("effect", [0.02, 0.035])
def test_so_many_seeds_do_see_it_four_times_in_five(effect):
    """4000 comparisons of pairs of normal runs, at the very difference that this number of seeds is said to see."""
    seeds = seeds_for(effect, 0.02)
    difference = seen(seeds, 0.02) + 0.02 * sqrt(2) * np.random.default_rng(0).normal(size=(4000, seeds))
    t = difference.mean(1) / (difference.std(1, ddof=1) / sqrt(seeds))
    assert (t > stdtrit(seeds - 1, 0.95)).mean() == pytest.approx(0.8, abs=0.03)


def test_no_number_of_seeds_sees_nothing():
    assert seeds_for(0.0, 0.02) is None
    assert seeds_for(1e-6, 0.02) is None and seen(MOST, 0.02) > 1e-6
    assert seeds_for(0.01, 0.0) == 2
    with pytest.raises(UserError, match="finite"):
        seeds_for(float("nan"), 0.02)
