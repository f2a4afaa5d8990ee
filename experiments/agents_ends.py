"""What the headlines of the agent methods read from the policy that a run ends with, played on the test split."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from isocost.methods import guirc, reinforce
from isocost.methods.mirothinker import malformed
from isocost.parts import boxes
from isocost.parts.play import sample
from isocost.runs.evaluate import evaluate
from isocost.runs.run import Job
from isocost.seams import Play
from isocost.types import Rollout, Stop
from isocost.worlds.setting import open_setting

Reads = Callable[[list[Rollout]], dict[str, float]]


def ends(folder: Path, reads: Reads, *, samples: int = 8, play: Play = sample, base: bool = False) -> dict[str, float]:
    """What `reads` finds in attempts of a run's last policy at the test split; with `base`, of the one it began with.

    The attempts are plain samples (or by `play`), with random numbers of the run's own seed.
    """
    job = Job.of(json.loads((folder / "run.json").read_text())["job"])
    model = job.setting.model if base else str(folder / "final")
    opened = open_setting(job.setting.but(model=model), learn=False)
    recipe = reinforce.recipe().but(play=play)
    found = asyncio.run(evaluate(recipe, opened.world, opened.sides.audit, job.setting.measured, samples=samples,
                                 seed=job.seed, exact=False))
    opened.close()
    return reads([r for g in found.groups for r in g.rollouts])


def turns(rollouts: list[Rollout]) -> dict[str, float]:
    """Of all attempts: success, turns with a fault of the policy, and the share that ended by itself without one.

    Of the successes: calls, which are all turns but the last, and those of them that had any fault.
    """
    right = [r for r in rollouts if r.score is not None and r.score.value > 0]
    return {
        "success": len(right) / len(rollouts),
        "bad turns": float(np.mean([malformed(r) for r in rollouts])),
        "form": float(np.mean([r.stop is Stop.DONE and not malformed(r) for r in rollouts])),
        "calls": float(np.mean([len(r.turns) - 1 for r in right])) if right else float("nan"),
        "failed": float(np.mean([sum(t.fault is not None for t in r.turns) for r in right])) if right else float("nan"),
    }


def regions(rollouts: list[Rollout]) -> dict[str, float]:
    """Of answers that are boxes: hits, overlap with the target, and how far their areas are from its, as |log ratio|.

    An answer that is no box hits nothing and has no overlap; areas are of the others.
    """
    pairs = [(boxes.parsed(r.final), r.problem.meta["box"]) for r in rollouts]
    there = [(b, t) for b, t in pairs if b is not None]
    return {
        "hit": float(np.mean([boxes.hit(b, t) for b, t in pairs])),
        "overlap": sum(boxes.overlap(b, t) for b, t in there) / len(pairs),
        "size error": float(np.mean([abs(np.log(boxes.area(b) / boxes.area(t))) for b, t in there])),
    }


voted = partial(guirc.voted, votes=8)       # each attempt is the region that 8 samples agree on
