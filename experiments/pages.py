"""What the scripts that write pages of docs share: lines of prose, and pictures in two themes."""

from __future__ import annotations

import textwrap

WIDE = 120      # characters of a line
AS_IS = ("|", "<", "#", " ", "`python ")      # beginnings of lines that stay: tables, pictures, headings, commands


def wrapped(text: str) -> str:
    """The text with long lines of prose and long items broken."""
    return "\n".join(line if len(line) <= WIDE or line.startswith(AS_IS) else textwrap.fill(
        line, WIDE, break_on_hyphens=False, break_long_words=False, subsequent_indent="  " * line.startswith("- "))
                     for line in text.split("\n"))


def picture(name: str, alt_text: str) -> str:
    """A picture of docs/images, NAME-light.svg and NAME-dark.svg."""
    return (f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/{name}-dark.svg">\n'
            f'  <img alt="{alt_text}" src="images/{name}-light.svg">\n</picture>\n')
