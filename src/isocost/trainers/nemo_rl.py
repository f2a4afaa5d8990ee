"""NeMo-RL: a launch line of overrides for examples/run_grpo.py over examples/configs/grpo_math_1B.yaml.

num_prompts_per_step counts problems; train_global_batch_size counts rollouts, and is the whole batch where one step
is one update.

Driving: the same overrides, and those of validation, checkpoints and TensorBoard, whose folder every attempt has for
itself. A run continues from the newest checkpoint in its folder and does not validate that again, so checkpoints that
would skip a validation are put aside. Validation comes before the checkpoint of its step (nemo_rl/algorithms/grpo.py).
"""

from __future__ import annotations

import sys
from typing import Any

from isocost.trainers import tensorboard
from isocost.trainers.driving import export
from isocost.trainers.driving.drive import Begin, Setup, checkpoints, pass_over, quoted
from isocost.trainers.reading.names import Names, Settings

TITLE = "NeMo-RL"
SIZES = (
    "grpo.num_generations_per_prompt = {n}",
    "grpo.num_prompts_per_step = {B}",
    "grpo.max_num_steps = {M}",
)
SETTINGS = Settings(
    lr=("policy.megatron_cfg.optimizer.lr",),       # where policy.optimizer is null
    model=("policy.model_name",),
)
LOGGED = Names(
    "NeMo-RL",
    "step",
    (r"train/reward",),
    (r"validation/accuracy", r"validation/.+/accuracy"),
    lr="train/lr",
    span="timing/train/total_step_time",
    length="train/mean_gen_tokens_per_sample",
)
VERSION = "NeMo-RL 0.7 (examples/configs/grpo_math_1B.yaml)"
DEFAULTS = {
    "max_tokens": ("policy.generation.max_new_tokens", "policy.max_total_sequence_length, 512"),
    "temperature": ("policy.generation.temperature", "1"),
    "top_p": ("policy.generation.top_p", "1"),
    "top_k": ("policy.generation.top_k", "null"),
}


def write(p: export.Prescription) -> str:
    values, left = settings(p)
    how = ["Give it policy.model_name, data and env. policy.max_total_sequence_length holds prompt and answer."]
    words = ["uv run examples/run_grpo.py --config examples/configs/grpo_math_1B.yaml", *export.options(values)]
    return export.preamble(p, sys.modules[__name__], how, left) + export.command(words)


def settings(p: export.Prescription) -> tuple[dict[str, Any], list[str]]:
    """(overrides, what they cannot express)."""
    generation = "policy.generation"
    values: dict[str, Any] = {
        "grpo.num_prompts_per_step": p.B,
        "grpo.num_generations_per_prompt": p.n,
        "grpo.max_num_steps": p.M,
        "grpo.max_num_epochs": export.epochs(p),
        "grpo.seed": p.seed,
        "policy.train_global_batch_size": p.nB,
        "policy.optimizer.kwargs.lr": float(p.lr),
        f"{generation}.temperature": p.temperature,
        f"{generation}.top_p": p.top_p,
        f"{generation}.top_k": p.top_k or None,
        f"{generation}.max_new_tokens": p.max_tokens,
    }
    if p.warmup:
        values |= {"policy.scheduler.0.kwargs.total_iters": p.warmup, "policy.scheduler.2.milestones": f"[{p.warmup}]"}
        left = ["a warm-up from 0: the schedule's first part begins at a tenth of the rate (start_factor)"]
    else:
        values |= {"policy.scheduler.0.kwargs.start_factor": 1.0}
        left = []
    left += [*export.uncounted(p), *export.unsaid(p, DEFAULTS)]
    if p.loss is None:
        return values, left
    loss = p.loss
    values |= {
        "grpo.normalize_rewards": loss.advantage == "spread",
        "grpo.use_leave_one_out_baseline": loss.advantage == "others",
        "grpo.use_dynamic_sampling": loss.keep_mixed and loss.refill,
        "loss_fn.reference_policy_kl_penalty": loss.kl,
        "loss_fn.ratio_clip_min": loss.low,
        "loss_fn.ratio_clip_max": loss.high,
        "loss_fn.token_level_loss": loss.average == "token",
        "loss_fn.sequence_level_importance_ratios": loss.surrogate == "sequence",
        "loss_fn.use_cispo": loss.surrogate == "truncated",
        "loss_fn.disable_ppo_ratio": loss.surrogate == "reinforce",
        "policy.train_global_batch_size": max(p.n, p.nB // loss.minibatches),
    }
    if loss.surrogate == "truncated":
        values["loss_fn.ratio_clip_min"], values["loss_fn.ratio_clip_max"] = export.cispo_range(loss)
        values["loss_fn.token_level_loss"] = True
    if loss.kl:
        values["loss_fn.reference_policy_kl_type"] = loss.estimate
    if loss.cap is not None:
        values |= {
            "loss_fn.use_importance_sampling_correction": True,
            "loss_fn.truncated_importance_sampling_type": "tis",
            "loss_fn.truncated_importance_sampling_ratio": loss.cap,
        }
    if loss.dual:
        values["loss_fn.ratio_clip_c"] = loss.dual
    if loss.entropy:
        left.append(f"the entropy bonus {loss.entropy:g}")
    if loss.average not in ("token", "rollout") or (loss.surrogate == "truncated" and loss.average != "token"):
        over = "tokens, as CISPO asks there" if loss.surrogate == "truncated" else "tokens or over rollouts"
        left.append(f"the average per {loss.average}: the loss averages over {over}")
    if loss.epochs > 1:
        left.append(f"{loss.epochs} passes over a batch: NeMo-RL makes one")
    if loss.keep_mixed and not loss.refill:
        left.append("leaving out groups with one reward throughout, without refilling")
    left += export.group_baseline(loss, "its baseline")
    return values, [*left, *export.aged(loss, "grpo.async_grpo.enabled and its settings"), *loss.odd]


# driving -------------------------------------------------------------------------------------------------------


def prepared(begin: Begin) -> Setup:
    """The overrides of an attempt; it continues from the newest checkpoint that skips no validation."""
    values, _ = settings(begin.prescription())
    board, saved = begin.folder / tensorboard.FOLDER, begin.out / "checkpoints"
    there = checkpoints(saved, "step_")
    last = begin.newest(there, again=False)
    pass_over((p for c, p in there.items() if last is None or c > last), begin.attempt)
    values |= {
        "grpo.val_period": begin.sizes.eval_every, "grpo.val_at_start": True, "grpo.val_at_end": True,
        "grpo.val_num_generations_per_prompt": begin.sizes.samples,
        "checkpointing.enabled": True, "checkpointing.checkpoint_dir": quoted(saved),
        "checkpointing.save_period": begin.sizes.eval_every, "checkpointing.metric_name": "null",
        "checkpointing.keep_top_k": 2,
        "logger.log_dir": quoted(board), "logger.tensorboard_enabled": True,
    }
    return Setup(options=export.options(values), kept={"newest": max(there, default=0)})


DRIVE = tensorboard.drive(prepared, LOGGED)
