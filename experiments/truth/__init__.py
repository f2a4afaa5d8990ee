"""Studies whose truth is known, to hold every claim of the planner against before it meets a real run."""

from truth.bandit import Bandit
from truth.oracle import oracle
from truth.planted import INSIDE, OUTSIDE, Design, Planted, plant

__all__ = ["INSIDE", "OUTSIDE", "Bandit", "Design", "Planted", "oracle", "plant"]
