"""The commands `laws`, `methods` and `envs`: what isocost can fit and train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from isocost.cli.options import a_method, json_option, reported


@click.group(invoke_without_command=True)
@click.pass_context
def laws(context: click.Context) -> None:
    """List the published laws, or fit one to a table of points."""
    if context.invoked_subcommand is None:
        context.invoke(laws_list)


@laws.command(name="list")
@json_option
@reported
def laws_list() -> Any:
    """List every law: its equation, the data it takes, its source."""
    from isocost.steps.look.laws import list_laws

    return list_laws()


@laws.command(name="fit")
@click.argument("law")
@click.argument("points", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--x", default="x", show_default=True, help="the column of x")
@click.option("--y", default="y", show_default=True, help="the column of y")
@click.option("--run", default="run", show_default=True, help="the column that names the run of a point")
@click.option("--level", type=click.FloatRange(0.5, 0.999), default=0.9, show_default=True, help="of the intervals")
@json_option
@reported
def laws_fit(law: str, points: Path, **asked: Any) -> Any:
    """Fit LAW to a CSV file with columns x, y and, if known, run: parameters with intervals."""
    from isocost.steps.look.laws import fit_points

    return fit_points(law, points, **asked)


@click.group(invoke_without_command=True)
@click.pass_context
def methods(context: click.Context) -> None:
    """The catalogue of methods: list, show, check."""
    if context.invoked_subcommand is None:
        context.invoke(methods_list)


@methods.command(name="list")
@json_option
@reported
def methods_list() -> Any:
    """List every method: name, year, parent, the seams it changes in its parent, its claim."""
    from isocost.steps.look.listing import list_methods

    return list_methods()


@methods.command(name="show")
@click.argument("name", shell_complete=a_method)
@json_option
@reported
def methods_show(name: str) -> Any:
    """Print a method's own file."""
    from isocost.steps.look.listing import method_file

    return method_file(name)


@methods.command(name="check")
@click.argument("name", shell_complete=a_method)
@json_option
@reported
def methods_check(name: str) -> Any:
    """Check the contract of method files on a name, METHOD@SETTINGS or your own .py file; or that of a strategy.

    Exits 2 if the file breaks it.
    """
    from isocost.steps.look.listing import check_method

    found = check_method(name)
    return found, 2 if found.broken else 0


@click.group(invoke_without_command=True)
@click.pass_context
def envs(context: click.Context) -> None:
    """List the environments that ship, or check your own."""
    if context.invoked_subcommand is None:
        context.invoke(envs_list)


@envs.command(name="list")
@json_option
@reported
def envs_list() -> Any:
    """List every environment: its spec, its options, its limits, what it needs."""
    from isocost.steps.look.environments import list_environments

    return list_environments()


@envs.command(name="check")
@click.argument("environment")
@click.option("--data", help="problems for an environment that lists none, as for `isocost profile`")
@click.option("--model", help="the model that will read what the environment opens with, by its name or folder; its "
              "weights are not read  [default: the environment's]")
@json_option
@reported
def envs_check(environment: str, data: str | None, model: str | None) -> Any:
    """Check what an environment promises: ENVIRONMENT is as in --env, a spec or my_env.py:Class.

    Episodes are played without a model. Exits 2 if a promise is broken.
    """
    from isocost.steps.look.environments import check_environment

    found = check_environment(environment, data, model)
    return found, 2 if found.broken else 0
