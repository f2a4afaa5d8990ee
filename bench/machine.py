"""What a record's numbers depend on: the hardware and the versions."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("isocost", "torch", "transformers", "trl", "vllm", "numpy")
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def machine(threads: int) -> dict[str, Any]:
    """Processor, instruction sets that matter here, cores, memory, GPU, load before the case began, code."""
    import torch

    from isocost.runs.files import code

    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cpu = _cpuinfo()
    flags = cpu.get("flags", cpu.get("Features", "")).split()
    return {
        "processor": cpu.get("model name", platform.processor() or platform.machine()),
        "flags": [f for f in FLAGS if f in flags],
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gb": round(pages / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": versions(),
        "code": code()["sources"],
    }


def versions() -> dict[str, str]:
    return {name: _version(name) for name in PACKAGES if _version(name)}


def versions_of(python: str) -> dict[str, str]:
    """The same, as another interpreter has them."""
    said = subprocess.run(
        [python, "-c", "import json; from bench.machine import versions; print(json.dumps(versions()))"],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
    )
    import json

    return json.loads(said.stdout)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {k.strip(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
