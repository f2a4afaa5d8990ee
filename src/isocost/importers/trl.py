"""TRL's GRPOTrainer (1.16): `trainer_state.json`, which transformers writes into every checkpoint and on save_state().

Its log_history has one entry per logging step and one per evaluation. It does not hold the configuration; where
TensorBoard was on, the event file beside it does, and is read for n, B, learning rate and seed. A rollout is never
filtered before the step that trains on it, so C = steps x n x B is what was begun. `step_time` is seconds per step,
`eval_runtime` those of an evaluation. A file of any name is read by its content, as is a log_history saved by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.importers import Log
from isocost.importers._files import head, json_of
from isocost.importers._names import TRL, facts_of, logs_of
from isocost.importers._wire import events

TITLE = "TRL trainer_state.json"
GIVES = "training and held-out reward, steps, epochs, learning rate, seconds; n, B and seed where TensorBoard was on"
LACKS = "n, B and seed without TensorBoard; a second held-out half; the number of held-out problems"
STATE = "trainer_state.json"
OBJECT = re.compile(r'\s*\{.*"log_history"\s*:\s*\[', re.S)
ENTRIES = re.compile(r'\s*\[\s*\{.*"(reward_std|frac_reward_zero_std|completions/mean_length)"\s*:', re.S)


def recognise(path: Path) -> bool:
    found = _state(path)
    return found is not None and (found.name == STATE or _is_history(found))


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found = _state(path)
    if found is None:
        raise UserError(
            f"{path} holds no {STATE}, neither itself nor in checkpoint-*; TRL writes it with "
            "trainer.save_state() or at a checkpoint"
        )
    state = json_of(found)
    history = state.get("log_history") if isinstance(state, dict) else state
    if not isinstance(history, list):
        raise UserError(f"{found} has no list log_history, so it is not a trainer's state")
    own = found.name == STATE  # under another name, nothing says that what lies beside it is of the same run
    folder = found.resolve().parent
    folder = folder.parent if folder.name.startswith("checkpoint-") else folder
    boards = sorted(folder.glob("runs/**/events.out.tfevents.*")) if own else []
    config = _args(boards)
    facts, about = facts_of(config)
    rows = [row for row in history if isinstance(row, dict)]
    files = [found, *(boards if config else [])]
    name = folder.name if own else None
    return logs_of("trl", found, files, rows, TRL, columns, facts=facts, about=about, name=name)


def _is_history(path: Path) -> bool:
    """Whether a file holds a state with a log_history, or a log_history of TRL's alone."""
    text = head(path)
    return bool(OBJECT.match(text) or ENTRIES.match(text))


def _state(path: Path) -> Path | None:
    if path.is_file():
        return path
    if (path / STATE).is_file():
        return path / STATE
    steps = {
        int(p.parent.name.rsplit("-", 1)[1]): p
        for p in path.glob(f"checkpoint-*/{STATE}")
        if p.parent.name.rsplit("-", 1)[1].isdecimal()
    }
    return steps[max(steps)] if steps else None


def _args(boards: list[Path]) -> dict[str, Any]:
    """The training arguments as transformers writes them into its event file."""
    for path in boards:
        for _, _, _, texts in events(path):
            told = texts.get("args/text_summary") or texts.get("args")
            if told:
                return dict(json.loads(told))
    return {}
