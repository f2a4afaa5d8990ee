"""The contract: what every method file promises. The tests and `isocost methods check` both run this."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from isocost import methods, toy
from isocost.conflicts import refuse
from isocost.errors import UserError
from isocost.feed import Feed
from isocost.ledger import Ledger
from isocost.loop import Step, train
from isocost.pack import pack
from isocost.parts import select
from isocost.seams import SEAMS, Recipe, describe, diff, fingerprint
from isocost.types import Batch
from isocost.world import World

MACHINERY = ("feed", "loop", "pack", "run", "record", "evaluate", "study", "local", "toy", "check", "cli")


@dataclass(frozen=True)
class Finding:
    """One promise, and why it is broken; `why` is empty where it is kept."""

    promise: str
    why: str

    @property
    def kept(self) -> bool:
        return not self.why


class Trial:
    """A method on trial: its batch before and its world after a few steps, made when first asked for."""

    def __init__(self, method: Any, make_world: Callable[[], World]):
        self.method, self.make_world = method, make_world

    @cached_property
    def credited(self) -> tuple[Batch, Ledger, World]:
        """A batch with advantages and weights, and where it came from."""
        world = self.make_world()
        return *_batch(self.method, world), world

    @cached_property
    def trained(self) -> tuple[list[Step], Ledger, World]:
        """Four steps, small."""
        world, ledger, made = self.make_world(), Ledger(), self.method.recipe(groups=8)
        budget = {"rollouts": made.groups * made.rollouts * 4}

        async def go() -> list[Step]:
            return [step async for step in train(made, world, ledger, budget)]

        return asyncio.run(go()), ledger, world


Promise = Callable[[Trial], str]   # why it is broken; empty where it is kept


def check(
    name: str, make_world: Callable[[], World] = toy.world, promises: Sequence[Promise] | None = None
) -> list[Finding]:
    """Hold a method, by name or path, to every promise (or to some). `make_world` opens the world it is tried in."""
    trial = Trial(methods.load(name), make_world)
    return [Finding(_sentence(promise), _why(promise, trial)) for promise in promises or PROMISES]


def _why(promise: Promise, trial: Trial) -> str:
    try:
        return promise(trial)
    except Exception as error:      # other people's files may raise anything, and the rest should still be checked
        return f"{type(error).__name__}: {error}"


def _sentence(promise: Promise) -> str:
    return (inspect.getdoc(promise) or "").splitlines()[0]


def card(trial: Trial) -> str:
    """The file opens with a docstring, and its card makes one claim and names a parent that exists."""
    method = trial.method
    if not (method.__doc__ or "").strip():
        return "the file has no docstring: one sentence of idea, the equation, the paper"
    if not method.CARD.claim.endswith("."):
        return f"the claim must be a sentence: {method.CARD.claim!r} does not end in a full stop"
    parent = method.CARD.parent
    return "" if parent is None or parent in methods.names() else f"there is no parent {parent!r}"


def recipe(trial: Trial) -> str:
    """`recipe(**changes)` gives a Recipe that carries the changes."""
    method = trial.method
    made = method.recipe(groups=3, rollouts=5)
    if not isinstance(made, Recipe):
        return f"recipe() gave a {type(made).__name__}"
    return "" if (made.groups, made.rollouts) == (3, 5) else "it has other sizes: end with .but(**changes)"


def plain(trial: Trial) -> str:
    """The recipe is plain data: top-level functions and partials of them, which pickle and describe themselves."""
    method = trial.method
    made = method.recipe()
    for seam in SEAMS:
        for value in made.enrich if seam == "enrich" else [getattr(made, seam)]:
            fn = value.func if isinstance(value, partial) else value
            if not isinstance(fn, FunctionType) or "<" in fn.__qualname__:
                return f"{seam} is {fn!r}: a seam takes a top-level function or a partial of one"
    json.dumps(describe(made))
    again = pickle.loads(pickle.dumps(made))
    return "" if fingerprint(describe(again)) == fingerprint(describe(made)) else "the recipe changes when pickled"


def differs(trial: Trial) -> str:
    """It differs from its parent somewhere."""
    method = trial.method
    parent = method.CARD.parent
    same = parent is not None and not diff(methods.load(parent).recipe(), method.recipe())
    return f"the recipe is {parent}'s: nothing differs" if same else ""


def compatible(trial: Trial) -> str:
    """It holds nothing together that is known to conflict."""
    try:
        refuse(trial.method.recipe())
    except UserError as error:
        return str(error)
    return ""


def imports(trial: Trial) -> str:
    """It imports the parts, never the machinery that runs them."""
    method = trial.method
    modules = []
    for node in ast.walk(ast.parse(Path(method.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{a.name}" for a in node.names]
    wrong = sorted(m for m in modules if m.startswith(tuple(f"isocost.{part}" for part in MACHINERY)))
    return f"it imports {', '.join(wrong)}" if wrong else ""


def credit(trial: Trial) -> str:
    """Credit is finite, falls on sampled tokens only, and is not all zero."""
    batch, _, _ = trial.credited
    a = batch.advantage
    if a is None or a.shape != batch.tokens.shape:
        return f"advantage has shape {None if a is None else tuple(a.shape)}, the batch {tuple(batch.tokens.shape)}"
    if not bool(torch.isfinite(a).all()):
        return "some of it is not finite"
    if bool((a[~batch.mask] != 0).any()):
        return "some of it falls on tokens that the policy did not sample"
    return "" if bool((a != 0).any()) else "all of it is zero although groups earned different rewards"


def average(trial: Trial) -> str:
    """Weights are finite, not negative, zero off the mask, and not all zero."""
    batch, _, _ = trial.credited
    w = batch.weight
    if w is None or w.shape != batch.tokens.shape or not bool(torch.isfinite(w).all()):
        return "weights must be finite, one for each token"
    if bool((w < 0).any()) or bool((w[~batch.mask] != 0).any()):
        return "some are negative, or fall on tokens that the policy did not sample"
    return "" if bool((w > 0).any()) else "all of them are zero"


def pure(trial: Trial) -> str:
    """Advantage, weight and loss change nothing, and say the same when asked twice."""
    (batch, ledger, world), made = trial.credited, trial.method.recipe()
    before = {k: v.clone() for k, v in vars(batch).items() if isinstance(v, torch.Tensor)}
    for name, ask in {
        "advantage": lambda: made.advantage(batch, ledger),
        "weight": lambda: made.weight(batch),
        "loss": lambda: made.loss(world.learner.forward(batch), batch)[0].detach(),
    }.items():
        if not torch.equal(ask(), ask()):
            return f"{name} says something else the second time"
        changed = [k for k, v in before.items() if not torch.equal(v, getattr(batch, k))]
        if changed:
            return f"{name} wrote into batch.{', batch.'.join(changed)}: make a new tensor"
    return ""


def order(trial: Trial) -> str:
    """Credit follows the group, not its place in the batch."""
    (batch, ledger, _), made = trial.credited, trial.method.recipe()
    turned = torch.arange(len(batch.tokens)).flip(0)
    back = batch.but(group=batch.group.max() - batch.group).rows(turned)
    there, here = made.advantage(back, ledger).flip(0), made.advantage(batch, ledger)
    return "" if torch.allclose(there, here, atol=1e-6) else "it changes when groups are renumbered and rows turned"


def micro(trial: Trial) -> str:
    """The gradient does not depend on how a batch is cut into micro-batches."""
    batch, _, world = Trial(trial.method, toy.world).credited   # where double precision hides nothing
    learner: Any = world.learner
    grads = []
    for rows in (None, 1, 3):
        learner.micro = rows
        learner.gradient(batch, trial.method.recipe().loss)
        grads.append(torch.cat([p.grad.flatten().clone() for p in learner.policy.parameters()]))
    gap = max(float((g - grads[0]).abs().max()) for g in grads)
    return "" if gap <= 1e-10 else f"it moves by {gap:.1e}"


def agree(trial: Trial) -> str:
    """After an update the learner gives the log-probs that the sampler recorded."""
    _, _, world = trial.trained
    batch, _ = _batch(trial.method, world)
    with torch.no_grad():
        fresh = (batch.age[batch.rollout] == 0)[:, None] & batch.mask
        gap = float((world.learner.forward(batch).logp - batch.logp)[fresh].abs().max())
    return "" if gap <= 1e-4 else f"they differ by {gap:.1e}"


def runs(trial: Trial) -> str:
    """It trains: finite metrics, and every rollout that was paid for meets exactly one fate."""
    steps, ledger, world = trial.trained
    if not steps:
        return "no step was made: nothing survived `select`"
    bad = {k for s in steps for k in ("loss", "grad_norm") if not torch.isfinite(torch.tensor(s.line[k]))}
    if bad:
        return f"{', '.join(sorted(bad))} became infinite or not a number"
    paid, met = world.meter.of().rollouts, sum(ledger.fates.values())
    return "" if paid == met else f"{paid} rollouts were paid for and {met} have a fate"


PROMISES = (card, recipe, plain, differs, compatible, imports, credit, average, order, micro, runs, agree, pure)


def _batch(method: Any, world: World) -> tuple[Batch, Ledger]:
    """One batch of the method in this world, credited and weighed; nothing filtered, so that it is never empty."""
    made, ledger = method.recipe(groups=8, select=select.everything), Ledger()

    async def take() -> Batch:
        limit = world.meter.of().rollouts + 4 * made.groups * made.rollouts
        async with Feed(made, world, ledger, {"rollouts": limit}) as feed:
            return pack(await feed.take(), version=world.engine.version)

    batch = asyncio.run(take())
    for add in made.enrich:
        batch = add(batch, world)
    batch = batch.but(advantage=made.advantage(batch, ledger))
    return batch.but(weight=made.weight(batch)), ledger
