"""The code that each record was made with, and which records are older than the code that they speak of.

    python experiments/made_with.py         the records below experiments/results that are older

`experiments/results/made_with.json` holds, for a record, the files and folders of `src/isocost` that decide what it
says, and a digest of their code. Comments, docstrings, layout and sentences, such as the text of a warning, are not
part of it. The script that writes a record calls `note`; the script that writes a page prints `sentence`.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
RESULTS, SOURCE = HOME / "experiments" / "results", HOME / "src" / "isocost"
KEPT = RESULTS / "made_with.json"
LAW = ("laws/bins.py", "laws/curves.py", "laws/fit.py", "laws/identify.py", "laws/law.py", "laws/overfit.py",
       "laws/pieces.py", "stats/forms.py", "stats/intervals.py", "stats/posterior.py", "stats/power.py",
       "stats/second.py")


def digest(parts: Sequence[str], source: Path = SOURCE) -> str:
    """A digest of the code in these files and folders of the package; the same on every version of Python."""
    whole = hashlib.sha256()
    for part in parts:
        for path in sorted((source / part).rglob("*.py")) or [source / part]:
            whole.update(f"{path.relative_to(source).as_posix()}\n".encode())
            whole.update(code(path.read_text(encoding="utf-8")).encode())
    return whole.hexdigest()[:16]


def code(text: str) -> str:
    """A program without comments, docstrings, layout and sentences: strings of several words."""
    return _plain(ast.parse(text))


def _plain(node: object) -> str:
    if isinstance(node, list):
        return "[" + ",".join(map(_plain, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, (ast.Constant, ast.JoinedStr)) and _says(node):
        return "a sentence"
    held = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
        held["body"] = node.body[1:]
    return f"{type(node).__name__}({','.join(f'{name}={_plain(value)}' for name, value in held.items())})"


def _says(node: ast.Constant | ast.JoinedStr) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return any(isinstance(x, ast.Constant) and isinstance(x.value, str) and " " in x.value.strip() for x in parts)


def note(record: Path, parts: Sequence[str] = LAW) -> None:
    """Keep that this record was made with the code as it is now; one that is written elsewhere is not noted."""
    if RESULTS not in record.resolve().parents:
        return
    known = noted()
    known[_name(record)] = {"parts": list(parts), "code": digest(parts)}
    KEPT.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


def noted() -> dict[str, dict[str, Any]]:
    """What is known of each record, by its path below experiments/results."""
    return dict(json.loads(KEPT.read_text(encoding="utf-8"))) if KEPT.is_file() else {}


def older(records: Sequence[Path], source: Path = SOURCE) -> list[str]:
    """Those of these records whose code has changed since they were made."""
    known = noted()
    return [name for name in map(_name, records) if known[name]["code"] != digest(known[name]["parts"], source)]


def sentence(records: Sequence[Path]) -> str:
    """What a page says of its older records, of those that are noted; empty if there are none."""
    names = older([record for record in records if _name(record) in noted()])
    if not names:
        return ""
    some = " and ".join(filter(None, (", ".join(f"`{name}`" for name in names[:-1]), f"`{names[-1]}`")))
    made = "was made" if len(names) == 1 else "were made"
    return f"The code of the law has changed since {some} {made}: a new run may differ."


def _name(record: Path) -> str:
    return record.resolve().relative_to(RESULTS).as_posix()


if __name__ == "__main__":
    for name in noted():
        print(name, "older" if older([RESULTS / name]) else "current")
