"""A policy's training as a workload of the driver: run.json of it, evaluation on problems, its journal and samples.

`isocost.loop.train` makes the steps. Evaluation points are in rollouts.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isocost import meter as meters
from isocost import methods
from isocost.contract.unfit import blamed
from isocost.disk.jsonfile import write_json
from isocost.envs.opening import open_environment
from isocost.errors import UserError
from isocost.feed import UNITS
from isocost.ledger import JournalLine, Ledger, as_measured
from isocost.local.lora import export
from isocost.loop import Step, train
from isocost.recipe import describe, fingerprint
from isocost.runs import files, rules, schema, shelf
from isocost.runs.driver import Driver
from isocost.runs.evaluate import ATTEMPTS, EVALUATION_SEED, Evaluation, evaluate
from isocost.runs.files import COMPLETE, DIVERGED, REWARD_FAILED, UNBILLED, read_json, read_lines
from isocost.runs.job import Job, arm_of
from isocost.runs.parted import changes
from isocost.runs.record import RunRecord, machine, model_of
from isocost.runs.samples import keeps, of_evaluation, of_update
from isocost.screen.words import counted, grouped
from isocost.seams import Recipe
from isocost.stats.progress import against
from isocost.types import Cost, End, Fate
from isocost.worlds.setting import Opened

BEFORE = {"verifier_source": "rewards_before", "truth_source": "truths_before",
          "environment_source": "environments_before"}


class PolicyRun:
    """The live state of a policy's training: the world, the ledger, and the pass rates before it."""

    units = ("rollouts", "tokens")

    def __init__(self, job: Job, recipe: Recipe, opened: Opened, record: RunRecord):
        self.job, self.recipe, self.opened, self.record = job, recipe, opened, record
        self.world, self.meter, self.ledger = opened.world, opened.world.meter, Ledger(seed=job.seed)
        self.best: dict[str, Any] = {}  # mark and truth (P,) where the validation split's truth is highest, its step
        self.base: list[float | None] | None = None  # pass rate of each held-out problem before the first step

    @property
    def step(self) -> int:
        return self.ledger.step

    @property
    def spent(self) -> Cost:
        return self.ledger.spent

    def about(self) -> dict[str, Any]:
        job, recipe, setting = self.job, self.recipe, self.job.setting
        env = setting.problems.env
        sandbox = open_environment(env).machine if env else {}  # not what a run is, but where it is
        return {
            "name": job.name, "purpose": job.purpose, "seed": job.seed, "budget": dict(job.budget), "seal": job.seal,
            "method": job.method, "recipe": describe(recipe), "job": replace(job, stop_at=None).to_dict(),
            "arm": arm_of(job, recipe).data(),
            **self._identity(),
            **_origin(job.method),
            "machine": {**machine(torch.get_num_threads(), self.world.about), **sandbox},
        }

    def refuse_changed(self) -> None:
        """Raises UserError if the folder holds a run whose problems or model have changed since.

        A changed reward file or environment is accepted if the run ended because it failed. Its earlier hashes stay on
        record as `rewards_before` and `environments_before`: rollouts that they scored may have been trained on.
        """
        path, end = self.record.path / "run.json", self.record.path / "end.json"
        if not path.exists():
            return
        there, now = read_json(path, schema.TRAINED), self._identity()
        before, new = there["problems"], now["problems"]
        mended = {k: old for k, old in BEFORE.items() if k in before and k in new and before[k] != new[k]}
        if mended and end.exists() and read_json(end)["reason"] == REWARD_FAILED:
            there = {**there, "problems": {**before, **{k: new[k] for k in mended}},
                     **{old: [*there.get(old, ()), before[k]] for k, old in mended.items()}}
            write_json(path, there)
        changed = [k for k in now if fingerprint(there[k]) != fingerprint(now[k])]
        if changed:
            raise UserError(f"{self.record.path} holds another run: its {' and '.join(changed)} have changed since; "
                            "choose another --out")

    def _identity(self) -> dict[str, Any]:
        """The problems and the model: with others it is another run."""
        setting, sides, verifier = self.job.setting, self.opened.sides, self.opened.problems.verifier
        truth = setting.problems.truth
        return {
            "problems": {
                "spec": setting.problems.data, "hash": fingerprint([p.id for p in sides.train]),
                "train": len(sides.train), "select": len(sides.select), "audit": len(sides.audit),
                "verifier": verifier, "verifier_source": _source(verifier), **rules.of_verifier(verifier),
                **({} if truth is None else {"truth": truth, "truth_source": _source(truth),
                                             **rules.of_verifier(truth, "truth")}),
                **_environment(setting.problems.env),
            },
            "model": model_of(setting.model, self.world.learner),
        }

    async def steps(self, run: Driver) -> AsyncGenerator[Mapping[str, Any], None]:
        steps = train(self.recipe, self.world, self.ledger, self.job.budget, run.end, run.clock)
        with self._naming_the_rate():
            async with aclosing(steps):
                async for step in steps:
                    self._write(step, evaluated=run.due)
                    if not math.isfinite(step.line.get("grad_norm", 0.0) + self._rate()):
                        run.end.reason, run.end.why = DIVERGED, blamed(self.recipe, step.batch, self._rate())
                    yield step.line
        if run.end.reason != "spent" or len(self.job.budget) == 1:
            run.end.bound = ""

    def done(self, run: Driver) -> float:
        return self.step

    def _write(self, step: Step, *, evaluated: bool) -> None:
        text, used = self.world.text, lambda: self.record.size("samples.jsonl")
        whole = keeps(self.ledger.step, step.groups, self.job.keep, evaluated=evaluated)
        self.record.write("samples.jsonl", *of_update(self.ledger.fresh, whole, self.ledger.step - 1, text, used))
        self._journal()

    def _journal(self) -> None:
        fast = self.world.fast
        text = JournalLine.text if fast is None else fast.line
        self.record.write("journal.jsonl", *(partial(text, line) for line in self.ledger.fresh))
        self.ledger.fresh.clear()

    def _rate(self) -> float:
        """The learning rate of the last update."""
        return self.ledger.steps[-1].get("learning_rate", 0.0) if self.ledger.steps else 0.0

    @contextmanager
    def _naming_the_rate(self) -> Iterator[None]:
        """Weights that cannot be sampled from are of the last update."""
        try:
            yield
        except FloatingPointError as why:
            raise FloatingPointError(f"{why}; its learning rate was {self._rate():g}") from why

    async def evaluate(self) -> dict[str, Any]:
        """Held-out reward, on both splits."""
        setting, sides = self.job.setting, self.opened.sides
        turns = setting.lengths.max_turns if "turns" in self.job.arm else None
        pace = self.recipe.pace(self.ledger).evaluated(setting.lengths.max_tokens, setting.sampling, turns)
        asked = self.recipe, self.world, (*sides.select, *sides.audit), pace
        with self._naming_the_rate():
            found = await evaluate(*asked, samples=setting.evaluation.samples, seed=EVALUATION_SEED)
        half = len(sides.select)
        beside = {} if self.world.truth is None else self._beside(found, half)
        if not self.step:
            self.base = [None if x != x else float(x) for x in found.right]
        moved = against(found.right, self.base) if self.base is not None else {}  # earlier versions did not save it
        text, used = self.world.text, lambda: self.record.size("samples.jsonl")
        self.record.write("samples.jsonl", *of_evaluation(found.groups, self.step, text, used))
        return {
            "epoch": round(self.ledger.drawn / len(sides.train), 6),
            "eval/select": _mean(found.right[:half]), "eval/audit": _mean(found.right[half:]),
            "eval/exact": found.exact, "eval/unscored": found.unscored,
            **({} if found.exact else {"eval/samples": setting.evaluation.samples}),
            **_of_several(found, half),
            **{f"eval/{k}": v for k, v in moved.items()}, **beside,
        }

    def _beside(self, found: Evaluation, half: int) -> dict[str, float]:
        """The marks of an evaluation by truth, and how both have changed since the truth was highest."""
        marks = found.marks
        now = {"mark": marks[:half], "truth": found.right[:half]}
        if not self.best or _mean(now["truth"]) > _mean(np.array(self.best["truth"], dtype=float)):
            plain = {k: [None if x != x else float(x) for x in v] for k, v in now.items()}
            self.best = {"step": self.step, **plain}
        means = {f"eval/{side}/mark": _mean(x) for side, x in (("select", marks[:half]), ("audit", marks[half:]))}
        return means | changes(now, self.best)

    def state(self) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        self._journal()
        ledger, world = self.ledger, self.world
        kept = {name: shelf.data(groups) for name, groups in ledger.kept.items() if groups}
        return world.state(), {
            "ledger": {"seed": ledger.seed, "step": ledger.step, "waves": ledger.waves, "drawn": ledger.drawn},
            **({"kept": kept} if kept else {}),
            **({"ahead": shelf.ahead_data(ledger.ahead)} if ledger.ahead.waves or ledger.ahead.held else {}),
            "base": self.base, **({"best": self.best} if self.best else {}), "version": world.engine.version,
        }

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], lines: Sequence[Any]) -> None:
        world, ledger = self.world, self.ledger
        world.restore(tensors)
        world.engine.restore(world.learner.weights(), state["version"])
        ledger.ahead = shelf.ahead(state, world.problems)
        seen = [JournalLine(state["ledger"]["step"] - 1, x.group, [], 0) for x in ledger.ahead.held]
        ledger.replay([*read_lines(self.record.path / "journal.jsonl", schema.REPLAYED), *seen])
        for name, value in state["ledger"].items():
            setattr(ledger, name, value)
        ledger.kept.update(shelf.kept(state, world.problems))
        ledger.spent = world.meter.of()
        ledger.steps = [as_measured(x) for x in lines if "reward" in x]
        self.base, self.best = state.get("base"), state.get("best", {})

    def finish(self, run: Driver) -> dict[str, Any]:
        self._journal()
        world, ledger, grader = self.world, self.ledger, self.opened.grader
        if self.job.export and run.end.reason in COMPLETE:
            export(self.record.path, world, self.job.setting.model)
        failures, examples = dict(grader.failures), dict(grader.examples)
        if (truth := self.opened.truth) is not None:
            failures |= {f"{k}, truth": n for k, n in truth.failures.items()}
            examples |= {f"{k}, truth": x for k, x in truth.examples.items()}
        counts = {f: ledger.fates.get(str(f), 0) for f in Fate}
        fates = {str(f): k for f, k in counts.items() if k or f is not Fate.UNCHOSEN}
        fates["evaluation"] = world.meter.of(meters.EVALUATION).rollouts
        fates["lost"] += world.meter.of(meters.LOST).rollouts
        if self.recipe.max_age:  # a checkpoint of an earlier version lacks the waves that were in flight
            fates["lost"] += world.meter.of().rollouts - sum(ledger.fates.values())
        detail = self._detail(run.end, run.seconds())
        return {
            **({"detail": detail} if detail else {}),
            "fates": fates,
            "notes": [*self._unmeasured(), *world.about.notes()],
            "verifier_failures": failures, "verifier_examples": examples,
        }

    def _unmeasured(self) -> list[str]:
        """A note if evaluations have too few samples for best@k and worst@k."""
        samples = self.job.setting.evaluation.samples
        if self.world.exact is not None or samples >= ATTEMPTS:
            return []
        said = f"best@{ATTEMPTS} and worst@{ATTEMPTS} need {ATTEMPTS} samples a problem, evaluations drew {samples}"
        return [f"{said}: they are not recorded"]

    def _detail(self, end: End, seconds: float) -> str:
        """A sentence about a reason that the loop gives; empty for the driver's."""
        budget = ", ".join(f"{grouped(v)} {k}" for k, v in self.job.budget.items())
        if end.reason == "starved":
            rates = sorted(t.mean for t in self.ledger.tallies.values())
            middle = rates[len(rates) // 2] if rates else float("nan")
            never, always = (sum(r == x for r in rates) for x in (0, 1))
            return (
                f"nothing sampled survived selection before {budget} were spent: {counted(len(rates), 'problem')}, "
                f"median rate {middle:.3f}, {never} never solved, {always} always solved"
            )
        if end.reason == UNBILLED:
            return (f"after update {self.step}: {end.why}. What was recorded is kept and can be read: correct the "
                    "method and train into another folder")
        if end.reason != "spent":
            return ""
        C = self.job.budget.get("rollouts")
        if C and end.bound not in ("", "rollouts"):
            spent = UNITS[end.bound](self.spent, self.world.learner, seconds)
            return (f"no further step fits into {grouped(self.job.budget[end.bound])} {end.bound}, the run's share of "
                    f"the budget: {grouped(spent)} {end.bound} and {grouped(self.spent.rollouts)} of {grouped(C)} "
                    "rollouts are spent")
        first = "" if self.step else ", which were over before the first update: nothing was trained"
        return f"no further step fits into {budget}{first}"


def _origin(method: str) -> dict[str, Any]:
    """The default recipes of a method (None if it makes none) and of its parent, in this version, for comparisons."""

    def described(name: str) -> Any:
        try:
            return describe(methods.recipe(name))
        except UserError:
            return None

    name, _ = methods.parted(method)
    parent = methods.load(name).CARD.parent
    return {"defaults": described(name), "parent": parent and {"method": parent, "recipe": described(parent)}}


def _source(verifier: str) -> str | None:
    """The hash of a user's reward file: with another content it is another run."""
    file = Path(verifier.removeprefix("python:").rpartition(":")[0])
    return files.file_hash(file) if file.suffix == ".py" and file.is_file() else None


def _environment(spec: str) -> dict[str, Any]:
    """The environment's spec, and the hash of its file if it is a user's: with another content it is another run."""
    if not spec:
        return {}
    source = open_environment(spec).source
    return {"environment": spec, **({"environment_source": source} if source else {})}


def _of_several(found: Evaluation, half: int) -> dict[str, float]:
    """Means of best@k and worst@k on each split, over problems with k scored attempts, and of the samples' length."""
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
