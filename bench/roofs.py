"""What a sampling or a learning phase cannot do without, from the counts of `bench.roofline`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from bench.roofline import Peaks, Work, bound, decode_work, floor, measure, prefill_work, train_work
from isocost.local.decoder import Config

BODY = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Phase:
    """`groups` prompts of `prompt` tokens, `n` rollouts of `new` tokens after each."""

    groups: int
    n: int
    prompt: int
    new: int

    @property
    def rows(self) -> int:
        return self.groups * self.n

    @property
    def trained(self) -> int:
        """Tokens a learner must read: shared prompts once, and no last token, for nothing follows it."""
        return self.groups * (self.prompt + self.n * (self.new - 1))

    @property
    def looks(self) -> float:
        """Keys that one of them looks at on average, its own included."""
        own = self.n * sum(self.prompt + j for j in range(1, self.new))
        return self.groups * (self.prompt * (self.prompt + 1) / 2 + own) / self.trained


def sampling(config: Config, phase: Phase, dtype: str, peaks: Peaks) -> dict[str, Any]:
    """Reading the prompts once, then a tick for every further token: each waits for the one before."""
    body, p = BODY[dtype], phase
    reads = prefill_work(
        config, p.groups * p.prompt, context=(p.prompt + 1) / 2, predicted=p.groups, body=body
    )
    ticks = [
        decode_work(config, p.rows, p.prompt + t, body=body, prompt=p.prompt, group=p.n) for t in range(p.new - 1)
    ]
    return _told([reads, *ticks], peaks, dtype)


def learning(config: Config, phase: Phase, dtype: str, peaks: Peaks) -> dict[str, Any]:
    """One update on everything that was sampled."""
    work = train_work(
        config, phase.trained, context=phase.looks, predicted=phase.rows * phase.new, body=BODY[dtype]
    )
    return _told([work], peaks, dtype)


def _told(works: list[Work], peaks: Peaks, dtype: str) -> dict[str, Any]:
    total = reduce(Work.__add__, works)
    return {
        "floor": sum(floor(w, peaks, dtype) for w in works), "flops": total.flops, "bytes": total.bytes,
        "bound": bound(works[-1], peaks, dtype),
    }


class Machine:
    """The machine's peaks, measured before and between points: the highest of all, for load only lowers them."""

    def __init__(self, threads: int, device: str):
        self.threads, self.device = threads, device
        self.peaks = measure(threads, device)

    def look(self) -> None:
        """Measure once more."""
        self.peaks = higher(self.peaks, measure(self.threads, self.device))


def higher(a: Peaks, b: Peaks) -> Peaks:
    """The higher of two measurements, peak by peak."""
    flops = {k: max(v, b.flops[k]) for k, v in a.flops.items()}
    reads = tuple((size, max(x, y)) for (size, x), (_, y) in zip(a.reads, b.reads, strict=True))
    return Peaks(flops, max(a.bytes, b.bytes), a.threads, reads)


def peaks_data(peaks: Peaks) -> dict[str, Any]:
    reads = [list(x) for x in peaks.reads]
    return {"flops": dict(peaks.flops), "bytes": peaks.bytes, "threads": peaks.threads, "reads": reads}
