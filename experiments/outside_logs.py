"""The public training logs that `experiments/outside.py` judges the law on: where they are, and how they are read.

Each source is one repository. A study in it is one setting, with a log for each seed. The manifest
(experiments/results/outside/manifest.json) has each log's path, commit, sha256, number of points and licence, how it
was read, and whether `isocost import` reads it as it is. No log is part of this repository.

To read them again, put a git repository of each source into a folder, as MIRROR/OWNER/NAME, with the commit of the
manifest, and run

    python experiments/outside.py collect MIRROR

which stops if a file differs from the manifest. Without a manifest it writes one.

The split, by source, is fixed before any curve is fitted: a source is in the tuning half if the first byte of the
sha256 of its name is even. Sources that the noise model was designed on (`SEEN`) are always in the tuning half.

Rewards are brought to [0, 1] by the limits that a study names: those of the reward function where it has some (a share
of right answers; returns of dm_control from 0 to 1000), else round numbers around all logged values, hidden ones
included (marked `around`).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.trainers.reading import logs

TRAINING, HELD_OUT, CONTROL = "LLM training reward", "LLM held-out", "control"
SEEN = ("rasbt/reasoning-from-scratch", "TiandaSun/KG_GRPO", "beibeizzz/countdown_post_train", "facebookresearch/drqv2")
SIZE = 8        # rollouts counted per update; only ratios of C matter here
Series = list[tuple[float, float]]      # (step, value), in order


@dataclass(frozen=True)
class Study:
    """One setting of one source: a log per seed, `read` as (updates before the value was measured, value) each.

    `limits` are the values that become 0 and 1; `around` if they are only round numbers around all logged values.
    """

    name: str
    kind: str
    paths: tuple[str, ...]
    read: Callable[[bytes], list[Series]]
    how: str
    limits: tuple[float, float] = (0.0, 1.0)
    around: bool = False


@dataclass(frozen=True)
class Source:
    """One repository with its licence and studies."""

    name: str
    licence: str
    what: str
    studies: tuple[Study, ...]

    @property
    def half(self) -> str:
        """tuning or reporting, by a hash of the name."""
        even = hashlib.sha256(self.name.encode()).digest()[0] % 2 == 0
        return "tuning" if self.name in SEEN or even else "reporting"


# readers: bytes -> series, one for each seed in the file ------------------------------------------------------------

def text(data: bytes) -> str:
    """Bytes as text."""
    return data.decode("utf-8", "replace")


def rows(found: Sequence[dict[str, Any]], step: str | None, value: str) -> list[Series]:
    """Rows as one series; a training reward of `step` k was earned before update k, so the first is the base's.

    The steps are counted from the first row, whose value is the base's: it covers at most a twentieth of the run.
    """
    has = [(float(r[step]) if step else float(i), float(r[value])) for i, r in enumerate(found)
           if r.get(value) not in (None, "") and (step is None or r.get(step) is not None)]
    first = has[0][0]
    return [[(at - first, x) for at, x in has]]


def jsonl(step: str | None, value: str) -> Callable[[bytes], list[Series]]:
    """A file of JSON lines."""
    return lambda data: rows([json.loads(x) for x in text(data).splitlines() if x.startswith("{")], step, value)


def table(step: str | None, value: str, *path: str) -> Callable[[bytes], list[Series]]:
    """A JSON list of objects, below keys if some are given."""
    def read(data: bytes) -> list[Series]:
        found = json.loads(text(data))
        for key in path:
            found = found[key]
        return rows(found, step, value)
    return read


def several(step: str, value: str, every: int) -> Callable[[bytes], list[Series]]:
    """A JSON list with several rows a step, which are averaged; steps are then averaged in blocks of `every`."""
    def read(data: bytes) -> list[Series]:
        by: dict[int, list[float]] = {}
        for row in json.loads(text(data)):
            by.setdefault(int(row[step]) // every, []).append(float(row[value]))
        return [[(float(every * k), float(np.mean(v))) for k, v in sorted(by.items())]]
    return read


def pattern(expression: str) -> Callable[[bytes], list[Series]]:
    """Text in which an expression finds (step, value), or the value alone."""
    def read(data: bytes) -> list[Series]:
        found = re.findall(expression, text(data))
        pairs = [x if isinstance(x, tuple) else (str(i), x) for i, x in enumerate(found)]
        return rows([{"step": float(a), "value": float(b)} for a, b in dict(pairs).items()], "step", "value")
    return read


def columns(step: str, value: str, seed: str = "", where: tuple[str, str] | None = None, most: int = 5,
            also: tuple[str, str] | None = None) -> Callable[[bytes], list[Series]]:
    """CSV, with a column of seeds if one is named; `where` and `also` select rows. The first `most` seeds."""
    def read(data: bytes) -> list[Series]:
        by: dict[str, list[dict[str, Any]]] = {}
        for row in csv.DictReader(io.StringIO(text(data))):
            if all(only is None or row[only[0]] == only[1] for only in (where, also)):
                by.setdefault(row[seed] if seed else "", []).append(row)
        return [rows(found, step, value)[0] for _, found in sorted(by.items())[:most]]
    return read


def last(read: Callable[[bytes], list[Series]]) -> Callable[[bytes], list[Series]]:
    """The last value of each step: a resumed run logs some of its steps again."""
    return lambda data: [sorted(dict(series).items()) for series in read(data)]


def scores(task: str, most: int = 5) -> Callable[[bytes], list[Series]]:
    """Gzipped JSON with xs and ys of each task and seed."""
    return lambda data: scores_in(task, most)(gzip.decompress(data))


def scores_in(task: str, most: int = 5) -> Callable[[bytes], list[Series]]:
    """JSON with xs and ys of each task and seed."""
    def read(data: bytes) -> list[Series]:
        found = [x for x in json.loads(data) if x["task"] == task][:most]
        return [rows([{"x": x, "y": y} for x, y in zip(one["xs"], one["ys"], strict=True)], "x", "y")[0]
                for one in found]
    return read


def array(data: bytes) -> list[Series]:
    """A one-dimensional array of numpy: one value per evaluation."""
    return [[(float(i), float(x)) for i, x in enumerate(np.load(io.BytesIO(data)))]]


def pairs(data: bytes) -> list[Series]:
    """Lines of step and value."""
    return rows([dict(zip(("x", "y"), line.split(), strict=True)) for line in text(data).splitlines()], "x", "y")


STATE = table("step", "reward", "log_history")


# the sources --------------------------------------------------------------------------------------------------------

def one(name: str, path: str | Sequence[str], read: Callable[[bytes], list[Series]], how: str, kind: str = TRAINING,
        limits: tuple[float, float] = (0.0, 1.0), around: bool = False) -> Study:
    """A study, of one path or one for each seed."""
    return Study(name, kind, (path,) if isinstance(path, str) else tuple(path), read, how, limits, around)


def _dynamics() -> tuple[Study, ...]:
    stats, mean = "aser_step_stats.json", several("step", "mean_reward", 4)
    how = "mean_reward by step, rows of 4 steps averaged"
    groups = {
        "drgrpo_g4": [f"results/drgrpo_g4_safe/drgrpo_g4s_seed{s}/{stats}" for s in (42, 43, 44, 45)],
        "tasa_g4": [f"results/tasa_g4_safe/tasa_g4s_seed{s}/{stats}" for s in (42, 43, 44, 45)],
        "spo_dup": [f"results/wave10_aser/spo_dup_seed{s}/{stats}" for s in (42, 43, 44)],
        "spo_full": [f"results/wave10_aser/spo_full_seed{s}/{stats}" for s in (42, 43, 44, 46, 47)],
        "spo_only": [f"results/wave10_aser/spo_only_seed{s}/{stats}" for s in (42, 43, 44)],
        "fixed_sampler": [f"results/wave11_aser_fixed_sampler/aser_fixedsampler_seed{s}/{stats}" for s in (42, 43, 44)],
        "phase_a0.1_b1.0": [f"results/wave14_phase_diagram/phase_a0.1_b1.0_seed42/{stats}"],
        "phase_a0.9_b2.0": [f"results/wave14_phase_diagram/phase_a0.9_b2.0_seed42/{stats}"],
    }
    found = [one(name, paths, mean, how) for name, paths in groups.items()]
    for rho in ("0.70", "1.00", "3.00"):
        paths = [f"results/qwen35/sweep_coarse/rho{rho}_seed{s}/step_logs.json" for s in (42, 43, 44)]
        found.append(one(f"sweep rho{rho}", paths, table("step", "reward"), "reward by step"))
    return tuple(found)


def _tinker() -> tuple[Study, ...]:
    folder = "experiments/tinker-runs/logs/"
    read, how = pattern(r"(\d+)/\d+ \|.*?reward=([\d.]+)"), "step/steps | ... reward="
    singles = ("grpo_100_math", "grpo_100_synth", "grpo_100_xlam", "grpo_exp_a", "grpo_exp_c", "grpo_exp_d",
               "gsm8k_4B_s137", "gsm8k_8B_100step", "gsm8k_8B_rank8", "gsm8k_8B_rank16", "gsm8k_8B_rank64")
    seeds = [f"{folder}gsm8k_8B_s{s}.log" for s in ("042", "137", "256", "512", "999")]
    return (one("gsm8k_8B", seeds, read, how), *(one(name, f"{folder}{name}.log", read, how) for name in singles),
            one("arithmetic", "experiments/results/arithmetic_metrics.jsonl", jsonl("step", "env/all/reward/total"),
                "env/all/reward/total by step"))


def _verifier() -> tuple[Study, ...]:
    names = ("augment", "balanced", "cmaj", "consistency", "qwen05b_ce", "qwen05b_mitigated", "qwen05b_naive",
             "warmstart_w1_reinforce", "warmstart_w2_kl", "warmstart_w3_exactpg")
    return tuple(one(name, [f"training_log_{name}_seed{s}.jsonl" for s in (7, 8, 9)], jsonl("step", "accuracy"),
                     "accuracy on 120 held-out actions by step", HELD_OUT) for name in names)


def _rasbt() -> tuple[Study, ...]:
    names = ("7_3_plus_tracking", "7_4_plus_clip_ratio", "7_5_plus_kl")
    folder = "ch07/02_logs/"
    train = [one(name, f"{folder}{name}_metrics.csv", last(columns("step", "reward_avg")), "reward_avg by step")
             for name in names]
    held = [one(f"{name}, held-out", f"{folder}{name}_metrics.csv", last(columns("step", "eval_acc")),
                "eval_acc by step", HELD_OUT, (0.0, 100.0)) for name in names]
    return (*train, *held)


def _control(folder: str, tasks: Sequence[str], step: str, value: str) -> tuple[Study, ...]:
    return tuple(one(task, f"{folder}{task}.csv", columns(step, value, "seed"), f"{value} by {step} and seed", CONTROL,
                     (0.0, 1000.0)) for task in tasks)


VERL = pattern(r"step:(\d+) - .*?critic/rewards/mean:(?:np\.float64\()?(-?[\d.e-]+)")
PRINTED = pattern(r"\{'loss'[^}]*?'reward': (-?[\d.e-]+)")
SOURCES = (
    Source("Sunshine535/nips-grpo-dynamics", "none", "GRPO variants on GSM8K", _dynamics()),
    Source("arvindcr4/tinker-rl-lab", "Apache-2.0", "GRPO by Tinker on GSM8K, MATH, tools, arithmetic", _tinker()),
    Source("Dawn-Of-Justice/Fair-RLVR", "MIT", "GRPO on BBQ", (
        one("batches", "results/fair_rlvr/logs/batch_logs.json", table("step", "accuracy"), "accuracy by step"),)),
    Source("wallacexuhanxiao/FinQA-tool-calling-GRPO-GSPO", "none", "GRPO on FinQA with tools, one prompt a step", (
        one("stage 7", "logs/agent/train_stage7_grpo_long2400_r32.log", PRINTED, "'reward' in printed lines",
            limits=(-1.5, 2.0), around=True),)),
    Source("HaoranLuo/text2sql-grpo", "MIT", "GRPO on text to SQL", (
        one("1000 steps", "visualization_1000/trainer_state_1000steps.json", STATE, "log_history"),)),
    Source("qhy991/GRPO-Clean-2", "none", "GRPO on Verilog, summed rewards", (
        one("8B 0612", "enhanced_grpo_8B_runs/v3-LR6e-6-R16-20250612-175657/checkpoint-600/trainer_state.json", STATE,
            "log_history", limits=(0.0, 12.0), around=True),
        one("8B 0615", "enhanced_grpo_8B_runs/v3-LR6e-6-R16-20250615-021543/checkpoint-310/trainer_state.json", STATE,
            "log_history", limits=(0.0, 12.0), around=True),
        one("model parallel",
            "model_parallel_only_outputs/pure-model-parallel-LR2e-5-R64-20250616-081316/checkpoint-280/"
            "trainer_state.json", STATE, "log_history", limits=(-1.0, 12.0), around=True))),
    Source("aashkashah09/rec-grpo", "none", "GRPO on recommendation, NDCG with a bonus", tuple(
        one(name, f"results/logs/grpo_{name}.jsonl", jsonl("step", "ndcg_mean"), "ndcg_mean by step")
        for name in ("cap1", "cap5", "capinf", "lambda0", "lambda0.25", "lambda0.5", "lambda1", "lambda2", "lambda4",
                     "lambda8"))),
    Source("Th3CtrLKeY/Enhancing-SLMs-via-GRPO-and-Physics-based-RL", "none", "GRPO with a physics reward", (
        one("GRPO5", "GRPO5_LoRA_Expanded/training_metrics.json", table("step", "reward", "steps"), "steps"),)),
    Source("uqcxu9/qwen2.5_300step_NEW_CONSIS_RESULT", "none", "verl GRPO on economic decisions", tuple(
        one(name, f"logs/{name}.log", VERL, "critic/rewards/mean by step", limits=(-1.0, 1.0))
        for name in ("train_300steps", "train_v2_300steps", "train_v3_reward", "rl_train"))),
    Source("ShahramDadras/NLA---Replication", "BSD-2-Clause", "GRPO of a language autoencoder", (
        one("training", "results/training_log.jsonl", jsonl("step", "mean_reward"), "mean_reward by step",
            limits=(0.0, 2.0), around=True),)),
    Source("Rusheel86/Chaos-Economy", "none", "TRL GRPO on a market game", (
        one("training", "training_logs.json", STATE, "log_history", limits=(-2.0, 3.0), around=True),)),
    Source("alexchilton/CAS_NLP_MODULE4_GRPO", "none", "TRL GRPO on Wordle", (
        one("4090", "lara/output_4090/wordle-grpo/checkpoint-400/trainer_state.json", STATE, "log_history",
            limits=(-2.0, 2.0), around=True),
        one("stage 2", "expert_guy/post_training_project/threestage/stage2_output/checkpoint-160/trainer_state.json",
            STATE, "log_history", limits=(-3.0, 3.0), around=True))),
    Source("Ning-Guo/hotpotqa-agent", "none", "TRL GRPO on HotpotQA", tuple(
        one(name, f"logs/{name}.log", PRINTED, "'reward' in printed lines")
        for name in ("grpo", "grpo_v2", "grpo_v3"))),
    Source("Prem01-cyber/AxiomForgeAI", "none", "GRPO on mathematics with a process reward", (
        one("training", "logs/metrics.jsonl", jsonl("iteration", "mean_reward"), "mean_reward by iteration"),)),
    Source("esmaeil-abedi-dev/verifier-as-reward", "none", "REINFORCE with a verifier, held-out actions", _verifier()),
    Source("TiandaSun/KG_GRPO", "MIT", "verl GRPO on knowledge graphs", tuple(
        one(name, "results/task11_goodhart_data.json", table("step", "train_reward", name, "merged"), "train_reward")
        for name in ("E2_heuristic", "E3_verifiable"))),
    Source("beibeizzz/countdown_post_train", "MIT", "GRPO on Countdown", (
        one("grpo", "post_train/outputs/grpo/metrics.jsonl", jsonl("step", "accuracy"), "accuracy by step"),
        one("grpo_trl", "post_train/outputs/grpo_trl/metrics.jsonl", jsonl("step", "accuracy"), "accuracy by step"))),
    Source("rasbt/reasoning-from-scratch", "Apache-2.0", "GRPO on MATH-500", _rasbt()),
    Source("nicklashansen/tdmpc", "MIT", "TD-MPC on dm_control", _control(
        "results/", ("acrobot-swingup", "cartpole-swingup", "dog-run", "fish-swim", "humanoid-stand", "walker-run"),
        "step", "return")),
    Source("nicklashansen/tdmpc2", "MIT", "TD-MPC2 and SAC on dm_control", (
        *_control("results/tdmpc2/", ("acrobot-swingup", "dog-trot", "hopper-hop", "reacher-hard", "quadruped-run"),
                  "step", "reward"),
        *_control("results/sac/", ("dog-walk",), "step", "reward"))),
    Source("denisyarats/drq", "MIT", "DrQ and others on dm_control", tuple(
        one(task, "data/dmc_dreamer_bench.csv", columns("step", "episode_reward", "seed", ("env", task)),
            "episode_reward of one env by step and seed", CONTROL, (0.0, 1000.0))
        for task in ("cheetah_run", "hopper_hop", "walker_run"))),
    Source("denisyarats/pytorch_sac", "MIT", "SAC on dm_control", tuple(
        one(task, "data/sac.csv", columns("step", "episode_reward", "seed", ("env", task)),
            "episode_reward of one env by step and seed", CONTROL, (0.0, 1000.0))
        for task in ("acrobot_swingup", "cheetah_run", "hopper_hop", "humanoid_run", "walker_run"))),
    Source("sfujim/TD3", "MIT", "TD3 on MuJoCo", tuple(
        one(task, [f"learning_curves/{task}/TD3_{task}-v1_{s}.npy" for s in range(5)], array,
            "one value per 5,000 steps", CONTROL, limits, around=True)
        for task, limits in (("Ant", (-500.0, 6500.0)), ("HalfCheetah", (-1000.0, 12000.0)),
                             ("Hopper", (0.0, 4000.0))))),
    Source("proceduralia/high_replay_ratio_continuous_control", "MIT", "REDQ on dm_control", tuple(
        one(task, [f"results/baselines/exp_redq_baseline_v0_env_name_{task}_max_steps_1000000/{s}.txt"
                   for s in range(5)], pairs, "lines of step and return", CONTROL, (0.0, 1000.0))
        for task in ("acrobot-swingup", "cheetah-run"))),
    Source("danijar/dreamerv3", "MIT", "DreamerV3, CURL and D4PG on dm_control", tuple(
        one(f"{task}, {method}", f"scores/{group}-{method}.json.gz", scores(f"dmc_{task}"), "xs and ys of a task",
            CONTROL, (0.0, 1000.0))
        for group, method, task in (("dmc_proprio", "dreamerv3", "hopper_hop"), ("dmc_proprio", "d4pg", "cheetah_run"),
                                    ("dmc_proprio", "dreamerv3", "acrobot_swingup"),
                                    ("dmc_vision", "curl", "walker_run"), ("dmc_proprio", "d4pg", "hopper_hop")))),
    Source("facebookresearch/drqv2", "MIT", "DrQ-v2 on dm_control", tuple(
        one(task, f"curves/dmc_{task}.csv", columns("frame", "episode_reward", "seed"),
            "episode_reward by frame and seed", CONTROL, (0.0, 1000.0))
        for task in ("cartpole_swingup_sparse", "quadruped_run", "walker_run", "hopper_hop"))),
)


@dataclass(frozen=True, eq=False)
class Logged:
    """One study as read: C (K,) and rewards (K,) in [0, 1] of each seed, the base at C = 0 first."""

    source: str
    half: str
    study: str
    kind: str
    runs: tuple[tuple[np.ndarray, np.ndarray], ...]


def collect(mirror: Path, sources: Sequence[Source], later: str = "") -> tuple[list[dict[str, Any]], list[Logged]]:
    """The manifest and the studies of these sources in a folder of git repositories.

    later: the name of a later set (third, fourth); without it each source is in its half of the first two.

    Raises:
        UserError: for a source or a path that is not there, and for a reward outside its limits.
    """
    manifest, found = [], []
    for source in sources:
        half = later or source.half
        place = mirror / source.name
        if not place.exists():
            raise UserError(f"{place} is missing: clone {source.name} into it")
        commit = _git(place, "rev-parse", "HEAD").decode().strip()
        for study in source.studies:
            runs = []
            for path in study.paths:
                data = _git(place, "show", f"HEAD:{path}")
                series = study.read(data)
                runs += [_scaled(source, study, x) for x in series]
                manifest.append({
                    "source": source.name, "half": half, "licence": source.licence, "what": source.what,
                    "commit": commit, "study": study.name, "kind": study.kind, "path": path,
                    "sha256": hashlib.sha256(data).hexdigest(), "read": study.how, "limits": list(study.limits),
                    "around": study.around, "runs": len(series), "points": [len(x) for x in series],
                    "imported": _imports(path, data),
                })
            found.append(Logged(source.name, half, study.name, study.kind, tuple(runs)))
    return manifest, found


def _scaled(source: Source, study: Study, series: Series) -> tuple[np.ndarray, np.ndarray]:
    at, values = np.array(series).T
    if (np.diff(at) <= 0).any() or at[0] != 0 or len(at) < 10:
        raise UserError(f"{source.name}, {study.name}: expected 10 or more rising steps")
    low, high = study.limits
    reward = (values - low) / (high - low)
    if reward.min() < -1e-9 or reward.max() > 1 + 1e-9 or not np.isfinite(reward).all():
        raise UserError(f"{source.name}, {study.name}: values from {values.min():g} to {values.max():g} are outside "
                        f"{study.limits}")
    return at * SIZE, np.clip(reward, 0.0, 1.0)


def _imports(path: str, data: bytes) -> str:
    """What `isocost import` makes of a log without any option: the source that reads it, or its message."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / Path(path).name
        place.write_bytes(data)
        try:
            found = logs.logs(place)
        except UserError as e:
            return str(e).replace(folder + "/", "")[:160]
    return ", ".join(f"{x.source}: {len(x.train)} training, {len(x.held)} held-out" for x in found[:1])


def _git(place: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise UserError(f"git {' '.join(arguments)} in {place}: {done.stderr.decode().strip()}")
    return done.stdout


def sources(kind: str | None = None) -> Iterator[Source]:
    """The sources with a study of a kind."""
    return (s for s in SOURCES if kind is None or any(x.kind == kind for x in s.studies))
