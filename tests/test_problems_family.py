"""The built-in sums: what is asked, what is right, and which of them there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from isocost.errors import UserError
from isocost.tasks.builtin import sums as family
from isocost.tasks.builtin.sums import Sums, problem, sums

two_digits = some.integers(10, 99)


@given(two_digits, two_digits, some.integers(0, 2))
def test_answer_is_the_sum_and_the_solution_ends_on_it(a, b, work):
    p = problem(a, b, work)
    assert p.answer == str(a + b)
    assert family.final(p.meta["solution"]) == p.answer
    assert all(family.check_steps(p, p.meta["solution"]))
    assert family.operands(p) == (a, b)
    assert set(p.text + p.meta["solution"]) <= set(family.ALPHABET)


def test_worked_answer_by_hand():
    assert [problem(47, 38, w).meta["solution"] for w in (0, 1, 2)] == ["85", "15;8;85", "7+8=15;4+3+1=8;85"]
    assert problem(87, 38, 2).meta["solution"] == "7+8=15;8+3+1=12;125"


def test_steps_are_marked_one_by_one_in_their_place():
    p = problem(47, 38, 2)
    assert family.check_steps(p, "7+8=15;4+3=7;75") == [True, False, False]
    assert family.check_steps(p, "7+8=15;85") == [True, False]
    assert family.check_steps(p, "7+8=15;4+3+1=8;85;85") == [True, True, True, False]


def test_level_counts_carries():
    by_level = {p.meta["level"]: 0 for p in sums()}
    for p in sums():
        by_level[p.meta["level"]] += 1
        a, b = family.operands(p)
        assert p.meta["level"] == (a % 10 + b % 10 > 9) + (a + b > 99)
    assert by_level == {0: 1980, 1: 3735, 2: 2385}
    assert len(sums(carry=1)) == 3735 + 2385 and len(sums(carry=0)) == len(sums(level=0)) == 1980


def test_ids_and_prompts_are_distinct():
    everything = sums() + sums(work=1)
    assert len({p.id for p in everything}) == len({p.text for p in everything}) == 2 * 8100


def test_a_draw_depends_on_its_seed_alone_and_has_no_repeats():
    first, again, other = sums(count=500, seed=1), sums(count=500, seed=1), sums(count=500, seed=2)
    assert first == again and first != other and len({p.id for p in first}) == 500
    assert len({p.id for p in sums(digits=3, count=3000)}) == 3000


def test_splits_of_the_base_lie_within_their_bounds():
    rates = family.base_rates()
    for name, (low, high) in (("easy", family.EASY), ("hard", family.HARD)):
        found = [rates[family.operands(p)] for p in sums(base=name)]
        assert low <= min(found) and max(found) <= high
    assert np.isnan(rates[9, 50]) and not np.isnan(rates[10:, 10:]).any()


def test_names_read_back():
    for name in ("sums", "sums:carry=1,work=2", "sums:level=2,count=10,seed=3", "sums:base=hard"):
        assert Sums.of(str(Sums.of(name))) == Sums.of(name)
    assert str(Sums.of("sums: work=1")) == "sums:work=1"


@pytest.mark.parametrize(
    ("name", "said"),
    [("sums:carries=1", "no option 'carries'"), ("sums:work=x", "takes an integer"),
     ("sums:work=3", "work is 0, 1 or 2"), ("sums:level=3", "level is 0 to 2"), ("sums:carry=2", "carry is 0"),
     ("sums:count=0", "count is at least 1"),
     ("sums:base=middle", "easy or hard"), ("sums:base=easy,work=1", "work=0 only"), ("sums:digits=9", "digits is")],
)
def test_a_wrong_name_says_what_would_be_right(name, said):
    with pytest.raises(UserError, match=said):
        Sums.of(name)


def test_more_than_there_are_is_refused():
    with pytest.raises(UserError, match="only 8100"):
        sums(count=8101)
    with pytest.raises(UserError, match="count="):
        sums(digits=3)
