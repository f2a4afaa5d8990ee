"""The command line: it parses, calls a step and prints what the step returns. Nothing else prints."""

from isocost.cli.commands import main

__all__ = ["main"]
