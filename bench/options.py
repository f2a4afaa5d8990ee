"""What the command line asks for, as every case reads it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Sizes of a benchmark run."""

    threads: int = 2
    repeats: int = 7                # measured blocks per seed, or measurements of a point
    seeds: int = 3
    limit: float = 600.0            # seconds that one block may take before its contender is left out
    budget: float = 120.0           # seconds that one point may take before it is left out
    variants: tuple[str, ...] = ()  # of the RL step; all when empty
    contenders: tuple[str, ...] = ()  # of the RL step; all when empty
    before: Path | None = None      # another checkout of isocost, for `pilot`
    work: Path = Path("build/bench")

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
