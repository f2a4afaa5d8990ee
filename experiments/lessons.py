"""What the small base models are taught: lines of teachers that err. `bases.py` says which base is taught what.

A lesson is a function of a generator, the base's `Lessons` and the step. It gives the rows of one batch. A row is a
list of pieces: a text, and whether the model is taught to write it. `END` in a text is the end token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.random import Generator

from isocost.envs.tiny import boxes, desk, event, needle, pages, reach, rooms
from isocost.parts import view
from isocost.tasks.builtin import chain, countdown, expressions, puzzles, sums
from isocost.tasks.builtin.drawn import END as END_OF_PROMPT
from isocost.tasks.builtin.drawn import STEP, Drawn, pick
from isocost.types import Message, Problem

END = "\0"
Row = list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Lessons:
    """How a base is taught: the shape of its decoder, the length of its training, and the settings of its teachers."""

    seed: int = 0
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 128
    steps: int = 450
    rows: int = 256              # lines per step
    lr: float = 2e-3             # peak; warmed up over a tenth of the steps, then down to nothing by a cosine
    of: Mapping[str, Any] = field(default_factory=dict)      # settings of the teachers


def line(prompt: str, answer: str) -> Row:
    """A prompt, and the answer to be written. The end of an answer that ends in `END` itself is not taught."""
    if answer.endswith(END):
        return [(prompt, False), (answer[:-1], True), (END, False)]
    return [(prompt, False), (answer + END, True)]


# sums -----------------------------------------------------------------------------------------------------------------


def two_digits(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Sums, mostly without a carry; a `worked` share of the answers is worked out."""
    pools, worked = _pools(), lessons.of["worked"]
    levels = rng.choice(len(pools), lessons.rows, p=lessons.of["mix"])
    for level, drawn in zip(levels.tolist(), rng.random(lessons.rows), strict=True):
        a, b = pools[level][int(rng.integers(len(pools[level])))]
        work = 0 if drawn >= worked else 1 if drawn < worked / 2 else 2
        yield line(f"{a}+{b}{sums.MARKS[work]}", sums.solution(a, b, work))


@cache
def _pools() -> tuple[list[tuple[int, int]], ...]:
    """Every pair of two-digit numbers, by how many columns carry."""
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    return tuple([p for p in pairs if len(sums.carries(*p)) == level] for level in range(3))


# puzzles --------------------------------------------------------------------------------------------------------------


def steps_of_puzzles(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Puzzles worked out step by step. After the `sound` share of the batches the answers have slips."""
    names, of = list(puzzles.KINDS), lessons.of
    for kind in rng.choice(len(names), lessons.rows, p=of["kinds"]).tolist():
        level, length = (int(np.searchsorted(np.cumsum(p), rng.random())) for p in (of[names[kind]], of["lengths"]))
        level, length = min(level, puzzles.LEVELS - 1), min(length, puzzles.LENGTHS - 1)
        drawn = puzzles.draw(rng, names[kind], level + 1, length + 1)
        sound = step < of["sound"] * lessons.steps
        yield line(drawn.prompt, drawn.solution if sound else SLIPS[names[kind]](rng, drawn, of["slips"][level]))


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


def answers_again(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Additions answered again: after up to two answers, each followed by the `joint`, the next one.

    The first has slips. The next one is right with chance `mend`, and repeats the one before it otherwise.
    """
    of = lessons.of
    for _ in range(lessons.rows):
        level = int(rng.choice(puzzles.LEVELS, p=of["addition"]))
        length = int(rng.choice(len(of["lengths"]), p=of["lengths"]))
        drawn = puzzles.draw(rng, "addition", level + 1, length + 1)
        said = [slip_in_addition(rng, drawn, of["slips"][level])]
        for _ in range(int(rng.integers(3))):
            said.append(drawn.solution if rng.random() < of["mend"] else said[-1])
        yield line(drawn.prompt + "".join(s + of["joint"] for s in said[:-1]), said[-1])


def verdicts(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Additions, and judgements of their answers in the digits of SPARK, J1 and SPCT, a share `errs` of them wrong.

    An `own` share of the lines are answers. One answer is right (1) or wrong (0); of two the first or second is right;
    of two with a mark the scores are from 6 to 9 for the right one and from 1 to 4 for the other.
    """
    of = lessons.of
    for _ in range(lessons.rows):
        drawn = puzzles.draw(rng, "addition", 1 + int(rng.integers(puzzles.LEVELS)), 1)
        slipped = slip_in_addition(rng, drawn, 0.25)
        if rng.random() < of["own"]:
            yield line(drawn.prompt, slipped)
            continue
        wrong = slipped if slipped != drawn.solution else f"{drawn.solution[:-1]}{(int(drawn.solution[-1]) + 1) % 10}"
        first, errs = bool(rng.random() < 0.5), bool(rng.random() < of["errs"])
        shown = (drawn.solution, wrong) if first else (wrong, drawn.solution)
        kind, says = int(rng.integers(3)), first is not errs
        if kind == 0:
            yield line(f"{drawn.prompt}{shown[0]}=", str(int(says)))
        elif kind == 1:
            yield line(f"{drawn.prompt}{shown[0]}={shown[1]}=", "1" if says else "2")
        else:
            high, low = str(rng.integers(6, 10)), str(rng.integers(1, 5))
            yield line(f"{drawn.prompt}{shown[0]}={shown[1]}=;", high + low if says else low + high)


def expressions_again(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Expressions: with chance `short` in fewer operations, else as they stand; with chance `slip` a number is off."""
    of = lessons.of
    for _ in range(lessons.rows):
        drawn = expressions.draw(rng, 1 + int(rng.integers(expressions.LEVELS)))
        said = drawn.solution if rng.random() < of["short"] else drawn.prompt.removesuffix(END_OF_PROMPT)
        if rng.random() < of["slip"]:
            found = list(re.finditer(r"\d+", said))
            one = pick(rng, found)
            said = f"{said[: one.start()]}{int(one[0]) + 1}{said[one.end() :]}"
        yield line(drawn.prompt, said)


# agents ---------------------------------------------------------------------------------------------------------------


def walks(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Walks through rooms by the best door, or by a `random` one; an `elsewhere` share is in houses drawn for one walk.
    """
    home, of = _home(), lessons.of
    for _ in range(lessons.rows):
        problem = home[int(rng.integers(len(home)))]
        if rng.random() < of["elsewhere"]:
            size = int(rng.integers(8, len(rooms.NAMES) + 1))
            which = rooms.Rooms(size=size, keys=int(rng.integers(2)), slip=0.1 * int(rng.integers(3)),
                                alias=int(rng.choice([0, 0, 4])), seed=1 + int(rng.integers(2**20)))
            some = list(rooms.problems(which))
            problem = some[int(rng.integers(len(some)))]
        yield _row(_episode(rng, of["turns"], rooms.Walk(problem), partial(_stroller, chance=of["random"])))


@cache
def _home() -> list[Problem]:
    return list(rooms.problems(rooms.Rooms()))


def _stroller(rng: Generator, env: rooms.Walk, chance: float) -> str:
    """Takes a random door with this chance, otherwise the best one."""
    here = env.room
    best = rooms.route(env.which, (here, env.has_key), env.goal)
    to = best[int(rng.integers(len(best))) if rng.random() < chance else 0][0]
    return str(env.which.house.doors[here].index(to)) if env.which.alias else rooms.NAMES[to]


def episodes(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Episodes of pages, desk, boxes and needle by teachers that err, or a turn of one as a view shows it."""
    for _ in range(lessons.rows):
        yield _one(rng, lessons.of)


VIEWS = (partial(view.last_results, keep=3), partial(view.placeholders, keep=1, words=" "), view.workspace,
         partial(view.window, rounds=4), view.keyframes)


def _one(rng: Generator, of: Mapping[str, Any]) -> Row:
    kind = int(rng.choice(5, p=of["shares"]))
    which: Any
    if kind == 0:
        which = _pages(rng, of)
        messages = _episode(rng, of["turns"], pages.Search(_first(rng, which)), _walker)
        return _viewed(rng, messages) if rng.random() < of["views"] else _row(messages)
    if kind == 1:
        which = desk.Desk(digits=0, noise=float(rng.choice([0.0, 0.3])), seed=_seed(rng), count=1)
        return _row(_episode(rng, of["turns"], desk.DeskEpisode(_first(rng, which)), _clerk))
    if kind == 2:
        which = desk.Desk(store=int(rng.integers(2, 10)), noise=float(rng.choice([0.0, 0.3])), seed=_seed(rng), count=1)
        return _row(_episode(rng, of["turns"], desk.DeskEpisode(_first(rng, which)), _keeper))
    if kind == 3:
        which = boxes.Boxes(elements=int(rng.integers(1, 5)), seed=_seed(rng), count=1)
        return _row(_episode(rng, of["turns"], boxes.Screen(_first(rng, which)), _pointer))
    which = needle.Needle(gold=int(rng.integers(1, 4)), seed=_seed(rng), count=1)
    return _row(_episode(rng, of["turns"], needle.Hunt(_first(rng, which)), partial(_looker, right=of["looker"])))


def zooms(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Episodes of needle, and a share `near` of single zooms into the quarter that has the name, after one look.

    The batches of the `first` share of the steps are zooms alone, and four times as many.
    """
    of = lessons.of
    first = step < of["first"] * lessons.steps
    for _ in range(lessons.rows * (4 if first else 1)):
        if not first and rng.random() >= of["near"]:
            yield _one(rng, of)
            continue
        at, quarter = int(rng.integers(8)), int(rng.integers(needle.QUARTERS))
        seen = [rooms.NAMES[k] for k in rng.permutation(len(rooms.NAMES))[: needle.QUARTERS].tolist()]
        yield [(f">{seen[quarter]}", False), (f"L{at}{END}", False), (f"{''.join(seen)}:", False),
               (f"Z{at}{quarter}{END}", True)]


def watches(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Videos of events: looks at likely frames, or else at any four, and answers that are off now and then."""
    of = lessons.of
    for _ in range(lessons.rows):
        which = event.Event(asks="when" if rng.random() < of["when"] else "what", seed=_seed(rng), count=1)
        teacher = partial(_watcher, aims=of["aims"], right=of["answers"])
        yield _row(_episode(rng, 2, event.Watching(_first(rng, which)), teacher))


def reaches(rng: Generator, lessons: Lessons, step: int) -> Iterator[Row]:
    """Routes to one to three places by moves that are off with chance `errs`, but not in the `sound` first steps."""
    of = lessons.of
    errs = of["errs"] if step >= of["sound"] * lessons.steps else 0.0
    for _ in range(lessons.rows):
        places, noise = 1 + int(rng.integers(3)), float(rng.choice([0.0, 0.2]))
        which = reach.Routes(places=places, noise=noise, seed=_seed(rng), count=1)
        yield _row(_episode(rng, of["turns"], reach.Mover(_first(rng, which)), partial(_mover, errs=errs)))


def _seed(rng: Generator) -> int:
    return 1000 + int(rng.integers(2**20))      # other problems than those of a small seed, which are trained on


def _pages(rng: Generator, of: Mapping[str, Any]) -> pages.Pages:
    asked = int(rng.choice([1, 1, 1, 2]))
    copies = int(rng.integers(2, 12)) // asked
    home = pages.Pages(asked=asked, copies=copies)
    if rng.random() >= of["elsewhere"]:
        return home
    return replace(home, size=int(rng.integers(12, 21)), keys=int(rng.integers(2)), seed=_seed(rng))


MAKERS: dict[type, Callable[[Any], Any]] = {
    pages.Pages: pages.problems, desk.Desk: desk.problems, boxes.Boxes: boxes.problems, needle.Needle: needle.problems,
    event.Event: event.problems, reach.Routes: reach.problems,
}


def _first(rng: Generator, which: Any) -> Problem:
    """A problem: one with new pages in the house that most lessons are in, or the first of a world drawn for a lesson.

    Answers that are drawn once would be learnt by heart: the policy would not learn to read.
    """
    if isinstance(which, pages.Pages) and which.seed == 0:
        subject = sorted(rng.permutation(list(rooms.NAMES))[: which.asked].tolist())
        start, draw = int(rng.integers(which.size)), 1000 + int(rng.integers(2**20))
        return pages.problem(which, start, subject, draw) or _first(rng, which)
    return next(iter(MAKERS[type(which)](which)))


def _episode(rng: Generator, turns: int, env: Any, teacher: Callable[..., str]) -> list[Message]:
    """The messages of an episode. None of these environments waits, and an event loop would take longer than a lesson.
    """

    async def played() -> list[Message]:
        messages = [*(await env.open()).messages]
        for _ in range(turns):
            said = teacher(rng, env)
            shown = await env.step(said, lambda: rng)
            messages.append(Message("assistant", said))
            if shown.over:
                break
            messages += shown.messages
        return messages

    return _done(played())


def _done(coroutine: Coroutine[Any, Any, list[Message]]) -> list[Message]:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return list(end.value)
    raise AssertionError("these environments do not wait")


def _row(messages: Sequence[Message]) -> Row:
    return [(m.content + END, True) if m.role == "assistant" else (m.content, False) for m in messages]


def _viewed(rng: Generator, messages: Sequence[Message]) -> Row:
    """A turn after the first, as one of the views shows it."""
    turns = [i for i, m in enumerate(messages) if m.role == "assistant"]
    at = turns[int(rng.integers(len(turns)))]
    shown = VIEWS[int(rng.integers(len(VIEWS)))](messages[:at], ())
    return [*((text, False) for text, _ in _row(shown)), *_row([messages[at]])]


def _walker(rng: Generator, env: pages.Search) -> str:
    """Walks at random; answers what it has seen most of the time, and guesses now and then."""
    if len(env.seen) == len(env.subject) and rng.random() < 0.85:
        return str(env.answer)
    if rng.random() < 0.04:
        return "".join(map(str, rng.integers(10, size=len(env.subject)).tolist()))
    moves = env.which.house.moves(*env.state)
    return rooms.NAMES[moves[int(rng.integers(len(moves)))][0]]


def _clerk(rng: Generator, env: desk.DeskEpisode) -> str:
    """Calls the calculator half of the time, and otherwise adds, wrongly one time in five; forgets letters."""
    right, draw = env.problem.answer, rng.random()
    if env.told:
        return f"A{env.told}" if draw < 0.9 else f"A{rng.integers(10, 200)}"
    if draw < 0.5:
        return f"C{env.problem.text[:-1]}"
    if draw < 0.6:
        return env.problem.text[:-1]
    return f"A{right if draw < 0.92 else max(int(right) + int(rng.choice([-10, -1, 1, 10])), 0)}"


def _keeper(rng: Generator, env: desk.DeskEpisode) -> str:
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


def _looker(rng: Generator, env: needle.Hunt, right: float) -> str:
    """Does what is right with this chance; else looks or zooms anywhere, or guesses."""
    draw, k = rng.random(), int(rng.integers(8))
    if draw < right:
        return env.expert()
    off = (draw - right) / (1 - right)
    return f"L{k}" if off < 10 / 22 else f"Z{k}{rng.integers(4)}" if off < 18 / 22 else f"A{rng.integers(10)}"


def _watcher(rng: Generator, env: event.Watching, aims: float, right: float) -> str:
    """Looks at likely frames with chance `aims`, else at any; an answer that errs is any digit, or has ends off by one.
    """
    if not env.seen and rng.random() >= aims:
        some = rng.permutation(env.which.length)[: env.which.frames]
        return "".join(rooms.NAMES[k] for k in sorted(some.tolist()))
    said = env.expert()
    if not env.seen or rng.random() < right:
        return said
    if env.which.asks == "what":
        return f"{event.WHAT}{rng.integers(event.DIGITS)}"
    ends = [rooms.NAMES.index(x) for x in said[1:]]
    first, last = sorted(int(np.clip(x + d, 0, env.which.length - 1))
                         for x, d in zip(ends, rng.integers(-1, 2, size=2).tolist(), strict=True))
    return f"{event.WHAT}{rooms.NAMES[first]}{rooms.NAMES[last]}"


def _mover(rng: Generator, env: reach.Mover, errs: float) -> str:
    """The expert's move, or with chance `errs` one that is up to two bins off along each axis."""
    said = env.expert()
    if rng.random() >= errs:
        return said
    bins = [int(np.clip(reach.BINS.index(c) + d, 0, len(reach.BINS) - 1))
            for c, d in zip(said, rng.integers(-2, 3, size=2).tolist(), strict=True)]
    return "".join(reach.BINS[b] for b in bins)
