"""Whether two mathematical answers are the same, by their forms (`isocost.tasks.verify.forms`)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from isocost.tasks.verify import numbers
from isocost.tasks.verify.forms import (
    DigitForm,
    Expression,
    FoldedText,
    Form,
    Named,
    Number,
    Ordered,
    Ratio,
    Relation,
    Several,
    Union,
    Unreadable,
    expression_of,
    folded,
    is_name,
    library,
    single,
)
from isocost.tasks.verify.numbers import MeasureUnit, Quantity

_DIGITS = 60             # to which values that are not rational are compared
_POWER = 10_000          # exponents and factorials up to this are computed exactly
_TOLERANCE = float(numbers.TOLERANCE)
_AGREE = Fraction(1, 10**40)


def right(said: Sequence[Form], gold: Sequence[Form]) -> bool:
    """Whether an answer in one of its forms is the gold one in one of its forms."""
    return any(same(s, g) for s in said for g in gold)


def same(said: Form, gold: Form) -> bool:
    """Whether an answer is the gold one. Not symmetric: x = 5 is right for 5, and 5 for x = 5."""
    if isinstance(said, Named) or isinstance(gold, Named):
        return _named_same(said, gold)
    if isinstance(gold, Number | Expression) and isinstance(said, Number | Expression):
        return _value_same(said, gold)
    if isinstance(gold, FoldedText) or isinstance(said, FoldedText):
        return _word(gold) == _word(said) != ""
    if isinstance(gold, Ratio) and isinstance(said, DigitForm) and all(map(str.isdigit, said.parts)):
        said = Ratio(tuple(Number(Quantity(Fraction(p))) for p in said.parts))
    if isinstance(gold, DigitForm) or isinstance(said, DigitForm):
        return gold == said
    if isinstance(gold, Ratio) or isinstance(said, Ratio):
        return _ratio_same(said, gold)
    if (a := _pieces(gold)) is not None and (b := _pieces(said)) is not None:
        return _pieces_same(b, a)
    if isinstance(gold, Relation) or isinstance(said, Relation):
        return isinstance(gold, Relation) and isinstance(said, Relation) and _relation_same(said, gold)
    if isinstance(gold, Union) or isinstance(said, Union):
        return (isinstance(gold, Union) and isinstance(said, Union) and gold.sign == said.sign
                and _any_order(said.parts, gold.parts))
    return _list_same(said, gold)


def _word(form: Form) -> str:
    if isinstance(form, FoldedText):
        return form.text
    return folded(form.source) if isinstance(form, Expression) else ""


def _named_same(said: Form, gold: Form) -> bool:
    if isinstance(said, Named) and isinstance(gold, Named):
        if (not (said.name and gold.name) or said.name == gold.name) and same(said.value, gold.value):
            return True
        return said.name != "" and gold.name != "" and _equation_same(said, gold)
    if isinstance(said, Relation) or isinstance(gold, Relation):
        return _equation_same(said, gold)
    if isinstance(said, Named):
        return same(said.value, gold)
    assert isinstance(gold, Named)
    return same(said, gold.value)


def _list_same(said: Form, gold: Form) -> bool:
    """Tuples in order with their brackets, sets and lists in any; (3, 7) may be given as 3, 7 in this order."""
    if isinstance(gold, Ordered) and isinstance(said, Ordered):
        return (gold.start, gold.end) == (said.start, said.end) and _in_order(said.parts, gold.parts)
    if isinstance(gold, Ordered) and isinstance(said, Several):
        return (gold.start, gold.end) == ("(", ")") and not said.braces and _in_order(said.parts, gold.parts)
    if isinstance(said, Ordered) and isinstance(gold, Several):
        return (said.start, said.end) == ("(", ")") and not gold.braces and _any_order(said.parts, gold.parts)
    if isinstance(gold, Several) and isinstance(said, Several):
        if len(_distinct(gold.parts)) == len(gold.parts):
            said = Several(tuple(_distinct(said.parts)), said.braces)
        names = [p.name for p in gold.parts if isinstance(p, Named)]
        if len(names) == len(gold.parts) == len(set(names)) and not any(isinstance(p, Named) for p in said.parts):
            return _in_order(said.parts, gold.parts)
        if gold.braces or said.braces:
            return _any_order(_distinct(said.parts), _distinct(gold.parts))
        return _any_order(said.parts, gold.parts)
    if isinstance(gold, Several) and len(gold.parts) == 1:
        return same(said, gold.parts[0])
    return isinstance(said, Several) and len(said.parts) == 1 and same(said.parts[0], gold)


def _in_order(said: Sequence[Form], gold: Sequence[Form]) -> bool:
    return len(said) == len(gold) and all(map(same, said, gold))


def _any_order(said: Sequence[Form], gold: Sequence[Form]) -> bool:
    left = list(said)
    for g in gold:
        found = next((i for i, s in enumerate(left) if same(s, g)), None)
        if found is None:
            return False
        del left[found]
    return not left


def _distinct(forms: Sequence[Form]) -> list[Form]:
    out: list[Form] = []
    for f in forms:
        if not any(same(f, g) for g in out):
            out.append(f)
    return out


def _ratio_same(said: Form, gold: Form) -> bool:
    """Whether two proportions are one; a:b is also the number a/b."""
    parts = [f.parts if isinstance(f, Ratio) else (f,) for f in (said, gold)]
    try:
        values = [[_exact(p) for p in each] for each in parts]
    except Unreadable:
        return False
    first, second = ([*v, library("sympy").Integer(1)] if len(v) == 1 else v for v in values)
    if len(first) != len(second):
        return False
    return all(_equal(first[i] * second[0], second[i] * first[0]) and (first[i] == 0) == (second[i] == 0)
               for i in range(len(first)))


def _exact(form: Form) -> Any:
    """A form's value in sympy. Raises Unreadable for what is no single value."""
    if isinstance(form, Number):
        sympy = library("sympy")
        value = sympy.Rational(form.quantity.value.numerator, form.quantity.value.denominator)
        return value / 100 if form.quantity.percent else value
    if isinstance(form, Expression):
        return form.value
    raise Unreadable("not a single value")


def _value_same(said: Number | Expression, gold: Number | Expression) -> bool:
    if isinstance(said, Number) and isinstance(gold, Number):
        q, g = said.quantity, gold.quantity
        if q.rounded or g.rounded or q.percent != g.percent:
            return numbers.equal(q, g)
        ratio = numbers.converted(q.unit, g.unit)
        return ratio is not None and q.value * ratio == g.value
    ratio = numbers.converted(_unit(said), _unit(gold))
    if ratio is None:
        return False
    sympy = library("sympy")
    first, second = _exact(said) * sympy.Rational(ratio.numerator, ratio.denominator), _exact(gold)
    rounded = any(f.quantity.rounded if isinstance(f, Number) else f.rounded for f in (said, gold))
    if _equal(first, second):
        return True
    return rounded and not getattr(second, "is_integer", False) and _equal(first, second, _TOLERANCE)


def _unit(form: Number | Expression) -> MeasureUnit | None:
    return form.quantity.unit if isinstance(form, Number) else form.unit


_POINTS = ((3, 7), (11, 5), (1, 4), (-2, 3), (-13, 6), (17, 9), (-5, 8), (23, 10))


def _equal(said: Any, gold: Any, tolerance: float = 0.0) -> bool:
    """Whether two sympy values are equal, at fixed points of variables: exactly, to 40 digits, or to a `tolerance`."""
    sympy = library("sympy")
    if isinstance(said, sympy.MatrixBase) or isinstance(gold, sympy.MatrixBase):
        return (isinstance(said, sympy.MatrixBase) and isinstance(gold, sympy.MatrixBase) and said.shape == gold.shape
                and all(_equal(a, b, tolerance) for a, b in zip(said, gold, strict=True)))
    if said == gold:
        return True
    symbols = sorted(said.free_symbols | gold.free_symbols, key=lambda s: s.name)
    if not symbols:
        return _value_at(said, gold, {}, tolerance) is True
    found = [_value_at(said, gold, {s: sympy.Rational(*_POINTS[(i + k) % len(_POINTS)]) + k
                                    for k, s in enumerate(symbols)}, tolerance) for i in range(len(_POINTS))]
    found += [_value_at(said, gold, {s: sympy.Rational(k + 2 + i, 3 + i) for k, s in enumerate(symbols)}, tolerance)
              for i in range(3)]
    if False in found:
        return False
    return sum(x is True for x in found) >= 3 or bool(sympy.simplify(said - gold) == 0)


def _computed(value: Any) -> Any:
    """A value with its whole powers and factorials computed, unless that would fill the memory."""
    sympy = library("sympy")
    small = all(p.exp.is_Rational and abs(p.exp) <= (10 if p.base.has(sympy.Pow) else _POWER)
                for p in value.atoms(sympy.Pow))
    small &= all(f.args[0].is_Integer and f.args[0] <= _POWER for f in value.atoms(sympy.factorial))
    return value.doit() if small else value


def _value_at(said: Any, gold: Any, point: dict[Any, Any], tolerance: float) -> bool | None:
    """Whether two expressions agree at a point; None where they have no value or leave the real numbers."""
    sympy = library("sympy")
    a, b = _computed(said.subs(point)), _computed(gold.subs(point))
    if a.is_Rational and b.is_Rational and not tolerance:
        return bool(a == b)
    try:
        x, y = sympy.N(a, _DIGITS), sympy.N(b, _DIGITS)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if not (x.is_number and y.is_number) or x.has(sympy.zoo, sympy.nan) or y.has(sympy.zoo, sympy.nan):
        return None
    if x.is_infinite or y.is_infinite:
        return bool(x == y)
    if point and not (x.is_real and y.is_real) and not (said.has(sympy.I) or gold.has(sympy.I)):
        return None
    size, apart = max(abs(x), abs(y)), abs(x - y)
    if tolerance:
        return bool(apart <= tolerance * abs(y))
    return bool(apart <= size * sympy.Rational(_AGREE.numerator, _AGREE.denominator) or
                (apart < sympy.Rational(1, 10**45) and (gold.is_zero is not False or said.is_zero is not False)
                 and (y == 0 or x == 0)))


# Relations and intervals


def _sides(form: Form) -> tuple[Any, Any, str]:
    """An equation or a relation of two sides as values, with its sign. Raises Unreadable."""
    if isinstance(form, Named):
        return expression_of(form.sides[0]), _exact(single(form.sides[1])), "="
    if isinstance(form, Relation) and len(form.signs) == 1:
        return _exact(form.sides[0]), _exact(form.sides[1]), form.signs[0]
    raise Unreadable("not a relation of two sides")


def _equation_same(said: Form, gold: Form) -> bool:
    try:
        first, second = _sides(said), _sides(gold)
    except Unreadable:
        return False
    return first[2] == second[2] == "=" and _multiple(first[0] - first[1], second[0] - second[1], signed=False)


def _multiple(said: Any, gold: Any, signed: bool) -> bool:
    """Whether one expression is a constant times the other; with `signed`, a positive constant."""
    sympy = library("sympy")
    symbols = sorted(said.free_symbols | gold.free_symbols, key=lambda s: s.name)
    if not symbols or said.free_symbols != gold.free_symbols:
        return False
    for i in range(len(_POINTS)):
        at = {s: sympy.Rational(*_POINTS[(i + k) % len(_POINTS)]) + k for k, s in enumerate(symbols)}
        a, b = sympy.N(said.subs(at), _DIGITS), sympy.N(gold.subs(at), _DIGITS)
        if a.is_real and b.is_real and a != 0 and b != 0:
            ratio = a / b
            return (not signed or ratio > 0) and _equal(sympy.expand(said), sympy.expand(gold) * sympy.nsimplify(
                ratio, rational=True, tolerance=sympy.Rational(1, 10**30)))
    return False


_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


def _relation_same(said: Relation, gold: Relation) -> bool:
    """The same chain, read from either end, or one relation that is a multiple of the other."""
    for sides, signs in ((said.sides, said.signs),
                         (said.sides[::-1], tuple(_FLIPPED[s] for s in said.signs[::-1]))):
        if signs == gold.signs and _in_order(sides, gold.sides):
            return True
    try:
        a, b, sign = _sides(said)
        c, d, right = _sides(gold)
    except Unreadable:
        return False
    if sign in (">", ">="):
        a, b, sign = b, a, _FLIPPED[sign]
    if right in (">", ">="):
        c, d, right = d, c, _FLIPPED[right]
    return sign == right and _multiple(a - b, c - d, signed=sign in ("<", "<="))


def _pieces(form: Form) -> list[tuple[Any, bool, Any, bool]] | None:
    """A set of real numbers as intervals (start, closed, end, closed) in order; None for what is none."""
    sympy = library("sympy")
    if isinstance(form, Ordered) and len(form.parts) == 2:
        try:
            a, b = map(_exact, form.parts)
        except Unreadable:
            return None
        if a.free_symbols or b.free_symbols or not (a.is_extended_real and b.is_extended_real) or not bool(a <= b):
            return None
        return [(a, form.start == "[", b, form.end == "]")]
    if isinstance(form, Union) and form.sign == "cup":
        each = [_pieces(p) for p in form.parts]
        return None if any(e is None for e in each) else _merged([x for e in each if e is not None for x in e])
    if isinstance(form, Several) and form.braces and form.parts:
        try:
            values = [_exact(p) for p in form.parts]
        except Unreadable:
            return None
        if any(v.free_symbols or not v.is_extended_real for v in values):
            return None
        return _merged([(v, True, v, True) for v in values])
    if isinstance(form, Several) and form.parts and all(isinstance(p, Relation) for p in form.parts):
        each = [_pieces(p) for p in form.parts]
        return None if any(e is None for e in each) else _merged([x for e in each if e is not None for x in e])
    if isinstance(form, Relation):
        return _interval(form, sympy)
    return None


def _interval(form: Relation, sympy: Any) -> list[tuple[Any, bool, Any, bool]] | None:
    sides, signs = form.sides, form.signs
    if signs[0] in (">", ">="):
        sides, signs = sides[::-1], tuple(_FLIPPED[s] for s in signs[::-1])
    names = [i for i, s in enumerate(sides) if isinstance(s, Expression) and is_name(s.source)]
    if len(names) != 1 or len(sides) > 3 or (len(sides) == 3 and names != [1]):
        return None
    try:
        values = [_exact(s) for i, s in enumerate(sides) if i != names[0]]
    except Unreadable:
        return None
    if any(v.free_symbols or not v.is_extended_real for v in values):
        return None
    if signs == ("!=",):
        return [(-sympy.oo, False, values[0], False), (values[0], False, sympy.oo, False)]
    if not set(signs) <= {"<", "<="}:
        return None
    if len(sides) == 3:
        return [(values[0], signs[0] == "<=", values[1], signs[1] == "<=")]
    if names == [0]:
        return [(-sympy.oo, False, values[0], signs[0] == "<=")]
    return [(values[0], signs[0] == "<=", sympy.oo, False)]


def _merged(pieces: list[tuple[Any, bool, Any, bool]]) -> list[tuple[Any, bool, Any, bool]]:
    """Intervals in order, those that touch as one."""
    out: list[tuple[Any, bool, Any, bool]] = []
    for a, closed, b, shut in sorted(pieces, key=lambda p: (float(p[0]), not p[1])):
        if out:
            c, first, d, last = out[-1]
            if bool(a < d) or (a == d and (closed or last)):
                out[-1] = (c, first, d, last) if bool(b < d) else (c, first, b, shut or (b == d and last))
                continue
        out.append((a, closed, b, shut))
    return out


def _pieces_same(said: list[tuple[Any, bool, Any, bool]], gold: list[tuple[Any, bool, Any, bool]]) -> bool:
    return len(said) == len(gold) and all(
        a[1] == b[1] and a[3] == b[3] and _equal(a[0], b[0], _near(b[0])) and _equal(a[2], b[2], _near(b[2]))
        for a, b in zip(said, gold, strict=True))


def _near(gold: Any) -> float:
    return 0.0 if gold.is_integer or gold.is_infinite else _TOLERANCE
