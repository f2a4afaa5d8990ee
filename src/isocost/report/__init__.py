"""A study, or some runs, as one HTML file that opens without a network."""

from isocost.report.page import write

__all__ = ["write"]
