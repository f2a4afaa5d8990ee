"""What the episodes of a user's file share: the globals of its modules and the attributes of its classes.

An environment may share what no episode changes, such as a table that is read once. So a change found here is the cause
of a difference that was seen, and is no fault by itself.
"""

from __future__ import annotations

import inspect
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np

MOST, DEPTH = 100, 3        # that are read of a container, and how deep
_STRAIGHT = (type(None), bool, int, float, complex, str, bytes)
_CODE = (staticmethod, classmethod, property)


def state(make: Callable[..., Any]) -> dict[str, object]:
    """What the files that define `make` share, by name: values that differ if an episode has changed them."""
    out: dict[str, object] = {}
    for names in _namespaces(make):
        module = names.get("__name__")
        for name, value in list(names.items()):
            if inspect.isclass(value) and value.__module__ == module:
                for key, of in list(vars(value).items()):
                    if _is_data(key, of):
                        out[f"{name}.{key}"] = _read(of, DEPTH)
            elif _is_data(name, value):
                out[name] = _read(value, DEPTH)
    return out


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The names whose values differ, those that are new included."""
    return [name for name, value in after.items() if name not in before or before[name] != value]


def _namespaces(make: Any) -> Iterator[dict[str, Any]]:
    """The globals of the files that define it, without those of this package."""
    seen = set[int]()
    for function in _functions(make):
        names = function.__globals__
        if id(names) not in seen and not str(names.get("__name__")).startswith("isocost."):
            seen.add(id(names))
            yield names


def _functions(make: Any) -> Iterator[Any]:
    if isinstance(make, partial):
        for part in (make.func, *make.args, *make.keywords.values()):
            yield from _functions(part)
    elif inspect.isclass(make):
        for base in make.__mro__:
            yield from (f for f in vars(base).values() if inspect.isfunction(f))
    elif inspect.isfunction(make):
        yield make


def _is_data(name: str, value: object) -> bool:
    return not (name.startswith("__") or inspect.ismodule(value) or callable(value) or isinstance(value, _CODE))


def _read(value: Any, depth: int) -> object:
    """A copy of what it holds, as far as `MOST` and `DEPTH` reach; else which object it is."""
    if isinstance(value, _STRAIGHT):
        return value
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, count):
        return repr(value)
    if depth == 0:
        return id(value)
    if isinstance(value, dict):
        some = tuple((_read(k, 0), _read(v, depth - 1)) for k, v in islice(value.items(), MOST))
        return len(value), some
    if isinstance(value, list | tuple | deque):
        return len(value), tuple(_read(v, depth - 1) for v in islice(value, MOST))
    if isinstance(value, set | frozenset):
        return len(value), frozenset(_read(v, 0) for v in islice(value, MOST))
    if isinstance(of := getattr(value, "__dict__", None), dict):
        return id(value), _read(of, depth - 1)
    return id(value)
