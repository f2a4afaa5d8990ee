"""slime: what it calls n, B and M (slime/utils/arguments.py), and how its runs are driven.

Its logs are imported from wandb or TensorBoard.

Driving: options for train.py. A rollout step makes one update (global-batch-size is the whole batch). Steps count from
0: `rollout/raw_reward` at step r is of the policy with r updates, and an evaluation at step r follows update r + 1,
except the first at step 0, which is of the base (train.py). Rows here have the update as their step. A run that
continues does not evaluate its checkpoint again, which is written before the evaluation of its step, so it continues
from the newest one (--ckpt-step) that skips no evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost.trainers.driving.drive import Begin, Drive, Setup, checkpoints, marked, pass_over
from isocost.trainers.driving.export import shown
from isocost.trainers.reading.logs import Row
from isocost.trainers.reading.names import Names, Settings
from isocost.trainers.tensorboard import board, events_below

TITLE = "slime"
SIZES = ("--n-samples-per-prompt {n}", "--rollout-batch-size {B}", "--num-rollout {M}")
SETTINGS = Settings(
    lr=("lr",), seed=("rollout-seed", "seed"), model=("hf-checkpoint",),
    temperature=("rollout-temperature",), max_tokens=("rollout-max-response-len",), top_p=("rollout-top-p",),
    top_k=("rollout-top-k",),
)
LOGGED = Names(
    "slime",
    "step",
    (r"rollout/raw_reward",),
    (r"eval/[^/]+(?<!-truncated_ratio)",),
    lr="train/lr-pg_0",
    seconds="wall",
    length="rollout/response_lengths",
)
VERSION = "slime (slime/utils/arguments.py)"
MARK = "latest_checkpointed_iteration.txt"
BOARD = "board"


def prepared(begin: Begin) -> Setup:
    """The options of an attempt."""
    s, saved, board_ = begin.sizes, begin.out / "checkpoints", begin.folder / BOARD
    whole = marked(saved / MARK)
    there = {c + 1: p for c, p in checkpoints(saved, "iter_").items() if c <= whole}
    last = begin.newest(there, again=False)
    if there and last is None:      # else Megatron would load the newest
        pass_over([saved], begin.attempt)
    values: dict[str, Any] = {
        "n-samples-per-prompt": s.n, "rollout-batch-size": s.B, "global-batch-size": s.n * s.B, "num-rollout": s.M,
        "lr": float(s.lr), "lr-decay-style": "constant", "lr-warmup-iters": s.warmup,
        "seed": s.seed, "rollout-seed": s.seed,
        "eval-interval": begin.every, "n-samples-per-eval-prompt": s.samples,
        "save-interval": begin.every, "save": str(saved), "load": str(saved),
        "ckpt-step": None if last is None else last - 1,
        "use-tensorboard": True, "tb-project-name": "isocost", "tb-experiment-name": s.name,
    }
    given = {k: v for k, v in values.items() if v is not None}
    options = [word for k, v in given.items() for word in ([f"--{k}"] if v is True else [f"--{k}", shown(v)])]
    return Setup(options=options, env={"TENSORBOARD_DIR": str(board_)},
                 kept={"newest": max(there, default=0), "resumed": last or 0})


def logged(log: Path, folder: Path, launch: Mapping[str, Any], earlier: Sequence[Row]) -> list[Row]:
    """The lines that an attempt has logged, one for each update."""
    rows: dict[int, Row] = {}
    base = not launch.get("resumed")
    seen: set[str] = set()
    for event in board(events_below(log), apart=True)[0]:
        for column, value in event.items():
            if column in ("step", "wall"):
                continue
            first = base and event["step"] == 0 and column.startswith("eval/") and column not in seen
            seen.add(column)
            at = 0 if first else int(event["step"]) + 1
            rows.setdefault(at, {"step": at, "wall": event["wall"]})[column] = value
    return [rows[at] for at in sorted(rows)]


DRIVE = Drive(prepared, logged, lambda rows: LOGGED, log="{folder}/" + BOARD, late=True)
