"""What functions declare about themselves is whole, is kept wherever a recipe is made, and is what they do."""

import inspect
import pickle
from functools import partial

import pytest
from click.testing import CliRunner

from isocost import methods
from isocost.cli.commands import main
from isocost.contract import check
from isocost.contract.conflicts import refuse
from isocost.errors import UserError
from isocost.methods import grpo
from isocost.ops import per_group
from isocost.parts import loss
from isocost.recipe import functions, tune
from isocost.traits import Bounds, bounds, declared, gives, requires, shares, trait
from test_conflicts import known_functions

ANY = {     # numbers that may have any value: thresholds and levels of rewards, whose scale is the verifier's
    "bfsprover.advantage.over", "fbc.select.over", "bon.advantage.least", "bonrlb.advantage.least",
    "bonrlb.reward.least", "fbc.advantage.over", "otr.reward.wrong", "rac.advantage.over", "rac.select.over",
    "webgym.advantage.over", "gdpo.advantage.weights", "promptgdro.advantage.eta",
}

INNER = {"bins", "remembered"}      # they take what a seam takes, and are called by seam functions


@pytest.mark.parametrize(("text", "inside", "out"), [
    ("[0, 1]", (0, 1, 0.5, True, "word", None), (-1e-9, 1.1, float("nan"))),
    ("(0, 1)", (0.5,), (0, 1)),
    ("(0, inf]", (1e9, float("inf")), (0, -1)),
    ("[1, inf)", (1, 7), (0, float("inf"))),
    ("0 or [1, inf)", (0, 1, 3.5), (0.5, -1)),
    ("(0, 1]", ((0.25, 1.0), [1], ()), ((0.25, 1.5), [0.0])),
])
def test_bounds_hold_what_they_say(text, inside, out):
    allowed = Bounds.of(text)
    assert all(map(allowed.hold, inside)) and not any(map(allowed.hold, out))


@pytest.mark.parametrize("text", ["", "[0 1]", "from 0", "[a, 1]"])
def test_bounds_that_cannot_be_read_are_a_mistake_in_the_file(text):
    with pytest.raises(ValueError):
        bounds(low=text)
    with pytest.raises(ValueError, match="unknown trait 'compares_sibling'; expected one of compares_siblings"):
        trait("compares_sibling")


def test_a_declaration_leaves_the_function_as_it_is():
    def plain(x, *, n: int = 1):
        return x * n

    kept = vars(plain).copy()
    for adds in (trait("phased", n=1), trait("in_parts"), requires("a", at="loss", why="w"), gives("b", "c"),
                 shares(k="n"), bounds(n="[1, inf)")):
        assert adds(plain) is plain
    known = declared(plain)
    assert [t.name for t in known.traits] == ["in_parts", "phased"] and not kept
    assert known.has("phased", {"n": 1}) and not known.has("phased", {"n": 2}) and known.gives == {"b", "c"}
    assert declared(max) == declared(lambda: 0)
    assert pickle.loads(pickle.dumps(grpo.advantage)) is grpo.advantage


def test_what_lifts_a_group_keeps_what_it_declares_and_compares_siblings():
    @per_group
    @bounds(k="(0, inf)")
    def advantage(r, *, k: float = 2.0):
        return (r - r.mean()) / k

    assert declared(advantage).has("compares_siblings", {}) and "k" in declared(advantage).bounds


def test_every_number_that_can_be_set_has_its_bounds_and_keeps_them():
    """Of every function in the parts and the methods whose numbers can be set, and of every method's own recipe."""
    missing = set()
    for fn in known_functions():
        used = next(functions(fn))
        if fn.__name__.startswith("_") or not seam_like(fn):
            continue
        for name, value in used.settings.items():
            first = value[0] if isinstance(value, tuple) and value else value
            if isinstance(first, (int, float)) and not isinstance(first, bool) and name not in used.declared.bounds:
                missing.add(f"{used.name}.{name}")
    assert missing == ANY - {"gdpo.advantage.weights"}      # which are none by default
    for name in methods.shipped():
        refuse(methods.load(name).recipe())


def seam_like(fn):
    """Whether it can be a seam's value: it takes what a seam is given first, and is not what such functions call."""
    first = next(iter(inspect.signature(fn).parameters), "")
    seams = ("pool", "problem", "problems", "group", "batch", "out", "ledger", "r")
    return first in seams and fn.__name__ not in INNER


@pytest.mark.parametrize(("path", "value", "allowed"), [
    ("loss.low", "-0.3", "isocost.parts.loss:clipped expects a value in [0, 1]"),
    ("loss.dual", "0.5", "0 or [1, inf)"),
    ("advantage.eps", "-1", "isocost.methods.grpo:advantage expects a value in [0, inf)"),
    ("improve.epochs", "0", "isocost.parts.improve:policy expects a value in [1, inf)"),
    ("pace.warmup", "-1", "isocost.parts.pace:warmed expects a value in [0, inf)"),
    ("rollouts", "0", "expected a value in [1, inf)"),
])
def test_a_value_out_of_bounds_is_refused_when_it_is_set(path, value, allowed):
    with pytest.raises(KeyError) as told:
        tune(grpo.recipe(), path, value)
    assert allowed in told.value.args[0]


@pytest.fixture
def mine(tmp_path):
    """A method whose file sets a value out of bounds, inside another function."""
    path = tmp_path / "mine.py"
    path.write_text('''"""Clip on the wrong side.  Nobody 2026, arXiv:0000.00000"""
from functools import partial
from isocost.methods import Card, grpo
from isocost.parts import loss

CARD = Card("Mine", "0000.00000", 2026, "grpo", "It is worse.")


def recipe(**changes):
    clip = partial(loss.corrected, inner=partial(loss.clipped, low=-0.3), cap=2.0)
    return grpo.recipe(name="mine", loss=clip).but(**changes)
''')
    return path


def test_a_value_out_of_bounds_is_refused_wherever_it_is_given(mine, tmp_path, monkeypatch):
    """A negative clip range raises nothing and trains badly: it is one line before anything is paid for."""
    monkeypatch.chdir(tmp_path)
    run = ("--data", "sums:base=easy,count=40", "--budget", "64-rollouts", "-n", "4", "-B", "4", "--dry-run")
    for asked in (("train", "grpo", "--set", "loss.low=-0.3", *run), ("train", "grpo@loss.low=-0.3", *run),
                  ("train", str(mine), *run),
                  ("profile", "--out", "s", "--method", "grpo@loss.low=-0.3")):
        done = CliRunner().invoke(main, list(asked))
        assert done.exit_code == 2 and "value in [0, 1]" in done.output and done.output.count("\n") == 1, asked
    with pytest.raises(UserError, match=r"loss: loss.clipped has low=-0.3; expected a value in \[0, 1\]"):
        refuse(methods.load(str(mine)).recipe())
    (told,) = [f.why for f in check.check(str(mine), promises=(check.compatible,))]
    assert "low=-0.3" in told
    refuse(grpo.recipe(loss=partial(loss.corrected, inner=loss.clipped)))


UNDECLARED = {      # what a file does and does not declare: the seam, its function, what is said of it
    "siblings": ("advantage", "return spread(in_groups(torch.clone, batch.reward - 0.5, batch), batch)",
                 "@trait('compares_siblings') on `advantage`"),
    "pass rates": ("advantage", "return grpo.advantage(batch, ledger) * (1 + sum(t.total for t in "
                                "ledger.tallies.values()))", "@trait('tracks_pass_rate') on `advantage`"),
    "phases": ("allocate", "yield from dars.allocate(problems, ledger, total)", "@trait('phased')"),
    "extras": ("loss", "return isoeasy.to_reference(out, batch)", "@requires('reference', at='enrich'"),
}
TAKES = {"advantage": "batch, ledger", "allocate": "problems, ledger, total", "loss": "out, batch"}


@pytest.mark.parametrize("case", UNDECLARED)
def test_the_contract_tells_what_a_function_does_and_does_not_declare(tmp_path, case):
    seam, does, says = UNDECLARED[case]
    declares = "" if case == "siblings" else "@trait('compares_siblings')\n" if seam == "advantage" else ""
    text = f'''"""It declares nothing.  Nobody 2026, arXiv:0000.00000"""
import torch
from isocost.methods import Card, dars, drgrpo, grpo, isoeasy
from isocost.ops import in_groups, spread
from isocost.parts import enrich
from isocost.traits import requires, trait

CARD = Card("Mine", "0000.00000", 2026, "drgrpo", "It is worse.")


{declares}def own({TAKES[seam]}):
    {does}


def recipe(**changes):
    return drgrpo.recipe(name="mine", {seam}=own, enrich=(enrich.reference,)).but(**changes)
'''
    path = tmp_path / "mine.py"
    path.write_text(text)
    (found,) = check.check(str(path), promises=(check.declares,))
    assert says in found.why
    name = {"siblings": "compares_siblings", "pass rates": "tracks_pass_rate", "phases": "phased"}.get(case)
    line = f"@trait({name!r})\n" if name else "@requires('reference', at='enrich', why='it reads it')\n"
    path.write_text(text.replace("def own", f"{line}def own"))
    (found,) = check.check(str(path), promises=(check.declares,))
    assert found.kept, found.why


def test_a_declared_trait_that_does_not_hold_is_named(tmp_path):
    for seam, name, base in (("allocate", "phased", "allocate.equal(problems, ledger, total)"),
                             ("advantage", "compares_siblings", "reinforce.advantage(batch, ledger)")):
        path = tmp_path / f"{seam}.py"
        path.write_text(f'''"""It declares what it does not do.  Nobody 2026, arXiv:0000.00000"""
from isocost.methods import Card, reinforce
from isocost.ops import spread
from isocost.parts import allocate
from isocost.traits import trait

CARD = Card("Mine", "0000.00000", 2026, "reinforce", "It is worse.")


@trait("{name}")
def own({TAKES[seam]}):
    return {base.replace("reinforce.advantage(batch, ledger)", "spread(batch.reward, batch)")}


def recipe(**changes):
    return reinforce.recipe(name="mine", {seam}=own).but(**changes)
''')
        (found,) = check.check(str(path), promises=(check.declares,))
        assert f"declares {name}" in found.why


def test_groups_of_one_of_a_users_own_credit_are_refused_before_they_cost_anything(tmp_path):
    """It declares nothing, so the table cannot know: two steps in the toy world show that nobody earns credit."""
    path = tmp_path / "mine.py"
    path.write_text('''"""GRPO's credit from outside.  Nobody 2026, arXiv:0000.00000"""
from isocost.methods import Card, grpo

CARD = Card("Mine", "0000.00000", 2026, "grpo", "It is the same.")


def advantage(batch, ledger):
    return grpo.advantage(batch, ledger) * 2


def recipe(**changes):
    return grpo.recipe(name="mine", advantage=advantage).but(**changes)
''')
    recipe = methods.load(str(path)).recipe(groups=4, rollouts=1)
    refuse(recipe)
    with pytest.raises(UserError, match=r"rollouts 1 conflicts with mine_\w+.advantage: it compares siblings"):
        check.tried(str(path), recipe)
    check.tried(str(path), recipe.but(rollouts=4))
    check.tried("reinforce", methods.load("reinforce").recipe(groups=4, rollouts=1))
