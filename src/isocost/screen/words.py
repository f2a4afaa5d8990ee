"""Counts in sentences, rows in a table, and other people's text made fit to be shown."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# How a cell begins that spreadsheets calculate (OWASP, "CSV Injection"); the last four are full-width = + - @.
FORMULAS = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Characters that a terminal or a browser obeys instead of showing them: controls, and marks that turn the direction.
_PICTURES: dict[int, int | str] = {i: 0x2400 + i for i in range(32) if chr(i) not in "\n\t"}
_UNSEEN = (*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_PICTURES |= {i: f"[U+{i:04X}]" for i in _UNSEEN}


def visible(text: object, lines: bool = True) -> str:
    """Text that does nothing but stand there: control characters as pictures or [U+....], lone surrogates as '?'.
    Newlines and tabs stay, unless the text is the name of one thing and `lines` is False. Names of folders, problems
    and what a model wrote may hold anything."""
    shown = str(text).encode("utf-8", "replace").decode("utf-8").translate(_PICTURES)
    return shown if lines else shown.replace("\n", "\u240a").replace("\t", "\u2409")


def whole(text: str) -> str:
    """A text whose halves of surrogate pairs, which no tokenizer and no file takes, are question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def shortened(text: str, most: int) -> str:
    """A text of at most `most` characters, which says how many were left out of its middle."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def counted(k: int | float, noun: str) -> str:
    """How many of a thing: '1 run', '3 runs', '0 runs'. Of a noun of several words the last one takes the s."""
    return f"{k:,.0f} {noun}" if round(k) == 1 else f"{k:,.0f} {noun}s"


def freedom(dof: float) -> str:
    """'1 degree of freedom', '6 degrees of freedom'."""
    return f"{counted(dof, 'degree')} of freedom"


def grouped(x: float) -> str:
    """A number in groups of three digits: '512', '0.5', '60,000', '10,000,000', '1e+18'."""
    return f"{x:,.12g}" if x >= 1e6 else f"{x:,g}"


def duration(seconds: float) -> str:
    """Seconds in the unit that fits: '45 s', '30 min', '2.5 h', '5 days', '3 years'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 100 * 3600:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.0f} days" if days < 1000 else f"{days / 365.25:.3g} years"


def megabytes(mb: float) -> str:
    """MB, from 10,000 on as GB."""
    return f"{mb:.0f} MB" if mb < 10_000 else f"{mb / 1000:.0f} GB"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV; columns in order of first appearance. A text that a spreadsheet would take for a formula begins with
    an apostrophe, which makes it text there. Control characters are made visible: a carriage return would end the row.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = list(dict.fromkeys(k for row in rows for k in row))
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(row.get(k, "")) for k in columns] for row in rows)
    return out.getvalue()


def _cell(x: Any) -> Any:
    if not isinstance(x, str):
        return x
    text = visible(x)
    return f"'{text}" if text.startswith(FORMULAS) else text


def word(path: object) -> str:
    """A path as one word of a command that is shown: quoted for a shell, and no option where it begins with '-'. Bytes
    that are not UTF-8 are written as bash and zsh read them: $'studies/\\xff'."""
    text = str(path)
    text = f"./{text}" if text.startswith("-") else text
    try:
        text.encode()
    except UnicodeEncodeError:
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        shown = ("\\x%02x" % (ord(c) - 0xDC00) if "\udc80" <= c <= "\udcff" else c for c in escaped)
        return f"$'{''.join(shown)}'"
    return shlex.quote(text)


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table; numbers are written as given, and a | in a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(x).replace("|", "\\|") for x in line) + " |" for line in lines) + "\n"
