"""The built-in worlds that `quickstart --world NAME` runs: one row each, with the size of its studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isocost.planner.training import study_runs
from isocost.planner.training.study_runs import Preset


@dataclass(frozen=True)
class BuiltIn:
    """A built-in world. Its model is the one that was taught its problems or its environment.

    `options` are those that its name stands for, `evaluated` how it is evaluated unless the user says otherwise, and
    `preset` the shape of its studies, which has the world's name; None: the default.
    """

    options: Mapping[str, Any]
    evaluated: Mapping[str, Any] = field(default_factory=dict)
    preset: Preset | None = None
    kind: str = "training"      # of its study: which planner it is of


WORLDS = {
    "sums": BuiltIn({"data": "sums:base=hard"}),
    "puzzles": BuiltIn({"data": "puzzles"}),
    "think": BuiltIn({"data": "puzzles"}, kind="test_time"),
    "control": BuiltIn({}, kind="control"),     # a pendulum
    "agents": BuiltIn(
        {"env": "rooms"},
        {"held_out": 0.4, "samples": 8},    # of 176 problems 70, so that an evaluation's noise is below 0.03
        # A few minutes. A rollout that is only sampled takes a tenth of the time of a trained one.
        Preset((4, 8, 16), 8, 4096, 3, 1024, 1, 1, 15360, 4, evaluation_share=1.0),
    ),
}
PRESETS = {**study_runs.GENERAL, **{name: world.preset for name, world in WORLDS.items() if world.preset}}
