"""Right answers in the forms in which models write them. A reward that refuses one gives up signal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from isocost.doctor.reward.cases import CaseFamily, Say, texts
from isocost.doctor.reward.formats import THOUGHT
from isocost.doctor.reward.kinds import (
    CHOICE,
    CODE,
    DECIMAL,
    EXPRESSION,
    FRACTION,
    INTEGER,
    LIST,
    NUMBERS,
    PERCENTAGE,
    UNIT,
    WORDS,
    YES_NO,
    Item,
)


def _decimal_point(item: Item, say: Say) -> Iterator[str]:
    if item.kind == INTEGER:
        yield f"{item.answer}.0"
    if item.kind == DECIMAL:
        yield f"{item.answer}0"
        if item.numeral.startswith("0."):
            yield item.with_numeral(item.numeral[1:])
    if item.kind == UNIT and item.answer.lstrip("\\")[:1] == "$" and "." not in item.answer:
        yield f"{item.answer}.00"


def _thousands(item: Item, say: Say) -> Iterator[str]:
    whole, dot, rest = item.numeral.replace(",", "").partition(".")
    if item.kind in (INTEGER, DECIMAL, UNIT) and len(whole) > 3:
        for new in (f"{int(whole):,}", whole):
            if new + dot + rest != item.numeral:
                yield item.with_numeral(new + dot + rest)


def _latex(item: Item, say: Say) -> Iterator[str]:
    a = item.answer
    if item.kind == FRACTION:
        sign, over, under = _parts(a)
        yield from (rf"{sign}\frac{{{over}}}{{{under}}}", rf"{sign}\dfrac{{{over}}}{{{under}}}")
    elif item.kind == PERCENTAGE:
        yield a.replace(r"\%", "%").replace("%", r"\%")
    elif item.kind == UNIT:
        if re.match(r"[$]", a):
            yield rf"\{a}"
        elif found := re.fullmatch(r"([-\d.,]+)\s*([A-Za-z]+)", a):
            yield rf"{found[1]}\text{{ {found[2]}}}"
    elif item.kind in (EXPRESSION, LIST):
        if r"\frac" in a:
            yield a.replace(r"\frac", r"\dfrac")
        if re.fullmatch(r"\(.*\)|\[.*\]", a) and r"\left" not in a:
            yield rf"\left{a[0]}{a[1:-1]}\right{a[-1]}"
    elif item.kind in (CHOICE, WORDS, YES_NO):
        yield rf"\text{{{a}}}"


def _parts(text: str) -> tuple[str, str, str]:
    """Sign, numerator and denominator of a fraction as it is written."""
    sign = "-" if text[:1] in "-−" else ""
    over, under = re.findall(r"\d+", text)
    return sign, over, under


def _slash(item: Item, say: Say) -> Iterator[str]:
    if item.kind == FRACTION:
        sign, over, under = _parts(item.answer)
        yield f"{sign}{over}/{under}"


def _decimal_or_fraction(item: Item, say: Say) -> Iterator[str]:
    if item.value is None:
        return
    if item.kind == FRACTION and 10**6 % item.value.denominator == 0:
        yield f"{float(item.value):.10g}"
    if item.kind == DECIMAL and 1 < item.value.denominator <= 20:
        yield str(item.value)


def _mixed(item: Item, say: Say) -> Iterator[str]:
    if item.kind == FRACTION and item.value is not None and abs(item.value) > 1 and item.value.denominator > 1:
        whole, rest = divmod(abs(item.value), 1)
        yield f"{'-' if item.value < 0 else ''}{whole} {rest}"


def _minus(item: Item, say: Say) -> Iterator[str]:
    if item.kind in NUMBERS and item.answer[:1] in ("-", "−"):
        yield ("−" if item.answer[0] == "-" else "-") + item.answer[1:]


def _case(item: Item, say: Say) -> Iterator[str]:
    if item.kind in (YES_NO, WORDS):
        yield from (item.answer.lower(), item.answer.upper())


def _brackets(item: Item, say: Say) -> Iterator[str]:
    if item.kind == CHOICE:
        letter = item.answer.strip("()")
        yield from (letter, f"({letter})", f"{letter})")


def _inner_space(item: Item, say: Say) -> Iterator[str]:
    a = item.answer
    if item.kind == LIST:
        yield from (re.sub(r",\s*", ",", a), re.sub(r",\s*", ", ", a))
    if item.kind == EXPRESSION and (found := re.match(r"\d(?=\\)", a)):
        yield f"{found[0]} {a[1:]}"
    if item.kind == PERCENTAGE:
        yield re.sub(r"\s*(\\?%)", r" \1", a)


def _percent(item: Item, say: Say) -> Iterator[str]:
    if item.kind == PERCENTAGE:
        yield re.sub(r"\s*\\?%", " percent", item.answer)


def _think(item: Item, say: Say) -> Iterator[str]:
    if "<think>" not in say(""):
        yield f"<think>\nFirst, 3 + 4 = 7. {THOUGHT}\n</think>\n\n{say(item.answer)}"


def _odd_digits(item: Item, say: Say) -> Iterator[str]:
    if item.kind == INTEGER and item.value is not None:
        plain = int(item.value)
        yield from ((f"+{plain}", f"0{plain}") if plain > 0 else ())
        yield f"{plain:.6e}" if abs(plain) >= 1000 and f"{plain:.6e}" == f"{float(plain):.6e}" else f"({plain})"
    if item.kind == FRACTION and item.value is not None:
        yield f"{2 * item.value.numerator}/{2 * item.value.denominator}"
        yield f"{float(item.value):.10g}"


def _unit(item: Item, say: Say) -> Iterator[str]:
    if item.kind == UNIT:
        yield item.numeral
    if item.kind == INTEGER:
        yield f"{item.answer} units"
    if item.kind == PERCENTAGE and item.value is not None:
        yield from (item.numeral, f"{float(Fraction(item.value) / 100):.10g}")


def _spelling(item: Item, say: Say) -> Iterator[str]:
    if item.kind == WORDS:
        yield from (f"the {item.answer}", f'"{item.answer}"')
    if item.kind == CHOICE:
        yield from (item.answer.lower(), f"option {item.answer}")
    if item.kind == YES_NO:
        yield f"{item.answer}, it is"
    if item.kind == LIST and (found := re.fullmatch(r"\\?\{(.*?)\\?\}", item.answer)):
        yield item.answer.replace(found[1], ", ".join(reversed(re.split(r"\s*,\s*", found[1]))))


RIGHT: tuple[CaseFamily, ...] = tuple(
    CaseFamily(name, why, make, right=True, slot=slot, counted=counted, marked=marked)
    for name, why, make, slot, counted, marked in (
        ("as the reference", "what the data says", texts("{a}"), True, True, False),
        ("decimal point", "34.0 is 34, and 0.50 is 0.5", _decimal_point, True, True, False),
        ("thousands", "1,000 is 1000, whichever the reference is", _thousands, True, True, False),
        ("full stop", "a sentence ends with one", texts("{a}.", but=(CODE,)), True, True, False),
        ("spaces around", "models add them", texts("  {a}  ", but=(CODE,)), True, True, False),
        ("LaTeX", "models that are trained on mathematics write it", _latex, True, True, False),
        ("slash", "1/2 is \\frac{1}{2}", _slash, True, True, False),
        ("decimal or fraction", "1/2 is 0.5", _decimal_or_fraction, True, True, False),
        ("mixed number", "1 1/2 is 3/2", _mixed, True, True, False),
        ("minus sign", "U+2212 is written by models that know LaTeX", _minus, True, True, False),
        ("case", "Yes is yes", _case, True, True, False),
        ("letter in brackets", "(A) is A", _brackets, True, True, False),
        ("spaces inside", "(1,2) is (1, 2)", _inner_space, True, True, False),
        ("percent in words", "50 percent is 50%", _percent, True, True, False),
        ("comments in code", "a comment changes no program", texts(
            "# A solution.\n{a}", "{a}\n\n# Done.\n", "import math\n\n{a}",
            "{a}\n\nif __name__ == '__main__':\n    pass", of=(CODE,)), True, True, False),
        ("worked answer", "other numbers come before the answer", texts(
            "Let me work through this step by step.\n\nFirst, 3 + 4 = 7. Then I check the rest.\n\n{A}"),
         False, True, True),
        ("thought before", "reasoning models think in tags", _think, False, True, True),
        ("sign-off", "assistants end politely", texts(
            "{A}\n\nLet me know if you would like me to explain any step."), False, True, True),
        ("Markdown", "headings and lists around the answer", texts(
            "## Solution\n\n1. Read the question.\n2. Work it out.\n\n**Result**\n\n{A}"), False, True, True),
        ("blank lines", "blank lines, and \\r\\n at line ends", texts(
            "\n\n  {A}  \n\n", "{thought}\r\n\r\n{A}\r\n"), False, True, True),
        ("long answer", "the answer after 3,000 characters", texts(
            "Let us look at the problem from another side. " * 60 + "\n\n{A}"), False, True, True),
        ("odd digits", "+34, 034, 1e3, 2/4: as the task wants", _odd_digits, True, False, False),
        ("name", "x = 34: as the task wants", texts("x = {a}", of=NUMBERS), True, False, False),
        ("unit added or left out", "34 units, 5 for 5 m, 0.5 for 50%: as the task wants", _unit, True, False, False),
        ("spelling", "an article, quotes, a lower-case letter, a set in another order", _spelling, True, False, False),
        ("corrected", "a wrong answer, taken back for the right one", texts(
            "{W} Wait, let me check that again.\n\n{A}"), False, False, True),
        ("sentence after", "a bare answer, and a sentence on the next line", texts("{a}\nThat is my final answer."),
         False, False, False),
        ("format named", "the empty format before or after the answer", texts(
            "I will write the answer as {F}\n\n{A}", "{A}\n\nThe answer is written as {F}"), False, False, True),
    ))
