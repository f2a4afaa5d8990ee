"""An amount at which runs are stopped (`--stop-at`), besides the budget that says how long they are.

A run ends at the last step that the amount pays for: a further step and an evaluation after it, at the mean cost of
those so far, would exceed it. Rollouts, tokens, FLOP and environment steps are those of training, as in a budget; time
and money are of all that is billed. Where a run is stopped is no part of what it is: end.json has it, and a larger
amount, or none, continues the run to the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from isocost import units
from isocost.disk.shape import Plain
from isocost.errors import UserError
from isocost.meter import EVALUATION, TRAIN, Meter
from isocost.runs.files import read_json
from isocost.screen.words import duration
from isocost.types import Cost

_COUNTED = {units.ROLLOUTS: "rollouts", units.TOKENS: "decode", units.ENV_STEPS: "env_steps"}


@dataclass(frozen=True)
class StopAt(Plain):
    """An `amount` of a unit of `isocost.units`, or of a currency.

    `each` is what a count of a cost is worth in it, by its name in `Cost`, with `seconds` of run time and `cached`, the
    tokens of prompts that a server did not compute. FLOP have theirs once the model's size is known (`sized`).
    `first`: of the first so many updates, what each is worth besides.
    """

    LATER: ClassVar = ("first",)

    amount: float
    unit: str
    each: Mapping[str, float]
    first: tuple[int, float] = (0, 0.0)

    @staticmethod
    def parse(text: str, prices: Mapping[str, Mapping[str, float]]) -> StopAt:
        """The amount in a text such as `40usd`, `2h` or `1e18flop`; `prices` are what counts are worth in time and in
        a currency, by unit.

        Raises UserError for a text without a unit, and for money without a price in its currency.
        """
        amount, unit = units.amount(text, "amount of --stop-at")
        if not amount > 0:
            raise UserError(f"--stop-at {text}: expected an amount above 0")
        if unit in units.CURRENCIES and unit not in prices:
            known = "".join(f" in {unit}: the one given is in {k}" for k in prices if k in units.CURRENCIES)
            raise UserError(f"--stop-at {text}: no price is known{known}; give --price, such as 2.5{unit}/device-hour, "
                            f"or of a service 0.13{unit}/M-prefill,0.40{unit}/M-sample,0.40{unit}/M-train")
        return StopAt(amount, unit, prices.get(unit, {_COUNTED[unit]: 1.0} if unit in _COUNTED else {}))

    @property
    def whole(self) -> bool:
        """Whether it is of all that is billed, rather than of training alone."""
        return self.unit not in (*_COUNTED, units.FLOPS)

    def sized(self, parameters: float | None, learned: float | None) -> StopAt:
        """With what counts are worth in FLOP, as in `Cost.flops`. Raises UserError without the model's size."""
        if self.unit != units.FLOPS or self.each:
            return self
        if not (P := parameters):
            raise UserError("--stop-at in FLOP needs the model's number of parameters, which is not known here: give "
                            "rollouts, tokens, time or money")
        return replace(self, each={**dict.fromkeys(("prefill", "decode", "score"), 2.0 * P), "reread": -2.0 * P,
                                   "train": 4.0 * P + 2.0 * (learned or P)})

    def worth(self, logical: Cost, physical: Cost, seconds: float) -> float:
        """What a cost is worth, with run time `seconds`: money is of what the machine did, all else of what was asked.
        """
        own = {**(physical if self.unit in units.CURRENCIES else logical)._asdict(), "seconds": seconds,
               "cached": logical.prefill - physical.prefill}
        many, more = self.first
        return sum(worth * own[kind] for kind, worth in self.each.items()) + min(own["updates"], many) * more

    def spent(self, meter: Meter, seconds: float) -> float:
        """How much of it is spent by what a run's meter counts and its run time."""
        accounts = tuple(meter.logical) if self.whole else (TRAIN,)
        logical, physical = (
            sum((side.get(a, Cost()) for a in accounts), Cost()) for side in (meter.logical, meter.physical))
        return self.worth(logical, physical, seconds)

    def spent_of(self, end: Mapping[str, Any]) -> float:
        """The same of a run that ended, by its end.json."""
        def total(accounts: Mapping[str, Mapping[str, Any]]) -> Cost:
            return sum((Cost(**v) for k, v in accounts.items() if self.whole or k == TRAIN), Cost())

        logical = total(end["bill"])
        return self.worth(logical, total(end["physical"]) if end.get("physical") else logical, end["seconds"])

    def next(self, meter: Meter, seconds: float, steps: float, evaluations: int) -> float:
        """The mean cost of a step so far, and of an evaluation where those count."""
        done = meter.of(EVALUATION)
        each = self.worth(done, meter.physical.get(EVALUATION, done), done.seconds) / max(evaluations, 1)
        trained = self.worth(meter.of(), meter.physical.get(TRAIN, meter.of()), seconds - done.seconds)
        return trained / (steps or 1) + each * self.whole

    def text(self, amount: float) -> str:
        """An amount of its unit in words."""
        if self.unit == units.SECONDS:
            return duration(amount)
        word, own = units.asked(self.unit, amount)
        return f"{own:,.4g} {word}" if own < 1000 or self.unit == units.FLOPS else f"{own:,.0f} {word}"

    def shared(self, share: float, spent: float = 0.0) -> StopAt:
        """A share of what is left of it once `spent` is."""
        return replace(self, amount=max(self.amount - spent, 0.0) * share)


def more_than(stop_at: StopAt | None, before: Mapping[str, Any]) -> bool:
    """Whether a run that was stopped at the amount in plain data can continue to this one: it is larger, or of another
    unit."""
    return stop_at is None or stop_at.unit != before["unit"] or stop_at.amount > before["amount"]


def go_on(folder: Path, stop_at: StopAt | None) -> None:
    """Let the run in a folder continue if it was stopped at a smaller amount: its end.json is removed."""
    end = folder / "end.json"
    if end.exists() and (before := read_json(end).get("stop_at")) and more_than(stop_at, before):
        end.unlink()
