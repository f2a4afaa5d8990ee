r"""One number in a text, exactly: with its sign, fraction, per cent sign and unit."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass
from fractions import Fraction

from isocost.tasks.verify import answers

TOLERANCE = Fraction(1, 10**6)     # relative, for numbers that are not whole: 0.333 is not 1/3
_LONGEST = 400                     # characters of one number; more than any answer needs, less than int() refuses


@dataclass(frozen=True, slots=True)
class MeasureUnit:
    """A unit: `factor` times base units to their powers. `known` is False for a word that is no unit of measure."""

    factor: Fraction
    base: tuple[tuple[str, int], ...]
    known: bool = True


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as it was written: exact, or `rounded` where it is a decimal; 50 with `percent` for 50 %."""

    value: Fraction
    rounded: bool = False
    percent: bool = False
    unit: MeasureUnit | None = None


def close(said: Fraction, gold: Fraction) -> bool:
    """Equal; or within 1e-6 of the answer when the answer is not whole."""
    return said == gold or (gold.denominator != 1 and abs(said - gold) <= TOLERANCE * abs(gold))


def equal(said: Quantity, gold: Quantity) -> bool:
    """Whether two quantities are the same.

    Units are converted; a unit that only one of them has is no difference, and so is a word beside a unit of measure.
    50 % is 0.5, and also 50 where the answer says 50, with or without its sign: a question for a percentage often has
    the answer 50. But 0.5 % is not 0.5.
    """
    ratio = converted(said.unit, gold.unit)
    if ratio is None:
        return False
    value, right = said.value * ratio, gold.value
    if said.percent == gold.percent:
        return close(value, right)
    if gold.percent:
        return close(value, right / 100) or close(value, right)
    return close(value / 100, right) or (right.denominator == 1 and value == right)


def converted(said: MeasureUnit | None, gold: MeasureUnit | None) -> Fraction | None:
    """What a value in one unit is multiplied by to be in the other; None if the units are of different kinds."""
    if said is None or gold is None or not (said.base and gold.base) or said.known != gold.known:
        return Fraction(1)
    return said.factor / gold.factor if said.base == gold.base else None


# Units

_LENGTHS = {
    "m meter metre": "1", "km kilometer kilometre": "1000", "cm centimeter centimetre": "1/100",
    "mm millimeter millimetre": "1/1000", "mi mile": "1609344/1000", "yd yard": "9144/10000",
    "ft foot feet": "3048/10000", "in inch inche": "254/10000",
}
_MEASURES: dict[str, dict[str, str]] = {
    "m": _LENGTHS,
    "g": {"g gram gramme": "1", "kg kilogram kilo": "1000", "mg milligram": "1/1000", "lb lbs pound": "45359237/100000",
          "oz ounce": "45359237/1600000"},
    "s": {"s sec second": "1", "ms millisecond": "1/1000", "min mins minute": "60", "h hr hrs hour": "3600",
          "day": "86400", "week": "604800"},
    "$": {"$ dollar usd buck": "1", "cent ¢": "1/100"},
    "€": {"€ euro eur": "1"},
    "°": {"° deg degree": "1"},
    "rad": {"rad radian": "1"},
}
_KNOWN = {word: (Fraction(factor), base) for base, table in _MEASURES.items()
          for words, factor in table.items() for word in words.split()}
_LITRES = {"l": "1/1000", "liter": "1/1000", "litre": "1/1000", "ml": "1/1000000", "milliliter": "1/1000000",
           "millilitre": "1/1000000"}
_NO_UNIT = frozenset((
    "and", "or", "to", "by", "x", "plus", "minus", "times", "over", "is", "are", "equals", "than", "if", "for", "with",
    "from", "between", "pi", "sqrt", "theta", "infty", "sin", "cos", "tan", "log", "ln", "exp"))
_REMARKS = frozenset((
    "total", "altogether", "left", "more", "remaining", "each", "all", "exactly", "away", "long", "wide", "high",
    "tall", "old", "apart"))
_SQUARE = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_WORDS = re.compile(
    r"\s*(?:(?P<over>/|\bper\b)|(?P<word>[A-Za-z\u00c0-\u024f]+|[°$€£¥¢])\.?"
    r"(?:\^\s*\{?\s*(?P<power>-?[1-9])\s*\}?|(?P<digit>[23])(?![\d.]))?|(?P<dot>\\cdot|[*-]))")


_NO_CLAIM = MeasureUnit(Fraction(1), (), known=False)       # words that name no unit


def unit(phrase: str) -> MeasureUnit | None:
    """The unit that a phrase is, such as "cm^2", "km/h", "square feet" or "red apples"; None if it is none."""
    powers: Counter[str] = Counter()
    factor, sign, square, at, words = Fraction(1), 1, 0, 0, list[str]()
    phrase = re.sub(r"\bmph\b", "mi/h", re.sub(r"\bk(?:m?ph|mh)\b", "km/h", phrase.strip()))
    if re.match(r"(?:in|of|on|at)\s+[a-z]", phrase):       # 42 in total
        return _NO_CLAIM
    while at < len(phrase):
        m = _WORDS.match(phrase, at)
        if m is None or m.end() == at:
            return None
        at = m.end()
        if (m["over"] or m["dot"]) and not words:
            return None
        if m["over"]:
            sign = -1
        elif m["word"]:
            word = m["word"]
            if word.casefold() in _NO_UNIT:
                return None
            if word.casefold() in _REMARKS and words:
                continue
            if word.casefold() in _SQUARE:
                square = _SQUARE[word.casefold()]
                continue
            power = sign * (int(m["power"] or m["digit"] or 1) * (square or 1))
            square = 0
            words.append(_singular(word))
            size, base, dims = _measure(word)
            powers[base] += power * dims
            factor *= size**power
            if len(words) > 6:
                return None
    if not words:
        return None
    known = all(b in _MEASURES for b in powers)
    if not known:
        if len(words) == 1 and len(words[0]) == 1:
            return None         # 3 x is a product, not 3 of the unit x
        if words[-1] == "unit" or words[-1] in _REMARKS:
            return _NO_CLAIM
        return MeasureUnit(Fraction(1), ((words[-1], 1),), known=False)
    return MeasureUnit(factor, tuple(sorted((b, p) for b, p in powers.items() if p)))


def _measure(word: str) -> tuple[Fraction, str, int]:
    """A word's factor, base unit and the power of that base; itself for a word that is no unit of measure."""
    for name in (word, word.casefold(), _singular(word)):
        if name in _LITRES:
            return Fraction(_LITRES[name]), "m", 3
        if name in _KNOWN and (len(word) > 1 or word in _KNOWN):     # M is no metre
            return _KNOWN[name][0], _KNOWN[name][1], 1
    return Fraction(1), _singular(word), 1


def _singular(word: str) -> str:
    word = word.casefold()
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("xes", "ches", "shes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word


# Numbers

_DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?![\d,])|[1-9]\d{0,2}(?:\ \d{3})+(?!\d)|\d+)"
_NUM = rf"(?:{_DIGITS}(?:\.\d+)?|\.\d+)(?:e[-+]?\d{{1,3}}(?!\w))?"
_POWER = r"10\s*\^\s*(?:\{\s*([-+]?\d{1,3})\s*\}|([-+]?\d{1,3})(?!\d))"
_VALUE = re.compile(
    rf"""(?<![\w.])(?P<sign>[-+])?(?P<money>[$€£¥]\s?)?(?:
        (?P<whole>\d+)(?:\s*\\frac\s*\{{\s*(?P<part>\d+)\s*\}}\s*\{{\s*(?P<parts>\d+)\s*\}}
                       |\s+(?P<part2>\d+)\s?/\s?(?P<parts2>\d+))
        |\\frac\s*\{{\s*(?P<over>[-+]?{_NUM})\s*\}}\s*\{{\s*(?P<under>[-+]?{_NUM})\s*\}}
        |(?P<power>{_POWER})
        |(?P<number>{_NUM})(?:\s?/\s?(?P<by>{_NUM})|\s*(?:\\times|\\cdot|\*|x)\s*(?P<times>{_POWER}))?
    )""", re.ASCII | re.IGNORECASE | re.VERBOSE)
_PERCENT = re.compile(r"\s*(?:%|per\s?cent\b|percentage\b|pct\b)(?:\s+points?\b)?", re.IGNORECASE)
_DOLLARS = re.compile(r"(?<!\\)\$([^$\n]+)(?<!\\)\$")
_ARROW = re.compile(r"=>|⇒|→|->|\\(?:Long)?[rR]ightarrow|\\implies|\\therefore|∴")


def quantity(text: str) -> Quantity | None:
    """The one number that a text is, with its name ("x = "), sign, unit and per cent sign; None if it is not one."""
    return None if len(text) > 4 * _LONGEST else _whole(_cleaned(text))


def _cleaned(text: str) -> str:
    """The text without LaTeX around words; a dollar is a sign of money where it is not a pair around an expression."""
    text = answers.TEXT.sub(r" \1", answers.plain(answers.bare(text)))
    return _DOLLARS.sub(lambda m: m[0] if re.search(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", "", m[1])) else f" {m[1]} ",
                        text).replace(r"\$", "$")


def _whole(text: str) -> Quantity | None:
    text = answers.bare(_ARROW.split(text)[-1])
    name, equals, value = text.rpartition("=")
    if equals:
        if re.search(r"[,;<>]|\\(?:le|ge|ne)\b|\b(?:and|or)\b", re.sub(r"[(\[][^()\[\]]*[)\]]", "", name)):
            return None
        side = re.sub(r"_\s*(?:\{[^{}]*\}|\w)|[(\[][^()\[\]]*[)\]]", "", name.rpartition("=")[2])
        if re.search(r"[A-Za-z]", side) and re.search(r"[\d+*/^-]", side):      # 2x - y = 0 is an equation
            return None
        if differ(side, value):
            return None
        text = side if re.fullmatch(r"\s*[A-Za-z]\s*", value) else value       # 16 = x
    first, about, last = re.sub(r"\\(?:approx|simeq|sim)(?![A-Za-z])", "≈", text).partition("≈")
    if about:
        return _one(first) or _one(last)
    return _one(text)


def differ(left: str, right: str) -> bool:
    """Whether the sides of an equation are plain numbers that differ, by 1 % if a side is rounded: 49 = 42."""
    one, other = _one(left), _one(right)
    if one is None or other is None or one.unit or other.unit or one.percent != other.percent:
        return False
    return abs(one.value - other.value) > (abs(other.value) / 100 if one.rounded or other.rounded else 0)


def _one(text: str) -> Quantity | None:
    text = re.sub(r"^([-+])\s+", r"\1", answers.bare(text.replace("$$", " ")))
    outer = ""
    while (m := re.fullmatch(r"([-+]?)\s*(?:\((.*)\)|\{(.*)\})", text)) is not None:     # (-5), -(1/2)
        if m[1] and outer:
            return None
        outer, text = outer or m[1], (m[2] if m[2] is not None else m[3]).strip()
        if "," in text:              # (12,102) is a pair
            return None
        if re.search(r"[(){}]", re.sub(r"\\frac\s*\{[^{}]*\}\s*\{[^{}]*\}|\^\s*\{[^{}]*\}", "", text)):
            return None
    m = _VALUE.match(text)
    if m is None or (value := _value(m)) is None:
        return None
    rest = text[m.end() :]
    if rest.startswith("."):
        rest = rest[1:]
    if (p := _PERCENT.match(rest)) is not None:
        rest = rest[p.end() :]
    named = unit(rest) if rest.strip() else None
    if rest.strip() and (named is None or (not named.known and _tight(rest))):
        return None
    if m["money"]:
        named = unit(m["money"]) if named is None or not named.known else named
    return Quantity(-value if outer == "-" else value, _rounded(m), p is not None, named)


def _tight(rest: str) -> bool:
    """Whether letters stand directly behind the digits: 2xy is a product, 3rd is a number."""
    return not rest[0].isspace() and len(rest.split()[0]) < 3 and re.match(r"(?:st|nd|rd|th)\b", rest) is None


def _rounded(m: re.Match[str]) -> bool:
    return any(m[k] and ("." in m[k] or "e" in m[k].lower()) for k in ("number", "over", "under", "by"))


def _value(m: re.Match[str]) -> Fraction | None:
    """The value of a match of `_VALUE`; None for a division by zero or more digits than any answer has."""
    if len(m[0]) > _LONGEST:
        return None
    sign = -1 if m["sign"] == "-" else 1
    if m["whole"]:
        parts = int(m["parts"] or m["parts2"])
        return None if parts == 0 else sign * (int(m["whole"]) + Fraction(int(m["part"] or m["part2"]), parts))
    if m["power"]:
        return sign * Fraction(10) ** int(_exponent(m["power"]))
    over, under = _fraction(m["over"] or m["number"]), _fraction(m["under"] or m["by"] or "1")
    if under == 0:
        return None
    return sign * over / under * (Fraction(10) ** int(_exponent(m["times"])) if m["times"] else 1)


def _exponent(power: str) -> str:
    return power.partition("^")[2].strip(" {}")


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace(" ", ""))


# A number in prose

_OPERATOR_BEFORE = re.compile(
    r"(?:[\^_]\s*[{(]?|\\sqrt\s*(?:\[[^\]]*\])?\s*[{(]?|\\frac\s*\{[^{}]*\}\s*\{"
    r"|[\w)\]}]\s*(?:[*/]|\\times|\\cdot|\\div)\s*\(?"
    r"|\d\s*[-+]\s*\(?|[)\]}]\s*[-+]\s*|\d\s?:\s?|[\d)\]}])$")
_OPERATOR_AFTER = re.compile(
    r"\s*(?:[\^_]|!(?!\s|$)|\\(?:sqrt|pi|frac|times|cdot|div)(?![A-Za-z])|[*/]\s*[\w(\\]|\+\s*[\w(\\]|:\s?\d)|-\d|\{"
    r"|(?!st\b|nd\b|rd\b|th\b|[ap]m\b)[A-Za-z]{1,2}\d*(?![A-Za-z])")
_MEMBER_BEFORE = re.compile(r"[(\[][-+\w\s.,;/\\{}$]*\d[-+\w\s.,;/\\{}$]*[,;]\s*$")
_UNIT_WORD = re.compile(
    r"\s?((?:(?:square|sq|cubic|cu)\s+)?[A-Za-z°]+(?:\s?\^\s?\{?[23]\}?)?(?:\s?(?:/|\bper\b)\s?[A-Za-z]+)?)")
_DENIED_BEFORE = re.compile(      # not 42, can't be 42, rule out 42, could also be 42
    r"(?:\bnot|n['’]t|\bnever|\brul(?:e|es|ed|ing) out|\b(?:cannot|can['’]?t|not) be|\b(?:might|could|may) also be)"
    r"\s+(?:(?:equal to|exactly|simply|just|the number)\s+)?[\s$({\[\\*]*$", re.IGNORECASE)
_DENIED_AFTER = re.compile(       # 42 (this is wrong), 42 is incorrect
    r"[\s$)}\]*%]*(?:[A-Za-z]{1,12}\s*)?[(,]?\s*(?:(?:this|that|which)\s+)?(?:is|was)\s+"
    r"(?:wrong|incorrect|false|not (?:right|correct))\b",
    re.IGNORECASE)
_SAID_ALONE = re.compile(r"(?:^|\b(?:is|are)|[:\n])[\s$({\[*]*$", re.IGNORECASE)
_OR = re.compile(r"[\s%°$\w\\{}()]{0,20}\bor\s+[\s$({\[\\*]*", re.IGNORECASE)
_NEAR = 100               # characters around a number in which an operator or a bracket is looked for


def last(text: str) -> Quantity | None:
    """The number that a text ends on, of its last line or its prose; None in a list in brackets or an expression."""
    text = _cleaned(text)
    found = next(iter(deque((m for m in _VALUE.finditer(text) if not _unit_power(text, m.start())), maxlen=1)), None)
    if found is None:
        return None
    start, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
    line = text[start : end if end >= 0 else len(text)]
    if len(line) <= 4 * _LONGEST:
        if (whole := _whole(line)) is not None:
            return whole
        if not _worded(line):
            return None
    return _in_prose(text, found)


def _unit_power(text: str, at: int) -> bool:
    """Whether the number at a place is the power of a unit of measure: the 2 of cm^2."""
    m = re.search(r"([A-Za-z]+)\s*\^\s*\{?\s*$", text[max(0, at - 20) : at])
    return m is not None and (named := unit(m[1])) is not None and named.known


def only(text: str) -> Quantity | None:
    """The number of a text that holds exactly one; None if it holds none or more, or an expression."""
    if (whole := quantity(text)) is not None or len(text) > 4 * _LONGEST:
        return whole
    text = _cleaned(text)
    found = list(_VALUE.finditer(text))
    if len(found) != 1 or len(re.findall(r"\d+", re.sub(r"\d[\d,. /]*\d", "0", found[0][0]))) > 2:
        return None
    rest = text[: found[0].start()] + text[found[0].end() :]
    return _in_prose(text, found[0]) if re.fullmatch(r"[A-Za-z\s.,;:?'\"%$*-]*", rest) else None


def _in_prose(text: str, m: re.Match[str]) -> Quantity | None:
    before, after = text[max(0, m.start() - _NEAR) : m.start()], text[m.end() : m.end() + _NEAR]
    if _DENIED_BEFORE.search(before) or _DENIED_AFTER.match(after) or _undecided(before, m):
        return None
    behind = "" if re.match(r"\.(?!\d)", after) else after
    percent, word = _PERCENT.match(behind), _UNIT_WORD.match(behind)
    named = unit(word[1]) if word else None
    if named is not None and (not named.known or (word is not None and word[1] == "in" and behind[3:].strip())):
        named = None
    if named is None and _OPERATOR_AFTER.match(after):
        return None
    if _OPERATOR_BEFORE.search(before) or (m["sign"] and re.search(r"[-+\d)]\s*$", before)):
        return None
    if _MEMBER_BEFORE.search(before) and re.match(r"\s*[)\]]", after):
        return None
    if m["money"] and named is None:
        named = unit(m["money"])
    value = _value(m)
    return None if value is None else Quantity(value, _rounded(m), percent is not None, named)


def _undecided(before: str, m: re.Match[str]) -> bool:
    """Whether a number is the second of two different ones: either 49 or 42; the answer is 49 = 42."""
    first = next(iter(deque(_VALUE.finditer(before), maxlen=1)), None)
    if first is None:
        return False
    if before[first.end() :].strip(" $") == "=" and _SAID_ALONE.search(before[: first.start()]):
        return differ(first[0], m[0])
    if not _OR.fullmatch(before, first.end()):
        return False
    one, other = _value(first), _value(m)
    return one is not None and other is not None and one not in (other, other / 100, other * 100)


def said(text: str) -> Quantity | None:
    r"""The number that a text gives as its answer, where `answers.final` finds it, in a sentence the last; or None."""
    found = answers.final(text)
    if answers.BOX.search(text):
        held = [quantity(piece) for piece in answers.innermost(text) or [""]]
        return held[-1] if held[-1] and all(h and equal(h, held[-1]) for h in held) else None
    if len(found) != 1:
        return None
    return quantity(found[0]) or (last(found[0]) or last(text) if _worded(found[0]) else None)


def _worded(text: str) -> bool:
    """Whether a text has words, and not only an expression."""
    return re.search(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+|\b(?:and|or)\b", " ", text)) is not None
