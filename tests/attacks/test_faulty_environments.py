"""Environments, tools and harnesses without bounds, and with every kind of exception: each costs one rollout."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from isocost.envs.tools import Call, Tool, Toolbox
from isocost.parts.episode import LONGEST, MESSAGES, NAME
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.types import Fault, Message, Place, Problem, Rollout, Shown, Stop
from isocost.worlds import toy

PLACE, PACE = Place(7, 2, 3), Pace(lr=0.0, max_tokens=4, max_turns=3)
Limited = Callable[[int], AbstractContextManager[None]]


class Sound:
    """Answers three turns. The second one that is made does `mischief` at a given place."""

    made = 0
    at, mischief = "", staticmethod(lambda: None)

    def __init__(self, problem: Problem):
        type(self).made += 1
        self.problem, self.number = problem, type(self).made
        self.here("init")

    def here(self, at: str, otherwise: Any = None) -> Any:
        return self.mischief() if at == self.at and self.number == 2 else otherwise

    async def open(self) -> Any:
        return self.here("open", Shown(self.problem.prompt))

    async def step(self, said: str, luck: Any) -> Any:
        await asyncio.sleep(0)
        return self.here("step", Shown((Message("tool", "?"),), key="k"))

    def final(self) -> Any:
        return self.here("final", "a")

    async def close(self) -> None:
        self.here("close")


def played(at: str, mischief: Callable[[], Any]) -> list[Rollout]:
    """Four attempts, of which the second has the environment that does it."""
    env = type("Env", (Sound,), {"at": at, "mischief": staticmethod(mischief), "made": 0})
    world = toy.world()
    world.env = env

    async def go() -> list[Rollout]:
        found = await sample(world.problems[0], range(4), world, PACE, PLACE)
        await asyncio.sleep(0)          # nothing is left that would end the task or the loop later
        return found

    return asyncio.run(go())


def lost(found: list[Rollout]) -> list[int]:
    return [i for i, r in enumerate(found) if r.stop is Stop.ERROR]


class Panic(BaseException):
    """As those of Rust extensions, and of anyio and pytest."""


class Mute(Exception):
    def __repr__(self) -> str:
        raise ValueError("no words")

    __str__ = __repr__


class Deaf(BaseException):
    def __repr__(self) -> str:
        raise Panic

    __str__ = __repr__


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def cancel_twice() -> Shown:
    cancel()
    cancel()
    return Shown(over=True)


RAISES: dict[str, Callable[[], Any]] = {
    "Exception": raising(Exception("x")), "BaseException": raising(BaseException("x")), "a panic": raising(Panic("x")),
    "no repr": raising(Mute()), "no repr of a base": raising(Deaf()), "GeneratorExit": raising(GeneratorExit()),
    "StopIteration": raising(StopIteration(1)), "StopAsyncIteration": raising(StopAsyncIteration()),
    "SystemExit": raising(SystemExit(3)), "CancelledError": raising(asyncio.CancelledError()),
    "KeyboardInterrupt": raising(KeyboardInterrupt()), "a group": raising(BaseExceptionGroup("x", [Panic()])),
    "MemoryError": raising(MemoryError()), "RecursionError": raising(RecursionError()),
    "TimeoutError": raising(TimeoutError()), "a timeout without words": raising(TimeoutError(Mute())),
    "50 MB of words": lambda: raising(ValueError("x" * 50_000_000))(), "half of a pair": raising(ValueError("\ud800")),
    "StopIteration of nothing": raising(StopIteration()), "an OSError": raising(OSError(5, "x", "\ud800")),
}
CANCELS: dict[str, Callable[[], Any]] = {
    "cancels its task": cancel, "cancels it twice": cancel_twice,
    "stops the loop": lambda: asyncio.get_running_loop().stop(),
}


@pytest.mark.parametrize("at", ["init", "open", "step", "final", "close"])
@pytest.mark.parametrize("how", RAISES)
def test_whatever_is_raised_costs_one_rollout_and_one_line(how: str, at: str, caplog: pytest.LogCaptureFixture):
    assert lost(played(at, RAISES[how])) == ([] if at == "close" else [1])
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(line) < 600 and "\n" not in line
    line.encode()


@pytest.mark.parametrize("at", ["open", "step"])
@pytest.mark.parametrize("how", CANCELS)
def test_an_environment_that_ends_its_task_or_the_loop_costs_one_rollout(how: str, at: str, caplog):
    assert lost(played(at, CANCELS[how])) == [1] and len(caplog.records) == 1


def test_a_run_that_is_stopped_is_not_taken_for_an_environment_that_failed():
    async def go() -> bool:
        env = type("Env", (Sound,), {"at": "step", "mischief": staticmethod(lambda: None), "made": 0})
        env.step = lambda self, said, luck: asyncio.Event().wait()      # type: ignore[attr-defined]
        world = toy.world()
        world.env = env
        task = asyncio.create_task(sample(world.problems[0], range(2), world, PACE, PLACE))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return not world.failures

    assert asyncio.run(go())


class Evil:
    """A number whose value cannot be had."""

    def __float__(self) -> float:
        raise Panic


class Sly(Shown):
    @property
    def messages(self) -> Any:      # type: ignore[override]
        raise Panic


def shown(**fields: Any) -> Callable[[], Shown]:
    made = Shown()
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return lambda: made


def said(text: str, long: int = 1, times: int = 1) -> Callable[[], Shown]:
    return lambda: Shown((Message("tool", text * long),) * times)


SHOWS: dict[str, Callable[[], Any]] = {
    "300 MB": said("x", 300_000_000), "just too much": said("x", LONGEST + 1), "2 MB in parts": said("x", 1024, 2048),
    "300,000 messages": said("", 1, 300_000), "one message too many": said("", 1, MESSAGES + 1),
    "half of a pair": said("\ud800"), "a reward of 400 digits": shown(reward=10**400),
    "an evil reward": shown(reward=Evil()),
    "nan": shown(reward=math.nan), "infinite": shown(reward=-math.inf), "an array": shown(reward=np.zeros(2)),
    "a key of bytes": shown(key=b"x"), "a limit of text": shown(max_tokens="4"), "a class": lambda: Shown,
    "a sly type": lambda: object.__new__(Sly),
}


@pytest.mark.parametrize("how", SHOWS)
def test_what_is_shown_without_bounds_costs_one_rollout_and_little_memory(how: str, limited: Limited, caplog):
    before = time.monotonic()
    with limited(1 << 30):
        assert lost(played("step", SHOWS[how])) == [1]
    assert len(caplog.records) == 1 and len(caplog.text) < 800 and time.monotonic() - before < 20


def test_names_are_bounded_and_tell_states_apart(limited: Limited):
    with limited(1 << 30):
        long = "x" * 50_000_000
        for key in (long, long + "y", "\ud800" * 300):
            found = played("step", lambda key=key: Shown((Message("tool", "?"),), key=key, fault=Fault.model(key)))
            assert lost(found) == []
            (fault,) = {t.fault for t in found[1].turns if t.fault}
            assert len(fault.what) <= NAME and all(len(t.key) <= NAME for t in found[1].turns)
            assert len(pickle.dumps(found)) < 100_000
        a, b = (played("step", lambda k=k: Shown((Message("tool", "?"),), key=long + k))[1].turns for k in ("a", "b"))
        assert {t.key for t in a} & {t.key for t in b} == {""}


@pytest.mark.parametrize("made", [lambda: "x" * 200_000_000, lambda: b"x", lambda: None, lambda: 5],
                         ids=["200 MB", "bytes", "nothing", "a number"])
def test_a_final_answer_without_bounds_costs_one_rollout(made: Callable[[], Any], limited: Limited):
    with limited(1 << 30):
        assert lost(played("final", made)) == [1]


# tools --------------------------------------------------------------------------------------------------------


class Unwritable:
    def __str__(self) -> str:
        raise Panic

    __repr__ = __str__


SCHEMA = {"name": "f", "description": "f", "parameters": {"type": "object", "properties": {}}}
TOOLS: dict[str, Callable[[], Any]] = {
    **{k: v for k, v in RAISES.items() if k not in ("CancelledError", "GeneratorExit")},
    "cannot be written": Unwritable, "deep": lambda: eval("[" * 90 + "]" * 90), "200 MB": lambda: "x" * 200_000_000,
    "half of a pair": lambda: "\ud800", "an object with half": lambda: {"\udfff": 1}, "400 digits": lambda: 10**400,
    "5,000 digits": lambda: 10**5000, "nan": lambda: math.nan,
}


@pytest.mark.parametrize("blocks", [False, True], ids=["at once", "in a thread"])
@pytest.mark.parametrize("how", TOOLS)
def test_a_tool_may_raise_and_return_anything(how: str, blocks: bool):
    async def go() -> str:
        text, _ = await Toolbox([Tool(SCHEMA, lambda: TOOLS[how](), blocks)]).call(Call("f", {}))
        return text

    text = asyncio.run(go())
    text.encode()
    assert text and len(text) < 6000
