"""Which strategy answers a request: the one that it names, else the server's, at the size that its budget pays for.

A budget in tokens is a limit of what the tries of one answer may write: n is as large as n completions of the longest
length fit, and no larger than the strategy says. It depends on nothing that was measured, so a request repeats its
answer.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from isocost import strategies
from isocost.envs.gateway_protocol import RequestError
from isocost.errors import UserError
from isocost.planner.budget import Budget
from isocost.steps.serving.answers import Choose, Chosen
from isocost.units import TOKENS

PLAIN = "one"       # the strategy that writes one completion, which is the answer


def by_strategy(default: str) -> Choose:
    """The choice of a server that has one strategy for requests that name none. Raises UserError for an unknown one."""
    parsed = cache(strategies.parse)
    parsed(default)

    def choose(strategy: str, budget: str, limit: int) -> Chosen:
        try:
            found = parsed(strategy or default)
            if budget:
                found = _within(budget, found, limit)
        except UserError as e:
            raise RequestError(str(e), "invalid_value", param="isocost") from None
        return Chosen(str(found), found.play, found.most, found.name == PLAIN)

    return choose


def _within(budget: str, asked: strategies.Strategy, limit: int) -> strategies.Strategy:
    """A strategy of at most the size that a budget pays for. Raises UserError for one that pays for none."""
    paid = Budget.parse(budget.strip().removesuffix("/answer"))
    if paid.unit != TOKENS:
        raise UserError(f"budget {budget!r}: this server has no measured plan, so it counts tokens only: 800-tokens. "
                        "Seconds and money need `isocost serve STUDY`")
    most = int(paid.amount // limit)
    if most < 1:
        raise UserError(f"budget {budget!r} is below one completion of {limit} tokens: lower max_tokens, or raise it")
    for n in range(min(most, asked.most), 0, -1):
        with suppress(UserError):       # sizes that the strategy does not divide
            return strategies.parse(_sized(asked, n))
    raise UserError(f"budget {budget!r}: {asked} has no size of {most} completions or fewer")


def _sized(asked: strategies.Strategy, size: int) -> str:
    """The specification of a strategy with another n."""
    return f"{asked}{',' if ':' in str(asked) else ':'}n={size}"
