"""Which methods a long test is about: those that changed, with all that rest on them, and a quarter of the others.

The quarter is by the commit, so that a few commits see all of them; `-m release` runs the rest. What changed is a
method's file in the last `SINCE` commits, and any file of methods and parts that is not committed; of control, of its
whole room. Where git cannot say, every method is in its turn.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from isocost import methods
from isocost.control import methods as control_methods
from trees import nodes, sources

SINCE, PART = 10, 4
SHAPED = ("tests/test_methods.py", "tests/test_parts.py", "tests/test_feed.py", "tests/test_agents.py")
HOME = Path(__file__).parents[1]
KINDS = {       # what a method consists of
    methods: ("methods", "parts"), control_methods: ("control/methods", "control"),
}


def git(*words: str) -> list[str]:
    """The lines that a git command prints. Raises OSError or CalledProcessError where there is no such history."""
    done = subprocess.run(["git", "-C", str(HOME), *words], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@cache
def rests_on() -> dict[str, frozenset[str]]:
    """Module of what methods consist of -> those of them that it imports, its parent with them, through others too."""
    rooms = tuple(f"{room}/" for room in sum(KINDS.values(), ()))
    modules = {f"isocost.{name.removesuffix('.py').replace('/', '.')}": source
               for name, source in sources().items() if name.startswith(rooms)}
    direct: dict[str, set[str]] = {}
    for name, source in modules.items():
        imported = {f"{n.module}.{a.name}" for n in nodes(source) if hasattr(n, "module") for a in n.names}
        direct[name] = {m for m in modules if any(x == m or x.startswith(f"{m}.") for x in imported)} - {name}
    for kind in KINDS:
        for name in kind.KIND.shipped():
            if parent := kind.load(name).CARD.parent:
                direct[f"{kind.__name__}.{name}"].add(f"{kind.__name__}.{parent}")
    for name in control_methods.KIND.shipped():
        direct[f"isocost.control.methods.{name}"].add("isocost.control.loop")       # which runs it
    found = {}
    for name in modules:
        reached, new = set(), {name}
        while new:
            reached |= new
            new = set().union(*(direct[m] for m in new)) - reached
        found[name] = frozenset(reached)
    return found


def touched(changed: Iterable[str], kind: ModuleType = methods) -> set[str]:
    """The methods that consist of one of these files, by their paths in the repository."""
    files = {f.removeprefix("src/").removesuffix(".py").replace("/", ".") for f in changed}
    return {name for name in kind.KIND.shipped() if rests_on()[f"{kind.__name__}.{name}"] & files}


def drawn(commit: str, name: str) -> bool:
    """Whether a name is in the quarter of a commit."""
    return hashlib.sha256(f"{commit} {name}".encode()).digest()[0] % PART == 0


def turn(commit: str, kind: ModuleType = methods) -> set[str]:
    """A quarter of the methods."""
    return {name for name in kind.KIND.shipped() if drawn(commit, name)}


@cache
def commit() -> str:
    """The commit whose turn it is. Raises OSError or CalledProcessError where there is none."""
    return git("rev-parse", "HEAD")[0]


def checks_shapes(file: str) -> bool:
    """Whether shapes in annotations are checked in a test file: always in those of `SHAPED`, and in a quarter of the
    others by the commit. The checks take a third of the time of tests that train or sample."""
    try:
        return file in SHAPED or drawn(commit(), file)
    except (OSError, subprocess.CalledProcessError):
        return True


def not_committed(*where: str) -> list[str]:
    """The files there that differ from the commit's, and new ones."""
    return [*git("diff", "--name-only", "HEAD", "--", *where),
            *git("ls-files", "--others", "--exclude-standard", "--", *where)]


@cache
def in_turn(kind: ModuleType = methods) -> frozenset[str]:
    """The methods whose turn it is at this commit."""
    where = [f"src/isocost/{room}" for room in KINDS[kind]]
    try:
        now = commit()
        changed = [*git("diff", "--name-only", f"HEAD~{SINCE}", "--", where[0]), *not_committed(*where)]
    except (OSError, subprocess.CalledProcessError):
        return frozenset(kind.KIND.shipped())
    return frozenset(touched(changed, kind) | turn(now, kind))


def when_changed(*where: str) -> pytest.MarkDecorator:
    """A mark for a long test that the normal suite runs only while the files of these patterns change."""
    files = [f":(glob){pattern}" for pattern in where]
    try:
        changed = bool(git("diff", "--name-only", f"HEAD~{SINCE}", "--", *files) + not_committed(*files))
    except (OSError, subprocess.CalledProcessError):
        changed = True
    return pytest.mark.skipif(False, reason="it changed") if changed else pytest.mark.release


def in_their_turn(names: Iterable[str], kind: ModuleType = methods) -> list[object]:
    """Values for `parametrize`: those whose turn it is not are of `-m release`."""
    return [n if n in in_turn(kind) or n not in kind.KIND.shipped() else pytest.param(n, marks=pytest.mark.release)
            for n in names]
