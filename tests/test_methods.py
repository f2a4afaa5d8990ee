"""Every method file keeps the contract; findings name what a file breaks."""

import asyncio
import hashlib
import itertools
import os
import pickle
import re
import shutil
import sys
from contextlib import suppress

import pytest
import torch

from in_turn import in_their_turn
from isocost import methods
from isocost.cli.printer import show
from isocost.contract.check import PROMISES, again, check, pure, toy_for, tried
from isocost.contract.conflicts import refuse
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.recipe import describe, fingerprint
from isocost.screen.console import console
from isocost.steps.look import listing
from isocost.types import Message, Problem
from isocost.worlds import toy
from turns import OF_ONE_TURN

ALL = methods.names()


@pytest.mark.parametrize("name", in_their_turn(ALL))
def test_contract(name, unchecked_shapes):
    assert [(f.promise, f.why) for f in check(name) if not f.kept] == []


@pytest.mark.parametrize("name", in_their_turn(ALL))
def test_nothing_is_sampled_any_more_once_an_attempt_has_failed(name, unchecked_shapes):
    """The engine fails at one of its first calls. What a play or a schedule had begun beside that ends with it."""
    recipe = methods.recipe(name, groups=2)

    async def left(fatal):
        world, calls = toy_for(toy.holds_dialogues(recipe)), itertools.count(1)
        generate = world.engine.generate

        async def failing(*args, **options):
            if next(calls) == fatal:
                raise ConnectionError
            return await generate(*args, **options)

        world.engine.generate = failing
        with suppress(ConnectionError):
            async for _ in train(recipe, world, Ledger(), {"rollouts": 4 * recipe.rollouts}):
                pass
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert not any(asyncio.run(left(fatal)) for fatal in range(1, 13))


def test_files_name_their_paper():
    modules = {name: methods.load(name) for name in ALL}
    assert [n for n, m in modules.items() if m.CARD.paper.split()[0] not in m.__doc__ or m.recipe().name != n] == []


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
    "pace": (*also("pace", "fixed"), "\n\ndef fixed(ledger, *, half=1):\n    return Pace(0.1, 8)\n"
             "\n\nfrom isocost.seams import Pace\n"),
    "plays": (CREDIT, HEAD + "    return batch.extra['mine']\n", ""),
    "surrogate": (*also("loss", "reduced"), "\n\ndef reduced(out, batch):\n"
                  "    return -(batch.advantage * out.logp).mean(), {}\n"),
    "pool": (*also("choose", "foreign"), "\n\ndef foreign(pool, ledger, count, rng):\n"
             "    return [replace(p, answer='a') for p in pool]\n\n\nfrom dataclasses import replace\n"),
    "again": (*also("choose", "shuffled"), "\n\ndef shuffled(pool, ledger, count, rng):\n"
              "    return random.sample(list(pool), count)\n\n\nimport random\n"),
    "compatible": (*also("allocate", "dars.allocate"), "\n\nfrom isocost.methods.grpo import advantage\n"
                   "from isocost.methods import dars\n"),
    "imports": ("from functools import partial", "from isocost.feed import Feed", ""),
    "credit": (CREDIT, HEAD + "    return (batch.reward[batch.rollout] - 0.5)[:, None] + 0 * batch.logp\n", ""),
    "average": (*also("weight", "negative"), "\n\ndef negative(batch):\n    return -weight.token_mean(batch)\n"),
    "pure": (CREDIT, HEAD + "    r = batch.reward.sub_(0.1)\n    return r[batch.rollout, None] * batch.mask\n", ""),
    "order": (CREDIT, HEAD + "    return batch.mask.cumsum(0) * batch.mask / 64\n", ""),
    "micro": (*also("loss", "shared"), SHARED),
    "agree": (*also("play", "liar"), LIAR),
    "declares": (CREDIT, "from isocost.ops import in_groups, spread\n\n\n" + HEAD +
                 "    return spread(in_groups(torch.clone, batch.reward - 0.5, batch), batch)\n", "\n\nimport torch\n"),
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


@pytest.mark.parametrize("own", ["torch.rand(1)", "next(numbers)"])
def test_random_numbers_and_memory_of_a_function_of_one_group_are_found(tmp_path, own):
    """`per_group` keeps outcomes by their rewards, so a second call with the same rewards has to be a call."""
    text = GOOD.replace(CREDIT, f"@per_group\ndef advantage(r, *, weight: float = 1.0):\n    return r * {own}\n")
    whys = broken(tmp_path, text + "\n\nimport itertools\nimport torch\nnumbers = itertools.count()\n", [pure, again])
    assert [why.split(":")[0] for why in whys] == ["advantage returns another value the second time", "metrics differ"]


def test_a_mistake_is_reported_once_with_its_line_and_what_rests_on_it_is_not_tried(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(GOOD.replace(CREDIT, HEAD + "    return batch.extra['mine']\n"), encoding="utf-8")
    found = check(str(path))
    (told,) = [f for f in found if f.state == "BROKEN"]
    assert told.promise.startswith("A wave is chosen") and told.tried
    assert told.why == "line 11: KeyError: 'mine': return batch.extra['mine']"
    assert {f.state for f in found[: found.index(told)]} == {"kept"}
    rest = found[found.index(told) + 1 :]
    assert {f.state for f in rest} == {"not tried"} and all(told.promise in f.why and not f.kept for f in rest)


@pytest.mark.parametrize(("loss", "says"), [
    ("-batch.advantage * out.logp", r"`loss` returned a Tensor, not \(loss, \{name: metric\}\)"),
    ("-(batch.advantage * out.logp).mean(), {}", r"the loss has shape \(\), the batch \(64, \d+\)"),
    ("-batch.advantage * out.logp, {'kl': out.logp.sum()}", r"metric kl has shape \(\)"),
])
def test_what_a_loss_gives_is_held_to_its_seam(tmp_path, loss, says):
    was, becomes = also("loss", "own")
    text = GOOD.replace(was, becomes) + f"\n\ndef own(out, batch):\n    return {loss}\n"
    path = tmp_path / "half.py"
    path.write_text(text, encoding="utf-8")
    (told,) = [f for f in check(str(path)) if f.state == "BROKEN"]
    assert told.promise.startswith("The loss is not reduced") and re.match(says, told.why)


def test_counts_of_no_address_are_named(tmp_path):
    was, becomes = also("allocate", "thrown")
    why, untried = broken(tmp_path, GOOD.replace(was, becomes) + """

def thrown(problems, ledger, total):
    first = random.randrange(1, total)
    return [first, *[0] * (len(problems) - 2), total - first]


import random
""")
    assert why.startswith("the counts that `allocate` gives differ in step ") and untried.startswith("not tried")


OWN = """

def learn(batch, recipe, world, ledger, *, epochs: int = 1, minibatches: int = 1, fresh: float = 0.5):
    again = partial(improve.policy, epochs=epochs, minibatches=minibatches)
    return improve.replayed(batch, recipe, world, ledger, fresh=fresh, inner=again)


def counts(problems, ledger, total, *, first: float = 0.5):
    return dars.allocate(problems, ledger, total, first=first)
"""


@pytest.mark.parametrize(("path", "value", "says"), [
    ("improve.minibatches", "0", "RuntimeError: number of sections"),
    ("improve.epochs", "0", "IndexError"),
    ("improve.epochs", "-1", "IndexError"),
    ("improve.fresh", "0", "ZeroDivisionError"),
    ("allocate.first", "1.5", "its counts must sum to the total"),
])
def test_a_value_that_raises_is_named_with_its_method_before_it_costs_anything(tmp_path, path, value, says):
    """Functions of a user's own declare no bounds: a step in the toy world shows what a value does."""
    was, becomes = also("improve", "learn, allocate=counts")
    file = tmp_path / "half.py"
    imports = GOOD.replace("import loss", "import improve, loss").replace("Card, grpo", "Card, dars, grpo")
    file.write_text(imports.replace(was, becomes) + OWN, encoding="utf-8")
    recipe = methods.tuned(methods.load(str(file)).recipe(groups=16, rollouts=8), {path: value})
    with pytest.raises(UserError, match=rf"half.py with {path}={value} does not run: .*{says}"):
        tried(str(file), recipe, sets={path: value})


@pytest.mark.parametrize(("seam", "body", "says"), [
    ("advantage", "def advantage(r):\n    return r - r.mean()",
     r"`advantage` \({file}, line \d+\) takes \(r\); it is called with \(batch, ledger\); decorate .* with @per_group"),
    ("advantage", "@per_group\ndef advantage(r):\n    return r.numpy()",
     r"advantage returned a ndarray, expected a tensor"),
    ("advantage", "@per_group\ndef advantage(r):\n    return r.sum()",
     r"advantage returned a tensor of shape \(\), expec"),
    ("choose", "def choose(pool, ledger, count, rng):\n    return pool[0]",
     r"returned a Problem, expected a list of problems"),
    ("reward", "def reward(group, world):\n    return group",
     r"`reward` \({file}, line \d+\) is no coroutine: write `async"),
    ("reward", "async def reward(group, world):\n    return group",
     r"no rollout has a score after `reward` \({file}, line"),
    ("reward", "async def reward(group, world):\n    return group.of(r.scored(1.0) for r in group.rollouts)",
     r"of type float; write isocost.types.Score|Expected type: isocost.types.Score"),
    ("select", "def select(group, ledger):\n    return True",
     r"`select` .* returned a bool, expected a Group, or None"),
    ("loss", "def loss(out, batch):\n    return -out.logp.mean(), {}",
     r"has shape \(\), .*: `weight` averages, not the loss"),
    ("loss", "def loss(out, batch):\n    return -out.logp",
     r"`loss` .* returned a Tensor, expected \(loss, \{name: metric"),
    ("loss", "def loss(out, batch):\n    return -out.logp.detach() * batch.advantage, {}",
     r"a loss without a gradient"),
    ("loss", "def loss(out, batch):\n    return -out.logp, {'mine': out.logp.mean()}", r"metric mine has shape \(\)"),
    ("pace", "def pace(ledger, *, lr=1e-3):\n    return lr", r"`pace` .* returned a float, expected a Pace"),
])
def test_a_plausible_mistake_is_named_by_its_seam_before_a_run(tmp_path, seam, body, says):
    path = tmp_path / "mistake.py"
    path.write_text(
        '"""A mistake."""\nfrom isocost.methods import Card, grpo\nfrom isocost.ops import per_group\n'
        f'CARD = Card("M", "none", 2026, "grpo", "It fails.")\n{body}\n'
        f'def recipe(**changes):\n    return grpo.recipe(name="m", {seam}={seam}).but(**changes)\n', encoding="utf-8")
    with pytest.raises(UserError, match=says.replace("{file}", str(path))):
        tried(str(path), methods.recipe(str(path), groups=8, rollouts=4))


@pytest.mark.parametrize(("recipe", "says"), [
    ("def recipe():\n    return grpo.recipe()", r"Write `def recipe\(\*\*changes\)`, and end it with `.but"),
    ("def recipe(**changes):\n    return grpo.recipe(advantages=None)", "No seam has this name: did you mean 'advanta"),
])
def test_a_recipe_with_an_unknown_keyword_is_answered_with_the_known_one(tmp_path, recipe, says):
    path = tmp_path / "mistake.py"
    path.write_text('"""A mistake."""\nfrom isocost.methods import Card, grpo\n'
                    f'CARD = Card("M", "none", 2026, "grpo", "It fails.")\n{recipe}\n', encoding="utf-8")
    with pytest.raises(UserError, match=says):
        methods.recipe(str(path), groups=8)


@pytest.mark.parametrize("name", in_their_turn(ALL))
def test_every_method_runs_as_it_is_and_at_the_usual_sizes(name, monkeypatch):
    monkeypatch.setattr("isocost.contract.check.MOST", 32)      # rollouts of a step: a few groups, at its own n
    made = methods.load(name).recipe
    for sized in {fingerprint(describe(r)): r for r in (made(), made(groups=16, rollouts=8))}.values():
        assert tried(name, sized) is None      # it raises where a step does


def test_a_file_that_raises_is_named_by_its_line_and_reads_what_its_problems_carry(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(GOOD + """

def hardest(pool, ledger, count, rng):
    return sorted(pool, key=lambda p: p.meta["hard"])[-count:]
""", encoding="utf-8")
    method = methods.load(str(path))
    recipe = method.recipe(choose=method.hardest)
    with pytest.raises(UserError, match=r"raises line \d+: KeyError: 'hard': return sorted\(pool"):
        tried(str(path), recipe)
    tried(str(path), recipe, like=[Problem("one", (Message("user", "1 + 1"),), "2", meta={"hard": 1})])


def test_settings_of_a_method_are_read_wherever_it_is_named(tmp_path):
    path = tmp_path / "half@home.py"
    path.write_text(GOOD.replace("(r):", "(r, *, k=2.0):").replace("/ 2", "/ k"), encoding="utf-8")
    assert methods.parted(str(path)) == (str(path), "") and methods.parted("half@home.py") == ("half@home.py", "")
    half = methods.load(f"{path}@advantage.k=4,pace.warmup=3")
    assert half.CARD is methods.load(str(path)).CARD and half.__file__ == str(path)
    made = describe(half.recipe(rollouts=5))
    assert (made["advantage"]["k"], made["pace"]["warmup"], made["rollouts"]) == (4.0, 3, 5)
    assert methods.load("grpo@rollouts=9").recipe().rollouts == 9
    assert methods.load("grpo@rollouts=9").recipe(rollouts=4).rollouts == 4      # who asks has the last word
    assert [f for f in check("grpo@loss.high=0.28") if not f.kept] == []
    with pytest.raises(UserError, match=r"'advantage\.k' has no value"):
        methods.load(f"{path}@advantage.k")
    with pytest.raises(UserError, match=r"loss\.hih=1: .*not 'hih'"):
        methods.load("grpo@loss.hih=1")


def test_a_parent_may_be_a_file(tmp_path):
    path = tmp_path / "quarter.py"
    (tmp_path / "half.py").write_text(GOOD, encoding="utf-8")
    quarter = GOOD.replace("/ 2", "/ 4").replace('"grpo"', repr(str(tmp_path / "half.py")))
    path.write_text(quarter, encoding="utf-8")
    assert [f for f in check(str(path)) if not f.kept] == []
    path.write_text(quarter.replace("half.py", "hlaf.py"), encoding="utf-8")
    (told,) = [f for f in check(str(path)) if f.state == "BROKEN"]
    assert "its parent: there is no file" in told.why


@pytest.mark.parametrize(("line", "says"), [
    ('CARD = Card("Half", "0000.00000", 2026, "grpo")', "line 7: TypeError: .*'claim': CARD = Card"),
    ("CARD = undefined", "line 7: NameError: name 'undefined'"),
    ("CARD = = 1", "line 7: SyntaxError: invalid syntax: CARD = = 1"),
    ("import not_there", "line 7: ModuleNotFoundError: No module named 'not_there'"),
])
def test_a_file_that_does_not_import_is_named_by_its_line(tmp_path, line, says):
    path = tmp_path / "half.py"
    was = next(x for x in GOOD.splitlines() if x.startswith("CARD"))
    path.write_text(GOOD.replace(was, line), encoding="utf-8")
    with pytest.raises(UserError, match=f"half.py does not import: {says}"):
        methods.load(str(path))


def test_a_recipe_with_a_lambda_cannot_be_recorded(tmp_path):
    path = tmp_path / "half.py"
    was, becomes = also("select", "lambda group, ledger: group")
    path.write_text(GOOD.replace(was, becomes), encoding="utf-8")
    recipe = methods.load(str(path)).recipe()
    for ask in (describe, refuse):
        with pytest.raises(UserError, match=r"lambda> \(.*half.py, line 16\) cannot be recorded"):
            ask(recipe)


def test_a_lifted_function_is_recorded_with_its_own_file(tmp_path):
    """`per_group` wraps it in a function of src/isocost/ops.py, which is not what its author wrote."""
    path = tmp_path / "half.py"
    path.write_text(GOOD, encoding="utf-8")
    source = describe(methods.load(str(path)).recipe())["advantage"]["source"]
    assert source == hashlib.sha256(path.read_bytes()).hexdigest()[:16]


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


def test_a_file_changed_within_a_second_is_read_anew(tmp_path):
    """Bytecode is matched by length and second."""
    path, credit = tmp_path / "half.py", []
    for by in (2, 4):
        path.write_text(GOOD.replace("/ 2", f"/ {by}"), encoding="utf-8")
        os.utime(path, (10**9, 10**9))
        credit.append(methods.load(str(path)).advantage.__wrapped__(torch.tensor([0.0, 1.0])).tolist())
    assert credit == [[-0.25, 0.25], [-0.125, 0.125]] and not (tmp_path / "__pycache__").exists()


def installed(tmp_path, monkeypatch, **entries):
    """A package with these entry points, as pip leaves it, and as no earlier test imported it."""
    for module in [m for m in sys.modules if m.split(".")[0] == "tinyrl"]:
        monkeypatch.delitem(sys.modules, module)
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


def test_a_broken_plug_in_is_listed_with_its_error_and_hides_no_other(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, half="tinyrl.half", gone="tinyrl.nothing", bad="tinyrl.bad")
    (tmp_path / "tinyrl" / "bad.py").write_text("\nx = 1 / 0\n", encoding="utf-8")
    lines = methods.tree().splitlines()
    assert "    half" in lines and len(lines) == len(ALL) + 3
    assert lines[-2].endswith("(tinyrl.bad) does not import: line 2: ZeroDivisionError: division by zero: x = 1 / 0")
    found = listing.list_methods()
    rows = {row["name"]: row for row in found.to_dict()}
    assert rows["half"]["changes"] == ["advantage"] and "tinyrl.nothing" in rows["gone"]["broken"]
    state, why = methods.needs("bad", MIDDLE)
    assert state == methods.UNMEASURED and "ZeroDivisionError" in why
    show(found, console())


def test_needs_that_raise_stop_nobody(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(GOOD + "\n\ndef needs(profile):\n    return profile['mine']\n", encoding="utf-8")
    state, why = methods.needs(str(path), MIDDLE)
    assert state == methods.UNMEASURED and why.startswith("its needs raises line 20: KeyError: 'mine'")


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match=f"unknown method 'zzz'; expected one of {', '.join(ALL[:3])}"):
        methods.load("zzz")
    with pytest.raises(UserError, match=r"unknown method 'gpro' \(did you mean .*'grpo'.*\?\); expected one of "):
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


# preconditions, one synthetic profile for each situation ----------------------------------

MIDDLE = {"mean": 0.45, "histogram": [2, *[6] * 16], "regime": "easy", "dead": [{"n": 16, "share": 0.05}]}
HARD = {"mean": 0.03, "histogram": [80, 10, *[1] * 15], "regime": "hard", "dead": [{"n": 16, "share": 0.8}]}
MIXED = {"mean": 0.4, "histogram": [40, 10, *[4] * 15], "regime": "mixed", "dead": [{"n": 16, "share": 0.6}]}
HOPELESS = {"mean": 0.001, "histogram": [98, 2, *[0] * 15], "regime": "hard", "dead": [{"n": 16, "share": 0.98}]}
SOLVED = {"mean": 0.97, "histogram": [0] * 15 + [10, 90], "regime": "solved", "dead": [{"n": 16, "share": 0.9}]}
NOTHING = {"mean": 0.0, "histogram": [100] + [0] * 16, "regime": "hard", "dead": [{"n": 16, "share": 1.0}]}


GUIDED = {"pope", "int_", "adhint"}    # problems that are never right, and solutions to help with
WHOLE = {"otr", "redstar", "rlpt", "scope"}       # they train on solutions


@pytest.mark.parametrize(("profile", "holding"), [
    ({**MIDDLE, "solutions": 0.0}, set(OF_ONE_TURN) - {"isohard", *GUIDED, *WHOLE}),
    ({**HARD, "solutions": 1.0}, set(OF_ONE_TURN) - {"isoeasy", "balanced"}),   # one group in eleven is half solved
    ({**MIXED, "solutions": 0.5}, set(OF_ONE_TURN) - {"isoeasy", *WHOLE}),      # they want a solution for every problem
    ({**HOPELESS, "solutions": 1.0}, {"reinforce", "isohard", "fbc", "bfsprover", "pirl", "ppo", "mssr", "rlsqm",
                                         "tppo", *WHOLE, *GUIDED}),
    (SOLVED, set()),
    (NOTHING, {"isohard"}),
], ids=["middle", "hard", "mixed", "hopeless", "solved", "nothing"])
def test_preconditions(profile, holding):
    assert {name for name in OF_ONE_TURN if methods.needs(name, profile)[0] == methods.HOLDS} == holding


def test_what_was_not_measured_is_neither_held_nor_failed():
    for name in OF_ONE_TURN:
        state, why = methods.needs(name, {})
        assert state == methods.UNMEASURED and "isocost profile" in why
    assert methods.needs("dapo", {**MIDDLE, "dead": []})[0] == methods.UNMEASURED


@pytest.mark.parametrize(("body", "says"), [
    ("r.sum(); return None", r"`advantage` .* returned None, expected a tensor of shape"),
    ("return batch.reward", r"`advantage` returned a tensor of shape \(64,\), expected \(64, "),
    ("return batch.mask / 0.0 * 0.0", r"`advantage` .* not finite, the first in a group with rewards [01], "),
])
def test_a_seam_that_returns_what_a_step_cannot_use_is_named_before_a_run(tmp_path, body, says):
    path = tmp_path / "bent.py"
    path.write_text(BENT.format(body=body.replace("r.sum()", "batch.reward.sum()")), encoding="utf-8")
    with pytest.raises(UserError, match=says):
        tried(str(path), methods.load(str(path)).recipe())


@pytest.mark.parametrize(("given", "says"), [("None", "returned None, expected a list"), ("[]", "returned no problem")])
def test_a_choice_of_no_problem_is_named(tmp_path, given, says):
    path = tmp_path / "bent.py"
    text = BENT.format(body="return batch.mask * 1.0").replace("recipe(name", "recipe(choose=choose, name")
    path.write_text(f"{text}\n\ndef choose(pool, ledger, count, rng):\n    return {given}\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"`choose`.* {says}"):
        tried(str(path), methods.load(str(path)).recipe())


def test_a_file_that_is_named_without_its_path_is_found_in_the_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bent.py").write_text(BENT.format(body="return batch.mask * 1.0"), encoding="utf-8")
    with pytest.raises(UserError, match=r"a file is named by its path: \./bent\.py"):
        methods.load("bent")


BENT = """\"\"\"A method that is wrong.\"\"\"
from isocost.methods import Card, grpo

CARD = Card("Bent", "none", 2026, "grpo", "It is wrong.")


def advantage(batch, ledger):
    {body}


def recipe(**changes):
    return grpo.recipe(name="bent", advantage=advantage).but(**changes)
"""
