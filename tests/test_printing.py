"""Only the command line prints: read off the syntax trees."""

import ast
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from isocost.cli.printer import show
from isocost.screen.words import counted, freedom, grouped, visible
from isocost.steps.training.single import RunEnd
from trees import nodes, sources

PRINTERS = ("cli/", "screen/terminal.py", "screen/console.py", "envs/sandbox/process.py",
            "envs/adapters/textworld_process.py")


def prints(source: str) -> list[int]:
    """Lines that print: print, echo, click.echo, secho, and print of anything called a console."""
    found = []
    for node in nodes(source):
        if not isinstance(node, ast.Call):
            continue
        f = node.func
        if isinstance(f, ast.Name) and f.id in ("print", "echo", "secho"):
            found.append(node.lineno)
        elif isinstance(f, ast.Attribute):
            owner = f.value.id if isinstance(f.value, ast.Name) else getattr(f.value, "attr", "")
            console = f.attr in ("print", "print_json", "rule") and "console" in owner.lower()
            stream = f.attr == "write" and owner in ("stdout", "stderr")
            if console or stream or (owner == "click" and f.attr in ("echo", "secho")):
                found.append(node.lineno)
    return found


def test_a_module_outside_the_command_line_prints_nothing():
    quiet = {name: source for name, source in sources().items() if not name.startswith(PRINTERS)}
    assert {name: lines for name, source in quiet.items() if (lines := prints(source))} == {}


@pytest.mark.parametrize("line", ["print(1)", "echo(1)", "click.echo(1)", "console.print(1)", "self.console.print(1)",
                                  "sys.stderr.write('x')"])
def test_a_line_that_prints_is_found(line):
    assert prints(f"def f():\n    {line}\n") == [2]


LINE = "a \x1b[2J line"
LOG = f"import logging; logging.getLogger('isocost').LEVEL({LINE!r})"


@pytest.mark.parametrize(("level", "library"), [("info", ""), ("warning", LINE + "\n")])
def test_the_commands_show_what_the_package_logs_and_a_library_leaves_it_to_logging(level, library):
    log = LOG.replace("LEVEL", level)
    twice = f"from isocost.screen.terminal import show_log; show_log(); show_log(); {log}"
    done = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for code in (log, twice)]
    assert [d.stderr for d in done] == [library, f"isocost: {visible(LINE)}\n"]


# The libraries take two seconds to import. One process imports them, and no module of isocost; each command is a fork.
FORKS = """
import json, os, sys
import click, numpy, rich.console, scipy.optimize, scipy.stats, torch
for command in json.loads(sys.argv[1]):
    print("command:", *command, flush=True)
    if not (child := os.fork()):
        if command[0] == "-c":
            exec(command[1])
            sys.exit()
        from isocost.cli.commands import main
        main(command)
    assert os.waitpid(child, 0)[1] == 0, command
"""
COMMANDS = (["methods", "check", "grpo"], ["laws", "list"], ["ls", "."])
SHOWN = """
from click.testing import CliRunner
from isocost.cli import main
from isocost.screen.terminal import log_is_shown
before = log_is_shown()
CliRunner().invoke(main, ["laws", "list"])
print(before, log_is_shown())
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What these commands print, and a program, in a process that had imported nothing of isocost before."""
    every = [*COMMANDS, ["-c", SHOWN]]
    done = subprocess.run([sys.executable, "-c", FORKS, json.dumps(every)], capture_output=True, text=True,
                          cwd=tmp_path_factory.mktemp("empty"))
    assert done.returncode == 0, done.stderr
    texts = done.stdout.split("command: ")[1:]
    assert len(texts) == len(every), done.stdout
    return texts


def test_a_result_of_any_command_has_its_text_in_a_fresh_process(printed):
    """No command depends on what another one has imported."""
    assert all(len(text.splitlines()) > 1 for text in printed[: len(COMMANDS)]), printed


def test_every_command_shows_the_log(printed):
    assert printed[-1].endswith("\nFalse True\n")


def test_counts_are_singular_where_the_number_that_is_printed_is_one():
    assert [counted(x, "run") for x in (0, 1, 2, 1.2, 0.6, 1234.0)] == [
        "0 runs", "1 run", "2 runs", "1 run", "1 run", "1,234 runs"]
    assert freedom(1.4) == "1 degree of freedom" and freedom(6.0) == "6 degrees of freedom"


def test_one_helper_makes_plurals():
    """A template that adds its own s gets one of the two wrong sooner or later."""
    own = re.compile(r"""['"]s?['"] if [^{}"']*(?:==|!=|>|<) ?1\b[^{}]*else ['"]s?['"]""")
    found = [f"{name}: {line.strip()}" for name, source in sources().items()
             for line in source.splitlines() if own.search(line)]
    assert found == [] and own.search("{k} step{'s' if k > 1 else ''}") and own.search("{'' if k == 1 else 's'}")


def test_counts_have_groups_of_three_digits_wherever_they_are_printed():
    assert [grouped(x) for x in (0.5, 512, 1234.5, 2e4, 1e6, 1e18)] == ["0.5", "512", "1,234.5", "20,000", "1,000,000",
                                                                        "1e+18"]
    text = io.StringIO()
    end = RunEnd("spent", "no further step fits", 16, 1.0, {"trained": 60, "evaluation": 21140}, (), {"error": 12000},
                 {}, {}, {}, Path("r"))
    show(end, Console(file=text, width=120))
    assert "evaluation 21,140" in text.getvalue() and "error: 12,000" in text.getvalue()
