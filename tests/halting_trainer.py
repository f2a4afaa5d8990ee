"""examples/own_trainer.py, halted after some updates, so that a test can kill it at a known place.

Attempt K waits after `HALTS[K]` of its updates until it is killed, or until there is a file `go` in its folder.

    python tests/halting_trainer.py ATTEMPT OPTIONS...
"""

import runpy
import sys
import time
from pathlib import Path

HALTS = {0: 11, 1: 12}

if __name__ == "__main__":
    attempt, wait, made = int(sys.argv.pop(1)), time.sleep, [0]
    go = Path(sys.argv[sys.argv.index("--out") + 1]) / "go"

    def halting(seconds):
        made[0] += 1
        while made[0] == HALTS.get(attempt) and not go.exists():
            wait(0.02)

    time.sleep = halting
    runpy.run_path(str(Path(__file__).parent.parent / "examples" / "own_trainer.py"), run_name="__main__")
