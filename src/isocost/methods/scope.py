"""SCOPE: keep a failed attempt up to its first wrong step, let a teacher write the rest, and train on both parts.

    t* = min { t : judge(x, y_≤t) < 1/2 };  where it is late, y_<t* z replaces y if the verifier finds it right
    A_i = (r_i − mean r) / (std r + ε);  L = GRPO's on y_<t*, −A π(z) / (π(z) + γ) on z
    Ren et al. 2026, "Recycling Failures", arXiv:2602.24110
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from isocost import chance
from isocost.batch import Batch, Forward
from isocost.methods import Card, grpo, otr
from isocost.parts import improve, weight
from isocost.parts.loss import Out, clipped
from isocost.parts.play import episodes, sample
from isocost.parts.reward import marked
from isocost.scorers import parse, scores, step_of, stepped
from isocost.seams import Loss, Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Place, Problem, Role, Rollout, Segment, Stop
from isocost.world import World

CARD = Card("SCOPE", "2602.24110", 2026, "grpo", "Fewer groups without a right attempt, and more right answers.",
            acts="repaired")

needs = otr.needs       # problems with solutions


@asks("text")
@trait("casts_roles", "not_as_posed")
@bounds(near="[0, 1]", most="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, judge: str = "", near: float = 0.5, most: int = 1,
) -> list[Rollout]:
    """Attempts, of which up to `most` failed ones are repaired, those with the longest right beginning first (SCOPE).

    The scorer `judge` scores the text up to each step; below 1/2 that step is wrong. Empty, it is the step checker of
    built-in families, and other problems are not repaired. An attempt is
    repaired if at least a share `near` of its steps is before the first wrong one. From that step on the problem's
    solution replaces it, with the role TEACHER; the text before stays the policy's, byte for byte. A repair that the
    verifier does not find right is not used, and evaluations have none. The note `repaired` is 1 of a repaired attempt.
    """
    made = await sample(problem, attempts, world, pace, place, start)
    judge, solution = judge or ("steps" if stepped(problem) else ""), str(problem.meta.get("solution") or "")
    if place.purpose != chance.Purpose.TRAIN or start is not None or not (judge and solution and most):
        return made
    made = list(await marked([r.but(notes={**r.notes, "repaired": 0.0}) for r in made], problem, place, world))
    ends, found = step_of(problem), list[tuple[int, Rollout]]()
    taught = re.findall(rf".*?{re.escape(ends)}|.+$", solution, re.DOTALL)
    for one in made:
        if one.score is None or one.score.value > 0 or one.stop is Stop.ERROR or not one.segments[-1].written:
            continue
        text = one.segments[-1]
        cuts = [*episodes(text, ends, world.text.decode), len(text)]
        asked = [one.but(segments=(*one.segments[:-1], text.cut(b)), final=_said(text.cut(b), world))
                 for _, b in pairwise(cuts)]
        said = await scores(parse(judge), problem, asked, [False] * (len(asked) - 1) + [True], world)
        first = next((k for k, x in enumerate(said.scores) if x is not None and x < 0.5), None)
        if first is not None and near * len(asked) <= first < len(taught):
            words = [*world.text.encode("".join(taught[first:])), world.text.ends[0]]
            whole = text.cut(cuts[first]).read(words, Role.TEACHER)
            notes = {**one.notes, "repaired": 1.0}
            found.append((first, one.but(segments=(*one.segments[:-1], whole), final=_said(whole, world), mark=None,
                                         score=None, stop=Stop.DONE, notes=notes)))
    best = [r for _, r in sorted(found, key=lambda x: (-x[0], x[1].attempt))]
    right = [r for r in await marked(best, problem, place, world) if r.score is not None and r.score.value > 0]
    instead = {r.attempt: r for r in right[:most]}
    return [instead.get(r.attempt, r) for r in made]


def _said(text: Segment, world: World) -> str:
    return world.text.decode(text.reply().tolist())


@bounds(gamma="(0, inf)")
def loss(out: Forward, batch: Batch, *, inner: Loss, gamma: float = 0.1) -> Out:
    """Any loss; for a teacher's tokens -A π / (π + γ), which lifts rare ones most (LUFFY, arXiv:2504.14945)."""
    own, seen = inner(out, batch)
    assert batch.advantage is not None
    likely = out.logp.exp()
    shaped = -batch.advantage * likely / (likely + gamma)
    return torch.where(batch.role == int(Role.TEACHER), shaped, own), seen


def recipe(**changes: Any) -> Recipe:
    # The paper's judge is a process reward model, and its teacher a stronger model; here the judge is any scorer, and
    # the teacher the problem's solution from the wrong step on, which fits where a right beginning has one right end.
    # How many attempts of a group are repaired, how late is late, and γ are not published in numbers that carry over:
    # one, at least half of the steps, and LUFFY's γ. More than one repair would make most groups right without error.
    repair = partial(play, judge="", near=0.5, most=1)
    shaped = partial(loss, inner=partial(clipped, low=0.2, high=0.2), gamma=0.1)
    return grpo.recipe(
        name="scope", play=repair, loss=shaped, weight=weight.token_mean,
        improve=partial(improve.imitating, own=True),
    ).but(**changes)
