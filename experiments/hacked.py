"""The picture of docs/reward_hacking.md: a run that is trained on even or odd alone, and reported by the truth.

    isocost train grpo --data puzzles:kind=addition,length=2,count=600 --verifier coarse:parity --truth final \
        -n 8 -B 16 --lr 1e-4 --budget 4096-rollouts --seed 901 --out hacked
    python experiments/hacked.py hacked

Writes docs/images/hacked-light.svg and -dark.svg: the plot of the run's report.
"""

from __future__ import annotations

import sys
from pathlib import Path

from isocost.report import theme
from isocost.report.records import load
from isocost.report.sections.parted import plot

HOME = Path(__file__).parents[1]

if __name__ == "__main__":
    spec = plot(load(Path(sys.argv[1]))).spec
    for dark, name in ((False, "light"), (True, "dark")):
        (HOME / "docs" / "images" / f"hacked-{name}.svg").write_text(theme.svg(spec, dark=dark))
