"""The command `doctor`: checks of a model, or of the service that trains it."""

from __future__ import annotations

from typing import Any

import click

from isocost.cli.options import Sectioned, given, json_option, model_options, reported
from isocost.errors import UserError
from isocost.screen.terminal import echo

OF_SERVICE = ("model", "named", "tinker", "data", "lora", "as_json")     # options of a check of a service


@click.command(cls=Sectioned)
@click.argument("named", metavar="[MODEL]", required=False)
@click.option("--tinker", metavar="URL#MODEL", help="--model tinker:URL#MODEL as earlier versions wrote it")
@json_option
@model_options
@reported
def doctor(as_json: bool, named: str | None, tinker: str | None, model: str | None, **asked: Any) -> int:
    """Check MODEL, its template, sampler, verifier and speed here, in about a minute. Exits 3 if a check fails.

    MODEL is what --model is, which may be given instead. Of a model that a service trains (tinker:URL#MODEL) the
    service is checked, with --data and --lora only: what it makes of gradients, log-probs, seeds and checkpoints.
    Nothing is written.
    """
    from isocost.cli.printer import observer, printed
    from isocost.doctor import at_a_service, diagnose

    if tinker is not None:
        there = f"tinker:{tinker.removeprefix('tinker:')}"
        echo(f"--tinker goes with the next version: write --model {there}", err=True)
        model = model or there
    if named and model:
        raise UserError(f"MODEL is {named} and --model is {model}: leave one out")
    model = named or model
    if model and at_a_service(model) and (
            unused := [written for name, written in given().items() if name not in OF_SERVICE]):
        raise UserError(f"{unused[0]} has no use with a model that a service trains: leave it out")
    shown = observer(as_json)
    found = diagnose(model, **asked, observer=shown)
    printed(found, shown, as_json)
    return 0 if found.sound else 3
