"""What a contract found: one promise of a method's or an environment's file, kept or broken."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from isocost import found
from isocost.screen.display import Row
from isocost.screen.words import counted


@dataclass(frozen=True)
class Promise:
    """One promise, and why it is broken; `why` is empty if it is kept.

    `tried` is False if it depends on another promise that is broken, so that one mistake is reported once.
    """

    promise: str
    why: str = ""
    tried: bool = True

    @property
    def kept(self) -> bool:
        return not self.why

    @property
    def state(self) -> str:
        """`kept`, `BROKEN` or `not tried`."""
        return "kept" if self.kept else "BROKEN" if self.tried else "not tried"

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"promise": self.promise, "state": self.state, "kept": self.kept, "why": self.why}


def sentence(promise: Callable[..., str]) -> str:
    """What is promised: the first line of the docstring of its check."""
    return (inspect.getdoc(promise) or "").splitlines()[0]


def broken(promise: Callable[..., str], file: str, *given: Any) -> str:
    """Why a promise of a user's file is broken, by its check of what is `given`; empty if it is kept."""
    try:
        return promise(*given)
    except Exception as error:      # other people's files may raise anything, and the rest is still checked
        return found.told(error, file)


def told(name: str, findings: Sequence[Promise], more: str = "") -> list[Row]:
    """A line per promise, with the reason where it is broken, then the result on the method or environment `name`."""
    wrong = [f for f in findings if f.state == "BROKEN"]
    counts = f"breaks {len(wrong)} of {counted(len(findings), 'promise')}" if wrong else "keeps the contract"
    lines = [line for f in findings for line in ((f.state, f.promise), *((("", f.why),) if f in wrong else ()))]
    return [*(Row("", f"{state:<9} {text}", "command") for state, text in lines),
            Row("", f"{name} {counts}{more}", "head")]
