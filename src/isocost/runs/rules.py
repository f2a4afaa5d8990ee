"""The rules by which a record was begun: of its method's functions (`isocost.methods.Card.rule`), of the meter, and of
its verifier (`isocost.tasks.verify.verifiers.VerifierKind.rule`).

A number that a record does not have is 1. What was begun under other rules than this version's is not continued,
because one part of it would be of one rule and the next of another. It can be read, audited and reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from isocost import meter, methods
from isocost.errors import UserError
from isocost.recipe import METHODS, calls
from isocost.runs.files import RunFiles
from isocost.runs.names import today
from isocost.tasks.verify.verifiers import BUILT_IN

METER = "the meter"
VERIFIERS = {name: f"the verifier {name}" for name, kind in BUILT_IN.items() if kind.rule != 1}


def of_verifier(name: str, kind: str = "verifier") -> dict[str, int]:
    """What a run's record says of the rule of its verifier, or its truth: nothing of rule 1."""
    return {f"{kind}_rule": BUILT_IN[name].rule} if name in VERIFIERS else {}


def recorded(recipe: Mapping[str, Any], code: Mapping[str, Any] | None = None) -> dict[str, int]:
    """The rules of a recorded recipe, and of the meter by its `code`: name -> number, if it is not 1."""
    there = {k: int(v) for k, v in (recipe.get("rules") or {}).items()}
    rule = int((code or {}).get("meter", 1))
    return there | ({METER: rule} if rule != 1 else {})


def now(recipe: Mapping[str, Any]) -> dict[str, int]:
    """The rules of this version for the methods of the package whose functions a recorded recipe has."""
    modules = {str(c["fn"]).partition(":")[0] for c in calls(today(recipe))}
    named = sorted({m.removeprefix(METHODS) for m in modules if m.startswith(METHODS)} & {*methods.shipped()})
    rules = {name: of_file(name) for name in named} | {METER: meter.RULE}
    return {name: rule for name, rule in rules.items() if rule != 1}


@cache
def of_file(name: str) -> int:
    """The rule in the card of a method of the package, read and not imported: to import a method takes torch."""
    tree = ast.parse((Path(methods.__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
    cards = (x for x in ast.walk(tree) if isinstance(x, ast.Call) and ast.unparse(x.func) == "Card")
    given = [k.value for card in cards for k in card.keywords if k.arg == "rule"]
    return int(ast.literal_eval(given[0])) if given else 1


def differences(there: Mapping[str, int], here: Mapping[str, int], where: str = "in this version") -> str:
    """Which rules differ: "rule 1 of roc (2 in this version)"; empty if none does."""
    known = {*methods.shipped(), METER, *VERIFIERS.values()}     # of another file the source's hash is compared
    changed = [k for k in sorted({*there, *here} & known) if there.get(k, 1) != here.get(k, 1)]
    return " and ".join(f"rule {there.get(k, 1)} of {k} ({here.get(k, 1)} {where})" for k in changed)


def refuse_other(
    where: Path, recipe: Mapping[str, Any], code: Mapping[str, Any] | None = None,
    problems: Mapping[str, Any] | None = None,
) -> None:
    """Raises UserError if a folder was begun under other rules; a record's `problems` name those of its verifiers."""
    there, here, problems = recorded(recipe, code), now(recipe), problems or {}
    for kind in ("verifier", "truth"):
        if (name := problems.get(kind)) in VERIFIERS:
            there[VERIFIERS[name]] = int(problems.get(f"{kind}_rule", 1))
            here[VERIFIERS[name]] = BUILT_IN[name].rule
    if text := differences(there, here):
        raise UserError(f"{where} was begun under {text}, so it is not continued: it can still be read, audited and "
                        "reported. Begin again in another folder")


def refuse_other_runs(runs: Iterable[RunFiles], where: Path) -> None:
    """`refuse_other` of the study in a folder, for each of its runs that has a recipe on record."""
    for run in runs:
        if recipe := (about := run.about()).get("recipe"):
            refuse_other(where, recipe, about.get("code"), about.get("problems"))
