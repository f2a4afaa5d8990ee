"""Several sets as one: whole, in shares, in a fixed order that mixes them; what does not fit together is named."""

from __future__ import annotations

import json

import pytest

from isocost.errors import UserError
from isocost.steps.settings import answer_room
from isocost.tasks.builtin import sums as family
from isocost.tasks.load import load_problems
from isocost.tasks.mix import Part, counts, parts

HARD, EASY, VERY = "sums:base=hard", "sums:base=easy", "sums:base=very-easy"


def ids(spec, **more):
    return {p.id for p in load_problems(spec, check=False, **more).problems}


def test_a_name_is_read_into_its_parts():
    assert parts("sums") == [Part("sums")]
    assert parts(f"50% {HARD} + 25% {EASY} + 25% {VERY}") == [Part(HARD, 0.5), Part(EASY, 0.25), Part(VERY, 0.25)]
    assert parts("a.jsonl + sums") == [Part("a.jsonl"), Part("sums")]


@pytest.mark.parametrize(("spec", "why"), [
    ("50% sums + sums", "every part a share"), ("50% sums + 40% sums", "sum to 90 %"),
    ("0% sums + 100% sums", "above 0"), ("sums + ", "each side"),
])
def test_what_is_no_mix_is_said(spec, why):
    with pytest.raises(UserError, match=why):
        parts(spec)


def test_a_file_whose_name_has_a_plus_is_a_file(tmp_path):
    path = tmp_path / "a + b.jsonl"
    path.write_text(json.dumps({"prompt": "one?", "answer": "1"}) + "\n")
    assert [p.answer for p in load_problems(str(path)).problems] == ["1"]


def test_the_papers_mixtures():
    """50/50 hard and easy; 50/25/25 with very easy: the largest the parts allow, or as many as are asked for."""
    hard, easy, very = ids(HARD), ids(EASY), ids(VERY)
    whole = load_problems(f"50% {HARD} + 50% {EASY}", check=False)
    got = {p.id for p in whole.problems}
    assert len(got) == len(whole) == 2 * min(len(hard), len(easy)) and len(got & hard) == len(got & easy)
    assert "937 of the 937 problems of sums:base=hard" in whole.report.lines()
    three = ids(f"50% {HARD} + 25% {EASY} + 25% {VERY}", limit=200)
    assert [len(three & x) for x in (hard, easy, very)] == [100, 50, 50]
    order = [p.id in hard for p in whole.problems[:200]]
    assert 60 < sum(order) < 140, "what is profiled first is a mix too"


def test_without_shares_it_is_the_union_and_what_is_in_both_counts_once():
    joined = load_problems(f"{HARD} + sums:level=2", check=False)
    assert {p.id for p in joined.problems} == ids(HARD) | ids("sums:level=2")
    assert len(joined) == len({p.id for p in joined.problems}) and all(p.meta["exact"] for p in joined.problems)
    assert len(load_problems(f"{HARD} + {EASY}", limit=10, check=False)) == 10


def test_it_depends_on_what_is_asked_alone():
    spec = f"50% {HARD} + 50% {EASY}"
    first, again = (load_problems(spec, limit=60, check=False).problems for _ in range(2))
    assert first == again


def test_parts_that_disagree_are_named(tmp_path):
    with pytest.raises(UserError, match="exact and final: name one for all with --verifier"):
        load_problems("sums:base=hard + sums:work=1,count=20", check=False)
    assert len(load_problems("sums:base=hard + sums:work=1,count=20", "final", check=False)) == 937 + 20
    for name, rows in (("a", [("1+1?", "2", "x")]), ("b", [("1+1?", "3", "y")]), ("c", [("2+2?", "4", "x")])):
        lines = [json.dumps({"prompt": p, "answer": a, "id": i}) for p, a, i in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    for pair, why in (("ab", "answer one prompt differently"), ("ac", "give different problems the id 'x'")):
        with pytest.raises(UserError, match=why):
            load_problems(" + ".join(str(tmp_path / f"{x}.jsonl") for x in pair))


def test_shares_become_whole_numbers_that_sum():
    assert counts([0.5, 0.25, 0.25], 10) == [5, 3, 2] and counts([1 / 3] * 3, 10) == [4, 3, 3]
    assert counts([0.7, 0.3], 10) == [7, 3]


def test_the_room_for_an_answer_is_that_of_the_longest_part():
    assert answer_room(f"{EASY} + sums:work=2,count=50") == answer_room("sums:work=2,count=50") > answer_room(EASY)
    assert answer_room("a.jsonl + sums") == 64


def test_the_bases_splits_have_their_bounds():
    assert family.BASES["very-easy"] == (0.6, 0.9)
    with pytest.raises(UserError, match="base is very-easy, easy or hard, not 'soft'"):
        family.Sums.of("sums:base=soft")
