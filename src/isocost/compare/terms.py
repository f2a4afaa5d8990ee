"""The arguments of a comparison of methods, checked, and whether its arms are methods or folders of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost import methods as catalogue
from isocost.compare.design import arm_of, arm_recipe, labels_of
from isocost.compare.judge import MARGIN
from isocost.compare.parents import with_parents
from isocost.errors import UserError
from isocost.laws.curves import PASS
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
    """Whether the arms of a comparison are folders or files that are read, rather than methods.

    Raises:
        UserError: for a mixture of both, or fewer than two arms on disk.
    """
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


@dataclass(frozen=True)
class Terms:
    """The arguments of a comparison of methods, checked: see `compare_methods`.

    `arms` are the methods with missing parents put first, and `parents` the parent of each method that is judged
    against it. `rollouts` is n, `groups` is B.
    """

    arms: tuple[str, ...]
    parents: Mapping[str, str]
    setting: Setting
    budget: str
    seeds: int
    rollouts: int
    groups: int
    own_sizes: bool
    lr: float | None
    evaluations: int
    margin: float
    metric: str
    sets: Mapping[str, str]
    seed: int

    @property
    def size(self) -> Arm:
        """n and B of all arms; empty if each has those of its method."""
        return Arm() if self.own_sizes else Arm(n=self.rollouts, B=self.groups)

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments as study.json records them."""
        return {"seed": self.seed, "method": " ".join(self.arms), "budget": self.budget, "seeds": self.seeds,
                "n": self.rollouts, "B": self.groups, "lr": self.lr, "evaluations": self.evaluations,
                "margin": self.margin, "metric": self.metric, "to_parents": bool(self.parents), "sets": self.sets,
                "own_sizes": self.own_sizes}

    @property
    def folder(self) -> Path:
        """Where a comparison is kept unless a folder is given."""
        name = "-".join(labels_of(self.arms))
        return Path("comparisons") / (f"to-parents-{len(self.arms)}-arms" if len(name) > LONG else name)

    def recipes(self) -> dict[str, Recipe]:
        """The recipe of every arm, with one learning rate for all.

        Raises:
            UserError: for a method or setting that does not exist or does not fit, and for two equal recipes.
        """
        made = {}
        for arm in self.arms:
            method, own = arm_of(arm, self.sets)
            recipe = arm_recipe(method, own, self.size)
            job = Job(arm, self.setting, method, 0, {}, Arm(n=recipe.rollouts, B=recipe.groups, lr=TRIED), sets=own)
            made[arm] = recipe_of(job)
        _check_differ({arm: describe(recipe) for arm, recipe in made.items()})
        return made


def terms_of(methods: Sequence[str], *, budget: str | None, seeds: int = 5, rollouts: int | None = None,
           groups: int | None = None, own_sizes: bool = False, lr: float | None = None, evaluations: int = 8,
           margin: float = MARGIN, metric: str = PASS, sets: Sequence[str] = (), seed: int = 0,
           to_parents: bool = False, **setting: Any) -> Terms:
    """The arguments of `compare_methods`, checked. Raises UserError for those that do not fit."""
    if len(methods) < 2 and not to_parents:
        raise UserError(TWO)
    if own_sizes and (rollouts or groups):
        raise UserError("--own-sizes gives every arm its method's own n and B: leave -n and -B out, or give one arm "
                        "its sizes, such as mcgrpo@rollouts=9, without --own-sizes")
    if budget is None:
        raise UserError("comparing methods trains them and needs a --budget for the whole comparison, such as "
                        "200k-rollouts")
    arms, parents = with_parents(methods) if to_parents else (tuple(methods), {})
    return Terms(arms, parents, setting_with(**setting), budget, seeds, rollouts or Recipe.rollouts,
                 groups or Recipe.groups, own_sizes, lr, evaluations, margin, metric, settings_of(sets), seed)


def _check_differ(recipes: Mapping[str, Any]) -> None:
    """Raises UserError if two recipes are equal: comparing them would measure noise only."""
    first: dict[str, str] = {}
    for label, recipe in recipes.items():
        same = first.setdefault(records.canonical(recipe), label)
        if same != label:
            raise UserError(f"{same} and {label} are the same recipe: there is nothing to compare")
