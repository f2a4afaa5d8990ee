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
    SHARE,
    SOME,
    Sectioned,
    computing_options,
    given,
    json_option,
    reported,
    server_limits,
    server_options,
)


@click.command(cls=Sectioned)
@click.argument("what", metavar="MODEL|RUN|STUDY")
@click.option("--strategy", help="of requests that name none: best-of:n=8,scorer=steps, ..., as for `isocost eval`  "
              "[default: the study's plan, else one]")
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
@click.option("--data", help="problems that requests may ask: scorers know them, and their verifier marks answers")
@click.option("--verifier", help="with --data, as for `isocost profile`  [default: the problems' own]")
@click.option("--temperature", type=POSITIVE, help="where a request has none  [default: 1]")
@click.option("--top-p", type=SHARE, help="where a request has none  [default: 1]")
@click.option("--top-k", type=ANY, help="where a request has none; 0 keeps all  [default: 0]")
@click.option("--max-tokens", type=SOME, help="of a completion, where a request has none  [default: 1024, or the run's "
              "or the problems' own]")
@server_options
@computing_options
@reported
def serve(what: str, out: Path | None, strategy: str | None, shown: Any, **asked: Any) -> Any:
    """Answer requests of OpenAI's protocol with a model of this machine or behind a server, by any strategy, or as a
    study of strategies plans.

    A request may name its own: extra_body={"isocost": {"strategy": "best-of:n=8,...", "budget": "800-tokens"}}. Usage
    counts every token that was read or written for it. Ctrl-C answers what is under way and prints the bill.
    """
    from isocost.steps.serving.serve import KEY, Access, Answerer, Load, serve
    from isocost.steps.training.served import Served

    served = Served(None, asked.pop("price"), server_limits(asked))
    access = Access(asked.pop("host"), asked.pop("port"), asked.pop("key") or os.environ.get(KEY, ""))
    load = Load(asked.pop("tokens"), asked.pop("queue"), asked.pop("grace"))
    answerer = Answerer.of(what, asked, given())
    return serve(answerer, strategy, access=access, load=load, served=served, out=out, observer=shown)
