"""An arm: what a planner sets of the runs that it compares, as names and numbers.

A study of training has arms of `n` and `B`, with their learning rate; another planner has others. Records, curves,
forecasts and comparisons hold an arm and do not ask what is in it: which of its values are compared, which must be
integers and how an arm is worded is its planner's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import total_ordering
from numbers import Integral, Real
from typing import Any

from isocost.errors import UserError

OLD = ("n", "B", "lr", "multiplier", "warmup", "turns")     # of records of format 1, which had them as fields


@total_ordering
class Arm(Mapping[str, float]):
    """Names and numbers, as `Arm(n=8, B=16)` or `Arm({"n": 8, "B": 16})`. It does not change, and can be a key.

    A value of None is left out. The names are in one order, small letters first, whatever the order in which they are
    given; arms are ordered by their values in it. Raises UserError for a value that is not a finite number.
    """

    __slots__ = ("_values",)
    _values: dict[str, float]

    def __init__(self, values: Mapping[str, float | None] | None = None, /, **more: float | None):
        given = {**(values or {}), **more}
        found = {k: v for k in sorted(given, key=str.swapcase) if (v := given[k]) is not None}
        for k, v in found.items():
            if isinstance(v, bool) or not isinstance(v, Real) or not math.isfinite(v):
                raise UserError(f"an arm's {k} is {v!r}, expected a finite number")
        self._values = found

    @staticmethod
    def of(data: Mapping[str, Any]) -> Arm:
        """The arm of a record: of its `arm`, or of the fields that records of format 1 had instead."""
        if "arm" in data:
            return Arm(data["arm"])
        return Arm({k: data.get(k) for k in OLD}, turns=data.get("turns") or None)      # 0: no limit of its own

    def __getitem__(self, name: str) -> Any:       # an integer stays one
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __lt__(self, other: Arm) -> bool:
        return tuple(self.items()) < tuple(other.items())

    def __repr__(self) -> str:
        return f"Arm({', '.join(f'{k}={v!r}' for k, v in self.items())})"

    @property
    def label(self) -> str:
        """The arm as part of a name: n8-B16."""
        return "-".join(f"{k}{v if isinstance(v, Integral) else format(v, 'g')}" for k, v in self.items())

    def only(self, *names: str) -> Arm:
        """The arm of these of its values, where it has them."""
        return Arm({k: v for k, v in self.items() if k in names})

    def but(self, **changes: float | None) -> Arm:
        """The arm with other values; None leaves one out."""
        return Arm({**self, **changes})

    def data(self) -> dict[str, float]:
        return dict(self._values)
