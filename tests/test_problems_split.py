"""Sides of a split: decided by what is asked, stable, disjoint, and warned about when too small."""

import random
from dataclasses import replace

import pytest

from isocost.errors import UserError
from isocost.tasks.builtin.sums import sums
from isocost.tasks.split import detectable, needed, overlap, split, split_given
from isocost.types import Message, Problem


def ask(text, id=None, **meta):
    return Problem(id or text, (Message("user", text),), "1", meta=meta)


POOL = [ask(f"Question {i}?") for i in range(1000)]


def test_every_problem_is_on_one_side():
    s = split(POOL, 0.3)
    ids = [p.id for side in (s.train, s.select, s.audit) for p in side]
    assert sorted(ids) == sorted(p.id for p in POOL)
    assert 250 < len(s.held_out) < 350 and abs(len(s.select) - len(s.audit)) < 60


def test_adding_and_shuffling_rows_moves_none():
    few, many = split(POOL[:600], 0.25), split(random.Random(0).sample(POOL, 1000), 0.25)
    for side in ("train", "select", "audit"):
        assert {p.id for p in getattr(few, side)} <= {p.id for p in getattr(many, side)}


def test_the_same_question_in_other_dress_is_on_the_same_side():
    where = {p.text: side for side in ("train", "select", "audit") for p in getattr(split(POOL, 0.5), side)}
    for dressed in ("  question   {}? ", "QUESTION {}?", "Ｑuestion {}?"):
        again = split([ask(dressed.format(i)) for i in range(1000)], 0.5)
        for side in ("train", "select", "audit"):
            for p in getattr(again, side):
                assert where[f"Question {p.text.split()[1]}"] == side
    system = [replace(p, prompt=(Message("system", "Be brief."), *p.prompt)) for p in POOL]
    assert [p.id for p in split(system, 0.5).train] == [p.id for p in split(POOL, 0.5).train]


def test_a_sum_and_its_mirror_stay_together():
    s = split(sums(), 0.2)
    side = {p.text: name for name in ("train", "select", "audit") for p in getattr(s, name)}
    assert all(side[f"{a}+{b}="] == side[f"{b}+{a}="] for a in range(10, 100) for b in range(10, a))
    assert not overlap(s.train, s.held_out)
    assert 1200 < len(s.held_out) < 2000


def test_a_number_is_met_about():
    assert abs(len(split(POOL, 200).held_out) - 200) < 45
    with pytest.raises(UserError, match="cannot hold out"):
        split(POOL, 1000)


def test_salt_makes_another_division():
    assert {p.id for p in split(POOL, 0.3).train} != {p.id for p in split(POOL, 0.3, salt=1).train}


def test_overlap_with_a_given_set_is_taken_out_and_named():
    held_out = [ask(f"question {i} ?".upper().replace(" ?", "?"), id=f"h{i}") for i in range(40)]
    s = split_given(POOL, held_out)
    assert set(s.removed) == {f"Question {i}?" for i in range(40)}
    assert not {p.id for p in s.train} & set(s.removed) and "40 training problems" in s.warnings[0]


def test_an_empty_split_is_an_error():
    with pytest.raises(UserError, match=r"leaves the \w+ split empty"):
        split(POOL[:2], 0.01)
    with pytest.raises(UserError, match="share below 1"):
        split(POOL, 0)


def test_small_held_out_sets_are_warned_about():
    assert "minimum detectable difference with" in split(POOL, 0.2, samples=4).warnings[0]
    assert not split(sums(), 0.2).warnings
    assert not split(sums(), 0.2, samples=4).warnings     # sums are evaluated exactly


def test_detectable_effect_by_hand():
    # (1.645 + 0.842) * sqrt((0.01 + 0.5 / 4) / 100) = 2.487 * 0.036742
    assert detectable(100, 4) == pytest.approx(0.09138, abs=1e-5)
    assert detectable(needed(0.02, 4), 4) <= 0.02 < detectable(needed(0.02, 4) - 1, 4)
    assert needed(0.02) == 155   # (2.487 * 0.1 / 0.02)^2 = 154.6
