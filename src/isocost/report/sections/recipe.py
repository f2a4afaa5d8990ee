"""The recipe that ran: every seam with its settings, and its differences from the method and its parent."""

from __future__ import annotations

from typing import Any

from isocost.report.html import Safe, join, p, table, tag
from isocost.report.records import Data, ReportRecords, as_dict
from isocost.report.section import Section, empty
from isocost.runs.names import today
from isocost.seams import SEAMS, SIZES

# recipe -----------------------------------------------------------------------------------------------------


def recipe(study: ReportRecords) -> Section:
    """Every seam with its settings, what differs from the method's defaults, and what the method changes in its parent.
    """
    run = next(iter(study.of("train") or study.of("pilot") or study.runs), None)
    own_recipe = as_dict(today(run.about.get("recipe"))) if run else {}
    if not run or not own_recipe:
        return Section("recipe", "Recipe", empty(study, "No run has recorded a recipe yet.", "isocost pilot"))
    method = str(run.about.get("method") or own_recipe.get("name") or "")
    own, parent = as_dict(today(run.about.get("defaults"))), as_dict(today(run.about.get("parent")))
    lead = f"{method or 'A recipe'}, as recorded by run {run.name}, with all defaults."
    body = [
        [seam, *_seam(value), _was(value, own.get(seam)) if own else "–"]
        for seam, value in sorted(own_recipe.items(), key=_seam_order)
        if seam != "name"
    ]
    seams = table(["seam", "function", "settings", f"default of {method}, where it differs"], body, "Recipe", "quiet")
    changed = _parent_diff(own, as_dict(parent.get("recipe")), method, str(parent.get("method") or ""))
    return Section("recipe", "Recipe", join(p(lead, cls="lead"), changed, seams))


_ORDER = (*SIZES, *SEAMS)


def _seam_order(item: tuple[str, Any]) -> tuple[int, str]:
    return (_ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER), item[0])


def _seam(value: Any) -> tuple[Any, Any]:
    """(function, settings) of a seam as `describe` wrote it; sizes have no function."""
    if isinstance(value, list):
        parts = [_seam(v) for v in value]
        return join(*(x[0] for x in parts), by="<br>") or "none", join(*(x[1] for x in parts), by="<br>")
    data = as_dict(value)
    if "fn" not in data:
        return tag("b", "" if value is None else value), ""
    settings = {k: v for k, v in data.items() if k not in ("fn", "source")}
    words = join(*(tag("code", f"{k} = {_flat(v)}") for k, v in settings.items()), by=" &nbsp; ")
    return tag("code", _function(data["fn"])), words


def _function(name: Any) -> str:
    """A part of the package by its own name, because its seam is in the same row; others by their full name."""
    module, _, function = str(name).rpartition(":")
    return function if module.startswith("isocost.parts.") else str(name).removeprefix("isocost.")


def _flat(value: Any) -> str:
    data = as_dict(value)
    if "fn" in data:
        inner = ", ".join(f"{k} = {_flat(v)}" for k, v in data.items() if k not in ("fn", "source"))
        return f"{_function(data['fn'])}({inner})"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_flat, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _was(value: Any, default: Any) -> Any:
    if value == default:
        return ""
    here, there = as_dict(value), as_dict(default)
    if "fn" in here and here.get("fn") == there.get("fn"):
        keys = [k for k in dict.fromkeys([*here, *there]) if here.get(k) != there.get(k)]
        return join(*(tag("code", f"{k} = {_flat(there.get(k))}") for k in keys), by="<br>")
    return tag("code", _flat(default))


def _parent_diff(own: Data, parent: Data, method: str, parent_name: str) -> Safe:
    if not own or not parent:
        return Safe("")
    rows = [
        [k, tag("code", _flat(parent.get(k))), tag("code", _flat(v))]
        for k, v in sorted(own.items(), key=_seam_order)
        if k != "name" and v != parent.get(k)
    ]
    if not rows:
        return Safe("")
    return table(["seam", parent_name, method], rows, f"What {method} changes in {parent_name}, its parent")
