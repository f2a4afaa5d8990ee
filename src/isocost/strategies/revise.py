"""Revisions: each answer is written after the model has read the ones before it.

    y_k ~ π(x, y_{k−keep}, .., y_{k−1}),  k = 1 .. n;   y* = y_n, or with a scorer argmax_k s(x, y_k)
    Madaan et al. 2023, "Self-Refine", arXiv:2303.17651; chosen among revisions: Snell et al. 2024, arXiv:2408.03314,
    section 6, whose model is trained to revise. Left out: feedback that the model writes as a text of its own
"""

from __future__ import annotations

from collections.abc import Sequence

from isocost.errors import UserError
from isocost.parts.play import sample
from isocost.scorers import Scorer
from isocost.seams import Pace
from isocost.strategies import Card, Pick
from isocost.strategies.paths import Answer, searched
from isocost.strategies.rounds import added, filled
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment, Stop
from isocost.world import World

CARD = Card("Self-Refine", "2303.17651", 2023, "one", "It beats as many independent samples on easy problems.")
SHOW = "\n\nAn earlier answer:\n{answer}\n\nCheck it, and write a better answer."


def best(scores: Sequence[float | None]) -> int | None:
    """The answer with the highest score, ties to the latest; None without a score."""
    known = [(x, k) for k, x in enumerate(scores) if x is not None]
    return max(known)[1] if known else None


def shown(problem: Problem, answers: Sequence[str], show: str, world: World) -> Problem:
    """The problem with earlier answers after its last message. Raises UserError for a model that cannot read them."""
    if "{answer}" not in show:
        raise UserError(f"show={show!r} has no {{answer}}, so no answer would be shown: write it where the answer goes")
    asked = added(problem, "".join(filled(show, answer=a) for a in answers))
    try:
        world.text.prompt(asked.prompt)
    except UserError as error:
        raise UserError(f"this model cannot be shown its answer, because {error}. Or choose words that it reads with "
                        "show=..., such as show={answer}") from None
    return asked


@trait("not_as_posed")
@bounds(n="[1, inf)", keep="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 4, scorer: Scorer | None = None, keep: int = 1,
    show: str = SHOW, base: str = "last",
) -> list[Rollout]:
    """`n` answers one after the other; the last one, or with a scorer the best one, is the answer.

    Each reads `keep` answers before it through `show`: the "last" ones or, with base="best", those with the highest
    scores, the best one last. Answers that were cut are not shown. Raises UserError for a model that cannot be shown
    its answer.
    """
    if base not in ("last", "best") or (base == "best" and scorer is None):
        raise UserError("revise: base is last, or best with a scorer; not "
                        + (f"{base!r}" if scorer else f"{base!r} without one: add scorer=outcome"))

    async def search(answer: Answer, first: Segment) -> Rollout:
        tries: list[Rollout] = []
        found: list[float | None] = []
        for k in range(n):
            there = [i for i, t in enumerate(tries) if t.final and t.stop is Stop.DONE]
            if base == "best":
                there.sort(key=lambda i: (found[i] or 0.0, i))
            asked = shown(problem, [tries[i].final for i in there[-keep:]], show, world) if there else problem
            number = answer.apart(1) if k else [answer.attempt]
            tries += await sample(asked, number, world, pace, place)
            found += await answer.scores(tries[-1:])

        def chosen(answers: Sequence[str | None], scores: Sequence[float | None]) -> Pick:
            return Pick(best(scores) if scorer else n - 1, (1,) * n)

        made = await answer.pick(tries, chosen, found)
        return made.but(problem=problem)

    return await searched(problem, attempts, world, pace, place, start, scorer, search)
