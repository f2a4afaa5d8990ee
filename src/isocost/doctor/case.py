"""What the checks share: a world, answers sampled in it as in a run, and a plain forward pass as the reference.

The reference is independent of engine and learner: one row at a time, no cache, no padding, no shared prompts, in
higher precision than the model if that is affordable, with its own code of the sampling distribution.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch
from isocost.chance import Purpose
from isocost.errors import RewardFailed
from isocost.gather import together
from isocost.local.decoder import Decoder
from isocost.pack import pack
from isocost.parts import play
from isocost.seams import Pace
from isocost.types import Cost, Group, Place, Problem, Role, Rollout, Sampling, Score, Segment
from isocost.world import World
from isocost.worlds.setting import Opened

ATTEMPTS = 4
TOKENS = 4096           # sampled, approximately
LARGE = 20_000_000      # parameters; larger models: fewer answers, against float32
TOKENS_LARGE = 2048     # sampled from large models
RECOMPUTED = 1000        # tokens of their prompts and answers that are recomputed
SEED = 0


@dataclass(frozen=True)
class Bar:
    """The largest mean distance between two computations of one quantity that rounding explains."""

    fine: float        # of log-probs: above what sound models measure
    wrong: float       # of log-probs: relative error of importance ratios that fails
    gradient: float    # of a tensor's gradient, relative to its norm


# Unit roundoffs are 1e-16, 6e-8 and 4e-3. Log-probs of sound models are off by a few dozen of them in float32, whose
# head sums hundreds of numbers, and by a few in bfloat16, whose head and residual stream are float32. Recorded
# log-probs are always float32.
BARS = {
    "float64": Bar(1e-6, 1e-5, 1e-6), "float32": Bar(1e-5, 1e-4, 1e-3), "bfloat16": Bar(5e-2, 2e-1, 2e-1),
}


@dataclass(frozen=True)
class Truth:
    """The reference's values for each sampled token, (K,) each, in order of groups, attempts, positions."""

    logp: ndarray        # among the recorded kept ids
    surprise: ndarray    # negative log-prob in the whole distribution; inf if rounding excludes the token
    entropy: ndarray
    variance: ndarray    # of the surprise


@dataclass(frozen=True)
class Gaps:
    """Distances between log-probs of the same tokens, (K,) each."""

    apart: ndarray       # sampler and learner
    sampler: ndarray     # the sampler and the reference
    learner: ndarray     # the learner and the reference


@dataclass
class Case:
    """An opened world, answers sampled in it, and the reference model."""

    opened: Opened
    groups: tuple[Group, ...]
    decoder: Decoder | None = field(default=None, repr=False)
    seen: Truth | None = field(default=None, repr=False)

    @property
    def world(self) -> World:
        return self.opened.world

    @property
    def sampling(self) -> Sampling:
        return self.opened.setting.sampling

    @property
    def pace(self) -> Pace:
        return Pace(lr=0.0, max_tokens=self.opened.setting.lengths.max_tokens, sampling=self.sampling)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(g.problem for g in self.groups)

    @property
    def rollouts(self) -> list[Rollout]:
        return [r for g in self.groups for r in g.rollouts]

    @property
    def large(self) -> bool:
        return self.world.learner.parameters > LARGE

    @property
    def bar(self) -> Bar:
        return BARS[self.world.about.dtype]

    @property
    def recomputed(self) -> tuple[Group, ...]:
        """The groups that are recomputed: all for a small model, else a few, at least one."""
        sizes = np.cumsum([sum(len(r.segments[0]) for r in g.rollouts) for g in self.groups])
        return self.groups[: max(1, int((sizes <= RECOMPUTED).sum()))] if self.large else self.groups

    def reference(self) -> Decoder:
        """The reference decoder, float32 for large models, else float64, with the learner's current weights."""
        if self.decoder is None:
            body = torch.float32 if self.large else torch.float64
            config = self.world.about.model.config
            self.decoder = Decoder(config, body=body, device=self.world.about.device).requires_grad_(False)
        weights = self.world.learner.weights()
        for name, p in self.decoder.named_parameters():
            p.data.copy_(weights[name])
        return self.decoder


def size(problems: int, max_tokens: int, tokens: int = TOKENS) -> int:
    """Problems to sample for about `tokens` tokens: at least 4 and at most 32."""
    return min(problems, max(4, min(32, tokens // (ATTEMPTS * max_tokens))))


async def examine(opened: Opened) -> Case:
    """Sample a few answers to the first training problems, as a run does, and grade them."""
    empty = Case(opened, ())
    tokens = TOKENS_LARGE if empty.large else TOKENS
    problems = opened.sides.train[: size(len(opened.sides.train), opened.setting.lengths.max_tokens, tokens)]
    groups = await sampled(empty, problems, Place(SEED, 0, 0, int(Purpose.PROFILE)))
    return Case(opened, tuple([
        g.of([r.but(score=s) for r, s in zip(g.rollouts, await _scores(opened.world, g), strict=True)])
        for g in groups]))


async def _scores(world: World, group: Group) -> list[Score | None]:
    try:
        return await world.grade(group.rollouts)
    except RewardFailed:       # the checks of the reward report it
        return [None] * len(group.rollouts)


async def sampled(
    case: Case, problems: Sequence[Problem], place: Place, max_tokens: int | None = None, *,
    attempts: Sequence[int] = range(ATTEMPTS), sampling: Sampling | None = None,
) -> list[Group]:
    """Groups of attempts, all sampled concurrently; the i-th problem has slot `place.slot` + i."""
    pace = Pace(
        lr=0.0, max_tokens=max_tokens or case.opened.setting.lengths.max_tokens, sampling=sampling or case.sampling
    )
    places = [Place(place.seed, place.wave, place.slot + i, place.purpose) for i in range(len(problems))]
    each = zip(problems, places, strict=True)
    said = await together(*(play.sample(p, attempts, case.world, pace, at) for p, at in each))
    return [Group(p, tuple(rs), at) for p, rs, at in zip(problems, said, places, strict=True)]


def batch(groups: Sequence[Group], version: int) -> Batch:
    """Groups as an update receives them, with advantages that alternate in sign instead of those of the rewards."""
    scored = [g.of([r.but(score=Score(float(i % 2))) for i, r in enumerate(g.rollouts)]) for g in groups]
    out = pack(scored, version)
    sign = (2 * out.reward - 1)[out.rollout, None]
    return out.but(advantage=sign * out.mask, weight=out.mask / out.mask.sum())


def truth(case: Case) -> Truth:
    """The reference's values for `case.recomputed`, computed once; the weights must still be those of the sampling."""
    if case.seen is None:
        decoder = case.reference()
        rows = [_truth(case, decoder, r.segments[0]) for g in case.recomputed for r in g.rollouts]
        case.seen = Truth(*(np.concatenate(column) for column in zip(*rows, strict=True)))
    return case.seen


def slack(sampling: Sampling) -> float:
    """The factor on bounds of log-probs: temperatures below 1 magnify logits and their rounding."""
    return 1 / min(sampling.temperature, 1.0)


def gaps_of(case: Case, groups: Sequence[Group], true: ndarray) -> Gaps:
    """The gaps of sampled groups under the current weights; `true` (K,) are the reference's log-probs."""
    known = batch(groups, case.world.engine.version)
    mask = known.mask.numpy()
    sampler = known.logp.numpy()[mask].astype(np.float64)
    learner = case.world.learner.score(known).logp.cpu().numpy()[mask].astype(np.float64)
    return Gaps(*(np.abs(a - b) for a, b in ((sampler, learner), (sampler, true), (learner, true))))


def _truth(case: Case, decoder: Decoder, x: Segment) -> tuple[ndarray, ...]:
    logits = plain_logits(case, decoder, x)
    chosen = torch.from_numpy(own(x))[:, None]
    logp = distribution(logits, x.sampling)
    p, finite = logp.exp(), logp.clamp(min=-1e9)
    entropy = -(p * finite).sum(-1)
    variance = (p * finite**2).sum(-1) - entropy**2
    surprise = -logp.gather(-1, chosen)[:, 0]
    return kept_logp(logits, x).numpy(), surprise.numpy(), entropy.numpy(), variance.numpy()


def kept_logp(logits: Tensor, x: Segment) -> Tensor:
    """(K,) tempered log-probs of the chosen tokens among the recorded kept ids; differentiable in the logits."""
    logits = logits / x.sampling.temperature
    if x.kept:
        inside = torch.zeros(logits.shape, dtype=torch.bool)
        for row, ids in zip(inside, x.kept, strict=True):
            row[torch.from_numpy(np.asarray(ids, dtype=np.int64))] = True
        logits = logits.masked_fill(~inside.to(logits.device), -torch.inf)
    chosen = torch.from_numpy(own(x)).to(logits.device)
    return logits.log_softmax(-1).gather(-1, chosen[:, None])[:, 0]


@torch.no_grad()
def plain_logits(case: Case, decoder: Decoder, segment: Segment) -> Tensor:
    """(K, V) logits from which each token was sampled, by one forward pass over the whole row."""
    began = time.perf_counter()
    logits = forward(decoder, segment).double().cpu()
    case.world.meter.charge(Cost(score=len(segment), seconds=time.perf_counter() - began))
    return logits


def forward(decoder: Decoder, segment: Segment) -> Tensor:
    """The same with gradient, on the device and in the precision of the decoder."""
    tokens = torch.from_numpy(np.asarray(segment.tokens, dtype=np.int64)).to(decoder.embed.device)
    chosen = torch.from_numpy(np.flatnonzero(segment.role == int(Role.OWN))).to(decoder.embed.device)
    return decoder.logits(decoder(tokens[None])[0, chosen - 1])


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """(K, V) log-probs under temperature, then top-k, then top-p of the rest; -inf for excluded tokens."""
    logp = (logits / sampling.temperature).log_softmax(-1)
    if 0 < sampling.top_k < logp.shape[-1]:
        least = logp.topk(sampling.top_k).values[:, -1:]
        logp = logp.masked_fill(logp < least, -torch.inf).log_softmax(-1)
    if sampling.top_p < 1:
        ranked = logp.sort(descending=True).values
        before = ranked.exp().cumsum(-1) - ranked.exp()
        least = ranked.masked_fill(before >= sampling.top_p, torch.inf).min(-1, keepdim=True).values
        logp = logp.masked_fill(logp < least, -torch.inf).log_softmax(-1)
    return logp


def own(segment: Segment) -> ndarray:
    """The tokens that the policy chose."""
    return np.asarray(segment.tokens)[segment.role == int(Role.OWN)]


