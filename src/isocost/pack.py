"""Groups -> Batch: the only place that pads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch
from isocost.columns import Columns, Rows, padded, whole
from isocost.types import Group, Role, Score, Segment

_PROMPT, _OWN = int(Role.PROMPT), int(Role.OWN)


def pack(groups: Sequence[Group], version: int) -> Batch:
    """Groups as right-padded rows, one per segment, in order of (wave, slot, attempt).

    `version` is the policy's now; a rollout's age is the number of steps since its oldest token was sampled. Raises
    ValueError for a rollout without a score: the feed leaves those out.
    """
    wave = whole(groups)
    if wave is not None and wave.values is not None and wave.written.rows is not None:
        temperature, age = (wave.sampling.temperature,) * len(groups), (version - wave.written.version,) * len(groups)
        return _pack_rows(tuple(groups), wave.written.rows, wave.values, tuple(wave.sizes), temperature, age)
    groups = tuple(sorted(groups, key=lambda g: (g.place.wave, g.place.slot)))
    columns = [g.columns for g in groups if isinstance(g.columns, Columns)]
    if columns and len(columns) == len(groups):
        return _pack_columns(groups, columns, version)
    rollouts = [(g, r) for g, group in enumerate(groups) for r in group.rollouts]
    segments: list[Segment] = [s for _, r in rollouts for s in r.segments]
    per_rollout = np.array([len(r.segments) for _, r in rollouts])
    length = np.array([len(s.tokens) for s in segments])
    filled = np.arange(length.max(initial=1))[None, :] < length[:, None]  # (N, T)

    def pad(columns: list[ndarray], fill: int | float, dtype: type) -> Tensor:
        out: ndarray = np.full(filled.shape, fill, dtype=dtype)
        out[filled] = np.concatenate(columns)
        return torch.from_numpy(out)

    role = pad([s.role for s in segments], _PROMPT, np.int64)
    mask = role == _OWN  # padding is PROMPT
    written = pad([s.version for s in segments], -1, np.int64).numpy()
    first = np.where(mask.numpy(), written, version).min(-1)  # (N,) oldest version in each row
    start = np.cumsum(per_rollout) - per_rollout
    siblings = [(g, r.cohort) for g, r in rollouts]
    cohorts = {key: k for k, key in enumerate(dict.fromkeys(siblings))}
    return Batch(
        tokens=pad([s.tokens for s in segments], 0, np.int64),
        mask=mask,
        logp=pad([s.logp for s in segments], 0.0, np.float32),
        role=role,
        turn=pad([s.turn for s in segments], -1, np.int64),
        length=torch.from_numpy(length),
        temperature=torch.from_numpy(np.array([s.sampling.temperature for s in segments], dtype=np.float32)),
        rollout=torch.from_numpy(np.repeat(np.arange(len(rollouts)), per_rollout)),
        reward=torch.from_numpy(np.array([_value(r) for _, r in rollouts], dtype=np.float32)),
        group=torch.from_numpy(np.array([cohorts[key] for key in siblings], dtype=np.int64)),
        age=torch.from_numpy(version - np.minimum.reduceat(first, start)),
        groups=groups,
        kept=tuple(s.kept for s in segments) if any(s.kept for s in segments) else (),
        extra={
            k: pad(
                [_note(r.notes, k, j, s) for _, r in rollouts for j, s in enumerate(r.segments)],
                0.0,
                np.float32,
            )
            for k in sorted({k for _, r in rollouts for k in r.notes.keys() - r.numbers.keys()})
        },
    )


def _pack_columns(groups: tuple[Group, ...], columns: Sequence[Columns], version: int) -> Batch:
    """The same for groups that are columns."""
    values: list[float] = []
    for group, c in zip(groups, columns, strict=True):
        values += c.values or [_scored(group, i, s) for i, s in enumerate(group.scores)]
    temperature, age = (c.wave.sampling.temperature for c in columns), (version - c.version for c in columns)
    return _pack_rows(groups, padded(columns), values, tuple(map(len, columns)), tuple(temperature), tuple(age))


def _pack_rows(
    groups: tuple[Group, ...], rows: Rows, values: list[float], sizes: tuple[int, ...],
    temperatures: tuple[float, ...], ages: tuple[int, ...],
) -> Batch:
    """Rows that are a rollout each, of one answer of the policy. Sizes, temperatures and ages are the groups'."""
    temperature, age, rollout, group = _repeated(sizes, temperatures, ages)
    return Batch(
        tokens=torch.from_numpy(rows.tokens),
        mask=torch.from_numpy(rows.mask),
        logp=torch.from_numpy(rows.logp),
        role=torch.from_numpy(rows.role),
        turn=torch.from_numpy(rows.turn),
        length=torch.from_numpy(rows.length),
        temperature=temperature,
        rollout=rollout,
        reward=torch.from_numpy(np.array(values, dtype=np.float32)),
        group=group,
        age=age,
        groups=groups,
    )


@lru_cache(maxsize=64)
def _repeated(
    sizes: tuple[int, ...], temperature: tuple[float, ...], age: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Temperature and age of each rollout, its number and that of its group: most batches of a run share all four."""
    return (
        torch.from_numpy(np.array(temperature, dtype=np.float32).repeat(sizes)),
        torch.from_numpy(np.array(age, dtype=np.int64).repeat(sizes)),
        torch.arange(sum(sizes)),
        torch.from_numpy(np.arange(len(sizes)).repeat(sizes)),
    )


def _scored(group: Group, i: int, score: Score | None) -> float:
    return _value(group.rollouts[i]) if score is None else score.value


def _value(rollout) -> float:
    if rollout.score is None:
        raise ValueError(
            f"attempt {rollout.attempt} at {rollout.problem.id} has no score; only scored rollouts are packed"
        )
    return rollout.score.value


def _note(notes, name: str, j: int, segment: Segment) -> ndarray:
    return notes[name][j] if name in notes else np.zeros(len(segment), dtype=np.float32)
