"""A study, or some runs, as one HTML file that opens without a network."""

from isocost.report.page import picture, write

__all__ = ["picture", "write"]
