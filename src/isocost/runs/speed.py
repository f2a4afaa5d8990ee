"""The throughput of a run, and the shares of its time by activity, from a line of timing.jsonl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WORK = {"sample": "sampling", "score": "scoring", "learn": "learning", "evaluate": "evaluating"}  # names in output


@dataclass(frozen=True)
class Rates:
    """Rates of the training account over wall-clock time, and the shares of that time; `rest` is the remainder."""

    tokens_per_second: float  # sampled by the policy
    rollouts_per_second: float
    shares: Mapping[str, float]  # by the keys of WORK, and `rest`: each in [0, 1], with sum 1

    def data(self) -> dict[str, Any]:
        return {
            "tokens_per_second": round(self.tokens_per_second, 3),
            "rollouts_per_second": round(self.rollouts_per_second, 3),
            "shares": {k: round(v, 4) for k, v in self.shares.items()},
        }


def rates(line: Mapping[str, Any]) -> Rates | None:
    """The rates up to a line of timing.jsonl (shares are of busy seconds); None before the first second, or without."""
    if not all(k in line for k in ("seconds", "rollouts", "tokens", *WORK)) or not line["seconds"]:
        return None
    whole = max(line["seconds"], sum(line[k] for k in WORK))
    shares = {k: line[k] / whole for k in WORK}
    shares["rest"] = max(1.0 - sum(shares.values()), 0.0)
    return Rates(line["tokens"] / line["seconds"], line["rollouts"] / line["seconds"], shares)


def together(lines: Sequence[Mapping[str, Any]]) -> Rates | None:
    """Rates of runs in parallel, from the last line of each: rates add up, shares are averaged over time."""
    each = [(line, r) for line in lines if (r := rates(line)) is not None]
    if not each:
        return None
    seconds = [max(line["seconds"], sum(line[k] for k in WORK)) for line, _ in each]
    shares = {
        k: sum(s * r.shares[k] for s, (_, r) in zip(seconds, each, strict=True)) / sum(seconds) for k in (*WORK, "rest")
    }
    return Rates(
        sum(r.tokens_per_second for _, r in each), sum(r.rollouts_per_second for _, r in each), shares
    )


def told(r: Rates) -> str:
    """One line of text: '1,234 tokens/s, 410 rollouts/s; sampling 43 %, scoring 1 %, learning 35 %, ...'."""
    shares = ", ".join(f"{name} {100 * r.shares[k]:.0f} %" for k, name in WORK.items() if k != "evaluate")
    evaluating = f", evaluating {100 * r.shares['evaluate']:.0f} %" if r.shares["evaluate"] >= 0.005 else ""
    return f"{r.tokens_per_second:,.0f} tokens/s, {r.rollouts_per_second:,.0f} rollouts/s; {shares}{evaluating}"
