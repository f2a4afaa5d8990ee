"""The code blocks of the documentation.

The language of a block says what the block is; there is no other mark, and a block without one is an error.

    sh        commands, run in order
    console   a transcript: a line that begins with "$ " is a command, the lines below it are its exact output
    python    code, run in one session per page; where the line above ends in "`NAME`:", the content of the file NAME
    toml      a fragment of a file, which must parse
    text      not run: output, usage, equations, diagrams. Directly below a `sh` or `python` block it is the exact
              output of that block
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import click

from isocost.cli import commands as cli

HOME = Path(__file__).parents[1]
WIDTH = 120
KINDS = ("sh", "console", "python", "toml", "text")
FENCE = re.compile(r"^ *(?:```|~~~)", flags=re.M)
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", flags=re.M | re.S)
FILE = re.compile(r"`([\w./]+)`:\n\n$")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page, at `line`. `file` is the file that it is the content of; `shown` its output."""

    page: str
    line: int
    kind: str
    body: str
    file: str = ""
    shown: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """The shell commands, as written; a backslash at the end of a line joins it to the next."""
        lines = self.body.replace("\\\n", " ").splitlines()
        if self.kind == "console":
            return [x.removeprefix("$ ") for x in lines if x.startswith("$ ")]
        if self.kind == "sh":
            return [x for x in lines if x.strip() and not x.lstrip().startswith("#")]
        return []

    def output(self) -> str | None:
        """What the page says that the block prints, or None if it does not say."""
        if self.kind == "console":
            return "\n".join(x for x in self.body.replace("\\\n", " ").splitlines() if not x.startswith("$ "))
        return self.shown


def pages() -> list[Path]:
    """The pages that a reader follows."""
    return [HOME / "README.md", HOME / "CONTRIBUTING.md", *sorted((HOME / "docs").glob("*.md"))]


def blocks(text: str, page: str = "page") -> list[Block]:
    """The fenced blocks of a page in order. Raises ValueError for a block that does not say what it is."""
    found: list[Block] = []
    matches = list(BLOCK.finditer(text))
    if len(FENCE.findall(text)) != 2 * len(matches):
        raise ValueError(f"{page}: a fence is indented, not closed, or made of ~~~")
    for i, m in enumerate(matches):
        line = text.count("\n", 0, m.start()) + 1
        if m[1] not in KINDS:
            said = m[1] or "nothing"
            raise ValueError(f"{page}:{line}: a block is one of {', '.join(KINDS)}; this one says {said!r}")
        file = FILE.search(text[: m.start()]) if m[1] == "python" else None
        after = matches[i + 1] if i + 1 < len(matches) else None
        below = after is not None and after[1] == "text" and not text[m.end() : after.start()].strip()
        shown = after[2] if after is not None and below and m[1] in ("sh", "python") and not file else None
        found.append(Block(page, line, m[1], m[2], file[1] if file else "", shown))
    return found


def same(shown: str, said: str) -> bool:
    """Whether a page's output is what was printed, but for blanks at the ends of lines and empty lines around it, and
    for lines that the page breaks at a blank, as a terminal of `WIDTH` columns does."""
    rest = [x.rstrip() for x in shown.strip("\n").splitlines()]
    for line in (x.rstrip() for x in said.strip("\n").splitlines()):
        text = rest.pop(0) if rest else None
        while rest and len(line) > WIDTH and line.startswith(f"{text} "):
            text = f"{text} {rest.pop(0)}"
        if text != line:
            return False
    return not rest


def parse(words: list[str]) -> None:
    """Read a command line as the command would, without running it. Named alone, a command need only exist."""
    command: click.Command = cli.main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        if name not in command.commands:
            raise click.UsageError(f"there is no command {name!r}")
        command = command.commands[name]
    words = [w for w in words if w != "[OPTIONS]"]
    if words and words != ["--help"]:
        command.make_context(command.name, words)
