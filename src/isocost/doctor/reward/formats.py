r"""The formats that a final answer may be written in, of which most rewards read a few: \boxed{}, tags, ####, prose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

THOUGHT = "I work through it step by step and check the result."


@dataclass(frozen=True)
class Format:
    """How a completion gives an answer. `asked` matches prompts that ask for it; `written` puts an answer in it."""

    name: str
    written: Callable[[str], str]
    asked: re.Pattern[str] | None = None


def _tagged(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _thought(rest: str) -> str:
    return f"<think>\n{THOUGHT}\n</think>\n{rest}"


FORMATS = (      # in this order one is chosen, unless the prompts ask for another
    Format("box", lambda a: rf"The answer is \boxed{{{a}}}.", re.compile(r"\\boxed")),
    Format("tags", _tagged, re.compile(r"<answer>", re.IGNORECASE)),
    Format("thought and tags", lambda a: _thought(_tagged(a)), re.compile(r"<think>[\s\S]*<answer>", re.IGNORECASE)),
    Format("thought and box", lambda a: _thought(rf"\boxed{{{a}}}"), re.compile(r"<think>[\s\S]*\\boxed")),
    Format("####", lambda a: f"#### {a}", re.compile("####")),
    Format("sentence", lambda a: f"The answer is {a}."),
    Format("label", lambda a: f"Answer: {a}", re.compile(r"(?i)\banswer: ")),
    Format("final label", lambda a: f"Final answer: {a}", re.compile(r"(?i)\bfinal answer: ")),
    Format("code block", lambda a: f"```python\n{a}\n```", re.compile(r"```|(?i:\bcode\b)")),
    Format("dollars", lambda a: f"The answer is ${a}$."),
    Format("bold", lambda a: f"The result is **{a}**."),
    Format("last line", lambda a: f"{THOUGHT}\n\n{a}"),
    Format("JSON", lambda a: json.dumps({"answer": a}), re.compile(r"(?i)\bjson\b")),
    Format("bare", lambda a: a),
)
BARE = FORMATS[-1]
PROSE = ("sentence", "label", "bare")      # a second one, for rewards that also read answers without a mark


def chosen(read: dict[str, float], prompts: str, least: float) -> tuple[Format, ...]:
    """The formats to write answers in: the best-marked one that is read, and a plain one if that is read, too. `read`
    is format -> share of references that are paid in it; below `least` a format is not read. A format that the prompts
    ask for comes first."""
    able = [f for f in FORMATS if read.get(f.name, 0.0) >= least]
    if not able:
        return ()
    top = max(read[f.name] for f in able)
    able = [f for f in able if read[f.name] >= top - 0.2]
    asked = [f for f in able if f.asked is not None and f.asked.search(prompts)]
    main = (asked or able)[0]
    plain = [f for f in able if f.name in PROSE and f is not main]
    return (main, *plain[:1])
