"""Updates per CPU second of control, against Stable-Baselines3, in pairs within one run.

    python -m pip install --target /tmp/sb3 --no-deps stable-baselines3 cloudpickle gymnasium farama-notifications \\
        pandas matplotlib
    PYTHONPATH=/tmp/sb3:. OMP_NUM_THREADS=1 python -m bench.control --out FILE          3 minutes on one core

One update of SAC on Pendulum. Each pair measures SB3, then ours: the kernel, then torch; a ratio is the median of the
pairs. CPU seconds of one thread: other processes on the machine make both slower, and the ratio noisier.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from isocost import processor
from isocost.control import methods, native
from isocost.control.loop import Loop, StackedRun
from isocost.control.tasks import open_task

BARS = {(64, 64, 16): 18.0, (64, 64, 64): 25.0, (256, 256, 8): 1.8}     # width, batch, runs -> times SB3
PLAIN = {16: 1.7, 64: 1.9}      # runs -> the kernel over torch, at 64 wide and a batch of 64


def stack(width: int, batch: int, runs: int) -> Callable[[int], None]:
    """So many updates of each run, on a replay of 1,000 transitions."""
    agent = methods.tuned(methods.agent("sac", width=width, batch=batch), {"tempo.warmup": "1000"})
    loop = Loop(agent, open_task("pendulum"), [StackedRun(s, 1.0, 3e-4) for s in range(runs)], 1000)
    loop.advance([1000] * runs)
    due = frozenset(loop.networks)

    def updates(count: int) -> None:
        for _ in range(count):
            loop._update(range(runs), due, 0.005)

    return updates


def sb3(width: int, batch: int) -> Callable[[int], None]:
    """The same of SB3: `train` on a full buffer."""
    from stable_baselines3 import SAC

    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [width, width]}, batch_size=batch, seed=0,
                learning_starts=10**9)
    model.learn(1000)
    return lambda count: model.train(count, batch)


def rate(update: Callable[[int], None], count: int) -> float:
    """Updates of one run per CPU second."""
    began = time.process_time()
    update(count)
    return count / (time.process_time() - began)


def measured(pairs: int) -> list[dict[str, Any]]:
    rows = []
    usable, step = native.usable, native.adam
    for (width, batch, runs), bar in BARS.items():
        theirs, ours = sb3(width, batch), stack(width, batch, runs)
        count = max(int(4000 / runs * (64 / width) ** 2 * 64 / batch), 4)
        theirs(20), ours(3)
        found = []
        for _ in range(pairs):
            one = {"sb3": rate(theirs, max(count * runs // 40, 10)), "kernel": rate(ours, count) * runs}
            native.usable, native.adam = (lambda *_: False), (lambda *_: False)
            one["torch"] = rate(ours, max(count // 2, 2)) * runs
            native.usable, native.adam = usable, step
            found.append(one)
        over_sb3, over_torch = (median(x["kernel"] / x[k] for x in found) for k in ("sb3", "torch"))
        wanted = PLAIN.get(runs) if width == batch == 64 else None
        rows.append({
            "width": width, "batch": batch, "runs": runs, "updates_per_cpu_second": {
                k: round(median(x[k] for x in found)) for k in ("sb3", "kernel", "torch")},
            "over_sb3": round(over_sb3, 2), "bar": bar, "held": over_sb3 >= bar, "over_torch": round(over_torch, 2),
            **({"bar_over_torch": wanted, "held_over_torch": over_torch >= wanted} if wanted else {}),
        })
    return rows


def command(text: str | None, pairs: int, measure: Callable[[int], list[dict[str, Any]]], **versions: str) -> None:
    """The command of a bench: prints its record, and keeps it with --out."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--pairs", type=int, default=pairs)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = json.dumps({"machine": processor.name(), "torch": torch.__version__, **versions, "pairs": asked.pairs,
                        "rows": measure(asked.pairs)}, indent=1)
    print(found)
    if asked.out:
        asked.out.write_text(found + "\n")


def main() -> None:
    from stable_baselines3 import __version__ as version

    command(__doc__, 3, measured, sb3=version)


if __name__ == "__main__":
    main()
