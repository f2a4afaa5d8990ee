"""What was checked, and what a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from isocost.disk.jsonfile import finite
from isocost.screen.display import Result
from isocost.types import Cost, plain
from isocost.worlds.setting import Opened

Verdict = Literal["ok", "warn", "fail", "cannot tell"]
KERNELS = ("kernels", "kernels_why")       # facts of models of this machine


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
    kernels: str
    kernels_why: str
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, opened: Opened) -> Subject:
        """Of an opened setting."""
        s, about = opened.setting, opened.world.about
        drawn = s.sampling
        return cls(
            s.model, opened.world.learner.parameters, s.problems.data, len(opened.problems), opened.problems.verifier,
            drawn.temperature, drawn.top_p, drawn.top_k, s.lengths.max_tokens, s.machine.threads,
            about.device, about.dtype, about.kernels, about.kernels_why,
            tuple(opened.problems.report.warnings),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without warnings and without facts that the engine does not have."""
        return {k: v for k, v in asdict(self).items() if k != "warnings" and not (k in KERNELS and not self.kernels)}


@dataclass(frozen=True)
class ServiceSubject:
    """The service and the model that were checked, the adapter's rank, the SDK's version, and the prompt."""

    url: str
    model: str
    rank: int
    sdk: str
    prompt: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Diagnosis(Result):
    """The findings on a subject, in order of the checks, and what the checks cost: rollouts, tokens and seconds."""

    subject: Subject | ServiceSubject
    findings: tuple[Finding, ...]
    cost: Cost
    seconds: float

    @property
    def sound(self) -> bool:
        """Whether no check failed."""
        return all(f.verdict != "fail" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost doctor --json` prints it."""
        data = {
            **self.subject.to_dict(), "schema": 1, "findings": [plain(f) for f in self.findings],
            "cost": self.cost.data(), "seconds": round(self.seconds, 2), "sound": self.sound,
        }
        return dict(finite(data))
