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
from numpy.random import Generator
from torch import Tensor

import lessons
from isocost import chance
from isocost.batch import Batch, Forward
from isocost.disk.jsonfile import read_json, write_json
from isocost.envs.tiny import rooms
from isocost.errors import UserError
from isocost.local import models, weights
from isocost.local.decoder import Config, Decoder
from isocost.local.embedded import EMBEDDED
from isocost.local.learner import AdamW
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model
from isocost.local.world import Compute, open_world
from isocost.runs.files import read_lines
from isocost.screen.words import markdown_table
from isocost.tasks.builtin import puzzles, sums
from isocost.tasks.builtin.drawn import END as ASKED
from lessons import Lessons, Row
from pass_rates import (
    Facts,
    after_rounds,
    rates_of_agents,
    rates_of_puzzles,
    rates_of_sums,
    share_of_puzzles,
    shown_answers,
)

HOME = Path(__file__).resolve().parents[1]
RECORD, PAGE = HOME / "experiments" / "results" / "bases.json", HOME / "experiments" / "README.md"
MARK = "## Small base models"
FOUND = ("before", "mean_gain", "also")     # what the record keeps of a try
SEEDS = (0, 1)            # of the GRPO runs that measure a gain
N, B = 8, 16              # of these runs, where a row says nothing else


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
        model = _taught_in_torch(base)
        return Model("", model.config, _detached(model), Characters(base.alphabet, end))
    first = models.load(base.after) if base.after else _random(own, base.alphabet)
    adam = AdamW(betas=(0.9, 0.99), weight_decay=0.01)
    learner = open_world(first, (), lambda *_: None, compute=Compute(device="cpu", adam=adam)).learner
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


def _taught_in_torch(base: Base) -> Decoder:
    """A base's decoder, trained by torch's optimiser on its lessons."""
    own = base.lessons
    model = _decoder(own, len(base.alphabet))
    optimiser = torch.optim.AdamW(model.parameters(), lr=own.lr, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda k: pace(k, own.steps))
    for step in range(own.steps):
        rows = batch(_rows(base, step), base.alphabet)
        taught = rows.tokens.where(rows.mask, -1)
        logits = model.logits(model(rows.tokens))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), taught[:, 1:].flatten(), ignore_index=-1)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model


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
        "elsewhere": 0.15,                       # share of these walks in other houses
        "looker": 0.78},                         # chance that a turn at a needle is right
)
WAIT = "!"               # the forced word: the mark that ends a prompt would be read as the end of another
SHORT = WHOLE.of | {"lengths": (0.6, 0.4, 0.0, 0.0, 0.0)}
AGAIN = {"addition": (0.25, 0.25, 0.25, 0.25), "slips": (0.1, 0.15, 0.2, 0.25), "mend": 0.5}
FOUR_DIGITS = ("--data", "puzzles:kind=addition,length=2,count=600", "--lr", "1e-4", "--budget", "6144-rollouts")
SIZES = {"XS": (32, 2), "S": (48, 2), "M": (64, 2), "L": (96, 2), "XL": (128, 3)}     # hidden size, layers

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
        Lessons(context=256, steps=900, rows=96, lr=4e-3,
                of=AGAIN | {"lengths": (0.3, 0.5, 0.2), "joint": lessons.END + ASKED}),
        ("--data", "{folder}/shown.jsonl", "--verifier", "final", "--max-tokens", "64", "--lr", "2e-4",
         "--budget", "6144-rollouts"),
        data=shown_answers, also=partial(after_rounds, joint=lessons.END + ASKED)),
    "wait": Base(
        "goes on after a forced word in place of its end", lessons.answers_again,
        Lessons(context=256, steps=1000, rows=96, lr=4e-3, of=AGAIN | {"lengths": (0.4, 0.6), "joint": WAIT}),
        FOUR_DIGITS, also=partial(after_rounds, joint=WAIT)),
    "countdown": Base(
        "countdowns of three numbers whose searches stop too early", lessons.steps_of_puzzles,
        replace(WHOLE, steps=900, rows=96, lr=1.5e-3, of=WHOLE.of | {
            "kinds": (0.0, 0.0, 1.0), "lengths": (1.0, 0.0, 0.0, 0.0, 0.0), "slips": (0.4,) * 4, "sound": 0.0}),
        ("--data", "puzzles:kind=countdown,length=1,count=900", "--lr", "2e-4", "--budget", "12288-rollouts"),
        after="tiny-puzzles"),
    "expressions": Base(
        "writes expressions again, seldom in fewer operations", lessons.expressions_again,
        Lessons(steps=900, rows=96, lr=2e-3, of={"short": 0.3, "slip": 0.2}),
        ("--data", "expressions", "--lr", "2e-4", "--budget", "8192-rollouts"), after="tiny-puzzles"),
    "judge": Base(
        "adds, and says in digits which answers are right", lessons.verdicts,
        Lessons(steps=900, rows=96, lr=2e-3, of={"own": 0.4, "errs": 0.25}),
        ("--data", "puzzles:kind=addition,length=1,count=400", "--lr", "1e-4", "--budget", "6144-rollouts"),
        after="tiny-puzzles"),
    "needle": Base(
        "looks at pictures from afar, and zooms in where the name is", lessons.zooms,
        replace(TOOLS, steps=3_000, rows=48, lr=3e-3, of={
            "turns": 10, "shares": (0.0, 0.0, 0.0, 0.0, 1.0), "looker": 0.85, "first": 0.25, "near": 0.4}),
        ("--env", "needle", "--max-turns", "8", "-B", "8", "--lr", "5e-4", "--budget", "20k-env-steps"),
        rooms.ALPHABET, "tiny-tools"),
    "event": Base(
        "names frames of a video, and says when an event is, or what", lessons.watches,
        replace(TOOLS, steps=1_500, rows=128, lr=3e-3, of={"when": 0.5, "aims": 0.35, "answers": 0.9}),
        ("--env", "event:asks=what", "--max-turns", "3", "--held-out", "0.3", "-B", "8", "--lr", "5e-4",
         "--budget", "8000-env-steps"), rooms.ALPHABET, "tiny-tools"),
    "reach": Base(
        "moves a point to places in a plane, often past them", lessons.reaches,
        replace(TOOLS, steps=2_000, rows=96, lr=3e-3, of={"turns": 8, "errs": 0.6, "sound": 0.6}),
        ("--env", "reach", "--max-turns", "8", "--held-out", "0.3", "-B", "8", "--lr", "5e-4",
         "--budget", "20k-env-steps"), rooms.ALPHABET, "tiny-tools"),
    "weak": Base(
        "the weak one of a pair: tiny-puzzles after 260 steps", lessons.steps_of_puzzles, replace(WHOLE, steps=260),
        FOUR_DIGITS, also=share_of_puzzles),
    **{f"puzzles-{name}": Base(
        f"short puzzles, one of five sizes taught alike: {hidden} wide, {layers} layers", lessons.steps_of_puzzles,
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


def recorded(name: str, old: Facts, again: bool) -> Facts:
    """Measure a base. It is made first if it neither ships nor was made by these lessons, and `again` if it ships.

    What `old`, its row of the record, says of other lessons or another task is kept as a try.
    """
    base, shipped, made = named(name), EMBEDDED.get(name), Path("bases") / name
    folder = shipped or made
    asked: Facts = {"lessons": told(base.lessons), "task": shlex.join(base.task)}
    same = all(old.get(k) == v for k, v in asked.items())
    tried = [*old.get("tried", ()), *([{k: old[k] for k in (*asked, *FOUND)}] if "runs" in old and not same else ())]
    out: Facts = {"use": base.use, "command": f"python experiments/bases.py record {name}", **asked, "tried": tried}
    out |= {k: old[k] for k in ("seconds", "differs") if k in old and old["lessons"] == asked["lessons"]}
    timed, config = made / "seconds", made / "config.json"
    there = timed.exists() and config.exists() and read_json(config)["made"]["lessons"] == asked["lessons"]
    if again or not (shipped or there):
        began = time.process_time()
        model = make(replace(base, facts=None), made, report=100)
        timed.write_text(f"{time.process_time() - began:.0f}\n", encoding="utf-8")
        if shipped:
            ours = models.load(name).weights
            out["differs"] = max(float((v - ours[k]).abs().max()) for k, v in model.weights.items())
    if again or not shipped:
        out["seconds"] = int(timed.read_text(encoding="utf-8"))
    runs = [trained(base, folder, seed) for seed in SEEDS]
    gains = [round(r["after"] - r["before"], 4) for r in runs]
    return out | {"bytes": sum(f.stat().st_size for f in folder.glob("*.*") if f.suffix != ".py"),
                  "before": runs[0]["before"], "gain": gains, "mean_gain": round(float(np.mean(gains)), 4),
                  "runs": runs, "also": base.also(folder) if base.also else {}}


def kept() -> dict[str, Facts]:
    """The rows that were measured, by name."""
    return read_json(RECORD) if RECORD.exists() else {}


def table(record: Mapping[str, Facts]) -> str:
    """The rows of a record as a table, and the tries that they replaced as a list."""
    rows, tries = [], []
    for name, base in BASES.items():
        x = record.get(name, {})
        for old in x.get("tried", ()):
            other = [f"{k} {v}" for k, v in old["lessons"].items() if v != x["lessons"].get(k, v)]
            other += [old["task"]] if old["task"] != x["task"] else []
            tries.append(f"- `{name}` with {', '.join(other)}: before {old['before']:.2f}, gain {old['mean_gain']:+.2f}"
                         f"{_also(old, '; ')}\n")
        if "runs" not in x:
            rows.append([f"`{name}`", base.use, "not measured", *[""] * 6])
            continue
        made = f"{x['seconds']:.0f} s" if "seconds" in x else "not made again"
        made += f"; weights within {x['differs']:.0e}" if "differs" in x else ""
        rows.append([f"`{name}`", base.use, f"{x['bytes'] / 1e6:.2f} MB", made, f"{x['before']:.2f}",
                     f"{x['mean_gain']:+.2f} ({min(x['gain']):+.2f} to {max(x['gain']):+.2f})",
                     f"{np.mean([r['rollouts'] for r in x['runs']]):,.0f}",
                     f"{np.mean([r['seconds'] for r in x['runs']]):.0f} s", _also(x)])
    head = ["base", "what it does", "size", "CPU to make", "before", "gain by GRPO", "rollouts", "CPU a run",
            "share right"]
    return markdown_table(head, rows) + ("\nEarlier tries:\n\n" + "".join(tries) if tries else "")


def _also(row: Facts, before: str = "") -> str:
    return before + "; ".join(f"{k} {v:.2f}" for k, v in row["also"].items()) if row["also"] else ""


def page(text: str, record: Mapping[str, Facts]) -> str:
    """The page with the table of a record in place of the one that its section has; the section ends with it."""
    section = text.index(MARK)
    start, end = text.index("\n| base |", section) + 1, text.index("\n\n## ", section) + 1
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
            row = recorded(name, kept().get(name, {}), asked.again)
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
