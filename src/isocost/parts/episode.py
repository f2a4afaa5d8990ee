"""One attempt's environment: opened, taken through the turns of a start, asked for each turn, and always closed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from isocost import chance
from isocost.errors import UserError, interrupts, told
from isocost.gather import at_most, being_cancelled
from isocost.screen.words import whole
from isocost.types import Cost, Fault, FaultSource, Message, Place, Problem, Role, Rollout, Segment, Shown, Stop, Turn
from isocost.world import Environment, EnvironmentFault, World

log = logging.getLogger("isocost")
T = TypeVar("T")
_OWN, _SEEN = int(Role.OWN), int(Role.SEEN)
_NOTHING, _STEP = Cost(), Cost(env_steps=1)
TOLD = 3            # failures of one cause that are printed
CLOSING = 10.0      # seconds that an environment has to close, at most
LONGEST, MESSAGES = 2**20, 4096     # characters and messages that an environment shows at once, at most
NAME = 200          # characters of the name of a state, or of a fault


def unfit(shown: object) -> str:
    """What is wrong with what an environment returned, and what is right; empty if nothing is."""
    try:
        return _unfit(shown)
    except BaseException as error:      # values of other people's types may raise when they are read
        if interrupts(error):
            raise
        return f"a value that cannot be read: {told(error)}"


def _unfit(shown: object) -> str:
    if not isinstance(shown, Shown):
        return f"{_kind(shown)}; return isocost.types.Shown(messages)"
    if not isinstance(shown.messages, tuple | list):
        return f"messages of type {type(shown.messages).__name__}; write Shown((Message(role, text),))"
    for m in shown.messages:
        if not isinstance(m, Message) or not isinstance(m.content, str):
            what = f"with content of type {type(m.content).__name__}" if isinstance(m, Message) else \
                f"of type {type(m).__name__}"
            return f"a message {what}; write isocost.types.Message(role, text)"
    if len(shown.messages) > MESSAGES or (size := sum(len(m.content) for m in shown.messages)) > LONGEST:
        many = f"{len(shown.messages):,} messages" if len(shown.messages) > MESSAGES else f"{size:,} characters"
        return f"{many} at once; at most {MESSAGES:,} messages with {LONGEST:,} characters"
    if not all(m.content.isascii() or whole(m.content) == m.content for m in shown.messages):
        return "text with half of a surrogate pair (\\ud800 to \\udfff), which is not a character"
    if not hasattr(shown.reward, "__float__"):
        return f"a reward of type {type(shown.reward).__name__}; it must be a number"
    if not math.isfinite(shown.reward):
        return f"a reward of {float(shown.reward)}; it must be a finite number"
    if shown.fault is not None and not isinstance(shown.fault, Fault):
        return f"a fault of type {type(shown.fault).__name__}; use Fault.model, Fault.tool or Fault.environment"
    for name, kind in _KINDS.items():
        if not isinstance(getattr(shown, name), kind):
            return f"a {name} of type {type(getattr(shown, name)).__name__}; write a {kind.__name__}"
    return ""


_KINDS: dict[str, type] = {"key": str, "max_tokens": int}


def _bounded(shown: Shown) -> Shown:
    """The same with names that a record can hold: a longer key becomes its hash, of a fault the beginning stays."""
    key, fault = shown.key, shown.fault
    if len(key) > NAME:
        key = hashlib.sha256(whole(key).encode()).hexdigest()
    if fault is not None and len(fault.what) > NAME:
        fault = replace(fault, what=fault.what[:NAME])
    return shown if key is shown.key and fault is shown.fault else replace(shown, key=key, fault=fault)


def _kind(made: object) -> str:
    return "None" if made is None else f"a value of type {type(made).__name__}"


class EnvironmentFailed(Exception):
    """An environment raised, hung or reported a fault of its own: its rollout has no score."""


@dataclass(eq=False)
class Episode:
    """An attempt's environment and what it has answered; what it becomes is `rollout`."""

    problem: Problem
    attempt: int
    world: World
    place: Place
    turns: list[Turn] = field(default_factory=list)         # those of this rollout, replayed ones included
    messages: list[Message] = field(default_factory=list)   # all that was shown and said
    texts: tuple[Segment, ...] = ()
    stop: Stop = Stop.DONE
    final: str = ""
    fault: Fault | None = None          # why it failed
    shown: Shown = Shown()      # the last
    _answered: int = 0          # turns that the environment has answered, those of a given start included
    _key: str = ""
    _env: Environment | None = None

    async def open(self, texts: Sequence[Segment], turns: Sequence[Turn]) -> None:
        """Open it, and replay the turns of the segments of a start; `turns` have the luck that these had."""
        try:
            self._env = self._asked(partial(self.world.env, self.problem))
            shown = await self._call(self._env.open)
            if why := unfit(shown):
                raise self._failure(f"open returned {why}")
            self._read(_bounded(shown))
            for text, own, seen in past(texts):
                known = own and len(self.turns) < len(turns)
                luck = turns[len(self.turns)].luck if known else ()
                self._charge(replay=True)
                words = self.world.text.decode(text.reply().tolist())
                shown = await self._answer(words, luck, own, text)
                after = self.tokens(shown)[len(text) if shown.whole else 0 :] if len(seen) else []
                if after[: len(seen)] != seen.tolist():
                    raise self._failure("it answered a turn differently when the dialogue was resumed")
        except EnvironmentFailed:
            await self.close()

    @property
    def failed(self) -> bool:
        return self.fault is not None

    @property
    def drives(self) -> bool:
        """Whether the environment limits its time, and decides what follows a turn that ran out of tokens."""
        return getattr(self._env, "drives", False)

    async def step(self, said: str) -> Shown:
        """What answers a turn of the policy, charged as a step. Raises EnvironmentFailed."""
        self._charge()
        return await self._answer(said, (), True, self.texts[-1] if self.texts else None)

    async def again(self, said: str, luck: tuple[int, ...]) -> Shown:
        """What answered a turn of the policy before, with the luck that it had; a replay. Raises EnvironmentFailed."""
        self._charge(replay=True)
        return await self._answer(said, luck, True)

    async def advised(self, said: str) -> Shown:
        """What answers a turn of an expert, which is none of the rollout's own; a step. Raises EnvironmentFailed."""
        self._charge()
        return await self._answer(said, (), False)

    def advice(self) -> str | None:
        """What an expert would say now; None if the environment has no `expert`. Raises EnvironmentFailed."""
        ask = getattr(self._env, "expert", None)
        return None if ask is None else self._text("expert", self._asked(lambda: str(ask())))

    async def end(self, stop: Stop) -> None:
        """The episode is over. Raises EnvironmentFailed."""
        assert self._env is not None
        self.stop = stop
        cut = getattr(self._env, "cut", None)
        if cut is not None and self.turns and not self.shown.over:
            last = await self._call(cut)
            if why := unfit(last):
                raise self._failure(f"cut returned {why}")
            self.turns[-1] = replace(self.turns[-1], reward=self.turns[-1].reward + last.reward)
        self.final = self._text("final", self._asked(self._env.final))

    def refuse(self, why: str) -> None:
        """Count the environment as failed."""
        self._failure(why)

    async def close(self) -> None:
        """Close the environment, once. What it raises is logged: the episode has ended."""
        env, self._env = self._env, None
        if env is None:
            return
        try:
            await at_most(min(CLOSING, self.world.env_seconds), env.close())
        except BaseException as error:
            if _ours(error):
                raise
            log.warning("the environment of problem %s did not close: %s", self.problem.id, told(error))

    def rollout(self, start: tuple[Segment, ...]) -> Rollout:
        """The attempt as it is now; `start` if it has written nothing."""
        stop = Stop.ERROR if self.failed else self.stop
        final = "" if self.failed else self.final
        fault = None if self.turns and self.turns[-1].fault == self.fault else self.fault     # the turn has it
        return Rollout(
            self.problem, self.texts or start, final, stop, self.attempt, turns=tuple(self.turns), fault=fault,
        )

    def _charge(self, replay: bool = False) -> None:
        """One step of the environment. A replay was paid for when it was new: only the machine takes it again."""
        if not getattr(self._env, "imagined", False):
            self.world.meter.charge(_NOTHING if replay else _STEP, _STEP)

    async def _answer(self, said: str, luck: tuple[int, ...], own: bool, text: Segment | None = None) -> Shown:
        assert self._env is not None
        luck = luck or chance.luck(self.place, self.attempt, self._answered)
        self._answered += 1
        wrote = getattr(self._env, "wrote", None)
        try:
            if wrote is not None and text is not None:
                self._asked(partial(wrote, text, self.world.text))
            shown = await self._call(partial(self._env.step, said, partial(self._generator, luck)))
            if why := unfit(shown):
                raise self._failure(f"step returned {why}")
            shown = _bounded(shown)
        except EnvironmentFailed as failed:
            self.turns.append(Turn(self._key, 0.0, Fault.environment(str(failed)), luck))
            raise
        if own:
            self.turns.append(Turn(self._key, shown.reward, shown.fault, luck, shown.seconds))
        self.messages.append(Message("assistant", said))
        self._read(shown)
        if shown.fault is not None and shown.fault.source is FaultSource.ENVIRONMENT:
            raise self._failure(shown.fault.what)
        return shown

    def _read(self, shown: Shown) -> None:
        if shown.whole:
            self.messages.clear()
        self.messages += shown.messages
        self._key, self.shown = shown.key, shown

    def tokens(self, shown: Shown) -> list[int]:
        """What the policy reads of what is shown. Raises EnvironmentFailed for what a harness sends and it cannot."""
        try:
            read = self.world.text.prompt if shown.whole else self.world.text.answer
            return read(shown.messages)
        except UserError as error:
            if not self.drives:
                raise
            log.warning("the policy cannot read a request: %s", error)
            raise self._failure("the policy cannot read a request") from error

    def _generator(self, luck: tuple[int, ...]) -> Generator:
        return chance.generator(self.place.seed, chance.Purpose.ENVIRONMENT, *luck)

    async def _call(self, of: Callable[[], Coroutine[Any, Any, T]]) -> T:
        meter = self.world.meter
        began = time.perf_counter() - meter.charged
        try:
            return await at_most(None if self.drives else self.world.env_seconds, of())
        except TimeoutError as error:
            limit = f"no answer within {self.world.env_seconds:g} s"
            raise self._failure(limit if not error.args else error) from error
        except BaseException as error:        # it may raise anything
            if _ours(error):
                raise
            raise self._failure(error) from error
        finally:        # calls overlap each other and the engine: each is charged the time that nothing else was
            meter.charge(Cost(seconds=max(time.perf_counter() - meter.charged - began, 0.0)))

    def _asked(self, of: Callable[[], T]) -> T:
        """The result of a call that does not wait. Raises EnvironmentFailed."""
        try:
            return of()
        except BaseException as error:
            if interrupts(error):
                raise
            raise self._failure(error) from error

    def _text(self, name: str, found: object) -> str:
        """What an environment says at its end, or what its expert says. Raises EnvironmentFailed."""
        if not isinstance(found, str):
            raise self._failure(f"{name} returned {_kind(found)}; return a text")
        if len(found) > LONGEST:
            raise self._failure(f"{name} returned {len(found):,} characters; at most {LONGEST:,}")
        return whole(found)

    def _failure(self, why: str | BaseException) -> EnvironmentFailed:
        stated = isinstance(why, str | EnvironmentFault)
        cause = told(why, kind=not stated)
        said = cause if stated else type(why).__name__
        self.fault = Fault.environment(said[:NAME])
        self.world.failures[cause] += 1
        if (times := self.world.failures[cause]) <= TOLD:
            log.warning("the environment of problem %s failed: %s%s", self.problem.id, cause,
                        "; more failures like this one are counted and not printed" if times == TOLD else "")
        return EnvironmentFailed(said[:NAME])


def _ours(error: BaseException) -> bool:
    """Whether what an environment's call raised is not the environment's: it is cancelled, closed, or Ctrl-C."""
    return being_cancelled(error) or isinstance(error, GeneratorExit) or interrupts(error)


class Openings:
    """The attempts at one problem, in the batches in which they open: most do at once, and a slow one delays no other.

    What opened first is what the others are compared with.
    """

    def __init__(self, texts: Sequence[Segment], turns: Sequence[Turn]):
        self.texts, self.turns = texts, turns
        self.messages: list[Message] = []       # that the first was opened with
        self.begun = 0                          # attempts that were handed out
        self.ready: list[Episode] = []
        self._asked: tuple[list[Message], int, tuple[str, ...]] | None = None

    async def batch(self, episode: Episode) -> list[Episode]:
        """Open it. All that have opened by then, for one of them to begin; empty for the others and for what failed.

        An attempt that opens with other messages than the first has failed.
        """
        await episode.open(self.texts, self.turns)
        if episode.failed:
            return []
        self.ready.append(episode)
        await asyncio.sleep(0)      # those that open without waiting are ready by now
        if episode not in self.ready:
            return []
        there, self.ready = sorted(self.ready, key=lambda e: e.attempt), []
        if self._asked is None:
            self._asked, self.messages = _asked(there[0]), list(there[0].messages)
        for other in there:
            if _asked(other) != self._asked:
                other.refuse("it opened differently for two attempts at one problem")
                await other.close()
        there = [e for e in there if not e.failed]
        self.begun += len(there)
        return there


def _asked(episode: Episode) -> tuple[list[Message], int, tuple[str, ...]]:
    return list(episode.messages), episode.shown.max_tokens, episode.shown.stop


def past(texts: Sequence[Segment]) -> Iterator[tuple[Segment, bool, ndarray]]:
    """The turns that an environment has answered in a start, in order: the text that ends with the turn, whether the
    policy wrote any of it, and the tokens read after it, if these are in the same segment.
    """
    for i, text in enumerate(texts):
        seen = text.role == _SEEN
        edges = np.diff(np.concatenate(([0], seen.astype(np.int8), [0])))
        for a, b in zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True):
            said = text.cut(a)
            yield said, _policys(said), text.tokens[a:b]
        if i < len(texts) - 1:
            yield text, _policys(text), text.tokens[:0]


def _policys(text: Segment) -> bool:
    """Whether the policy wrote any of a text's last turn."""
    return bool((text.role[len(text) - len(text.reply()) :] == _OWN).any())
