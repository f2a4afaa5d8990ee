"""Whether SAC here learns as Stable-Baselines3's does: samples to a return of -600 on Pendulum, and their ratio.

    PYTHONPATH=/tmp/sb3:. OMP_NUM_THREADS=1 python -m experiments.control.same_learner --seeds 16

Both at one update per sample after 200 random ones, 64 wide, batch 64, rate 1e-3, evaluated every 250 samples without
exploration on the same 16 starts of the task here. How SB3 is installed stands in `bench/control.py`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from isocost import processor
from isocost.chance import Purpose, generator
from isocost.control import methods
from isocost.control.loop import Loop, StackedRun
from isocost.control.tasks import open_task
from isocost.laws.value_fit import ReturnCurve, arrivals
from isocost.planner.control.outcome import ratio_of
from isocost.runs.arm import Arm

ARM = Arm(sigma=1.0, batch=64, rate=1e-3, width=64)
WARMUP, EVERY, EPISODES, WANTED, BAR = 200, 250, 16, -600.0, (0.78, 1.28)
TASK = open_task("pendulum")


def curve(name: str, seed: int, returns: list[float]) -> ReturnCurve:
    return ReturnCurve(f"{name}-{seed}", ARM, seed, EVERY * np.arange(1.0, len(returns) + 1), np.array(returns))


def ours(seeds: int, samples: int) -> list[ReturnCurve]:
    agent = methods.tuned(methods.agent("sac", width=64, batch=64), {"tempo.warmup": str(WARMUP)})
    loop = Loop(agent, TASK, [StackedRun(s, 1.0, ARM["rate"]) for s in range(seeds)], samples)
    found = []
    for at in range(EVERY, samples + 1, EVERY):
        while any(run.samples < at or loop._owes(run) for run in loop.runs):
            loop.advance([at] * seeds)
        found.append(loop.evaluate(range(seeds), EPISODES)[0].mean(1))
    return [curve("ours", s, [float(x[s]) for x in found]) for s in range(seeds)]


def theirs(seed: int, samples: int) -> ReturnCurve:
    from stable_baselines3 import SAC

    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [64, 64]}, batch_size=64, seed=seed,
                learning_rate=ARM["rate"], learning_starts=WARMUP, device="cpu")
    found = []
    for _ in range(0, samples, EVERY):
        model.learn(EVERY, reset_num_timesteps=False)
        states = np.stack([TASK.begin(generator(0, Purpose.EVALUATION, e), ("evaluate", seed, e))
                           for e in range(EPISODES)])
        total = np.zeros(EPISODES)
        for _ in range(TASK.limit):
            action, _ = model.predict(TASK.observe(states).astype(np.float32), deterministic=True)
            states, reward, _ = TASK.step(states, np.asarray(action, float))
            total += reward
        found.append(float(total.mean()))
    return curve("sb3", seed, found)


def compared(one: list[ReturnCurve], two: list[ReturnCurve]) -> dict[str, Any]:
    ratio = ratio_of(one, two, WANTED)
    return {
        "wanted": WANTED, "seeds": [len(one), len(two)],
        "arrived": [int(arrivals(x, WANTED).reached.sum()) for x in (one, two)],
        "samples_over_sb3": ratio and asdict(ratio),
        "bar": BAR, "inside": ratio is not None and bool(BAR[0] <= ratio.low and ratio.high <= BAR[1]),
        "returns": {c.run: [round(float(x), 1) for x in c.returns] for c in (*one, *two)},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/control_same_learner.json"))
    asked = parser.parse_args()
    one, two = ours(asked.seeds, asked.samples), []
    for seed in range(asked.seeds):
        two.append(theirs(seed, asked.samples))
        found = {"machine": processor.name(), "samples": asked.samples, **compared(one, two)}
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
        print({k: v for k, v in found.items() if k != "returns"}, flush=True)


if __name__ == "__main__":
    main()
