"""What changes during a run: learning rate, sampling, limits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from isocost.seams import Pace
from isocost.traits import bounds
from isocost.types import Sampling

if TYPE_CHECKING:
    from isocost.ledger import Ledger


PLANNED = {     # settings of every pace of this package
    "lr": "[0, inf)", "warmup": "[0, inf)", "max_tokens": "[1, inf)", "temperature": "(0, inf)", "top_p": "(0, 1]",
    "top_k": "[0, inf)", "max_turns": "[1, inf)",
}


@bounds(**PLANNED)
def warmed(
    ledger: Ledger,
    *,
    lr: float = 1e-6,
    warmup: int = 10,
    max_tokens: int = 1024,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    max_turns: int = 1,
    stop: tuple[str, ...] = (),
) -> Pace:
    """A learning rate that rises linearly over `warmup` steps and then stays; everything else is constant.

    With a constant rate, a checkpoint equals the end of a shorter run, which laws are fitted on.
    """
    now = lr * min(1.0, (ledger.step + 1) / warmup) if warmup > 0 else lr
    return _pace(now, max_tokens, temperature, top_p, top_k, max_turns, tuple(stop))


@lru_cache(maxsize=64, typed=True)
def _pace(
    lr: float, max_tokens: int, temperature: float, top_p: float, top_k: int, max_turns: int, stop: tuple[str, ...]
) -> Pace:
    """The same pace is one object: most steps of a run have the same."""
    return Pace(lr, max_tokens, Sampling(temperature, top_p, top_k), max_turns, stop)

