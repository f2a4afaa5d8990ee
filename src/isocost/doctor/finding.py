"""What a check found. The one noun of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's verdict: what was seen, with its number, and what to do about it ("" when nothing)."""

    name: str
    verdict: Verdict
    said: str
    do: str = ""
