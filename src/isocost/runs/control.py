"""A run of control as a workload of the driver, and many of them in one stack.

run.json has `kind: control`, the arm (sigma, batch, rate, width), the task with its hash, its scale (0: random actions,
1: the reference) and the FLOP of an update. metrics.jsonl has a line for each stretch of samples, and for each
evaluation `eval/select` and `eval/audit` on that scale, with returns as the task counts them.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isocost import meter as meters
from isocost.control import methods, teachers
from isocost.control.data import OfflineSet, read
from isocost.control.loop import Loop, StackedRun
from isocost.control.minari_sets import read_minari
from isocost.control.native import computed_by
from isocost.control.networks import Effort
from isocost.control.policy import ControlPolicy
from isocost.control.seams import Agent
from isocost.control.stack import Stack
from isocost.control.tasks import open_task, random_return
from isocost.control.types import ControlTask, Progress
from isocost.errors import UserError
from isocost.gather import finished
from isocost.local.weights import read_tensors
from isocost.meter import Meter, Payer
from isocost.recipe import describe, fingerprint
from isocost.runs.arm import Arm
from isocost.runs.driver import Driver, together
from isocost.runs.files import DIVERGED, ended, file_hash, read_json
from isocost.runs.record import RunRecord, machine
from isocost.runs.stop_at import StopAt, go_on
from isocost.screen.words import grouped
from isocost.types import Cost
from isocost.world import About

KIND, MINARI = "control", "minari:"     # MINARI: before the id or folder of a set
STRETCH = 250       # samples of a line of metrics.jsonl, at most
EPISODES = 8        # of each half of an evaluation
MOST = 256.0        # updates per sample
SIZES = ("batch", "width", "depth", "members")      # of an arm, which are the agent's


@dataclass(frozen=True)
class ControlJob:
    """One run of control, as plain data. `arm` has sigma (updates per sample), rate, and sizes of the agent."""

    name: str
    task: str
    method: str
    seed: int
    budget: Mapping[str, float]         # of the training account: env-steps, updates, flop, seconds
    arm: Arm
    points: tuple[float, ...] = ()      # samples at which to evaluate, besides the start and the end
    sets: Mapping[str, str] = field(default_factory=dict)
    environments: int = 1
    episodes: int = EPISODES
    purpose: str = "run"
    seal: str | None = None
    data: str | None = None             # the file of the set that it learns from; of offline methods points are updates
    offline_updates: int = 0            # on the set, before the first sample of a method that takes samples
    teacher: str | None = None          # what chooses the episodes of training, such as "alp-gmm:every=20"

    def to_dict(self) -> dict[str, Any]:
        made = {**asdict(self), "arm": self.arm.data(), "points": list(self.points)}
        return {k: v for k, v in made.items() if v or k not in ("data", "offline_updates", "teacher")}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ControlJob:
        return cls(**{**data, "arm": Arm.of(data), "points": tuple(data["points"])})

    @property
    def shared(self) -> tuple[Any, ...]:
        """What the runs of one stack have in common."""
        sizes, sets = self.arm.only(*SIZES), tuple(sorted(self.sets.items()))
        return self.task, self.method, sizes, sets, self.environments, self.data


def agent_of(job: ControlJob) -> Agent:
    """The agent of a job. Raises UserError for sizes, settings and tasks that do not fit."""
    sigma = job.arm.get("sigma", 1.0)
    if not 0 < sigma <= MOST:
        raise UserError(f"updates per sample are {sigma:g}, expected above 0 and at most {MOST:g}")
    if job.arm["batch"] % 16:
        raise UserError(f"batch is {job.arm['batch']}, expected a multiple of 16: "
                        f"take {max(round(job.arm['batch'] / 16), 1) * 16}")
    agent = methods.agent(job.method, **{k: int(job.arm[k]) for k in SIZES if k in job.arm})
    agent = methods.tuned(agent, job.sets)
    methods.refuse_unfit(agent, open_task(job.task))
    if (agent.offline or agent.warms) and not job.data:
        raise UserError(f"{job.method} learns from a set{'' if agent.warms else ', without samples'}: give --offline "
                        f"FILE; `isocost collect {job.task}` makes one")
    if job.data and not (agent.offline or agent.warms):
        raise UserError(f"{job.method} takes samples of its own, and no set: leave --offline out, or take "
                        f"{', '.join(methods.offline())}")
    if job.offline_updates and not agent.warms:
        raise UserError(f"{job.method} has no phase on a set before its samples: leave --offline-updates out")
    if agent.warms and not job.offline_updates and not agent.tempo(Progress(0, 0)).keeps:
        raise UserError(f"{job.method} learns from the set before its first sample alone: give --offline-updates, such "
                        "as 5000")
    if agent.offline and ("env-steps" in job.budget or sigma != 1 or job.environments != 1):
        raise UserError(f"{job.method} takes no environment steps: give a budget such as 20k-updates or 10m, and "
                        "neither --updates-per-sample nor --environments")
    if job.teacher and agent.offline:
        raise UserError(f"{job.method} takes no episodes of its own: leave --teacher out")
    if agent.prepare and (agent.rollout % agent.batch or agent.rollout % job.environments):
        raise UserError(f"a rollout of {agent.rollout} samples is no whole number of batches of {agent.batch} and "
                        f"steps of {job.environments} environments: --set rollout={8 * agent.batch * job.environments}")
    if job.budget.get("env-steps", agent.rollout) < agent.rollout:
        raise UserError(f"a budget of {grouped(job.budget['env-steps'])} samples ends before the first rollout of "
                        f"{agent.rollout}, so no update is made: raise it, or --set rollout={agent.batch}")
    return agent


@cache
def set_of(job_data: str, task: str) -> OfflineSet:
    """The set in a file, or of Minari by "minari:ID", for a task. Raises UserError as `isocost.control.data.read`."""
    name = job_data.removeprefix(MINARI)
    return read(Path(name), open_task(task)) if name == job_data else read_minari(name, open_task(task))


@cache
def source_of(task: str) -> str:
    """The hash of a task: its spec, and the text of its file."""
    file = sys.modules[type(open_task(task)).__module__].__file__
    return fingerprint([task, file_hash(Path(str(file)))])


def updates_of(job: ControlJob) -> int:
    """The updates of a run whose budget is in environment steps: sigma for each sample that is paid back."""
    sets = tuple(sorted(job.sets.items()))
    paid = _paid(job.method, sets, int(job.budget["env-steps"]), job.environments)
    return job.offline_updates + int(job.arm.get("sigma", 1.0) * paid)


@cache
def _paid(method: str, sets: tuple[tuple[str, str], ...], samples: int, environments: int) -> int:
    agent = methods.tuned(methods.agent(method), dict(sets))
    paid = environments * sum(agent.tempo(Progress(k, 0)).learns for k in range(0, samples, environments))
    return paid - paid % agent.rollout


class ControlWork(NamedTuple):
    """The work of the networks of one run, by what it is for."""

    update: Effort      # an update that trains every network
    paper: int          # FLOP of it by 10 N B, N the parameters of all critics; 0 without one (arXiv:2502.04327)
    action: Effort      # an action of training
    evaluated: Effort   # an action of an evaluation
    first: Effort       # an update on the set, before the first sample
    prepared: Effort    # what an on-policy agent's `prepare` computes, for each sample of a rollout


def price(agent: Agent, task: ControlTask) -> ControlWork:
    """Counted in one update on an empty transition, and by `explore` of one observation."""
    update, paper, prepared, loop = _of_update(agent, task, acts=True)
    sampled = agent.tempo(Progress(0, 0)).sampled
    return ControlWork(update, paper, Effort() if agent.offline else loop.of_action(True), loop.of_action(sampled),
                       _of_update(agent, task, acts=False)[0] if agent.warms else update, prepared)


def _of_update(agent: Agent, task: ControlTask, *, acts: bool) -> tuple[Effort, int, Effort, Loop]:
    run = StackedRun(seed=0, sigma=1.0, rate=0.0)
    loop = Loop(agent, task, [run], 1, torch.zeros(1, 2 * task.space.observation + task.space.actions + 3))
    loop.replay.stored = [1]
    if agent.prepare:
        loop.prepare([0])
    prepared, run.work = run.work, Effort()
    loop._update([0], frozenset(loop.networks), 0.0, acts)
    critics = [net for name, net in loop.networks.items() if name == "critic"]
    paper = sum(10 * net.parameters * net.members * agent.batch for net in critics)
    return run.work, paper, prepared, loop


class ControlRun:
    """One run of a stack as the driver sees it."""

    def __init__(self, job: ControlJob, agent: Agent, stack: Stack, run: StackedRun, begun: Mapping[str, Any]):
        """`begun` is the run.json of a run that is continued, or empty."""
        self.job, self.agent, self.stack, self.run = job, agent, stack, run
        self.task, self.meter, self.step, self.spent = stack.loop.task, Meter(), 0, Cost()
        self.units = ("updates", "env-steps") if agent.offline else ("env-steps", "updates")
        self._paid = Effort()         # what was charged of `_work`
        self._seconds = 0.0
        self._price = price(agent, self.task)
        if begun and "action" not in begun:     # of an earlier version: it ends as it began
            self._price = self._price._replace(action=Effort(), evaluated=Effort(score=1))

    def about(self) -> dict[str, Any]:
        job, task, (work, paper, action, evaluated, _, prepared) = self.job, self.task, self._price
        space = {k: v for k, v in asdict(task.space).items() if v or k in ("observation", "actions", "choices")}
        kept = {"prepared": {"flop": prepared.flop, "score": prepared.score}} if self.agent.prepare else {}
        taught = {"teacher": describe(teachers.teacher(job.teacher))} if job.teacher else {}
        learned = {"data": {"path": job.data, **set_of(job.data, job.task).card}} if job.data else {}
        return {
            "name": job.name, "kind": KIND, "purpose": job.purpose, "seed": job.seed, "budget": dict(job.budget),
            "seal": job.seal, "method": job.method, "agent": describe(self.agent), "job": job.to_dict(),
            "arm": job.arm.data(),
            "task": {"name": job.task, "hash": source_of(job.task), "limit": task.limit, **space},
            "scale": {"random": random_return(job.task), "reference": task.reference},
            "update": {"flop": work.flop, "paper_flop": paper, "train": work.train, "score": work.score},
            "action": {"flop": action.flop, "score": action.score},
            "evaluated": {"flop": evaluated.flop, "score": evaluated.score},
            **({"offline": {"updates": job.offline_updates, "flop": self._price.first.flop}} if self.run.first else {}),
            "machine": machine(torch.get_num_threads(), About(kernels=computed_by())), **learned, **kept, **taught,
        }

    async def steps(self, run: Driver) -> AsyncGenerator[Mapping[str, Any], None]:
        while goal := self._goal(run):
            await self.stack.reach(self.run, goal)
            self._charge()
            self.step += 1
            self.spent = self.meter.of()
            yield {"step": self.step - 1, **self._counts(), **self._losses()}
        run.end.reason = "spent"

    def done(self, run: Driver) -> float:
        goal, now = self._goal(run), self._now
        return now / (goal - now) if goal else self.step

    @property
    def _now(self) -> int:
        """Where the run is on its axis: updates of an offline method, else updates on the set and then samples."""
        return self.run.updates if self.agent.offline else self.run.now

    @property
    def _work(self) -> Effort:
        """Of all updates, and of all actions that the policy chose."""
        work, action, many = self.run.work, self._price.action, self.run.acted
        return Effort(work.flop + many * action.flop, work.train, work.score + many * action.score)

    def _goal(self, run: Driver) -> int:
        """Where to be next on the axis: at the next evaluation, within the budget; 0 if nothing more fits."""
        now, k, sigma, first = self._now, self.run.environments, self.run.sigma, self.run.first
        sample, prepared = self._price.action.flop, self._price.prepared.flop
        learned = sigma * self._price.update.flop + prepared        # by each sample of a rollout, when it ends
        if self.run.progress.before:
            k, sigma, sample, learned = 1, 1.0, 0, self._price.first.flop
        begun = self.run.paid % self.agent.rollout
        ahead = [float(max(STRETCH, k)), *(max((first + p - now) // k * k, k) for p in run.points[:1])]
        if self.run.progress.before:
            ahead.append(first - now)
        for unit, amount in self.job.budget.items():
            per, used = {
                "env-steps": (1.0, float(now - first)), "updates": (sigma, self.run.updates + sigma * begun),
                "flop": (learned + sample, self._work.flop + begun * learned),
                "seconds": (run.clock() / max(now, 1), run.clock() if now else 0.0),
            }[unit]
            ahead.append((amount - used) / per if per else STRETCH)
            if unit != "env-steps":
                run.end.bound = unit
        fits = int(min(ahead) + 1e-9) // k * k
        return now + fits if fits > 0 else 0

    def _charge(self) -> None:
        """Charge what was done since the last charge. A kill loses what is not charged: at most one stretch."""
        work, was, spent = self._work, self._paid, self.meter.of()
        seconds = self.stack.seconds[id(self.run)]
        self.meter.charge(Cost(
            env_steps=self.run.env_steps - spent.env_steps, updates=self.run.updates - spent.updates,
            train=work.train - was.train, score=work.score - was.score, seconds=seconds - self._seconds))
        self._paid, self._seconds = work, seconds

    def _counts(self) -> dict[str, Any]:
        return {"env_steps": self.run.env_steps, "updates": self.run.updates, "flop": self._work.flop}

    def _losses(self) -> dict[str, float]:
        i = self.stack.index(self.run)
        found = {f"loss/{k}": float(x[i]) for k, x in self.stack.loop.losses.items()} if self.run.updates else {}
        return {k: x for k, x in found.items() if x == x}

    async def evaluate(self) -> dict[str, Any]:
        half = self.job.episodes
        returns, steps = await self.stack.evaluate(self.run, 2 * half)
        if not np.isfinite(returns).all():
            raise FloatingPointError("an action of the evaluation is not finite")
        seconds = self.stack.seconds[id(self.run)]
        many = int(steps.sum())
        self.meter.charge(Cost(env_steps=many, score=many * self._price.evaluated.score,
                               seconds=seconds - self._seconds), to=Payer(meters.EVALUATION))
        self._seconds = seconds
        low, high = random_return(self.job.task), self.task.reference
        scaled = (returns - low) / (high - low)
        return {
            **self._counts(),
            "eval/select": float(scaled[:half].mean()), "eval/audit": float(scaled[half:].mean()),
            "return": float(returns.mean()), "return/select": float(returns[:half].mean()),
            "return/audit": float(returns[half:].mean()), "return/sd": float(returns.std(ddof=1)),
            "eval/samples": half, "eval/length": float(steps.mean()),
        }

    def state(self) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        return self.stack.loop.save(self.stack.index(self.run))

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], lines: Sequence[Any]) -> None:
        self.stack.loop.load(self.stack.index(self.run), tensors, state)
        self.step, self.spent = state["step"], self.meter.of()
        self._paid = self._work

    def finish(self, run: Driver) -> dict[str, Any]:
        detail, at = "", f"sample {grouped(self.run.samples)}, update {grouped(self.run.updates)}"
        if run.end.reason == DIVERGED:
            rate = f"learning rate {self.run.rate:g}, {self.run.sigma:g} updates per sample"
            detail = f"{at}: {run.end.why} ({rate})"
        elif run.end.reason == "spent":
            budget = ", ".join(f"{grouped(v)} {k}" for k, v in self.job.budget.items())
            detail = f"no further {'update' if self.agent.offline else 'sample'} fits into {budget}"
        self.stack.leave(self.run)
        stored = self.run.samples
        notes = {"notes": set_of(self.job.data, self.job.task).notes} if self.job.data else {}
        flop = {"updates": self.run.work.flop, "acting": self.run.acted * self._price.action.flop,
                "evaluation": int(self.meter.of(meters.EVALUATION).env_steps) * self._price.evaluated.flop}
        told = {"flop_of": flop} if self._price.evaluated.flop else {}
        return {**({"detail": detail} if detail else {}), **notes, "samples": stored, "updates": self.run.updates,
                "flop": self._work.flop, **told, "transitions": {
                    "collected": stored, "stored": min(stored, self._capacity),
                    "evicted": max(stored - self._capacity, 0)}}

    @property
    def _capacity(self) -> int:
        return capacity_of(self.job)


CAPACITY = 1_000_000        # transitions of a replay, at most: SB3's default


def capacity_of(job: ControlJob) -> int:
    """Transitions that the replay of a run holds: all of its samples, up to `CAPACITY`."""
    return int(min(job.budget.get("env-steps", CAPACITY), CAPACITY))


def run_stack(
    jobs: Sequence[ControlJob], outs: Sequence[Path], *, save_every: int = 0, save_seconds: float = 60.0,
    stop_at: StopAt | None = None, on_step: Callable[[str, Mapping[str, Any]], None] = lambda name, line: None,
) -> list[dict[str, Any]]:
    """Run these jobs in one process, as one stack, each into its folder, or resume them; the contents of end.json.

    They differ in sigma, rate, seed and budget. On the same machine a run leaves the same metrics and weights, byte for
    byte, alone, in any stack, and after a kill. Each ends at the last line of metrics.jsonl that `stop_at` pays for; a
    larger amount, or none, continues it. Raises UserError for jobs that cannot share a stack, and for a folder that has
    another run.
    """
    if len({job.shared for job in jobs}) > 1:
        raise UserError("runs of one stack have the same task, method, batch, width and settings; start others alone")
    agent, task = agent_of(jobs[0]), open_task(jobs[0].task)
    for job, out in zip(jobs, outs, strict=True):
        agent_of(job)
        _refuse_another(job, out, agent)
        go_on(out, stop_at)
    todo = [(job, out) for job, out in zip(jobs, outs, strict=True) if not ended(out)]
    if todo:
        torch.set_num_threads(1)        # more threads split sums by the size of the stack
        finished(_go(todo, agent, task, {"save_every": save_every, "save_seconds": save_seconds,
                                             "stop_at": stop_at}, on_step))
    return [read_json(out / "end.json") for out in outs]


async def _go(
    todo: Sequence[tuple[ControlJob, Path]], agent: Agent, task: ControlTask, more: dict[str, Any],
    on_step: Callable[[str, Mapping[str, Any]], None],
) -> None:
    runs = [StackedRun(j.seed, j.arm.get("sigma", 1.0), j.arm["rate"], j.environments, j.offline_updates)
            for j, _ in todo]
    for (job, _), each in zip(todo, runs, strict=True):
        each.lessons = teachers.lessons(job.teacher, task, job.seed, job.environments) if job.teacher else None
    first = todo[0][0]
    rows = set_of(first.data, first.task).rows if first.data else None
    stack = Stack(Loop(agent, task, runs, 1 if agent.offline else max(capacity_of(j) for j, _ in todo), rows))
    with ExitStack() as opened:
        drivers = []
        for (job, out), run in zip(todo, runs, strict=True):
            record = opened.enter_context(RunRecord.opened(out))
            begun = read_json(out / "run.json") if (out / "run.json").exists() else {}
            work = ControlRun(job, agent, stack, run, begun)
            drivers.append(Driver(work, record, points=job.points, on_step=partial(on_step, job.name), **more))
        await together(drivers)


def _refuse_another(job: ControlJob, out: Path, agent: Agent) -> None:
    """Raises UserError, naming what differs, if the folder holds another run; of a new one, if its replay never holds
    as many transitions as a batch has. Before that, batches are drawn with repeats, as in SB3."""
    if not (out / "run.json").exists():
        if capacity_of(job) < agent.batch:
            raise UserError(f"batch is {agent.batch}, and the replay of a run of {grouped(capacity_of(job))} samples "
                            "never holds as many transitions: take a smaller --batch, or more samples")
        return
    there = read_json(out / "run.json")
    if there.get("kind") != KIND:
        raise UserError(f"{out} holds a run that is not of control; choose another --out")
    now = {"seed": job.seed, "budget": dict(job.budget), "arm": job.arm.data(), "agent": describe(agent),
           "task": {**there["task"], "name": job.task, "hash": source_of(job.task)}}
    if job.data:
        now["data"] = {**there.get("data", {}), "hash": set_of(job.data, job.task).card["hash"]}
    if job.teacher or "teacher" in there:
        now["teacher"] = describe(teachers.teacher(job.teacher)) if job.teacher else None
    if job.offline_updates or "offline" in there:
        now["offline"] = {**there.get("offline", {}), "updates": job.offline_updates}
    if changed := [k for k, v in now.items() if fingerprint(there.get(k)) != fingerprint(v)]:
        raise UserError(f"{out} holds another run: its {', '.join(changed)} differs; choose another --out")


def load_policy(folder: str | Path) -> ControlPolicy:
    """The policy of a run of control, from its newest checkpoint: `act(observation)` without the trainer.

    Raises UserError for a folder without such a run, without a checkpoint, or whose task has changed.
    """
    out = Path(folder)
    about = read_json(out / "run.json")
    if about.get("kind") != KIND:
        raise UserError(f"{out} is not a run of control: `isocost eval {out}` measures it")
    job = ControlJob.of(about["job"])
    if about["task"]["hash"] != source_of(job.task):
        raise UserError(f"{out} was trained on another version of {job.task}: its file has changed since")
    with RunRecord.opened(out) as record:
        found = record.checkpoints()
    if not found:
        raise UserError(f"{out} has no checkpoint: run the same `isocost train` again")
    return ControlPolicy(agent_of(job), open_task(job.task), read_tensors(found[-1] / "learner.safetensors"))
