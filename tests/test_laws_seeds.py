"""How many seeds a difference takes, against simulated comparisons."""

from math import sqrt

import numpy as np
import pytest
from scipy.special import stdtrit
from scipy.stats import nct

from isocost.errors import UserError
from isocost.planner.training.seeds import _text
from isocost.stats.power import MOST, detectable, detectable_in_comparison, detectable_paired, seeds_for


@pytest.mark.parametrize(("difference", "dof"), [
    (detectable_paired(4, 0.02), 3), (detectable(4, 5, 0.02), 15), (detectable_in_comparison(4, 0.02, 0.1), 5),
], ids=["pairs", "a grid of five arms", "Welch"])
def test_one_calculator_serves_all_tests(difference, dof):
    """At the minimum detectable difference the noncentral t exceeds the critical value in 80 % of experiments."""
    shift = difference / (0.02 * sqrt(2 / 4))
    assert nct.sf(stdtrit(dof, 0.95), dof, shift) == pytest.approx(0.8, abs=1e-6)


def test_one_seed_detects_nothing():
    assert detectable_paired(1, 0.02) == detectable(1, 5, 0.02) == float("inf")
    assert detectable_in_comparison(1, 0.02, 0.1) == float("inf")


@pytest.mark.parametrize("effect", [0.005, 0.013, 0.03, 0.2])
def test_it_is_the_fewest_that_see_the_effect(effect):
    found = seeds_for(effect, 0.02)
    assert detectable_paired(found, 0.02) <= effect < detectable_paired(found - 1, 0.02)
    assert seeds_for(-effect, 0.02) == found


@pytest.mark.parametrize("effect", [0.02, 0.035])
def test_so_many_seeds_do_see_it_four_times_in_five(effect):
    """4000 comparisons of pairs of normal runs, at the very difference that this number of seeds is said to see."""
    seeds = seeds_for(effect, 0.02)
    difference = detectable_paired(seeds, 0.02) + 0.02 * sqrt(2) * np.random.default_rng(0).normal(size=(4000, seeds))
    t = difference.mean(1) / (difference.std(1, ddof=1) / sqrt(seeds))
    assert (t > stdtrit(seeds - 1, 0.95)).mean() == pytest.approx(0.8, abs=0.03)


def test_no_number_of_seeds_sees_nothing():
    assert seeds_for(0.0, 0.02) is None
    assert seeds_for(1e-6, 0.02) is None and detectable_paired(MOST, 0.02) > 1e-6
    assert seeds_for(0.01, 0.0) == 2
    with pytest.raises(UserError, match="finite"):
        seeds_for(float("nan"), 0.02)


@pytest.mark.parametrize(("seeds", "says"), [(3, "would need 4 seeds"), (4, "needs 4 seeds"), (5, "needs 4 seeds")])
def test_a_plan_with_just_enough_seeds_has_what_its_difference_needs(seeds, says):
    text = _text(seeds, 0.04, 0.05, 4)
    assert text == (f"minimum detectable difference with {seeds} seeds per arm: 0.040 (80% power); the predicted "
                    f"difference is +0.050 and {says}")
