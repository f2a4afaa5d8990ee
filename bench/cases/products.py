"""The kernel's matrix products on one core: fp32, and bf16 as each set of this processor's instructions computes it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.options import Options
from bench.worker import Failed
from isocost import processor
from isocost.local import native

SOURCE = Path(__file__).parents[1] / "products.cpp"


def builds() -> dict[str, tuple[str, ...]]:
    """Options of the compiler for each way to multiply bf16 that this processor has."""
    tiles = native.TILES if processor.has_amx() else ()
    out = {"bf16 as fp32": (*native.TARGET, *native.SLOW_DOT, *tiles)}
    if "avx512_bf16" in processor.cpuinfo().get("flags", "").split():
        out["bf16, vdpbf16ps"] = (*native.TARGET, *tiles)
    return out


def products(options: Options) -> dict[str, Any]:
    """Builds in turn, `repeats` times, and of each shape the median rates. Raises Failed without a compiler."""
    compiler = next((c for c in map(shutil.which, native.COMPILERS) if c), None)
    if compiler is None:
        raise Failed(f"there is no C++ compiler ({', '.join(native.COMPILERS)})")
    flags = [f for f in native.FLAGS if f not in ("-shared", "-fPIC")]
    seen: dict[tuple[int, ...], dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, target in builds().items():
            command = [compiler, *flags, *target, f"-I{native.FOLDER}", str(SOURCE), "-o", str(Path(scratch) / name)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise Failed(f"{SOURCE.name}: {done.stderr.splitlines()[0]}")
        for _ in range(options.repeats):
            for name in builds():
                said = subprocess.run([Path(scratch) / name], capture_output=True, text=True, check=True).stdout
                for line in said.splitlines():
                    *size, fp32, bf16, tiles = map(float, line.split())
                    rates = seen.setdefault(tuple(map(int, size)), {})
                    for kind, rate in (("fp32", fp32), (name, bf16), ("bf16, AMX", tiles)):
                        if rate:
                            rates.setdefault(kind, []).append(rate)
    return {"rows": [
        {"rows": m, "inputs": k, "outputs": n, "gflops": {kind: median(some) for kind, some in rates.items()}}
        for (m, k, n), rates in seen.items()
    ]}
