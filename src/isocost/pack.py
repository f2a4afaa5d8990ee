"""Groups -> Batch: the only place that pads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch
from isocost.types import Group, Role, Segment

_PROMPT, _OWN = int(Role.PROMPT), int(Role.OWN)


def pack(groups: Sequence[Group], version: int) -> Batch:
    """Groups as right-padded rows, one per segment, in order of (wave, slot, attempt).

    `version` is the policy's now; a rollout's age is the number of steps since its oldest token was sampled. Raises
    ValueError for a rollout without a score: the feed leaves those out.
    """
    groups = tuple(sorted(groups, key=lambda g: (g.place.wave, g.place.slot)))
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


def _value(rollout) -> float:
    if rollout.score is None:
        raise ValueError(
            f"attempt {rollout.attempt} at {rollout.problem.id} has no score; only scored rollouts are packed"
        )
    return rollout.score.value


def _note(notes, name: str, j: int, segment: Segment) -> ndarray:
    return notes[name][j] if name in notes else np.zeros(len(segment), dtype=np.float32)
