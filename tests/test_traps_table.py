"""The table of traps names tests that exist, and every trap that is promised."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PROMISED = {*range(1, 21), 26, 27, 28, 30, 31, 32, 33, 36, 37, 38, 45, 46, 48, 50}
ROWS = re.findall(r"^\| (\d+) \| .* \| `(\w+\.py)::(\w+)` \|$", (HERE.parent / "docs" / "traps.md").read_text(), re.M)


def test_every_promised_trap_is_in_the_table():
    assert {int(number) for number, _, _ in ROWS} == PROMISED


def test_every_test_that_the_table_names_exists():
    for number, file, name in ROWS:
        functions = {n.name for n in ast.walk(ast.parse((HERE / file).read_text())) if isinstance(n, ast.FunctionDef)}
        assert name in functions, f"trap {number}: {file} has no {name}"
