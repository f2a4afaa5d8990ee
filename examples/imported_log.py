"""Logs of another trainer to a plan: a table of runs at three n, its law, and what to train next.

    python examples/imported_log.py
"""

import csv
import random
import tempfile
from pathlib import Path

import isocost

COLUMNS = ["run=run", "held_out=eval_reward"]


def write_log(path: Path) -> None:
    """A table as a trainer might write it: 3 n x 3 seeds, held-out reward after every 8 updates of 8 problems."""
    noise = random.Random(0)
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["run", "step", "lr", "reward", "eval_reward"])
        for n, middle in ((4, 900), (8, 1500), (16, 3000)):
            for seed in range(3):
                for step in range(0, 201, 8):
                    rollouts = max(8 * n * step, 1)
                    reward = 0.2 + 0.6 / (1 + middle / rollouts) + noise.gauss(0, 0.01)
                    table.writerow([f"n{n}-s{seed}", step, 1e-4, reward, reward])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder, "log.csv"), Path(folder, "study")
        write_log(log)
        isocost.import_logs([log], out, columns=COLUMNS, names="n{n}-s{seed}", B=8)
        study = isocost.open(out)
        law = study.fit()
        plan = study.plan(budget="50k-rollouts")
        print(f"law: {law.refused.reason if law.refused else 'n = ' + ', '.join(map(str, law.ns))}")
        print(f"train n = {plan.n}, B = {plan.B}, M = {plan.M} updates, learning rate {plan.lr:.2g}")
        print(f"predicted reward {plan.forecast.interval}")
        print(study.export("trl").text.splitlines()[0])
