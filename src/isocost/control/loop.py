"""The loop of control: act, store, sample, update, for all runs of a stack at once. There is no other.

One tick is one update of each run that owes one. A run owes an update when its updates are fewer than its updates per
sample times the samples for which updates are owed (those of whole rollouts, if it is on-policy), so runs of different
updates per sample, learning rate and seed share a stack. Every number of a run comes from its own rows and its own
addresses: its bytes do not depend on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.chance import Purpose, generator
from isocost.control.luck import Draws, Luck
from isocost.control.networks import Effort, Network, Params
from isocost.control.optimise import Moments, adam, follow
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.teachers import Lessons
from isocost.control.types import ControlTask, Progress, Tempo
from isocost.errors import RewardFailed

WIDE = 32       # rows that acting is padded to: `networks.LANES`
STARTS = 0      # the seed of the states that evaluations begin in: the same ones for every run and every evaluation


@dataclass
class StackedRun:
    """One run of a stack: what it is, and where it is."""

    seed: int
    sigma: float                # updates per sample
    rate: float                 # learning rate
    environments: int = 1       # stepped together; updates per sample do not depend on it
    first: int = 0              # updates on the set, before the first sample
    samples: int = 0            # environment steps
    updates: int = 0
    paid: int = 0               # samples for which updates are owed: all but those of phases that do not learn
    acted: int = 0              # samples whose action the policy chose, and not the uniform warm-up
    resets: int = 0
    episodes: list[int] = field(default_factory=list)       # of each environment: the number of its current one
    lasted: list[int] = field(default_factory=list)         # and its steps so far
    work: Effort = field(default_factory=Effort)                # of all updates
    lessons: Lessons | None = None      # of a run that a teacher chooses episodes for
    failure: Exception | None = None
    source: Draws = field(init=False)

    def __post_init__(self) -> None:
        self.source = Draws(self.seed)
        self.episodes = self.episodes or [0] * self.environments
        self.lasted = self.lasted or [0] * self.environments

    @property
    def progress(self) -> Progress:
        return Progress(self.samples, self.updates, self.first)

    @property
    def now(self) -> int:
        """Its progress: updates on the set; after these, all of them plus the environment steps it has paid."""
        return self.updates if self.progress.before else self.first + self.env_steps

    @property
    def env_steps(self) -> int:
        """Its samples, and the steps of demonstrations that its teacher starts from."""
        return self.samples + sum(len(x) - 1 for x in (self.lessons.shown if self.lessons else ()))

    def counters(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        kept = "samples", "updates", "paid", "acted", "resets", "episodes", "lasted"
        return {k: getattr(self, k) for k in kept} | {"work": [self.work.flop, self.work.train, self.work.score]}


class Loop:
    """The live state of a stack. Everything of run i is at index i of every array."""

    def __init__(
        self, agent: Agent, task: ControlTask, runs: Sequence[StackedRun], capacity: int, data: Tensor | None = None
    ):
        """With `data`, (N, W), the runs share this set; `capacity` is of each run's own transitions, if it acts."""
        self.agent, self.task, self.runs = agent, task, list(runs)
        self.networks: Mapping[str, Network] = agent.networks(task.space, agent)
        k = runs[0].environments
        held = None if data is None else Replay.of_set(task.space, len(runs), data)
        self.replay = held if held and agent.offline else replace(
            Replay.of(task.space, len(runs), capacity, k, agent.rollout, agent.kept), prior=held)
        self.weights = {name: torch.stack([self._fresh(run, name) for run in runs]) for name in self.networks}
        self.slow = {name: self.weights[name].clone() for name, net in self.networks.items() if net.slow}
        self.moments = {name: Moments.of(w) for name, w in self.weights.items()}
        self.states = np.stack([[self._begin(i, e) for e in range(k)] for i in range(len(runs))])
        self.losses: dict[str, Tensor] = {}     # of each network's last update, (S,); NaN: none since the first sample

    def _fresh(self, run: StackedRun, name: str) -> Tensor:
        rng = generator(run.seed, Purpose.INIT, crc32(name.encode()), run.resets)
        return torch.from_numpy(self.networks[name].start(rng))

    def _begin(self, i: int, environment: int) -> ndarray:
        run = self.runs[i]
        rng = generator(run.seed, Purpose.ENVIRONMENT, environment, run.episodes[environment])
        if run.lessons:
            return run.lessons.begin(environment, rng)
        return self.task.begin(rng, ("train", run.seed, environment))

    # one tick -------------------------------------------------------------------------------------------------

    def advance(self, until: Sequence[int]) -> list[int]:
        """Tick until some run's `now` is at its `until` and it owes no update, or it has failed; returns these runs.

        For a run that does not act, `until` is a number of updates.
        """
        while True:
            live = range(len(self.runs))
            tempo = [self.agent.tempo(run.progress) for run in self.runs]
            while acting := [i for i in live if tempo[i].acts and not self._owes(self.runs[i])
                             and self.runs[i].now < until[i]]:
                self._act(acting, tempo)
                for i in acting:
                    tempo[i] = self.agent.tempo(self.runs[i].progress)
                if failed := [i for i in acting if self.runs[i].failure]:
                    return failed
            if arrived := [i for i, run in enumerate(self.runs)
                           if not (self._owes(run) if tempo[i].acts else run.updates < until[i])]:
                return arrived
            groups: dict[tuple[frozenset[str], float, bool, bool], list[int]] = {}
            for i in live:
                self._reset(i, tempo[i])
                number = self.runs[i].updates + 1
                due = frozenset(n for n in self.networks if number % tempo[i].every.get(n, 1) == 0)
                follows = number % tempo[i].slow_every == 0
                groups.setdefault((due, tempo[i].tau, follows, tempo[i].acts), []).append(i)
            for (due, tau, follows, acts), rows in groups.items():
                self._update(rows, due, tau if follows else 0.0, acts)
            if failed := [i for i in live if self.runs[i].failure]:
                return failed

    def _owes(self, run: StackedRun) -> bool:
        """Whether an update is due before the next sample."""
        return run.updates + 1 <= run.first + run.sigma * (run.paid - run.paid % self.agent.rollout)

    def _act(self, rows: Sequence[int], tempo: Sequence[Tempo]) -> None:
        runs = [self.runs[i] for i in rows]
        k = runs[0].environments
        states = self.states[list(rows)]
        seen = self.observe(states)
        luck = Luck([r.source for r in runs], [r.samples // k for r in runs], "act")
        action = np.empty((len(rows), k, self.task.space.actions))
        wild = [j for j, i in enumerate(rows) if tempo[i].random]
        tame = [j for j, i in enumerate(rows) if not tempo[i].random]
        if wild:
            part = Luck([luck.sources[j] for j in wild], [luck.counts[j] for j in wild], "random")
            u = part.uniform("action", k, self.task.space.actions).double().numpy()
            action[wild] = np.floor(u * self.task.space.choices) if self.task.space.discrete else 2 * u - 1
        if tame:
            part = Luck([luck.sources[j] for j in tame], [luck.counts[j] for j in tame], "act")
            action[tame] = self.policy([rows[j] for j in tame], seen[tame], part)
        lost = np.logical_not(np.isfinite(action).all((1, 2)))    # acted by weights that are not finite
        action[lost] = 0
        flat = states.reshape(len(rows) * k, -1)
        after, reward, ended = self.task.step(flat, self.scaled(action.reshape(len(flat), -1)))
        after, reward, ended = after.reshape(states.shape), reward.reshape(len(rows), k), ended.reshape(len(rows), k)
        then, whole = self.observe(after), list[int]()
        for j, (i, run) in enumerate(zip(rows, runs, strict=True)):
            if lost[j]:
                run.failure = FloatingPointError("an action is not finite")
                continue
            run.lasted = [x + 1 for x in run.lasted]
            cut = (np.array(run.lasted) >= (run.lessons.now[:, -1] if run.lessons else self.task.limit)) & ~ended[j]
            parts = seen[j], action[j], reward[j, :, None], then[j], ended[j, :, None], cut[:, None]
            made = np.concatenate(parts, -1)
            if not np.isfinite(made).all():
                where = f"sample {run.samples + 1}, episode {run.episodes[0] + 1}"
                run.failure = RewardFailed(f"{self.task.name} gave an observation or a reward that is not finite "
                                           f"({where}): the environment failed, not the agent")
                continue
            for loss in self.losses.values() if not run.samples else ():
                loss[i] = torch.nan     # those of updates on the set, which may have trained other networks
            self.replay.add([i], torch.from_numpy(made[None]).float())
            run.samples += k
            run.acted += 0 if tempo[i].random else k
            run.paid += k * tempo[i].learns
            if tempo[i].learns and run.paid % self.agent.rollout == 0:
                whole.append(i)
            self.states[i] = after[j]
            if run.lessons:
                run.lessons.stepped(reward[j], ended[j] | cut)
            for e in np.flatnonzero(ended[j] | cut):
                run.episodes[e] += 1
                run.lasted[e] = 0
                self.states[i, e] = self._begin(i, int(e))
        if whole and self.agent.prepare:
            self.prepare(whole)

    def prepare(self, rows: Sequence[int]) -> None:
        """Store what the agent's `prepare` computes of the last rollout of these runs, and charge it."""
        assert self.agent.prepare is not None
        work, replay = Effort(), self.replay.view(rows)
        with torch.no_grad():
            replay.keep(self.agent.prepare(replay, Params(self.networks, self._of(self.weights, rows), work=work)))
        for i in rows:
            self.runs[i].work.flop += work.flop
            self.runs[i].work.score += work.score

    def observe(self, states: ndarray) -> ndarray:
        """(n, k, D) -> (n, k, O)."""
        return self.task.observe(states.reshape(-1, states.shape[-1])).reshape(*states.shape[:2], -1)

    def scaled(self, action: ndarray) -> ndarray:
        """Actions of an agent in the task's bounds."""
        if self.task.space.discrete:
            return action
        low, high = self.task.bounds
        return low + (np.clip(action, -1, 1) + 1) / 2 * (high - low)

    def policy(self, rows: Sequence[int], seen: ndarray, luck: Luck | None) -> ndarray:
        """(n, k, O) -> (n, k, A): the actions of these runs, evaluated ones without luck.

        Rows are padded so that a run's numbers are computed by the same instructions in every stack.
        """
        k = seen.shape[1]
        padded = np.zeros((len(rows), -(-k // WIDE) * WIDE, seen.shape[2]), np.float32)
        padded[:, :k] = seen
        params = Params(self.networks, self._of(self.weights, rows))
        with torch.no_grad():
            return self.agent.explore(params, torch.from_numpy(padded), luck)[:, :k].double().numpy()

    def of_action(self, drawn: bool) -> Effort:
        """What one action of the first run takes, with exploration or without."""
        luck, work = Luck([self.runs[0].source], [0], "act"), Effort()
        with torch.no_grad():
            self.agent.explore(Params(self.networks, self._of(self.weights, [0]), work=work),
                               torch.zeros(1, 1, self.task.space.observation), luck if drawn else None)
        return work

    def _of(self, arrays: Mapping[str, Tensor], rows: Sequence[int]) -> dict[str, Tensor]:
        every = len(rows) == len(self.runs)
        return {k: x if every else x[list(rows)] for k, x in arrays.items()}

    def _update(self, rows: Sequence[int], due: frozenset[str], tau: float, acts: bool = True) -> None:
        runs, agent = [self.runs[i] for i in rows], self.agent
        replay = self.replay if acts else self.replay.prior or self.replay
        luck = Luck([r.source for r in runs], [r.updates for r in runs], "update")
        weights = {k: x.detach().requires_grad_(k in due) for k, x in self._of(self.weights, rows).items()}
        slow = self._of(self.slow, rows)
        work = Effort()
        params = Params(self.networks, weights, due, work)
        with torch.no_grad():
            batch = agent.imagine(agent.sample(replay.view(rows), agent.batch, luck), params, luck)
            target = agent.target(batch, params, Params(self.networks, slow, due, work), luck)
        losses = agent.losses(batch, target, params, luck)
        total = torch.stack(list(losses.values())).sum(0)
        gradients = torch.autograd.grad(total.sum(), [weights[name] for name in losses])
        rate = torch.tensor([r.rate for r in runs], dtype=torch.float64)
        with torch.no_grad():
            for name, gradient in zip(losses, gradients, strict=True):
                own = self._moments(name, rows)
                adam(weights[name], own, gradient, rate, self.networks[name].decay)
                self._put(self.weights[name], weights[name], rows)
                for part in ("first", "second", "steps"):
                    self._put(getattr(self.moments[name], part), getattr(own, part), rows)
            for name, copy in slow.items() if tau else ():
                follow(copy, weights[name], tau)
                self._put(self.slow[name], copy, rows)
        for name, loss in losses.items():
            self._put(self._losses_of(name), loss.detach(), rows)
        whole = torch.isfinite(total)
        for run, fine in zip(runs, whole.tolist() if not whole.all() else [True] * len(runs), strict=True):
            run.updates += 1
            run.work.flop, run.work.train = run.work.flop + work.flop, run.work.train + work.train
            run.work.score += work.score
            if not fine:
                run.failure = FloatingPointError("a loss is not finite")

    def _losses_of(self, name: str) -> Tensor:
        return self.losses.setdefault(name, torch.full((len(self.runs),), torch.nan))

    def _moments(self, name: str, rows: Sequence[int]) -> Moments:
        m = self.moments[name]
        return m if len(rows) == len(self.runs) else Moments(*(x[list(rows)] for x in (m.first, m.second, m.steps)))

    def _put(self, whole: Tensor, part: Tensor, rows: Sequence[int]) -> None:
        """Write back what was copied for some of the runs; nothing where it is the same memory."""
        if whole.data_ptr() != part.data_ptr():
            whole[list(rows)] = part

    def _reset(self, i: int, tempo: Tempo) -> None:
        if tempo.reset:
            run = self.runs[i]
            run.resets += 1
            for name, w in self.weights.items():
                w[i] = self._fresh(run, name)
                if name in self.slow:
                    self.slow[name][i] = w[i]
                for x in (self.moments[name].first, self.moments[name].second, self.moments[name].steps):
                    x[i] = 0

    # evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, rows: Sequence[int], episodes: int, *, seed: int = STARTS) -> ndarray:
        """(2, n, episodes): returns and steps of fresh episodes without exploration.

        NaN for a run whose actions are not finite.
        """
        task, n = self.task, len(rows)
        states = np.stack([[task.begin(generator(seed, Purpose.EVALUATION, e), ("evaluate", self.runs[i].seed, e))
                            for e in range(episodes)] for i in rows])
        going, total, steps = np.ones((n, episodes), bool), np.zeros((n, episodes)), np.zeros((n, episodes), int)
        sampled, sources = self.agent.tempo(Progress(0, 0)).sampled, [self.runs[i].source for i in rows]
        for step in range(task.limit):
            luck = Luck(sources, [step] * n, f"evaluate {seed}") if sampled else None
            action = self.policy(rows, self.observe(states), luck)
            total[~np.isfinite(action).all((1, 2))] = np.nan
            action = np.nan_to_num(action)
            flat = states.reshape(n * episodes, -1)
            after, reward, ended = task.step(flat, self.scaled(action.reshape(len(flat), -1)))
            total += np.where(going, reward.reshape(going.shape), 0.0)
            steps += going
            going &= ~ended.reshape(going.shape)
            states = after.reshape(states.shape)
            if not going.any():
                break
        return np.stack((total, steps))

    # checkpoints ----------------------------------------------------------------------------------------------

    def save(self, i: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """A run's part, alone: tensors and plain data."""
        tensors = {**self.replay.save(i), "state": torch.from_numpy(self.states[i].copy())}
        if lessons := self.runs[i].lessons:
            tensors |= lessons.save()
        for name, w in self.weights.items():
            m = self.moments[name]
            tensors |= {f"{name}.weights": w[i].clone(), f"{name}.first": m.first[i].clone(),
                        f"{name}.second": m.second[i].clone(), f"{name}.steps": m.steps[i].clone()}
            if name in self.slow:
                tensors[f"{name}.slow"] = self.slow[name][i].clone()
        losses = [[k, float(x[i])] for k, x in self.losses.items() if torch.isfinite(x[i])]     # in their order
        return tensors, {"run": self.runs[i].counters(), "stored": self.replay.stored[i], "losses": losses}

    def load(self, i: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """What `save` gave, at any place of any stack of the same agent and task."""
        run, counters = self.runs[i], dict(state["run"])
        run.work = Effort(*counters.pop("work"))
        for k, value in counters.items():
            setattr(run, k, value)
        self.replay.load(i, tensors, state["stored"])
        if run.lessons:
            run.lessons.load(tensors)
        for name, loss in state.get("losses", ()):      # earlier versions did not save them
            self._losses_of(name)[i] = loss
        self.states[i] = self._again(i) if self.task.live else tensors["state"].numpy()
        for name, w in self.weights.items():
            m = self.moments[name]
            w[i], m.first[i], m.second[i] = (tensors[f"{name}.{part}"] for part in ("weights", "first", "second"))
            m.steps[i] = tensors[f"{name}.steps"]
            if name in self.slow:
                self.slow[name][i] = tensors[f"{name}.slow"]

    def _again(self, i: int) -> ndarray:
        """(k, D): the states of live environments, each reached by the actions of its episode."""
        run, replay, states = self.runs[i], self.replay, []
        for e, steps in enumerate(run.lasted):
            state = self._begin(i, e)
            for back in range(steps, 0, -1):
                row = replay.rows[i, (replay.stored[i] - back * run.environments + e) % replay.capacity]
                action = replay.split(row)[1].double().numpy()
                state = self.task.step(state[None], self.scaled(action[None]))[0][0]
            states.append(state)
        return np.stack(states)

    def drop(self, i: int) -> None:
        """Take a run out of the stack: those behind it move up."""
        keep = [j for j in range(len(self.runs)) if j != i]
        self.runs = [self.runs[j] for j in keep]
        self.weights, self.slow = ({k: x[keep] for k, x in a.items()} for a in (self.weights, self.slow))
        self.losses = {k: x[keep] for k, x in self.losses.items()}
        self.moments = {k: Moments(m.first[keep], m.second[keep], m.steps[keep]) for k, m in self.moments.items()}
        self.replay = self.replay.only(keep)
        self.states = self.states[keep]
