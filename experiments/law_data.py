"""Two laws of other papers on runs of our own: records for docs/laws.md.

    python experiments/law_data.py size          the law of model size: five bases taught alike, the largest forecast
    python experiments/law_data.py examples      examples that RL and imitation need for one held-out reward

`size`: four sizes are trained to the end, the largest to `FIRST` of its rollouts. Then the law of arXiv 2509.25300 is
fitted to the four, the largest is placed by its first points, and its last loss is forecast and sealed; only then does
its training continue. The interval is Student's, of the errors that the same forecast makes for each of the four from
the others.

`examples`: GRPO and imitation of the answers start from the same base and see the same K problems. Each keeps its best
evaluation by one half of the held-out problems and is judged on the other (question of arXiv 2512.20061).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

import bases
import lessons
import made_with
from isocost import chance
from isocost.disk.jsonfile import read_json, write_json
from isocost.errors import UserError
from isocost.laws.papers.data import times_less
from isocost.laws.papers.size import SizeLaw, SizeRun, fit_size
from isocost.local import models
from isocost.local.learner import AdamW
from isocost.local.world import Compute, open_world
from isocost.runs.files import read_lines
from isocost.stats.forms import SIGMOID, fit_form
from isocost.tasks.builtin import sums
from pass_rates import measured

HOME = Path(__file__).resolve().parents[1]
RECORDS, WORK = HOME / "experiments" / "results" / "law_data", HOME / "comparisons" / "law-data"
PARTS = ("laws/papers/size.py", "laws/papers/data.py", "methods/grpo.py", "loop.py", "credit.py", "local/learner.py")
SEEDS = (11, 12, 13, 14, 15)
FEWER = SEEDS[:3]        # of `examples`

# model size -----------------------------------------------------------------------------------------------------------

WIDTHS, FIRST, ROLLOUTS, POINTS = (32, 48, 64, 96, 128), 0.25, 32_768, 16
START = 0.1              # share of the rollouts from which losses are read: before it no size has risen
TASK = ("--data", "sums:level=1", "--lr", "2e-4")


def base_of(width: int) -> Path:
    """A base of this width: the lessons of the one that ships, with half as many lines in a step."""
    tiny, folder = bases.named("tiny"), WORK / f"base-{width}"
    if not (folder / "config.json").exists():
        own = replace(tiny.lessons, hidden=width, heads=width // 16, rows=128)
        bases.make(replace(tiny, lessons=own, facts=None), folder)
    return folder


def trained(out: Path, budget: int, *options: str) -> list[dict[str, Any]]:
    """The evaluations of a GRPO run after its start; it is continued if it is there."""
    said = ["train", "grpo", *options, "--budget", f"{budget}-rollouts", "--evaluations", str(POINTS), "--threads", "1"]
    subprocess.run([sys.executable, "-m", "isocost", *said, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    return [x for x in read_lines(out / "metrics.jsonl") if "eval/select" in x]


def curve(width: int, share: float = 1.0) -> SizeRun:
    """Mean held-out loss over seeds, by rollouts, up to this share of the budget."""
    folder, found = base_of(width), []
    for seed in SEEDS:
        stop = () if share == 1 else ("--stop-at", f"{round(share * ROLLOUTS)}-rollouts")
        lines = trained(WORK / f"size-{width}-{seed}", ROLLOUTS, "--model", str(folder), *TASK, "--seed", str(seed),
                        *stop)
        found.append([(x["rollouts"], 1 - (x["eval/select"] + x["eval/audit"]) / 2) for x in lines if x["rollouts"]])
    x, loss = np.array(found).mean(0).T
    read = (x >= START * ROLLOUTS) & (x <= share * ROLLOUTS)
    return SizeRun(float(models.load(str(folder)).parameters), x[read], loss[read])


def foretold(known: Sequence[SizeRun], part: SizeRun, last: float) -> tuple[SizeLaw, float]:
    """The law of the known sizes with one more placed by its first points, and ln L of that one at `last` rollouts."""
    law = fit_size(known).placed(part)
    return law, float(np.log(law(part.parameters, last)))


def size() -> None:
    """Train, forecast, seal, continue, and write the record."""
    *small, largest = WIDTHS
    known, part = [curve(w) for w in small], curve(largest, FIRST)
    errors = []
    for i, run in enumerate(known):
        others = known[:i] + known[i + 1:]
        errors.append(float(np.log(run.loss[-1])) - foretold(others, run.first(FIRST), run.x[-1])[1])
    law, middle = foretold(known, part, float(known[0].x[-1]))
    reach = float(stdtrit(len(errors), 0.95)) * float(np.sqrt(np.mean(np.square(errors)) * (1 + 1 / len(errors))))
    seal = {"K_max": law.fastest, "N_0": law.halfway, "errors": errors, "ln_loss": middle, "of": part.parameters,
            "interval": [float(np.exp(middle - reach)), float(np.exp(middle + reach))], "loss": float(np.exp(middle))}
    kept = WORK / "size-seal.json"
    if not kept.exists():
        write_json(kept, seal)
    elif read_json(kept) != json.loads(json.dumps(seal)):
        raise UserError(f"{kept} has another forecast: these runs or the code changed since; remove {WORK}")
    whole = curve(largest)
    low, high = seal["interval"]
    measured = float(whole.loss[-1])
    naive = float(part.loss[-1])
    write(RECORDS / "size.json", {
        "command": "python experiments/law_data.py size", "seeds": list(SEEDS), "task": list(TASK),
        "sizes": {f"{r.parameters:g}": {"rollouts": r.x.tolist(), "loss": r.loss.tolist(),
                                        "r2": law.explained(r)} for r in known},
        "largest": {"rollouts": whole.x.tolist(), "loss": whole.loss.tolist(), "points_before": len(part.x)},
        "forecast": seal, "outcome": measured, "hit": low <= measured <= high,
        "stays_as_it_is": naive})


# examples -------------------------------------------------------------------------------------------------------------

EXAMPLES, HELD, EACH = (8, 16, 32, 64, 128, 256, 512), 400, 64        # K; held-out problems; steps between evaluations
RL, STEPS, RATE = 16_384, 640, 2e-4         # rollouts of a run; steps of imitation; both learn at this rate


def problems(k: int, seed: int) -> tuple[Path, Path]:
    """JSONL files of K problems to learn from, nested in K, and of the held-out ones."""
    drawn = sums.sums(base="hard")
    order = chance.generator(seed, chance.Purpose.CHOOSE).permutation(len(drawn))
    files = WORK / f"learn-{k}-{seed}.jsonl", WORK / f"held-{seed}.jsonl"
    for file, of in zip(files, (order[HELD : HELD + k], order[:HELD]), strict=True):
        rows = [{"prompt": drawn[i].prompt[0].content, "answer": drawn[i].answer} for i in of.tolist()]
        file.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return files


def by_rl(k: int, seed: int) -> float:
    """The held-out reward of GRPO on K problems."""
    learn, held = problems(k, seed)
    lines = trained(WORK / f"rl-{k}-{seed}", RL, "--data", str(learn), "--held-out-data", str(held), "--model", "tiny",
                    "--max-tokens", "4", "--lr", str(RATE), "--seed", str(seed), "-B", str(min(k, 16)))
    return max((x["eval/select"], x["eval/audit"]) for x in lines)[1]


def by_imitation(k: int, seed: int) -> float:
    """The held-out reward of imitation of the answers to K problems."""
    (learn, held), folder = problems(k, seed), WORK / "imitation"
    rows = [json.loads(x) for x in learn.read_text(encoding="utf-8").splitlines()]
    first = models.load("tiny")
    adam = AdamW(betas=(0.9, 0.99), weight_decay=0.01)
    learner = open_world(first, (), lambda *_: None, compute=Compute(device="cpu", adam=adam)).learner
    best = (-1.0, 0.0)
    for step in range(STEPS):
        drawn = chance.generator(seed, chance.Purpose.CHOOSE, 1 + step).integers(len(rows), size=min(k, 128)).tolist()
        taught = bases.batch([lessons.line(rows[i]["prompt"], rows[i]["answer"]) for i in drawn], sums.ALPHABET)
        learner.update(taught, bases.imitate, lr=RATE)
        if (step + 1) % EACH == 0:
            bases.write(folder, first.but(weights={k: v.clone() for k, v in learner.weights().items()}, extra={}),
                        sums.ALPHABET, {})
            right = measured(folder, 1, data=str(held))[1].right
            best = max(best, (float(right[::2].mean()), float(right[1::2].mean())))
    return best[1]


def examples() -> None:
    """Learn both ways from each number of examples with each seed, and write the record."""
    scores = {name: np.array([[way(k, seed) for k in EXAMPLES] for seed in FEWER])
              for name, way in (("rl", by_rl), ("imitation", by_imitation))}
    out: dict[str, Any] = {
        "command": "python experiments/law_data.py examples", "seeds": list(FEWER), "examples": list(EXAMPLES),
        "base": float(np.mean([measured("tiny", 1, data=str(problems(8, s)[1]))[1].right.mean() for s in FEWER])),
        "scores": {name: x.round(4).tolist() for name, x in scores.items()}}
    less = scores["rl"] - scores["imitation"]
    reach = float(stdtrit(len(FEWER) - 1, 0.95)) * less.std(0, ddof=1) / len(FEWER) ** 0.5
    out["difference"] = [[*map(float, x)] for x in zip(less.mean(0), less.mean(0) - reach, less.mean(0) + reach,
                                                       strict=True)]
    rl, imitation = (fit_form(SIGMOID, np.array(EXAMPLES, dtype=float), x.mean(0)) for x in scores.values())
    out["fits"] = {"rl": rl.parameters, "imitation": imitation.parameters}
    try:
        target = float(min(x.mean(0)[-1] for x in scores.values())) * 0.9
        out["times_less"] = {"reward": target, "times": times_less(rl, imitation, target)}
    except UserError as error:
        out["times_less"] = {"not identified": str(error)}
    write(RECORDS / "examples.json", out)


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Keep a record and the code that it speaks of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found)
    made_with.note(path, PARTS)


if __name__ == "__main__":
    WORK.mkdir(parents=True, exist_ok=True)
    {"size": size, "examples": examples}[sys.argv[1]]()
