"""The models that ship with the package, and what they can read."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from isocost.disk.jsonfile import read_json

BASE = Path(__file__).parent / "base"
EMBEDDED = {        # their folders, by name
    "tiny": BASE, "tiny-puzzles": BASE.parent / "puzzles", "tiny-agents": BASE.parent / "agents",
    "tiny-tools": BASE.parent / "tools",
}
DEFAULT = "tiny"    # without --model, unless the problems or the environment have a model of their own


@cache
def _alphabets() -> Mapping[str, str]:
    return {name: str(read_json(folder / "config.json")["alphabet"]) for name, folder in EMBEDDED.items()}


def named(alphabet: str) -> str:
    """The model that has this alphabet, in words."""
    name = next((k for k, own in _alphabets().items() if own == alphabet), "")
    return f"{name} (the model without --model)" if name == DEFAULT else name or "it"


def readers(text: str) -> list[str]:
    """The models that can read a text, character by character."""
    return [name for name, own in _alphabets().items() if set(text) <= set(own)]
