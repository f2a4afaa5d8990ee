r"""The form of a mathematical answer: what is a number, a list, a pair, an interval, an equation, a unit, words.

What is left is one expression in LaTeX, which math-verify's reader (latex2sympy2_extended) turns into a sympy
expression. `isocost.tasks.verify.equal` compares forms.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any

from isocost.errors import UserError
from isocost.tasks.verify import answers, numbers
from isocost.tasks.verify.numbers import MeasureUnit, Quantity

_LONGEST = 4000          # characters of an answer
_MEMBERS = 64            # of a list or tuple


class Unreadable(ValueError):
    """An answer of no form that is known here."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number with its unit and per cent sign."""

    quantity: Quantity


@dataclass(frozen=True, slots=True)
class Expression:
    """A sympy expression, or a matrix, without decimals; `rounded` if it had one; and the unit behind it."""

    value: Any
    source: str
    unit: MeasureUnit | None = None
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class FoldedText:
    """Text without mathematics, folded for comparison."""

    text: str


@dataclass(frozen=True, slots=True)
class DigitForm:
    """What is compared digit by digit: a number in a base (52_8), a time (3:07, or 10:30, no proportion that is left
    unreduced)."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Values in a proportion, 2:3."""

    parts: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """A tuple, vector or interval with its brackets: (3, 7), [0, 5)."""

    start: str
    parts: tuple[Form, ...]
    end: str


@dataclass(frozen=True, slots=True)
class Several:
    r"""Values in any order: bare (3, 5, 7 or "2 and 3"), or a set in braces."""

    parts: tuple[Form, ...]
    braces: bool = False


@dataclass(frozen=True, slots=True)
class Union:
    """Sets that are united or, by another `sign`, combined otherwise."""

    sign: str
    parts: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A value with its name: x = 5, f(x) = x^2. `sides` are both sides as expressions, to compare as an equation."""

    name: str
    value: Form
    sides: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of sides: 3x - y = 0, 0 < x <= 5. `signs` are between the sides: = < > <= >= !=."""

    sides: tuple[Form, ...]
    signs: tuple[str, ...]


Form = Number | Expression | FoldedText | DigitForm | Ratio | Ordered | Several | Union | Named | Relation


# Reading


@lru_cache(4096)
def read(text: str) -> tuple[Form, ...]:
    """The forms that an answer may have: one, or two for 121,242, a number or a list. Raises Unreadable for none."""
    text = answers.plain(_outside(text))
    if not text or len(text) > _LONGEST:
        raise Unreadable(f"{text[:40]!r} is {'empty' if not text else f'longer than {_LONGEST:,} characters'}")
    form = _answer(text)
    if isinstance(form, Number) and _THOUSANDS.fullmatch(text):
        return form, Several(tuple(single(x) for x in text.split(",")))
    return (form,)


def _outside(text: str) -> str:
    """An answer without its delimiters; each $...$ in a text becomes what it holds."""
    text = answers.bare(text)
    text = re.sub(r"(?<!\\)\$\$?|\\[()\[\]](?!\s*(?:\\\\|pt))", " ", text) if not _money(text) else text
    return answers.bare(text)


def _money(text: str) -> bool:
    """Whether its dollar signs are money: "$18", not "$x$"."""
    return text.count("$") - text.count(r"\$") == 1


def _answer(text: str) -> Form:
    text = answers.bare(text)
    text = re.sub(r"^\\(?:text|mathrm|mbox)\s*\{\s*(?:and|or)\s*\}", "", text)
    whole = _inside(text, "{", "}")
    if whole is not None and "\\" not in text[:1]:
        return _answer(whole)
    groups = _cut(text, _GROUP)[0]
    if len(groups) > 1 and all(len(_split(g)) > 1 for g in groups):       # p=5, q=2; p=7, q=2
        return Several(tuple(map(_answer, groups)))
    pieces = _split(text)
    if len(pieces) > 1:
        return Several(tuple(x for p in pieces for x in _flat(single(p))))
    return single(pieces[0] if pieces else text)


def _flat(form: Form) -> tuple[Form, ...]:
    """The members of an unbraced list (1 \\pm 2 is one) in a list."""
    return form.parts if isinstance(form, Several) and not form.braces else (form,)


_SEPARATOR = re.compile(
    r"\s*(?:[,;]\s*)?(?:\\(?:text|mathrm|mbox|textrm)\s*\{\s*,?\s*(?:and|or)\s*\}"
    r"|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|land|vee|wedge)(?![A-Za-z])|(?<=[\d)\]}])or(?=[-\d(\[{A-Za-z\\]))\s*"
    r"|\s*[,;]\s*|\s*\\\\\s*|\s*\\newline\s*")
_GROUP = re.compile(r"\s*;\s*")
_THOUSANDS = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_OPEN = re.compile(r"\\begin\s*\{[^{}]*\}|\\(?:lfloor|lceil|langle)(?![A-Za-z])|\\\{|[(\[{]")
_CLOSE = re.compile(r"\\end\s*\{[^{}]*\}|\\(?:rfloor|rceil|rangle)(?![A-Za-z])|\\\}|[)\]}]")


_SKIPPED = re.compile(r"\\[A-Za-z]+|\\.")


def _top(text: str, sign: re.Pattern[str], inside: bool = False) -> Iterator[tuple[int, int]]:
    """Where a sign stands outside all brackets, from left to right; `inside` brackets every comma separates."""
    depth, at = 0, 0
    while at < len(text):
        found = sign.match(text, at) if depth == 0 else None
        if found is not None and found.end() > at:
            yield found.start(), found.end()
            at = found.end()
        elif (m := _OPEN.match(text, at)) is not None:
            depth, at = depth + 1, m.end()
        elif (m := _CLOSE.match(text, at)) is not None:
            depth, at = max(0, depth - 1), m.end()
        else:
            whole = _THOUSANDS.match(text, at) if depth == 0 and sign is _SEPARATOR and not inside else None
            m = whole or _SKIPPED.match(text, at)
            at = m.end() if m else at + 1


def _cut(text: str, sign: re.Pattern[str], inside: bool = False) -> tuple[list[str], list[str]]:
    """The pieces of a text between signs outside brackets, and the signs."""
    pieces, signs, at = [], [], 0
    for start, end in _top(text, sign, inside):
        pieces.append(text[at:start])
        signs.append(text[start:end].strip())
        at = end
    return [*pieces, text[at:]], signs


def _split(text: str, inside: bool = False) -> list[str]:
    """The members of a list. Raises Unreadable for more than any answer has."""
    pieces = [p.strip() for p in _cut(text, _SEPARATOR, inside)[0] if p.strip(" ,;") not in ("", r"\ ")]
    if len(pieces) > _MEMBERS:
        raise Unreadable(f"{len(pieces)} values are more than {_MEMBERS}")
    return pieces


def _inside(text: str, start: str, end: str) -> str | None:
    """What is between a bracket at the start and its partner at the end; None if they are no partners."""
    if not (text.startswith(start) and text.endswith(end)) or len(text) < len(start) + len(end):
        return None
    depth, at = 0, 0
    while at < len(text):
        if (m := _OPEN.match(text, at)) is not None:
            depth, at = depth + 1, m.end()
        elif (m := _CLOSE.match(text, at)) is not None:
            depth, at = depth - 1, m.end()
            if depth == 0 and at < len(text):
                return None
        else:
            at += 2 if text[at] == "\\" else 1
    return text[len(start) : -len(end)] if depth == 0 else None


_RELATION = re.compile(
    r"\\(le|ge|ne|in|approx|equiv|sim|simeq|lt|gt)(?![A-Za-z])|[=<>]|≈|(?<![A-Za-z\\])in(?![A-Za-z])")
_UNITED = re.compile(r"\\(?:cup|cap|setminus)(?![A-Za-z])|(?<=[)\]}])\s*U\s*(?=[(\[{\\])")
_BASE = re.compile(r"([0-9A-Fa-f]+)_\s*\{?\s*(\d{1,2})\s*\}?")
_TIME = re.compile(r"\d{1,2}(?::\d\d){1,2}(?:\s*[ap]\.?m\.?)?", re.IGNORECASE)


def single(text: str) -> Form:
    """One member of a list. A number comes first: nothing else is as common."""
    text = answers.bare(text)
    if (value := numbers.quantity(text)) is not None and "=" not in text and "≈" not in text and not _variable(text):
        return Number(value)
    sides, signs = _cut(text, _RELATION)
    if signs:
        return _related(sides, signs)
    parts, united = _cut(text, _UNITED)
    if united:
        return Union("cup" if all("cap" not in u and "minus" not in u for u in united) else " ".join(united),
                     tuple(single(p) for p in parts))
    if text in (r"\emptyset", r"\{\}", r"\{ \}"):
        return Several((), braces=True)
    if (inner := _inside(text, r"\{", r"\}")) is not None:
        return Several(tuple(x for p in _split(inner, inside=True) for x in _flat(single(p))), braces=True)
    if (inner := _inside(text, r"\langle", r"\rangle")) is not None:
        return Ordered("(", tuple(map(single, _split(inner, inside=True))), ")")
    for start in "([":
        for end in ")]":
            inner = _inside(text, start, end)
            if inner is not None and len(parts := _split(inner, inside=True)) > 1:
                return Ordered(start, tuple(map(single, parts)), end)
            if inner is not None and start == "(" and end == ")":
                return single(inner)
    if _TIME.fullmatch(text) and (re.search(r"m|:0", text) or gcd(*map(int, re.findall(r"\d+", text))) > 1):
        return DigitForm(tuple(re.findall(r"\d+|[ap]m", text.lower().replace(".", ""))))
    if ":" in text and len(parts := [p for p in re.split(r"\s*:\s*", text) if p]) > 1 and not _lettered(text):
        return Ratio(tuple(map(single, parts)))
    if m := _BASE.fullmatch(text.replace(" ", "")):
        return DigitForm(("base", m[2], m[1].lstrip("0").upper()))
    if re.search(r"\\[pm]{2}(?![A-Za-z])|\+/-|\+-", text):
        text = text.replace("+/-", r"\pm ").replace("+-", r"\pm ")
        upper = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
        lower = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
        return Several((single(upper), single(lower)))
    return _leaf(text)


def _variable(text: str) -> bool:
    r"""Whether a number with a letter behind it is a product in LaTeX: 5m and 5 m are no metres, 5\text{ m} are."""
    return re.fullmatch(r"[-+\d.,/\s]*\d\s*[A-Za-z](?:\s*\^.*)?", text) is not None


_SIGNS = {"le": "<=", "ge": ">=", "ne": "!=", "lt": "<", "gt": ">", "equiv": "=", "simeq": "≈", "approx": "≈",
          "sim": "≈"}


def _related(sides: Sequence[str], signs: Sequence[str]) -> Form:
    """A chain of relations; x in A is A, and x = 1/3 ≈ 0.33 is x = 1/3."""
    named = [_SIGNS.get(s.strip("\\ "), s.strip("\\ ")) for s in signs]
    if "in" in named:
        return _answer(sides[-1])
    if "≈" in named and len(named) > 1:
        at = named.index("≈")
        sides, named = sides[: at + 1], named[:at]
    named = ["=" if s == "≈" else s for s in named]
    sides = [s.strip() for s in sides]
    if set(named) == {"="}:
        if not sides[0]:
            return _answer(sides[-1])
        if len(sides) == 2 and numbers.differ(*sides):
            raise Unreadable(f"the sides of {' = '.join(sides)[:40]!r} differ")
        ends = sides[0], sides[-1]
        if not is_name(ends[0]) and is_name(ends[1]):
            ends = ends[1], ends[0]
        if is_name(ends[0]) or len(sides) > 2 or not any(map(_symbolic, ends)):
            return Named(_name(ends[0]), _answer(ends[1]), ends)
    if not all(sides):
        raise Unreadable(f"a side of {' '.join(sides)[:40]!r} is missing")
    return Relation(tuple(single(s) for s in sides), tuple(named))


_FUNCTIONS = ("sin", "cos", "tan", "sec", "csc", "cot", "ln", "log", "exp")


def is_name(text: str) -> bool:
    r"""Whether a side of an equation only names the other: x, f(2), S_{ABC}, |AB|, \angle A, (x, y), V_1 : V_2."""
    core = re.sub(r"_\s*(?:\{[^{}]*\}|\w)", "", text)
    core = re.sub(r"(?<=[A-Za-z'}])\s*(?:\^\{?-1\}?)?\s*\([^()]*\)", "", core)
    if re.search(r"\d|[-+*/^](?!\s*\\prime)|\\(?:sqrt|cdot|times)(?![A-Za-z])", core) and r"\frac" not in core:
        return False
    if any(re.search(rf"\\?(?<![A-Za-z]){f}(?![A-Za-z])", core) for f in _FUNCTIONS):
        return False
    letters = re.sub(r"\\[A-Za-z]+", "x", answers.TEXT.sub(r"\1", core))
    return re.search(r"[A-Za-z]", letters) is not None and not re.search(r"\d", core)


def _symbolic(text: str) -> bool:
    return re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text)) is not None


def _name(text: str) -> str:
    """A name to compare: a single symbol with its index; "" for what is longer, such as a word or a segment."""
    core = re.sub(r"[\s{}]|\\(?:mathrm|text|left|right)", "", text)
    return core if re.fullmatch(r"(?:\\?[A-Za-z]|\\[A-Za-z]+)(?:_\w+)?(?:\([A-Za-z]\))?'*", core) else ""


_BEHIND = re.compile(
    r"(?:\\[,;: ]|\s)*(?:\\(?:text|textbf|textit|textrm|textnormal|mathrm|mbox)\s*\{(?P<words>[^{}]*)\}"
    r"(?P<power>\s*\^\s*\{?[23]\}?)?(?P<more>\s*/\s*\\(?:text|mathrm|mbox)\s*\{[^{}]*\}(?:\s*\^\s*\{?[23]\}?)?)?"
    r"|(?<=[\s\d)}])(?P<plain>[A-Za-z]{2,}(?:\s*\^\s*\{?[23]\}?)?(?:/[A-Za-z]+)?)|(?P<degree>°))\s*\Z")
_PLAIN_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]*[A-Za-z]")


_KNOWN_LETTERS = re.compile(
    r"\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+|(?<![A-Za-z])(?:sqrt|pi|theta|sin|cos|tan|sec|csc|cot|ln|log|exp|infty"
    r"|infinity|inf|oo|alpha|beta|gamma|lambda)(?![a-z])")
_PROSE = re.compile(
    r"[A-Za-z]{4,}|[A-Za-z]{2,}\s+[A-Za-z]{2,}"
    r"|(?<![A-Za-z])(?:of|in|to|is|at|on|by|no|if|as|it|we|so|the|has|for|all|are|not|out|per)(?![A-Za-z])",
    re.IGNORECASE)


def _lettered(text: str) -> bool:
    """Whether a text has words: letters that are neither LaTeX commands nor functions nor a product of symbols."""
    return _PROSE.search(_KNOWN_LETTERS.sub("|", answers.TEXT.sub(r" \1 ", text))) is not None


def _leaf(text: str) -> Form:
    """A number with a unit, words, or an expression with a unit."""
    inner = answers.TEXT.fullmatch(text)
    words = answers.TEXT.sub(r"\1", text).strip()
    if inner is not None and not re.search(r"\d", inner[1]) and len(inner[1].strip(" ()")) != 1:
        return FoldedText(folded(inner[1]))
    if words.casefold() in ("yes", "no", "true", "false"):
        return FoldedText(folded(words))
    if re.fullmatch(r"\(?[A-Za-z]\)?\.?", words) and words != text:
        return _expression(words.strip("(). "))
    if _PLAIN_WORDS.fullmatch(words) and ("\\" in text or " " in words or len(words) > 3) and words not in (
            "sqrt", "theta"):
        return FoldedText(folded(words))
    if (m := _BEHIND.search(text)) is not None and text[: m.start()].strip():
        phrase = "°" if m["degree"] else (m["words"] or m["plain"] or "") + (m["power"] or "") + (
            answers.TEXT.sub(r"\1", m["more"]) if m["more"] else "")
        unit = numbers.unit(phrase)
        if unit is not None and (unit.known or not m["plain"]):
            value = single(text[: m.start()])
            if isinstance(value, Number):
                return Number(replace(value.quantity, unit=unit))
            if isinstance(value, Expression):
                return replace(value, unit=unit)
    if text.endswith("%"):
        value = single(text[:-1])
        if isinstance(value, Expression):
            return replace(value, value=value.value / 100)
    text = text.replace(r"\$", "").replace("$", "")
    if _lettered(text):
        raise Unreadable(f"{text[:60]!r} has words and is no expression")
    return _expression(text)


def _expression(text: str) -> Expression:
    return Expression(expression_of(text), text, rounded=_DECIMAL.search(text) is not None)


def folded(text: str) -> str:
    return " ".join(re.sub(r"[\s{}~\\]+", " ", text).split()).strip(" .,;:!?\"'`*()").casefold()


_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{\s*(\d+)\s*\}")
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)")
_NAMES = re.compile(
    r"(?<![\\A-Za-z])(sqrt|pi|sin|cos|tan|sec|csc|cot|ln|log|exp|theta|alpha|beta|gamma|lambda|infty)(?![A-Za-z])")


@lru_cache(4096)
def expression_of(text: str) -> Any:
    """A sympy expression of LaTeX, or of plain text such as 7*sqrt(3). Raises Unreadable."""
    text = re.sub(r"(?<![\\A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])", "infty", text)
    text = re.sub(r"[(\[]?\s*\\begin\s*\{array\}\s*\{[^{}]*\}(.*?)\\end\s*\{array\}\s*[)\]]?",
                  r"\\begin{pmatrix}\1\\end{pmatrix}", text)
    text = re.sub(r"\*\*", "^", text)
    text = _NAMES.sub(r"\\\1", text)
    text = re.sub(r"\\(?:mathrm|text|rm)\s*\{\s*([A-Za-z])\s*\}", r"\1", text)
    text = _braced(_braced(text, r"\\sqrt\s*"), r"\^\s*")
    text = re.sub(r"\^\s*(-\s*(?:[\d.]+|[A-Za-z])|\d[\d.]+)", r"^{\1}", text)
    text = _REPEATING.sub(_repeating, text)
    text = _DECIMAL.sub(lambda m: rf"\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}}", text)
    text = re.sub(r"\\sqrt\s*(\d+)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text).replace("*", r"\cdot ")
    latex2sympy = library("latex2sympy2_extended.latex2sympy2")
    try:
        found = latex2sympy.latex2sympy(
            text, is_real=None, convert_degrees=False, normalization_config=None,
            conversion_config=latex2sympy.ConversionConfig(lowercase_symbols=False))
    except RecursionError:
        raise
    except Exception as e:
        raise Unreadable(f"math-verify cannot read {text[:60]!r}") from e
    sympy = library("sympy")
    value = isinstance(found, sympy.Basic | sympy.MatrixBase)
    if not value or isinstance(found, sympy.Set | sympy.core.relational.Relational):
        raise Unreadable(f"math-verify cannot read {text[:60]!r} as an expression")
    i = [s for s in found.free_symbols if s.name == "i"]
    return found.subs(dict.fromkeys(i, sympy.I)) if i else found


def _repeating(m: re.Match[str]) -> str:
    """0.1666... as a fraction."""
    whole, first, period = m.groups()
    over = int(whole + first + period) - int((whole + first) or "0")
    return rf"\frac{{{over}}}{{{10 ** len(first) * (10 ** len(period) - 1)}}}"


def _braced(text: str, before: str) -> str:
    """Round brackets behind a root or a power as braces: sqrt(3) is the root of 3, x^(1/2) a power."""
    out, at = [], 0
    for m in re.finditer(before + r"\(", text):
        if m.start() < at:
            continue
        depth = 0
        for end in range(m.end() - 1, len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                out += [text[at : m.end() - 1], "{", _braced(text[m.end() : end], before), "}"]
                at = end + 1
                break
    return "".join([*out, text[at:]])


def library(module: str) -> Any:
    """A module of a package that is not installed with isocost. Raises UserError if it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise UserError(f"{module} is not installed: pip install {module.replace('_', '-')}") from e


def given(text: str) -> list[tuple[Form, ...]]:
    r"""The answers that a text gives (`answers.final`, or its last number), which must all be right. Raises
    Unreadable."""
    found = answers.final(text)
    if answers.BOX.search(text) or "####" in text:
        return [read(x) for x in found]
    out = []
    for piece in found:
        try:
            forms: tuple[Form, ...] = read(piece)
        except Unreadable:
            forms = ()
        if not forms or (isinstance(forms[0], FoldedText) and len(forms[0].text.split()) > 3):
            number = numbers.last(piece) or numbers.last(text[-_LONGEST:])
            forms = forms if number is None else (Number(number),)
        if not forms:
            raise Unreadable(f"{piece[:60]!r} holds no answer")
        out.append(forms)
    return out
