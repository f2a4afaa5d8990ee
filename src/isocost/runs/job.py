"""A job: what one run is, as plain data, and the recipe that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from isocost.contract.conflicts import refuse
from isocost.disk.jsonfile import write_json
from isocost.recipe import describe, functions, paced
from isocost.runs import schema
from isocost.runs.arm import OLD, Arm
from isocost.runs.files import GO_ON, STOPPED, read_json
from isocost.runs.stop_at import StopAt, go_on
from isocost.seams import Recipe
from isocost.worlds.setting import Setting
from isocost.worlds.spec import spec_of

PLANNED = ("n", "B", "lr", "warmup", "max_tokens", "temperature", "top_p", "top_k")  # by a study, for any method


@dataclass(frozen=True)
class Job:
    """One run, as plain data: everything that a worker process needs."""

    name: str
    setting: Setting
    method: str
    seed: int
    budget: Mapping[str, float]  # unit -> amount, of the training account: C
    arm: Arm    # n, B and lr; `warmup` in steps; `multiplier` of the rule's learning rate; `turns`, of training alone
    points: tuple[float, ...] = ()  # rollouts at which to evaluate, besides the start and the end
    sets: Mapping[str, str] = field(default_factory=dict)
    purpose: str = "run"
    keep: int = 0  # groups of every update that are kept as text, at least; see `isocost.runs.samples`
    seal: str | None = None
    save_every: int = 0  # steps; 0 saves at evaluations only, those of the first second of work left out
    save_seconds: float = 0.0  # since the last checkpoint, after which the next step is followed by one; 0: no limit
    export: bool = False  # write the final policy as a Hugging Face folder
    stop_at: StopAt | None = None   # an amount at which it is stopped; no part of what the run is
    checkpoints: int = 2    # the last of its checkpoints that are kept, at least two

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Job:
        """The job of plain data, of this or an earlier format."""
        own = {k: v for k, v in data.items() if k not in OLD}
        if own.get("stop_at"):
            own["stop_at"] = StopAt.of(own["stop_at"])
        return cls(**{**own, "arm": Arm.of(data), "setting": Setting.of(data["setting"]),
                      "points": tuple(data["points"])})

    def to_dict(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in fields(self)} | {"setting": self.setting.to_dict()}
        at = out.pop("stop_at")
        if self.checkpoints == Job.checkpoints:
            del out["checkpoints"]
        return out if at is None else out | {"stop_at": at.data()}

    @property
    def turns(self) -> int:
        """The turn limit of training; evaluations always have the setting's."""
        return int(self.arm.get("turns", self.setting.lengths.max_turns))


def recipe_of(job: Job) -> Recipe:
    """The method's recipe at this job's sizes, then the user's settings. Raises UserError for unknown or conflicting
    ones."""
    from isocost import methods

    s = job.setting
    recipe = methods.recipe(job.method, groups=job.arm["B"], rollouts=job.arm["n"])
    planned = {"lr": job.arm["lr"], "warmup": job.arm.get("warmup", 0)}
    planned |= {"max_tokens": s.lengths.max_tokens, **s.sampling.trained}
    if s.problems.env:
        planned["max_turns"] = job.turns
    recipe = methods.tuned(paced(recipe, **planned), job.sets)
    model = spec_of(s.model)
    refuse(recipe, verifier=s.marks, turns=job.turns, can=model.of.learner, where=str(model))
    return recipe


def arm_of(job: Job, recipe: Recipe) -> Arm:
    """The arm that is trained and recorded: a method's settings may give it another n and B than was planned."""
    return Arm({"multiplier": 1.0, "warmup": 0, **job.arm, "n": recipe.rollouts, "B": recipe.groups})


def method_defaults(method: str, used: Mapping[str, Any]) -> str:
    """Which of a method file's sizes and pace settings a run uses, and which it overrides; empty if it has none."""
    from isocost import methods

    recipes = (methods.recipe(name) for name in (method, "reinforce"))
    own, root = ({"n": r.rollouts, "B": r.groups, **describe(r.pace)} for r in recipes)
    named = {k: own[k] for k in PLANNED if k in own and k in used and own[k] != root.get(k)}
    kept = ", ".join(f"{k} = {_short(v)}" for k, v in named.items() if v == used[k])
    others = ", ".join(f"{k} = {_short(used[k])} (default {_short(v)})" for k, v in named.items() if v != used[k])
    return "; ".join(filter(None, (kept and f"method defaults: {kept}", others and f"overridden here: {others}")))


def _short(x: Any) -> str:
    return f"{x:.2g}" if isinstance(x, float) else str(x)


def compares(recipe: Recipe) -> bool:
    """Whether it may need the policy before training: an `enrich` declares it, or is from outside the package."""
    return any("reference" in used.declared.gives or used.foreign for used in functions(recipe.enrich))


def reopen(out: Path, job: Job) -> bool:
    """Raise the budget of the run in `out`, stopped or not, to this job's if that is larger; returns whether it was."""
    go_on(out, job.stop_at)
    if not (out / "run.json").exists():
        return False
    there = read_json(out / "run.json", schema.TRAINED)
    if there["budget"].keys() != job.budget.keys() or all(job.budget[k] <= v for k, v in there["budget"].items()):
        return False
    end = out / "end.json"
    if end.exists() and read_json(end)["reason"] not in ("spent", STOPPED, *GO_ON):
        return False
    end.unlink(missing_ok=True)     # first: after a crash here the run is unfinished, not ended with a larger budget
    job_now = {**there["job"], "budget": dict(job.budget), "points": list(job.points)}
    write_json(out / "run.json", {**there, "budget": dict(job.budget), "job": job_now})
    return True
