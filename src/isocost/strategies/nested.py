"""Three axes at once: in each of several turns some samples within a context are chosen among, and the chosen one is
shown to the next turn.

    y_{t,i} ~ strategy(x, y_{t−1}) within C tokens,  i = 1 .. n;   y_t = choose(y_{t,1} .. y_{t,n}),  t = 1 .. turns
    context C, batch n and turn of "Extending Test-Time Scaling: A 3D Perspective with Context, Batch, and Turn", 2025,
    arXiv:2511.15738. Left out: people who choose, and feedback besides the chosen answer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from isocost.errors import UserError
from isocost.recipe import functions, knobs
from isocost.scorers import Scorer
from isocost.seams import Pace, Play
from isocost.strategies import Card, best_of, one, vote
from isocost.strategies.paths import Answer, Path, numbers, searched, voted
from isocost.strategies.revise import SHOW, shown
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment, Stop
from isocost.world import World

CARD = Card("3-D scaling", "2511.15738", 2025, "revise", "Each axis saturates, and all three together go further.")
ADDED = ("tries", "depth", "calls", "scoring")      # notes of the samples that their answer sums


def check(*, answer: Play) -> None:
    """Raises UserError for a strategy of several tries: their numbers would be those of other samples."""
    parts = {t.name for x in functions(answer) for t in x.declared.traits if t.holds(x.settings)}
    if knobs(answer).get("n", 1) > 1 or "probe" in knobs(answer) or "chosen_by_steps" in parts:
        raise UserError("nested: answer is a strategy of one try, such as one or force; write the number of samples as "
                        "nested's own n")


@trait("not_as_posed")
@bounds(n="[1, inf)", turns="[1, inf)", context="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 4, turns: int = 2, context: int = 0,
    answer: Play = one.play, scorer: Scorer | None = None, show: str = SHOW,
) -> list[Rollout]:
    """The choice of the last of `turns` turns, each of `n` samples by the strategy `answer`.

    The most frequent answer is chosen, or with a scorer the one with the highest score. A sample has at most `context`
    tokens; 0: as many as the pace allows. Raises UserError for a model that cannot be shown its answer.
    """
    own = replace(pace, max_tokens=min(context or pace.max_tokens, pace.max_tokens))
    choose = partial(best_of.choose, n=n) if scorer else partial(vote.choose, n=n)

    async def search(whole: Answer, first: Segment) -> Rollout:
        asked, summed, chosen = problem, dict.fromkeys(ADDED, 0.0), None
        for turn in range(turns):
            mine = whole.apart(n) if turn else numbers(whole.attempt, n)
            tries = await answer(asked, mine, world, own, place)
            found = await whole.scores(tries)
            whole.tries += n
            for name in ADDED:
                each = [t.numbers.get(name, 0.0) for t in tries]
                summed[name] += max(each) if name == "depth" else sum(each)
            pick = choose([voted(t) for t in tries], found)
            if pick.chosen is None:
                chosen = None
                break
            chosen = Path(tries[pick.chosen], True, found[pick.chosen])
            if chosen.rollout.stop is Stop.DONE and chosen.rollout.final and turn < turns - 1:
                asked = shown(problem, [chosen.rollout.final], show, world)
        made = whole.end(chosen, Path(tries[0], True))
        inner = {**summed, "calls": summed["calls"] + whole.scoring.verify, "scoring": summed["scoring"] + whole.spent}
        return made.but(problem=problem, notes={**made.notes, **inner})

    return await searched(problem, attempts, world, pace, place, start, scorer, search)
