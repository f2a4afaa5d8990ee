"""What the headlines of the agent methods read from a run: success at equal tokens, dead rollouts, detours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from isocost.runs.files import read_lines


def at_tokens(folder: Path, tokens: int) -> float:
    """Held-out success after so many sampled tokens, linear between a run's evaluations; its last one beyond them."""
    points, decoded = [], 0
    for line in read_lines(folder / "metrics.jsonl"):
        decoded = line.get("decode", decoded)
        if "eval/audit" in line:
            points.append((decoded, line["eval/audit"]))
    x, y = zip(*points, strict=True)
    return float(np.interp(tokens, x, y))


def read_tokens(folder: Path) -> float:
    """Tokens read for each environment step over a run's training, those read again in later turns among them."""
    last = [x for x in read_lines(folder / "metrics.jsonl") if x.get("env_steps")][-1]
    return float(last["prefill"] / last["env_steps"])


def dead(folder: Path) -> float:
    """The share of the rollouts of updates that carried no advantage."""
    fates = [f for line in read_lines(folder / "journal.jsonl") for f in line["fates"]]
    return fates.count("dead") / max(fates.count("dead") + fates.count("trained"), 1)


def detour(folder: Path) -> float:
    """Moves beyond the shortest route, in the successes of the last tenth of a run's groups."""
    from isocost.envs.tiny import rooms

    setting = json.loads((folder / "run.json").read_text())["job"]["setting"]
    level = {p.id: p.meta["level"] for p in rooms.problems(rooms.Rooms.of(setting["env"]))}
    lines = [x for x in read_lines(folder / "journal.jsonl") if x["attempts"]]
    last = lines[-max(len(lines) // 10, 1) :]
    moves = [t - level[x["id"]] for x in last for t, r in zip(x["turns"], x["rewards"], strict=True) if r]
    return float(np.mean(moves))


def form(folder: Path, share: float = 0.25) -> float:
    """Of the attempts of the last `share` of a run's groups: those that ended by themselves, no turn malformed."""
    lines = [x for x in read_lines(folder / "journal.jsonl") if x["attempts"]]
    last = lines[-max(int(len(lines) * share), 1) :]
    return float(np.mean([stop == "done" and not faults.get("model") for x in last
                          for stop, faults in zip(x["stops"], x["faults"], strict=True)]))


def calls(folder: Path, share: float = 0.1) -> dict[str, float]:
    """Of the successes of the last `share` of a run's groups: calls that were answered, and those that failed.

    The last turn gives the answer and is no call. Means for each success.
    """
    lines = [x for x in read_lines(folder / "journal.jsonl") if x["attempts"]]
    right = [(t - 1, sum(f.values())) for x in lines[-max(int(len(lines) * share), 1) :]
             for t, f, r in zip(x["turns"], x["faults"], x["rewards"], strict=True) if r]
    made, failed = np.mean(np.array(right), axis=0)
    return {"calls": float(made), "failed": float(failed)}
