"""The trained policy: forward, score, update, exact log-probs of given answers.

Rows of one group share their prompt, so the decoder reads it once, in one block with the rows that continue it; a
row's tokens attend to the prompt and to their own row. Logits are computed at masked tokens only. Weights, gradients
and moments are float32, one flat vector each.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.can import LEARNER
from isocost.fast.columns import WaveColumns, whole
from isocost.fast.slope import sloped
from isocost.local.answers import AnswerBatch, answered
from isocost.local.cache import NativeCache
from isocost.local.decoder import Backend, Config, Decoder, attention, wide
from isocost.local.engine import LocalEngine
from isocost.local.layout import Shared, TokenRows, Units
from isocost.local.native import Flat, Kernel, Tape, WaveTapes, flatten
from isocost.local.sampling import check, kept_sets, truncate
from isocost.meter import Meter
from isocost.ops import array, plain
from isocost.types import Cost, Sampling
from isocost.world import Weights

LossFn = Callable[[Forward, Batch], tuple[Tensor, dict[str, Tensor]]]

LOGITS = 2**26       # numbers of logits in one micro-batch
ZERO = np.float32(0)     # so that `np.where` stays in float32
NEVER = -1e30        # the logit of ids outside a token's kept set; finite, so that 0 * log 0 is 0


@dataclass(frozen=True)
class AdamW:
    """Settings of AdamW (Loshchilov & Hutter 2019) and of the clip before it."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_norm: float = 1.0        # the gradient is clipped to this norm


class LocalLearner:
    """`isocost.world.Learner` on one device."""

    can = LEARNER

    def __init__(
        self, config: Config, weights: Weights, meter: Meter, backend: Backend, *, ends: Sequence[int],
        micro_tokens: int = 16384, adam: AdamW = AdamW(),
    ):
        device, body = backend.device, backend.body
        self.config, self.meter, self.device, self.adam = config, meter, device, adam
        self.vocabulary = config.vocab
        self.ends = torch.tensor(ends, device=device)
        self.decoder = Decoder(config, body=body, device=device)
        self.micro_tokens = micro_tokens
        self._flatten(weights)
        self.parameters = self.learned = self._flat.numel()
        layer = sum(p.numel() for p in self.decoder.layers[0].parameters())
        self._widest = layer // (4 * config.heads * config.head_dim)   # where attention costs half as much as the rest
        self._moments = torch.zeros(0, device=device), torch.zeros(0, device=device)
        self._steps = 0.0
        self._read = 0      # tokens through the decoder since the last bill, shared prompts once
        self.spared = 0     # of all tokens, those on the sampler's tapes, which were not read again
        self._kernel = Kernel(self.decoder, body, backend.threads) if backend.kernels == "native" else None
        self._loaded = self._passes = -1
        self._asked: tuple[tuple[Any, ...], list[AnswerBatch]] | None = None    # of the last `sequence_logp`, laid out
        self.sampler: LocalEngine | None = None              # its tapes save a second forward pass
        self._hook = torch.zeros((), requires_grad=True)     # makes autograd call the kernel's backward pass

    # the contract ---------------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> Forward:
        """(N, T) log-probs and entropies at masked tokens, else zero. Raises ValueError for a mask at position 0."""
        if self._kernel is not None and not batch.kept:
            return self._forward_native(batch)
        rows = TokenRows.of(batch)
        shared = Shared.of(rows, batch.mask.cpu().numpy(), self._widest, self.decoder.body, self.device)
        self._read += shared.read
        look = partial(attention, bias=shared.bias)
        hidden = self.decoder.run(shared.tokens, self.decoder.turns[shared.position], lambda layer: look)
        hidden = hidden.flatten(0, 1)[shared.before]
        row = shared.spot // batch.tokens.shape[1]
        logits = self.decoder.logits(hidden)
        temperature = batch.temperature.to(self.device)
        if bool((batch.temperature != 1.0).any()):
            logits = logits / temperature.to(logits.dtype)[row, None]
        if batch.kept:
            logits = logits.masked_fill(~kept_sets(batch, logits), NEVER)
        dist = F.log_softmax(logits, -1)
        chosen = dist.gather(-1, batch.tokens.to(self.device).flatten()[shared.spot][:, None])[:, 0]
        entropy = -(dist.exp() * dist).sum(-1)
        return self._placed(chosen, entropy, shared.spot, batch)

    def _forward_native(self, batch: Batch) -> Forward:
        rows, (row, at) = TokenRows.of(batch), np.nonzero(batch.mask.numpy())
        if not len(row):
            return Forward(torch.zeros(batch.tokens.shape), torch.zeros(batch.tokens.shape))
        target, temperature, kept = rows.tokens[row, at], batch.temperature.numpy()[row], self._left(batch)
        whole = np.array([t is not None for t in kept])
        units = Units.of(rows, row, at, target, temperature, whole)
        tapes = [self._fitting(units, k, kept[first]) for k, first in enumerate(units.owner.tolist())]
        self._read += len(units.tokens)
        self.spared += sum(len(t.tokens) for t in tapes if t is not None)
        logp, entropy = _Native.apply(self._hook, self, units, torch.is_grad_enabled(), tapes)
        spot = torch.from_numpy(units.row * batch.tokens.shape[1] + units.position)
        return self._placed(logp, entropy, spot, batch)

    def _forward_taped(self, batch: Batch) -> Forward | None:
        """`forward` of groups that all lie on the sampler's tapes, without a graph; None if they do not."""
        if self._kernel is None or batch.kept or not batch.groups:
            return None
        wave = whole(batch.groups)
        together = self._tapes_of(wave) if wave is not None else None
        if together is not None:
            out = self._native().taped(together, together.rows, batch)
        else:
            tapes = self._tapes(batch)
            found = [t for t in tapes if t is not None]
            if len(found) < len(tapes):
                return None
            out = self._native().taped(found, np.array([g.size for g in batch.groups]), batch)
        if out is None:
            return None
        *leaves, read = out
        self._read, self.spared, self._passes = self._read + read, self.spared + read, self._passes + 1
        return Forward(*leaves)

    def _tapes(self, batch: Batch) -> list[Tape | None]:
        """For each group the sampler's tape, if it was sampled with the learner's current weights."""
        engine = self.sampler
        if engine is None or not isinstance(engine.cache, NativeCache) or not engine.cache.holds(self._weights):
            return [None] * len(batch.groups)
        return [engine.tapes.get(g.place) for g in batch.groups]

    def _tapes_of(self, wave: WaveColumns) -> WaveTapes | None:
        """The sampler's tapes of a whole wave, if it was sampled with the learner's current weights."""
        engine = self.sampler
        tapes = engine.tapes_of(wave) if engine is not None else None
        if engine is None or tapes is None or not isinstance(engine.cache, NativeCache):
            return None
        return tapes if engine.cache.holds(self._weights) else None

    def _left(self, batch: Batch) -> list[Tape | None]:
        """For each row the sampler's tape of its group, if there is a gradient and it was sampled with those
        weights."""
        if not torch.is_grad_enabled() or not batch.groups:
            return [None] * len(batch.rollout)
        tapes, sizes = self._tapes(batch), [g.size for g in batch.groups]
        of = np.repeat(np.arange(len(sizes)), sizes)[batch.rollout.numpy()]
        return [tapes[g] for g in of.tolist()]

    @staticmethod
    def _fitting(units: Units, k: int, tape: Tape | None) -> Tape | None:
        """The tape, if it holds unit k and nothing else."""
        first, last = units.first_span[k : k + 2]
        begin, size = int(units.counts[:first].sum()), int(units.counts[first:last].sum())
        here = units.tokens[begin : begin + size]
        return tape if tape is not None and np.array_equal(here, tape.tokens) else None

    def _placed(self, logp: Tensor, entropy: Tensor, spot: Tensor, batch: Batch) -> Forward:
        """(K,) each, scattered into (N, T)."""
        zero = torch.zeros(batch.tokens.numel(), device=self.device, dtype=logp.dtype)
        return Forward(*(zero.index_copy(0, spot, x).view(batch.tokens.shape) for x in (logp, entropy)))

    @torch.no_grad()
    def score(self, batch: Batch) -> Forward:
        """`forward` without gradient, on the batch's device, charged as `score` tokens."""
        began, home, self._read = time.perf_counter(), batch.tokens.device, 0
        parts = [self.forward(part) for part in self._parts(batch)]
        logp, entropy = (torch.cat([getattr(p, f) for p in parts]).to(home) for f in ("logp", "entropy"))
        self.meter.charge(*self._bill(batch, "score", time.perf_counter() - began))
        return Forward(logp, entropy)

    def update(self, batch: Batch, loss: LossFn, *, lr: float) -> dict[str, float]:
        """One AdamW update on the sum of loss * weight over the mask, in any number of micro-batches.

        Returns the loss, the gradient's norm before clipping, and means over the mask of the entropy and of the
        loss's metrics. A gradient that is not finite changes nothing; its norm is in the metrics.
        """
        began, self._read = time.perf_counter(), 0
        seen = self.gradient(batch, loss)
        seen["grad_norm"] = self._descend(lr)
        cost, physical = self._bill(batch, "train", time.perf_counter() - began, updates=1)
        self.meter.charge(cost, physical)
        return seen

    def gradients(self, batch: Batch, loss: LossFn) -> Iterator[tuple[Tensor, dict[str, float]]]:
        """Each rollout's own gradient, the learner's flat vector that the next one overwrites; and `update`'s
        metrics."""
        for one in batch.rollout.unique():
            began, self._read = time.perf_counter(), 0
            rows = batch.rows(torch.nonzero(batch.rollout == one)[:, 0])
            seen = self.gradient(rows, loss)
            self.meter.charge(*self._bill(rows, "train", time.perf_counter() - began))
            yield self._grad, seen

    def step(self, gradient: Tensor, *, lr: float) -> float:
        """One AdamW update down this flat gradient, clipped as in `update`; returns its norm before clipping."""
        began = time.perf_counter()
        self._grad.copy_(gradient)
        norm = self._descend(lr)
        self.meter.charge(Cost(updates=1, seconds=time.perf_counter() - began))
        return norm

    def forget(self) -> None:
        """Reset AdamW's moments and its count of steps."""
        none = torch.zeros(0, device=self.device)
        self._moments, self._steps = (none, none), 0.0

    def gradient(self, batch: Batch, loss: LossFn) -> dict[str, float]:
        """Leave the gradient of the sum of loss * weight on the parameters; uncharged. Returns `update`'s metrics."""
        self._grad.zero_()
        slope = sloped(loss)
        sums: list[dict[str, float]] = []       # over the masked tokens of each part
        count = 0
        for part in self._parts(batch):
            part = _moved(part, self.device)
            assert part.weight is not None
            here = int(np.count_nonzero(part.mask.numpy()) if plain(part.mask) else part.mask.sum())
            count += here
            taped = self._forward_taped(part)
            out = taped or self.forward(part)
            known = slope(out, part) if slope and taped and _finite(out.logp) else None
            if known is not None and self._kernel is not None:
                sums.append(self._descended(known, out, part, here))
                continue
            for x in (taped.logp, taped.entropy) if taped else ():
                x.requires_grad_()
            per_token, said = loss(out, part)
            total = torch.where(part.mask, per_token * part.weight, 0.0).sum()
            total.backward()
            if taped is not None and self._kernel is not None and taped.logp.grad is not None:
                self._kernel.taped_backward(taped.logp.grad, taped.entropy.grad, self._grad)
            said = {"entropy": out.entropy, **said}
            every = torch.stack([v.detach() for v in said.values()]).where(part.mask, 0.0).sum((1, 2))
            sums.append({"loss": total.item(), **dict(zip(said, every.tolist(), strict=True))})
        whole = sums[0]
        if len(sums) > 1:
            totals = torch.tensor([list(s.values()) for s in sums], dtype=self._grad.dtype).sum(0)
            whole = dict(zip(sums[0], totals.tolist(), strict=True))
        return {k: v if k == "loss" else v / max(count, 1) for k, v in whole.items()}

    def _descended(
        self, known: tuple[Tensor, dict[str, Tensor | float], Tensor], out: Forward, part: Batch, count: int
    ) -> dict[str, float]:
        """The gradient of groups on tapes, from a loss with its slope. Returns the sums over `count` tokens."""
        assert self._kernel is not None and part.weight is not None
        per_token, said, slope = known
        mask, weight = part.mask.numpy(), part.weight.numpy()
        with np.errstate(all="ignore"):     # as torch does: the gradient's norm shows what is not finite
            weighed = torch.from_numpy(np.where(mask, per_token.numpy() * weight, ZERO))
            moved = weighed
            if slope is not per_token:
                moved = torch.from_numpy(np.where(mask, slope.numpy() * weight, ZERO))
        self._kernel.taped_backward(moved, None, self._grad)
        sums = {"loss": weighed.sum().item(), "entropy": _total(out.entropy, mask)}
        for name, x in said.items():
            sums[name] = x * count if isinstance(x, float) else _total(x, mask)
        return sums

    def weights(self) -> Flat:
        """The weights, not a copy: an update changes them."""
        return self._weights

    def state(self) -> dict[str, Tensor]:
        """A copy of all that an exact continuation needs."""
        out = {f"weights.{k}": v.clone() for k, v in self.weights().items()}
        first, second = self._moments
        adam = {"adam.first": first.clone(), "adam.second": second.clone(), "adam.steps": torch.tensor(self._steps)}
        return out | adam

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`; ValueError for the state of another model."""
        mine = self.weights()
        if {f"weights.{k}" for k in mine} != {k for k in state if k.startswith("weights.")}:
            raise ValueError("the state is of a model of another shape")
        for k, v in mine.items():
            v.copy_(state[f"weights.{k}"])
        self._moments = state["adam.first"].to(self.device, copy=True), state["adam.second"].to(self.device, copy=True)
        self._steps = float(state["adam.steps"])

    # beyond it ------------------------------------------------------------------------------------------------

    @property
    def kernels(self) -> list[Kernel]:
        """The native kernels that compute for it."""
        return [] if self._kernel is None else [self._kernel]

    def frozen(self) -> LocalLearner:
        """A copy of the current policy that is never updated: a reference to score with."""
        out = copy.copy(self)
        out.decoder = Decoder(self.config, body=self.decoder.body, device=self.device).requires_grad_(False)
        for mine, theirs in zip(out.decoder.parameters(), self.decoder.parameters(), strict=True):
            mine.data.copy_(theirs.data)
        out.sampler = None
        out._moments, out._steps = (torch.zeros(0), torch.zeros(0)), 0.0
        out._flat = out._grad = torch.zeros(0)
        if self._kernel is not None:
            out._kernel, out._loaded = Kernel(out.decoder, self.decoder.body, self._kernel.threads), -1
            out._flat = flatten(out.decoder)
        out._weights = Flat(out.decoder, out._flat)
        return out

    @torch.inference_mode()
    def sequence_logp(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], sampling: Sampling
    ) -> ndarray:
        """(len(prompts),) log-probability that the policy writes just these tokens, then ends; charged as `score`."""
        began = time.perf_counter()
        check(sampling)
        lengths = [len(p) + len(a) for p, a in zip(prompts, answers, strict=True)]
        if self._kernel is not None and not sampling.truncates:
            asked = prompts, answers, sampling
            if self._asked is None or self._asked[0] != asked:     # evaluations ask the same of many policies
                blocks = self._blocks(prompts, answers, lengths)
                laid = [AnswerBatch.of(*x, self.ends.numpy(), sampling) for x in blocks]
                self._asked = asked, laid
            out = self._endings_native(self._asked[1])
        else:
            out = np.zeros(len(lengths))
            for some, rows, prompt in self._blocks(prompts, answers, lengths):
                out[some] = self._endings(rows, prompt, sampling)
        self.meter.charge(Cost(score=sum(lengths) + len(lengths), seconds=time.perf_counter() - began))
        return out

    # inside ---------------------------------------------------------------------------------------------------

    def _blocks(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], lengths: list[int]
    ) -> Iterator[tuple[list[int], list[list[int]], list[int]]]:
        """Which rows are computed together, in order of length: (numbers, tokens, lengths of the prompts)."""
        order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        step = max(1, min(self.micro_tokens, LOGITS // self.config.vocab) // max(lengths, default=1))
        for some in (order[k : k + step] for k in range(0, len(order), step)):
            yield some, [[*prompts[i], *answers[i]] for i in some], [len(prompts[i]) for i in some]

    def _endings(self, rows: list[list[int]], prompt: list[int], sampling: Sampling) -> ndarray:
        laid = TokenRows.apart(rows, prompt)
        row, at, after, is_end = answered(laid)
        hidden = self.decoder(torch.from_numpy(laid.tokens).to(self.device))
        row_t, at_t, after_t = (torch.from_numpy(x).to(self.device) for x in (row, at, after))
        logits = self.decoder.logits(hidden[row_t, at_t]) / sampling.temperature
        if sampling.truncates:
            many = torch.ones(len(row), device=self.device)
            logits = truncate(logits, many * sampling.top_p, (many * sampling.top_k).long())
        dist = F.log_softmax(logits, -1)
        said = dist.gather(-1, after_t[:, None])[:, 0]
        ended = torch.from_numpy(is_end).to(self.device)
        logp = torch.where(ended, dist[:, self.ends].logsumexp(-1), said).double().cpu().numpy()
        return np.bincount(row, logp, len(rows))

    def _endings_native(self, asked: list[AnswerBatch]) -> ndarray:
        """The log-probs of `sequence_logp`, of rows that are laid out."""
        out = np.zeros(sum(len(part.rows) for part in asked))
        for part in asked:
            logp, _ = self._native().forward(part.units, keep=False)
            each = np.full(len(part.row), -np.inf)
            np.logaddexp.at(each, part.back, logp.double().numpy())
            out[part.rows] = np.bincount(part.row, each, len(part.rows))
        return out

    def _flatten(self, weights: Weights) -> None:
        """Copy weights and gradients to two flat vectors, of which the parameters become views."""
        named = dict(self.decoder.named_parameters())
        if named.keys() != weights.keys():
            raise ValueError(f"weights do not fit: {sorted(named.keys() ^ weights.keys())}")
        kind = wide(self.decoder.body)
        self._flat = torch.cat([weights[k].detach().to(self.device, kind).flatten() for k in named])
        self._grad = torch.zeros_like(self._flat)
        at = 0
        for p in named.values():
            here = slice(at, at + p.numel())
            p.data, p.grad, at = self._flat[here].view(p.shape), self._grad[here].view(p.shape), at + p.numel()
        self._weights = Flat(self.decoder, self._flat)

    def _descend(self, lr: float) -> float:
        """Clip the gradient, and step if it is finite. Returns its norm before clipping."""
        norm = torch.linalg.vector_norm(self._grad).item()
        if math.isfinite(norm):
            exact = np.float64 if self._grad.dtype == torch.float64 else np.float32     # one tensor less
            share = exact(self.adam.max_norm) / (exact(norm) + exact(1e-6))
            self._step(lr, min(float(share), 1.0))
        return norm

    def _step(self, lr: float, share: float) -> None:
        """AdamW on the whole vector, with this share of the gradient."""
        first, second = self._moments
        if not first.numel():
            first, second = self._moments = torch.zeros_like(self._flat), torch.zeros_like(self._flat)
        (b1, b2), a = self.adam.betas, self.adam
        self._steps += 1
        k = self._steps
        if a.weight_decay:
            self._flat.mul_(1 - lr * a.weight_decay)
        if self._kernel is not None and 1 - b1 < 0.5:      # torch sums a larger weight in another order
            self._kernel.descend(self._flat, self._grad, share, (first, second), a.betas, k, a.eps, lr)
            torch.autograd.graph.increment_version(self._flat)     # of which the version of the weights is made
            return
        if share < 1:
            self._grad.mul_(share)
        first.lerp_(self._grad, 1 - b1)
        second.mul_(b2).addcmul_(self._grad, self._grad, value=1 - b2)
        denominator = torch.sqrt(second, out=self._grad).div_((1 - b2**k) ** 0.5).add_(a.eps)    # into the gradient
        rate = -lr / (1 - b1**k)
        if rate < torch.finfo(self._flat.dtype).min:      # an error of torch's; the kernel takes it as infinite
            rate = -math.inf
        self._flat.addcdiv_(first, denominator, value=rate)

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """Micro-batches of neighbouring rows, each within the budget of tokens."""
        budget = min(self.micro_tokens, max(LOGITS // self.config.vocab, 1))
        length = [] if batch.tokens.numel() <= budget else batch.length.tolist()
        if not length or max(length) * len(length) <= budget:
            yield batch
            return
        first = longest = 0
        for i, n in enumerate(length):
            longest = max(longest, n)
            if i > first and longest * (i + 1 - first) > budget:
                yield batch.rows(torch.arange(first, i))
                first, longest = i, n
        yield batch.rows(torch.arange(first, len(length)))

    def _bill(self, batch: Batch, kind: str, seconds: float, updates: int = 0) -> tuple[Cost, Cost]:
        """Logical: all tokens of every row. Physical: shared prompts once, no last tokens (they predict nothing)."""
        logical = Cost(updates=updates, seconds=seconds, **{kind: int(np.add.reduce(array(batch.length)))})
        return logical, logical._replace(**{kind: self._read})

    def _native(self) -> Kernel:
        """The kernel, with the current weights."""
        assert self._kernel is not None
        now = self._weights.version
        if now != self._loaded:
            self._kernel.load(self._flat)
            self._loaded = now
        return self._kernel


class _Native(torch.autograd.Function):
    """The kernel's forward pass; its backward pass adds to the learner's gradient, outside of autograd."""

    @staticmethod
    def forward(
        ctx: Any, hook: Tensor, learner: LocalLearner, units: Units, keep: bool, tapes: list[Tape | None]
    ) -> tuple[Tensor, Tensor]:
        out = learner._native().forward(units, keep=keep, tapes=tapes)
        learner._passes += keep
        ctx.learner, ctx.units, ctx.number = learner, units, learner._passes
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        if ctx.number != ctx.learner._passes:
            raise RuntimeError("the kernel keeps one forward pass at a time, and another was made since")
        ctx.learner._kernel.backward(ctx.units, *grads, ctx.learner._grad)
        return None, None, None, None, None


def _total(x: Tensor, mask: ndarray) -> float:
    """The sum of x (N, T) over the mask; in the order in which `gradient` sums the metrics of autograd's losses."""
    return torch.from_numpy(np.where(mask, x.numpy(), ZERO))[None].sum((1, 2)).item()


def _finite(x: Tensor) -> bool:
    """Whether a tensor that numpy can read has only finite numbers, none of which is so large that their sum is not."""
    return math.isfinite(np.add.reduce(x.numpy(), axis=None))


def _moved(batch: Batch, device: torch.device) -> Batch:
    if batch.tokens.device == device:
        return batch
    tensors = {f.name: v.to(device) for f in fields(batch) if isinstance(v := getattr(batch, f.name), Tensor)}
    return batch.but(**tensors, extra={k: v.to(device) for k, v in batch.extra.items()})
