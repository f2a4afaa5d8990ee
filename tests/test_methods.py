"""Every method file keeps the contract; files that break it are told what they broke."""

import pickle
import shutil
from pathlib import Path

import pytest

from isocost import methods
from isocost.check import PROMISES, check
from isocost.errors import UserError
from isocost.seams import describe

ALL = methods.names()


@pytest.mark.parametrize("name", ALL)
def test_contract(name):
    assert [(f.promise, f.why) for f in check(name) if not f.kept] == []


@pytest.mark.parametrize("name", ALL)
def test_files_are_short_and_name_their_paper(name):
    module = methods.load(name)
    text = Path(module.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert module.CARD.paper.split()[0] in module.__doc__
    assert module.recipe().name == name


GOOD = '''"""Half of GRPO's credit.  Nobody 2026, arXiv:0000.00000"""
from functools import partial
from isocost.methods import Card, grpo
from isocost.ops import per_group
from isocost.parts import loss, weight

CARD = Card("Half", "0000.00000", 2026, "grpo", "Half is enough.")


@per_group
def advantage(r):
    return (r - r.mean()) / 2


def recipe(**changes):
    return grpo.recipe(name="half", advantage=advantage).but(**changes)
'''

CREDIT = "@per_group\ndef advantage(r):\n    return (r - r.mean()) / 2\n"
HEAD = "def advantage(batch, ledger):\n"
LIAR = """

async def liar(problem, attempts, world, pace, place, start=None):
    from dataclasses import replace
    from isocost.parts import play
    told = await play.sample(problem, attempts, world, pace, place, start)
    return [r.but(segments=tuple(replace(s, logp=s.logp / 2) for s in r.segments)) for r in told]
"""
SHARED = """

def shared(out, batch):
    return -batch.advantage * out.logp / len(batch.tokens), {}
"""


def also(seam, value):
    return "advantage=advantage)", f"advantage=advantage, {seam}={value})"


FAULTS = {   # promise -> what to put in the place of what, and at the end of the file
    "card": ("Half is enough.", "Half is enough", ""),
    "recipe": (".but(**changes)", "", ""),
    "plain": (*also("guide", "lambda problem, world: [problem]"), ""),
    "differs": (", advantage=advantage", "", ""),
    "compatible": (*also("allocate", "by_shortfall"), "\n\nfrom isocost.methods.grpo import advantage\n"
                   "from isocost.parts.allocate import by_shortfall\n"),
    "imports": ("from functools import partial", "from isocost.feed import Feed", ""),
    "credit": (CREDIT, HEAD + "    return (batch.reward[batch.rollout] - 0.5)[:, None] + 0 * batch.logp\n", ""),
    "average": (*also("weight", "negative"), "\n\ndef negative(batch):\n    return -weight.token_mean(batch)\n"),
    "pure": (CREDIT, HEAD + "    r = batch.reward.sub_(0.1)\n    return r[batch.rollout, None] * batch.mask\n", ""),
    "order": (CREDIT, HEAD + "    return batch.mask.cumsum(0) * batch.mask / 64\n", ""),
    "micro": (*also("loss", "shared"), SHARED),
    "agree": (*also("play", "liar"), LIAR),
    "runs": (*also("select", "nothing"), "\n\ndef nothing(group, ledger):\n    return None\n"),
}


def broken(tmp_path, text, promises=PROMISES):
    path = tmp_path / "half.py"
    path.write_text(text, encoding="utf-8")
    return [f.why for f in check(str(path), promises=promises) if not f.kept]


def test_a_good_file_passes(tmp_path):
    assert broken(tmp_path, GOOD) == []


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
def test_every_promise_has_a_file_that_breaks_it(tmp_path, promise):
    was, becomes, more = FAULTS[promise.__name__]
    assert was in GOOD
    (why,) = broken(tmp_path, GOOD.replace(was, becomes) + more, [promise])
    assert not why.startswith(("NameError", "SyntaxError", "AttributeError"))


def test_a_file_of_ones_own_pickles_and_is_recorded_with_its_source(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(GOOD, encoding="utf-8")
    recipe = methods.load(str(path)).recipe()
    assert describe(pickle.loads(pickle.dumps(recipe))) == describe(recipe)
    assert len(describe(recipe)["advantage"]["source"]) == 16
    assert methods.load(str(path)) is methods.load(str(path))
    (tmp_path / "moved").mkdir()
    moved = shutil.copy(path, tmp_path / "moved")      # what was begun with it goes on from there
    assert describe(methods.load(str(moved)).recipe()) == describe(recipe)
    path.write_text(GOOD.replace("/ 2", "/ 3"), encoding="utf-8")
    assert describe(methods.load(str(path)).recipe())["advantage"] != describe(recipe)["advantage"]


def installed(tmp_path, monkeypatch, **entries):
    """A package with these entry points, as pip leaves it."""
    (tmp_path / "tinyrl").mkdir()
    (tmp_path / "tinyrl" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "tinyrl" / "half.py").write_text(GOOD, encoding="utf-8")
    told = tmp_path / "tinyrl-0.1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: tinyrl\nVersion: 0.1\n", encoding="utf-8")
    lines = "".join(f"{name} = {where}\n" for name, where in entries.items())
    (told / "entry_points.txt").write_text(f"[isocost.methods]\n{lines}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def test_an_installed_packages_entry_point_is_a_method(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, half="tinyrl.half", grpo="tinyrl.half")
    assert methods.names() == sorted([*ALL, "half"]) and methods.shipped() == ALL
    assert [f for f in check("half") if not f.kept] == []
    recipe = methods.load("half").recipe()
    assert describe(pickle.loads(pickle.dumps(recipe))) == describe(recipe)
    assert len(describe(recipe)["advantage"]["source"]) == 16
    lines = methods.tree().splitlines()
    assert "    half" in lines and "half" not in methods.tree(methods.shipped())
    assert methods.load("grpo").__name__ == "isocost.methods.grpo"      # nobody takes the place of a shipped one


def test_an_entry_point_that_does_not_import_is_named(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, gone="tinyrl.nothing", empty="tinyrl")
    with pytest.raises(UserError, match=r"gone of an installed package \(tinyrl.nothing\) does not import"):
        methods.load("gone")
    with pytest.raises(UserError, match="empty is not a method: it has no CARD and no recipe"):
        methods.load("empty")


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match=f"no method 'gpro'; there are {', '.join(ALL[:3])}"):
        methods.load("gpro")
    with pytest.raises(UserError, match="there is no file"):
        methods.load(str(tmp_path / "none.py"))
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="no CARD and no recipe"):
        methods.load(str(tmp_path / "empty.py"))


def test_the_tree_has_one_root_and_every_method():
    lines = methods.tree().splitlines()
    assert sorted(line.strip() for line in lines) == ALL
    assert [line for line in lines if not line.startswith(" ")] == ["reinforce"]
    assert lines.index("    isoeasy") + 1 == lines.index("      isohard")


# preconditions, one synthetic profile for each situation of the cards' table ----------------------------------

MIDDLE = {"mean": 0.45, "histogram": [2, *[6] * 16], "regime": "easy", "dead": [{"n": 16, "share": 0.05}]}
HARD = {"mean": 0.03, "histogram": [80, 10, *[1] * 15], "regime": "hard", "dead": [{"n": 16, "share": 0.8}]}
MIXED = {"mean": 0.4, "histogram": [40, 10, *[4] * 15], "regime": "mixed", "dead": [{"n": 16, "share": 0.6}]}
HOPELESS = {"mean": 0.001, "histogram": [98, 2, *[0] * 15], "regime": "hard", "dead": [{"n": 16, "share": 0.98}]}
SOLVED = {"mean": 0.97, "histogram": [0] * 15 + [10, 90], "regime": "solved", "dead": [{"n": 16, "share": 0.9}]}
NOTHING = {"mean": 0.0, "histogram": [100] + [0] * 16, "regime": "hard", "dead": [{"n": 16, "share": 1.0}]}


GUIDED = {"pope", "int_", "adhint"}    # problems that are never right, and solutions to help with


@pytest.mark.parametrize(("profile", "holding"), [
    ({**MIDDLE, "solutions": 0.0}, set(ALL) - {"isohard", *GUIDED, "otr"}),
    ({**HARD, "solutions": 1.0}, set(ALL) - {"isoeasy", "balanced"}),   # one group in eleven is half solved
    ({**MIXED, "solutions": 0.5}, set(ALL) - {"isoeasy", "otr"}),       # which wants a solution for every problem
    ({**HOPELESS, "solutions": 1.0}, {"reinforce", "isohard", "fbc", "ppo", "tti", "otr", *GUIDED}),
    (SOLVED, set()),
    (NOTHING, {"isohard"}),
], ids=["middle", "hard", "mixed", "hopeless", "solved", "nothing"])
def test_preconditions(profile, holding):
    assert {name for name in ALL if methods.needs(name, profile)[0] == methods.HOLDS} == holding


def test_what_was_not_measured_is_neither_held_nor_failed():
    for name in ALL:
        state, why = methods.needs(name, {})
        assert state == methods.UNMEASURED and "isocost profile" in why
    assert methods.needs("dapo", {**MIDDLE, "dead": []})[0] == methods.UNMEASURED
