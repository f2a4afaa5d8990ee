"""The options of a profile of a user's own trainer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.steps.events import Observer
from isocost.steps.trainer_profile import TrainerProfile

ONLY = ("launch", "address", "gpus_per_run", "metrics", "lr", "groups", "scale", "stall")      # with --trainer only
TAKES = ("out", "seed", "trainer", "model", "data", "held_out", "samples", "columns", "parameters", "as_json", *ONLY)


def unused_without(given: Mapping[str, str]) -> None:
    """Raises UserError for an option that was given and has no use without a trainer."""
    wrong = next((option for name, option in given.items() if name in ONLY), None)
    if wrong is not None:
        raise UserError(f"{wrong} is for a study of your own trainer: name it with --trainer")


def profiled(
    out: Path, text: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer
) -> TrainerProfile:
    """The profile of the trainer `text` with these options, of which `given` were given."""
    from isocost.cli.options import site_of
    from isocost.steps.importing import mapped_of, scale_of
    from isocost.steps.settle import trainer_of
    from isocost.steps.trainer import GROUPS, profile_trainer

    wrong = next((option for name, option in given.items() if name not in TAKES), None)
    if wrong is not None:
        raise UserError(f"{wrong} has no use with --trainer: model, problems, reward and sampling are your script's")
    held_out = asked["held_out"] if "held_out" in given else None
    if held_out is not None and (held_out < 1 or held_out != int(held_out)):
        raise UserError(f"--held-out {held_out:g}: with --trainer, the number of held-out problems, such as 200")
    trainer = trainer_of(text, metrics=asked["metrics"], columns=mapped_of(asked["columns"]), stall=asked["stall"])
    return profile_trainer(
        out,
        trainer,
        seed=asked["seed"],
        site=site_of(dict(asked)),
        lr=asked["lr"],
        groups=asked["groups"] or GROUPS,
        held_out=None if held_out is None else int(held_out),
        samples=asked["samples"] if "samples" in given else 1,
        model=asked["model"],
        data=asked["data"] if "data" in given else None,
        parameters=asked["parameters"],
        scale=scale_of(asked["scale"]),
        observer=observer,
    )
