"""Calls of tools: reading them, their schemas, and whose fault a failed one is."""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from typing import Literal

import pytest

from isocost.envs.threads import in_thread
from isocost.envs.tools import Call, MalformedCall, Tool, Toolbox, ToolFailed, of_object, read_calls, shortened, tool
from isocost.types import Fault, Message


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(("text", "calls"), [
    ("The answer is 4.", []),
    ("<think>add</think>" + call('{"name": "add", "arguments": {"x": 1}}'), [Call("add", {"x": 1})]),
    (call('{"name": "a", "arguments": {}}') + " and " + call('{"name": "b"}'), [Call("a", {}), Call("b", {})]),
    ('<tool_call>{"name": "a", "arguments": "{\\"x\\": [1, null]}"}</tool_call>', [Call("a", {"x": [1, None]})]),
    (call('{"name": "a", "arguments": {"x": "\\n<b>\\u00e9"}}'), [Call("a", {"x": "\n<b>é"})]),
])
def test_calls_are_read(text: str, calls: list[Call]):
    assert read_calls(text) == calls


@pytest.mark.parametrize(("text", "says"), [
    (call("{'name': 'a'}"), "not valid JSON"), (call('["a"]'), "a call is"), (call('{"name": 3}'), "a call is"),
    (call('{"name": "a", "arguments": [1]}'), "not a JSON object"), ('<tool_call>{"name": "a"}', "without"),
    (call('{"name": "a", "arguments": "x"}'), "arguments are not valid JSON"),
    ("<tool_call></tool_call>", "not valid JSON"), (call('{"name": "a"}') * 9, "9 calls in one turn"),
    (call('{"name": "a", "arguments": {"x": NaN}}'), "NaN is no JSON"),
    (call("[" * 20_000), "the call is not valid JSON: maximum recursion"),        # as a policy that repeats itself
])
def test_calls_that_cannot_be_read(text: str, says: str):
    with pytest.raises(MalformedCall, match=says):
        read_calls(text)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def plain(x: int, y: float, words: str, flag: bool) -> str:
    """Add two numbers.

    Args:
        x: the first number
        y: the second number,
            which may be negative
        words: words
        flag: whether to round

    Returns:
        The sum.
    """
    return ""


def rich(some: list[int], table: dict[str, float], maybe: str | None = None, kind: Literal["a", "b"] = "a",
         both: int | str = 1) -> str:
    """Take all kinds.

    Args:
        some: numbers
        table: a table
        maybe: nothing or words
        kind: one of two
        both: a number or words
    """
    return ""


def chosen(drink: str, size: int = 1):
    """Make a drink.

    Args:
        drink: what to make (choices: ["tea", "coffee"])
        size: how much
    """


def nothing() -> str:
    """Take nothing."""
    return ""


@pytest.mark.parametrize("function", [plain, rich, chosen, nothing])
def test_schemas_are_those_of_transformers(function):
    utils = pytest.importorskip("transformers.utils")
    wanted = utils.get_json_schema(function)["function"]
    wanted.pop("return", None)
    assert tool(function).schema == wanted


def test_an_enum_is_its_values():
    def paint(colour: Colour) -> None:
        """Paint.

        Args:
            colour: the colour
        """
    paint.__annotations__["colour"] = Colour
    assert tool(paint).schema["parameters"]["properties"]["colour"]["enum"] == ["red", "blue"]


@pytest.mark.parametrize(("change", "says"), [
    ({"__doc__": ""}, "no docstring"),
    ({"__doc__": "Add.\n\nArgs:\n    y: a number"}, "'x' of the tool plain has no line"),
    ({"__annotations__": {"y": int}}, "'x' of the tool plain has no type"),
    ({"__annotations__": {"x": object}}, "cannot be of type"),
])
def test_a_function_that_cannot_be_described_is_an_error(change: dict, says: str):
    def plain(x, y=1): ...

    plain.__doc__, plain.__annotations__ = "Add.\n\nArgs:\n    x: one\n    y: two", {"x": int, "y": int}
    tool(plain)
    for name, value in change.items():
        setattr(plain, name, value)
    with pytest.raises(ValueError, match=says):
        tool(plain)


@pytest.mark.parametrize(("given", "says"), [
    ({"x": 1, "y": 2, "words": "a", "flag": True}, ""), ({"x": 1, "y": 2.5, "words": "a", "flag": False}, ""),
    ({"x": 1, "y": 2, "words": "a"}, "needs the argument 'flag'"),
    ({"x": 1, "y": 2, "words": "a", "flag": True, "z": 1}, "no argument 'z'"),
    ({"x": "1", "y": 2, "words": "a", "flag": True}, "'x' of plain must be of type integer, got \"1\""),
    ({"x": True, "y": 2, "words": "a", "flag": True}, "must be of type integer, got true"),
    ({"x": 1.5, "y": 2, "words": "a", "flag": True}, "must be of type integer, got 1.5"),
    ({"x": 1, "y": 2, "words": None, "flag": True}, "must be of type string, got null"),
])
def test_arguments_are_checked(given: dict, says: str):
    wrong = tool(plain).wrong(given)
    assert (wrong == "") == (says == "") and says in wrong


def test_arguments_of_richer_types_are_checked():
    it = tool(rich)
    assert it.wrong({"some": [1, 2], "table": {"a": 1.0}}) == ""
    assert it.wrong({"some": [1, 2], "table": {}, "maybe": None, "both": "x"}) == ""
    assert "must be of type integer" in it.wrong({"some": [1, "2"], "table": {}})
    assert "must be one of a, b" in it.wrong({"some": [], "table": {}, "kind": "c"})
    assert "must be of type integer or string" in it.wrong({"some": [], "table": {}, "both": []})


class Bench:
    """Tools that fail in every way."""

    def works(self, x: int) -> dict:
        """Work.

        Args:
            x: a number
        """
        return {"x": x}

    async def waits(self) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return "waited"

    def raises(self) -> str:
        """Raise."""
        raise KeyError("lost")

    def refuses(self) -> str:
        """Say that it failed."""
        raise ToolFailed("error: closed today", "closed")

    def dies(self) -> str:
        """Lose its backend."""
        raise ConnectionError("gone")

    def long(self) -> str:
        """Answer at length."""
        return "ab" * 10000

    def reset(self) -> None:
        """Not a tool."""

    def _hidden(self) -> None:
        """Not a tool."""

    @property
    def boom(self) -> str:
        raise RuntimeError("a property was evaluated")


@pytest.mark.parametrize(("said", "text", "fault"), [
    (call('{"name": "works", "arguments": {"x": 2}}'), '{"x": 2}', None),
    (call('{"name": "waits"}'), "waited", None),
    (call('{"name": "raises"}'), "error: 'lost'", Fault.tool("KeyError")),
    (call('{"name": "refuses"}'), "error: closed today", Fault.tool("closed")),
    (call('{"name": "works", "arguments": {"x": "2"}}'), "error: argument 'x'", Fault.model("wrong arguments")),
    (call('{"name": "reset"}'), "error: there is no tool 'reset'", Fault.model("no such tool")),
    (call('{"name": "_hidden"}'), "error: there is no tool '_hidden'", Fault.model("no such tool")),
    (call("{}"), "error: a call is", Fault.model("malformed call")),
])
def test_whose_fault_it_is(said: str, text: str, fault: Fault | None):
    box = Toolbox(of_object(Bench(), ("reset",)), fatal=(ConnectionError,))
    answer = asyncio.run(box.answer(said))
    assert answer is not None and answer.fault == fault
    assert [m.role for m in answer.messages] == ["tool"] and answer.messages[0].content.startswith(text)


def test_a_lost_backend_is_raised_and_a_turn_without_a_call_is_no_answer():
    box = Toolbox(of_object(Bench(), ("reset",)), fatal=(ConnectionError,))
    with pytest.raises(ConnectionError):
        asyncio.run(box.answer(call('{"name": "dies"}')))
    assert asyncio.run(box.answer("Four.")) is None


def test_several_calls_answer_in_their_order_and_the_first_fault_counts():
    box = Toolbox(of_object(Bench(), ("reset",)))
    said = call('{"name": "works", "arguments": {"x": 1}}') + call('{"name": "raises"}') + call('{"name": "none"}')
    answer = asyncio.run(box.answer(said))
    assert answer is not None and len(answer.messages) == 3 and answer.fault == Fault.tool("KeyError")


def test_long_results_lose_their_middle():
    answer = asyncio.run(Toolbox(of_object(Bench())).answer(call('{"name": "long"}')))
    assert answer is not None
    assert len(answer.messages[0].content) < 4200 and "[15904 characters left out]" in answer.messages[0].content
    assert shortened("abcdef", 4) == "ab\n[2 characters left out]\nef" and shortened("abcd", 4) == "abcd"


def test_the_prompt_lists_the_tools_after_the_system_message():
    box = Toolbox([tool(nothing)])
    system, user = box.prompt([Message("system", "Be brief."), Message("user", "Hi")], "The rules.")
    assert user == Message("user", "Hi") and system.role == "system"
    before, after = system.content.split("# Tools")
    assert before == "Be brief.\n\nThe rules.\n\n" and '{"type": "function", "function": {"name": "nothing"' in after


# --- threads

def test_a_call_that_hangs_stops_no_other_and_cancelling_returns_at_once():
    let_go = threading.Event()

    async def go() -> float:
        began = time.monotonic()
        hung = [asyncio.create_task(in_thread(let_go.wait, 20)) for _ in range(50)]
        await asyncio.sleep(0)
        assert await in_thread(lambda: 7) == 7
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        return time.monotonic() - began

    try:
        assert asyncio.run(go()) < 5
    finally:
        let_go.set()


@pytest.mark.parametrize(("error", "raised"), [(ValueError, ValueError), (StopIteration, RuntimeError),
                                               (SystemExit, RuntimeError), (KeyboardInterrupt, RuntimeError)])
def test_what_a_call_in_a_thread_raises_is_raised_here(error, raised):
    def act() -> None:
        raise error("no")

    with pytest.raises(raised, match="no"):
        asyncio.run(in_thread(act))


def test_a_blocking_tool_does_not_block_the_loop():
    async def go() -> list[str]:
        order: list[str] = []

        def slow() -> str:
            time.sleep(0.1)
            order.append("slow")
            return ""

        async def other() -> None:
            order.append("other")

        box = Toolbox([Tool({"name": "slow", "parameters": {}}, slow, blocks=True)])
        await asyncio.gather(box.answer(call('{"name": "slow"}')), other())
        return order

    assert asyncio.run(go()) == ["other", "slow"]
