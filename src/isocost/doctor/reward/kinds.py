"""What kind of answer a problem has, and a wrong answer of the same kind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from isocost.tasks.text import name
from isocost.tasks.verify import answers, numbers
from isocost.types import Message, Problem

INTEGER, DECIMAL, FRACTION, PERCENTAGE, UNIT = "integer", "decimal", "fraction", "percentage", "with unit"
EXPRESSION, LIST, CHOICE, YES_NO, WORDS, CODE = "expression", "list", "choice letter", "yes or no", "words", "code"
NUMBERS = (INTEGER, DECIMAL, FRACTION, PERCENTAGE, UNIT)
TESTS = ("tests", "test", "test_cases", "unit_tests", "test_list", "assertions", "public_tests", "private_tests")
OPPOSITE = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
MOST_WORDS = 6
_WHOLE = r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)"
_PATTERNS = (      # in this order: 1,000 is a number and no list
    (INTEGER, re.compile(_WHOLE)),
    (DECIMAL, re.compile(rf"{_WHOLE}\.\d+|[-+−]?\.\d+")),
    (FRACTION, re.compile(r"[-+−]?\d+\s*/\s*\d+|[-+−]?\\[dt]?frac\s*\{\d+\}\s*\{\d+\}")),
    (PERCENTAGE, re.compile(rf"{_WHOLE}(?:\.\d+)?\s*\\?%")),
    (UNIT, re.compile(rf"\\?[$€£]\s?{_WHOLE}(?:\.\d+)?|{_WHOLE}(?:\.\d+)?\s*(?:[A-Za-z°][A-Za-z/^ ]*\d?"
                      r"|\\text\s*\{[^{}]*\})")),
    (CHOICE, re.compile(r"\(?[A-J]\)?")),
)
_NUMERAL = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")


@dataclass(frozen=True)
class Item:
    """A problem whose answer is of a known kind. `answer` is the reference without a box or dollar signs, `value` its
    number, `wrong` another answer of the kind that is not equal, and `others` are the answers of other problems of the
    kind."""

    problem: Problem
    answer: str
    kind: str
    value: Fraction | None = None
    others: Sequence[str] = field(default=(), repr=False)

    @property
    def numeral(self) -> str:
        """The digits of the answer: "1,000" of "$1,000"."""
        found = _NUMERAL.search(self.answer)
        return found[0] if found else ""

    def with_numeral(self, digits: str) -> str:
        """The answer with other digits in place of its first number."""
        return _NUMERAL.sub(lambda _: digits, self.answer, count=1)

    def moved(self, by: int) -> str:
        """The answer with its first number changed by a whole number, as many decimals as before."""
        digits = self.numeral.replace(",", "")
        places = len(digits.partition(".")[2])
        new = Fraction(digits if digits[0] != "." else f"0{digits}") + by
        if new < 0:
            new = -new
        return self.with_numeral(f"{float(new):.{places}f}" if places else str(int(new)))

    @property
    def wrong(self) -> str:
        """An answer of the same kind that is not equal to the reference."""
        if self.kind == CHOICE:
            letter = self.answer.strip("()")
            last = max((x for x in "ABCDE" if re.search(rf"(?m)(?:^|[\s(]){x}[).:]", self.problem.text)), default="D")
            return self.answer.replace(letter, "A" if letter >= last else chr(ord(letter) + 1))
        if self.kind == YES_NO:
            return like(self.answer, OPPOSITE[self.answer.casefold()])
        if self.kind == WORDS:
            mine = self.answer.casefold()
            apart = [x for x in self.others if x.casefold() not in mine and mine not in x.casefold()]
            return apart[0] if apart else "none of these"
        if self.kind == CODE:
            return "def unrelated():\n    return None"
        return self.moved(7 if self.kind in NUMBERS else 1) if self.numeral else f"2{self.answer}"


def like(model: str, text: str) -> str:
    """A word in the case of another: Yes, no -> No."""
    return text.upper() if model.isupper() and len(model) > 1 else text.capitalize() if model[:1].isupper() else text


def bare(answer: str) -> str:
    """A reference without a box and dollar signs around it."""
    inside = answers.innermost(answer) if answers.BOX.search(answer) else None
    text = answers.bare(inside[-1] if inside else answer)
    return text if text else answer.strip()


def kind_of(problem: Problem) -> str:
    """The kind of a problem's answer; empty if it is none that is known here."""
    said = str(problem.answer).strip()
    columns = problem.meta.get("columns", {})
    if any(columns.get(name) for name in TESTS) and re.search(r"\bdef |\bclass |\n|\breturn\b|=", said):
        return CODE
    text = bare(said)
    if text.casefold() in OPPOSITE:
        return YES_NO
    for kind, pattern in _PATTERNS:
        if pattern.fullmatch(text):
            return kind if kind != UNIT or numbers.quantity(text) is not None else WORDS
    inner = re.fullmatch(r"(?:\\left)?\\?[(\[{](.*?)(?:\\right)?\\?[)\]}]", text, re.DOTALL)
    members = re.split(r"\s*,\s*", inner[1] if inner else text)
    if len(members) > 1 and len(text) < 200 and all(re.search(r"\d|\\|^[A-Za-z]{1,20}$", m) for m in members):
        return LIST
    if re.search(r"\\[A-Za-z]|[\^_=+*]|sqrt|π|√|\d\s*[a-z(]|[a-z]\(", text) and len(text) < 200 and "\n" not in text:
        return EXPRESSION
    if re.fullmatch(r"[^\W\d_][\w' .&-]*", text) and len(text.split()) <= MOST_WORDS:
        return WORDS
    return ""


def items_of(problems: Sequence[Problem]) -> tuple[list[Item], dict[str, str]]:
    """The problems whose kind is known, in order; and of the others id -> answer."""
    kinds = [kind_of(p) for p in problems]
    pools = {k: list(dict.fromkeys(bare(str(p.answer)) for p, kind in zip(problems, kinds, strict=True) if kind == k))
             for k in set(kinds)}
    items, unknown = [], {}
    for p, kind in zip(problems, kinds, strict=True):
        if not kind:
            unknown[p.id] = str(p.answer)
            continue
        answer = str(p.answer).strip() if kind == CODE else bare(str(p.answer))
        found = numbers.quantity(answer) if kind in NUMBERS else None
        others = [x for x in pools[kind] if x != answer]
        start = len(p.id) + sum(map(ord, p.id))          # another one for each problem, always the same
        turned = [*others[start % len(others):], *others[: start % len(others)]][:8] if others else []
        items.append(Item(p, answer, kind, found.value if found else None, turned))
    return items, unknown


def _examples() -> Iterator[Problem]:
    for line in (Path(__file__).parent / "examples.jsonl").read_text(encoding="utf-8").splitlines():
        prompt = (Message("user", json.loads(line)["prompt"]),)
        yield Problem(name(prompt), prompt, json.loads(line)["answer"])


EXAMPLES = tuple(_examples())       # problems of every kind of answer, for an audit without data
