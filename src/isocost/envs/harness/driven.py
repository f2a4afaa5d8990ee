"""Harnesses that drive: an agent that calls a model's address and comes back with a reward.

What would be the environment is seen from the other side. Its first request opens the episode; a turn of the policy is
the reply to the request that waits; the next request is what the policy is shown; and when the harness returns its
reward, the episode is over. So everything that plays, filters, forks, counts and resumes episodes works as with any
other environment: a replay starts the harness again and gives it the same replies.

The messages of a request that begin with all that the session holds, the policy's reply included, continue its text:
what the policy wrote is not tokenised again. Another history (edited, compacted, of another agent) is a new segment.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isocost.envs import gateway_protocol as protocol
from isocost.envs.adapters import seeded
from isocost.envs.gateway_protocol import CompletionRequest, Entry, Reply, RequestError
from isocost.errors import interrupts, told
from isocost.types import PLAIN, Message, Problem, Segment, Shown
from isocost.world import BaseEpisode, EnvironmentFault, Luck, Text

if TYPE_CHECKING:       # the server's packages are an extra
    from isocost.envs.harness.gateway import Gateway, PendingRequest, RolloutSession

log = logging.getLogger("isocost")
SECONDS = 60.0      # from a reply to the next request, at most
CUT = 5.0           # that a harness has to return after its last turn was refused, at most
TASK = "task"       # in a problem's meta: what the harness is given


@dataclass(frozen=True)
class Seat:
    """What a harness is started with: its task, and where its model is."""

    task: Mapping[str, Any]
    base_url: str
    key: str
    model: str = protocol.MODEL


Run = Callable[[Seat], Coroutine[Any, Any, Any]]        # a harness: returns its reward


class Driven(BaseEpisode):
    """One rollout of a harness: an `isocost.world.Environment` that is driven."""

    drives = True

    def __init__(self, problem: Problem, run: Run, seconds: float = SECONDS, spawns: bool = False):
        """`spawns`: it starts a process, and few of them start at a time."""
        self.problem, self.run, self.seconds, self.spawns = problem, run, seconds, spawns
        self.gateway: Gateway | None = None
        self.session: RolloutSession | None = None
        self.work: asyncio.Task[Any] | None = None
        self.request: PendingRequest | None = None     # that waits for the policy's turn
        self.held: tuple[Entry, ...] = ()       # what the policy has read and written
        self.tools = ""                         # that it has read about
        self.turn, self.said = 0, ""
        self.text: tuple[Segment, Text] | None = None       # of the turn that is answered next

    async def open(self) -> Shown:
        from isocost.envs.harness.gateway import Gateway

        self.gateway = Gateway.here()
        self.session = await self.gateway.open()
        processes, functions = self.gateway.starting
        async with processes if self.spawns else functions:
            seat = Seat(task_of(self.problem), self.session.base_url, self.session.name)
            self.work = asyncio.create_task(self.run(seat))
            if not await self._asked():
                self._reward()
                raise EnvironmentFault("the harness ended without a request")
        return self._show(whole=False)

    def wrote(self, text: Segment, of: Text) -> None:
        """The tokens of the turn that `step` is called with next."""
        self.text = text, of

    async def step(self, said: str, luck: Luck) -> Shown:
        assert self.request is not None and self.session is not None
        asked, self.said = self.request.asked, said
        reply = self._reply(said, asked, int(luck().integers(2**53)))
        self.session.answer(self.request, reply)
        closed = self._closed(asked)
        self.request, self.turn, self.text = None, self.turn + 1, None
        if asked.chat:
            self.held = (*asked.entries, reply.entry)
        else:
            self.held = (Entry(PLAIN, asked.entries[0].content + said),)
        if not await self._asked():
            return Shown(over=True, reward=self._reward(), key="end")
        # A chat's turn ends with an end token; a text goes on only where there is none.
        return self._show(whole=not self._extends() or closed is not asked.chat)

    async def cut(self) -> Shown:
        """No turn is left: requests are refused. The harness may still return a reward; without one it has earned 0."""
        assert self.session is not None and self.work is not None
        if self.request is None:
            return Shown(over=True)
        self.session.refuse(RequestError("the rollout has no turn left: its limit of turns is reached", "turn_limit"))
        await asyncio.wait({self.work}, timeout=min(CUT, self.seconds))
        ended = self.work.done() and not self.work.cancelled() and self.work.exception() is None
        return Shown(over=True, reward=self._reward() if ended else 0.0)

    async def close(self) -> None:
        if self.gateway is None or self.session is None:
            return
        self.session.refuse(RequestError("this session has ended", "session_ended"))
        if self.work is not None:
            self.work.cancel()
            await asyncio.gather(self.work, return_exceptions=True)
        await self.gateway.close(self.session)

    async def _asked(self) -> bool:
        """Wait for the next request; False if the harness has ended. Raises EnvironmentFault after the time limit."""
        assert self.session is not None and self.work is not None
        waiting = asyncio.ensure_future(self.session.next())
        try:
            done, _ = await asyncio.wait({waiting, self.work}, timeout=self.seconds,
                                         return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not done:
            raise EnvironmentFault(f"the harness made no request within {self.seconds:g} s")
        if self.work in done:
            return False
        self.request = waiting.result()
        return True

    def _reward(self) -> float:
        """What the harness returned. Raises EnvironmentFault."""
        assert self.work is not None
        try:
            found = self.work.result()
        except EnvironmentFault:
            raise
        except BaseException as error:      # nothing is awaited: all are its own
            if interrupts(error):
                raise
            log.warning("the harness of problem %s raised %s", self.problem.id, told(error))
            raise EnvironmentFault(f"the harness raised {type(error).__name__}") from error
        try:
            reward: Any = found.get("reward") if isinstance(found, Mapping) else found
            value = float(reward)
        except BaseException as error:      # of a type of its own, or of 400 digits
            if interrupts(error):
                raise
            value = math.nan
        if not math.isfinite(value):
            log.warning("the harness of problem %s returned %s: return a number, or a dictionary with `reward`",
                        self.problem.id, told(found)[:80])
            raise EnvironmentFault("the harness returned no reward")
        return value

    def _extends(self) -> bool:
        """Whether the request that waits begins with what was read and written, and goes on."""
        assert self.request is not None
        asked, held = self.request.asked, self.held
        if asked.chat != (held[0].role != PLAIN) or asked.tools != self.tools:
            return False
        if not asked.chat:
            return len(asked.entries[0].content) > len(held[0].content) and \
                asked.entries[0].content.startswith(held[0].content)
        return len(asked.entries) > len(held) and asked.entries[: len(held)] == held

    def _closed(self, asked: CompletionRequest) -> bool:
        """Whether the turn ended with an end token; as a request expects it where tokens are not known."""
        if self.text is None or not self.text[1].ends:
            return asked.chat
        text, of = self.text
        return bool(len(text) and text.own[-1] and int(text.tokens[-1]) in of.ends)

    def _show(self, whole: bool) -> Shown:
        """The request that waits, as what is shown: all of it, or what is new."""
        assert self.request is not None
        asked = self.request.asked
        if whole or not self.held:
            messages = asked.messages()
        elif asked.chat:
            messages = asked.messages(len(self.held))
        else:
            messages = (Message(PLAIN, asked.entries[0].content[len(self.held[0].content) :]),)
        self.tools = asked.tools
        key = seeded.digest("\n".join(m.content for m in messages))
        return Shown(messages, key=key, whole=whole, max_tokens=asked.max_tokens, stop=asked.stop)

    def _reply(self, said: str, asked: CompletionRequest, luck: int) -> Reply:
        content, calls, stopped = protocol.parted(said, asked)
        finish = "tool_calls" if calls else "stop"
        if self.text is None:
            return Reply(content, calls, finish, self.turn, luck)
        text, of = self.text
        tokens = text.reply()
        start = len(text) - len(tokens)
        ended = stopped or self._closed(asked) or not of.ends
        version = int(text.version[-1]) if len(text) else -1
        pieces = tuple(of.decode([t]) for t in tokens.tolist()) if asked.logprobs else ()
        return Reply(
            content, calls, finish if ended else "length", self.turn, luck, start,
            text.cut(start).known(version), version, text.tokens[:start], tokens, text.logp[start:], pieces,
        )


def task_of(problem: Problem) -> Mapping[str, Any]:
    """What a harness is given: the task that its file lists, or the columns of a row of a data set."""
    if TASK in problem.meta:
        return {"id": problem.id, **problem.meta[TASK]}
    given = dict(problem.meta.get("columns", {}))
    given["prompt"] = [{"role": m.role, "content": m.content} for m in problem.prompt]
    if problem.answer is not None:
        given.setdefault("answer", problem.answer)
    return {**given, "id": problem.id}


def problem_of(task: Mapping[str, Any], number: int, source: str) -> Problem:
    """A task of a harness as a problem. Raises EnvironmentFault if it is not plain data."""
    try:
        words = json.dumps(task, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise EnvironmentFault(f"task {number} is not plain data: {error}") from error
    prompt = task.get("prompt")
    asked = prompt if isinstance(prompt, str) else words
    name = str(task.get("id", f"{source}-{number}"))
    meta = {TASK: dict(task), "source": source, "exact": False}
    return Problem(name, (Message("user", asked),), task.get("answer"), meta=meta)
