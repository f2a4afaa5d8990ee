"""tinker-cookbook (0.8): `metrics.jsonl` and `config.json` of a run's log folder.

One row per iteration, counted from 0; an evaluation is in the row of the iteration that it came before, so its policy
has had as many updates as the row's step. config.json holds group size, batch size and learning rate. With
num_substeps above 1 an iteration is several optimiser steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isocost.trainers.reading.logs import Log
from isocost.trainers.reading.names import Names, Settings, facts_of
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import head, json_of, json_rows, metrics_file, metrics_of

TITLE = "tinker-cookbook"
READS = "tinker-cookbook metrics.jsonl"
GIVES = "training and held-out reward, steps, learning rate, seconds; n and B from config.json"
LACKS = "seed in most recipes; a second held-out half"
SETTINGS = Settings(
    n=("group_size", "dataset_builder.group_size"),
    problems=("dataset_builder.batch_size", "groups_per_batch", "dataset_builder.groups_per_batch"),
    lr=("learning_rate",), seed=("seed", "dataset_builder.seed"), model=("model_name",), temperature=("temperature",),
    max_tokens=("max_tokens",), method=("loss_fn",),
)
LOGGED = Names(
    "tinker-cookbook",
    "step",
    (r"env/all/reward/total",),
    (r"test/env/all/reward/total", r".+/env/all/reward/total"),
    first=0,
    lr="optim/lr",
    span="time/total",
    length="env/all/ac_tokens_per_turn",
    turns="env/all/turns_per_episode",
    more={"entropy": "optim/entropy"},
)
NAMES = (LOGGED,)


def recognise(path: Path) -> bool:
    found = metrics_file(path)
    if found is None:
        return False
    text = head(found)
    return text.startswith("{") and '"env/all/' in text


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found, name = metrics_of(path, "tinker-cookbook writes it into log_path")
    rows, missing = json_rows(found)
    beside = found.parent / "config.json"
    config = json_of(beside) if beside.is_file() else {}
    facts, about = facts_of(config if isinstance(config, dict) else {})
    if isinstance(config, dict) and (config.get("num_substeps") or 1) > 1:
        missing.append(f"one update per step: num_substeps is {config['num_substeps']}, and a step is counted as one")
    if isinstance(config, dict) and config.get("remove_constant_reward_groups"):
        missing.append(
            "training reward of all groups: those with one reward throughout are not in it "
            "(remove_constant_reward_groups)"
        )
    return logs_of(
        "tinker",
        found,
        [found, *([beside] if beside.is_file() else [])],
        rows,
        LOGGED,
        columns,
        facts=facts,
        about=about,
        missing=missing,
        name=name,
    )
