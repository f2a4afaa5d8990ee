"""The models that ship with the package."""

from pathlib import Path

BASE = Path(__file__).parent / "base"
EMBEDDED = {        # their folders, by name
    "tiny": BASE, "tiny-puzzles": BASE.parent / "puzzles", "tiny-agents": BASE.parent / "agents",
    "tiny-tools": BASE.parent / "tools",
}
