"""How charts are drawn: colours in light and dark, axes, Vega-Lite specifications to SVG."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from isocost.disk import store

Rows = Sequence[Mapping[str, Any]]
Spec = dict[str, Any]

_THEME = json.loads((Path(__file__).parent / "theme.json").read_text(encoding="utf-8"))
# Light and dark values of each variable. n is ordered, so its colours are viridis (safe for every kind of colour
# blindness, monotone in lightness); fates are categories, so theirs are Okabe and Ito's.
PALETTE: Mapping[str, Sequence[str]] = _THEME["palette"]
CONFIG: Spec = _THEME["config"]     # of Vega-Lite
N_SLOTS = 7
CATEGORIES = ("accent", "filtered", "evaluation", "stale", "cancelled", "ink", "n6")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


def css_variables(dark: bool) -> str:
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in PALETTE.items())


def solid(spec: Any, dark: bool = False) -> Any:
    """The same specification with variables replaced by colours, for renderers without CSS."""
    if isinstance(spec, Mapping):
        return {k: solid(v, dark) for k, v in spec.items()}
    if isinstance(spec, list):
        return [solid(v, dark) for v in spec]
    if isinstance(spec, str) and spec.startswith("var(--"):
        return PALETTE[spec[len("var(--") : -1]][dark]
    return spec


@cache
def bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script of about 0.9 MB that needs no network."""
    import vl_convert

    code, lite = "window.vegaEmbed = vegaEmbed;", _vega_lite()

    def made() -> bytes:        # in one to two seconds
        script = vl_convert.javascript_bundle(code, vl_version=lite)
        return script.replace("</script", "<\\/script").replace("<!--", "<\\!--").encode()

    name = f"report-{version('vl-convert-python')}-{lite}.js"
    return store.kept(name, f"{name}\n{code}".encode(), made).decode()


ROOM = {"left": 32, "right": 12, "top": 5, "bottom": 5}  # fonts may be wider than the one used for layout


def svg(spec: Spec, width: int = 820, dark: bool = False) -> str:
    """A plot as SVG, for a page without scripts. The text does not depend on plots drawn before."""
    import vl_convert

    whole = solid({**spec, "width": width, "config": CONFIG, "padding": ROOM}, dark)
    drawn = vl_convert.vegalite_to_svg(whole, vl_version=_vega_lite())
    numbered = {name: f"clip{i}" for i, name in enumerate(dict.fromkeys(re.findall(r"\bclip\d+", drawn)))}
    return re.sub(r"\bclip\d+", lambda found: numbered[found[0]], drawn)  # the library numbers them across plots


def _vega_lite() -> str:
    return alt.SCHEMA_VERSION.lstrip("v").rsplit(".", 1)[0]


def series_colours(count: int) -> list[str]:
    """`count` of the ordered colours, as distinct as possible."""
    if count <= 1:
        return ["var(--n2)"]
    slots = [round(i * (N_SLOTS - 1) / (min(count, N_SLOTS) - 1)) for i in range(min(count, N_SLOTS))]
    return [f"var(--n{slots[i % len(slots)]})" for i in range(count)]


def variables(*names: str) -> list[str]:
    return [f"var(--{n})" for n in names]


class Data(alt.Data):
    """Rows of a chart, which altair copied and checked for every mark: half of the time of a page. It has altair's name
    because the names of views are hashes of what altair prints of a chart."""

    def __deepcopy__(self, _: Any) -> Data:
        return self

    def to_dict(self, *_: Any, **__: Any) -> Spec:
        values = self._kwds["values"]
        return {"values": [{k: float(v) if isinstance(v, np.number) else v for k, v in r.items()} for r in values]}


def data_of(rows: Rows) -> alt.Data:
    return Data(values=[dict(r) for r in rows])


def kilo_axis() -> alt.Axis:
    return alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)


def log_axis() -> alt.Axis:
    """Labels at 1, 2 and 5 times powers of ten at any zoom."""
    return alt.Axis(
        labelExpr="indexof('125', slice(toString(datum.value), 0, 1)) >= 0 ? format(datum.value, '~s') : ''"
    )


def compute_axis(unit: str = "rollouts") -> alt.X:
    scale = alt.Scale(type="log", nice=False, padding=10)
    return alt.X("C:Q", title=f"C, training {unit} per run (log scale)", scale=scale, axis=log_axis())


def reward_axis(what: str = "held-out reward") -> alt.Y:
    return alt.Y("reward:Q", title=what, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(format=".3~f"))


def finish(chart: Any, alt_text: str, height: int, zoom: bool = False) -> Spec:
    """Add sizes, description and, with `zoom`, panning by drag and zooming by ctrl + wheel."""
    if zoom:
        axes = [(x.encoding.x, x.encoding.y) for x in chart.layer]
        place = next(i for i, (x, y) in enumerate(axes) if isinstance(x, alt.X) and isinstance(y, alt.Y))
        # a layer that lacks an axis cannot carry the selection that moves both
        params = alt.selection_interval(bind="scales", name="zoom", zoom="wheel![event.ctrlKey]")
        chart.layer[place] = chart.layer[place].add_params(params)
    # altair's own check of every row against the grammar takes longer than all the rest of a page
    spec = chart.properties(width="container", height=height, description=alt_text).to_dict(validate=False)
    spec.pop("config", None)
    return _numbered({**spec, "autosize": {"type": "fit-x", "contains": "padding"}})


def _numbered(spec: Spec) -> Spec:
    """Views renamed in order: altair numbers them per process, and the page's bytes must not depend on that."""
    text = json.dumps(spec)
    found = dict.fromkeys(re.findall(r'"(view_\d+)"', text))
    for i, name in enumerate(found):
        text = text.replace(f'"{name}"', f'"plot_{i}"')
    renamed: Spec = json.loads(text)
    return renamed
