"""The modules of the package and their syntax trees. Many rules look at all of them: each is parsed once a process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "isocost"


@cache
def sources() -> dict[str, str]:
    """The text of every module, by its path in the package: `parts/play.py`."""
    return {p.relative_to(PACKAGE).as_posix(): p.read_text(encoding="utf-8") for p in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(source: str) -> ast.Module:
    """The syntax tree of a module's text. It is shared: nobody changes it."""
    found = ast.parse(source)
    gc.freeze()     # trees stay to the end: no collection need go through them again
    return found


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a module's text."""
    return tuple(ast.walk(tree(source)))
