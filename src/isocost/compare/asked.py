"""The log of comparisons that were asked, so that many in a row keep the error rate of one.

    isocost compare A B --log asked.jsonl

The k-th question of a log is answered at the error rate 0.05 x 6 / (pi k)^2, and these add up to 0.05 for any number
of questions: the chance of one false difference in the whole log is at most 5 %. This is an alpha budget, not an
always-valid interval: a search asks a new question each time, of other runs, and does not look again at one as it
grows; and it needs no assumption on how runs are distributed. A question that was asked before gets its rate again.
"""

from __future__ import annotations

from math import pi
from pathlib import Path
from typing import Any

from isocost.disk import jsonfile
from isocost.disk.lock import locked
from isocost.errors import UserError

ALPHA = 0.05            # error rate of a comparison, or of a whole log


def rate(k: int) -> float:
    """The error rate of the k-th question, from 1."""
    return ALPHA * 6 / (pi * k) ** 2


def ask(log: Path, question: str, words: str) -> tuple[float, int]:
    """The error rate of a question and its number in the log, from 1; a new one is written down before it is answered.
    `question` is a digest of all that is compared, `words` say it. Raises UserError for a file that is no such log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with locked(log.parent):
        known = [x.get("question") for x in jsonfile.read_lines(log, lambda _: dict[str, Any])]
        if None in known:
            raise UserError(f"{log}, line {known.index(None) + 1} is no question: give --log another file")
        if question in known:
            k = known.index(question) + 1
        else:
            k = len(known) + 1
            with log.open("a", encoding="utf-8") as file:
                file.write(jsonfile.line({"question": question, "asked": words, "rate": rate(k)}) + "\n")
    return rate(k), k
