r"""Where the answer stands in a text, and one spelling of it without what LaTeX and Markdown add."""

from __future__ import annotations

import re

_BRACE = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{|\\[{}]|[{}]")


def boxed(text: str) -> list[str]:
    r"""The contents of every finished \boxed{...}, \fbox{...} and \framebox{...}, braces balanced."""
    return [text[start:end] for _, start, end in _spans(text)[0]]


def innermost(text: str) -> list[str] | None:
    r"""The contents of the boxes that hold no other box; None if the last box that begins does not end.

    A model may nest thousands of \boxed{, whose contents together exceed memory: these do not overlap. A text that
    ends inside its last box was cut; what an earlier box holds is not its answer.
    """
    spans, cut = _spans(text, inner=True)
    return None if cut else [text[start:end] for _, start, end in spans]


def _spans(text: str, *, inner: bool = False) -> tuple[list[tuple[int, int, int]], bool]:
    """(start of the command, of the content, its end) of each box, in order; and whether the last one has no end."""
    found: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int, int]] = []     # of each open brace: its start, a box's content or -1, boxes before it
    last = -1
    for brace in _BRACE.finditer(text):
        if brace[0] == "}":
            if opened:
                command, start, before = opened.pop()
                if start >= 0 and (not inner or len(found) == before):
                    found.append((command, start, brace.start()))
        elif brace[0] not in (r"\{", r"\}"):
            start = brace.end() if len(brace[0]) > 1 else -1
            last = max(last, start)
            opened.append((brace.start(), start, len(found)))
    return sorted(found), any(start == last >= 0 for _, start, _ in opened)


_DROPPED = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|nolimits|limits)(?![A-Za-z])")
_SPACES = re.compile(
    "(?<!\\\\)\\\\[,;: ]|\\\\q?quad(?![A-Za-z])|(?<!\\\\)~|[\u00a0\u2009\u202f]|\\\\hspace\\{[^{}]*\\}")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "÷": "/", "⁄": "/", "∕": "/",
    "π": r"\pi ", "θ": r"\theta ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "º": "°",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
}
_SYMBOL = re.compile("|".join(_SYMBOLS))
_SPELLINGS = [(re.compile(a), b) for a, b in (
    (r"(?<=\d)(?:,\s*\\!\s*|\{,\})(?=\d{3}(?!\d))", ""), (r"\\!", ""), (r"\{,\}", ","),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\frac\s*(\d|[A-Za-z]|\\pi(?![A-Za-z]))", r"\\frac{\1}"),
    (r"\\frac\s*(\{[^{}]*\})\s*(\d|[A-Za-z]|\\pi(?![A-Za-z]))", r"\\frac\1{\2}"),
    (r"\\frac\s*(\{[^{}]*\})\s+(?=\{)", r"\\frac\1"),
    (r"√\s*(\d+(?:\.\d+)?|[A-Za-z])", r"\\sqrt{\1}"), (r"√", r"\\sqrt "),
    (r"\\sqrt\s*(\d|[A-Za-z]|\\pi(?![A-Za-z]))", r"\\sqrt{\1}"),
    (r"\\leq(?:slant)?(?![A-Za-z])|\\leqq(?![A-Za-z])|<=", r"\\le "), (r"\\geq(?:slant)?(?![A-Za-z])|>=", r"\\ge "),
    (r"\\neq(?![A-Za-z])|!=", r"\\ne "), (r"\\lt(?![A-Za-z])", "<"), (r"\\gt(?![A-Za-z])", ">"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\(?:degree|textdegree)(?![A-Za-z])", "°"),
    (r"\\%", "%"), (r"\\lbrace(?![A-Za-z])", r"\\{"), (r"\\rbrace(?![A-Za-z])", r"\\}"),
    (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
)]
_ENDS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
TEXT = re.compile(          # a command around words, with the words
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mbox|operatorname|rm)\s*\{([^{}]*)\}")
BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")


def plain(text: str) -> str:
    r"""The text in one spelling: full \frac{}{} and \sqrt{}, LaTeX names for Unicode signs, no spacing, no \left."""
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z{}%])", r"\\", text)        # escaped once too often
    for pattern, new in _SPELLINGS[:3]:
        text = pattern.sub(new, text)
    text = _SPACES.sub(" ", _DROPPED.sub("", text))
    text = _SYMBOL.sub(lambda m: _SYMBOLS[m[0]], text)
    text = re.sub("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^{" + m[0].translate(_RAISED) + "}", text)
    for pattern, new in _SPELLINGS[3:]:
        text = pattern.sub(new, text)
    return text


def bare(text: str) -> str:
    """The text without space, math delimiters, emphasis and a full stop around it."""
    while True:
        text, before = text.strip().removesuffix(r"\\").rstrip(".;,:").strip(), text
        for start, end in _ENDS:
            inner = text[len(start) : len(text) - len(end)]
            whole = len(text) > len(start) + len(end) and text.startswith(start) and text.endswith(end)
            if whole and start not in inner and end not in inner:
                text = inner
        if text == before:
            return text


_PHRASE = re.compile(
    r"\banswer\b(?:[^\n.:=$\\]{0,60}?\b(?:is|are)\b\s*:?|[\s*]*[:=])", re.IGNORECASE)
_SEGMENT = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$((?:\\\$|[^$\n])+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_BETWEEN = re.compile(r"(?:[\s,;$]|\\[()\[\],;: ]|\\q?quad\b|\\text\s*\{|\}|\band\b|\bor\b)*")
_MOST = 20_000            # characters of the end of a text in which an answer without a box is looked for


def final(text: str) -> list[str]:
    r"""What a text gives as its answer: one string, or several that must all be right; none if it was cut in
    a box or a box is empty.

    In this order: its boxes (those with only "and", "or" or a comma between them are one list); what follows the last
    "####"; the sentence after the last "answer is" or "answer:"; the last expression in $...$, \(...\) or \[...\], or
    what follows it if that has a number; the last line.
    """
    spans, cut = _spans(text, inner=True)
    if cut:
        return []
    if any(not text[inside:end].strip() for _, inside, end in spans):
        return []
    if spans:
        return _lists(text, [(start, end + 1, text[inside:end]) for start, inside, end in spans])
    text = text[-_MOST:].strip()
    if not text:
        return []
    _, mark, tail = text.rpartition("####")
    if mark:
        return [bare(tail)]
    for found in reversed(list(_PHRASE.finditer(text))):
        if rest := text[found.end() :].strip("* \t\n"):
            text = _sentence(rest)
            break
    segments = [(m.start(), m.end(), inside) for m in _SEGMENT.finditer(text)        # "$5 and then $7" holds none
                if not ((inside := next(filter(None, m.groups())))[-1:].isspace() and text[m.end() :][:1].isdigit())]
    if segments:
        after = text[segments[-1][1] :]
        return [after] if re.search(r"\d", after) else _lists(text, segments)[-1:]
    return [bare(text)] if len(text.splitlines()) < 2 else [bare(text.splitlines()[-1])]


def _lists(text: str, pieces: list[tuple[int, int, str]]) -> list[str]:
    """Each piece (start, end, content) of a text; those with only a connective between them as one list."""
    out: list[list[str]] = []
    for i, (start, _, content) in enumerate(pieces):
        if i and _BETWEEN.fullmatch(text, pieces[i - 1][1], start):
            out[-1].append(content)
        else:
            out.append([content])
    return [", ".join(each) for each in out]


def _sentence(rest: str) -> str:
    """The first sentence of a text, or the first expression in math delimiters if it begins with one."""
    line = rest.splitlines()[0]
    if (m := _SEGMENT.match(rest)) and not m.end() > len(rest):
        line = rest[: m.end()] + rest[m.end() :].split("\n")[0]
    return bare(bare(re.split(r"\.(?=\s)", line)[0]).strip("*"))
