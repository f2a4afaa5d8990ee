"""`python -m bench [CASE ...]`: run cases, leave a record of each, and write docs/speed.md from the records."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.options import Options
from bench.worker import ROOT, Failed

OUT, WORK = ROOT / "experiments" / "results" / "bench", ROOT / "build" / "bench"
CASES = {
    "step": "the RL step against TRL's GRPOTrainer (needs TRL: `make .venv-trl/run`, or BENCH_TRL_PYTHON)",
    "neighbour": "the RL step alone and beside a process that keeps one core busy, against TRL",
    "decode": "decoding against Hugging Face generate, on a tiny model and on SmolLM2-135M",
    "learner": "the learner's tokens per second, and its share of the machine's measured peak",
    "products": "the kernel's matrix products, and bf16 with each instruction of the processor",
    "study": "thirty runs of the built-in problems, end to end",
    "pilot": "the runs of a pilot against another checkout's, given by --before; both write the same weights",
    "scaling": "cost against batch, length, width and group size, beside the roofline",
    "overlap": "sampling and learning at the same time against taking turns, in seconds and in learning curves",
    "search": "strategies at test time against plain sampling of as many tokens, in CPU seconds",
    "overhead": "feed, pack and journal with an engine that costs nothing, against a plain loop",
}


def parser() -> argparse.ArgumentParser:
    cases = "\n".join(f"  {name:<9} {what}" for name, what in CASES.items())
    p = argparse.ArgumentParser(
        "python -m bench", description=f"How fast isocost is, against what a user would pick instead.\n\n{cases}\n"
        "  page      write docs/speed.md and its pictures from the records\n"
        "  gpu       everything on a GPU, in stages: see `python -m bench gpu --help`",
        epilog="Cases default to all of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("cases", nargs="*", metavar="CASE", help=f"any of {', '.join(CASES)}, page")
    p.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of every contender (default: all cores)")
    p.add_argument("--repeats", type=int, default=7, help="measured blocks or repeats per point (default: 7)")
    p.add_argument("--seeds", type=int, default=3, help="of the RL step's learning curves (default: 3)")
    p.add_argument("--variants", default="",
                   help="base,long,ragged of the RL step; tail,straggler,elsewhere of overlap")
    p.add_argument("--contenders", default="", help="of the RL step: 'TRL fp32;isocost bf16, native' (default: all)")
    p.add_argument("--budget", type=float, default=120.0, help="seconds per point of decode and scaling (default: 120)")
    p.add_argument("--before", type=Path, help="another checkout of isocost: what `pilot` is compared with")
    p.add_argument("--out", type=Path, default=OUT, help="where records go (default: experiments/results/bench)")
    p.add_argument("--work", type=Path, default=WORK, help="for models and runs (default: build/bench)")
    return p


def run(case: str, options: Options) -> dict[str, Any]:
    """One case as a record: what it found, on which machine, in how long."""
    from bench.machine import machine

    where, began = machine(options.threads), time.perf_counter()
    found = getattr(importlib.import_module(f"bench.cases.{case}"), case)(options)
    where["versions"] |= found.pop("versions", {})
    seconds = round(time.perf_counter() - began, 1)
    command = f"python -m bench {case} --threads {options.threads} --repeats {options.repeats} --seeds {options.seeds}"
    if case == "step":
        command += f" --variants {','.join(options.variants)}" if options.variants else ""
    if case in ("step", "neighbour"):
        command += f" --contenders '{';'.join(options.contenders)}'" if options.contenders else ""
    command += " --before (another checkout)" if options.before else ""
    return {
        "schema": 1, "case": case, "command": command, "machine": where, "seconds": seconds, **found,
    }


def rounded(x: Any) -> Any:
    """Floats to six digits: enough, and a record that can be read."""
    if isinstance(x, float):
        return float(f"{x:.6g}")
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    return [rounded(v) for v in x] if isinstance(x, (list, tuple)) else x


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["gpu"]:
        from bench import gpu

        return gpu.main(arguments[1:])
    p = parser()
    asked = p.parse_args(arguments)
    wanted = asked.cases or [*(c for c in CASES if c != "pilot" or asked.before), "page"]
    if unknown := [c for c in wanted if c not in (*CASES, "page")]:
        p.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)} and page")
    variants, contenders = (
        tuple(v for v in some.split(by) if v) for some, by in ((asked.variants, ","), (asked.contenders, ";"))
    )
    options = Options(
        asked.threads, asked.repeats, asked.seeds, variants=variants, contenders=contenders,
        work=asked.work.resolve(), budget=asked.budget, before=asked.before and asked.before.resolve(),
    )
    asked.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    failed = 0
    for case in (c for c in wanted if c != "page"):
        try:
            record = rounded(run(case, options))
        except Failed as e:
            failed += 1
            print(f"{case}: {e}", file=sys.stderr)
            continue
        (asked.out / f"{case}.json").write_text(json.dumps(record, indent=1) + "\n")
        print(f"{asked.out / case}.json written after {record['seconds']} s", flush=True)
    if "page" in wanted:
        from bench.page import write

        write(asked.out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
