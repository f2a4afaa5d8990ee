"""The catalogue page of the methods, written from their files: what it says cannot go stale."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from isocost import methods
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.recipe import call, calls, describe, diff
from isocost.seams import SIZES
from isocost.types import Fate
from isocost.worlds import toy

REPOSITORY = Path(__file__).resolve().parents[3]     # tests and records lie there; an installed package has neither
GENERAL = ("docs", "learn", "local")                 # tests/test_methods_*.py that hold no numbers from papers
COUNTS = {"sampled": "decode", "scored": "score", "trained": "train"}

HEAD = """# Methods

Written from the method files by `isocost.methods.catalogue()`; a test fails when it is not current. To add one, see
[Write a method](write_a_method.md). With one update on fresh rollouts every ratio ρ is exactly 1, and methods that
differ in their clip alone take the same step: the clip matters from the second update (`improve.minibatches`,
`improve.epochs`) or the first stale rollout (`max_age`) on.

What a method costs is read off the meter after four waves of four groups in `isocost.worlds.toy`, at the method's own
n: tokens sampled, scored without a gradient, and trained on, for each rollout that carried an advantage into an
update. Prompts are two tokens there, answers about three, and nothing is learned, so it is the factors that carry over,
and roughly. Where a mechanism finds nothing to act on in so small a world (ARRoL, SIRI, TTI) they are of the method's
sizes alone. Of its status, *contract* says that it keeps the promises of `isocost methods check`, *numeric* where it is
held to numbers worked by hand from its paper, and *reproduced* which record shows what its claim says. A *headline*
([Headlines](headlines.md)) that it was tried in without that is told with what came of the questions about it.
"""


def page() -> str:
    """The whole page, in Markdown."""
    cards = {name: methods.load(name).CARD for name in methods.shipped()}
    rows = [f"| [{n}](#{n}) | {c.title} | {c.year} | {_touched(n)} | {c.claim} |" for n, c in cards.items()]
    table = "\n".join(["| name | title | year | changes | claim |", "| --- | --- | --- | --- | --- |", *rows])
    tree = methods.tree(methods.shipped())
    return "\n\n".join([HEAD.strip(), table, f"```text\n{tree}\n```", *map(_entry, cards)]) + "\n"


def _entry(name: str) -> str:
    module = methods.load(name)
    idea, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
    parts = [f"## {name}", f"{_paper(module.CARD)} {idea}", f"```text\n{inspect.cleandoc(rest)}\n```", _changes(name)]
    said = "\n".join(f"- {line}" for line in remarks(Path(module.__file__).read_text(encoding="utf-8")))
    parts += [f"Its file says:\n\n{said}"] if said else []
    shown = status(name, REPOSITORY, _own(name))
    return "\n\n".join([*parts, _overhead(name), f"Needs: {_needs(name)}", f"Status: {shown}."])


def remarks(text: str) -> list[str]:
    """What a file's comments say: why a default is what it is, and the section of the paper that has it.

    A comment at the end of a line is told with the line's setting where it holds one; of several it says itself which.
    """
    out: list[str] = []
    held = _settings(text)
    open_at = -1      # a comment of several lines goes on
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        said = token.string.lstrip("# ").strip()
        if token.type != tokenize.COMMENT or said.startswith(("(", "->", "noqa", "type:")):
            continue
        row, code = token.start[0], token.line[: token.start[1]].strip()
        if not code and out and open_at == row - 1:
            out[-1] += " " + said
        else:
            here = held.get(row, []) if code else []
            out.append(f"`{here[0]}`: {said}" if len(here) == 1 else said)
        open_at = row if not code else -1
    return out


def _settings(text: str) -> dict[int, list[str]]:
    """What a file sets, by line: names, defaults, what `partial` or a recipe is given; where the value stands there."""
    out: dict[int, list[str]] = {}
    for node in ast.walk(ast.parse(text)):
        for name, value in _set_by(node):
            if isinstance(value, ast.Constant | ast.Name | ast.Attribute | ast.UnaryOp):
                out.setdefault(value.lineno, []).append(f"{name}={ast.get_source_segment(text, value)}")
    return out


def _set_by(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            yield from ((ast.unparse(name), value) for name, value in zip(names, values, strict=True))
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="recipe" | "but"), keywords=given):
            yield from ((k.arg, k.value) for k in given if k.arg)
        case ast.arguments(posonlyargs=first, args=rest, defaults=defaults, kwonlyargs=named,
                           kw_defaults=theirs):
            last = [*first, *rest][len(first) + len(rest) - len(defaults):]
            yield from ((a.arg, value) for a, value in zip([*last, *named], [*defaults, *theirs], strict=True) if value)


def status(name: str, repository: Path, own: frozenset[str] = frozenset()) -> str:
    """What has been shown of a shipped method: contract, numeric, reproduced; each with where.

    A test that names the method, or a function that only it and its family hold (`own`), holds it to numbers. A record
    says what it reproduces in `reproduces`, by method; of a headline its file says whose own claim it asks, and which
    of its questions are about whom.
    """
    shown = ["contract"]
    tests = sorted(repository.glob("tests/test_methods_*.py"))
    held = [p.name for p in tests if p.stem.rpartition("_")[2] not in GENERAL and {name, *own} & _named_in(p)]
    if held:
        shown.append("numeric (" + ", ".join(f"`tests/{file}`" for file in held) + ")")
    for path in sorted(repository.glob("experiments/results/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and name in record.get("reproduces", {}):
            shown.append(f"reproduced ({record['reproduces'][name]}; `{path.relative_to(repository)}`)")
    for path in sorted(repository.glob("experiments/results/headlines/*.json")):
        said = _said_of(repository / "experiments" / "headlines" / f"{path.stem}.py")
        record = json.loads(path.read_text(encoding="utf-8"))
        if name in said["methods"]:
            told = outcome([record["answers"][i]["answer"] for i in said["methods"][name]])
            asked, where = name in said["own"], f"({said['title']}; `{path.relative_to(repository)}`)"
            shown.append(f"reproduced {where}" if asked and told == record["outcome"] == "holds" else
                         f"headline{'' if asked else ' on another claim'}: {told} {where}")
    return ", ".join(shown)


def outcome(answers: Sequence[str]) -> str:
    """What becomes of a claim: it holds where the answers to all of its questions do, and not where one does not."""
    return "holds" if set(answers) == {"holds"} else "does not hold" if "does not hold" in answers else "cannot tell"


def _said_of(path: Path) -> dict[str, Any]:
    """Title, methods and whose own claim it is, of a headline's file, which is read and not run."""
    (call,) = (n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
               if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "Headline")
    return {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in ("title", "methods", "own")}


@cache
def _named_in(path: Path) -> frozenset[str]:
    """Names in the functions of a file of tests: as strings, as modules, and as `module.function`."""
    return frozenset(
        name for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) for name in _names(node)
    )


def _names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            yield from (part.value.id, f"{part.value.id}.{part.attr}")


@cache
def _own(name: str) -> frozenset[str]:
    """Functions that this method's recipe holds, and no recipe but its parent's and those that come from it."""
    family = {name, methods.load(name).CARD.parent}
    others = {other for other in methods.shipped() if other not in family and name not in _ancestors(other)}
    return _functions(name).difference(*map(_functions, others))


@cache
def _functions(name: str) -> frozenset[str]:
    return frozenset(call(x) for x in calls(describe(methods.load(name).recipe())))


def _ancestors(name: str) -> list[str]:
    parent = methods.load(name).CARD.parent
    return [] if parent is None else [parent, *_ancestors(parent)]


def _overhead(name: str) -> str:
    parent = methods.load(name).CARD.parent
    mine, theirs = _each(name), _each(parent) if parent else {}
    head = ["tokens for each rollout trained on", *([parent] if parent else []), name, *(["factor"] if parent else [])]
    rows = [
        [word, *([f"{theirs[word]:.1f}"] if parent else []), f"{mine[word]:.1f}",
         *([_factor(mine[word], theirs[word])] if parent else [])]
        for word in COUNTS
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _factor(mine: float, theirs: float) -> str:
    return f"{mine / theirs:.2f}" if theirs else "new" if mine else "-"


@cache
def _each(name: str) -> dict[str, float]:
    """Tokens of each kind for each rollout that carried an advantage, by the meter, in the toy world."""
    world, ledger, recipe = toy.world(), Ledger(), methods.load(name).recipe(groups=4)

    async def go() -> None:
        async for _ in train(recipe, world, ledger, {"rollouts": recipe.groups * recipe.rollouts * 4}):
            pass

    asyncio.run(go())
    spent, trained = world.meter.of(), max(ledger.fates[str(Fate.TRAINED)], 1)
    return {word: getattr(spent, count) / trained for word, count in COUNTS.items()}


def _paper(card: methods.Card) -> str:
    known = re.fullmatch(r"\d{4}\.\d{5}", card.paper)
    return f"[arXiv:{card.paper}](https://arxiv.org/abs/{card.paper})." if known else f"{card.paper}."


def _touched(name: str) -> str:
    module = methods.load(name)
    parent = module.CARD.parent
    return "everything" if parent is None else ", ".join(diff(methods.load(parent).recipe(), module.recipe()))


def _changes(name: str) -> str:
    module = methods.load(name)
    parent, recipe = module.CARD.parent, module.recipe()
    if parent is None:
        rows = [f"| {seam} | {_value(value)} |" for seam, value in describe(recipe).items() if seam != "name"]
        return "\n".join(["| seam or size | default |", "| --- | --- |", *rows])
    changed = diff(methods.load(parent).recipe(), recipe)
    rows = [f"| {seam} | {_value(was)} | {_value(now)} |" for seam, (was, now) in changed.items()]
    sizes = ", ".join(f"`{size}={getattr(recipe, size)}`" for size in SIZES)
    return "\n".join([f"| differs in | {parent} | {name} |", "| --- | --- | --- |", *rows]) + f"\n\nSizes: {sizes}."


def _needs(name: str) -> str:
    """The first sentence of the nearest ancestor's `needs`."""
    module = methods.load(name)
    while not hasattr(module, "needs"):
        module = methods.load(module.CARD.parent)
    return (inspect.getdoc(module.needs) or "").splitlines()[0]


def _value(x: Any) -> str:
    return "none" if x == [] else f"`{_call(x)}`"


def _call(x: Any) -> str:
    if isinstance(x, Mapping):
        settings = ", ".join(f"{k}={_call(v)}" for k, v in x.items() if k not in ("fn", "source"))
        fn = x["fn"].removeprefix("isocost.").removeprefix("parts.").removeprefix("methods.").replace(":", ".")
        return f"{fn}({settings})" if settings else fn
    if isinstance(x, list):
        return f"[{', '.join(map(_call, x))}]"
    return repr(x) if isinstance(x, str) else str(x)
