"""Makes the small base models, and measures what they are good for. `BASES` has one row for each.

    python experiments/bases.py list                     the rows
    python experiments/bases.py make NAME --out DIR      the model as a Hugging Face folder
    python experiments/bases.py record NAME ...          makes them in bases/NAME, trains each with GRPO, and keeps the
                                                         numbers in experiments/results/bases.json
    python experiments/bases.py page                     the table in experiments/README.md

A base is a small decoder that imitates teachers who err (`lessons.py`), stopped early. So it knows more than it does
reliably, and reinforcement learning has something to improve. Four ship with the package. The same seed gives the same
weights on the same machine and number of threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from numpy.random import Generator
from torch import Tensor

import lessons
from isocost import chance, methods
from isocost.batch import Batch, Forward
from isocost.envs import rooms
from isocost.errors import UserError
from isocost.gather import together
from isocost.jsonfile import read_json, write_json
from isocost.local import models, weights
from isocost.local.decoder import Config, Decoder
from isocost.local.embedded import EMBEDDED
from isocost.local.learner import Adam
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model
from isocost.local.world import open_world
from isocost.parts.play import given, sample
from isocost.runs.evaluate import Evaluation, evaluate
from isocost.runs.files import read_lines
from isocost.seams import Pace
from isocost.steps.settings import setting_with
from isocost.tasks import puzzles, sums
from isocost.tasks.drawn import END as ASKED
from isocost.types import Problem, Rollout, Stop
from isocost.words import markdown_table
from isocost.worlds.setting import open_setting
from lessons import Lessons, Row

HOME = Path(__file__).resolve().parents[1]
RECORD, PAGE = HOME / "experiments" / "results" / "bases.json", HOME / "experiments" / "README.md"
MARK, WEIGHTS = "## Small base models", "model.safetensors"
SEEDS = (0, 1)            # of the GRPO runs that measure a gain
N, B = 8, 16              # of these runs, where a row says nothing else
Facts = dict[str, Any]


@dataclass(frozen=True)
class Base:
    """One base model: what it is for, how it is taught, and the task that shows what GRPO gains from it."""

    use: str
    lesson: Callable[[Generator, Lessons, int], Iterable[Row]]
    lessons: Lessons
    task: tuple[str, ...]                     # options of `isocost train grpo`; {folder} is the base's own folder
    alphabet: str = puzzles.ALPHABET
    after: str = ""                           # the model that is taught further; "": random weights
    data: Callable[[Path], None] | None = None            # writes what its task reads beside the model
    facts: Callable[[Path], Facts] | None = None          # what its config.json says of its pass rates
    also: Callable[[Path], dict[str, float]] | None = None      # further numbers of the table
    in_torch: bool = False                    # taught by torch's optimiser, not by the learner of runs


# making ---------------------------------------------------------------------------------------------------------------


def teach(base: Base, report: int = 0) -> Model:
    """The base after its lessons, the loss on the taught pieces alone. `report` prints the loss every so many steps."""
    own, end = base.lessons, len(base.alphabet)
    if base.in_torch:
        model = taught_in_torch(own, lambda own, step: targets(batch(_rows(base, step), base.alphabet)))
        return Model("", model.config, _detached(model), Characters(base.alphabet, end))
    first = models.load(base.after) if base.after else _random(own, base.alphabet)
    adam = Adam(betas=(0.9, 0.99), weight_decay=0.01)
    learner = open_world(first, (), lambda *_: None, device="cpu", adam=adam).learner
    for step in range(own.steps):
        seen = learner.update(batch(_rows(base, step), base.alphabet), imitate, lr=own.lr * pace(step, own.steps))
        if report and (step + 1) % report == 0:
            print(f"step {step + 1}: loss {seen['loss']:.4f}", file=sys.stderr, flush=True)
    return first.but(weights={k: v.clone() for k, v in learner.weights().items()}, extra={})


def _rows(base: Base, step: int) -> list[Row]:
    rng = chance.generator(base.lessons.seed, chance.Purpose.INIT, 1 + step)
    return list(base.lesson(rng, base.lessons, step))


def _random(own: Lessons, alphabet: str) -> Model:
    first = _decoder(own, len(alphabet))
    return Model("", first.config, dict(first.named_parameters()), Characters(alphabet, len(alphabet)))


def _decoder(own: Lessons, end: int) -> Decoder:
    """A decoder with random weights; its vocabulary is the alphabet and the end token."""
    start = int(chance.generator(own.seed, chance.Purpose.INIT).integers(2**62))
    shape = Config(vocab=end + 1, hidden=own.hidden, layers=own.layers, heads=own.heads, kv_heads=own.heads,
                   head_dim=own.hidden // own.heads, mlp=2 * own.hidden, max_len=own.context)
    return Decoder.from_config(shape, torch.Generator().manual_seed(start))


def taught_in_torch(own: Lessons, lesson: Callable[[Lessons, int], tuple[Tensor, Tensor]]) -> Decoder:
    """A decoder for sums, trained by torch on the batches of `lesson`, as the shipped one was: see `targets`."""
    model = _decoder(own, len(sums.ALPHABET))
    optimiser = torch.optim.AdamW(model.parameters(), lr=own.lr, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda k: pace(k, own.steps))
    for step in range(own.steps):
        tokens, target = lesson(own, step)
        logits = model.logits(model(tokens))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten(), ignore_index=-1)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model


def taught_further(lesson: Callable[[int], Sequence[tuple[str, str]]], steps: int, lr: float, report: int = 0) -> Model:
    """`tiny-puzzles` after more batches of prompts and answers, those of `lesson`(step); `lessons.line` says of ends.

    The model's record of pass rates and learning rate is dropped, because they are another model's.
    """
    more = Base("", lambda rng, own, step: [lessons.line(*x) for x in lesson(step)], Lessons(steps=steps, lr=lr), (),
                after="tiny-puzzles")
    return teach(more, report).but(extra=_extra(puzzles.ALPHABET))


def imitate(out: Forward, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each token: minus its log-probability."""
    return -out.logp, {}


def pace(step: int, steps: int) -> float:
    """Share of the peak learning rate: a tenth of the steps up, then a cosine down to nothing."""
    warm = max(1, steps // 10)
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))


def batch(rows: Sequence[Row], alphabet: str) -> Batch:
    """Rows as the learner reads them: every taught token has the same weight. A token is a character's place."""
    known = {c: i for i, c in enumerate(alphabet)} | {lessons.END: len(alphabet)}
    whole = [[(known[c], own) for text, own in row for c in text] for row in rows]
    length = torch.tensor([len(x) for x in whole])
    tokens = torch.full((len(rows), int(length.max())), len(alphabet))
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for i, x in enumerate(whole):
        tokens[i, : len(x)] = torch.tensor([t for t, _ in x])
        mask[i, : len(x)] = torch.tensor([own for _, own in x])
    zero, each = torch.zeros(tokens.shape), torch.arange(len(rows))
    return Batch(tokens, mask, zero, zero.long(), zero.long(), length, torch.ones(len(rows)), each,
                 torch.zeros(len(rows)), each, torch.zeros(len(rows)), (), weight=mask / mask.sum())


def targets(rows: Batch) -> tuple[Tensor, Tensor]:
    """(N, T) tokens, and the (N, T) tokens that are taught, -1 where none is."""
    return rows.tokens, rows.tokens.where(rows.mask, -1)


def padded(rows: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """The `targets` of prompts and answers in the characters of sums."""
    return targets(batch([lessons.line(*x) for x in rows], sums.ALPHABET))


def save(folder: Path, model: Decoder, made: Mapping[str, Any]) -> None:
    """Write a decoder for sums as a Hugging Face folder, and how it was `made`."""
    own = Characters(sums.ALPHABET, len(sums.ALPHABET))
    write(folder, Model("", model.config, _detached(model), own), sums.ALPHABET, made)


def write(folder: Path, model: Model, alphabet: str, made: Mapping[str, Any]) -> None:
    """Write a base as a Hugging Face folder, and how it was `made`."""
    weights.save_model(folder, model.but(extra=_extra(alphabet) | {"made": made}, files={}))


def _extra(alphabet: str) -> Facts:
    return {"alphabet": alphabet, "eos_token_id": len(alphabet), "pad_token_id": len(alphabet)}


def _detached(model: Decoder) -> dict[str, Tensor]:
    return {k: v.detach() for k, v in model.named_parameters()}


def told(own: Lessons) -> Facts:
    """The settings of lessons as config.json has them."""
    data = asdict(own)
    return dict(json.loads(json.dumps({**{k: v for k, v in data.items() if k != "of"}, **data["of"]})))


def make(base: Base, folder: Path, report: int = 0) -> Model:
    """Teach a base and write it: its weights, how it was made, its pass rates, and the problems of its task."""
    torch.set_num_threads(1)
    model, made = teach(base, report), {"lessons": told(base.lessons)}
    write(folder, model, base.alphabet, made)
    if base.facts is not None:
        write(folder, model, base.alphabet, made | {"pass_at_1": base.facts(folder)})
    if base.data is not None:
        base.data(folder)
    return model


# pass rates -----------------------------------------------------------------------------------------------------------


def measured(model: str | Path, samples: int, **setting: Any) -> tuple[Sequence[Problem], Evaluation]:
    """All problems of a setting, and how a model answers them at temperature 1: exactly where that can be computed."""
    opened = open_setting(setting_with(model=str(model), **setting), whole=True)
    s, problems = opened.setting, opened.sides.train
    with torch.inference_mode():
        found = asyncio.run(evaluate(methods.recipe("reinforce"), opened.world, problems, s.measured, samples=samples))
    opened.close()
    return problems, found


def by(key: str, problems: Sequence[Problem], rate: ndarray) -> dict[str, float]:
    """Mean pass rate by a key of the problems' `meta`."""
    of = np.array([p.meta[key] for p in problems])
    return {str(v): round(float(rate[of == v].mean()), 4) for v in np.unique(of).tolist()}


def tenths(rate: ndarray) -> list[int]:
    """How many pass rates lie in each tenth of [0, 1]."""
    return [int(x) for x in np.histogram(rate, 10, (0.0, 1.0))[0]]


def rates_of_sums(folder: Path) -> Facts:
    """Exact pass@1 of every sum of two-digit numbers; rates.json has the table."""
    problems, found = measured(folder, 1, data="sums")
    table = found.right.reshape(90, 90)
    lines = ",\n".join(json.dumps([round(float(p), 4) for p in row], separators=(",", ":")) for row in table)
    (folder / sums.RATES.name).write_text(f'{{"first": 10, "pass_at_1": [\n{lines}\n]}}\n', encoding="utf-8")
    within = {name: int(((found.right >= low) & (found.right <= high)).sum())
              for name, (low, high) in sums.BASES.items() if name in ("easy", "hard")}
    return {"mean": round(found.mean, 4), "levels": list(by("level", problems, found.right).values()),
            "tenths": tenths(found.right), **within, "problems": len(problems)}


def rates_of_puzzles(folder: Path, samples: int = 64, count: int = puzzles.COUNT) -> Facts:
    """Pass@1 of the first `count` default puzzles by kind, level and length; rates.json counts the right samples."""
    data = str(puzzles.Puzzles(count=count))
    problems, found = measured(folder, samples, data=data)
    rollouts = [r for g in found.groups for r in g.rollouts]
    long = np.array([r.segments[-1].written for r in rollouts])
    rates = {"data": data, "samples": samples, "max_tokens": puzzles.TOKENS,
             "right": [round(x * samples) for x in found.right]}
    (folder / "rates.json").write_text(json.dumps(rates) + "\n", encoding="utf-8")
    return {
        "mean": round(found.mean, 4), **{k: by(k, problems, found.right) for k in ("kind", "level", "length")},
        "tenths": tenths(found.right), "never": round(float((found.right == 0).mean()), 4), "problems": len(problems),
        "cut": round(float(np.mean([r.stop == Stop.LENGTH for r in rollouts])), 4),
        "tokens": {"mean": round(float(long.mean()), 1),
                   **{f"{q:g}": int(np.quantile(long, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)}},
        "samples": samples,
    }


def rates_of_agents(folder: Path, specs: Sequence[str], samples: int, limit: int | None = None) -> Facts:
    """Success, turns and faults in environments, of the first `limit` problems of each."""
    out = {}
    for spec in specs:
        problems, found = measured(folder, samples, env=spec, limit=limit)
        rollouts = [r for g in found.groups for r in g.rollouts]
        turns = sum(len(r.turns) for r in rollouts)
        out[spec] = {
            "problems": len(problems), "mean": round(found.mean, 4), "level": by("level", problems, found.right),
            "tenths": tenths(found.right), "turns": round(turns / len(rollouts), 2),
            "faults_per_turn": round(sum(t.fault is not None for r in rollouts for t in r.turns) / turns, 4),
        }
    return out


def share_of_puzzles(folder: Path) -> dict[str, float]:
    """The share right of the default puzzles, 4 samples each."""
    return {"all puzzles": round(measured(folder, 4, data="puzzles")[1].mean, 4)}


def after_rounds(folder: Path, joint: str) -> dict[str, float]:
    """The share right of additions of 4 digits when the policy answers, and answers again once and twice.

    Without an `END` in the `joint` its end token is taken away, so that the answer goes on after the word.
    """
    out, word = {}, joint.removeprefix(lessons.END)

    async def again(problem: Problem, attempts: Sequence[int], world: Any, pace: Pace, place: Any, start: Any = None, *,
                    rounds: int) -> list[Rollout]:
        said = await sample(problem, attempts, world, pace, place, start)
        for k in range(1, rounds + 1):
            at = replace(place, wave=place.wave + k)

            async def next_one(r: Rollout, at: Any = at) -> list[Rollout]:
                text = r.segments[-1]
                upto = len(text) - (word == joint and int(text.tokens[-1]) in world.text.ends)
                return list(await sample(problem, [r.attempt], world, pace, at,
                                         given(text, upto, world.text.encode(word))))

            said = [r for some in await together(*map(next_one, said)) for r in some]
        return said

    opened = open_setting(setting_with(model=str(folder), data="puzzles:kind=addition,length=2,count=200,seed=7",
                                       max_tokens=64), whole=True)
    for k in range(3):
        recipe = methods.recipe("reinforce").but(play=partial(again, rounds=k))
        with torch.inference_mode():
            found = asyncio.run(evaluate(recipe, opened.world, opened.sides.train, opened.setting.measured, samples=2))
        out[f"after {k}"] = round(found.mean, 4)
    opened.close()
    return out


def shown_answers(folder: Path, count: int = 400) -> None:
    """Additions of 4 digits as dialogues in which an answer with slips was given and is asked for again."""
    rng, out, known = chance.generator(0, chance.Purpose.CHOOSE, 12), [], set[str]()
    while len(out) < count:
        drawn = puzzles.draw(rng, "addition", 1 + int(rng.integers(puzzles.LEVELS)), 2)
        said = lessons.slip_in_addition(rng, drawn, 0.2)
        if drawn.prompt not in known:
            known.add(drawn.prompt)
            prompt = [{"role": "user", "content": drawn.prompt}, {"role": "assistant", "content": said},
                      {"role": "user", "content": ASKED}]
            out.append(json.dumps({"prompt": prompt, "answer": drawn.answer}) + "\n")
    (folder / "shown.jsonl").write_text("".join(out), encoding="utf-8")


# the rows -------------------------------------------------------------------------------------------------------------

WHOLE = Lessons(
    hidden=96, layers=3, heads=6, context=256, steps=1400, rows=192, lr=3e-3,
    of={"kinds": (0.30, 0.22, 0.48),             # of chains, additions, countdowns
        "chain": (0.40, 0.24, 0.24, 0.12), "addition": (0.50, 0.28, 0.16, 0.06), "countdown": (0.36, 0.28, 0.24, 0.12),
        "lengths": (0.36, 0.28, 0.20, 0.11, 0.05),
        "slips": (0.06, 0.10, 0.15, 0.20),       # chance of a slip in a step of an answer, by level
        "sound": 0.6},                           # share of the steps, the first ones, whose lessons have no slips
)
TOOLS = Lessons(
    context=384, steps=16_000, rows=48, lr=4e-3,
    of={"turns": 6, "shares": (0.42, 0.18, 0.1, 0.14, 0.16),      # pages, desk's sums, its store, boxes, needle
        "views": 0.25,                           # share of the walks through pages that are read as a view shows them
        "elsewhere": 0.15},                      # share of these walks in other houses
)
SHORT = WHOLE.of | {"lengths": (0.6, 0.4, 0.0, 0.0, 0.0)}
AGAIN = {"addition": (0.25, 0.25, 0.25, 0.25), "lengths": (0.3, 0.5, 0.2), "slips": (0.1, 0.15, 0.2, 0.25), "mend": 0.5}
FOUR_DIGITS = ("--data", "puzzles:kind=addition,length=2,count=600", "--lr", "1e-4", "--budget", "6144-rollouts")
SIZES = {"XS": (32, 2), "S": (48, 2), "M": (64, 2), "L": (96, 2), "XL": (128, 3)}     # hidden, layers

BASES: dict[str, Base] = {
    "tiny": Base(
        "sums of two numbers; ships", lessons.two_digits, Lessons(of={"mix": (0.85, 0.13, 0.02), "worked": 0.25}),
        ("--data", "sums:base=hard", "--lr", "2e-4", "--budget", "16384-rollouts"), sums.ALPHABET, facts=rates_of_sums,
        in_torch=True),
    "tiny-puzzles": Base(
        "chains, additions and countdowns; the strong one of a pair; ships", lessons.steps_of_puzzles, WHOLE,
        FOUR_DIGITS, facts=rates_of_puzzles, also=share_of_puzzles),
    "tiny-agents": Base(
        "rooms; ships", lessons.walks,
        Lessons(context=384, steps=500, rows=64, lr=4e-3, of={"turns": 12, "random": 0.6, "elsewhere": 0.5}),
        ("--env", "rooms", "-B", "8", "--budget", "60k-env-steps"), rooms.ALPHABET,
        facts=partial(rates_of_agents, samples=16, specs=(
            "rooms", "rooms:slip=0.1", "rooms:seed=7", "rooms:size=26", "rooms:keys=0,alias=4"))),
    "tiny-tools": Base(
        "pages, desk, boxes and needle; ships", lessons.episodes, TOOLS,
        ("--env", "desk:store=4", "--max-turns", "16", "-B", "2", "--held-out", "0.3", "--lr", "5e-4",
         "--budget", "1600-env-steps"), rooms.ALPHABET, "tiny-agents",
        facts=partial(rates_of_agents, samples=4, limit=100, specs=(
            "pages", "pages:copies=1", "pages:asked=2", "desk", "desk:digits=1", "desk:noise=0.3", "desk:store=4",
            "boxes", "needle"))),
    "revise": Base(
        "revises an answer that it is shown, in the next turn", lessons.answers_again,
        Lessons(context=256, steps=900, rows=96, lr=4e-3, of=AGAIN | {"joint": lessons.END + ASKED}),
        ("--data", "{folder}/shown.jsonl", "--verifier", "final", "--max-tokens", "64", "--lr", "2e-4",
         "--budget", "6144-rollouts"),
        data=shown_answers, also=partial(after_rounds, joint=lessons.END + ASKED)),
    "wait": Base(
        "goes on after a forced word in place of its end", lessons.answers_again,
        Lessons(context=256, steps=900, rows=96, lr=4e-3, of=AGAIN | {"joint": ASKED}), FOUR_DIGITS,
        also=partial(after_rounds, joint=ASKED)),
    "countdown": Base(
        "countdowns of three numbers whose searches stop too early", lessons.steps_of_puzzles,
        replace(WHOLE, steps=900, rows=96, lr=1.5e-3, of=WHOLE.of | {
            "kinds": (0.0, 0.0, 1.0), "lengths": (1.0, 0.0, 0.0, 0.0, 0.0), "slips": (0.4,) * 4, "sound": 0.0}),
        ("--data", "puzzles:kind=countdown,length=1,count=900", "--lr", "2e-4", "--budget", "12288-rollouts"),
        after="tiny-puzzles"),
    "needle": Base(
        "looks at pictures from afar, and zooms in where the name is", lessons.episodes,
        replace(TOOLS, steps=2_500, of=TOOLS.of | {"turns": 10, "shares": (0.0, 0.0, 0.0, 0.0, 1.0)}),
        ("--env", "needle", "--max-turns", "8", "-B", "8", "--lr", "5e-4", "--budget", "20k-env-steps"),
        rooms.ALPHABET, "tiny-tools"),
    "weak": Base(
        "the weak one of a pair: tiny-puzzles after 260 steps", lessons.steps_of_puzzles, replace(WHOLE, steps=260),
        FOUR_DIGITS, also=share_of_puzzles),
    **{f"puzzles-{name}": Base(
        "short puzzles, one of five sizes taught alike", lessons.steps_of_puzzles,
        replace(WHOLE, hidden=hidden, layers=layers, heads=hidden // 16, steps=500, rows=96, of=SHORT),
        FOUR_DIGITS, also=share_of_puzzles) for name, (hidden, layers) in SIZES.items()},
}


def named(name: str) -> Base:
    """The row of this name. Raises UserError if there is none."""
    if name not in BASES:
        raise UserError(f"there is no base {name!r}; `python experiments/bases.py list` shows {', '.join(BASES)}")
    return BASES[name]


# the record and its table ---------------------------------------------------------------------------------------------


def trained(base: Base, folder: Path, seed: int) -> Facts:
    """One GRPO run from a base: its held-out reward before and after, its rollouts, and its CPU seconds."""
    with tempfile.TemporaryDirectory() as work:
        said = ["train", "grpo", "--model", str(folder), "-n", str(N), *(() if "-B" in base.task else ("-B", str(B))),
                *(x.format(folder=folder) for x in base.task), "--evaluations", "1", "--threads", "1",
                "--seed", str(seed)]
        child = subprocess.Popen([sys.executable, "-m", "isocost", *said, "--out", f"{work}/run"],
                                 stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise UserError(f"isocost {shlex.join(said)} failed")
        held = [x for x in read_lines(Path(work, "run", "metrics.jsonl")) if "eval/select" in x]
        before, after = ((x["eval/select"] + x["eval/audit"]) / 2 for x in (held[0], held[-1]))
        return {"command": "isocost " + shlex.join(said), "before": round(before, 4), "after": round(after, 4),
                "rollouts": int(held[-1]["rollouts"]), "seconds": round(used.ru_utime + used.ru_stime, 1)}


def recorded(name: str, known: Facts, again: bool) -> Facts:
    """Measure a base. It is made first if it neither ships nor was made by these lessons, and `again` if it ships."""
    base, shipped, made = named(name), EMBEDDED.get(name), Path("bases") / name
    folder = shipped or made
    out: Facts = {"use": base.use, "command": f"python experiments/bases.py record {name}", **known}
    there = (made / "config.json").exists() and read_json(made / "config.json")["made"]["lessons"] == told(base.lessons)
    if again or not (shipped or (there and known)):
        began = time.process_time()
        make(replace(base, facts=None), made, report=100)
        out["seconds"] = round(time.process_time() - began)
        if shipped:
            out["same_bytes"] = (made / WEIGHTS).read_bytes() == (shipped / WEIGHTS).read_bytes()
    runs = [trained(base, folder, seed) for seed in SEEDS]
    gains = [round(r["after"] - r["before"], 4) for r in runs]
    return out | {"bytes": sum(f.stat().st_size for f in folder.glob("*.*") if f.suffix != ".py"),
                  "before": runs[0]["before"], "gain": gains, "mean_gain": round(float(np.mean(gains)), 4),
                  "runs": runs, "also": base.also(folder) if base.also else {}}


def kept() -> dict[str, Facts]:
    """The rows that were measured, by name."""
    return read_json(RECORD) if RECORD.exists() else {}


def table(record: Mapping[str, Facts]) -> str:
    """The rows of a record as a table."""
    rows = []
    for name, x in record.items():
        made = f"{x['seconds']:.0f} s" if "seconds" in x else "not made again"
        also = "; ".join(f"{k} {v:.2f}" for k, v in x["also"].items())
        train = np.mean([r["seconds"] for r in x["runs"]])
        rows.append([f"`{name}`", x["use"], f"{x['bytes'] / 1e6:.2f} MB", made, f"{x['before']:.2f}",
                     f"{x['mean_gain']:+.2f} ({min(x['gain']):+.2f} to {max(x['gain']):+.2f})",
                     f"{np.mean([r['rollouts'] for r in x['runs']]):,.0f}", f"{train:.0f} s", also])
    return markdown_table(["base", "what it does", "size", "CPU to make", "before", "gain by GRPO", "rollouts",
                           "CPU a run", "share right"], rows)


def page(text: str, record: Mapping[str, Facts]) -> str:
    """The page with the table of a record in place of the one that its section has."""
    section = text.index(MARK)
    start = text.index("\n| base |", section) + 1
    end = text.index("\n\n", start) + 1
    return text[:start] + table(record) + text[end:]


def main(args: Sequence[str] | None = None) -> None:
    """List, make or measure bases from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the rows")
    one = commands.add_parser("make", help="make one")
    one.add_argument("name")
    one.add_argument("--out", type=Path, help="folder to write (default: bases/NAME)")
    for key in ("seed", "steps", "rows", "lr"):
        one.add_argument(f"--{key}", type=float if key == "lr" else int, help="in place of the row's own")
    some = commands.add_parser("record", help="make, train and keep the numbers")
    some.add_argument("names", nargs="+")
    some.add_argument("--again", action="store_true", help="make those that ship, too, and compare their weights")
    commands.add_parser("page", help="write the table")
    asked = parser.parse_args(args)
    if asked.command == "list":
        print("\n".join(f"{name:14} {base.use}" for name, base in BASES.items()))
    elif asked.command == "make":
        base = named(asked.name)
        changed = {k: v for k in ("seed", "steps", "rows", "lr") if (v := getattr(asked, k)) is not None}
        make(replace(base, lessons=replace(base.lessons, **changed)), asked.out or Path("bases") / asked.name, 100)
    elif asked.command == "record":
        for name in asked.names:
            known = {k: v for k, v in kept().get(name, {}).items() if k in ("seconds", "same_bytes")}
            row = recorded(name, known, asked.again)
            found = kept() | {name: row}        # read again: others may have written meanwhile
            write_json(RECORD, {k: found[k] for k in BASES if k in found})
            print(name, json.dumps({k: v for k, v in row.items() if k != "runs"}))
    else:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), kept()), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except UserError as e:
        raise SystemExit(f"error: {e}") from None
