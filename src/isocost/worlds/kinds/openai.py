"""Models behind an OpenAI-compatible server, which can be sampled and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocost.can import Can
from isocost.worlds.spec import Kind, Opening, Options, Spec

if TYPE_CHECKING:
    from isocost.world import World


def open_world(spec: Spec, opening: Opening) -> World:
    """The world of the server at the address of `spec`."""
    from isocost.worlds import endpoint

    return endpoint.open_world(
        spec, opening.problems, opening.grade, meter=opening.meter, sampling=opening.sampling, limits=opening.limits)


ONLY = (
    "{model} can only be sampled: its server gives completions, and no gradient, weights or exact probabilities. "
    "`isocost profile` and `isocost eval` work with it. To train, give a model folder; or profile it, plan with "
    "`isocost plan STUDY`, and train in your own trainer"
)
KIND = Kind(
    open_world, Options, {Can.LEARN: ONLY, Can.SIZE: ""},
    example="http://localhost:8000/v1#my-model", named="openai:URL#MODEL for `profile` and `eval`",
)
