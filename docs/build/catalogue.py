"""The pages on the methods, generated from their files: an index, and one page for each method.

    python -m docs.build.catalogue docs      writes docs/methods.md, docs/methods/<name>.md and docs/control_methods.md
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from experiments import claim_page
from experiments.claim import Claim, kept, rows
from isocost import methods
from isocost.contract.check import toy_for
from isocost.gather import finished
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.recipe import call, calls, describe, diff, functions, paced
from isocost.seams import SEAMS, SIZES
from isocost.types import Fate
from isocost.worlds import toy

REPOSITORY = Path(__file__).resolve().parents[2]
GENERAL = ("docs", "learn", "local")                 # tests/test_methods_*.py that hold no numbers from papers
COUNTS = {"sampled": "decode", "scored": "score", "trained": "train"}

HEAD = """# Methods

isocost ships {count} methods, one file each in `src/isocost/methods`. A page has a method's equations, changes,
settings, needs, cost and evidence. `python -m docs.build.catalogue docs` generates the pages from
the files. To add one, see [Write a method](write_a_method.md).

With one update on a batch of fresh rollouts every importance ratio ρ is exactly 1, so methods that differ only in their
clip take the same step. The clip matters from the second update on (`improve.minibatches`, `improve.epochs`) and on
stale rollouts (`max_age`).

**Cost** is read from the meter after four waves of four groups in `isocost.worlds.toy`, at the method's own n: tokens
sampled, scored without a gradient, and trained on, for each rollout that carried an advantage into an update. Only
the factors carry over, roughly.

**Status** lists the evidence:

- *contract*: the method passes `isocost methods check`.
- *numeric*: a test compares it with numbers worked by hand from its paper.
- *reproduced*: a record shows the outcome that the method claims.
- *claim*: its claim, or another one, was [tested](claims.md), with the outcome.
"""

ABSENT = """
Systems without a small form that is still theirs: [why not](why_not.md).
"""


def pages() -> dict[str, str]:
    """Every generated page in Markdown, by its path below the documentation's folder."""
    names = methods.shipped()
    return {"methods.md": index(names), **{f"methods/{name}.md": page(name) for name in names}}


def index(names: Sequence[str]) -> str:
    """The index: a table of these methods, and their family tree."""
    cards = {name: methods.load(name).CARD for name in names}
    rows = [
        f"| [{n}](methods/{n}.md) | {c.title}, {_paper(c)} | {_touched(n)} | {c.claim} | {_states(n)} |"
        for n, c in cards.items()
    ]
    table = ["| name | paper | changes | claim | status |", "| --- | --- | --- | --- | --- |", *rows]
    family = f"A method is indented below the one that it changes.\n\n```text\n{methods.tree(names)}\n```"
    parts = [HEAD.format(count=len(names)).strip(), "\n".join(table), ABSENT.strip(), "## Family tree", family]
    return "\n\n".join(parts) + "\n"


def page(name: str) -> str:
    """The page of one method."""
    module = methods.load(name)
    idea, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
    said = remarks(Path(module.__file__).read_text(encoding="utf-8"))
    parts = [
        f"# {module.CARD.title}",
        idea,
        "\n".join(_facts(name, module.CARD)),
        f"## Equations\n\n```text\n{inspect.cleandoc(rest)}\n```",
        f"## What it changes\n\n{_changes(name)}",
        *_section("How it works", "\n\n".join(_own_functions(module))),
        *_section("Settings", _settable(name)),
        *_section("Choices and omissions", "\n".join(f"- {line}" for line in said)),
        f"## Needs\n\n{_needs(name)}",
        f"## Cost\n\n{_overhead(name)}",
        "## Status\n\n" + "\n".join(f"- {_shown(*x)}" for x in evidence(name, REPOSITORY, _own(name), True)),
        *_section("Claims", claim_page.of_method(name, *asked(REPOSITORY))),
        "[All methods](../methods.md)",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(name: str, card: methods.Card) -> list[str]:
    parent = f"[{card.parent}]({card.parent}.md)" if card.parent else "none, it is the root"
    facts = {"Name": f"`{name}`", "Paper": f"{_paper(card)}, {card.year}", "Parent": parent, "Claim": card.claim}
    if card.rule != 1:
        facts["Rule"] = f"{card.rule}; what was begun under another is read, and not continued"
    return [f"- {k}: {v}" for k, v in facts.items()]


def _section(title: str, text: str) -> list[str]:
    return [f"## {title}\n\n{text}"] if text else []


def _own_functions(module: Any) -> list[str]:
    """What the docstrings of the seam functions in a method's file say."""
    own = [getattr(module, seam, None) for seam in SEAMS]
    said = {fn.__name__: inspect.getdoc(fn) or "" for fn in own
            if inspect.isfunction(fn) and fn.__module__ == module.__name__}
    return [f"`{seam}`: " + "\n\n".join(" ".join(part.split()) for part in doc.split("\n\n"))
            for seam, doc in said.items() if doc]


def _settable(name: str) -> str:
    """The settings of the seams that a method changes: path, default, allowed values."""
    module = methods.load(name)
    recipe, parent = module.recipe(), module.CARD.parent
    changed = SEAMS if parent is None else diff(methods.load(parent).recipe(), recipe)
    rows = []
    for seam in changed:
        value = getattr(recipe, seam)
        if seam in SIZES or isinstance(value, tuple):
            continue
        used = next(functions(value))
        for setting, default in used.settings.items():
            if not callable(default):
                bounds = used.declared.bounds.get(setting)
                allowed = bounds.text if bounds else ""
                rows.append(f"| `{seam}.{setting}` | `{_call(describe(default))}` | {allowed} |")
    return "\n".join(["| setting | default | allowed values |", "| --- | --- | --- |", *rows]) if rows else ""


def remarks(text: str) -> list[str]:
    """What a file's comments say of its settings: why a default has its value, and what differs from the paper.

    A comment on lines of its own counts. One at the end of a line counts where that line sets a name or an argument to
    a plain value, and is shown with that setting if there is only one.
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
        elif code and row not in held:
            continue
        else:
            here = held.get(row, []) if code else []
            out.append(f"`{here[0]}`: {said}" if len(here) == 1 else said)
        open_at = row if not code else -1
    return out


def _settings(text: str) -> dict[int, list[str]]:
    """What a file sets, by line: names, defaults, what `partial` or a recipe is given; where the value stands there."""
    out: dict[int, list[str]] = {}
    lines = [line.encode() for line in text.splitlines()]       # columns are counted in bytes
    for node in ast.walk(ast.parse(text)):
        for name, value in _set_by(node):
            if isinstance(value, ast.Constant | ast.Name | ast.Attribute | ast.UnaryOp):
                one = value.lineno == value.end_lineno     # `get_source_segment` reads the whole text for each value
                line = lines[value.lineno - 1][value.col_offset : value.end_col_offset]
                segment = line.decode() if one else ast.get_source_segment(text, value)
                out.setdefault(value.lineno, []).append(f"{name}={segment}")
    return out


def _set_by(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            yield from ((ast.unparse(name), value) for name, value in zip(names, values, strict=True))
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="recipe" | "but"), keywords=given):
            yield from ((k.arg, k.value) for k in given if k.arg)
        case ast.arguments(posonlyargs=first, args=rest, defaults=defaults, kwonlyargs=named,
                           kw_defaults=theirs):
            last = [*first, *rest][len(first) + len(rest) - len(defaults):]
            yield from ((a.arg, value) for a, value in zip([*last, *named], [*defaults, *theirs], strict=True) if value)


def status(name: str, repository: Path, own: frozenset[str] = frozenset()) -> str:
    """What has been shown of a shipped method, in one line."""
    return ", ".join(_shown(*x) for x in evidence(name, repository, own))


def evidence(
    name: str, repository: Path, own: frozenset[str] = frozenset(), linked: bool = False
) -> list[tuple[str, str]]:
    """(what has been shown of a shipped method, where): contract, numeric, reproduced, claim.

    A test that names the method, or a function that only it and its family use (`own`), compares it with numbers. A
    record names what it reproduces in `reproduces`, by method. A claim says whose own claim it is, and which of its
    questions are about which method. With `linked`, claims are links from the method's page.
    """
    shown = [("contract", "")]
    tests = [p for p in sorted(repository.glob("tests/test_methods_*.py")) if p.stem.rpartition("_")[2] not in GENERAL]
    tests += [p for p in sorted(repository.glob("tests/methods/test_*.py")) if p.stem == f"test_{name}"]
    held = [f"`{p.relative_to(repository)}`" for p in tests if {name, *own} & _named_in(p)]
    if held:
        shown.append(("numeric", ", ".join(held)))
    for path in sorted(repository.glob("experiments/results/*.json")):
        record = _record(path)
        if isinstance(record, dict) and name in record.get("reproduces", {}):
            shown.append(("reproduced", f"{record['reproduces'][name]}; `{path.relative_to(repository)}`"))
    for state, file, claim in claim_page.evidence_of(name, *asked(repository)):
        home = claim_page.home_of(claim)
        link = f"[{claim.title}]({'' if home == name else home + '.md'}#{claim_page.anchor(claim.title)})"
        shown.append((state, f"{link if linked else claim.title}; `{file}`"))
    return shown


@cache
def asked(repository: Path) -> tuple[dict[str, Claim], dict[str, Any]]:
    """The claims of a repository, and their records, by name."""
    folder = repository / "experiments"
    return rows(folder / "claims"), kept(folder / "results" / "claims")


@cache
def _record(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _shown(state: str, where: str) -> str:
    return f"{state} ({where})" if where else state


def _states(name: str) -> str:
    return ", ".join(dict.fromkeys(state for state, _ in evidence(name, REPOSITORY, _own(name))))


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
    recipe = methods.load(name).recipe()
    tried = recipe.pace(Ledger()).max_turns, toy.holds_dialogues(recipe)
    mine, theirs = _each(name, *tried), _each(parent, *tried) if parent else {}
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
def _each(name: str, turns: int, dialogues: bool) -> dict[str, float]:
    """Tokens of each kind for each rollout that carried an advantage, by the meter, in the toy world of dialogues or
    the other, with so many turns of a dialogue.
    """
    world, ledger = toy_for(dialogues), Ledger()
    recipe = paced(methods.load(name).recipe(groups=4), max_turns=turns)

    async def go() -> None:
        async for _ in train(recipe, world, ledger, {"rollouts": recipe.groups * recipe.rollouts * 4}):
            pass

    finished(go())
    spent, trained = world.meter.of(), max(ledger.fates[str(Fate.TRAINED)], 1)
    return {word: getattr(spent, count) / trained for word, count in COUNTS.items()}


def _paper(card: methods.Card) -> str:
    known = re.fullmatch(r"\d{4}\.\d{5}", card.paper)
    return f"[arXiv:{card.paper}](https://arxiv.org/abs/{card.paper})" if known else card.paper


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


def main(arguments: Sequence[str]) -> None:
    """Write every page below the given folder, and remove pages of methods that are gone."""
    from docs.build import control_catalogue  # which imports this module

    (folder,) = map(Path, arguments)
    (folder / "methods").mkdir(exist_ok=True)
    written = pages()
    for name, text in {**written, control_catalogue.PAGE: control_catalogue.page()}.items():
        (folder / name).write_text(text, encoding="utf-8")
    for old in (folder / "methods").glob("*.md"):
        if f"methods/{old.name}" not in written:
            old.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
