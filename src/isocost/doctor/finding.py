"""What was checked, and what a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from isocost.worlds.setting import Opened

Verdict = Literal["ok", "warn", "fail", "cannot tell"]
OPTIONAL = ("kernels", "kernels_why")       # facts that only some engines have


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's verdict: what was measured, with its number, and what to do about it (empty if nothing)."""

    name: str
    verdict: Verdict
    said: str
    do: str = ""


@dataclass(frozen=True)
class Subject:
    """The model, data, verifier and sampling that were checked. `warnings` are those of the check of the problems.

    `parameters` and `problems` are counts; `max_tokens` limits a completion; `kernels_why` says why kernels are not
    native.
    """

    model: str
    parameters: int
    data: str
    problems: int
    verifier: str
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    threads: int
    device: str
    dtype: str
    kernels: str | None
    kernels_why: str | None
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, opened: Opened) -> Subject:
        """Of an opened setting."""
        s, extra = opened.setting, opened.world.extra
        return cls(
            s.model, opened.world.learner.parameters, s.data, len(opened.problems), opened.problems.verifier,
            s.temperature, s.top_p, s.top_k, s.max_tokens, s.threads, str(extra["device"]), str(extra["dtype"]),
            extra.get("kernels"), extra.get("kernels_why"), tuple(opened.problems.report.warnings),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without warnings and without facts that the engine does not have."""
        return {k: v for k, v in asdict(self).items() if k != "warnings" and not (k in OPTIONAL and v is None)}
