"""An own method: one file with a card, the functions that differ from the parent, and a recipe.

    python examples/own_method.py           # checks the contract
    isocost train examples/own_method.py --budget 20k-rollouts

    A_i = r_i - median r: rollouts are compared with the group's median instead of its mean
"""

from isocost.methods import Card, grpo
from isocost.ops import per_group

CARD = Card("Median baseline", "an example", 2026, "grpo", "One outlier in a group does not move the others' baseline.")


@per_group
def advantage(r):  # (G,) -> (G,)
    return r - r.median()


def recipe(**changes):
    return grpo.recipe(name="median", advantage=advantage).but(**changes)


if __name__ == "__main__":
    import subprocess
    import sys

    subprocess.run([sys.executable, "-m", "isocost", "methods", "check", __file__], check=True)
