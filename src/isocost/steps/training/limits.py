"""The turn limits of a study: the runs of one of them, and the choice that a law was fitted with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from isocost.laws.curves import Curve, multiplier
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.turn_limits import LimitChoice


def of_limit(curves: Sequence[Curve], planned: PilotPlan) -> list[Curve]:
    """The curves of a plan of one turn limit (`PilotPlan.at`): those of its grid, and all of other purposes. Where
    another learning rate than the rule's was better, the runs of the n that went on at it are the grid's, and all runs
    at the rule's rate are edge runs: arms of one law have one rule."""
    there = [c for c in curves if c.purpose != "pilot" or c.arm.get("turns") == planned.turns[-1]]
    return [_placed(c, dict(planned.rates)) for c in there] if planned.rates else there


def _placed(c: Curve, rates: Mapping[int, float]) -> Curve:
    """A curve of the grid or of an edge, as it counts where these n have these multiples of the rule's rate."""
    if c.purpose not in ("pilot", "edge"):
        return c
    rate = rates.get(c.arm["n"], max(rates.values()))
    purpose = "pilot" if multiplier(c) == rates.get(c.arm["n"]) else "edge"
    return replace(c, purpose=purpose, arm=c.arm.but(multiplier=multiplier(c) / rate))


def of_chosen(option: str, choice: LimitChoice | None) -> str:
    """An option of `isocost pilot` that adds runs for a law, which is of the chosen limit alone."""
    return f"{option} --turns {choice.chosen}" if option and choice is not None else option
