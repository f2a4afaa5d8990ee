"""One run: a job turned into a record. `isocost.runs.driver` drives it, `isocost.runs.policy` is what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from isocost import methods
from isocost.errors import UserError
from isocost.recipe import describe, fingerprint
from isocost.runs import rules, schema
from isocost.runs.driver import Clocks, Driver
from isocost.runs.files import ended, fit, read_json
from isocost.runs.job import Job, compares, recipe_of
from isocost.runs.names import today
from isocost.runs.policy import PolicyRun
from isocost.runs.record import RunRecord
from isocost.runs.source import RunLog
from isocost.runs.stop_at import go_on
from isocost.screen.words import grouped
from isocost.seams import Recipe
from isocost.worlds.setting import Opened, open_setting
from isocost.worlds.spec import may_differ

LATER = {"env": "", "max_turns": 0, "truth": None}      # settings that some records lack, at what they were then
SHORT = 60      # characters of a value that a message shows, at most


async def run(
    job: Job, out: Path, *, opened: Opened | None = None, attempt: int | None = None,
    on_step: Callable[[Mapping[str, Any]], None] = lambda line: None,
) -> dict[str, Any]:
    """Run a job in `out`, or resume it there. Returns the contents of end.json.

    `attempt` is the number of this one, if a launcher starts the run more than once (`isocost.runs.attempts`).

    On the same machine and threads, a killed and resumed run has the same metrics, journal, samples and weights, byte
    for byte, as an uninterrupted one.
    """
    recipe, opening = recipe_of(job), Clocks.now()
    with RunRecord.opened(out, attempt, job.checkpoints) as record:
        _refuse_another(out, job, recipe)
        go_on(out, job.stop_at)
        if ended(out):
            return read_json(out / "end.json")
        opened = opened or open_setting(job.setting, reference=compares(recipe))
        try:
            learner = opened.world.learner
            policy = PolicyRun(job, recipe, opened, record)
            policy.refuse_changed()
            return await Driver(
                policy, record, points=job.points, save_every=job.save_every, save_seconds=job.save_seconds,
                on_step=on_step, stop_at=job.stop_at and job.stop_at.sized(learner.parameters, learner.learned),
                opening=opening,
            ).go()
        except Exception as error:
            file = methods.load(job.method).__file__
            ours = Path(methods.__file__).parent in Path(file).parents
            if ours or isinstance(error, UserError) or not methods.raised_in(error, file):
                raise
            raise UserError(
                f"{job.method} raised an error in {out}: {methods.told(error, file)}. What was recorded before it is "
                "kept. Correct the file and train into another folder: a changed method is another run"
            ) from error
        finally:
            opened.close()


def _refuse_another(out: Path, job: Job, recipe: Recipe) -> None:
    """Raises UserError, naming what differs, if the run in `out` has other settings, but for how it is computed."""
    if not (out / "run.json").exists():
        return
    there = read_json(out / "run.json")
    if RunLog.of(there) is not None:
        raise UserError(f"{out} holds a run that was imported; choose another --out")
    fit(out / "run.json", there, schema.TRAINED)
    rules.refuse_other(out, there["recipe"], there.get("code"), there.get("problems"))
    old, new = there["job"]["setting"], {**LATER, **job.setting.to_dict()}
    left, right = today(there["recipe"]), describe(recipe)
    differs = [k for k, v in right.items() if fingerprint(left.get(k)) != fingerprint(v)]
    changed = {f"recipe's {k}": (left.get(k), right[k]) for k in differs}
    if there["budget"] != dict(job.budget):
        changed["budget"] = _amounts(there["budget"]), _amounts(job.budget)
    if there["seed"] != job.seed:
        changed["seed"] = there["seed"], job.seed
    old = {**LATER, **old}
    changed |= {k: (old.get(k), v) for k, v in new.items() if k not in may_differ() and old.get(k) != v}
    if changed:
        verb = "differs" if len(changed) == 1 else "differ"
        both = [f"{k} {a} there, {b} here" for k, (a, b) in changed.items() if max(len(str(a)), len(str(b))) <= SHORT]
        values = f" ({'; '.join(both)})" if both else ""
        raise UserError(f"{out} holds another run: its {', '.join(changed)} {verb}{values}; choose another --out")


def _amounts(budget: Mapping[str, float]) -> str:
    return " and ".join(f"{grouped(v)} {k}" for k, v in budget.items())
