"""Losses whose derivative is known, so that autograd need not find it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.parts.loss import clipped, credit


class Sloped(Protocol):
    """A loss with its derivative by each log-prob, (N, T); None where only autograd has it.

    A metric is (N, T), or a number that it is at every token.
    """

    def __call__(self, out: Forward, batch: Batch) -> tuple[Tensor, dict[str, Tensor | float], Tensor] | None: ...


def _clipped(
    out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, dual: float = 0.0
) -> tuple[Tensor, dict[str, Tensor | float], Tensor] | None:
    """At ratios of exactly 1, where neither clip is active: a loss of -A, whose slope is -A."""
    # At a dual of 1 autograd halves the slope of a tie, and so it does at a bound of 1 in some versions of torch.
    if batch.old is not None or dual == 1.0 or 0.0 in (low, high):
        return None
    slope = -credit(batch)
    return slope, {"clip_ratio/low_mean": 0.0, "clip_ratio/high_mean": 0.0, "clip_ratio/region_mean": 0.0}, slope


FORMS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [(clipped, _clipped)]


def sloped(loss: Callable[..., Any]) -> Sloped | None:
    """The form of a loss, or of a partial of one at the same settings, that gives its derivative; None without one."""
    if isinstance(loss, partial):
        form = sloped(loss.func)
        return None if form is None else partial(form, *loss.args, **loss.keywords)
    return next((form for plain, form in FORMS if plain is loss), None)
