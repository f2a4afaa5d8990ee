"""The command `doctor`: checks of a model, or of a service, on this machine."""

from __future__ import annotations

from typing import Any

import click

from isocost.cli.options import Sectioned, given, json_option, reported, setting_options
from isocost.errors import UserError


@click.command(cls=Sectioned)
@click.argument("model", required=False)
@click.option("--tinker", metavar="URL#MODEL", help="check a service of the Tinker API: what it makes of gradients, "
              "log-probs, seeds and checkpoints; with --data and --lora only")
@json_option
@setting_options
@reported
def doctor(as_json: bool, tinker: str | None, **asked: Any) -> int:
    """Check MODEL, its template, sampler, verifier and speed here, in about a minute. Exits 3 if a check fails.

    MODEL is what --model is elsewhere: 'tiny', 'tiny-puzzles', 'smollm2' or a Hugging Face folder. With --tinker a
    service is checked instead. Nothing is written.
    """
    if tinker is not None:
        return _doctor_of_service(tinker, as_json, asked)
    from isocost.cli.printer import observer, printed
    from isocost.doctor import diagnose

    shown = observer(as_json)
    found = diagnose(**asked, observer=shown)
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
