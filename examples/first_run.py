"""A first run: GRPO on the toy world, which has ten questions, four tokens and an exact pass@1.

    python examples/first_run.py
"""

import asyncio

import isocost
from isocost.ledger import Ledger
from isocost.methods import grpo
from isocost.worlds import toy


async def main(rollouts: int = 4096) -> None:
    world, ledger = toy.world(seed=0), Ledger(seed=0)
    recipe = isocost.methods.tuned(grpo.recipe(rollouts=8, groups=8), {"pace.lr": "0.03"})
    async for step in isocost.train(recipe, world, ledger, {"rollouts": rollouts}):
        if ledger.step % 8 == 0:
            found = await isocost.evaluate(recipe, world, world.problems, recipe.pace(ledger), samples=1)
            print(f"step {ledger.step:3}: training reward {step.line['reward']:.2f}, pass@1 {found.right.mean():.2f}")


asyncio.run(main())
