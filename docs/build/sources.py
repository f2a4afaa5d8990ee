"""Write the table of sources of `isocost import` into a page: python -m docs.build.sources docs/import.md"""

from __future__ import annotations

import sys
from pathlib import Path

from isocost.trainers.reading.logs import load, names


def catalogue() -> str:
    """The sources as a table in Markdown."""
    rows = [(f"`{n}`", *(getattr(load(n), k) for k in ("READS", "GIVES", "LACKS"))) for n in names()]
    lines = ["| `--from` | what is read | what it gives | what it lacks |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def listed(page: str) -> str:
    """A page that has this table, with the sources of today; the table ends at the first empty line."""
    header = catalogue().partition("\n")[0]
    before, _, after = page.partition(header)
    return before + catalogue() + "\n" + after.partition("\n\n")[2]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(listed(place.read_text(encoding="utf-8")), encoding="utf-8")

