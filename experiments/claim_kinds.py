"""Claims whose arms are mappings: rows of TOML, records, the seal, and the commands `pilot`, `seal`, `run`.

`experiments.control_claims` and `experiments.strategy_claims` are such kinds; each says how its arms run.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from experiments.claim import REFUSED, Claim, answers_of, answers_text, failed, gate_text, outcome_of
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.planner.forecast import digest
from isocost.runs.files import read_json

Record = dict[str, Any]
SEALED = ("row", "decidable", "gate", "pilot")


class Mapped(Protocol):
    """A claim whose arms are mappings."""

    @property
    def claim(self) -> Claim:
        """The claim; its arms are their labels."""

    def data(self) -> Record:
        """What is sealed: the row of the TOML file, with its arms."""


T = TypeVar("T", bound=Mapped)


def rows_of(folder: Path, own: Sequence[str], make: Callable[..., T]) -> dict[str, T]:
    """Every claim of a folder's TOML files by name: `make` of the claim, its arms, and those of the `own` fields that
    its row has. A row's table `each` has settings that all its arms share. Raises UserError as `experiments.claim`."""
    found = {}
    for file in sorted(folder.glob("*.toml")):
        for name, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
            each, arms = row.pop("each", {}), row["arms"]
            plain = {k: v for k, v in row.items() if k not in own} | {"arms": list(arms), "options": []}
            found[name] = make(Claim.of(name, plain), {k: each | v for k, v in arms.items()},
                               **{k: row[k] for k in own if k in row})
    return found


def keep(kept: Path, of: Mapped, record: Record) -> Record:
    """Write a record; returns it."""
    kept.mkdir(parents=True, exist_ok=True)
    write_json(kept / f"{of.claim.name}.json", record)
    return record


def refuse_changed(of: Mapped, record: Mapping[str, Any]) -> None:
    """Raises UserError for a claim that is not sealed, or was changed since."""
    if digest({k: record[k] for k in SEALED}) != record.get("seal") or record["row"] != of.data():
        raise UserError(f"{of.claim.name} is not sealed, or was changed after it was sealed")


def answered(of: Mapped, runs: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Record:
    """The part of a record that follows from `runs`, numbers by arm, seed and metric: the outcome and the answers."""
    answers = answers_of(of.claim, runs)
    return {"outcome": outcome_of([a["answer"] for a in answers]), "answers": answers, "runs": runs}


def entered(arguments: Sequence[str], rows: Mapping[str, T], kept: Path, pilot: Callable[[T], Record],
            run: Callable[[T, Record], Record]) -> int:
    """The command `pilot`, `seal` or `run` NAME; returns the exit code. Raises UserError for other arguments."""
    if len(arguments) != 2 or arguments[0] not in ("pilot", "seal", "run") or arguments[1] not in rows:
        raise UserError(f"say `pilot NAME`, `seal NAME` or `run NAME`: there are {', '.join(rows)}")
    of, file = rows[arguments[1]], kept / f"{arguments[1]}.json"
    record = read_json(file) if file.exists() else {}
    if arguments[0] != "run" and "seal" in record:
        raise UserError(f"{arguments[1]} is sealed: a claim is asked again as a new row with after = {arguments[1]!r}")
    if arguments[0] == "pilot":
        print(gate_text(pilot(of)))
        return 0
    if not record or record["row"] != of.data():
        raise UserError(f"{of.claim.name} has no pilot, or its row was changed since: pilot it first")
    if arguments[0] == "run":
        record = run(of, record)
        print(f"{record['outcome']}: {of.claim.claim}\n{answers_text(record['answers'])}")
    elif record["decidable"]:
        keep(kept, of, {**record, "seal": digest(record)})
    else:
        print(f"refused by the gate: {failed(record)}", file=sys.stderr)
        return REFUSED
    return 0
