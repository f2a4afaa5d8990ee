"""A world of an OpenAI-compatible server: a model that can be sampled and nothing else.

Each attempt is one request with a seed of its own, addressed like every random number (`isocost.chance`), so that a
server which honours `seed` gives the same completions again. Tokens and cost are what the server's usage counts; a
request that failed for good is a rollout that ended in `Stop.ERROR`: billed as what it cost, without a score.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import urlsplit

import numpy as np
from torch import Tensor

from isocost import chance
from isocost import meter as meters
from isocost.batch import Batch, Forward
from isocost.can import Can
from isocost.errors import Unreachable, UserError
from isocost.meter import Meter, Payer, payer
from isocost.screen.words import visible
from isocost.types import Cost, Message, Place, Problem, Said, Sampling, Segment, Stop
from isocost.world import About, Grade, OnTokens, Surrogate, Weights, World
from isocost.worlds.flying import Flying, each
from isocost.worlds.http import Client, RequestLimits, StatusError, Unanswered
from isocost.worlds.protocol import CHAT, KEEPS, REFUSED, TEXT, Completion, Dialect, MalformedAnswer
from isocost.worlds.spec import Spec

log = logging.getLogger("isocost")
KEY, OPENAI_KEY, OPENAI_HOST = "ISOCOST_API_KEY", "OPENAI_API_KEY", "api.openai.com"
LOCAL = ("localhost", "127.0.0.1", "::1")
HELLO = "Hi"
SHOWN = 80          # characters of a name of a model that the server gives
OTHER = "another model"         # among the examples of the tally
IN_A_ROW = 8        # requests without an answer, all retries used, after which the server is tested


def open_world(
    spec: Spec, problems: Sequence[Problem], grade: Grade, *, meter: Meter | None = None,
    sampling: Sampling = Sampling(), limits: RequestLimits = RequestLimits(), logprobs: bool = False,
) -> World:
    """A world that samples the model of `spec` at its address, such as http://localhost:8000/v1.

    Chat completions, unless the address ends in /completions: then text completions. The server is asked for its models
    and for one token first, charged to the account `check`. The key is that of the environment variable
    ISOCOST_API_KEY, for api.openai.com also OPENAI_API_KEY. `logprobs` asks for the log-prob of each token. Raises
    UserError if nothing answers there, the model or the key is not accepted, or a value of `sampling` is not.
    """
    base, path = _address(spec.url)
    client = Client(base, _key(base), limits)
    dialect = Dialect(spec.name, sampling, path, logprobs)
    meter = Meter() if meter is None else meter
    try:
        _check_model(client, spec)
        prompt = problems[0].prompt if problems else (Message("user", HELLO),)
        known = prompt if path == CHAT else _plain(prompt)
        _hello(client, dialect, meter, known)
    except BaseException:
        client.close()
        raise
    text = WordTable()
    return World(
        problems, EndpointEngine(spec, client, dialect, text, meter, known), OnlySampled(spec), text, grade, meter,
        about=About(server=lambda: {**client.tally.data(), "dropped": list(dialect.dropped)}), close=client.close,
    )


class EndpointEngine:
    """`isocost.world.Engine` over HTTP."""

    version = 0

    def __init__(
        self, spec: Spec, client: Client, dialect: Dialect, text: WordTable, meter: Meter,
        known: Sequence[Message] | str,
    ):
        self.known, self._in_a_row = known, 0      # what the server has answered; requests without an answer
        self.spec, self.client, self.dialect, self.text, self.meter = spec, client, dialect, text, meter
        self._flying = Flying()
        self._counted: dict[tuple[Place, int], int] = {}       # tokens that an attempt has read and written so far

    async def generate(
        self, start: Segment, attempts: Sequence[int], *, place: Place, turn: int, max_tokens: int,
        stop: Sequence[str] = (), ends: Sequence[int] = (), on_tokens: OnTokens | None = None,
    ) -> list[Said]:
        """Continue a start once per attempt: see `isocost.world.Engine`.

        The texts of `ends` are stop strings of the request, which the server is asked to keep in its answer. An attempt
        whose request failed for good has no tokens and `Stop.ERROR`. Raises UserError for a start that the protocol
        cannot express, and Unreachable when the server no longer answers.
        """
        dialect = self.dialect.at(start.sampling)
        said, marks = self.text.spoken(start, chat=self.dialect.path == CHAT), [self.text.decode([x]) for x in ends]
        seeds = (chance.uniforms(place, attempts, turn, 0, 1)[:, 0] * 2**31).astype(int).tolist()
        goes_on = bool(start.own.any())
        bodies = [dialect.body(said, max_tokens, seed, stop, marks) for seed in seeds]
        asked = [self._attempt(body, max_tokens, marks, place, a, goes_on)
                 for a, body in zip(attempts, bodies, strict=True)]
        return await each(attempts, asked, on_tokens)

    async def _attempt(
        self, body: dict[str, Any], max_tokens: int, marks: Sequence[str], place: Place, attempt: int, goes_on: bool
    ) -> Said:
        """One attempt, charged to the caller. The tokens that it had read and written before are charged as `reread`,
        as far as the server counts them again.
        """
        who = place, attempt
        before = self._counted.get(who, 0) if goes_on else 0
        if self._flying.halted(place):
            return Said.nothing(Stop.CANCELLED)
        paying, seconds = payer(), 0.0
        answer: Completion | None = None
        read = written = cached = 0
        try:
            found = await self._flying.answer(place, self._posted(body))
            if found is None:
                return Said.nothing(Stop.CANCELLED)
            data, seconds = found
            self._in_a_row = 0
            answer = self.dialect.read(data, marks).within(max_tokens)
            read, written, cached = answer.read, answer.written, answer.cached
            _notice(self.client, self.dialect, answer)
        except MalformedAnswer as e:
            self._failed("malformed", str(e))
            read, written = e.usage
        except StatusError as e:
            if e.status not in (*REFUSED, 413):
                raise UserError(_refused(self.client.base, e)) from None
            self._failed(str(e.status), str(e))
        except Unanswered as e:
            await self._missed(e, paying)
        finally:
            cost = Cost(prefill=read, decode=written, seconds=seconds, reread=min(before, read))
            made = cost._replace(prefill=read - cached, reread=max(cost.reread - cached, 0))
            self.meter.charge(cost, made, to=paying, started=1)
            self._counted[who] = read + written
        if answer is None or answer.stop is None:
            return Said.nothing(Stop.ERROR)
        return self.text.said(answer)

    async def _posted(self, body: dict[str, Any]) -> Any:
        """The answer to a request; without `KEEPS`, where the server does not know that."""
        try:
            return await self.client.post(self.dialect.path, body)
        except StatusError as e:
            if KEEPS not in body or KEEPS not in e.said:
                raise
        self.dialect.keeps = False
        return await self.client.post(self.dialect.path, {k: v for k, v in body.items() if k != KEEPS})

    async def _missed(self, why: Unanswered, who: Payer) -> None:
        """Count a request without an answer. After `IN_A_ROW` of them one that was answered before is sent again, so
        that prompts which a server cannot answer are told from a server that is down: then raises Unreachable.
        """
        self._in_a_row += 1
        if self._in_a_row < IN_A_ROW:
            return
        missed, self._in_a_row = self._in_a_row, 0
        try:
            data, seconds = await self.client.post(self.dialect.path, self.dialect.body(self.known, 1, 0))
        except (Unanswered, StatusError):
            raise Unreachable(
                f"{self.client.base} left {missed} requests in a row without an answer, each tried "
                f"{self.client.limits.retries + 1} times; the last: {why}. What was answered is kept: run the same "
                "command again to continue"
            ) from None
        try:
            answer = self.dialect.read(data).within(1)
            read, written = answer.read, answer.written
        except MalformedAnswer as e:      # it is not down
            read, written = e.usage
        self.meter.charge(Cost(prefill=read, decode=written, seconds=seconds), to=who)

    def _failed(self, kind: str, why: str) -> None:
        tally = self.client.tally
        tally.examples.setdefault(kind, why)
        tally.failed += kind == "malformed"

    def halt(self, place: Place) -> None:
        """Cancel the requests of a wave: its rollouts return with `Stop.CANCELLED` and without tokens."""
        self._flying.halt(place)

    def forget(self) -> None:
        """Drop all texts, and what was counted of them: no rollout that was sampled before is used again."""
        self._counted.clear()
        self.text.forget()

    async def load(self, weights: Weights) -> None:
        self.spec.require(Can.LEARN)

    def restore(self, weights: Weights, version: int) -> None:
        self.spec.require(Can.LEARN)


class OnlySampled:
    """`isocost.world.Learner` of a model that cannot be trained: every method raises a UserError."""

    parameters, learned, vocabulary, can = 0, 0, 0, frozenset[Can]()

    def __init__(self, spec: Spec):
        self.spec = spec

    def _no(self) -> NoReturn:
        self.spec.require(Can.LEARN)
        raise AssertionError(f"{self.spec} is opened as a model that cannot learn")

    def forward(self, batch: Batch) -> Forward: self._no()
    def score(self, batch: Batch) -> Forward: self._no()
    def update(self, batch: Batch, loss: Surrogate, *, lr: float) -> dict[str, float]: self._no()
    def gradients(self, batch: Batch, loss: Surrogate) -> Iterator[tuple[Tensor, dict[str, float]]]: self._no()
    def step(self, gradient: Tensor, *, lr: float) -> float: self._no()
    def forget(self) -> None: self._no()
    def weights(self) -> Weights: self._no()
    def state(self) -> dict[str, Tensor]: self._no()
    def restore(self, state: Mapping[str, Tensor]) -> None: self._no()


class WordTable:
    """`isocost.world.Text` without a tokenizer: a token's id is the place of its text in a table.

    Without texts of tokens from the server, a completion's first token holds all of its text.
    """

    ends: tuple[int, ...] = ()
    tokenized = False       # what is read is not in the model's tokens, whose number only the server knows

    def __init__(self) -> None:
        self._parts: list[str | tuple[Message, ...]] = [""]
        self._ids: dict[str | tuple[Message, ...], int] = {"": 0}

    def forget(self) -> None:
        """Drop all texts: ids that were given before stand for others now."""
        del self._parts[1:]
        self._ids = {"": 0}

    def _id(self, part: str | tuple[Message, ...]) -> int:
        found = self._ids.setdefault(part, len(self._parts))
        if found == len(self._parts):
            self._parts.append(part)
        return found

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return [self._id(tuple(messages))]

    def answer(self, messages: Sequence[Message]) -> list[int]:
        return [self._id(tuple(messages))]

    def encode(self, text: str) -> list[int]:
        return [self._id(text)] if text else []

    def decode(self, tokens: Sequence[int]) -> str:
        parts = (self._parts[t] for t in tokens)
        return "".join(x if isinstance(x, str) else _plain(x) for x in parts)

    def said(self, answer: Completion) -> Said:
        """A completion as the engine returns it; log-probs are NaN where the server gave none."""
        if answer.pieces:
            ids = [self._id(piece) for piece in answer.pieces]
        else:
            ids = [self._id(answer.text)] + [0] * (answer.written - 1) if answer.text or answer.written else []
        k = len(ids)
        logp = np.array(answer.logp if len(answer.logp) == k else [np.nan] * k, dtype=np.float32)
        return Said(np.array(ids, dtype=np.int64), logp, np.zeros(k, dtype=np.int64), answer.stop or Stop.ERROR)

    def spoken(self, start: Segment, *, chat: bool) -> tuple[Message, ...] | str:
        """A start as messages, or as one text. Raises UserError for a started answer in messages."""
        messages: list[Message] = []
        own = ""
        for token in start.tokens.tolist():
            part = self._parts[token]
            if isinstance(part, str):
                own += part
                continue
            if own:
                messages.append(Message("assistant", own))
            messages += part
            own = ""
        if not chat:
            return _plain(messages) + own
        if own:
            raise UserError(f"chat completions cannot continue the started answer {own[:40]!r}: give the address of "
                            "text completions, openai:URL/completions#MODEL, if the server has them")
        return tuple(messages)


def _plain(messages: Sequence[Message]) -> str:
    """Messages as one text, for models without a chat template: their contents, separated by empty lines."""
    return "\n\n".join(m.content for m in messages)


# opening ------------------------------------------------------------------------------------------------------


def _address(url: str) -> tuple[str, str]:
    """(base address, path of completions). Raises UserError for an address that cannot be used."""
    found = urlsplit(url)
    try:
        port_is_fine = found.port is None or found.port > 0
    except ValueError:
        port_is_fine = False
    if found.scheme not in ("http", "https") or not found.hostname or not port_is_fine:
        raise UserError(f"{url!r} is not the address of a server; expected such as "
                        "openai:http://localhost:8000/v1#MODEL")
    if found.username or found.password or found.query:
        raise UserError("the address of a server is recorded, so it may hold no user, password or query: give the key "
                        f"in the environment variable {KEY}")
    base = url.rstrip("/")
    for path in (CHAT, TEXT):
        if base.endswith(path):
            return base.removesuffix(path), path
    return base, CHAT


def client_of(url: str, limits: RequestLimits) -> Client:
    """A client of the server at an address. Raises UserError for an address or a key that cannot be used."""
    base, _ = _address(url)
    return Client(base, _key(base), limits)


def _key(base: str) -> str:
    """The key for a server, from the environment. Raises UserError if it would be sent unencrypted."""
    url = urlsplit(base)
    key = os.environ.get(KEY) or (os.environ.get(OPENAI_KEY, "") if url.hostname == OPENAI_HOST else "")
    if re.search(r"[^\x21-\x7e]", key):
        raise UserError(f"the key in {KEY} has a space, a line end or another character that no key has")
    if key and url.scheme == "http" and url.hostname not in LOCAL:
        raise UserError(f"{base} is not encrypted, and the key in {KEY} would be sent to it: use https, or unset {KEY}")
    return key


def _check_model(client: Client, spec: Spec) -> None:
    """Raises UserError if nothing answers, the key is not accepted, or the server lists models and not this one."""
    try:
        listed = client.ask("GET", "/models")
    except Unanswered as e:
        raise UserError(f"no server answers at {client.base} ({e}): start it, or correct the address in "
                        f"--model {spec}") from None
    except StatusError as e:
        if e.status in (401, 403):
            raise UserError(_refused(client.base, e)) from None
        return      # a server without this path
    with suppress(KeyError, TypeError):
        names = [str(m["id"]) for m in listed["data"]]
        if names and spec.name not in names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            shown = ", ".join(x[:SHOWN] for x in names[:10]) + more
            raise UserError(f"{client.base} has no model {spec.name!r}; it has {shown}: --model openai:URL#NAME")


def _hello(client: Client, dialect: Dialect, meter: Meter, said: Sequence[Message] | str) -> None:
    """Ask for one token, and leave out what the server does not take."""
    tries = 0
    while True:
        body = dialect.body(said, 1, 0)
        try:
            data = client.ask("POST", dialect.path, body, retries=0)
            break
        except StatusError as e:
            if not (e.status in REFUSED and dialect.adapt(e.said, body)):
                raise UserError(_refused(client.base, e, dialect.path)) from None
        except Unanswered as e:
            # llama-cpp-python answers 500 to a value that it does not take
            if e.status == 500 and dialect.adapt(str(e), body, named=True):
                continue
            tries += 1
            if tries > client.limits.retries or e.late:
                raise UserError(f"{client.base} answers no completion of {dialect.model}: {e}") from None
            client.pause(tries)
    try:
        answer = dialect.read(data).within(1)
    except MalformedAnswer as e:
        raise UserError(f"{client.base}{dialect.path} is not OpenAI-compatible: it gave {e}") from None
    _notice(client, dialect, answer)
    with meters.on(meters.CHECK):
        meter.charge(Cost(prefill=answer.read, decode=answer.written))


def _notice(client: Client, dialect: Dialect, answer: Completion) -> None:
    """Say once, and record, that the server answers with another model."""
    if OTHER not in client.tally.examples and answer.of_another(dialect.model):
        named = visible(answer.model[:SHOWN], lines=False)
        client.tally.examples[OTHER] = f"{named} instead of {dialect.model}"
        log.warning("%s answers with the model %s, and %s was asked for: what is measured is the model that answers",
                    client.base, named, dialect.model)


def _refused(base: str, e: StatusError, path: str = "") -> str:
    """An error of a status that does not pass, with what to do."""
    host = urlsplit(base).hostname
    names = f"{KEY} or {OPENAI_KEY}" if host == OPENAI_HOST else KEY
    do = {
        401: f"set the environment variable {names} to a key that it accepts",
        403: f"the key in {names} may not use it",
        404: "check the address (it usually ends in /v1) and the model's name",
        429: "the account has no quota left",
    }.get(e.status)
    if e.status in REFUSED and path == CHAT:
        do = "if the model has no chat template, use text completions: --model openai:URL/completions#MODEL"
    return f"{base}{path} answered {e.status}: {e.said}" + (f"; {do}" if do else "")
