"""ToTRL: ask for a tree of thoughts, first without thinking, and pay only for all solutions of a puzzle.

    r = 1 if the answer is the set of all solutions;  −1/2 if it is another one;  −1 if there is none
    the first S steps begin with an empty thought, so that the tree is in the answer;   advantages of GRPO
    Wu et al. 2025, "ToTRL", arXiv:2505.12717
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, grpo
from isocost.parts.reward import verified
from isocost.scorers import answer_of, solutions_of, stepped
from isocost.seams import Recipe
from isocost.strategies.rounds import added
from isocost.traits import bounds, trait
from isocost.types import Group, Problem, Rollout, Score, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("ToTRL", "2505.12717", 2025, "grpo", "Trees of thoughts solve more puzzles in fewer tokens than chains.",
            acts="several")
TREE = "tree"       # the variant
ASK = (
    "\n\nExplore a tree of thoughts: at each step name several ways to go on, judge them, drop those that cannot lead "
    "to a solution, and go on with the others. Give all solutions, separated by commas."
)
EMPTY = "<think>\n\n</think>\n\n"       # a thought that is over, of models that think between these words


@bounds(steps="[0, inf)")
async def guide(
    problem: Problem, world: World, ledger: Ledger, *, steps: int = 16, ask: str = ASK, empty: str = EMPTY
) -> list[Problem]:
    """The problem with words that ask for a tree; in the first `steps` steps the answer begins with `empty` (ToTRL).

    Built-in models know no words: their problems are as posed.
    """
    if stepped(problem):
        return [problem]
    return [replace(added(problem, ask), variant=TREE, prefix=empty if ledger.step < steps else "")]


@trait("not_whether_right")
@bounds(wrong="[-1, 1]", none="[-1, 1]")
async def reward(group: Group, world: World, *, wrong: float = -0.5, none: float = -1.0) -> Group:
    """1 for exactly the set of all solutions, or for a right answer where there is one; `wrong` for another answer.

    An answer that was cut, or gives no solution, gets `none`. Solutions are separated by commas. The note `several` is
    the number given; the part `right` is the verifier's score.
    """
    made, every = await verified(group, world), solutions_of(group.problem)
    return made.of(_paid(r, every, wrong, none) for r in made.rollouts)


def _paid(rollout: Rollout, every: set[str], wrong: float, none: float) -> Rollout:
    if rollout.score is None:
        return rollout
    said = answer_of(rollout.problem, rollout.final) if rollout.stop is not Stop.LENGTH else None
    given = {x.strip() for x in said.split(",")} if said else set[str]()
    right = given == every if len(every) > 1 else rollout.score.value > 0
    value = 1.0 if right else wrong if given else none
    noted = rollout.but(notes={**rollout.notes, "several": float(len(given))})
    return noted.scored(Score(value, {"right": rollout.score.value}))


def recipe(**changes: Any) -> Recipe:
    # The paper's puzzles are Sudoku and alphametics, with REINFORCE; here any puzzle with `solutions`, such as
    # `puzzles:kind=countdown`, with GRPO. The values −1/2 and −1, and 16 steps without thinking, are ours. Evaluations
    # pose problems without the words.
    tree = partial(guide, steps=16, ask=ASK, empty=EMPTY)
    return grpo.recipe(name="totrl", guide=tree, reward=partial(reward, wrong=-0.5, none=-1.0)).but(**changes)
