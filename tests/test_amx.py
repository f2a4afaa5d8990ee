"""Products of bfloat16 on AMX tiles: emulated in C++, and as machine code, under a trap where there is no AMX."""

import ctypes
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from isocost import processor
from isocost.errors import UserError
from isocost.local import matrix_unit, native
from isocost.local.matrix_unit import AMX, EMULATED, SETTING, VECTORS, bound, fault, product
from local_world import batch, lone_and_together, model, sums, world

HERE = Path(__file__).parent
KERNEL = Path(native.__file__).with_name("kernel")
SIZES = [(1, 32, 32), (5, 3, 2), (16, 32, 64), (17, 33, 66), (32, 64, 96), (33, 70, 100), (47, 40, 30), (64, 31, 576)]


@pytest.fixture(scope="module")
def library():
    found, why = native._library()
    if found is None:
        pytest.skip(why)
    return found


def pair(rows, columns, width, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, width)).astype(np.float32) for n in (rows, columns)]


def bf16(x):
    return torch.from_numpy(np.ascontiguousarray(x)).bfloat16().double().numpy()


# the instructions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_are_within_the_bound_of_the_exact_ones_and_of_those_on_vectors(library, size):
    a, w = pair(*size)
    exact, limit = bf16(a) @ bf16(w).T, bound(a, w)
    ours, plain = (product(library, unit, a, w) for unit in (EMULATED, VECTORS))
    assert (np.abs(ours - exact) <= limit / 2).all() and (np.abs(plain - exact) <= limit / 2).all()
    assert (np.abs(ours - plain) <= limit).all()
    assert size[2] <= 2 or (ours != plain).any()          # another order of sums: else the vectors did it


@pytest.mark.parametrize("width", [64, 100])
@pytest.mark.parametrize("unit", [VECTORS, EMULATED])
def test_a_row_has_the_same_bits_among_any_number_of_rows(library, unit, width):
    a, w = pair(64, 40, width)
    whole = product(library, unit, a, w)
    for rows in range(1, 65):
        assert product(library, unit, a[:rows], w).tobytes() == whole[:rows].tobytes()
        assert product(library, unit, a[-rows:], w).tobytes() == whole[-rows:].tobytes()


def row_of(*values):
    return np.array([values], dtype=np.float32)


def test_even_and_odd_products_have_sums_of_their_own(library):
    """2^24 + 1 rounds to 2^24. Even: 2^24 - 2^24 = 0; odd: 1 + 1 = 2. In order of k it would be 1."""
    a, ones = row_of(2.0**24, 1.0, -(2.0**24), 1.0), row_of(1.0, 1.0, 1.0, 1.0)
    assert product(library, EMULATED, a, ones).item() == 2.0


def test_a_tile_of_sums_is_added_to_the_one_before(library):
    """The first tile's sum is 2^24; the next one's 1 + 1 is added to it as 2. One by one both would be lost."""
    a = np.zeros((1, 64), dtype=np.float32)
    a[0, [0, 32, 33]] = 2.0**24, 1.0, 1.0
    assert product(library, EMULATED, a, np.ones((1, 64), dtype=np.float32)).item() == 2.0**24 + 2


def test_denormal_numbers_are_zero(library):
    """2^-127 is denormal, and so is 2^-70 times 2^-70; 2^-63 squared is the smallest normal number there is."""
    assert product(library, EMULATED, row_of(2.0**-127, 0), row_of(2.0**120, 0)).item() == 0
    assert product(library, EMULATED, row_of(2.0**-70, 0), row_of(2.0**-70, 0)).item() == 0
    assert product(library, EMULATED, row_of(2.0**-63, 0), row_of(2.0**-63, 0)).item() == 2.0**-126


def test_a_row_that_is_not_finite_leaves_the_others_alone(library):
    a, w = pair(20, 32, 100)
    plain = product(library, EMULATED, a, w)
    a[3, 7], a[18, 99] = np.nan, np.inf
    ours = product(library, EMULATED, a, w)
    others = [i for i in range(20) if i not in (3, 18)]
    assert (ours[others] == plain[others]).all() and not np.isfinite(ours[[3, 18]]).any()


# the machine code ------------------------------------------------------------------------------------------------


TRAPPED = """
import ctypes, sys
import numpy as np
from isocost.local.matrix_unit import AMX, EMULATED, fault, product

trap = ctypes.CDLL(sys.argv[1])
library = ctypes.CDLL(sys.argv[2]) if len(sys.argv) > 2 else trap
if library.isocost_tiles() != 1:
    trap.amx_trap_install()
rng = np.random.default_rng(0)
for m, n, k in SIZES:
    a, w = (rng.standard_normal((rows, k)).astype(np.float32) for rows in (m, n))
    ours, same = product(library, AMX, a, w), product(library, EMULATED, a, w)
    assert ours.tobytes() == same.tobytes(), (m, n, k)
assert fault(library, AMX, (32, 100)) == "" and not trap.amx_trap_configured()
""".replace("SIZES", str(SIZES))


@pytest.fixture(scope="module")
def trap(tmp_path_factory):
    """The tiles of the kernel and the trap, compiled for this processor's vectors."""
    if not sys.platform.startswith("linux") or native.platform.machine() != "x86_64":
        pytest.skip("Linux on x86-64 only")
    compiler = next((c for c in map(native.shutil.which, native.COMPILERS) if c), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    out = tmp_path_factory.mktemp("trap") / "trap.so"
    command = [compiler, "-std=c++17", "-O1", "-march=native", "-shared", "-fPIC", *native.TILES, f"-I{KERNEL}",
               str(HERE / "amx_trap.cpp"), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def python(code, *arguments, **env):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), str(KERNEL.parents[2])]), **env}
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=env, capture_output=True, text=True)


def test_the_machine_code_gives_the_bits_of_the_emulation(trap):
    done = python(TRAPPED, trap)
    assert done.returncode == 0, done.stderr


MODEL = """
import ctypes, sys
from isocost.local import matrix_unit, native

native.FLAGS = tuple(f if f != "-O3" else "-O1" for f in native.FLAGS)
if not set(native.TILES) <= set(native._target()):
    native.TARGET = (*native.TARGET, *native.TILES)
trap = ctypes.CDLL(sys.argv[1])
import torch
from local_world import batch, model, sums, world

library, why = native._library()
if library.isocost_tiles() != 1:
    trap.amx_trap_install()

def step(unit):
    matrix_unit.choose = lambda library, config: unit
    w = world(model(max_len=128), kernels="native", dtype="bf16", threads=2)
    assert w.engine.cache.kernel.unit == unit
    b = batch(w, sums(3), 3, tokens=12)
    assert torch.equal(w.learner.score(b).logp, b.logp)
    b = b.but(weight=torch.ones_like(b.logp) / b.mask.sum())
    w.learner.gradient(b, lambda out, b: (-out.logp, {}))
    return b.logp, w.learner._grad.clone()

for ours, same in zip(step(matrix_unit.AMX), step(matrix_unit.EMULATED)):
    assert torch.equal(ours, same)
assert trap.amx_trap_count(0x5c) > 100 or library.isocost_tiles() == 1
"""


@pytest.mark.slow
def test_a_model_on_the_machine_code_has_the_bits_of_the_emulation(trap, tmp_path):
    done = python(MODEL, trap, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr


# a model ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def emulated(monkeypatch, library):
    monkeypatch.setenv(SETTING, "emulated")


def pulled(out, b):
    a = torch.sin(torch.arange(b.tokens.numel(), dtype=torch.float32)).view(b.tokens.shape).to(out.logp.dtype)
    return -a * out.logp, {}


def of(w, b):
    b = b.but(weight=torch.ones_like(b.logp) / b.mask.sum())
    scored = w.learner.score(b)
    w.learner.gradient(b, pulled)
    return scored.logp.double(), w.learner._grad.double().clone()


@pytest.mark.parametrize(
    "shape", [{"head_dim": 32}, {"heads": 3, "kv_heads": 1, "head_dim": 48, "hidden": 80, "mlp": 112}]
)
def test_a_model_on_tiles_differs_from_vectors_by_rounding_only(monkeypatch, shape):
    """Widths of 80 and 112 are not whole tiles."""
    source = model(sharp=1.5, **shape)
    plain = world(source, kernels="native", dtype="bf16")
    b = batch(plain, sums(3, 1), 3, tokens=8)
    monkeypatch.setenv(SETTING, "emulated")
    tiles = world(source, kernels="native", dtype="bf16", threads=2)
    assert tiles.engine.cache.kernel.unit == EMULATED and plain.engine.cache.kernel.unit != EMULATED
    ours, theirs, exact = of(tiles, b), of(plain, b), of(world(source, dtype="fp64"), b)
    for x, y, z in zip(ours, theirs, exact, strict=True):
        assert not torch.equal(x, y)
        assert (x - z).norm() <= 1.5 * (y - z).norm()       # bf16's own rounding is larger than that of the sums


def test_on_tiles_the_learner_repeats_the_sampler_to_the_last_bit(emulated):
    w = world(model(max_len=256), kernels="native", dtype="bf16")
    b = batch(w, [*sums(3, 3), "12+" * 30], 3, tokens=10)
    assert torch.equal(w.learner.score(b).logp, b.logp)


def test_on_tiles_a_rollout_has_the_same_bits_alone_and_in_a_batch(emulated):
    assert lone_and_together("native", "bf16") == (0, 24)


# the choice ------------------------------------------------------------------------------------------------------


CONFIG = model().config


class Library:
    """A library whose products are vectors', with a fault added."""

    def __init__(self, real, tiles, broken=lambda out: None):
        self.real, self.tiles, self.broken = real, tiles, broken

    def isocost_tiles(self):
        return self.tiles

    def isocost_product(self, unit, m, n, k, a, w, out):
        self.real.isocost_product(ctypes.c_int(VECTORS), m, n, k, a, w, out)
        if unit.value != VECTORS:
            size = m.value, n.value
            self.broken(np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_float)), shape=size))


def wrong(out):
    out[0, 0] += 1


def by_rows(out):
    if len(out) > 1:
        out[-1, 0] = np.nextafter(out[-1, 0], np.float32(np.inf))


def never(out):
    out[-1, -1] = np.nan


@pytest.mark.parametrize(
    ("tiles", "broken", "said"),
    [(1, wrong, "differs from the same on vectors"), (1, never, "differs"), (1, by_rows, "depends on the other rows"),
     (-2, None, "did not permit"), (-1, None, "CPUID"), (0, None, "assemble")],
)
def test_where_tiles_do_not_work_vectors_do_and_the_log_says_why(library, monkeypatch, caplog, tiles, broken, said):
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(processor, "has_amx", lambda: True)
    with caplog.at_level(logging.WARNING, "isocost"):
        assert matrix_unit.choose(Library(library, tiles, broken), CONFIG) == VECTORS
    assert said in caplog.text and "AMX is not used" in caplog.text


def test_tiles_that_work_are_used_and_nothing_is_logged(library, monkeypatch, caplog):
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(processor, "has_amx", lambda: True)
    working = Library(library, 1)
    assert matrix_unit.choose(working, CONFIG) == AMX and not caplog.messages
    monkeypatch.setenv(SETTING, "off")
    assert matrix_unit.choose(working, CONFIG) == VECTORS
    monkeypatch.setattr(processor, "has_amx", lambda: False)
    monkeypatch.delenv(SETTING)
    assert matrix_unit.choose(working, CONFIG) == VECTORS and not caplog.messages


def test_an_unknown_setting_is_an_error(library, monkeypatch):
    monkeypatch.setenv(SETTING, "on")
    with pytest.raises(UserError, match="ISOCOST_AMX is 'on'; expected off or emulated"):
        matrix_unit.choose(library, CONFIG)


@pytest.mark.parametrize(
    ("vendor", "flags", "options"),
    [("GenuineIntel", "avx512f", native.SLOW_DOT), ("AuthenticAMD", "avx512_bf16", ()),
     ("GenuineIntel", "amx_tile amx_bf16", (*native.SLOW_DOT, *native.TILES))],
)
def test_the_build_is_chosen_by_maker_and_flags(monkeypatch, vendor, flags, options):
    monkeypatch.setattr(native.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "cpuinfo", lambda: {"vendor_id": vendor, "flags": flags})
    assert native._target() == (*native.TARGET, *options)


def test_a_compiler_that_does_not_know_tiles_builds_the_kernel_without_them(monkeypatch, tmp_path):
    strict = tmp_path / "c++"
    strict.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/log\ncase \"$*\" in *ISOCOST_AMX*) exit 1;; esac\n"
                      "for last; do :; done\necho built > \"$last\"\n")
    strict.chmod(0o755)
    monkeypatch.setattr(native.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "cpuinfo", lambda: {"vendor_id": "GenuineIntel", "flags": "amx_bf16"})
    assert native._compiled(str(strict)) == b"built\n"
    first, second = (tmp_path / "log").read_text().splitlines()
    assert "ISOCOST_AMX" in first and "ISOCOST_AMX" not in second and all(x in second for x in native.TARGET)


def test_the_self_check_holds_on_this_machine(library):
    assert fault(library, EMULATED, (32, 100)) == ""
