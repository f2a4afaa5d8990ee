"""What other trainers call n, B and M, so that a prescription can be typed into any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Option names as their projects document them. {n}, {B}, {nB}, {M} are filled with the prescription's numbers.
TRAINERS: Mapping[str, tuple[str, str, str]] = {
    "TRL": ("num_generations = {n}", "generation_batch_size = {nB}", "max_steps = {M}"),
    "verl": (
        "actor_rollout_ref.rollout.n = {n}",
        "data.train_batch_size = {B}",
        "trainer.total_training_steps = {M}",
    ),
    "prime-rl": ("group_size = {n}", "batch_size = {nB}", "max_steps = {M}"),
    "NeMo-RL": (
        "grpo.num_generations_per_prompt = {n}",
        "grpo.num_prompts_per_step = {B}",
        "grpo.max_num_steps = {M}",
    ),
    "SkyRL": (
        "generator.n_samples_per_prompt = {n}",
        "trainer.train_batch_size = {B}",
        "trainer.max_training_steps = {M}",
    ),
    "slime": ("--n-samples-per-prompt {n}", "--rollout-batch-size {B}", "--num-rollout {M}"),
    "OpenRLHF": (
        "--rollout.n_samples_per_prompt {n}",
        "--rollout.batch_size {B}",
        "--train.num_episodes: M × B / problems",
    ),
}

NOTES = (
    "One step is one batch of nB rollouts and, unless the recipe says otherwise, one optimiser update. TRL and"
    " prime-rl count rollouts in their batch, the others count problems. In verl, SkyRL, slime and OpenRLHF a"
    " mini-batch smaller than the batch makes several updates of a step: set it to the whole batch to get the run"
    " described here. Older prime-rl says rollouts_per_example; OpenRLHF before its dotted options says"
    " --n_samples_per_prompt and --rollout_batch_size."
)


def rows(arm: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(trainer, n, B, M) for one arm; a size that is not known stays a letter."""
    many, groups = arm.get("n"), arm.get("B")
    product = many * groups if many and groups else "nB"
    sizes = {"n": many or "n", "B": groups or "B", "M": arm.get("M") or "M", "nB": product}
    return [(name, n.format(**sizes), b.format(**sizes), m.format(**sizes)) for name, (n, b, m) in TRAINERS.items()]
