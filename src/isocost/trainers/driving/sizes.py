"""The names of n, B and M in other trainers, so that a prescription can be used in any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocost import trainers

NOTES = (
    "One step is one batch of nB rollouts and, unless the recipe says otherwise, one optimiser update. TRL and"
    " prime-rl count rollouts in their batch, the others count problems. In verl, SkyRL, slime and OpenRLHF a"
    " mini-batch smaller than the batch makes several updates of a step: set it to the whole batch to get the run"
    " described here. Older prime-rl says rollouts_per_example; OpenRLHF before its dotted options says"
    " --n_samples_per_prompt and --rollout_batch_size."
)


def rows(arm: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(trainer, n, B, M) for one arm, in every trainer's names; an unknown size stays a letter."""
    return [(trainer.TITLE, *sizes_of(trainer, arm)) for trainer in trainers.modules("SIZES").values()]


def sizes_of(trainer: Any, arm: Mapping[str, Any]) -> tuple[str, str, str]:
    """n, B and M of an arm in one trainer's names (its `SIZES`)."""
    n, B = arm.get("n"), arm.get("B")
    sizes = {"n": n or "n", "B": B or "B", "M": arm.get("M") or "M", "nB": n * B if n and B else "nB"}
    words = tuple(text.format(**sizes) for text in trainer.SIZES)
    return words[0], words[1], words[2]
