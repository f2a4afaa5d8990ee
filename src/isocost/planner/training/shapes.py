"""The shapes of a pilot: a preset's, as a user changes it, and the smaller ones that a small budget pays for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from isocost.errors import UserError
from isocost.planner.training.builtin import PRESETS
from isocost.planner.training.pilot import LEAST_SEEDS
from isocost.planner.training.study_runs import COMMON, Preset


def shape_of(preset: str, grid: Sequence[int] | None, B: int | None, batch: int | None) -> Preset:
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; expected one of {', '.join(PRESETS)}")
    shape = PRESETS[preset]
    if grid is not None:
        if len(set(grid)) < 2 or min(grid) < 2:
            raise UserError("expected a grid of at least two n, each at least 2 (a group baseline needs 2), "
                            f"got {list(grid)}")
        shape = replace(shape, grid=tuple(sorted(set(grid))))
    if B is not None:
        if B < 1:
            raise UserError(f"expected B (problems per update) of at least 1, got {B}")
        shape = replace(shape, B=B)
    if batch is not None:
        shape = _fixed(shape, batch, B)
    unit = shape.unit
    sizes = {k: max(1, round(getattr(shape, k) / unit)) * unit for k in ("C", "probe_C", "train_C")}
    return replace(shape, **sizes)


def _fixed(shape: Preset, batch: int, B: int | None) -> Preset:
    """The shape at a fixed n B: its grid is reduced to the n that divide it."""
    if B is not None:
        raise UserError(f"B = {B} and n B = {batch} cannot both be fixed: with a fixed batch, B is {batch} / n")
    if batch < 1 or batch % (2 * COMMON):
        raise UserError(f"expected a fixed batch (n B rollouts per update) that is a multiple of {2 * COMMON}, so that "
                        f"n = {COMMON}, the default, and its double can be compared; got {batch}")
    grid = tuple(n for n in shape.grid if batch % n == 0)
    if len(grid) < 2:
        raise UserError(f"fewer than two n of {list(shape.grid)} divide a batch of {batch}: nothing to compare")
    return replace(shape, grid=grid, B=batch // COMMON, batch=batch)


def ladder(shape: Preset) -> Iterator[Preset]:
    """The shape, then smaller ones: B (unless fixed) halves down to 4, the largest n goes, seeds fall to 3 and to 2."""
    Bs = [shape.B, *(b for b in (shape.B // 2, shape.B // 4) if b >= 4 and not shape.batch)]
    grids = [shape.grid[:k] for k in range(len(shape.grid), min(3, len(shape.grid)) - 1, -1)]
    for seeds in dict.fromkeys((shape.seeds, min(3, shape.seeds), 2)):
        for grid in grids:
            for B in Bs:
                yield replace(shape, grid=grid, B=B, seeds=seeds, probe_seeds=1 if seeds < 5 else shape.probe_seeds,
                              edge_seeds=1 if seeds < 5 else shape.edge_seeds, train_seeds=max(LEAST_SEEDS, seeds))
