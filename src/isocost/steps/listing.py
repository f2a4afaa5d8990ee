"""What there is: studies and runs below a folder, methods by seam, differences between two recipes."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isocost import methods as catalogue
from isocost.cli.live import duration
from isocost.console import console
from isocost.errors import UserError
from isocost.planner.study_runs import Run
from isocost.recipe import calls, describe, diff
from isocost.runs import files as records
from isocost.runs import measure
from isocost.runs.files import GO_ON, find_runs, is_run, read_json, read_lines
from isocost.runs.launch.local import ended
from isocost.runs.measure import TRAINING
from isocost.runs.names import today
from isocost.runs.schema import MEASURED
from isocost.seams import SEAMS
from isocost.shape import Each, Keys
from isocost.words import counted, visible

FILES = (
    "profile.json",
    "pilot.json",
    "law.json",
    "plan.json",
    "forecast.json",
    "audit.json",
    "comparison.json",
    "report.html",
)


LISTED = MEASURED.needing(method=str, purpose=str)
PILOT = Keys({"runs": Each(Run)})


def _console() -> Console:
    return console(width=160)


def rows(folder: Path) -> list[dict[str, Any]]:
    """Studies and runs below a folder, as plain data; one that cannot be read has `broken`, saying why, and no more.

    Raises UserError if there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    studies = [_row("study", p.parent, _study) for p in sorted(folder.glob("**/study.json"))]
    return studies + [_row("run", p, _run) for p in find_runs(folder)]


def _row(kind: str, path: Path, told: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": kind, "path": str(path)}
    try:
        return row | told(path)
    except UserError as e:
        return row | {"broken": str(e)}


def to_parquet(folder: Path, out: Path) -> int:
    """Every line of metrics.jsonl of the runs below a folder as one Parquet table, a row a line; returns the rows.

    A column `run` holds the run's folder, `purpose`, `n`, `B`, `lr` and `seed` its arm, `kind` what its evaluations are
    of: held-out or training reward. Training rewards that stand in for evaluations are in the column `training`, not in
    `eval/select` and `eval/audit`. Raises UserError without the extra that reads Parquet, or without runs.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("writing Parquet needs pyarrow: pip install 'isocost[parquet]'") from None
    lines = []
    for path in find_runs(folder):
        run = read_json(path / "run.json", LISTED)
        arm = {"run": str(path), "purpose": run["purpose"], **{k: run["arm"][k] for k in ("n", "B", "lr")}}
        arm |= {"seed": run["seed"], "kind": measure.of(run)["kind"]}
        lines += [{**arm, **_as_measured(line, arm["kind"])} for line in read_lines(path / "metrics.jsonl")]
    if not lines:
        raise UserError(f"{folder} holds no run with metrics")
    columns = list(dict.fromkeys(k for line in lines for k in line))
    table = pyarrow.table({k: [line.get(k) for line in lines] for k in columns})
    parquet.write_table(table, out)
    return len(lines)


def _as_measured(line: dict[str, Any], kind: str) -> dict[str, Any]:
    """A line of metrics.jsonl with its evaluation under the name of what was measured."""
    if kind != TRAINING or "eval/audit" not in line:
        return line
    return {"training": line["eval/audit"]} | {k: v for k, v in line.items() if not k.startswith("eval/")}


def _study(path: Path) -> dict[str, Any]:
    asked = read_json(path / "study.json")
    verdict = read_json(path / "audit.json").get("verdict") if (path / "audit.json").exists() else None
    return {
        "model": asked["setting"].get("model", ""),
        "data": asked["setting"].get("data", ""),
        "verdict": verdict,
        "has": [f for f in FILES if (path / f).exists()],
        "steps": _steps(path),
        "seconds": sum(asked.get("phases", {}).values()),
    }


def _steps(path: Path) -> list[str]:
    """The steps of a study by name, in order; a pilot by how many of the runs that its plan lists have ended."""
    steps = {f.split(".")[0]: "" for f in FILES if (path / f).exists()}
    if "pilot" in steps:
        names = [Run.of(r).name for r in read_json(path / "pilot.json", PILOT)["runs"]]
        over = sum(ended(path / "runs" / name) for name in names)
        begun = any((path / "runs" / name).exists() for name in names)
        if not names:
            del steps["pilot"]      # planned without one
        elif over < len(names):
            steps["pilot"] = f" ({over} of {counted(len(names), 'run')})" if begun else " (planned)"
    return [name + more for name, more in steps.items()]


def _run(path: Path) -> dict[str, Any]:
    run = read_json(path / "run.json", LISTED)
    end = read_json(path / "end.json") if (path / "end.json").exists() else {}
    lines = [x for x in read_lines(path / "metrics.jsonl") if "eval/audit" in x]
    told = measure.of(run)
    return {
        "method": run["method"],
        "purpose": run["purpose"],
        **{k: run["arm"][k] for k in ("n", "B", "lr")},
        "seed": run["seed"],
        "rollouts": lines[-1]["rollouts"] if lines else 0,
        "ended": _ended(path, end.get("reason")),
        "unit": told["unit"],
        "reward": told["kind"],
        "scale": list(measure.scale_of(run)),
        "first": lines[0]["eval/audit"] if lines else None,
        "last": lines[-1]["eval/audit"] if lines else None,
    }


def _ended(path: Path, reason: str | None) -> str:
    """Why a run ended, or that it is under way: who trains it holds its lock, and the system lets go of a dead one's.

    The end of a run that was stopped stays while it goes on.
    """
    if reason not in (None, *GO_ON):
        return str(reason)
    with suppress(FileNotFoundError), open(path / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return "running"
    return reason or "unfinished"


def show(found: list[dict[str, Any]]) -> None:
    """Print what `rows` found."""
    console = _console()
    whole = [r for r in found if "broken" not in r]
    studies, runs = ([r for r in whole if r["kind"] == kind] for kind in ("study", "run"))
    for s in studies:
        steps = ", ".join(s["steps"]) or "nothing yet"
        name = visible(s["path"], lines=False)
        console.print(
            f"[bold]{name}[/]  {s['model']} on {s['data']}: {steps}; {duration(s['seconds'])}"
            + (f"; audit: {s['verdict']}" if s["verdict"] else ""),
            highlight=False,
        )
    if runs:
        table = Table(box=None, pad_edge=False)
        units, kinds = {r["unit"] for r in runs}, {r["reward"] for r in runs}
        spent = units.pop() if len(units) == 1 else "C"
        reward = kinds.pop() if len(kinds) == 1 else "reward"
        for name in ("run", "method", "purpose", "n", "B", "lr", "seed", spent, reward, "ended"):
            table.add_column(
                name,
                justify="right" if name in ("n", "B", "lr", "seed", spent) else "left",
                overflow="fold",
            )
        for r in runs:
            held = "" if r["last"] is None else f"{r['first']:.3f} -> {r['last']:.3f}"
            held += f" ({r['reward']})" if held and reward != r["reward"] else ""
            own = measure.from_to(r["scale"], r["first"], r["last"]) if held else ""
            held += f" ({own})" if own else ""
            table.add_row(
                visible(r["path"], lines=False),
                r["method"],
                r["purpose"],
                str(r["n"]),
                str(r["B"]),
                f"{r['lr']:.1e}",
                str(r["seed"]),
                str(r["rollouts"]) + ("" if spent == r["unit"] else f" {r['unit']}"),
                held,
                r["ended"],
            )
        console.print(table)
    for r in found:
        if "broken" in r:
            console.print(f"[bold]{visible(r['path'], lines=False)}[/]  [red]broken[/]: {r['broken']}", highlight=False)
    if not found:
        console.print("no study and no run here; `isocost quickstart` makes one")


def methods(seam: str | None) -> list[dict[str, Any]]:
    """Every method with the seams it changes in its parent, computed; one that does not load has `broken`, saying why.

    Raises UserError for a seam that is none.
    """
    if seam is not None and seam not in SEAMS:
        raise UserError(f"{seam!r} is no seam; there are {', '.join(SEAMS)}")
    out: list[dict[str, Any]] = []
    for name in catalogue.names():
        try:
            method = catalogue.load(name)
            card = method.CARD
            parent = catalogue.load(card.parent) if card.parent else None
        except UserError as e:
            out.append({"name": name, "broken": str(e)})
            continue
        changed = list(diff(parent.recipe(), method.recipe())) if parent else list(SEAMS)
        if seam is None or seam in changed:
            out.append(
                {
                    "name": name,
                    "year": card.year,
                    "parent": card.parent,
                    "changes": changed,
                    "claim": card.claim,
                    "paper": card.paper,
                }
            )
    return out


def show_methods(found: list[dict[str, Any]]) -> None:
    """Print what `methods` found."""
    table = Table(box=None, pad_edge=False)
    for name in ("method", "year", "parent", "changes", "claim"):
        table.add_column(name, overflow="fold")
    for m in (m for m in found if "broken" not in m):
        changes = "all (the root)" if m["parent"] is None else ", ".join(m["changes"])
        table.add_row(m["name"], str(m["year"]), m["parent"] or "", changes, m["claim"])
    console = _console()
    console.print(table)
    for m in (m for m in found if "broken" in m):
        console.print(f"{m['name']}: {m['broken']}", highlight=False, markup=False, soft_wrap=True)


def differences(a: str, b: str) -> dict[str, list[Any]]:
    """Seams and sizes at which two methods, method files or run folders differ: {name: [in a, in b]}.

    Raises UserError for a name that is none of these, and for a run whose record holds no recipe.
    """
    left, right = _described(a), _described(b)
    return {
        k: [left.get(k), right.get(k)]
        for k in {**left, **right}
        if left.get(k) != right.get(k) and k != "name"
    }


def _described(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.is_dir():
        if not is_run(path):
            raise UserError(
                f"{name} is a folder without run.json; name a method, a .py file or a run's folder"
            )
        run = read_json(path / "run.json")
        if not run.get("recipe"):
            raise UserError(
                f"{name} has no recipe on record (logs of other trainers hold none), so its seams are not known; name "
                "a method, a .py file or a run that isocost trained"
            )
        return dict(today(run["recipe"]))
    return dict(describe(catalogue.recipe(name)))


def show_differences(a: str, b: str, found: dict[str, list[Any]]) -> None:
    """Print what `differences` found.

    A function that only one side has is printed as module:name, with the hash of its source where it is outside the
    package; a function that both sides have is printed by its name, with its settings.
    """
    console = _console()
    if not found:
        console.print(f"{a} and {b} are the same recipe", highlight=False, markup=False, soft_wrap=True)
    for k, (left, right) in found.items():
        both = _functions(left) & _functions(right)
        console.print(f"[bold]{k}[/]", highlight=False)
        for name, value in ((a, left), (b, right)):
            console.print(f"  {name}: {_short(value, both)}", highlight=False, markup=False, soft_wrap=True)
    (old, one), (new, other) = _code(a), _code(b)
    if one != other:
        console.print(
            f"{a} is of isocost {old}, sources {one}, and {b} of isocost {new}, sources {other}: a function of one "
            "name may have changed between them", highlight=False, markup=False, soft_wrap=True,
        )


def _code(name: str) -> tuple[str, str]:
    """Version and hash of the sources that a method is of, or that a run was made by."""
    told = read_json(Path(name) / "run.json").get("code") if Path(name).is_dir() else records.code()
    return str((told or {}).get("version")), str((told or {}).get("sources"))


def _functions(x: Any) -> set[tuple[str, str]]:
    """The functions of a described value, at any depth: module:name and the hash of a source outside the package."""
    return {(c["fn"], c.get("source", "")) for c in calls(x)}


def _short(x: Any, both: Collection[tuple[str, str]]) -> str:
    """A described value as a call; functions that are not in `both` with their module and the hash of their source."""
    if isinstance(x, dict) and "fn" in x:
        settings = ", ".join(f"{k}={_short(v, both)}" for k, v in x.items() if k not in ("fn", "source"))
        known = (x["fn"], x.get("source", "")) in both
        fn = x["fn"].split(":")[-1] if known else x["fn"]
        source = f" [source {x['source']}]" if not known and "source" in x else ""
        return fn + (f"({settings})" if settings else "") + source
    return "[" + ", ".join(_short(i, both) for i in x) + "]" if isinstance(x, list) else str(x)
