"""R-MCTS: attempts grow a tree of turns; what was judged most wrongly is remembered; the right branch is imitated.

    down the tree: argmax_a Q(s, a) + c P(a|s) √N(s) / (1 + N(s, a));   a new branch while there are fewer than ⌈√N(s)⌉
    Q(s, a) = mean reward of the attempts below;   remembered: argmax_t |Q(s_t, a_t) − V(s_t)| of a finished search
    self-learning: L = −log π over the right attempts of the tree          Yu et al. 2024, arXiv:2410.02052
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost import chance
from isocost.methods import Card, fbc, gigpo
from isocost.parts import pace
from isocost.parts.play import fork
from isocost.parts.reward import marked
from isocost.seams import Attempts, Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Problem, Rollout
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("R-MCTS", "2410.02052", 2024, "fbc", "Search with a memory of its errors does better the second time.")
MEMORY = "reflections"      # the ledger keeps what was remembered of each problem under this name

needs = gigpo.needs


@dataclass
class Node:
    """A state in the tree: how often attempts passed it, what they earned in sum, and the branches by words."""

    visits: int = 0
    total: float = 0.0
    branches: dict[str, Node] = field(default_factory=dict)
    trunk: Rollout | None = None        # an attempt that took a turn here, which another one can take anew

    @property
    def value(self) -> float:
        return self.total / max(self.visits, 1)


def best(node: Node, c: float) -> str:
    """The branch with the highest Q + c P √N / (1 + N(a)); P is uniform over the branches. Ties go to the first."""
    P, N = 1 / len(node.branches), node.visits

    def bound(words: str) -> float:
        branch = node.branches[words]
        return branch.value + c * P * sqrt(N) / (1 + branch.visits)

    return max(node.branches, key=bound)


def backed_up(root: Node, words: Sequence[str], reward: float, trunk: Rollout) -> None:
    """Count an attempt along its words: each node's value is a running mean."""
    node = root
    for depth in range(len(words) + 1):
        if depth:
            node = node.branches.setdefault(words[depth - 1], Node())
        node.visits, node.total = node.visits + 1, node.total + reward
        if depth < len(words):          # by luck another attempt may have ended here
            node.trunk = node.trunk or trunk


def most_wrong(root: Node, words: Sequence[str]) -> int:
    """The turn of an attempt whose branch differs most in value from its state: argmax |Q(s_t, a_t) − V(s_t)|."""
    gaps, node = [], root
    for said in words:
        branch = node.branches[said]
        gaps.append(abs(branch.value - node.value))
        node = branch
    return int(np.argmax(gaps)) if gaps else 0


def said_in(rollout: Rollout, world: World) -> list[str]:
    """The words of each turn of the policy."""
    out = []
    for text in rollout.segments:
        out += [world.text.decode(text.tokens[text.own & (text.turn == t)].tolist())
                for t in sorted(set(text.turn[text.own].tolist()))]
    return out


def before(rollout: Rollout, turn: int) -> Rollout:
    """The rollout up to its first token of a turn: a start from which the turn is taken again."""
    for k, text in enumerate(rollout.segments):
        at = np.flatnonzero(text.own & (text.turn == turn))
        if len(at):
            start = rollout.but(segments=rollout.segments[: k + 1])
            return start.cut(int(at[0]))
    raise ValueError(f"attempt {rollout.attempt} has no turn {turn}")


@trait("needs_turns", "in_parts", "shares_beginnings", "not_as_posed")
@bounds(c="[0, inf)", memory="[0, inf)", room="[1, inf)")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *,
    c: float = 1.25, memory: float = 1.0, room: int = 512,
) -> list[Rollout]:
    """One attempt after the other, each from where the search tree is most promising (R-MCTS, arXiv:2410.02052).

    A walk down the tree ends in a state with fewer than √N branches; the attempt takes that turn anew and goes on to
    the end, and its reward is counted along its path. The environment replays the turns before, which are not charged.
    After the last attempt, the turn of the least right one that was judged most wrongly is remembered: when the problem
    is searched again, its branch begins with `memory` visits of that value. Evaluations sample plainly.
    """
    world, place = play.world, play.place
    if place.purpose != chance.Purpose.TRAIN:
        return await play(problem, attempts)
    known = [g for g in ledger.kept[MEMORY] if g.problem.id == problem.id and g.place.wave < place.wave]
    lesson = max(known, key=lambda g: (g.place.wave, g.place.slot)).rollouts[0] if known else None
    root, made = Node(), list[Rollout]()
    for attempt in attempts:
        start = _down(root, c)
        if start is None:
            tried = await play(problem, [attempt])
        else:
            tried = await fork(start, len(start.segments[-1]), [attempt], world, play.pace, place, play=play.play)
        (one,) = await marked(tried, problem, place, world)
        made.append(one)
        if one.score is not None:
            backed_up(root, said_in(one, world), one.score.value, one)
            if lesson is not None and _recalled(root, lesson, memory, world):
                lesson = None
    scored = [r for r in made if r.score is not None]
    if scored:
        worst = min(scored, key=lambda r: r.score.value if r.score else 0.0)
        turn = most_wrong(root, said_in(worst, world))
        branch = _at(root, said_in(worst, world)[: turn + 1])
        noted = worst.but(notes={"turn": float(turn), "worth": branch.value})
        others = [g for g in ledger.kept[MEMORY] if not any(g is old for old in known)]
        kept = sorted([*others, Group(problem, (noted,), place)], key=lambda g: (g.place.wave, g.place.slot))
        ledger.kept[MEMORY] = kept[max(len(kept) - room, 0) :]
    return made


def _down(root: Node, c: float) -> Rollout | None:
    """Where the next attempt begins: a rollout up to a turn that is taken anew; None for the beginning."""
    node, depth = root, 0
    while node.branches and len(node.branches) >= ceil(sqrt(node.visits)):
        branch = node.branches[best(node, c)]
        if not branch.branches:         # an episode ended there: another turn is taken instead
            break
        node, depth = branch, depth + 1
    return before(node.trunk, depth) if node.trunk is not None and depth else None


def _at(root: Node, words: Sequence[str]) -> Node:
    node = root
    for said in words:
        node = node.branches[said]
    return node


def _recalled(root: Node, lesson: Rollout, memory: float, world: World) -> bool:
    """Give a remembered branch its visits, if the tree has it by now."""
    turn, words, node = int(lesson.numbers["turn"]), said_in(lesson, world), root
    for said in words[: turn + 1]:
        if said not in node.branches:
            return False
        node = node.branches[said]
    node.visits, node.total = node.visits + round(memory), node.total + round(memory) * lesson.numbers["worth"]
    return True


def recipe(**changes: Any) -> Recipe:
    # Values are the mean rewards of attempts that were played to the end: left out are the debate of two models that
    # judges unfinished ones, and reflections in words. The memory is of the same problem alone, not of similar ones.
    # The right attempts of the tree are imitated, the shorter half of each problem; training on whole
    # traversals with their backtracking is left out. The release has c = 1, and P is there how often an action was
    # sampled, here the same for every branch. It remembers the turn that was judged most wrongly, by the value before
    # or after it; here that is the turn whose branch differs most from its state, the most decisive one.
    grown = partial(schedule, c=1.25, memory=1.0, room=512)
    right = partial(fbc.select, over=0.0, shortest=0.5)
    return fbc.recipe(
        name="rmcts", schedule=grown, select=right, pace=partial(pace.warmed, max_turns=20)
    ).but(**changes)
