"""Trained policies that a study of strategies compares with its own model: finished runs, grouped by what they trained.

Runs that differ in their seed only are one policy, whose accuracy is the mean over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.can import Can
from isocost.disk.jsonfile import fit
from isocost.errors import UserError
from isocost.planner.test_time.policies import BASE, PolicyCost
from isocost.runs import source
from isocost.runs.files import canonical, find_runs, read_json
from isocost.runs.schema import ENDED, TRAINED, Costs
from isocost.screen.words import counted, word
from isocost.tasks import text
from isocost.types import Problem
from isocost.worlds.setting import Setting, open_problems


@dataclass(frozen=True)
class Checkpoint:
    """The final policy of a run. `name` is that of the run's folder, and `policy` that of all runs of its kind."""

    name: str
    policy: str
    model: str
    setting: Setting
    training: Costs
    parameters: float
    learned: float

    def data(self) -> dict[str, str]:
        """Of it, in study.json."""
        return {"name": self.name, "policy": self.policy, "model": self.model}


def checkpoints(folders: Sequence[Path]) -> list[Checkpoint]:
    """The finished runs in these folders, which are runs, or studies of training with all of their trained runs.

    Raises UserError for a folder without a final policy, for a run that is no run of isocost, for two runs of one
    name, and for one that is named as the study's own model.
    """
    found: dict[Path, dict[str, Any]] = {}
    for folder in folders:
        ended = [run for run in find_runs(folder) if (run / "final").is_dir()]
        if not ended:
            raise UserError(f"--checkpoints {folder}: no run there has a final policy. Name runs that have ended, such "
                            "as runs/grpo-0 of `isocost train grpo`, or a study whose prescription was trained")
        for run in ended:
            record = read_json(run / "run.json")
            source.of(record).require(Can.EVALUATE, run)
            fit(run / "run.json", record, TRAINED)
            found[run] = record
    names = [run.name for run in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--checkpoints: two runs are named {twice}, which names their samples; rename a folder")
    kinds: dict[str, list[str]] = {}
    for run, record in found.items():
        kinds.setdefault(_kind(record), []).append(run.name)
    policies = {kind: _common(own) for kind, own in kinds.items()}
    if len(set(policies.values())) < len(policies):
        policies = {kind: own[0] for kind, own in kinds.items()}
    if BASE in policies.values():
        raise UserError(f"--checkpoints: a run is named {BASE}, as the study's own model is; rename its folder")
    return [_of(run, record, policies[_kind(record)]) for run, record in found.items()]


def _of(run: Path, record: dict[str, Any], policy: str) -> Checkpoint:
    end, model = read_json(run / "end.json", ENDED), record.get("model") or {}
    return Checkpoint(run.name, policy, str(run / "final"), Setting.of(record["job"]["setting"]),
                      Costs(**end["bill"]["train"]), model.get("parameters") or 0.0, model.get("learned") or 0.0)


def _kind(record: dict[str, Any]) -> str:
    """What a run is but for its seed."""
    job = record["job"]
    return str(canonical({**{k: job.get(k) for k in ("method", "arm", "budget", "sets", "setting")},
                          "recipe": record["recipe"]}))


def _common(names: Sequence[str]) -> str:
    """The name of a policy by those of its runs: what they have in common but for a last number."""
    stems = {name.rstrip("0123456789").rstrip("-_=.") for name in names}
    return (stems.pop() if len(names) > 1 and len(stems) == 1 else "") or names[0]


def refuse_trained_on(found: Sequence[Checkpoint], problems: Sequence[Problem]) -> None:
    """Raises UserError where a checkpoint was trained on some of these problems."""
    seen: dict[Any, frozenset[str]] = {}
    for c in found:
        own = c.setting.problems
        if own not in seen:
            seen[own] = frozenset(map(text.kin, open_problems(c.setting)[1].train))
        if known := [p for p in problems if text.kin(p) in seen[own]]:
            raise UserError(
                f"{counted(len(known), 'problem')} of the {len(problems)} that are sampled trained {c.name}, such as "
                f"{known[0].id!r}, so it would seem better than it is: give the --data and --held-out of its run, "
                f"--data {word(own.data)} --held-out {own.held_out:g}")


def policy_costs(found: Sequence[Checkpoint], rates: dict[str, float], parameters: float) -> list[PolicyCost]:
    """The study's own model, and each policy with the mean cost of its runs; `rates` are seconds per token by run."""
    def mean(own: Sequence[Checkpoint]) -> Costs:
        return Costs(**{k: sum(getattr(c.training, k) for c in own) / len(own) for k in vars(own[0].training)})

    by: dict[str, list[Checkpoint]] = {}
    for c in found:
        by.setdefault(c.policy, []).append(c)
    return [PolicyCost("", (), Costs(), parameters, 0.0, rates[""]), *(
        PolicyCost(name, tuple(c.name for c in own), mean(own), own[0].parameters, own[0].learned,
                   sum(rates[c.name] for c in own) / len(own)) for name, own in by.items())]
