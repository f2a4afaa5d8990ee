"""One request answered: what it asks for, the strategy that answers it, and the bill.

A bill is what the meter was charged while the answer was made, by tries and scorers alike, so the usage of all requests
sums to the meter's account `answers` and those of other models (`meter.MODEL`). Random numbers are addressed by the
number of the request; by its `seed` if it has one, so that a request repeats its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from isocost import meter
from isocost.chance import Purpose
from isocost.envs.gateway_protocol import CompletionRequest, Reply, RequestError, parted
from isocost.errors import UserError
from isocost.seams import Pace, Play
from isocost.types import Cost, Message, Place, Problem, Rollout, Said, Sampling, Segment, Stop
from isocost.world import OnTokens, Start, World, generate_many

TOKENS = 2**24      # of a completion, at most
CHOICES = 128       # of a request, at most
COUNTED = 4         # characters of a token of a text that only its server can count


@dataclass(frozen=True)
class ChosenStrategy:
    """A strategy as a request has it: how it is written, what plays it, the completions that are under way for one
    answer at once, at most, whether its first one is the answer (`plain`), and the band of the problem where a plan has
    bands. `arm` are settings of sampling that a plan chose, for requests that do not say their own."""

    name: str
    play: Play
    width: int = 1
    plain: bool = False
    band: str = ""
    arm: Mapping[str, Any] = field(default_factory=dict)


# What a strategy (empty: the server's) and a budget (empty: none) come to, for completions of so many tokens at most
# and a problem. Raises UserError.
Choose = Callable[[str, str, int, Problem], ChosenStrategy]


@dataclass(frozen=True)
class AnswerRequest:
    """What a request asks for: `prompt` in tokens, and `tokens` that may be under way for it."""

    asked: CompletionRequest
    problem: Problem
    choices: int
    seed: int | None
    pace: Pace
    chosen: ChosenStrategy
    prompt: int

    @property
    def tokens(self) -> int:
        return self.choices * self.chosen.width * (self.prompt + self.pace.max_tokens)


class CountedEngine:
    """An engine for one request: it counts completions and those that failed, and passes tokens on as they come."""

    def __init__(self, engine: Any, on_tokens: OnTokens | None = None):
        self._engine, self._on_tokens, self.started, self.lost = engine, on_tokens, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, start: Segment, attempts: Sequence[int], **how: Any) -> list[Said]:
        """See `isocost.world.Engine`."""
        if self._on_tokens is not None:
            how["on_tokens"] = self._on_tokens
        return self._counted(await self._engine.generate(start, attempts, **how))

    async def generate_many(self, starts: Sequence[Start], **how: Any) -> list[list[Said]]:
        """See `isocost.world.generate_many`."""
        return [*map(self._counted, await generate_many(self._engine, starts, **how))]

    def _counted(self, said: list[Said]) -> list[Said]:
        self.started += len(said)
        self.lost += sum(s.stop is Stop.ERROR for s in said)
        return said


@dataclass
class AnswerBill:
    """What an answer cost so far. `answer` is tokens of the texts that were returned, `scorer` those that scorers
    wrote, `strong` those that another model wrote, `depth` tokens that were written one after the other."""

    chosen: ChosenStrategy
    tab: meter.Tab
    engine: CountedEngine
    answer: int = 0
    scorer: int = 0
    strong: int = 0
    depth: int = 0

    @property
    def cost(self) -> Cost:
        return self.tab.cost

    def usage(self) -> dict[str, Any]:
        """OpenAI's `usage`, and what it is made of: all that was read and written, in every try. Cached tokens were
        read or written before."""
        cost = self.cost
        tries = cost.decode - self.answer - self.scorer - self.strong
        parts = {"answer": self.answer, "tries": tries, "scorer": self.scorer,
                 **({"strong": self.strong} if self.strong else {}),
                 **({"scored": cost.score} if cost.score else {}),
                 "reread": cost.reread, "calls": cost.verify,
                 "completions": self.engine.started, "lost": self.engine.lost, "depth": self.depth,
                 "strategy": self.chosen.name, "band": self.chosen.band}
        return {"prompt_tokens": cost.prefill, "completion_tokens": cost.decode,
                "total_tokens": cost.prefill + cost.decode,
                "prompt_tokens_details": {"cached_tokens": cost.reread}, "isocost": parts}


def wanted(
    asked: CompletionRequest, body: Mapping[str, Any], number: int, world: World, pace: Pace, choose: Choose,
    known: Mapping[str, Problem],
) -> AnswerRequest:
    """What a request asks for; the text of a `known` problem is that problem. Raises RequestError for what cannot be
    served."""
    own = body.get("isocost") or {}
    if not isinstance(own, dict) or (unknown := own.keys() - {"budget", "strategy"}):
        raise RequestError("isocost must be an object with budget, strategy or both" if not isinstance(own, dict) else
                           f"isocost has no {min(unknown)!r}: it has budget and strategy", "invalid_value",
                           param="isocost")
    choices, seed = _number(body, "n", int, 1, CHOICES) or 1, _number(body, "seed", int)
    for name in ("presence_penalty", "frequency_penalty", "min_p"):
        if _number(body, name, float):
            raise RequestError(f"{name} is not supported: leave it out", "unsupported_value", param=name)
    given = {"temperature": _number(body, "temperature", float, 0, 100), "top_p": _number(body, "top_p", float, 0, 1),
             "top_k": _number(body, "top_k", int, -1)}
    sampling = replace(pace.sampling, **{k: max(v, 0) for k, v in given.items() if v is not None})
    if (effort := body.get("reasoning_effort")) is not None:
        if world.about.model is not None or not isinstance(effort, str):
            raise RequestError("reasoning_effort is for a server that knows it, and this model is on this machine: "
                               f"leave it out, not {effort!r}", "unsupported_value", param="reasoning_effort")
        sampling = replace(sampling, effort=effort)
    if sampling.temperature == 0 and world.about.model is not None:
        sampling = Sampling(top_k=1)        # the most likely token
    entries, prefix = asked.entries, ""
    if body.get("continue_final_message"):
        if entries[-1].role != "assistant" or len(entries) == 1:
            raise RequestError("continue_final_message continues a last message of the assistant, which there is not",
                               "invalid_value", param="continue_final_message")
        entries, prefix = entries[:-1], entries[-1].content
    messages = replace(asked, entries=entries).messages()
    problem = Problem(f"request-{number}", messages)
    problem = replace(known.get(problem.text, problem), prompt=messages, prefix=prefix)
    read = prompt_tokens(messages, prefix, world)
    limit, most = asked.max_tokens or pace.max_tokens, TOKENS
    if world.about.model is not None:
        room = world.about.model.config.max_len
        if read >= room and not prefix:
            raise RequestError(f"the prompt has {read} tokens, and the model's context is {room}: shorten it",
                               "context_length_exceeded", param="messages" if asked.chat else "prompt")
        most = max(room - read, 1)
    try:
        chosen = choose(str(own.get("strategy") or ""), str(own.get("budget") or ""), min(limit, most), problem)
    except UserError as e:
        raise RequestError(str(e), "invalid_value", param="isocost") from None
    planned = {k: x for k, x in chosen.arm.items() if body.get("reasoning_effort" if k == "effort" else k) is None}
    limit = min(limit if asked.max_tokens else planned.pop("max_tokens", limit), most)
    planned.pop("max_tokens", None)
    pace = replace(pace, max_tokens=limit, sampling=replace(sampling, **planned), stop=asked.stop)
    if given["temperature"] == 0 and choices * chosen.width > 1:
        raise RequestError(f"at temperature 0 all completions of {chosen.name} with n = {choices} are equal: ask for "
                           "one, or a higher temperature", "invalid_value", param="temperature")
    return AnswerRequest(asked, problem, choices, seed, pace, chosen, read)


def _number(body: Mapping[str, Any], name: str, kind: type, low: float | None = None, high: float | None = None) -> Any:
    """A number of a request, None if it has none. Raises RequestError for another value, or one out of range."""
    value = body.get(name)
    if value is None:
        return None
    fits = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not fits or not np.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
        limits = " ".join(f"at {w} {x:g}" for w, x in (("least", low), ("most", high)) if x is not None)
        what = "an integer" if kind is int else "a number"
        raise RequestError(f"{name} must be {what} {limits}, got {value!r}".replace(" ,", ","), "invalid_value",
                           param=name)
    return kind(value)


def prompt_tokens(messages: Sequence[Message], prefix: str, world: World) -> int:
    """The tokens of a prompt; about as many where only the model's server can count them."""
    if not getattr(world.text, "tokenized", True):
        return sum(len(m.content) for m in messages) // COUNTED + len(prefix) // COUNTED + 1
    return len(world.text.prompt(messages)) + len(world.text.encode(prefix) if prefix else ())


async def play(
    want: AnswerRequest, number: int, world: World, bill: Callable[[AnswerBill], None],
    on_tokens: OnTokens | None = None,
) -> list[Reply]:
    """The replies to a request, one for each of its choices that ended. Charged to the account `answers`. `bill` is
    called with the bill before anything is charged. Raises RequestError where no try ended."""
    engine = CountedEngine(world.engine, on_tokens)
    with meter.on(meter.ANSWERS), meter.begins(True), meter.tab() as tab:
        own = AnswerBill(want.chosen, tab, engine)
        bill(own)
        place = Place(0, number, 0, int(Purpose.ANSWER))
        if want.seed is not None:
            place = Place(want.seed & 0xFFFFFFFFFFFFFF, 0, 1, int(Purpose.ANSWER))
        made = await want.chosen.play(
            want.problem, range(want.choices), replace(world, engine=engine), want.pace, place)
    good = [r for r in made if r.stop not in (Stop.ERROR, Stop.CANCELLED)]
    if not good:
        raise RequestError(f"the model failed in all of {engine.started} tries: {_why(world)}", "backend_failed", 502)
    own.answer = sum(s.written for r in good for s in r.segments)
    own.scorer = sum(int(r.numbers.get("scoring_written", 0)) for r in made)
    own.strong = sum(int(r.numbers.get("strong", 0)) for r in made)
    own.depth = max(int(r.numbers.get("depth", sum(s.written for s in r.segments))) for r in good)
    return [_reply(r, want, number * CHOICES + r.attempt, world) for r in good]


def _why(world: World) -> str:
    """What the model's server said of failures, an example."""
    said = world.about.server().get("examples", {}) if world.about.server else {}
    return str(next(reversed(said.values()))) if said else "see its log"


def _reply(made: Rollout, want: AnswerRequest, number: int, world: World) -> Reply:
    """A rollout as the client reads it: without the text that it was asked to continue."""
    asked, text = want.asked, made.segments[-1]
    content, calls, stopped = parted(made.final.removeprefix(want.problem.prefix), asked)
    tokens, own = text.tokens, text.own
    first = int(np.flatnonzero(own)[0]) if own.any() else len(text)
    pieces = tuple(world.text.decode([t]) for t in tokens[own].tolist()) if asked.logprobs else ()
    finish = "tool_calls" if calls else "stop" if stopped or made.stop is Stop.DONE else "length"
    return Reply(content, calls, finish, number, 0, read=first, prompt=tokens[:first], tokens=tokens[own],
                 logp=text.logp[own], pieces=pieces)
