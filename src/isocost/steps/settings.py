"""Settings from options, with the defaults that depend on model, problems and machine."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from isocost import methods
from isocost.contract.conflicts import refuse
from isocost.envs.opening import EnvironmentSet, open_environment
from isocost.errors import UserError
from isocost.local.embedded import EMBEDDED
from isocost.planner.training.builtin import WORLDS
from isocost.recipe import paced
from isocost.seams import Recipe
from isocost.tasks.builtin import families
from isocost.tasks.mix import parts
from isocost.worlds.setting import Setting, setting_names
from isocost.worlds.spec import refuse_options, spec_of

SMALL = 20_000_000  # bytes of weights below which one thread per run is the fastest use of the cores


DERIVED = ("threads", "max_tokens", "max_turns")    # of which the defaults depend on the others


def option_names() -> list[str]:
    """The fields of a setting that are options."""
    return sorted(setting_names() - {"evaluated", "effort"})


def setting_of(asked: Mapping[str, Any]) -> Setting:
    """The setting of these options, with the defaults of `Setting` for what they leave out.

    The model defaults to the one that was taught the data's family, or the environment. Threads default to one for
    small models, else to every core; `max_tokens` to what the built-in problems or the environment need, else to 64;
    `max_turns` to the environment's. Options that are none of a setting are not read.

    Raises UserError for an environment that does not exist, one without problems if no data is given, and for `data` or
    `max_turns` that have no use.
    """
    given = {k: asked[k] for k in option_names() if k not in DERIVED and asked.get(k) is not None}
    environment = _environment(asked)
    if environment is not None and environment.problems is not None:
        given["data"] = environment.spec
    chosen = Setting.of(given)
    if asked.get("model"):
        model = str(spec_of(chosen.model))
    elif environment is not None and environment.model:
        model = environment.model
    else:
        model = families.model_for([part.spec for part in parts(chosen.problems.data)])
    chosen = Setting.of(given, model=model)     # with the options of this model's kind
    refuse_options(chosen.model, asked)
    tokens = environment.max_tokens if environment else answer_room(chosen.problems.data)
    return chosen.but(
        max_tokens=asked.get("max_tokens") or tokens,
        max_turns=asked.get("max_turns") or (environment.max_turns if environment else 0),
        threads=asked.get("threads") or (1 if is_small(chosen.model) else os.cpu_count() or 1),
    )


def _environment(asked: Mapping[str, Any]) -> EnvironmentSet | None:
    """The environment of these options, checked against the others; None without one."""
    if not asked.get("env"):
        if asked.get("max_turns"):
            raise UserError(f"--max-turns {asked['max_turns']} needs an environment that answers turns: name it with "
                            "--env (`isocost envs` lists those that ship)")
        return None
    found = open_environment(asked["env"])
    if found.problems is None and not asked.get("data"):
        raise UserError(f"the environment {asked['env']} lists no problems: name them with --data")
    if found.problems is not None and (asked.get("data") or asked.get("held_out_data")):
        option = "--data" if asked.get("data") else "--held-out-data"
        raise UserError(f"the environment {asked['env']} has its own problems: leave out {option}")
    return found


def of_world(world: str | None, given: Mapping[str, Any], written: Collection[str] = ()) -> dict[str, Any]:
    """The options with those of a built-in world, and the `size` of its study where none is given.

    `written` are the names of the options that the user wrote: these hold in place of how the world is evaluated.

    Raises UserError for an unknown world, and where both a world and its options are given.
    """
    if world is None:
        return dict(given)
    if world not in WORLDS:
        raise UserError(f"there is no world {world!r}; there are {', '.join(WORLDS)}")
    if there := [k for k in ("data", "env", "model") if given.get(k)]:
        raise UserError(f"--world {world} names the model and the problems: leave out --{there[0]}")
    row = WORLDS[world]
    evaluated = {k: v for k, v in row.evaluated.items() if k not in written}
    size = given.get("size") or (world if row.preset else None)
    return {**given, **row.options, **evaluated, "size": size}


def kind_of_world(world: str | None) -> str:
    """The kind of the study of a built-in world; of one's own, training."""
    return WORLDS[world].kind if world else "training"


def setting_with(**options: Any) -> Setting:
    """The setting of these options, by their names, with the defaults of `setting_of`.

    Raises:
        UserError: for an unknown name.
    """
    if unknown := [k for k in options if k not in option_names()]:
        raise UserError(f"{unknown[0]!r} is not a setting; settings are {', '.join(option_names())}")
    return setting_of(options)


SET_BY = {      # settings of a method that a study decides: what sets them there
    "rollouts": "the pilot varies n, and `isocost pilot STUDY --seeds N=K` adds another n",
    "groups": "set B with `isocost plan STUDY --groups`",
    "pace.lr": "set it with `isocost plan STUDY --lr`",
    "pace.warmup": "the plan sets warm-up, at most 5 % of a run's updates",
    "pace.max_tokens": "set it with --max-tokens",
    "pace.temperature": "set it with --temperature",
    "pace.top_p": "set it with --top-p",
    "pace.top_k": "set it with --top-k",
}


def method_of(name: str, setting: Setting) -> Recipe:
    """The recipe of a study's METHOD or METHOD@SETTINGS, checked before anything is paid for.

    Raises UserError for an unknown method, for one that makes no recipe or combines what conflicts, for a file whose
    steps do not run in the toy world, and for a setting that would be overridden: n, B, learning rate, warm-up and
    sampling are the study's.
    """
    method, settings = methods.parted(name)
    for pair in settings.split(",") if settings else ():
        if why := SET_BY.get(pair.partition("=")[0]):
            raise UserError(f"--method {name}: a study does not use {pair}: {why}. Remove it from --method")
    recipe = methods.recipe(name)
    model = spec_of(setting.model)
    sampled = setting.sampling.trained     # in place of the method's own
    refuse(paced(recipe, **sampled), verifier=setting.marks, turns=setting.lengths.max_turns, can=model.of.learner,
           where=str(model))
    if method not in methods.shipped():
        from isocost.contract.check import tried

        tried(name, recipe)
    return recipe


def is_small(model: str) -> bool:
    """Whether one thread per run is the fastest use of the cores."""
    folder = Path(model)
    return model in (*EMBEDDED, *(f.model for f in families.FAMILIES.values())) or (
        folder.is_dir() and sum(f.stat().st_size for f in folder.glob("*.safetensors")) < SMALL
    )


def answer_room(data: str) -> int:
    """The default of `max_tokens`: what the families of built-in problems name, else 64."""
    rooms = [family.tokens(part.spec) if (family := families.named(part.spec)) else 0 for part in parts(data)]
    return max(rooms) if all(rooms) else 64


def workers_of(setting: Setting, asked: int | None) -> int:
    """Runs side by side: the requested number, else as many as the cores have room for."""
    return asked or max(1, (os.cpu_count() or 1) // setting.machine.threads)
