"""The options of a profile of test-time strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isocost.cli.options import ANY, SOME
from isocost.errors import UserError

if TYPE_CHECKING:
    from isocost.steps.events import Observer

ONLY = ("strategies", "scorer", "probe", "bands")
TAKES = ("out", "seed", "completions", "columns", "scale", "model", "skip_broken", "as_json", "verbose", *ONLY)
FOR, STUDY = "it compares ways to answer, and trains nothing", "a study of test-time strategies"


def strategy_options(f: Callable) -> Callable:
    """The options of `profile` that are for a study of strategies only."""
    for option in reversed((
        click.option("--strategies", metavar="NAMES", help="compare test-time strategies, and train nothing: best-of, "
                     "vote, weighted-vote, until-sure, separated by commas, or all that the samples suffice for"),
        click.option("--scorer", help="with --strategies: what chooses among samples; 'verifier' if the verifier is at "
                     "hand for every answer  [default: the column of scores]"),
        click.option("--probe", type=ANY, help="with --strategies: samples of each problem that tell its band of "
                     "difficulty, and nothing else  [default: 4 of 16 or more, without a column of levels]"),
        click.option("--bands", type=SOME, default=3, show_default=True, help="with --strategies: bands of difficulty, "
                     "at most"),
    )):
        f = option(f)
    return f


def profiled(
    out: Path, names: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer
) -> Any:
    """The profile of the strategies `names` with these options, of which `given` were given."""
    from isocost.steps.outside.importing import mapped_of, scale_of
    from isocost.steps.test_time.profile import profile_stored

    strategies = [name.strip() for name in names.split(",") if name.strip()]
    if asked["completions"] is None:
        raise UserError("--strategies needs samples: name a file of them with --completions")
    return profile_stored(
        out, asked["completions"], strategies=strategies, columns=mapped_of(asked["columns"]),
        scorer=asked["scorer"], probe=asked["probe"], bands=asked["bands"], seed=asked["seed"], model=asked["model"],
        scale=scale_of(asked["scale"]), skip_broken=asked["skip_broken"],
    )
