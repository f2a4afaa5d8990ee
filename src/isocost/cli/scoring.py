"""The command `scorer`: a scorer that is learned from continuations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from isocost.cli.options import ANY, FOLDER, POSITIVE, SOME, json_option, reported, setting_options


@click.command()
@click.argument("model")
@click.option("--out", type=FOLDER, default="scorer", show_default=True, help="folder for the scorer")
@click.option("--texts", type=SOME, default=4, show_default=True, help="texts sampled per problem")
@click.option("--per-step", type=SOME, default=8, show_default=True, help="continuations of each step of a text")
@click.option("--epochs", type=SOME, default=4, show_default=True, help="passes over the labels")
@click.option("--lr", type=POSITIVE, default=3e-4, show_default=True, help="learning rate of the value function")
@click.option("--seed", type=ANY, default=0, show_default=True, help="of texts, continuations and updates")
@setting_options
@json_option
@reported
def scorer(out: Path, shown: Any, **asked: Any) -> Any:
    """Learn to score texts from what their continuations earn, and measure its errors on held-out problems.

    MODEL is a model on this machine. Use the scorer with --strategy NAME:scorer=learned:file=OUT.
    """
    from isocost.steps.scorer import Fitting, learn_scorer
    from isocost.steps.settings import setting_of

    fitting = Fitting(**{k: asked.pop(k) for k in ("texts", "per_step", "epochs", "lr", "seed")})
    return learn_scorer(setting_of(asked), out, fitting, observer=shown)
