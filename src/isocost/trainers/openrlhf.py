"""OpenRLHF: a launch line for openrlhf.cli.train_ppo_ray.

rollout.batch_size counts problems, train.batch_size rollouts: nB makes one update of a batch. Training length is in
episodes, passes over the dataset, so M needs the number of problems; less than one pass is --data.max_samples.

Driving: the same options, and those of evaluations, checkpoints and TensorBoard, whose folder every attempt has for
itself. It has no option to stop after M updates, so its process is ended once its last evaluation is logged. It does
not evaluate before the first update: the base is measured by a run of one update at a learning rate of 0. A
checkpoint is written before the evaluation of its step (openrlhf/trainer/ppo_trainer.py), and a run that continues
does not evaluate it again, so checkpoints that would skip an evaluation are put aside. --data.max_samples also cuts
the evaluation problems, and stays the user's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

from isocost.errors import UserError
from isocost.trainers import tensorboard
from isocost.trainers.driving.drive import Begin, Setup, checkpoints, pass_over
from isocost.trainers.driving.export import Prescription, aged, command, preamble, shown, unsaid
from isocost.trainers.reading.names import Names, Settings
from isocost.trainers.reading.text import whole

TITLE = "OpenRLHF"
SIZES = (
    "--rollout.n_samples_per_prompt {n}",
    "--rollout.batch_size {B}",
    "--train.num_episodes: M × B / problems",
)
SETTINGS = Settings(model=("actor.model_name_or_path",))
LOGGED = Names(
    "OpenRLHF",
    "step",
    (r"train/rollout/reward_mean", r"train/reward"),
    (r"eval/eval_.+_pass1",),
    lr="train/actor_lr",
    span="train/timing/step_total",
    length="train/rollout/response_length_mean",
)
NAMES = (LOGGED,)
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
    words = [" ".join(words) for words in _words(values)]
    return preamble(p, sys.modules[__name__], how, left) + command(["python3 -m openrlhf.cli.train_ppo_ray", *words])


def _words(values: Mapping[str, Any]) -> list[list[str]]:
    """The words of each option; one that is False or None is left out."""
    given = {k: v for k, v in values.items() if v is not None and v is not False}
    return [[f"--{k}"] if v is True else [f"--{k}", shown(v)] for k, v in given.items()]


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


# driving -------------------------------------------------------------------------------------------------------

MOST = "--data.max_samples"
LATEST = "latest"   # DeepSpeed's file with the name of the checkpoint that is loaded


def prepared(begin: Begin) -> Setup:
    """The options of an attempt. Raises UserError if the command does not say how many problems there are."""
    s, board, saved = begin.sizes, begin.folder / tensorboard.FOLDER, begin.out / "checkpoints"
    problems = _problems(begin.words)
    if problems < s.B:
        raise UserError(f"--trainer openrlhf: {MOST} {problems} is less than the {s.B} problems of an update")
    values, _ = settings(begin.prescription(problems))
    episodes = ceil(s.M * s.B / problems)
    there = _checkpoints(begin)
    last = begin.newest(there, again=False)
    for model in ("_actor", "_critic"):
        found = checkpoints(saved / model, PREFIX)
        pass_over((p for c, p in found.items() if last is None or c > last), begin.attempt)
        if found and last is not None:
            (saved / model / LATEST).write_text(f"{PREFIX}{last}", encoding="utf-8")
    values |= {
        "data.max_samples": None, "train.num_episodes": episodes,
        "actor.lr_warmup_ratio": round(s.warmup / (episodes * (problems // s.B)), 9),
        "eval.steps": begin.every, "eval.n_samples_per_prompt": s.samples,
        "ckpt.save_steps": begin.every, "ckpt.path": str(saved), "ckpt.max_num": 3,
        "ckpt.best_metric_key": "none", "ckpt.output_dir": str(begin.out / "model"),
        "ckpt.load_enable": last is not None,
        "logger.tensorboard_dir": str(board), "logger.logging_steps": 1,
    }
    options = [word for words in _words(values) for word in words]
    return Setup(options=options, kept={"newest": max(there, default=0)})


def _problems(words: Sequence[str]) -> int:
    """The number of training problems, as the command says."""
    given = [b for a, b in pairwise(words) if a == MOST]
    given += [w.partition("=")[2] for w in words if w.startswith(MOST + "=")]
    problems = whole(given[-1]) if given else None
    if problems is None:
        raise UserError(f"--trainer openrlhf: OpenRLHF counts its length in passes over the problems: add {MOST} N to "
                        "the command, with the number of your training problems")
    return problems


def _checkpoints(begin: Begin) -> dict[int, Any]:
    """The actor's checkpoints; the newest one is whole if DeepSpeed's file names it."""
    folder = begin.out / "checkpoints" / "_actor"
    found = checkpoints(folder, PREFIX)
    named = (folder / LATEST).read_text(encoding="utf-8").strip() if (folder / LATEST).exists() else ""
    newest = named.removeprefix(PREFIX)
    return {c: p for c, p in found.items() if newest.isdecimal() and c <= int(newest)}


PREFIX = "global_step"
DRIVE = tensorboard.drive(
    prepared, LOGGED, base=False, ends=False,
    lacks=(
        "the reward of the base: it is that of a run of one update at a learning rate of 0",
        "what was trained behind the last evaluation: TensorBoard shows that up to two minutes late, and the process "
        "is ended then",
    ),
)
