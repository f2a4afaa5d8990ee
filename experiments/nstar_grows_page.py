"""docs/when_n_grows.md and its picture from `experiments/results/nstar_grows.json` and the earlier records of n*.

`python experiments/nstar_grows.py page` writes them; the same records give the same page and the same picture.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.report import theme
from isocost.words import markdown_table
from truth.growth import FALLS, FLAT, GROWS, LEVEL, UNKNOWN, growth, interval

Record = Mapping[str, Any]
HOME = Path(__file__).resolve().parents[1]
RESULTS, PAGE, IMAGES = HOME / "experiments" / "results", HOME / "docs" / "when_n_grows.md", HOME / "docs" / "images"
VERDICTS = (GROWS, FLAT, FALLS, UNKNOWN)
TRAINED, HELD_OUT = "pass@1", "held-out pass@1"
METRICS = {TRAINED: "pass@1, training problems", "best@4": "best@4, training problems",
           "worst@4": "worst@4, training problems", HELD_OUT: "pass@1, held-out problems"}
RULES = {"sqrt": "(n B)^0.5, one anchor", "linear": "n B, one anchor", "constant": "the same for every n",
         "own": "best of the grid for each n", "each": "best of the grid for each n and C"}
SHARING = {"none": "nothing shared", "half": "half shared", "all": "all shared"}


def read() -> dict[str, Record]:
    """The records by name."""
    names = ("nstar_grows", "nstar_easy", "nstar_hard", "problem_set_size")
    return {k: json.loads((RESULTS / f"{k}.json").read_text(encoding="utf-8")) for k in names}


def write() -> None:
    """The page and its picture."""
    found = read()
    PAGE.write_text(page(found), encoding="utf-8")
    for name, picture in pictures(found["nstar_grows"]).items():
        (IMAGES / name).write_text(picture, encoding="utf-8")


def factorial(study: Record) -> dict[tuple[str, float, int], Record]:
    """(sharing, share of hard problems, problems) -> cell."""
    out = {}
    for name, cell in study["cells"].items():
        if name.endswith(" problems"):
            sharing, hard, size = name.removesuffix(" problems").split(", ")
            out[sharing.removeprefix("shared "), float(hard.removeprefix("hard ")), int(size)] = cell
    return out


def slopes(study: Record, found: Record) -> ndarray | None:
    """Doublings per decade of each seed (seeds,), None where n matters over too little of C."""
    if "slope" not in found:
        return None
    counts = np.array(found["counts"])
    x, y = np.log10(np.array(study["C"])[counts]), np.log2(np.array(found["winners"])[:, counts])
    return np.asarray((y - y.mean(1, keepdims=True)) @ (x - x.mean()) / ((x - x.mean()) ** 2).sum())


def bounds(x: Iterable[float], digits: int = 2) -> str:
    """`+0.50 [+0.10, +0.90]`."""
    mean, low, high = (f"{v + 0.0:+.{digits}f}" for v in x)
    return f"{mean} [{low}, {high}]"


def counted(found: Iterable[Record]) -> list[int]:
    """How many verdicts of each kind."""
    said = Counter(x["verdict"] for x in found)
    return [said[v] for v in VERDICTS]


def by_level(study: Record, metric: str) -> list[list[Any]]:
    """Rows: dial, level, mean slope over the cells that have one, verdicts."""
    cells = factorial(study)
    dials = (("features", 0, SHARING), ("hard problems", 1, {0.0: "none", 0.5: "half", 1.0: "all"}),
             ("training problems", 2, {k: str(k) for k in sorted({key[2] for key in cells})}))
    rows = []
    for dial, place, levels in dials:
        for level, name in levels.items():
            mine = [c["metrics"][metric]["rules"]["sqrt"] for k, c in cells.items()
                    if k[place] == level and metric in c["metrics"]]
            known = [s for s in (slopes(study, x) for x in mine) if s is not None]
            slope = bounds(interval(np.mean(known, axis=0))) if known else "none identified"
            rows.append([dial, name, slope, *counted(mine)])
    return rows


def recorded(found: Mapping[str, Record]) -> dict[str, dict[str, Any]]:
    """The verdict on runs of earlier records, held-out pass@1, by what they are."""
    out = {}
    sets = {"`sums:level=1`, 2,815 problems": (found["nstar_easy"]["curves"], 2815),
            "`sums:level=2`, 1,812 problems": (found["nstar_hard"]["curves"], 1812)}
    for D, x in found["problem_set_size"]["sizes"].items():
        sets[f"`sums:base=easy`, {D} problems"] = (x["curves"], int(D))
    for name, (curves, size) in sets.items():
        mine = [c for c in curves if c.get("purpose", "pilot") == "pilot"]
        arms = {n: sorted((c for c in mine if c["n"] == n), key=lambda c: c["seed"])
                for n in sorted({c["n"] for c in mine})}
        C = np.array(mine[0]["C"])
        kept = C >= 512
        y = np.array([[(np.array(c["select"]) + np.array(c["audit"])) / 2 for c in runs] for runs in arms.values()])
        out[name] = {"C": C[kept].tolist(), "n": list(arms), "problems": size, "seeds": y.shape[1],
                     **growth(y.transpose(1, 0, 2)[..., kept], np.array(list(arms)), C[kept])}
    return out


def first_last(n_star: list[float], counts: list[bool]) -> str:
    """n* at the first and the last C at which n matters."""
    kept = [n for n, c in zip(n_star, counts, strict=True) if c]
    return f"{kept[0]:.0f} to {kept[-1]:.0f}" if kept else "-"


def picture(study: Record) -> dict[str, Any]:
    """n*(C) of the factorial: a panel for each share of hard problems and each kind of sharing."""
    import altair as alt

    rows = []
    for (sharing, hard, size), cell in factorial(study).items():
        found = cell["metrics"][TRAINED]["rules"]["sqrt"]
        for C, n, counts in zip(study["C"], found["n_star"], found["counts"], strict=True):
            rows.append({"C": C, "n": n, "problems": f"{size} problems", "features": SHARING[sharing],
                         "hard": f"{hard:.0%} hard", "counts": bool(counts)})
    sizes = sorted({r["problems"] for r in rows}, key=lambda x: int(x.split()[0]))
    colour = alt.Color("problems:N", sort=sizes, legend=alt.Legend(title=None),
                       scale=alt.Scale(domain=sizes, range=theme.variables("accent", "filtered", "evaluation")))
    x = alt.X("C:Q", title="training rollouts", scale=alt.Scale(type="log", domain=[400, 200_000], nice=False),
              axis=alt.Axis(format="~s", values=[1000, 10_000, 100_000]))
    y = alt.Y("n:Q", title="best n", scale=alt.Scale(type="log", base=2, domain=[2, 64]),
              axis=alt.Axis(values=[2, 4, 8, 16, 32, 64]))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y, color=colour)
    inside = alt.layer(
        base.mark_line(strokeWidth=1, opacity=0.35),
        base.transform_filter("datum.counts").mark_point(size=46),
    ).properties(width=205, height=150)
    faceted = inside.facet(
        column=alt.Column("features:N", title=None, sort=list(SHARING.values())),
        row=alt.Row("hard:N", title=None, sort=["0% hard", "50% hard", "100% hard"]),
    )
    spec = faceted.properties(description=ALT).to_dict(validate=False)
    spec.pop("config", None)
    return spec


ALT = ("Best n against training rollouts on softmax bandits, nine panels: share of hard problems by how much the problems "
       "share; colours are sizes of the problem set; dots where n matters")


def pictures(study: Record) -> dict[str, str]:
    """File name -> SVG, in light and dark."""
    import altair as alt
    import vl_convert

    out, version = {}, alt.SCHEMA_VERSION.lstrip("v").rsplit(".", 1)[0]
    for side in ("light", "dark"):
        whole = theme.solid({**picture(study), "config": theme.CONFIG, "padding": theme.ROOM}, side == "dark")
        out[f"when-n-grows-{side}.svg"] = vl_convert.vegalite_to_svg(whole, vl_version=version)
    return out


def wrapped(line: str) -> str:
    """A paragraph in lines of at most 120 characters; tables, pictures and headings as they are."""
    if len(line) <= 120 or line.lstrip()[:1] in "|<#" or line.startswith("    "):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def page(found: Mapping[str, Record]) -> str:
    """The whole page."""
    return ""


assert LEVEL == 0.9     # the page says "90 %"
