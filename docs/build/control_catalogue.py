"""The page on the methods of control, generated from their files: docs/control_methods.md.

    python -m docs.build.catalogue docs      writes it with the pages of the other methods
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from docs.build import catalogue
from isocost.control import methods
from isocost.control.tasks import open_task
from isocost.recipe import describe, functions
from isocost.runs.control import price

PAGE = "control_methods.md"
FIT = {"continuous": "pendulum", "discrete": "lock:8"}
SEAMS = ("networks", "sample", "target", "losses", "explore", "tempo")
HEAD = """# Methods of control

isocost ships {count} methods of value-based control, one file each in `src/isocost/control/methods`. A method is six
functions and four sizes (`src/isocost/control/seams.py`). `isocost train NAME --control TASK` trains one, `--set
SEAM.NAME=VALUE` changes a setting. `python -m docs.build.catalogue docs` generates this page from the files.

**Cost** is counted in one update at 64 units and a batch of 64 ({tasks}). A
multiplication is 2 FLOP, in the forward pass and in each of the two backward passes. The paper's count beside it is
10 N B, with N the weights of all critics.

**Speed** of one update of SAC on Pendulum, in updates per CPU second of one thread on a busy machine ({machine}), by
`python -m bench.control`. Ratios are medians of {pairs} pairs, each measured one after the other:

{speed}

No claim of these papers was tested here yet. Every method gives the same bytes alone and in any stack
(`tests/control/test_control_stack.py`). Numbers worked by hand are in `tests/control/test_control_agents.py`.

| name | method | paper | actions | claim | FLOP of an update | 10 N B |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The page: a table of all methods, then a section for each."""
    names = methods.names()
    rows = []
    for name in names:
        made, card = methods.agent(name, batch=64, width=64), methods.load(name).CARD
        work, paper = price(made, open_task(FIT[made.acts]))
        rows.append(f"| [{name}](#{_anchor(card.title)}) | {card.title} | {catalogue._paper(card)} | {made.acts} | "
                    f"{card.claim} | {work.flop:,} | {paper:,} |")
    tasks = " and ".join(f"`{task}`" for task in FIT.values())
    head = HEAD.format(count=len(names), tasks=tasks, **_speed()) + "\n".join(rows)
    return "\n\n".join([head, *map(_section, names)]) + "\n"


def _speed() -> dict[str, Any]:
    """The record of the bench as a table, with the ratios that were aimed at."""
    record = json.loads((catalogue.REPOSITORY / "experiments/results/control_speed.json").read_text(encoding="utf-8"))
    rows = ["| units, batch, runs stacked | SB3 | isocost | over SB3 | aim | over plain torch |",
            "| --- | --- | --- | --- | --- | --- |"]
    for x in record["rows"]:
        each = x["updates_per_cpu_second"]
        rows.append(f"| {x['width']}, {x['batch']}, {x['runs']} | {each['sb3']} | {each['kernel']} | {x['over_sb3']} | "
                    f"{x['bar']}, {'reached' if x['held'] else 'missed'} | {x['over_torch']} |")
    return {"machine": record["machine"], "pairs": record["pairs"], "speed": "\n".join(rows)}


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _section(name: str) -> str:
    module = methods.load(name)
    idea, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
    said = catalogue.remarks(Path(module.__file__).read_text(encoding="utf-8"))
    return "\n\n".join([
        f"## {module.CARD.title}", idea, f"```text\n{inspect.cleandoc(rest)}\n```", _table(module),
        *(["\n".join(f"- {line}" for line in said)] if said else []),
    ])


def _table(module: Any) -> str:
    """Each seam: of a method with a parent only those that differ; then the settings of these."""
    made, parent = module.agent(), module.CARD.parent
    own, theirs = describe(made), describe(methods.agent(parent)) if parent else {}
    rows = ["| seam or size | value |" if parent is None else f"| differs from {parent} in | value |", "| --- | --- |"]
    for key, value in own.items():
        if key not in ("name", "acts") and theirs.get(key) != value:
            settings = {k: v for k, v in next(functions(getattr(made, key))).settings.items() if not callable(v)} \
                if key in SEAMS else {}
            told = ", ".join(f"{k}={v!r}" for k, v in settings.items())
            named = value["fn"].removeprefix("isocost.control.").replace(":", ".") if key in SEAMS else str(value)
            rows.append(f"| {key} | `{named}{f'({told})' if told else ''}` |")
    return "\n".join(rows)
