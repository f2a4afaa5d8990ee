"""A model behind a server: what is said of it, and as rows of a result what sampling cost and how it answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from isocost.planner.token_price import TokenPrice
from isocost.screen.display import Row
from isocost.screen.words import counted
from isocost.worlds.http import RequestLimits

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Served:
    """What a user says of a model behind a server: its size in `parameters`, the `price` of its tokens
    ("0.15usd/M-input,0.60usd/M-output"), and the `limits` of requests."""

    parameters: float | None = None
    price: str | None = None
    limits: RequestLimits = RequestLimits()

    @property
    def token_price(self) -> TokenPrice | None:
        """The price; None without one. Raises UserError for a text that is none."""
        return None if self.price is None else TokenPrice.parse(self.price)


def money(m: Data) -> str:
    """An amount of money and its price."""
    return f"{m['amount']:.4g} {m['currency']} ({m['price']})"


def spent(cost: Data, paid: Data | None, server: Data | None, measuring: Data | None = None) -> Iterable[Row]:
    """What sampling cost, and the requests to a server: how many failed, and what it does not take."""
    worth = f", {money(paid)}" if paid else ""
    tokens = sum(measuring[k] for k in ("prefill", "decode", "train")) if measuring else 0
    more = f"; {tokens:,} tokens to measure rates" if tokens else ""
    yield Row("cost", f"{cost.get('rollouts', 0):,} rollouts, {cost.get('prefill', 0):,} tokens read, "
                      f"{cost.get('decode', 0):,} written{more}{worth}")
    if not server:
        return
    again = sum(server["repeated"].values())
    kinds = ", ".join(f"{k}: {n}" for k, n in sorted(server["repeated"].items()))
    yield Row("requests", f"{server['sent']:,} sent, {again:,} of them again{f' ({kinds})' if kinds else ''}, "
                          f"{server['failed']:,} failed")
    if server["failed"]:
        why = "; ".join(server["examples"].values())
        yield Row("", f"{counted(server['failed'], 'request')} failed for good and have no score: {why}", "flag")
    if server["unknown"]:
        yield Row("", f"{counted(server['unknown'], 'request')} ended without an answer; the server may bill what is "
                      "not counted here", "flag")
    if "seed" in server["dropped"]:
        yield Row("", "the server takes no seed: the same command does not sample the same completions", "flag")
    if other := [k for k in server["dropped"] if k not in ("seed", "logprobs")]:
        yield Row("", f"the server does not take {', '.join(other)}: where it has defaults of its own, they hold",
                  "flag")
