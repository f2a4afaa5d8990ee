"""Check a service of the Tinker API: does it compute what a client sends, as the API says?

    from isocost.doctor.service import diagnose_service

    found = diagnose_service("tinker:http://localhost:8000#my-model")
    found.sound, found.findings, found.to_dict()

Every number is measured by what the service does to log-probs and samples; its own metrics are not used. Adapters that
are made here are thrown away.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from isocost import meter as meters
from isocost.doctor.finding import Diagnosis, Finding, ServiceSubject
from isocost.errors import Unreachable, UserError
from isocost.meter import Meter
from isocost.steps.events import SILENT, Observer
from isocost.types import Cost
from isocost.world import Text
from isocost.worlds.conventions import EPS, Probe, reduction
from isocost.worlds.service import RANK, SEED, AdamParams, Adapter, PassRow, SampledTokens, Sampler, Service, text_for
from isocost.worlds.setting import Setting, open_problems
from isocost.worlds.spec import spec_of

COMPLETIONS = 8     # sampled of one prompt
TOKENS = 8          # of each, at most
DRAWS = 256         # single tokens, whose frequencies are compared with their log-probs
GAP = 0.02          # nats between sampler and learner, at most: bfloat16 has about this much
LIKE = 0.1          # relative error of a ratio or a temperature, at most
UNLIKELY = 3.5      # standard errors
MOVED = 0.2         # nats by which steps must have changed a log-prob before samplers are compared
STILL = 1e-4        # nats by which a step without a gradient may change a log-prob
RATE = 3e-3         # learning rate of ordinary steps here
REPORT = "report it to the service with these numbers, and do not train with it"


def diagnose_service(
    model: str, data: str | None = None, *, lora: int | None = None, observer: Observer = SILENT
) -> Diagnosis:
    """Check the service and the model of a spec, with the first prompt of `data`.

    By default these are the built-in sums. Nothing is written.

    The observer receives the subject, then each finding as it is made.

    Raises UserError if the spec, the data or the service cannot be used.
    """
    spec = spec_of(model)
    problems, _ = open_problems(Setting.of({"data": data} if data else {}), whole=True)
    started, meter, rank = time.perf_counter(), Meter(), lora or RANK
    service = Service.connect(spec.url)
    with observer.counting("doctor") as tell, closing(service):
        tell("sampling for the checks")
        case = ServiceCase.of(service, spec.name, rank, problems.problems[0].prompt, meter)
        shown = case.text.decode(case.prompt)
        subject = ServiceSubject(spec.url, spec.name, rank, service.version, shown)
        observer.on(subject)
        findings = []
        for k, check in enumerate(CHECKS):
            tell("checks", k, len(CHECKS))
            findings.append(_finding(check, case))
            observer.on(findings[-1])
    return Diagnosis(subject, tuple(findings), meter.of(meters.PROBE), time.perf_counter() - started)


@dataclass
class ServiceCase:
    """What the checks share."""

    adapter: Adapter        # of checks that take ordinary steps
    probe: Probe            # another adapter
    text: Text
    prompt: list[int]
    meter: Meter
    sampler: Sampler        # of the adapter's initial weights
    completions: list[SampledTokens]
    one: float = 0.0        # the probe's response to one row
    shift: int = 0          # positions by which the learner's log-probs are late

    @classmethod
    def of(cls, service: Service, model: str, rank: int, said: Any, meter: Meter) -> ServiceCase:
        adapter = service.adapter(model, rank=rank, seed=SEED)
        text = text_for(model, adapter)
        prompt, sampler = text.prompt(said), adapter.sampler()
        case = cls(adapter, Probe(adapter, prompt, prompt[:1], meter, meters.PROBE), text, prompt, meter, sampler, [])
        case.completions = case.sample(sampler, prompt)
        longest = max(case.completions, key=lambda c: len(c.tokens)).tokens
        other = service.adapter(model, rank=rank, seed=SEED)
        case.probe = Probe(other, prompt, longest or prompt[:1], meter, meters.PROBE)
        return case

    def sample(
        self, sampler: Sampler, prompt: Sequence[int], seeds: Sequence[int] = range(COMPLETIONS), tokens: int = TOKENS,
        temperature: float = 1.0,
    ) -> list[SampledTokens]:
        """One completion for each seed, charged."""
        found = sampler.many(prompt, seeds, max_tokens=tokens, temperature=temperature, ends=self.text.ends)
        self._charge(Cost(prefill=len(prompt) * len(found), decode=sum(len(c.tokens) for c in found)), len(found))
        return found

    def learner(self, rows: Sequence[Sequence[int]]) -> list[ndarray]:
        """The adapter's log-probs, charged."""
        self._charge(Cost(score=sum(map(len, rows))))
        return self.adapter.forward([PassRow(r) for r in rows])

    def pairs(self, completions: Sequence[SampledTokens], shift: int = 0) -> tuple[ndarray, ndarray]:
        """(K,) the sampler's and the learner's log-probs of sampled tokens; the learner's are `shift` positions on."""
        some = [c for c in completions if c.tokens]
        rows = self.learner([[*self.prompt, *c.tokens] for c in some])
        one, other = [], []
        for c, logp in zip(some, rows, strict=True):
            for t, x in enumerate(c.logp):
                at = len(self.prompt) - 1 + t + shift
                if 0 <= at < len(logp):
                    one.append(x)
                    other.append(logp[at])
        return np.array(one), np.array(other)

    def train(self, size: float, lr: float = RATE, **adam: float) -> None:
        """An ordinary step that makes the first half of the completions more likely and the rest less, by `size`."""
        rows = [[*self.prompt, *c.tokens] for c in self.completions if c.tokens]
        sent = []
        for i, (row, logp) in enumerate(zip(rows, self.learner(rows), strict=True)):
            sign = size if i < len(rows) // 2 else -size
            credit = [sign if t >= len(self.prompt) - 1 else 0.0 for t in range(len(row) - 1)]
            sent.append(PassRow(row, {"logprobs": logp.tolist(), "advantages": credit}))
        self.adapter.forward_backward(sent)
        self.adapter.optim_step(AdamParams(lr, **adam))
        self._charge(Cost(train=sum(map(len, rows)), updates=1))

    def _charge(self, cost: Cost, completions: int = 0) -> None:
        self.meter.charge(cost, to=meters.Payer(meters.PROBE, begins=True), started=completions)


def _finding(check: Callable[[ServiceCase], Finding], case: ServiceCase) -> Finding:
    try:
        return check(case)
    except UserError as error:      # what a service rejects is a finding; one that is gone ends the diagnosis
        if isinstance(error, Unreachable):
            raise
        return Finding(check.__name__.replace("_", " "), "fail", str(error), REPORT)


# the checks -------------------------------------------------------------------------------------------------------


def log_probs(case: ServiceCase) -> Finding:
    """Sampler and learner agree on each sampled token, at the same position."""
    gaps = {s: float(np.abs(np.subtract(*case.pairs(case.completions, s))).mean()) for s in (0, 1, -1)}
    case.shift = min(gaps, key=lambda s: gaps[s])
    if gaps[0] <= GAP:
        case.shift = 0
        return Finding("log-probs", "ok", f"sampler and learner differ by {gaps[0]:.2g} nats per token on average")
    if gaps[case.shift] <= GAP:
        side = "late" if case.shift > 0 else "early"
        return Finding("log-probs", "fail", f"the learner's log-probs are one position {side}: {gaps[0]:.2g} nats from "
                       f"the sampler's in place, {gaps[case.shift]:.2g} one position on", REPORT)
    case.shift = 0
    return Finding("log-probs", "fail", f"sampler and learner differ by {gaps[0]:.2g} nats per token on average; at "
                   f"most {GAP:g} is rounding", "see the temperature below; if it is 1, the two have other weights or "
                   "numbers: " + REPORT)


def temperature(case: ServiceCase) -> Finding:
    """The learner's log-probs are those of temperature 1, and so are the sampler's whatever it samples at."""
    name = "temperature"
    first = {c.tokens[0]: c.logp[0] for c in case.completions if c.tokens}
    tokens = sorted(first)
    if len(tokens) < 3:
        for c in case.sample(case.sampler, case.prompt, range(COMPLETIONS, 4 * COMPLETIONS), 1):
            first.setdefault(c.tokens[0], c.logp[0])
        tokens = sorted(first)
    rows = case.learner([[*case.prompt, t, *case.prompt[:2]] for t in tokens])
    at = len(case.prompt) - 1 + case.shift
    theirs, ours = np.array([first[t] for t in tokens]), np.array([r[at] for r in rows])
    if len(tokens) < 3 or np.ptp(theirs) < 0.5:
        return Finding(name, "cannot tell", f"{len(tokens)} different first tokens were sampled; three are needed",
                       "give another --data, with prompts of which the model is less sure")
    slope = float(np.polyfit(theirs, ours, 1)[0])
    cold = case.sample(case.sampler, case.prompt, temperature=0.5)
    one, other = case.pairs(cold, case.shift)
    gap = float(np.abs(one - other).mean())
    kind = ("of T = 1 at every requested temperature" if gap <= GAP else
            f"not of T = 1 when another temperature is requested ({gap:.2g} nats apart at T = 0.5)")
    said = f"the learner's log-probs are those of T = {1 / slope:.3g}; the sampler's are {kind}"
    if slope <= 0 or abs(1 / slope - 1) > LIKE:
        return Finding(name, "fail", said, "the learner divides logits by a temperature that the sampler does not use: "
                       + REPORT)
    return Finding(name, "ok", said)


def draws(case: ServiceCase) -> Finding:
    """Sampled tokens are as frequent as their log-probs say."""
    start = case.prompt[:1]
    found = case.sample(case.sampler, start, range(1000, 1000 + DRAWS), 1)
    logp = {c.tokens[0]: c.logp[0] for c in found if c.tokens}
    seen = np.array([logp[c.tokens[0]] for c in found if c.tokens])
    chance = np.exp(np.array(list(logp.values())))
    rest = max(1 - float(chance.sum()), 0.0)        # of tokens that were not sampled: at most this likely each
    values = np.array([*logp.values(), min(logp.values())])
    weights = np.array([*chance, rest])
    mean = float((weights * values).sum())
    error = float(np.sqrt((weights * (values - mean) ** 2).sum() / max(len(seen), 1)))
    z = (float(seen.mean()) - mean) / max(error, 1e-9)
    said = (f"{len(seen)} single tokens have the mean log-prob {seen.mean():.3f}, expected {mean:.3f} "
            f"({z:+.1f} standard errors)")
    if abs(z) <= UNLIKELY:
        return Finding("draws", "ok", said)
    how = "a temperature below 1, top-p or top-k" if z > 0 else "a temperature above 1"
    return Finding("draws", "fail", said, f"the sampler uses {how} that was not asked for: " + REPORT)


def seeds(case: ServiceCase) -> Finding:
    """Equal seeds give equal tokens, and other seeds others."""
    again = case.sample(case.sampler, case.prompt)
    same = sum(a.tokens == b.tokens for a, b in zip(again, case.completions, strict=True))
    distinct = len({tuple(c.tokens) for c in again})
    said = f"{same} of {COMPLETIONS} seeds gave the same tokens again; {distinct} different completions"
    if same < COMPLETIONS:
        return Finding("seed", "warn", said, "runs cannot be repeated here: a killed run samples other tokens")
    if distinct == 1:
        return Finding("seed", "warn", said, "the model is sure of this prompt, or every seed gives the same tokens: "
                       "give another --data")
    return Finding("seed", "ok", said)


def end_token(case: ServiceCase) -> Finding:
    """A completion that ends has its end token, with a log-prob."""
    ended = [c for c in case.completions if not c.cut]
    if not ended:
        return Finding("end token", "cannot tell", f"no completion ended within {TOKENS} tokens")
    has = sum(bool(c.tokens) and c.tokens[-1] in case.text.ends for c in ended)
    if has == len(ended):
        return Finding("end token", "ok", f"all {has} completions that ended hold their end token")
    return Finding("end token", "warn", f"{len(ended) - has} of {len(ended)} completions that ended lack their end "
                   "token", "the policy cannot learn when to stop, and log-probs of whole answers are too high")


def sign(case: ServiceCase) -> Finding:
    """An advantage above 0 makes a token more likely."""
    case.one = case.probe.calibrate()
    change = case.one * case.probe.eta
    said = f"a step on an advantage of 1 changes the token's log-prob by {change:+.2g}"
    if case.one > 0:
        return Finding("sign", "ok", said)
    if case.one < 0:
        return Finding("sign", "fail", said, "training would make the model worse: " + REPORT)
    return Finding("sign", "fail", "no step changes the log-probs", "optimiser or gradients do not work: " + REPORT)


def reductions(case: ServiceCase) -> Finding:
    """How per-token losses become one. The API sums; what is known otherwise is undone by isocost."""
    name = "reduction"
    if case.one == 0:
        return Finding(name, "cannot tell", "no step changes the log-probs")
    found = reduction(case.probe, case.one)
    if not found.name:
        return Finding(name, "fail", f"neither a sum nor a mean that is known: {found.text}", REPORT)
    if found.name == "sum":
        return Finding(name, "ok", f"sum ({found.text})")
    return Finding(name, "warn", f"{found.name}, where the API says sum ({found.text})", "isocost scales advantages so "
                   "that gradients are those of a sum; scripts for services that sum have another learning rate here")


def linearity(case: ServiceCase) -> Finding:
    """A gradient is used as large as it is: not clipped unasked."""
    if case.one == 0:
        return Finding("gradient norm", "cannot tell", "no step changes the log-probs")
    row, probe = [case.probe.told(case.probe.row)], case.probe
    ratio = probe.response(row, size=1e3, eta=probe.eta / 1e3) / case.one
    said = f"1000 times the advantage has {ratio:.4g} times the effect"
    if abs(ratio / 1e3 - 1) <= LIKE:
        return Finding("gradient norm", "ok", said)
    return Finding("gradient norm", "fail", said, "gradients are clipped or normalised unasked: " + REPORT)


def clipping(case: ServiceCase) -> Finding:
    """`importance_sampling` weighs a token by the ratio of its probability to the one that is sent, unclipped."""
    if case.one == 0:
        return Finding("clipping", "cannot tell", "no step changes the log-probs")
    row, probe = [case.probe.told(case.probe.row)], case.probe
    high, low = (probe.response(row, ratio=r) / case.one for r in (3.0, 1 / 3))
    said = f"ratios of 3 and 1/3 have {high:.3g} and {low:.3g} times the effect of 1"
    if abs(high / 3 - 1) <= LIKE and abs(low * 3 - 1) <= LIKE:
        return Finding("clipping", "ok", said)
    if abs(high - 1) <= LIKE and abs(low - 1) <= LIKE:
        return Finding("clipping", "fail", said, "the log-probs that are sent are not used, so that stale rollouts are "
                       "trained on as if they were fresh: " + REPORT)
    return Finding("clipping", "fail", said, "ratios are clipped, though the loss has no clip: " + REPORT)


def gradient_clip(case: ServiceCase) -> Finding:
    """`grad_clip_norm` of a step clips its gradient."""
    if case.one == 0:
        return Finding("grad_clip_norm", "cannot tell", "no step changes the log-probs")
    share = case.probe.response([case.probe.told(case.probe.row)], clip=1e-4, size=1.0) / case.one
    said = f"with grad_clip_norm 1e-4 a step has {share:.3g} times its effect"
    if share < 0.5:
        return Finding("grad_clip_norm", "ok", said)
    return Finding("grad_clip_norm", "warn", said, "steps are not clipped here: one batch with a large gradient can "
                   "move the weights far")


def hidden_terms(case: ServiceCase) -> Finding:
    """A step without advantages changes nothing: no KL term, no weight decay."""
    probe, name = case.probe, "hidden terms"
    probe.push([[probe.told(probe.row)]])
    probe.adapter.optim_step(AdamParams(10 * probe.eta * EPS, beta1=0.0, beta2=0.0, eps=EPS))     # away from the base
    before = probe.push([[probe.nothing(probe.row)]])
    probe.adapter.optim_step(AdamParams(RATE, beta1=0.0, beta2=0.0))
    change = probe.watch() - before
    said = f"a step without advantages changes the log-prob by {change:.2g}"
    if abs(change) <= STILL:
        return Finding(name, "ok", said)
    return Finding(name, "fail", said, "the service adds a term of its own, such as a KL penalty or weight decay: "
                   + REPORT)


def sampler_weights(case: ServiceCase) -> Finding:
    """A new sampler has the weights of the last step."""
    before = case.pairs(case.completions)[1]
    for _ in range(20):
        case.train(1.0)
        if float(np.abs(case.pairs(case.completions)[1] - before).max()) > MOVED:
            break
    case.train(1.0, 3 * RATE)       # a sampler one step behind must show
    new = case.adapter.sampler()
    one, other = case.pairs(case.sample(new, case.prompt), case.shift)
    gap = float(np.abs(one - other).mean())
    said = f"after training, a new sampler and the learner differ by {gap:.2g} nats per token"
    if gap <= GAP:
        return Finding("sampler's weights", "ok", said)
    return Finding("sampler's weights", "fail", said, "the sampler does not have the learner's weights: " + REPORT)


def checkpoint(case: ServiceCase) -> Finding:
    """Loading a checkpoint restores weights and optimiser."""
    path = case.adapter.save(f"isocost-doctor-{secrets.token_hex(8)}")
    saved = case.pairs(case.completions)[1]
    case.train(1.0)
    after = case.pairs(case.completions)[1]
    case.train(-1.0)
    case.adapter.load(path)
    loaded = case.pairs(case.completions)[1]
    case.train(1.0)
    again = case.pairs(case.completions)[1]
    gap, moved = float(np.abs(loaded - saved).max()), float(np.abs(after - saved).max())
    apart = float(np.abs(again - after).max())
    said = (f"after loading, log-probs differ by {gap:.2g} nats; the next step is {apart:.2g} nats away from what it "
            f"was, of {moved:.2g}")
    if gap > max(STILL, 0.01 * moved):
        return Finding("checkpoint", "fail", said, "weights are not restored, so a run cannot be continued: " + REPORT)
    if apart > LIKE * moved:
        return Finding("checkpoint", "fail", said, "the optimiser is not restored, so a continued run is another run: "
                       + REPORT)
    return Finding("checkpoint", "ok", said)


CHECKS: tuple[Callable[[ServiceCase], Finding], ...] = (
    log_probs, temperature, draws, seeds, end_token, sign, reductions, linearity, clipping, gradient_clip, hidden_terms,
    sampler_weights, checkpoint,
)
