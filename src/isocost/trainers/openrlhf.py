"""OpenRLHF: a launch line for openrlhf.cli.train_ppo_ray.

rollout.batch_size counts problems, train.batch_size rollouts: nB makes one update of a batch. Training length is in
episodes, passes over the dataset, so M needs the number of problems; less than one pass is --data.max_samples.
"""

from __future__ import annotations

import sys
from math import ceil
from typing import Any

from isocost.trainers.export import Prescription, aged, command, preamble, shown, unsaid

TITLE = "OpenRLHF"
SIZES = (
    "--rollout.n_samples_per_prompt {n}",
    "--rollout.batch_size {B}",
    "--train.num_episodes: M × B / problems",
)
VERSION = "OpenRLHF 0.11 (openrlhf/cli/train_ppo_ray.py)"
DEFAULTS = {
    "max_tokens": ("rollout.max_new_tokens", "unset (data.max_len, 2048, less the prompt)"),
    "temperature": ("rollout.temperature", "1"),
    "top_p": ("rollout.top_p", "1"),
}
ADVANTAGES = {"spread": "group_norm", "mean": "dr_grpo", "others": "rloo", "batch": "reinforce"}


def write(p: Prescription) -> str:
    values, left = settings(p)
    how = ["Give it --actor.model_name_or_path, --data.prompt_dataset and --reward.remote_url."]
    words = [
        f"--{k}" if v is True else f"--{k} {shown(v)}" for k, v in values.items() if v is not None and v is not False
    ]
    return preamble(p, sys.modules[__name__], how, left) + command(["python3 -m openrlhf.cli.train_ppo_ray", *words])


def settings(p: Prescription) -> tuple[dict[str, Any], list[str]]:
    """(options, what they cannot express)."""
    values: dict[str, Any] = {
        "rollout.n_samples_per_prompt": p.n,
        "rollout.batch_size": p.B,
        "train.batch_size": p.nB,
        "train.max_epochs": 1,
        "train.num_episodes": None if not p.problems else ceil(p.M * p.B / p.problems),
        "train.seed": p.seed,
        "actor.adam.lr": float(p.lr),
        "actor.lr_scheduler": "constant_with_warmup",
        "actor.lr_warmup_ratio": round(p.warmup / p.M, 6),
        "rollout.temperature": p.temperature,
        "rollout.top_p": p.top_p,
        "rollout.max_new_tokens": p.max_tokens,
        "algo.kl.init_coef": 0.0,
    }
    filtered = p.loss is not None and p.loss.keep_mixed
    if filtered:
        left = [
            "M exactly: a group that is left out takes another problem, so M updates take more than M x B of them; "
            f"raise --train.num_episodes as far as that needs, and stop at {p.M} updates"
        ]
    elif p.problems and p.problems >= p.M * p.B:
        values |= {"data.max_samples": p.M * p.B, "train.num_episodes": 1}
        left = []
    elif p.problems:
        left = [
            f"M exactly: {values['train.num_episodes']} passes over {p.problems} problems are "
            f"{values['train.num_episodes'] * p.problems // p.B} updates, not {p.M}"
        ]
    else:
        left = [f"M: set --train.num_episodes to {p.M} x {p.B} / (problems in your dataset)"]
    if p.top_k:
        left.append(f"top-k {p.top_k}")
    left += unsaid(p, DEFAULTS)
    if p.loss is None:
        del values["algo.kl.init_coef"]
        return values, left
    loss = p.loss
    values |= {
        "algo.advantage.estimator": ADVANTAGES[loss.advantage],
        "algo.kl.init_coef": loss.kl,
        "train.max_epochs": loss.epochs,
        "train.batch_size": p.nB // loss.minibatches,
    }
    if loss.kl:
        values |= {"algo.kl.use_loss": True, "algo.kl.estimator": loss.estimate}
    if loss.entropy:
        values["actor.entropy_coef"] = loss.entropy
    if loss.surrogate in ("clipped", "sequence"):
        values |= {
            "actor.eps_clip_low_high": f"{loss.low:g} {loss.high:g}",
            "actor.policy_loss_type": "gspo" if loss.surrogate == "sequence" else "ppo",
        }
    else:
        left.append(f"the {loss.surrogate} surrogate: OpenRLHF has ppo and gspo")
    if loss.dual:
        values["actor.dual_clip"] = loss.dual
    if loss.cap is not None:
        values |= {"algo.advantage.is_correction_enable": True, "algo.advantage.is_correction_type": "tis"}
        left.append(f"the cap {loss.cap:g} on learner over sampler: see --algo.advantage.is_correction_threshold")
    if loss.average != "token":
        left.append(f"the average per {loss.average}: OpenRLHF averages over tokens")
    if filtered:
        values["algo.dynamic_filtering_enable"] = True
        if not loss.refill:
            left.append("leaving out groups with one reward throughout, without refilling")
    return values, [*left, *aged(loss, "--train.async_enable"), *loss.odd]
