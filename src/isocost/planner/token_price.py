"""Prices per token, as servers of models charge them, and what a cost is worth at such a price."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from isocost.errors import UserError
from isocost.types import Cost
from isocost.units import CURRENCIES

_HELP = "expected a price per million tokens, such as 0.15usd/M-input,0.60usd/M-output, or 0.20usd/M-tokens for both"
_ONE = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?) ?([A-Za-z]+) ?/ ?([kM]?)-?(input|output|tokens)")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Money:
    """An amount, and the price that it follows from, as the user wrote it."""

    amount: float
    currency: str
    price: str

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"amount": round(self.amount, 6), "currency": self.currency, "price": self.price}


@dataclass(frozen=True)
class TokenPrice:
    """The price of a token read and of a token written."""

    read: float
    written: float
    currency: str
    asked: str

    @staticmethod
    def parse(text: str) -> TokenPrice:
        """The price in a text such as `0.15usd/M-input,0.60usd/M-output` or `0.20usd/M-tokens`.

        Raises:
            UserError: for a text that cannot be read, a part that is given twice or lacking, and two currencies.
        """
        by: dict[str, float] = {}
        currencies = set()
        for part in text.split(","):
            found = _ONE.fullmatch(part.strip())
            try:
                amount = float(found[1]) if found else -1.0
            except ValueError:
                amount = -1.0
            if found is None or amount < 0 or found[2].lower() not in CURRENCIES:
                raise UserError(f"cannot read the price {text!r}; {_HELP}; in {', '.join(CURRENCIES)}")
            for kind in ("input", "output") if found[4] == "tokens" else (found[4],):
                if kind in by:
                    raise UserError(f"the price {text!r} names {kind} tokens twice; {_HELP}")
                by[kind] = amount / _SCALE[found[3]]
            currencies.add(found[2].lower())
        if len(by) < 2 or len(currencies) > 1:
            raise UserError(f"the price {text!r} needs both input and output tokens, in one currency; {_HELP}")
        return TokenPrice(by["input"], by["output"], currencies.pop(), text.strip())

    def of(self, cost: Cost) -> Money:
        """What the tokens of a cost are worth, without discounts for prompts that the server had cached."""
        return Money(cost.prefill * self.read + cost.decode * self.written, self.currency, self.asked)
