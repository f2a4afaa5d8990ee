"""The page docs/compare.md shows what the kept comparison says, word for word, and its picture is of that record."""

import io
import json
from pathlib import Path

from rich.console import Console

from isocost.cli.printer import show
from isocost.compare.design import Design
from isocost.compare.judge import QUESTIONS, SHARES, Comparison
from isocost.compare.results import MethodComparison, detectable

HOME = Path(__file__).parents[1]
PAGE = (HOME / "docs" / "compare.md").read_text(encoding="utf-8")
KEPT = json.loads((HOME / "experiments" / "results" / "compare_example.json").read_text(encoding="utf-8"))


def test_the_output_on_the_page_is_what_is_said_of_the_record():
    text = io.StringIO()
    console = Console(file=text, width=120, highlight=False)
    kept = KEPT["comparison"]
    file = Path("comparisons/grpo-drgrpo-dapo/comparison.json")
    show(MethodComparison(Comparison.of(kept), kept["rates"], {}, kept["seal"], "pass@1", file), console)
    said = [line.rstrip() for line in text.getvalue().strip("\n").splitlines()]
    assert "\n".join(said) in PAGE


def test_the_design_on_the_page_is_that_of_the_record():
    design = Design.of(KEPT["design"])
    assert f"power: {detectable(design, None)}" in PAGE
    assert f"{design.total:,.0f} rollouts of {design.budget['amount']:,.0f} rollouts" in PAGE
    assert KEPT["comparison"]["seal"][:12] in PAGE
    for arm in KEPT["comparison"]["arms"]:
        ends = [max((r for r in KEPT["curves"] if r["run"] == run), key=lambda r: r["C"]) for run in arm["runs"]]
        assert [round(v, 4) for v in arm["values"]] == [round(r["reward"], 4) for r in ends]


def test_what_the_page_says_was_measured_is_in_the_record():
    record = json.loads((HOME / "experiments" / "results" / "compare.json").read_text(encoding="utf-8"))
    said = record["summary"]
    for name in ("wrong verdicts", "wrong verdicts, worst cell", "wrong verdicts, no difference in truth",
                 "wrong anything, no difference in truth", "wrong anything, worst cell",
                 "right at equal cost at twice the detectable", "the same, worst cell"):
        assert f"| {100 * said[name]:.1f} % |" in PAGE, name
    assert f"measured on {said['studies']:,} simulated comparisons" in PAGE
    assert record["levels"] == dict(zip(QUESTIONS, SHARES, strict=True))
