"""The command `serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from isocost.cli.options import (
    ANY,
    FOLDER,
    POSITIVE,
    SOME,
    Sectioned,
    given,
    json_option,
    reported,
    server_limits,
    server_options,
    setting_options,
)


@click.command(cls=Sectioned)
@click.argument("what", metavar="MODEL|RUN")
@click.option("--strategy", default="one", show_default=True, help="of requests that name none: one, best-of:n=8,"
              "scorer=steps, ... (see `isocost strategies`)")
@click.option("--host", default="127.0.0.1", show_default=True, help="the interface to listen on; another needs a key")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one")
@click.option("--key", help="that clients must send; better in the environment: ISOCOST_SERVE_KEY")
@click.option("--tokens", type=SOME, default=2**18, show_default=True, help="under way at once: prompt and limit of "
              "every completion")
@click.option("--queue", type=ANY, default=256, show_default=True, help="requests that wait for room; more are "
              "answered with 429")
@click.option("--grace", type=POSITIVE, default=30, show_default=True, help="seconds that the end waits for answers")
@click.option("--out", type=FOLDER, help="a folder that keeps answers and bills, answers.jsonl")
@json_option
@server_options
@setting_options
@reported
def serve(what: str, as_json: bool, out: Path | None, strategy: str, **asked: Any) -> None:
    """Answer requests of OpenAI's protocol with a model of this machine or behind a server, by any strategy.

    A request may name its own: extra_body={"isocost": {"strategy": "best-of:n=8,...", "budget": "800-tokens"}}. Usage
    counts every token that was read or written for it. Ctrl-C answers what is under way and prints the bill.
    """
    from isocost.cli.printer import observer, printed
    from isocost.steps.serving.serve import KEY, Access, Load, serve, setting_for

    shown, limits = observer(as_json), server_limits(asked)
    access = Access(asked.pop("host"), asked.pop("port"), asked.pop("key") or os.environ.get(KEY, ""))
    load = Load(asked.pop("tokens"), asked.pop("queue"), asked.pop("grace"))
    setting, known = setting_for(what, asked, given())
    found = serve(setting, strategy, known=known, access=access, load=load, limits=limits, out=out, observer=shown)
    printed(found, shown, as_json)
