"""Environments of several turns: those that ship, and what opens one by its spec."""
