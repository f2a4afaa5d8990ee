"""SIRI: shrink the token limit until answers are short, raise it again, and repeat.

    L(t) = (L_max + L_min)/2 + (L_max − L_min)/2 · cos(2πt/T)          r = 1 if clip(y, L(t)) holds the right answer
    "stair": L_min for t mod T < T/2, else L_max;  "stair_cosine": the cosine, with stays of T/4 at either end
    Wen et al. 2025, arXiv:2509.25176
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import cos, pi
from typing import TYPE_CHECKING, Any

from isocost.errors import UserError
from isocost.methods import Card, dapo
from isocost.parts import reward
from isocost.parts.pace import PLANNED, warmed
from isocost.seams import Pace, Recipe
from isocost.traits import bounds

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("SIRI", "2509.25176", 2025, "dapo", "After two cycles answers are shorter at equal accuracy.")


@bounds(period="[1, inf)", shortest="(0, 1]", **PLANNED)
def pace(
    ledger: Ledger, *, shape: str = "cosine", period: int = 640, shortest: float = 0.5,
    lr: float = 1e-6, warmup: int = 10, max_tokens: int = 1024, temperature: float = 1.0, top_p: float = 1.0,
    top_k: int = 0, max_turns: int = 1, stop: tuple[str, ...] = (),
) -> Pace:
    """`pace.warmed`, with a token limit that shrinks to the share `shortest` and grows again (SIRI, arXiv:2509.25176).

    Raises UserError for a shape that is not in `SHAPES`.
    """
    if shape not in SHAPES:
        raise UserError(f"pace.shape is {shape!r}; expected one of {', '.join(SHAPES)}")
    now = warmed(
        ledger, lr=lr, warmup=warmup, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k,
        max_turns=max_turns, stop=stop,
    )
    share = shortest + (1 - shortest) * SHAPES[shape](ledger.step % period / period)
    return replace(now, max_tokens=max(round(share * max_tokens), 1), eval_turns=max_turns)


def stair(phase: float) -> float:
    """Position in [0, 1] between shortest and longest limit: shortest in the first half of a cycle, then longest."""
    return float(phase >= 0.5)


def cosine(phase: float) -> float:
    """From the longest limit at the start of a cycle to the shortest in the middle, and back."""
    return (1 + cos(2 * pi * phase)) / 2


def stair_cosine(phase: float) -> float:
    """Constant for a quarter of the cycle at each end, with half a cosine in between."""
    way = min(phase, 1 - phase)      # from the start of a cycle, or to its end
    return (1 + cos(4 * pi * min(max(way - 1 / 8, 0.0), 1 / 4))) / 2


SHAPES = {"stair": stair, "cosine": cosine, "stair_cosine": stair_cosine}


def recipe(**changes: Any) -> Recipe:
    # L_max is the run's max_tokens, L_min half of it, as 8192 is of 16384. No length penalty: truncation is the
    # penalty. 640 steps per cycle are the paper's; answers followed the schedule with a lag of 100 to 200 steps, so a
    # short run needs fewer.
    return dapo.recipe(
        name="siri", reward=reward.verified, pace=partial(pace, shape="cosine", period=640, shortest=0.5)
    ).but(**changes)
