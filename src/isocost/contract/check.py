"""The contract: what every method file promises. The tests and `isocost methods check` both run this."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from isocost import chance, methods, ops
from isocost.batch import Batch
from isocost.contract.conflicts import refuse
from isocost.contract.unfit import place, unfit, watched
from isocost.credit import credited
from isocost.errors import Interrupted, RewardFailed, UserError
from isocost.feed import Feed
from isocost.gather import finished
from isocost.ledger import Ledger
from isocost.loop import Step, train
from isocost.parts import select
from isocost.promise import Promise, broken, sentence
from isocost.recipe import describe, diff, fingerprint, functions, paced
from isocost.scorers import pretended
from isocost.seams import Pace, Recipe
from isocost.types import End, Group, Problem
from isocost.world import World
from isocost.worlds import toy

MACHINERY = ("feed", "loop", "runs", "worlds", "local", "contract", "steps", "compare", "planner", "cli")
ALONE = 16                  # groups of one that are tried
SMALL = 4                   # groups of a step of a trial
PARTED = 16                 # rows of a batch that is split into micro-batches
LEAST, MOST = 4, 512        # groups, and about as many rollouts, of a step that is tried before it is paid for


class Trial:
    """A method on trial: its batch before and its world after a few steps, made on first use."""

    def __init__(self, method: Any, make_world: Callable[[], World] | None = None):
        self.method, self.in_toy = method, make_world is None
        self.make_world = make_world or (lambda: toy_for(toy.holds_dialogues(method.recipe())))

    @cached_property
    def credited(self) -> tuple[Batch, Ledger, World]:
        """A batch with advantages and weights, and where it came from."""
        world = self.make_world()
        return *_batch(self.method, world), world

    @cached_property
    def trained(self) -> tuple[list[Step], Ledger, World]:
        """Four steps, small."""
        return self.train()

    def train(self) -> tuple[list[Step], Ledger, World]:
        """The same in a world of their own."""
        world, ledger, made = self.make_world(), Ledger(), self.method.recipe(groups=SMALL)
        budget, end = {"rollouts": made.groups * made.rollouts * 4}, End()

        async def go() -> list[Step]:
            return [step async for step in train(made, world, ledger, budget, end)]

        steps = finished(go())
        if end.why:
            raise UserError(end.why)
        return steps, ledger, world


class _Letters(toy.Letters):
    """Reads unknown letters as known ones: a method's own words have more than four letters."""

    def encode(self, text: str) -> list[int]:
        return super().encode("".join(c if c in toy.ALPHABET else "!" for c in text))


def toy_for(dialogues: bool) -> World:
    """The toy world, of dialogues or the other, also for methods that add words of their own to the prompt."""
    world = toy.dialogues() if dialogues else toy.world()
    world.text = _Letters()
    return world


PromiseTest = Callable[[Trial], str]   # why it is broken; empty where it is kept


def check(
    name: str, make_world: Callable[[], World] | None = None, promises: Sequence[PromiseTest] | None = None
) -> list[Promise]:
    """Check a method, by name or path, against every promise (or some). `make_world` opens the world of the trial. By
    default it is the toy world: of dialogues, if a function of the method declares `needs_turns`."""
    trial, found = Trial(methods.load(name), make_world), dict[str, Promise]()
    for promise in promises or PROMISES:
        first = next((r for r in RESTS.get(promise.__name__, ()) if r in found and not found[r].kept), "")
        why = found[first].why if first else broken(promise, trial.method.__file__, trial)
        if first and found[first].tried:
            why = f"not tried before this is kept: {found[first].promise}"
        found[promise.__name__] = Promise(sentence(promise), why, tried=not first)
    return list(found.values())


def tried(method: str, recipe: Recipe, *, sets: Mapping[str, str] | None = None, like: Sequence[Problem] = ()) -> None:
    """Run two steps of a recipe in `isocost.worlds.toy`, at its own n, before a run is paid for.

    The number of groups is limited to about 512 rollouts. `method` is the user's name for it: a name, a path or
    METHOD@SETTINGS. `sets` are the settings given besides; `like` are the problems that it is meant for, whose `meta`
    the toy's problems get. Raises UserError with method, settings, the error, and the last line of the method's file
    that led to it, or of the package if none did.
    """
    dialogues, n = toy.holds_dialogues(recipe), recipe.rollouts
    world = toy_for(dialogues)
    recipe = recipe.but(groups=min(recipe.groups, max(LEAST, MOST // max(n, 1))))
    if like:
        world.problems = [replace(p, meta={**like[i % len(like)].meta, **p.meta}) for i, p in enumerate(world.problems)]

    end = End()

    async def go() -> None:
        async for _ in train(recipe, world, Ledger(), {"rollouts": 2 * recipe.groups * n}, end):
            pass

    try:
        with pretended():       # a scorer of the user's problems need not know the toy's
            finished(go())
    except Interrupted:
        raise
    except Exception as error:      # other people's files may raise anything
        given, file = ", ".join(f"{k}={v}" for k, v in (sets or {}).items()), methods.load(method).__file__
        step = f"{method}{' with ' + given if given else ''} does not run: a step of it in the toy world (n = {n})"
        if isinstance(error, RewardFailed):     # the toy's verifier and environments do not fail
            raise UserError(f"{step} fails: no rollout has a score after `reward` ({place(recipe.reward)}): "
                            "`rollout.scored(...)` and `group.of(...)` return new objects") from error
        if not methods.raised_in(error, file) and (broken := _wrong_value(recipe, lambda: toy_for(dialogues))):
            raise UserError(f"{step} fails: {broken}") from error
        raise UserError(f"{step} raises {methods.told(error, file)}") from error
    if end.why:
        raise UserError(f"{method}: {end.why}")
    if any(used.foreign for used in functions(recipe.loss)) and (
        broken := surrogate(_trial(recipe, lambda: toy_for(dialogues)))     # a mean of the loss would train, too
    ):
        raise UserError(f"{method} does not train as it should: {broken}")
    if n < 2 and earns_nothing_alone(recipe, lambda: toy_for(dialogues)):     # a declared trait was refused before this
        refuse(recipe, shows=("compares_siblings",))


def _wrong_value(recipe: Recipe, make_world: Callable[[], World]) -> str:
    """Which seam returned what the loop cannot use, if that is why a step failed elsewhere; else empty."""
    trial, small = _trial(recipe, make_world), watched(recipe.but(groups=SMALL))

    async def go() -> None:
        async for _ in train(small, make_world(), Ledger(), {"rollouts": 2 * small.groups * small.rollouts}):
            pass

    def of_batch() -> str:
        if why := plays(trial):
            return why
        batch = trial.credited[0]
        return unfit("advantage", batch.advantage, batch) or unfit("weight", batch.weight, batch) or surrogate(trial)

    for attempt in (lambda: finished(go()), of_batch):
        try:
            if why := attempt():
                return why
        except Interrupted:
            raise
        except UserError as error:
            return str(error)
        except Exception:       # the error that the step raised says more
            continue
    return ""


def _trial(recipe: Recipe, make_world: Callable[[], World]) -> Trial:
    return Trial(SimpleNamespace(recipe=recipe.but), make_world)


def card(trial: Trial) -> str:
    """The file starts with a docstring, and its card makes one claim and names a parent that exists."""
    method = trial.method
    if not (method.__doc__ or "").strip():
        return "the file has no docstring: one sentence of idea, the equation, the paper"
    if not method.CARD.claim.endswith("."):
        return f"the claim must be a sentence: {method.CARD.claim!r} does not end in a full stop"
    if method.CARD.parent is not None:
        try:
            methods.load(method.CARD.parent)
        except UserError as error:
            return f"its parent: {error}"
    return ""


def recipe(trial: Trial) -> str:
    """`recipe(**changes)` returns a Recipe with the changes."""
    method = trial.method
    made = method.recipe(groups=3, rollouts=5)
    if not isinstance(made, Recipe):
        return f"recipe() returned {'None: is a `return` missing?' if made is None else f'a {type(made).__name__}'}"
    return "" if (made.groups, made.rollouts) == (3, 5) else "it ignores the sizes: end with .but(**changes)"


def plain(trial: Trial) -> str:
    """The recipe is plain data: top-level functions and partials of them, found by their names, and settings that fit
    JSON.
    """
    made = trial.method.recipe()
    told = describe(made)           # raises UserError for a lambda
    if json.loads(json.dumps(told, allow_nan=False)) != told:
        return "a setting is not the same after JSON: use numbers, text, lists and dicts with text for keys"
    lost = next((f for seam in vars(made).values() for f in _functions(seam) if _named(f) is not f), None)
    if lost is not None:
        return f"{lost.__module__}.{lost.__qualname__} is another function than the recipe holds: define it once"
    again = describe(trial.method.recipe())
    return "" if fingerprint(again) == fingerprint(told) else "recipe() returns a different recipe each time"


def _functions(x: Any) -> Iterator[Any]:
    """The functions in a seam: itself, the function of a partial, and those among its settings."""
    if isinstance(x, partial):
        yield from (f for part in (x.func, *x.args, *x.keywords.values()) for f in _functions(part))
    elif isinstance(x, tuple | list):
        yield from (f for part in x for f in _functions(part))
    elif inspect.isfunction(x):
        yield x


def _named(function: Any) -> Any:
    """The function that a module has under this function's name."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def differs(trial: Trial) -> str:
    """It differs from its parent somewhere."""
    method = trial.method
    parent = method.CARD.parent
    same = parent is not None and not diff(methods.load(parent).recipe(), method.recipe())
    return f"the recipe is {parent}'s: nothing differs" if same else ""


def compatible(trial: Trial) -> str:
    """It has no combination that is known to conflict."""
    try:
        refuse(trial.method.recipe())
    except UserError as error:
        return str(error)
    return ""


def imports(trial: Trial) -> str:
    """It imports the parts, not the machinery that runs them."""
    method = trial.method
    modules = []
    for node in ast.walk(ast.parse(Path(method.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{a.name}" for a in node.names]
    wrong = sorted(m for m in modules if m.startswith(tuple(f"isocost.{part}" for part in MACHINERY)))
    return f"it imports {', '.join(wrong)}" if wrong else ""


def pace(trial: Trial) -> str:
    """`pace` takes `lr`, which isocost plans and tunes, and returns a Pace."""
    rate = 0.125
    given = paced(trial.method.recipe(), lr=rate).pace(Ledger())
    return "" if isinstance(given, Pace) else f"it returned a {type(given).__name__}"


def plays(trial: Trial) -> str:
    """A wave is chosen, played, scored, and its advantages and weights are computed, without an error."""
    world, ledger = trial.make_world(), Ledger()
    rng = chance.generator(ledger.seed, chance.Purpose.CHOOSE, ledger.waves)
    chosen = watched(trial.method.recipe()).choose(world.problems, ledger, SMALL, rng)
    if not len(chosen):
        return f"`choose` returned no problem: it was asked for {SMALL} of {len(world.problems)}, on an empty ledger"
    _batch(SimpleNamespace(recipe=lambda **sizes: watched(trial.method.recipe(**sizes))), world)
    assert trial.credited
    return ""


def credit(trial: Trial) -> str:
    """Advantages are finite, zero on tokens that were not sampled, and not all zero."""
    batch, _, _ = trial.credited
    a = batch.advantage
    if wrong := unfit("advantage", a, batch):
        return wrong
    assert a is not None
    if bool((a[~batch.mask] != 0).any()):
        return "some are not zero on tokens that the policy did not sample"
    return "" if bool((a != 0).any()) else "all are zero although rewards differ within groups"


def average(trial: Trial) -> str:
    """Weights are finite, not negative, zero off the mask, and not all zero."""
    batch, _, _ = trial.credited
    w = batch.weight
    if wrong := unfit("weight", w, batch):
        return wrong
    assert w is not None
    if bool((w < 0).any()) or bool((w[~batch.mask] != 0).any()):
        return "some are negative, or not zero on tokens that the policy did not sample"
    return "" if bool((w > 0).any()) else "all of them are zero"


def surrogate(trial: Trial) -> str:
    """The loss is not reduced: it returns one value per token, (N, T), and a dict of metrics of the same shape."""
    batch, _, world = trial.credited
    given = trial.method.recipe().loss(world.learner.forward(batch), batch)
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], Mapping):
        return f"`loss` returned a {type(given).__name__}, not (loss, {{name: metric}}); the dict may be empty"
    for name, value in {"the loss": given[0], **{f"metric {k}": v for k, v in given[1].items()}}.items():
        if not isinstance(value, Tensor) or value.shape != batch.tokens.shape:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            return f"{name} has shape {shape}, the batch {tuple(batch.tokens.shape)}: `weight` averages, not the loss"
    return ""


def pool(trial: Trial) -> str:
    """`choose` returns problems of the pool, unchanged."""
    _, ledger, world = trial.trained
    rng = chance.generator(ledger.seed, chance.Purpose.CHOOSE, ledger.waves)
    foreign = [p for p in trial.method.recipe().choose(world.problems, ledger, 8, rng) if p not in world.problems]
    return f"{foreign[0].id!r} is not in the pool, or was changed: only `guide` makes variants" if foreign else ""


def again(trial: Trial) -> str:
    """Two runs with the same seed are equal: no seam has random numbers or memory of its own."""
    first, one, _ = trial.trained
    ops.forget_groups()        # else the second run would have the first one's outcomes
    second, other, _ = trial.train()
    for was, now in zip(one.fresh, other.fresh, strict=False):
        if changed := [k for k in was if was[k] != now.get(k)]:
            return f"{DRAWS.get(changed[0], changed[0])} differ in step {was['step']}: draw from isocost.chance"
    lines = [[s.line for s in steps] for steps in (first, second)]
    same = fingerprint(lines[0]) == fingerprint(lines[1])
    return "" if same and len(one.fresh) == len(other.fresh) else "metrics differ: draw from isocost.chance"


def pure(trial: Trial) -> str:
    """Advantage, weight and loss change nothing, and return the same value when called twice."""
    (batch, ledger, world), made = trial.credited, trial.method.recipe()
    before = {k: v.clone() for k, v in vars(batch).items() if isinstance(v, torch.Tensor)}
    for name, ask in {
        "advantage": lambda: made.advantage(batch, ledger),
        "weight": lambda: made.weight(batch),
        "loss": lambda: made.loss(world.learner.forward(batch), batch)[0].detach(),
    }.items():
        once = ask()
        ops.forget_groups()
        if not torch.equal(once, ask()):
            return f"{name} returns another value the second time"
        changed = [k for k, v in before.items() if not torch.equal(v, getattr(batch, k))]
        if changed:
            return f"{name} wrote into batch.{', batch.'.join(changed)}: make a new tensor"
    return ""


def order(trial: Trial) -> str:
    """Advantages depend on the group, not on its position in the batch."""
    (batch, ledger, _), made = trial.credited, trial.method.recipe()
    turned = torch.arange(len(batch.tokens)).flip(0)
    back = batch.but(group=batch.group.max() - batch.group).rows(turned)
    there, here = made.advantage(back, ledger).flip(0), made.advantage(batch, ledger)
    return "" if torch.allclose(there, here, atol=1e-6) else "they change when groups are renumbered and rows reversed"


def micro(trial: Trial) -> str:
    """The gradient does not depend on how a batch is split into micro-batches."""
    batch, _, world = (trial if trial.in_toy else Trial(trial.method)).credited   # double precision hides nothing
    assert batch.advantage is not None and batch.weight is not None
    counted = torch.nonzero((batch.advantage * batch.weight != 0).any(-1))[:, 0]
    batch = batch.rows(counted[torch.linspace(0, len(counted) - 1, min(PARTED, len(counted))).long()])
    learner: Any = world.learner
    grads, was = [], learner.micro
    for rows in (None, 1, 3):
        learner.micro = rows
        learner.gradient(batch, trial.method.recipe().loss)
        grads.append(torch.cat([p.grad.flatten().clone() for p in learner.policy.parameters()]))
    learner.micro = was
    gap = max(float((g - grads[0]).abs().max()) for g in grads)
    return "" if gap <= 1e-10 else f"it differs by {gap:.1e}"


def agree(trial: Trial) -> str:
    """After an update the learner computes the log-probs that the sampler recorded."""
    _, _, world = trial.trained
    batch, _ = _batch(trial.method, world)
    with torch.no_grad():
        fresh = (batch.age[batch.rollout] == 0)[:, None] & batch.mask
        gap = float((world.learner.forward(batch).logp - batch.logp)[fresh].abs().max())
    return "" if gap <= 1e-4 else f"they differ by {gap:.1e}"


def runs(trial: Trial) -> str:
    """It trains: metrics are finite, every rollout that was paid for has exactly one fate, and no other one has any."""
    steps, ledger, world = trial.trained
    if not steps:
        return "no step was made: `select` left nothing"
    bad = {k for s in steps for k in ("loss", "grad_norm") if not torch.isfinite(torch.tensor(s.line[k]))}
    if bad:
        return f"{', '.join(sorted(bad))} became infinite or not a number"
    paid, met = world.meter.of().rollouts, sum(ledger.fates.values())
    return "" if paid == met else f"{paid} rollouts were paid for, but {met} have a fate"


def declares(trial: Trial) -> str:
    """What its functions declare (`isocost.traits`) is what they do, as far as a trial can show."""
    made = trial.method.recipe()
    return _siblings(trial, made) or _phases(trial, made) or _extras(trial, made) or _pass_rates(trial, made)


def earns_nothing_alone(recipe: Recipe, make_world: Callable[[], World]) -> bool:
    """Whether no rollout of a group of one has an advantage, in two steps. False if such groups cannot be played."""
    one = recipe.but(rollouts=1, groups=ALONE, select=select.everything, refill=False, max_age=0)
    ledger = Ledger()

    async def go() -> None:
        async for _ in train(one, make_world(), ledger, {"rollouts": 2 * ALONE}):
            pass

    try:
        finished(go())
    except Interrupted:
        raise
    except Exception:       # its play or its advantage needs more than one rollout
        return False
    return not ledger.fates["trained"]


def _siblings(trial: Trial, made: Recipe) -> str:
    alone = earns_nothing_alone(made, trial.make_world)
    declared = _has("compares_siblings", made.advantage)
    if alone and not declared:
        return f"a rollout without siblings has no advantage: {_declare('compares_siblings', 'advantage')}"
    if alone or not declared:
        return ""
    batch, ledger, _ = trial.credited
    for changed in range(len(batch.reward)):
        reward = batch.reward.clone()
        reward[changed] = 1 - reward[changed]
        others = (batch.rollout != changed) & (batch.group == batch.group[changed])[batch.rollout]
        moved = made.advantage(_rewarded(batch, reward), ledger) != made.advantage(batch, ledger)
        if bool(moved[others].any()):
            return ""
    return "`advantage` declares compares_siblings, but no advantage changes with the reward of a sibling"


def _phases(trial: Trial, made: Recipe) -> str:
    _, _, world = trial.credited
    plan = made.allocate(world.problems[:4], Ledger(), 4 * made.rollouts)
    phased, said = inspect.isgenerator(plan), _has("phased", made.allocate)
    if phased and not said:
        return f"`allocate` is a generator: {_declare('phased', 'allocate')}"
    return "" if phased == said else "`allocate` declares phased, but is not a generator"


def _extras(trial: Trial, made: Recipe) -> str:
    """An `extra` of `enrich` that is read has to be required, so that a recipe without it is refused."""
    batch, ledger, world = trial.credited
    given = {thing for x in functions(made.enrich) for thing in x.declared.gives}
    for name in given & batch.extra.keys():
        bare = batch.but(extra={k: v for k, v in batch.extra.items() if k != name})
        for seam, ask in (
            ("advantage", lambda bare=bare: made.advantage(bare, ledger)),
            ("loss", lambda bare=bare: made.loss(world.learner.forward(bare), bare)),
        ):
            required = {need.thing for x in functions(getattr(made, seam)) for need in x.declared.requires}
            if name not in required and _raises(ask):
                declares = f"@requires({name!r}, at='enrich', why=...)"
                return f"`{seam}` reads batch.extra[{name!r}]: declare it with {declares}"
    return ""


def _pass_rates(trial: Trial, made: Recipe) -> str:
    """Whether a seam depends on the rewards in the ledger: it returns another value if they are inverted."""
    (batch, _, world), (_, trained, _) = trial.credited, trial.trained
    ledgers = []
    for turn in (lambda r: r, lambda r: None if r is None else 1 - r):
        ledger = Ledger(seed=trained.seed)
        ledger.replay([{**line, "rewards": [turn(r) for r in line["rewards"]]} for line in trained.fresh])
        ledger.step, ledger.waves, ledger.drawn = trained.step, trained.waves, trained.drawn
        ledger.steps, ledger.spent = trained.steps, trained.spent
        ledgers.append(ledger)

    def chosen(ledger: Ledger) -> Any:
        rng = chance.generator(ledger.seed, chance.Purpose.CHOOSE, ledger.waves)
        return [p.id for p in made.choose(world.problems, ledger, 4, rng)]

    def counts(ledger: Ledger) -> Any:
        plan = made.allocate(world.problems[:4], ledger, 4 * made.rollouts)
        return list(plan) if isinstance(plan, Sequence) else next(plan)

    def credited(ledger: Ledger) -> Any:
        return made.advantage(batch, ledger).tolist()

    for seam, ask in (("choose", chosen), ("allocate", counts), ("advantage", credited)):
        one, other = map(ask, ledgers)
        if one != other and not _has("tracks_pass_rate", getattr(made, seam)):
            return f"`{seam}` depends on the rewards in the ledger: {_declare('tracks_pass_rate', seam)}"
    return ""


def _has(name: str, value: Any) -> bool:
    """Whether a function of a seam's value, at any depth, has a trait at its settings."""
    return any(x.declared.has(name, x.settings) for x in functions(value))


def _declare(name: str, seam: str) -> str:
    return f"put @trait({name!r}) on `{seam}` (from isocost.traits import trait)"


def _raises(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except Interrupted:
        raise
    except Exception:       # any error that a missing name causes
        return True
    return False


def _rewarded(batch: Batch, reward: Tensor) -> Batch:
    """The batch with other rewards, in its groups as well."""
    left = iter(reward.tolist())
    groups = tuple(
        g.of([r if r.score is None else r.scored(replace(r.score, value=next(left))) for r in g.rollouts])
        for g in batch.groups
    )
    return batch.but(reward=reward, groups=groups)


PROMISES = (
    card, recipe, plain, differs, compatible, imports, pace, plays, credit, average, surrogate, order, micro, pure,
    runs, agree, pool, again, declares,
)
RESTS = {       # which promises must be kept for one to be tried
    "plain": ("recipe",), "differs": ("card", "plain"), "compatible": ("plain",), "pace": ("plain",),
    "plays": ("plain", "pace"), "credit": ("plays",), "average": ("plays",), "surrogate": ("credit", "average"),
    "order": ("credit",), "micro": ("surrogate",), "pure": ("surrogate",), "runs": ("surrogate",), "agree": ("runs",),
    "pool": ("runs",), "again": ("runs",), "declares": ("runs", "again"),
}
DRAWS = {       # what a journal's line tells of which seams
    "id": "the problems that `choose` gives", "variant": "the variants that `guide` makes",
    "attempts": "the counts that `allocate` gives",
}


def _batch(method: Any, world: World) -> tuple[Batch, Ledger]:
    """One batch of the method in this world, with advantages and weights; not filtered, so it is never empty."""
    made, ledger = method.recipe(groups=8, select=select.everything), Ledger()

    async def take() -> list[Group]:
        limit = world.meter.of().rollouts + 4 * made.groups * made.rollouts
        async with Feed(made, world, ledger, {"rollouts": limit}) as feed:
            return await feed.take()

    return credited(finished(take()), made, world, ledger), ledger
