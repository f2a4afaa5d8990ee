"""What to measure on a GPU, in the order of its worth: `python -m bench gpu [STAGE ...]`, or `make bench-gpu`.

Stages of at most nine minutes each, 28 in all. Every row is written to the record as it is measured, and rows that are
there are not measured again, so a stage that was stopped goes on. All stages run at toy size on a processor:
`python -m bench gpu --device cpu --tiny`.

  check   the peaks; sampler against learner in fp32 and bf16, with CUDA graphs and without; the same twice, and alone
  speed   decoding by rows in flight, and its share of the memory's bandwidth; learning, and its share of the peak
  step    the RL step against TRL's GRPOTrainer, with vLLM on the same GPU and without
  runs    a run alone and the runs of a study side by side; a run that is killed and continued
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bench.__main__ import OUT, WORK, rounded
from bench.gpu_rows import STAGES, Bench
from bench.machine import machine
from isocost.local.static import CHUNK

PAGE = Path(__file__).parent.parent / "docs" / "gpu.md"


# the record ---------------------------------------------------------------------------------------------------------


def measure(
    b: Bench, names: list[str], path: Path, *, again: bool = False, limit: float | None = None
) -> dict[str, Any]:
    """Run stages and write the record after every row. Rows that are in it are kept, unless `again`.

    A row that raises an error is recorded with it, and tried again by the next call, as is one of which a part was
    skipped; one for which no time is left is measured by the next call. `limit` is in seconds, in place of the stage's.
    """
    record = json.loads(path.read_text()) if path.exists() else {}
    record = {"schema": 1, "case": "gpu", "command": "python -m bench gpu", "rows": {}, **record, "tiny": b.tiny,
              "machine": machine(1), "device": torch.cuda.get_device_name(b.device) if b.cuda else "cpu"}
    for name in names:
        rows, seconds = STAGES[name]
        b.deadline = time.perf_counter() + (seconds if limit is None else limit)
        for row, call in rows(b):
            there = record["rows"].get(row)
            if there is not None and not {"error", "skipped"} & there.keys() and not again:
                continue
            if time.perf_counter() > b.deadline:
                print(f"{name}: its time is over; run it again for the rest", flush=True)
                break
            b.free()
            at = time.perf_counter()
            try:
                found = call()
            except Exception as error:      # the other rows are worth having
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
            record["rows"][row] = rounded({"stage": name, **found, "seconds": time.perf_counter() - at})
            print(row, json.dumps(record["rows"][row]), flush=True)
            part = path.with_suffix(".part")
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(record, indent=1) + "\n")
            part.replace(path)
    return record


HEAD = """# On a GPU

On a machine with a GPU, `make bench-gpu` is the first command to run. It measures isocost there and writes this page.

{state}

## Before the first run

- An NVIDIA GPU, its driver, Python 3.11 and `make`. Rows that do not fit into the GPU's memory are recorded as
  errors.
- `make .venv/dev` installs isocost and the torch of `constraints.txt`. `.venv/bin/python -c "import torch;
  print(torch.cuda.is_available())"` must print `True`. If it prints `False`, install torch for your driver's CUDA
  version into `.venv`, as [pytorch.org](https://pytorch.org/get-started/locally/) says.
- For the stage `step`: `make .venv-trl/run`, then `.venv-trl/bin/pip install 'trl[vllm]'`. Another Python with TRL and
  vLLM is named by `BENCH_TRL_PYTHON`. Without them the row measures isocost alone and says what it skipped.

`make bench-gpu GPU="check speed"` runs some of the stages. Each row is recorded as it is measured. The same command
goes on where it was stopped, and tries rows again that failed or were skipped in part.
`make bench-gpu GPU="--device cpu --tiny"` runs every row at toy size on a processor.

| stage | at most | what it measures |
| --- | --- | --- |
| `check` | {check} | peaks of arithmetic and memory; log-probs of the sampler against the learner's, fp32 and bf16, \
with CUDA graphs and without; whether rollouts are the same twice, and alone |
| `speed` | {speed} | a tick of decoding with 1 to 1,024 rows of 135M, 0.6B and 1.5B shapes, as a share \
of the memory's bandwidth; the learner's share of the peak (MFU) |
| `step` | {step} | seconds of an RL step against TRL's GRPOTrainer, with vLLM on the same GPU and without |
| `runs` | {runs} | thirty runs of a study side by side; a run that is killed twice and continued |

## How a GPU samples

- The first tick of a size (one token of each row) is captured as a CUDA graph, later ones replay it. Rows are rounded
  up to 1, 2, 4, 8, 16, 24, 32, 48, ..., keys to 64, 96, 128, 192, 256, ....
- The GPU waits for the host once every {chunk} ticks. With top-p, top-k or stop strings it waits for each tick.
- Keys and values lie in memory that is allocated when a row starts, up to its last token, without pages. A model behind
  a [vLLM server](vllm.md) has vLLM's cache.
- Where a tick cannot be captured, the log says why. `--kernels torch` turns graphs off. `--kernels graphs` runs the
  same ticks on a processor, uncaptured, where tests compare their bytes with the plain decoder's.
"""
NONE = """**Nothing is measured on a GPU yet**: no machine with one was at hand. Not measured, and not known:

- whether torch captures every tick there, and what a captured tick saves;
- the gap of log-probs between sampler and learner, in fp32 and bf16;
- speed: decoding, learning, the RL step, runs side by side;
- whether a continued run repeats the bytes of one that was not stopped."""


def page(records: list[dict[str, Any]]) -> str:
    """docs/gpu.md."""
    records = [r for r in records if not r["tiny"]]
    state = "Measured on: " + ", ".join(r["device"] for r in records) + "." if records else NONE
    minutes = {name: f"{seconds / 60:.0f} min" for name, (_, seconds) in STAGES.items()}
    out = [HEAD.format(state=state, chunk=CHUNK, **minutes)]
    for r in records:
        versions = ", ".join(f"{k} {v}" for k, v in r["machine"]["versions"].items())
        out += [f"## {r['device']}", "", f"{r['machine']['processor']}, {r['machine']['cores']} cores; {versions}.", "",
                "| row | measured |", "| --- | --- |"]
        for name, row in r["rows"].items():
            out.append(f"| {name} | {_said(row)} |")
        missing = [name for name, (rows, _) in STAGES.items() if name not in {x["stage"] for x in r["rows"].values()}]
        out += ["", f"Not measured: {', '.join(missing)}."] if missing else []
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def _said(row: dict[str, Any]) -> str:
    """What was measured, without what has no value; parts of a value are in brackets."""
    def value(v: Any) -> str:
        if isinstance(v, dict):
            return "(" + ", ".join(f"{k} {value(x)}" for k, x in v.items()) + ")"
        return str(v).replace("|", "/")

    return ", ".join(f"{k} {value(v)}" for k, v in row.items() if k not in ("stage", "seconds") and v not in (None, {}))


def main(arguments: list[str] | None = None) -> int:
    """Run the stages that are named, all of them by default, or write the page."""
    p = argparse.ArgumentParser("python -m bench gpu", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stages", nargs="*", metavar="STAGE", help=f"any of {', '.join(STAGES)}; or page")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="toy sizes")
    p.add_argument("--again", action="store_true", help="measure also what is in the record")
    p.add_argument("--limit", type=float, help="seconds of a stage (default: 240, 540, 420 and 480)")
    p.add_argument("--out", type=Path, default=OUT, help="where records go (default: experiments/results/bench)")
    p.add_argument("--work", type=Path, default=WORK / "gpu", help="for runs (default: build/bench/gpu)")
    asked = p.parse_args(arguments)
    if asked.stages == ["page"]:
        found = [json.loads(f.read_text()) for f in sorted(asked.out.glob("gpu-*.json"))]
        PAGE.write_text(page(found))
        return 0
    if unknown := [s for s in asked.stages if s not in STAGES]:
        p.error(f"no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    if asked.device == "cuda" and not torch.cuda.is_available():
        p.error("torch finds no GPU here; --device cpu --tiny runs every row at toy size")
    b = Bench(torch.device(asked.device), asked.tiny, asked.work.resolve())
    b.work.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if b.cuda else "cpu"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ("-tiny" if b.tiny else "")
    record = measure(b, asked.stages or list(STAGES), asked.out / f"gpu-{slug}.json", again=asked.again,
                     limit=asked.limit)
    return 1 if any("error" in row for row in record["rows"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
