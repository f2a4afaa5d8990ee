"""The arguments of a comparison of methods, checked, and whether its arms are methods or folders of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from isocost import methods as catalogue
from isocost.compare.design import Conditions, arm_of, arm_recipe, labels_of
from isocost.errors import UserError
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.job import Job, recipe_of
from isocost.seams import Recipe
from isocost.steps.settings import setting_with
from isocost.steps.training.single import settings_of
from isocost.worlds.setting import Setting

LONG = 80               # characters of a folder's name, above which it holds the number of arms instead of their names
TRIED = 1e-3            # learning rate of the steps tried in the toy world; any value distinguishes arms
TWO = "expected at least two methods, such as `isocost compare grpo dapo`, or two folders of runs"


def are_on_disk(arms: Sequence[str]) -> bool:
    """Whether the arms of a comparison are folders or files that are read, rather than methods. Raises UserError for a
    mixture of both, or fewer than two arms on disk."""
    there = [Path(a).exists() and not a.endswith(".py") and ("/" in a or a not in catalogue.names()) for a in arms]
    if all(there) and len(arms) < 2:
        raise UserError(TWO)
    if any(there) and not all(there):
        one, other = arms[there.index(True)], arms[there.index(False)]
        known = other in catalogue.names() or other.endswith(".py")
        what = "a method: all arms must be of one kind" if known else "neither a folder nor a method"
        kind = "a folder of runs" if Path(one).is_dir() else "a file"
        raise UserError(f"{one} is {kind} and {other} is {what}")
    return all(there)


def with_parents(arms: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arms, with missing parents put first, and the parent of each arm given. Raises UserError for a method without
    a parent."""
    parents: dict[str, str] = {}
    for arm in arms:
        parent = catalogue.load(catalogue.parted(arm)[0]).CARD.parent
        if parent is None:
            raise UserError(f"{arm} has no parent to compare it with: leave it out; its children add it")
        parents[arm] = parent
    lacking = [p for p in dict.fromkeys(parents.values()) if p not in arms]
    return (*lacking, *arms), parents


@dataclass(frozen=True)
class Terms:
    """The arguments of a comparison of methods, checked: see `compare_methods`. `arms` are the methods with missing
    parents put first, and `parents` the parent of each method that is judged against it."""

    arms: tuple[str, ...]
    parents: Mapping[str, str]
    setting: Setting
    own_sizes: bool
    sets: Mapping[str, str]
    common: Conditions

    @staticmethod
    def of(methods: Sequence[str], *, own_sizes: bool = False, sets: Sequence[str] = (), to_parents: bool = False,
           **options: Any) -> Terms:
        """`options` are those of `Conditions` and of a setting. Raises UserError for those that do not fit."""
        if len(methods) < 2 and not to_parents:
            raise UserError(TWO)
        if own_sizes and (options.get("rollouts") or options.get("groups")):
            raise UserError("--own-sizes gives every arm its method's own n and B: leave -n and -B out, or give one "
                            "arm its sizes, such as mcgrpo@rollouts=9, without --own-sizes")
        common = Conditions(**{f.name: options.pop(f.name) for f in fields(Conditions) if f.name in options})
        arms, parents = with_parents(methods) if to_parents else (tuple(methods), {})
        return Terms(arms, parents, setting_with(**options), own_sizes, settings_of(sets), common)

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments as study.json records them."""
        c = self.common
        return {"seed": c.seed, "method": " ".join(self.arms), "budget": c.budget, "seeds": c.seeds,
                "n": int(c.arm["n"]), "B": int(c.arm["B"]), "lr": c.lr, "evaluations": c.evaluations,
                "margin": c.margin, "metric": c.metric, "to_parents": bool(self.parents), "sets": self.sets,
                "own_sizes": self.own_sizes}

    @property
    def folder(self) -> Path:
        """Where a comparison is kept unless a folder is given."""
        name = "-".join(labels_of(self.arms))
        return Path("comparisons") / (f"to-parents-{len(self.arms)}-arms" if len(name) > LONG else name)

    def recipes(self) -> dict[str, Recipe]:
        """The recipe of every arm, with one learning rate for all. Raises UserError for a method or setting that does
        not exist or does not fit, and for two equal recipes."""
        made = {}
        for arm in self.arms:
            method, own = arm_of(arm, self.sets)
            recipe = arm_recipe(method, own, {} if self.own_sizes else self.common.arm)
            job = Job(arm, self.setting, method, 0, {}, Arm(n=recipe.rollouts, B=recipe.groups, lr=TRIED), sets=own)
            made[arm] = recipe_of(job)
        _check_differ({arm: describe(recipe) for arm, recipe in made.items()})
        return made


def _check_differ(recipes: Mapping[str, Any]) -> None:
    """Raises UserError if two recipes are equal: comparing them would measure noise only."""
    first: dict[str, str] = {}
    for label, recipe in recipes.items():
        same = first.setdefault(records.canonical(recipe), label)
        if same != label:
            raise UserError(f"{same} and {label} are the same recipe: there is nothing to compare")
