"""The OpenAI-compatible protocol: what a completion is requested with, and what is read from its answer.

A server fills in what a request leaves out with defaults of its own: llama.cpp with top-k 40 and min-p 0.05, vLLM with
the model's generation_config.json. A profile must measure the distribution that was named, so every request carries
the neutral value of each such parameter, and a server that does not know one is asked again without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from isocost.errors import UserError
from isocost.types import Message, Sampling, Stop

CHAT, TEXT = "/chat/completions", "/completions"
# Values at which a parameter of sampling changes nothing; servers spell "keep all" in two ways.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "temperature": (1.0,), "top_p": (1.0,), "top_k": (-1, 0), "min_p": (0.0,), "repetition_penalty": (1.0,),
    "repeat_penalty": (1.0,), "presence_penalty": (0.0,), "frequency_penalty": (0.0,),
}
OWN = ("top_k", "min_p", "repetition_penalty", "repeat_penalty")     # of single servers, not of the protocol
OTHER_NAME = {"max_tokens": "max_completion_tokens"}        # which newer models of one provider require
KEEPS = "include_stop_str_in_output"    # of vLLM and SGLang; others may give the string as "stop_reason"
DONE = ("stop", "tool_calls", "function_call", "eos", "end_turn", "stop_sequence")
REFUSED = (400, 422)        # statuses of a request with a parameter that the server does not take
TOKENS = 2**24      # of one request, at most: no model reads or writes more
SPECIAL = 16        # tokens above `max_tokens` that a server may count: ends of texts and turns
DATED = re.compile(r"(-\d{4}-?\d{2}-?\d{2}|-\d{4}|-latest|:latest|\.gguf)$")     # how a name may go on in an answer


class MalformedAnswer(Exception):
    """An answer that is not one of the protocol, or not to be believed; `usage` is what it cost where it says so."""

    def __init__(self, why: str, usage: tuple[int, int]):
        super().__init__(why)
        self.usage = usage


@dataclass(frozen=True)
class Completion:
    """One completion: its text, why it ended (None: the server cut it), and its tokens read and written.

    Of those read, `cached` were in the server's cache, as far as it says. `pieces` and `logp` are the text and the
    log-prob of each token where the server returned them, else empty; `model` is the one that wrote it, as it says.
    """

    text: str
    stop: Stop | None
    read: int
    written: int
    pieces: tuple[str, ...] = ()
    logp: tuple[float, ...] = ()
    model: str = ""
    cached: int = 0

    def within(self, most: int) -> Completion:
        """The same. Raises Malformed if it has more tokens than were asked for: it is then not known what is billed."""
        if self.written > most + SPECIAL:
            raise MalformedAnswer(f"a completion of {self.written:,} tokens where at most {most:,} were asked for",
                                  (self.read, most))
        return self

    def of_another(self, asked: str) -> bool:
        """Whether the server names another model than the one that was asked for; dates and folders do not count."""
        one, other = (DATED.sub("", name.lower().rstrip("/").rpartition("/")[2]) for name in (asked, self.model))
        return bool(other) and one != other


@dataclass
class Dialect:
    """What one server takes: `path` is that of chat or text completions. `adapt` changes it after a refusal."""

    model: str
    sampling: Sampling
    path: str = CHAT
    logprobs: bool = False
    keeps: bool = True          # the server takes `KEEPS`
    dropped: list[str] = field(default_factory=list)        # parameters that the server does not take
    _tried: dict[str, int] = field(default_factory=dict)    # which neutral value of a parameter is used
    _named: dict[str, str] = field(default_factory=dict)

    def at(self, sampling: Sampling) -> Dialect:
        """The same with another sampling. Raises UserError for a parameter of it that the server does not take."""
        other = self if sampling == self.sampling else replace(self, sampling=sampling)
        for name in other.dropped:
            if other._required(name):
                raise UserError(f"the server does not take {name}, and {getattr(sampling, name):g} was asked for: "
                                "leave it out")
        return other

    def body(
        self, said: Sequence[Message] | str, max_tokens: int, seed: int, stop: Sequence[str] = (),
        marks: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The body of a request for one completion of messages (chat) or of a text, up to a stop string or a mark."""
        own: dict[str, Any] = {"model": self.model, "seed": seed}
        own |= {self._named.get("max_tokens", "max_tokens"): max_tokens, **self._sampling()}
        if stop or marks:
            own["stop"] = [*stop, *marks]
        if marks and self.keeps:
            own[KEEPS] = True
        if self.logprobs:
            own |= {"logprobs": True} if self.path == CHAT else {"logprobs": 1}
        if isinstance(said, str):
            own["prompt"] = said
        else:
            own["messages"] = [{"role": m.role, "content": m.content} for m in said]
        return {k: v for k, v in own.items() if k not in self.dropped}

    def _sampling(self) -> dict[str, Any]:
        asked = {"temperature": self.sampling.temperature, "top_p": self.sampling.top_p}
        if self.sampling.top_k:
            asked["top_k"] = self.sampling.top_k
        own = {"reasoning_effort": self.sampling.effort} if self.sampling.effort else {}
        return own | {k: asked.get(k, values[self._tried.get(k, 0)]) for k, values in NEUTRAL.items()}

    def _required(self, name: str) -> bool:
        """Whether sampling is another distribution without this parameter."""
        plain = Sampling()
        return name in ("temperature", "top_p", "top_k") and getattr(self.sampling, name) != getattr(plain, name)

    def adapt(self, said: str, body: Mapping[str, Any], *, named: bool = False) -> bool:
        """Change what the server's message names; False if there is nothing to leave out.

        Where it names nothing, all parameters that the protocol does not define are left out, unless only `named` ones
        may be. Raises UserError for a parameter without which sampling would be another distribution.
        """
        words = set(re.findall(r"[a-z_]+", said))
        for name, other in OTHER_NAME.items():
            if other in words and name in body:
                self._named[name] = other
                return True
        found = [k for k in (*NEUTRAL, "seed", "logprobs") if k in body and k in words]
        for name in found:
            if self._required(name):
                raise UserError(f"the server does not take {name} = {body[name]:g} ({said}): give a value that it "
                                f"takes with --{name.replace('_', '-')}")
            if self._tried.get(name, 0) + 1 < len(NEUTRAL.get(name, ())):
                self._tried[name] = self._tried.get(name, 0) + 1
            else:
                self.dropped.append(name)
        rest = [k for k in OWN if k in body and not self._required(k)]
        if not found and not named and rest:
            self.dropped += rest
            return True
        return bool(found)

    def read(self, data: Any, marks: Sequence[str] = ()) -> Completion:
        """The completion in an answer, with its mark. Raises Malformed if there is none, UserError if marks are
        unknown."""
        usage = _usage(data)
        try:
            choice = data["choices"][0]
            text = choice["message"].get("content") if "message" in choice else choice["text"]
            reason = choice.get("finish_reason")
            named = data.get("model")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise MalformedAnswer("an answer without choices[0]", usage or (0, 0)) from None
        if not isinstance(text, str | None):
            raise MalformedAnswer("a completion that is not text", usage or (0, 0))
        pieces, logp = _logprobs(choice)
        ids = choice.get("token_ids")
        counted = len(ids) if isinstance(ids, list) else len(pieces)
        if usage is None and not counted:
            raise MalformedAnswer(
                "an answer without usage, token ids or log-probs: its tokens cannot be counted", (0, 0))
        read, written = usage or (0, counted)
        stop = Stop.LENGTH if reason in ("length", "max_tokens") else Stop.DONE if reason in (None, *DONE) else None
        if marks and stop is Stop.DONE:
            told = choice.get("stop_reason")
            if not (text or "").endswith(tuple(marks)):
                if not self.keeps and "stop_reason" not in choice:
                    raise UserError(f"the server does not say whether a text stopped at {marks[0]!r} or is over: a "
                                    f"search by steps needs one that takes {KEEPS}, such as vLLM; best-of and vote "
                                    "need none")
                text = f"{text or ''}{told if told in marks else ''}"
            stop = Stop.STEP if text.endswith(tuple(marks)) else stop
        if "".join(pieces) != (text or ""):       # special tokens, or bytes of one character
            pieces = ()
        return Completion(text or "", stop, read, written, pieces, logp, named if isinstance(named, str) else "",
                          _cached(data, read))


def _usage(data: Any) -> tuple[int, int] | None:
    usage = data.get("usage") if isinstance(data, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(read) is not int or type(written) is not int or min(read, written) < 0:
        return None
    if max(read, written) > TOKENS:
        raise MalformedAnswer(f"a usage of more than {TOKENS:,} tokens", (0, 0))
    return read, written


def _cached(data: Any, read: int) -> int:
    """Tokens of the prompt that the server had cached: what its usage says, if it does."""
    with suppress(KeyError, TypeError):
        found = data["usage"]["prompt_tokens_details"]["cached_tokens"]
        return min(max(found, 0), read) if type(found) is int else 0
    return 0


def _logprobs(choice: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """(text, log-prob) of each token, in the form of chat or of text completions; empty without them."""
    found = choice.get("logprobs")
    try:
        if not found:
            return (), ()
        if "content" in found:
            each = [(x["token"], float(x["logprob"])) for x in found["content"] or ()]
        else:
            each = [(t, float(p)) for t, p in zip(found["tokens"], found["token_logprobs"], strict=True)]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return (), ()
    if not all(isinstance(t, str) for t, _ in each):
        return (), ()
    return tuple(t for t, _ in each), tuple(p for _, p in each)
