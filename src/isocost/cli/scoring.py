"""The command `scorer`: a scorer that is learned from continuations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from isocost.cli.options import ANY, FOLDER, POSITIVE, SOME, json_option, reported, setting_options
from isocost.errors import UserError


@click.command()
@click.argument("model")
@click.option("--out", type=FOLDER, default="scorer", show_default=True, help="folder for the scorer")
@click.option("--of", "what", type=click.Choice(["texts", "prompts"]), default="texts", show_default=True,
              help="what is scored: texts, or prompts before any text")
@click.option("--others", metavar="MODEL,MODEL", help="of prompts: further policies whose pass rates are learned")
@click.option("--texts", type=SOME, help="texts sampled per problem  [default: 4; of prompts 16]")
@click.option("--per-step", type=SOME, help="of texts: continuations of each step  [default: 8]")
@click.option("--epochs", type=SOME, help="passes over the labels; of prompts updates  [default: 4; of prompts 300]")
@click.option("--lr", type=POSITIVE, help="learning rate of the value function  [default: 3e-4; of prompts 0.01]")
@click.option("--seed", type=ANY, default=0, show_default=True, help="of texts, continuations and updates")
@setting_options
@json_option
@reported
def scorer(out: Path, what: str, others: str | None, shown: Any, **asked: Any) -> Any:
    """Learn to score texts from what their continuations earn, or prompts, and measure its errors on held-out problems.

    MODEL is a model on this machine. Use it with --strategy NAME:scorer=learned:file=OUT, of prompts as
    scorer=prompts:file=OUT, or `isocost train v0 --set guide.file=OUT`.
    """
    from isocost.steps.prompt_scorer import PROMPTS, learn_prompts
    from isocost.steps.scorer import Fitting, learn_scorer
    from isocost.steps.settings import setting_of

    names = ("texts", "per_step", "epochs", "lr", "seed")
    known = {k: x for k in names if (x := asked.pop(k)) is not None}
    setting = setting_of(asked)
    if what == "prompts" and "per_step" not in known:
        policies = [x.strip() for x in (others or "").split(",") if x.strip()]
        return learn_prompts(setting, out, replace(PROMPTS, **known), policies, observer=shown)
    if what == "prompts" or others:
        raise UserError("--per-step is of --of texts, and --others of --of prompts: leave it out")
    return learn_scorer(setting, out, Fitting(**known), observer=shown)
