"""The options of a profile of a user's own trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost.cli.options import refuse_others, site_of
from isocost.errors import UserError
from isocost.runs.launch.site import Site
from isocost.steps.events import Observer

ONLY = ("launch", "address", "gpus_per_run", "metrics", "lr", "groups", "scale", "stall")      # with --trainer only
TAKES = ("out", "seed", "trainer", "model", "data", "held_out", "samples", "columns", "parameters", "as_json",
         *ONLY)
FOR, STUDY = "model, problems, reward and sampling are your script's", "a study of your own trainer"


COMPARED = ("arms", "budget", "seeds", "rollouts", "groups", "lr", "evaluations", "margin", "seed", "held_out",
            "samples", "metrics", "columns", "stall", "model", "data", "out", "workers")      # of a comparison
EXECUTED = ("out", "workers")       # of these, those that a plan does not have
SHARED = ("trainer", "launch", "address", "gpus_per_run", "dry_run", "pilot", "as_json")


def compared(
    arms: Sequence[str], trainer: str, asked: Mapping[str, Any], given: Mapping[str, str], site: Site,
    observer: Observer, *, dry_run: bool, pilot: int | None,
) -> Any:
    """The comparison of settings of a trainer with these options, of which `given` were given; with `dry_run` its plan,
    with `pilot` the gate of a pilot of so many seeds.
    """
    from isocost.compare.trainer import compare_trainer, pilot_trainer, plan_trainer_comparison
    from isocost.steps.outside.importing import mapped_of

    refuse_others(given, (*COMPARED, *SHARED), "has no use with --trainer: model, problems, reward and method are your "
                                               "script's")
    options = {k: asked[k] for k in COMPARED if k != "arms" and (k in given or k in ("budget", "seed"))}
    options |= {k: int(options[k]) for k in ("held_out",) if k in options}
    options["columns"] = mapped_of(asked["columns"])
    if dry_run:
        return plan_trainer_comparison(arms, trainer, **{k: v for k, v in options.items() if k not in EXECUTED})
    if pilot is not None:
        return pilot_trainer(arms, trainer, pilot=pilot, site=site, observer=observer, **options)
    return compare_trainer(arms, trainer, site=site, observer=observer, **options)


def profiled(
    out: Path, text: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer
) -> Any:
    """The profile of the trainer `text` with these options, of which `given` were given."""
    from isocost.steps.outside.importing import mapped_of, scale_of
    from isocost.steps.outside.settle import trainer_of
    from isocost.steps.outside.trainer import GROUPS, profile_trainer

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
