"""Small pieces of HTML. Every text from a record goes through `esc`."""

from __future__ import annotations

import html
import json
import math
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isocost.report.records import as_dict, number
from isocost.screen.words import csv_text, visible


class Safe(str):
    """Markup written by this package: the only strings that `esc` does not escape."""


def esc(x: Any) -> Safe:
    """Text as HTML: markup is escaped, control characters become visible, lone surrogates '?'."""
    if isinstance(x, Safe):
        return x
    return Safe(html.escape(visible(x), quote=True))


def tag(name: str, /, *inside: Any, **attributes: Any) -> Safe:
    """`tag("p", "a < b", cls="lead")`. None and False attributes are left out; `_` in names becomes `-`."""
    names = {"cls": "class"}
    pairs = ((names.get(k, k.replace("_", "-")), v) for k, v in attributes.items() if v not in (None, False))
    opening = "".join(f' {k}="{esc(v)}"' if v is not True else f" {k}" for k, v in pairs)
    return Safe(f"<{name}{opening}>{''.join(map(esc, inside))}</{name}>")


def join(*parts: Any, by: str = "\n") -> Safe:
    return Safe(by.join(esc(p) for p in parts if p))


def p(*inside: Any, cls: str | None = None) -> Safe:
    return tag("p", *inside, cls=cls)


FIGURES = 32    # maximal length of a cell that counts as a number (a value with its interval); sentences are longer


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], caption: str, cls: str = "") -> Safe:
    """A table. Numbers do not wrap; the class `quiet` shows the caption to screen readers only, below a heading."""
    top = tag("tr", *(tag("th", h, scope="col") for h in head))
    body = join(*(tag("tr", *(_cell(c, i) for i, c in enumerate(row))) for row in rows))
    inner = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", body))
    return tag("div", inner, cls=f"scroll {cls}".strip(), tabindex="0", role="group", aria_label=caption)


def _cell(x: Any, column: int) -> Safe:
    text = "" if x is None else x
    if column == 0:
        return tag("th", text, scope="row")
    figures = not isinstance(text, Safe) and 0 < len(str(text)) <= FIGURES and str(text)[0] in "0123456789-−+.<"
    return tag("td", text, cls="number" if figures else None)


def details(title: str, *inside: Any) -> Safe:
    return tag("details", tag("summary", title), *inside)


def figure(key: str, spec: Mapping[str, Any], alt: str, caption: Any, rows: Sequence[Mapping[str, Any]]) -> Safe:
    """One interactive plot with its alternative text, caption and the numbers behind it as a CSV download."""
    plot = tag("div", cls="plot", role="img", aria_label=alt, data_spec=f"spec-{key}")
    data = Safe(f'<script type="application/json" id="spec-{esc(key)}">{json_in_html(spec)}</script>')
    link = tag("a", "CSV", href=csv_link(rows), download=f"{key}.csv", title="the numbers behind this plot")
    return tag("figure", plot, data, tag("figcaption", tag("span", caption), " ", link), id=f"plot-{key}")


def json_in_html(x: Any) -> Safe:
    """JSON that cannot end its script element; NaN and infinities become null, control characters visible."""
    text = json.dumps(shown(x), ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return Safe(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def shown(x: Any) -> Any:
    """The same data with NaN and infinities as None, and with visible texts: they become labels of charts."""
    if isinstance(x, float) and not math.isfinite(x):
        return None
    if isinstance(x, str):
        return visible(x)
    if isinstance(x, Mapping):
        return {visible(k): shown(v) for k, v in x.items()}
    return [shown(v) for v in x] if isinstance(x, (list, tuple)) else x


def csv_link(rows: Sequence[Mapping[str, Any]]) -> str:
    return "data:text/csv;charset=utf-8," + urllib.parse.quote(csv_text(rows).encode("utf-8", "replace"))


def count(x: Any) -> str:
    """12345 -> '12,345'."""
    value = number(x)
    return "–" if value is None else f"{value:,.0f}"


def brief(x: Any) -> str:
    """12345 -> '12.3k'; three significant digits, for prose."""
    value = number(x)
    if value is None:
        return "–"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def share(x: Any, digits: int = 3) -> str:
    """A reward or a share, with a true minus sign."""
    value = number(x)
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def signed(x: Any, digits: int = 3) -> str:
    """A difference; with one more digit if it would round to zero."""
    value = number(x)
    if value and abs(value) < 0.5 * 10**-digits:
        digits += 1
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def percent(x: Any) -> str:
    value = number(x)
    return "–" if value is None else f"{100 * value:.1f} %" if abs(value) < 0.9995 else f"{100 * value:.0f} %"


def rate(x: Any) -> str:
    """A learning rate: two significant digits, short exponent."""
    value = number(x)
    return "–" if value is None else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def span(seconds: Any) -> str:
    """Seconds as '4.2 s', '3 min 05 s' or '2 h 10 min'."""
    value = number(seconds)
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    hours, rest = divmod(round(value), 3600)
    return f"{hours} h {rest // 60:02d} min" if hours else f"{rest // 60} min {rest % 60:02d} s"


def interval(x: Any, digits: int = 3) -> str:
    """{'value', 'low', 'high'} as '0.812 [0.790, 0.834]'; a bare number as itself."""
    data = as_dict(x)
    if not data:
        return share(x, digits)
    low, high = number(data.get("low")), number(data.get("high"))
    value = share(data.get("value"), digits)
    return value if low is None or high is None else f"{value} [{share(low, digits)}, {share(high, digits)}]"


def sentence(text: Any) -> str:
    """The text with a capital and a full stop."""
    words = str(text).strip()
    start = words if not words[1:2].isalpha() else words[:1].upper() + words[1:]  # "n = 4" keeps its letter
    return start + ("" if words.endswith((".", "!", "?")) else ".")


def names(values: Iterable[Any]) -> str:
    """'4', '4 and 8', '2, 4 and 8'."""
    words = [str(v) for v in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"
