"""tinker-cookbook (0.8): `metrics.jsonl` and `config.json` of a run's log folder.

One row per iteration, counted from 0; an evaluation is in the row of the iteration that it came before, so its policy
has had as many updates as the row's step. config.json holds group size, batch size and learning rate. With
num_substeps above 1 an iteration is several optimiser steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isocost.errors import UserError
from isocost.importers import Log
from isocost.importers._files import head, json_of, json_rows, metrics_file
from isocost.importers._names import TINKER, facts_of, logs_of

TITLE = "tinker-cookbook metrics.jsonl"
GIVES = "training and held-out reward, steps, learning rate, seconds; n and B from config.json"
LACKS = "seed in most recipes; a second held-out half"


def recognise(path: Path) -> bool:
    found = metrics_file(path)
    if found is None:
        return False
    text = head(found)
    return text.startswith("{") and '"env/all/' in text


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found = metrics_file(path)
    if found is None:
        raise UserError(f"{path} holds no metrics.jsonl; tinker-cookbook writes it into log_path")
    rows, missing = json_rows(found)
    beside = found.parent / "config.json"
    config = json_of(beside) if beside.is_file() else {}
    facts, about = facts_of(config if isinstance(config, dict) else {})
    if isinstance(config, dict) and (config.get("num_substeps") or 1) > 1:
        missing.append(f"one update per step: num_substeps is {config['num_substeps']}, and a step is counted as one")
    if isinstance(config, dict) and config.get("remove_constant_reward_groups"):
        missing.append(
            "training reward of all groups: those that earned the same throughout are not in it "
            "(remove_constant_reward_groups)"
        )
    return logs_of(
        "tinker",
        found,
        [found, *([beside] if beside.is_file() else [])],
        rows,
        TINKER,
        columns,
        facts=facts,
        about=about,
        missing=missing,
        name=found.parent.resolve().name if found.name == "metrics.jsonl" else None,
    )
