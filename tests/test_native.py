"""The kernel against torch: the same numbers, on every build, however rows and groups are cut."""

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from in_turn import when_changed
from isocost import meter
from isocost.errors import UserError
from isocost.local import invariance, layout, matrix_unit, native
from isocost.local.decoder import Config
from isocost.local.layout import TokenRows, Units
from isocost.local.sampling import truncate
from isocost.local.world import DTYPES
from isocost.types import Sampling
from local_world import SETTINGS, batch, lone_and_together, model, say, sums, world

SHAPES = {
    "grouped": {"heads": 4, "kv_heads": 2, "head_dim": 16},
    "biased": {"heads": 2, "kv_heads": 2, "head_dim": 32, "qkv_bias": True, "tied": False},
    "one head": {"heads": 1, "kv_heads": 1, "head_dim": 64, "hidden": 48, "vocab": 37, "layers": 3},
    "odd width": {"heads": 3, "kv_heads": 1, "head_dim": 48, "hidden": 80, "mlp": 112},
}


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """No kernel is loaded yet, and the folder for built ones is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for made in (native._library, invariance.measure):
        made.cache_clear()
    yield tmp_path / "isocost"
    for made in (native._library, invariance.measure):
        made.cache_clear()


def pulled(out, b):
    """A loss that pulls differently at every token, on log-probs and on entropies."""
    a = torch.sin(torch.arange(b.tokens.numel(), dtype=torch.float32)).view(b.tokens.shape).to(out.logp.dtype)
    return -a * out.logp - 0.3 * a.abs() * out.entropy, {}


def pulled_alike(out, b):
    """A loss that pulls rows with the same text and weight alike, at every position differently."""
    at = torch.arange(b.tokens.shape[1], dtype=torch.float32)
    return -torch.cos(at).expand_as(out.logp) * out.logp, {}


def of(w, b):
    """Log-probs, entropies and the gradient of a batch, in float64."""
    b = b.but(weight=torch.ones_like(b.logp) / b.mask.sum())
    scored = w.learner.score(b)
    w.learner.gradient(b, pulled)
    return scored.logp.double(), scored.entropy.double(), w.learner._grad.double().clone()


def apart(x, y) -> list[float]:
    """Largest difference of log-probs and entropies, and the gradients' distance over their length."""
    return [*(float((x[k] - y[k]).abs().max()) for k in (0, 1)), float((x[2] - y[2]).norm() / y[2].norm())]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.6)])
@pytest.mark.parametrize("shape", SHAPES)
def test_log_probs_entropies_and_gradients_are_those_of_float64(shape, sampling):
    source = model(sharp=1.5, **SHAPES[shape])
    b = batch(world(source, kernels="native"), [*sums(6, 1), "1" * 21, "9=" * 20], 5, tokens=20, sampling=sampling)
    true = of(world(source, dtype="fp64"), b)
    for dtype, bars in (("fp32", (2e-5, 2e-5, 1e-5)), ("bf16", (0.25, 0.12, 0.06))):
        ours, plain = (of(world(source, dtype=dtype, kernels=k), b) for k in ("native", "torch"))
        gap, torchs = apart(ours, true), apart(plain, true)
        print(shape, dtype, "kernel", *(f"{x:.1e}" for x in gap), "torch", *(f"{x:.1e}" for x in torchs))
        assert all(g < bar for g, bar in zip(gap, bars, strict=True))
        assert all(g < 2 * t + 1e-6 for g, t in zip(gap, torchs, strict=True))     # no worse than torch's own rounding


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_sampler_and_the_learner_agree_to_the_last_bit(dtype):
    w = world(model(max_len=512), kernels="native", dtype=dtype)
    for sampling in (Sampling(), Sampling(0.7)):
        b = batch(w, [*sums(10, 3), "12+" * 70], 9, tokens=60, sampling=sampling)    # some longer than a chunk
        assert b.mask.sum() > 500
        assert torch.equal(w.learner.score(b).logp, b.logp)


def test_torch_and_the_kernel_draw_the_same_tokens():
    def all_said(kernels):
        async def crowd(w):
            return await asyncio.gather(*(
                say(w, p, range(3), i, tokens=40, sampling=SETTINGS[i % 6]) for i, p in enumerate(sums(18, 5))
            ))

        return [s for some in asyncio.run(crowd(world("tiny", kernels=kernels))) for s in some]

    for a, b in zip(all_said("torch"), all_said("native"), strict=True):
        assert a.tokens.tolist() == b.tokens.tolist() and a.stop == b.stop
        np.testing.assert_allclose(a.logp, b.logp, atol=3e-5)
        assert [k.tolist() for k in a.kept] == [k.tolist() for k in b.kept]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("burst", [1, 5, 32])
def test_neither_bursts_nor_threads_change_a_token(burst, threads):
    source = model(1, max_len=256)

    async def crowd(w):
        w.engine.burst = burst
        return await asyncio.gather(*(say(w, p, range(2, 6), i, tokens=10 + 20 * i) for i, p in enumerate(sums(7, 2))))

    told = [s for some in asyncio.run(crowd(world(source, kernels="native", threads=threads))) for s in some]
    plain = [s for some in asyncio.run(crowd(world(source, kernels="native"))) for s in some]
    for a, b in zip(told, plain, strict=True):
        assert a.tokens.tobytes() == b.tokens.tobytes() and a.logp.tobytes() == b.logp.tobytes()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows_that_are_read_together_while_they_say_the_same_are_those_read_alone(dtype):
    w = world(model(sharp=1.0, max_len=256), kernels="native", dtype=dtype)
    prompts, cold = sums(3, 2), Sampling(0.5)

    async def said(slot, asked):
        return [s for k in asked for s in await say(w, prompts[slot], k, slot, tokens=30, sampling=cold)]

    for slot in range(len(prompts)):
        lone, group = asyncio.run(said(slot, [[k] for k in range(12)])), asyncio.run(said(slot, [range(12)]))
        texts = [s.tokens.tolist() for s in group]
        shared = sum(texts[i][:3] == texts[j][:3] for i in range(12) for j in range(i))
        assert 0 < shared < 66          # some begin alike, and part later
        for a, b in zip(lone, group, strict=True):
            assert a.tokens.tobytes() == b.tokens.tobytes() and a.logp.tobytes() == b.logp.tobytes()


@pytest.mark.parametrize("dtype, bar", [("fp32", 1e-6), ("bf16", 1e-2)])
def test_rows_that_are_the_same_pull_as_often_as_they_occur(dtype, bar):
    """The rows of each group are one text, half of them with another weight: together they pull as one with the sum."""
    w = world(model(), kernels="native", dtype=dtype)
    b = batch(w, sums(4, 6), 6, tokens=12)
    w.engine.tapes.clear()
    number = torch.arange(len(b.rollout))
    weights = torch.where(number % 2 == 0, 2.0, -0.5)[:, None].expand_as(b.logp)
    copied = b.rows(number // 6 * 6).but(rollout=b.rollout, weight=weights / b.mask.sum())
    w.learner.gradient(copied, pulled_alike)
    together = w.learner._grad.clone()
    once = b.rows(number[::6])
    w.learner.gradient(once.but(weight=torch.full_like(once.logp, 4.5) / b.mask.sum()), pulled_alike)
    gap = float((together - w.learner._grad).norm() / w.learner._grad.norm())
    assert gap < bar, gap


@pytest.mark.parametrize("unit, split", [(1, 8), (1, 512), (10_000, 512)])
def test_how_units_are_cut_moves_a_gradient_by_rounding_only(monkeypatch, unit, split):
    source = model()
    b = batch(world(source), sums(5, 4), 12, tokens=12)
    whole = of(world(source, kernels="native"), b)
    monkeypatch.setattr(layout, "UNIT", unit)
    monkeypatch.setattr(layout, "SPLIT", split)
    for threads in (1, 3):
        cut = of(world(source, kernels="native", threads=threads), b)
        assert torch.equal(cut[0], whole[0]) and torch.equal(cut[1], whole[1])
        assert apart(cut, whole)[2] < 1e-6


@pytest.mark.parametrize("taped", [False, True])
def test_groups_that_pull_nothing_are_passed_over_and_change_nothing(taped):
    w = world(model(), kernels="native")
    b = batch(w, sums(8, 6), 16, tokens=12)
    if not taped:
        w.engine.tapes.clear()
    b = b.but(weight=torch.ones_like(b.logp) / b.mask.sum())
    dead = (b.group[b.rollout] % 2 == 0)[:, None]

    def half(out, b):
        return torch.where((b.group[b.rollout] % 2 == 0)[:, None], 0.0, out.logp), {}

    w.learner.gradient(b, half)
    with_dead = w.learner._grad.clone()
    w.learner.gradient(b.rows(torch.nonzero(~dead[:, 0])[:, 0]), half)
    torch.testing.assert_close(w.learner._grad, with_dead, atol=1e-9, rtol=1e-5)
    passed = []
    name = "taped_backward" if taped else "backward"
    real = getattr(w.learner._kernel, name)

    def nothing(*given):        # the gradients of log-probs and entropies, and the vector that is added to
        *first, logp, _, grad = given
        passed.append(logp)
        real(*first, torch.zeros_like(logp), torch.zeros_like(logp), grad.fill_(float("nan")))

    setattr(w.learner._kernel, name, nothing)
    w.learner.gradient(b, half)
    assert passed and w.learner._grad.isnan().all()      # all zeros: nothing was added, nor multiplied


def test_every_token_of_a_batch_is_laid_out_once_per_prompt_and_predicted_from_the_one_before_it():
    w = world(model())
    b = batch(w, [*sums(5, 7), "1" * 30], 7, tokens=15)
    rows, (row, at) = TokenRows.of(b), np.nonzero(b.mask.numpy())
    units = Units.of(rows, row, at, rows.tokens[row, at], b.temperature.numpy()[row])
    assert sorted(zip(units.row, units.position, strict=True)) == sorted(zip(row, at, strict=True))
    starts = np.cumsum(units.counts) - units.counts
    span_of = np.repeat(np.arange(len(units.counts)), units.counts)
    for k in range(len(units.at)):
        span = span_of[units.at[k]]
        own = units.tokens[starts[span] : units.at[k] + 1].tolist()
        lead = units.lead[span]
        before = units.tokens[starts[lead] : starts[lead] + units.counts[lead]].tolist() if lead >= 0 else []
        assert before + own == b.tokens[units.row[k], : units.position[k]].tolist()
        assert units.target[k] == b.tokens[units.row[k], units.position[k]]
    own = int((b.length - 1).sum()) - sum(int(n) for n in rows.prompt)
    assert len(units.tokens) == own + sum(int(rows.prompt[i]) for i in set(rows.owner.tolist()))


def test_a_second_forward_pass_before_the_way_back_is_an_error():
    w = world(model(), kernels="native")
    b = batch(w, sums(2), 2)
    first = w.learner.forward(b)
    w.learner.forward(b)
    with pytest.raises(RuntimeError, match="one forward pass at a time"):
        first.logp.sum().backward()


# building --------------------------------------------------------------------------------------------------------


def test_without_a_compiler_torch_does_it_and_says_why(monkeypatch, fresh):
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    w = world("tiny")
    assert w.about.kernels == "torch" and "C++ compiler" in w.about.kernels_why
    assert len(asyncio.run(say(w, "1+2=", [0]))[0].tokens)
    with pytest.raises(UserError, match=r"kernels is native, but there is no C\+\+ compiler"):
        world("tiny", kernels="native")


def test_a_compiler_that_fails_is_quoted(monkeypatch, fresh, tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'fatal: out of paper' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(native.shutil, "which", lambda name: str(broken) if name == "c++" else None)
    assert "out of paper" in world("tiny").about.kernels_why
    assert not list(fresh.glob("*.so"))


def test_a_full_disk_is_tried_once_and_named(monkeypatch, fresh, tmp_path):
    """Other options of the compiler need as much space."""
    full = tmp_path / "c++"
    full.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho x >> {tmp_path}/tries\n"
                    "echo '/tmp/x.s: Fatal error: cannot write: No space left on device' >&2\nexit 1\n")
    full.chmod(0o755)
    monkeypatch.setattr(native.shutil, "which", lambda name: str(full) if name == "c++" else None)
    why = world("tiny").about.kernels_why
    assert "no space is left in" in why and "set TMPDIR to a folder with 50 MB" in why
    assert (tmp_path / "tries").read_text() == "x\n"


def test_widths_that_vectors_do_not_divide_are_left_to_torch():
    odd = model(heads=4, kv_heads=2, head_dim=10)
    assert "head size that is a multiple" in world(odd, kernels="auto").about.kernels_why


NARROWER = ("-march=x86-64-v3", "-march=x86-64")


def built_for(target, monkeypatch, level):
    """The next kernel is built for this target, at this level of optimisation."""
    if not sys.platform.startswith("linux") or native.platform.machine() != "x86_64":
        pytest.skip("x86-64 only")
    if target.endswith("v3") and "avx2" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("no AVX2 here")
    monkeypatch.setattr(native, "TARGET", (target,))
    monkeypatch.setattr(native, "FLAGS", tuple(f if f != "-O3" else level for f in native.FLAGS))


@when_changed("src/isocost/**/kernel/*")        # it builds the kernel anew
@pytest.mark.parametrize("target", NARROWER)
def test_machines_with_narrower_vectors_compute_the_same_in_any_batch(monkeypatch, fresh, target):
    source = model(sharp=1.5)
    b = batch(world(source, kernels="torch"), sums(6, 1), 5, tokens=20)
    built_for(target, monkeypatch, "-O1")
    library = native._library()[0]
    assert library.isocost_lanes() == (8 if target.endswith("v3") else 4)
    assert matrix_unit.fault(library, matrix_unit.EMULATED, (32, 100)) == ""
    for dtype, bars in (("fp32", (2e-5, 2e-5, 1e-5)), ("bf16", (0.25, 0.12, 0.06))):
        gap = apart(of(world(source, dtype=dtype, kernels="native"), b), of(world(source, dtype="fp64"), b))
        assert all(g < bar for g, bar in zip(gap, bars, strict=True)), (dtype, gap)
        assert rows_of_a_wide_model(dtype).holds
    assert lone_and_together("native", "bf16") == (0, 24)


def rows_of_a_wide_model(dtype, **more):
    """Rows alone and in batches, at SmolLM2's widths."""
    config = Config(vocab=512, hidden=576, layers=1, heads=9, kv_heads=3, head_dim=64, mlp=1536, max_len=700)
    return invariance.measure(config, DTYPES[dtype], torch.device("cpu"), "native", 1, **more)


@pytest.mark.slow
@pytest.mark.parametrize("target", NARROWER)
def test_their_optimised_builds_have_the_same_bits_in_any_batch(monkeypatch, fresh, target):
    built_for(target, monkeypatch, "-O3")
    for dtype in ("fp32", "bf16"):
        assert lone_and_together("native", dtype) == (0, 24)
        assert rows_of_a_wide_model(dtype, many=True).holds


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows_of_a_wide_model_have_the_same_bits_in_any_batch(dtype):
    found = rows_of_a_wide_model(dtype, many=True)
    assert found.holds and found.compared > 100 and (found.rows, found.tokens) == (130, 602)


def test_two_processes_that_build_at_once_both_get_a_whole_kernel(tmp_path, programs_at_once):
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "c++").write_text("#!/bin/sh\nexec \"$(command -v g++ || command -v clang++)\" -O0 \"$@\"\n")
    (fake / "c++").chmod(0o755)
    code = "from isocost.local import native; native.FLAGS = tuple(f for f in native.FLAGS if f != '-O3'); " \
           "native.TARGET = (); library, why = native._library(); assert library is not None, why"
    env = {"PATH": f"{fake}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    command = [programs_at_once / "python", "-c", code]
    both = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE) for _ in range(2)]
    assert [p.communicate()[1] is not None and p.returncode for p in both] == [0, 0]
    assert len(list((tmp_path / "cache" / "isocost").iterdir())) == 1


# tapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_the_sampler_left_gives_the_gradient_that_reading_again_gives(dtype, threads):
    w = world(model(max_len=256, sharp=1.0), kernels="native", dtype=dtype, threads=threads)
    b = batch(w, [*sums(6, 8), "12+" * 11], 6, tokens=50)                 # rows end early, so gaps are closed
    assert len({int(n) for n in b.length}) > 5
    b = b.but(weight=torch.ones_like(b.logp) / b.mask.sum())
    for _ in range(2):                                                    # a tape can be used twice
        w.learner._read = w.learner.spared = 0
        w.learner.gradient(b, pulled)
        assert w.learner.spared == w.learner._read > 0        # billed, for the way back is gone, and not read again
        left = w.learner._grad.clone()
    w.engine.tapes.clear()
    w.learner.spared = 0
    w.learner.gradient(b, pulled)
    assert w.learner.spared == 0
    torch.testing.assert_close(left, w.learner._grad, atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_log_probs_without_a_gradient_are_those_with_one_though_fewer_activations_are_computed(dtype):
    """Without one, the last layer is computed where it is read. The prompt is longer than what layers take at once."""
    w = world(model(sharp=1.5, max_len=512), kernels="native", dtype=dtype)
    made = batch(w, ["1" * 300, *sums(3, 2)], 3)
    w.engine.tapes.clear()
    with_gradient = w.learner.forward(made)
    alone = w.learner.score(made)
    assert torch.equal(alone.logp, with_gradient.logp.detach()) and (alone.logp != 0).any()
    assert torch.equal(alone.entropy, with_gradient.entropy.detach())
    assert not alone.logp.requires_grad and with_gradient.logp.requires_grad


def test_tapes_are_not_used_for_other_weights_other_rows_or_other_tokens():
    w = world(model(), kernels="native")
    b = batch(w, sums(4, 8), 6, tokens=20)
    b = b.but(weight=torch.ones_like(b.logp) / b.mask.sum())

    def read(b):
        w.learner._read = w.learner.spared = 0
        w.learner.gradient(b, pulled)
        return w.learner._read - w.learner.spared

    assert read(b) == 0
    assert read(b.rows(torch.arange(1, len(b.tokens)))) > 0               # one group lost a row
    changed = b.tokens.clone()
    changed[0, int(b.length[0]) - 2] = 3 if changed[0, int(b.length[0]) - 2] != 3 else 4
    assert read(b.but(tokens=changed)) > 0
    with torch.no_grad():
        w.learner.weights()["norm"][0] += 1e-3
    whole = read(b)
    assert whole > 0
    asyncio.run(w.engine.load(w.learner.weights()))
    assert read(b) == whole                                               # the tapes were of the old weights


def test_tapes_are_of_training_only_and_within_their_memory():
    def left(account, size):
        w = world(model(), kernels="native")
        w.engine.cache.tape_bytes = size
        with meter.on(account):
            batch(w, sums(5, 8), 6, tokens=20)
        return len(w.engine.tapes)

    assert left(meter.TRAIN, 2**29) == 5
    assert left(meter.EVALUATION, 2**29) == 0
    one = world(model(), kernels="native").engine.cache.kernel.tape_bytes(6 + 6 * 20)
    assert left(meter.TRAIN, 2 * one) == 2


def test_weights_loaded_in_mid_flight_leave_no_tape():
    w, other = world(model(max_len=256), kernels="native"), model(1)
    w.engine.burst = 1

    async def swap(slot, ticks):
        task = asyncio.ensure_future(say(w, "47+38=", range(12), slot, tokens=60))
        for _ in range(ticks):
            await asyncio.sleep(0)
        assert (w.engine._slots.live > 0) == (ticks > 0)
        await w.engine.load(other.weights)
        return await task

    said = asyncio.run(swap(0, 6))
    assert any(len(set(s.version.tolist())) == 2 for s in said)
    assert not w.engine.tapes
    asyncio.run(swap(1, 0))                                    # loaded before anything was read: the tape is good
    assert len(w.engine.tapes) == 1


def test_no_memory_is_kept_for_tapes_that_nobody_would_use():
    w = world(model(), kernels="native")
    for sampling in (Sampling(0.7, 0.9), Sampling(0.7, 1.0, 4)):
        batch(w, sums(5, 8), 6, tokens=20, sampling=sampling)
        assert not w.engine.tapes and not w.engine.cache._taped
    batch(w, sums(5, 8), 6, tokens=20, sampling=Sampling(0.7))
    assert len(w.engine.tapes) == 5


def test_tapes_are_given_back_and_used_again():
    w = world(model(), kernels="native")
    for wave in range(4):
        batch(w, sums(5, wave), 6, tokens=20)
        assert len(w.engine.cache._taped) == 5
        asyncio.run(w.engine.load(w.learner.weights()))
        assert len(w.engine.cache._taped) == 0


# truncation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0, 60.0])
def test_kept_sets_are_those_of_sorting_everything(spread):
    w = world(model(vocab=3000), kernels="native")
    z = torch.randn(40, 3000, generator=torch.Generator().manual_seed(1)) * spread
    z[::3] = (z[::3] / spread).round() * spread                     # many ties
    g = np.random.default_rng(2)
    top_p = np.where(g.random(40) < 0.3, 1.0, g.uniform(0.05, 0.999, 40)).astype(np.float32)
    top_k = np.where(g.random(40) < 0.5, 0, g.integers(1, 3500, 40))
    temperature = g.uniform(0.3, 2.0, 40).astype(np.float32)
    plain = truncate(z / torch.from_numpy(temperature)[:, None], torch.from_numpy(top_p), torch.from_numpy(top_k))
    ours = w.engine.cache.truncate(z.clone(), temperature, top_p, top_k)
    for i in range(40):
        a, b = (set(torch.nonzero(x[i] > -torch.inf)[:, 0].tolist()) for x in (plain, ours))
        assert len(a ^ b) <= 1 + 1e-4 * len(a), (i, len(a), len(b))   # a sum in float32 may end one id elsewhere
        same = sorted(a & b)
        torch.testing.assert_close(ours[i, same], plain[i, same], atol=0, rtol=2e-6)
