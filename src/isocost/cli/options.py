"""The options that commands share, the types of their values, and how a command ends.

Nothing heavy is imported here, so that `--help` is fast.
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
    """A mistake in how a command is called is one line, and names the help of that command."""

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


json_option = click.option("--json", "as_json", is_flag=True, help="print what was found as JSON, and nothing else")


def model_options(f: Callable) -> Callable:
    """The options of every command that opens a model and problems."""
    model = click.option(
        "--model",
        help="'tiny' or 'tiny-puzzles' (ship with isocost), 'smollm2', or a Hugging Face folder (Llama, SmolLM2, "
        "Qwen2/2.5/3)  [default: tiny-puzzles for puzzles, else tiny]",
    )
    return model(setting_options(f))


def setting_options(f: Callable) -> Callable:
    """The same without --model."""
    for option in reversed(
        (
            click.option(
                "--data",
                default="sums:level=1",
                show_default=True,
                help="'sums[:...]', 'puzzles[:...]', 'reasoning-gym:TASK[:key=value,...]', a .jsonl or .parquet of "
                "prompt and answer, "
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
                help="per held-out problem, when pass@1 cannot be computed exactly",
            ),
            click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda"),
            click.option(
                "--dtype",
                default="auto",
                show_default=True,
                help="of the model's body: auto, fp32 or bf16; the head is fp32",
            ),
            click.option(
                "--kernels",
                default="auto",
                show_default=True,
                help="auto, native (compiled on first use, for processors) or torch",
            ),
            click.option(
                "--threads",
                type=SOME,
                help="per run; results are reproducible only at a fixed value. 1 for small models, else every core",
            ),
        )
    ):
        f = option(f)
    return f


def trainer_options(f: Callable) -> Callable:
    """The options that name a trainer of the user's, and where its runs are started."""
    trainer = click.option(
        "--trainer",
        metavar="KIND: COMMAND",
        help="your own trainer: 'cmd: python train.py --n {n} --groups {B} --lr {lr} --seed {seed} --out {out}', or "
        "'trl: python train.py {config}'",
    )
    launch = click.option("--launch", help="where the runs of your trainer start: local or slurm  [default: local]")
    return trainer(launch(f))


def priced(f: Callable) -> Callable:
    """The options that turn time into device-hours and money."""
    devices = click.option("--devices", type=SOME, help="devices that are paid for, by wall-clock time  [default: 1]")
    return click.option("--price", help="2.5usd/device-hour, or 20usd/hour for the whole machine")(devices(f))


def reported(f: Callable) -> Callable:
    """Decorates a command: a user's mistake is one line and exit code 2; a signal prints the command that continues."""

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
                    f"isocost: {e.strerror}{where}; the last checkpoint is whole: free some space and run the same "
                    "command again to continue from there", err=True,
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
