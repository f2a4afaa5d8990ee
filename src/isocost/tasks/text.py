"""Whether two prompts are the same: for identity, and more loosely to keep held-out problems out of training."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence

from isocost.types import Message, Problem


def normal(prompt: Sequence[Message]) -> str:
    """The prompt for identity: Unicode composed (NFC), runs of space as one, roles kept."""
    return "\n".join(f"{m.role}: {squeeze(unicodedata.normalize('NFC', m.content))}" for m in prompt)


def loose(prompt: Sequence[Message]) -> str:
    """The prompt for leakage: also without case, compatibility forms and system messages."""
    said = (unicodedata.normalize("NFKC", m.content).casefold() for m in prompt if m.role != "system")
    return "\n".join(squeeze(x) for x in said)


def squeeze(text: str) -> str:
    """Text with every run of white space as one space, and none at the ends."""
    return " ".join(text.split())


def name(prompt: Sequence[Message]) -> str:
    """A stable id: 16 hexadecimal digits of the SHA-256 of the normal prompt."""
    return hashlib.sha256(normal(prompt).encode()).hexdigest()[:16]


def kin(problem: Problem) -> str:
    """The key whose problems stay in one split: `meta["kin"]` if the source gives it, else the loose prompt."""
    return str(problem.meta.get("kin") or loose(problem.prompt))
