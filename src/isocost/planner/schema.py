"""The shapes of the files that laws and the planner write, registered by import: see `isocost.runs.schema`."""

from __future__ import annotations

from isocost.disk.shape import UNKNOWN, Count, Each, Keys, Maybe, Size
from isocost.laws.law import Law
from isocost.planner.audit import Audit
from isocost.planner.bill import Bill
from isocost.planner.control.outcome import ControlAudit, ControlForecast
from isocost.planner.control.pilot import KIND as CONTROL
from isocost.planner.control.pilot import ControlCosts, ControlPilot, SigmaArm
from isocost.planner.control.prescribe import ControlLaws, ControlPlan
from isocost.planner.forecast import Forecast
from isocost.planner.test_time.outcome import StrategyAudit
from isocost.planner.test_time.policies import FrontierTable
from isocost.planner.test_time.prescribe import KIND, StrategyForecasts, StrategyPlan
from isocost.planner.test_time.profile import StrategyTable
from isocost.planner.training.learning_rate import RateRule, Shift
from isocost.planner.training.more import More
from isocost.planner.training.n_growth import NGrowth
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescription import Plan
from isocost.planner.training.turn_limits import LimitChoice
from isocost.runs.schema import NUMBER, register

_UNITS = Keys({
    "machine": Keys({}, {"devices": Size, "side_by_side": Size, "price": NUMBER, "currency": str, "tokens": str},
                    rest=UNKNOWN),
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
register("profile.json", StrategyTable, kind=KIND)
register("plan.json", StrategyPlan, {"frontier": Maybe(FrontierTable)}, kind=KIND)
register("forecast.json", StrategyForecasts, kind=KIND)
register("audit.json", StrategyAudit, kind=KIND)

_ASKED = {"options": Keys({})}      # what a plan was asked for
register("pilot.json", ControlPilot, _ASKED, CONTROL)
register("law.json", ControlLaws, kind=CONTROL)
register("plan.json", ControlPlan, _ASKED, CONTROL)
register("forecast.json", ControlForecast, kind=CONTROL)
register("audit.json", ControlAudit, kind=CONTROL)
register("study.json", Keys({"task": str, "source": str}, {
    "method": str | None, "seed": int, "phases": dict[str, float],
}), kind=CONTROL)
register("profile.json", Keys({
    "task": str, "method": str, "width": Size, "random": float, "reference": float, "batch": Size, "rate": float,
    "samples": Size, "by_rate": Each(tuple[float, float, float]), "default": SigmaArm, "seconds": float,
    "costs": ControlCosts,
}), kind=CONTROL)
