"""The one function that opens the world of a model, by the kind of its spec: a new kind is a row of `OPENERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from isocost.errors import UserError
from isocost.local import models
from isocost.local import world as local
from isocost.meter import Meter
from isocost.tasks.load import Reads
from isocost.types import Problem, Sampling
from isocost.world import Grade, World
from isocost.worlds import endpoint, tinker, vllm
from isocost.worlds.http import Limits
from isocost.worlds.spec import LOCAL, OPENAI, TINKER, VLLM, Ability, Spec, spec_of


@dataclass(frozen=True)
class Opening:
    """What a world is opened with besides its model."""

    problems: Sequence[Problem]
    grade: Grade
    meter: Meter
    sampling: Sampling
    device: str = "auto"
    dtype: str = "auto"
    kernels: str = "auto"
    threads: int = 1
    reference: bool = False     # with a frozen copy of the policy
    exact: bool = False         # each problem's answer is the only right text
    limits: Limits = Limits()   # of requests to a server
    lora: int | None = None     # rank of the adapter that is trained; None: all weights, or the service's default
    dialogues: bool = False     # rollouts have several turns
    in_turns: bool = False      # with max_age, sampling and learning do not run at the same time
    witness: float | None = None    # largest difference of log-probs that is accepted after a load; None: the default


def open_world(model: str, opening: Opening) -> World:
    """The world of the model of this spec. Raises UserError for what is not there, and for options of other worlds."""
    spec = spec_of(model)
    if opening.witness is not None and spec.kind != VLLM:
        raise UserError(f"--witness is for a model that a vLLM server samples, and {spec} is none: leave it out")
    return OPENERS[spec.kind](spec, opening)


def _local(spec: Spec, o: Opening, dtype: str = "") -> World:
    return local.open_world(
        spec.name, o.problems, o.grade, meter=o.meter, device=o.device, dtype=dtype or o.dtype, kernels=o.kernels,
        threads=o.threads, reference=o.reference, exact=o.exact, lora=o.lora, dialogues=o.dialogues,
        overlap=not o.in_turns,
    )


def _openai(spec: Spec, o: Opening) -> World:
    return endpoint.open_world(spec, o.problems, o.grade, meter=o.meter, sampling=o.sampling, limits=o.limits)


def _tinker(spec: Spec, o: Opening) -> World:
    return tinker.open_world(
        spec, o.problems, o.grade, meter=o.meter, sampling=o.sampling, rank=o.lora, reference=o.reference,
        exact=o.exact,
    )


def _vllm(spec: Spec, o: Opening) -> World:
    client = endpoint.client_of(vllm.base_of(spec.url), o.limits)
    world = _local(spec, o, "fp32" if o.dtype == "auto" else "")
    return vllm.sampled_by(world, spec, client, sampling=o.sampling, overlap=not o.in_turns, most=o.witness)


OPENERS: Mapping[str, Callable[[Spec, Opening], World]] = {
    LOCAL: _local, OPENAI: _openai, TINKER: _tinker, VLLM: _vllm,
}


def reading(model: str) -> Callable[[], Reads] | None:
    """What the model can read, when called; None where only its server knows."""
    spec = spec_of(model)
    return (lambda: Reads(*models.reading(spec.name))) if spec.can(Ability.CONTEXT) else None
