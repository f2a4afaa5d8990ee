"""What the tests of `isocost.local` share: small models with peaked distributions, and ways to make them talk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
import torch

from isocost import meter, processor
from isocost.batch import Batch
from isocost.local.decoder import Config, Decoder
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model
from isocost.local.world import Compute, open_world
from isocost.pack import pack
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Said, Sampling, Score, Segment
from isocost.world import World

ALPHABET = "0123456789+=:?;"
KERNELS = "auto"     # what worlds compute with where a test does not say; the tests' fixture runs both
SETTINGS = (
    Sampling(), Sampling(0.5), Sampling(1.3), Sampling(1.0, 0.9, 0), Sampling(1.3, 1.0, 5), Sampling(0.5, 0.8, 6),
)


def model(seed: int = 0, *, sharp: float = 2.0, **changes) -> Model:
    """A random decoder, its embedding (and so its logits) scaled until it has opinions."""
    shape = {"vocab": 16, "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "mlp": 48}
    config = Config(**{**shape, "max_len": 96, **changes})
    decoder = Decoder.from_config(config, torch.Generator().manual_seed(seed))
    weights = {k: v.detach().clone() for k, v in decoder.named_parameters()}
    weights["embed"] *= sharp
    return Model("test", config, weights, Characters(ALPHABET, 15), {"alphabet": ALPHABET, "eos_token_id": 15})


async def no_grade(rollouts):
    return [None for _ in rollouts]


def world(source: Model | str | None = None, **settings) -> World:
    if settings.get("dtype") != "fp64":
        settings.setdefault("kernels", KERNELS)
    compute = Compute(device="cpu", **{f.name: settings.pop(f.name) for f in fields(Compute) if f.name in settings})
    return open_world(model() if source is None else source, (), no_grade, compute=compute, **settings)


def start(w: World, prompt: str, sampling: Sampling = Sampling()) -> Segment:
    return Segment.empty(sampling).read(w.text.prompt((Message("user", prompt),)), Role.PROMPT)


async def say(
    w: World, prompt: str, attempts: Sequence[int], slot: int = 0, *, tokens: int = 8, sampling: Sampling = Sampling(),
    stop: Sequence[str] = (), wave: int = 0,
) -> list[Said]:
    at = Place(7, wave, slot)
    text = start(w, prompt, sampling)
    with meter.begins(True):
        return await w.engine.generate(text, attempts, place=at, turn=0, max_tokens=tokens, stop=stop)


def sums(count: int, seed: int = 0) -> list[str]:
    pairs = np.random.default_rng(seed).integers(10, 100, (count, 2)).tolist()
    return [f"{a}+{b}=" for a, b in pairs]


def batch(
    w: World, prompts: Sequence[str], n: int, *, tokens: int = 8, sampling: Sampling = Sampling(), wave: int = 0
) -> Batch:
    """Groups of n sampled attempts, packed; advantages alternate in sign, weights are the token mean."""
    async def group(slot: int, prompt: str) -> Group:
        said = await say(w, prompt, range(n), slot, tokens=tokens, sampling=sampling, wave=wave)
        first, problem = start(w, prompt, sampling), Problem(prompt, (Message("user", prompt),))
        rollouts = [
            Rollout(problem, (first.wrote(s),), "", s.stop, j, Score(float((j + slot) % 2))) for j, s in enumerate(said)
        ]
        return Group(problem, tuple(rollouts), Place(7, wave, slot))

    async def every() -> list[Group]:
        return await asyncio.gather(*(group(i, p) for i, p in enumerate(prompts)))

    out = pack(asyncio.run(every()), w.engine.version)
    return out.but(advantage=(out.reward[out.rollout, None] - 0.5) * out.mask, weight=out.mask / out.mask.sum())


def pull(out, batch):
    """The plainest loss: the log-prob times the advantage."""
    return -out.logp * batch.advantage, {"twice": 2 * out.logp}


def teach(w: World, updates: int, *, lr: float = 3e-3, tokens: int = 8) -> None:
    for k in range(updates):
        w.learner.update(batch(w, sums(8, k), 8, tokens=tokens, wave=k), pull, lr=lr)
        asyncio.run(w.engine.load(w.learner.weights()))


def promised(seen: str) -> None:
    """Skip where torch's libraries make bits depend on the batch, which `seen` says; with MKL's strict mode none do."""
    if seen and os.environ.get(processor.MKL) != processor.MKL_STRICT:
        pytest.skip(f"on this processor torch's results depend on the batch, and isocost says so: {seen}")


LONG = ("5", "47+38=", "1" * 17, "1" * 250, "1" * 300, "9=" * 290)     # from within one block of keys to three


def lone_and_together(kernels: str, dtype: str, source: Model | None = None) -> tuple[int, int]:
    """Of rollouts short and long, all in flight together, how many are others when sampled alone; and how many."""
    source = source or model(heads=4, kv_heads=2, head_dim=32, max_len=600)

    async def together() -> list[list[Said]]:
        w = world(source, kernels=kernels, dtype=dtype)
        each = zip(LONG, SETTINGS, strict=False)
        return await asyncio.gather(*(say(w, p, range(4), i, tokens=12, sampling=s) for i, (p, s) in enumerate(each)))

    w, differ, count = world(source, kernels=kernels, dtype=dtype), 0, 0
    for i, said in enumerate(asyncio.run(together())):
        for j, one in enumerate(said):
            (lone,) = asyncio.run(say(w, LONG[i], [j], i, tokens=12, sampling=SETTINGS[i]))
            differ += (one.tokens.tobytes(), one.logp.tobytes()) != (lone.tokens.tobytes(), lone.logp.tobytes())
            count += 1
    return differ, count
