"""The shapes of the files that laws and the planner write, registered by import: see `isocost.runs.schema`."""

from __future__ import annotations

from isocost.disk.shape import UNKNOWN, Count, Each, Keys, Maybe, Size
from isocost.laws.law import Law
from isocost.planner.audit import Audit
from isocost.planner.bill import Bill
from isocost.planner.forecast import Forecast
from isocost.planner.training.learning_rate import RateRule, Shift
from isocost.planner.training.more import More
from isocost.planner.training.n_growth import NGrowth
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescription import Plan
from isocost.planner.training.turn_limits import LimitChoice
from isocost.runs.schema import NUMBER, register

_UNITS = Keys({
    "machine": Keys({}, {"devices": Size, "side_by_side": Size, "price": NUMBER, "currency": str}, rest=UNKNOWN),
    "rows": Each(Keys({"unit": str, "pilot": NUMBER, "training": NUMBER, "budget": NUMBER, "known": str, "why": str})),
})

register("pilot.json", PilotPlan, {"units": _UNITS})
register("rate.json", RateRule)
register("shift.json", Shift)
register("law.json", Law, {"metric": str, "turn_limit": LimitChoice})
register("plan.json", Plan, {
    "units": _UNITS, "more": Each(More), "sees": Maybe(Keys({"text": str})), "growth": Maybe(NGrowth),
    "cost": Maybe(Bill),
    "next": Each(Keys({"text": str, "option": str})),
    "measure": Keys({}, {"kind": str, "unit": str, "scale": tuple[float, float]}),
    "evaluating": Maybe(Keys({}, {
        "problems": Size, "samples": Size, "rollouts": Count, "share": float, "unit": str, "sd": float,
    })),
})
register("forecast.json", Forecast)
register("audit.json", Audit)
