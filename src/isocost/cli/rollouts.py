"""The command `rollouts`: the kept rollouts of a study or a run, turn by turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from isocost.cli.options import ANY, FOLDER, SOME, json_option, reported

OUTCOMES = ("success", "failure", "limit", "stopped", "fault")
FAULTS = ("any", "environment", "tool", "model")
PARTS = ("training", "held-out")


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--run", help="of the run with this name; 'profile' is what the study's profile sampled")
@click.option("--update", type=ANY, help="sampled after this many updates")
@click.option("--part", type=click.Choice(PARTS), help="of training, or of evaluations on held-out problems")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="limit: cut at the limit of turns or tokens; stopped: by "
              "its schedule; fault: it has no score, because its environment or verifier failed")
@click.option("--fault", type=click.Choice(FAULTS), help="with a fault of this source")
@click.option("--problem", help="of the problem with this id")
@click.option("--attempt", type=ANY, help="number of the attempt in its group")
@click.option("--first", type=SOME, default=3, show_default=True, help="how many to show, at most")
@json_option
@reported
def rollouts(folder: Path, **asked: Any) -> Any:
    """Show rollouts turn by turn: what was shown and written, rewards, faults and tokens.

    FOLDER is a study, a folder of runs, or a run. A record keeps some of its rollouts as text (docs/records.md).
    """
    from isocost.steps.look.kept_rollouts import find_rollouts

    return find_rollouts(folder, **asked)
