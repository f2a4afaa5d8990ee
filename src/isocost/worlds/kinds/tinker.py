"""Models that a service of the Tinker API samples and trains, as an adapter that stays there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocost.can import LEARNER, Can
from isocost.worlds.spec import AdapterOptions, Kind, Opening, Spec

if TYPE_CHECKING:
    from isocost.world import World


def open_world(spec: Spec, opening: Opening) -> World:
    """The world of the service at the address of `spec`."""
    from isocost.worlds import tinker

    return tinker.open_world(spec, opening)


ONLY = "{model} can be sampled, trained and evaluated, and nothing else"
KIND = Kind(
    open_world, AdapterOptions, {Can.SIZE: ONLY, Can.EFFORT: ONLY, **dict.fromkeys(LEARNER - {Can.TEXT}, "")},
    example="http://localhost:8000#my-model", named="tinker:URL#MODEL",
)
