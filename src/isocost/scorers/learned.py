"""A value function that was fitted to what continuations of a text earn: `isocost scorer` makes one.

    s(x, y) = σ(v(x, y)),  v the head of a decoder after the last token;  target of y: the mean mark of m continuations
    Wang et al. 2024, "Math-Shepherd", arXiv:2312.08935
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file

from isocost.errors import UserError
from isocost.pack import pack
from isocost.types import Group, Place, Problem, Role, Rollout, Score, Segment
from isocost.world import Critic, World

WEIGHTS, ABOUT = "critic.safetensors", "scorer.json"


async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, file: str = "scorer"
) -> list[float]:
    """The probability, by the scorer in the folder `file`, that a text leads to a right answer.

    The tokens of the texts are charged as `score`. Raises UserError without such a folder, or with one of another
    model.
    """
    return values(opened(file, world), [t.segments[-1] for t in texts], problem, world)


def values(critic: Critic, texts: Sequence[Segment], problem: Problem, world: World) -> list[float]:
    """The value after the last token of each text: that before one more, which is read and not scored."""
    rollouts = tuple(Rollout(problem, (t.read([0], Role.OWN),), "", attempt=i, score=Score(0.0))
                     for i, t in enumerate(texts))
    batch = pack([Group(problem, rollouts, Place(0, 0, 0))], world.engine.version)
    found = critic.values(batch)
    return [float(found[i, len(t)]) for i, t in enumerate(texts)]


def opened(file: str, world: World) -> Critic:
    """The scorer of a folder, read once for each world."""
    if file not in world.critics:
        if world.new_critic is None:
            raise UserError("scorer learned: this model is not on this machine, so no scorer can be run beside it")
        if not (Path(file) / WEIGHTS).is_file():
            raise UserError(f"there is no scorer in {file}; make one: isocost scorer MODEL --data ... --out {file}")
        critic = world.new_critic()
        try:
            critic.restore(load_file(Path(file) / WEIGHTS))
        except (KeyError, RuntimeError) as error:
            raise UserError(f"the scorer in {file} is of another model: {error}") from error
        world.critics[file] = critic
    return world.critics[file]
