"""verl: a launch line of Hydra overrides for verl.trainer.main_ppo.

train_batch_size and ppo_mini_batch_size count problems (prompts); each is sampled rollout.n times.
"""

from __future__ import annotations

import sys
from typing import Any

from isocost.exporters import Prescription, aged, command, epochs, head, options, uncounted, unmixed, unsaid

TITLE = "verl"
VERSION = "verl 0.7 (verl/trainer/config/_generated_ppo_trainer.yaml)"
DEFAULTS = {
    "max_tokens": ("data.max_response_length", "512"),
    "temperature": ("actor_rollout_ref.rollout.temperature", "1"),
    "top_p": ("actor_rollout_ref.rollout.top_p", "1"),
    "top_k": ("actor_rollout_ref.rollout.top_k", "-1"),
}
AVERAGES = {
    "rollout": "seq-mean-token-mean",
    "token": "token-mean",
    "sum": "seq-mean-token-sum",
    "length": "seq-mean-token-sum-norm",
    "prompt": "token-mean",
}
LOSSES = {"clipped": "vanilla", "sequence": "gspo", "truncated": "cispo", "reinforce": "gpg"}
KL = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}


def write(p: Prescription) -> str:
    values, left = settings(p)
    how = [
        "Give it actor_rollout_ref.model.path, actor_rollout_ref.rollout.name, data.train_files, data.val_files",
        "and your reward.",
        "To bring the run back with `isocost import`: trainer.logger=[console,file], "
        "trainer.val_before_train=true and trainer.test_freq.",
    ]
    return head(p, sys.modules[__name__], how, left) + command(["python3 -m verl.trainer.main_ppo", *options(values)])


def settings(p: Prescription) -> tuple[dict[str, Any], list[str]]:
    """(overrides, what they cannot say)."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    loss = p.loss
    values: dict[str, Any] = {
        "data.train_batch_size": p.B,
        "data.max_response_length": p.max_tokens,
        "data.seed": p.seed,
        f"{rollout}.n": p.n,
        f"{rollout}.temperature": p.temperature,
        f"{rollout}.top_p": p.top_p,
        f"{rollout}.top_k": (p.top_k or -1) if p.top_k is not None else None,
        f"{actor}.ppo_mini_batch_size": p.B,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.optim.lr": float(p.lr),
        f"{actor}.optim.lr_scheduler_type": "constant",
        f"{actor}.optim.lr_warmup_steps": p.warmup,
        "trainer.total_training_steps": p.M,
        "trainer.total_epochs": epochs(p),
    }
    left = [*uncounted(p), *unsaid(p, DEFAULTS)]
    if loss is None:
        return values, left
    values |= {
        "algorithm.adv_estimator": "rloo" if loss.advantage == "others" else "grpo",
        "algorithm.norm_adv_by_std_in_grpo": loss.advantage == "spread",
        "algorithm.use_kl_in_reward": False,
        f"{actor}.policy_loss.loss_mode": LOSSES[loss.surrogate],
        f"{actor}.loss_agg_mode": AVERAGES[loss.average],
        f"{actor}.entropy_coeff": loss.entropy,
        f"{actor}.use_kl_loss": bool(loss.kl),
        f"{actor}.ppo_epochs": loss.epochs,
        f"{actor}.ppo_mini_batch_size": max(1, p.B // loss.minibatches),
    }
    if loss.surrogate != "reinforce":
        values |= {f"{actor}.clip_ratio_low": loss.low, f"{actor}.clip_ratio_high": loss.high}
    if loss.surrogate == "truncated":
        values[f"{actor}.clip_ratio_high"] = loss.high - 1
        values[f"{actor}.clip_ratio_low"] = 1.0
    if loss.surrogate == "clipped":
        values[f"{actor}.clip_ratio_c"] = loss.dual or 10.0
        if not loss.dual:
            left.append("no dual clip: verl always has one, here moved out of the way (clip_ratio_c=10)")
    if loss.kl:
        values |= {f"{actor}.kl_loss_coef": loss.kl, f"{actor}.kl_loss_type": KL[loss.estimate]}
    if loss.advantage == "batch":
        left.append("a baseline over the batch: grpo's is of the group")
    if loss.cap is not None:
        values |= {
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_is_threshold": loss.cap,
            f"{rollout}.calculate_log_probs": True,
        }
    if loss.average == "prompt":
        left.append("the average per prompt: token-mean averages over all tokens of the batch")
    if loss.average == "length":
        values[f"{actor}.loss_scale_factor"] = loss.tokens
    left += unmixed(loss, "in verl that is the DAPO recipe's trainer (algorithm.filter_groups)")
    return values, [*left, *aged(loss, "main_ppo is synchronous"), *loss.odd]
