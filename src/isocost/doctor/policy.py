"""Checks of sampler and learner: log-probs, draws, determinism, the gradient, and that new weights are used."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.chance import Purpose
from isocost.doctor.case import (
    SEED,
    Case,
    Gaps,
    batch,
    distribution,
    forward,
    gaps_of,
    kept_logp,
    own,
    plain_logits,
    sampled,
    slack,
    truth,
)
from isocost.doctor.finding import Finding
from isocost.gather import together
from isocost.local import invariance
from isocost.local.decoder import Decoder
from isocost.local.learner import LocalLearner
from isocost.types import Cost, Group, Place, Role, Sampling, Segment
from isocost.world import Weights

TIMES = 3.0         # sampler's distance from the reference over the learner's; rounding in another order stays below
SURPRISE = 5.0      # standard deviations
SETTINGS = (Sampling(0.6), Sampling(1.4), Sampling(1.0, 0.9), Sampling(0.8, 0.95, 8))
SHORT = 16          # tokens of an answer where the first ones suffice
STEP = 1e-4         # of the update that the sampler must follow
REPORT = "report this as a bug of isocost, with the output of `isocost doctor --json`"
PROBE = int(Purpose.PROFILE)


def far(x: ndarray) -> str:
    return f"mean {x.mean():.1e}, largest {x.max(initial=0.0):.1e}"


async def cached_decode(case: Case) -> Finding:
    """Log-probs recorded while decoding against the learner's, and both against a plain pass in higher precision."""
    name, kind = "cached decode", case.world.about.dtype
    gaps = gaps_of(case, case.recomputed, truth(case).logp)
    if not all(np.isfinite(x).all() for x in (gaps.apart, gaps.sampler, gaps.learner)):
        return Finding(name, "fail", "some log-probs are not finite", "check the model's weights for NaN")
    wide = str(case.reference().body).removeprefix("torch.")
    said = (
        f"sampler and learner ({kind}) differ by {far(gaps.apart)} in log-prob over {len(gaps.apart):,} tokens; from a "
        f"full pass in {wide} the sampler differs by {far(gaps.sampler)}, the learner by {far(gaps.learner)}"
    )
    if why := _too_far(case, gaps, case.sampling, case.bar.fine / 10):
        return Finding(name, "fail", f"{said}: {why}", REPORT)
    if gaps.apart.mean() > case.bar.fine * slack(case.sampling):
        return Finding(name, "warn", said, "importance ratios are noisy in this precision: use --dtype fp32, or a "
                       "method that corrects for the sampler's log-probs (loss.corrected)")
    return Finding(name, "ok", said)


def _too_far(case: Case, gaps: Gaps, sampling: Sampling, least: float) -> str:
    """Which of sampler and learner is further from the plain pass than rounding explains; empty if neither is. Rounding
    depends on the model and is measured by the learner's own distance, at least `least`."""
    most = case.bar.wrong * slack(sampling)
    if not gaps.learner.mean() <= most:
        return f"the learner is wrong by more than the rounding of {case.world.about.dtype}"
    if not gaps.sampler.mean() <= min(most, max(TIMES * gaps.learner.mean(), least)):
        return "the sampler is further off than rounding explains"
    return ""


async def sampling(case: Case) -> Finding:
    """Recorded log-probs are those of the tempered, truncated, renormalised distribution; kept sets are correct."""
    name, decoder = "temperature and top-p", case.reference()
    settings = list(dict.fromkeys((case.sampling, *SETTINGS)))
    tokens, problems = min(SHORT, case.opened.setting.lengths.max_tokens), case.problems[: 1 if case.large else 2]
    each = [sampled(case, problems, Place(SEED, 2, 4 * i, PROBE), tokens, attempts=range(2), sampling=s)
            for i, s in enumerate(settings)]
    gaps = []
    for s, groups in zip(settings, await together(*each), strict=True):
        seen = [(x, plain_logits(case, decoder, x)) for x in (r.segments[0] for g in groups for r in g.rollouts)]
        wrong = [why for x, logits in seen if (why := _kept_wrong(case, logits, x))]
        if wrong:
            return Finding(name, "fail", f"at {_named(s)}: {wrong[0]}", REPORT)
        true = np.concatenate([kept_logp(logits, x).numpy() for x, logits in seen])
        gap, least = np.abs(_recorded(groups) - true), case.bar.fine * slack(s)
        gaps.append(gap)
        if not gap.mean() <= least and _too_far(case, gaps_of(case, groups, true), s, least):
            return Finding(name, "fail", f"at {_named(s)} the recorded log-probs are not those of the sampled "
                           f"distribution: {far(gap)}", REPORT)
    every = np.concatenate(gaps)
    return Finding(name, "ok", f"recorded log-probs are those of the tempered, truncated, renormalised distribution "
                   f"at {len(settings)} settings: {far(every)} over {len(every):,} tokens")


def _recorded(groups: Sequence[Group]) -> ndarray:
    """(K,) log-probs as the sampler recorded them, in order of groups, attempts, positions."""
    rows = [r.segments[0] for g in groups for r in g.rollouts]
    return np.concatenate([x.logp[x.role == int(Role.OWN)] for x in rows])


def _named(s: Sampling) -> str:
    parts = [f"temperature {s.temperature:g}", *([f"top-p {s.top_p:g}"] if s.top_p < 1 else [])]
    return ", ".join([*parts, *([f"top-k {s.top_k}"] if s.top_k else [])])


def _kept_wrong(case: Case, logits: Tensor, x: Segment) -> str:
    """What is wrong with the recorded kept sets, empty if nothing; edges may be off by rounding."""
    s = x.sampling
    if not s.truncates:
        return ""
    if len(x.kept) != len(own(x)):
        return f"{len(own(x))} tokens were sampled, but {len(x.kept)} kept sets were recorded"
    room = 2 * case.bar.fine
    whole = distribution(logits, Sampling(s.temperature, 1.0, s.top_k))
    for logp, ids, token in zip(whole, x.kept, own(x).tolist(), strict=True):
        inside = logp[torch.from_numpy(np.asarray(ids, dtype=np.int64))].exp()
        if token not in ids:
            return "a sampled token is not in its kept set"
        if s.top_k and len(ids) > s.top_k:
            return f"{len(ids)} ids were kept"
        if s.top_p < 1 and float(inside.sum()) < s.top_p - room:
            return f"the kept ids hold {float(inside.sum()):.3f} of the probability"
        if s.top_p < 1 and float(inside.sum() - inside.min()) > s.top_p + room:
            return "more ids were kept than top-p allows"
    return ""


async def draws(case: Case) -> Finding:
    """Tokens are sampled as often as the distribution implies: surprise minus entropy sums to zero on average."""
    name, t = "draws", truth(case)
    possible = np.isfinite(t.surprise)
    count, variance = int(possible.sum()), float(t.variance[possible].sum())
    if count < 32 or variance < 1.0:
        return Finding(name, "cannot tell", f"{count} tokens with almost no entropy are too few to check the draws",
                       "raise --temperature, or use more problems")
    z = float((t.surprise - t.entropy)[possible].sum()) / math.sqrt(variance)
    said = f"the surprise of {count} sampled tokens is {z:+.1f} standard deviations from their entropy"
    return Finding(name, "ok" if abs(z) <= SURPRISE else "fail", said, "" if abs(z) <= SURPRISE else REPORT)


async def determinism(case: Case) -> Finding:
    """Sampling at the same address gives the same tokens: again, alone, one attempt alone, and among other rows."""
    name, problem, there = "determinism", case.problems[0], case.groups[0].place
    tokens = min(SHORT, case.opened.setting.lengths.max_tokens) if case.large else None      # the first ones suffice
    again = partial(sampled, case, [problem], there, tokens)
    other = sampled(case, case.problems[1:5], Place(SEED, 3, 1, PROBE), tokens, attempts=range(2),
                    sampling=Sampling(1.3))
    each = [
        ("alone", (await again())[0]),
        ("one attempt alone", (await again(attempts=[1]))[0]),
        ("among others", (await together(again(), other))[0][0]),
    ]
    drift = False
    for how, group in each:
        for r in group.rollouts:
            new, first = r.segments[0], case.groups[0].rollouts[r.attempt].segments[0]
            if not np.array_equal(first.tokens[: len(new)], new.tokens):
                said = f"attempt {r.attempt} at problem {problem.id} differs when sampled again ({how})"
                return Finding(name, "fail", said, REPORT)
            drift |= first.logp[: len(new)].tobytes() != new.logp.tobytes()
    n = sum(len(g.rollouts) for _, g in each)
    if drift:
        return Finding(name, "warn", f"{n} answers sampled again have the same tokens, but log-probs that differ in "
                       "their last bits", _steadier(case))
    return Finding(name, "ok", f"{n} answers sampled again, alone and among others, are bit-identical")


async def batch_invariance(case: Case) -> Finding:
    """At the model's widths, a row is bit-identical alone and in batches of many sizes and lengths."""
    name, about, began = "batch invariance", case.world.about, time.perf_counter()
    if about.device != "cpu":
        return Finding(name, "cannot tell", f"on {about.device} bit-identical rows in any batch are not guaranteed")
    body = getattr(torch, about.dtype)
    threads = case.opened.setting.machine.threads
    found = invariance.measure(
        about.model.config, body, torch.device("cpu"), about.kernels, threads, many=True
    )
    case.world.meter.charge(Cost(seconds=time.perf_counter() - began))
    said = f"{found} ({about.kernels} kernels, {about.dtype})"
    return Finding(name, "ok", said) if found.holds else Finding(name, "warn", said, _steadier(case))


def _steadier(case: Case) -> str:
    """What to do if last bits depend on the batch; with torch it is not a bug of isocost."""
    about = case.world.about
    if about.kernels == "native":
        return REPORT
    return "results are reproducible bit for bit only with equal batches: " + invariance.remedy(
        getattr(torch, about.dtype), about.kernels_why
    )


@dataclass(frozen=True)
class _Answers:
    """The bytes of a few short answers."""

    tokens: tuple[bytes, ...]
    logp: tuple[bytes, ...]


async def _short_answers(case: Case) -> _Answers:
    """A few short answers, from the whole distribution: a single kept token has log-prob 0 under any weights."""
    place = Place(SEED, 4, 0, PROBE)
    groups = await sampled(case, case.problems[:2], place, 2, attempts=range(2), sampling=Sampling())
    rows = [r.segments[0] for g in groups for r in g.rollouts]
    return _Answers(tuple(x.tokens.tobytes() for x in rows), tuple(x.logp.tobytes() for x in rows))


async def gradient(case: Case) -> Finding:
    """The gradient of an update is that of plain differentiation of the reference."""
    name, learner = "gradient", case.world.learner
    if not isinstance(learner, LocalLearner):
        return Finding(name, "cannot tell", "this learner does not expose its gradient")
    group = case.groups[0].of(case.groups[0].rollouts[:2])
    known = batch([group], case.world.engine.version)
    known = known.but(advantage=known.mask.float())       # of one sign, so that equal answers do not cancel
    began = time.perf_counter()
    learner.gradient(known, pull)
    names = _canaries(learner.weights())
    mine = {k: p.grad for k, p in learner.decoder.named_parameters() if k in names and p.grad is not None}
    true = _plain_gradient(case.reference(), [r.segments[0] for r in group.rollouts], known, names)
    case.world.meter.charge(Cost(train=2 * int(known.length.sum()), seconds=time.perf_counter() - began))
    off = {k: float((mine[k].cpu() - g).norm() / g.norm().clamp(min=1e-30)) for k, g in true.items()}
    worst = max(off, key=lambda k: off[k])
    said = f"the gradients of {len(off)} tensors equal those of plain differentiation to {off[worst]:.1e} of their norm"
    if not off[worst] <= case.bar.gradient:
        return Finding(name, "fail", f"the gradient of {worst} differs from plain differentiation by {off[worst]:.1e} "
                       "of its norm", REPORT)
    return Finding(name, "ok", said)


def _plain_gradient(decoder: Decoder, rows: Sequence[Segment], known: Batch, names: Sequence[str]) -> dict[str, Tensor]:
    """Gradients of `pull` with respect to some of the reference's tensors."""
    assert known.advantage is not None and known.weight is not None
    wanted = {k: p for k, p in decoder.named_parameters() if k in names}
    for p in wanted.values():
        p.requires_grad_(True)
    total = torch.zeros((), dtype=decoder.embed.dtype, device=decoder.embed.device)
    for i, x in enumerate(rows):
        pulled = (known.advantage[i] * known.weight[i])[known.mask[i]].to(total)
        total = total - (kept_logp(forward(decoder, x), x) * pulled).sum()
    found = torch.autograd.grad(total, list(wanted.values()))
    decoder.requires_grad_(False)
    return {k: g.cpu().to(torch.float32) for k, g in zip(wanted, found, strict=True)}


async def weights(case: Case) -> Finding:
    """The sampler uses new weights: one changed tensor of each kind, then all of them after a real update. The world
    keeps the updated weights."""
    name, engine = "weights reach the sampler", case.world.engine
    mine = case.world.learner.weights()
    if not _holds(case, mine):
        return Finding(name, "fail", "the sampler's weights differ from the learner's before any update", REPORT)
    before = await _short_answers(case)
    await engine.load(mine)
    if await _short_answers(case) != before:
        return Finding(name, "fail", "loading the same weights again changed what is sampled", REPORT)
    canaries = _canaries(mine)
    for key in canaries:
        await engine.load({**mine, key: mine[key] * 1.5 + 0.01})
        if (await _short_answers(case)).logp == before.logp:
            return Finding(name, "fail", f"a change of {key} does not reach the sampler: log-probs stay the same",
                           REPORT)
    return await _after_update(case, len(canaries))


def _canaries(mine: Weights) -> list[str]:
    """Every tensor outside the layers, and every one of the middle layer."""
    layers = sorted({int(k.split(".")[1]) for k in mine if k.startswith("blocks.")})
    middle = f"blocks.{layers[len(layers) // 2]}." if layers else "blocks."
    return [k for k in mine if k.startswith(middle) or not k.startswith("blocks.")]


async def _after_update(case: Case, canaries: int) -> Finding:
    name, world, few = "weights reach the sampler", case.world, case.recomputed[: 1 if case.large else 2]
    world.learner.update(batch(few, world.engine.version), pull, lr=STEP)
    await world.engine.load(world.learner.weights())
    if not _holds(case, world.learner.weights()):
        return Finding(name, "fail", "after an update the sampler's checksum differs from the learner's", REPORT)
    place = Place(SEED, 5, 0, PROBE)
    now = await sampled(case, [g.problem for g in few], place, min(SHORT, case.opened.setting.lengths.max_tokens))
    decoder, rows = case.reference(), [r.segments[0] for g in now for r in g.rollouts]
    gaps = gaps_of(case, now, np.concatenate([kept_logp(plain_logits(case, decoder, x), x).numpy() for x in rows]))
    gap, plain, moved = gaps.apart.mean(), gaps.sampler.mean(), _moved(case, few)
    seen = (f"after an update the sampler's log-probs are {gap:.1e} from the learner's on average, and {plain:.1e} "
            "from those of a full pass under the new weights")
    if not gap <= case.bar.fine * slack(case.sampling):
        return Finding(name, "fail", f"{seen}: they have different weights", REPORT)
    if why := _too_far(case, gaps, case.sampling, case.bar.fine):
        return Finding(name, "fail", f"{seen}: {why}", REPORT)
    if moved <= gap:
        return Finding(name, "cannot tell", f"an update changed log-probs by {moved:.1e}, too little to measure")
    return Finding(name, "ok", f"each of {canaries} kinds of tensor changes the samples; {seen}; log-probs of earlier "
                   f"answers differ by {moved:.1e}")


def _moved(case: Case, groups: Sequence[Group]) -> float:
    """Mean distance of the learner's log-probs from the recorded ones."""
    known = batch(groups, case.world.engine.version)
    return float((case.world.learner.score(known).logp.cpu() - known.logp)[known.mask].abs().mean())


def _holds(case: Case, theirs: Weights) -> bool:
    """Whether the sampler has these weights, by its checksum; true if the engine has no checksum."""
    checksum = getattr(case.world.engine, "checksum", None)
    return checksum is None or checksum() == checksum(theirs)


def pull(out: Forward, known: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """The policy-gradient loss: minus the log-prob times the advantage."""
    assert known.advantage is not None
    return -out.logp * known.advantage, {}

