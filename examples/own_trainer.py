r"""A trainer that isocost did not write, as small as one can be: GRPO on a softmax policy, in NumPy.

The problems are pairs of numbers below 16, and the answer is the larger one. The script does what a study needs of a
trainer: it takes its sizes, learning rate and seed as options, evaluates before the first update, every so many updates
and after the last, logs JSON lines, saves checkpoints, and continues from the last one when it is started again.

    isocost profile --out studies/mine --held-out 64 --samples 4 --lr 0.1 --trainer \
      "cmd: python examples/own_trainer.py --n {n} --groups {B} --updates {M} --lr {lr} --seed {seed} \
      --eval-every {eval_every} --out {out}"
    isocost plan studies/mine --budget 300k-rollouts
    isocost pilot studies/mine
    isocost fit studies/mine
    isocost plan studies/mine
    isocost train --plan studies/mine
    isocost audit studies/mine
    isocost compare group= none='--baseline none' --budget 300k-rollouts --held-out 64 --samples 4 --lr 0.1 --trainer \
      "cmd: python examples/own_trainer.py --n {n} --groups {B} --updates {M} --lr {lr} --seed {seed} \
      --eval-every {eval_every} --out {out} {arm}"
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

SIZE = 16
PAIRS = np.array([(a, b) for a in range(SIZE) for b in range(SIZE)])
HELD_OUT = np.random.default_rng(0).permutation(len(PAIRS))[:64]
TRAIN = np.setdiff1d(np.arange(len(PAIRS)), HELD_OUT)


def probabilities(weights, problems):
    """The policy: answer k of the pair (a, b) has the logit weights[0, a, k] + weights[1, b, k]."""
    a, b = PAIRS[problems].T
    logits = weights[0, a] + weights[1, b]
    each = np.exp(logits - logits.max(1, keepdims=True))
    return each / each.sum(1, keepdims=True)


def sample(p, n, rng):
    """(problems, n) answers drawn from (problems, answers) probabilities."""
    return (rng.random((len(p), n, 1)) > p.cumsum(1)[:, None, :-1]).sum(2)


def reward(problems, answers):
    return (answers == PAIRS[problems].max(1)[:, None]).astype(float)


def evaluate(weights, seed, step):
    """Mean reward of 4 answers to each held-out problem."""
    answers = sample(probabilities(weights, HELD_OUT), 4, np.random.default_rng([seed, step, 1]))
    return float(reward(HELD_OUT, answers).mean())


def gradient(weights, seed, step, n, groups, baseline):
    """(gradient of the expected reward, by rewards relative to their group's or as they are, and the mean reward)."""
    rng = np.random.default_rng([seed, step, 0])
    problems = rng.choice(TRAIN, groups)
    p = probabilities(weights, problems)
    answers = sample(p, n, rng)
    r = reward(problems, answers)
    advantage = (r - r.mean(1, keepdims=True)) / (r.std(1, keepdims=True) + 1e-6) if baseline == "group" else r
    score = np.eye(SIZE)[answers] - p[:, None]
    each = (advantage[:, :, None] * score).mean(1) / groups
    out = np.zeros_like(weights)
    np.add.at(out[0], PAIRS[problems, 0], each)
    np.add.at(out[1], PAIRS[problems, 1], each)
    return out, float(r.mean())


def save(path, **state):
    """Write a checkpoint whole or not at all."""
    temporary = path.with_suffix(".tmp.npz")
    np.savez(temporary, **state)
    os.replace(temporary, path)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, kind in (("n", int), ("groups", int), ("updates", int), ("lr", float), ("seed", int), ("out", Path)):
        options.add_argument(f"--{name}", type=kind, required=True)
    options.add_argument("--eval-every", type=int, default=10)
    options.add_argument("--baseline", choices=("group", "none"), default="group")
    options.add_argument("--pause", type=float, default=0.0, help="seconds to wait after every update")
    asked = options.parse_args()

    began, checkpoint = time.perf_counter(), asked.out / "checkpoint.npz"
    asked.out.mkdir(parents=True, exist_ok=True)
    weights, first, second, start = np.zeros((2, SIZE, SIZE)) + 2 * np.eye(SIZE), 0.0, 0.0, 0
    if checkpoint.exists():
        with np.load(checkpoint) as state:
            weights, first, second, start = (state[k] for k in ("weights", "first", "second", "step"))
    with (asked.out / "metrics.jsonl").open("a") as log:

        def write(**line):
            log.write(json.dumps({**line, "seconds": time.perf_counter() - began}) + "\n")
            log.flush()

        if start == 0:
            write(step=0, held_out=evaluate(weights, asked.seed, 0))
        for step in range(int(start) + 1, asked.updates + 1):
            g, mean = gradient(weights, asked.seed, step, asked.n, asked.groups, asked.baseline)
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2     # Adam
            weights = weights + asked.lr * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            write(step=step, reward=mean, lr=asked.lr)
            time.sleep(asked.pause)
            if step % asked.eval_every == 0 or step == asked.updates:
                write(step=step, held_out=evaluate(weights, asked.seed, step))
                save(checkpoint, weights=weights, first=first, second=second, step=step)


if __name__ == "__main__":
    main()
