"""A world behind the Tinker API: a service samples and trains a LoRA adapter, and our loop decides on what.

Any loss of log-probs travels as `importance_sampling`, -exp(log π - logprobs) · advantages: with `logprobs` the current
ones and `advantages` -dL/dlog π, its gradient is that of L. How the service reduces a batch is measured when the world
is opened (`conventions`), and undone. What needs more than log-probs at temperature 1 it cannot do.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch, Forward
from isocost.can import Can
from isocost.errors import UserError
from isocost.local import lora, models
from isocost.meter import Meter, payer
from isocost.types import Cost, Message, Place, Problem, Said, Sampling, Segment, Stop
from isocost.world import About, OnTokens, Surrogate, Text, Weights, World
from isocost.worlds.conventions import Probe, Reduction, reduction
from isocost.worlds.flying import Flying, each
from isocost.worlds.service import RANK, SEED, AdamParams, Adapter, PassRow, Sampler, Service, is_local, text_for
from isocost.worlds.spec import Opening, Spec

MAX_NORM = 1.0      # the gradient is clipped to this norm where the service can, as by the learner of this machine
PATH = "service.path"       # the tensor of a checkpoint that holds the service's path, as bytes
CAN = frozenset({Can.TEXT})       # of `isocost.can.LEARNER`: besides log-probs and updates
PLAIN = ("a service of the Tinker API gives log-probs at temperature 1 and without top-p and top-k only, and training "
         "needs those of the distribution that is sampled")


def open_world(spec: Spec, opening: Opening) -> World:
    """A world whose model is trained by the service at the address of `spec`, as a LoRA adapter.

    The tokenizer is that of the model's folder if `spec` names one on this machine, else the one that the SDK loads.
    How the service reduces a batch is measured on an adapter of its own, charged to the account `check`. Raises
    UserError if nothing answers there, the model is not listed, `sampling` is not plain, or the reduction is not known.
    """
    meter, problems = opening.meter, opening.problems
    refuse_sampling(opening.sampling)
    service = Service.connect(spec.url)
    try:
        known = service.models()
        if known and spec.name not in known:
            raise UserError(f"{spec.url} has no model {spec.name!r}; it has {', '.join(known[:10])}: "
                            "--model tinker:URL#NAME")
        rank = opening.options.lora or RANK
        adapter = service.adapter(spec.name, rank=rank, seed=SEED)
        text = text_for(spec.name, adapter)
        found = _reduction(service, spec.name, rank, text, problems, meter)
        engine = TinkerEngine(adapter, text, meter)
        size, learned = size_of(spec.name, rank)
        learner = TinkerLearner(adapter, meter, found, parameters=size, learned=learned)
        base = None
        if opening.reference:
            base = TinkerLearner(service.adapter(spec.name, rank=rank, seed=SEED), meter, found)
    except BaseException:
        service.close()
        raise
    return World(
        problems, engine, learner, text, opening.grade, meter, reference=base, close=service.close,
        exact=TinkerExact(text, learner) if opening.exact else None,
        about=About(
            device="service", dtype="the service's", lora=rank, notes=learner.notes,
            service={"url": spec.url, "sdk": service.version, "lora": rank, "reduction": found.name},
        ),
    )


def refuse_sampling(sampling: Sampling) -> None:
    """Raises UserError for sampling whose log-probs no service returns."""
    if sampling != Sampling():
        values = {k: getattr(sampling, k) for k in ("temperature", "top_p", "top_k")}
        said = ", ".join(f"{k} {v:g}" for k, v in values.items() if v != getattr(Sampling(), k))
        raise UserError(f"{said}: {PLAIN}. Leave --temperature, --top-p and --top-k out")


def size_of(name: str, rank: int) -> tuple[int, int]:
    """A model's parameters and those of an adapter, if the model is on this machine too, else 0: no service says it."""
    if not is_local(name):
        return 0, 0
    model = models.load(name)
    return model.parameters, lora.count(model.config, rank)


def _reduction(
    service: Service, model: str, rank: int, text: Text, problems: Sequence[Problem], meter: Meter
) -> Reduction:
    """Measure it, on the first problem's prompt."""
    prompt = text.prompt(problems[0].prompt if problems else (Message("user", "1"),))
    probe = Probe(service.adapter(model, rank=rank, seed=SEED), prompt, prompt[: max(len(prompt) // 2, 1)], meter)
    one = probe.calibrate()
    if one < 0:
        raise UserError("a positive advantage makes a token less likely: the service's sign is turned round, and "
                        "training would make the model worse. `isocost doctor --model tinker:URL#MODEL` says more")
    if one == 0:
        raise UserError("no step changes the service's log-probs: its optimiser or its gradients do not work. "
                        "`isocost doctor --model tinker:URL#MODEL` says more")
    found = reduction(probe, one)
    found.scale(np.array([2]))      # raises for one that is not known
    return found


class TinkerEngine:
    """`isocost.world.Engine` over a service. Each attempt is one request with a seed of its own."""

    def __init__(self, adapter: Adapter, text: Text, meter: Meter):
        self.adapter, self.text, self.meter, self.version = adapter, text, meter, 0
        self._sampler: Sampler | None = None
        self._flying = Flying()
        self._until = 0.0       # up to when seconds are charged

    async def generate(
        self, start: Segment, attempts: Sequence[int], *, place: Place, turn: int, max_tokens: int,
        stop: Sequence[str] = (), ends: Sequence[int] = (), on_tokens: OnTokens | None = None,
    ) -> list[Said]:
        """Continue a start once per attempt: see `isocost.world.Engine`.

        The current weights are handed to the sampler with the first request after a `load`. An attempt that is halted
        has no tokens, though the service computes it. Raises UserError for sampling that is not plain, and for stop
        strings: the API takes either those or end tokens.
        """
        refuse_sampling(start.sampling)
        if stop:
            raise UserError(f"the Tinker API takes stop strings or end tokens, not both: leave out {list(stop)}")
        if not attempts:
            return []
        if self._sampler is None:
            self._sampler = self.adapter.sampler()
        seeds = (chance.uniforms(place, attempts, turn, 0, 1)[:, 0] * (2**31 - 1)).astype(int).tolist()
        asked = [self._attempt(self._sampler, start, seed, max_tokens, place, ends) for seed in seeds]
        return await each(attempts, asked, on_tokens)

    async def _attempt(
        self, sampler: Sampler, start: Segment, seed: int, max_tokens: int, place: Place, ends: Sequence[int]
    ) -> Said:
        """One attempt, charged to the caller."""
        version = self.version
        if self._flying.halted(place):
            return Said.nothing(Stop.CANCELLED)
        who, began, written = payer(), time.perf_counter(), 0
        asked = sampler.sample(start.tokens.tolist(), max_tokens=max_tokens, seed=seed,
                               ends=(*self.text.ends, *ends))
        try:
            found = await self._flying.answer(place, asked)
            if found is None:
                return Said.nothing(Stop.CANCELLED)
            written = len(found.tokens)
        finally:
            now = time.perf_counter()       # requests overlap: each is charged the time that no other was
            seconds, self._until = now - max(began, self._until), now
            self.meter.charge(Cost(prefill=len(start), decode=written, seconds=seconds), to=who, started=1)
        step = bool(written) and found.tokens[-1] in ends
        ended = Stop.LENGTH if found.cut else Stop.STEP if step else Stop.DONE
        tokens = np.array(found.tokens, dtype=np.int64)
        return Said(tokens, np.array(found.logp, dtype=np.float32), np.full(written, version), ended)

    def halt(self, place: Place) -> None:
        """Cancel the requests of a wave: its rollouts return with `Stop.CANCELLED` and without tokens."""
        self._flying.halt(place)

    async def load(self, weights: Weights) -> None:
        """The service's current weights are those of the next requests; `version` grows by one."""
        self.restore(weights, self.version + 1)

    def restore(self, weights: Weights, version: int) -> None:
        """The service's current weights are those of `version`."""
        self._sampler, self.version = None, version


class TinkerLearner:
    """`isocost.world.Learner` of a service's adapter, which stays there: `weights()` is empty, sizes may be 0."""

    can, vocabulary = CAN, 0

    def __init__(self, adapter: Adapter, meter: Meter, found: Reduction, *, parameters: int = 0, learned: int = 0):
        self.adapter, self.meter, self.reduction = adapter, meter, found
        self.parameters, self.learned = parameters, learned
        self.metrics: dict[str, float] = {}     # of the last step, by the service's names
        self.path = ""      # of the last checkpoint

    def forward(self, batch: Batch) -> Forward:
        """Log-probs at the masked tokens, (N, T), a leaf of the graph; the entropies are NaN: no service gives them."""
        if batch.kept or bool((batch.temperature != 1.0).any()):
            raise UserError(PLAIN)
        logp = torch.zeros(batch.tokens.shape, dtype=torch.float32)
        for i, own in enumerate(self.adapter.forward([PassRow(x) for x in _rows(batch)])):
            logp[i, 1 : len(own) + 1] = torch.from_numpy(own)
        return Forward((logp * batch.mask).requires_grad_(), torch.full(batch.tokens.shape, float("nan")))

    def score(self, batch: Batch) -> Forward:
        """`forward` without gradient, charged as `score` tokens."""
        began = time.perf_counter()
        out = self.forward(batch)
        n, seconds = int(batch.length.sum()), time.perf_counter() - began
        self.meter.charge(Cost(score=n, seconds=seconds), Cost(score=n - len(batch.length), seconds=seconds))
        return Forward(out.logp.detach(), out.entropy)

    def update(self, batch: Batch, loss: Surrogate, *, lr: float) -> dict[str, float]:
        """One AdamW update on the sum of loss * weight over the mask.

        Returns the loss, means over the mask of its metrics, and the gradient's norm if the service reports one. A
        gradient that is not finite is not sent. The forward pass before the gradient is charged physically.
        """
        began = time.perf_counter()
        seen, gradient, logp = self.gradient(batch, loss)
        if not bool(torch.isfinite(gradient).all()):
            return {**seen, "grad_norm": float("nan")}
        self.push(batch, gradient, logp)
        self.metrics = self.adapter.optim_step(AdamParams(lr, grad_clip_norm=MAX_NORM))
        norms = [v for k, v in self.metrics.items() if k.rpartition("/")[2] == "grad_norm"]
        n, seconds = int(batch.length.sum()), time.perf_counter() - began
        sent = n - len(batch.length)        # without the last token of each row, which is a target alone
        self.meter.charge(Cost(train=n, updates=1, seconds=seconds),
                          Cost(score=sent, train=sent, updates=1, seconds=seconds))
        return {**seen, **({"grad_norm": norms[0]} if norms else {})}

    def gradient(self, batch: Batch, loss: Surrogate) -> tuple[dict[str, float], Tensor, Tensor]:
        """`update`'s metrics, the gradient with respect to each log-prob, (N, T), and the log-probs. Uncharged."""
        assert batch.weight is not None
        out = self.forward(batch)
        per_token, said = loss(out, batch)
        total = torch.where(batch.mask, per_token * batch.weight, 0.0).sum()
        if bool(torch.isnan(total)):
            raise UserError("the loss is not a number: it may use entropies, which no service of the Tinker API gives")
        (gradient,) = torch.autograd.grad(total, out.logp) if total.requires_grad else (torch.zeros_like(out.logp),)
        count = max(float(batch.mask.sum()), 1.0)
        means = {k: float(torch.where(batch.mask, v.detach(), 0.0).sum()) / count for k, v in said.items()}
        return {"loss": float(total.detach()), **means}, gradient, out.logp.detach()

    def push(self, batch: Batch, gradient: Tensor, logp: Tensor) -> None:
        """Add the gradient of sum(gradient * log-prob) to the service's pending one."""
        rows = _rows(batch)
        scale = self.reduction.scale(np.array([len(x) - 1 for x in rows]))
        # The same float32 numbers go back as `logprobs`, so that the ratio is 1 but for the service's own rounding.
        full = [logp[i, 1 : len(x)].tolist() for i, x in enumerate(rows)]
        scaled = -gradient.double() * torch.from_numpy(scale)[:, None]
        credit = [scaled[i, 1 : len(x)].tolist() for i, x in enumerate(rows)]
        self.adapter.forward_backward([
            PassRow(x, {"logprobs": p, "advantages": a}) for x, p, a in zip(rows, full, credit, strict=True)
        ])

    def gradients(self, batch: Batch, loss: Surrogate) -> Iterator[tuple[Tensor, dict[str, float]]]:
        self._no("the gradient of each rollout")

    def step(self, gradient: Tensor, *, lr: float) -> float:
        self._no("a step with a gradient that is made here")

    def forget(self) -> None:
        self._no("a reset of the optimiser")

    def _no(self, what: str) -> NoReturn:
        raise UserError(f"{what} is not available over the Tinker API: use another method, or a model on this machine")

    def weights(self) -> Weights:
        return {}

    def state(self) -> dict[str, Tensor]:
        """The path under which the service keeps weights and optimiser from now on, as bytes."""
        self.path = self.adapter.save(f"isocost-{uuid.uuid4().hex[:16]}")
        return {PATH: torch.tensor(list(self.path.encode()), dtype=torch.uint8)}

    def notes(self) -> list[str]:
        """Where the trained weights are."""
        return [f"the trained adapter stays with the service, at {self.path}"] if self.path else []

    def restore(self, state: Mapping[str, Tensor]) -> None:
        if PATH not in state:
            raise ValueError("the state is of a model on this machine, not of a service's")
        self.adapter.load(bytes(state[PATH].tolist()).decode())


class TinkerExact:
    """`isocost.world.Exact` by the service's log-probs: the probability of each problem's answer and an end."""

    def __init__(self, text: Text, learner: TinkerLearner):
        self.text, self.learner = text, learner

    def __call__(self, problems: Sequence[Problem], sampling: Sampling) -> list[float]:
        refuse_sampling(sampling)
        began, ends = time.perf_counter(), self.text.ends
        asked: list[PassRow] = []
        first: list[int] = []
        for p in problems:
            prompt, answer = self.text.prompt(p.prompt) + self.text.encode(p.prefix), self.text.encode(str(p.answer))
            asked += [PassRow([*prompt, *answer, end]) for end in ends]
            first += [len(prompt) - 1] * len(ends)
        found = self.learner.adapter.forward(asked) if asked else []
        logp = np.array([x[k:].sum() for x, k in zip(found, first, strict=True)]).reshape(-1, len(ends))
        seconds, tokens = time.perf_counter() - began, sum(len(r.tokens) for r in asked)
        self.learner.meter.charge(Cost(score=tokens, seconds=seconds), Cost(score=tokens - len(asked), seconds=seconds))
        return np.exp(np.logaddexp.reduce(logp, 1)).tolist()


def _rows(batch: Batch) -> list[list[int]]:
    """The tokens of each row, without padding."""
    return [x[:k].tolist() for x, k in zip(batch.tokens, batch.length.tolist(), strict=True)]
