"""The options that commands share, the types of their values, and how a command ends.

Nothing heavy is imported here, so that `--help` is fast.
"""

from __future__ import annotations

import errno
import inspect
import os
import re
import select
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from isocost.errors import UserError
from isocost.screen.terminal import echo
from isocost.screen.words import word
from isocost.worlds.spec import kinds
from isocost.worlds.spec import options as world_options

if TYPE_CHECKING:
    from isocost.steps.study import StudyRecord

SECTIONS = {        # of a command's help: options that several commands share
    "Model and problems": ("model", "env", "max_turns", "data", "verifier", "truth", "held_out", "held_out_data",
                           "limit", "skip_broken", "system"),
    "Sampling": ("temperature", "top_p", "top_k", "max_tokens", "samples"),
    "What computes": (*world_options(), "device", "dtype", "threads"),
    "Where runs are executed": ("workers", "launch", "address", "gpus_per_run"),
    "Your own trainer": ("trainer", "metrics", "stall", "scale", "worth", "stop"),
    "A model behind a server": ("concurrency", "per_minute", "timeout", "retries"),
}
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


def a_method(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a shell completes a method to: the names that begin so, else a file."""
    from isocost import methods

    return [CompletionItem(name) for name in methods.names() if name.startswith(incomplete)] or [
        CompletionItem(incomplete, type="file")]


class Sectioned(click.Command):
    """A command whose help has its options in sections: first those of its own, then those that commands share."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        named = {name: title for title, names in SECTIONS.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *SECTIONS)}
        for p in self.get_params(ctx):
            if isinstance(p, click.Option) and (record := p.get_help_record(ctx)):
                rows[named.get(p.name or "", "Options")].append(record)
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class OneLine(click.Group):
    """A mistake in how a command is called is one line, and names the help of that command."""

    command_class = Sectioned

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as e:
            echo(e.format_message(), err=True)
            sys.exit(2)
        except click.ClickException as e:
            context = getattr(e, "ctx", None)
            asked = f" (see `{context.command_path} --help`)" if context else ""
            said = e.format_message().rstrip(".").replace("integer range", "integer").replace("float range", "number")
            echo(f"isocost: {said}{asked}", err=True)
            sys.exit(2)
        except click.Abort:
            sys.exit(130)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _while_read():     # --help is printed here
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _while_read():
            return super().invoke(ctx)


@contextmanager
def _while_read() -> Iterator[None]:
    """End quietly, with the code of a program that SIGPIPE ended, once nobody reads what is printed (`| head`)."""
    try:
        yield
    except BrokenPipeError:
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        if not pipe.poll(0):    # it is another pipe that broke
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())      # or Python would fail to flush it
        sys.exit(128 + signal.SIGPIPE)


json_option = click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")
_PROBLEMS = (    # what is asked, who answers turns, what marks the answers, and what is held out
    click.option(
        "--env",
        metavar="SPEC",
        help="an environment that answers turns: 'rooms[:...]' (`isocost envs` lists them), or "
        "my_env.py:Class  [default: one question and one answer]",
    ),
    click.option(
        "--max-turns", type=SOME, help="with --env: turns of a dialogue  [default: the environment's]"
    ),
    click.option(
        "--data",
        help="'sums[:...]', 'puzzles[:...]', 'reasoning-gym:TASK[:key=value,...]', a .jsonl or .parquet of "
        "prompt and answer, "
        "or a mix: '50% sums:base=hard + 50% sums:base=easy'; of an environment that lists none  [default: "
        "sums:level=1]",
    ),
    click.option(
        "--verifier",
        "--reward",
        help="exact, final, coarse:parity, coarse:last, coarse:choice, words, numeric, math, reasoning-gym, "
        "reasoning-gym-partial, environment (rewards of turns), my_reward.py:function, or scored:SCORER  "
        "[default: the problems' own]",
    ),
    click.option(
        "--truth", metavar="VERIFIER",
        help="report held-out reward by this verifier, while --verifier trains; both are recorded  [default: one for "
        "both]",
    ),
    click.option(
        "--held-out",
        default=0.2,
        show_default=True,
        help="share of the problems that are held out to evaluate on, or a number of them",
    ),
    click.option("--held-out-data", help="a separate data set to evaluate on, instead"),
    click.option("--limit", type=SOME, help="use only this many problems"),
    click.option(
        "--skip-broken",
        is_flag=True,
        help="skip rows that cannot be used; they are listed",
    ),
    click.option("--system", default="", help="a system message put before every problem"),
)
_SAMPLING = (    # how the policy is sampled
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
        help="sample from this many most likely tokens; 0 keeps all",
    ),
    click.option(
        "--max-tokens",
        type=SOME,
        help="per completion  [default: 4 for the built-in short sums, 128 for puzzles, else 64]",
    ),
    click.option(
        "--samples",
        type=SOME,
        default=4,
        show_default=True,
        help="completions per held-out problem of an evaluation, when pass@1 cannot be computed exactly",
    ),
)
def _of_kind(name: str, about: Mapping[str, Any], default: Any) -> Callable:
    """The option of a kind of world."""
    flag, kind, above = f"--{name.replace('_', '-')}", about["kind"], about["above"]
    if kind is bool:
        return click.option(flag, is_flag=True, help=about["help"])
    if above is not None:
        kind = click.IntRange(min=above + 1) if kind is int else click.FloatRange(min=above, min_open=True)
    return click.option(flag, type=kind, metavar=about["metavar"], default=default, show_default=default is not None,
                        help=about["help"])


_COMPUTING = (    # what is trained, and what computes it
    *(_of_kind(name, f.metadata, f.default) for name, f in world_options().items()),
    click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda"),
    click.option(
        "--dtype",
        default="auto",
        show_default=True,
        help="of the model's body: auto, fp32 or bf16; the head is fp32",
    ),
    click.option(
        "--threads",
        type=SOME,
        help="per run; results are reproducible only at a fixed value. 1 for small models, else every core",
    ),
)


def several(*options: Callable) -> Callable:
    """These options, as one decorator of a command."""
    def add(f: Callable) -> Callable:
        for option in reversed(options):
            f = option(f)
        return f

    return add


computing_options = several(*_COMPUTING)
setting_options = several(*_PROBLEMS, *_SAMPLING, *_COMPUTING)       # of a model and problems, without --model
model_options = several(
    click.option("--model", help=f"{'; '.join(kind.named for kind in kinds().values())}  [default: the environment's, "
                 "tiny-puzzles for puzzles, else tiny]"), setting_options)
launched = several(      # where runs are executed; `site_of` reads them
    click.option("--launch", help="where runs are executed: local (processes of this machine) or ray; those of your "
                 "own trainer: also slurm; results do not depend on it  [default: local]"),
    click.option("--address", help="ray: auto (the cluster that this machine belongs to), local (this machine alone) "
                 "or HOST:PORT; of your own trainer: http://HEAD:8265  [default: auto]"),
    click.option("--gpus-per-run", type=POSITIVE, help="ray: GPUs of a run; a fraction shares one  [default: 0]"),
)
trainer_option = click.option(
    "--trainer", metavar="KIND: COMMAND",
    help="your own trainer: 'cmd: python train.py --n {n} --groups {B} --lr {lr} --seed {seed} --out {out}', or "
    "'trl: python train.py {config}'",
)
worth_option = click.option(
    "--worth", type=SHARE, help="your own trainer: end a run once its rest is unlikely (3 %) to gain this much"
)
stop_option = click.option(
    "--stop-at", metavar="AMOUNT", help="end at the last step (your own trainer: evaluation) that this pays for: "
    "40usd, 2h, 1e18flop; a larger amount, or none, continues"
)
priced = several(        # what turns time into device-hours and money
    click.option(
        "--price", help="2.5usd/device-hour, or 20usd/hour for the whole machine; of a service's tokens: "
        "0.13usd/M-prefill,0.40usd/M-sample,0.40usd/M-train, or a file of prices"),
    click.option("--devices", type=SOME, help="devices that are paid for, by wall-clock time  [default: 1]"),
)
server_options = several(        # how a model behind a server is asked, and what its tokens cost
    click.option("--price", help="per token: 0.15usd/M-input,0.60usd/M-output, with /M-cached and /M-train where they "
                 "have one; or a .toml or .json file of prices"),
    click.option("--concurrency", type=SOME, default=16, show_default=True, help="requests to a server at once"),
    click.option("--per-minute", type=POSITIVE, help="requests to a server in a minute, at most  [default: no limit]"),
    click.option("--timeout", type=POSITIVE, default=600, show_default=True, help="seconds of one request to a server"),
    click.option("--retries", type=ANY, default=6, show_default=True, help="of a request that the server did not "
                 "answer, or answered with 429 or 5xx"),
)


def site_of(asked: dict[str, Any]) -> Any:
    """The `Site` of a command's options, which are taken out of `asked`."""
    from isocost.runs.launch.site import Site

    to, address, gpus = (asked.pop(k) for k in ("launch", "address", "gpus_per_run"))
    return Site(to, address, gpus or 0.0)


class Size(click.ParamType):
    """A large number, by default of parameters: 7B, 135M, 1.5e9."""

    name = "size"

    def __init__(self, of: str = "parameters, such as 7B or 135M"):
        self.of = of

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        found = re.fullmatch(r"([0-9.]+(?:[eE]\+?[0-9]+)?)([kKMBT]?)", str(value).strip())
        scale, size = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}, 0.0
        with suppress(ValueError):
            size = float(found[1]) * scale[found[2].upper()] if found else 0.0
        if not 1 <= size < inf:
            self.fail(f"{value!r} is not a number of {self.of}", param, ctx)
        return size


def counts(text: str | None, option: str) -> list[int] | None:
    """The whole numbers of an option such as 4,6,12; None where it is not given. Raises UserError for others."""
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*)*", text):
        raise UserError(f"{option} {text!r}: expected integers of at least 1, such as {option} 6,12")
    return [int(x) for x in text.split(",")]


def numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """The numbers of an option such as 0.5,1,2; None where it is not given. Raises UserError for others."""
    try:
        return None if text is None else tuple(float(x) for x in text.split(","))
    except ValueError:
        raise UserError(f"{option} {text!r}: expected numbers, such as {option} 1,2,4") from None


def study_in(folder: Path) -> StudyRecord:
    """The study in a folder: commands read the path, and steps take the study. Raises UserError if there is none."""
    from isocost.steps.study import StudyRecord

    return StudyRecord.read(folder)


def reported(f: Callable) -> Callable:
    """Decorates a command. What it returns is printed as text, or with --json as JSON; the result's `exit_code` is the
    command's, unless it returns (result, code). A command that takes `shown` is given the observer. A user's mistake is
    one line and exit code 2; a signal prints the command that continues."""
    takes = inspect.signature(f).parameters

    @wraps(f)
    def command(*args: Any, **kwargs: Any) -> None:
        from isocost.cli.printer import observer, printed
        from isocost.errors import Interrupted

        shown = observer(as_json := kwargs.get("as_json", False))
        own = {k: v for k, v in kwargs.items() if k != "as_json" or k in takes}
        code = 0
        try:
            found = f(*args, **own, **({"shown": shown} if "shown" in takes else {}))
            if isinstance(found, tuple):
                found, code = found
            elif hasattr(type(found), "exit_code"):     # its own, and not one that it passes on
                code = found.exit_code
            if found is not None:
                printed(found, shown, as_json)
        except UserError as e:
            echo(f"isocost: {e}", err=True)
            sys.exit(2)
        except Interrupted as e:
            again = shlex.join(["isocost", *sys.argv[1:]])
            echo(
                f"\nstopped; everything paid for is saved. To continue: {e.resume or again}",
                err=True,
            )
            sys.exit(128 + e.signum)
        except OSError as e:
            if e.errno not in (*FULL, *BARRED):
                raise
            where = f" at {e.filename}" if e.filename else ""
            if e.errno in FULL:
                echo(
                    f"isocost: {e.strerror}{where}; what was saved before is whole: free some space and run the "
                    "same command again", err=True,
                )
                sys.exit(5)
            echo(f"isocost: {e.strerror}{where}; choose a folder that can be written", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            again = shlex.join(["isocost", *sys.argv[1:]])
            echo(f"\nstopped; what was written is kept and used again. To continue: {again}", err=True)
            sys.exit(130)
        sys.exit(code)

    return command


def given() -> dict[str, str]:
    """The options and arguments of this command that the user gave, name: as it is written."""
    context = click.get_current_context()
    written = {p.name: p.opts[0] for p in context.command.params if p.name is not None}
    return {k: v for k, v in written.items() if context.get_parameter_source(k) is ParameterSource.COMMANDLINE}


def refuse_others(given: Mapping[str, str], takes: Collection[str], why: str) -> None:
    """Raises UserError for an option that was `given` and is none of those that are taken: it, as written, and why."""
    if wrong := next((written for name, written in given.items() if name not in takes), None):
        raise UserError(f"{wrong} {why}")


def samples_said(asked: dict[str, Any]) -> str:
    """What --samples is not. Raises UserError where completions are paid for."""
    from isocost.can import Can
    from isocost.steps.training.pass_rates import SAMPLES
    from isocost.worlds.spec import spec_of

    said = (f"a profile samples {SAMPLES} completions of each problem, and --samples {asked['samples']} is of each "
            "held-out problem in an evaluation")
    if asked["model"] and not spec_of(asked["model"]).can(Can.LEARN):
        raise UserError(f"{said}, which this model has none of: leave it out; --problems says of how many problems")
    return said


def after_profile(study: Path, silent: bool) -> None:
    """The command that follows a profile."""
    if not silent:
        echo(f"  next: isocost plan {word(study)} --budget ...")


def server_limits(asked: dict[str, Any]) -> Any:
    """How a server is asked, of a command's options, which are taken out of `asked`."""
    from isocost.worlds.http import RequestLimits

    return RequestLimits(**{name: asked.pop(name) for name in ("concurrency", "timeout", "retries", "per_minute")})
