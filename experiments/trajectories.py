"""The schedule of RollArt (arXiv:2512.22560), simulated: dialogues that go on one by one against dialogues in step.

    python experiments/trajectories.py --out experiments/results/trajectories.json

A dialogue has turns; a turn is `decode` seconds of the model and then a latency of its environment. The latencies have
mean 1 and a Pareto tail. Together, all dialogues wait for the slowest environment of each turn; one by one, each goes
on when its own has answered, and a step ends with the last dialogue, or, with spare environments, when as many as were
asked for have ended. The model is as wide as the batch, and devices have no kinds: the rest of RollArt is not here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.disk.jsonfile import write_json

DIALOGUES, TURNS, DECODE, REPEATS = 64, 8, 0.5, 400
TAILS, SPARE = (1.2, 1.5, 2.0, 3.0, 10.0), (0, 4, 8)


def latencies(tail: float, dialogues: int, repeats: int, seed: int = 0) -> ndarray:
    """(repeats, dialogues, TURNS) seconds with mean 1 of a Pareto law with this tail index, which is above 1."""
    rng = chance.generator(seed, chance.Purpose.ENVIRONMENT, int(10 * tail))
    return (1 + rng.pareto(tail, (repeats, dialogues, TURNS))) * (tail - 1) / tail


def together(seconds: ndarray) -> ndarray:
    """(repeats,) seconds of a step in which each turn waits for its slowest environment."""
    return (DECODE + seconds.max(1)).sum(-1)


def one_by_one(seconds: ndarray, spare: int = 0) -> ndarray:
    """(repeats,) seconds until all but the `spare` slowest dialogues have ended, each at its own pace."""
    return np.sort((DECODE + seconds).sum(-1), -1)[:, -1 - spare]


def measured() -> list[dict[str, float]]:
    """For each tail and number of spare environments: mean seconds of both schedules, and the mean of their ratio."""
    out = []
    for tail in TAILS:
        for spare in SPARE:
            seconds = latencies(tail, DIALOGUES + spare, REPEATS)
            first, second = together(seconds[:, :DIALOGUES]), one_by_one(seconds, spare)
            out.append({"tail": tail, "spare": spare, "together": round(float(first.mean()), 3),
                        "one by one": round(float(second.mean()), 3),
                        "times as fast": round(float((first / second).mean()), 3)})
    return out


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    said = {"command": "python experiments/trajectories.py --out experiments/results/trajectories.json",
            "dialogues": DIALOGUES, "turns": TURNS, "decode": DECODE, "repeats": REPEATS}
    write_json(parser.parse_args().out, said | {"rows": measured()})


if __name__ == "__main__":
    main()
