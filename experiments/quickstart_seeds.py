"""Quickstarts of many seeds: does the sealed forecast hold, how wide is it, and what is prescribed?

    python experiments/quickstart_seeds.py --seeds 20 --out experiments/results/quickstart_seeds.json
    python experiments/quickstart_seeds.py --world agents --seeds 10 --out experiments/results/quickstart_agents.json

The second asks the same of `isocost quickstart --world agents`, and whether the turn limit is identified; its sizes
were fixed before. `cpu_seconds` are those of all processes of a study: on two idle cores a study takes a little more
than half of them.

Each seed is a whole study of its own, from profile to audit; nothing is chosen after looking. Each study is begun
in its own process by the command a user runs; what it wrote is read back. Studies already there are not run again.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import made_with

PR_SET_CHILD_SUBREAPER = 36     # orphans of this process's children become its own, and count


def study(seed: int, home: Path, world: str | None) -> dict[str, Any]:
    out = home / f"quickstart-{f'{world}-' if world else ''}{seed}"
    before, cpu = resource.getrusage(resource.RUSAGE_CHILDREN), out / "cpu_seconds"
    if not (out / "audit.json").exists():
        named = ["--world", world] if world else []
        done = subprocess.run([sys.executable, "-m", "isocost", "quickstart", *named, "--seed", str(seed), "--out",
                               str(out)], check=True, stdout=subprocess.DEVNULL)
        with suppress(ChildProcessError):
            while True:     # what the study has started and left behind, which ends with it
                os.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cpu.write_text(f"{float(cpu.read_text()) + spent if cpu.exists() else spent:.1f}")
        assert done.returncode == 0
    asked, plan, forecast, audit = (
        json.loads((out / f"{name}.json").read_text()) for name in ("study", "plan", "forecast", "audit")
    )
    outcome = audit["outcome"] or {}
    law = json.loads((out / "law.json").read_text()) if (out / "law.json").exists() else {}
    limit = law.get("turn_limit")
    return {
        "seed": seed, "verdict": audit["verdict"], "n": plan["arm"]["n"], "equal": plan["equal"],
        "fallback": bool(plan["fallback"]), "comparator": (forecast["comparator"] or {}).get("n"),
        "better": audit["better"],
        "forecast": forecast["value"], "low": forecast["low"], "high": forecast["high"], "outcome": outcome.get("mean"),
        "base": forecast["base"], "difference": audit["difference"], "beats_naive": audit["beats_naive"],
        "scores": {s["name"]: s["score"] for s in audit["scores"]}, "extrapolation": plan["extrapolation"],
        "seconds": asked["phases"], "total_seconds": round(sum(asked["phases"].values()), 1), "code": asked["code"],
        **({"cpu_seconds": float(cpu.read_text())} if cpu.exists() else {}),
        **({"turns": plan["turns"], "turn_limit": {k: limit[k] for k in ("identified", "text", "settle")},
            "law": (law["refused"] or {}).get("reason", "identified")} if limit else {}),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of verdicts and prescriptions, interval widths, and how often the forecast beat the naive ones."""
    told = [r for r in rows if r["low"] is not None and r["outcome"] is not None]
    inside = sum(r["low"] <= r["outcome"] <= r["high"] for r in told)
    errors = [r["outcome"] - r["forecast"] for r in told]
    return {
        "studies": len(rows), "identified": sum(not r["fallback"] for r in rows),
        "verdicts": dict(Counter(r["verdict"] for r in rows)),
        "prescribed_n": dict(sorted(Counter(r["n"] for r in rows).items())),
        "better": dict(Counter(r["better"] for r in rows)), "inside_interval": f"{inside} of {len(told)}",
        "median_width": median(r["high"] - r["low"] for r in told) if told else None,
        "median_absolute_error": median(map(abs, errors)) if told else None,
        "median_error": median(errors) if told else None,
        "beats_both_naive": f"{sum(bool(r['beats_naive']) for r in told)} of {len(told)}",
        "median_seconds": median(r["total_seconds"] for r in rows),
        **({"median_cpu_seconds": median(cpu)} if (cpu := [r["cpu_seconds"] for r in rows if "cpu_seconds" in r])
           else {}),
        **({"turn_limit_identified": sum(r["turn_limit"]["identified"] for r in limits),
            "prescribed_turns": dict(sorted(Counter(r["turns"] for r in limits).items()))}
           if (limits := [r for r in rows if "turn_limit" in r]) else {}),
    }


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--world", help="a built-in world; its study's size is its own")
    options.add_argument("--home", type=Path, default=Path("studies"))
    options.add_argument("--out", type=Path, required=True)
    asked = options.parse_args()
    rows = []
    for seed in range(asked.seeds):
        rows.append(study(seed, asked.home, asked.world))
        asked.out.write_text(json.dumps({"summary": summary(rows), "studies": rows}, indent=1) + "\n")
        last = rows[-1]
        print(f"seed {seed}: {last['verdict']}, n = {last['n']}, {last['total_seconds']} s", flush=True)
    if asked.world is None:
        made_with.note(asked.out)
    print(json.dumps(summary(rows), indent=1))
