"""Tools that a policy calls: their schemas from functions, calls read from a turn, and what a call answers.

A call is what Hermes and Qwen chat models write, once or several times in a turn:

    <tool_call>
    {"name": "add", "arguments": {"x": 1, "y": 2}}
    </tool_call>

A turn without a call is the final answer. A call that cannot be read, names no tool or has wrong arguments is a fault
of the model; a tool that raises is a fault of the tool, and the episode goes on with its message. An exception of the
kinds in `Toolbox.fatal` is raised: the backend is gone, a fault of the environment.

A schema is that of `transformers.utils.get_json_schema`: types from the signature, descriptions from the docstring.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from isocost.envs.threads import in_thread
from isocost.errors import interrupts, told
from isocost.screen.words import shortened as cut
from isocost.screen.words import whole
from isocost.types import Fault, Message

SHOWN = 4096             # characters of a result that the policy reads
CALLS = 8                # that one turn may make
DEEPEST = 64             # lists and objects of a call in each other
Schema = dict[str, Any]
NO_JSON = (ValueError, RecursionError)      # what `json.loads` raises: also for a text that is nested too deeply
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.S)
_TYPES: dict[Any, Schema] = {
    int: {"type": "integer"}, float: {"type": "number"}, str: {"type": "string"}, bool: {"type": "boolean"},
    type(None): {"type": "null"}, list: {"type": "array"}, tuple: {"type": "array"}, dict: {"type": "object"}, Any: {},
}
_PYTHON: dict[str, tuple[type, ...]] = {
    "integer": (int,), "number": (int, float), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}
HOW = """

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


class MalformedCall(ValueError):
    """A turn that contains no valid call where it tries to make one."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a policy wrote."""

    name: str
    arguments: Mapping[str, Any]


def read_calls(text: str) -> list[Call]:
    """The calls of a turn, in order; none if it makes none. Raises Malformed for one that cannot be read."""
    found = []
    for body in CALL.findall(text):
        try:
            data = json.loads(body, parse_constant=_no_constant)
            sound(data)
        except NO_JSON as error:
            raise MalformedCall(f"the call is not valid JSON: {error}") from None
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise MalformedCall('a call is {"name": ..., "arguments": {...}}')
        arguments = data.get("arguments", {})
        if isinstance(arguments, str):       # as OpenAI's API writes them
            try:
                arguments = json.loads(arguments, parse_constant=_no_constant)
                sound(arguments)
            except NO_JSON as error:
                raise MalformedCall(f"the arguments are not valid JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise MalformedCall("the arguments are not a JSON object")
        found.append(Call(data["name"], arguments))
    if "<tool_call>" in CALL.sub("", text):
        raise MalformedCall("<tool_call> without </tool_call>")
    if len(found) > CALLS:
        raise MalformedCall(f"{len(found)} calls in one turn; at most {CALLS}")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def sound(data: Any) -> None:
    """Raises ValueError for parsed JSON that cannot be written again or that other readers do not take: a number beyond
    all floats, half of a surrogate pair, lists and objects in more than `DEEPEST` others.
    """
    left = [(data, 0)]
    while left:
        part, depth = left.pop()
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        if isinstance(part, str):
            part.encode()
        elif isinstance(part, float) and not math.isfinite(part):
            raise ValueError("a number is too large")
        elif isinstance(part, dict):
            left += [(x, depth + 1) for pair in part.items() for x in pair]
        elif isinstance(part, list):
            left += [(x, depth + 1) for x in part]


@dataclass(frozen=True)
class Tool:
    """A function with its schema: `{"name", "description", "parameters"}`."""

    schema: Schema
    run: Callable[..., Any]       # may be a coroutine function
    blocks: bool = False          # it may take long: it runs in a thread of its own

    @property
    def name(self) -> str:
        return str(self.schema["name"])

    def wrong(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with the arguments of a call; empty if nothing is."""
        known: Mapping[str, Schema] = self.schema["parameters"].get("properties", {})
        lacks = [p for p in self.schema["parameters"].get("required", ()) if p not in arguments]
        if lacks:
            return f"{self.name} needs the argument {lacks[0]!r}"
        for name, value in arguments.items():
            if name not in known:
                return f"{self.name} has no argument {name!r}; it has {', '.join(known) or 'none'}"
            if why := _mismatch(value, known[name]):
                return f"argument {name!r} of {self.name} {why}"
        return ""


def tool(function: Callable[..., Any], *, blocks: bool = False) -> Tool:
    """A function or bound method as a tool.

    Raises ValueError for one without a docstring, or with an argument that has no type or no description.
    """
    name = getattr(function, "__name__", type(function).__name__)
    text = inspect.cleandoc(function.__doc__ or "")
    about, described = _documented(text)
    if not about:
        raise ValueError(f"the tool {name} has no docstring; the policy reads it as the tool's description")
    hints = get_type_hints(function)
    properties: dict[str, Schema] = {}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"the tool {name} takes any arguments; a policy needs named ones")
        if parameter.name not in hints:
            raise ValueError(f"argument {parameter.name!r} of the tool {name} has no type")
        if parameter.name not in described:
            raise ValueError(f"argument {parameter.name!r} of the tool {name} has no line under Args: in its docstring")
        schema = _of_hint(hints[parameter.name], f"{name}: {parameter.name}")
        words = described[parameter.name]
        if choices := re.search(r"\(choices:\s*(.*?)\)\s*$", words, re.I):
            schema["enum"] = [c.strip() for c in json.loads(choices[1])]
            words = words[: choices.start()].strip()
        properties[parameter.name] = {**schema, "description": words}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters: Schema = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return Tool({"name": name, "description": about, "parameters": parameters}, function, blocks)


def of_object(thing: Any, leave_out: Sequence[str] = (), *, blocks: bool = False) -> list[Tool]:
    """The public methods of an object as tools, in the order of their names; properties are not evaluated."""
    names = [n for n, _ in inspect.getmembers(type(thing), inspect.isfunction)]
    return [tool(getattr(thing, n), blocks=blocks) for n in names if not n.startswith("_") and n not in leave_out]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What the calls of a turn answered."""

    messages: tuple[Message, ...]
    fault: Fault | None = None       # the first


def described(schemas: Sequence[Schema]) -> str:
    """What the system message says of tools with these schemas."""
    listed = "\n".join(json.dumps({"type": "function", "function": s}, ensure_ascii=False) for s in schemas)
    return f"""# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{listed}
</tools>{HOW}"""


def with_system(messages: Sequence[Message], *more: str) -> tuple[Message, ...]:
    """Messages whose system message, the first, says more."""
    system = "\n\n".join(m.content for m in messages if m.role == "system")
    words = "\n\n".join(x for x in (system, *more) if x)
    return (Message("system", words), *(m for m in messages if m.role != "system"))


class Toolbox:
    """The tools of an episode. `fatal`: exceptions that are raised, because the tools' backend is gone."""

    def __init__(self, tools: Sequence[Tool], fatal: tuple[type[BaseException], ...] = ()):
        self.tools = {t.name: t for t in tools}
        self.fatal = fatal

    def words(self) -> str:
        """What the system message says of the tools: Hermes and Qwen models were trained on this form."""
        return described([t.schema for t in self.tools.values()])

    def prompt(self, messages: Sequence[Message], about: str = "") -> tuple[Message, ...]:
        """A prompt with the tools in its system message, after what the system message says."""
        return with_system(messages, about, self.words())

    async def answer(self, said: str) -> ToolAnswer | None:
        """Make the calls of a turn, one after the other; None for a turn without one."""
        try:
            calls = read_calls(said)
        except MalformedCall as error:
            return ToolAnswer((Message("tool", f"error: {error}"),), Fault.model("malformed call"))
        if not calls:
            return None
        messages, faults = [], []
        for call in calls:
            text, fault = await self.call(call)
            messages.append(Message("tool", text))
            faults += [fault] if fault else []
        return ToolAnswer(tuple(messages), faults[0] if faults else None)

    async def call(self, call: Call) -> tuple[str, Fault | None]:
        """The text that a call answers, and its fault."""
        asked = self.tools.get(call.name)
        if asked is None:
            known = ", ".join(self.tools)
            return f"error: there is no tool {call.name!r}; there are {known}", Fault.model("no such tool")
        if why := asked.wrong(call.arguments):
            return f"error: {why}", Fault.model("wrong arguments")
        try:
            if inspect.iscoroutinefunction(asked.run):
                result = await asked.run(**call.arguments)
            elif asked.blocks:
                result = await in_thread(asked.run, **call.arguments)
            else:
                result = asked.run(**call.arguments)
            said = whole(shortened(result if isinstance(result, str) else _plain(result)))
        except self.fatal:
            raise
        except ToolFailed as error:
            return whole(shortened(str(error))), Fault.tool(error.what)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            if interrupts(error):
                raise
            return f"error: {told(error, kind=False)}", Fault.tool(type(error).__name__)
        return said, None


class ToolFailed(Exception):
    """A tool's own way to say that it failed: the text that the policy reads, and the fault in a word."""

    def __init__(self, text: str, what: str):
        super().__init__(text)
        self.what = what


def shortened(text: str, most: int = SHOWN) -> str:
    """A text of at most `most` characters, which says how many were left out of its middle."""
    return cut(text, most)


def _plain(result: Any) -> str:
    if result is None:
        return "done"
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """The description and the arguments' descriptions of a docstring in Google's form."""
    about = re.split(r"\n\s*(?:Args|Returns|Raises|Yields):|^(?:Args|Returns|Raises|Yields):", text)[0].strip()
    block = re.search(r"(?:^|\n)Args:\n(.*?)(?=\n(?:Returns|Raises|Yields|Examples?|Note):|\Z)", text, re.S)
    found: dict[str, str] = {}
    if block:
        lines = inspect.cleandoc(block[1]).splitlines()
        name = ""
        for line in lines:
            if start := re.match(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line):
                name = start[1]
                found[name] = start[2].strip()
            elif name and line.strip():
                found[name] = f"{found[name]}\n{line.strip()}".strip()
    return about, {k: " ".join(v.split("\n")) for k, v in found.items()}


def _of_hint(hint: Any, where: str) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return {**_of_hint(type(next(iter(hint)).value), where), "enum": [m.value for m in hint]}
    if origin is None:
        if hint not in _TYPES:
            raise ValueError(f"{where}: a tool's argument cannot be of type {hint!r}")
        return dict(_TYPES[hint])
    if origin is Literal:
        kinds = {type(a) for a in args}
        return {"type": _TYPES[kinds.pop()]["type"] if len(kinds) == 1 else sorted(
            {_TYPES[type(a)]["type"] for a in args}), "enum": list(args)}
    if origin in (Union, types.UnionType):
        some = [_of_hint(a, where) for a in args if a is not type(None)]
        if len(some) == 1:
            out = some[0]
        elif all(isinstance(s.get("type"), str) and len(s) == 1 for s in some):
            out = {"type": sorted(s["type"] for s in some)}
        else:
            out = {"anyOf": some}
        return {**out, "nullable": True} if type(None) in args else out
    if origin in (list, Sequence, typing.Sequence):
        return {"type": "array", "items": _of_hint(args[0], where)}
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": _of_hint(args[0], where)}
        return {"type": "array", "prefixItems": [_of_hint(a, where) for a in args]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_hint(args[1], where)}
    raise ValueError(f"{where}: a tool's argument cannot be of type {hint!r}")


def _mismatch(value: Any, schema: Schema) -> str:
    """Why a value does not fit a schema; empty if it does. Reads types, enums, items and properties."""
    if value is None and schema.get("nullable"):
        return ""
    if "anyOf" in schema:
        return "" if any(not _mismatch(value, s) for s in schema["anyOf"]) else "has none of the allowed types"
    kinds = schema.get("type")
    if kinds is not None:
        allowed = [kinds] if isinstance(kinds, str) else kinds
        right = any(isinstance(value, _PYTHON.get(k, (object,))) for k in allowed)
        if not right or (isinstance(value, bool) and not {"boolean"} & {*allowed}):
            return f"must be of type {' or '.join(allowed)}, got {json.dumps(value)[:80]}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}, got {value!r}"
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return next((why for v in value if (why := _mismatch(v, schema["items"]))), "")
    if isinstance(value, dict) and isinstance(schema.get("properties"), dict):
        return next((why for k, v in value.items() if (why := _mismatch(v, schema["properties"].get(k, {})))), "")
    return ""
