"""The third set of public logs for `experiments/outside.py`: sources that no constant of the law was chosen on.

The list, its readers and limits, and the manifest (results/outside/manifest_third.json) were committed before any
forecast was made of them. Training logs are those of at least 40 points that a search of public repositories for GRPO
and similar runs found, at most ten of a source; logs that another one of the same source contains are left out.
Control has three or four tasks of a source, chosen by name.
"""

from __future__ import annotations

from collections.abc import Callable

from outside_logs import (
    CONTROL,
    HELD_OUT,
    STATE,
    Series,
    Source,
    Study,
    columns,
    jsonl,
    last,
    one,
    pattern,
    rows,
    scores_in,
    table,
    text,
)

TRL = pattern(r"'reward': '?(-?[\d.e-]+)")
VERL_SCORE = pattern(r"step:(\d+) - .*?critic/score/mean:(?:np\.float64\()?(-?[\d.e-]+)")


def blocks(task: str, most: int = 5) -> Callable[[bytes], list[Series]]:
    """Tables below lines "Env: TASK": a time step and the returns of each seed."""
    def read(data: bytes) -> list[Series]:
        part = text(data).split(f"Env: {task}\n")[1].split("---")[0]
        lines = [line.split() for line in part.strip().splitlines()[1:]]
        return [rows([{"x": x[0], "y": x[1 + seed]} for x in lines], "x", "y")[0] for seed in range(most)]
    return read


def of_condition(name: str) -> Callable[[bytes], list[Series]]:
    """The rows of one condition of TinyZero's tables."""
    return last(columns("step", "accuracy", where=("condition", name)))


def _unlearning() -> tuple[Study, ...]:
    names = ("grpo_8b_stage2", "grpo_8b_v3_stage2", "grpo_8b_v4_stage2", "grpo_8b_v5_stage2", "grpo_stage2",
             "grpo_stage2_sft")
    return tuple(one(name, f"logs/{name}.log", TRL, "'reward' in printed lines", limits=(-7.0, 6.0), around=True)
                 for name in names)


def _distillation() -> tuple[Study, ...]:
    runs = ("20251129_221801-i80f2v90", "20251130_144822-gjvwlq13", "20251130_194146-f6sves9c",
            "20251130_224918-ry3hgbx5", "20251202_000304-yeu8r64c", "20251202_120842-do7bl4gg",
            "20251203_152244-bd2o9c4a", "20251203_214315-cr3q4lay", "20251205_203738-5qinw90x")
    return tuple(one(run[-8:], f"wandb/run-{run}/files/output.log", VERL_SCORE, "critic/score/mean by step",
                     limits=(-1.0, 1.0)) for run in runs)


def _gsm8k() -> tuple[Study, ...]:
    names = ("baseline", "epsilon_0.1", "epsilon_0.4", "group_size_16", "group_size_4", "lr_1e-6", "lr_2e-5", "mu_2",
             "mu_3", "temperature_1.4")
    return tuple(one(name, f"runs/ablation/{name}/step_stat_history.json", table("step", "reward_mean"),
                     "reward_mean by step") for name in names)


def _countdown() -> tuple[Study, ...]:
    names = ("base_ppo", "all_strategies", "backtracking_verification", "empty_cot", "only_backtracking")
    return tuple(
        one(f"{model} {name}", f"results/{model}_results.csv", of_condition(name), "accuracy by step", HELD_OUT)
        for model in ("qwen", "llama") for name in names
    )


def _tasks(path: str, tasks: tuple[str, ...], read: Callable[[str], Callable[[bytes], list[Series]]], how: str
           ) -> tuple[Study, ...]:
    return tuple(one(task, path, read(task), how, CONTROL, (0.0, 1000.0)) for task in tasks)


def _ppo() -> tuple[Study, ...]:
    found = {"LunarLander-v2": (-400.0, 400.0), "RoboschoolHalfCheetah-v1": (0.0, 2000.0),
             "RoboschoolHopper-v1": (0.0, 2500.0), "RoboschoolWalker2d-v1": (0.0, 2000.0)}
    return tuple(one(task, [f"PPO_logs/{task}/PPO_{task}_log_{i}.csv" for i in range(3)],
                     columns("timestep", "reward"), "reward by timestep", CONTROL, limits, around=True)
                 for task, limits in found.items())


THIRD = (
    Source("Nithin2311/grpo-machine-unlearning", "none", "GRPO for unlearning, summed rewards", _unlearning()),
    Source("RaghuHemadri/openenv_hack", "MIT", "TRL GRPO of a watchdog", (
        one("training", "output1.txt", TRL, "'reward' in printed lines", limits=(-4.0, 2.0), around=True),)),
    Source("Coicozoi/minimind-from-scratch", "none", "GRPO of a small model with a reward model", (
        one("grpo", "logs/grpo.log", pattern(r"\((\d+)/9751\), Reward: (-?[\d.]+)"), "Reward by step",
            limits=(-5.0, 2.0), around=True),)),
    Source("IMJONEZZ/UnslothGRPO", "MIT", "TRL GRPO on GSM8K, summed rewards", (
        one("250 steps", "outputs/checkpoint-250/trainer_state.json", STATE, "log_history", limits=(-1.0, 3.0),
            around=True),)),
    Source("gauri0508/med-record", "none", "TRL GRPO on medical records", (
        one("150 steps", "training/trainer_state.json", STATE, "log_history"),)),
    Source("Deltasthicc/F1_Simulator_OpenENV", "MIT", "TRL GRPO on race strategy", (
        one("500 steps", "grpo_v1/checkpoint-500/trainer_state.json", STATE, "log_history"),)),
    Source("Panacea-OpenEnv/Panacea-OpenEnv", "none", "TRL GRPO on tool traces", (
        one("run 1", "logs/grpo_run_1.log", TRL, "'reward' in printed lines", limits=(-1.0, 0.0), around=True),)),
    Source("sri11223/openEnv", "none", "GRPO on oversight", (
        one("proof pack", "outputs/proof_pack/training_metrics.jsonl", last(jsonl("batch_index", "reward_mean")),
            "reward_mean by batch_index"),)),
    Source("jianghoucheng/Agent_On_Policy_Distillation", "Apache-2.0", "verl, distillation and GRPO on mathematics",
           _distillation()),
    Source("tonywang1990/gsm8k-grpo", "none", "GRPO on GSM8K, one setting changed at a time", _gsm8k()),
    Source("kanishkg/TinyZero", "Apache-2.0", "verl PPO on Countdown", _countdown()),
    Source("danijar/dreamerv2", "MIT", "DreamerV2 on dm_control", _tasks(
        "scores/dmc-vision-dreamerv2.json", ("acrobot_swingup", "cheetah_run", "hopper_hop", "quadruped_run"),
        lambda task: scores_in(f"dmc_{task}"), "xs and ys of a task")),
    Source("SonyResearch/simba", "Apache-2.0", "SAC on dm_control", _tasks(
        "results/sac.csv", ("dog_run", "dog_trot", "dog_walk", "humanoid_run"),
        lambda task: columns("env_step", "value", "seed", ("env_name", task), also=("metric", "avg_return")),
        "avg_return by env_step and seed")),
    Source("facebookresearch/MRQ", "CC-BY-NC-4.0", "MR.Q on dm_control", _tasks(
        "results/dmc_results.txt", ("acrobot-swingup", "dog-trot", "hopper-hop", "humanoid-run"),
        lambda task: blocks(f"Dmc-{task}"), "tables of time step and seeds")),
    Source("nikhilbarhate99/PPO-PyTorch", "MIT", "PPO on Box2D and Roboschool", _ppo()),
)
