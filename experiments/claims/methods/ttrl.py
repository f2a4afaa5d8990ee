"""TTRL, arXiv:2504.16084: GRPO whose reward is the majority answer of the group. ETTRL's baseline."""

from typing import Any

from isocost.methods import Card, ettrl, grpo
from isocost.seams import Recipe

CARD = Card("TTRL", "2504.16084", 2025, "grpo", "The majority's answer is a reward where most are right.")


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(name="ttrl", reward=ettrl.reward).but(**changes)
