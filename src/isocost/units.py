"""The units that costs are counted in: one table for plans, comparisons, runs, reports, importers and the command line.

A unit's key is its name in plans, comparisons and their records. The table has its names in a run's budget and in a
user's text, so that no other file translates them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isocost.errors import UserError
from isocost.screen.words import grouped

if TYPE_CHECKING:
    from isocost.types import Cost
    from isocost.world import Learner


@dataclass(frozen=True)
class Unit:
    """One unit. `words` is its name in text, after an amount or as a column's head.

    `asked` is its name in a budget, worth `size` of the unit. `spelt` maps every name that a budget may use to its
    size. `compared` is the quantity that runs of one comparison have equal in this unit. `of_run` is the key in a run's
    own budget, `of_arm` that in the budget of a run of a comparison; both are empty if a run cannot be stopped by it.
    """

    key: str
    words: str
    asked: str
    size: float
    spelt: Mapping[str, float]
    compared: str = ""
    of_run: str = ""
    of_arm: str = ""


ROLLOUTS, SECONDS, TOKENS, FLOPS = "rollouts", "seconds", "tokens", "flops"
DEVICE_SECONDS, DEVICE_HOURS = "device-seconds", "device-hours"
CPU = "cpu-seconds"                     # of a bill, of all threads; never given by a user
WALL = "seconds on the wall"            # with runs in parallel; in a row of a budget, never given by a user
SAMPLING = "sampling seconds"           # at a service, where training is elsewhere
ENV_STEPS = "environment steps"         # turns that an environment answered
CURRENCIES = ("usd", "eur", "gbp", "chf", "jpy", "cny")

_HOUR = 3600
_TIME = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), _HOUR),
    **dict.fromkeys(("d", "day", "days"), 24 * _HOUR),
}
_DEVICES = {f"{device}-{hour}": _HOUR for device in ("device", "gpu") for hour in ("hour", "hours", "h")}

TABLE: Mapping[str, Unit] = {
    unit.key: unit
    for unit in (
        Unit(ROLLOUTS, "rollouts", "rollouts", 1, {"rollout": 1, "rollouts": 1}, "rollouts", "rollouts", "rollouts"),
        Unit(SECONDS, "run time", "seconds", 1, _TIME, "busy seconds", "seconds", "busy seconds"),
        Unit(TOKENS, "tokens", "tokens", 1, {"token": 1, "tokens": 1}, "tokens", "tokens", "tokens"),
        Unit(FLOPS, "FLOP", "flop", 1, {"flop": 1, "flops": 1}, "FLOP", "flop", "flop"),
        Unit(DEVICE_SECONDS, "device-seconds", DEVICE_HOURS, _HOUR, _DEVICES),
        *(Unit(currency, currency, currency, 1, {currency: 1}) for currency in CURRENCIES),
        Unit(WALL, "wall-clock time", WALL, 1, {}),
        Unit(SAMPLING, "time of sampling", SAMPLING, 1, {}),
        Unit(CPU, "CPU time", CPU, 1, {}),
        Unit(ENV_STEPS, ENV_STEPS, "env-steps", 1, dict.fromkeys(("env-step", "env-steps"), 1), ENV_STEPS, "env-steps",
             "env-steps"),
    )
}
UNITS = (ROLLOUTS, SECONDS, TOKENS, FLOPS, ENV_STEPS)              # what plans count in and runs can be stopped by
ASKED = (*UNITS, DEVICE_SECONDS, *CURRENCIES)           # what a budget may be given in
# What stops a run: each unit of its own budget, and the key of a bill that counts it; empty for what is computed.
STOPS: Mapping[str, str] = {
    "rollouts": "rollouts", "tokens": "decode", "env-steps": "env_steps", "updates": "updates", "flop": "",
    "seconds": "", "busy seconds": "seconds",
}
SPELT = {spelt: (unit.key, size) for unit in TABLE.values() for spelt, size in unit.spelt.items()}

_AMOUNT = r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9.]+(?:[eE][+-]?[0-9]+)?)([kKMGBT]?)[-_ ]?([A-Za-z][A-Za-z-]*|)"
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
HELP = ("expected a number with a unit, such as 50k-rollouts, 2h, 30m (minutes), 90s, 1d, 2M-tokens, 1e18flop, "
         "60k-env-steps, 16device-hours or 20usd")
_UPDATE = ("n x B", "each of B problems an update", 128)
LENGTHS = {     # what is no unit of a budget: its rollouts, of which problems, and an example
    **dict.fromkeys(("step", "update", "iteration", "iter", "training-step", "optimizer-step"), _UPDATE),
    "epoch": ("n x P", "each of P training problems", 8_000),
}

def amount(text: str, of: str = "budget") -> tuple[float, str]:
    """(amount, unit) in a text such as `50k-rollouts`, `50,000 rollouts`, `2h`, `30m`, `90s`, `1d`, `2M-tokens`,
    `1e18flop`, `16 device-hours`, `20usd`.

    Raises:
        UserError: for a number without a unit, or an unknown unit; `of` is what the text is of.
    """
    found = re.fullmatch(_AMOUNT, text.strip())
    if not found:
        raise UserError(f"cannot read the {of} {text!r}; {HELP}")
    number, scale, word = found.groups()
    try:
        size = float(number.replace(",", "")) * _SCALE[scale]
    except ValueError:
        raise UserError(f"cannot read the number in {text!r}; {HELP}") from None
    if not word:
        raise UserError(f"{text!r} has no unit; {HELP}")
    key = word if word == "M" else word.lower()     # 30m is minutes; 30-M is a million without a unit
    if key.rstrip("s") in LENGTHS:
        each, of_each, example = LENGTHS[key.rstrip("s")]
        cost = f"{grouped(size * example)}-rollouts"
        raise UserError(f"{text!r} is the length of a run, which costs {size:g} x {each} rollouts, with n "
                        f"rollouts of {of_each}: give these; where {each} = {example}, {cost}")
    if key not in SPELT:
        raise UserError(f"{word!r} is not a unit of a {of}; {HELP}")
    unit, factor = SPELT[key]
    return size * factor, unit


def words(key: str) -> str:
    """A unit for people; a key that is not in the table, such as a log's own, is unchanged."""
    return TABLE[key].words if key in TABLE else key


def compared(key: str) -> str:
    """The quantity that runs of one comparison have equal: seconds are busy seconds of training."""
    return (TABLE[key].compared if key in TABLE else "") or key


def of_run(key: str) -> str:
    """The key in a run's own budget. Raises UserError if a run cannot be stopped by this unit."""
    if key not in TABLE or not TABLE[key].of_run:
        raise UserError(f"a run cannot be stopped by {words(key)}: {', '.join(UNITS)} can")
    return TABLE[key].of_run


def of_arm(key: str) -> str:
    """The key in the budget of a run of a comparison: seconds are those busy with training, so evaluations are not
    counted. Raises UserError where a run cannot be stopped by this unit."""
    of_run(key)
    return TABLE[key].of_arm


def spent(unit: str, cost: Cost, learner: Learner, clock: float) -> float:
    """How much of a unit of a run's budget is spent, by training's cost and the run's clock in seconds."""
    if key := STOPS[unit]:
        return float(getattr(cost, key))
    return clock if unit == "seconds" else cost.flops(learner.parameters, learner.learned)


def asked(key: str, amount: float) -> tuple[str, float]:
    """(word, amount) as a budget spells an amount of this unit."""
    unit = TABLE[key]
    return unit.asked, amount / unit.size
