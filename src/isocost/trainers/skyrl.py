"""SkyRL: a launch line of overrides for skyrl.train.entrypoints.main_base.

train_batch_size and policy_mini_batch_size count problems (prompts).

Driving: the same overrides, and those of evaluations, checkpoints and TensorBoard: there is no file log. Every attempt
writes its events into a folder of its own (TENSORBOARD_DIR). A run that continues evaluates its checkpoint again
(eval_before_train).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from isocost.trainers import tensorboard
from isocost.trainers.driving import export
from isocost.trainers.driving.drive import Begin, Setup, checkpoints, marked, quoted
from isocost.trainers.reading.names import Names, Settings

TITLE = "SkyRL"
SIZES = (
    "generator.n_samples_per_prompt = {n}",
    "trainer.train_batch_size = {B}",
    "trainer.max_training_steps = {M}",
)
SETTINGS = Settings(model=("trainer.policy.model.path",))
LOGGED = Names(
    "SkyRL",
    "trainer/global_step",
    (r"reward/avg_raw_reward",),
    (r"eval/all/avg_score", r"eval/.+/avg_score"),
    lr="policy/policy_lr",
    epoch="trainer/epoch",
    span="timing/step",
    length="generate/avg_num_tokens",
    again=True,
)
NAMES = (LOGGED,)
VERSION = "SkyRL, skyrl_train 0.4 (skyrl/train/config/config.py)"
DEFAULTS = {
    "max_tokens": ("generator.sampling_params.max_generate_length", "1024"),
    "temperature": ("generator.sampling_params.temperature", "1"),
    "top_p": ("generator.sampling_params.top_p", "1"),
    "top_k": ("generator.sampling_params.top_k", "-1"),
}
AVERAGES = {
    "rollout": "sequence_mean",
    "token": "token_mean",
    "prompt": "prompt_mean",
    "length": "seq_mean_token_sum_norm",
    "sum": "seq_mean_token_sum_norm",
}
LOSSES = {"sequence": "gspo", "truncated": "cispo"}


def write(p: export.Prescription) -> str:
    values, left = settings(p)
    how = ["Give it trainer.policy.model.path, data.train_data, data.val_data and environment.env_class."]
    words = ["uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base", *export.options(values)]
    return export.preamble(p, sys.modules[__name__], how, left) + export.command(words)


def settings(p: export.Prescription) -> tuple[dict[str, Any], list[str]]:
    """(overrides, what they cannot express)."""
    algorithm, sampling = "trainer.algorithm", "generator.sampling_params"
    values: dict[str, Any] = {
        "generator.n_samples_per_prompt": p.n,
        "trainer.train_batch_size": p.B,
        "trainer.policy_mini_batch_size": p.B,
        "trainer.max_training_steps": p.M,
        "trainer.epochs": export.epochs(p),
        "trainer.update_epochs_per_batch": 1,
        "trainer.seed": p.seed,
        "trainer.policy.optimizer_config.lr": float(p.lr),
        "trainer.policy.optimizer_config.num_warmup_steps": p.warmup,
        "trainer.policy.optimizer_config.scheduler": "constant_with_warmup",
        f"{sampling}.temperature": p.temperature,
        f"{sampling}.top_p": p.top_p,
        f"{sampling}.top_k": export.top_k(p),
        f"{sampling}.max_generate_length": p.max_tokens,
    }
    left = [*export.uncounted(p), *export.unsaid(p, DEFAULTS)]
    if p.loss is None:
        return values, left
    loss = p.loss
    values |= {
        f"{algorithm}.advantage_estimator": export.estimator(loss),
        f"{algorithm}.grpo_norm_by_std": loss.advantage == "spread",
        f"{algorithm}.policy_loss_type": "dual_clip" if loss.dual else LOSSES.get(loss.surrogate, "regular"),
        f"{algorithm}.loss_reduction": AVERAGES[loss.average],
        f"{algorithm}.eps_clip_low": loss.low,
        f"{algorithm}.eps_clip_high": loss.high,
        f"{algorithm}.use_kl_loss": bool(loss.kl),
        f"{algorithm}.use_entropy_loss": bool(loss.entropy),
        "trainer.update_epochs_per_batch": loss.epochs,
        "trainer.policy_mini_batch_size": export.minibatch(p, loss),
    }
    if loss.dual:
        values[f"{algorithm}.clip_ratio_c"] = loss.dual
    if loss.surrogate == "truncated":
        low, high = export.cispo_range(loss)
        values |= {f"{algorithm}.cispo.cispo_eps_clip_low": low, f"{algorithm}.cispo.cispo_eps_clip_high": high}
    if loss.surrogate == "reinforce":
        left.append("the plain policy gradient: with one update per batch the clipped loss has the same gradient")
    if loss.kl:
        values |= {f"{algorithm}.kl_loss_coef": loss.kl, f"{algorithm}.kl_estimator_type": loss.estimate}
    if loss.entropy:
        values[f"{algorithm}.entropy_loss_coef"] = loss.entropy
    if loss.cap is not None:
        values |= {
            f"{algorithm}.off_policy_correction.tis_ratio_type": "token",
            f"{algorithm}.off_policy_correction.token_tis_ratio_clip_high": loss.cap,
        }
    if loss.average == "length":
        values[f"{algorithm}.max_seq_len"] = loss.tokens
    if loss.average == "sum":
        values[f"{algorithm}.max_seq_len"] = p.max_tokens
        left.append("the sum over a rollout's tokens: here it is divided by max_seq_len, which Adam undoes")
    if loss.keep_mixed:
        values[f"{algorithm}.dynamic_sampling.type"] = "filter" if loss.refill else None
        values[f"{algorithm}.zero_variance_filter"] = True
    left += export.group_baseline(loss, "grpo's")
    return values, [*left, *export.aged(loss, "trainer.fully_async and its entry point"), *loss.odd]


# driving -------------------------------------------------------------------------------------------------------


def prepared(begin: Begin) -> Setup:
    """The overrides of an attempt; it continues from the newest checkpoint that is whole and skips no evaluation."""
    values, _ = settings(begin.prescription())
    board, every = begin.folder / tensorboard.FOLDER, begin.sizes.eval_every
    whole = marked(begin.out / "latest_ckpt_global_step.txt")
    found = checkpoints(begin.out, "global_step_", "policy", "trainer_state.pt")
    there = {c: p for c, p in found.items() if c <= whole}
    last = begin.newest(there, again=True)
    values |= {
        "trainer.logger": "tensorboard", "trainer.run_name": quoted(Path(begin.sizes.name)),
        "trainer.eval_before_train": True, "trainer.eval_interval": every,
        "generator.eval_n_samples_per_prompt": begin.sizes.samples,
        "trainer.ckpt_path": quoted(begin.out), "trainer.ckpt_interval": every, "trainer.max_ckpts_to_keep": 2,
        "trainer.resume_mode": "none" if last is None else "from_path",
        "trainer.resume_path": None if last is None else quoted(there[last]),
    }
    return Setup(options=export.options(values), env={"TENSORBOARD_DIR": str(board)},
                 kept={"newest": max(there, default=0)})


DRIVE = tensorboard.drive(prepared, LOGGED)
