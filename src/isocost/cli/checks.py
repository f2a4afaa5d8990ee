"""The command `doctor`: checks of a model, of the service that trains it, or of a reward alone."""

from __future__ import annotations

from typing import Any

import click

from isocost.cli.options import Sectioned, given, json_option, model_options, refuse_others, reported
from isocost.errors import UserError

ALONE = ("pass_rate", "study", "reward_scale")      # options of the audit of a reward alone
OF_SERVICE = ("model", "named", "data", "lora", "as_json")     # options of a check of a service


@click.command(cls=Sectioned)
@click.argument("named", metavar="[MODEL]", required=False)
@click.option("--pass-rate", type=click.FloatRange(0, 1), help="of a reward alone: the pass rate at which its errors "
              "are priced  [default: that of the data or the study, else 0.3]")
@click.option("--study", metavar="STUDY", help="of a reward alone: price its errors by the law of this study")
@click.option("--scale", "reward_scale", metavar="LOW,HIGH", help="of a reward alone: its least and largest value, if "
              "not 0 and 1")
@json_option
@model_options
@reported
def doctor(
    named: str | None, model: str | None, pass_rate: float | None, study: str | None, reward_scale: str | None,
    shown: Any, **asked: Any,
) -> Any:
    """Check MODEL, its template, sampler, learner and verifier here, in about a minute. Exits 3 if a check fails.

    MODEL is what --model is, which may be given instead. Of a model that a service trains (tinker:URL#MODEL) the
    service is checked, with data and the rank of an adapter only: what it makes of gradients, log-probs, seeds and
    checkpoints. A reward without a model is audited alone, in seconds. Nothing is written.
    """
    if named and model:
        raise UserError(f"MODEL is {named} and --model is {model}: leave one out")
    model = named or model
    if asked["verifier"] and not model and not asked["env"]:
        return _doctor_of_reward(asked, pass_rate=pass_rate, study=study, scale=reward_scale, observer=shown)
    if unused := [written for name, written in given().items() if name in ALONE]:
        raise UserError(f"{unused[0]} is for a reward alone: give --reward and no model")
    from isocost.doctor import at_a_service, diagnose

    if model and at_a_service(model):
        refuse_others(given(), OF_SERVICE, "has no use with a model that a service trains: leave it out")
    found = diagnose(model=model, **asked, observer=shown)
    return found, 0 if found.sound else 3


def _doctor_of_reward(asked: dict[str, Any], scale: str | None, **more: Any) -> Any:
    from isocost.doctor.reward.audit import diagnose_reward
    from isocost.steps.outside.importing import scale_of

    taken = ("verifier", "data", "limit", "skip_broken", "system")
    refuse_others(given(), (*taken, *ALONE, "as_json"),
                  "has no use for a reward alone: leave it out, or name a model to check with it")
    named = {k: asked[k] for k in taken[1:]}
    found = diagnose_reward(asked["verifier"], scale=scale_of(scale) or (0.0, 1.0), **named, **more)
    return found, 0 if found.sound else 3
