"""What a function returns is what its command prints: `to_dict()` is exactly the JSON, and texts are printed by cli."""

import ast
import html
import json
import math
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from fixtures.study_records import write_run
from isocost.cli.commands import main
from isocost.compare import compare_folders
from isocost.errors import UserError
from isocost.promise import Promise
from isocost.screen.display import Result, folder_field
from isocost.steps.events import Observer, Skipped
from isocost.steps.look.laws import fit_points, list_laws
from isocost.steps.look.listing import check_method, list_folder, list_methods, method_file
from isocost.steps.look.verdict import verdict
from isocost.steps.outside.importing import import_logs
from trees import nodes, sources


@pytest.fixture
def runs(tmp_path):
    for seed in range(3):
        write_run(tmp_path / "a", f"a{seed}", "pilot", 4, 512, seed)
        write_run(tmp_path / "b", f"b{seed}", "pilot", 8, 512, seed)
    return tmp_path


@pytest.fixture
def logs(tmp_path):
    for seed in range(2):
        rows = "".join(f"{step},{0.2 + 0.1 * math.log(1 + step):.4f}\n" for step in (0, 1, 2, 4, 8))
        (tmp_path / f"n4-s{seed}.csv").write_text("step,held_out\n" + rows.replace("0.2", f"0.2{seed}"))
    return sorted(tmp_path.glob("*.csv"))


def printed(*args, code=0):
    done = CliRunner().invoke(main, [*map(str, args), "--json"])
    assert done.exit_code == code, (done.output, done.exception)
    return json.loads(done.stdout)


def test_listings(runs):
    (runs / "broken").mkdir()
    (runs / "broken" / "study.json").write_text("{")
    found = list_folder(runs)
    assert found.to_dict() == printed("ls", runs) and len(found.found) == 7
    with pytest.raises(UserError, match="there is no folder"):
        list_folder(runs / "none")


def test_methods():
    assert list_methods().to_dict() == printed("methods", "list")
    assert check_method("grpo").to_dict() == printed("methods", "check", "grpo") and not check_method("grpo").broken


def test_texts_are_results():
    """A notebook shows the text that the command prints, and JSON is its data."""
    file = method_file("grpo")
    assert file.to_dict() == printed("methods", "show", "grpo") and file.path.name == "grpo.py"
    assert str(file) == CliRunner().invoke(main, ["methods", "show", "grpo"]).stdout
    assert html.unescape(file._repr_html_()) == f"<pre>{file}</pre>"
    with pytest.raises(FrozenInstanceError):
        file.source = ""
    with pytest.raises(UserError, match="no-such"):
        method_file("no-such")


def test_the_data_of_a_result_are_its_fields():
    """Without the folder; what says its own data says it there, and a number that JSON lacks is null."""

    @dataclass(frozen=True)
    class Whole(Result):
        file: Path
        mean: float
        found: tuple[Promise, ...]
        folder: Path | None = folder_field()

    @dataclass(frozen=True)
    class Listed(Whole):
        entries: ClassVar[str] = "found"

    kept = Promise("p")
    assert Whole(Path("a/b"), math.nan, (kept,), Path("x")).to_dict() == {
        "file": "a/b", "mean": None, "found": [{"promise": "p", "state": "kept", "kept": True, "why": ""}]}
    assert Listed(Path("a"), 1.0, (kept,)).to_dict() == [kept.data()]


def test_laws(tmp_path):
    path, x = tmp_path / "points.csv", np.geomspace(1, 100, 8)
    path.write_text("x,y\n" + "".join(f"{a},{7 * a**-0.4}\n" for a in x))
    assert list_laws().to_dict() == printed("laws", "list")
    found = fit_points("power", path)
    assert found.to_dict() == printed("laws", "fit", "power", path)
    assert {p.name: round(p.value, 6) for p in found.parameters} == {"D": 7, "b": 0.4} and found.runs is None


def test_comparisons_of_folders(runs):
    found = compare_folders([runs / "a", runs / "b"], out=runs / "c")
    assert found.to_dict() == printed("compare", runs / "a", runs / "b", code=found.exit_code)
    assert found.file == runs / "c" / "comparison.json" and found.counted_in == "rollouts"


def test_verdicts(runs):
    found = verdict(runs / "a" / "a0", target=0.5)
    assert found.to_dict() == printed("verdict", runs / "a" / "a0", "--target", 0.5)
    assert [v.path for v in found.runs] == [str(runs / "a" / "a0")]


def test_imports(logs, tmp_path):
    class Heard(Observer):
        def __init__(self):
            self.events = []

        def on(self, event):
            self.events.append(event)

    (tmp_path / "empty.csv").write_text("step,nothing\n1,2\n")
    heard, sizes = Heard(), {"n": 4, "B": 2, "lr": 1e-4, "names": "n{n}-s{seed}"}
    found = import_logs([*logs, tmp_path / "empty.csv"], tmp_path / "s", observer=heard, **sizes)
    (skipped,) = heard.events
    assert isinstance(skipped, Skipped) and "empty.csv" in skipped.text
    options = ("-n", 4, "-B", 2, "--lr", 1e-4, "--names", "n{n}-s{seed}")
    again = printed("import", *logs, *options, "--out", tmp_path / "t")
    told = [{**row, "run": row["run"].replace(str(tmp_path / "s"), str(tmp_path / "t"))} for row in found.to_dict()]
    assert told == again and found.path == tmp_path / "s"


def test_comparisons_checks_and_listings_print_nothing():
    """No import of the command line, no console. `test_printing` has the calls of print."""
    for module, source in sources().items():
        for node in nodes(source) if module.startswith(("compare/", "doctor/", "steps/")) else ():
            if isinstance(node, ast.ImportFrom):
                names = {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
                bad = [x for x in names if x.startswith(("isocost.cli", "isocost.screen.terminal", "rich"))]
                assert bad == [], module
