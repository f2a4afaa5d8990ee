"""The console that tables and coloured lines are printed on; plain text goes through `isocost.screen.terminal.echo`.

A folder may be called `\x1b[2J`, an answer may hold `[/bold]`: both are text. `Console` interprets only the tags that
this package writes itself (`TAGS`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.errors import MarkupError
from rich.segment import Segment
from rich.text import Text

from isocost.screen.words import visible

TAGS = ("bold", "dim", "red", "green", "yellow", "cyan", "bold red", "/")
_TAG = re.compile(r"(\\*)\[([a-zA-Z#/@][^\[\]]*)\]")     # as rich finds them


UNBROKEN = 100_000      # columns, where what is printed is searched and not seen


def console() -> Console:
    """A console for a command's words. Lines are broken for a terminal only."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else UNBROKEN)


class Console(RichConsole):
    """Rich's console, for which data is never markup and a control character never a command."""

    def on_broken_pipe(self) -> None:
        """Let the error end the command: `isocost ... | head` is no bug."""
        raise

    def render_str(self, text: str, **options: Any) -> Text:
        """Text with this package's own tags as styles and everything else as it is."""
        text = visible(text)
        if options.get("markup") is False:
            return super().render_str(text, **options)
        try:
            return super().render_str(_TAG.sub(_literal, text), **options)
        except MarkupError:     # a name closed one of our tags: print it all literally
            return super().render_str(text, **{**options, "markup": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments without control characters: texts that were made elsewhere come this way."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or visible(text) == text else Segment(visible(text), style, control)


def _literal(found: re.Match[str]) -> str:
    slashes, tag = found.groups()
    if tag in TAGS or len(slashes) % 2:     # ours, or already literal
        return found[0]
    return f"{slashes}\\[{tag}]"
