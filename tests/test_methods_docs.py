"""The pages on methods: the tutorial is run as it stands, the catalogue is current."""

import os
import re
import subprocess
import sys
from pathlib import Path

from isocost import methods
from isocost.seams import SEAMS

DOCS = Path(__file__).parents[1] / "docs"
TUTORIAL = (DOCS / "write_a_method.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TUTORIAL, flags=re.M | re.S)


def test_the_tutorials_file_keeps_the_contract(tmp_path):
    path = tmp_path / "maxrl.py"
    path.write_text(BLOCKS[0], encoding="utf-8")
    assert [f for f in methods.check(str(path)) if not f.kept] == []


def test_the_tutorial_runs_as_it_stands_and_learns(tmp_path):
    (tmp_path / "maxrl.py").write_text(BLOCKS[0], encoding="utf-8")
    (tmp_path / "rest.py").write_text("\n".join(BLOCKS[1:]), encoding="utf-8")
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(DOCS.parent), str(tmp_path)]), "PYTHONWARNINGS": "error"}
    told = subprocess.run([sys.executable, "rest.py"], cwd=tmp_path, env=here, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("kept") == len(methods.check("grpo")) and "BROKEN" not in told.stdout
    steps = [line.split() for line in told.stdout.splitlines() if line[0].isdigit()]
    assert [int(s[1]) for s in steps] == list(range(80, 801, 80))
    assert float(steps[-1][2]) > float(steps[0][2]) + 0.3


def test_the_tutorial_lists_every_seam():
    assert tuple(re.findall(r"^\| `(\w+)` \|", TUTORIAL, flags=re.M)) == SEAMS


def test_the_catalogue_is_current():
    assert (DOCS / "methods.md").read_text(encoding="utf-8") == methods.catalogue(), (
        'python -c "from isocost import methods; print(methods.catalogue(), end=str())" > docs/methods.md'
    )
