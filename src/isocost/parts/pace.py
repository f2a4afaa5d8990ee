"""What changes as the run goes on."""

from __future__ import annotations

from dataclasses import replace
from math import cos, pi
from typing import TYPE_CHECKING

from isocost.errors import UserError
from isocost.seams import Pace
from isocost.traits import bounds
from isocost.types import Sampling

if TYPE_CHECKING:
    from isocost.ledger import Ledger


PLANNED = {     # what every pace here takes
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
    """A learning rate that rises linearly over `warmup` steps and stays; everything else constant.

    A constant rate is what lets a checkpoint stand for a run of its length when laws are fitted.
    """
    now = lr * min(1.0, (ledger.step + 1) / warmup) if warmup > 0 else lr
    return Pace(now, max_tokens, Sampling(temperature, top_p, top_k), max_turns, tuple(stop))


# limits that move; an evaluation always has the run's `max_tokens`, and `max_turns` -----------------------------------

@bounds(period="[1, inf)", shortest="(0, 1]", **PLANNED)
def cycled(
    ledger: Ledger, *, shape: str = "cosine", period: int = 640, shortest: float = 0.5,
    lr: float = 1e-6, warmup: int = 10, max_tokens: int = 1024, temperature: float = 1.0, top_p: float = 1.0,
    top_k: int = 0, max_turns: int = 1, stop: tuple[str, ...] = (),
) -> Pace:
    """As `warmed`, with room for answers that shrinks to the share `shortest` and grows again (SIRI, arXiv:2509.25176).

    Raises UserError for a shape that is not in `SHAPES`.
    """
    if shape not in SHAPES:
        raise UserError(f"pace.shape is {shape!r}; there are {', '.join(SHAPES)}")
    now = warmed(
        ledger, lr=lr, warmup=warmup, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k,
        max_turns=max_turns, stop=stop,
    )
    share = shortest + (1 - shortest) * SHAPES[shape](ledger.step % period / period)
    return replace(now, max_tokens=max(round(share * max_tokens), 1), most=max_turns)


def stair(phase: float) -> float:
    """Where in [0, 1] between the least and the most room a cycle is: least in its first half, most in its second."""
    return float(phase >= 0.5)


def cosine(phase: float) -> float:
    """From the most, at the beginning, to the least, in the middle, and back."""
    return (1 + cos(2 * pi * phase)) / 2


def stair_cosine(phase: float) -> float:
    """The same with a stay of a quarter of the cycle at either end, and half a cosine in between."""
    way = min(phase, 1 - phase)      # from the start of a cycle, or to its end
    return (1 + cos(4 * pi * min(max(way - 1 / 8, 0.0), 1 / 4))) / 2


SHAPES = {"stair": stair, "cosine": cosine, "stair_cosine": stair_cosine}


@bounds(first="[1, inf)", by="[0, inf)", each="[1, inf)", listed="[1, inf)", **PLANNED)
def widened(
    ledger: Ledger, *, rule: str = "times", first: int = 10, by: int = 1, each: int = 1, listed: tuple[int, ...] = (),
    lr: float = 1e-6, warmup: int = 10, max_tokens: int = 1024, temperature: float = 1.0, top_p: float = 1.0,
    top_k: int = 0, max_turns: int = 30, stop: tuple[str, ...] = (),
) -> Pace:
    """As `warmed`, with turns that grow to `max_turns` (TTI, arXiv:2506.07976).

    In the i-th iteration of `each` steps, i from 1, a dialogue has `first` · i turns with the rule "times", and
    `first` + `by` · i with "plus". Or the i-th of `listed`, and its last ever after. Raises UserError for another rule.
    """
    if rule not in ("times", "plus"):
        raise UserError(f"pace.rule is {rule!r}; there are times and plus")
    now = warmed(
        ledger, lr=lr, warmup=warmup, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k,
        max_turns=max_turns, stop=stop,
    )
    i = 1 + ledger.step // each
    turns = first * i if rule == "times" else first + by * i
    if listed:
        turns = listed[min(i, len(listed)) - 1]
    return replace(now, max_turns=min(turns, max_turns), most=max_turns)
