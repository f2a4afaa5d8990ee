"""Every recipe steps on a pretended GPU (`fake_cuda`), and no operation there mixes devices."""

import asyncio

import pytest
import torch

from fake_cuda import FakeCuda, FakeGraphs, pretend
from isocost import methods
from isocost.ledger import Ledger
from isocost.local import learner, static
from isocost.local.world import Compute, open_world
from isocost.loop import train
from isocost.recipe import paced, tune
from isocost.types import Sampling
from isocost.worlds.setting import Setting, open_setting
from local_world import model, no_grade, say

WORDS = {"agentrlvr": {"schedule.words": "{problem}{hint}="}}      # that the tiny base can spell
FAST = ("adhint", "areal", "dapo", "gspo", "grpo", "ppo", "vcpo")      # together they use every ability of the learner


def stepped(name, steps=2, **setting):
    """Steps of a method in a world that believes it is on a GPU; returns what was seen, and how many."""
    fake = FakeCuda()

    async def go(recipe, world):
        done = 0
        async for _ in train(recipe, world, Ledger(seed=0), {"rollouts": 512}):
            done += 1
            if done == steps:
                break
        return done

    with fake:
        opened = open_setting(Setting.of(data="sums:level=1", limit=200, device="cuda", dtype="fp32", temperature=0.7,
                                      **setting), reference=True)
        recipe = paced(methods.recipe(name, groups=4), lr=1e-4, warmup=0, max_tokens=4, temperature=0.7, top_p=1.0,
                       top_k=0)
        recipe = recipe.but(rollouts=max(4, min(recipe.rollouts, 8)))
        for key, value in WORDS.get(name, {}).items():
            recipe = tune(recipe, key, value)
        done = asyncio.run(go(recipe, opened.world))
        opened.world.restore(opened.world.state())
        opened.close()
    return fake, done


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in sorted(methods.names())
])
def test_a_recipe_steps_on_a_gpu_without_mixing_devices(monkeypatch, name):
    pretend(monkeypatch)
    fake, done = stepped(name)
    assert done and fake.calls > 1000 and not fake.mixed, fake.mixed


def test_an_adapter_trains_on_a_gpu(monkeypatch):
    pretend(monkeypatch)
    fake, done = stepped("grpo", lora=4)
    assert done == 2 and FakeGraphs.captures and not fake.mixed, fake.mixed


@pytest.mark.parametrize("sampling", [Sampling(0.7), Sampling(1.0, 0.9, 5)], ids=["whole", "truncated"])
def test_sampling_in_bf16_is_captured_on_a_gpu(monkeypatch, sampling):
    """Groups of prompts, rows that end and are refilled, new weights in mid-flight."""
    pretend(monkeypatch)

    async def go(w):
        w.engine.burst = 4
        each = [asyncio.ensure_future(say(w, p, range(5), i, tokens=12, sampling=sampling))
                for i, p in enumerate(("1+2=", "47+38=", "9=" * 20))]
        for _ in range(3):
            await asyncio.sleep(0)
        await w.engine.load(w.learner.weights())
        return [s for some in await asyncio.gather(*each) for s in some]

    with FakeCuda() as fake:
        w = open_world(model(sharp=1.0), (), no_grade, compute=Compute(device="cuda", max_slots=8))
        said = asyncio.run(go(w))
        cache = w.engine.cache
        assert not fake.mixed, fake.mixed
        assert (w.about.kernels, w.about.dtype, cache.why) == ("graphs", "bfloat16", "")
        assert FakeGraphs.captures >= len(cache._ticks) > 0 and cache._cache.is_cuda
        assert {t.draws for t in cache._ticks} == {not sampling.truncates}
    assert {int(v) for s in said for v in s.version} == {0, 1} and len({len(s.tokens) for s in said}) > 1


def test_weights_left_on_the_processor_are_found(monkeypatch):
    pretend(monkeypatch)
    moved = learner._moved
    def left(batch, device):
        return moved(batch, device).but(weight=torch.tensor(batch.weight.tolist()))

    monkeypatch.setattr(learner, "_moved", left)
    fake, _ = stepped("isohard", steps=1)
    assert any("mul of ['cuda', 'cpu'] at local/learner.py" in x for x in fake.mixed), fake.mixed


def test_what_a_capture_forbids_is_found(monkeypatch):
    pretend(monkeypatch)
    drawn = static.draw
    monkeypatch.setattr(static, "draw", lambda *x: drawn(*x) if bool(x[0].isfinite().all()) else None)
    fake, _ = stepped("grpo", steps=1)
    assert any("__bool__ waits for the GPU inside a capture at" in x for x in fake.mixed), fake.mixed
    made = FakeGraphs(torch.device("cuda"))
    with FakeCuda() as fake:
        made(lambda: torch.ones(3).to("cuda"))
    assert any("to copies from the host inside a capture" in x for x in fake.mixed), fake.mixed


def test_a_tensor_is_where_it_was_made_and_moved_to(monkeypatch):
    pretend(monkeypatch)
    with FakeCuda() as fake:
        here, there = torch.ones(3), torch.ones(3, device="cuda")
        assert (here.device.type, there.device.type, (there + 1).device.type) == ("cpu", "cuda", "cuda")
        assert here.to("cuda").device.type == "cuda" and here.device.type == "cpu"
        assert there[:2].is_cuda and not fake.mixed
        float(there.sum())
        there.cpu().numpy()
        assert sum(fake.waits.values()) == 2 and not fake.mixed
        here + there
        there.numpy()
    assert sum(fake.mixed.values()) == 2
