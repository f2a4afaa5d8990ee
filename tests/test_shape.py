"""The shapes of JSON data: every shape is checked by its own rule."""

from typing import Annotated

import pytest

from isocost.shape import AtLeast, AtMost, Each, Filled, Maybe, flaw


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
