"""DSAC-T on rewards times a factor.

    r <- gain · r, in every batch
"""

from functools import partial

from isocost.control.luck import Luck
from isocost.control.methods import dsact
from isocost.control.replay import Replay, uniform
from isocost.control.seams import Agent
from isocost.control.types import Transitions
from isocost.found import Card

CARD = Card("Scaled DSAC-T", "2310.05858", 2023, "dsact", "DSAC-T with rewards of another scale.")


def sample(replay: Replay, count: int, luck: Luck, *, gain: float = 1.0) -> Transitions:
    """A uniform batch whose rewards are `gain` times as large."""
    batch = uniform(replay, count, luck, gamma=0.99)
    return batch._replace(reward=gain * batch.reward)


def agent(**changes: object) -> Agent:
    return dsact.agent(name="scaled_dsact", sample=partial(sample, gain=1.0)).but(**changes)
