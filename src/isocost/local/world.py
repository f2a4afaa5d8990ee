"""The world of one machine: model, engine, learner and text, on one device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any

import numpy as np
import torch

from isocost import processor
from isocost.errors import UserError
from isocost.fast.forms import Forms
from isocost.local import invariance, native
from isocost.local.critic import LocalCritic
from isocost.local.decoder import Backend, Config
from isocost.local.engine import LocalEngine
from isocost.local.learner import AdamW, LocalLearner
from isocost.local.lora import LoraLearner
from isocost.local.models import load
from isocost.local.weights import Model
from isocost.meter import Meter
from isocost.types import Problem, Sampling
from isocost.world import About, Grade, Text, World

KERNELS = ("auto", "native", "graphs", "torch")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


@dataclass(frozen=True)
class Compute:
    """What computes a model of this machine, how it is trained, and with how much memory.

    `dtype` is the body's: weights, gradients, moments, the residual stream and the head are float32 always; "auto"
    is bf16 on a GPU and for models of more than 20 million parameters, else fp32; fp64, for all numbers, is for checks.
    `kernels` "native" is the compiled decoder on `threads` threads, for processors; with "graphs" a GPU samples by
    replaying CUDA graphs; "torch" is the plain decoder. "auto" is native or, on a GPU, graphs; else torch.
    `lora` trains an adapter of this rank in place of all weights (`isocost.local.lora`). With `overlap`, sampling and
    learning run at the same time on a processor where rollouts may be older than the weights, with the same results as
    in turns.
    """

    device: str = "auto"
    dtype: str = "auto"
    kernels: str = "auto"
    threads: int = 1
    lora: int | None = None
    overlap: bool = True
    micro_tokens: int = 16384       # of a micro-batch
    max_slots: int = 512            # rollouts sampled at once
    cache_bytes: int | None = None  # of keys and values; None: a quarter of the memory that is free
    adam: AdamW = AdamW()


def open_world(
    model: str | Model, problems: Sequence[Problem], grade: Grade, *, meter: Meter | None = None,
    reference: bool = False, exact: bool = False, dialogues: bool = False, compute: Compute = Compute(),
) -> World:
    """Load a model for sampling and training.

    With `exact`, each problem's `answer` is the only right text and pass@1 is computed, not sampled. With `dialogues`
    the engine keeps keys and values between the turns of a rollout. Raises UserError for what is not available.

    On a processor a rollout's bits do not depend on the rollouts computed with it. If torch's libraries violate
    this, which is measured at the model's shapes, `about.batch_dependent` describes the difference.
    """
    source = load(model) if isinstance(model, str) else model
    meter, where = Meter() if meter is None else meter, _device(compute.device)
    body = _dtype(compute.dtype, where, source.parameters)
    used, why = _kernels(compute.kernels, source.config, body, where)
    plain = used != "native" and where.type == "cpu"
    if plain and body == torch.bfloat16:
        processor.keep_onednn_off_amx(_product)
    seen = invariance.measure(source.config, body, where, used, compute.threads) if plain else None
    space = compute.cache_bytes if compute.cache_bytes is not None else _cache_bytes(where)
    backend = Backend(where, body, used, compute.threads)
    engine = LocalEngine(source.config, source.text, meter, backend, max_slots=compute.max_slots, cache_bytes=space,
                         dialogues=dialogues)
    settings: dict[str, Any] = {
        "ends": source.text.ends, "micro_tokens": compute.micro_tokens, "adam": compute.adam}
    learner = (
        LoraLearner(source.config, source.weights, meter, backend, rank=compute.lora, **settings) if compute.lora
        else LocalLearner(source.config, source.weights, meter, backend, **settings)
    )
    engine.restore(learner.weights(), 0)
    if used == "native":
        learner.sampler = engine
    frozen = learner.frozen() if reference else None
    return World(
        problems, engine, learner, source.text, grade, meter, reference=frozen,
        overlap=Threads(engine, learner, frozen, compute.threads, compute.overlap and where.type == "cpu"),
        exact=LocalExact(source.text, learner) if exact else None, critic=LocalCritic(learner),
        new_critic=partial(LocalCritic, learner, probability=True),
        fast=Forms() if used == "native" else None,
        about=About(
            source.but(weights={}),     # the learner has them
            str(where), str(body).removeprefix("torch."), used, why,
            "" if seen is None or seen.holds else str(seen), compute.lora,
        ),
    )


class Threads:
    """`isocost.world.Overlap`: the kernel and torch compute without the interpreter's lock, so two threads suffice."""

    def __init__(
        self, engine: LocalEngine, learner: LocalLearner, reference: LocalLearner | None, threads: int, on: bool
    ):
        self.engine, self.learner, self.threads, self.on = engine, learner, threads, on
        self._sampling, self._learning = engine.kernels, [k for x in (learner, reference) if x for k in x.kernels]

    def ahead(self) -> None:
        self.engine.keeps, self.learner.sampler = False, None

    def share(self, *, sampling: bool, learning: bool) -> None:
        """Only the native kernel's cores can be divided: what torch computes depends on its number of threads."""
        both = sampling and learning
        few = max(self.threads // 2, 1) if both else self.threads
        for kernel in self._sampling:
            kernel.use(few)
        for kernel in self._learning:
            kernel.use(max(self.threads - few, 1) if both else self.threads)


class LocalExact:
    """`isocost.world.Exact` for problems whose verifier accepts one string: its probability with an end."""

    def __init__(self, text: Text, learner: LocalLearner):
        self.text, self.learner = text, learner
        self._asked: tuple[Sequence[Problem], list[list[int]], list[list[int]]] = (), [], []

    def __call__(self, problems: Sequence[Problem], sampling: Sampling) -> list[float]:
        known = self._asked[0]
        if len(known) != len(problems) or not all(map(is_, known, problems)):      # evaluations of a run ask the same
            prompts = [self.text.prompt(p.prompt) + self.text.encode(p.prefix) for p in problems]
            self._asked = tuple(problems), prompts, [self.text.encode(str(p.answer)) for p in problems]
        _, prompts, answers = self._asked
        return np.exp(self.learner.sequence_logp(prompts, answers, sampling)).tolist()


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device is {name!r}; give auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but torch finds no GPU here: leave it at auto, or install torch for your CUDA")
    return device


def _dtype(name: str, device: torch.device, parameters: int) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" or parameters > 20_000_000 else torch.float32
    if name not in DTYPES:
        raise UserError(f"dtype is {name!r}; give auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def _kernels(name: str, config: Config, body: torch.dtype, device: torch.device) -> tuple[str, str]:
    """Which kernels to use, and why not the native ones."""
    if name not in KERNELS:
        raise UserError(f"kernels is {name!r}; give {', '.join(KERNELS)}")
    if name == "graphs" or (name == "auto" and device.type == "cuda"):
        return "graphs", ""
    why = "kernels=torch asks for torch" if name == "torch" else native.available(config, body, device)
    if why and name == "native":
        raise UserError(f"kernels is native, but {why}")
    return ("torch", why) if why else ("native", "")


def _product() -> torch.Tensor:
    """A matrix in bfloat16, large enough for oneDNN."""
    one = torch.ones(64, 64, dtype=torch.bfloat16)
    return one @ one


def _cache_bytes(device: torch.device) -> int:
    """A quarter of the memory that is free."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 4
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
