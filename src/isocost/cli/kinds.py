"""Commands that do what a study's kind says: what begins a profile of another kind, `plan` and `audit`.

An option of `profile` in `BEGIN` names the kind of a new study. Its module has `profiled(out, value, asked, given,
observer)`, the names of the options that it `TAKES`, and those that are for it `ONLY`, with `FOR` as the text of why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
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
    Size,
    counts,
    json_option,
    numbers,
    priced,
    refuse_others,
    reported,
    server_limits,
    server_options,
    study_in,
)
from isocost.errors import UserError

# Option of `profile`: the module that reads the others.
BEGIN = {"trainer": "isocost.cli.trainer", "strategies": "isocost.cli.test_time", "control": "isocost.cli.control"}


def begun(asked: Mapping[str, Any], given: Mapping[str, str]) -> Callable[[Path, Any], Any] | None:
    """The profile of a study of another kind, as a function of the study's folder and an observer, where one of `BEGIN`
    was given; else None. `given` are the options that the user gave, as they are written. Raises UserError for an
    option that this kind does not take."""
    for name, module in BEGIN.items():
        if asked[name] is None:
            continue
        kind = import_module(module)
        refuse_others(given, kind.TAKES, f"has no use with {given[name]}: {kind.FOR}")
        return lambda out, observer: kind.profiled(out, asked[name], asked, given, observer)
    return None


def without_kinds(asked: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The options of a profile without those of other kinds. Raises UserError where one of these was given."""
    modules = {name: import_module(module) for name, module in BEGIN.items()}
    for name, kind in modules.items():
        if wrong := next((option for own, option in given.items() if own in kind.ONLY), None):
            raise UserError(f"{wrong} is for {kind.STUDY}: name it with --{name}")
    others = {*BEGIN, *(name for kind in modules.values() for name in kind.ONLY)}
    return {name: value for name, value in asked.items() if name not in others}


@click.command(cls=Sectioned)
@click.argument("study", type=FOLDER)
@click.option("--size", help="a preset: tiny, quick, standard, long or agents  [default: as planned before, or quick]")
@click.option(
    "--budget",
    help="what pilot and training may spend: 50k-rollouts, 2M-tokens (written), 1e18flop, 2h, 16device-hours, 20usd; "
    "evaluations count in time and money only. It can be changed until a forecast is sealed",
)
@priced
@click.option("--workers", type=SOME, help="runs side by side, for hours and money  [default: by the cores]")
@click.option(
    "--lr",
    type=POSITIVE,
    help="learning rate at which the rule is anchored; the probe also runs 1/4 and 4 times it",
)
@click.option("--groups", "-B", type=SOME, help="B: problems per update in the pilot")
@click.option("--fixed-batch", type=SOME, help="fix n B, rollouts per update, instead of B: the pilot trades n for B")
@click.option("--turns", metavar="H,H", help="turn limits of training that the pilot compares, of dialogues  [default: "
              "the environment's, and a lower one where the profile shows that it may pay]")
@click.option("--metric", help="what laws are of: pass@1, best@4 or worst@4 (one, or all, of 4 right)")
@click.option(
    "--samples",
    type=SOME,
    help="at most, per held-out problem, where evaluation is not exact  [default: as profiled, up to 16 where it takes "
    "more to tell two n apart]",
)
@click.option(
    "--evaluation-share",
    type=POSITIVE,
    help="evaluations cost at most this share of training, in the budget's unit  [default: 0.25]",
)
@click.option("--accuracy", type=SHARE, help="of strategies, instead of --budget: the accuracy to reach at least cost")
@click.option("--answers", type=Size("answers, such as 100k or 1M"), metavar="Q",
              help="of strategies: train or think? The answers that a checkpoint's training is for, such as 100k; "
              "--budget is then of training and all answers")
@click.option("--speed", type=POSITIVE, help="of strategies, for 2s/answer: tokens per second of one text")
@click.option("--return", "wanted", type=float, help="control: the return to plan for  [default: the best that the "
              "budget pays for]")
@click.option("--sample-cost", metavar="COST", help="control: what a sample costs besides, such as 0.02s, 4e9flop or "
              "0.001usd")
@click.option("--update-cost", metavar="COST", help="control: what an update costs besides, or at all where the runs "
              "were imported")
@click.option("--sigma", metavar="S,S,S", help="control: updates per sample of the pilot  [default: 1,2,4, and with a "
              "budget for it 0.5,1,2,4,8]")
@click.option("--seeds", type=SOME, help="control: seeds of a setting in the pilot  [default: 5]")
@click.option("--length", type=SOME, help="control: samples of a run of the pilot  [default: as profiled]")
@click.option("--train-seeds", type=SOME, help="control: new seeds of each trained arm  [default: 5]")
@click.option("--shorter", type=float, help="control: runs of the pilot at a larger sigma are shorter, by its ratio to "
              "the least one to this power, such as 0.4  [default: 0]")
@json_option
@reported
def plan(study: Path, **asked: Any) -> Any:
    """Plan the pilot; once there is a law, prescribe n, B, M, learning rate and seeds.

    Of a study of test-time strategies: choose what to run for each answer within a budget such as 1k-tokens/answer,
    2s/answer or 0.002usd/answer, and seal the accuracy that is expected.
    """
    from isocost.steps import kinds

    asked["turns"], asked["sigma"] = counts(asked["turns"], "--turns"), numbers(asked["sigma"], "--sigma")
    return kinds.plan(study_in(study), asked)


@click.command(cls=Sectioned)
@click.argument("study", type=FOLDER)
@click.option("--data", required=True, help="the problems, as for `isocost profile`; rows of a .jsonl need no answer")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
              help="the file of answers; those that are there are not made again")
@click.option("--seed", type=ANY, default=0, show_default=True, help="of everything that is sampled")
@server_options
@json_option
@reported
def answer(study: Path, data: str, out: Path, shown: Any, **asked: Any) -> Any:
    """Answer problems as the plan of a study of test-time strategies says, one line an answer with its cost."""
    from isocost.steps.test_time.answer import answer

    limits = server_limits(asked)
    return answer(study_in(study), data, out, limits=limits, observer=shown, **asked)


@click.command(cls=Sectioned)
@click.argument("study", type=FOLDER)
@json_option
@reported
def audit(study: Path) -> Any:
    """Compare the sealed forecast with the outcome. Exits 0 hit, 3 miss, 4 cannot tell or uninformative."""
    from isocost.steps import kinds

    found = kinds.audit(study_in(study))
    return found, int(found.exit_code)
