"""The shapes of JSON data: every shape is checked by its own rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest

from isocost.disk.shape import AtLeast, AtMost, Each, Filled, Keys, Maybe, flaw


@pytest.mark.parametrize("order", [1, -1])
def test_shapes_of_equal_parts_are_different_shapes(order):
    """The check of a shape is kept, so that of another one must not be taken for it."""
    cases = [
        ([1], Each(int), ""), (None, Each(int), "it is null, expected a list"),
        (None, Maybe(int), ""), ([1], Maybe(int), "it is a list of 1, expected an integer or null"),
        ([], Filled(list[int]), "it is an empty list, expected at least one entry"), ([], Each(list[int]), ""),
        (5, Annotated[int, AtLeast(3)], ""), (5, Annotated[int, AtMost(3)], "it is 5, expected at most 3"),
    ]
    for data, shape, wrong in cases[::order]:
        assert flaw(data, shape) == wrong


@dataclass(frozen=True)
class Renamed:
    """A class whose records had `a` and `b` in place of `both`, and a number in place of the object `other`."""

    both: Annotated[Mapping[str, float], Keys({"a": int, "b": int})]
    other: Mapping[str, float] | None = None

    OLDER: ClassVar = {"both": Keys({"a": int, "b": int}), "other": int}


@pytest.mark.parametrize(("data", "wrong"), [
    ({"both": {"a": 1, "b": 2}, "other": {"a": 1}}, ""),
    ({"a": 1, "b": 2, "other": 3}, ""),
    ({"a": 1}, "b is missing"),
    ({}, "both is missing"),
    ({"both": {"a": 1}}, "both.b is missing"),
    ({"both": {"a": 1, "b": "x"}}, "both.b is 'x', expected an integer"),
    ({"a": 1, "b": 2, "other": "x"}, "other is 'x', expected"),
])
def test_a_class_says_how_its_earlier_records_differ(data, wrong):
    found = flaw(data, Renamed)
    assert found.startswith(wrong) and bool(found) == bool(wrong)
