"""Does the suite still prove what it proved? Forty mutants of one line, killed or not, at a commit and in this tree.

    nice python tests/mutants.py --at 7782f415      at that commit
    nice python tests/mutants.py                    in this tree, with changes to files that git knows

A mutant changes one comparison, sign, constant or whole number of a function that both trees have: of one qualified
name, with equal lines up to imports, wherever its module is. The choice depends on both trees and on SEED alone: ten
mutants of each kind, at most one in a module. Each runs the test files that import the mutated module, those that
import fewest modules first, and stops at the first failure. A test that fails without the mutant too is left out. One
process at a time; a mutant has 60 seconds of processor time. The test that killed it in the other tree is first.

Outcomes are kept in experiments/results/mutants.json; those that are kept already are not computed again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
KEPT = HOME / "experiments" / "results" / "mutants.json"
BEFORE, SEED = "7782f415", 0
KINDS, EACH = ("comparison", "sign", "constant", "off by one"), 10
LIMIT = 60              # seconds of processor time
UNKNOWN = 4             # what pytest ends with if there is no such test
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
WAIT = 20 * LIMIT       # seconds that a mutant may wait, such as for a busy machine
EDGE = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
        ast.NotEq: ("!=", "==")}
SIGNS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Function:
    """A function or method; `text` are its lines without imports, `lines` the numbers that these have in the file."""

    module: str
    name: str
    text: tuple[str, ...]
    lines: tuple[int, ...]
    node: ast.FunctionDef | ast.AsyncFunctionDef = field(compare=False, repr=False)

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        return self.name, self.text


@dataclass(frozen=True)
class Mutant:
    """Bytes `start` to `end` of line `at` of a function become `new`."""

    function: Function
    kind: str
    at: int
    start: int
    end: int
    new: str

    @property
    def line(self) -> str:
        return self.function.text[self.at]

    @property
    def mutated(self) -> str:
        raw = self.line.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    @property
    def key(self) -> str:
        """Its name, which says nothing of where the function is."""
        whole = "\n".join((self.function.name, *self.function.text, str(self.at), self.mutated))
        return hashlib.sha256(whole.encode()).hexdigest()[:12]

    @property
    def place(self) -> str:
        return hashlib.sha256(f"{SEED} {self.kind} {self.key}".encode()).hexdigest()


def functions(source: Path) -> list[Function]:
    """The functions and methods of the package below `source`; a function in a function belongs to the outer one."""
    found: list[Function] = []
    for path in sorted((source / "isocost").rglob("*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        found += _functions(module, "", ast.parse(text), text.splitlines())
    return found


def _functions(module: str, prefix: str, tree: ast.Module | ast.ClassDef, text: list[str]) -> Iterator[Function]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(module, f"{prefix}{node.name}.", node, text)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            imports = {k for x in ast.walk(node) if isinstance(x, (ast.Import, ast.ImportFrom))
                       for k in range(x.lineno, (x.end_lineno or x.lineno) + 1)}
            lines = tuple(k for k in range(node.lineno, (node.end_lineno or 0) + 1) if k not in imports)
            yield Function(module, prefix + node.name, tuple(text[k - 1] for k in lines), lines, node)


def mutants(function: Function) -> list[Mutant]:
    """Every mutant of its statements, but for messages, assertions and annotations."""
    found: list[Mutant] = []

    def add(kind: str, line: int, start: int, end: int, new: str) -> None:
        found.append(Mutant(function, kind, function.lines.index(line), start, end, new))

    def operator(kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        if left.end_lineno == right.lineno and left.end_col_offset is not None:
            raw = function.text[function.lines.index(right.lineno)].encode()
            at = raw.find(old.encode(), left.end_col_offset, right.col_offset)
            if at >= 0:
                add(kind, right.lineno, at, at + len(old), new)

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr)) or getattr(node, "arg", "") == "strict":
            return      # `strict` of a zip says what is true anyway
        if isinstance(node, ast.Compare):
            for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                if type(op) in EDGE:
                    operator("comparison", left, right, *EDGE[type(op)])
        elif isinstance(node, ast.BinOp) and type(node.op) in SIGNS and not _text(node.left) and not _text(node.right):
            operator("sign", node.left, node.right, *SIGNS[type(node.op)])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            add("sign", node.lineno, node.col_offset, node.col_offset + 1, "")
        elif isinstance(node, ast.Constant) and node.end_col_offset is not None:
            where = node.lineno, node.col_offset, node.end_col_offset
            if isinstance(node.value, bool):
                add("constant", *where, str(not node.value))
            elif isinstance(node.value, float):
                add("constant", *where, repr(node.value * 2 or 1.0))
            elif isinstance(node.value, int):
                add("off by one", *where, str(node.value + 1))
        for name, value in ast.iter_fields(node):
            if name != "annotation":
                for inner in value if isinstance(value, list) else [value]:
                    if isinstance(inner, ast.AST):
                        visit(inner)

    for statement in function.node.body:
        visit(statement)
    return found


def _text(node: ast.expr) -> bool:
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str))


def tests_of(module: str, tests: Path) -> list[Path]:
    """The test files that import a module themselves, the ones that import fewest modules of the package first."""
    return [path for _, path in sorted((len(named), path) for path, named in imports(tests).items() if module in named)]


@cache
def imports(tests: Path) -> dict[Path, set[str]]:
    return {path: imported(path.read_text(encoding="utf-8")) for path in tests.rglob("test_*.py")}


def imported(text: str) -> set[str]:
    """Everything of the package that a file imports, as dotted names, of modules and of what is in them."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            named |= {x.name for x in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            named |= {str(node.module), *(f"{node.module}.{x.name}" for x in node.names)}
    return {x for x in named if x.split(".")[0] == "isocost"}


def chosen(before: Path, after: Path) -> list[tuple[Mutant, Function]]:
    """The mutants at `before`, each with its function in `after`."""
    mine, theirs = functions(before / "src"), functions(after / "src")
    count, there = Counter(f.key for f in mine), Counter(f.key for f in theirs)
    same = {f.key: f for f in theirs if count[f.key] == there[f.key] == 1}
    every = [m for f in mine if f.key in same and tests_of(f.module, before / "tests") for m in mutants(f)]
    taken: list[Mutant] = []
    for kind in KINDS:
        wanted = EACH
        for mutant in sorted((m for m in every if m.kind == kind), key=lambda m: m.place):
            if wanted and mutant.function.module not in {m.function.module for m in taken}:
                taken.append(mutant)
                wanted -= 1
    return [(m, same[m.function.key]) for m in taken]


def outcome(mutant: Mutant, function: Function, tree: Path, first: str = "") -> dict[str, Any]:
    """What the tests of `tree` make of a mutant, whose function is `function` there; a test `first` is run first."""
    files = [str(p.relative_to(tree)) for p in tests_of(function.module, tree / "tests")]
    wanted = [first, *files] if first.split("::")[0] in files else files
    path = tree / "src" / Path(*function.module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    plain = path.read_text(encoding="utf-8")
    lines = plain.splitlines(keepends=True)
    number = function.lines[mutant.at] - 1
    lines[number] = lines[number].replace(mutant.line, mutant.mutated)
    left_out: list[str] = []
    said: dict[str, Any] = {"module": function.module, "files": len(files)}
    while wanted:
        try:
            path.write_text("".join(lines), encoding="utf-8")
            code, out = tested(tree, wanted, left_out)
        finally:
            path.write_text(plain, encoding="utf-8")
        if code is None:
            return said | {"outcome": "timed out"}
        if code == 0:
            break
        if code == UNKNOWN and wanted != files:     # the test has another name now
            wanted = files
            continue
        if -code in CRASHES:
            return said | {"outcome": "killed", "test": f"the interpreter ended with signal {-code}"}
        failed = FAILED.findall(out)
        if not failed or failed[0] in left_out:
            raise SystemExit(f"the tests of {function.module} ended with {code}:\n{out[-2000:]}")
        code, out = tested(tree, failed[:1], [])
        if code == 0:
            return said | {"outcome": "killed", "test": failed[0]}
        left_out.append(failed[0])
    return said | {"outcome": "survived"} | ({"left out": left_out} if left_out else {})


def tested(tree: Path, wanted: Iterable[str], left_out: Iterable[str]) -> tuple[int | None, str]:
    """The exit code of pytest, None beyond the limit, and what it printed. It is a fork, which has torch already."""
    for library in ("torch", "scipy.optimize", "scipy.stats", "pytest"):       # but no plugins of pytest
        importlib.import_module(library)
    words = ["-x", "-n", "0", "-rfE", "-p", "no:cacheprovider", f"--rootdir={tree}", *wanted,
             *(f"--deselect={x}" for x in left_out)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        if not (child := os.fork()):
            try:
                os._exit(_pytest(tree, words, said.fileno()))
            except BaseException:
                traceback.print_exc()
                os._exit(70)
        until = time.monotonic() + WAIT
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
            time.sleep(0.1)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)            # and what its tests started
        code = os.waitstatus_to_exitcode(ended[1] if ended[0] else os.waitpid(child, 0)[1])
        said.seek(0)
        return (None if -code in (signal.SIGXCPU, signal.SIGKILL) else code), said.read()


def _pytest(tree: Path, words: list[str], out: int) -> int:
    """Be the process that runs pytest in a tree."""
    import pytest

    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
    for stream in (1, 2):
        os.dup2(out, stream)
    os.chdir(tree)
    own = {str(HOME / "tests"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    paths = [str(tree / part) for part in ("src", "tests")]
    sys.path[:] = [*paths, *(x for x in sys.path if x not in own)]
    sys.argv = ["pytest", *words]
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    code = int(pytest.main(words))
    sys.stdout.flush()
    return code


def table(rows: list[dict[str, Any]], when: str) -> str:
    """One line for each mutant, and the sums."""
    seen = [row for row in rows if when in row]
    out = [f"{row[when]['outcome']:10} {row['kind']:11} {row['function']:45} {row['line']}  ->  {row['mutated']}"
           for row in seen]
    sums = Counter(row[when]["outcome"] for row in seen)
    return "\n".join([*out, ", ".join(f"{sums[x]} {x}" for x in ("killed", "survived", "timed out"))])


def lost(rows: list[dict[str, Any]]) -> list[str]:
    """The mutants that were killed before and are not now, each with the test that killed it."""
    return [f"{row['function']}: {row['line']}  ->  {row['mutated']}: killed by {row['before']['test']}" for row in rows
            if row["before"]["outcome"] == "killed" != row["after"]["outcome"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--at", choices=(BEFORE,), help="the commit to run; without it, this tree")
    at = parser.parse_args().at
    now = _git("stash", "create") or _git("rev-parse", "HEAD")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"mutants": []}
    known = {row["key"]: row for row in kept["mutants"]}
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": Path(folder, "before"), "after": Path(folder, "after")}
        try:
            for when, tree in trees.items():
                _git("worktree", "add", "--detach", str(tree), BEFORE if when == "before" else now)
            rows: list[dict[str, Any]] = []
            every = chosen(**trees)
            for mutant, _ in every:
                said = {"key": mutant.key, "kind": mutant.kind, "function": mutant.function.name,
                        "line": mutant.line.strip(), "mutated": mutant.mutated.strip()}
                rows.append(said | {k: v for k, v in known.get(mutant.key, {}).items() if k in trees})
            when, other = ("before", "after") if at else ("after", "before")
            kept |= {"seed": SEED, when: at or _git("rev-parse", "--short=8", "HEAD"), "mutants": rows}
            for row, (mutant, there) in zip(rows, every, strict=True):
                if when not in row:
                    killer = row.get(other, {}).get("test", "")
                    row[when] = outcome(mutant, mutant.function if at else there, trees[when], killer)
                    print(f"{row[when]['outcome']:10} {row['function']}", file=sys.stderr, flush=True)
                    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        finally:
            for tree in trees.values():
                _git("worktree", "remove", "--force", str(tree))
    print(table(rows, when))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HOME, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
