"""Models of this machine: sampled and trained here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from isocost.can import Can
from isocost.worlds.spec import AdapterOptions, Kind, Opening, Spec, option

if TYPE_CHECKING:
    from isocost.tasks.load import Reads
    from isocost.world import About, World

log = logging.getLogger("isocost")


@dataclass(frozen=True)
class LocalOptions(AdapterOptions):
    """What is trained, and what computes it."""

    kernels: str = option(
        str, "auto", "auto, native (compiled on first use, for processors), graphs (CUDA graphs, for GPUs) or torch",
        how=True)
    in_turns: bool = option(
        bool, False, "with max_age above 0, sample and learn one after the other, not at the same time; results do not "
        "depend on it", how=True)


def open_world(spec: Spec, opening: Opening, *, dtype: str = "") -> World:
    """The world of a model of this machine; `dtype` in place of the setting's."""
    from isocost.local import world

    o, own = opening, opening.options
    opened = world.open_world(
        spec.name, o.problems, o.grade, meter=o.meter, reference=o.reference, exact=o.exact, dialogues=o.dialogues,
        compute=world.Compute(o.machine.device, dtype or o.machine.dtype, own.kernels, o.machine.threads, own.lora,
                              overlap=not own.in_turns),
    )
    _warn(opened.about, own.kernels)
    return opened


def _warn(about: About, kernels: str) -> None:
    """Once in this process for each: that torch computes the model, and that its last bits depend on the batch."""
    import torch

    from isocost.local.invariance import remedy

    if kernels == "auto" and about.device == "cpu" and about.kernels_why:
        _warn_once(f"torch computes the model, which is slower: {about.kernels_why}")
    if about.batch_dependent:
        do = remedy(getattr(torch, about.dtype), about.kernels_why)
        _warn_once("a rollout's last bits depend here on the rollouts computed with it "
                   f"({about.batch_dependent}); {do}")


@cache
def _warn_once(text: str) -> None:
    log.warning(text)


def reading(spec: Spec) -> Reads:
    """What the model can read."""
    from isocost.local import models
    from isocost.tasks.load import Reads

    return Reads(*models.reading(spec.name))


def sized(spec: Spec) -> tuple[int, Mapping[str, Any] | None]:
    """Its number of parameters, and the learning rate that its maker measured."""
    from isocost.local import models

    model = models.load(spec.name)
    return model.parameters, model.starting_rate


KIND = Kind(
    open_world, LocalOptions, {Can.EFFORT: ""}, reading=reading, sized=sized,
    named="one that ships with isocost (tiny, tiny-puzzles, tiny-agents, tiny-tools), 'smollm2', or a Hugging Face "
          "folder (Llama, SmolLM2, Qwen2/2.5/3)",
)
