"""One run: a job turned into a record. Evaluates at fixed compute, saves, resumes, and says why it ended."""

from __future__ import annotations

import gc
import math
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isocost import meter as meters
from isocost.contract.conflicts import refuse
from isocost.errors import RewardFailed, UserError
from isocost.jsonfile import write_json
from isocost.ledger import Ledger, as_measured
from isocost.local.weights import save as save_folder
from isocost.loop import End, Step, train
from isocost.recipe import describe, fingerprint, functions, paced
from isocost.runs import files, schema, shelf
from isocost.runs.evaluate import ATTEMPTS, Evaluation, evaluate
from isocost.runs.files import GO_ON, REWARD_FAILED, fit, read_json, read_lines
from isocost.runs.names import today
from isocost.runs.record import RunRecord, machine
from isocost.runs.speed import rates
from isocost.seams import Recipe
from isocost.stats.progress import against
from isocost.types import Fate, Problem
from isocost.worlds.setting import Opened, Setting, open_setting

EVALUATION_SEED = 20_260_101  # one for all runs, so that sampled evaluations share their random numbers
PLANNED = ("n", "B", "lr", "warmup", "max_tokens", "temperature", "top_p", "top_k")  # for a run, whatever its method


@dataclass(frozen=True)
class Job:
    """One run, as plain data: all that a worker process needs."""

    name: str
    setting: Setting
    method: str
    seed: int
    budget: Mapping[str, float]  # unit -> amount, of the training account: C
    n: int
    B: int
    lr: float
    warmup: int = 0  # steps
    points: tuple[float, ...] = ()  # rollouts at which to evaluate, beside the start and the end
    sets: Mapping[str, str] = field(default_factory=dict)
    purpose: str = "run"
    multiplier: float = 1.0  # of the learning rate over the rule's
    seal: str | None = None
    save_every: int = 0  # steps; 0 saves at evaluations only
    export: bool = False  # write the final policy as a Hugging Face folder

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Job:
        return cls(**{**data, "setting": Setting.of(data["setting"]), "points": tuple(data["points"])})


def recipe_of(job: Job) -> Recipe:
    """The method's recipe at this job's sizes, learning rate and sampling, then the user's own settings.

    Raises UserError for a setting that is none, and for a combination that conflicts.
    """
    from isocost import methods

    s = job.setting
    recipe = methods.recipe(job.method, groups=job.B, rollouts=job.n)
    planned = {"lr": job.lr, "warmup": job.warmup, **{k: getattr(s, k) for k in PLANNED if hasattr(s, k)}}
    recipe = methods.tuned(paced(recipe, **planned), job.sets)
    refuse(recipe, verifier=s.marks)
    return recipe


def its_own(method: str, used: Mapping[str, Any]) -> str:
    """What of the sizes and the pace that a method's file names a run takes, and what not; empty where it names none.

    Named is what its recipe has otherwise than the root of all methods. `used` are the run's own values by name: `n`,
    `B` and those of the pace; a word stands for what is not known yet.
    """
    from isocost import methods

    recipes = (methods.recipe(name) for name in (method, "reinforce"))
    own, root = ({"n": r.rollouts, "B": r.groups, **describe(r.pace)} for r in recipes)
    named = {k: own[k] for k in PLANNED if k in own and k in used and own[k] != root.get(k)}
    taken = ", ".join(f"{k} = {_short(v)}" for k, v in named.items() if v == used[k])
    others = ", ".join(f"{k} = {_short(v)} (here {_short(used[k])})" for k, v in named.items() if v != used[k])
    return "; ".join(filter(None, (taken and f"of its own it takes {taken}", others and f"not taken: {others}")))


def _short(x: Any) -> str:
    return f"{x:.2g}" if isinstance(x, float) else str(x)


async def run(
    job: Job,
    out: Path,
    *,
    opened: Opened | None = None,
    on_step: Callable[[Mapping[str, Any]], None] = lambda line: None,
) -> dict[str, Any]:
    """Run a job in `out`, or go on with it there. Returns what end.json says.

    At max_age 0, on the same machine and threads, a run that was killed and resumed leaves the same metrics,
    journal, samples and weights, byte for byte, as one that was not.
    """
    recipe = recipe_of(job)
    with RunRecord.opened(out) as record:
        _refuse_another(out, job, recipe)
        if (out / "end.json").exists() and (ended := read_json(out / "end.json"))["reason"] not in GO_ON:
            return ended
        opened = opened or open_setting(job.setting, reference=compares(recipe))
        _claim(record, job, recipe, opened)
        gc.freeze()  # what is loaded by now stays: the collector need not walk it again and again
        try:
            return await _Run(job, recipe, opened, record, on_step).go()
        finally:
            opened.grader.close()


def compares(recipe: Recipe) -> bool:
    """Whether it asks for the policy it began with; an enrichment from outside the package may."""
    return any("reference" in used.declared.gives or used.foreign for used in functions(recipe.enrich))


def _refuse_another(out: Path, job: Job, recipe: Recipe) -> None:
    """Raises UserError, naming what differs, if the run in `out` was asked something else, ended or not.

    Device, threads and kernels may differ: they change bytes, never what is asked.
    """
    if not (out / "run.json").exists():
        return
    there = read_json(out / "run.json")
    if "imported" in there:
        raise UserError(f"{out} holds a run that was imported; choose another --out")
    fit(out / "run.json", there, schema.TRAINED)
    old, new = there["job"]["setting"], asdict(job)["setting"]
    left, right = today(there["recipe"]), describe(recipe)
    changed = [f"recipe's {k}" for k in right if fingerprint(left.get(k)) != fingerprint(right[k])]
    changed += [k for k, v in (("budget", dict(job.budget)), ("seed", job.seed)) if there[k] != v]
    changed += [k for k, v in new.items() if k not in ("device", "threads", "kernels") and old.get(k) != v]
    if changed:
        verb = "differs" if len(changed) == 1 else "differ"
        raise UserError(f"{out} holds another run: its {', '.join(changed)} {verb}; choose another --out")


def reopen(out: Path, job: Job) -> bool:
    """Whether the run in `out` spent a smaller budget than this job's, and so was made ready to go on to it.

    Nothing in a step depends on how many are to come, so it then is the run that had the larger budget from the start.
    """
    if not (out / "run.json").exists():
        return False
    there = read_json(out / "run.json", schema.TRAINED)
    if there["budget"].keys() != job.budget.keys() or all(job.budget[k] <= v for k, v in there["budget"].items()):
        return False
    end = out / "end.json"
    if end.exists() and read_json(end)["reason"] not in ("spent", *GO_ON):
        return False
    end.unlink(missing_ok=True)     # first: whoever is killed in between finds a run that is not over
    asked = {**there["job"], "budget": dict(job.budget), "points": list(job.points)}
    write_json(out / "run.json", {**there, "budget": dict(job.budget), "job": asked})
    return True


def _claim(record: RunRecord, job: Job, recipe: Recipe, opened: Opened) -> None:
    """Write run.json, or check that what is there asks for the same run."""
    described = describe(recipe)
    asked = {
        "schema": files.SCHEMA,
        "name": job.name,
        "purpose": job.purpose,
        "method": job.method,
        "recipe": described,
        "job": asdict(job),
        "seed": job.seed,
        "budget": dict(job.budget),
        "seal": job.seal,
        "arm": {
            "n": recipe.rollouts,
            "B": recipe.groups,
            "lr": job.lr,
            "multiplier": job.multiplier,
            "warmup": job.warmup,
        },
        "model": {"name": job.setting.model, "parameters": opened.world.learner.parameters},
        "problems": {
            "spec": job.setting.data,
            "train": len(opened.sides.train),
            "select": len(opened.sides.select),
            "audit": len(opened.sides.audit),
            "hash": fingerprint([p.id for p in opened.sides.train]),
            "verifier": opened.problems.verifier,
            "verifier_source": _source(opened.problems.verifier),
        },
    }
    path = record.path / "run.json"
    if path.exists():
        there = read_json(path, schema.TRAINED)
        there = _with_mended_reward(record, there, asked["problems"]["verifier_source"])
        changed = [k for k in ("problems", "model") if fingerprint(there[k]) != fingerprint(asked[k])]
        if changed:
            raise UserError(
                f"{record.path} holds another run: its {' and '.join(changed)} have changed since; choose another --out"
            )
        return
    write_json(
        path,
        {
            **asked,
            **_origin(job.method),
            "code": files.code(),
            "machine": machine(torch.get_num_threads(), opened.world.extra),
        },
    )


def _origin(method: str) -> dict[str, Any]:
    """A method's own recipe and its parent's, as plain data: what this run's recipe can be compared with later.

    They are of the code that runs now, and another version's may differ. None for what makes no recipe.
    """
    from isocost import methods

    def described(name: str) -> Any:
        try:
            return describe(methods.recipe(name))
        except UserError:
            return None

    name, _ = methods.parted(method)
    parent = methods.load(name).CARD.parent
    return {
        "defaults": described(name),
        "parent": parent and {"method": parent, "recipe": described(parent)},
    }


def _with_mended_reward(record: RunRecord, there: dict[str, Any], source: str | None) -> dict[str, Any]:
    """What run.json says, with another text of the reward's file if the run ended because that failed.

    Earlier texts stay on record as `rewards_before`: what they marked may have been trained on.
    """
    end, before = record.path / "end.json", there["problems"].get("verifier_source")
    if source == before or not end.exists() or read_json(end)["reason"] != REWARD_FAILED:
        return there
    problems = {**there["problems"], "verifier_source": source}
    mended = {**there, "problems": problems, "rewards_before": [*there.get("rewards_before", ()), before]}
    write_json(record.path / "run.json", mended)
    return mended


def _source(verifier: str) -> str | None:
    """The hash of a user's reward file: the same name with another file behind it is another run."""
    file = Path(verifier.removeprefix("python:").rpartition(":")[0])
    return files.file_hash(file) if file.suffix == ".py" and file.is_file() else None


class _Run:
    """The live state of one run: the world, the ledger, the record, and the clock."""

    def __init__(
        self,
        job: Job,
        recipe: Recipe,
        opened: Opened,
        record: RunRecord,
        on_step: Callable[[Mapping[str, Any]], None],
    ):
        self.job, self.recipe, self.opened, self.record, self.on_step = job, recipe, opened, record, on_step
        self.world, self.ledger = opened.world, Ledger(seed=job.seed)
        self.points = sorted(p for p in job.points if p > 0)
        self.measured = 0  # evaluations made, the one of the base included
        self.base: list[float | None] | None = None  # pass rates there, per held-out problem
        self.seconds, self.began = 0.0, time.perf_counter()
        self.stop: int | None = None  # a signal that asked for an end
        self.failed = ""  # why the verifier can be asked no more

    async def go(self) -> dict[str, Any]:
        self._restore()
        meter = self.world.meter
        meter.observer = self.record.paid
        end = End()
        with _signals(self._ask_to_stop):
            try:
                await self._train(end)
            except RewardFailed as why:  # between two steps: what was begun for the next one is given up on by now
                end.reason, self.failed = REWARD_FAILED, str(why)
                self._journal()
            self._save()
        return self._finish(end.reason)

    async def _train(self, end: End) -> None:
        if not self.measured or self._due():
            await self._evaluate()
            self._clock()
            self._save()
        steps = train(self.recipe, self.world, self.ledger, self.job.budget, end, self._bound)
        async with aclosing(steps):
            async for step in steps:
                self._write(step)
                if not math.isfinite(step.line.get("grad_norm", 0.0)):
                    end.reason = "diverged"
                    break
                due = self._due()
                if due:
                    await self._evaluate()
                if self.stop:
                    end.reason = "interrupted"
                    break
                if due or (self.job.save_every and self.ledger.step % self.job.save_every == 0):
                    self._save()
        self._journal()
        now = (self.ledger.step, self.ledger.spent.rollouts)
        if end.reason in ("spent", "starved") and self._last_evaluated() < now:
            await self._evaluate()

    def _ask_to_stop(self, signum: int) -> None:
        self.stop = signum

    # between steps --------------------------------------------------------------------------------------------

    def _write(self, step: Step) -> None:
        self.record.write("metrics.jsonl", step.line)
        self._journal()
        if (
            self.ledger.step & (self.ledger.step - 1) == 0
        ):  # at steps 1, 2, 4, 8, ...: enough to read, cheap to keep
            self.record.write("samples.jsonl", *samples(step.groups[:2], self.ledger.step - 1))
        self._clock()
        self.on_step(step.line)

    def _journal(self) -> None:
        self.record.write("journal.jsonl", *self.ledger.fresh)
        self.ledger.fresh.clear()

    def _clock(self) -> None:
        self.record.write("timing.jsonl", self._timing())

    def _timing(self) -> dict[str, float]:
        """The clock's seconds so far, and the busy ones by what they were spent on."""
        meter, spent = self.world.meter, self.ledger.spent
        return {
            "step": self.ledger.step,
            "rollouts": spent.rollouts,
            "tokens": spent.decode,
            "seconds": round(self._active(), 4),
            **{work: round(meter.seconds(work), 4) for work in (meters.SAMPLE, meters.SCORE, meters.LEARN)},
            "evaluate": round(meter.of(meters.EVALUATION).seconds, 4),
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }

    async def _evaluate(self) -> None:
        """Held-out reward now, on both sides. Due points are passed together when a step went over several."""
        spent = self.ledger.spent.rollouts
        setting, sides = self.job.setting, self.opened.sides
        pace = self.recipe.pace(self.ledger).evaluated(setting.max_tokens, setting.sampling)
        both: Sequence[Problem] = (*sides.select, *sides.audit)
        found = await evaluate(
            self.recipe, self.world, both, pace, samples=setting.samples, seed=EVALUATION_SEED
        )
        half = len(sides.select)
        line = {
            "step": self.ledger.step,
            "rollouts": spent,
            "epoch": round(self.ledger.drawn / len(sides.train), 6),
            "eval/select": _mean(found.right[:half]),
            "eval/audit": _mean(found.right[half:]),
            "eval/exact": found.exact,
            "eval/unscored": found.unscored,
            **({} if found.exact else {"eval/samples": setting.samples}),
            **_of_several(found, half),
        }
        if not self.measured:
            self.base = [None if x != x else float(x) for x in found.right]
        if self.base is not None:  # a run begun by a version that did not keep it goes on without
            line |= {f"eval/{k}": v for k, v in against(found.right, self.base).items()}
        self.record.write("metrics.jsonl", line)
        if found.groups:
            self.record.write("samples.jsonl", *samples(found.groups[:4], self.ledger.step))
        self.measured += 1
        self.points = [p for p in self.points if p > spent]
        self.on_step(line)

    def _due(self) -> bool:
        """Whether a point at which to evaluate was reached, and the evaluation was not made yet."""
        return bool(self.points) and self.ledger.spent.rollouts >= self.points[0]

    def _last_evaluated(self) -> tuple[int, float]:
        """Step and rollouts: stale waves are paid for some steps before the last."""
        lines = [x for x in read_lines(self.record.path / "metrics.jsonl") if "eval/select" in x]
        return (lines[-1]["step"], lines[-1]["rollouts"]) if lines else (-1, -1)

    def _active(self) -> float:
        return self.seconds + time.perf_counter() - self.began

    def _bound(self) -> float:
        """The active seconds, and those of the evaluation that is still to come when training ends."""
        return self._active() + self.world.meter.of(meters.EVALUATION).seconds / max(self.measured, 1)

    # checkpoints ----------------------------------------------------------------------------------------------

    def _save(self) -> None:
        ledger, world = self.ledger, self.world
        kept = {name: shelf.data(groups) for name, groups in ledger.kept.items() if groups}
        self.record.save(
            ledger.step,
            world.state(),
            {
                "ledger": {
                    "seed": ledger.seed,
                    "step": ledger.step,
                    "waves": ledger.waves,
                    "drawn": ledger.drawn,
                },
                **({"kept": kept} if kept else {}),
                "meter": world.meter.state(),
                "measured": self.measured,
                "base": self.base,
                "version": world.engine.version,
                "seconds": round(self._active(), 4),
            },
        )

    def _restore(self) -> None:
        found = self.record.restore(self.world.meter)
        if found is None:
            self.record.pay_since(0)
            self.record.paid(meters.CHECK, self.world.meter.of(meters.CHECK))  # before there was a record
            return
        tensors, state = found
        self.world.restore(tensors)
        self.world.engine.restore(self.world.learner.weights(), state["version"])
        lines = read_lines(self.record.path / "journal.jsonl", schema.REPLAYED)
        self.ledger.replay(lines)
        for name, value in state["ledger"].items():
            setattr(self.ledger, name, value)
        self.ledger.kept.update(shelf.kept(state, self.world.problems))
        self.ledger.spent = self.world.meter.of()
        steps = (x for x in read_lines(self.record.path / "metrics.jsonl") if "reward" in x)
        self.ledger.steps = list(map(as_measured, steps))
        self.points = [p for p in self.points if p > self._last_evaluated()[1]]
        self.measured, self.seconds, self.base = state["measured"], state["seconds"], state.get("base")
        self.record.pay_since(state["step"])

    # the end --------------------------------------------------------------------------------------------------

    def _finish(self, reason: str) -> dict[str, Any]:
        world, ledger = self.world, self.ledger
        if self.job.export and reason in ("spent", "starved"):
            save_folder(self.record.path / "final", world)
        fates = {str(f): ledger.fates.get(str(f), 0) for f in Fate}
        fates["evaluation"] = world.meter.of(meters.EVALUATION).rollouts
        fates["lost"] += world.meter.of(meters.LOST).rollouts
        if self.recipe.max_age:  # waves that were in the air when a process died were begun, and came to nothing
            fates["lost"] += world.meter.of().rollouts - sum(ledger.fates.values())
        timing = self._timing()
        speed = rates(timing)
        end = {
            "schema": files.SCHEMA,
            "reason": reason,
            "detail": self._why(reason),
            "steps": ledger.step,
            "bill": {k: v.data() for k, v in world.meter.logical.items()},
            "physical": {k: v.data() for k, v in world.meter.physical.items()},
            "fates": fates,
            "seconds": round(timing["seconds"], 3),
            "timing": timing,
            **(speed.data() if speed else {}),
            "notes": [*self.record.notes, *self._unmeasured()],
            "verifier_failures": dict(self.opened.grader.failures),
            "verifier_examples": dict(self.opened.grader.examples),
            "signal": self.stop,
        }
        write_json(self.record.path / "end.json", end)
        return end

    def _unmeasured(self) -> list[str]:
        """What evaluations of so few samples cannot say."""
        samples = self.job.setting.samples
        if self.world.exact is not None or samples >= ATTEMPTS:
            return []
        said = f"best@{ATTEMPTS} and worst@{ATTEMPTS} need {ATTEMPTS} samples a problem, evaluations drew {samples}"
        return [f"{said}: they are not recorded"]

    def _why(self, reason: str) -> str:
        budget = ", ".join(f"{v:g} {k}" for k, v in self.job.budget.items())
        if reason == "starved":
            rates = sorted(t.mean for t in self.ledger.tallies.values())
            middle = rates[len(rates) // 2] if rates else float("nan")
            return (
                f"nothing sampled survived selection before {budget} were spent: {len(rates)} median rate "
                f"{middle:.3f}, {sum(r == 0 for r in rates)} never solved, {sum(r == 1 for r in rates)} always solved"
            )
        return {
            "spent": f"no further step fits into {budget}",
            "diverged": "the gradient is not finite",
            REWARD_FAILED: f"{self.failed}. All that was paid for is kept: correct it, and the same command goes on",
            "interrupted": f"stopped by signal {self.stop} after step {self.ledger.step}; it goes on where it was",
        }.get(reason, "")


def samples(groups: Sequence[Any], step: int) -> list[dict[str, Any]]:
    """What was said, for reading: a few attempts of each group."""
    return [
        {
            "step": step,
            "id": g.problem.id,
            "variant": g.problem.variant,
            "prompt": g.problem.text,
            "attempts": [
                {"text": r.final, "reward": None if r.score is None else r.score.value, "stop": str(r.stop)}
                for r in g.rollouts[:8]
            ],
        }
        for g in groups
    ]


def _of_several(found: Evaluation, half: int) -> dict[str, float]:
    """Means of best@k and worst@k on either half, over the problems with k scored attempts; absent without any.

    Beside them the mean length of what was sampled, in tokens; exact evaluations sample nothing.
    """
    means = {}
    for name, values in (("best", found.best(ATTEMPTS)), ("worst", found.worst(ATTEMPTS))):
        for side, part in (("select", values[:half]), ("audit", values[half:])):
            means[f"eval/{side}/{name}@{ATTEMPTS}"] = _mean(part)
    if found.groups:  # tokens that the policy wrote per attempt
        means["eval/length"] = _mean(np.array([k for g in found.groups for k in g.lengths], dtype=np.float64))
    return {k: v for k, v in means.items() if v == v}


def _mean(x: Any) -> float:
    good = x[~(x != x)]
    return float(good.mean()) if len(good) else float("nan")


class _signals:
    """Ctrl-C and SIGTERM ask the run to stop after its step; a second one has its usual effect.

    Only the main thread may set handlers: a run in another one, of a notebook, is stopped by cancelling it.
    """

    def __init__(self, ask: Callable[[int], None]):
        self.ask = ask
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        def handle(signum: int, frame: Any) -> None:
            self.ask(signum)
            signal.signal(signum, self.before[signum])

        if threading.current_thread() is not threading.main_thread():
            return
        for s in (signal.SIGINT, signal.SIGTERM):
            self.before[s] = signal.signal(s, handle)

    def __exit__(self, *exc: Any) -> None:
        for s, handler in self.before.items():
            signal.signal(s, handler)
