"""Which unit of the processor computes the kernel's products of bfloat16: vectors, or AMX tiles.

Tiles are used where the processor has them (AMX-TILE and AMX-BF16), the system permits them, and products of the
model's own widths agree with vectors' and do not depend on the number of rows. `ISOCOST_AMX=off` turns them off.
`ISOCOST_AMX=emulated` computes the same instructions in C++, on any machine and slowly: it is for tests.
"""

from __future__ import annotations

import ctypes
import logging
import os
from functools import cache
from typing import Any

import numpy as np
from numpy import ndarray

from isocost import processor
from isocost.errors import UserError
from isocost.local.decoder import Config

log = logging.getLogger("isocost")

VECTORS, AMX, EMULATED = 0, 1, 2             # `Unit` of kernel/tiles.h
SETTING = "ISOCOST_AMX"
ROWS = 33                                    # two tiles of rows and one row more
COLUMNS = 96                                 # of a product that is checked
WHY = {                                      # what isocost_tiles() of kernel.cpp returns
    0: "the C++ compiler cannot assemble them",
    -1: "the processor's CPUID does not list them",
    -2: "the system did not permit them (arch_prctl ARCH_REQ_XCOMP_PERM); Linux 5.16 or later does",
}


def choose(library: Any, config: Config) -> int:
    """The unit for a model of this shape. Raises UserError for a value of ISOCOST_AMX that does not exist."""
    asked = os.environ.get(SETTING, "")
    if asked not in ("", "off", "emulated"):
        raise UserError(f"{SETTING} is {asked!r}; expected off or emulated, or leave it unset")
    if asked:
        return EMULATED if asked == "emulated" else VECTORS
    if not processor.has_amx():
        return VECTORS
    return _checked(library, tuple(sorted({config.hidden, config.heads * config.head_dim, config.mlp})))


@cache
def _checked(library: Any, widths: tuple[int, ...]) -> int:
    """AMX if it works here at these lengths of sums; else vectors, and a warning."""
    why = WHY[found] if (found := library.isocost_tiles()) != 1 else fault(library, AMX, widths)
    if why:
        log.warning("AMX is not used, bf16 is slower: %s", why)
    return VECTORS if why else AMX


def fault(library: Any, unit: int, widths: tuple[int, ...]) -> str:
    """What is wrong with products on a unit, "" if nothing: against vectors, and of one row against many."""
    rng = np.random.default_rng(0)
    for width in widths:
        a, w = (rng.standard_normal((n, width)).astype(np.float32) for n in (ROWS, COLUMNS))
        ours, plain = product(library, unit, a, w), product(library, VECTORS, a, w)
        worst = float((np.abs(ours - plain) / bound(a, w)).max())
        if not worst <= 1:
            return f"a product of {width} numbers differs from the same on vectors by {worst:.2g} times the bound"
        if (product(library, unit, a[-1:], w) != ours[-1:]).any():
            return f"a product of {width} numbers depends on the other rows"
    return ""


def product(library: Any, unit: int, a: ndarray, w: ndarray) -> ndarray:
    """(M, K) and (N, K), both rounded to bfloat16, K even -> (M, N) in float32: a times w transposed."""
    a, w = (np.ascontiguousarray(x, dtype=np.float32) for x in (a, w))
    out = np.empty((len(a), len(w)), dtype=np.float32)
    library.isocost_product(
        ctypes.c_int(unit), *map(ctypes.c_int64, (len(a), *w.shape)),
        *(ctypes.c_void_p(x.ctypes.data) for x in (a, w, out)),
    )
    return out


def bound(a: ndarray, w: ndarray) -> ndarray:
    """(M, K), (N, K) -> (M, N): how far two float32 sums of K products can be apart (Higham 2002, equation 3.5)."""
    sizes = np.abs(a).astype(np.float64) @ np.abs(w).astype(np.float64).T
    return 2 * a.shape[1] * 2.0**-24 * (1 + 2**-8) ** 2 * sizes
