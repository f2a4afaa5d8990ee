"""Makes the base model of the puzzles: `python experiments/make_puzzles_base.py --out DIR`, about ten minutes.

A small decoder, taught step-by-step answers by imitation and stopped early, as `make_base.py` does for sums. Most
lessons are easy and short; the hard levels are rare, so that pass rates cover [0, 1] and some problems are out of
reach. Answers to countdowns show the search with its dead ends, so the model learns to try, to give up and to go on.
The later lessons have slips, as text by people has: a forgotten carry, a result off by one, a search that stops too
early. So the base knows more than it does reliably, and reinforcement learning has something to improve.
The same seed gives the same weights on the same machine and number of threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator
from torch import Tensor

from isocost import chance, methods
from isocost.batch import Batch, Forward
from isocost.local import embedded, models, weights
from isocost.local.decoder import Config, Decoder
from isocost.local.learner import Adam
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model
from isocost.local.world import open_world
from isocost.runs.evaluate import evaluate
from isocost.seams import Pace
from isocost.steps.settings import setting_with
from isocost.tasks import chain, countdown, load_problems, puzzles
from isocost.tasks.drawn import STEP, Drawn, pick
from isocost.types import Problem, Stop
from isocost.worlds.setting import open_setting
from make_base import pace, padded

END = len(puzzles.ALPHABET)      # the one special token: it ends an answer, and pads
FOLDER = embedded.EMBEDDED["tiny-puzzles"]
CUT = "\0"                       # ends an answer that is only a beginning
SAMPLES = 64                     # per problem, of which rates.json counts the right ones
Shares = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Lessons:
    """How the base is taught. The defaults made the one that is shipped."""

    seed: int = 0
    hidden: int = 96
    layers: int = 3
    heads: int = 6
    context: int = 256
    steps: int = 1400
    rows: int = 192                  # puzzles per step
    lr: float = 3e-3                 # peak; warmed up over a tenth of the steps, then down to nothing by a cosine
    kinds: Shares = (0.30, 0.22, 0.48)            # of chains, additions, countdowns
    chain: Shares = (0.40, 0.24, 0.24, 0.12)      # of the levels, by kind
    addition: Shares = (0.50, 0.28, 0.16, 0.06)
    countdown: Shares = (0.36, 0.28, 0.24, 0.12)
    lengths: Shares = (0.36, 0.28, 0.20, 0.11, 0.05)
    slips: Shares = (0.06, 0.10, 0.15, 0.20)      # chance of a slip in a step of an answer, by level
    sound: float = 0.6               # share of the steps, the first ones, whose lessons have no slips


def config(lessons: Lessons) -> Config:
    """The decoder's shape: its vocabulary is the alphabet and the end token."""
    return Config(
        vocab=END + 1, hidden=lessons.hidden, layers=lessons.layers, heads=lessons.heads, kv_heads=lessons.heads,
        head_dim=lessons.hidden // lessons.heads, mlp=2 * lessons.hidden, max_len=lessons.context,
    )


def teach(lessons: Lessons, report: int = 0) -> Model:
    """Train a decoder from random weights on `steps` batches of right answers, the loss on answers alone.

    It runs in the learner of the runs, so that the kernel computes it. `report` prints the loss every so many steps.
    """
    start = int(chance.generator(lessons.seed, chance.Purpose.INIT).integers(2**62))
    shape = config(lessons)
    first = Decoder.from_config(shape, torch.Generator().manual_seed(start))
    fresh = Model("tiny-puzzles", shape, dict(first.named_parameters()), Characters(puzzles.ALPHABET, END))
    adam = Adam(betas=(0.9, 0.99), weight_decay=0.01)
    learner = open_world(fresh, (), lambda *_: None, device="cpu", adam=adam).learner
    began = time.process_time()
    for step in range(lessons.steps):
        seen = learner.update(batch(list(lesson(lessons, step))), imitate, lr=lessons.lr * pace(step, lessons.steps))
        if report and (step + 1) % report == 0:
            print(f"step {step + 1}: loss {seen['loss']:.4f}, {time.process_time() - began:.0f} s", file=sys.stderr)
    return fresh.but(weights={k: v.clone() for k, v in learner.weights().items()})


def taught_further(lesson: Callable[[int], Sequence[tuple[str, str]]], steps: int, lr: float, report: int = 0) -> Model:
    """The shipped base after `steps` more batches of prompts and answers, those of `lesson`(step).

    An answer that ends in `CUT` goes on after it: its end is not taught. The model's record of pass rates and learning
    rate is dropped, because they are another model's.
    """
    shipped = models.load("tiny-puzzles")
    adam = Adam(betas=(0.9, 0.99), weight_decay=0.01)
    learner = open_world(shipped, (), lambda *_: None, device="cpu", adam=adam).learner
    for step in range(steps):
        seen = learner.update(batch(lesson(step)), imitate, lr=lr * pace(step, steps))
        if report and (step + 1) % report == 0:
            print(f"step {step + 1}: loss {seen['loss']:.4f}", file=sys.stderr)
    extra = {k: v for k, v in shipped.extra.items() if k != "made"}
    return shipped.but(weights={k: v.clone() for k, v in learner.weights().items()}, extra=extra)


def imitate(out: Forward, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each token: minus its log-probability."""
    return -out.logp, {}


def batch(rows: Sequence[tuple[str, str]]) -> Batch:
    """Prompts and answers as what the learner reads; every token of an answer has the same weight.

    The end after an answer that ends in `CUT` is not taught.
    """
    tokens, target = padded([(p, a.removesuffix(CUT)) for p, a in rows], puzzles.ALPHABET)
    for i, (p, a) in enumerate(rows):
        if a.endswith(CUT):
            target[i, len(p) + len(a) - len(CUT)] = -1
    mask, zero, each = target >= 0, torch.zeros(tokens.shape), torch.arange(len(rows))
    return Batch(
        tokens, mask, zero, zero.long(), zero.long(), torch.tensor([len(p + a.removesuffix(CUT)) + 1 for p, a in rows]),
        torch.ones(len(rows)), each, torch.zeros(len(rows)), each, torch.zeros(len(rows)), (),
        weight=mask / mask.sum(),
    )


def lesson(lessons: Lessons, step: int) -> Iterator[tuple[str, str]]:
    """The prompts and right answers of one step."""
    rng = chance.generator(lessons.seed, chance.Purpose.INIT, 1 + step)
    names = list(puzzles.KINDS)
    for kind in rng.choice(len(names), lessons.rows, p=lessons.kinds).tolist():
        levels = getattr(lessons, names[kind])
        level, length = (int(np.searchsorted(np.cumsum(p), rng.random())) for p in (levels, lessons.lengths))
        level, length = min(level, puzzles.LEVELS - 1), min(length, puzzles.LENGTHS - 1)
        drawn = puzzles.draw(rng, names[kind], level + 1, length + 1)
        sound = step < lessons.sound * lessons.steps
        yield drawn.prompt, drawn.solution if sound else SLIPS[names[kind]](rng, drawn, lessons.slips[level])


def slip_in_chain(rng: Generator, drawn: Drawn, rate: float) -> str:
    """A chain in which each step is off by one with this chance; the next steps go on from there."""
    start, pairs, m = chain.parsed(drawn.prompt)
    steps, value = [], start
    for pair in pairs:
        (step,), value = chain.worked(value, [pair], m)
        if rng.random() < rate:
            value = (value + pick(rng, (-1, 1))) % m
            step = f"{step.rpartition('=')[0]}={value}"
        steps.append(step)
    return "".join(step + STEP for step in steps) + str(value)


def slip_in_addition(rng: Generator, drawn: Drawn, rate: float) -> str:
    """An addition in which each column forgets its carry, or is off by one, with this chance."""
    out, digits, carry = [], "", 0
    for step in drawn.solution.split(STEP)[:-1]:
        a, b = int(step[0]), int(step[2])
        slip = rng.random() < rate
        off = pick(rng, (-1, 1)) if slip and not carry else 0
        carry = 0 if slip else carry
        total = max(0, a + b + carry + off)
        out.append(f"{a}+{b}" + (f"+{carry}" if carry else "") + f"={total}{STEP}")
        digits, carry = f"{total % 10}{digits}", total // 10
    return "".join(out) + (f"{carry}" if carry else "") + digits


def slip_in_countdown(rng: Generator, drawn: Drawn, rate: float) -> str:
    """A search that stops at each combination of all the numbers that misses the target with this chance."""
    steps, depth = drawn.solution.split(STEP)[:-1], drawn.prompt.count(",")
    path: list[str] = []
    for i, step in enumerate(steps):
        bare = step.lstrip(countdown.UNDO)
        path = [*path[: len(path) + len(bare) - len(step)], bare.partition("=")[0]]
        if len(path) == depth and i < len(steps) - 1 and rng.random() < rate:
            return "".join(s + STEP for s in steps[: i + 1]) + path[0] + "".join(
                p[p.index(re.findall(r"[-+*]", p)[0]):] for p in path[1:])
    return drawn.solution


SLIPS = {"chain": slip_in_chain, "addition": slip_in_addition, "countdown": slip_in_countdown}


def write(folder: Path, model: Model, made: dict[str, Any]) -> Path:
    """Write the base as a Hugging Face folder, and how it was `made`."""
    extra = {"alphabet": puzzles.ALPHABET, "eos_token_id": END, "pad_token_id": END, "made": made}
    weights.save_model(folder, model.but(extra=extra, files={}))
    return folder


def measure(
    model: str | Path, samples: int = SAMPLES, count: int = puzzles.COUNT
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sample the first `count` default problems at temperature 1: the data of rates.json, and its summary."""
    data = str(puzzles.Puzzles(count=count))
    opened = open_setting(setting_with(model=str(model), data=data))
    limit = opened.setting.max_tokens
    problems = load_problems(data, check=False).problems
    with torch.inference_mode():
        found = asyncio.run(evaluate(
            methods.recipe("reinforce"), opened.world, problems, Pace(lr=0.0, max_tokens=limit), samples=samples,
        ))
    right = [round(x * samples) for x in found.right]
    lengths = [r.segments[-1].written for g in found.groups for r in g.rollouts]
    cut = [r.stop == Stop.LENGTH for g in found.groups for r in g.rollouts]
    rates = {"data": data, "samples": samples, "max_tokens": limit, "right": right}
    return rates, summary(problems, np.array(right) / samples, np.array(lengths), float(np.mean(cut))) | {
        "samples": samples}


def summary(problems: Sequence[Problem], rate: ndarray, lengths: ndarray, cut: float) -> dict[str, Any]:
    """What a study needs to know of a base: pass@1 by kind, level and length, in tenths, and lengths of answers."""
    def by(key: str) -> dict[str, float]:
        values = sorted({p.meta[key] for p in problems})
        return {str(v): round(float(np.mean([x for p, x in zip(problems, rate, strict=True) if p.meta[key] == v])), 4)
                for v in values}

    return {
        "mean": round(float(rate.mean()), 4), "kind": by("kind"), "level": by("level"), "length": by("length"),
        "tenths": np.histogram(rate, 10, (0.0, 1.0))[0].tolist(), "never": round(float((rate == 0).mean()), 4),
        "problems": len(problems), "cut": round(cut, 4), "tokens": {
            "mean": round(float(lengths.mean()), 1),
            **{f"{q:g}": int(np.quantile(lengths, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)},
        },
    }


def main() -> None:
    """Make the base from the command line; every setting of `Lessons` but the shares is an option."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write (default: the package's own)")
    parser.add_argument("--measure", action="store_true", help="only measure the model that is there")
    for name, value in asdict(Lessons()).items():
        if not isinstance(value, tuple):
            parser.add_argument(f"--{name}", type=type(value), default=value, help=f"(default {value})")
    said = vars(parser.parse_args())
    out, only = said.pop("out"), said.pop("measure")
    torch.set_num_threads(1)
    lessons = Lessons(**said)
    model = out if only else write(out, teach(lessons, report=50), {"lessons": asdict(lessons)})
    rates, facts = measure(model)
    (out / "rates.json").write_text(json.dumps(rates) + "\n", encoding="utf-8")
    made = json.loads((out / "config.json").read_text(encoding="utf-8"))["made"]
    write(out, models.load(str(out)), {**made, "pass_at_1": facts})
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
