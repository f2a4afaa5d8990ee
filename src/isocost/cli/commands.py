"""The commands. Each parses, calls one function of the package, and prints; what they do lives elsewhere.

Heavy imports are inside the commands, so that `--help` answers at once.
Exit codes: 0 done (audit: hit; compare: a difference), 1 a bug, 2 a user's mistake, 3 audit: miss (doctor: something
fails; compare: the same), 4 audit: cannot tell, or uninformative (compare: cannot tell), 5 a run that could not go on
(starved, diverged, reward failed), 130 and 143 stopped by Ctrl-C and SIGTERM with everything saved.
"""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from isocost.errors import UserError
from isocost.terminal import echo
from isocost.words import word

FOLDER = click.Path(file_okay=False, path_type=Path)
SOME = click.IntRange(min=1)
ANY = click.IntRange(min=0)
SHARE = click.FloatRange(min=0, max=1, min_open=True)
POSITIVE = click.FloatRange(min=0, min_open=True)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BARRED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG,
    errno.EEXIST, errno.ELOOP,
)


class OneLine(click.Group):
    """A mistake in how a command is called is one line too, and names the help that would have told."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as e:
            echo(e.format_message(), err=True)
            sys.exit(2)
        except click.ClickException as e:
            context = getattr(e, "ctx", None)
            asked = f" (see `{context.command_path} --help`)" if context else ""
            echo(f"isocost: {e.format_message().rstrip('.')}{asked}", err=True)
            sys.exit(2)
        except click.Abort:
            sys.exit(130)


def model_options(f: Callable) -> Callable:
    """What every command that opens a model and problems takes."""
    model = click.option(
        "--model",
        default="tiny",
        show_default=True,
        help="'tiny' (ships with isocost), 'smollm2', or a Hugging Face folder (Llama, SmolLM2, Qwen2/2.5/3)",
    )
    return model(setting_options(f))


def setting_options(f: Callable) -> Callable:
    """The same, without the model itself."""
    for option in reversed(
        (
            click.option(
                "--data",
                default="sums:level=1",
                show_default=True,
                help="'sums[:...]', 'reasoning-gym:TASK[:key=value,...]', a .jsonl or .parquet of prompt and answer, "
                "or a mix: '50% sums:base=hard + 50% sums:base=easy'",
            ),
            click.option(
                "--verifier",
                "--reward",
                help="exact, final, words, numeric, math, reasoning-gym, reasoning-gym-partial, or "
                "my_reward.py:function  [default: the problems' own]",
            ),
            click.option(
                "--held-out",
                default=0.2,
                show_default=True,
                help="share of the problems to measure on, or a number of them",
            ),
            click.option("--held-out-data", help="a set of its own to measure on, instead"),
            click.option("--limit", type=SOME, help="take this many problems only"),
            click.option(
                "--skip-broken",
                is_flag=True,
                help="go on without the rows that cannot be used; they are listed",
            ),
            click.option("--system", default="", help="a system message put before every problem"),
            click.option(
                "--temperature",
                type=POSITIVE,
                default=1.0,
                show_default=True,
                help="of sampling, in training and evaluation alike",
            ),
            click.option(
                "--top-p",
                type=SHARE,
                default=1.0,
                show_default=True,
                help="sample from the smallest set of tokens that holds this share of probability; 1 keeps all",
            ),
            click.option(
                "--top-k",
                type=ANY,
                default=0,
                show_default=True,
                help="sample from so many likeliest tokens; 0 keeps all",
            ),
            click.option("--max-tokens", type=SOME, help="per answer; 4 for the built-in short sums, else 64"),
            click.option(
                "--samples",
                type=SOME,
                default=4,
                show_default=True,
                help="per held-out problem where exact evaluation is not to be had",
            ),
            click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda"),
            click.option(
                "--dtype",
                default="auto",
                show_default=True,
                help="of the model's body: auto, fp32 or bf16; its head is fp32",
            ),
            click.option(
                "--kernels",
                default="auto",
                show_default=True,
                help="auto, native (compiled on first use, for processors) or torch",
            ),
            click.option(
                "--threads", type=SOME, help="per run; bytes depend on it. 1 for small models, else every core"
            ),
        )
    ):
        f = option(f)
    return f


def priced(f: Callable) -> Callable:
    """What turns time into device-hours and money."""
    devices = click.option("--devices", type=SOME, help="paid for by the hour on the wall  [default: 1]")
    return click.option("--price", help="2.5usd/device-hour, or 20usd/hour for the whole machine")(devices(f))


def said(f: Callable) -> Callable:
    """A user's mistake is one line and exit code 2; a signal is an exit code and the line that goes on."""

    @wraps(f)
    def command(*args: Any, **kwargs: Any) -> None:
        from isocost.errors import Interrupted

        try:
            code = f(*args, **kwargs)
        except UserError as e:
            echo(f"isocost: {e}", err=True)
            sys.exit(2)
        except Interrupted as e:
            again = shlex.join(["isocost", *sys.argv[1:]])
            echo(
                f"\nstopped; all that was paid for is saved. To go on: {e.resume or again}",
                err=True,
            )
            sys.exit(128 + e.signum)
        except OSError as e:
            if e.errno not in (*FULL, *BARRED):
                raise
            where = f" at {e.filename}" if e.filename else ""
            if e.errno in FULL:
                echo(
                    f"isocost: {e.strerror}{where}; the last checkpoint is whole: free some space and run the same "
                    "command again, which goes on from there", err=True,
                )
                sys.exit(5)
            echo(f"isocost: {e.strerror}{where}; choose a folder that can be written", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            echo("\nstopped", err=True)
            sys.exit(130)
        sys.exit(code or 0)

    return command


def given() -> dict[str, str]:
    """The options and arguments of this command that the user gave, name: as it is written."""
    context = click.get_current_context()
    written = {p.name: p.opts[0] for p in context.command.params if p.name is not None}
    return {k: v for k, v in written.items() if context.get_parameter_source(k) is ParameterSource.COMMANDLINE}


def trained_here(folder: Path, instead: str) -> None:
    """Raises UserError for an imported study or run, with what to do instead."""
    from isocost.runs.files import read_json

    told = [read_json(p) for p in (folder / "study.json", folder / "run.json") if p.exists()]
    if any(x.get("imported") for x in told):
        raise UserError(f"{folder} was imported: {instead}")


def show(data: Any, text: Callable[[], None], as_json: bool) -> None:
    if as_json:
        from isocost.jsonfile import page

        echo(page(data))
    else:
        text()


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="isocost")
def main() -> None:
    """Plan, predict and audit reinforcement-learning runs.

    A study is a folder, and goes: profile, plan, pilot, fit, plan, train, audit, report. Each step reads what the
    ones before it wrote, can be rerun alone, and goes on where it was stopped. `isocost quickstart` does them all.
    """


@main.command()
@click.option("--seed", type=ANY, default=0, show_default=True, help="of every run and every interval")
@click.option(
    "--size",
    default="quick",
    show_default=True,
    help="a preset, fixed before planning: tiny, quick, standard or long",
)
@click.option(
    "--budget", help="what pilot and training may spend, instead of a preset: 50k-rollouts, 2h, 1e15flop"
)
@priced
@click.option("--method", help="instead of the recipe that the profile's regime asks for")
@click.option("--out", type=FOLDER, help="the study's folder  [default: studies/quickstart-SEED]")
@click.option("--workers", type=SOME, help="runs side by side; results do not depend on it")
@click.option("--dry-run", is_flag=True, help="profile, then say what the rest would cost")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@model_options
@said
def quickstart(out: Path | None, as_json: bool, **asked: Any) -> int:
    """A whole study on the built-in model and problems, or on yours."""
    from isocost.steps import study as steps

    out = out or Path("studies") / f"quickstart-{asked['seed']}"
    return steps.whole(out, quiet=as_json, as_json=as_json, **asked)


@main.command()
@click.option("--out", type=FOLDER, required=True, help="the study's folder")
@click.option("--seed", type=ANY, default=0, show_default=True, help="of everything that is drawn")
@click.option("--method", help="instead of the recipe that the regime asks for")
@click.option("--problems", type=SOME, default=512, show_default=True, help="sampled 16 times each")
@click.option("--dry-run", is_flag=True, help="say what it would cost")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@model_options
@said
def profile(out: Path, as_json: bool, **asked: Any) -> int:
    """Begin a study: what the model can do on the problems before training."""
    from isocost.steps import study as steps

    return steps.profile(out, quiet=as_json, as_json=as_json, **asked)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--size", help="a preset: tiny, quick, standard or long  [default: quick]")
@click.option(
    "--budget",
    help="what pilot and training may spend: 50k-rollouts, 2M-tokens (written), 1e18flop, 2h, 16device-hours, 20usd; "
    "evaluations count in time and money only. It can be asked anew until a forecast is sealed",
)
@priced
@click.option("--workers", type=SOME, help="runs side by side that hours and money are planned for  [default: as fit]")
@click.option(
    "--lr",
    type=POSITIVE,
    help="the anchor of the learning-rate rule; the probe looks at a quarter and four times of it",
)
@click.option("--lr-exponent", type=float, help="fix the rule's exponent instead of measuring it")
@click.option("--groups", "-B", type=SOME, help="B: problems per update in the pilot")
@click.option("--fixed-batch", type=SOME, help="fix n B, rollouts per update, instead of B: the pilot trades n for B")
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
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def plan(study: Path, as_json: bool, **asked: Any) -> int:
    """Without a law, plan the pilot; with one, prescribe n, B, M, learning rate and seeds."""
    from isocost.steps import study as steps

    return steps.plan(study, quiet=as_json, as_json=as_json, **asked)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--longer", multiple=True, metavar="N=C", help="continue n's runs to C rollouts: 4=24576, 4=4x, all=4x")
@click.option("--seeds", multiple=True, metavar="N=K", help="K more runs of n, in the grid or new to it: 8=2, all=2")
@click.option("--workers", type=SOME, help="runs side by side; results do not depend on it  [default: as planned]")
@click.option("--dry-run", is_flag=True, help="list the runs and their cost")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def pilot(study: Path, as_json: bool, **asked: Any) -> int:
    """Run the pilot: the learning-rate probe, then the grid of n, then its edges at half and twice the rate.

    --longer and --seeds add to a pilot what its law or its plan asks for; what was run is not paid for again.
    """
    from isocost.steps import study as steps

    return steps.pilot(study, quiet=as_json, as_json=as_json, **asked)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--metric", help="what the law is of: pass@1, best@4 or worst@4 (one, or all, of 4 right)")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def fit(study: Path, metric: str | None, as_json: bool) -> int:
    """Fit the law to a study's pilot, or refuse and say what would settle it."""
    from isocost.steps import study as steps

    if metric not in (None, "pass@1"):
        trained_here(study, "its records hold one number of each evaluation; to fit another, import the logs again "
                            "with --map held_out=COLUMN")
    return steps.fit(study, quiet=as_json, as_json=as_json, metric=metric)


@main.command()
@click.argument("method", required=False)
@click.option(
    "--plan",
    "study",
    type=FOLDER,
    help="train what this study's plan prescribes: sealed, paired with its comparator",
)
@click.option(
    "--budget", help="what this one run may spend on training: 50k-rollouts, 2M-tokens, 1e15flop, 30m, 8gpu-hours"
)
@priced
@click.option("--seed", type=ANY, default=0, show_default=True, help="of everything that is drawn")
@click.option("--out", type=FOLDER, help="the run's folder  [default: runs/METHOD-SEED]")
@click.option("--rollouts", "-n", type=SOME, help="n: per problem  [default: the method's own, 8 as a rule]")
@click.option("--groups", "-B", type=SOME, help="B: problems per update  [default: the method's own, 16 as a rule]")
@click.option("--lr", type=POSITIVE, help="learning rate  [default: assumed from the model's size and n B]")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="SEAM.NAME=VALUE",
    help="a setting of a seam, such as loss.high=0.28",
)
@click.option(
    "--evaluations",
    type=ANY,
    default=8,
    show_default=True,
    help="points of compute at which held-out reward is measured",
)
@click.option(
    "--save-every",
    type=ANY,
    default=0,
    show_default=True,
    help="steps between checkpoints, beside those at evaluations",
)
@click.option("--workers", type=SOME, help="with --plan: runs side by side; results do not depend on it")
@click.option("--dry-run", is_flag=True, help="say what it would cost")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@model_options
@said
def train(as_json: bool, **asked: Any) -> int:
    """Train: METHOD is a name (see `isocost methods`) or a .py file; or --plan STUDY. Run it again to go on."""
    from isocost.steps import study as steps

    return steps.train(quiet=as_json, as_json=as_json, **asked)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def audit(study: Path, as_json: bool) -> int:
    """Hold the sealed forecast against what happened. Exits 0 hit, 3 miss, 4 cannot tell or uninformative."""
    from isocost.steps import study as steps

    trained_here(study, "no forecast of its trainer's run is sealed; bring that run in with `isocost import`, and hold "
                        f"it against the interval that `isocost plan {word(study)}` says")
    return steps.audit(study, quiet=as_json, as_json=as_json)


@main.command()
@click.argument("folder", type=FOLDER)
@click.option("--target", type=SHARE, help="held-out reward at the end  [default: the forecast's lower bound]")
@click.option("--worth", type=SHARE, help="stop where what is left gains less than this")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def verdict(folder: Path, as_json: bool, **asked: Any) -> int:
    """Go on, stop, or change n: advice on a run, or on a study's runs, while they train. Stops nothing itself."""
    from isocost.steps.settings import console_of
    from isocost.steps.verdict import verdict as judged

    return judged(folder, as_json=as_json, console=console_of(as_json), **asked)


@main.command()
@click.argument("arms", nargs=-1, required=True, metavar="A B...")
@click.option("--budget", help="methods: all that may be spent, probes, arms and seeds: 200k-rollouts, 2M-tokens, 1h")
@click.option("--seeds", type=SOME, default=5, show_default=True, help="methods: runs per arm, paired by seed")
@click.option("--rollouts", "-n", type=SOME, help="methods: n of every arm, per problem  [default: 8]")
@click.option("--groups", "-B", type=SOME, help="methods: B of every arm, problems per update  [default: 16]")
@click.option("--own-sizes", is_flag=True, help="methods: every arm at its method's own n and B")
@click.option("--lr", type=POSITIVE, help="methods: where rates begin; each arm is probed at a quarter, 1 and 4 of it")
@click.option("--evaluations", type=SOME, default=8, show_default=True, help="methods: points of compute, by doubling")
@click.option("--margin", type=POSITIVE, default=0.01, show_default=True, help="reward within which arms are the same")
@click.option("--metric", default="pass@1", show_default=True, help="pass@1, best@4 or worst@4")
@click.option("--unit", default="rollouts", show_default=True, help="folders: rollouts, tokens, flops or seconds")
@click.option("--to-parents", is_flag=True, help="methods: each against the method that it changes, and no other")
@click.option("--set", "sets", multiple=True, metavar="SEAM.NAME=VALUE", help="methods: a setting of every arm")
@click.option("--seed", type=ANY, default=0, show_default=True, help="of everything that is drawn")
@click.option("--out", type=FOLDER, help="where to keep it  [default: comparisons/A-B for methods]")
@click.option("--workers", type=SOME, help="runs side by side; results do not depend on it")
@click.option("--dry-run", is_flag=True, help="methods: say what it would cost and what it could see")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@model_options
@said
def compare(arms: tuple[str, ...], as_json: bool, **asked: Any) -> int:
    """Which is better at equal cost: methods, which are trained; or folders of runs, which are read.

    A and B are names (see `isocost methods`), .py files, or folders; METHOD@SEAM.NAME=VALUE,... is a method with
    settings of its own, n and B among them (rollouts=9). Every method's learning rate is tuned alike within the budget.
    Exits 0 if a difference is told, 3 if they are the same within the margin, 4 if it cannot be told.
    """
    from isocost.compare.steps import run_compare

    return run_compare(arms, quiet=as_json, as_json=as_json, given=given(), **asked)


@main.command(name="eval")
@click.argument("run", type=FOLDER)
@click.option(
    "--samples",
    type=SOME,
    default=16,
    show_default=True,
    help="per problem, where exact evaluation is not to be had",
)
@click.option("--data", help="other problems than the run's own held-out ones")
@click.option("--base", is_flag=True, help="also the policy the run began from, with the paired difference")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def evaluate(run: Path, as_json: bool, **asked: Any) -> int:
    """Measure a run's policy on held-out problems, with an interval over problems."""
    from isocost.steps import study as steps

    return steps.evaluate_run(run, quiet=as_json, **asked)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="[default: STUDY/report.html]")
@said
def report(study: Path, out: Path | None) -> None:
    """Write the study as one HTML file that opens without a network."""
    from isocost.report import write

    echo(write(study, out))


@main.command(name="import")
@click.argument("sources", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=FOLDER, help="[default: runs/NAME for one log, studies/imported for several]")
@click.option("--from", "source", help="which trainer or format wrote it  [default: recognised by its content]")
@click.option("--study", is_flag=True, help="make a study even of one log")
@click.option(
    "--map", "columns", multiple=True, metavar="NAME=COLUMN",
    help="which column is reward, held_out, step, ...; seed, n, B or run separates the runs of one table",
)
@click.option("--n", "-n", type=SOME, help="rollouts per problem, where the log does not say")
@click.option("--B", "-B", "B", type=SOME, help="problems per update, where the log does not say")
@click.option("--lr", type=POSITIVE, help="learning rate, where the log does not say")
@click.option("--seed", type=ANY, help="where the log does not say; else runs are numbered in the order given")
@click.option("--names", metavar="PATTERN", help="how a run's name tells its sizes, such as 'n{n}-s{seed}'")
@click.option("--scale", metavar="LOW,HIGH", help="the least and the most a rollout can earn, if not 0 and 1")
@click.option("--base", type=float, help="reward of the policy before training, in the log's units, where it lacks it")
@click.option("--model", help="what was trained, to be shown")
@click.option("--data", help="on which problems, to be shown")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def import_runs(as_json: bool, **asked: Any) -> int:
    """Bring runs of another trainer in: TRL, verl, prime-rl, tinker, wandb, TensorBoard, SB3, CleanRL, CSV, JSON lines.

    One log becomes a run, several a study that `fit`, `plan`, `compare` and `report` take. What the logs lack is named.
    """
    from isocost.steps import imported

    found = imported.run(**asked)
    show(found, lambda: imported.show(found), as_json)
    return 0


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--to", "target", help="trl, verl, prime-rl, nemo-rl, skyrl or openrlhf")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="[default: printed]")
@said
def export(study: Path, target: str | None, out: Path | None) -> None:
    """Write a study's prescription as another trainer's configuration or launch line."""
    from isocost.steps.export import export as written

    text = written(study, target)
    if out is None:
        echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    echo(out)


@main.command()
@click.argument("model", default="tiny")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@setting_options
@said
def doctor(as_json: bool, **asked: Any) -> int:
    """Check MODEL, its template, sampler, verifier and speed here, in about a minute. Exits 3 if something fails.

    MODEL is what --model is elsewhere: 'tiny', 'smollm2' or a Hugging Face folder. Nothing is written.
    """
    from isocost.doctor.show import doctor

    return doctor(as_json=as_json, **asked)


@main.command()
@click.argument("folder", type=FOLDER, default=Path("."))
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@click.option(
    "--parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    help="write every run's metrics to this file as one table, and nothing else",
)
@said
def ls(folder: Path, as_json: bool, parquet: Path | None) -> int:
    """List the studies and runs below a folder."""
    from isocost.steps import listing

    if parquet is not None:
        echo(f"{listing.to_parquet(folder, parquet)} rows in {parquet}")
        return 0
    rows = listing.rows(folder)
    show(rows, lambda: listing.show(rows), as_json)
    return 0


@main.command()
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def diff(a: str, b: str, as_json: bool) -> None:
    """The seams at which two methods, runs or method files differ, every default bound."""
    from isocost.steps import listing

    found = listing.differences(a, b)
    show(found, lambda: listing.show_differences(a, b, found), as_json)


@main.group(invoke_without_command=True)
@click.pass_context
def laws(context: click.Context) -> None:
    """The laws: list them, or fit one to a table of points."""
    if context.invoked_subcommand is None:
        context.invoke(laws_list)


@laws.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def laws_list(as_json: bool = False) -> None:
    """Every law: its equation, the data it takes, who found it."""
    from isocost.steps import laws as known

    rows = known.listed()
    show(rows, lambda: known.show_list(rows), as_json)


@laws.command(name="fit")
@click.argument("law")
@click.argument("points", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--x", default="x", show_default=True, help="the column of x")
@click.option("--y", default="y", show_default=True, help="the column of y")
@click.option("--run", default="run", show_default=True, help="the column that says which run a point is of")
@click.option("--level", type=click.FloatRange(0.5, 0.999), default=0.9, show_default=True, help="of the intervals")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def laws_fit(law: str, points: Path, x: str, y: str, run: str, level: float, as_json: bool) -> None:
    """Fit LAW to a CSV file with columns x, y and, where known, run: parameters with intervals."""
    from isocost.steps import laws as known

    found = known.fit(law, points, {"x": x, "y": y, "run": run}, level)
    show(found, lambda: known.show_fit(found), as_json)


@main.group(invoke_without_command=True)
@click.option("--seam", help="only methods that change this seam")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@click.pass_context
def methods(context: click.Context, seam: str | None, as_json: bool) -> None:
    """The catalogue: list, tree, show, check."""
    if context.invoked_subcommand is None:
        context.invoke(methods_list, seam=seam, as_json=as_json)
    elif seam or as_json:
        raise click.UsageError(f"give --seam and --json after {context.invoked_subcommand}, if it takes them", context)


@methods.command(name="list")
@click.option("--seam", help="only methods that change this seam")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def methods_list(seam: str | None = None, as_json: bool = False) -> None:
    """Every method: name, year, the seams it changes in its parent, its claim."""
    from isocost.steps import listing

    rows = listing.methods(seam)
    show(rows, lambda: listing.show_methods(rows), as_json)


@methods.command(name="tree")
@said
def methods_tree() -> None:
    """The methods as a family tree."""
    from isocost.methods import tree

    echo(tree())


@methods.command(name="show")
@click.argument("name")
@said
def methods_show(name: str) -> None:
    """A method's own file."""
    from isocost.methods import load

    echo(Path(load(name).__file__).read_text())


@methods.command(name="check")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
@said
def methods_check(name: str, as_json: bool) -> int:
    """Run the contract that every method file must pass, on a name, METHOD@SETTINGS or a .py file of yours.

    Exits 2 if it is broken.
    """
    from isocost.contract.check import check

    found = check(name)
    broken = [f for f in found if f.state == "BROKEN"]

    def text() -> None:
        for f in found:
            echo(f"{f.state:<9} {f.promise}" + (f"\n          {f.why}" if f in broken else ""))
        echo(f"{name} breaks {len(broken)} of {len(found)}" if broken else f"{name} keeps the contract")

    show([{"promise": f.promise, "state": f.state, "kept": f.kept, "why": f.why} for f in found], text, as_json)
    return 2 if broken else 0
