"""The same bits in any batch, on every instruction set that this machine can run; and where not, it is said."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from in_turn import when_changed
from isocost import processor
from isocost.doctor import policy, run_checks
from isocost.local import invariance
from isocost.local.decoder import Config
from isocost.runs import record
from isocost.worlds.setting import Setting, open_setting
from local_world import promised

HERE = Path(__file__).parent
LEVELS = {      # by what torch, MKL and oneDNN call it, and what Linux calls what it needs
    "sse4.2": ("default", "SSE4_2", "SSE41", "sse4_2"),
    "avx2": ("avx2", "AVX2", "AVX2", "avx2"),
    "avx512": ("avx512", "AVX512", "AVX512_CORE", "avx512f"),
}
SHAPES = {
    "toy": {"vocab": 16, "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32, "mlp": 48},
    "smollm2": {"vocab": 512, "hidden": 576, "layers": 1, "heads": 9, "kv_heads": 3, "head_dim": 64, "mlp": 1536},
}
WIDER = {
    **SHAPES,
    "one head": {"vocab": 64, "hidden": 64, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 16, "mlp": 112},
    "wide heads": {"vocab": 64, "hidden": 512, "layers": 1, "heads": 16, "kv_heads": 2, "head_dim": 128, "mlp": 1024},
    "qwen2.5": {"vocab": 512, "hidden": 896, "layers": 1, "heads": 14, "kv_heads": 2, "head_dim": 64, "mlp": 4864,
                "qkv_bias": True},
}
SWEEP = """
import asyncio, json, sys
import isocost, torch
from isocost.local import invariance
from isocost.local.decoder import Config
from local_world import batch, lone_and_together, model, sums, world

shapes, many, threads, seen = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), {}
torch.set_num_threads(threads)
for dtype, body in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
    for name, shape in shapes.items():
        found = invariance.measure(Config(**shape, max_len=700), body, torch.device("cpu"), "torch", threads, many=many)
        seen[f"{name} {dtype}"] = found.differ, str(found)
    w = world(model(heads=4, kv_heads=2, head_dim=32), kernels="torch", dtype=dtype)
    b = batch(w, sums(6), 4)
    seen[f"gap {dtype}"] = float((w.learner.score(b).logp - b.logp)[b.mask].abs().mean())
    seen[f"rollouts {dtype}"] = lone_and_together("torch", dtype)
print(json.dumps(seen))
"""


def swept(level, shapes, *, many=False, threads=1):
    """What the sweep saw in a process of its own, held to one instruction set."""
    aten, mkl, onednn, flag = LEVELS[level]
    if flag not in processor.cpuinfo().get("flags", "").split():
        pytest.skip(f"this processor has no {level}")
    env = {
        **os.environ, "ATEN_CPU_CAPABILITY": aten, "MKL_ENABLE_INSTRUCTIONS": mkl, "ONEDNN_MAX_CPU_ISA": onednn,
        "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
    }
    command = [sys.executable, "-c", SWEEP, json.dumps(shapes), json.dumps(many), str(threads)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_held(seen):
    """What was seen is what is promised."""
    promised("; ".join(x[1] for name, x in seen.items() if isinstance(x, list) and isinstance(x[1], str) and x[0]))
    assert {name: x for name, x in seen.items() if isinstance(x, list) and x[0]} == {}
    assert seen["gap fp32"] <= 1e-6 and seen["gap bf16"] <= 0.05
    assert all(seen[f"rollouts {dtype}"][1] == 24 for dtype in ("fp32", "bf16"))


OF_BITS = when_changed("src/isocost/local/**", "src/isocost/fast/**", "src/isocost/processor.py")


HIGHEST = "avx512" if "avx512f" in processor.cpuinfo().get("flags", "").split() else "avx2"


@pytest.mark.parametrize("level", [x if x == HIGHEST else pytest.param(x, marks=OF_BITS) for x in LEVELS])
def test_rows_and_rollouts_have_the_same_bits_in_any_batch(level):
    assert_held(swept(level, SHAPES))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", ["avx2", "avx512"])       # without vectors bf16 takes minutes
def test_they_have_at_more_widths_lengths_and_batches(level, threads):
    assert_held(swept(level, WIDER, many=True, threads=threads))


# what is measured ---------------------------------------------------------------------------------------------


def of_rows(x, w, bias=None):
    """A product that rounds another way for more than 64 rows."""
    wide = torch.nn.functional._linear(x, w, bias)
    return torch.nextafter(wide, wide.new_tensor(torch.inf)) if x.shape[:-1].numel() > 64 else wide


def of_keys(bias, q, k, *, alpha):
    """Scores that round another way for more than 48 keys."""
    wide = torch._baddbmm(bias, q, k, alpha=alpha)
    return torch.nextafter(wide, wide.new_tensor(torch.inf)) if k.shape[-1] > 48 else wide


@pytest.fixture
def planted(monkeypatch, request):
    """Products that depend on the batch."""
    where, name, fault = request.param
    monkeypatch.setattr(where, f"_{name}", getattr(where, name), raising=False)
    monkeypatch.setattr(where, name, fault)
    invariance.measure.cache_clear()
    yield name
    invariance.measure.cache_clear()


FAULTS = [(torch.nn.functional, "linear", of_rows), (torch, "baddbmm", of_keys)]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("planted", FAULTS, indirect=True, ids=["rows", "keys"])
def test_products_that_depend_on_the_batch_are_found(planted, many):
    found = invariance.measure(
        Config(**SHAPES["toy"], max_len=96), torch.float32, torch.device("cpu"), "torch", 1, many=many
    )
    assert 0 < found.differ < found.compared and not found.holds
    assert "in a batch of" in str(found) and str(found.differ) in str(found)


def test_what_was_compared_is_as_wide_and_long_as_is_said():
    found = invariance.measure(
        Config(**SHAPES["toy"], max_len=700), torch.float32, torch.device("cpu"), "native", 1, many=True
    )
    assert found.holds and (found.rows, found.tokens) == (130, 602) and found.compared > 100


@pytest.mark.parametrize("planted", FAULTS[1:], indirect=True, ids=["keys"])
def test_where_bits_depend_on_the_batch_users_doctor_and_record_say_so(planted, caplog, monkeypatch):
    monkeypatch.setattr(processor, "cpuinfo", lambda: {"vendor_id": "GenuineIntel"})
    opened = open_setting(Setting.of(data="sums:base=easy,count=24", held_out=0.4, kernels="torch"))
    said = opened.world.about.batch_dependent
    (line,) = caplog.messages
    assert said in line
    assert "kernels=torch asks for torch" in line and "MKL_CBWR=AUTO,STRICT" in line
    assert record.machine(1, opened.world.about)["batch_dependent"] == said
    (found,) = asyncio.run(run_checks(opened, checks=[policy.batch_invariance])).findings
    assert found.verdict == "warn" and "MKL_CBWR=AUTO,STRICT" in found.do and "native kernel" in found.do


def test_where_they_do_not_nothing_is_logged(caplog):
    world = open_setting(Setting.of(data="sums:base=easy,count=24", held_out=0.4, kernels="native")).world
    assert world.about.batch_dependent == "" and "batch_dependent" not in record.machine(1, world.about)
    assert not caplog.messages


# the settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "chosen", "mode"),
    [("GenuineIntel", None, "AUTO,STRICT"), ("GenuineIntel", "AVX2", "AVX2"), ("AuthenticAMD", None, None)],
)
def test_mkl_is_strict_on_intel_unless_the_user_chose(vendor, chosen, mode, monkeypatch):
    monkeypatch.setattr(processor, "cpuinfo", lambda: {"vendor_id": vendor})
    monkeypatch.delenv("MKL_CBWR", raising=False)
    if chosen:
        monkeypatch.setenv("MKL_CBWR", chosen)
    processor.make_mkl_strict()
    assert os.environ.get("MKL_CBWR") == mode


@pytest.mark.parametrize(
    ("flags", "chosen", "seen"),
    [("avx512f amx_bf16", None, ["AVX512_CORE_BF16"]), ("avx512f", None, []), ("amx_bf16", "DEFAULT", [])],
)
def test_onednn_is_kept_off_amx_in_this_process_only(flags, chosen, seen, monkeypatch):
    monkeypatch.setattr(processor, "cpuinfo", lambda: {"flags": flags})
    for name in processor.ONEDNN_NAMES:
        monkeypatch.delenv(name, raising=False)
    if chosen:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", chosen)
    at_the_first_product = []
    processor.keep_onednn_off_amx(lambda: at_the_first_product.append(os.environ["ONEDNN_MAX_CPU_ISA"]))
    assert at_the_first_product == seen and os.environ.get("ONEDNN_MAX_CPU_ISA") == chosen


CAPPED = """
import sys
from isocost import processor
import torch
processor.cpuinfo = lambda: {"flags": "amx_bf16"}
processor.ONEDNN_VECTORS = "SSE41"          # a cap that shows on any processor
from local_world import batch, model, sums, world
batch(world(model(), kernels="torch", dtype=sys.argv[1]), sums(2), 2)
torch.nn.functional.conv2d(torch.ones(16, 16, 32, 32), torch.ones(16, 16, 3, 3))     # oneDNN's on any processor
"""


@pytest.mark.parametrize(("dtype", "held"), [("bf16", True), ("fp32", False)])
def test_opening_a_world_in_bf16_with_torch_sets_onednn_before_it_looks(dtype, held):
    if "sse4_1" not in processor.cpuinfo().get("flags", "").split() or not torch.backends.mkldnn.is_available():
        pytest.skip("no x86-64 processor, no Linux, or a torch without oneDNN")
    env = {k: v for k, v in os.environ.items() if k not in processor.ONEDNN_NAMES}
    env |= {"ONEDNN_VERBOSE": "1", "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    done = subprocess.run([sys.executable, "-c", CAPPED, dtype], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "isa:" in done.stdout and ("isa:Intel SSE4.1" in done.stdout) == held, done.stdout[:2000]


