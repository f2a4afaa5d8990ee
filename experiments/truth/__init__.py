"""Studies whose truth is known, to hold every claim of the planner against before it meets a real run."""

from truth.oracle import oracle
from truth.planted import INSIDE, OUTSIDE, Design, Planted, plant

__all__ = ["INSIDE", "OUTSIDE", "Design", "Planted", "oracle", "plant"]
