"""Tree search: each simulation goes down by an upper bound on the score, adds steps below a leaf, and backs them up.

    down: argmax_a Q(a) + c P(a) √(Σ_b N(b)) / (1 + N(a));   Q(a) mean of the scores of all texts below a, N(a) their
    number, P(a) share of the steps sampled there that are a.    y* = argmax s of the texts that ended
    Yu et al. 2024, "R-MCTS", arXiv:2410.02052, section 3. Left out: contrastive reflection (what one task taught is
    retrieved in the next one), and the debate of models that gives a value there; a scorer does
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

from isocost.scorers import Scorer, steps
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.paths import Answer, Path, searched
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("R-MCTS", "2410.02052", 2024, "beam", "It beats one pass on hard web tasks.")


@dataclass
class TextNode:
    """A text, with the share of the steps before it that it has, and what was backed up to it."""

    path: Path | None           # None: of the root
    prior: float = 1.0
    below: list[TextNode] = field(default_factory=list)
    visits: int = 0
    total: float = 0.0

    def bound(self, among: int, c: float) -> float:
        """Q + c P √(Σ N) / (1 + N), where its siblings and itself have `among` visits."""
        return self.total / max(self.visits, 1) + c * self.prior * sqrt(among) / (1 + self.visits)

    def next(self, c: float) -> TextNode:
        """The child with the highest bound, ties to the first."""
        among = sum(x.visits for x in self.below)
        return max(self.below, key=lambda x: x.bound(among, c))


def distinct(paths: Sequence[Path]) -> list[TextNode]:
    """A node for each different text, with the share of the paths that are it."""
    same: dict[bytes, list[Path]] = {}
    for path in paths:
        same.setdefault(path.rollout.segments[-1].tokens.tobytes(), []).append(path)
    return [TextNode(own[0], len(own) / len(paths)) for own in same.values()]


@trait("chosen_by_steps", "not_as_posed", "shares_beginnings")
@bounds(n="[1, inf)", width="[1, inf)", c="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 16, width: int = 4, c: float = 1.0,
    scorer: Scorer = steps.score, step: str = "",
) -> list[Rollout]:
    """The end with the highest score after `n` simulations, each of which adds up to `width` steps below a leaf.

    If no text has ended by then, simulations go on without exploration, each with one step. An end that is reached
    again is backed up again.
    """

    async def search(answer: Answer, first: Segment) -> Rollout:
        root, ends, done = TextNode(None), list[Path](), 0
        while done < n or not ends:
            among, explores = (width, c) if done < n else (1, 0.0)
            trail, done = [root], done + 1
            while trail[-1].below:
                trail.append(trail[-1].next(explores))
            leaf = trail[-1]
            if leaf.path is None:
                grown = await answer.advance(answer.begin(first, among), step)
            else:
                grown = [] if leaf.path.over else await answer.advance(answer.branch(leaf.path, among), step)
            if grown and all(p.score is None for p in grown):
                return answer.end(None, grown[0])
            leaf.below = distinct([p for p in grown if p.score is not None])
            ends += [x.path for x in leaf.below if x.path is not None and x.path.over]
            for node in leaf.below or [leaf]:
                assert node.path is not None
                for one in trail if node is leaf else (*trail, node):
                    one.visits, one.total = one.visits + 1, one.total + node.path.value
        best = max(ends, key=lambda p: p.value)
        return answer.end(best, best)

    return await searched(problem, attempts, world, pace, place, start, scorer, search)
