"""OpenAI's protocol as a server reads and writes it: chat completions and text completions.

A request becomes `CompletionRequest`: its messages in one form, so that two histories can be compared, and what limits
the reply. Where sampling is `fixed` it is the run's: temperature, top_p, seed and penalties of a request are not used,
and it has one choice. What cannot be done, such as images, is an error in OpenAI's form.

Tools are described in the system message in the form of Hermes and Qwen models; calls are read from the reply's text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.envs.tools import CALL, NO_JSON, MalformedCall, described, read_calls, sound, with_system
from isocost.screen.words import whole
from isocost.types import PLAIN, Message

log = logging.getLogger("isocost")
MODEL = "policy"      # the name of the only model
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_UNUSED = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
           "repetition_penalty")
_CANNOT = ("functions", "function_call", "logit_bias", "suffix", "echo", "audio", "prediction", "top_logprobs")
_warned: set[str] = set()


class RequestError(Exception):
    """A request that is not served: the message, OpenAI's code for it, the status, and in how many seconds to ask
    again."""

    def __init__(self, message: str, code: str, status: int = 400, param: str | None = None, after: int = 0):
        super().__init__(message)
        self.code, self.status, self.param, self.after = code, status, param, after

    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "rate_limit_error" if self.after else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a history: ids of calls and fields that the policy does not read are left out."""

    role: str
    content: str
    calls: tuple[tuple[str, str], ...] = ()     # name, and arguments as canonical JSON

    def message(self) -> Message:
        """As the policy reads it."""
        each = (f'<tool_call>\n{{"name": {json.dumps(n)}, "arguments": {a}}}\n</tool_call>' for n, a in self.calls)
        return Message(self.role, "\n".join(x for x in (self.content, *each) if x))


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request for one completion. What takes part in comparison makes a repeated request equal to its first."""

    entries: tuple[Entry, ...]          # of a chat; one PLAIN entry of a text completion
    tools: str = ""                     # their description, for the system message
    max_tokens: int = 0                 # 0: the run's
    stop: tuple[str, ...] = ()
    keeps_stop: bool = False            # the stop string is part of the reply, as vLLM's `include_stop_str_in_output`
    logprobs: bool = field(default=False, compare=False)
    stream: bool = field(default=False, compare=False)
    usage: bool = field(default=False, compare=False)      # at the end of a stream
    ids: bool = field(default=False, compare=False)        # of tokens, as vLLM's `return_token_ids`

    @property
    def chat(self) -> bool:
        return self.entries[0].role != PLAIN

    def messages(self, start: int = 0) -> tuple[Message, ...]:
        """What the policy reads of the entries from `start` on; all of them with the tools."""
        found = tuple(e.message() for e in self.entries[start:])
        return with_system(found, self.tools) if self.tools and not start else found


@dataclass(frozen=True)
class Reply:
    """A completion: the policy's tokens and the text that the client reads."""

    content: str
    calls: tuple[tuple[str, str], ...]
    finish: str                 # "stop", "length" or "tool_calls"
    number: int                 # of the turn
    luck: int                   # random numbers of the harness in this turn can be seeded with it
    read: int = 0               # tokens of the prompt
    known: int = 0              # of these, read or written before
    version: int = -1           # weights that wrote the last token
    prompt: ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    tokens: ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    logp: ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    pieces: tuple[str, ...] = ()    # the text of each token

    @property
    def entry(self) -> Entry:
        return Entry("assistant", self.content, self.calls)


# requests ----------------------------------------------------------------------------------------------------------


def read_chat(body: Any, *, fixed: bool = True) -> CompletionRequest:
    """A request to /chat/completions. Raises RequestError."""
    data = _object(body, fixed)
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list of at least one message", "invalid_value", param="messages")
    entries = tuple(_entry(m, i) for i, m in enumerate(messages))
    form = data.get("response_format")
    if isinstance(form, dict) and form.get("type", "text") != "text":
        raise RequestError(f"response_format {form.get('type')!r} is not supported: the policy writes plain text",
                           "unsupported_value", param="response_format")
    choice = data.get("tool_choice", "auto")
    if choice not in (None, "auto", "none"):
        raise RequestError("tool_choice is auto or none: the policy decides which tool it calls", "unsupported_value",
                           param="tool_choice")
    tools = "" if choice == "none" else _tools(data.get("tools") or [])
    return CompletionRequest(entries, tools, _most(data), _stop(data), **_common(data))


def read_text(body: Any, *, fixed: bool = True) -> CompletionRequest:
    """A request to /completions. Raises RequestError."""
    data = _object(body, fixed)
    prompt = data.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str) or not prompt:
        raise RequestError("prompt must be one text: token ids and several prompts are not supported", "invalid_value",
                           param="prompt")
    return CompletionRequest((Entry(PLAIN, prompt),), "", _most(data), _stop(data), **_common(data))


def _object(body: Any, fixed: bool) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object", "invalid_type")
    for name in ("n", "best_of") if fixed else ("best_of",):
        if body.get(name) not in (None, 1):
            why = "a session is one rollout. Request again for another completion" if fixed else "n is their number"
            raise RequestError(f"{name} must be 1, got {body[name]!r}: {why}", "unsupported_value", param=name)
    for name in _CANNOT:
        if body.get(name):
            raise RequestError(f"{name} is not supported", "unsupported_parameter", param=name)
    for name in _UNUSED if fixed else ():
        if body.get(name) is not None and name not in _warned:
            _warned.add(name)
            log.warning("a harness sets %s=%.80r, which is not used: the run's sampling holds", name, body[name])
    return body


def _common(data: Mapping[str, Any]) -> dict[str, bool]:
    options = data.get("stream_options") or {}
    if not isinstance(options, dict):
        raise RequestError("stream_options must be an object", "invalid_type", param="stream_options")
    return {
        "keeps_stop": bool(data.get("include_stop_str_in_output")),
        "logprobs": data.get("logprobs") not in (None, False), "stream": bool(data.get("stream")),
        "usage": bool(options.get("include_usage")), "ids": bool(data.get("return_token_ids")),
    }


def _entry(message: Any, i: int) -> Entry:
    where = f"messages[{i}]"
    role = _ROLES.get(str(message.get("role"))) if isinstance(message, dict) else None
    if role is None or not isinstance(message, dict):
        raise RequestError(f"{where} must have the role {', '.join(_ROLES)}", "invalid_value", param=where)
    calls = []
    listed = message.get("tool_calls") or []
    if not isinstance(listed, list):
        raise RequestError(f"{where}.tool_calls must be a list", "invalid_type", param=where)
    for call in listed:
        try:
            function = call["function"]
            calls.append((whole(str(function["name"])), whole(canonical(function.get("arguments") or "{}"))))
        except (KeyError, TypeError) as error:
            raise RequestError(f"{where} has a tool call that cannot be read", "invalid_value", param=where) from error
    return Entry(role, _words(message.get("content"), where), tuple(calls))


def _words(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return whole(content)
    parts: list[Any] = content if isinstance(content, list) else [None]
    said = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in ("text", "refusal"):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise RequestError(f"{where} has content of type {kind!r}: the policy reads text alone",
                               "unsupported_value", param=where)
        said.append(str(part.get("text", part.get("refusal", ""))))
    return whole("".join(said))


def canonical(arguments: Any) -> str:
    """Arguments of a call, a JSON text or an object, in one form; other text as it is. Raises TypeError for others."""
    read = arguments
    try:
        if isinstance(arguments, str):
            read = json.loads(arguments)
            sound(read)
        return json.dumps(read, ensure_ascii=False, sort_keys=True)
    except NO_JSON as error:
        if isinstance(arguments, str):
            return arguments
        raise TypeError("arguments that are nested too deeply") from error


def _tools(listed: Any) -> str:
    schemas = []
    for tool in listed if isinstance(listed, list) else [None]:
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") in ("function", None) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError("tools must be functions with a name", "invalid_value", param="tools")
        schemas.append({
            "name": function["name"], "description": function.get("description") or "",
            "parameters": function.get("parameters") or {"type": "object", "properties": {}},
        })
    return described(schemas) if schemas else ""


def _most(data: Mapping[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        if (value := data.get(name)) is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RequestError(f"{name} must be an integer of at least 1, got {value!r}", "invalid_value",
                                   param=name)
            return value
    return 0


def _stop(data: Mapping[str, Any]) -> tuple[str, ...]:
    stop = data.get("stop") or ()
    stop = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stop, list | tuple) or not all(isinstance(x, str) and x for x in stop):
        raise RequestError("stop must be a text or a list of texts", "invalid_value", param="stop")
    return tuple(stop)


# replies -----------------------------------------------------------------------------------------------------------


def parted(said: str, asked: CompletionRequest) -> tuple[str, tuple[tuple[str, str], ...], bool]:
    """The text that a client reads of a turn, its readable calls, and whether a stop string ended it."""
    cuts = [(at, x) for x in asked.stop if (at := said.find(x)) >= 0]
    stopped = bool(cuts)
    if cuts:
        at, by = min(cuts)
        said = said[: at + len(by) * asked.keeps_stop]
    calls: tuple[tuple[str, str], ...] = ()
    if asked.tools:
        try:
            calls = tuple((c.name, canonical(dict(c.arguments))) for c in read_calls(said))
        except MalformedCall:
            calls = ()
    return (CALL.sub("", said).strip() if calls else said), calls, stopped


def usage(reply: Reply) -> dict[str, Any]:
    wrote = len(reply.tokens)
    return {"prompt_tokens": reply.read, "completion_tokens": wrote, "total_tokens": reply.read + wrote,
            "prompt_tokens_details": {"cached_tokens": reply.known}}


def body_of(
    replies: Sequence[Reply], asked: CompletionRequest, head: Mapping[str, Any], used: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer to a request: a choice for each reply, under a head of `head_of`."""
    choices = []
    for i, reply in enumerate(replies):
        choice: dict[str, Any] = {"index": i, "finish_reason": reply.finish}
        if asked.chat:
            message: dict[str, Any] = {"role": "assistant", "content": reply.content, "refusal": None}
            if reply.calls:
                message |= {"content": reply.content or None, "tool_calls": _calls(reply)}
            choice |= {"message": message, "logprobs": {"content": _each(reply), "refusal": None}
                       if _known(reply, asked) else None}
        else:
            choice |= {"text": reply.content, "logprobs": _flat(reply) if _known(reply, asked) else None}
        if asked.ids:
            choice["token_ids"] = reply.tokens.tolist()
        choices.append(choice)
    out = {**head, "choices": choices, "usage": used}
    if asked.ids:
        out["prompt_token_ids"] = replies[0].prompt.tolist()
    return out


def chunks_of(
    replies: Sequence[Reply], asked: CompletionRequest, head: Mapping[str, Any], used: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The same as a stream: each reply is one piece, because it is sent when it is complete."""
    for i, reply in enumerate(replies):
        yield {**head, "choices": [piece(asked, i, reply.content, first=True, reply=reply)]}
        yield {**head, "choices": [piece(asked, i, finish=reply.finish)]}
    if asked.usage:
        yield {**head, "choices": [], "usage": used}


def piece(
    asked: CompletionRequest, index: int, text: str | None = None, *, finish: str | None = None, first: bool = False,
    reply: Reply | None = None,
) -> dict[str, Any]:
    """A part of a choice in a stream: its next text, and all calls and log-probs of a `reply`; or its end."""
    known = reply if reply is not None and _known(reply, asked) else None
    if not asked.chat:
        rest = {"text": text or "", **({"logprobs": known and _flat(known)} if text is not None else {})}
    elif text is None:
        rest = {"delta": {}}
    else:
        delta: dict[str, Any] = {"role": "assistant", "content": text} if first else {"content": text}
        if reply is not None and reply.calls:
            delta["tool_calls"] = [{"index": i, **c} for i, c in enumerate(_calls(reply))]
        rest = {"delta": delta, "logprobs": known and {"content": _each(known)}}
    return {"index": index, **rest, "finish_reason": finish}


def models(model: str = MODEL) -> dict[str, Any]:
    """The answer to /models."""
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "isocost"}]}


def head_of(asked: CompletionRequest, name: str, model: str = MODEL, **more: Any) -> dict[str, Any]:
    """What an answer and every part of a stream begin with."""
    kind, of = ("chatcmpl", "chat.completion") if asked.chat else ("cmpl", "text_completion")
    return {"id": f"{kind}-{name}", "object": f"{of}.chunk" if asked.chat and asked.stream else of, "created": 0,
            "model": model, **more}


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [{"id": f"call_{reply.number}_{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(reply.calls)]


def _known(reply: Reply, asked: CompletionRequest) -> bool:
    """Whether log-probs were asked for and are numbers: JSON has no others."""
    return asked.logprobs and bool(np.isfinite(reply.logp).all())


def _each(reply: Reply) -> list[dict[str, Any]]:
    return [{"token": x, "logprob": p, "bytes": list(x.encode(errors="replace")), "top_logprobs": []}
            for x, p in zip(reply.pieces, reply.logp.tolist(), strict=True)]


def _flat(reply: Reply) -> dict[str, Any]:
    offsets = np.cumsum([0, *map(len, reply.pieces)])[: len(reply.pieces)].tolist()
    return {"tokens": list(reply.pieces), "token_logprobs": reply.logp.tolist(), "top_logprobs": None,
            "text_offset": offsets}


def sse(chunks: Sequence[dict[str, Any]]) -> bytes:
    """Server-sent events."""
    return b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks) + b"data: [DONE]\n\n"
