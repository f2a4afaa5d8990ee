"""The page docs/cli.md, written from the commands themselves: so it is never out of date.

    python -m docs.build.cli > docs/cli.md
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable

import click

from isocost.cli import commands as cli

SHARED, SEVERAL = "model and problems", "options of several commands"
HEAD = f"""# Commands

Generated from the commands by `python -m docs.build.cli`; a test fails when it is out of date. Every command also
takes `--help`. A STUDY and a RUN are folders. Commands that open a model share the options under
[{SHARED}](#{SHARED.replace(" ", "-")}); others are explained once under
[{SEVERAL}](#{SEVERAL.replace(" ", "-")}).

A study goes `profile`, `plan`, `pilot`, `fit`, `plan`, `train --plan`, `audit`, `report`. A step that was done is not
done again; one that was stopped continues when its command is given again.

`eval "$(_ISOCOST_COMPLETE=bash_source isocost)"` in `~/.bashrc` completes commands, options, files and names of
methods; `zsh_source` and `fish_source` are for those shells."""
BUDGETS = """## budgets

A budget is a number with a unit: `50k-rollouts`, `2M-tokens`, `60k-env-steps`, `1e15flop`, `90s`, `30m`, `2h`, `1d`. A
number without a unit is an error. A study's budget is everything it may spend; evaluations count in seconds only."""


def commands() -> str:
    """The whole page, in Markdown."""
    leaves = list(_leaves(cli.main, "isocost"))
    index = ", ".join(f"[`{name.removeprefix('isocost ')}`](#{_anchor(name)})" for name, _ in leaves) + "."
    shared = f"## {SHARED}\n\n{_options(p for p in _shared() if isinstance(p, click.Option))}"
    count = Counter(_row(o) for _, command in leaves for o in _own(command))
    several = [row for row, times in count.most_common() if times > 1]
    names = Counter(row.split("`")[1].split()[0] for row in several)
    often = {row: None for row in several if names[row.split("`")[1].split()[0]] == 1}      # one name has one meaning
    entries = [_entry(name, command, often) for name, command in leaves]
    parts = [HEAD, index, *entries, shared, f"## {SEVERAL}\n\n{_table(often)}", BUDGETS, _exits()]
    return "\n\n".join(parts) + "\n"


def _leaves(command: click.Command, name: str) -> Iterable[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word in command.commands:
        yield from _leaves(command.commands[word], f"{name} {word}")


def _shared() -> list[click.Parameter]:
    """What `model_options` gives every command that opens a model."""
    return click.command("any")(cli.model_options(lambda: None)).params


def _opens(command: click.Command) -> bool:
    """Whether it takes the options of model and problems."""
    return {p.name for p in _shared()} <= {p.name for p in command.params}


def _own(command: click.Command) -> list[click.Option]:
    """Its options, without those of model and problems where it takes them all."""
    shared = {p.name for p in _shared()} if _opens(command) else set()
    return [p for p in command.params if isinstance(p, click.Option) and p.name not in shared]


def _entry(name: str, command: click.Command, often: Collection[str]) -> str:
    """The section of a command; an option whose row is in `often` is only named."""
    own = _own(command)
    arguments = [p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)]
    needed = [_spelling(o).split(",")[0].strip("`") for o in own if o.required]
    usage = " ".join([name, *arguments, *needed, *(["[OPTIONS]"] if len(own) > len(needed) else [])])
    parts = [f"## {name}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    if rows := [row for o in own if (row := _row(o)) not in often]:
        parts.append(_table(rows))
    if named := [f"`{spelling}`" for o in own if _row(o) in often for spelling in (*o.opts, *o.secondary_opts)]:
        parts.append(f"And [{', '.join(named)}](#{_anchor(SEVERAL)}).")
    if _opens(command):
        taken = {p.name for p in command.params if isinstance(p, click.Argument)}     # doctor's MODEL
        but = "".join(f", except `{p.opts[0]}`" for p in _shared() if p.name in taken)
        parts.append(f"And the options of [{SHARED}](#{_anchor(SHARED)}){but}.")
    return "\n\n".join(parts)


def _options(options: Iterable[click.Option]) -> str:
    return _table(map(_row, options))


def _row(option: click.Option) -> str:
    return f"| {_spelling(option)} | {_default(option)} | {_cell(_help(option))} |"


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| option | default | |", "| --- | --- | --- |", *rows])


def _spelling(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.type.name.split()[0].upper()}"
    return ", ".join(f"`{o}{value}`" for o in (*option.opts, *option.secondary_opts))


def _default(option: click.Option) -> str:
    said = re.search(r"\[default: (.*?)\]", option.help or "")
    if said:
        return said.group(1)
    return f"`{option.default}`" if option.show_default else "required" if option.required else ""


def _help(option: click.Option) -> str:
    return re.sub(r"\s*\[default: .*?\]", "", option.help or "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _exits() -> str:
    """The exit codes, from the module that gives them."""
    said = re.search(r"Exit codes: (.*)", inspect.getdoc(cli) or "", flags=re.S)
    return f"## exit codes\n\n{said.group(1).strip()}" if said else ""


if __name__ == "__main__":
    print(commands(), end="")
