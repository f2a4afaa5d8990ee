"""Sets of transitions for offline methods: made from a mixture of behaviours, kept in Parquet with a card, read back.

A file has a row for each transition: observation, action in [-1, 1] (or its number), reward, following, terminal, cut.
Trajectories come one after another. The card is JSON in the file's metadata, under "isocost".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.control import behave
from isocost.control.luck import Draws, Luck
from isocost.control.policy import ControlPolicy
from isocost.control.types import ControlTask, Space
from isocost.errors import UserError

COLUMNS, CARD = ("observation", "action", "reward", "following", "terminal", "cut"), b"isocost"
TOGETHER = 64       # episodes that are played side by side
NEAR = 1e-4         # between an observation and what the row before it says that follows


@dataclass(frozen=True)
class OfflineSet:
    """Transitions, (N, W) as in a replay, and their card. `notes` are warnings about them."""

    rows: Tensor
    card: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 of the transitions."""
        return hashlib.sha256(self.rows.numpy().tobytes()).hexdigest()


def split(space: Space, rows: Tensor) -> list[ndarray]:
    """The columns: (N, O), (N, A), and so on."""
    o, a = space.observation, space.actions
    return [x.numpy() for x in rows.split((o, a, 1, o, 1, 1), -1)]


def make(
    task: ControlTask, shares: Mapping[str, float], steps: int, seed: int,
    policies: Mapping[str, ControlPolicy] | None = None, told: Callable[[int], None] = lambda transitions: None,
) -> OfflineSet:
    """At least `steps` transitions of whole trajectories. `shares` are of trajectories, by behaviour, and sum to 1.

    The card's `cost` is of all that was played: the trajectories that are beyond `steps` are not in the set.

    Raises UserError for a behaviour that is neither a script for this task nor one of `policies`, and for other shares.
    """
    policies = policies or {}
    for name, share in shares.items():
        if name not in (*policies, *behave.scripts_of(task)):
            raise UserError(f"{name!r} is no behaviour on {task.name}: take the folder of a run of control, or "
                            f"{', '.join(behave.scripts_of(task))}")
        if not share > 0:
            raise UserError(f"the share of {name} is {share:g}, expected above 0")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise UserError(f"the shares of behaviours sum to {sum(shares.values()):g}, expected 1")
    made: list[ndarray] = []
    by: dict[str, list[float]] = {name: [] for name in shares}
    total = chunk = 0
    took = {name: policies[name].loop.of_action(True).flop if name in policies else 0 for name in shares}
    cost = {"env_steps": 0, "flop": 0}
    while total < steps:
        names: list[str] = []
        for slot in range(TOGETHER):        # each is as close to its share as whole trajectories allow
            number = chunk * TOGETHER + slot
            names.append(max(shares, key=lambda b: shares[b] * (number + 1) - len(by[b]) - names.count(b)))
        episodes = [behave.opened(n, task, seed, chunk * TOGETHER + k, k) for k, n in enumerate(names)]
        for episode, rows in zip(episodes, _played(task, episodes, policies, seed, chunk), strict=True):
            cost["env_steps"] += len(rows)
            cost["flop"] += len(rows) * took[episode.name]
            if total < steps:
                made.append(rows)
                by[episode.name].append(float(rows[:, task.space.observation + task.space.actions].sum()))
                total += len(rows)
        told(total)
        chunk += 1
    whole = torch.from_numpy(np.concatenate(made)).float()
    *_, end, cut = split(task.space, whole)
    returns = np.array([r for each in by.values() for r in each])
    behaviours = {name: {"share": shares[name], "trajectories": len(found), "return": float(np.mean(found or [0]))}
                  for name, found in by.items()}
    card = {
        "task": task.name, "seed": seed, "behaviours": behaviours,
        "transitions": len(whole), "trajectories": len(made), "terminal": int(end.sum()), "cut": int(cut.sum()),
        "return": {"mean": float(returns.mean()), "sd": float(returns.std()), "least": float(returns.min()),
                   "most": float(returns.max())},
        "observation": task.space.observation, "action": task.space.actions, "dtype": "float32",
        "cost": cost,
    }
    return OfflineSet(whole, {**card, "hash": OfflineSet(whole).hash})


def _played(
    task: ControlTask, episodes: list[behave.ToPlay], policies: Mapping[str, ControlPolicy], seed: int, chunk: int
) -> list[ndarray]:
    """The rows of each episode, (steps, W)."""
    states, rows = np.stack([e.state for e in episodes]), [list[ndarray]() for _ in episodes]
    low, high = task.bounds
    live, draws = list(range(len(episodes))), Draws(seed)
    for step in range(max(e.steps for e in episodes)):
        whole = np.zeros((len(episodes), task.space.actions))
        for name in {episodes[i].name for i in live}:
            # also those that ended: numbers of draws of another size would overlap with those of earlier steps
            at = [i for i, e in enumerate(episodes) if e.name == name]
            luck = Luck([draws], [step], f"collect {chunk} {name}")
            whole[at] = behave.acted(task, name, policies, [episodes[i] for i in at], states[at], step, luck)
        now, action = states[live], whole[live]
        given = action if task.space.discrete else low + (np.clip(action, -1, 1) + 1) / 2 * (high - low)
        after, reward, ended = task.step(now, given)
        cut = np.array([step + 1 >= episodes[i].steps for i in live]) & ~ended
        seen, then = task.observe(now), task.observe(after)
        made = np.concatenate((seen, action, reward[:, None], then, ended[:, None], cut[:, None]), -1)
        states[live] = after
        for k, i in enumerate(live):
            rows[i].append(made[k])
        live = [i for k, i in enumerate(live) if not (ended[k] or cut[k])]
        if not live:
            break
    return [np.stack(each) for each in rows]


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UserError("sets of transitions are Parquet files, which need pyarrow: pip install pyarrow") from None
    return pyarrow


def write(made: OfflineSet, space: Space, path: Path) -> None:
    """Write a set as one file, whole or not at all."""
    pa = _arrow()
    arrays = []
    for name, column in zip(COLUMNS, split(space, made.rows), strict=True):
        flat = pa.array(np.ascontiguousarray(column).ravel())
        wide = name in ("observation", "action", "following")
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, column.shape[1]) if wide
                      else flat.cast(pa.bool_()) if name in ("terminal", "cut") else flat)
    table = pa.table(arrays, names=list(COLUMNS)).replace_schema_metadata({CARD: json.dumps(made.card)})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    pa.parquet.write_table(table, part)
    part.replace(path)


def read(path: Path, task: ControlTask) -> OfflineSet:
    """A set for a task. A file without a card was made elsewhere: it is checked but for task and hash.

    Raises UserError for a file that cannot be read, of other columns, dtypes, dimensions or another task, whose content
    is not that of its card, that has values that are not finite, or whose next row does not continue a trajectory.
    """
    pa = _arrow()
    try:
        table = pa.parquet.read_table(path)
    except (OSError, pa.ArrowInvalid) as e:
        raise UserError(f"cannot read {path} as a set of transitions ({e}); make one with `isocost collect`") from None
    card = json.loads((table.schema.metadata or {}).get(CARD, b"{}"))
    if missing := [c for c in COLUMNS if c not in table.column_names]:
        raise UserError(f"{path} has no column {missing[0]}; a set has {', '.join(COLUMNS)}")
    refuse_another_task(path, task, card)
    columns = [_column(path, name, table.column(name).combine_chunks(), size) for name, size in zip(COLUMNS, (
        task.space.observation, task.space.actions, 0, task.space.observation, 0, 0), strict=True)]
    return settled(path, task, columns, card)


def refuse_another_task(path: Path, task: ControlTask, card: Mapping[str, Any]) -> None:
    """Raises UserError for a card of another task."""
    if card and card["task"] != task.name:
        raise UserError(f"{path} was made on {card['task']}, not on {task.name}: give --control {card['task']}, or "
                        f"another set")


def settled(path: Path, task: ControlTask, columns: list[ndarray], card: Mapping[str, Any]) -> OfflineSet:
    """The set of these columns (`split`), checked for a task and against a card. Raises UserError as `read`."""
    found = OfflineSet(torch.from_numpy(np.concatenate(columns, -1)), card)
    if card and card["hash"] != found.hash:
        raise UserError(f"{path} is not what its card says: the hash of its transitions is {found.hash[:12]}, the "
                        f"card's {card['hash'][:12]}; make it again with `isocost collect`")
    card = card or {"task": task.name, "transitions": len(found.rows), "hash": found.hash}
    return OfflineSet(found.rows, card, _checked(path, task, columns))


def _column(path: Path, name: str, column: Any, size: int) -> ndarray:
    """(N, size or 1) of float32. `size` is that of a list; 0: a number."""
    pa = _arrow()
    wanted = "bool" if name in ("terminal", "cut") else "float"
    if size:
        if not pa.types.is_fixed_size_list(column.type) or column.type.list_size != size:
            raise UserError(f"{path}: {name} is {column.type}, expected a list of {size} floats, as the task has")
        column = column.flatten()
    if str(column.type) != wanted:
        raise UserError(f"{path}: {name} has values of type {column.type}, expected {wanted}"
                        f"{'32: cast them' if wanted == 'float' else ''}")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float32).reshape(-1, size or 1)


def _checked(path: Path, task: ControlTask, columns: list[ndarray]) -> tuple[str, ...]:
    """Warnings about a set. Raises UserError for one that cannot be learned from."""
    seen, action, _, then, terminal, cut = columns
    if not len(seen):
        raise UserError(f"{path} has no transitions")
    for name, column in zip(COLUMNS, columns, strict=True):
        if not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column).all(-1))[0])
            raise UserError(f"{path}: {name} of row {row} is not finite")
    least, most = (0, task.space.choices - 1) if task.space.discrete else (-1, 1)
    if action.min() < least or action.max() > most:
        raise UserError(f"{path}: actions are between {action.min():g} and {action.max():g}, expected [{least}, "
                        f"{most}]")
    ended, stopped = terminal[:, 0] > 0, cut[:, 0] > 0
    if both := int((ended & stopped).sum()):
        raise UserError(f"{path}: {both} rows are both terminal and cut; mark as terminal where the task ended, and as "
                        "cut where only the time did")
    breaks = ended | stopped
    torn = (np.abs(then[:-1] - seen[1:]).max(-1) > NEAR) & ~breaks[:-1]
    if torn.any():
        raise UserError(f"{path}: after row {int(np.flatnonzero(torn)[0])} comes another state than it says, and it is "
                        "neither terminal nor cut; mark the last row of each trajectory")
    ends = np.flatnonzero(breaks)
    lengths = np.diff(np.concatenate(([-1], ends)))
    late = int((lengths[ended[ends]] >= task.limit).sum())
    if task.limit > 1 and late and late == int(ended.sum()):
        return (f"all {late} terminal rows are at the time limit of {task.limit} steps: if they were cut there, mark "
                "them as cut",)
    return ()
