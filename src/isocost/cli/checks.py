"""The command `doctor`: checks of a model, of a reward alone, or of a service, on this machine."""

from __future__ import annotations

from typing import Any

import click

from isocost.cli.options import Sectioned, given, json_option, reported, setting_options
from isocost.errors import UserError

ALONE = ("pass_rate", "study", "reward_scale")      # options of the audit of a reward alone


@click.command(cls=Sectioned)
@click.argument("model", required=False)
@click.option("--tinker", metavar="URL#MODEL", help="check a service of the Tinker API: what it makes of gradients, "
              "log-probs, seeds and checkpoints; with --data and --lora only")
@click.option("--pass-rate", type=click.FloatRange(0, 1), help="of a reward alone: the pass rate at which its errors "
              "are priced  [default: that of the data or the study, else 0.3]")
@click.option("--study", metavar="STUDY", help="of a reward alone: price its errors by the law of this study")
@click.option("--scale", "reward_scale", metavar="LOW,HIGH", help="of a reward alone: its least and largest value, if "
              "not 0 and 1")
@json_option
@setting_options
@reported
def doctor(
    as_json: bool, tinker: str | None, pass_rate: float | None, study: str | None, reward_scale: str | None,
    **asked: Any,
) -> int:
    """Check MODEL, its template, sampler, verifier and speed here, in about a minute. Exits 3 if a check fails.

    MODEL is what --model is elsewhere: 'tiny', 'tiny-puzzles', 'smollm2' or a Hugging Face folder. With --reward and
    without MODEL the reward alone is audited, in seconds. With --tinker a service is checked instead. Nothing is
    written.
    """
    if tinker is not None:
        return _doctor_of_service(tinker, as_json, asked)
    if asked["verifier"] and not asked["model"] and not asked["env"]:
        return _doctor_of_reward(as_json, asked, pass_rate=pass_rate, study=study, scale=reward_scale)
    if unused := [written for name, written in given().items() if name in ALONE]:
        raise UserError(f"{unused[0]} is for a reward alone: give --reward and no model")
    from isocost.cli.printer import observer, printed
    from isocost.doctor import diagnose

    shown = observer(as_json)
    found = diagnose(**asked, observer=shown)
    printed(found, shown, as_json)
    return 0 if found.sound else 3


def _doctor_of_reward(as_json: bool, asked: dict[str, Any], scale: str | None, **more: Any) -> int:
    from isocost.cli.printer import observer, printed
    from isocost.doctor.reward.audit import diagnose_reward
    from isocost.steps.outside.importing import scale_of

    taken = ("verifier", "data", "limit", "skip_broken", "system")
    if unused := [w for name, w in given().items() if name not in (*taken, *ALONE, "as_json")]:
        raise UserError(f"{unused[0]} has no use for a reward alone: leave it out, or name a model to check with it")
    shown = observer(as_json)
    named = {k: asked[k] for k in taken[1:]}
    found = diagnose_reward(asked["verifier"], scale=scale_of(scale) or (0.0, 1.0), **named, **more, observer=shown)
    printed(found, shown, as_json)
    return 0 if found.sound else 3


def _doctor_of_service(url: str, as_json: bool, asked: dict[str, Any]) -> int:
    from isocost.cli.printer import observer, printed
    from isocost.doctor.service import diagnose_service

    if unused := [written for name, written in given().items() if name not in ("tinker", "data", "lora", "as_json")]:
        raise UserError(f"{unused[0]} has no use with --tinker: leave it out")
    shown = observer(as_json)
    found = diagnose_service(url, asked["data"], lora=asked["lora"], observer=shown)
    printed(found, shown, as_json)
    return 0 if found.sound else 3
