"""The sandbox and the adapters of other libraries, by the first word of their spec; `opening` finds those of `tiny`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from isocost.envs import own_random
from isocost.envs.adapters import gym, mcp, miniwob, openenv, seeded, textarena, textworld, user_tools
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.harness import kinds as harness_kinds
from isocost.envs.harness import library as harness_library
from isocost.envs.sandbox import python
from isocost.envs.user_file import load_class
from isocost.errors import UserError


def _python(spec: str) -> EnvironmentSet:
    which = python.Python.of(spec)
    sandbox = python.opened(which)         # a machine without one is an error now, not at the first episode
    return EnvironmentSet(spec, partial(python.Programs, which=which), None, "", 6, 512,
                          machine={"sandbox": sandbox.record()})


def _tools(spec: str) -> EnvironmentSet:
    where, hash, said = spec.partition(":")[2].partition("#")
    path, colon, name = where.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise UserError(f"environment {spec!r} names no class: write tools:my_env.py:Class")
    count, seed = seeded.count_and_seed("tools", said)
    own_random.install()
    made, source = load_class(path, name)
    if not callable(getattr(made, "reset", None)):
        raise UserError(f"{spec} has no method reset: a class for TRL's environment_factory has one")
    verifier = "environment" if callable(getattr(made, "get_reward", None)) else ""
    listed = partial(user_tools.owned, name, count, seed) if hash else None
    return EnvironmentSet(spec, partial(user_tools.UserTools, made=made), listed, verifier, 16, 256, source=source)


def _mcp(spec: str) -> EnvironmentSet:
    command = spec.partition(":")[2].strip()
    if not command:
        raise UserError(f'{spec!r} names no command: write "mcp:python my_server.py"')
    seeded.words_of(command)
    return EnvironmentSet(spec, partial(mcp.McpTools, command=command), None, "", 8, 256)


REAL: Mapping[str, EnvironmentKind] = {
    "python": EnvironmentKind("a Python tool in a sandbox, for problems of --data", asdict(python.Python()), _python,
                              needs="Linux 5.13 with Landlock and seccomp"),
    "tools": EnvironmentKind("a class for TRL's environment_factory, for problems of --data or its own", {}, _tools,
                             "tools:my_env.py:Class, or tools:my_env.py:Class#count=500 if reset makes the task"),
    "mcp": EnvironmentKind("the tools of an MCP server, for problems of --data", {}, _mcp, "mcp:COMMAND"),
    "gym": EnvironmentKind("an environment of Gymnasium in words; minigrid and BabyAI have theirs",
                           {"count": 500, "seed": 0}, gym.open_gym, "gym:ID@words.py,key=value,...",
                           "gymnasium, minigrid"),
    "miniwob": EnvironmentKind("a task of MiniWoB++ in a browser", {"count": 500, "seed": 0}, miniwob.open_miniwob,
                               "miniwob:TASK,key=value,...", "miniwob, chromium"),
    "textarena": EnvironmentKind("a game for one player of TextArena", {"count": 500, "seed": 0}, textarena.open_game,
                                 "textarena:GAME,key=value,...", "textarena"),
    "textworld": EnvironmentKind("a text adventure of TextWorld, from a file or made", asdict(textworld.Made()),
                                 textworld.open_textworld, "textworld:FILE or textworld:key=value,...", "textworld"),
    "openenv": EnvironmentKind("an environment of an OpenEnv server", {"count": 500, "seed": 0}, openenv.open_openenv,
                               "openenv:URL#key=value,...", "websockets"),
    "harness": EnvironmentKind("a harness that drives: a function that calls a model's address", {},
                               harness_kinds.open_harness, f"harness:FILE.py#{harness_kinds.FORM}",
                               "starlette, uvicorn"),
    "cmd": EnvironmentKind("a harness that is a command, for problems of --data", {}, harness_kinds.open_command,
                           f"cmd:COMMAND #{harness_kinds.FORM}", "starlette, uvicorn"),
    "verifiers": EnvironmentKind("an environment of verifiers with its harness", {}, harness_library.open_verifiers,
                                 "verifiers:TASKSET#python=PYTHON,KEY=VALUE", "verifiers>=0.4, in PYTHON"),
    "inspect": EnvironmentKind("a task of inspect-ai with its solver and scorer", {}, harness_library.open_inspect,
                               "inspect:FILE.py@TASK#python=PYTHON,ARGUMENT=VALUE", "inspect-ai, in PYTHON"),
}
