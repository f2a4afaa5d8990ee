"""Harnesses that drive: an agent that calls a model's address and comes back with a reward."""
