"""What is public: `__all__` of ten modules, and the single names that docs/python.md lists besides."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import isocost
from isocost.errors import UserError
from isocost.testing import check_environment, check_method, toy_world

HOME = Path(__file__).parents[1]
PUBLIC = ("isocost", *(f"isocost.{x}" for x in (
    "chance", "errors", "methods", "ops", "parts", "seams", "testing", "traits", "types")))
IMPORT = re.compile(r"^[ \t]*from (isocost[\w.]*) import (\([^)]*\)|[^\n#]+)", re.M)
PAGES = [HOME / "README.md", *sorted((HOME / "docs").glob("*.md")), *sorted((HOME / "examples").glob("*.py"))]


def tables():
    """The rows of the two tables of docs/python.md: the modules and the names in backquotes of each."""
    text = (HOME / "docs" / "python.md").read_text().partition("## What is public")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [tuple(re.findall(r"`([\w.]+)`", cell) for cell in row) for row in rows]


def single():
    """module -> its names of the second table."""
    out = {}
    for modules, names in tables():
        for module in modules if names else ():
            home = importlib.import_module(module)
            out[module] = {x for x in names if hasattr(home, x)}
        assert not names or {*names} == set().union(*(out[m] for m in modules)), (modules, names)
    return out


def is_public(module, name):
    if module.startswith(("isocost.methods.", "isocost.parts.")):
        return not name.startswith("_") and hasattr(importlib.import_module(module), name)
    if module == "isocost.methods" and name in isocost.methods.names():
        return True
    if f"{module}.{name}" in PUBLIC or f"{module}.{name}" in single():
        return True
    return name in (importlib.import_module(module).__all__ if module in PUBLIC else single().get(module, ()))


def private(text):
    """The imports of a text that are not public."""
    return [f"{module}: {name}" for module, names in IMPORT.findall(text)
            for name in re.findall(r"\w+", re.sub(r" as \w+", "", names)) if not is_public(module, name)]


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_name_exists_and_says_what_it_is(module):
    home = importlib.import_module(module)
    assert len({*home.__all__}) == len(home.__all__)
    for name in home.__all__:
        found = importlib.import_module(f"{module}.{name}") if module == "isocost.parts" else getattr(home, name)
        assert vars(found).get("__doc__") or inspect.getdoc(found), f"{module}.{name} has no docstring"
        if inspect.isclass(found):
            own = vars(found)["__doc__"]        # not that which a dataclass makes
            assert own and not own.startswith(f"{name}("), f"{module}.{name} has no docstring of its own"
    namespace = {}
    if module != "isocost.parts":
        exec(f"from {module} import *", namespace)
        assert {*home.__all__} <= {*namespace}


def test_the_page_lists_the_public_modules():
    assert {m for modules, names in tables() if not names for m in modules} == {*PUBLIC}


def test_pages_and_examples_import_public_names_only():
    assert private("from isocost.ledger import Ledger, _slope\nfrom isocost.types import plain as p\n") == [
        "isocost.ledger: _slope", "isocost.types: plain"]
    assert {str(p.relative_to(HOME)): found for p in PAGES if (found := private(p.read_text()))} == {}


OWN = '''"""A_i = r_i less the median."""

from isocost.methods import Card, grpo
from isocost.ops import per_group

CARD = Card("Own", "an example", 2026, "grpo", "It is an example.")


@per_group
def advantage(r):
    return {body}


def recipe(**changes):
    return grpo.recipe(name="own", advantage=advantage).but(**changes)
'''
LETTERS = '''
from isocost.types import Message, Problem, Shown


class Letters:
    max_turns, max_tokens = 2, 1

    @staticmethod
    def problems():
        return [Problem(str(i), (Message("user", f"{{i}}?"),), "abc"[i % 3]) for i in range(100)]

    def __init__(self, problem):
        self.problem, self.said = problem, ""

    async def open(self):
        return Shown(self.problem.prompt, key="open")

    async def step(self, said, luck):
        self.said = said
        return Shown(over=True, reward={reward} * float(said == self.problem.answer))

    def final(self):
        return self.said

    async def close(self):
        pass
'''


def test_a_method_is_checked_in_a_users_own_test(tmp_path):
    (good := tmp_path / "good.py").write_text(OWN.format(body="r - r.median()"))
    check_method(str(good))
    (bad := tmp_path / "bad.py").write_text(OWN.format(body="(r - r.mean())[:1]"))
    with pytest.raises(AssertionError, match=r"bad\.py breaks \d+ of \d+ promises\n"):
        check_method(str(bad))


def test_an_environment_is_checked_in_a_users_own_test(tmp_path):
    (good := tmp_path / "good.py").write_text(LETTERS.format(reward=1))
    check_environment(f"{good}:Letters")
    (bad := tmp_path / "bad.py").write_text(LETTERS.format(reward="(lambda: 1 / 0)()"))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        check_environment(f"{bad}:Letters")
    with pytest.raises(UserError, match="has no problems: pass problems"):
        check_environment(f"{good}:Letters", [])


def test_the_toy_world_is_small_and_torch_comes_with_the_first_call():
    assert [len(toy_world(problems=k).problems) for k in (3, 10)] == [3, 10]
    assert toy_world().exact is not None and toy_world(dialogues=True).exact is None     # a turn has no pass rate
    code = "import sys, isocost.testing; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
