"""What a contract found: one promise of a method's or an environment's file, kept or broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isocost.moved import find_old_names


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


find_old_names(__name__)
