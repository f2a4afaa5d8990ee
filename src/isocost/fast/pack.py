"""`isocost.pack.pack` of rollouts that are rows of waves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch
from isocost.fast.columns import PaddedRows, WaveGroup, WrittenRows, whole
from isocost.types import Group, Role

_PROMPT, _OWN = int(Role.PROMPT), int(Role.OWN)


def pack(groups: Sequence[Group], version: int) -> Batch | None:
    """The batch that `isocost.pack.pack` makes of these groups; None if it has to make it."""
    wave = whole(groups)
    if wave is not None and wave.values is not None and wave.written.rows is not None:
        temperature, age = (wave.sampling.temperature,) * len(groups), (version - wave.written.version,) * len(groups)
        return _batch(tuple(groups), wave.written.rows, wave.values, tuple(wave.sizes), temperature, age)
    of_waves = [g for g in groups if isinstance(g, WaveGroup) and g.wave.values is not None]
    if len(of_waves) < len(groups) or not groups:
        return None
    of_waves.sort(key=lambda g: (g.place.wave, g.place.slot))
    values = [x for g in of_waves for x in (g.wave.values or ())[g.first : g.last]]
    sizes = tuple(g.size for g in of_waves)
    temperatures, ages = (g.wave.sampling.temperature for g in of_waves), (version - g.version for g in of_waves)
    return _batch(tuple(of_waves), _padded(of_waves), values, sizes, tuple(temperatures), tuple(ages))


def _batch(
    groups: tuple[Group, ...], rows: PaddedRows, values: list[float], sizes: tuple[int, ...],
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


def _padded(groups: Sequence[WaveGroup]) -> PaddedRows:
    """The rows of these groups, prompts and answers, without making rollouts."""
    parts = _adjoining(groups)
    sizes, prompts = [g.size for g in groups], [g.wave.prompts[g.number] for g in groups]
    count = _joined([w.wrote[part] for w, part in parts])
    prompt = np.repeat(np.array(list(map(len, prompts))), sizes)
    length = prompt + count
    here = np.arange(length.max(initial=1))
    before, mask = here < prompt[:, None], here < length[:, None]
    mask &= ~before
    tokens, logp = np.zeros(mask.shape, dtype=np.int64), np.zeros(mask.shape, dtype=np.float32)
    tokens[before] = [t for p, k in zip(prompts, sizes, strict=True) for _ in range(k) for t in p]
    filled = [np.arange(w.tokens.shape[1]) < w.wrote[part, None] for w, part in parts]
    tokens[mask] = _joined([w.tokens[part][some] for (w, part), some in zip(parts, filled, strict=True)])
    logp[mask] = _joined([w.logp[part][some] for (w, part), some in zip(parts, filled, strict=True)])
    return PaddedRows(tokens, mask, logp, np.where(mask, _OWN, _PROMPT), mask.astype(np.int64) - 1, length)


def _adjoining(groups: Sequence[WaveGroup]) -> list[tuple[WrittenRows, slice]]:
    """The rows of these groups, those that are neighbours in one wave together."""
    parts: list[tuple[WrittenRows, slice]] = []
    for g in groups:
        first = g.first
        if parts and parts[-1][0] is g.wave.written and parts[-1][1].stop == first:
            first = parts.pop()[1].start
        parts.append((g.wave.written, slice(first, g.last)))
    return parts


def _joined(parts: list[ndarray]) -> ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
