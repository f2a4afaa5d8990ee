r"""Right and wrong answers to forty kinds of gold, by rewriting: `python tests/marks.py [SEED]` marks all of them.

A right form changes the order, the fraction, the decimal, the root, the unit, the spelling; a wrong form changes one
number, sign, unit or member. Each is given in a box, after ####, in a sentence, in LaTeX and plain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from isocost.tasks.verify import verifiers
from isocost.types import Message, Problem


@dataclass(frozen=True)
class Gold:
    """One answer: its spellings, each a gold; its right and wrong forms; and whether `numeric` reads it."""

    kind: str
    golds: list[str]
    right: list[str]
    wrong: list[str]
    numeric: bool = False
    frames: str = "all"       # "words": no frame that ends in a number's place


@dataclass(frozen=True)
class Pair:
    """A gold, a completion, and what the verifier owes it: 1, 0, or None where it must not judge."""

    verifier: str
    kind: str
    answer: str
    completion: str
    right: int | None


def _decimal(x: Fraction, digits: int = 8) -> str:
    return f"{float(x):.{digits}f}".rstrip("0").rstrip(".")


def _tex(x: Fraction) -> str:
    sign = "-" if x < 0 else ""
    return str(x) if x.denominator == 1 else rf"{sign}\frac{{{abs(x.numerator)}}}{{{x.denominator}}}"


def _grouped(n: int) -> list[str]:
    return [f"{n:,}", f"{n:,}".replace(",", "{,}"), f"{n:,}".replace(",", r",\!"), f"{n:,}".replace(",", r"\,"),
            f"{n:,}".replace(",", " ")]


def golds(rng: Random) -> list[Gold]:
    """Forty golds of the numbers that `rng` draws."""
    a, b, c = rng.sample(range(2, 10), 3)
    k = rng.randint(11, 99)
    big = rng.randint(1_000, 9_999_999)
    p, q = rng.choice([(3, 8), (7, 4), (5, 16), (9, 20), (11, 25)])          # decimals that end
    r, s = rng.choice([(1, 3), (5, 7), (2, 11), (8, 9), (13, 6)])            # and those that do not
    half, odd = Fraction(p, q), Fraction(r, s)
    free = rng.choice([2, 3, 5, 6, 7, 10, 11])
    low, high = sorted(rng.sample(range(-9, 10), 2))
    x, y, z = rng.sample(range(-9, 20), 3)
    return [
        Gold("whole", [str(k), f"${k}$", rf"\boxed{{{k}}}"],
             [str(k), f"{k}.0", f"+{k}", f"0{k}", rf"\text{{{k}}}", f"x = {k}", f"{k}.", f"{2 * k}/2", f"({k})",
              rf"\frac{{{3 * k}}}{{3}}"],
             [str(k + 1), f"-{k}", f"{k}.5", f"{k}0", f"{k}/2", f"{k}, {k + 1}", f"({k}, {a})", f"{k}.0001", ""], True),
        Gold("negative", [f"-{k}", f"$-{k}$", f"−{k}"],
             [f"-{k}", f"−{k}", f"-{k}.0", f"(-{k})", f"-({k})", f"x=-{k}", rf"-\frac{{{2 * k}}}{{2}}"],
             [str(k), f"-{k + 1}", f"--{k}", f"-{k}.1", f"{a}-{k}"], True),
        Gold("large", [str(big), *_grouped(big)[:2]], [str(big), *_grouped(big), f"{big}.00"],
             [str(big + 1), f"{big + 1:,}", str(big // 1000), f"{big // 1000},{(big + 1) % 1000:03}",
              f"-{big:,}"], True),
        Gold("decimal", [_decimal(half), f"${_decimal(half)}$"],
             [_decimal(half), f"{p}/{q}", _tex(half), rf"\dfrac{{{p}}}{{{q}}}", f"{_decimal(half)}0",
              rf"\tfrac{{{2 * p}}}{{{2 * q}}}",
              f"0{_decimal(half)}"],
             [_decimal(half + Fraction(1, 100)), f"-{_decimal(half)}", f"{q}/{p}", f"{p}", _tex(half + 1),
              f"{_decimal(half)}1"], True),
        Gold("fraction", [_tex(odd), f"{r}/{s}", rf"\dfrac{{{r}}}{{{s}}}", f"${r}/{s}$"],
             [_tex(odd), f"{r}/{s}", f"{2 * r}/{2 * s}", rf"\frac{{{3 * r}}}{{{3 * s}}}", _decimal(odd),
              rf"\tfrac{{{r}}}{{{s}}}",
              *([rf"\frac{r}{s}"] if r < 10 and s < 10 else []), rf"\left(\frac{{{r}}}{{{s}}}\right)", f"x = {r}/{s}"],
             [f"{r + 1}/{s}", f"{r}/{s + 1}", f"-{r}/{s}",
              f"{s}/{r}", _decimal(odd, 3), _decimal(odd, 2), str(r), str(s),
              rf"-\frac{{{r}}}{{{s}}}"], True),
        Gold("mixed number", [rf"{a}\frac{{{r}}}{{{s}}}", f"{a} {r}/{s}"],
             [rf"{a}\frac{{{r}}}{{{s}}}", f"{a} {r}/{s}", _tex(a + odd), f"{a * s + r}/{s}", _decimal(a + odd)],
             [rf"{a + 1}\frac{{{r}}}{{{s}}}", f"{a} {r + 1}/{s}", f"{a}",
              f"{r}/{s}", _decimal(a + odd, 2), _tex(a * odd)], True),
        Gold("per cent", [rf"{k}\%", f"{k}%", rf"${k}\%$", f"{k} percent"],
             [rf"{k}\%", f"{k}%", f"{k} percent", f"{k} per cent", str(k), _decimal(Fraction(k, 100)), f"{k}/100",
              f"{k}.0%"],
             [rf"{k + 1}\%", f"-{k}%", _decimal(Fraction(k, 1000)), f"{k}.5%", _decimal(Fraction(k + 1, 100)),
              f"{k * 100}%"], True),
        Gold("share", [_decimal(Fraction(k, 100)), f"{k}/100"],
             [rf"{k}\%", f"{k}%", _decimal(Fraction(k, 100)), _tex(Fraction(k, 100))],
             [rf"{k + 1}\%", f"{_decimal(Fraction(k, 100))}%", f"{k}", f"-{k}%"], True),
        Gold("scientific", [rf"{a}.{b}\times 10^{{-{k}}}", rf"${a}.{b} \cdot 10^{{-{k}}}$", f"{a}.{b}e-{k}"],
             [rf"{a}.{b}\times 10^{{-{k}}}", rf"{a}.{b}\cdot10^{{-{k}}}", f"{a}.{b}e-{k}", f"{a}.{b} x 10^-{k}",
              f"{a}.{b} × 10^{{-{k}}}"],
             [rf"{a}.{b}\times 10^{{-{k + 1}}}", rf"{a}.{b}\times 10^{{{k}}}", f"{b}.{a}e-{k}", "0",
              f"-{a}.{b}e-{k}", f"{a}.{b}"], True),
        Gold("tiny", [rf"10^{{-{k}}}", rf"$10^{{-{k}}}$"], [rf"10^{{-{k}}}", f"1e-{k}", rf"1\cdot 10^{{-{k}}}"],
             [rf"2\cdot 10^{{-{k}}}", rf"10^{{-{k + 1}}}", "0", rf"-10^{{-{k}}}"], True),
        Gold("length", [rf"{k}\text{{ cm}}", f"{k} cm", rf"${k}\,\mathrm{{cm}}$"],
             [rf"{k}\text{{ cm}}", f"{k} cm", f"{k}", f"{k} centimeters", rf"{k}\mathrm{{cm}}", rf"\text{{{k} cm}}",
              f"{k * 10} mm",
              rf"{k * 10}\text{{ mm}}"],
             [rf"{k + 1}\text{{ cm}}", f"{k} m", rf"{k}\text{{ cm}}^2", f"{k} kg", f"-{k} cm",
              rf"{k}\text{{ mm}}"], True),
        Gold("area", [rf"{k}\text{{ cm}}^2", f"{k} cm^2", rf"${k}\mbox{{ cm}}^2$", f"{k} square centimeters"],
             [rf"{k}\text{{ cm}}^2", f"{k} cm²", str(k), rf"{k}\,\text{{cm}}^{{2}}", f"{k} cm^2",
              f"{k} square centimeters"],
             [rf"{k + 1}\text{{ cm}}^2", rf"{k}\text{{ cm}}^3", rf"{k}\text{{ cm}}", rf"{k}\text{{ m}}^2",
              f"-{k}"], True),
        Gold("speed", [f"{k} km/h", rf"{k}\text{{ km/h}}"], [f"{k} km/h", rf"{k}\text{{ km/h}}", str(k),
            f"{k} kilometers per hour", f"{k} kph"],
             [f"{k + 1} km/h", f"{k} m/s", f"{k} km", f"{k} miles per hour", f"{k} mph"], True),
        Gold("money", [rf"\${k}", f"${k}", f"{k} dollars"], [rf"\${k}", f"${k}.00", f"{k} dollars", str(k),
            rf"\${k}.00", f"{k * 100} cents"],
             [rf"\${k + 1}", f"{k} cents", f"{k} euros", f"-${k}", f"${k}.50"], True),
        Gold("things", [f"{k} apples", rf"{k}\text{{ apples}}"], [f"{k} apples", str(k), rf"{k}\text{{ apples}}",
            f"{k} red apples"],
             [f"{k + 1} apples", f"{k} pears", f"-{k}", f"{k}, {a}"], True),
        Gold("angle", [rf"{k}^\circ", f"{k}°", rf"${k}^{{\circ}}$", f"{k} degrees"],
             [rf"{k}^\circ", f"{k}°", f"{k} degrees", str(k), rf"{k}^{{\circ}}", rf"{k}\text{{ degrees}}"],
             [rf"{k + 1}^\circ", rf"-{k}^\circ", f"{k} radians", "0", rf"{k}\pi"], True),
        Gold("root", [rf"{a}\sqrt{{{free}}}", rf"${a}\sqrt{{{free}}}$", f"{a}*sqrt({free})"],
             [rf"{a}\sqrt{{{free}}}", f"{a}*sqrt({free})", rf"\sqrt{{{a * a * free}}}", f"{a}√{free}",
              rf"{a}\cdot\sqrt{{{free}}}",
              rf"\sqrt{{{free}}}\cdot {a}", rf"{a}({free})^{{1/2}}", f"{a * free ** .5:.10f}",
              rf"\frac{{{a * free}}}{{\sqrt{{{free}}}}}",
              f"sqrt({a * a * free})", *([rf"{a}\sqrt{free}"] if free < 10 else [])],
             [rf"{a + 1}\sqrt{{{free}}}", rf"{a}\sqrt{{{free + 1}}}", rf"-{a}\sqrt{{{free}}}", str(free), str(a),
              rf"\sqrt{{{a * free}}}",
              f"{a * free ** .5:.2f}", rf"{a}\sqrt[3]{{{free}}}", rf"{a}+\sqrt{{{free}}}"]),
        Gold("sum of root", [rf"{a}+\sqrt{{{free}}}", f"{a} + sqrt({free})"],
             [rf"{a}+\sqrt{{{free}}}", rf"\sqrt{{{free}}}+{a}", f"{a} + sqrt({free})", f"{a + free ** .5:.10f}",
              rf"{a} + {free}^{{1/2}}",
              rf"\frac{{{2 * a}+2\sqrt{{{free}}}}}{{2}}"],
             [rf"{a}-\sqrt{{{free}}}", rf"{a + 1}+\sqrt{{{free}}}", rf"{a}\sqrt{{{free}}}", str(free),
              rf"-{a}+\sqrt{{{free}}}"]),
        Gold("pi", [rf"{a}\pi", rf"${a}\pi$", f"{a}*pi"], [rf"{a}\pi", f"{a}π", f"{a}*pi", rf"\pi\cdot{a}",
            f"{a} pi", rf"\frac{{{2 * a}\pi}}{{2}}",
             f"{a * 3.141592653589793:.9f}"],
             [str(a), rf"{a + 1}\pi", rf"-{a}\pi", rf"{a}\pi^2", rf"\frac{{\pi}}{{{a}}}", f"{a * 3.14:.2f}",
              rf"{a}+\pi"]),
        Gold("part of pi", [rf"\frac{{\pi}}{{{a}}}", f"pi/{a}", rf"\dfrac{{\pi}}{{{a}}}"],
             [rf"\frac{{\pi}}{{{a}}}", f"pi/{a}", f"π/{a}", rf"\frac{{1}}{{{a}}}\pi", rf"\frac{{2\pi}}{{{2 * a}}}"],
             [rf"\frac{{\pi}}{{{a + 1}}}", str(a), rf"-\frac{{\pi}}{{{a}}}", rf"{a}\pi", rf"\frac{{{a}}}{{\pi}}"]),
        Gold("area with pi", [rf"{a}\pi\text{{ cm}}^2", rf"${a}\pi \mathrm{{ cm}}^2$"],
             [rf"{a}\pi\text{{ cm}}^2", rf"{a}\pi", rf"{a}\pi\ \mathrm{{cm}}^{{2}}", rf"\pi {a}"],
             [rf"{a + 1}\pi\text{{ cm}}^2", rf"{a}\pi\text{{ m}}^2", rf"{a}\text{{ cm}}^2", rf"{a}\pi\text{{ cm}}^3"]),
        Gold("power", [rf"{a}^{{{b + 9}}}", f"{a}^{b + 9}"], [rf"{a}^{{{b + 9}}}", str(a ** (b + 9)), f"{a}^{b + 9}",
            f"{a}**{b + 9}",
             rf"{a}\cdot {a}^{{{b + 8}}}"], [rf"{a}^{{{b + 8}}}", str(b + 9), str(a ** (b + 9) + 1),
             rf"{a + 1}^{{{b + 9}}}", rf"-{a}^{{{b + 9}}}"]),
        Gold("e", [rf"e^{{{a}}}", f"e^{a}"], [rf"e^{{{a}}}", f"e^{a}", rf"\mathrm{{e}}^{a}", f"exp({a})",
            rf"\exp({a})"],
             [rf"e^{{{a + 1}}}", str(a), rf"e^{{-{a}}}", rf"2^{{{a}}}", "e"]),
        Gold("complex", [f"{a}-{b}i", f"${a} - {b}i$"], [f"{a}-{b}i", f"-{b}i+{a}", f"{a} - {b}i",
            rf"{a}-{b}\mathrm{{i}}", rf"\frac{{{2 * a}-{2 * b}i}}{{2}}"],
             [f"{a}+{b}i", f"{a}-{b + 1}i", str(a), f"{b}-{a}i", f"-{a}-{b}i", f"{a}-{b}"]),
        Gold("repeating decimal", [rf"0.\overline{{{a}}}"],
             [_tex(Fraction(a, 9)), rf"0.\overline{{{a}}}", f"0.{str(a) * 9}"],
             [f"0.{a}", rf"0.\overline{{{a + 1}}}", _tex(Fraction(a, 10)), rf"-0.\overline{{{a}}}"]),
        Gold("polynomial", [f"x^2+{a}x-{b}", rf"$x^2 + {a}x - {b}$"],
             [f"x^2+{a}x-{b}", f"{a}x + x^2 - {b}", f"-{b}+{a}x+x^2", f"x(x+{a})-{b}", f"x^{{2}}+{a}x-{b}",
              rf"x\cdot x+{a}\cdot x-{b}", f"x**2+{a}*x-{b}"],
             [f"x^2-{a}x-{b}", f"x^2+{a}x+{b}", f"x^3+{a}x-{b}", f"y^2+{a}y-{b}", f"x^2+{a}x", str(b)]),
        Gold("symbolic fraction", [r"\frac{p+q}{" + str(a) + "}", f"(p+q)/{a}"],
             [rf"\frac{{p+q}}{{{a}}}", f"(p+q)/{a}", rf"\frac{{p}}{{{a}}}+\frac{{q}}{{{a}}}",
              rf"\frac{{q+p}}{{{a}}}", rf"\frac{{1}}{{{a}}}(p+q)"],
             [rf"\frac{{p-q}}{{{a}}}", rf"\frac{{p+q}}{{{a + 1}}}", f"p+q/{a}", rf"\frac{{{a}}}{{p+q}}", "p+q"]),
        Gold("named", [f"x={k}", f"$x = {k}$"], [f"x={k}", str(k), f"x = {k}.0", f"{k} = x"],
             [f"x={k + 1}", f"x=-{k}", "x", str(k + 1), f"2x={k}"], True),
        Gold("whose name", [rf"\theta={k}, x={a}"], [rf"x={a}, \theta={k}"], [rf"\theta={a}, x={k}", f"x={a}, y={k}"]),
        Gold("line", [f"y = {a}x + {b}", f"y={a}x+{b}"], [f"y={a}x+{b}", f"y = {b} + {a}x", f"y-{a}x={b}",
            f"{a}x + {b} = y", f"2y={2 * a}x+{2 * b}"],
             [f"y={a}x-{b}", f"y={a + 1}x+{b}", str(b), f"x={a}y+{b}", f"y={a}x"]),
        Gold("equation", [f"{a}x-y+{k}=0", f"${a}x - y + {k} = 0$"],
             [f"{a}x-y+{k}=0", f"-{a}x+y-{k}=0", f"y={a}x+{k}", f"{2 * a}x-2y+{2 * k}=0", f"{a}x+{k}=y"],
             [f"{a}x+y+{k}=0", f"{a + 1}x-y+{k}=0", f"{a}x-y-{k}=0", "0", f"{a}x-y={k}"]),
        Gold("pair", [f"({x}, {y})", rf"\left({x},{y}\right)", f"$({x},{y})$"],
             [f"({x},{y})", rf"\left({x}, {y}\right)", f"({x}.0, {y})", f"(x,y) = ({x},{y})", rf"( {x} ,\, {y} )",
              rf"\big({x},{y}\big)"],
             [f"({y},{x})", f"({x + 1},{y})", f"({x},{y - 1})", str(y), f"({x},{y},{z})", f"[{x},{y}]",
              f"({-x or 20},{y})", rf"\{{{x},{y}\}}"]),
        Gold("triple", [f"({x}, {odd}, {z})", rf"\left({x}, {_tex(odd)}, {z}\right)"],
             [f"({x},{odd},{z})", rf"({x}, {_tex(odd)}, {z})", f"({x}, {_decimal(odd)}, {z})"],
             [f"({z},{odd},{x})", f"({x},{odd})", f"({x},{odd + 1},{z})", f"({x},{odd},{z + 1})"]),
        Gold("interval", [f"[{low}, {high})", rf"\left[{low},{high}\right)"],
             [f"[{low},{high})", rf"\left[{low}, {high}\right)", rf"{low} \le x < {high}", rf"x \in [{low},{high})",
              f"{low} <= x < {high}",
              f"{high} > x >= {low}"],
             [f"({low},{high})", f"[{low},{high}]", f"[{low},{high + 1})", str(high), f"[{low - 1},{high})",
              f"({low},{high}]", rf"{low} < x < {high}"]),
        Gold("ray", [rf"(-\infty, {k}]", rf"\left(-\infty,{k}\right]"], [rf"(-\infty,{k}]", rf"x \le {k}",
            f"x <= {k}", f"(-∞, {k}]", f"(-infinity, {k}]", rf"{k} \ge x"],
             [rf"(-\infty,{k})", rf"(\infty,{k}]", rf"(-\infty,{k + 1}]", str(k), rf"x \ge {k}", rf"[{k},\infty)",
              rf"x < {k}"]),
        Gold("union", [rf"({low}, {high}) \cup ({high + a}, {high + k})",
            rf"$({low},{high})\cup({high + a},{high + k})$"],
             [rf"({high + a},{high + k})\cup({low},{high})", f"({low},{high}) U ({high + a},{high + k})",
              f"({low}, {high}) ∪ ({high + a}, {high + k})"],
             [rf"({low},{high + k})", rf"({low},{high})\cap({high + a},{high + k})",
              rf"[{low},{high})\cup({high + a},{high + k})", rf"({low},{high})",
              rf"({low},{high})\cup({high + a},{high + k + 1})"]),
        Gold("inequality", [f"x<{k}", rf"x < {k}", f"$x<{k}$"], [f"x<{k}", f"{k}>x", rf"(-\infty,{k})",
            rf"x \lt {k}", f"2x<{2 * k}", f"-x>-{k}"],
             [f"x>{k}", rf"x\le {k}", f"x<{k + 1}", str(k), f"x<-{k}", f"x={k}"]),
        Gold("set", [rf"\{{{x}, {y}, {z}\}}", rf"$\{{{x},{y},{z}\}}$"],
             [rf"\{{{z},{x},{y}\}}", rf"\{{ {y}, {z}, {x} \}}", f"{x}, {y}, {z}", rf"\left\{{{x},{y},{z}\right\}}",
              f"{z}, {y} and {x}"],
             [rf"\{{{x},{y}\}}", rf"\{{{x},{y},{z + 1}\}}", str(z), rf"\{{{x},{y},{z},{max(x, y, z) + 1}\}}",
              f"[{x},{y},{z}]"]),
        Gold("list", [f"{x}, {y}, {z}", f"{x},{y},{z}", rf"{x}, {y}, \text{{ and }} {z}", f"${x}$, ${y}$ and ${z}$"],
             [f"{y},{z},{x}", f"{x}, {y}, {z}", rf"{z}, {y} \text{{ and }} {x}", f"{x}; {z}; {y}",
              rf"\{{{x},{y},{z}\}}", f"x={x}, x={y}, x={z}"],
             [f"{x},{y}", f"{x},{y},{z + 1}", str(z), f"{x},{y},{z},{max(x, y, z) + 1}", f"{x + y + z}"]),
        Gold("roots", [rf"\pm {k}", rf"$\pm{k}$", f"{k}, -{k}"], [rf"\pm {k}", f"{k},-{k}", f"-{k} and {k}", f"±{k}",
            rf"x=\pm {k}", f"x = {k} or x = -{k}"],
             [str(k), f"-{k}", rf"\pm {k + 1}", f"{k},{k}", f"{k},-{k + 1}"]),
        Gold("two roots", [rf"{a}\pm\sqrt{{{free}}}", rf"{a}+\sqrt{{{free}}}, {a}-\sqrt{{{free}}}"],
             [rf"{a}\pm\sqrt{{{free}}}", rf"{a}-\sqrt{{{free}}}, {a}+\sqrt{{{free}}}",
              rf"\frac{{{2 * a}\pm 2\sqrt{{{free}}}}}{{2}}"],
             [rf"{a}+\sqrt{{{free}}}", rf"{a + 1}\pm\sqrt{{{free}}}", rf"{a}\pm\sqrt{{{free + 1}}}",
              rf"-{a}\pm\sqrt{{{free}}}", str(free)]),
        Gold("ratio", [f"{r}:{s}", rf"{r} : {s}"], [f"{r}:{s}", f"{2 * r}:{2 * s}", f"{r} : {s}",
            f"10:{10 * s // r}"[: 99 * (10 * s % r == 0)] or f"{r}:{s}"],
             [f"{s}:{r}", f"{r + 1}:{s}", str(s), f"{r}:{s}:1"]),
        Gold("base", [f"{k}_{{{8 if '8' not in str(k) and '9' not in str(k) else 12}}}"],
             [f"{k}_{8 if '8' not in str(k) and '9' not in str(k) else '{12}'}",
              f"{k}_{{{8 if '8' not in str(k) and '9' not in str(k) else 12}}}"],
             [f"{k + 1}_{{11}}", f"{k}_{{11}}", "8", str(k + 1)]),
        Gold("time", [f"{a}:0{b}", f"{a}:{k % 50 + 10}"][:1], [f"{a}:0{b}"], [f"{a + 1}:0{b}", f"{a}:0{c}", str(b),
            f"{b}:0{a}"]),
        Gold("column", [rf"\begin{{pmatrix}} {x} \\ {y} \end{{pmatrix}}",
            rf"$\begin{{pmatrix}}{x}\\{y}\end{{pmatrix}}$"],
             [rf"\begin{{pmatrix}}{x}\\{y}\end{{pmatrix}}", rf"\begin{{bmatrix}} {x} \\ {y} \end{{bmatrix}}",
              rf"\begin{{pmatrix}} {x}.0 \\ {y} \end{{pmatrix}}"],
             [rf"\begin{{pmatrix}}{y}\\{x}\end{{pmatrix}}", rf"\begin{{pmatrix}}{x + 1}\\{y}\end{{pmatrix}}", str(y),
              rf"\begin{{pmatrix}}{x} & {y}\end{{pmatrix}}"]),
        Gold("word", [r"\text{Evelyn}", "Evelyn"], ["Evelyn", r"\text{Evelyn}", r"\textbf{Evelyn}", "evelyn"],
            ["Bob", r"\text{Bob}", "E", str(k), "Evelyn and Bob"]),
        Gold("choice", [r"\text{C}", "C", r"\text{(C)}"], ["C", r"\text{C}", r"\text{(C)}", "(C)", r"\mathrm{C}"],
            ["D", r"\text{D}", "(A)", "CD"]),
    ]


_FRAMES: tuple[Callable[[str], str], ...] = (
    lambda f: rf"\boxed{{{f}}}", lambda f: rf"So the answer is $\boxed{{{f}}}$.", lambda f: rf"\[ \boxed{{ {f} }} \]",
    lambda f: rf"First 17, then 4. \fbox{{{f}}}", lambda f: rf"We get \boxed{{{f}}}, that is, \boxed{{{f}}}.",
    lambda f: f"Add 3 to 4.\n#### {f}",
)
_TEX_FRAMES = (
    *_FRAMES, lambda f: f"The answer is ${f}$.", lambda f: f"I add 3. Final Answer: ${f}$",
    lambda f: f"Hence ${f}$.",
)
_CUT: tuple[Callable[[str], str], ...] = (
    lambda f: rf"First \boxed{{{f}}}. No: \boxed{{1", lambda f: rf"It is \boxed{{{f}",
    lambda f: rf"\boxed{{{f}}} or \boxed{{}}",
)


def pairs(seed: int) -> Iterator[Pair]:
    """Every gold with its forms, in frames drawn by `seed`, for both verifiers."""
    rng = Random(seed)
    for gold in golds(rng):
        for verifier in ("math", "numeric") if gold.numeric else ("math",):
            for answer in gold.golds:
                for forms, right in ((gold.right, 1), (gold.wrong, 0)):
                    for form in forms:
                        frame = rng.choice(_FRAMES if "$" in form else _TEX_FRAMES)
                        yield Pair(verifier, gold.kind, answer, frame(form), right)
                yield Pair(verifier, gold.kind, answer, rng.choice(_CUT)(gold.right[0]), 0)
        if not gold.numeric:
            for answer in gold.golds:
                yield Pair("numeric", gold.kind, answer, rf"\boxed{{{gold.right[0]}}}", None)


def mark(pair: Pair) -> float | None:
    """What the pair's verifier gives; None where it refuses the gold."""
    try:
        problem = Problem("p", (Message("user", "?"),), pair.answer)
        return verifiers.BUILT_IN[pair.verifier].mark(pair.completion, problem)
    except ValueError:
        return None


def wrong_marks(seed: int) -> tuple[int, list[tuple[Pair, float | None]]]:
    """How many pairs a seed has, and those whose mark is not what they are owed."""
    marked = [(pair, mark(pair)) for pair in pairs(seed)]
    return len(marked), [(pair, got) for pair, got in marked if got != pair.right]


if __name__ == "__main__":
    number, wrong = wrong_marks(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for pair, got in wrong:
        print(f"{pair.verifier} {pair.kind}: gold {pair.answer!r}, {pair.completion!r} earns {got}, not {pair.right}")
    print(f"{number:,} pairs, {len(wrong)} wrong marks")
