"""One strategy and size for each band of difficulty, which a few probe samples tell apart.

    d = mean s(x, y_i) of `probe` samples; without a scorer, the share of the most frequent answer
    d < low: hard;  d ≥ high: easy;  else medium.    Probes are part of the bill, and of the pool
    Snell et al. 2024, arXiv:2408.03314, section 3
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial

from isocost import meter
from isocost.gather import together
from isocost.parts.play import sample
from isocost.recipe import knobs
from isocost.scorers import Scorer
from isocost.seams import Pace, Play
from isocost.strategies import Card, Pick, vote
from isocost.strategies.paths import BRANCHES, Answer, numbers, voted, written
from isocost.traits import bounds
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Compute-optimal scaling", "2408.03314", 2024, "best_of", "It needs fewer tokens than one size for all.")
VOTE_4, VOTE_16 = partial(vote.play, n=4), partial(vote.play, n=16)


def difficulty(answers: Sequence[str | None], scores: Sequence[float | None]) -> float:
    """How easy a problem is, from 0 to 1: the mean score of its probes, or else the share of their leading answer."""
    known = [s for s in scores if s is not None]
    if known:
        return sum(known) / len(known)
    votes = Counter(a for a in answers if a is not None)
    return max(votes.values(), default=0) / len(answers)


@bounds(probe="[1, inf)", low="[0, 1]", high="[0, 1]")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, probe: int = 4, low: float = 0.3, high: float = 0.7,
    easy: Play = VOTE_4, medium: Play = VOTE_16, hard: Play = VOTE_16, scorer: Scorer | None = None,
) -> list[Rollout]:
    """The strategy of the problem's band, after `probe` samples that tell the band.

    One that chooses among n samples, all asked for at once, has the probes as the first of them; any other begins anew.
    """

    async def one(attempt: int) -> Rollout:
        answer = Answer(problem, attempt, world, pace, place, scorer, branches=3 * (BRANCHES // 4))
        probes = await sample(problem, answer.apart(probe), world, pace, place, start)
        easiness = difficulty([voted(p) for p in probes], await answer.scores(probes))
        band = hard if easiness < low else easy if easiness >= high else medium
        settings, module = knobs(band), sys.modules[getattr(band, "func", band).__module__]
        if hasattr(module, "choose") and "by" not in settings:
            size = max(settings.get("n", 1), probe)
            more = numbers(attempt, size)[: size - probe]
            tries = [*probes, *(await sample(problem, more, world, pace, place, start) if more else [])]
            own = {k: size if k == "n" else settings[k] for k in knobs(module.choose)}
            answer.scorer = settings.get("scorer")

            def choose(answers: Sequence[str | None], scores: Sequence[float | None]) -> Pick:
                chosen = module.choose(answers, scores, **own).chosen
                return Pick(chosen, (probe, len(more)))

            return await answer.pick(tries, choose)
        (found,) = await band(problem, [attempt], world, pace, place, start)
        meter.unchosen(probe)
        own_part = {"tries": probe, "depth": max(map(written, probes)), "calls": answer.scoring.verify,
                    "scoring": answer.spent}
        return found.but(notes={**found.notes, **{k: found.numbers.get(k, 0.0) + x for k, x in own_part.items()}})

    return await together(*map(one, attempts))
