"""A flow-matching policy of points in the plane, which ships with the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isocost.can import Can
from isocost.worlds.spec import Kind, Opening, Options, Spec, option

if TYPE_CHECKING:
    from isocost.tasks.load import Reads
    from isocost.world import World


@dataclass(frozen=True)
class FlowOptions(Options):
    """How noise enters a denoising step.

    `noise` is the level of flow-SDE at temperature 1; with `learned_noise` a network learns it (flow-noise).
    """

    noise: float = option(float, 0.7, "flow2d: noise of a step", metavar="A")
    learned_noise: bool = option(bool, False, "flow2d: learn the noise")


def open_world(spec: Spec, opening: Opening) -> World:
    """The world of the flow policy."""
    from isocost.worlds.tiny import flow

    return flow.open_world(spec, opening)


def reading(spec: Spec) -> Reads:
    """What it can read: directions."""
    from isocost.tasks.load import Reads
    from isocost.worlds.tiny import flow

    return Reads(flow.PlaneText(), flow.STEPS + 2)


def sized(spec: Spec) -> tuple[int, None]:
    """Its number of parameters."""
    from isocost.worlds.tiny import flow

    return sum(p.numel() for p in flow.Field(2).parameters()), None


ONLY = "{model} writes points by denoising, and no text"
KIND = Kind(
    open_world, FlowOptions, {Can.TRUNCATION: ONLY, Can.EFFORT: ONLY, Can.TEXT: ONLY}, example="modes", reading=reading,
    named="flow2d:modes", sized=sized,
)
