"""Turns that an expert takes instead of the policy: whole demonstrations, and help in an attempt that went wrong.

An environment may have a method `expert()`: what an expert would say in its present state. With one question and one
answer it is `meta["solution"]`, or else the answer. An expert's tokens have the role TEACHER. No policy sampled them,
so they have no credit by themselves: `taught` is the improvement that imitates them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from isocost.batch import Batch, Forward
from isocost.errors import UserError
from isocost.parts.episode import EnvironmentFailed, Episode, Openings
from isocost.parts.improve import policy
from isocost.parts.loss import Out
from isocost.parts.play import begin, opening
from isocost.seams import Improve, Loss, Pace, Recipe
from isocost.types import FaultSource, Place, Problem, Role, Rollout, Score, Segment, Shown, Stop
from isocost.world import Ask, Environment, Luck, World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

EXPERT = "expert"       # the origin of a whole demonstration, and its cohort
Share = Callable[["Ledger"], float]
_TEACHER = int(Role.TEACHER)


async def demonstrated(problem: Problem, attempt: int, world: World, pace: Pace, place: Place) -> Rollout:
    """An attempt all of whose turns an expert takes, at most `max_turns`. It is charged as a rollout and its steps.

    If the environment does not open it is a lost one, with `Stop.ERROR` and nothing read.
    """
    text = await opening(problem, world, pace, place)
    begin(world, 1)
    fresh = Rollout(problem, (Segment.empty() if text is None else text,), "", attempt=attempt, origin=EXPERT,
                    cohort=EXPERT)
    if text is None:
        return fresh.but(stop=Stop.ERROR)
    if world.env is Ask:
        words = str(problem.meta.get("solution") or problem.answer)
        return fresh.but(segments=(text.read(_ended(words, world), Role.TEACHER),), final=words)
    return await helped(fresh, world, pace, place, most=pace.max_turns)


async def helped(
    attempt: Rollout, world: World, pace: Pace, place: Place, *, most: int, until: Callable[[Shown], bool] | None = None
) -> Rollout:
    """The attempt, continued by an expert for at most `most` turns, or until `until` holds of what the last one showed.

    The environment replays the attempt's turns with the luck that they had; only the expert's are charged. The mark is
    what environment paid for all turns. Raises UserError if the environment has no `expert`.
    """
    episode = Episode(attempt.problem, attempt.attempt, world, place)
    text, paid, stop = attempt.segments[-1], sum(t.reward for t in attempt.turns), Stop.TURNS
    try:
        replayed = attempt.turns if attempt.origin != EXPERT else ()
        if not await Openings(attempt.segments, replayed).batch(episode):
            raise EnvironmentFailed
        if len(said := text.reply()) and bool(text.own[-1]):        # its last turn was answered, and not yet read
            shown = await episode.again(world.text.decode(said.tolist()), replayed[-1].luck)
            text = text.read(world.text.answer(shown.messages))
        for _ in range(most):
            words = episode.advice()
            if words is None:
                raise UserError(f"the environment of problem {attempt.problem.id} has no `expert()`, which is needed")
            shown = await episode.advised(words)
            paid += shown.reward
            text = text.read(_ended(words, world), Role.TEACHER)
            if shown.over:
                stop = Stop.DONE
                break
            if until is not None and until(shown):
                break
            text = text.read(world.text.answer(shown.messages))
        await episode.end(stop)
    except EnvironmentFailed:
        return attempt.but(stop=Stop.ERROR, final="")
    finally:
        await episode.close()
    mark = Score(paid)
    return attempt.but(segments=(*attempt.segments[:-1], text), stop=stop, final=episode.final, mark=mark, score=mark)


def _ended(words: str, world: World) -> list[int]:
    return [*world.text.encode(words), *world.text.ends[:1]]


def taught(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, share: Share | None = None, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement, in which an expert's tokens are imitated: advantage 1, whatever the attempt earned.

    With `share` μ the loss is (1 − μ) times the policy's plus μ times the mean over the expert's tokens; without one,
    all tokens that have an advantage weigh alike, and the others nothing. The loss of a recipe must be `imitated` for
    such tokens. Use one minibatch: weights are not computed again.
    """
    given, weight = batch.advantage, batch.weight
    assert given is not None and weight is not None
    theirs = batch.role == _TEACHER
    count = int(theirs.sum())
    if count == 0:
        return {**inner(batch, recipe, world, ledger), "taught": 0.0}
    if share is None:
        credited = theirs | (given != 0)
        weight = credited / credited.sum()
        mu = float(count / credited.sum())
    else:
        mu = share(ledger)
        weight = torch.where(theirs, torch.full_like(weight, mu / count), (1 - mu) * weight)
    kept = tuple(() if t else k for t, k in zip(theirs.any(-1).tolist(), batch.kept, strict=True)) if batch.kept else ()
    batch = batch.but(mask=batch.mask | theirs, kept=kept, advantage=torch.where(theirs, torch.ones_like(given), given),
                      weight=weight)
    return {**inner(batch, recipe, world, ledger), "taught": float(count), "taught/share": mu}


def imitated(out: Forward, batch: Batch, *, inner: Loss) -> Out:
    """Any loss; -A log π for an expert's tokens, which have no old policy to clip to."""
    loss, seen = inner(out, batch)
    assert batch.advantage is not None
    return torch.where(batch.role == _TEACHER, -batch.advantage * out.logp, loss), seen


@dataclass(eq=False)
class Watched:
    """An environment that is watched: it ends once the policy is lost, and `final` is then LOST.

    It is lost at its `faults`-th turn that is no valid action, and when it comes to one state for the `visits`-th time.
    """

    env: Environment
    faults: int
    visits: int
    lost: bool = False

    def __post_init__(self) -> None:
        self._wrong, self._seen = 0, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        """What an environment need not have, such as `cut`."""
        if name == "env":       # it is not set yet
            raise AttributeError(name)
        return getattr(self.env, name)

    async def open(self) -> Shown:
        shown = await self.env.open()
        self._seen[shown.key] = 1
        return shown

    async def step(self, said: str, luck: Luck) -> Shown:
        shown = await self.env.step(said, luck)
        self._wrong += shown.fault is not None and shown.fault.source is FaultSource.MODEL
        self._seen[shown.key] = count = self._seen.get(shown.key, 0) + (shown.fault is None)
        self.lost = not shown.over and (self._wrong >= self.faults or (shown.key != "" and count >= self.visits))
        return replace(shown, over=shown.over or self.lost)

    def final(self) -> str:
        return LOST if self.lost else self.env.final()

    async def close(self) -> None:
        await self.env.close()


LOST = "\0lost"


def watched(world: World, *, faults: int, visits: int) -> Callable[[Problem], Environment]:
    """The environments of a world, each watched."""
    return partial(_watched, world.env, faults, visits)


def _watched(make: Callable[[Problem], Environment], faults: int, visits: int, problem: Problem) -> Environment:
    return Watched(make(problem), faults, visits)
