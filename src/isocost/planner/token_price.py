"""Prices per token, as services charge them, and what a cost is worth at such a price.

Services price four kinds of tokens apart, by the million: prompts (Tinker: prefill; Fireworks, OpenAI: input), prompts
that the service had cached, sampled tokens (sample; output), and tokens that are trained. A forward pass without a
gradient is charged as a prompt.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.types import Cost
from isocost.units import CURRENCIES

_HELP = ("expected a price per million tokens, such as 0.15usd/M-input,0.60usd/M-output, or 0.20usd/M-tokens for both, "
         "with /M-cached and /M-train where they have one; or a .toml or .json file")
_ONE = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?) ?([A-Za-z]+) ?/ ?([kM]?)-?(prefill|input|cached|sample|output|train|"
                  r"tokens)")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6}
_KINDS = {"prefill": ("input",), "sample": ("output",), "tokens": ("input", "output")}     # the others are their own


@dataclass(frozen=True)
class Money:
    """An amount, and the price that it follows from, as the user wrote it."""

    amount: float
    currency: str
    price: str

    def data(self) -> dict[str, Any]:
        return {"amount": round(self.amount, 6), "currency": self.currency, "price": self.price}


@dataclass(frozen=True)
class TokenPrice:
    """The price of a token read, written, read from a service's cache, and trained; the last two None where they have
    none of their own: a cached token then costs as any that is read, and what training costs is not known."""

    read: float
    written: float
    currency: str
    asked: str
    cached: float | None = None
    trained: float | None = None

    @staticmethod
    def given(text: str | None) -> bool:
        """Whether a user's price is one per token, rather than per hour."""
        return text is not None and (Path(text.partition("#")[0]).suffix in (".toml", ".json")
                                     or re.search(r"/ ?[kM]?-?(prefill|input|cached|sample|output|train|tok)", text)
                                     is not None)

    @staticmethod
    def parse(text: str, model: str = "") -> TokenPrice:
        """The price in a text such as `0.15usd/M-input,0.60usd/M-output`, or in a file.

        A file has `currency`, `prefill` (or `input`), `sample` (or `output`), `cached` and `train`, per million tokens:
        at its top, or in a table named as the `model` is, or as FILE#NAME says. Raises UserError for a text that cannot
        be read, a part that is given twice or lacking, and two currencies.
        """
        by: dict[str, float] = {}
        currencies = set()
        file, _, name = text.partition("#")
        if Path(file).suffix in (".toml", ".json"):
            text = _of_file(Path(file), name or model)
        for part in text.split(","):
            found = _ONE.fullmatch(part.strip())
            try:
                amount = float(found[1]) if found else -1.0
            except ValueError:
                amount = -1.0
            if found is None or amount < 0 or found[2].lower() not in CURRENCIES:
                raise UserError(f"cannot read the price {text!r}; {_HELP}; in {', '.join(CURRENCIES)}")
            for kind in _KINDS.get(found[4], (found[4],)):
                if kind in by:
                    raise UserError(f"the price {text!r} names {kind} tokens twice; {_HELP}")
                by[kind] = amount / _SCALE[found[3]]
            currencies.add(found[2].lower())
        if not {"input", "output"} <= by.keys() or len(currencies) > 1:
            raise UserError(f"the price {text!r} needs both input and output tokens, in one currency; {_HELP}")
        return TokenPrice(by["input"], by["output"], currencies.pop(), text.strip(), by.get("cached"), by.get("train"))

    def of(self, cost: Cost, cached: float = 0.0) -> Money:
        """What tokens of a cost, and `cached` ones, are worth. Raises UserError for trained tokens without a price."""
        each = self.each
        if cost.train and "train" not in each:
            raise UserError(f"the price {self.asked!r} has none of trained tokens: add it, such as ,0.40usd/M-train")
        spent = sum(worth * getattr(cost, kind, 0) for kind, worth in each.items())
        return Money(spent + cached * each["cached"], self.currency, self.asked)

    @property
    def each(self) -> dict[str, float]:
        """What each count of a cost is worth, by its name in `Cost`, and a `cached` token, which is no `prefill`."""
        trained = {} if self.trained is None else {"train": self.trained}
        return {"prefill": self.read, "cached": self.read if self.cached is None else self.cached,
                "decode": self.written, "score": self.read, **trained}


def _of_file(file: Path, name: str) -> str:
    """The price in a file as a text. Raises UserError where there is none, or no table of that name."""
    try:
        raw = file.read_text(encoding="utf-8")
        data = tomllib.loads(raw) if file.suffix == ".toml" else json.loads(raw)
    except (OSError, ValueError) as e:
        raise UserError(f"cannot read the prices in {file}: {e}") from None
    tables = {k: v for k, v in data.items() if isinstance(v, Mapping)} if isinstance(data, Mapping) else {}
    if tables and name not in tables:
        raise UserError(f"{file} has no prices of {name or 'a model without a name'}: it has {', '.join(tables)}; name "
                        f"one with --price {file}#NAME")
    own = {**data, **tables[name]} if tables else data
    kinds = [k for k in ("prefill", "input", "cached", "sample", "output", "train", "tokens") if k in (own or ())]
    return ",".join(f"{own[k]}{own.get('currency', 'usd')}/M-{k}" for k in kinds)
