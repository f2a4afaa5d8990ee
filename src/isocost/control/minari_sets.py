"""Minari datasets, by the package `minari`: read for a task, and written from a set that was made here.

Spaces of observations and actions are boxes or discrete. Minari's actions are in the task's own bounds, those of a set
in [-1, 1]. The card of a set that was made here is stored as the dataset's description.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.control.data import OfflineSet, refuse_another_task, settled, split
from isocost.control.types import ControlTask
from isocost.errors import UserError, needed

MOST = 1e-4     # how far an action may be outside its bounds, as a share of their half-width: rounding


def read_minari(name: str, task: ControlTask) -> OfflineSet:
    """A set for a task, by Minari's id or from its folder. Raises UserError as `isocost.control.data.read` does."""
    minari = _minari()
    here = Path(name).resolve()     # Minari joins a relative one to itself
    folder = next((f for f in (here / "data", here) if (f / "metadata.json").exists()), None)
    try:
        found = minari.MinariDataset(folder) if folder else minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as e:
        raise UserError(f"Minari cannot read {name} ({e}); `minari download {name}` fetches a public set") from None
    for what, space in (("observations", found.observation_space), ("actions", found.action_space)):
        if type(space).__name__ not in ("Box", "Discrete"):
            raise UserError(f"{name} has {what} of kind {type(space).__name__}: boxes of numbers and discrete spaces "
                            "are supported")
    try:
        card = dict(json.loads(found.storage.metadata.get("description", "")))
    except (ValueError, TypeError):
        card = {}
    card = card if "hash" in card else {}
    refuse_another_task(Path(name), task, card)
    return settled(Path(name), task, columns_of(name, task, found.iterate_episodes()), card)


def columns_of(name: str, task: ControlTask, episodes: Iterable[Any]) -> list[ndarray]:
    """The columns of a set (`data.split`), of episodes with T + 1 observations and T of all else.

    Raises UserError for sizes that are not the task's, and for actions outside of its bounds.
    """
    rows = []
    for e in episodes:
        many = len(e.rewards)
        seen, action = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (e.observations, e.actions))
        if seen.shape[1] == 1 != task.space.observation:        # the number of a discrete one
            seen = np.eye(task.space.observation)[seen[:, 0].astype(int)]
        sizes = (len(seen), seen.shape[1], action.shape[1])
        if sizes != (many + 1, task.space.observation, task.space.actions):
            raise UserError(f"{name}: an episode of {many} steps has {sizes[0]} observations of {sizes[1]} numbers and "
                            f"actions of {sizes[2]}; {task.name} has {task.space.observation} and {task.space.actions}")
        if not task.space.discrete:
            low, high = task.bounds
            action = 2 * (action - low) / (high - low) - 1
            if (most := float(np.abs(action).max(initial=0))) > 1 + MOST:
                raise UserError(f"{name} has an action {most:.3g} times as far from the middle as the bounds of "
                                f"{task.name}: clip its actions, or name the task that it was made on")
            action = np.clip(action, -1, 1)
        ended, cut = np.asarray(e.terminations, bool), np.asarray(e.truncations, bool)
        cut = np.where(np.arange(many) == many - 1, ~ended, cut & ~ended)       # nothing follows an episode's last step
        rows.append(np.concatenate((seen[:-1], action, np.reshape(e.rewards, (-1, 1)), seen[1:], ended[:, None],
                                    cut[:, None]), -1, dtype=np.float32))
    o, a = task.space.observation, task.space.actions
    whole = np.concatenate(rows) if rows else np.zeros((0, 2 * o + a + 3), np.float32)
    return [np.ascontiguousarray(x) for x in np.split(whole, np.cumsum((o, a, 1, o, 1)), -1)]


def write_minari(made: OfflineSet, task: ControlTask, path: Path) -> None:
    """Write a set as one folder, whole or not at all. `minari.MinariDataset(FOLDER / "data")` reads it; so does
    `minari.load_dataset(FOLDER's name)` where its parent is MINARI_DATASETS_PATH."""
    minari = _minari()
    from gymnasium.spaces import Box, Discrete
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    seen, action, reward, then, end, cut = split(task.space, made.rows)
    low, high = task.bounds
    given = action[:, 0].astype(int) if task.space.discrete else low + (action.astype(float) + 1) / 2 * (high - low)
    ends = np.flatnonzero(end[:, 0] + cut[:, 0]) + 1
    episodes = [EpisodeBuffer(
        observations=np.concatenate((seen[a:b], then[b - 1 : b])), actions=given[a:b], rewards=reward[a:b, 0],
        terminations=end[a:b, 0] > 0, truncations=cut[a:b, 0] > 0) for a, b in pairwise((0, *ends))]
    acts = Discrete(task.space.choices) if task.space.discrete else Box(low, high, dtype=np.float64)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent.resolve()) as part:
        whole = Path(part) / path.name
        whole.mkdir()
        storage = MinariStorage.new(whole / "data", Box(-np.inf, np.inf, (task.space.observation,), np.float32), acts)
        storage.update_metadata({"dataset_id": path.name, "minari_version": minari.__version__,
                                 "algorithm_name": "isocost", "description": json.dumps(dict(made.card))})
        storage.update_episodes(episodes)
        whole.rename(path)


def _minari() -> Any:
    for module in ("h5py", "PIL"):      # which Minari imports late
        needed(module, "minari", "a set of Minari")
    return needed("minari", "minari", "a set of Minari")
