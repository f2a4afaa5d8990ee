"""The built-in families of problems: what is known of each besides its problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from isocost.tasks.builtin import expressions, modes, places, puzzles, sums
from isocost.types import Problem


@dataclass(frozen=True, slots=True)
class Family:
    """A built-in family. Its problems carry its name in `meta["source"]`, and a `solution`, `level` and `kin`."""

    name: str
    model: str                                               # the built-in model that was taught it
    listed: Callable[[str], Iterator[Problem]]               # the problems that a specification names
    verifier: Callable[[str], str]                           # the verifier that goes with a specification
    tokens: Callable[[str], int]                             # default length limit of a completion, its end included
    accepts: Callable[[Problem, str], bool]                  # whether a final answer is right
    check_steps: Callable[[Problem, str], list[bool]]        # whether each step is, the final answer last
    step: str                                                # ends a step
    # What can be said of an answer without marking it, from 0 to 1 by name, and the right answers, where all are known.
    checks: Callable[[Problem, str], Mapping[str, float]] = lambda problem, final: {}
    solutions: Callable[[Problem], set[str] | None] = lambda problem: None


SUMS = Family(
    "sums", "tiny",
    listed=lambda spec: sums.listed(sums.Sums.of(spec)),
    verifier=lambda spec: "final" if sums.Sums.of(spec).work else "exact",
    tokens=lambda spec: 1 + max(len(str(p.meta["solution"])) for p in sums.listed(sums.Sums.of(spec))),
    accepts=lambda problem, final: final == problem.answer,
    check_steps=sums.check_steps,
    step=sums.STEP,
)
PUZZLES = Family(
    "puzzles", "tiny-puzzles",
    listed=lambda spec: puzzles.listed(puzzles.Puzzles.of(spec)),
    verifier=lambda spec: "final",
    tokens=lambda spec: puzzles.TOKENS,
    accepts=puzzles.accepts,
    check_steps=puzzles.check_steps,
    step=puzzles.STEP,
    solutions=puzzles.solutions,
)
EXPRESSIONS = Family(
    "expressions", "tiny-puzzles",
    listed=lambda spec: expressions.listed(expressions.Expressions.of(spec)),
    verifier=lambda spec: "final",
    tokens=lambda spec: expressions.LONGEST,
    accepts=expressions.accepts,
    check_steps=lambda problem, text: [expressions.accepts(problem, text)],
    step=puzzles.STEP,
    checks=expressions.checks,
)
MODES = Family(
    "modes", "flow2d:modes",
    listed=lambda spec: modes.listed(modes.Modes.of(spec)),
    verifier=lambda spec: "final",
    tokens=lambda spec: modes.STATES,
    accepts=modes.accepts,
    check_steps=lambda problem, text: [modes.accepts(problem, text)],
    step="\n",
)
PLACES = Family(
    "places", "masked:sums",
    listed=lambda spec: places.listed(places.Places.of(spec)),
    verifier=lambda spec: "exact",
    tokens=lambda spec: places.PLACES,
    accepts=lambda problem, final: final == problem.answer,
    check_steps=lambda problem, text: [text == problem.answer],
    step=sums.STEP,
)
FAMILIES = {f.name: f for f in (SUMS, PUZZLES, EXPRESSIONS, MODES, PLACES)}


def named(spec: str) -> Family | None:
    """The family that a specification such as "sums:level=1" names; None for a file or another source."""
    return FAMILIES.get(spec.partition(":")[0])


def of(problem: Problem) -> Family | None:
    """The family that a problem is of; None if it is of no built-in one."""
    return FAMILIES.get(str(problem.meta.get("source")))


def model_for(specs: Sequence[str]) -> str:
    """The built-in model that can read these problems: their family's if they are all of one, else "tiny"."""
    models = {f.model if (f := named(spec)) else "" for spec in specs}
    return models.pop() if len(models) == 1 and "" not in models else SUMS.model
