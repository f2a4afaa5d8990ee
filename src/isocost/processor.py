"""The processor, and the settings under which torch's matrix libraries give a row the same bits in any batch.

Both libraries choose a routine by the shape of a product, and routines round differently, so a row's last bits can
depend on the other rows of its batch. Each library reads its setting from the environment, once, at its first product.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import cache

MKL, MKL_STRICT = "MKL_CBWR", "AUTO,STRICT"                              # every routine of a level rounds alike
ONEDNN, ONEDNN_VECTORS = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"        # every instruction set below AMX's tiles
ONEDNN_NAMES = (ONEDNN, "DNNL_MAX_CPU_ISA")


@cache
def cpuinfo() -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo, by name; empty except on Linux."""
    out: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, separator, value = line.partition(":")
                if not separator:
                    break
                out[name.strip()] = value.strip()
    except OSError:
        pass
    return out


def name() -> str:
    return cpuinfo().get("model name", platform.processor() or platform.machine())


def intel() -> bool:
    return cpuinfo().get("vendor_id") == "GenuineIntel"


def has_amx() -> bool:
    """Whether it has AMX, with which oneDNN's bfloat16 products depend on the number of rows."""
    return "amx_bf16" in cpuinfo().get("flags", "").split()


def make_mkl_strict() -> None:
    """Choose MKL's strict mode of conditional numerical reproducibility on Intel, unless the user chose a mode.

    To be called before MKL's first product. Measured on a Xeon (AVX-512, AVX2 and SSE4.2 branches, 1 and 2 threads):
    no product of the decoder then depends on the batch; without it products of two branches do. MKL documents the mode
    for equal bits at any number of threads, not for any shape, hence `isocost.local.invariance`. Other makers'
    processors keep MKL's default: what the mode does there was not measured.
    """
    if intel():
        os.environ.setdefault(MKL, MKL_STRICT)


def keep_onednn_off_amx(first_product: Callable[[], object]) -> None:
    """Keep oneDNN from AMX in this process, unless the user chose an instruction set.

    `first_product` makes it read the setting.

    The variable is removed again: other processes started from here keep AMX. No effect after oneDNN's first product.
    """
    if not has_amx() or any(x in os.environ for x in ONEDNN_NAMES):
        return
    os.environ[ONEDNN] = ONEDNN_VECTORS
    try:
        first_product()
    finally:
        del os.environ[ONEDNN]
