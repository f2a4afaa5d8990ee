"""The contract of methods of control: what every file promises. The tests and `isocost methods check` both run this."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isocost.control import methods
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Luck
from isocost.control.networks import Params
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.tasks import open_task
from isocost.control.types import ControlTask, Progress, Transitions
from isocost.errors import UserError
from isocost.promise import Promise, broken, sentence
from isocost.recipe import describe

# the first that it takes
TASKS = {"continuous": ("pendulum", "held:4", "goalmaze:8", "rooms"), "discrete": ("lock:8",)}
BATCH, WIDTH, SAMPLES, UPDATES = 16, 32, 64, 24
RUNS = (3, 5, 8)        # seeds of the stack that is tried
LATE = 1_000_000        # samples after which no tempo still warms up


class AgentTrial:
    """A method on trial: its agent, small, and a stack of three runs on a replay of random actions. With `first` it is
    tried in its updates on a set, before the first sample."""

    def __init__(self, name: str, first: bool = False):
        self.module, self.first = methods.load(name), first

    @cached_property
    def agent(self) -> Agent:
        made: Agent = self.module.agent(batch=BATCH, width=WIDTH)
        return made

    def stack(self, seeds: Sequence[int] = RUNS) -> Loop:
        """Runs that have taken `SAMPLES` random samples and made no update."""
        agent = self.agent.but(tempo=_random)
        loop = Loop(agent, task_of(agent), [StackedRun(s, 1.0, 1e-3) for s in seeds], 4 * SAMPLES)
        loop.advance([SAMPLES] * len(seeds))
        loop.agent = self.agent
        if self.agent.warms:
            rows = loop.replay.rows[list(seeds).index(RUNS[0]), :SAMPLES].clone()
            loop.replay.prior = Replay.of_set(loop.task.space, len(seeds), rows)
        if self.agent.prepare:
            loop.prepare(range(len(seeds)))
        return loop

    def batch(self, loop: Loop) -> tuple[Transitions, Params, Params, Luck]:
        """What the functions of an update get, in the first update of a stack."""
        luck = Luck([r.source for r in loop.runs], [0] * len(loop.runs), "update")
        due = frozenset(loop.networks)
        weights = {k: w.detach().clone().requires_grad_() for k, w in loop.weights.items()}
        slow = {k: w.detach().clone() for k, w in loop.slow.items()}
        replay = loop.replay.prior if self.first and loop.replay.prior else loop.replay
        params = Params(loop.networks, weights, due)
        with torch.no_grad():
            drawn = self.agent.sample(replay.view(range(len(loop.runs))), BATCH, luck)
            batch = self.agent.imagine(drawn, params, luck)
        return batch, params, Params(loop.networks, slow, due), luck

    def losses(self, loop: Loop) -> tuple[dict[str, Tensor], Tensor, Params]:
        """The losses of the first update of a stack, its target, and the weights."""
        batch, params, slow, luck = self.batch(loop)
        with torch.no_grad():
            target = self.agent.target(batch, params, slow, luck)
        return self.agent.losses(batch, target, params, luck), target, params


def task_of(agent: Agent) -> ControlTask:
    """A small task that the method takes. Raises UserError as its networks do, if there is none."""
    *others, last = (open_task(name) for name in TASKS[agent.acts])
    for task in others:
        with suppress(UserError):
            agent.networks(task.space, agent)
            return task
    return last


def _random(so_far: Any) -> Any:
    return replace(methods.load("sac").agent().tempo(so_far), random=True, learns=False)


def check(name: str) -> list[Promise]:
    """Check a method of control, by name or path, against every promise; one that is broken ends the trial of those
    that build on it."""
    trial, first, out = AgentTrial(name), AgentTrial(name, True), list[Promise]()
    for promise in PROMISES:
        if needed := next((p for p in out[1:3] if not p.kept), None):
            out.append(Promise(sentence(promise), f"not tried before this is kept: {needed.promise}", tried=False))
            continue
        why = broken(promise, trial.module.__file__, trial)
        if not why and len(out) > 1 and trial.agent.warms and (told := broken(promise, trial.module.__file__, first)):
            why = f"before the first sample: {told}"
        out.append(Promise(sentence(promise), why))
    return out


def card(trial: AgentTrial) -> str:
    """The file begins with a docstring that has an equation, and its card makes one claim."""
    if (trial.module.__doc__ or "").count("\n") < 2:
        return "the docstring has no equation: one sentence, then the equation and the paper"
    claim = trial.module.CARD.claim
    return "" if claim.endswith(".") else f"the claim must be a sentence: {claim!r} does not end in a full stop"


def agent(trial: AgentTrial) -> str:
    """`agent(**changes)` returns an Agent with the changes, of top-level functions and partials of them."""
    made = trial.agent
    if not isinstance(made, Agent):
        return f"agent() returned {'None: is a `return` missing?' if made is None else f'a {type(made).__name__}'}"
    if (made.batch, made.width) != (BATCH, WIDTH):
        return "it ignores the sizes: end with .but(**changes)"
    if made.acts not in TASKS:
        return f"acts is {made.acts!r}, expected one of {', '.join(TASKS)}"
    describe(made)      # raises UserError for a lambda
    return ""


def shapes(trial: AgentTrial) -> str:
    """Every array has the runs in front: a target (S, B, ...), the loss of a network (S,), an action (S, R, A)."""
    loop, runs = trial.stack(), len(RUNS)
    batch, params, slow, luck = trial.batch(loop)
    with torch.no_grad():
        target = trial.agent.target(batch, params, slow, luck)
        seen = batch.observation
        action = trial.agent.explore(params, seen, luck)
    if tuple(target.shape[:2]) != (runs, BATCH):
        return f"target has shape {tuple(target.shape)}, expected (S, B) = {(runs, BATCH)}, or more axes behind these"
    losses = trial.agent.losses(batch, target, params, luck)
    if unknown := sorted(set(losses) - set(loop.networks)):
        return f"losses names {unknown[0]!r}, which is no network: {', '.join(loop.networks)}"
    for name, loss in losses.items():
        if tuple(loss.shape) != (runs,):
            return (f"the loss of {name} has shape {tuple(loss.shape)}, expected (S,) = ({runs},): one number for each "
                    "run")
    expected = (*seen.shape[:2], loop.task.space.actions)
    if tuple(action.shape) != expected:
        return f"explore returned shape {tuple(action.shape)}, expected (S, R, A) = {expected}"
    return ""


def acting(trial: AgentTrial) -> str:
    """Actions are in [-1, 1], or numbers of discrete ones; without luck the same observation has the same action."""
    loop = trial.stack()
    batch, params, _, luck = trial.batch(loop)
    space = loop.task.space
    with torch.no_grad():
        for given in (luck, None):
            action = trial.agent.explore(params, batch.observation, given)
            low, high = (0, space.choices - 1) if space.discrete else (-1, 1)
            if not ((action >= low) & (action <= high)).all():
                return f"explore returned {float(action.abs().max()):.3g}, outside of [{low}, {high}]"
        again = trial.agent.explore(params, batch.observation, None)
    return "" if bool((action == again).all()) else "explore without luck returned two actions for one observation"


def unmixed(trial: AgentTrial) -> str:
    """What a run computes does not depend on the other runs of its stack."""
    loop, other = trial.stack(), trial.stack((RUNS[0], 13, 21))
    (one, target, _), (two, target2, _) = trial.losses(loop), trial.losses(other)
    parts = {"target": (target[0], target2[0]), **{f"the loss of {k}": (one[k][0], two[k][0]) for k in one}}
    for name, (a, b) in parts.items():
        if not torch.equal(a, b):
            return f"{name} of the first run changes with the other runs: reduce over B, (-1), and never over S, (0)"
    return ""


def own_luck(trial: AgentTrial) -> str:
    """Random numbers come from `luck` alone: the generators of torch, numpy and Python are not read."""
    loop = trial.stack()
    before = torch.get_rng_state(), repr(np.random.get_state()), random.getstate()
    trial.losses(loop)
    batch, params, _, luck = trial.batch(loop)
    with torch.no_grad():
        trial.agent.explore(params, batch.observation, luck)
    now = torch.get_rng_state(), repr(np.random.get_state()), random.getstate()
    for name, a, b in zip(("torch", "numpy", "random"), before, now, strict=True):
        if not (torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b):
            return (f"it reads the generator of {name}, so a resumed run differs: draw with luck.normal(NAME, *SHAPE) "
                    "or luck.uniform")
    return ""


def own_gradients(trial: AgentTrial) -> str:
    """The loss of a network trains that network alone; what it only reads goes through `params.fixed`."""
    losses, _, params = trial.losses(trial.stack())
    for name, loss in losses.items():
        others = {k: w for k, w in params.weights.items() if k != name}
        if not loss.requires_grad:
            return f"the loss of {name} has no gradient: is it detached?"
        for other, weights in others.items():
            gradient, = torch.autograd.grad(loss.sum(), weights, retain_graph=True, allow_unused=True)
            if gradient is not None and bool((gradient != 0).any()):
                return f"the loss of {name} has a gradient in {other}: read it with params.fixed({other!r}, ...)"
    return ""


def slow_copies(trial: AgentTrial) -> str:
    """Neither the slow copies nor the weights are written by the functions, and no gradient reaches a slow copy."""
    loop = trial.stack()
    batch, params, slow, luck = trial.batch(loop)
    attached = {k: w.requires_grad_() for k, w in slow.weights.items()}
    weights = [*attached.values(), *params.weights.values()]
    before = [w.detach().clone() for w in weights]
    with torch.no_grad():
        target = trial.agent.target(batch, params, Params(loop.networks, attached, slow.due), luck)
    if target.requires_grad:
        return "target turns gradients on, and one reaches the slow copy: leave out torch.enable_grad()"
    total = torch.stack(list(trial.agent.losses(batch, target, params, luck).values())).sum()
    reached = torch.autograd.grad(total, list(attached.values()), allow_unused=True) if attached else ()
    if any(g is not None for g in reached):
        return "a gradient reaches the slow copy: compute what reads it in `target`"
    if any(not torch.equal(was, now) for was, now in zip(before, weights, strict=True)):
        return "weights are written in place: return losses, and leave the step to the loop"
    return ""


def alone(trial: AgentTrial) -> str:
    """A run leaves the same bytes alone and in a stack, after 24 updates, and its losses are finite."""
    def after(seeds: Sequence[int]) -> str:
        loop = trial.stack(seeds)
        for number in range(1, UPDATES + 1):
            tempo = trial.agent.tempo(Progress(LATE, number, LATE if trial.first else 0))
            due = frozenset(k for k in loop.networks if number % tempo.every.get(k, 1) == 0)
            loop._update(range(len(seeds)), due, tempo.tau, not trial.first)
        if lost := [r for r in loop.runs if r.failure]:
            raise FloatingPointError(f"update {lost[0].updates}: {lost[0].failure}")
        i = list(seeds).index(RUNS[0])
        return hashlib.sha256(b"".join(w[i].numpy().tobytes() for w in loop.weights.values())).hexdigest()

    return "" if after(RUNS[:1]) == after(RUNS[::-1]) else (
        f"the weights of a run differ after {UPDATES} updates alone and in a stack of {len(RUNS)}")


PROMISES: tuple[Callable[[AgentTrial], str], ...] = (
    card, agent, shapes, acting, unmixed, own_luck, own_gradients, slow_copies, alone)
