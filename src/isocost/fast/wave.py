"""All groups of a wave in one call, instead of one coroutine each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

from isocost import meter
from isocost.fast.columns import WaveColumns, WrittenRows
from isocost.gather import together
from isocost.parts import play, reward, schedule
from isocost.seams import Pace, Recipe
from isocost.types import Group, Place, Problem, Sampling
from isocost.world import Ask, Engine, World


class WaveEngine(Engine, Protocol):
    """An engine that can also write short answers of whole waves; any engine may have this method."""

    def wave(
        self, prompts: Sequence[Sequence[int]], attempts: Sequence[Sequence[int]], *, places: Sequence[Place],
        sampling: Sampling, max_tokens: int,
    ) -> WrittenRows | None:
        """Answer each prompt once per attempt, with the tokens and the charges of one `generate` for each prompt.

        None, and nothing is written or charged, where it has to be done by `generate`.
        """
        ...


@dataclass(frozen=True)
class ColumnWave:
    """`isocost.world.WholeWave` of recipes that play all attempts at once, one question and one answer each."""

    verified: bool      # by `reward.verified`; any other reward scores each group

    @staticmethod
    def of(recipe: Recipe) -> ColumnWave | None:
        """None for recipes with another schedule or play."""
        if not (_same(recipe.schedule, schedule.together) and _same(recipe.play, play.sample)):
            return None
        return ColumnWave(_same(recipe.reward, reward.verified))

    async def __call__(
        self, problems: Sequence[Problem], counts: Sequence[int], places: Sequence[Place], pace: Pace, world: World,
        score: Callable[[Group], Awaitable[Group]],
    ) -> list[Group] | None:
        if len(counts) != len(problems) or min(counts, default=0) < 0:
            return None
        wave = sampled(problems, counts, world, pace, places)
        if wave is None:
            return None
        if not self.verified:
            return await together(*map(score, wave.groups()))
        texts = getattr(world.grade, "texts", None)     # a grader may mark texts, without their rollouts
        scores = None if texts is None else texts(wave.finals, wave.each_problem())
        if scores is None:
            scores = await world.grade([r for g in wave.groups() for r in g.rollouts])
        wave.scores = scores
        return wave.groups()


def _same(seam: Callable[..., Any], plain: Callable[..., Any]) -> bool:
    """Whether a seam's value is this function, which has no settings."""
    return (seam.func if isinstance(seam, partial) and not seam.args and not seam.keywords else seam) is plain


def sampled(
    problems: Sequence[Problem], counts: Sequence[int], world: World, pace: Pace, places: Sequence[Place]
) -> WaveColumns | None:
    """`isocost.parts.play.sample` of whole waves: one question and one answer each; None if only that can do it."""
    write = getattr(world.engine, "wave", None)
    if write is None or world.env is not Ask or pace.stop or any(p.prefix for p in problems):
        return None
    prompts = [world.text.prompt(p.prompt) for p in problems]
    attempts = [range(k) for k in counts]
    with meter.begins(True):
        written = write(prompts, attempts, places=places, sampling=pace.sampling, max_tokens=pace.max_tokens)
    if written is None:
        return None
    decode, lengths = world.text.decode, written.wrote.tolist()
    finals = [decode(row[:k]) for row, k in zip(written.tokens.tolist(), lengths, strict=True)]
    begin = [0, *accumulate(counts)]
    each = [i for k in attempts for i in k]
    return WaveColumns(problems, places, prompts, begin, each, written, pace.sampling, finals)
