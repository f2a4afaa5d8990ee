"""Makes the base model of pages, desk, boxes and needle: `python experiments/make_tools_base.py --out DIR`.

The base of rooms, taught further by imitation of teachers that err: they walk at random, guess, call tools wrongly, or
miss a box by a cell. Most walks through pages are in the house of the default specification. A quarter of them are read
as a view shows them (`isocost.parts.view`), one turn each, so that the base can act on a context that forgets. So it
knows more than it does reliably, and reinforcement learning has something to improve.
It takes about eight minutes. The same seed gives the same weights on the same machine and number of threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from isocost import chance
from isocost.batch import Batch
from isocost.envs import boxes, desk, needle, pages, rooms
from isocost.envs.opening import open_environment
from isocost.local import embedded, models, weights
from isocost.local.learner import Adam
from isocost.local.weights import Model
from isocost.local.world import open_world
from isocost.parts import view
from isocost.types import Message, Problem
from make_agents_base import measured
from make_base import pace
from make_puzzles_base import imitate

END = len(rooms.ALPHABET)
FOLDER = embedded.EMBEDDED["tiny-tools"]
SPECS = ("pages", "pages:copies=1", "pages:asked=2", "desk", "desk:digits=1", "desk:noise=0.3", "desk:store=4", "boxes",
         "needle")                # that it is measured in
VIEWS = (partial(view.last_results, keep=3), partial(view.placeholders, keep=1, words=" "), view.workspace,
         partial(view.window, rounds=4), view.keyframes)
SAMPLES, PROBLEMS = 4, 100        # of the pass rates in config.json, for each problem and specification
Piece = tuple[str, bool]          # words, and whether the policy says them


@dataclass(frozen=True, slots=True)
class Lessons:
    """How the base is taught. The defaults made the one that is shipped."""

    seed: int = 0
    steps: int = 16_000
    rows: int = 48                  # episodes per step
    turns: int = 6                  # of an episode, at most
    lr: float = 4e-3                # peak; warmed up over a tenth of the steps, then down to nothing by a cosine
    shares: tuple[float, ...] = (0.42, 0.18, 0.1, 0.14, 0.16)    # pages, desk's sums, its store, boxes, needle
    views: float = 0.25             # share of the walks through pages that are read as a view shows them
    elsewhere: float = 0.15         # share of these walks in other houses


def teach(lessons: Lessons, report: int = 0) -> Model:
    """Teach the base of rooms further, on episodes, the loss on the teacher's turns alone."""
    fresh = models.load("tiny-agents")
    adam = Adam(betas=(0.9, 0.99), weight_decay=0.01)
    learner = open_world(fresh, (), lambda *_: None, device="cpu", adam=adam).learner
    began = time.process_time()
    for step in range(lessons.steps):
        rng = chance.generator(lessons.seed, chance.Purpose.INIT, 1 + step)
        rows = [lesson(rng, lessons) for _ in range(lessons.rows)]
        seen = learner.update(batch(rows), imitate, lr=lessons.lr * pace(step, lessons.steps))
        if report and (step + 1) % report == 0:
            print(f"step {step + 1}: loss {seen['loss']:.4f}, {time.process_time() - began:.0f} s", file=sys.stderr,
                  flush=True)
    return fresh.but(name="tiny-tools", weights={k: v.clone() for k, v in learner.weights().items()}, extra={})


def lesson(rng: Generator, lessons: Lessons) -> list[Piece]:
    """One episode of a teacher that errs, or one turn of it as a view shows it."""
    kind = int(rng.choice(5, p=lessons.shares))
    if kind == 0:
        problem = _of(rng, _pages(rng, lessons))
        messages = _done(_played(rng, lessons, pages.Search(problem), _walker))
        if rng.random() < lessons.views:
            return _viewed(rng, messages)
    elif kind == 1:
        problem = _of(rng, desk.Desk(digits=0, noise=float(rng.choice([0.0, 0.3])), seed=_seed(rng), count=1))
        messages = _done(_played(rng, lessons, desk.Work(problem), _clerk))
    elif kind == 2:
        problem = _of(rng, desk.Desk(store=int(rng.integers(2, 10)), noise=float(rng.choice([0.0, 0.3])),
                                     seed=_seed(rng), count=1))
        messages = _done(_played(rng, lessons, desk.Work(problem), _keeper))
    elif kind == 3:
        problem = _of(rng, boxes.Boxes(elements=int(rng.integers(1, 5)), seed=_seed(rng), count=1))
        messages = _done(_played(rng, lessons, boxes.Screen(problem), _pointer))
    else:
        problem = _of(rng, needle.Needle(gold=int(rng.integers(1, 4)), seed=_seed(rng), count=1))
        messages = _done(_played(rng, lessons, needle.Hunt(problem), _looker))
    return [(m.content, m.role == "assistant") for m in messages]


def _seed(rng: Generator) -> int:
    return 1000 + int(rng.integers(2**20))      # other problems than those of a small seed, which are trained on


def _pages(rng: Generator, lessons: Lessons) -> pages.Pages:
    asked = int(rng.choice([1, 1, 1, 2]))
    copies = int(rng.integers(2, 12)) // asked
    home = pages.Pages(asked=asked, copies=copies)
    if rng.random() >= lessons.elsewhere:
        return home
    return replace(home, size=int(rng.integers(12, 21)), keys=int(rng.integers(2)), seed=_seed(rng))


def _of(rng: Generator, which: Any) -> Problem:
    """A problem: one with new pages in the house that most lessons are in, or the first of a world drawn for a lesson.

    Answers that are drawn once would be learnt by heart: the policy would not learn to read.
    """
    if isinstance(which, pages.Pages) and which.seed == 0:
        subject = sorted(rng.permutation(list(rooms.NAMES))[: which.asked].tolist())
        start, draw = int(rng.integers(which.size)), 1000 + int(rng.integers(2**20))
        return pages.problem(which, start, subject, draw) or _of(rng, which)
    return next(iter(MAKERS[type(which)](which)))


MAKERS: dict[type, Callable[[Any], Any]] = {
    pages.Pages: pages.problems, desk.Desk: desk.problems, boxes.Boxes: boxes.problems, needle.Needle: needle.problems,
}


def _done(episode: Coroutine[Any, Any, list[Message]]) -> list[Message]:
    """The outcome of a coroutine that never waits: an event loop for each lesson would take longer than the lesson."""
    try:
        episode.send(None)
    except StopIteration as end:
        return list(end.value)
    raise AssertionError("these environments do not wait")


async def _played(rng: Generator, lessons: Lessons, env: Any, teacher: Callable[..., str]) -> list[Message]:
    """The messages of an episode."""
    messages = [*(await env.open()).messages]
    for _ in range(lessons.turns):
        said = teacher(rng, env)
        shown = await env.step(said, lambda: rng)
        messages.append(Message("assistant", said))
        if shown.over:
            break
        messages += shown.messages
    return messages


def _viewed(rng: Generator, messages: Sequence[Message]) -> list[Piece]:
    """A turn after the first, as one of the views shows it."""
    turns = [i for i, m in enumerate(messages) if m.role == "assistant"]
    at = turns[int(rng.integers(len(turns)))]
    shown = VIEWS[int(rng.integers(len(VIEWS)))](messages[:at], ())
    return [*((m.content + "\0" * (m.role == "assistant"), False) for m in shown), (messages[at].content, True)]


def _walker(rng: Generator, env: pages.Search) -> str:
    """Walks at random; answers what it has seen most of the time, and guesses now and then."""
    if len(env.seen) == len(env.subject) and rng.random() < 0.85:
        return str(env.answer)
    if rng.random() < 0.04:
        return "".join(map(str, rng.integers(10, size=len(env.subject)).tolist()))
    moves = env.which.house.moves(*env.state)
    return rooms.NAMES[moves[int(rng.integers(len(moves)))][0]]


def _clerk(rng: Generator, env: desk.Work) -> str:
    """Calls the calculator half of the time, and otherwise adds, wrongly one time in five; forgets letters."""
    right, draw = env.problem.answer, rng.random()
    if env.told:
        return f"A{env.told}" if draw < 0.9 else f"A{rng.integers(10, 200)}"
    if draw < 0.5:
        return f"C{env.problem.text[:-1]}"
    if draw < 0.6:
        return env.problem.text[:-1]
    return f"A{right if draw < 0.92 else max(int(right) + int(rng.choice([-10, -1, 1, 10])), 0)}"


def _keeper(rng: Generator, env: desk.Work) -> str:
    """Does what is right four times in six; else reads any register, writes early, or stops."""
    draw, (_, b) = rng.random(), env.problem.meta["copy"]
    if draw < 0.68:
        return env.expert()
    if draw < 0.84:
        return f"R{rng.integers(len(env.held))}"
    return f"W{b} {env.told or rng.integers(10, 100)}" if draw < 0.93 else "A"


def _pointer(rng: Generator, env: boxes.Screen) -> str:
    """The box, each side off by a cell one time in ten."""
    box, size = env.problem.meta["box"], env.problem.meta["size"]
    off = rng.choice([-1, 0, 1], size=4, p=[0.05, 0.9, 0.05])
    return "".join(str(int(np.clip(x + d, 0, size))) for x, d in zip(box, off.tolist(), strict=True))


def _looker(rng: Generator, env: needle.Hunt) -> str:
    """Does what is right three times in four; else looks or zooms anywhere, or guesses."""
    draw, k = rng.random(), int(rng.integers(8))
    if draw < 0.78:
        return env.expert()
    return f"L{k}" if draw < 0.88 else f"Z{k}{rng.integers(4)}" if draw < 0.96 else f"A{rng.integers(10)}"


def batch(rows: Sequence[list[Piece]]) -> Batch:
    """Episodes as what the learner reads. Every turn has the same weight, its end included; a "\\0" is an end."""
    known = {c: i for i, c in enumerate(rooms.ALPHABET)} | {"\0": END}
    whole = [[(t, own) for text, own in row for t in [*(known[c] for c in text), *([END] if own else [])]]
             for row in rows]
    length = torch.tensor([len(x) for x in whole])
    tokens = torch.full((len(rows), int(length.max())), END)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for i, x in enumerate(whole):
        tokens[i, : len(x)] = torch.tensor([t for t, _ in x])
        mask[i, : len(x)] = torch.tensor([own for _, own in x])
    zero, each = torch.zeros(tokens.shape), torch.arange(len(rows))
    return Batch(
        tokens, mask, zero, zero.long(), zero.long(), length, torch.ones(len(rows)), each, torch.zeros(len(rows)),
        each, torch.zeros(len(rows)), (), weight=mask / mask.sum(),
    )


def measure(model: str | Path) -> dict[str, Any]:
    """Success of the model by level, at temperature 1."""
    return {spec: asyncio.run(measured(str(model), spec, SAMPLES, PROBLEMS)) for spec in SPECS}


def main() -> None:
    """Make the base from the command line; every setting of `Lessons` but the shares is an option."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write (default: the package's own)")
    for name, value in asdict(Lessons()).items():
        if name != "shares":
            parser.add_argument(f"--{name}", type=type(value), default=value, help=f"(default {value})")
    said = vars(parser.parse_args())
    out = said.pop("out")
    torch.set_num_threads(1)
    lessons = replace(Lessons(), **said)
    assert all(open_environment(spec) for spec in SPECS)
    made = teach(lessons, report=20)
    extra = {"alphabet": rooms.ALPHABET, "eos_token_id": END, "pad_token_id": END}
    weights.save_model(out, made.but(extra={**extra, "made": {"lessons": asdict(lessons)}}))
    facts = measure(out)
    weights.save_model(out, made.but(extra={**extra, "made": {"lessons": asdict(lessons), "pass_at_1": facts}}))
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
