"""Harnesses that drive: an agent that calls a model's address and comes back with a reward."""

from isocost.moved import names_of_old

__getattr__ = names_of_old(__name__)
