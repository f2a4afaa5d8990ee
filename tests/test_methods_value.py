"""V_0's utility and its allocation, with numbers of the card."""

import asyncio
import itertools

import pytest

import toy
from isocost.ledger import Ledger
from isocost.methods import v0
from isocost.types import Problem
from isocost.worlds.toy import world


@pytest.mark.parametrize("b, p, u", [(2, 0.3, 0.42), (8, 0.25, 5.199), (8, 0.05, 2.293), (8, 0.75, 2.0), (8, 0, 0),
                                     (8, 1, 0), (1, 0.5, 0), (0, 0.5, 0)])
def test_the_utility_is_the_paper_s(b, p, u):
    assert v0.utility(b, p) == pytest.approx(u, abs=1e-3)


def allocated(values, total, **how):
    posed = [Problem(str(i), (), meta={v0.VALUE: x}) for i, x in enumerate(values)]
    return v0.allocate(posed, None, total, **how)


@pytest.mark.parametrize("values, total, lost", [
    ((0.1, 0.4, 0.8), 24, 0.2364), ((0.05, 0.3, 0.6), 40, 0.1173), ((0.02, 0.9, 0.5), 12, 0.0)])
def test_greedy_counts_against_the_best_of_all(values, total, lost):
    """U is not concave in B: one more rollout of a hard prompt is worth little, and many are worth most."""
    def worth(counts):
        return sum(v0.utility(b, p) for b, p in zip(counts, values, strict=True))

    found = allocated(values, total)
    best = max((c for c in itertools.product(range(2, total - 3), repeat=3) if sum(c) == total and max(c) <= 32),
               key=worth)
    assert sum(found) == total and min(found) >= 2 and max(found) <= 32
    assert 1 - worth(found) / worth(best) == pytest.approx(lost, abs=1e-4)


def test_without_a_folder_the_value_is_what_the_ledger_remembers_and_one_half_of_nothing():
    ledger, own = Ledger(), toy.group([1.0, 1.0, 1.0, 0.0])
    values = []
    for seen in ((), (own,)):
        ledger.saw(*seen)
        (posed,) = asyncio.run(v0.guide(own.problem, world(), ledger))
        values.append(posed.meta[v0.VALUE])
    assert values == [0.5, 0.75]


def test_every_wave_spends_its_total():
    assert allocated([0.5] * 4, 4) == [1, 1, 1, 1] and allocated([0.5, 0.5], 3) == [2, 1]
    assert sum(allocated([0.0, 1.0, 0.2], 30, most=4)) == 30        # beyond the most, equally
    assert max(allocated([0.2, 0.97], 20)) == allocated([0.2, 0.97], 20)[0]
