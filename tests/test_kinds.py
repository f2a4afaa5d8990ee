"""Kinds of world: a new one is one file of `isocost.worlds.kinds`, and nothing else in the package names one."""

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest

import isocost
from isocost.can import LEARNER, Able, Can
from isocost.cli import options as cli_options
from isocost.disk.shape import flaw
from isocost.errors import UserError
from isocost.runs import schema
from isocost.runs.source import DRIVEN, IMPORTED, OWN, SERVED, STORED
from isocost.steps.settings import setting_with
from isocost.worlds import kinds as home
from isocost.worlds import spec
from isocost.worlds.setting import PARTS, Setting, open_setting, setting_names
from isocost.worlds.spec import kinds, spec_of

HOME = Path(isocost.__file__).parent
# Modules of a kind beside its file: its engine and its wire.
OWNED = {
    "openai": ("worlds/endpoint", "worlds/protocol"), "vllm": ("worlds/vllm",),
    "tinker": ("worlds/tinker", "worlds/service", "worlds/conventions"),
}
# Other uses of the word: tinker-cookbook's logs, the checks of a service, and an option of earlier versions.
OTHERS = {("trainers", "tinker"), ("doctor/service", "tinker"), ("cli/checks", "tinker")}
NEW = '''
"""Letters that are written by rule."""

from dataclasses import dataclass
from isocost.can import Can
from isocost.worlds.spec import Kind, Options, option


@dataclass(frozen=True)
class LetterOptions(Options):
    strength: int = option(int, 3, "how strongly letters are written", metavar="K", above=0)


def open_world(spec, opening):
    from isocost.worlds import toy

    world = toy.world()
    world.extra["strength"] = opening.options.strength
    return world


KIND = Kind(open_world, LetterOptions, {Can.SIZE: "{model} has no size"}, example="http://there#a", named="letters:...")
'''


@pytest.fixture
def letters(tmp_path, monkeypatch):
    """One more kind, written as a file."""
    (tmp_path / "letters.py").write_text(NEW)
    monkeypatch.setattr(home, "__path__", [*home.__path__, str(tmp_path)])
    found = (spec.kinds, spec.here, spec.options)
    for each in found:
        each.cache_clear()
    yield
    for each in found:
        each.cache_clear()


def test_a_file_is_all_that_a_kind_takes(letters):
    setting = setting_with(model="letters:http://there#a", data="sums:base=easy,count=60", strength=5)
    record = setting.to_dict()
    assert record["strength"] == 5 and not {"kernels", "witness", "lora"} & record.keys()
    assert Setting.of(record) == setting and setting.but(strength=4).world.strength == 4
    shape = schema.SETTING.needing()
    shape.more |= schema._of_kinds()
    assert not flaw(record, shape) and "at least 1" in flaw({**record, "strength": 0}, shape)
    about = spec.options()["strength"]
    added = cli_options._of_kind("strength", about.metadata, about.default)(click.Command("x")).params[0]
    assert (added.opts, added.default, added.metavar) == (["--strength"], 3, "K")
    world = open_setting(setting).world
    assert world.extra["strength"] == 5
    with pytest.raises(UserError, match="letters:http://there#a has no size"):
        spec_of(setting.model).require(Can.SIZE)
    with pytest.raises(UserError, match="--strength is not an option of tiny, but of letters:"):
        setting_with(strength=5)


def named(source, names):
    """(line, kind) of each kind that a module names: an import of its files, or its name as a text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant):
            yield from ((node.lineno, k) for k in names if node.value == k)
        elif isinstance(node, ast.ImportFrom):
            there = {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
            files = {k: {f"worlds/kinds/{k}", *OWNED.get(k, ())} for k in names}
            yield from ((node.lineno, k) for k, own in files.items()
                        if there & {f"isocost.{m.replace('/', '.')}" for m in own})


def test_nothing_but_its_own_files_names_a_kind():
    """Messages may show how a model is written. The kind of this machine is no word of its own: rooms have its name."""
    offenders = []
    for path in sorted(HOME.rglob("*.py")):
        module = str(path.relative_to(HOME).with_suffix(""))
        for line, kind in named(path.read_text(encoding="utf-8"), kinds().keys() - {spec.here()}):
            own = module.startswith("worlds/kinds/") or module in OWNED.get(kind, ())     # one may build on another
            if not own and (module.partition("/")[0], kind) not in OTHERS and (module, kind) not in OTHERS:
                offenders.append(f"{module}:{line} names {kind}")
    assert offenders == []


def test_a_kind_that_is_named_is_found():
    planted = 'from isocost.worlds import vllm\nif kind == "openai":\n    import os\n'
    assert sorted(named(planted, kinds())) == [(1, "vllm"), (2, "openai")]


def test_the_fields_of_a_settings_parts_have_names_of_their_own():
    """A record has them side by side."""
    own = [f.name for part in PARTS.values() for f in fields(part)]
    assert len(own) == len(set(own)) == len({*own} - spec.options().keys())
    assert setting_names() == {"model", *own, *spec.options()}
    shared = [f for kind in kinds().values() for f in fields(kind.options)]
    assert all(f.default == spec.options()[f.name].default for f in shared)


def test_a_record_of_an_earlier_version_has_options_of_all_kinds():
    old = {"model": "openai:http://localhost:8000/v1#m", "data": "sums", "kernels": "torch", "lora": None,
           "in_turns": False, "witness": None, "threads": 2}
    assert Setting.of(old).to_dict() == Setting.of(model=old["model"], data="sums", threads=2).to_dict()
    assert Setting.of({**old, "model": "tiny"}).world.kernels == "torch"
    with pytest.raises(TypeError, match="'kernel' is not a field of a setting"):
        Setting.of(kernel="torch")


def test_what_lacks_a_capability_says_what_to_do():
    """Each source and each kind of model, for every capability that a step requires of it."""
    holders: list[Able] = [*kinds().values(), OWN, IMPORTED, DRIVEN, SERVED, STORED]
    assert all(holder.why(can) for holder in holders for can in holder.lacks)
    assert {c for c in Can if c.of == "learner"} == LEARNER and all(c.remedy for c in LEARNER)
    names = [c.name for c in Can]
    assert len(names) == len(Can.__members__) == len({c.meaning for c in Can})


def test_options_of_kinds_are_read_without_their_engines():
    """`--help` imports every kind's file, and none of what computes."""
    code = "import sys, isocost.cli.commands; print({'numpy', 'torch', 'httpx2'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
