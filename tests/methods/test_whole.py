"""A method's file holds the whole method: `parts` has only what two method files use, one file for each seam."""

import ast
from pathlib import Path

import isocost.methods
import isocost.parts
from isocost import methods
from isocost.seams import SEAMS

METHODS, PARTS = (Path(package.__path__[0]) for package in (isocost.methods, isocost.parts))
ROOT = "reinforce"      # its recipe holds the default of every seam
LONGEST = 400           # lines of a method's file
# What plays of dialogues hold: an episode, its views, an expert's turns, boxes on a screen and intervals of time, which
# environments mark too, functions of turns.
HELD_BY_PLAY = ("boxes", "episode", "experts", "intervals", "play", "view")
HELD_BY_REWARD = ("prefer",)        # who wins among the attempts of a group


def files(folder):
    return {p.stem: ast.parse(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.py"))
            if p.stem != "__init__"}


def defined(tree):
    """Top-level names and their statements."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {n.id: node for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = node
    return found


def imported(tree):
    """(local name -> part's module, local name -> (module, name)) of what a file imports from `parts`."""
    modules, names = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "isocost.parts":
            modules |= {a.asname or a.name: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isocost.parts."):
            names |= {a.asname or a.name: (node.module.rpartition(".")[2], a.name) for a in node.names}
    return modules, names


def referenced(node, modules, names, own=None):
    """The parts that a piece of code refers to; a name that the code assigns itself is a variable, not a part."""
    local = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for n in ast.walk(node):
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in modules:
            yield modules[n.value.id], n.attr
        elif isinstance(n, ast.Name) and n.id not in local:
            if n.id in names:
                yield names[n.id]
            elif own and n.id in own[1]:
                yield own[0], n.id


def users(method_trees, part_trees):
    """{(module, name): method files that use it}, directly or through another part."""
    parts = {(m, name): node for m, tree in part_trees.items() for name, node in defined(tree).items()}
    uses = {
        (m, name): set(referenced(node, *imported(part_trees[m]), (m, defined(part_trees[m])))) - {(m, name)}
        for (m, name), node in parts.items()
    }
    found = {part: set() for part in parts}

    def mark(part, user):
        if part in found and user not in found[part]:
            found[part].add(user)
            for inner in uses[part]:
                mark(inner, user)

    for user, tree in method_trees.items():
        for part in set(referenced(tree, *imported(tree))):
            mark(part, user)
    return found


def defaults(tree):
    """The seams' defaults: every recipe that does not replace them has them."""
    (recipe,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "recipe")
    return set(referenced(recipe, *imported(tree)))


def test_parts_hold_only_what_two_methods_use():
    trees = files(METHODS)
    shared = defaults(trees[ROOT])
    used = {part: by for part, by in users(trees, files(PARTS)).items() if part[0] not in HELD_BY_PLAY}
    alone = {f"{m}.{n}": sorted(by) for (m, n), by in used.items()
             if len(by) < 2 and ROOT not in by and (m, n) not in shared}    # what the root's parts use, all have
    assert alone.pop("reward.scored") == []     # for recipes of users: any scorer as a reward
    assert alone == {}, "move each into its method's file, and its name into isocost.runs.names"


def test_users_are_counted_through_other_parts_and_not_by_variables_of_the_same_name():
    part = {"play": ast.parse("def sample():\n    return _turn()\ndef _turn():\n    pass\ndef alone():\n    pass\n")}
    one = ast.parse("from isocost.parts import play\ndef recipe():\n    return play.sample\n")
    two = ast.parse("from isocost.parts.play import sample\ndef recipe():\n    alone = sample\n    return alone\n")
    assert users({"one": one, "two": two}, part) == {
        ("play", "sample"): {"one", "two"}, ("play", "_turn"): {"one", "two"}, ("play", "alone"): set(),
    }


def test_each_file_of_parts_is_a_seam():
    assert set(files(PARTS)) <= {*SEAMS, *HELD_BY_PLAY, *HELD_BY_REWARD}


def whole(text):
    """Whether a method's file is as one is read: short, with its equations first, then a card, and a recipe last."""
    names = [n for n in defined(ast.parse(text)) if n != "annotations"]
    equations = "\n\n    " in (ast.get_docstring(ast.parse(text), clean=False) or "")      # they are indented
    return len(text.splitlines()) <= LONGEST and (names[0], names[-1], equations) == ("CARD", "recipe", True)


def test_a_method_s_file_opens_with_its_equations_and_is_short():
    texts = {name: (METHODS / f"{name}.py").read_text(encoding="utf-8") for name in methods.shipped()}
    assert [name for name, text in texts.items() if not whole(text)] == []
    one = texts["grpo"]
    assert not any(map(whole, (one + "\n" * LONGEST, one.replace("\n\n    ", "\n\n"), one + "\n\nLATE = 1\n")))
