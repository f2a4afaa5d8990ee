"""The worked example of docs/import.md shows what its commands print, word for word."""

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from isocost.cli import main

HOME = Path(__file__).parents[1]
PAGE = (HOME / "docs" / "import.md").read_text(encoding="utf-8")


def examples():
    """(words of a command, what the page shows below it) in order; a line that ends with a backslash goes on."""
    for block in re.findall(r"^```\n\$ (.*?)^```$", PAGE, re.M | re.S):
        command, _, shown = block.replace("\\\n", " ").partition("\n")
        yield shlex.split(command), shown


def test_the_commands_print_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(HOME / "tests")
    found = list(examples())
    assert [words[1] for words, _ in found] == ["import", "fit", "plan", "export"]
    for words, shown in found:
        paths = (sorted(map(str, Path().glob(w))) if "*" in w else [w] for w in words[1:])
        done = CliRunner().invoke(main, [word for path in paths for word in path])
        assert done.exit_code == 0, (words, done.output, done.exception)
        assert [x.rstrip() for x in done.output.strip("\n").splitlines()] == shown.splitlines(), words
