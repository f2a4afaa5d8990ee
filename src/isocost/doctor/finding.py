"""What was checked, and what a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from isocost.disk.jsonfile import finite
from isocost.screen.display import Result, Row, Table, data_of
from isocost.screen.words import counted, duration
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

    def rows(self) -> list[Row | Table]:
        """The verdict, the check, what was measured, and below it what to do: as wide as those of other findings."""
        do = [("", "", f"do: {self.do}")] if self.do else []
        return [Table(("", "", ""), [(f"{self.verdict:<11}", f"{self.name:<28}", self.said), *do], left=(0, 1, 2))]


@dataclass(frozen=True)
class Subject:
    """The model, data, verifier and sampling that were checked. `warnings` are those of the check of the problems.
    `parameters` and `problems` are counts; `max_tokens` limits a completion; `kernels_why` says why kernels are not
    native."""

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

    def rows(self) -> list[Row]:
        """What is checked, and the warnings on the problems."""
        kernels = f", {self.kernels} kernels" if self.kernels else ""
        return [
            Row("doctor", f"{self.model} ({self.parameters:,} parameters, {self.dtype} on {self.device}, "
                f"{counted(self.threads, 'thread')}{kernels}) on {self.data}, verifier {self.verifier}", "head"),
            *(Row("", text, "flag") for text in self.warnings),
        ]

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

    def rows(self) -> list[Row]:
        """The service, the model and the prompt."""
        sdk = f", SDK {self.sdk}" if self.sdk else ""
        return [Row("doctor", f"{self.model} at {self.url} (adapter of rank {self.rank}{sdk}), prompt {self.prompt!r}",
                    "head")]


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

    def rows(self) -> list[Row]:
        """The number of findings by verdict, and what the checks cost. Findings are printed as they are made."""
        c, verdicts = self.cost, [f.verdict for f in self.findings]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in get_args(Verdict) if v in verdicts)
        return [Row("", f"{counts} in {duration(self.seconds)}; the checks used {c.rollouts:,} rollouts, "
                        f"{c.prefill + c.decode:,} tokens sampled, {c.score:,} scored, {c.train:,} trained on, "
                        f"{c.verify:,} verifier calls", "head")]

    def to_dict(self) -> dict[str, Any]:
        data = {
            **data_of(self.subject), "schema": 1, "findings": [plain(f) for f in self.findings],
            "cost": self.cost.data(), "seconds": round(self.seconds, 2), "sound": self.sound,
        }
        return dict(finite(data))
