"""The fourth set of public logs for `experiments/outside.py`: evidence for the law after `UPPER` was chosen.

Rules, written before any log of these sources was forecast:

- No source and no owner of the three earlier sets.
- A reward of the policy that is trained, measured by the trainer: no loss, no reward of a data set, no log that is
  printed by a script that trains nothing. Flat and failed runs are kept.
- Training reward: at least 40 updates. Held-out reward and control: at least 20 evaluations.
- At most 16 runs of a source, in the order of their names (control: tasks in that order, then the first 4 seeds). Files
  that are equal are one run, and a log that another one contains is left out.
- A total reward where one is logged. Limits are those of the reward function where it has some, else round numbers
  around all logged values (`around`).
- A run that was started again in the same file: the last value of each step, or the last start if all are shorter.

The list, its readers and limits, and the manifest (results/outside/manifest_fourth.json) were committed before any
forecast was made of them. Some logs are not in the newest commit of their repository; the manifest has the commit.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable

import numpy as np

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
    pairs,
    rows,
    table,
    text,
)

# readers ------------------------------------------------------------------------------------------------------------

def events(kind: str, step: str, value: str) -> Callable[[bytes], list[Series]]:
    """JSON lines of one type."""
    def read(data: bytes) -> list[Series]:
        found = [json.loads(line) for line in text(data).splitlines()]
        return rows([x for x in found if x["type"] == kind], step, value)
    return read


def last_start(step: str, value: str) -> Callable[[bytes], list[Series]]:
    """JSON lines from the last one at which the step falls on."""
    def read(data: bytes) -> list[Series]:
        found = [json.loads(line) for line in text(data).splitlines()]
        starts = [i for i, (x, y) in enumerate(itertools.pairwise(found), 1) if y[step] <= x[step]]
        return rows(found[starts[-1] if starts else 0:], step, value)
    return read


def lists(step: str, value: str, *path: str) -> Callable[[bytes], list[Series]]:
    """Two JSON lists, below keys."""
    def read(data: bytes) -> list[Series]:
        found = json.loads(text(data))
        for key in path:
            found = found[key]
        return rows([{"x": x, "y": y} for x, y in zip(found[step], found[value], strict=True)], "x", "y")
    return read


def agent(name: str) -> Callable[[bytes], list[Series]]:
    """The rows of one agent in a JSON list."""
    return lambda data: rows([x for x in json.loads(text(data)) if x["agent"] == name], "env_step", "rew")


def evaluations(data: bytes) -> list[Series]:
    """Time steps and mean returns of evaluations that Stable-Baselines3 keeps."""
    found = np.load(io.BytesIO(data))
    returns = found["results"].mean(axis=1)
    return rows([{"x": x, "y": y} for x, y in zip(found["timesteps"], returns, strict=True)], "x", "y")


# sources ------------------------------------------------------------------------------------------------------------

def _cog() -> tuple[Study, ...]:
    return tuple(one(f"experiment {i}", f"tinker_cookbook/recipes/cog_rl/results/experiment_{i}/training_metrics.jsonl",
                     last(jsonl("step", "reward/mean")), "reward/mean by step") for i in range(3, 9))


def _assignment() -> tuple[Study, ...]:
    """Logs of different content in the order of their names: 10 of training reward, held-out reward of the first 6."""
    folder = "artifacts/experiments/main/ch7/"
    names = ("grpo_baselines/runs/no_baseline", "grpo_baselines/runs/reinforce_with_baseline",
             "grpo_group_standard_deviation/runs/no_std_normalization",
             "grpo_length_normalization/runs/batch_token_mean", "grpo_length_normalization/runs/masked_normalize",
             "grpo_off_policy_clip_ablation/runs/GRPO-Clip_0.20_0.20_(e2_tb256)",
             "grpo_off_policy_clip_ablation/runs/GRPO-Clip_0.20_0.28_(e2_tb256)",
             "grpo_off_policy_clip_ablation/runs/GRPO-No-Clip_(e2_tb256)",
             "grpo_off_policy_sweep/runs/broad_e16_tb256", "grpo_off_policy_sweep/runs/broad_e2_tb128")
    train = [one(name.split("/runs/")[1], f"{folder}{name}/metrics.jsonl", events("rollout", "grpo_step", "reward"),
                 "reward of rollouts by grpo_step") for name in names]
    held = [one(f"{name.split('/runs/')[1]}, held-out", f"{folder}{name}/metrics.jsonl",
                events("eval", "grpo_step", "reward"), "reward on 1,024 held-out problems by grpo_step", HELD_OUT)
            for name in names[:6]]
    return (*train, *held)


def _leetcode() -> tuple[Study, ...]:
    names = ("llama-3.2-1b/Easy", "llama-3.2-1b/Hard", "llama-3.2-3b/Easy-g-llmjudge-long",
             "llama-3.2-3b/Hard-g-llmjudge-long", "llama-3.2-3b/Medium-g-llmjudge-long")
    return tuple(one(name, f"outputs/rl-leetcode/{name}/metrics.jsonl", last(jsonl("step", "reward/mean")),
                     "reward/mean by step") for name in names)


def _arithmetic() -> tuple[Study, ...]:
    found = []
    for version in ("v1", "v2"):
        for method, value in (("grpo", "reward"), ("ppo", "objective/scores")):
            paths = [f"results/ppo_grpo_{version}/{method}_seed{s}/trajectory.json" for s in (2025, 2026, 2027)]
            found.append(one(f"{method} {version}", paths, table("step", value), f"{value} by step",
                             limits=(-0.2, 1.0), around=True))
    return tuple(found)


def _data_agents() -> tuple[Study, ...]:
    limits = {"answering": (1.0, 3.5), "cleaning": (0.5, 2.0), "enrichment": (0.0, 1.5)}
    return tuple(one(name, "docs/data/training_curves.json", lists("steps", "reward", name), "reward by steps",
                     limits=own, around=True) for name, own in limits.items())


def _resets() -> tuple[Study, ...]:
    folder = "curves/sac/max_steps_2000000_resets_False_config.updates_per_step_1/"
    return tuple(one(task, [f"{folder}{task}/{s}.txt" for s in range(4)], pairs, "lines of step and return", CONTROL,
                     (0.0, 1000.0)) for task in ("acrobot-swingup", "cheetah-run", "finger-turn_hard", "fish-swim"))


def _simba() -> tuple[Study, ...]:
    limits = {"Ant-v4": (0.0, 8000.0), "HalfCheetah-v4": (-1000.0, 13000.0), "Hopper-v4": (0.0, 4500.0),
              "Humanoid-v4": (0.0, 12000.0)}
    return tuple(one(task, "results/simbaV2_utd2.csv",
                     columns("env_step", "value", "seed", ("env_name", task), 4, ("metric", "avg_return")),
                     "avg_return by env_step and seed", CONTROL, own, around=True) for task, own in limits.items())


def _zoo() -> tuple[Study, ...]:
    limits = {
        "Ant-v3": (0.0, 6000.0), "AntBulletEnv-v0": (0.0, 3500.0), "BipedalWalker-v3": (-200.0, 350.0),
        "BipedalWalkerHardcore-v3": (-200.0, 350.0), "HalfCheetah-v3": (-1000.0, 12000.0),
        "HalfCheetahBulletEnv-v0": (-1500.0, 3000.0), "Hopper-v3": (0.0, 4000.0), "HopperBulletEnv-v0": (0.0, 3000.0),
        "Humanoid-v3": (0.0, 7000.0), "Swimmer-v3": (-50.0, 400.0), "Walker2DBulletEnv-v0": (0.0, 2500.0),
        "Walker2d-v3": (0.0, 4500.0)}
    return tuple(one(task, f"sac/{task}_1/evaluations.npz", evaluations, "mean of results by timesteps", CONTROL, own,
                     around=True) for task, own in limits.items())


def _exploration() -> tuple[Study, ...]:
    """Runs of a task may differ in their settings, so each is a study."""
    found = {
        "Hopper-v2": ((0.0, 4000.0), ("2020-08-26-23-04-59-478900", "2020-08-27-03-59-06-472018",
                                      "2020-08-30-23-54-01-102765", "2020-08-31-00-15-33-629803")),
        "InvertedDoublePendulum-v2": ((0.0, 10000.0), ("2020-08-26-05-05-17-750397", "2020-08-26-06-32-27-642424",
                                                       "2020-08-26-07-59-32-152351", "2020-08-29-04-23-56-251391")),
        "InvertedPendulum-v2": ((0.0, 1000.0), ("2020-08-29-04-22-44-241430", "2020-08-29-04-35-32-623496",
                                                "2020-08-29-04-46-42-793818", "2020-08-29-04-57-44-591818")),
        "Reacher-v2": ((-150.0, 0.0), ("2020-08-26-11-22-04-132274", "2020-08-29-04-20-10-745401",
                                       "2020-08-29-04-32-20-103254", "2020-08-29-04-44-34-695680")),
    }
    return tuple(one(f"{task} {i}", f"logs/PPO/{task}/run-{name}.csv", last(columns("total timesteps", "ep_rew_mean")),
                     "ep_rew_mean by total timesteps", CONTROL, own, around=True)
                 for task, (own, names) in found.items() for i, name in enumerate(names, 1))


def _humanoid() -> tuple[Study, ...]:
    limits = {"balance_hard": (0.0, 500.0), "balance_simple": (0.0, 1000.0), "basketball": (0.0, 1000.0),
              "push": (-500.0, 1000.0), "truck": (0.0, 2000.0), "window": (0.0, 1000.0)}
    return tuple(one(task, "data/humanoidbench_result.json", lists("env_step", "return", f"h1hand_{task}"),
                     "return by env_step, mean over seeds", CONTROL, own, around=True) for task, own in limits.items())


FOURTH = (
    Source("thinking-machines-lab/tinker-cookbook", "Apache-2.0", "GRPO by Tinker on programs in a new language",
           _cog()),
    Source("sushantmehta-code/tinker-cookbook", "Apache-2.0", "GRPO by Tinker with rubrics", tuple(
        one(name, f"{name}/metrics.jsonl", jsonl("step", "env/all/reward/total"), "env/all/reward/total by step")
        for name in ("logs_v2p3", "logs_v2p7"))),
    Source("Chisatozt/travel-grpo-longhorizon", "none", "GRPO of a travel agent, one task a step", (
        one("200 tasks", "analysis/grpo-200-task-checkpoint-v1/curves/training_metrics.csv",
            columns("step", "terminal_reward"), "terminal_reward by step"),)),
    Source("jorahn/rookworld-rlvr", "MIT", "GRPO on chess", (
        one("mini", "src/mini/logs/training_history.jsonl", last_start("step", "mean_reward"), "mean_reward by step",
            limits=(-0.3, 1.0)),)),
    Source("ricalanis/openenv-hackaton", "none", "TRL GRPO of data agents, summed rewards", _data_agents()),
    Source("srinath-manda/IITD_Feb26_AAIPL", "none", "TRL GRPO on Minesweeper, summed rewards", (
        one("500 steps", "outputs/checkpoint-500/trainer_state.json", STATE, "log_history", limits=(-10.0, 12.0),
            around=True),)),
    Source("AmitChowdary122/cyber-openenv", "none", "TRL GRPO on incident response", (
        one("720 steps", "assets/training_log.json", table("step", "reward"), "reward by step", limits=(-0.5, 0.5),
            around=True),)),
    Source("Christy-Saji/incident-ops-openenv", "none", "TRL GRPO on incident response, summed rewards", (
        one("300 steps", "reward_log.csv", last(columns("step", "reward")), "reward by step", limits=(-2.0, 3.0),
            around=True),)),
    Source("ShibukiZero/assignment5-alignment", "none", "GRPO on mathematics, one setting changed at a time",
           _assignment()),
    Source("rohunagrawal/reward-hacking-entropy", "Apache-2.0", "GRPO by Tinker on LeetCode with a proxy reward",
           _leetcode()),
    Source("Sourav1331/adaptassist-openenv", "none", "TRL GRPO of an assistant, summed rewards", (
        one("training", "plots/log_history.json", table("step", "reward"), "reward by step", limits=(0.0, 2.0),
            around=True),)),
    Source("joshsalako/telelogs", "none", "TRL GRPO on telecom logs, summed rewards", (
        one("200 steps", "checkpoint-200/trainer_state.json", STATE, "log_history", limits=(0.0, 2.5),
            around=True),)),
    Source("kartikmunjal/rlhf-and-reward-modelling-alt", "none", "TRL GRPO and PPO on arithmetic", _arithmetic()),
    Source("mazzeratziii/MCP-Tool-RL", "none", "GRPO on the choice of tools", (
        one("50 epochs", "results/training_log.csv", columns("epoch", "avg_reward"), "avg_reward by epoch",
            limits=(0.0, 1.5), around=True),)),
    Source("evgenii-nikishin/rl_with_resets", "MIT", "SAC on dm_control", _resets()),
    Source("dojeon-ai/SimbaV2", "Apache-2.0", "SimbaV2 on MuJoCo", _simba()),
    Source("DLR-RM/rl-trained-agents", "MIT", "SAC on MuJoCo, Bullet and Box2D", _zoo()),
    Source("BoogaQ/PPO-exploration", "none", "PPO on MuJoCo", _exploration()),
    Source("younggyoseo/FastTD3", "MIT", "FastTD3 on HumanoidBench, means over seeds", _humanoid()),
    Source("thu-ml/tianshou", "MIT", "six methods on Ant, means over seeds", tuple(
        one(name, "docs/_static/js/mujoco/benchmark/Ant-v4/results.json", agent(name), "rew by env_step of an agent",
            CONTROL, (-500.0, 6000.0), around=True) for name in ("NPG", "PPO", "REDQ", "Reinforce", "SAC", "TD3"))),
)
