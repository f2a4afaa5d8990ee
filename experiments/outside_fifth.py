"""The fifth set of public logs for `experiments/outside.py`: more evidence for the law, of other owners again.

Rules, written before any log of these sources was forecast:

- No source and no owner of the four earlier sets.
- A reward of the policy that is trained, measured by the trainer: no loss, no reward of a data set, no log that is
  simulated or printed by a script that trains nothing. Flat and failed runs are kept.
- Training reward: at least 40 logged updates, and no running mean over updates. Held-out reward and control: at least
  20 evaluations.
- At most 16 runs of a source, in the order of their names (control: tasks in that order, then the first 4 seeds). Files
  that are equal are one run, and a log that another one contains is left out.
- A total reward where one is logged. Limits are those of the reward function where it has some, else round numbers
  around all logged values (`around`).
- A run that was started again in the same file: the last value of each step, or the last start if all are shorter. A
  last line that was cut off is left out.

The list, its readers and limits, and the manifest (results/outside/manifest_fifth.json) were committed before any
forecast was made of them. Some logs are not in the newest commit of their repository; the manifest has the commit.
Some logs are tables or lines in the output of a cell of a notebook; cells count from 0.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable
from typing import Any

from outside_fourth import last_start
from outside_logs import (
    CONTROL,
    HELD_OUT,
    Series,
    Source,
    Study,
    columns,
    jsonl,
    last,
    one,
    pairs,
    pattern,
    rows,
    table,
    text,
)
from outside_third import TRL, VERL_SCORE

# readers ------------------------------------------------------------------------------------------------------------

def outputs(data: bytes, cell: int) -> list[dict[str, Any]]:
    """The outputs of one cell of a notebook."""
    found: list[dict[str, Any]] = json.loads(text(data))["cells"][cell]["outputs"]
    return found


def shown_table(cell: int, value: str) -> Callable[[bytes], list[Series]]:
    """The table that a trainer shows in a notebook, by its column Step."""
    def read(data: bytes) -> list[Series]:
        html = "".join(line for x in outputs(data, cell) for line in x.get("data", {}).get("text/html", ()))
        names = re.findall(r"<th[^>]*>(.*?)</th>", html)
        cells = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)]
        return rows([dict(zip(names, x, strict=True)) for x in cells if x], "Step", value)
    return read


def printed(cell: int, read: Callable[[bytes], list[Series]]) -> Callable[[bytes], list[Series]]:
    """The text that a cell of a notebook printed."""
    return lambda data: read("".join(line for x in outputs(data, cell) for line in x.get("text", ())).encode())


def listed(value: str) -> Callable[[bytes], list[Series]]:
    """One JSON list, a value for each evaluation."""
    return lambda data: rows([{value: x} for x in json.loads(text(data))[value]], None, value)


def in_pairs(skip: int) -> Callable[[bytes], list[Series]]:
    """JSON lines with the reward of one rollout each, two an update, after the lines of an earlier start."""
    def read(data: bytes) -> list[Series]:
        found = [json.loads(line)["reward"]["total"] for line in text(data).splitlines()][skip:]
        return rows([{"r": (a + b) / 2} for a, b in zip(found[::2], found[1::2], strict=True)], None, "r")
    return read


def bare(data: bytes) -> list[Series]:
    """CSV without names: epoch, step, value."""
    return rows([dict(zip(("e", "x", "y"), row, strict=True)) for row in csv.reader(io.StringIO(text(data)))], "x", "y")


def finite(step: str, value: str) -> Callable[[bytes], list[Series]]:
    """CSV up to its last whole line, without the rows before an episode ended."""
    def read(data: bytes) -> list[Series]:
        found = csv.DictReader(io.StringIO(text(data[:data.rindex(b"\n") + 1])))
        return rows([x for x in found if math.isfinite(float(x[value]))], step, value)
    return read


# sources ------------------------------------------------------------------------------------------------------------

def _tinker() -> tuple[Study, ...]:
    return tuple(one(name, f"reports/data/{name}-metrics.jsonl", last(jsonl("step", "env/all/reward/total")),
                     "env/all/reward/total by step", around=True)
                 for name in ("gptoss-20b-v2", "gptoss-20b-v3b", "qwen3-30b-instruct-v3b"))


def _assignment() -> tuple[Study, ...]:
    printed_by = r"Percentage of correct examples:\s+([\d.]+)\s+GRPO Iteration:\s+\d+ Epoch:\s+0 Microbatch:\s+0 /"
    return tuple(one(name, f"cs336_alignment/outputs/{name}.txt", pattern(printed_by),
                     "share of right rollouts, printed before each GRPO iteration")
                 for name in ("grpo_prompt_ablation", "grpo_train_loop_log"))


def _settings() -> tuple[Study, ...]:
    """Training reward of ten settings, and held-out reward of those that were evaluated often enough."""
    names = ("clip_e1", "clip_e4", "leaderboard", "length_norm", "lr_5e-6", "lr_5e-6_full", "no_baseline",
             "no_std_norm_rwb", "noclip_e4", "prompt_ablation")
    train = [one(name, f"results/grpo_{name}/grpo_metrics.jsonl", jsonl("step", "rollout_reward_mean"),
                 "rollout_reward_mean by step") for name in names]
    held = [one(f"{name}, held-out", f"results/grpo_{name}/grpo_metrics.jsonl", jsonl("step", "val_accuracy"),
                "val_accuracy by step", HELD_OUT) for name in ("clip_e1", "leaderboard", "length_norm")]
    return (*train, *held)


def _jaxrl() -> tuple[Study, ...]:
    limits = {"Ant": (-500.0, 6000.0), "HalfCheetah": (-1000.0, 12000.0), "Hopper": (0.0, 4000.0),
              "Humanoid": (0.0, 6000.0)}
    return tuple(one(task, [f"logs/results/{task}-v2/{s}/results.txt" for s in range(4)], pairs,
                     "lines of step and return", CONTROL, own, around=True) for task, own in limits.items())


def _offline() -> tuple[Study, ...]:
    """Methods that learn from a data set; returns are of the policy in its environment, after each epoch."""
    found = {
        "asterix": ((0.0, 1000.0), ("20211210111303", "20211212110029", "20211214100658", "20220422154526")),
        "breakout": ((0.0, 40.0), ("20211206035738", "20211206035812", "20211206035832", "20220507005322")),
        "pong": ((-21.0, 21.0), ("20211208103318", "20211208103347", "20211208103414", "20220522164836")),
        "qbert": ((0.0, 10000.0), ("20211213030313", "20211213030348", "20211213030406", "20220408003920")),
    }
    return tuple(one(task, [f"atari/DiscreteBCQ_{task}_{s}_{at}/environment.csv" for s, at in enumerate(names, 1)],
                     bare, "third column by step", CONTROL, own, around=task != "pong")
                 for task, (own, names) in found.items())


def _ray() -> tuple[Study, ...]:
    limits = {"BeamRider": (0.0, 10000.0), "Breakout": (0.0, 600.0), "Qbert": (0.0, 20000.0),
              "SpaceInvaders": (0.0, 1500.0)}
    new = "atari-apex/new-dqn-with-exploration-api-no-per-worker/APEX_{task}NoFrameskip-v4_{at}"
    places = {
        "A2C": ("atari-a2c/results/A2C_{task}NoFrameskip-v4_{at}",
                ("1_env=BeamRiderNoFrameskip-v4_2018-08-21_02-43-09SiGL4s",
                 "0_env=BreakoutNoFrameskip-v4_2018-08-21_02-43-095_QyA9",
                 "2_env=QbertNoFrameskip-v4_2018-08-21_02-43-09hMl4Ph",
                 "3_env=SpaceInvadersNoFrameskip-v4_2018-08-21_02-43-09_5lMsU")),
        "APEX": ("atari-apex/apex-results/APEX_{task}NoFrameskip-v4_{at}",
                 ("1_env=BeamRiderNoFrameskip-v4_2018-09-29_02-01-28uVT3Mg",
                  "0_env=BreakoutNoFrameskip-v4_2018-09-29_02-01-283JRTi3",
                  "2_env=QbertNoFrameskip-v4_2018-09-29_02-01-287JapWR",
                  "3_env=SpaceInvadersNoFrameskip-v4_2018-09-29_02-01-28edKjTZ")),
        "APEX 2020": (new, ("c6dc5c84_1_env=BeamRiderNoFrameskip-v4_2020-01-31_13-29-59bkbob73s",
                            "c6dbcf08_0_env=BreakoutNoFrameskip-v4_2020-01-31_13-29-58_pyzuqns",
                            "c6dce0be_2_env=QbertNoFrameskip-v4_2020-01-31_13-29-59_d1im9rj",
                            "c6dd69b2_3_env=SpaceInvadersNoFrameskip-v4_2020-01-31_13-29-593eil8hpg")),
        "IMPALA": ("atari-impala/results/IMPALA_{task}NoFrameskip-v4_{at}",
                   ("1_env=BeamRiderNoFrameskip-v4_2018-08-20_22-26-08_gIbS7",
                    "0_env=BreakoutNoFrameskip-v4_2018-08-20_22-26-08DAqy01",
                    "2_env=QbertNoFrameskip-v4_2018-08-20_22-26-08rowqFR",
                    "3_env=SpaceInvadersNoFrameskip-v4_2018-08-20_22-26-08jjLp1C")),
    }
    read = finite("timesteps_total", "episode_reward_mean")
    return tuple(one(f"{task}, {method}", f"{place.format(task=task, at=at)}/progress.csv", read,
                     "episode_reward_mean by timesteps_total", CONTROL, own, around=True)
                 for method, (place, names) in places.items()
                 for (task, own), at in zip(limits.items(), names, strict=True))


def _procgen() -> tuple[Study, ...]:
    limits = {"bigfish": (0.0, 15.0), "bossfight": (0.0, 15.0), "caveflyer": (0.0, 10.0), "chaser": (0.0, 10.0),
              "climber": (0.0, 10.0)}
    return tuple(one(task, [f"train_procgen/results/easy-200-run{s}/progress-{task}-test.csv" for s in range(3)],
                     columns("misc/total_timesteps", "eprewmean"), "eprewmean by misc/total_timesteps", CONTROL, own,
                     around=True) for task, own in limits.items())


FIFTH = (
    Source("joanvelja/tinker-cookbook", "Apache-2.0", "GRPO by Tinker on mathematics", _tinker()),
    Source("CYCLOP5/metascaler-hack", "GPL-3.0", "TRL GRPO of a tool agent, summed rewards", (
        one("400 steps", "results/training_metrics.csv", columns("step", "reward"), "reward by step", limits=(0.0, 2.0),
            around=True),)),
    Source("beingamanforever/RDAN-GRPO", "Apache-2.0", "GRPO on instructions with rubrics", (
        one("training", "results/training/metrics.jsonl", jsonl("system/step", "reward/selected_mean"),
            "reward/selected_mean by system/step"),)),
    Source("aaravgupta0202/legaloom_env", "none", "TRL GRPO on tax rules", (
        one("40 steps", "training_log.json", table("step", "reward"), "reward by step", around=True),)),
    Source("soumiguria/cognitive-load-manager", "none", "TRL GRPO on planning of tasks", (
        one("1116 steps", "CLM_GRPO_Training.ipynb", shown_table(20, "reward"),
            "reward by Step in a notebook's cell 20", limits=(-1.0, 1.0)),)),
    Source("duruoli/stats-safety", "none", "TRL GRPO on statistics, summed rewards", (
        one("158 steps", "GRPO-guide.ipynb", shown_table(29, "reward"), "reward by Step in a notebook's cell 29",
            limits=(-3.0, 3.0), around=True),)),
    Source("Ray-Cheng-11/Tau-Bench-Model-Training", "none", "TRL GRPO on calls of tools, summed rewards", (
        one("460 steps", "gpt_oss_20b_tau_bench_rl_training.ipynb", shown_table(50, "reward"),
            "reward by Step in a notebook's cell 50", limits=(4.0, 6.0), around=True),)),
    Source("anujkamaljain/OpenEnv-Customer-Support", "none", "TRL GRPO on incident response", (
        one("training", "train_notebook.ipynb", printed(6, TRL), "'reward' in lines that a notebook's cell 6 printed",
            limits=(-1.0, 0.0), around=True),)),
    Source("GeneralUserModels/tada", "Apache-2.0", "GRPO on the next actions of a user", (
        one("41 steps", "logs/metrics.jsonl", last_start("step", "reward_mean"), "reward_mean by step", around=True),)),
    Source("Aarya01Patil/promptops_arena", "none", "TRL GRPO on the writing of prompts", (
        one("150 steps", "results/training_log.jsonl", in_pairs(4), "reward.total of the two rollouts of a step",
            limits=(-0.1, 1.1)),)),
    Source("toolanzyhhh1234/FIM-RLVR-LEAN4", "none", "verl GSPO on mathematics", (
        one("3B", "verl_logs/run_test_gspo_3b_math_20251224-050705.log", VERL_SCORE, "critic/score/mean by step"),)),
    Source("damek/assignment5-alignment", "none", "GRPO on mathematics", _assignment()),
    Source("dequeueing/assignment5-alignment", "none", "GRPO on GSM8K, one setting changed at a time",
           _settings()),
    Source("suryansh71234567/qwen-rl-finetuning-samsung-ax", "MIT", "TRL GRPO on mathematics", (
        one("104 steps", "src/rl_grpo_math.ipynb", shown_table(28, "reward"), "reward by Step in a notebook's cell 28",
            limits=(0.0, 1.05)),)),
    Source("yuxuanwang2009/RL_GRPO", "none", "GRPO on Countdown, held-out problems", (
        one("validation", "grpo_metrics.json", listed("val_accuracies_avg"), "val_accuracies_avg, every 10 steps",
            HELD_OUT),)),
    Source("ikostrikov/jaxrl", "MIT", "SAC on MuJoCo", _jaxrl()),
    Source("takuseno/d3rlpy-benchmarks", "MIT", "discrete BCQ on Atari, offline", _offline()),
    Source("ray-project/rl-experiments", "Apache-2.0", "A2C, APEX and IMPALA on Atari", _ray()),
    Source("openai/train-procgen", "MIT", "PPO on Procgen, levels held out", _procgen()),
    Source("joonleesky/train-procgen-pytorch", "none", "PPO on Procgen, four sets of levels", tuple(
        one(name, f"logs/procgen/starpilot/ppo/{name}/log.csv", columns("timesteps", "mean_episode_rewards"),
            "mean_episode_rewards by timesteps", CONTROL, (0.0, 60.0), around=True)
        for name in ("easy-run-200", "easy-run-all", "hard-run-500", "hard-run-all"))),
    Source("hardmaru/slimevolleygym", "Apache-2.0", "PPO on a game of volleyball", (
        one("mpi", "zoo/ppo/mpi_log/progress.csv", columns("TimestepsSoFar", "EpRewMean"),
            "EpRewMean by TimestepsSoFar", CONTROL, (-5.0, 5.0)),)),
)
