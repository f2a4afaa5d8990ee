"""Studies: a claim of a paper on a problem that is solved exactly or in seconds, with questions that can be answered.

A study is a file here: its docstring is its section of the page, `PAPER` is (name, arXiv number), `QUESTIONS` are asked
of `measure(seed)`, which gives the numbers of one seed by name. `EXACT` names those that no seed changes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from experiments.made_with import HOME, code
from isocost.stats.paired import UNSEEN, mean_of
from isocost.stats.power import Estimate, seeds_for

KEPT, PAGE = HOME / "experiments" / "results" / "studies", HOME / "docs" / "studies.md"
PILOT, FIRST, FEWEST = 4, 500, 6    # seeds of a pilot, the first of them; fewest seeds of an answer
MANY = 10_000       # where so many seeds are too few


@dataclass(frozen=True)
class Question:
    """Is the mean of a measure above, or below, a bound? `effect` is the distance that the seeds must detect."""

    text: str
    of: str
    above: float | None = None
    below: float | None = None
    effect: float = 0.05

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ValueError(f"{self.text!r} needs one bound, above or below")

    @property
    def bound(self) -> str:
        return f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"

    def answer(self, low: float, high: float) -> str:
        """yes, no, or cannot tell, of an interval: it lies on one side of the bound, or has the bound inside."""
        if self.above is not None:
            return "yes" if low > self.above else "no" if high <= self.above else "cannot tell"
        return "yes" if high < self.below else "no" if low >= self.below else "cannot tell"


@dataclass(frozen=True)
class Study:
    """A study's file as read."""

    name: str
    paper: tuple[str, str]
    text: str
    questions: Sequence[Question]
    measure: Callable[[int], Mapping[str, float]]
    exact: Sequence[str]
    most: int

    @property
    def seal(self) -> dict[str, Any]:
        """What must not be chosen after the fact: the questions, and a digest of the code that answers them."""
        return {"code": digest(self.name), "questions": [asdict(q) for q in self.questions]}

    @property
    def sampled(self) -> list[Question]:
        return [q for q in self.questions if q.of not in self.exact]


def names() -> list[str]:
    """Every study, by the alphabet."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "__main__")


def study(name: str) -> Study:
    """One study; without a limit of its own it has at most 40 seeds."""
    if name not in names():
        raise SystemExit(f"no study {name!r}; there are {', '.join(names())}")
    of = import_module(f"{__name__}.{name}")
    return Study(name, of.PAPER, of.__doc__.strip(), of.QUESTIONS, of.measure, getattr(of, "EXACT", ()),
                 getattr(of, "MOST", 40))


def digest(name: str) -> str:
    """A digest of a study's code and of the studies that it imports; comments and sentences are not part of it."""
    text = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    used = [n.module.rpartition(".")[2] for n in ast.walk(ast.parse(text))
            if isinstance(n, ast.ImportFrom) and (n.module or "").startswith(f"{__name__}.")]
    return hashlib.sha256("".join((code(text), *map(digest, sorted(used)))).encode()).hexdigest()[:16]


def run(name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Seal the questions in the record, run a pilot for the number of seeds, then answer. Answers that this code or
    these questions replace stay in `before`."""
    of, path = study(name), KEPT / f"{name}.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    record: dict[str, Any] = {"command": f"python -m experiments.studies run {name}", "sealed": of.seal}
    if before := old.get("before", []) + [
            {k: old[k] for k in ("sealed", "answers")} for _ in (0,) if "answers" in old and old["sealed"] != of.seal]:
        record["before"] = before
    _write(path, record)
    seeds = 1
    if of.sampled:
        pilot = [of.measure(FIRST + i) for i in range(PILOT)]
        effects = {q.of: q.effect for q in of.sampled}
        sd = {key: float(np.std([m[key] for m in pilot], ddof=1)) for key in effects}
        needed = {key: seeds_for(effect, sd[key] / sqrt(2), level=1 - alpha(of)) or MANY
                  for key, effect in effects.items()}
        seeds = min(of.most, max(FEWEST, *needed.values()))
        record["pilot"] = {"seeds": [FIRST + i for i in range(PILOT)], "sd": _rounded(sd), "needed": needed}
        say(f"{name}: pilot asks for {max(needed.values())} seeds, {seeds} are run")
    told = [of.measure(seed) for seed in range(seeds)]
    record["seeds"] = list(range(seeds))
    record["values"] = {key: [float(f"{m[key]:.6g}") for m in told] for key in told[0]}
    record["answers"] = answers(of, record["values"])
    _write(path, record)
    return record


def alpha(of: Study) -> float:
    """1 minus the level of each interval: 5 % shared by the sampled questions of a study (Bonferroni)."""
    return 0.05 / max(1, len(of.sampled))


def answers(of: Study, values: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Each question's mean, Student's interval and answer. Seeds that all agree may still hide a difference: their
    standard error is that of an effect that none of N seeds shows (rule of three)."""
    out = []
    for q in of.questions:
        x = np.asarray(values[q.of], dtype=float)
        low = high = float(x.mean())
        if q.of not in of.exact:
            known = mean_of(x)
            low, high = Estimate(known.value, known.se or UNSEEN * q.effect / len(x), known.dof).interval(alpha(of))
        out.append({"of": q.of, **_rounded({"value": float(x.mean()), "low": low, "high": high}),
                    "answer": q.answer(low, high)})
    return out


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {k: float(f"{v:.6g}") for k, v in values.items()}


def _write(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[-+\d.e,\s]+\]", lambda numbers: " ".join(numbers[0].split()), text)      # a line of numbers
    path.write_text(text + "\n", encoding="utf-8")
