"""The options of a profile of test-time strategies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isocost.cli.options import ANY, SOME, counts, server_limits, several
from isocost.errors import UserError

if TYPE_CHECKING:
    from isocost.steps.events import Observer

ONLY = ("strategies", "scorer", "probe", "bands", "pool", "sizes", "band_by", "temperatures", "lengths",
        "efforts", "checkpoints")
STORED = ("out", "seed", "completions", "columns", "scale", "model", "skip_broken", "as_json", "strategies",
          "scorer", "probe", "bands", "checkpoints", "parameters")
LIVE = ("problems", "concurrency", "timeout", "retries", "per_minute", "named")
TAKES = (*STORED, *ONLY, *LIVE, "env", "max_turns", "data", "verifier", "held_out", "held_out_data", "limit", "system",
         "temperature", "top_p", "top_k", "max_tokens", "device", "dtype", "threads")
FOR, STUDY = "it compares ways to answer, and trains nothing", "a study of test-time strategies"


strategy_options = several(      # of `profile`, for a study of strategies only
    click.option("--strategies", metavar="NAMES", help="compare test-time strategies, and train nothing: best-of, "
                 "vote, weighted-vote, until-sure, separated by commas, or all of them that the samples suffice "
                 "for; of a model also searches, such as beam and particles"),
    click.option("--scorer", help="with --strategies: what chooses among samples, such as steps or "
                 "my_scorer.py:function; 'verifier' if the verifier is at hand for every answer  [default: the "
                 "file's column of scores; of a model the verifier]"),
    click.option("--pool", type=SOME, help="with --strategies, of a model: samples of each problem  [default: 32]"),
    click.option("--sizes", metavar="N,N", help="with --strategies: the sizes of searches  [default: 4,16]"),
    click.option("--temperatures", metavar="T,T", help="with --strategies, of a model: other temperatures to "
                 "compare"),
    click.option("--lengths", metavar="N,N", help="with --strategies, of a model: other limits of a completion, in "
                 "tokens, to compare"),
    click.option("--efforts", metavar="low,high", help="with --strategies, of a server: reasoning efforts that it "
                 "knows, to compare"),
    click.option("--checkpoints", metavar="RUN,RUN", help="with --strategies: trained runs, or studies of training, "
                 "whose policies are compared too; RUN@STEP is a step that the run kept; a study that was "
                 "not trained is foretold. With --completions RUN=FILE "
                 "or NAME:COST=FILE: grpo:3e18flop=grpo.jsonl"),
    click.option("--band-by", metavar="KEY", help="with --strategies, of a model: the key of a problem's data that "
                 "tells its band  [default: probe samples]"),
    click.option("--probe", type=ANY, help="with --strategies: samples of each problem that tell its band of "
                 "difficulty, and nothing else  [default: 4 of 16 or more, without a column of levels]"),
    click.option("--bands", type=SOME, default=3, show_default=True, help="with --strategies: bands of difficulty, "
                 "at most"),
)


def arms_of(asked: Mapping[str, Any]) -> list[dict[str, float | str]]:
    """The other sampling settings that are asked for. Raises UserError for what is no temperature or length."""
    try:
        warm = [float(x) for x in (asked["temperatures"] or "").split(",") if x.strip()]
    except ValueError:
        raise UserError(f"--temperatures {asked['temperatures']!r}: expected numbers, such as 0.6,1.2") from None
    if any(not 0 < x < 100 for x in warm):
        raise UserError(f"--temperatures {asked['temperatures']}: samples at temperature 0 are all equal; expected "
                        "numbers above 0")
    long = counts(asked["lengths"], "--lengths") or []
    efforts = [x.strip() for x in (asked["efforts"] or "").split(",") if x.strip()]
    named: dict[str, Sequence[float | str]] = {"temperature": warm, "max_tokens": long, "effort": efforts}
    return [{name: x} for name, values in named.items() for x in values]


def profiled(
    out: Path, names: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer
) -> Any:
    """The profile of the strategies `names` with these options, of which `given` were given."""
    from isocost.steps.outside.importing import mapped_of, scale_of
    from isocost.steps.settings import setting_of
    from isocost.steps.test_time.profile import SAMPLES, SEARCHED, Compared, profile_live, profile_stored

    strategies = [name.strip() for name in re.split(r",(?![^(]*\)|\w+=)", names) if name.strip()]
    compared = Compared(
        strategies, asked["scorer"], asked["seed"], asked["probe"], asked["bands"], asked["problems"],
        asked["pool"] or SAMPLES, counts(asked["sizes"], "--sizes") or SEARCHED, asked["band_by"] or "", arms_of(asked),
        [Path(x.strip()) for x in (asked["checkpoints"] or "").split(",") if x.strip()], asked["parameters"],
    )
    if asked["completions"] is None:
        return profile_live(out, setting_of(asked), compared, limits=server_limits(dict(asked)), observer=observer)
    if wrong := next((option for name, option in given.items() if name not in STORED), None):
        raise UserError(f"{wrong} has no use with --completions, which were sampled before: leave it out")
    return profile_stored(
        out, asked["completions"], compared, mapped_of(asked["columns"]), model=asked["model"],
        scale=scale_of(asked["scale"]), skip_broken=asked["skip_broken"],
    )
