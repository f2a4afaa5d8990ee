"""Sparse to dense: answer from few frames, and show twice as many until all samples agree.

    k = first;  y_1 .. y_n ~ π(x with k frames);  all equal, or 2 k > most: the vote;  else k ← 2 k
    Wang et al. 2025, "Video-RTS", arXiv:2507.06485. Left out: video. Frames are what an environment shows of a problem,
    whose data say how many (`frames`) and of how many (`most_frames`), as in the environment signal
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from isocost.errors import UserError
from isocost.gather import together
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.strategies import Card, Pick, vote
from isocost.strategies.paths import Answer, numbers, voted
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Video-RTS", "2507.06485", 2025, "vote", "It is as accurate as all frames at the cost of fewer.")


@trait("not_as_posed")
@bounds(n="[1, inf)", first="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 5, first: int = 0,
) -> list[Rollout]:
    """The vote of the last `n` samples: of those that all agree, or that saw as many frames as there can be.

    `first` frames are shown at first; 0: as many as the problem says. The rollout's note `frames` is how many the last
    samples saw, `frames_read` the sum over all. A start is continued as it is. Raises UserError for problems without
    frames.
    """
    if start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    if not {"frames", "most_frames"} <= problem.meta.keys():
        raise UserError(f"sparse-to-dense: problem {problem.id!r} has no frames and most_frames in its data: use --env "
                        "signal, or an environment that shows as many as these say")
    most = int(problem.meta["most_frames"])
    least = min(first or int(problem.meta["frames"]), most)
    if least < 1:
        raise UserError(f"sparse-to-dense: problem {problem.id!r} has frames={least} of {most} in its data, and at "
                        "least one is shown: mend its data")

    async def one(attempt: int) -> Rollout:
        answer, frames, read = Answer(problem, attempt, world, pace, place), least, 0
        tries: list[Rollout] = []
        while True:
            asked = replace(problem, meta={**problem.meta, "frames": frames})
            last = await sample(asked, answer.apart(n) if tries else numbers(attempt, n), world, pace, place)
            tries, read = [*tries, *last], read + n * frames
            if (len({voted(t) for t in last}) == 1 and voted(last[0])) or 2 * frames > most:
                break
            frames *= 2

        def choose(answers: Sequence[str | None], scores: Sequence[float | None]) -> Pick:
            before = len(answers) - n
            chosen = vote.choose(answers[before:], scores[before:], n=n).chosen
            return Pick(None if chosen is None else before + chosen, (n,) * (len(answers) // n))

        made = await answer.pick(tries, choose)
        return made.but(problem=problem, notes={**made.notes, "frames": float(frames), "frames_read": float(read)})

    return await together(*map(one, attempts))
