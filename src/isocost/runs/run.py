"""One run: a job turned into a record. Evaluates at given rollouts, saves, resumes, and records why it ended."""

from __future__ import annotations

import gc
import math
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isocost import meter as meters
from isocost import methods
from isocost.contract.unfit import blamed
from isocost.envs.opening import open_environment
from isocost.errors import RewardFailed, UserError
from isocost.feed import UNITS
from isocost.jsonfile import write_json
from isocost.ledger import Ledger, Line, as_measured
from isocost.local.lora import export
from isocost.loop import End, Step, train
from isocost.recipe import describe, fingerprint
from isocost.runs import files, rules, schema, shelf
from isocost.runs.evaluate import ATTEMPTS, EVALUATION_SEED, Evaluation, evaluate
from isocost.runs.files import DIVERGED, GO_ON, REWARD_FAILED, UNBILLED, fit, read_json, read_lines
from isocost.runs.job import Job, arm_of, compares, recipe_of
from isocost.runs.names import today
from isocost.runs.record import RunRecord, machine, model_of
from isocost.runs.samples import keeps, of_evaluation, of_update
from isocost.runs.speed import rates
from isocost.seams import Recipe
from isocost.stats.progress import against
from isocost.types import Fate, Problem
from isocost.words import counted, grouped
from isocost.worlds.setting import Opened, Setting, open_setting

BEFORE = {"verifier_source": "rewards_before", "environment_source": "environments_before"}
ALLOCATED = 200_000  # objects between two collections: a run makes few cycles, and collecting took 6 % of its time
LATER = {"env": "", "max_turns": 0}     # settings that records of earlier versions lack, at what they were then
SHORT = 60      # characters of a value that a message shows, at most
WORTH_SAVING = 1.0      # seconds of work: a checkpoint takes some hundredths of a second, files synced


async def run(
    job: Job,
    out: Path,
    *,
    opened: Opened | None = None,
    on_step: Callable[[Mapping[str, Any]], None] = lambda line: None,
    attempt: int | None = None,
) -> dict[str, Any]:
    """Run a job in `out`, or resume it there. Returns the contents of end.json.

    `attempt` is the number of this one, if a launcher starts the run more than once (`isocost.runs.attempts`).

    On the same machine and threads, a killed and resumed run has the same metrics, journal, samples and weights, byte
    for byte, as an uninterrupted one.
    """
    recipe = recipe_of(job)
    with RunRecord.opened(out, attempt) as record:
        _refuse_another(out, job, recipe)
        if (out / "end.json").exists() and (ended := read_json(out / "end.json"))["reason"] not in GO_ON:
            return ended
        opened = opened or open_setting(job.setting, reference=compares(recipe))
        often, frozen = gc.get_threshold(), gc.get_freeze_count()
        try:
            _claim(record, job, recipe, opened)
            gc.freeze()  # the collector skips what is loaded by now
            gc.set_threshold(ALLOCATED, *often[1:])
            return await _Run(job, recipe, opened, record, on_step).go()
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
            gc.set_threshold(*often)
            if not frozen:  # else somebody else's objects would thaw too
                gc.unfreeze()
            opened.close()


def _refuse_another(out: Path, job: Job, recipe: Recipe) -> None:
    """Raises UserError, naming what differs, if the run in `out`, ended or not, has different settings.

    Device, threads and kernels may differ: they change bytes, but not the settings.
    """
    if not (out / "run.json").exists():
        return
    there = read_json(out / "run.json")
    if "imported" in there:
        raise UserError(f"{out} holds a run that was imported; choose another --out")
    fit(out / "run.json", there, schema.TRAINED)
    rules.refuse_other(out, there["recipe"], there.get("code"))
    old, new = there["job"]["setting"], asdict(job)["setting"]
    left, right = today(there["recipe"]), describe(recipe)
    differs = [k for k, v in right.items() if fingerprint(left.get(k)) != fingerprint(v)]
    changed = {f"recipe's {k}": (left.get(k), right[k]) for k in differs}
    if there["budget"] != dict(job.budget):
        changed["budget"] = _amounts(there["budget"]), _amounts(job.budget)
    if there["seed"] != job.seed:
        changed["seed"] = there["seed"], job.seed
    old = {**LATER, **old}
    changed |= {k: (old.get(k), v) for k, v in new.items()
                if k not in ("device", "threads", "kernels", "in_turns") and old.get(k) != v}
    if changed:
        verb = "differs" if len(changed) == 1 else "differ"
        both = [f"{k} {a} there, {b} here" for k, (a, b) in changed.items() if max(len(str(a)), len(str(b))) <= SHORT]
        values = f" ({'; '.join(both)})" if both else ""
        raise UserError(f"{out} holds another run: its {', '.join(changed)} {verb}{values}; choose another --out")


def _amounts(budget: Mapping[str, float]) -> str:
    return " and ".join(f"{grouped(v)} {k}" for k, v in budget.items())


def _claim(record: RunRecord, job: Job, recipe: Recipe, opened: Opened) -> None:
    """Write run.json, or check that the one in place describes the same run."""
    described = describe(recipe)
    described_run = {
        "schema": files.SCHEMA,
        "name": job.name,
        "purpose": job.purpose,
        "method": job.method,
        "recipe": described,
        "job": asdict(job),
        "seed": job.seed,
        "budget": dict(job.budget),
        "seal": job.seal,
        "arm": arm_of(job, recipe).data(),
        "model": model_of(job.setting.model, opened.world.learner),
        "problems": {
            "spec": job.setting.data,
            "train": len(opened.sides.train),
            "select": len(opened.sides.select),
            "audit": len(opened.sides.audit),
            "hash": fingerprint([p.id for p in opened.sides.train]),
            "verifier": opened.problems.verifier,
            "verifier_source": _source(opened.problems.verifier),
            **_environment(job.setting),
        },
    }
    path = record.path / "run.json"
    if path.exists():
        there = read_json(path, schema.TRAINED)
        there = _with_changed_files(record, there, described_run["problems"])
        changed = [k for k in ("problems", "model") if fingerprint(there[k]) != fingerprint(described_run[k])]
        if changed:
            raise UserError(
                f"{record.path} holds another run: its {' and '.join(changed)} have changed since; choose another --out"
            )
        return
    write_json(
        path,
        {
            **described_run,
            **_origin(job.method),
            "code": files.code(),
            "machine": {**machine(torch.get_num_threads(), opened.world.extra), **_sandbox(job.setting)},
        },
    )


def _origin(method: str) -> dict[str, Any]:
    """The default recipes of a method and of its parent, as plain data: later comparisons use them.

    They are those of this version; another version's may differ. None for a method that makes no recipe.
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


def _with_changed_files(record: RunRecord, there: dict[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """run.json with the hashes of a changed reward file or environment, if the run ended because it failed.

    Earlier hashes stay on record as `rewards_before` and `environments_before`: rollouts that they scored may have been
    trained on.
    """
    end, before = record.path / "end.json", there["problems"]
    changed = {k: old for k, old in BEFORE.items() if k in before and k in now and before[k] != now[k]}
    if not changed or not end.exists() or read_json(end)["reason"] != REWARD_FAILED:
        return there
    mended = {**there, "problems": {**before, **{k: now[k] for k in changed}},
              **{old: [*there.get(old, ()), before[k]] for k, old in changed.items()}}
    write_json(record.path / "run.json", mended)
    return mended


def _source(verifier: str) -> str | None:
    """The hash of a user's reward file: with another content it is another run."""
    file = Path(verifier.removeprefix("python:").rpartition(":")[0])
    return files.file_hash(file) if file.suffix == ".py" and file.is_file() else None


def _environment(setting: Setting) -> dict[str, Any]:
    """The environment's spec, and the hash of its file if it is a user's: with another content it is another run."""
    if not setting.env:
        return {}
    source = open_environment(setting.env).source
    return {"environment": setting.env, **({"environment_source": source} if source else {})}


def _sandbox(setting: Setting) -> Mapping[str, Any]:
    """What the environment uses of this machine, such as the layers of its sandbox; no part of what a run is."""
    return open_environment(setting.env).machine if setting.env else {}


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
        self.held_out: Sequence[Problem] = (*opened.sides.select, *opened.sides.audit)
        self.measured = 0  # number of evaluations, including that of the base
        self.evaluated: tuple[int, float] = (-1, -1)  # step and rollouts of the last one: late steps add no rollouts
        self.peak = 0  # MB of memory
        self.base: list[float | None] | None = None  # its pass rate per held-out problem
        self.seconds, self.began = 0.0, time.perf_counter()
        self.saved = self.began  # when the last checkpoint was written
        self.stop: int | None = None  # the signal that requested a stop
        self.why = ""  # more about the reason of its end: what failed, or what is not finite

    async def go(self) -> dict[str, Any]:
        self._restore()
        meter = self.world.meter
        meter.observer = self.record.paid
        end = End()
        with _signals(self._request_stop):
            try:
                await self._train(end)
            except RewardFailed as why:  # between two steps: rollouts for the next one are cancelled by now
                end.reason, self.why = REWARD_FAILED, str(why)
                self._journal()
            except FloatingPointError as why:  # of the engine: the last update's weights cannot be sampled from
                end.reason, self.why = DIVERGED, f"{why}; its learning rate was {self._rate():g}"
                self._journal()
            if end.reason != "interrupted":
                self._save()
        self.why = self.why or end.why
        return self._finish(end.reason, end.bound)

    async def _train(self, end: End) -> None:
        if not self.measured or self._due():
            await self._evaluate()
            self._clock()
            self._save()
        steps = train(self.recipe, self.world, self.ledger, self.job.budget, end, self._bound)
        async with aclosing(steps):
            async for step in steps:
                self._write(step)
                if not math.isfinite(step.line.get("grad_norm", 0.0) + self._rate()):
                    end.reason, self.why = DIVERGED, blamed(self.recipe, step.batch, self._rate())
                    break
                due = self._due()
                if due:
                    await self._evaluate()
                if self.stop:
                    end.reason = "interrupted"
                    self._save()    # with what is ahead, which ends with the loop
                    break
                if self._unsaved(due):
                    self._save()
        self._journal()
        now = (self.ledger.step, self.ledger.spent.rollouts)
        if end.reason in ("spent", "starved") and self.evaluated < now:
            await self._evaluate()

    def _rate(self) -> float:
        """The learning rate of the last update."""
        return self.ledger.steps[-1].get("learning_rate", 0.0) if self.ledger.steps else 0.0

    def _request_stop(self, signum: int) -> None:
        self.stop = signum

    # between steps --------------------------------------------------------------------------------------------

    def _write(self, step: Step) -> None:
        self.record.write("metrics.jsonl", step.line)
        text, used = self.world.text, lambda: self.record.size("samples.jsonl")
        whole = keeps(self.ledger.step, step.groups, self.job.keep, evaluated=self._due())
        self.record.write("samples.jsonl", *of_update(self.ledger.fresh, whole, self.ledger.step - 1, text, used))
        self._journal()
        self._clock()
        self.on_step(step.line)

    def _journal(self) -> None:
        self.record.write("journal.jsonl", *(line.text for line in self.ledger.fresh))
        self.ledger.fresh.clear()

    def _clock(self) -> None:
        self.record.write("timing.jsonl", self._timing())

    def _timing(self) -> dict[str, float]:
        """Wall-clock seconds so far, and busy seconds by activity."""
        meter, spent = self.world.meter, self.ledger.spent
        return {
            "step": self.ledger.step,
            "rollouts": spent.rollouts,
            "tokens": spent.decode,
            "seconds": round(self._active(), 4),
            **{work: round(meter.seconds(work), 4) for work in (meters.SAMPLE, meters.SCORE, meters.LEARN)},
            "evaluate": round(meter.of(meters.EVALUATION).seconds, 4),
            "rss_mb": self._peak_memory(),
        }

    def _peak_memory(self) -> int:
        """Peak memory in MB, read every 128th step: a system call that takes a millisecond in some sandboxes."""
        if not self.peak or self.ledger.step % 128 == 0:
            self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return self.peak

    async def _evaluate(self) -> None:
        """Held-out reward now, on both splits. If a step passed several points, there is one evaluation for all."""
        spent, setting, sides = self.ledger.spent.rollouts, self.job.setting, self.opened.sides
        turns = setting.max_turns if "turns" in self.job.arm else None
        pace = self.recipe.pace(self.ledger).evaluated(setting.max_tokens, setting.sampling, turns)
        asked = self.recipe, self.world, self.held_out, pace
        found = await evaluate(*asked, samples=setting.samples, seed=EVALUATION_SEED)
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
        if self.base is not None:  # None in a run of an earlier version, which did not save it
            line |= {f"eval/{k}": v for k, v in against(found.right, self.base).items()}
        self.record.write("metrics.jsonl", line)
        text, used = self.world.text, lambda: self.record.size("samples.jsonl")
        self.record.write("samples.jsonl", *of_evaluation(found.groups, self.ledger.step, text, used))
        self.measured, self.evaluated = self.measured + 1, (self.ledger.step, spent)
        self.points = [p for p in self.points if p > spent]
        self.record.flush()
        self.on_step(line)

    def _due(self) -> bool:
        """Whether a point at which to evaluate is reached and not yet evaluated."""
        return bool(self.points) and self.ledger.spent.rollouts >= self.points[0]

    def _unsaved(self, evaluated: bool) -> bool:
        """Whether a checkpoint is due: by the job's steps or seconds, or after an evaluation if enough is at risk."""
        every, seconds = self.job.save_every, time.perf_counter() - self.saved
        if every and self.ledger.step % every == 0:
            return True
        return (evaluated and seconds >= WORTH_SAVING) or 0 < self.job.save_seconds <= seconds

    def _active(self) -> float:
        return self.seconds + time.perf_counter() - self.began

    def _bound(self) -> float:
        """The active seconds, plus those expected for the evaluation at the end."""
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
                **({"ahead": shelf.ahead_data(ledger.ahead)} if ledger.ahead.waves or ledger.ahead.held else {}),
                "meter": world.meter.state(),
                "measured": self.measured,
                "base": self.base,
                "version": world.engine.version,
                "seconds": round(self._active(), 4),
            },
        )
        self.saved = time.perf_counter()

    def _restore(self) -> None:
        found = self.record.restore(self.world.meter)
        if found is None:
            self.record.pay_since(0)
            self.record.paid(meters.CHECK, self.world.meter.of(meters.CHECK))  # charged before the record existed
            return
        tensors, state = found
        self.world.restore(tensors)
        self.world.engine.restore(self.world.learner.weights(), state["version"])
        self.ledger.ahead = shelf.ahead(state, self.world.problems)
        seen = [Line(state["ledger"]["step"] - 1, x.group, [], 0) for x in self.ledger.ahead.held]
        lines = read_lines(self.record.path / "journal.jsonl", schema.REPLAYED)
        self.ledger.replay([*lines, *seen])
        for name, value in state["ledger"].items():
            setattr(self.ledger, name, value)
        self.ledger.kept.update(shelf.kept(state, self.world.problems))
        self.ledger.spent = self.world.meter.of()
        lines = read_lines(self.record.path / "metrics.jsonl")
        self.ledger.steps = [as_measured(x) for x in lines if "reward" in x]
        self.evaluated = next(((x["step"], x["rollouts"]) for x in reversed(lines) if "eval/select" in x), (-1, -1))
        self.points = [p for p in self.points if p > self.evaluated[1]]
        self.measured, self.seconds, self.base = state["measured"], state["seconds"], state.get("base")
        self.record.pay_since(state["step"])

    # the end --------------------------------------------------------------------------------------------------

    def _finish(self, reason: str, bound: str) -> dict[str, Any]:
        world, ledger = self.world, self.ledger
        if self.job.export and reason in ("spent", "starved"):
            export(self.record.path, world, self.job.setting.model)
        fates = {str(f): ledger.fates.get(str(f), 0) for f in Fate}
        fates["evaluation"] = world.meter.of(meters.EVALUATION).rollouts
        fates["lost"] += world.meter.of(meters.LOST).rollouts
        if self.recipe.max_age:  # a checkpoint of an earlier version lacks the waves that were in flight
            fates["lost"] += world.meter.of().rollouts - sum(ledger.fates.values())
        self.peak = 0  # read it again
        timing = self._timing()
        speed = rates(timing)
        end = {
            "schema": files.SCHEMA,
            "reason": reason,
            "detail": self._why(reason, bound),
            **({"bound": bound} if reason == "spent" and len(self.job.budget) > 1 else {}),
            "steps": ledger.step,
            "bill": {k: v.data() for k, v in world.meter.logical.items()},
            "physical": {k: v.data() for k, v in world.meter.physical.items()},
            "fates": fates,
            "seconds": round(timing["seconds"], 3),
            "timing": timing,
            **(speed.data() if speed else {}),
            "notes": [*self.record.notes, *self._unmeasured(), *world.extra.get("notes", list)()],
            "verifier_failures": dict(self.opened.grader.failures),
            "verifier_examples": dict(self.opened.grader.examples),
            "signal": self.stop,
        }
        self.record.check()
        write_json(self.record.path / "end.json", end)
        return end

    def _unmeasured(self) -> list[str]:
        """A note if evaluations have too few samples for best@k and worst@k."""
        samples = self.job.setting.samples
        if self.world.exact is not None or samples >= ATTEMPTS:
            return []
        said = f"best@{ATTEMPTS} and worst@{ATTEMPTS} need {ATTEMPTS} samples a problem, evaluations drew {samples}"
        return [f"{said}: they are not recorded"]

    def _why(self, reason: str, bound: str) -> str:
        budget = ", ".join(f"{grouped(v)} {k}" for k, v in self.job.budget.items())
        if reason == "starved":
            rates = sorted(t.mean for t in self.ledger.tallies.values())
            middle = rates[len(rates) // 2] if rates else float("nan")
            never, always = (sum(r == x for r in rates) for x in (0, 1))
            return (
                f"nothing sampled survived selection before {budget} were spent: {counted(len(rates), 'problem')}, "
                f"median rate {middle:.3f}, {never} never solved, {always} always solved"
            )
        C = self.job.budget.get("rollouts")
        if reason == "spent" and C and bound not in ("", "rollouts"):
            spent = UNITS[bound](self.ledger.spent, self.world.learner, self._active())
            return (f"no further step fits into {grouped(self.job.budget[bound])} {bound}, the run's share of the "
                    f"budget: {grouped(spent)} {bound} and {grouped(self.ledger.spent.rollouts)} of {grouped(C)} "
                    "rollouts are spent")
        first = "" if self.ledger.step else ", which were over before the first update: nothing was trained"
        return {
            "spent": f"no further step fits into {budget}{first}",
            DIVERGED: f"update {self.ledger.step}: {self.why}",
            UNBILLED: f"after update {self.ledger.step}: {self.why}. What was recorded is kept and can be read: "
                      "correct the method and train into another folder",
            REWARD_FAILED: f"{self.why}. All that was paid for is kept: correct it, and the same command goes on",
            "interrupted": f"stopped by signal {self.stop} after step {self.ledger.step}; it goes on where it was",
        }.get(reason, "")


def _of_several(found: Evaluation, half: int) -> dict[str, float]:
    """Means of best@k and worst@k on each split, over the problems with k scored attempts; absent without any.

    Also the mean length of the samples, in tokens; exact evaluations have none.
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
    """Ctrl-C and SIGTERM request a stop after the current step; a second one has its usual effect.

    Only the main thread may set handlers: a run in another thread, as in a notebook, is stopped by cancelling it.
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
