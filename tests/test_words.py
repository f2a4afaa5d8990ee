"""Everything that a user reads is in the field's terms: no phrase of tests/words.py is in a page, help text or message.

`python tests/test_words.py` lists every hit by place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from isocost.cli import commands as cli
from trees import nodes
from words import INSTEAD

HOME = Path(__file__).parents[1]
SOURCE = HOME / "src" / "isocost"
ROOMS = ("core", *sorted(p.name for p in SOURCE.iterdir() if p.is_dir() and any(p.glob("*.py"))),
         *(str(HOME / scripts) for scripts in ("bench", "docs/build", "examples", "experiments")))
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md",
         *sorted(str(p.relative_to(HOME)) for p in (HOME / "docs").rglob("*.md")))
PHRASES = [(re.compile(phrase.replace(" ", r"\s+"), re.I), instead) for phrase, instead in INSTEAD.items()]
CODE = re.compile(r"`[^`\n]+`")


def hits(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, phrase, what to write instead) for each phrase in a text."""
    for phrase, instead in PHRASES:
        for found in phrase.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), instead


def in_page(page: str) -> list[str]:
    """The hits of a page, without its inline code (names of fields)."""
    text = CODE.sub(lambda code: "`" + " " * (len(code[0]) - 2) + "`", (HOME / page).read_text(encoding="utf-8"))
    return [f"{page}:{line}: {phrase!r}: write {instead!r}" for line, phrase, instead in hits(text)]


def files(room: str) -> list[Path]:
    found = SOURCE.glob("*.py") if room == "core" else (SOURCE / room).rglob("*")
    return sorted(f for f in found if f.suffix in (".py", ".html"))


def shown(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of what a user can read in a module: docstrings of public names, and other texts of several words.

    The parts of a text that stand beside each other are one text; a value that is filled in is an ellipsis.
    """
    every = nodes(source)
    private: set[int] = set()
    for node in every:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and getattr(node, "name", "").startswith("_"):
                private.add(id(first.value))        # a private docstring
    inside = {id(part) for node in every if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in every if isinstance(node, ast.JoinedStr)
    }
    for node in every:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | private:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text


def in_room(room: str) -> list[str]:
    """The hits of a room: the texts of its modules, and its templates."""
    found = []
    for file in files(room):
        source = file.read_text(encoding="utf-8")
        texts = shown(source) if file.suffix == ".py" else [(1, source)] if file.suffix == ".html" else []
        for line, text in texts:
            place = f"{file.relative_to(HOME)}"
            found += [f"{place}:{line + at - 1}: {phrase!r}: write {instead!r}" for at, phrase, instead in hits(text)]
    return found


def helps(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(command, what its --help prints) of every command."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from helps(below, (*words, name))
    yield " ".join(("isocost", *words)), CliRunner().invoke(cli.main, [*words, "--help"]).output


# the tests ------------------------------------------------------------------------------------------------------------


SEALED = "control_methods.md", "'is told'"        # the words of a claim's row, which do not change once it is sealed


def test_every_page_is_in_plain_words():
    found = [hit for page in PAGES for hit in in_page(page) if not (SEALED[0] in hit and SEALED[1] in hit)]
    assert not found, "\n" + "\n".join(found)


def test_what_every_room_says_is_in_plain_words():
    found = [hit for room in ROOMS for hit in in_room(room)]
    assert not found, "\n" + "\n".join(found)


def test_the_help_of_every_command_is_in_plain_words():
    found = [f"{name}: {phrase!r}: write {instead!r}" for name, text in helps(cli.main)
             for _, phrase, instead in hits(text)]
    assert not found, "\n" + "\n".join(found)


def test_a_phrase_is_found_in_each_kind_of_text(tmp_path):
    source = '''
"""The law refuses."""
def public():
    """Which n is best cannot be
    told."""
    raise UserError(f"{n} seeds "
                    "an arm see a difference")
def _private():
    """Not shown: surely."""
    return {"refused": 1, "surely": 2}
'''
    texts = list(shown(source))
    assert {p for _, text in texts for _, p, _ in hits(text)} >= {"law refuses", "cannot be told", "seeds an arm see"}
    assert not any("surely" in text for _, text in texts)
    assert next(hits("a\nb\ncannot\nbe told"))[0] == 3
    assert not list(hits("The law is not identified. The minimum detectable difference is 0.005."))


def test_every_phrase_has_a_replacement_that_is_itself_plain():
    for phrase, instead in INSTEAD.items():
        assert re.compile(phrase) and instead and not list(hits(instead)), phrase


if __name__ == "__main__":
    for place in (*PAGES, *ROOMS):
        listed = in_page(place) if "." in place else in_room(place)
        print(f"{len(listed):4} {place}", *listed, sep="\n       ")
    shown_by_help = [x for name, text in helps(cli.main) for x in hits(text)]
    print(f"{len(shown_by_help):4} --help", *shown_by_help, sep="\n       ")
