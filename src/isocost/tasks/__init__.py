"""Problems, their verifiers, and their splits."""

from isocost.tasks.load import ProblemSet, load_problems
from isocost.tasks.split import Split, split, split_given

__all__ = ["ProblemSet", "Split", "load_problems", "split", "split_given"]
