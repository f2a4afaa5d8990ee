"""A masked-diffusion policy of short answers, which ships with the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isocost.can import Can
from isocost.worlds.spec import Kind, Opening, Options, Spec, option

if TYPE_CHECKING:
    from isocost.tasks.load import Reads
    from isocost.world import World


@dataclass(frozen=True)
class MaskedOptions(Options):
    """How places are filled, and how the learner estimates log-probs.

    Of `passes` each fills as many places, the last one the rest; with `doubling` (ASS) pass i fills 2^i. `end_factor`
    (EOSER: 0.4) is a factor on the confidence of an end in the first pass, which grows to 1 in the last. With
    `one_pass` the learner takes all log-probs from one pass in which every place is masked.
    """

    passes: int = option(int, 4, "masked: passes that fill an answer", metavar="K", above=0)
    doubling: bool = option(bool, False, "masked: fill 1, 2, 4 .. places")
    end_factor: float = option(float, 1.0, "masked: first factor on an end's confidence", metavar="F")
    one_pass: bool = option(bool, False, "masked: log-probs of one pass")


def open_world(spec: Spec, opening: Opening) -> World:
    """The world of the masked policy."""
    from isocost.worlds.tiny import masked

    return masked.open_world(spec, opening)


def reading(spec: Spec) -> Reads:
    """What it can read: sums."""
    from isocost.tasks.load import Reads
    from isocost.worlds.tiny import masked

    return Reads(masked.CellText(), masked.ASKED + masked.PLACES)


def sized(spec: Spec) -> tuple[int, None]:
    """Its number of parameters."""
    from isocost.worlds.tiny import masked

    return sum(p.numel() for p in masked.Filler().parameters()), None


ONLY = "{model} fills the places of an answer in any order"
KIND = Kind(
    open_world, MaskedOptions, {Can.TRUNCATION: ONLY, Can.EFFORT: ONLY, Can.CRITIC: ONLY, Can.TEXT: ONLY},
    example="sums", reading=reading, named="masked:sums", sized=sized,
)
