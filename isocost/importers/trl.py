"""TRL's GRPOTrainer (1.16): `trainer_state.json`, which transformers writes into every checkpoint and on save_state().

Its log_history has one entry per logging step and one per evaluation. It does not hold the configuration; where
TensorBoard was on, the event file beside it does, and is read for n, B, learning rate and seed. A rollout is never
filtered before the step that trains on it, so C = steps x n x B is what was begun. `step_time` is seconds per step,
`eval_runtime` those of an evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.importers import Log
from isocost.importers._files import json_of
from isocost.importers._names import TRL, facts_of, log_of
from isocost.importers._wire import events

TITLE = "TRL trainer_state.json"
GIVES = "training and held-out reward, steps, epochs, learning rate, seconds; n, B and seed where TensorBoard was on"
LACKS = "n, B and seed without TensorBoard; a second held-out half; the number of held-out problems"
STATE = "trainer_state.json"


def recognise(path: Path) -> bool:
    return _state(path) is not None


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found = _state(path)
    if found is None:
        raise UserError(
            f"{path} holds no {STATE}, neither itself nor in checkpoint-*; TRL writes it with "
            "trainer.save_state() or at a checkpoint"
        )
    state = json_of(found)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise UserError(f"{found} has no list log_history: it is no trainer's state")
    folder = path if path.is_dir() else path.parent
    boards = sorted(folder.glob("runs/**/events.out.tfevents.*"))
    config = _args(boards)
    facts, about = facts_of(config)
    rows = [row for row in state["log_history"] if isinstance(row, dict)]
    name = folder.parent.name if folder.name.startswith("checkpoint-") else folder.resolve().name
    return [
        log_of(
            "trl", found, [found, *(boards if config else [])], rows, TRL, columns, facts=facts, about=about, name=name
        )
    ]


def _state(path: Path) -> Path | None:
    if path.is_file():
        return path if path.name == STATE else None
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
