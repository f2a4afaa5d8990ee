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
    """How places are filled, and how the learner estimates log-probs."""

    passes: int = option(int, 4, "passes of the network that fill an answer, the same number of places each",
                         metavar="K", above=0)
    doubling: bool = option(bool, False, "pass i fills 2^i places, the last one the rest, in place of --passes (ASS)")
    end_factor: float = option(float, 1.0, "factor on the confidence of an end in the first pass, which grows to 1 in "
                               "the last (EOSER: 0.4)", metavar="F")
    one_pass: bool = option(bool, False, "the learner takes all log-probs from one pass in which every place is masked")


def open_world(spec: Spec, opening: Opening) -> World:
    """The world of the masked policy."""
    from isocost.worlds.tiny import masked

    return masked.open_world(spec, opening)


def reading(spec: Spec) -> Reads:
    """What it can read: sums."""
    from isocost.tasks.load import Reads
    from isocost.worlds.tiny import masked

    return Reads(masked.CellText(), masked.ASKED + masked.PLACES)


ONLY = "{model} fills the places of an answer in any order"
KIND = Kind(
    open_world, MaskedOptions, {Can.TRUNCATION: ONLY, Can.EFFORT: ONLY, Can.CRITIC: ONLY}, example="sums",
    reading=reading, named="masked:sums (masked diffusion, for --data places)",
)
