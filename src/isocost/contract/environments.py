"""The contract of environments: what a user's class promises, checked by playing episodes without a model.

Episodes are played with scripted turns: the class's own `tries` if it lists any, words of the prompt, the problem's
answer, and texts that a policy may write by mistake. Every call has a time limit.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
import re
import string
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from isocost import chance
from isocost.contract import shared_state
from isocost.envs.harness.driven import CUT, Driven
from isocost.envs.harness.run import HARNESSES
from isocost.envs.opening import EnvironmentSet
from isocost.gather import finished
from isocost.parts.episode import unfit
from isocost.promise import Promise
from isocost.tasks.load import Reads
from isocost.types import PLAIN, Place, Problem, Shown
from isocost.world import Environment, EnvironmentFault

PROBLEMS, TURNS = 6, 8      # that are played, at most
LISTED = 100_000            # problems whose ids are compared, at most
PAIRS = 2                   # problems with two attempts at once
SECONDS = 20.0              # of one call, at most
BLOCKS = 0.5                # seconds that a call may keep the event loop from other episodes
ENDS = 0.9 * CUT            # that a harness has after its last turn, at most
ODD = ("", " ", "\0", "no such action", "<tool_call>{", '{"name": 1}', "é✓ " * 20, "x" * 20_000)
CHARACTERS = string.ascii_letters + string.digits
ROLES = ("system", "user", "assistant", "tool", PLAIN)
OWN = Path(__file__).parents[1]             # what it raises itself is no line of a user
_PLACE, _LIBRARY = Place(11, 3, 1), Path(os.__file__).parent
PromiseTest = Callable[[EnvironmentSet, Sequence[Problem]], Coroutine[Any, Any, None]]


class BrokenPromise(Exception):
    """A promise is broken, for this reason. `mistake` is the same wherever one mistake breaks a promise. `of` is the
    promise that is broken if it is not the one that was being checked."""

    def __init__(self, why: str, mistake: str = "", of: PromiseTest | None = None):
        super().__init__(why)
        self.mistake, self.of = mistake, of


class Hung(BrokenPromise):
    """A call did not return: others would not either."""


@dataclass
class ScriptedEpisode:
    """One scripted episode: what was said and shown."""

    problem: Problem
    made: Environment
    said: list[str] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    final: object = None        # when it ended; None if that raised
    watched: bool = False       # `blocked` is measured: the longest time that a call kept the loop
    blocked: float = 0.0

    @property
    def over(self) -> bool:
        return self.shown[-1].over


def check(found: EnvironmentSet, problems: Sequence[Problem], reads: Reads | None = None) -> list[Promise]:
    """Every promise on the first of these problems. What the environment raises is a broken promise, not an error. The
    ids of all of them are compared. With `reads`, of a model, it is also checked whether that model can read what the
    environment opens with."""
    return finished(_checked(found, problems, reads))


async def _checked(found: EnvironmentSet, listed: Sequence[Problem], reads: Reads | None) -> list[Promise]:
    problems = listed[:PROBLEMS]
    out: dict[PromiseTest, Promise] = {}
    known, hangs = set[str](), False
    drives = _is_harness(found, problems[0])
    promises = [promise for promise in PROMISES if promise is not _cuts or drives]
    readable = None if reads is None else partial(_readable, reads)
    if readable is not None:
        promises.insert(1, readable)

    def about(promise: Callable[..., Any]) -> str:
        return " ".join((getattr(promise, "func", promise).__doc__ or "").split())

    for promise in promises:
        text = about(promise)
        if promise in out:                  # another one found it broken
            continue
        if hangs or (out and not out[_opens].kept):
            out[promise] = Promise(text, "a call hangs" if hangs else "it cannot be opened", tried=False)
            continue
        try:
            await promise(found, problems)
            out[promise] = Promise(text)
        except BrokenPromise as why:
            hangs = isinstance(why, Hung)
            out[promise] = Promise(text, str(why), tried=why.mistake not in known and why.of is None)
            if why.of is not None:
                out[why.of] = Promise(about(why.of), str(why))
            known |= {why.mistake} - {""}
        except (Exception, SystemExit) as error:    # other people's files may raise anything
            out[promise] = Promise(text, _told(error), tried=_told(error) not in known)
            known.add(_told(error))
    return [*(out[promise] for promise in promises), Promise(about(_distinct), _distinct(listed))]


# promises ----------------------------------------------------------------------------------------------------------


async def _opens(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """It opens with messages, and for all attempts at one problem with the same."""
    for problem in problems:
        first = await _opened(found, problem, 1)
        before = shared_state.state(found.make)
        again = await _opened(found, problem, 2)
        names = shared_state.changed(before, shared_state.state(found.make))
        for e in (first, again):
            shown = e.shown[0]
            if not shown.messages:
                raise BrokenPromise(f"it opens problem {problem.id!r} without a message; the policy needs at least one "
                                    "isocost.types.Message")
            if shown.over:
                raise BrokenPromise(f"it opens problem {problem.id!r} with over=True, so there is no turn")
            await _call(e, "close", e.made.close)
        if why := _unlike(first, again, f"problem {problem.id!r} opened twice"):
            raise BrokenPromise(f"{why}. {_mend(names, first)}" if names else why)


async def _readable(reads: Reads, found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """The model can read what it opens with, and its context has room for an answer."""
    for problem in problems:
        e = await _opened(found, problem, 1)
        await _call(e, "close", e.made.close)
        if why := reads.refused(replace(problem, prompt=tuple(e.shown[0].messages))):
            raise BrokenPromise(why)


async def _deterministic(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """The same turns with the same luck are answered alike; random numbers come from `luck` alone."""
    for problem in problems:
        first = await _played(found, problem, _script(found, problem, 1), 1)
        await _repeated(found, first, 2)


async def _alone(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """Episodes share no state: one that is played beside others is as it is alone."""
    every = [*problems, *problems[:PAIRS]]
    alone = [await _played(found, p, _script(found, p, i), i) for i, p in enumerate(every)]
    before = shared_state.state(found.make)
    if not await _unlike_beside(found, alone):
        return
    names = shared_state.changed(before, shared_state.state(found.make))
    for e in alone:
        await _repeated(found, e, 5)
    if why := await _unlike_beside(found, alone):
        raise BrokenPromise(f"{why}. {_mend(names, alone[0])}")
    raise BrokenPromise("an episode played beside others differed once, and not when they were played again. "
                        f"{_UNREPEATABLE}", of=_deterministic)


async def _unlike_beside(found: EnvironmentSet, alone: Sequence[ScriptedEpisode]) -> str:
    """How episodes differ when they are played at once, in turns; empty if they do not."""
    beside = [await _opened(found, e.problem, 9) for e in alone]
    for turn in range(TURNS):
        for a, b in zip(alone, beside, strict=True):
            if turn < len(a.said) and not b.over:
                await _step(b, a.said[turn], turn)
    for b in beside:
        await _ended(b)
    for a, b in zip(alone, beside, strict=True):
        if why := _unlike(a, b, f"problem {a.problem.id!r} alone and beside {len(alone) - 1} other episodes"):
            return why
    return ""


async def _repeated(found: EnvironmentSet, first: ScriptedEpisode, seed: int) -> None:
    """Play an episode again. Raises Broken if it is not answered as it was."""
    before = shared_state.state(found.make)
    again = await _played(found, first.problem, iter(first.said), seed)
    if why := _unlike(first, again, f"problem {first.problem.id!r} played twice with the same luck"):
        if names := shared_state.changed(before, shared_state.state(found.make)):
            raise BrokenPromise(f"{why}. {_mend(names, first)}", of=_alone)
        raise BrokenPromise(f"{why}. {_UNREPEATABLE}", of=_deterministic)


_UNREPEATABLE = "Use no random numbers but those of luck(), no clock and no state that outlives an episode"


def _mend(names: Sequence[str], e: ScriptedEpisode) -> str:
    """What is right, in place of state that episodes share."""
    where = "in variables of `drive`" if _drives(e) else "on `self`, made in `__init__` or `open`"
    which = f"They change {' and '.join(f'`{name}`' for name in names[:3])}, which all episodes share" if names else \
        "They share state"
    return f"{which}: keep what an episode changes {where}"


async def _faults(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """Any text is answered: a bad turn is a typed fault, `Fault.model(...)` or `Fault.tool(...)`, not an exception."""
    for odd in ODD:
        e = await _opened(found, problems[0], 1)
        try:
            await _step(e, odd, 0)
        finally:
            await _call(e, "close", e.made.close)


async def _rewards(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """Rewards are finite, and those of an episode sum to a score between 0 and 1."""
    for i, problem in enumerate(problems):
        for script in (_script(found, problem, i), repeat(ODD[3])):     # one that never succeeds may pay below 0
            e = await _played(found, problem, script, i)
            total = float(sum(s.reward for s in e.shown[1:]))
            if not -1e-9 <= total <= 1 + 1e-9:
                raise BrokenPromise(f"an episode of problem {problem.id!r} paid {total:g}; studies need 0 to 1: "
                                    "rescale the rewards")


async def _finals(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """`final` returns a text, whenever the episode ends."""
    for turns in (1, TURNS):
        e = await _opened(found, problems[0], 1)
        for turn, said in zip(range(turns), _script(found, problems[0], 1, e), strict=False):
            if not e.over:
                await _step(e, said, turn)
        if not isinstance(final := e.made.final(), str):
            raise BrokenPromise(f"final returned {_short(final)} after {len(e.said)} turns; return a text")
        await _call(e, "close", e.made.close)


async def _closes(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """`close` works at any time, and leaves no task, thread or open file."""
    await _closed_after(found, problems[0], TURNS)      # what is loaded once is loaded by now
    before = _held()
    for turns in (0, 1, TURNS):
        await _closed_after(found, problems[0], turns)
    never = found.make(problems[0])
    await asyncio.wait_for(never.close(), SECONDS)
    await asyncio.sleep(0.05)
    gc.collect()            # what an exception's traceback holds
    for what, was, now in zip(("tasks", "threads", "open files"), before, _held(), strict=True):
        if now > was:
            raise BrokenPromise(f"after closing there are {now - was} more {what} than before")


async def _yields(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """No call blocks the event loop, so hundreds of episodes can run side by side."""
    async with HARNESSES.watched() as waited:
        e = await _opened(found, problems[0], 1, watched=True)
        if _drives(e):                      # one that waits for its reply must not keep others waiting
            await asyncio.sleep(1.2 * BLOCKS)
        for turn, said in zip(range(TURNS), _script(found, problems[0], 1), strict=False):
            if not e.over:
                await _step(e, said, turn)
        await _call(e, "close", e.made.close)
    if max(e.blocked, *waited) > BLOCKS:
        raise BrokenPromise(f"a call blocked the event loop for {max(e.blocked, *waited):.1f} s: use `await asyncio."
                            "to_thread(...)` around what waits or computes")


async def _cuts(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """A harness ends soon after a turn is refused, because the limit of turns is reached."""
    e = await _opened(found, problems[0], 1)
    if isinstance(e.made, Driven):
        await _step(e, ODD[3], 0)
        began = time.perf_counter()
        await _call(e, "cut", e.made.cut)
        if not e.over and time.perf_counter() - began > ENDS:
            raise BrokenPromise(f"it did not end within {ENDS:g} s after a request was answered with status 400 and "
                                "the code turn_limit: return a reward then, or let the error end it")
    await _call(e, "close", e.made.close)


async def _leaks(found: EnvironmentSet, problems: Sequence[Problem]) -> None:
    """The prompt does not contain an answer that is right if it is copied."""
    told = []
    for problem in problems:
        e = await _opened(found, problem, 1)
        shown, answer = " ".join(m.content for m in e.shown[0].messages), str(problem.answer or "").strip()
        if answer and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", shown):
            await _step(e, answer, 0)
            paid = e.over and e.shown[-1].reward > 0.5
            if paid or (found.verifier != "environment" and e.made.final() == answer):
                told.append(problem.id)
        await _call(e, "close", e.made.close)
    if len(told) == len(problems):
        raise BrokenPromise(f"the answer is in the prompt of all {len(told)} problems that were played, such as "
                            f"{told[0]!r}, and copying it is right")


def _distinct(listed: Sequence[Problem]) -> str:
    """Every problem has an id of its own."""
    first: dict[str, int] = {}
    for number, problem in enumerate(islice(listed, LISTED), 1):
        if (where := first.setdefault(problem.id, number)) != number:
            return f"problem {number} of the list has the id {problem.id!r} of problem {where}: give each another id"
    return ""


PROMISES: tuple[PromiseTest, ...] = (
    _opens, _faults, _deterministic, _alone, _rewards, _finals, _closes, _yields, _cuts, _leaks,
)


# playing -----------------------------------------------------------------------------------------------------------


async def _opened(found: EnvironmentSet, problem: Problem, seed: int, *, watched: bool = False) -> ScriptedEpisode:
    """An episode that is open. Global random generators are seeded differently each time: nothing may use them."""
    random.seed(seed)
    np.random.seed(seed)        # the global generator, which an environment must not use
    e = ScriptedEpisode(problem, found.make(problem), watched=watched)
    try:
        e.shown.append(_valid(await _call(e, "open", e.made.open), f"open of problem {problem.id!r}"))
    except BaseException:
        with suppress(Exception, SystemExit):
            await asyncio.wait_for(e.made.close(), SECONDS)
        raise
    return e


async def _played(found: EnvironmentSet, problem: Problem, said: Iterator[str], seed: int) -> ScriptedEpisode:
    e = await _opened(found, problem, seed)
    for turn in range(TURNS):
        if e.over or (text := next(said, None)) is None:
            break
        await _step(e, text, turn)
    await _ended(e)
    return e


async def _ended(e: ScriptedEpisode) -> None:
    """Close an episode, with its final text. That `final` works is a promise of its own."""
    with suppress(Exception, SystemExit):
        e.final = e.made.final()
    await _call(e, "close", e.made.close)


async def _closed_after(found: EnvironmentSet, problem: Problem, turns: int) -> None:
    e = await _opened(found, problem, 1)
    for turn, said in zip(range(turns), _script(found, problem, 2, e), strict=False):
        if not e.over:
            await _step(e, said, turn)
    await _call(e, "close", e.made.close)


async def _step(e: ScriptedEpisode, said: str, turn: int) -> None:
    e.said.append(said)
    try:
        shown = await _call(e, "step", partial(e.made.step, said, partial(_luck, turn)))
    except BrokenPromise:
        raise
    except (Exception, SystemExit) as error:
        mend = "answer it in the next request, or return a reward" if _drives(e) else \
            'return Shown(..., fault=Fault.model("..."))'
        told = _told(error)
        raise BrokenPromise(f"after a turn of {_short(said)}: {told}. Instead {mend}", told, _faults) from error
    e.shown.append(_valid(shown, f"step with a turn of {_short(said)}"))


def _drives(e: ScriptedEpisode) -> bool:
    """Whether it is a harness."""
    return isinstance(e.made, Driven)


def _luck(turn: int) -> Generator:
    return chance.generator(_PLACE.seed, chance.Purpose.ENVIRONMENT, *chance.luck(_PLACE, 0, turn))


async def _call(e: ScriptedEpisode, name: str, of: Callable[[], Any]) -> Any:
    """Await a call within the time limit, and note how long it kept the loop if the episode is watched."""
    if not e.watched:
        try:
            return await asyncio.wait_for(of(), SECONDS)
        except TimeoutError as error:
            why = f"{name} of problem {e.problem.id!r} did not return within {SECONDS:g} s"
            raise Hung(f"{why}: give what it waits for a time limit of its own") from error
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            then = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - then - 0.01)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        return await of()
    finally:
        await asyncio.sleep(0.011)
        watching.cancel()
        e.blocked = max(e.blocked, longest)


def _script(found: EnvironmentSet, problem: Problem, seed: int, e: ScriptedEpisode | None = None) -> Iterator[str]:
    """What is said: the class's own tries, words of the prompt, the answer, a character, or something odd."""
    rng = chance.generator(seed, chance.Purpose.CHOOSE, 7)
    listed = list(getattr(found.make, "tries", ()))
    shown = e.shown[-1].messages if e is not None else problem.prompt
    words = [w for m in shown for w in re.findall(r"\w+|[^\w\s]", m.content)]
    letters = [c for w in words for c in w]
    own = str(problem.answer) if problem.answer is not None else ""
    while True:
        kind = rng.random()
        if listed and kind < 0.7:
            yield str(listed[int(rng.integers(len(listed)))])
        elif own and kind < (0.8 if listed else 0.3):
            yield own
        elif kind < 0.95 and words:
            some = (words, words, letters, CHARACTERS)[int(rng.integers(4))]
            yield some[int(rng.integers(len(some)))]
        else:
            yield ODD[int(rng.integers(len(ODD)))]


def _valid(shown: Any, what: str) -> Shown:
    """What a call returned. Raises Broken unless it has the types of `Shown`."""
    why = unfit(shown)
    if not why:
        roles = [m.role for m in shown.messages if m.role not in ROLES]
        if roles:
            why = f"a message with the role {_short(roles[0])}; roles are {', '.join(ROLES[:-1])}"
        elif not math.isfinite(float(shown.reward)):
            why = f"the reward {shown.reward}; it must be finite"
        elif not isinstance(shown.key, str):
            why = f"the key {_short(shown.key)}; it must be a text"
    if why:
        raise BrokenPromise(f"{what} returned {why}", why)
    made: Shown = shown
    return made


def _unlike(one: ScriptedEpisode, other: ScriptedEpisode, what: str) -> str:
    """The first difference between two episodes; empty if there is none."""
    for i, (a, b) in enumerate(zip(one.shown, other.shown, strict=False)):
        for name in ("messages", "over", "reward", "key", "fault"):
            if getattr(a, name) != getattr(b, name):
                where = "at its opening" if i == 0 else f"in turn {i}"
                return f"{what}: {name} differs {where}: {_short(getattr(a, name))} and {_short(getattr(b, name))}"
    if len(one.shown) != len(other.shown):
        return f"{what}: {len(one.shown) - 1} and {len(other.shown) - 1} turns"
    if one.final != other.final:
        return f"{what}: final differs: {_short(one.final)} and {_short(other.final)}"
    return ""


def _held() -> tuple[int, int, int]:
    """Tasks, threads and open files of this process; 0 files where they cannot be counted."""
    try:
        files = len(os.listdir("/proc/self/fd"))
    except OSError:
        files = 0
    return len(asyncio.all_tasks()), threading.active_count(), files


def _is_harness(found: EnvironmentSet, problem: Problem) -> bool:
    try:
        return isinstance(found.make(problem), Driven)
    except (Exception, SystemExit):     # it is reported where it is opened
        return False


def _told(error: BaseException) -> str:
    """What was raised, and the line of the user's file that did: of the cause, where that is known."""
    cause = error.__cause__ if isinstance(error, EnvironmentFault) and error.__cause__ is not None else error
    text = str(error) if cause is not error else ""
    said = f"{text}: {cause}" if text else f"{type(cause).__name__}: {cause}"
    return f"{said[:300]}{_where(cause)}"


def _where(error: BaseException) -> str:
    """The line that raised, unless it is in this package or in an installed one."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _installed(Path(f.filename))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _installed(file: Path) -> bool:
    return OWN in file.parents or "site-packages" in file.parts or not file.is_file() or _LIBRARY in file.parents


def _short(x: object) -> str:
    text = repr(x)
    return text if len(text) <= 80 else f"{text[:77]}..."
