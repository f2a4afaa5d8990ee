"""TRL: a YAML file for `trl grpo --config FILE`, or for GRPOConfig(**yaml): the keys are GRPOConfig's own.

Batches count rollouts: per_device_train_batch_size x processes x gradient_accumulation_steps = nB, and
generation_batch_size follows as the same, so that one generation is one update.
"""

from __future__ import annotations

import sys
from typing import Any

from isocost.exporters import Prescription, aged, head, shown, unmixed, unsaid

TITLE = "TRL"
VERSION = "TRL 1.16 (trl/trainer/grpo_config.py)"
DEFAULTS = {
    "max_tokens": ("max_completion_length", "512"),
    "temperature": ("temperature", "1"),
    "top_p": ("top_p", "1"),
    "top_k": ("top_k", "0"),
}
LOSSES = {"rollout": "grpo", "token": "dapo", "length": "dr_grpo", "sum": "dr_grpo", "prompt": "dapo"}


def write(p: Prescription) -> str:
    values, left = settings(p)
    how = [
        f"One process: {p.n} rollouts a device step x {p.B} accumulated = nB = {p.nB}.",
        "With P processes divide gradient_accumulation_steps by P.",
        "Give it model_name_or_path, dataset_name and your reward function.",
        "To bring the run back with `isocost import`: eval_on_start: true, eval_strategy: steps, and "
        "trainer.save_state() at the end.",
    ]
    body = "".join(f"{k}: {shown(v)}\n" for k, v in values.items() if v is not None)
    return head(p, sys.modules[__name__], how, left) + body


def settings(p: Prescription) -> tuple[dict[str, Any], list[str]]:
    """(GRPOConfig's arguments, what they cannot say)."""
    values: dict[str, Any] = {
        "num_generations": p.n,
        "per_device_train_batch_size": p.n,
        "gradient_accumulation_steps": p.B,
        "max_steps": p.M,
        "learning_rate": float(p.lr),
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": p.warmup,
        "temperature": p.temperature,
        "top_p": p.top_p,
        "top_k": p.top_k,
        "max_completion_length": p.max_tokens,
        "seed": p.seed,
        "logging_steps": 1,
    }
    left = ["the first rung of the warm-up: transformers begins it at a rate of 0"] if p.warmup else []
    left += unsaid(p, DEFAULTS)
    if p.loss is None:
        return values, left
    loss = p.loss
    values |= {
        "beta": loss.kl,
        "num_iterations": loss.epochs,
        "scale_rewards": "group" if loss.advantage == "spread" else "none",
        "loss_type": LOSSES[loss.average],
        "entropy_coef": loss.entropy,
    }
    if loss.surrogate == "truncated":
        values |= {"loss_type": "cispo", "epsilon_high": loss.high}
        if loss.average != "token":
            left.append(f"the average per {loss.average}: cispo averages over all tokens of the batch")
    elif loss.surrogate == "reinforce":
        left.append("the plain policy gradient: with one update per batch the clipped loss has the same gradient")
    else:
        values |= {
            "epsilon": loss.low,
            "epsilon_high": loss.high,
            "importance_sampling_level": "sequence" if loss.surrogate == "sequence" else "token",
        }
    if loss.surrogate != "truncated" and loss.average == "prompt":
        left.append("the average per prompt: dapo averages over all tokens of the batch")
    if loss.average == "length" and loss.tokens != p.max_tokens:
        left.append(f"the constant length {loss.tokens} of the average: dr_grpo divides by max_completion_length")
    if loss.average == "sum":
        left.append(
            "the sum over a rollout's tokens: dr_grpo is that divided by max_completion_length, which Adam undoes"
        )
    if loss.advantage == "others":
        left.append("leave-one-out: it is r - mean r times n / (n - 1), a constant that Adam undoes")
    if loss.advantage == "batch":
        left.append("a baseline over the batch: TRL's is of the group")
    if loss.kl and loss.estimate != "k3":
        left.append(f"KL by {loss.estimate}: TRL estimates it by k3")
    if loss.cap is not None:
        values |= {
            "vllm_importance_sampling_correction": True,
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_importance_sampling_clip_max": loss.cap,
        }
        left.append(
            "the correction of the sampler works with use_vllm: true only; without it there is nothing to correct"
        )
    if loss.dual:
        left.append(f"the dual clip at {loss.dual}")
    if loss.minibatches > 1:
        values["gradient_accumulation_steps"] = max(1, p.B // loss.minibatches)
        values["steps_per_generation"] = p.B
        values["max_steps"], values["warmup_steps"] = p.M * loss.minibatches, p.warmup * loss.minibatches
        left.append(
            f"M as such: a step is one of {loss.minibatches} mini-batches here, so max_steps is {loss.minibatches} M"
        )
    left += unmixed(loss, "TRL trains on all")
    return values, [*left, *aged(loss, "GRPOTrainer is synchronous"), *loss.odd]
