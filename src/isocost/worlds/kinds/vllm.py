"""Models that a vLLM server samples and the learner of this machine trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isocost.can import Can
from isocost.worlds.kinds import local
from isocost.worlds.spec import Kind, Opening, Spec, option

if TYPE_CHECKING:
    from isocost.world import World


@dataclass(frozen=True)
class VllmOptions(local.LocalOptions):
    """Those of the learner, and of the check that compares it with the server."""

    witness: float | None = option(
        float, None, "how far log-probs of a vLLM server may be from the learner's after a load, for a server in "
        "another dtype  [default: 1e-5, or 1e-5 / temperature below 1]", metavar="NATS", above=0)


def open_world(spec: Spec, opening: Opening) -> World:
    """The world of the server at the address of `spec`, which has the same model as this machine."""
    from isocost.worlds import endpoint, vllm

    own = opening.options
    client = endpoint.client_of(vllm.base_of(spec.url), opening.limits)
    world = local.open_world(spec, opening, dtype="fp32" if opening.machine.dtype == "auto" else "")
    return vllm.sampled_by(
        world, spec, client, sampling=opening.sampling, overlap=not own.in_turns, most=own.witness)


KIND = Kind(
    open_world, VllmOptions, dict.fromkeys((Can.TRUNCATION, Can.EFFORT), ""), example="http://localhost:8000#my-model",
    named="vllm:URL#MODEL", reading=local.reading, sized=local.sized,
)
